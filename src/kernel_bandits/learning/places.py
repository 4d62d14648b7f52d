"""Which actions are tried where they were hardly tried, and what that may cost.

A standard deviation is learned from rewards, and the first rewards may be nothing like those that nobody has looked
for: a jackpot of 50 beside rewards of 1 ± 0.05. How often an action was played in a place like this one is a matter of
contexts alone, and what a look there may cost is measured by what was earned, as in conservative bandits (Wu et al.
2016): **of what is earned beyond uniform play in round t, one part in √t is spent on looks.** Both are in the unit of
the rewards, so no kind of reward has to be known, and in the end looks cost next to nothing of it. With b left to be
spent, an action that looks worse by c than another, and was played n of the N times that a place like this one was
visited, one of K, is tried if

    (n + 1)²·c·r ≤ b    and    (n + ½)²·r ≤ N/K,    r = max(1, c/g),

since after n looks that found nothing, one more finds something with a probability of about 1/(n + 1)², and what may be
found is worth the gain g, by which the best reward so far exceeds what is expected here anyway. The first says that
places where little is known come first, and the second that the place comes back. For every second look it is enough
that c ≤ b and the place comes back: places where little is known are far out, and what is looked for may be in the
middle.

Of that a share u is spent, the probability of a surprise. By Good (1953) a value that was never seen before is as
likely as the share of rewards whose value was seen once: 0 for clicks, and 1 for yields.

Described actions, such as prices, are hidden by their neighbours, in whatever context. Of a short list of them that
return, each is tried, whatever it costs, as often as any consistent policy has to (Lai and Robbins 1985),

    n + ½ < u·log(t/K)/r,

unless even a bound that holds in all rounds leaves no hope that it is the best here. The u is the share of noise in the
deviation of rewards, which the model does not explain by neighbours. With the rule of arms in its place three tables of
described actions lose 2 to 3 points (heating, travel-mode, thornton-hiv; python benchmarks/bakeoff/run.py).

A reward beyond what counts of rewards (:class:`~kernel_bandits.learning.columns.RewardUnits`) is an outlier or a
jackpot, and only other looks tell: what it exceeds the bound by is to be spent too, and its action is tried there again
until it earned an ordinary reward as often.
"""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np

from kernel_bandits.arrays import FloatArray
from kernel_bandits.learning.columns import ColumnUnits
from kernel_bandits.learning.defaults import PLACE_WIDTH, REMEMBERED_PLAYS, SHORT_LIST
from kernel_bandits.values import Rows, evolve

# No gain is less.
TINY = 1e-300


