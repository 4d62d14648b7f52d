"""Kernel ridge regression that learns one observation at a time.

Swappable: :class:`ExactPosterior` is carried by every observed point, :class:`NystromPosterior` by a dictionary of
anchors, :class:`FeaturePosterior` by explicit features; :class:`SplitPosterior` has one of the first two for each arm,
:class:`LearnedPosterior` is any of these with a kernel that is learned. All have ``predict(points)`` and
``update(point, reward)``.
"""

from kernel_bandits.posteriors.arms import SplitPosterior
from kernel_bandits.posteriors.base import Evaluation, KernelChange, Posterior, Prediction
from kernel_bandits.posteriors.exact import ExactPosterior
from kernel_bandits.posteriors.features import FeaturePosterior
from kernel_bandits.posteriors.learned import LearnedPosterior
from kernel_bandits.posteriors.nystrom import NystromPosterior

__all__ = [
    "Evaluation",
    "ExactPosterior",
    "FeaturePosterior",
    "KernelChange",
    "LearnedPosterior",
    "NystromPosterior",
    "Posterior",
    "Prediction",
    "SplitPosterior",
]
