"""Off-policy evaluation: what a candidate would have earned, from a log of another policy.

Swappable: the candidate (a policy, an action, a function, a table), the reward model, the estimator and the interval.
:func:`verdict` answers "should we switch?" as often as it is asked. :func:`evaluate` estimates by several estimators
from a log with a catalogue of actions, :func:`evaluate_continuous` from one with densities.
:func:`replay` is for policies that learn, and :func:`learn_from` starts one from a log. :mod:`sequences` are the
intervals that may be watched.
"""

from kernel_bandits.logs.log import ContinuousLog, Log
from kernel_bandits.offpolicy.continuous import evaluate_continuous, smoothed_weights
from kernel_bandits.offpolicy.estimators import (
    Rounds,
    direct_method,
    doubly_robust,
    inverse_propensity,
    marginalised,
    marginalised_doubly_robust,
    self_normalised,
    shrunk_doubly_robust,
    switch_doubly_robust,
)
from kernel_bandits.offpolicy.learning import LearnedFrom, learn_from
from kernel_bandits.offpolicy.overlap import Overlap
from kernel_bandits.offpolicy.replay import Replay, replay
from kernel_bandits.offpolicy.reward_model import CrossFit, RewardModel
from kernel_bandits.offpolicy.sequences import (
    ArmDifference,
    BoundedMean,
    CandidateValue,
    ConfidenceSequence,
    SubGaussianMean,
    modelled_terms,
    weighted_terms,
)
from kernel_bandits.offpolicy.valuation import Estimate, Valuation, evaluate, fitted_model
from kernel_bandits.offpolicy.verdict import Verdict, verdict

__all__ = [
    "ArmDifference",
    "BoundedMean",
    "CandidateValue",
    "ConfidenceSequence",
    "ContinuousLog",
    "CrossFit",
    "Estimate",
    "LearnedFrom",
    "Log",
    "Overlap",
    "Replay",
    "RewardModel",
    "Rounds",
    "SubGaussianMean",
    "Valuation",
    "Verdict",
    "direct_method",
    "doubly_robust",
    "evaluate",
    "evaluate_continuous",
    "fitted_model",
    "inverse_propensity",
    "learn_from",
    "marginalised",
    "marginalised_doubly_robust",
    "modelled_terms",
    "replay",
    "self_normalised",
    "shrunk_doubly_robust",
    "smoothed_weights",
    "switch_doubly_robust",
    "verdict",
    "weighted_terms",
]
