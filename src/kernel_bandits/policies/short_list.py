"""Every action of a short list is played now and then, however little is expected of it.

A kernel that was learned from a few unlucky rewards is sure of itself: an action that looks bad next to its neighbours
is not played again, and nothing ever shows that it was good. Forced plays bound what that costs. After t rounds no
action of a list of K has been played less than 2√t/K times. These are 2√t plays at most, of the order of the regret
that is paid anyway (Garivier & Kaufmann 2016 force √t plays of each arm for the same reason). Where the best action
depends on the context every action is played more often than that, and nothing is forced.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernel_bandits.arrays import FloatArray
from kernel_bandits.posteriors.base import Posterior

# Forced plays of all actions together, over √t. Of five actions each is played four times in a hundred rounds then: one
# that pays four times in five goes unnoticed in 1 of 600 cases.
FORCED = 2.0


def overdue(posterior: Posterior[Any], points: FloatArray, context_columns: int) -> NDArray[np.intp]:
    """Return the rows of the points (A, d) on offer whose action was played too rarely; none in most rounds.

    The actions are those on offer and those that were played. Where actions hardly ever return there are about as many
    as rounds, and none is overdue. Neither is any where the history is not kept: nobody has counted.
    """
    # counted before the points are looked up: there may be thousands
    played = posterior.round_index + len(posterior._pending.awaited)
    plays = FORCED * math.sqrt(played)
    quota = int(plays / len(points))
    # From (jA/2)² on, for A rounds, the j-th play of each action falls due; later nothing has changed.
    is_due = quota > 0 and played < (quota * len(points) / FORCED) ** 2 + len(points)
    if not is_due or posterior.approximation == "history-free":
        return np.empty(0, dtype=np.intp)
    # before the first reward the history has no width yet
    known = [posterior.observed_points] if posterior.round_index else []
    awaited = posterior.awaited_points.values()
    rows = np.concatenate([points, *known, *(point[None, :] for point in awaited)])
    actions, labels = np.unique(rows[:, context_columns:], axis=0, return_inverse=True)
    labels = labels.reshape(-1)
    counts = np.bincount(labels[len(points) :], minlength=len(actions))
    rare = np.flatnonzero(counts[labels[: len(points)]] < int(plays / len(actions)))
    if not len(rare):
        return rare
    evaluation = posterior.evaluate_finite(points)
    # what t normal deviations exceed with probability 1/√(4π·log t) at most: Σ P(z > √(2 log t))
    radius = math.sqrt(2.0 * math.log(played))
    hopes = evaluation.mean[rare] + radius * evaluation.std[rare]
    return rare[hopes >= evaluation.mean.max()]
