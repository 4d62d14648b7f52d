"""The regression of a projected posterior, with a dictionary of anchors that grows or changes under it."""

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple, Self

import numpy as np

from kernel_bandits.arrays import FloatArray, as_points
from kernel_bandits.commit import Steps, attributes, carry_out, replace_state, take_over
from kernel_bandits.dictionaries.base import Candidate, Dictionary, PlayedPoints, Proposal
from kernel_bandits.errors import KernelBanditsError, UnavailableError
from kernel_bandits.numerics.blas_threads import factorisation_threads
from kernel_bandits.numerics.linalg import (
    symmetric_times_vector,
    times,
    times_upper,
    times_vector,
    transpose_times_vector,
)
from kernel_bandits.posteriors.base import Facts
from kernel_bandits.posteriors.basis import AnchorBasis, least_direction, require_finite_between_points
from kernel_bandits.posteriors.history import BLOCK_ROWS, Block, Blocks, History
from kernel_bandits.posteriors.pending import Awaited, Pending
from kernel_bandits.posteriors.ridge import Mass, RidgeRegression


class Admission(NamedTuple):
    """What a point that was proposed changes besides the regression; the steps follow those of the pair.

    Attributes:
        features: φ of the point, in the coordinates of the anchors that are then there.
        residual: what these leave of it.
        pair: the regressions that learn it, fresh ones if it became an anchor.
        residual_trace: ρ before it is learned.
        candidate: as the dictionary takes note of it.
        appended: whether it became an anchor.
        steps: what makes all this known.
    """

    features: FloatArray
    residual: float
    pair: Pending[RidgeRegression]
    residual_trace: float
    candidate: Candidate
    appended: bool
    steps: Steps


