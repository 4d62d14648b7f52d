"""A rule says how a dictionary is chosen; the dictionary is its running state, a value.

The posterior shows each point to the dictionary as a candidate, the dictionary proposes, and the posterior goes on with
the dictionary that :meth:`Dictionary.after` returns.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import InputError, UnavailableError

HistoryMode: TypeAlias = Literal["all", "none"]


class Candidate(NamedTuple):
    """The observed point as a rule sees it: itself, and in the whitened coordinates of the anchors.

    A block of b points has a leading axis b in every field but the anchors; formulas hold for both.

    Attributes:
        point: s, shape (d,), context columns first.
        anchors: Z, shape (m, d).
        features: φ(s) = J k_Z(s), shape (m,); inner products with anchors are inner products of features.
        residual: k(s, s) − ‖φ(s)‖², the squared distance to the span of the anchors.
        prior_variance: k(s, s).
        variance: σ²(s) of the paper, the posterior variance over λ, before this observation; it may be 0 for a
            dictionary that does not use it.
    """

    point: FloatArray
    anchors: FloatArray
    features: FloatArray
    residual: FloatArray | float
    prior_variance: FloatArray | float
    variance: FloatArray | float


class Proposal(NamedTuple):
    """What the dictionary wants.

    Attributes:
        draw: the candidate should join the dictionary.
        probability: the chance with which it was drawn.
        resample: the whole dictionary should be redrawn once the candidate is learned.
        computed: what :meth:`Dictionary.after` can use again; None if there is nothing.
    """

    draw: bool = False
    probability: float = 1.0
    resample: bool = False
    computed: Any = None


NOTHING = Proposal(draw=False, probability=0.0)


class PlayedPoints(NamedTuple):
    """The points from which a dictionary may be redrawn.

    Attributes:
        points: shape (n, d), oldest first; points whose reward is still to come are the last.
        variances: returns σ² of the paper at each of them, shape (n,), in O(n·m²).
    """

    points: FloatArray
    variances: Callable[[], FloatArray]


class Dictionary(ABC):
    """The running state of a rule: decides which observed points become anchors.

    A value: nothing changes it, and what changes is in the dictionary that a method returns. The members besides
    ``propose`` have defaults that are right for every rule without state of its own; a rule replaces them to be faster,
    or to do more than let points in one by one.

    Attributes:
        uses_variance: whether ``propose`` looks at a candidate's variance. A dictionary that does not learns a log
            faster.
        max_size: hard cap on m; None for none.
        leverage_regularization: the μ of a dictionary that stands for ridge leverage scores. Where a whole history is
            learned at once, its anchors are then chosen at this level instead of drawn, see :meth:`adopting`. None for
            a dictionary that has to see every point.
    """

    __slots__ = ()

    uses_variance: bool = True
    max_size: int | None = None
    leverage_regularization: float | None = None

    @property
    def initial_points(self) -> FloatArray | None:
        """Anchors to start from, shape (m, d), or None."""
        return None

    @abstractmethod
    def propose(self, candidate: Candidate) -> Proposal:
        """Decide about one candidate."""

    def after(self, candidate: Candidate, proposal: Proposal, appended: bool) -> Self:
        """Return the dictionary after a proposal was carried out; not called for one that resamples.

        Args:
            candidate: the one of the proposal. Where it was appended its residual is l², the squared length of the new
                direction: φ of the new anchor is its features and l behind them.
            proposal: what :meth:`propose` returned for it.
            appended: whether the point became an anchor; a drawn point that adds no direction does not.
        """
        del candidate, proposal, appended  # by default a dictionary has no state
        return self

    def after_block(self, block: Candidate, redundant: NDArray[np.bool_]) -> tuple[int, Self]:
        """Return how many of a block of candidates, observed one by one, leave the anchors alone, and what follows.

        The redundant ones add no direction: the anchors stay as they are even if these are drawn. ``propose`` sees the
        next one.
        """
        dictionary = self
        for row in range(len(redundant)):
            own = [np.asarray(field)[row] for field in (block.point, *block[2:])]
            candidate = Candidate(own[0], block.anchors, *own[1:])
            proposal = dictionary.propose(candidate)
            if proposal.resample or (proposal.draw and not redundant[row]):
                return row, dictionary
            dictionary = dictionary.after(candidate, proposal, appended=False)
        return len(redundant), dictionary

    def redrawn(self, played: PlayedPoints) -> tuple[FloatArray, Self]:
        """Return the next anchors, shape (m, d), after a proposal to resample, and the dictionary that drew them.

        Those that add no direction to the others are passed over.
        """
        raise UnavailableError(
            f"redrawn: {type(self).__name__} proposed to redraw the dictionary from {len(played.points)} points, but "
            "has no redrawn; write one that returns the next anchors, shape (m, d), and the dictionary."
        )

    def settled(self) -> Self:
        """Return the same dictionary, in the form that is fastest where no anchor comes; called now and then."""
        return self

    def adopting(self, inverse: FloatArray) -> Self:
        """Return the dictionary with anchors that were not drawn one by one, but redrawn or from a whole history.

        The inverse is (μI + Σ φφᵀ)⁻¹ over everything that was played, in the coordinates of these anchors, where μ is
        ``leverage_regularization``, or λ if that is None or the anchors were redrawn.
        """
        del inverse  # only a dictionary that keeps scores needs it
        return self

    def reseeded(self, entropy: int) -> Self:
        """Return the dictionary with fresh coins."""
        del entropy  # by default nothing is drawn
        return self

    def is_full(self, size: int) -> bool:
        """Return whether a dictionary of this size may not grow."""
        return self.max_size is not None and size >= self.max_size


class DictionaryRule(ABC):
    """How the points that carry a posterior are chosen: a specification, frozen, without state of its own.

    Attributes:
        history: ``"all"`` keeps every point and reward, 8(d + 1) bytes a round, so that the past is projected onto new
            anchors too. ``"none"`` keeps none: the past has no mass on a direction that is added later (the operator W̃
            in the proof of Theorem 4.1), memory is O(m²) and nothing grows with t.
    """

    history: HistoryMode = "all"

    @abstractmethod
    def start(self, regularization: float, generator: np.random.Generator) -> Dictionary:
        """Start a dictionary for a posterior with this λ, with a generator of coins for it alone."""

    def for_learned_kernel(self) -> Self:
        """Return the rule to use where the kernel is learned; the same unless a default depends on it."""
        return self

    def capped(self, size: int) -> Self:
        """Return the rule with this many anchors at most, where it has a cap and none was given."""
        del size  # this rule has no cap
        return self


def as_rule(rule: Any) -> DictionaryRule:
    """Check that ``dictionary=`` is a rule, and name the rule to write if it is not."""
    if isinstance(rule, DictionaryRule):
        if rule.history not in ("all", "none"):
            raise InputError(f"history: expected 'all' or 'none', got {rule.history!r}.")
        return rule
    named = {"kors": "kb.Kors()", "posterior_variance": "kb.PosteriorVariance()"}
    if isinstance(rule, str):
        advice = f"write dictionary={named[rule]}" if rule in named else f"write one of {', '.join(named.values())}"
    elif isinstance(rule, type) and issubclass(rule, DictionaryRule):
        advice = f"write dictionary=kb.{rule.__name__}(…), with parentheses"
    else:
        advice = "for fixed anchors write dictionary=kb.Fixed(points)"
    raise InputError(f"dictionary: expected a rule such as kb.Kors(), got {rule!r}; {advice}.")


def rule_or_none(dictionary: DictionaryRule | None) -> DictionaryRule | None:
    """Return the rule of an argument that may be None, for exact posteriors."""
    return None if dictionary is None else as_rule(dictionary)
