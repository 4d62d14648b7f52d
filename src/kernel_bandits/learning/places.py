"""Which arms are tried once more where they were hardly tried, and which of a few described actions.

A standard deviation is learned from rewards, and the first rewards may be nothing like those that nobody has looked
for: a jackpot of 50 beside rewards of 1 ± 0.05. How often an arm was tried in a place like this one is a matter of
contexts alone. A look costs what the arm is worse by; it may find something as good as the best reward so far, which is
worth having as often as the place comes back; and after n looks that found nothing, the chance that one more does is
about 1/(n + ½)². So an arm is tried where

    (n_a + ½)² < u·N/K · gain/cost,    gain/cost ≤ 1,

with N visits to places like this one, n_a of them to the arm, one of K. Surprises are as likely as values that were
never seen before: by Good (1953) their probability u is the share of rewards whose value was seen once. Of clicks it
is 0, and of yields 1.

Looks that cost nearly as much as they may find are rationed. What was spent on arms that looked worse, in units of the
gain, must stay below K·log t, the rate at which a consistent policy has to explore (Lai and Robbins 1985); and they are
taken in the places that are visited least, where least is known of any arm. Where something large was found once, looks
cost next to nothing in its unit, and are free.

A reward beyond what counts of rewards (:class:`~kernel_bandits.learning.columns.RewardUnits`) is an outlier or a
jackpot, and only another look tells: its arm is tried there again until it earned an ordinary reward as often.

Of a short list of described actions, such as prices, one is tried that was hardly tried *anywhere*: less than

    n_a + ½ < ν·log(t/K) · gain/cost

times, unless even a bound that holds in all rounds leaves no hope that it is the best here. A model that learns from
its neighbours may be sure that it is bad, and then nothing shows that it is good; ν, the share of noise in the
deviation of rewards, says how little the model has explained.
"""

from __future__ import annotations

import math
from typing import Self

import numpy as np
import scipy

from kernel_bandits.arrays import FloatArray
from kernel_bandits.learning.columns import ColumnUnits
from kernel_bandits.learning.defaults import CHEAP_LOOK, PLACE_WIDTH, RARE_PLACES, REMEMBERED_PLAYS, SHORT_LIST
from kernel_bandits.values import Rows, evolve

# The plays whose places say which are rare.
COMPARED_PLAYS = 256


