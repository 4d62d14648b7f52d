"""Which arms were hardly tried in places that keep coming back, and are tried there once more.

A standard deviation is learned from rewards, and the first rewards may be nothing like those that nobody has looked
for: a jackpot of 50 beside rewards of 1 ± 0.05. How often an arm was tried in a place like this one is a matter of
contexts alone. A look costs what the arm is worse by; it may find something as good as the best reward so far, which is
worth having as often as the place comes back; and after n looks that found nothing, the chance that one more does is
about 1/(n + ½)². So an arm is tried where

    (n_a + ½)² < u·N/K · gain/cost,    gain/cost ≤ 1,

with N visits to places like this one, n_a of them to the arm, one of K. Surprises are as likely as values that were
never seen before: by Good (1953) their probability is the share of rewards whose value was seen once. Of clicks it is
0, and of yields 1. They are as large as what is left of the deviation of rewards by what the columns explain: a model
that has shown that it knows one place from others is trusted more. u is the product of the two. Without the second
factor a fifth of what can be earned went into looks where three arms are linear in two columns (300 rounds).

A described action of a short list that was hardly tried anywhere, such as a price, is tried by the same rule, with
u = 1 and everywhere for a place, unless even a bound that holds in all rounds leaves no hope that it is the best here.
A model that learns from its neighbours may be sure that it is bad, and then nothing shows that it is good. Named arms
need no such rule: it cost 0.6 points on four tables (two shuffles of 800 rounds).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self

import numpy as np

from kernel_bandits.arrays import FloatArray
from kernel_bandits.learning.columns import ColumnUnits
from kernel_bandits.learning.defaults import PLACE_WIDTH, REMEMBERED_PLAYS, SHORT_LIST
from kernel_bandits.values import Rows, evolve


def unexplained(shares: Sequence[tuple[str, float]]) -> float:
    """Return what the columns leave of the standard deviation of rewards, by the shares of their variance."""
    return math.sqrt(max(0.0, 1.0 - sum(share for name, share in shares if name in ("linear", "smooth"))))


class Places:
    """Where what was played; a value.

    Args:
        split: the number of context columns; the others are the action.
        stride: of so many plays one is remembered.
    """

    __slots__ = ("_actions", "_contexts", "_counts", "_plays", "_rows", "_split", "_standard", "_stride")

    def __init__(self, split: int = 0, stride: int = 1) -> None:
        self._split, self._stride, self._plays = split, stride, 0
        # joint points as they were played, and in units of their columns
        self._rows, self._standard = Rows(), Rows()
        # the plays of each action; None where the list is not short
        self._counts: dict[bytes, int] | None = {}
        self._contexts: ColumnUnits | None = None
        self._actions: ColumnUnits | None = None

    def played(self, points: FloatArray) -> Self:
        """Return these with further plays (n, d)."""
        first = -self._plays % self._stride
        kept = points[first :: self._stride]
        after = evolve(self, _plays=self._plays + len(points), _counts=self._counted(points))
        if len(kept):
            after._rows = self._rows.extended(kept)
            if self._contexts is not None:
                after._standard = self._standard.extended(self._standardised(kept))
        return after._thinned() if len(after._rows) > REMEMBERED_PLAYS else after

    def _counted(self, points: FloatArray) -> dict[bytes, int] | None:
        """Return how often each action was played once these points (n, d) are; None where the list is not short."""
        if self._counts is None:
            return None
        counts = self._counts.copy()
        for action in points[:, self._split :]:
            # −0 is 0
            key = (action + 0.0).tobytes()
            counts[key] = counts.get(key, 0) + 1
            if len(counts) > SHORT_LIST:
                return None
        return counts

    def _thinned(self) -> Self:
        """Return these with every second of the plays that were remembered."""
        rows, twin, stride = self._rows.array, self, self._stride
        while len(rows) > REMEMBERED_PLAYS:
            rows, stride = rows[::2], 2 * stride
        twin = evolve(self, _rows=Rows.of(rows), _stride=stride)
        if self._contexts is not None:
            twin._standard = Rows.of(self._standardised(rows))
        return twin

    def measured(self, split: int, contexts: ColumnUnits, actions: ColumnUnits | None) -> Self:
        """Return these in units of contexts and of actions; None for actions that name arms."""
        twin = evolve(self, _split=split, _contexts=contexts, _actions=actions)
        rows = self._rows.array
        twin._standard = Rows.of(twin._standardised(rows)) if len(rows) else Rows()
        return twin

    def _standardised(self, points: FloatArray) -> FloatArray:
        """Return points in widths of a place: what is closer than 1 in them is in one place."""
        assert self._contexts is not None
        units, split = self._contexts, self._split
        contexts = np.where(units.varies, units.standardised(points[:, :split]), 0.0)
        contexts /= PLACE_WIDTH * math.sqrt(units.variables)
        actions = points[:, split:]
        if self._actions is not None:
            actions = np.where(self._actions.varies, self._actions.standardised(actions), 0.0)
            actions /= PLACE_WIDTH * math.sqrt(self._actions.variables)
        return np.hstack([contexts, actions])

    def visits(self, points: FloatArray) -> tuple[float, FloatArray]:
        """Return how often places like that of one context were visited, and what each of its points (A, d) was."""
        split, offered = self._split, self._standardised(points)
        visits, of_each = 0.0, np.zeros(len(points))
        for plays in self._standard.blocks():
            # a play counts e^(−½‖x − y‖²)
            offsets = plays[:, :split] - offered[0, :split]
            counts = np.exp(-0.5 * np.vecdot(offsets, offsets))
            visits += float(counts.sum())
            actions, own = plays[:, split:], offered[:, split:]
            if self._actions is None:
                # unit vectors, of which those of two arms are orthogonal
                same = actions @ own.T
            else:
                same = np.exp(-0.5 * ((actions[:, None, :] - own[None, :, :]) ** 2).sum(axis=2))
            of_each += counts @ same
        return self._stride * visits, self._stride * of_each

    def due(self, points: FloatArray, means: FloatArray, stds: FloatArray, best: float, surprise: float) -> int | None:
        """Return which of the points (A, d) of one context is to be tried, if one is.

        Args:
            points: on offer.
            means: their expected rewards, shape (A,).
            stds: the standard deviations of these, shape (A,).
            best: the best reward so far.
            surprise: u.
        """
        plays, offered = self._plays, len(points)
        if self._contexts is None or offered < 2 or plays < offered:
            return None
        # what the best may earn here is no gain
        cost, gain = means.max() - means, best - (means + stds).max()
        if not gain > 0.0:
            return None
        # what costs less than it may gain is worth a try
        worth = gain / np.maximum(cost, gain)
        due = np.full(offered, -1.0)
        if self._counts is not None and self._actions is not None:
            counts, keys = self._counts, [(action + 0.0).tobytes() for action in points[:, self._split :]]
            tried = np.array([counts.get(key, 0) for key in keys])
            due = np.sqrt(plays / len(counts.keys() | set(keys)) * worth) - tried - 0.5
            # t normal deviations are below √(2 log t) on average
            due[means + math.sqrt(2.0 * math.log(plays)) * stds < means.max()] = -1.0
        if surprise * plays >= offered:
            visits, of_each = self.visits(points)
            due = np.maximum(due, np.sqrt(surprise * visits / offered * worth) - of_each - 0.5)
        row = int(due.argmax())
        return row if due[row] > 0.0 else None