class Places:
    """What was played where, and what is left to be spent on looks; a value.

    Args:
        split: the number of context columns; the others are the action.
        stride: of so many plays one is remembered.
    """

    __slots__ = (
        "_best",
        "_beyond",
        "_contexts",
        "_count",
        "_left",
        "_looks",
        "_plays",
        "_rows",
        "_split",
        "_standard",
        "_stride",
        "_u",
    )

    def __init__(self, split: int = 0, stride: int = 1) -> None:
        self._split, self._stride, self._plays, self._looks = split, stride, 0, 0
        # how many described actions were played by the last fit
        self._count = 0
        # joint points as they were played, and with contexts in widths of a place
        self._rows, self._standard = Rows(), Rows()
        # None where all contexts are one place
        self._contexts: ColumnUnits | None = None
        # where more was earned than counts of rewards
        self._beyond = Rows()
        self._best = self._left = self._u = 0.0

    def played(self, points: FloatArray, evaluated: Any = None) -> Self:
        """Return these with further plays (n, d), or with one as it was evaluated among what was offered."""
        first = -self._plays % self._stride
        kept = points[first :: self._stride]
        after = evolve(self, _plays=self._plays + len(points))
        if evaluated is not None:
            means, row = evaluated[0].mean, evaluated[1]
            own, cost = means.item(row), float(means.max()) - means.item(row)
            gained = self._u / math.sqrt(after._plays) * (own - float(means.mean()))
            after._left = self._left + gained - cost
            after._looks += cost > 0.0
        after._rows = self._rows.extended(kept)
        after._standard = self._standard.extended(self._standardised(kept))
        return after._thinned() if len(after._rows) > REMEMBERED_PLAYS else after

    def found(self, points: FloatArray, rewards: FloatArray, high: float) -> Self:
        """Return these with points (n, d) where rewards (n,) were earned of which no more than a bound counts."""
        best, left = max(self._best, float(rewards.max())), self._left + float((rewards - high).sum())
        return evolve(self, _beyond=self._beyond.extended(points), _best=best, _left=left)

    def _thinned(self) -> Self:
        """Return these with every second of the plays that were remembered."""
        rows, stride = self._rows.array, self._stride
        while len(rows) > REMEMBERED_PLAYS:
            rows, stride = rows[::2], 2 * stride
        return evolve(self, _rows=Rows.of(rows), _standard=Rows.of(self._standardised(rows)), _stride=stride)

    def measured(self, contexts: ColumnUnits, are_arms: bool, u: float, best: float, beyond: FloatArray) -> Self:
        """Return these after a fit.

        Args:
            contexts: units of the context columns.
            are_arms: whether actions name arms; all contexts are one place of described ones.
            u: the probability of a surprise.
            best: the best reward so far.
            beyond: where more was earned than counts of rewards by now, shape (b, d).
        """
        split, rows = len(contexts.centre), self._rows.array
        count = 0 if are_arms or not len(rows) else len(np.unique(rows[:, split:], axis=0))
        after = evolve(self, _split=split, _count=count, _u=u, _best=best, _beyond=Rows.of(beyond))
        after._contexts = contexts if are_arms else None
        if len(self._rows):
            after._standard = Rows.of(after._standardised(self._rows.array))
        return after

    def _standardised(self, points: FloatArray) -> FloatArray:
        """Return points whose contexts are in widths of a place: what is closer than 1 is in one place."""
        units, split = self._contexts, self._split
        contexts = np.zeros((len(points), split))
        if units is not None:
            contexts = np.where(units.varies, units.standardised(points[:, :split]), 0.0)
            contexts /= PLACE_WIDTH * math.sqrt(units.variables)
        return np.hstack([contexts, points[:, split:]])

    def visits(self, points: FloatArray) -> tuple[float, FloatArray]:
        """Return how often places like that of one context were visited, and what each of its points (A, d) was."""
        split, offered = self._split, self._standardised(points)
        visits, of_each = 0.0, np.zeros(len(points))
        for plays in self._standard.blocks():
            # a play counts e^(−½‖x − y‖²)
            offsets = plays[:, :split] - offered[0, :split]
            counts, own = np.exp(-0.5 * np.vecdot(offsets, offsets)), plays[:, split:]
            visits += float(counts.sum())
            if self._contexts is None:
                of_each += (own[:, None] == offered[:, split:]).all(axis=2).T @ counts
            else:
                # of unit vectors, those of two arms are orthogonal
                of_each += (counts @ own) @ offered[:, split:].T
        return self._stride * visits, self._stride * of_each

    def _doubtful(self, points: FloatArray, of_each: FloatArray) -> int | None:
        """Return which of the points (A, d) is to be tried again, if one is, given how often each was played there."""
        found = evolve(self, _standard=Rows.of(self._standardised(self._beyond.array)), _stride=1).visits(points)[1]
        row = int(found.argmax())
        return row if found[row] >= 0.5 and of_each[row] < 2.0 * found[row] else None

    def due(self, points: FloatArray, means: FloatArray, stds: FloatArray) -> int | None:
        """Return which of the points (A, d) of one context is to be tried, if one is.

        Args:
            points: on offer.
            means: their expected rewards, shape (A,).
            stds: the standard deviations of these, shape (A,).
        """
        left, costs = self._left, means.max() - means
        affordable = (costs > 0.0) & (costs <= left)
        if self._contexts is not None and not (affordable.any() or len(self._beyond)):
            return None
        visits, of_each = self.visits(points)
        again = self._doubtful(points, of_each) if len(self._beyond) else None
        if again is not None:
            return again
        # what may be found is as good as the best reward so far, and worth less where the others are too
        risks = np.maximum(1.0, costs / max(self._best - float(means.max()), TINY))
        if self._contexts is None:
            # t normal deviations are below √(2 log t) on average
            hope = means + math.sqrt(2.0 * math.log(max(self._plays, 1))) * stds >= means.max()
            often = self._u * math.log(max(visits / max(self._count, len(points)), 1.0))
            missing = often - (of_each + 0.5) * risks
            row = int(np.where(hope, missing, -1.0).argmax())
            return row if hope[row] and missing[row] > 0.0 and self._count <= SHORT_LIST else None
        comes_back = len(points) * (of_each + 0.5) ** 2 * risks <= visits
        prices = np.where(affordable & comes_back, (of_each + 1.0) ** 2 * risks * costs, np.inf)
        row = int(prices.argmin())
        limit = math.inf if self._looks % 2 else left
        return row if prices[row] <= limit and math.isfinite(prices[row]) else None
