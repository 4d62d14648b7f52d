"""Off-policy evaluation: what a candidate would have earned, from a log of another policy.

Swappable: the candidate (a policy, an action, a function, a table), the reward model, the estimator and the interval.
:func:`evaluate` and :func:`compare` use logs with a catalogue of actions, :func:`evaluate_continuous` logs with
densities, and :func:`replay` is for policies that learn.
"""

from kernel_bandits.logs.log import ContinuousLog, Log
from kernel_bandits.offpolicy.continuous import evaluate_continuous, smoothed_weights
from kernel_bandits.offpolicy.estimators import (
    Rounds,
    direct_method,
    doubly_robust,
    inverse_propensity,
    self_normalised,
    shrunk_doubly_robust,
    switch_doubly_robust,
)
from kernel_bandits.offpolicy.intervals import interval
from kernel_bandits.offpolicy.overlap import Overlap, overlap_of
from kernel_bandits.offpolicy.replay import Replay, replay
from kernel_bandits.offpolicy.reward_model import CrossFit, RewardModel
from kernel_bandits.offpolicy.sequences import ArmDifference, BoundedMean, SubGaussianMean
from kernel_bandits.offpolicy.valuation import Comparison, Estimate, Valuation, compare, evaluate, fitted_model

__all__ = [
    "ArmDifference",
    "BoundedMean",
    "Comparison",
    "ContinuousLog",
    "CrossFit",
    "Estimate",
    "Log",
    "Overlap",
    "Replay",
    "RewardModel",
    "Rounds",
    "SubGaussianMean",
    "Valuation",
    "compare",
    "direct_method",
    "doubly_robust",
    "evaluate",
    "evaluate_continuous",
    "fitted_model",
    "interval",
    "inverse_propensity",
    "overlap_of",
    "replay",
    "self_normalised",
    "shrunk_doubly_robust",
    "smoothed_weights",
    "switch_doubly_robust",
]