class Places:
    """Where what was played, of arms that are unit vectors; a value.

    Args:
        split: the number of context columns; the others are the arm.
        stride: of so many plays one is remembered.
    """

    __slots__ = ("_contexts", "_plays", "_rare", "_rows", "_spent", "_split", "_standard", "_stride")

    def __init__(self, split: int = 0, stride: int = 1) -> None:
        self._split, self._stride, self._plays = split, stride, 0
        # joint points as they were played, and in widths of a place
        self._rows, self._standard = Rows(), Rows()
        self._contexts: ColumnUnits | None = None
        # what plays of arms that looked worse have cost, and the share of visits below which a place is rare
        self._spent, self._rare = 0.0, 0.0

    def played(self, points: FloatArray, price: float = 0.0) -> Self:
        """Return these with further plays (n, d), and what they cost in units of what they may have found."""
        first = -self._plays % self._stride
        kept = points[first :: self._stride]
        after = evolve(self, _plays=self._plays + len(points), _spent=self._spent + price)
        if len(kept):
            after._rows = self._rows.extended(kept)
            if self._contexts is not None:
                after._standard = self._standard.extended(self._standardised(kept))
        return after._thinned() if len(after._rows) > REMEMBERED_PLAYS else after

    def _thinned(self) -> Self:
        """Return these with every second of the plays that were remembered."""
        rows, stride = self._rows.array, self._stride
        while len(rows) > REMEMBERED_PLAYS:
            rows, stride = rows[::2], 2 * stride
        standard = Rows() if self._contexts is None else Rows.of(self._standardised(rows))
        return evolve(self, _rows=Rows.of(rows), _standard=standard, _stride=stride)

    def measured(self, contexts: ColumnUnits) -> Self:
        """Return these in units of contexts."""
        after, rows = evolve(self, _split=len(contexts.centre), _contexts=contexts), self._rows.array
        if len(rows):
            standard = after._standardised(rows)
            places = standard[:, : after._split]
            some = places[:: -(-len(places) // COMPARED_PLAYS)]
            visits = np.exp(-0.5 * scipy.spatial.distance.cdist(some, places, "sqeuclidean")).mean(axis=1)
            after._standard, after._rare = Rows.of(standard), float(np.quantile(visits, RARE_PLACES))
        return after

    def _standardised(self, points: FloatArray) -> FloatArray:
        """Return points whose contexts are in widths of a place: what is closer than 1 is in one place."""
        assert self._contexts is not None
        units, split = self._contexts, self._split
        contexts = np.where(units.varies, units.standardised(points[:, :split]), 0.0)
        return np.hstack([contexts / (PLACE_WIDTH * math.sqrt(units.variables)), points[:, split:]])

    def visits(self, points: FloatArray) -> tuple[float, FloatArray]:
        """Return how often places like that of one context were visited, and what each of its points (A, d) was."""
        split, offered = self._split, self._standardised(points)
        visits, of_each = 0.0, np.zeros(len(points))
        for plays in self._standard.blocks():
            # a play counts e^(−½‖x − y‖²)
            offsets = plays[:, :split] - offered[0, :split]
            counts = np.exp(-0.5 * np.vecdot(offsets, offsets))
            visits += float(counts.sum())
            # of unit vectors, those of two arms are orthogonal
            of_each += (counts @ plays[:, split:]) @ offered[:, split:].T
        return self._stride * visits, self._stride * of_each

    def doubtful(self, points: FloatArray, beyond: FloatArray) -> int | None:
        """Return which of the points (A, d) of one context is to be tried again, if one is.

        Args:
            points: on offer.
            beyond: where rewards beyond what counts were earned, shape (b, d).
        """
        if self._contexts is None:
            return None
        split, offered, found = self._split, self._standardised(points), self._standardised(beyond)
        offsets = found[:, :split] - offered[0, :split]
        of_each = (np.exp(-0.5 * np.vecdot(offsets, offsets)) @ found[:, split:]) @ offered[:, split:].T
        row = int(of_each.argmax())
        if of_each[row] < 0.5 or self.visits(points)[1][row] >= 2.0 * of_each[row]:
            return None
        return row

    def due(self, points: FloatArray, means: FloatArray, stds: FloatArray, best: float, surprise: float) -> int | None:
        """Return which of the points (A, d) of one context is to be tried, if one is.

        Args:
            points: on offer.
            means: their expected rewards, shape (A,).
            stds: the standard deviations of these, shape (A,).
            best: the best reward so far.
            surprise: u, the share of rewards whose value was seen once.
        """
        plays, offered = self._plays, len(points)
        if self._contexts is None or offered < 2 or plays < offered or surprise * plays < offered:
            return None
        gain = gain_of(means, stds, best)
        if not gain > 0.0:
            return None
        cost = means.max() - means
        visits, of_each = self.visits(points)
        # what costs less than it may gain is worth a try
        due = np.sqrt(surprise * visits / offered * gain / np.maximum(cost, gain)) - of_each - 0.5
        if self._spent >= offered * math.log(plays) or visits > self._rare * plays:
            due[cost > CHEAP_LOOK * gain] = -1.0
        row = int(due.argmax())
        return row if due[row] > 0.0 else None


class ShortList:
    """How often each of a few described actions was played; a value.

    Args:
        split: the number of context columns; the others are the action.
    """

    __slots__ = ("_counts", "_plays", "_split")

    def __init__(self, split: int) -> None:
        self._split, self._plays = split, 0
        self._counts: dict[bytes, int] = {}

    def played(self, points: FloatArray, price: float = 0.0) -> Self | None:
        """Return this with further plays (n, d); None once the list is no longer short."""
        del price  # looks that leave no hope are not taken at all
        counts = self._counts.copy()
        for action in points[:, self._split :]:
            key = _key(action)
            counts[key] = counts.get(key, 0) + 1
            if len(counts) > SHORT_LIST:
                return None
        return evolve(self, _counts=counts, _plays=self._plays + len(points))

    def due(self, points: FloatArray, means: FloatArray, stds: FloatArray, best: float, surprise: float) -> int | None:
        """Return which of the points (A, d) of one context is to be tried, if one is; as :meth:`Places.due`."""
        plays, gain = self._plays, gain_of(means, stds, best)
        if len(points) < 2 or plays < len(points) or not gain > 0.0:
            return None
        keys = [_key(action) for action in points[:, self._split :]]
        tried = np.array([self._counts.get(key, 0) for key in keys])
        worth = gain / np.maximum(means.max() - means, gain)
        due = surprise * math.log(plays / len(self._counts.keys() | set(keys))) * worth - tried - 0.5
        # t normal deviations are below √(2 log t) on average
        due[means + math.sqrt(2.0 * math.log(plays)) * stds < means.max()] = -1.0
        row = int(due.argmax())
        return row if due[row] > 0.0 else None


def _key(action: FloatArray) -> bytes:
    """Return what tells an action (d_a,) from others; −0 is 0."""
    return (action + 0.0).tobytes()


def gain_of(means: FloatArray, stds: FloatArray, best: float) -> float:
    """Return what the best reward so far exceeds by what may be earned in a context anyway."""
    return best - float((means + stds).max())


def price_of(means: FloatArray, stds: FloatArray, row: int, best: float) -> float:
    """Return what playing a row costs in units of what it may find, at most 1."""
    gain = gain_of(means, stds, best)
    return min(1.0, (float(means.max()) - means.item(row)) / gain) if gain > 0.0 else 0.0