class AnchoredRegression:
    """Ridge regression on φ = J k_Z, the history that new directions need, and the dictionary that asks for them.

    The facts are those of the posterior, and are changed in place.
    """

    __slots__ = ("basis", "dictionary", "facts", "history", "pending", "postponed")

    def __init__(self, facts: Facts, dictionary: Dictionary) -> None:
        self.facts = facts
        self.dictionary = dictionary
        self.basis = AnchorBasis(facts.kernel, facts.regularization)
        self.pending = Pending(RidgeRegression(facts.regularization))
        keeps = facts.approximation == "projected"
        self.history = History(merge_repeats=dictionary.merges_repeats) if keeps else None
        # How many observations came before each anchor whose past is still to be projected; None where that happens at
        # once.
        self.postponed: list[int] | None = None

    @property
    def kept_history(self) -> History:
        """The history, or an error where it is not kept."""
        if self.history is None:
            raise UnavailableError(
                "history: this posterior was built with history='none' and keeps no observations; "
                "use a dictionary rule with history='all'."
            )
        return self.history

    def admit(self, point: FloatArray, candidate: Candidate, proposal: Proposal, deferred: bool = False) -> Admission:
        """Prepare a proposal other than to resample; writes nothing.

        A point that is drawn becomes an anchor if it adds a direction, of which the regression learns at once, or by
        deferred observations.
        """
        if proposal.draw:
            # the kernel between anchors and history, in products of a millisecond or so
            with factorisation_threads(len(self.basis)):
                drawn = self._admit_drawn(point, candidate, deferred)
            if drawn is not None:
                return drawn
        features, residual = candidate.features, float(candidate.residual)
        return Admission(features, residual, self.pending, self.facts.residual_trace, candidate, False, [])

    def _admit_drawn(self, point: FloatArray, candidate: Candidate, deferred: bool) -> Admission | None:
        """Return what changes if a point becomes an anchor; None if it adds no direction."""
        coefficients, square = self.basis.direction(point, candidate.features)
        if not square > least_direction(candidate.prior_variance, self.facts.regularization):
            return None
        pivot = math.sqrt(square)
        basis = self.basis.extended(point, coefficients, pivot, float(candidate.prior_variance))
        pair, trace, steps = self._extended(basis, deferred)
        features, residual = np.append(candidate.features, pivot), max(float(candidate.residual) - square, 0.0)
        return Admission(features, residual, pair, trace, candidate._replace(residual=square), True, steps)

    def _extended(self, basis: AnchorBasis, deferred: bool) -> tuple[Pending[RidgeRegression], float, Steps]:
        """Return the regressions and ρ with one more anchor.

        The past is projected onto it where it is kept, or later.
        """
        pair, facts, steps = self.pending, self.facts, []
        trace = facts.residual_trace
        if not deferred:
            past = () if self.history is None or self.postponed is not None else self.history.blocks()
            mass = basis.project(past, [facts.round_index])
            pair = Pending(self.pending.settled.bordered(mass))
            if self.pending.ahead is not self.pending.settled:
                awaited = basis.project(self._awaited_block(), [len(self.pending.awaited)])
                pair.ahead = self.pending.ahead.bordered(Mass(*map(np.add, mass, awaited)))
            pair.awaited = self.pending.awaited
            trace = max(trace - mass.square.item(), 0.0)
            steps = [replace_state(self.pending, pair)]
        if self.postponed is not None:
            steps.append((self.postponed.append, facts.round_index))
        return pair, trace, [*steps, (setattr, self, "basis", basis)]

    def _awaited_block(self) -> list[Block]:
        """Anticipated points as a block of the history, where later directions find them."""
        if self.history is None or not self.pending.awaited:
            return []
        points = np.array([awaited.point for awaited in self.pending.awaited.values()])
        return [(points, np.ones(len(points)), np.zeros(len(points)))]

    def frozen_variance(self) -> Callable[[FloatArray], float]:
        """Return the function point (d,) ↦ σ²(point), the paper's variance as it is now."""
        basis, frozen = self.basis, self.pending.ahead.covariance.copy()

        def variance(point: FloatArray) -> float:
            features, residual, _ = basis(point[None, :])
            explained = features[0] @ symmetric_times_vector(frozen, features[0])
            # σ² = residual/λ + φᵀPφ
            return residual.item(0) / self.facts.regularization + float(explained)

        return variance

    def postpone(self) -> bool:
        """Let anchors come in without their past from now on, where that can be made up for; whether it begins here."""
        # merged repeats have lost the order that a later pass needs
        begins = self.history is not None and self.postponed is None and not self.dictionary.merges_repeats
        if begins:
            self.postponed = []
        return begins

    def project_postponed(self) -> None:
        """Project the past onto the anchors that were not shown theirs, in one pass, and postpone no longer.

        If the kernel fails now, the past has nothing in their directions, as with ``history="none"``.
        """
        steps: Steps = [(setattr, self, "postponed", None)]
        try:
            if self.postponed:
                mass = self.basis.project(self.kept_history.blocks(), self.postponed)
                settled = self.pending.settled.copy()
                settled.add_mass(mass)
                settled.settle()
                trace = max(self.facts.residual_trace - float(np.trace(mass.square)), 0.0)
                pair = Pending(settled).recounted(self._in_coordinates(self.pending.awaited))
                steps += [(setattr, self.facts, "residual_trace", trace), replace_state(self.pending, pair)]
        except KernelBanditsError:
            carry_out(steps[:1])
            raise
        carry_out(steps)

    def catch_up(self) -> None:
        """Bring the regression up to date with all that was postponed or deferred, and go on postponing."""
        postpones = self.postponed is not None
        self.project_postponed()
        self.pending.settled.settle()
        if postpones:
            self.postponed = []

    def remember_steps(self, point: FloatArray, reward: float, residual_trace: float, weight: float = 1.0) -> Steps:
        """Return the steps that count an observation that the regression has learned, with the ρ from then on."""
        facts, history = self.facts, self.history
        counted = (facts.store, residual_trace, len(point), facts.round_index + 1)
        return [counted] if history is None else [*history.append_steps(point, reward, weight), counted]

    def predict_awaited(self, key: int) -> tuple[float, float]:
        """Return mean and std at an anticipated point, whose φ is known, by the regression that does not count it."""
        awaited, settled = self.current(key), self.pending.settled
        features = awaited.coordinates
        # std² = residual + λ·φᵀPφ
        explained = float(features @ symmetric_times_vector(settled.covariance, features))
        variance = awaited.residual + self.facts.regularization * explained
        return float(features @ settled.weights), math.sqrt(max(variance, 0.0))

    def contributions(self, point: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray | None]:
        """Return the points that the mean at a point is a sum over, their terms, and their rewards if they are kept."""
        basis, history, settled = self.basis, self.history, self.pending.settled
        gram = basis.gram(point[None, :])
        if history is None:
            # mean = Σ_j k(s, z_j)·[Jᵀw]_j
            return basis.anchors.copy(), gram[0] * basis.weights(settled.weights), None
        # mean = Σ_i r_i·φ(s_i)ᵀPφ(s) with φ(s_i)ᵀPφ(s) = k_Z(s_i)ᵀJᵀPφ(s)
        coefficients = basis.weights(times_vector(settled.covariance, times_upper(gram, basis.factor)[0]))
        values, rewards = [np.empty(0)], [np.empty(0)]
        for points, counts, sums in history.blocks():
            values.append(sums * times_vector(basis.gram(points), coefficients))
            rewards.append(sums / counts)
        return history.rows, np.concatenate(values), np.concatenate(rewards)

    def current(self, key: int) -> Awaited:
        """Return an anticipated point in the coordinates of the anchors there are now."""
        awaited = self.pending.awaited[key]
        missing = len(self.basis) - len(awaited.coordinates)
        if not missing:
            return awaited
        if self.history is None:
            # c = 0 on directions that were added after the point was played, as for all of the past
            return replace(awaited, coordinates=np.append(awaited.coordinates, np.zeros(missing)))
        return self._in_coordinates({key: awaited})[key]

    def _in_coordinates(self, awaited: Mapping[int, Awaited]) -> dict[int, Awaited]:
        """Anticipated points in the coordinates of the anchors there are, whatever the regression knows of them."""
        keys, found = list(awaited), dict[int, Awaited]()
        for start in range(0, len(keys), BLOCK_ROWS):
            some = keys[start : start + BLOCK_ROWS]
            points = np.array([awaited[key].point for key in some])
            features, residual, _ = self.basis(points)
            require_finite_between_points(self.basis.kernel, features, residual)
            found.update(zip(some, map(Awaited, points, features, residual.tolist()), strict=True))
        return found

    def count_awaited(self, awaited: Mapping[int, Awaited]) -> None:
        """Count anticipated points, in the coordinates of the anchors there are, in a model that nobody else holds."""
        carry_out([replace_state(self.pending, self.pending.recounted(self._in_coordinates(awaited)))])

    def resample(self) -> None:
        """Redraw the dictionary from every point played, anticipated ones included."""
        if self.postponed:
            self.catch_up()
        blocks = [*self.kept_history.blocks(), *self._awaited_block()]
        played = PlayedPoints(
            np.concatenate([points for points, _, _ in blocks]),
            np.concatenate([counts for _, counts, _ in blocks]),
            lambda: np.concatenate([self._variances(points) for points, _, _ in blocks]),
        )
        anchors = as_points("redraw", self.dictionary.redraw(played), played.points.shape[1])
        self.rebuild(anchors, self.history)
        self.dictionary.adopt(self.pending.ahead.covariance)

    def _variances(self, points: FloatArray) -> FloatArray:
        """Return σ² of the paper at points, shape (n,)."""
        with np.errstate(invalid="ignore", over="ignore"):
            features, residual, _ = self.basis(points)
            explained = np.vecdot(features, times(features, self.pending.ahead.covariance))
        require_finite_between_points(self.basis.kernel, residual, explained)
        return residual / self.facts.regularization + explained

    def rebuild(
        self, candidates: FloatArray, history: Blocks | None, mean_residual: float = 0.0, limit: int | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Carry observations by other anchors, as :meth:`AnchorBasis.chosen`: one pass over the history, O(t·m²).

        Return what is left unexplained of each row of the history, shape (t,), and Σφφᵀ, shape (m, m).
        """
        limits = [most for most in (limit, self.dictionary.max_size) if most is not None]
        kernel, ridge = self.facts.kernel, self.facts.regularization
        basis = AnchorBasis.chosen(kernel, ridge, candidates, mean_residual, min(limits, default=None))
        second_moment, moment = np.zeros((len(basis), len(basis))), np.zeros(len(basis))
        left, counted = [np.empty(0)], [np.empty(0)]
        for points, counts, rewards in history.blocks() if history is not None else ():
            features, residual, _ = basis(points)
            second_moment += times(features.T, counts[:, None] * features)
            moment += transpose_times_vector(features, rewards)
            left.append(residual)
            counted.append(counts)
        residuals = np.concatenate(left)
        residual_trace = float(np.concatenate(counted) @ residuals)
        require_finite_between_points(basis.kernel, residual_trace, second_moment)
        self.basis = basis
        self.pending.settled.load(second_moment, moment)
        self.count_awaited(self.pending.awaited)
        self.facts.residual_trace = residual_trace
        return residuals, second_moment

    def copy(self) -> Self:
        """Return a model that learns apart from this one; its basis, which is never changed in place, is shared."""
        twin = copy.copy(self)
        twin.facts, twin.pending = copy.copy(self.facts), self.pending.copy()
        twin.dictionary = copy.deepcopy(self.dictionary)
        twin.history = None if self.history is None else self.history.copy()
        twin.postponed = None if self.postponed is None else list(self.postponed)
        return twin

    def replace_steps(self, twin: Self) -> Steps:
        """Return the steps that go on with what a copy has learned.

        Facts, pair and dictionary stay the same objects.
        """
        shared = ("facts", "pending", "dictionary")
        own = [name for name in attributes(twin) if name not in shared]
        steps = [replace_state(getattr(self, name), getattr(twin, name)) for name in shared]
        return [*steps, take_over(self, twin, own)]

    def refactor(self) -> None:
        """Recompute the tracked inverses in O(m³)."""
        pair = self.pending.copy()
        pair.settled.refactor()
        if pair.ahead is not pair.settled:
            pair.ahead.refactor()
        carry_out([replace_state(self.pending, pair)])


def solved_anew(pending: Pending[RidgeRegression], features: FloatArray) -> tuple[FloatArray, float, float]:
    """Pφ and φᵀPφ ahead, and the settled φᵀw, of a φ that was not evaluated."""
    solved = symmetric_times_vector(pending.ahead.covariance, features)
    return solved, float(features @ solved), float(features @ pending.settled.weights)
