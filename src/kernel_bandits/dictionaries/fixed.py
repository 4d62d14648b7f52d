"""A dictionary that never changes."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernel_bandits.arrays import FloatArray, as_points, require_finite
from kernel_bandits.dictionaries.base import NOTHING, Candidate, Dictionary, Proposal


class Fixed(Dictionary):
    """Anchors chosen beforehand.

    Args:
        points: joint points, shape (m, d). Those that add no direction to the others are passed over.
    """

    def __init__(self, points: ArrayLike) -> None:
        super().__init__()
        self._points = as_points("dictionary", points).copy()
        require_finite("dictionary", self._points)

    @property
    def initial_points(self) -> FloatArray:
        return self._points

    def propose(self, candidate: Candidate) -> Proposal:  # noqa: ARG002 (no candidate is ever wanted)
        return NOTHING

    def commit(self, candidate: Candidate, proposal: Proposal, appended: bool) -> None:
        """Nothing to note."""

    def absorb(self, block: Candidate, redundant: NDArray[np.bool_]) -> int:  # noqa: ARG002 (nothing is ever wanted)
        return len(block.features)
