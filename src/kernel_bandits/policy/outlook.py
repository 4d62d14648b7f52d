"""Whether it is worth going on: what the best action earns now, after more experiments, and what may be left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernel_bandits.arrays import FloatArray
from kernel_bandits.numerics.linalg import correlate
from kernel_bandits.posterior.base import Posterior

# Draws of the expected rewards: probabilities are known to within 1.5 points.
DRAWS = 1000
# Actions at which they are drawn jointly, those with the largest bounds.
MOST_ACTIONS = 512
# How many standard deviations above its mean an action still counts; of 1,000 draws none is likely to lie beyond.
REACH = 3.0
# A kernel that was learned is too sure of itself: its standard deviations count so many times, as in its upper bounds
# over rows. With 1 what was left was 2.5 times what was stated; with 2 late chances are twice the frequencies.
# python benchmarks/outlook.py results.jsonl
LEARNED = 1.5


@dataclass(frozen=True, slots=True)
class Outlook:
    """What more experiments are worth in one context, in the units of the reward.

    Attributes:
        best: the decision to use now: the largest expected reward that is known to be safe.
        experiments: n.
        expected_now: the expected reward of ``best``.
        expected_after: that of the best action after n more experiments, chosen at once by their upper bounds.
        expected_left: how much more the best of all actions is expected to earn than ``best`` does.
        more_than: x.
        probability: that the best of all actions earns more than x above ``best``.
    """

    best: Any
    experiments: int
    expected_now: float
    expected_after: float
    expected_left: float
    more_than: float
    probability: float

    def __str__(self) -> str:
        """Return a sentence for each number."""
        return (
            f"The best action known earns {self.expected_now:.4g}; {self.experiments} more experiments are expected "
            f"to find one of {self.expected_after:.4g}. The best of all is expected to earn {self.expected_left:.3g} "
            f"more, and more than {self.more_than:.3g} more with a probability of {self.probability:.0%}."
        )


def outlook(
    posterior: Posterior, points: FloatArray, best: Any, bonus: float, experiments: int, more_than: float
) -> Outlook:
    """Return the outlook of actions given as joint points (A, d) in one context, those on offer or some of a box.

    The best is the decision with the largest mean; experiments are chosen by mean + bonus·std.
    """
    evaluation = posterior.evaluate_finite(points)
    doubt = LEARNED if posterior.learns_kernel else 1.0
    reach = np.argsort(-(evaluation.mean + REACH * doubt * evaluation.std), kind="stable")[:MOST_ACTIONS]
    rows = np.union1d(reach, evaluation.mean.argmax())
    evaluation = posterior.evaluate_finite(points[rows])
    mean, known = evaluation.mean, int(evaluation.mean.argmax())
    covariance = doubt**2 * posterior.covariance(points[rows], evaluation)
    generator = np.random.default_rng(0)
    # f ~ N(mean, C) at all of them; what is left is max f − f(best)
    drawn = mean + correlate(generator.standard_normal((DRAWS, len(rows))), covariance)
    left = drawn.max(axis=1) - drawn[:, known]
    # means after n experiments at x_1 … x_n are N(mean, GGᵀ), with columns g = C(·, x)/√(C(x, x) + λ) and C ← C − ggᵀ
    spread, gains = covariance.copy(), np.zeros((experiments, len(rows)))
    for number in range(experiments):
        chosen = (mean + bonus * np.sqrt(np.maximum(np.diagonal(spread), 0.0))).argmax()
        gain = spread[chosen] / np.sqrt(spread[chosen, chosen] + posterior.regularization)
        gains[number], spread = gain, spread - np.outer(gain, gain)
    after = (mean + generator.standard_normal((DRAWS, experiments)) @ gains).max(axis=1)
    return Outlook(
        best,
        experiments,
        float(mean[known]),
        max(float(after.mean()), float(mean[known])),
        float(left.mean()),
        more_than,
        float((left > more_than).mean()),
    )
