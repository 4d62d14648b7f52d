"""The regression of a projected posterior, with a dictionary of anchors that grows or changes under it."""

import copy
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace

import numpy as np

from kernel_bandits.arrays import FloatArray, as_points
from kernel_bandits.dictionaries.base import Candidate, Dictionary, PlayedPoints, Proposal
from kernel_bandits.errors import UnavailableError
from kernel_bandits.numerics.linalg import symmetric_times_vector, times, transpose_times_vector
from kernel_bandits.posteriors.base import Facts
from kernel_bandits.posteriors.basis import DIRECTION_TOLERANCE, AnchorBasis, require_finite_between_points
from kernel_bandits.posteriors.history import Block, History
from kernel_bandits.posteriors.pending import Awaited, Pending
from kernel_bandits.posteriors.projection import Mass, project
from kernel_bandits.posteriors.regression import RidgeRegression


class AnchoredRegression:
    """Ridge regression on φ = J k_Z, the history that new directions need, and the dictionary that asks for them.

    The facts are those of the posterior, and are changed in place.
    """

    def __init__(self, facts: Facts, dictionary: Dictionary) -> None:
        self.facts = facts
        self.dictionary = dictionary
        self.basis = AnchorBasis(facts.kernel)
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

    def admit(
        self, point: FloatArray, candidate: Candidate, proposal: Proposal, deferred: bool = False
    ) -> tuple[FloatArray, float]:
        """Carry out a proposal other than to resample; return the φ and residual of the point from then on.

        A point that is drawn becomes an anchor if it adds a direction, of which the regression learns at once, or by
        deferred observations.
        """
        features, residual, appended = candidate.features, float(candidate.residual), False
        if proposal.draw:
            coefficients, square = self.basis.direction(point, features)
            appended = square > DIRECTION_TOLERANCE * float(candidate.prior_variance)
            if appended:
                pivot = math.sqrt(square)
                self._append(self.basis.extended(point, coefficients, pivot), deferred)
                candidate = candidate._replace(residual=square)
                features, residual = np.append(features, pivot), max(residual - square, 0.0)
        self.dictionary.commit(candidate, proposal, appended)
        return features, residual

    def _append(self, basis: AnchorBasis, deferred: bool) -> None:
        """Go on with one more anchor; the past is projected onto it where it is kept, at once or later."""
        settled, ahead, facts = self.pending.settled, self.pending.ahead, self.facts
        if not deferred:
            past = () if self.history is None or self.postponed is not None else self.history.blocks()
            mass = self._project(past, basis, [facts.round_index])
            if ahead is not settled:
                awaited = self._project(self._awaited_block(), basis, [len(self.pending.awaited)])
                ahead.border(Mass(*map(np.add, mass, awaited)))
            settled.border(mass)
            facts.residual_trace = max(facts.residual_trace - mass.square.item(), 0.0)
        if self.postponed is not None:
            self.postponed.append(facts.round_index)
        self.basis = basis

    def _awaited_block(self) -> list[Block]:
        """Anticipated points as a block of the history, where later directions find them."""
        if self.history is None or not self.pending.awaited:
            return []
        points = np.array([awaited.point for awaited in self.pending.awaited.values()])
        return [(points, np.ones(len(points)), np.zeros(len(points)))]

    def _project(self, blocks: Iterable[Block], basis: AnchorBasis, since: Sequence[int]) -> Mass:
        with np.errstate(invalid="ignore", over="ignore"):
            mass = project(basis.kernel, blocks, basis.anchors, basis.factor, since)
        require_finite_between_points(basis.kernel, mass.square, mass.moment)
        return mass

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
        since, self.postponed = self.postponed, None
        if since:
            mass = self._project(self.kept_history.blocks(), self.basis, since)
            self.pending.settled.add_mass(mass)
            self.pending.settled.settle()
            self.facts.residual_trace = max(self.facts.residual_trace - float(np.trace(mass.square)), 0.0)
            self._recount()

    def catch_up(self) -> None:
        """Bring the regression up to date with all that was postponed or deferred, and go on postponing."""
        postpones = self.postponed is not None
        self.project_postponed()
        self.pending.settled.settle()
        if postpones:
            self.postponed = []

    def remember(self, point: FloatArray, reward: float, residual: float, weight: float = 1.0) -> None:
        """Count an observation that the regression has learned."""
        facts = self.facts
        # ρ grows by what the anchors do not explain
        facts.residual_trace += weight * residual
        if self.history is not None:
            self.history.append(point, reward, weight)
        facts.dimension = len(point)
        facts.round_index += 1

    def expect(self, key: int, awaited: Awaited) -> None:
        """Count a point whose reward is still to come."""
        self.pending.expect(key, awaited)
        self.facts.dimension = len(awaited.point)

    def current(self, key: int) -> Awaited:
        """An anticipated point in the coordinates of the anchors there are now."""
        awaited = self.pending.awaited[key]
        missing = len(self.basis) - len(awaited.coordinates)
        if not missing:
            return awaited
        if self.history is None:
            # c = 0 on directions that were added after the point was played, as for all of the past
            return replace(awaited, coordinates=np.append(awaited.coordinates, np.zeros(missing)))
        return self._in_coordinates(awaited)

    def _in_coordinates(self, awaited: Awaited) -> Awaited:
        """An anticipated point in the coordinates of the anchors there are, whatever the regression knows of them."""
        features, residual, _ = self.basis(awaited.point[None, :])
        require_finite_between_points(self.basis.kernel, features, residual)
        return Awaited(awaited.point, features[0], residual.item(0))

    def _recount(self) -> None:
        """Count the anticipated points into a copy of the regression, in the coordinates of the anchors there are."""
        self.pending.recount({key: self._in_coordinates(awaited) for key, awaited in self.pending.awaited.items()})

    def resample(self) -> None:
        """Draw the dictionary anew from every point played, anticipated ones included."""
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
        """σ² of the paper at points, shape (n,)."""
        with np.errstate(invalid="ignore", over="ignore"):
            features, residual, _ = self.basis(points)
            explained = np.vecdot(features, times(features, self.pending.ahead.covariance))
        require_finite_between_points(self.basis.kernel, residual, explained)
        return residual / self.facts.regularization + explained

    def rebuild(
        self, candidates: FloatArray, history: History | None, mean_residual: float = 0.0, limit: int | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Carry observations by other anchors, as :meth:`AnchorBasis.chosen`: one pass over the history, O(t·m²).

        Return what is left unexplained of each row of the history, shape (t,), and Σφφᵀ, shape (m, m).
        """
        limits = [most for most in (limit, self.dictionary.max_size) if most is not None]
        basis = AnchorBasis.chosen(self.facts.kernel, candidates, mean_residual, min(limits, default=None))
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
        self._recount()
        self.facts.residual_trace = residual_trace
        return residuals, second_moment

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """Restore everything if what follows fails; facts and regressions in place, for others hold them too."""
        own = {name: value for name, value in vars(self).items() if name not in ("facts", "pending")}
        # bases are never changed in place, and a kernel is no state
        shared = {id(thing): thing for thing in (self.basis, self.facts.kernel)}
        facts, (own, pending) = copy.copy(self.facts), copy.deepcopy((own, vars(self.pending)), shared)
        try:
            yield
        except BaseException:
            vars(self).update(own)
            for field in fields(facts):
                setattr(self.facts, field.name, getattr(facts, field.name))
            vars(self.pending).update(pending)
            raise

    def refactor(self) -> None:
        """Recompute the tracked inverses in O(m³)."""
        self.pending.settled.refactor()
        if self.pending.ahead is not self.pending.settled:
            self.pending.ahead.refactor()


def solved_anew(pending: Pending[RidgeRegression], features: FloatArray) -> tuple[FloatArray, float, float]:
    """Pφ and φᵀPφ ahead, and the settled φᵀw, of a φ that was not evaluated."""
    solved = symmetric_times_vector(pending.ahead.covariance, features)
    return solved, float(features @ solved), float(features @ pending.settled.weights)
