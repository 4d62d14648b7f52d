"""Kernel ridge regression that learns one observation at a time.

Swappable: :class:`ExactPosterior` carries every observed point, :class:`NystromPosterior` a dictionary of anchors; both
answer ``predict(points)`` and take ``update(point, reward)``.
"""

from kernel_bandits.posteriors.base import Evaluation, Posterior, Prediction
from kernel_bandits.posteriors.exact import ExactPosterior
from kernel_bandits.posteriors.nystrom import NystromPosterior

__all__ = ["Evaluation", "ExactPosterior", "NystromPosterior", "Posterior", "Prediction"]
