"""The rule's side of an update: it is shown a candidate and proposes; the posterior acts and reports back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernel_bandits.arrays import FloatArray, as_count


class Candidate(NamedTuple):
    """The observed point as a rule sees it: in the whitened coordinates of the anchors, without touching the kernel.

    A block of b points has a leading axis b in every field; formulas hold for both.

    Attributes:
        features: φ(s) = J k_Z(s), shape (m,); inner products with anchors are inner products of features.
        residual: k(s, s) − ‖φ(s)‖², the squared distance to the span of the anchors.
        prior_variance: k(s, s).
        variance: σ²(s) of the paper, the posterior variance over λ, before this observation; in a block only if the
            rule uses it.
    """

    features: FloatArray
    residual: FloatArray | float
    prior_variance: FloatArray | float
    variance: FloatArray | float


class Proposal(NamedTuple):
    """What the rule wants.

    Attributes:
        draw: the candidate should join the dictionary.
        probability: with which it came up.
        resample: the whole dictionary should be drawn anew once the candidate is learned.
    """

    draw: bool
    probability: float
    resample: bool = False


NOTHING = Proposal(draw=False, probability=0.0)


class Dictionary(ABC):
    """A rule that decides which observed points become anchors.

    ``propose`` changes nothing, so that an update that fails afterwards leaves the rule as it was; ``commit`` follows
    once the update is certain. ``absorb`` does both for a run of observations that leave the anchors as they are.

    Args:
        max_dictionary_size: hard cap on m; once it is reached nothing is added and the anchors stay as they are.
    """

    # Whether the rule looks at a candidate's variance; a log is absorbed faster by one that does not.
    uses_variance = False

    def __init__(self, max_dictionary_size: int | None = None) -> None:
        self.max_dictionary_size = (
            None if max_dictionary_size is None else as_count("max_dictionary_size", max_dictionary_size)
        )

    def is_full(self, size: int) -> bool:
        """Whether a dictionary of this size may not grow."""
        return self.max_dictionary_size is not None and size >= self.max_dictionary_size

    @property
    @abstractmethod
    def initial_points(self) -> FloatArray | None:
        """Anchors to start from, shape (m, d), or None."""

    @abstractmethod
    def propose(self, candidate: Candidate) -> Proposal:
        """Decide about one candidate; writes nothing."""

    @abstractmethod
    def commit(self, candidate: Candidate, proposal: Proposal, appended: bool) -> None:
        """Take note that the proposal was carried out.

        Args:
            candidate: as it was proposed.
            proposal: the answer to it.
            appended: whether the point became an anchor; a drawn point that adds no direction does not.
        """

    @abstractmethod
    def absorb(self, block: Candidate, redundant: NDArray[np.bool_]) -> int:
        """Take note of a block of candidates, observed one by one, as far as the anchors stay as they are.

        Args:
            block: the candidates; they will be learned, so nothing of this is taken back.
            redundant: which of them add no direction, so that the anchors stay as they are even if they come up.

        Returns:
            How many leading candidates were noted; the next one, if there is one, is for ``propose``.
        """
