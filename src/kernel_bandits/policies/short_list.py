"""Every action of a short list that may be the best is played now and then, however little is expected of it.

A kernel that was learned from a few unlucky rewards is sure of itself: an action that looks bad next to its neighbours
is not played again, and nothing ever shows that it was good. Forced plays bound what that costs. After t rounds each
action of a list of K has been played 2√t/K times, unless even a bound that holds in all t rounds at once leaves no hope
that it is the best. These are 2√t plays at most, of the order of the regret that is paid anyway (Garivier & Kaufmann
2016 force √t plays of each arm for the same reason). Where the best action depends on the context every action is
played more often than that, and nothing is forced.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernel_bandits.arrays import FloatArray
from kernel_bandits.posteriors.base import Posterior
from kernel_bandits.posteriors.facts import Evaluation

# Forced plays of all actions together, over √t. Of five actions each is played four times in a hundred rounds then: one
# that pays four times in five goes unnoticed in 1 of 600 cases.
FORCED = 2.0


@dataclass(frozen=True)
class Plays:
    """How often each action was played, in a round in which some may have to be.

    Attributes:
        split: the number of context columns; the others are the action.
        played: the number of rounds so far, those included whose reward is awaited.
        counts: plays of each action.
    """

    split: int
    played: int
    counts: Counter[bytes]

    @classmethod
    def due(cls, posterior: Posterior[Any], offered: int, split: int) -> Plays | None:
        """Return the plays so far if some of the actions on offer may be overdue; None in most rounds.

        None is overdue where the history is not kept either: nobody has counted.
        """
        # counted before the points are looked up: there may be thousands
        played = posterior.round_index + posterior.awaited_count
        quota = int(FORCED * math.sqrt(played) / offered)
        # From (jA/2)² on, for A rounds, the j-th play of each action falls due; later nothing has changed.
        is_due = quota > 0 and played < (quota * offered / FORCED) ** 2 + offered
        if not is_due or posterior.approximation == "history-free":
            return None
        # before the first reward the history has no width yet
        known = _keys(posterior.observed_points[:, split:]) if posterior.round_index else []
        awaited = _keys(point[split:] for point in posterior.awaited_points.values())
        return cls(split, played, Counter(known + awaited))

    def overdue(self, points: FloatArray, evaluation: Evaluation) -> NDArray[np.intp]:
        """Return the rows of the points (A, d) on offer whose action was played too rarely.

        The actions are those on offer and those that were played. Where actions hardly ever return there are about as
        many as rounds, and none is overdue.
        """
        actions = _keys(points[:, self.split :])
        quota = int(FORCED * math.sqrt(self.played) / len({*actions, *self.counts}))
        rare = np.flatnonzero([self.counts[action] < quota for action in actions])
        # t normal deviations are below √(2 log t) on average
        hopes = evaluation.mean[rare] + math.sqrt(2.0 * math.log(self.played)) * evaluation.std[rare]
        return rare[hopes >= evaluation.mean.max()]


def _keys(actions: Iterable[FloatArray]) -> list[bytes]:
    """Return bytes that are equal where actions are; −0 is 0."""
    return [(action + 0.0).tobytes() for action in actions]
