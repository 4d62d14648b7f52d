"""Kernel ridge regression that learns one observation at a time, as values.

Swappable: :class:`ExactPosterior` is carried by every observed point, :class:`NystromPosterior` by a dictionary of
anchors, :class:`FeaturePosterior` by explicit features; :class:`SplitPosterior` has one of the first two for each arm.
All have ``predict(points)``, and
``learned(points, rewards)`` returns the next one. One of your own derives from :class:`Posterior`.
"""

from kernel_bandits.posterior.arms import SplitPosterior
from kernel_bandits.posterior.base import Evaluation, KernelChange, Model, Posterior, Prediction
from kernel_bandits.posterior.exact import ExactPosterior
from kernel_bandits.posterior.features import FeaturePosterior
from kernel_bandits.posterior.nystrom import NystromPosterior

__all__ = [
    "Evaluation",
    "ExactPosterior",
    "FeaturePosterior",
    "KernelChange",
    "Model",
    "NystromPosterior",
    "Posterior",
    "Prediction",
    "SplitPosterior",
]
