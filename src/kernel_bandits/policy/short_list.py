"""Every action of a short list that may be the best is played now and then, however little is expected of it.

A kernel that was learned from a few unlucky rewards is sure of itself: an action that looks bad next to its neighbours
is not played again, and nothing ever shows that it was good. Forced plays bound what that costs. After t rounds each
action of a list of K has been played 2√t/K times, unless even a bound that holds in all t rounds at once leaves no hope
that it is the best. These are 2√t plays at most, of the order of the regret that is paid anyway (Garivier & Kaufmann
2016 force √t plays of each arm for the same reason). Where the best action depends on the context every action is
played more often than that, and nothing is forced.

That holds where every play is counted before the next round: its reward is learned or awaited, or one ``select_many``
decides both. Calls of ``select`` without a reward between them do not know of each other: all of them play the action
that is overdue, or the rounds in which it is pass unseen. Decide them together, or by ``ask``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from kernel_bandits.arrays import FloatArray
from kernel_bandits.posterior.base import Evaluation, Posterior

# Forced plays of all actions together, over √t. Of five actions each is played four times in a hundred rounds then: one
# that pays four times in five goes unnoticed in 1 of 600 cases.
FORCED = 2.0


class Plays:
    """How often each action was played before a round, and in the rounds before it that one call decides.

    Under forgetting only the plays in memory are counted: what is forgotten falls due again, in as few rounds.

    Args:
        posterior: knows the points that were played, those included whose reward is awaited.
        split: the number of context columns; the others are the action.
    """

    def __init__(self, posterior: Posterior, split: int) -> None:
        self._posterior, self._split = posterior, split
        self._played = _played(posterior)
        # Without a history plays are not counted, and nothing is overdue.
        self._is_counted = posterior.approximation != "history-free"
        # counted when they are needed: there may be thousands
        self._counts: Counter[bytes] | None = None
        self._chosen: list[FloatArray] = []

    @classmethod
    def due(cls, posterior: Posterior, offered: int, split: int) -> Plays | None:
        """Return the plays so far if some of the actions on offer may be overdue; None in most rounds."""
        if _rounds_until_due(_played(posterior), offered):
            return None
        plays = cls(posterior, split)
        return plays if plays._is_counted else None

    def rounds_until_due(self, offered: int) -> float:
        """Return after how many rounds some of as many actions on offer may be overdue; 0 if they may be now."""
        return _rounds_until_due(self._played, offered) if self._is_counted else math.inf

    def add(self, points: Iterable[FloatArray]) -> None:
        """Count points (d,) that were chosen, one in each round, before the next round of the same call."""
        before = len(self._chosen)
        self._chosen += points
        self._played += len(self._chosen) - before

    def overdue(self, points: FloatArray, evaluation: Evaluation) -> NDArray[np.intp]:
        """Return the rows of the points (A, d) on offer whose action was played too rarely.

        The actions are those on offer and those that were played. Where actions hardly ever return there are about as
        many as rounds, and none is overdue.
        """
        actions, counts = _keys(points[:, self._split :]), self._count()
        quota = int(FORCED * math.sqrt(self._played) / len({*actions, *counts}))
        rare = np.flatnonzero([counts[action] < quota for action in actions])
        # t normal deviations are below √(2 log t) on average
        hopes = evaluation.mean[rare] + math.sqrt(2.0 * math.log(self._played)) * evaluation.std[rare]
        return rare[hopes >= evaluation.mean.max()]

    def _count(self) -> Counter[bytes]:
        """Return the plays of each action."""
        if self._counts is None:
            awaited = _keys(point[self._split :] for point in self._posterior.awaited_points.values())
            posterior, known = self._posterior, list[bytes]()
            # before the first reward the history has no width yet
            if posterior.round_index:
                known = _keys(posterior.observed_points[posterior.trusted_since :, self._split :])
            self._counts = Counter(known + awaited)
        self._counts.update(_keys(point[self._split :] for point in self._chosen))
        self._chosen.clear()
        return self._counts


def _played(posterior: Posterior) -> int:
    """Return how many plays count, those included whose reward is awaited."""
    return posterior.round_index - posterior.trusted_since + posterior.awaited_count


def _rounds_until_due(played: int, offered: int) -> int:
    """Return after how many rounds some of as many actions on offer may be overdue; 0 if they may be now.

    From (jA/2)² on, for A rounds, the j-th play of each of A actions falls due; later nothing has changed.
    """
    quota = int(FORCED * math.sqrt(played) / offered)
    if quota > 0 and played < (quota * offered / FORCED) ** 2 + offered:
        return 0
    return max(1, math.ceil(((quota + 1) * offered / FORCED) ** 2) - played)


def _keys(actions: Iterable[FloatArray]) -> list[bytes]:
    """Return bytes that are equal where actions are; −0 is 0."""
    return [(action + 0.0).tobytes() for action in actions]
