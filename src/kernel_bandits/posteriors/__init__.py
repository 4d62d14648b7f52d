"""Kernel ridge regression that learns one observation at a time.

Swappable: :class:`ExactPosterior` is carried by every observed point, :class:`NystromPosterior` by a dictionary of
anchors, :class:`FeaturePosterior` by explicit features; all answer ``predict(points)`` and take
``update(point, reward)``.
"""

from kernel_bandits.posteriors.base import Evaluation, Posterior, Prediction
from kernel_bandits.posteriors.exact import ExactPosterior
from kernel_bandits.posteriors.features import FeaturePosterior
from kernel_bandits.posteriors.nystrom import NystromPosterior

__all__ = ["Evaluation", "ExactPosterior", "FeaturePosterior", "NystromPosterior", "Posterior", "Prediction"]
