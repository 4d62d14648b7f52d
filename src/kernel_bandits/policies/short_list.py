"""Every action of a short list is played now and then, however little is expected of it.

A kernel that was learned from a few unlucky rewards is sure of itself: an action that looks bad next to its neighbours
is not played again, and nothing ever shows that it was good. Forced plays bound what that costs. After t rounds no
action of a list of K has been played less than √t/K times. These are √t plays at most, no more than the order of the
regret that is paid anyway (Garivier & Kaufmann 2016 force √t plays of each arm for the same reason). Where the best
action depends on the context every action is played more often than that, and nothing is forced.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernel_bandits.arrays import FloatArray
from kernel_bandits.posteriors.base import Posterior


def overdue(posterior: Posterior[Any], points: FloatArray, context_columns: int) -> NDArray[np.intp]:
    """Return the rows of the points (A, d) on offer whose action was played too rarely; none in most rounds.

    The actions are those on offer and those that were played. Where actions hardly ever return there are about as many
    as rounds, and none is overdue. Neither is any where the history is not kept: nobody has counted.
    """
    awaited = posterior.awaited_points
    played = posterior.round_index + len(awaited)
    quota = int(math.sqrt(played) / len(points))
    # Between (jA)² and (jA)² + A the j-th play of each action falls due; later nothing has changed.
    is_due = quota > 0 and played < (quota * len(points)) ** 2 + len(points)
    if not is_due or posterior.approximation == "history-free":
        return np.empty(0, dtype=np.intp)
    # before the first reward the history has no width yet
    known = [posterior.observed_points] if posterior.round_index else []
    rows = np.concatenate([points, *known, *(point[None, :] for point in awaited.values())])
    actions, labels = np.unique(rows[:, context_columns:], axis=0, return_inverse=True)
    labels = labels.reshape(-1)
    quota = int(math.sqrt(played) / len(actions))
    plays = np.bincount(labels[len(points) :], minlength=len(actions))
    return np.flatnonzero(plays[labels[: len(points)]] < quota)
