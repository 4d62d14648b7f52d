"""The projected posterior: a dictionary of anchors carries it, O(m²) per action and per update.

From top to bottom: the posterior, upper bounds in one context, whole logs and histories, pruning of large action sets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from kernel_bandits.arrays import FloatArray, as_points, as_positive, is_finite
from kernel_bandits.dictionaries.base import Candidate, Dictionary, DictionaryRule, PlayedPoints, as_rule
from kernel_bandits.errors import InputError, UnavailableError
from kernel_bandits.kernels import KernelLike, as_kernel, kernel_gradient, require_columns
from kernel_bandits.kernels.base import Sections
from kernel_bandits.numerics import linalg
from kernel_bandits.numerics.linalg import factorisation_threads
from kernel_bandits.posterior.base import (
    Bound,
    Evaluation,
    Prediction,
    RegressionPosterior,
    Seen,
    Weights,
    require_finite_kernel,
)
from kernel_bandits.posterior.basis import (
    EPSILON,
    AnchorBasis,
    least_direction,
    require_finite_between_points,
    require_resolution,
)
from kernel_bandits.posterior.history import BLOCK_ROWS, Block, History
from kernel_bandits.posterior.ridge import (
    FEWEST_TOGETHER,
    RECENT_ROWS,
    Mass,
    RidgeRegression,
    batch_rows,
    sequential_factor,
)
from kernel_bandits.values import Pending, copied, evolve, fact

# At most so many points are awaited or settled by one matrix product.
MOST_AWAITED, MOST_SETTLED = 128, 1024


class Awaited(NamedTuple):
    """A point (d,) whose reward is awaited, its φ when it was played, what the anchors then left, and if it is one."""

    point: FloatArray
    features: FloatArray
    residual: float
    is_anchor: bool = False


@dataclass(slots=True)
class _NystromEvaluation(Evaluation):
    """Adds φ, shape (A, m), and φᵀPφ, k(s, s) − ‖φ‖² and k(s, s), each (A,)."""

    features: FloatArray
    explained: FloatArray
    residual: FloatArray
    prior_variance: FloatArray


class NystromPosterior(RegressionPosterior):
    """Kernel ridge regression restricted to the span of the anchors (eq. 9 and Proposition 4.2 of the paper).

    Whitened coordinates: J = L⁻¹ with LLᵀ = K_ZZ, features φ(s) = J k_Z(s), and :class:`RidgeRegression` on them:
    A = λI + Σ φφᵀ, P = A⁻¹ and w = P Σ rφ. They give the paper's quantities as Λ = JᵀPJ and k_ZᵀΛΓ = φᵀw, but every
    eigenvalue of A is at least λ whatever the condition of K_ZZ.

    Args:
        kernel: the covariance function, ours or scikit-learn's.
        regularization: the λ of the ridge; the noise variance in the Gaussian-process view.
        rule: chooses the anchors, and whether the history is kept.
        generator: of the rule's coins; a fresh one unless given.

    Attributes:
        rule: the one given.
        basis: the anchors, and what turns points into φ.
        dictionary: the running state of the rule.
        history: what was observed; None where it is not kept.
    """

    __slots__ = (
        "approximation",
        "awaited",
        "basis",
        "dictionary",
        "dimension",
        "history",
        "kernel",
        "regression",
        "regularization",
        "residual_trace",
        "round_index",
        "rule",
        "with_pending",
    )

    def __init__(
        self,
        kernel: KernelLike,
        regularization: float,
        rule: DictionaryRule,
        generator: np.random.Generator | None = None,
    ) -> None:
        self.kernel: KernelLike = as_kernel(kernel)
        self.regularization: float = as_positive("regularization", regularization)
        self.rule: DictionaryRule = as_rule(rule)
        self.approximation = "projected" if rule.history == "all" else "history-free"
        self.dictionary: Dictionary = rule.start(
            self.regularization, np.random.default_rng() if generator is None else generator
        )
        self.basis: AnchorBasis = AnchorBasis(self.kernel, self.regularization)
        self.regression: RidgeRegression = RidgeRegression(self.regularization)
        self.with_pending: RidgeRegression = self.regression
        self.awaited: Pending[Awaited] = Pending[Awaited]()
        self.history: History | None = History() if rule.history == "all" else None
        self.dimension: int | None = None
        self.round_index: int = 0
        self.residual_trace: float = 0.0
        anchors = self.dictionary.initial_points
        if anchors is not None:
            require_columns(self.kernel, anchors)
            self.dimension = anchors.shape[1]
            rebuilt = self._rebuilt(anchors, None)[0]
            self.basis, self.regression, self.with_pending = rebuilt.basis, rebuilt.regression, rebuilt.with_pending

    drift: float = fact("regression.drift")
    refactorizations: int = fact("regression.refactorizations")

    @property
    def dictionary_points(self) -> FloatArray:
        return self.basis.anchors.copy()

    @property
    def pending_shrinkage(self) -> float:
        if self.with_pending is self.regression:
            return 1.0
        return self.regression.shrinkage(np.array([awaited.features for awaited in self._current(self.awaited)]))

    @property
    def kept_history(self) -> History:
        """The history, or an error where it is not kept."""
        if self.history is None:
            raise UnavailableError(
                "history: this posterior was built with history='none' and keeps no observations; "
                "use a dictionary rule with history='all'."
            )
        return self.history

    @property
    def observations(self) -> tuple[FloatArray, FloatArray]:
        return self.kept_history.points, self.kept_history.rewards

    @property
    def observed_weights(self) -> FloatArray | None:
        return None if self.history is None else self.history.weights

    def evaluate(self, points: FloatArray) -> _NystromEvaluation:
        return self.evaluate_gram(self.basis.gram(points), self.basis.kernel.diag(points))

    def evaluate_gram(self, gram: FloatArray, prior: FloatArray) -> _NystromEvaluation:
        """Evaluate points whose k(points, anchors) (A, m) and k(s, s) (A,) are known; the former is overwritten."""
        # φ = J k_Z(s), and residual = k(s, s) − ‖φ‖²: the squared distance of k(s, ·) to the span of the anchors
        features = self.basis.whitening.times(gram)
        residual = np.maximum(prior - np.vecdot(features, features), linalg.ZERO)
        mean = linalg.times_vector(features, self.regression.weights)
        # std² = λσ² = residual + λ·φᵀPφ
        explained = self.with_pending.inverse.quadratic_forms(features)
        std = linalg.safe_sqrt(residual + self.regularization * explained)
        return _NystromEvaluation(mean, std, features, explained, residual, prior)

    def evaluate_awaited(self, keys: Sequence[int], points: FloatArray) -> Prediction:
        del points  # by the regression that does not count them, since their φ are known
        awaited = self._current(keys)
        features, residual = np.array([one.features for one in awaited]), np.array([one.residual for one in awaited])
        # std² = residual + λ·φᵀPφ
        explained = self.regression.inverse.quadratic_forms(features)
        std = linalg.safe_sqrt(residual + self.regularization * explained)
        return Prediction(linalg.times_vector(features, self.regression.weights), std)

    def covariance(self, points: FloatArray, evaluation: _NystromEvaluation) -> FloatArray:
        features = evaluation.features
        # K − ΦΦᵀ + λ·ΦPΦᵀ, where noise that a kernel puts on its diagonal alone counts as in the std
        covariance = self.kernel(points, points.copy()) - linalg.times_transpose(features, features)
        solved = self.with_pending.inverse.times(features)
        covariance += self.regularization * linalg.times_transpose(features, solved)
        np.fill_diagonal(covariance, evaluation.std**2)
        return covariance

    def contributions(self, point: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray | None]:
        basis, regression = self.basis, self.regression
        gram = basis.gram(point[None, :])
        if self.history is None:
            # mean = Σ_j k(s, z_j)·[Jᵀw]_j
            return basis.anchors.copy(), gram[0] * basis.whitening.transpose_times_vector(regression.weights), None
        # mean = Σ_i r_i·φ(s_i)ᵀPφ(s) with φ(s_i)ᵀPφ(s) = k_Z(s_i)ᵀJᵀPφ(s)
        features = basis.whitening.times(gram)[0]
        coefficients = basis.whitening.transpose_times_vector(regression.inverse.times_vector(features))
        values, rewards = [np.empty(0)], [np.empty(0)]
        for points, counts, sums in self.history.blocks():
            values.append(sums * linalg.times_vector(basis.gram(points), coefficients))
            rewards.append(sums / counts)
        return self.history.points, np.concatenate(values), np.concatenate(rewards)

    def contenders(self, points: FloatArray, bonus: float) -> tuple[NDArray[np.intp] | None, _NystromEvaluation]:
        basis = self.basis
        gram, prior = basis.gram(points), basis.kernel.diag(points)
        actions, anchors = gram.shape
        if actions < MINIMUM_ACTIONS or anchors < MINIMUM_ANCHORS or gram.size < MINIMUM_ENTRIES:
            return None, self.evaluate_gram(gram, prior)
        # mean = k_Z(s)ᵀJᵀw at O(m) per action, std from what it is at some of them
        coefficients = basis.whitening.transpose_times_vector(self.regression.weights)
        known = pivots(len(points), len(basis.anchors))
        exact = self.evaluate_gram(gram[known], prior[known])
        stds = std_bounds(basis.kernel, points, prior, known, exact.std)
        bounds = linalg.times_vector(gram, coefficients) + bonus * stds
        likely = np.argpartition(bounds, -LIKELY_WINNERS)[-LIKELY_WINNERS:]
        sample = self.evaluate_gram(gram[likely], prior[likely])
        best = max(float((some.mean + bonus * some.std).max()) for some in (exact, sample))
        slack = rounding_slack(bounds, bonus, prior, coefficients, basis.kernel.diag(basis.anchors))
        # not below, so that a bound that is not a number stays in and is noticed
        chosen = np.flatnonzero(~(bounds < best - slack))
        if len(chosen) > WORTH * actions:
            return None, self.evaluate_gram(gram, prior)
        return chosen, self.evaluate_gram(gram[chosen], prior[chosen])

    def means(self, points: FloatArray) -> FloatArray:
        basis = self.basis
        # mean = k_Z(s)ᵀJᵀw at O(m) per point
        with np.errstate(invalid="ignore", over="ignore"):
            means = linalg.times_vector(
                basis.gram(points), basis.whitening.transpose_times_vector(self.regression.weights)
            )
        require_finite_kernel(basis.kernel, means + basis.kernel.diag(points))
        return means

    def gradient(self, points: FloatArray, evaluation: _NystromEvaluation, bonus: float, first: int = 0) -> FloatArray:
        slopes = self._slopes(evaluation, bonus)
        return kernel_gradient(self.basis.kernel, points, self.basis.anchors, *slopes, first)

    def _slopes(self, evaluation: _NystromEvaluation, bonus: float) -> tuple[FloatArray, FloatArray]:
        """Return the derivatives of mean + bonus·std by k_Z(s), shape (A, m), and by k(s, s), shape (A,)."""
        # d mean = wᵀdφ and d std² = d residual + 2λ(Pφ)ᵀdφ with d residual = dk(s, s) − 2φᵀdφ, or 0 where it is cut off
        slopes = bonus * linalg.half_inverse(evaluation.std)
        own = np.where(evaluation.residual > 0.0, slopes, 0.0)
        by_features = self.with_pending.inverse.times(evaluation.features)
        by_features *= 2.0 * self.regularization * slopes[:, None]
        by_features += self.regression.weights - 2.0 * own[:, None] * evaluation.features
        # dφ = J dk_Z
        return self.basis.whitening.times_transpose(by_features), own

    def bound_in(self, context: FloatArray, bonus: float) -> Bound:
        sections = self.basis.sections_in(context)
        return super().bound_in(context, bonus) if sections is None else _AnchoredBound(self, sections, bonus)

    def learned(self, points: FloatArray, rewards: FloatArray, weights: Weights = None, evaluated: Seen = None) -> Self:
        if len(points) > 1:
            if weights is None and not self.awaited:
                return self._learned_log(points, rewards)
            return self._one_by_one(points, rewards, weights)
        # Algorithm 2 of the paper, lines 13 to 22: one coin for the point, perhaps an anchor, then the regression
        point, reward, weight = points[0], rewards.item(0), 1.0 if weights is None else weights.item(0)
        after, features, residual, is_anchor, resample = self._shown(point, evaluated)
        regression = with_pending = after.regression.learned(features, reward, weight)
        if after.with_pending is not after.regression:
            with_pending = after.with_pending.learned(features, 0.0, weight)
        after.regression, after.with_pending, after.round_index = regression, with_pending, self.round_index + 1
        if self.history is not None:
            after.history = self.history.appended(point, reward, weight, is_anchor)
        # ρ grows by what the anchors do not explain
        after.residual_trace += residual if weight == 1.0 else weight * residual
        if resample:
            return after._resampled()
        return after._settled() if after.with_pending.rounds % RECENT_ROWS == 0 else after

    def _shown(self, point: FloatArray, evaluated: Seen) -> tuple[Self, FloatArray, float, bool, bool]:
        """Show a point to the dictionary, and let it be an anchor if it is drawn and adds a direction.

        Return a copy that may be written to, φ of the point, what is left of it, whether it became an anchor, and
        whether the dictionary is to be redrawn.
        """
        evaluation, row = (self.evaluate_finite(point[None, :]), 0) if evaluated is None else evaluated
        features, residual = evaluation.features[row], evaluation.residual.item(row)
        prior = evaluation.prior_variance.item(row)
        # the cheap half of the check, since every round passes here
        if prior * EPSILON > self.regularization:
            require_resolution(self.kernel, prior, self.regularization)
        # σ² = residual/λ + φᵀPφ; rules look at points and not at weights: an anchor stands for a place
        variance = residual / self.regularization + evaluation.explained.item(row)
        candidate = Candidate(point, self.basis.anchors, features, residual, prior, variance)
        proposal, after, is_anchor = self.dictionary.propose(candidate), copied(self), False
        if not proposal.resample:
            grown = self._with_anchor(candidate) if proposal.draw else None
            if grown is not None:
                is_anchor = True
                after, candidate, features, residual = grown
            after.dictionary = self.dictionary.after(candidate, proposal, is_anchor)
        after.dimension = len(point)
        return after, features, residual, is_anchor, proposal.resample

    # What a kernel leaves that is not finite is refused by name.
    @np.errstate(invalid="ignore", over="ignore")
    def _with_anchor(self, candidate: Candidate) -> tuple[Self, Candidate, FloatArray, float] | None:
        """Return the posterior with one more anchor, of which the past learns; None if the point adds no direction.

        Return beside it the point as a candidate whose residual is l², the squared length of the direction, its φ, and
        what is left of it.
        """
        # the kernel between anchors and history, in products of a millisecond or so
        with factorisation_threads(len(self.basis)):
            grown = _with_direction(self.basis, candidate)
            if grown is None:
                return None
            basis, candidate, features, residual = grown
            # observed points that are anchors already lie in their span, and have c = 0 in a further direction
            mass = basis.project(() if self.history is None else self.history.outside())
            regression = with_pending = self.regression.bordered(mass)
            if self.with_pending is not self.regression:
                awaited = basis.project(self._awaited_outside())
                both = [each for each in (mass, awaited) if each is not None]
                total = Mass(*(sum(parts, np.zeros(())) for parts in zip(*both, strict=True))) if both else None
                with_pending = self.with_pending.bordered(total)
        trace = self.residual_trace if mass is None else max(self.residual_trace - mass.square.item(), 0.0)
        after = evolve(self, basis=basis, regression=regression, with_pending=with_pending, residual_trace=trace)
        return after, candidate, features, residual

    def _learned_log(self, points: FloatArray, rewards: FloatArray) -> Self:
        """Return it with a log in order, many observations by one matrix product where that changes nothing."""
        dictionary = self.dictionary
        draws_by_points = dictionary.leverage_regularization is not None and not dictionary.uses_variance
        if draws_by_points and self.history is not None and len(points) > len(self.basis):
            return self._learned_at_once(self.history, points, rewards)
        return self._in_blocks(
            len(points),
            batch_rows(len(self.basis)),
            lambda posterior, rows: posterior._learned_quietly(points[rows], rewards[rows]),
            lambda posterior, row: posterior.learned(points[row : row + 1], rewards[row : row + 1]),
        )

    def _learned_quietly(self, points: FloatArray, rewards: FloatArray) -> tuple[Self, int]:
        """Return the posterior with the leading points that leave the anchors alone, and how many they are."""
        block, quiet, dictionary = self._seen(self.basis, self.dictionary, points)
        if not quiet:
            return self, 0
        regression = self.regression.learned_many(block.features[:quiet], rewards[:quiet])
        after = evolve(
            self,
            regression=regression,
            with_pending=regression,
            dictionary=dictionary,
            dimension=points.shape[1],
            history=None if self.history is None else self.history.extended(points[:quiet], rewards[:quiet]),
            residual_trace=self.residual_trace + float(np.asarray(block.residual)[:quiet].sum()),
            round_index=self.round_index + quiet,
        )
        return after, quiet

    def _in_blocks(
        self,
        count: int,
        most: int,
        quietly: Callable[[Self, slice], tuple[Self, int]],
        one: Callable[[Self, int], Self],
    ) -> Self:
        """Go through so many points in blocks of those that leave the anchors alone, and single ones between them.

        Args:
            count: of the points.
            most: points of a block.
            quietly: takes the leading points of a block together, and returns how many they were.
            one: takes a single point.
        """
        posterior, start, window = self, 0, most
        while start < count:
            stop = min(start + window, count)
            posterior, quiet = quietly(posterior, slice(start, stop))
            start += quiet
            if start < stop:
                posterior, start = one(posterior, start), start + 1
            # points behind one that changes the dictionary are evaluated in vain: aim at the gap between two
            window = min(max(2 * (quiet + 1), FEWEST_TOGETHER), most)
        return posterior

    @np.errstate(invalid="ignore", over="ignore")
    def _seen(
        self, basis: AnchorBasis, dictionary: Dictionary, points: FloatArray
    ) -> tuple[Candidate, int, Dictionary]:
        """Show points (n, d) to a dictionary.

        Return them as candidates, how many of the first leave the anchors alone, and the dictionary after these.
        """
        features, residual, prior = basis(points)
        if not is_finite(features) or not is_finite(residual):
            raise InputError(f"kernel: {self.kernel!r} returned values that are not finite in the log.")
        require_resolution(self.kernel, float(prior.max()), self.regularization)
        variance = np.zeros(len(points))
        if dictionary.uses_variance:
            # φᵀPφ of each point after the ones before it; σ² = residual/λ + φᵀPφ
            factor = sequential_factor(features, self.with_pending.inverse.times(features))
            variance = residual / self.regularization + (np.diagonal(factor) ** 2 - 1.0)
        block = Candidate(points, basis.anchors, features, residual, prior, variance)
        return block, *dictionary.after_block(block, residual <= least_direction(prior, self.regularization))

    def _learned_at_once(self, history: History, points: FloatArray, rewards: FloatArray) -> Self:
        """Return it with a log whose anchors are drawn first, which rules that look at points alone can do without P.

        The past of all of them is then computed in one pass, and P once.
        """
        basis, dictionary, anchors = self.basis, self.dictionary, list[int]()
        start, window = 0, FEWEST_TOGETHER
        while start < len(points):
            block, quiet, dictionary = self._seen(basis, dictionary, points[start : start + window])
            start += quiet
            if quiet < len(block.point):
                own = [np.asarray(field)[quiet] for field in (block.features, block.residual, block.prior_variance)]
                candidate = Candidate(points[start], basis.anchors, own[0], own[1].item(), own[2].item(), 0.0)
                proposal = dictionary.propose(candidate)
                with factorisation_threads(len(basis)):
                    grown = _with_direction(basis, candidate) if proposal.draw else None
                if grown is not None:
                    basis, candidate = grown[:2]
                    anchors.append(start)
                dictionary, start = dictionary.after(candidate, proposal, grown is not None), start + 1
            window = min(2 * (quiet + 1), batch_rows(len(basis)))
        known, size = len(self.basis), len(basis)
        # Σ φφᵀ and Σ rφ of the log, and of what was learned before
        second_moment, moment, left, _ = basis.sums(History().extended(points, rewards).blocks())
        residual_trace, before, earlier = self.residual_trace, np.zeros((size, size)), np.zeros(size)
        before[:known, :known], earlier[:known] = self.regression.sums()
        mass = basis.project(history.outside(), len(anchors)) if anchors else None
        if mass is not None:
            before[:, known:], before[known:], earlier[known:] = mass.cross, mass.cross.T, mass.moment
            residual_trace = max(residual_trace - float(np.trace(mass.square)), 0.0)
        regression = self.regression.loaded(before + second_moment, earlier + moment)
        return evolve(
            self,
            basis=basis,
            dictionary=dictionary,
            history=history.extended(points, rewards, anchors=anchors),
            regression=regression,
            with_pending=regression,
            residual_trace=residual_trace + float(left.sum()),
            round_index=self.round_index + len(points),
            dimension=points.shape[1],
        )

    def _awaited_outside(self) -> list[Block]:
        """Return the awaited points that are no anchors as a block of the history; none where no history is kept."""
        points = [awaited.point for awaited in self.awaited.values() if not awaited.is_anchor]
        if self.history is None or not points:
            return []
        return [(np.array(points), np.ones(len(points)), np.zeros(len(points)))]

    def awaiting(self, keys: Sequence[int], points: FloatArray, evaluated: Seen = None) -> Self:
        return self._in_blocks(
            len(keys),
            MOST_AWAITED,
            lambda posterior, rows: posterior._awaiting_quietly(keys[rows], points[rows]),
            lambda posterior, row: posterior._awaiting_one(keys[row], points[row].copy(), evaluated),
        )

    def _awaiting_one(self, key: int, point: FloatArray, evaluated: Seen) -> Self:
        after, features, residual, is_anchor, resample = self._shown(point, evaluated)
        awaited = Awaited(point, features.copy(), residual, is_anchor)
        after.with_pending = after.with_pending.learned(features, 0.0)
        after.awaited = self.awaited.with_items({key: awaited})
        if resample:
            return after._resampled()
        return after._settled() if after.with_pending.rounds % RECENT_ROWS == 0 else after

    def _settled(self) -> Self:
        """Let the last anchors join the others, for the rounds in which none comes; done now and then."""
        basis = evolve(self.basis, whitening=self.basis.whitening.settled())
        return evolve(self, basis=basis, dictionary=self.dictionary.settled())

    def _awaiting_quietly(self, keys: Sequence[int], points: FloatArray) -> tuple[Self, int]:
        """Return the posterior that awaits the leading points that leave the anchors alone, and how many they are."""
        if len(keys) < FEWEST_TOGETHER or not len(self.basis) or self.dictionary.uses_variance:
            return self, 0
        block, quiet, dictionary = self._seen(self.basis, self.dictionary, points)
        if not quiet:
            return self, 0
        features, residual = block.features, np.asarray(block.residual)
        # copies, since a row of an array keeps all of it
        kept = islice(zip(keys, points, features, residual.tolist(), strict=True), quiet)
        awaited = {key: Awaited(row.copy(), own.copy(), left) for key, row, own, left in kept}
        after = evolve(
            self,
            with_pending=self.with_pending.learned_many(features[:quiet], np.zeros(quiet)),
            awaited=self.awaited.with_items(awaited),
            dictionary=dictionary,
            dimension=points.shape[1],
        )
        return after, quiet

    def _with_rewards(self, keys: Sequence[int], points: FloatArray, rewards: FloatArray) -> Self:
        regression, history, residual_trace = self.regression, self.history, self.residual_trace
        for start in range(0, len(keys), MOST_SETTLED):
            some = slice(start, start + MOST_SETTLED)
            known = self._current(keys[some])
            regression = regression.learned_many(np.array([one.features for one in known]), rewards[some])
            residual_trace += sum(one.residual for one in known)
            if history is not None:
                anchors = [row for row, one in enumerate(known) if one.is_anchor]
                history = history.extended(points[some], rewards[some], anchors=anchors)
        return evolve(
            self,
            regression=regression,
            history=history,
            residual_trace=residual_trace,
            round_index=self.round_index + len(keys),
        )

    def abandoned(self, keys: Collection[int]) -> Self:
        features = [one.features for one in self._current(keys)]
        awaited = self.awaited.without(keys)
        with_pending = self.with_pending.forgotten(features) if awaited else self.regression
        return evolve(self, awaited=awaited, with_pending=with_pending)

    def _current(self, keys: Iterable[int]) -> list[Awaited]:
        """Return awaited points in the coordinates of the anchors there are now."""
        found, size = {key: self.awaited[key] for key in keys}, len(self.basis)
        older = {key: one for key, one in found.items() if len(one.features) < size}
        if self.history is None:
            # c = 0 on directions that were added after the point was played, as for all of the past
            for key, one in older.items():
                known = one.features
                found[key] = one._replace(features=np.append(known, np.zeros(size - len(known))))
        else:
            for key, one in self._in_coordinates({key: one.point for key, one in older.items()}).items():
                found[key] = one._replace(is_anchor=older[key].is_anchor)
        return list(found.values())

    def _in_coordinates(self, points: Mapping[int, FloatArray]) -> dict[int, Awaited]:
        """Return points by key in the coordinates of the anchors there are now."""
        keys, found = list(points), dict[int, Awaited]()
        for start in range(0, len(keys), BLOCK_ROWS):
            some = keys[start : start + BLOCK_ROWS]
            block = np.array([points[key] for key in some])
            features, residual, _ = self.basis(block)
            require_finite_between_points(self.basis.kernel, features, residual)
            found.update(zip(some, map(Awaited, block, features, residual.tolist()), strict=True))
        return found

    def counting(self, points: Mapping[int, FloatArray]) -> Self:
        # no coins are flipped: where a history is learned, anchors are chosen
        if not points:
            return evolve(self, awaited=Pending(), with_pending=self.regression)
        awaited, counted = self._in_coordinates(points), self.regression
        keys = list(awaited)
        for start in range(0, len(keys), BLOCK_ROWS):
            block = np.array([awaited[key].features for key in keys[start : start + BLOCK_ROWS]])
            counted = counted.learned_many(block, np.zeros(len(block)))
        return evolve(self, awaited=Pending(awaited), with_pending=counted)

    def _resampled(self) -> Self:
        """Redraw the dictionary from every point played, awaited ones included."""
        blocks = [points for points, _, _ in self.kept_history.blocks()]
        if self.awaited:
            blocks.append(np.array([awaited.point for awaited in self.awaited.values()]))
        played = PlayedPoints(np.concatenate(blocks), lambda: np.concatenate(list(map(self._variances, blocks))))
        drawn, dictionary = self.dictionary.redrawn(played)
        anchors = as_points("redrawn", drawn, played.points.shape[1])
        rebuilt, _, _ = self._rebuilt(anchors, self.history)
        history = self.kept_history.with_anchors(rebuilt.basis.anchors)
        return evolve(rebuilt, history=history, dictionary=dictionary.adopting(rebuilt.with_pending.covariance))

    def _variances(self, points: FloatArray) -> FloatArray:
        """Return σ² of the paper at points, shape (n,)."""
        with np.errstate(invalid="ignore", over="ignore"):
            features, residual, _ = self.basis(points)
            explained = self.with_pending.inverse.quadratic_forms(features)
        require_finite_between_points(self.basis.kernel, residual, explained)
        return residual / self.regularization + explained

    def _rebuilt(
        self, candidates: FloatArray, history: History | None, mean_residual: float = 0.0, limit: int | None = None
    ) -> tuple[Self, FloatArray, FloatArray]:
        """Return the posterior carried by other anchors, as :meth:`AnchorBasis.chosen`: one pass, O(t·m²).

        Return beside it what is left unexplained of each row of the history, shape (t,), and Σφφᵀ, shape (m, m).
        """
        limits = [most for most in (limit, self.dictionary.max_size) if most is not None]
        chosen = AnchorBasis.chosen(
            self.kernel, self.regularization, candidates, mean_residual, min(limits, default=None)
        )
        second_moment, moment, residuals, counts = chosen.sums(() if history is None else history.blocks())
        regression = self.regression.loaded(second_moment, moment)
        carried = evolve(self, basis=chosen, regression=regression, residual_trace=float(counts @ residuals))
        return carried.counting(self.awaited_points), residuals, second_moment

    def of_history(
        self, points: FloatArray, rewards: FloatArray, candidates: FloatArray, weights: FloatArray | None = None
    ) -> Self:
        if self.dictionary.leverage_regularization is None:
            return super().of_history(points, rewards, candidates, weights)
        if self.round_index:
            raise UnavailableError(f"of_history: {self.round_index} observations were learned already.")
        # A dictionary that grows by leverage scores is not drawn along the history but chosen: by pivoted Cholesky each
        # anchor is the candidate (n, d) that those before it explain least, until little is left unexplained. Two
        # passes are enough where the candidates stand for the history; where they miss much, points of it join them.
        history = History().extended(points, rewards, weights)
        level = self.dictionary.leverage_regularization
        with np.errstate(invalid="ignore", over="ignore"):
            carried, second_moment = _carried(self, points, history, candidates, level)
        # (μI + Σφφᵀ)⁻¹, which is P where μ = λ
        inverse = carried.regression.covariance
        if level != self.regularization:
            second_moment.flat[:: len(second_moment) + 1] += level
            inverse, _ = linalg.inverse_and_log_determinant(second_moment)
        return evolve(
            carried,
            history=None if self.history is None else history.with_anchors(carried.basis.anchors),
            dimension=points.shape[1],
            round_index=len(points),
            dictionary=self.dictionary.adopting(inverse),
        )

    def refactored(self) -> Self:
        """Return the posterior with its tracked inverses recomputed in O(m³); predictions change by rounding alone."""
        regression = self.regression.refactored()
        both = self.with_pending is self.regression
        return evolve(self, regression=regression, with_pending=regression if both else self.with_pending.refactored())

    def reseeded(self, entropy: int) -> Self:
        return evolve(self, dictionary=self.dictionary.reseeded(entropy))

    def __repr__(self) -> str:
        return (
            f"NystromPosterior({self.kernel!r}, regularization={self.regularization:g}, {type(self.rule).__name__}, "
            f"history={self.rule.history!r}, round_index={self.round_index}, dictionary_size={self.dictionary_size})"
        )


def _with_direction(
    basis: AnchorBasis, candidate: Candidate
) -> tuple[AnchorBasis, Candidate, FloatArray, float] | None:
    """Return a basis with one more anchor, and the point in it; None if it adds no direction.

    The point comes as a candidate whose residual is l², the squared length of the direction, its φ, and what is left
    of it.
    """
    grown = basis.with_anchor(candidate.point, candidate.features)
    if grown is None:
        return None
    basis, square = grown
    features = linalg.appended_to(candidate.features, math.sqrt(square))
    residual = max(float(candidate.residual) - square, 0.0)
    return basis, candidate._replace(residual=square), features, residual


class _AnchoredBound(Bound):
    """The bound of a projected posterior in one context.

    Args:
        posterior: the posterior.
        sections: the kernel between actions and its anchors.
        bonus: how many standard deviations are added.
    """

    def __init__(self, posterior: NystromPosterior, sections: Sections, bonus: float) -> None:
        self._posterior, self._sections, self._bonus = posterior, sections, bonus

    def values(self, actions: FloatArray) -> FloatArray:
        with np.errstate(invalid="ignore", over="ignore"):
            evaluation = self._posterior.evaluate_gram(*self._sections(actions))
        self._posterior.require_finite(evaluation)
        return evaluation.mean + self._bonus * evaluation.std

    def with_gradients(self, actions: FloatArray) -> tuple[FloatArray, FloatArray]:
        gram, prior, pullback = self._sections.with_pullback(actions)
        evaluation = self._posterior.evaluate_gram(gram, prior)
        gradients = pullback(*self._posterior._slopes(evaluation, self._bonus))
        return evaluation.mean + self._bonus * evaluation.std, gradients


# Anchors that are chosen from a whole history at once are enough if they leave no more of it unexplained than, in
# variance, this share of what the posterior leaves uncertain at its points, λ·trace K(K + λI)⁻¹ together;
UNEXPLAINED_SHARE = 0.2
# or if they are this many times trace K(K + λI)⁻¹: what KORS draws is 2 to 5 times that.
ANCHORS_PER_DIMENSION, NEARLY = 4.0, 0.95
# What they leave of a candidate on average, as a share of μ, before that is known.
FIRST_RESIDUAL = 0.1
# Anchors are chosen from at most this many candidates, whose Gram matrix has 32 MB, in at most this many passes over
# at most this many observations; one pass over all of them follows.
MOST_CANDIDATES, MOST_PASSES, MOST_OBSERVATIONS = 2048, 25, 1024


def _carried(
    posterior: NystromPosterior, points: FloatArray, history: History, candidates: FloatArray, level: float
) -> tuple[Any, FloatArray]:
    """Return a posterior that carries a history by as many anchors as it takes, and Σφφᵀ."""
    seen, rows, count = history, points, len(points)
    if count > MOST_OBSERVATIONS:
        # every k-th observation stands for those around it
        step = -(-count // MOST_OBSERVATIONS)
        rows = points[::step]
        seen = History().extended(rows, np.zeros(len(rows)), np.full(len(rows), float(step)))
    candidates = candidates[:: -(-len(candidates) // MOST_CANDIDATES)]
    carried, candidates, mean_residual, limit, second_moment = with_enough(
        posterior, rows, count, seen, candidates, level
    )
    if seen is not history:
        carried, _, second_moment = posterior._rebuilt(candidates, history, mean_residual, limit)
    return carried, second_moment


def with_enough(
    posterior: NystromPosterior,
    points: FloatArray,
    count: int,
    history: History,
    candidates: FloatArray,
    level: float,
) -> tuple[Any, FloatArray, float, int, FloatArray]:
    """Return a posterior with anchors that are enough for points (n, d) of a history.

    Return beside it candidates, mean residual and most anchors that it took, and Σφφᵀ.
    """
    largest = float(posterior.kernel.diag(points).max())
    require_resolution(posterior.kernel, largest, posterior.regularization)
    least = float(least_direction(largest, posterior.regularization))
    mean_residual, limit, known = FIRST_RESIDUAL * min(level, largest), len(points), 0
    for done in range(1, MOST_PASSES + 1):
        carried, left, second_moment = posterior._rebuilt(candidates, history, mean_residual, limit)
        dimension, size = carried.effective_dimension, len(carried.basis)
        allowed = max(UNEXPLAINED_SHARE * level * dimension / count, least)
        # the dimension grows a little with the anchors, so that a limit of the pass before may just be missed
        many = size >= NEARLY * ANCHORS_PER_DIMENSION * dimension or posterior.dictionary.is_full(size)
        if many or left.mean() <= allowed or done == MOST_PASSES:
            break
        # more, and with some of what the candidates miss of the history among them
        limit = math.ceil(ANCHORS_PER_DIMENSION * dimension)
        missed = np.flatnonzero(left > allowed)
        room = max(MOST_CANDIDATES - len(candidates), 0)
        more = points[missed[:: -(-len(missed) // len(candidates))]][:room]
        candidates = np.unique(np.concatenate([candidates, more]), axis=0)
        if len(candidates) > known:
            mean_residual = 0.5 * allowed
        elif mean_residual > 0.1 * least:
            # what is missed are repeats of a few candidates, which the mean over candidates makes little of
            mean_residual *= 0.5
        else:
            break
        known = len(candidates)
    return carried, candidates, mean_residual, limit, second_moment


# It pays from this many actions, anchors and kernel entries between them on.
MINIMUM_ACTIONS, MINIMUM_ANCHORS, MINIMUM_ENTRIES = 500, 80, 200_000
# One action per this many actions and anchors is evaluated exactly first, and this many likely winners.
ACTIONS_PER_PIVOT, ANCHORS_PER_PIVOT = 64, 16
LIKELY_WINNERS = 16
# Unless a third is spared all are evaluated together.
WORTH = 2 / 3


def pivots(actions: int, anchors: int) -> NDArray[np.intp]:
    """Return the actions to evaluate first, evenly spread."""
    number = 1 + min(anchors // ANCHORS_PER_PIVOT, actions // ACTIONS_PER_PIVOT)
    return np.arange(0, actions, -(-actions // number))


def std_bounds(
    kernel: KernelLike, points: FloatArray, prior: FloatArray, known: NDArray[np.intp], stds: FloatArray
) -> FloatArray:
    """Return upper bounds of the posterior std at points (A, d), prior variances (A,), from its values at some, p.

    With a = k(s, p)/k(p, p) the difference f(s) − a·f(p) has prior variance k(s, s) − a·k(s, p), and observations
    only lower the variance of any combination: std(s) ≤ |a|·std(p) + √(k(s, s) − a·k(s, p)).
    """
    cross = kernel(points[known], points)
    shares = cross / np.maximum(prior[known], np.finfo(float).tiny)[:, None]
    bounds = np.abs(shares) * stds[:, None] + linalg.safe_sqrt(prior - shares * cross)
    return np.minimum(bounds.min(axis=0), linalg.safe_sqrt(prior))


def rounding_slack(
    bounds: FloatArray, bonus: float, prior: FloatArray, coefficients: FloatArray, anchors: FloatArray
) -> float:
    """Return by how much rounding may lower a bound: J amplifies it in the mean, and a root near zero in the std.

    Args:
        bounds: upper bounds of the actions, shape (A,).
        bonus: how many standard deviations they count.
        prior: k(s, s) of the actions, shape (A,).
        coefficients: Jᵀw, shape (m,).
        anchors: k(z, z), shape (m,).
    """
    scale = math.sqrt(float(prior.max()))
    rounding = np.finfo(float).eps * len(anchors) * float(np.abs(coefficients).sum())
    of_mean = 4.0 * rounding * scale * math.sqrt(float(anchors.max()))
    return of_mean + (1e-12 * float(np.abs(bounds).max()) + 1e-6 * bonus * scale)
