"""The projected posterior: a dictionary of anchors carries it, O(m²) per action and per update."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kernel_bandits import kernels
from kernel_bandits.arrays import FloatArray, is_finite
from kernel_bandits.dictionaries.base import Candidate, DictionaryRule, HistoryMode, PlayedPoints, Proposal, as_rule
from kernel_bandits.errors import InputError, UnavailableError
from kernel_bandits.kernels import KernelLike, require_columns, require_gram
from kernel_bandits.numerics.linalg import (
    border_inverse_factor,
    half_inverse,
    independent_rows,
    inverse_and_log_determinant,
    not_negative,
    safe_sqrt,
    symmetric_times_vector,
    times,
    times_transpose,
    times_upper,
    times_upper_transpose,
    times_vector,
    transpose_times_vector,
    upper_times_vector,
)
from kernel_bandits.posteriors import pruning
from kernel_bandits.posteriors.base import Approximation, Evaluation, Posterior
from kernel_bandits.posteriors.history import Block, History
from kernel_bandits.posteriors.projection import EXTENDED, EXTENDED_IS_WIDER, Mass, extended_gram_times, project
from kernel_bandits.posteriors.regression import RidgeRegression, batch_rows, sequential_factor

# The kernels of this library return a fresh array, which may be overwritten.
KERNELS = f"{kernels.__name__}."

# A point whose residual is below this share of k(s, s) adds no direction: it would only add a row of noise to J.
DIRECTION_TOLERANCE = 1e-6
# Anchors that are chosen from a whole history at once are enough if they leave so little of it unexplained: in variance
# this share of what the posterior leaves uncertain at its points, λ·trace K(K + λI)⁻¹ together;
UNEXPLAINED_SHARE = 0.2
# or if they are so many times trace K(K + λI)⁻¹: what KORS draws is 2 to 5 times that.
ANCHORS_PER_DIMENSION = 4.0
# What they leave of a candidate on average, as a share of μ, before that is known.
FIRST_RESIDUAL = 0.1
# Where nothing is known about how often the dictionary changes, a log is absorbed in blocks of so many rows first.
FIRST_BATCH_ROWS = 16


@dataclass(slots=True)
class _NystromEvaluation(Evaluation):
    """Adds φ and Pφ, shapes (A, m), and φᵀPφ, k(s, s) − ‖φ‖² and k(s, s), each (A,)."""

    features: FloatArray
    solved: FloatArray
    explained: FloatArray
    residual: FloatArray
    prior_variance: FloatArray


@dataclass(frozen=True, slots=True)
class _Awaited:
    """An anticipated point: itself (d,), its φ at the time (m,) and what the anchors then left unexplained of it."""

    point: FloatArray
    features: FloatArray
    residual: float


class NystromPosterior(Posterior[_NystromEvaluation]):
    """Kernel ridge regression restricted to the span of the anchors (eq. 9 and Proposition 4.2 of the paper).

    Whitened coordinates: J = L⁻¹ with LLᵀ = K_ZZ, features φ(s) = J k_Z(s), and :class:`RidgeRegression` on them:
    A = λI + Σ φφᵀ, P = A⁻¹ and w = P Σ rφ. They give the paper's quantities as Λ = JᵀPJ and k_ZᵀΛΓ = φᵀw, but every
    eigenvalue of A is at least λ whatever the condition of K_ZZ.

    Args:
        kernel: the covariance function.
        regularization: λ.
        rule: chooses the anchors, and whether the history is kept.
        generator: of the rule's coins; a fresh one unless given.

    Attributes:
        dictionary: the running state of the rule.
    """

    def __init__(
        self,
        kernel: KernelLike,
        regularization: float,
        rule: DictionaryRule,
        generator: np.random.Generator | None = None,
    ) -> None:
        super().__init__(kernel, regularization)
        self.rule = as_rule(rule)
        self.dictionary = dictionary = rule.start(
            self.regularization, np.random.default_rng() if generator is None else generator
        )
        self.history: HistoryMode = rule.history
        self._owns_gram = type(self.kernel).__module__.startswith(KERNELS)
        self._history = History(merge_repeats=dictionary.merges_repeats) if rule.history == "all" else None
        self._dimension: int | None = None
        self._anchors = np.empty((0, 0))
        # Jᵀ: products with it from the right run along rows of memory
        self._factor = np.empty((0, 0))
        self._ridge = RidgeRegression(self.regularization)
        # The regression that counts anticipated points too; the same object while there are none.
        self._ahead = self._ridge
        self._awaited: dict[int, _Awaited] = {}
        # How many observations came before each anchor whose past is still to be projected; None where that is at once.
        self._postponed: list[int] | None = None
        if dictionary.initial_points is not None:
            require_columns(self.kernel, dictionary.initial_points)
            self._dimension = dictionary.initial_points.shape[1]
            self._rebuild(dictionary.initial_points, None)

    @property
    def approximation(self) -> Approximation:
        return "projected" if self.history == "all" else "history-free"

    @property
    def dimension(self) -> int | None:
        return self._dimension

    @property
    def dictionary_points(self) -> FloatArray:
        return self._anchors.copy()

    @property
    def dictionary_size(self) -> int:
        return len(self._anchors)

    @property
    def observed_points(self) -> FloatArray:
        return self._kept_history().points

    @property
    def observed_rewards(self) -> FloatArray:
        return self._kept_history().rewards

    @property
    def log_determinant(self) -> float:
        return self._ridge.log_determinant

    @property
    def effective_dimension(self) -> float:
        return self._ridge.effective_dimension

    @property
    def drift(self) -> float:
        return self._ridge.drift

    @property
    def refactorizations(self) -> int:
        """How often the tracked inverse was recomputed because it had drifted."""
        return self._ridge.refactorizations

    def _kept_history(self) -> History:
        if self._history is None:
            raise UnavailableError("history: this posterior was built with history='none' and keeps no observations.")
        return self._history

    def _cross_gram(self, points: FloatArray) -> FloatArray:
        """k(points, anchors) in an array that may be overwritten; a foreign kernel may keep what it answers."""
        if not len(self._anchors):
            return np.empty((len(points), 0))
        gram = self.kernel(points, self._anchors)
        if self._owns_gram:
            return gram
        require_gram(self.kernel, gram, (len(points), len(self._anchors)))
        return np.array(gram, order="C")

    def evaluate(self, points: FloatArray) -> _NystromEvaluation:
        return self._evaluate(self._cross_gram(points), self.kernel.diag(points))

    def _evaluate(self, gram: FloatArray, prior: FloatArray) -> _NystromEvaluation:
        # φ = J k_Z(s), one row each, and h = Pφ
        features = times_upper(gram, self._factor)
        solved = times(features, self._ahead.covariance)
        mean = times_vector(features, self._ridge.weights)
        # residual = k(s, s) − ‖φ‖², the squared distance of k(s, ·) to the span of the anchors
        residual = not_negative(prior - np.vecdot(features, features))
        # std² = λσ² = residual + λ·φᵀPφ
        explained = np.vecdot(features, solved)
        std = safe_sqrt(residual + self.regularization * explained)
        return _NystromEvaluation(self.round_index, mean, std, features, solved, explained, residual, prior)

    def covariance(self, points: FloatArray, evaluation: _NystromEvaluation) -> FloatArray:
        features = evaluation.features
        # K − ΦΦᵀ + λ·ΦPΦᵀ, where noise that a kernel puts on its diagonal alone counts as in the std
        covariance = self.kernel(points, points.copy()) - times_transpose(features, features)
        covariance += self.regularization * times_transpose(features, evaluation.solved)
        np.fill_diagonal(covariance, evaluation.std**2)
        return covariance

    def contributions(self, point: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray | None]:
        gram = self._cross_gram(point[None, :])
        if self._history is None:
            # mean = Σ_j k(s, z_j)·[Jᵀw]_j
            return self.dictionary_points, gram[0] * upper_times_vector(self._factor, self._ridge.weights), None
        features = times_upper(gram, self._factor)[0]
        # mean = Σ_i r_i·φ(s_i)ᵀPφ(s) with φ(s_i)ᵀPφ(s) = k_Z(s_i)ᵀJᵀPφ(s)
        coefficients = upper_times_vector(self._factor, times_vector(self._ridge.covariance, features))
        values, rewards = [np.empty(0)], [np.empty(0)]
        for points, counts, sums in self._history.blocks():
            values.append(sums * times_vector(self._cross_gram(points), coefficients))
            rewards.append(sums / counts)
        return self._history.rows, np.concatenate(values), np.concatenate(rewards)

    def contenders(self, points: FloatArray, bonus: float) -> tuple[NDArray[np.intp] | None, _NystromEvaluation]:
        size = len(self._anchors)
        if not pruning.is_worth_a_look(len(points), size):
            return None, self.evaluate(points)
        gram, prior = self._cross_gram(points), self.kernel.diag(points)
        # mean = k_Z(s)ᵀJᵀw at O(m) per action, std from what it is at some of them
        coefficients = upper_times_vector(self._factor, self._ridge.weights)
        pivots = pruning.pivots(len(points), size)
        exact = self._evaluate(gram[pivots], prior[pivots])
        stds = pruning.std_bounds(self.kernel, points, prior, pivots, exact.std)
        bounds = times_vector(gram, coefficients) + bonus * stds
        likely = pruning.likely_winners(bounds)
        sample = self._evaluate(gram[likely], prior[likely])
        best = max(float((some.mean + bonus * some.std).max()) for some in (exact, sample))
        # No contender may be lost to rounding, which J amplifies in the mean, and a root near zero in the std.
        scale = math.sqrt(float(prior.max()))
        rounding = np.finfo(float).eps * size * float(np.abs(coefficients).sum())
        slack = 4.0 * rounding * scale * math.sqrt(float(self.kernel.diag(self._anchors).max()))
        slack += 1e-12 * float(np.abs(bounds).max()) + 1e-6 * bonus * scale
        chosen = pruning.survivors(bounds, best - slack)
        if chosen is None:
            return None, self._evaluate(gram, prior)
        return chosen, self._evaluate(gram[chosen], prior[chosen])

    def gradient(self, points: FloatArray, evaluation: _NystromEvaluation, bonus: float) -> FloatArray:
        # d mean = wᵀdφ and d std² = d residual + 2λ(Pφ)ᵀdφ with d residual = dk(s, s) − 2φᵀdφ, or 0 where it is cut off
        slopes = bonus * half_inverse(evaluation.std)
        own = np.where(evaluation.residual > 0.0, slopes, 0.0)
        by_features = 2.0 * self.regularization * slopes[:, None] * evaluation.solved
        by_features += self._ridge.weights - 2.0 * own[:, None] * evaluation.features
        # dφ = J dk_Z
        return self._kernel_gradient(points, self._anchors, times_upper_transpose(by_features, self._factor), own)

    def observe(self, point: FloatArray, reward: float, evaluation: _NystromEvaluation, row: int = 0) -> None:
        features, solved = evaluation.features[row], evaluation.solved[row]
        mean, residual = evaluation.mean.item(row), evaluation.residual.item(row)
        variance, prior = evaluation.explained.item(row), evaluation.prior_variance.item(row)
        # σ² = residual/λ + φᵀPφ
        candidate = Candidate(features, residual, prior, residual / self.regularization + variance)
        proposal = self.dictionary.propose(candidate)
        if proposal.resample:
            self._observe_and_resample(point, reward, evaluation, row)
            return
        if proposal.draw:
            features, residual = self._admit(point, candidate, proposal)
            if len(features) > len(candidate.features):
                solved = symmetric_times_vector(self._ahead.covariance, features)
                mean, variance = float(features @ self._ridge.weights), float(features @ solved)
        else:
            self.dictionary.commit(candidate, proposal, appended=False)
        self._learn(features, solved, variance, mean, reward)
        self._remember(point, reward, residual)

    def _learn(self, features: FloatArray, solved: FloatArray, variance: float, mean: float, reward: float) -> None:
        """One observation, given h = Pφ and φᵀh with the P that counts anticipated points too."""
        if self._ahead is not self._ridge:
            self._ahead.observe(features, solved, variance, 0.0, 0.0)
            solved = symmetric_times_vector(self._ridge.covariance, features)
            variance = float(features @ solved)
        self._ridge.observe(features, solved, variance, mean, reward)

    def _admit(
        self, point: FloatArray, candidate: Candidate, proposal: Proposal, deferred: bool = False
    ) -> tuple[FloatArray, float]:
        """Let a point that came up into the dictionary if it adds a direction; its φ and residual from then on."""
        features, residual = candidate.features, float(candidate.residual)
        coefficients, square = self._direction(point, features)
        appended = square > DIRECTION_TOLERANCE * float(candidate.prior_variance)
        if appended:
            pivot = math.sqrt(square)
            self._append_anchor(point, coefficients, pivot, deferred)
            candidate = candidate._replace(residual=square)
            features, residual = np.append(features, pivot), max(residual - square, 0.0)
        self.dictionary.commit(candidate, proposal, appended)
        return features, residual

    def anticipate(self, key: int, point: FloatArray, evaluation: _NystromEvaluation, row: int = 0) -> None:
        features, residual = evaluation.features[row], evaluation.residual.item(row)
        explained, prior = evaluation.explained.item(row), evaluation.prior_variance.item(row)
        candidate = Candidate(features, residual, prior, residual / self.regularization + explained)
        proposal = self.dictionary.propose(candidate)
        if proposal.resample:
            with self._all_or_nothing():
                self._await(key, _Awaited(point, features, residual))
                self._resample()
            return
        if proposal.draw:
            features, residual = self._admit(point, candidate, proposal)
        else:
            self.dictionary.commit(candidate, proposal, appended=False)
        self._await(key, _Awaited(point, features.copy(), residual))

    def _await(self, key: int, awaited: _Awaited) -> None:
        if self._ahead is self._ridge:
            self._ahead = copy.deepcopy(self._ridge)
        solved = symmetric_times_vector(self._ahead.covariance, awaited.features)
        self._ahead.observe(awaited.features, solved, float(awaited.features @ solved), 0.0, 0.0)
        self._awaited[key] = awaited
        self._dimension = len(awaited.point)

    def fulfil(self, key: int, reward: float) -> None:
        awaited = self._current(key)
        features = awaited.features
        solved = symmetric_times_vector(self._ridge.covariance, features)
        self._ridge.observe(features, solved, float(features @ solved), float(features @ self._ridge.weights), reward)
        self._remember(awaited.point, reward, awaited.residual)
        self._no_longer_await(key)

    def abandon(self, key: int) -> None:
        self._ahead.forget(self._current(key).features)
        self._no_longer_await(key)

    @contextmanager
    def batch(self) -> Iterator[Callable[[FloatArray], float]]:
        anchors, factor, frozen = self._anchors, self._factor, self._ahead.covariance.copy()

        def variance(point: FloatArray) -> float:
            gram = self.kernel(point[None, :], anchors) if len(anchors) else np.empty((1, 0))
            features = times_upper(np.array(gram), factor)[0]
            residual = max(self.kernel.diag(point[None, :]).item(0) - float(features @ features), 0.0)
            # σ² = residual/λ + φᵀPφ
            return residual / self.regularization + float(features @ symmetric_times_vector(frozen, features))

        # Merged repeats have lost the order that a later pass needs.
        if self._history is not None and not self.dictionary.merges_repeats:
            self._postponed = []
        try:
            yield variance
        finally:
            self._project_postponed()

    def _project_postponed(self) -> None:
        """Project the past onto the anchors that were not shown theirs, in one pass.

        If the kernel fails now, the past has nothing in their directions, as with ``history="none"``.
        """
        since, self._postponed = self._postponed, None
        if since:
            mass = self._project(self._kept_history().blocks(), self._anchors, self._factor, since)
            self._ridge.add_mass(mass)
            self._ridge.settle()
            self.residual_trace = max(self.residual_trace - float(np.trace(mass.square)), 0.0)
            self._count_awaited_anew()

    def _count_awaited_anew(self) -> None:
        """Count the anticipated points into a copy of the regression, in the coordinates of the anchors there are."""
        current = {key: self._in_coordinates(awaited) for key, awaited in self._awaited.items()}
        self._ahead = self._ridge
        for key, awaited in current.items():
            self._await(key, awaited)

    def _in_coordinates(self, awaited: _Awaited) -> _Awaited:
        """An anticipated point in the coordinates of the anchors there are, whatever the regression knows of them."""
        point = awaited.point[None, :]
        features = times_upper(self._cross_gram(point), self._factor)[0]
        residual = max(self.kernel.diag(point).item(0) - float(features @ features), 0.0)
        if not (math.isfinite(residual) and is_finite(features)):
            raise InputError(f"kernel: {self.kernel!r} returned values that are not finite between observed points.")
        return _Awaited(awaited.point, features, residual)

    def _no_longer_await(self, key: int) -> None:
        del self._awaited[key]
        if not self._awaited:
            self._ahead = self._ridge

    def _current(self, key: int) -> _Awaited:
        """An anticipated point in the coordinates of the anchors there are now."""
        awaited = self._awaited[key]
        missing = len(self._anchors) - len(awaited.features)
        if not missing:
            return awaited
        if self._history is None:
            # c = 0 on directions that were added after the point was played, as for all of the past
            return replace(awaited, features=np.append(awaited.features, np.zeros(missing)))
        return self._in_coordinates(awaited)

    @np.errstate(invalid="ignore", over="ignore")
    def _direction(self, point: FloatArray, features: FloatArray) -> tuple[FloatArray, float]:
        """What a point z adds to the span of the anchors: k(z, ·) + Σ r_j k(z_j, ·) with r = −Jᵀφ(z).

        k(z, z) is that of two copies of the point: white noise, which scikit-learn's ``WhiteKernel`` puts on ``diag``
        alone, is no direction that another point could share.

        Returns:
            r, shape (m,), and the squared length of the direction.
        """
        own = float(self.kernel(point[None, :], point[None, :].copy())[0, 0])
        coefficients = -upper_times_vector(self._factor, features)
        square = own - float(features @ features)
        if not EXTENDED_IS_WIDER or square <= DIRECTION_TOLERANCE * own or not len(features):
            return coefficients, square
        # Rounding leaves the direction not quite orthogonal to the anchors, and J amplifies that from one to the next
        # (K_ZZ may have condition 1e13): r ← r − JᵀJ(k_Z(z) + K_ZZ r), in extended precision where it cancels.
        column = self._cross_gram(point[None, :])[0].astype(EXTENDED)
        misfit = (column + extended_gram_times(self._cross_gram, self._anchors, coefficients)).astype(np.float64)
        coefficients -= upper_times_vector(self._factor, times_upper(misfit[None, :], self._factor)[0])
        # l² = k(z, z) + rᵀk_Z(z)
        square = own + float(coefficients @ column)
        self._require_finite_between_points(square)
        return coefficients, square

    def _require_finite_between_points(self, *sums: FloatArray | float) -> None:
        """Raise unless sums over the kernel between observed points are finite."""
        if not all(np.isfinite(value).all() for value in sums):
            raise InputError(f"kernel: {self.kernel!r} returned values that are not finite between observed points.")

    def _remember(self, point: FloatArray, reward: float, residual: float) -> None:
        # ρ grows by what the anchors do not explain
        self.residual_trace += residual
        if self._history is not None:
            self._history.append(point, reward)
        self._dimension = len(point)
        self.round_index += 1

    @np.errstate(invalid="ignore", over="ignore")
    def observe_many(self, points: FloatArray, rewards: FloatArray) -> None:
        if self._awaited:
            for point, reward in zip(points, rewards.tolist(), strict=True):
                self.observe(point, reward, self.evaluate_finite(point[None, :]))
            return
        # A rule that does without P lets anchors come in without their past, which follows for all in one pass; P is
        # then computed anew, which a short log is not worth.
        needs_solutions = self.dictionary.uses_variance or self.dictionary.merges_repeats
        deferred = not needs_solutions and len(points) > len(self._anchors)
        postponed_here = deferred and self._history is not None and self._postponed is None
        if postponed_here:
            self._postponed = []
        start, count = 0, FIRST_BATCH_ROWS
        try:
            while start < len(points):
                quiet = self._observe_quiet(points[start : start + count], rewards[start : start + count])
                start += quiet
                if quiet < count and start < len(points):
                    self._observe_in_log(points[start], float(rewards[start]), deferred)
                    start += 1
                # Rows behind a point that changes the dictionary are evaluated in vain: aim at the gap between two.
                count = min(2 * (quiet + 1), batch_rows(len(self._anchors)))
        finally:
            try:
                if postponed_here:
                    self._project_postponed()
            finally:
                self._ridge.settle()

    def _observe_in_log(self, point: FloatArray, reward: float, deferred: bool) -> None:
        """Learn a point that may change the dictionary."""
        if not deferred:
            self._ridge.settle()
            self.observe(point, reward, self.evaluate_finite(point[None, :]))
            return
        features = times_upper(self._cross_gram(point[None, :]), self._factor)[0]
        prior = self.kernel.diag(point[None, :]).item(0)
        residual = max(prior - float(features @ features), 0.0)
        candidate = Candidate(features, residual, prior, 0.0)
        proposal = self.dictionary.propose(candidate)
        if proposal.draw:
            features, residual = self._admit(point, candidate, proposal, deferred=True)
        else:
            self.dictionary.commit(candidate, proposal, appended=False)
        self._ridge.defer(features[None, :], np.array([reward]))
        self._remember(point, reward, residual)

    def _observe_quiet(self, points: FloatArray, rewards: FloatArray) -> int:
        """Learn the leading points that change nothing about the dictionary; how many they were."""
        prior = self.kernel.diag(points)
        features = times_upper(self._cross_gram(points), self._factor)
        residual = not_negative(prior - np.vecdot(features, features))
        if not is_finite(features) or not is_finite(residual):
            raise InputError(f"kernel: {self.kernel!r} returned values that are not finite in the log.")
        variance = np.zeros(len(points))
        if self.dictionary.uses_variance:
            self._ridge.settle()
            solved = times(features, self._ridge.covariance)
            # φᵀPφ of each point after the ones before it; σ² = residual/λ + φᵀPφ
            explained = np.diagonal(sequential_factor(features, solved)) ** 2 - 1.0
            variance = residual / self.regularization + explained
        block = Candidate(features, residual, prior, variance)
        quiet = self.dictionary.absorb(block, residual <= DIRECTION_TOLERANCE * prior)
        if quiet:
            self._ridge.defer(features[:quiet], rewards[:quiet])
            self.residual_trace += float(residual[:quiet].sum())
            if self._history is not None:
                self._history.extend(points[:quiet], rewards[:quiet])
            self._dimension = points.shape[1]
            self.round_index += quiet
        return quiet

    def _append_anchor(self, point: FloatArray, coefficients: FloatArray, pivot: float, deferred: bool) -> None:
        """Add one direction; the past is projected onto it where it is kept, at once or later.

        Args:
            point: the anchor, shape (d,).
            coefficients: r of the direction that it adds, shape (m,).
            pivot: the length of that direction.
            deferred: whether the regression learns of the direction by deferred observations.
        """
        anchors = np.concatenate([self._anchors.reshape(-1, len(point)), point[None, :]])
        factor = border_inverse_factor(self._factor, coefficients, pivot)
        if not deferred:
            past = () if self._history is None or self._postponed is not None else self._history.blocks()
            mass = self._project(past, anchors, factor, [self.round_index])
            if self._ahead is not self._ridge:
                awaited = self._project(self._awaited_block(), anchors, factor, [len(self._awaited)])
                self._ahead.border(Mass(*map(np.add, mass, awaited)))
            self._ridge.border(mass)
            self.residual_trace = max(self.residual_trace - mass.square.item(), 0.0)
        if self._postponed is not None:
            self._postponed.append(self.round_index)
        self._anchors, self._factor = anchors, factor

    def _awaited_block(self) -> list[Block]:
        """Anticipated points as a block of the history, where later directions find them."""
        if self._history is None or not self._awaited:
            return []
        points = np.array([awaited.point for awaited in self._awaited.values()])
        return [(points, np.ones(len(points)), np.zeros(len(points)))]

    def _project(self, blocks: Iterable[Block], anchors: FloatArray, factor: FloatArray, since: Sequence[int]) -> Mass:
        with np.errstate(invalid="ignore", over="ignore"):
            mass = project(self.kernel, blocks, anchors, factor, since)
        self._require_finite_between_points(mass.square, mass.moment)
        return mass

    def _observe_and_resample(self, point: FloatArray, reward: float, evaluation: _NystromEvaluation, row: int) -> None:
        """Learn the observation, then draw the dictionary anew from the whole history, this point included."""
        with self._all_or_nothing():
            features, solved = evaluation.features[row], evaluation.solved[row]
            self._learn(features, solved, evaluation.explained.item(row), evaluation.mean.item(row), reward)
            self._remember(point, reward, evaluation.residual.item(row))
            self._resample()

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        before = copy.deepcopy({name: value for name, value in vars(self).items() if name != "kernel"})
        try:
            yield
        except BaseException:
            vars(self).update(before)
            raise

    def _resample(self) -> None:
        """Draw the dictionary anew from every point played, anticipated ones included."""
        blocks = [*self._kept_history().blocks(), *self._awaited_block()]
        played = PlayedPoints(
            np.concatenate([points for points, _, _ in blocks]),
            np.concatenate([counts for _, counts, _ in blocks]),
            lambda: np.concatenate([self._variances(points) for points, _, _ in blocks]),
        )
        self._rebuild(self.dictionary.redraw(played), self._history)
        self.dictionary.adopt(self._ahead.covariance)

    def _variances(self, points: FloatArray) -> FloatArray:
        """σ² of the paper at points, shape (n,)."""
        evaluation = self.evaluate_finite(points)
        return evaluation.residual / self.regularization + evaluation.explained

    def begin_with(self, points: FloatArray, rewards: FloatArray, candidates: FloatArray) -> None:
        """Learn a whole history at once, before anything else.

        A dictionary that grows by leverage scores is not drawn along the history but chosen: by pivoted Cholesky each
        anchor is the candidate that those before it explain least, until little is left unexplained. Two passes over
        the history are enough where the candidates stand for it.

        Args:
            points: shape (t, d).
            rewards: shape (t,).
            candidates: joint points, shape (n, d); where they miss much of the history, points of it join them.
        """
        if self.round_index:
            raise UnavailableError(f"begin_with: {self.round_index} observations were learned already.")
        level = self.dictionary.leverage_regularization
        if level is None:
            self.observe_many(points, rewards)
            return
        history = History()
        history.extend(points, rewards)
        with np.errstate(invalid="ignore", over="ignore"):
            largest = float(self.kernel.diag(points).max())
            least, mean_residual = DIRECTION_TOLERANCE * largest, FIRST_RESIDUAL * min(level, largest)
            limit, known = len(points), 0
            while True:
                left, second_moment = self._rebuild(candidates, history, mean_residual, limit)
                dimension, size = self._ridge.effective_dimension, len(self._anchors)
                allowed = max(UNEXPLAINED_SHARE * level * dimension / len(points), least)
                many = size >= ANCHORS_PER_DIMENSION * dimension or self.dictionary.is_full(size)
                if many or left.mean() <= allowed:
                    break
                # more, and with some of what the candidates miss of the history among them
                limit = math.ceil(ANCHORS_PER_DIMENSION * dimension)
                missed = np.flatnonzero(left > allowed)
                more = points[missed[:: -(-len(missed) // len(candidates))]]
                candidates = np.unique(np.concatenate([candidates, more]), axis=0)
                if len(candidates) > known:
                    mean_residual = 0.5 * allowed
                elif mean_residual > 0.1 * least:
                    # what is missed are repeats of a few candidates, which the mean over candidates makes little of
                    mean_residual *= 0.5
                else:
                    break
                known = len(candidates)
        self._history = None if self._history is None else history
        self._dimension, self.round_index = points.shape[1], len(points)
        # (μI + Σφφᵀ)⁻¹, which is P where μ = λ
        inverse = self._ridge.covariance.copy()
        if level != self.regularization:
            second_moment.flat[:: len(second_moment) + 1] += level
            inverse, _ = inverse_and_log_determinant(second_moment)
        self.dictionary.adopt(inverse)

    def _rebuild(
        self, candidates: FloatArray, history: History | None, mean_residual: float = 0.0, limit: int | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Carry observations by other anchors: one pass over the history, O(t·m²).

        Args:
            candidates: joint points, shape (n, d). Those that add no direction to the others are passed over.
            history: the observations, or None for none.
            mean_residual: the anchors are the fewest candidates that leave so little of all on average, in units of
                k(z, z); 0 for as many as there are directions.
            limit: they are at most so many, besides the cap of the dictionary.

        Returns:
            What is left unexplained of each row of the history, shape (t,), and Σφφᵀ, shape (m, m).
        """
        gram = self.kernel(candidates, candidates.copy()) if len(candidates) else np.empty((0, 0))
        if not np.isfinite(gram).all():
            raise InputError(f"kernel: {self.kernel!r} returned values that are not finite between anchors.")
        largest = float(np.diagonal(gram).max(initial=0.0))
        limits = [most for most in (limit, self.dictionary.max_size) if most is not None]
        kept, factor = independent_rows(
            gram,
            DIRECTION_TOLERANCE,
            mean_residual / largest if largest > 0.0 else 0.0,
            min(limits, default=None),
        )
        anchors = candidates[kept]
        second_moment, moment = np.zeros((len(kept), len(kept))), np.zeros(len(kept))
        left, counted = [np.empty(0)], [np.empty(0)]
        for points, counts, rewards in history.blocks() if history is not None else ():
            features = (
                times_upper(np.array(self.kernel(points, anchors), order="C"), factor)
                if len(kept)
                else np.empty((len(points), 0))
            )
            weighted = counts[:, None] * features
            second_moment += times(features.T, weighted)
            moment += transpose_times_vector(features, rewards)
            left.append(not_negative(self.kernel.diag(points) - np.vecdot(features, features)))
            counted.append(counts)
        residuals = np.concatenate(left)
        residual_trace = float(np.concatenate(counted) @ residuals)
        self._require_finite_between_points(residual_trace, second_moment)
        self._anchors, self._factor = anchors, factor
        self._ridge.load(second_moment, moment)
        self._count_awaited_anew()
        self.residual_trace = residual_trace
        return residuals, second_moment

    def refactor(self) -> None:
        """Recompute the tracked inverse in O(m³); predictions change by rounding alone."""
        self._ridge.refactor()
        if self._ahead is not self._ridge:
            self._ahead.refactor()

    def __repr__(self) -> str:
        return (
            f"NystromPosterior({self.kernel!r}, regularization={self.regularization:g}, "
            f"{type(self.rule).__name__}, history={self.history!r}, "
            f"round_index={self.round_index}, dictionary_size={self.dictionary_size})"
        )
