"""A dictionary that never changes."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernel_bandits.arrays import FloatArray, as_points, require_finite
from kernel_bandits.dictionaries.base import NOTHING, Candidate, Dictionary, DictionaryRule, HistoryMode, Proposal


@dataclass(frozen=True, eq=False)
class Fixed(DictionaryRule):
    """Anchors chosen beforehand.

    Args:
        points: joint points, shape (m, d), context columns first. Those that add no direction to the others are passed
            over.
        history: ``"all"`` keeps the observations, ``"none"`` does not; the model is the same.
    """

    points: ArrayLike
    history: HistoryMode = "all"

    def __post_init__(self) -> None:
        points = as_points("dictionary", self.points).copy()
        require_finite("dictionary", points)
        object.__setattr__(self, "points", points)

    def start(self, regularization: float, generator: np.random.Generator) -> Dictionary:
        del regularization, generator  # nothing is drawn
        return FixedDictionary(np.asarray(self.points))


class FixedDictionary(Dictionary):
    """The state of :class:`Fixed`: its points."""

    __slots__ = ("_points",)

    uses_variance = False

    def __init__(self, points: FloatArray) -> None:
        self._points = points

    @property
    def initial_points(self) -> FloatArray:
        return self._points

    def propose(self, candidate: Candidate) -> Proposal:
        del candidate  # none is ever wanted
        return NOTHING

    def after_block(self, block: Candidate, redundant: NDArray[np.bool_]) -> tuple[int, Self]:
        del block
        return len(redundant), self
