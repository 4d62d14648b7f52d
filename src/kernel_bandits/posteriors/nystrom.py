"""The projected posterior: a dictionary of anchors carries it, O(m²) per action and per update.

From top to bottom: the posterior, upper bounds in one context, many contexts with the same actions, pruning of large
action sets, the regression that admits anchors, and whole logs.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from kernel_bandits.arrays import FloatArray, as_points, is_finite
from kernel_bandits.commit import Steps, attributes, carry_out, finish, replace_state, take_over
from kernel_bandits.dictionaries.base import (
    Candidate,
    Dictionary,
    DictionaryRule,
    HistoryMode,
    PlayedPoints,
    Proposal,
    as_rule,
    fast,
)
from kernel_bandits.errors import InputError, KernelBanditsError, UnavailableError
from kernel_bandits.kernels import KernelLike, kernel_gradient, require_columns
from kernel_bandits.kernels.sections import Sections
from kernel_bandits.numerics import linalg
from kernel_bandits.numerics.blas_threads import factorisation_threads
from kernel_bandits.posteriors.base import Bound, Evaluation, Facts, Fulfilled, Posterior, require_finite_kernel
from kernel_bandits.posteriors.basis import (
    EPSILON,
    AnchorBasis,
    least_direction,
    require_finite_between_points,
    require_resolution,
)
from kernel_bandits.posteriors.history import BLOCK_ROWS, Block, Blocks, History, Thinned
from kernel_bandits.posteriors.pending import Awaited, Pending
from kernel_bandits.posteriors.ridge import Mass, RidgeRegression, batch_rows, sequential_factor


@dataclass(slots=True)
class _NystromEvaluation(Evaluation):
    """Adds φ and Pφ, shapes (A, m), and φᵀPφ, k(s, s) − ‖φ‖² and k(s, s), each (A,)."""

    features: FloatArray
    solved: FloatArray
    explained: FloatArray
    residual: FloatArray
    prior_variance: FloatArray


class NystromPosterior(Posterior[_NystromEvaluation]):
    """Kernel ridge regression restricted to the span of the anchors (eq. 9 and Proposition 4.2 of the paper).

    Whitened coordinates: J = L⁻¹ with LLᵀ = K_ZZ, features φ(s) = J k_Z(s), and :class:`RidgeRegression` on them:
    A = λI + Σ φφᵀ, P = A⁻¹ and w = P Σ rφ. They give the paper's quantities as Λ = JᵀPJ and k_ZᵀΛΓ = φᵀw, but every
    eigenvalue of A is at least λ whatever the condition of K_ZZ.

    Args:
        kernel: the covariance function, ours or scikit-learn's.
        regularization: the λ of the ridge; the noise variance in the Gaussian-process view.
        rule: chooses the anchors, and whether the history is kept.
        generator: of the rule's coins; a fresh one unless given.
    """

    _pending: Pending[RidgeRegression]

    def __init__(
        self,
        kernel: KernelLike,
        regularization: float,
        rule: DictionaryRule,
        generator: np.random.Generator | None = None,
    ) -> None:
        self.rule = as_rule(rule)
        facts = Facts(kernel, regularization, "projected" if rule.history == "all" else "history-free")
        coins = np.random.default_rng() if generator is None else generator
        self._model = AnchoredRegression(facts, rule.start(facts.regularization, coins))
        super().__init__(facts, self._model.pending)
        anchors = self.dictionary.initial_points
        if anchors is not None:
            require_columns(facts.kernel, anchors)
            facts.dimension = anchors.shape[1]
            self._model.rebuild(anchors, None)

    @property
    def model(self) -> AnchoredRegression:
        """The regression with its anchors."""
        return self._model

    @property
    def dictionary(self) -> Dictionary:
        """The running state of the rule."""
        return self._model.dictionary

    @property
    def history(self) -> HistoryMode:
        """Whether observations are kept, ``"all"`` or ``"none"``."""
        return self.rule.history

    @property
    def dictionary_points(self) -> FloatArray:
        return self._model.basis.anchors.copy()

    @property
    def refactorizations(self) -> int:
        """How often the tracked inverse was recomputed because it had drifted."""
        return self._pending.settled.refactorizations

    def _observations(self) -> tuple[FloatArray, FloatArray]:
        history = self._model.kept_history
        return history.points, history.rewards

    def bound_in(self, context: FloatArray, bonus: float) -> Bound:
        sections = self._model.basis.sections_in(context)
        return super().bound_in(context, bonus) if sections is None else _AnchoredBound(self, sections, bonus)

    def evaluate(self, points: FloatArray) -> _NystromEvaluation:
        basis = self._model.basis
        return self._evaluate(basis.gram(points), basis.kernel.diag(points))

    def evaluate_gram(self, points: FloatArray, gram: FloatArray, prior: FloatArray) -> _NystromEvaluation:
        del points
        return self._evaluate(gram, prior)

    def evaluate_rounds(self, points: FloatArray, split: int) -> Evaluation:
        found = evaluate_together(self._model, points, split)
        if found is None:
            prior = self._model.basis.kernel.diag(points.reshape(-1, points.shape[2]))
            found = self._evaluate(self._model.basis.gram_of_rounds(points, split), prior)
        return found

    def _evaluate(self, gram: FloatArray, prior: FloatArray) -> _NystromEvaluation:
        pending, facts = self._pending, self._facts
        features, residual = self._model.basis.coordinates(gram, prior)
        # h = Pφ
        solved = linalg.times(features, pending.ahead.covariance)
        mean = linalg.times_vector(features, pending.settled.weights)
        # std² = λσ² = residual + λ·φᵀPφ
        explained = np.vecdot(features, solved)
        std = linalg.safe_sqrt(residual + facts.regularization * explained)
        return _NystromEvaluation(facts.round_index, mean, std, features, solved, explained, residual, prior)

    def covariance(self, points: FloatArray, evaluation: _NystromEvaluation) -> FloatArray:
        features = evaluation.features
        # K − ΦΦᵀ + λ·ΦPΦᵀ, where noise that a kernel puts on its diagonal alone counts as in the std
        covariance = self.kernel(points, points.copy()) - linalg.times_transpose(features, features)
        covariance += self.regularization * linalg.times_transpose(features, evaluation.solved)
        np.fill_diagonal(covariance, evaluation.std**2)
        return covariance

    def contributions(self, point: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray | None]:
        model = self._model
        basis, history, settled = model.basis, model.history, model.pending.settled
        gram = basis.gram(point[None, :])
        if history is None:
            # mean = Σ_j k(s, z_j)·[Jᵀw]_j
            return basis.anchors.copy(), gram[0] * basis.weights(settled.weights), None
        # mean = Σ_i r_i·φ(s_i)ᵀPφ(s) with φ(s_i)ᵀPφ(s) = k_Z(s_i)ᵀJᵀPφ(s)
        coefficients = basis.weights(linalg.times_vector(settled.covariance, linalg.times_upper(gram, basis.factor)[0]))
        values, rewards = [np.empty(0)], [np.empty(0)]
        for points, counts, sums in history.blocks():
            values.append(sums * linalg.times_vector(basis.gram(points), coefficients))
            rewards.append(sums / counts)
        return history.rows, np.concatenate(values), np.concatenate(rewards)

    def contenders(self, points: FloatArray, bonus: float) -> tuple[NDArray[np.intp] | None, _NystromEvaluation]:
        basis = self._model.basis
        gram, prior = basis.gram(points), basis.kernel.diag(points)
        if not is_worth_a_look(*gram.shape):
            return None, self._evaluate(gram, prior)
        # mean = k_Z(s)ᵀJᵀw at O(m) per action, std from what it is at some of them
        coefficients = basis.weights(self._pending.settled.weights)
        known = pivots(len(points), len(basis.anchors))
        exact = self._evaluate(gram[known], prior[known])
        stds = std_bounds(basis.kernel, points, prior, known, exact.std)
        bounds = linalg.times_vector(gram, coefficients) + bonus * stds
        likely = likely_winners(bounds)
        sample = self._evaluate(gram[likely], prior[likely])
        best = max(float((some.mean + bonus * some.std).max()) for some in (exact, sample))
        slack = rounding_slack(bounds, bonus, prior, coefficients, basis.kernel.diag(basis.anchors))
        chosen = survivors(bounds, best - slack)
        if chosen is None:
            return None, self._evaluate(gram, prior)
        return chosen, self._evaluate(gram[chosen], prior[chosen])

    def means(self, points: FloatArray) -> FloatArray:
        basis = self._model.basis
        # mean = k_Z(s)ᵀJᵀw at O(m) per point
        with np.errstate(invalid="ignore", over="ignore"):
            means = linalg.times_vector(basis.gram(points), basis.weights(self._pending.settled.weights))
        require_finite_kernel(basis.kernel, means + basis.kernel.diag(points))
        return means

    def gradient(self, points: FloatArray, evaluation: _NystromEvaluation, bonus: float, first: int = 0) -> FloatArray:
        basis = self._model.basis
        return kernel_gradient(basis.kernel, points, basis.anchors, *_slopes(self._model, evaluation, bonus), first)

    def observe_steps(self, point: FloatArray, reward: float, evaluation: _NystromEvaluation, row: int = 0) -> Steps:
        model, facts = self._model, self._facts
        features, solved = evaluation.features[row], evaluation.solved[row]
        mean, residual = evaluation.mean.item(row), evaluation.residual.item(row)
        variance, prior = evaluation.explained.item(row), evaluation.prior_variance.item(row)
        # the cheap half of the check, since every round passes here
        if prior * EPSILON > facts.regularization:
            require_resolution(facts.kernel, prior, facts.regularization)
        # σ² = residual/λ + φᵀPφ
        candidate: Candidate = fast(Candidate, (features, residual, prior, residual / facts.regularization + variance))
        dictionary = model.dictionary
        proposal = dictionary.propose(candidate)
        if proposal.resample:
            twin = model.copy()
            carry_out(twin.pending.observe_steps(features, solved, variance, mean, reward))
            # ρ grows by what the anchors do not explain
            carry_out(twin.remember_steps(point, reward, facts.residual_trace + residual))
            twin.resample()
            return model.replace_steps(twin)
        if not proposal.draw:
            return [
                *self._pending.observe_steps(features, solved, variance, mean, reward),
                *model.remember_steps(point, reward, facts.residual_trace + residual),
                *dictionary.commit_steps(candidate, proposal, False),
            ]
        admitted = model.admit(point, candidate, proposal)
        features = admitted.features
        if admitted.appended:
            solved, variance, mean = solved_anew(admitted.pair, features)
        steps = admitted.pair.observe_steps(features, solved, variance, mean, reward) + admitted.steps
        steps += model.remember_steps(point, reward, admitted.residual_trace + admitted.residual)
        return steps + model.dictionary.commit_steps(admitted.candidate, proposal, admitted.appended)

    def _candidate(self, evaluation: _NystromEvaluation, row: int) -> Candidate:
        """Return one of the evaluated points as a rule sees it."""
        residual, prior = evaluation.residual.item(row), evaluation.prior_variance.item(row)
        require_resolution(self._facts.kernel, prior, self._facts.regularization)
        variance = residual / self._facts.regularization + evaluation.explained.item(row)
        return Candidate(evaluation.features[row], residual, prior, variance)

    def observe_weighted_steps(self, point: FloatArray, reward: float, weight: float) -> Steps:
        model, facts, evaluation = self._model, self._facts, self.evaluate_finite(point[None, :])
        # rules look at points and not at weights: an anchor stands for a place
        candidate = self._candidate(evaluation, 0)
        proposal = model.dictionary.propose(candidate)
        if proposal.resample:
            twin = model.copy()
            carry_out(twin.pending.observe_weighted_steps(candidate.features, reward, weight))
            trace = facts.residual_trace + weight * evaluation.residual.item(0)
            carry_out(twin.remember_steps(point, reward, trace, weight))
            twin.resample()
            return model.replace_steps(twin)
        admitted = model.admit(point, candidate, proposal)
        steps = admitted.pair.observe_weighted_steps(admitted.features, reward, weight) + admitted.steps
        trace = admitted.residual_trace + weight * admitted.residual
        steps += model.remember_steps(point, reward, trace, weight)
        return steps + model.dictionary.commit_steps(admitted.candidate, proposal, admitted.appended)

    @property
    def observed_weights(self) -> FloatArray | None:
        return None if self._model.history is None else self._model.history.weights

    def anticipate_steps(self, key: int, point: FloatArray, evaluation: _NystromEvaluation, row: int = 0) -> Steps:
        model, facts = self._model, self._facts
        candidate = self._candidate(evaluation, row)
        proposal = model.dictionary.propose(candidate)
        counted = (setattr, facts, "dimension", len(point))
        if proposal.resample:
            twin = model.copy()
            awaited = Awaited(point, candidate.features, evaluation.residual.item(row))
            carry_out(twin.pending.expect_steps(key, awaited))
            twin.resample()
            return [*model.replace_steps(twin), counted]
        admitted = model.admit(point, candidate, proposal)
        awaited = Awaited(point, admitted.features.copy(), admitted.residual)
        steps = [*admitted.pair.expect_steps(key, awaited), *admitted.steps, counted]
        if admitted.residual_trace != facts.residual_trace:
            steps.append((setattr, facts, "residual_trace", admitted.residual_trace))
        return steps + model.dictionary.commit_steps(admitted.candidate, proposal, admitted.appended)

    def anticipate_all(self, points: Mapping[int, FloatArray]) -> None:
        # no coins are flipped: where a history is learned, anchors are chosen
        self._model.count_awaited({key: Awaited(point, point) for key, point in points.items()})

    def anticipate_many_steps(self, keys: Sequence[int], points: FloatArray) -> tuple[int, Steps]:
        # the leading points that change nothing about the dictionary
        model = self._model
        facts, pending = model.facts, model.pending
        if not len(model.basis) or model.dictionary.uses_variance or model.dictionary.merges_repeats:
            return 0, []
        dictionary = model.dictionary.twin()
        features, residual, quiet = _absorb(model, dictionary, points)
        if not quiet:
            return 0, []
        ahead = pending.ahead.copy()
        ahead.count_block(features[:quiet])
        # copies, since a row of an array keeps all of it
        kept = islice(zip(keys, points, features, residual.tolist(), strict=True), quiet)
        awaited = {key: Awaited(row.copy(), own.copy(), left) for key, row, own, left in kept}
        return quiet, [
            (setattr, pending, "ahead", ahead),
            (pending.awaited.update, awaited),
            replace_state(model.dictionary, dictionary),
            (setattr, facts, "dimension", points.shape[1]),
        ]

    def fulfil_many_steps(self, keys: Sequence[int], rewards: FloatArray) -> Fulfilled | None:
        model = self._model
        facts, pending = model.facts, model.pending
        if model.dictionary.merges_repeats:
            return None
        size, found = len(model.basis), map(pending.awaited.__getitem__, keys)
        awaited = [
            one if len(one.coordinates) == size else model.current(key) for key, one in zip(keys, found, strict=True)
        ]
        features, residual = np.array([one.coordinates for one in awaited]), np.array([one.residual for one in awaited])
        settled = pending.settled.copy()
        scales, errors = settled.observe_many(features, rewards)
        means = rewards - scales * errors
        # scale² = 1 + φ_jᵀP_jφ_j
        stds = linalg.safe_sqrt(residual + facts.regularization * (scales**2 - 1.0))
        steps: Steps = [replace_state(pending.settled, settled)]
        if model.history is not None:
            history = model.history.copy()
            history.extend(np.array([one.point for one in awaited]), rewards)
            steps.append((setattr, model, "history", history))
        trace, count = facts.residual_trace + float(residual.sum()), facts.round_index + len(keys)
        steps += [(facts.store, trace, len(awaited[0].point), count), *pending.release_steps(keys)]
        return Fulfilled(steps, means, stds)

    def predict_awaited(self, key: int) -> tuple[float, float]:
        # by the regression that does not count the point, whose φ is known
        model = self._model
        awaited, settled = model.current(key), model.pending.settled
        features = awaited.coordinates
        # std² = residual + λ·φᵀPφ
        explained = float(features @ linalg.symmetric_times_vector(settled.covariance, features))
        variance = awaited.residual + model.facts.regularization * explained
        return float(features @ settled.weights), math.sqrt(max(variance, 0.0))

    def fulfil_steps(self, key: int, reward: float) -> Steps:
        awaited, facts = self._model.current(key), self._facts
        steps = self._pending.settled.learn_steps(awaited.coordinates, reward)
        steps += self._model.remember_steps(awaited.point, reward, facts.residual_trace + awaited.residual)
        return steps + self._pending.release_steps([key])

    def abandon_steps(self, keys: Collection[int]) -> Steps:
        return self._pending.forget_steps(keys, [self._model.current(key).coordinates for key in keys])

    def abandon_many_steps(self, keys: Sequence[int]) -> Iterator[tuple[int, Steps]]:
        known: list[FloatArray] = []
        try:
            known.extend(self._model.current(key).coordinates for key in keys)
        except Exception:
            # the points before one at which the kernel fails are forgotten
            if known:
                yield len(known), self._pending.forget_steps(keys[: len(known)], known)
            raise
        yield len(keys), self._pending.forget_steps(keys, known)

    def copy(self) -> Self:
        twin = copy.copy(self)
        twin._model = self._model.copy()
        twin._facts, twin._pending = twin._model.facts, twin._model.pending
        return twin

    @contextmanager
    def batch(self) -> Iterator[Callable[[FloatArray], float]]:
        variance = self._model.frozen_variance()
        try:
            self._model.postpone()
            yield variance
        finally:
            finish(self._model.project_postponed)

    def observe_many_steps(self, points: FloatArray, rewards: FloatArray) -> Iterator[tuple[int, Steps]]:
        twin = self.copy()

        try:
            _learn_log(twin, points, rewards)
        except Exception:
            # the observations before a failure stay learned
            if twin.round_index > self.round_index:
                yield twin.round_index - self.round_index, self._model.replace_steps(twin._model)
            raise
        yield len(points), self._model.replace_steps(twin._model)

    def learn_history(
        self, points: FloatArray, rewards: FloatArray, candidates: FloatArray, weights: FloatArray | None = None
    ) -> None:
        if self.dictionary.leverage_regularization is None:
            super().learn_history(points, rewards, candidates, weights)
            return
        # A dictionary that grows by leverage scores is not drawn along the history but chosen: by pivoted Cholesky each
        # anchor is the candidate (n, d) that those before it explain least, until little is left unexplained. Two
        # passes are enough where the candidates stand for the history; where they miss much, points of it join them.
        model = self._model
        facts, dictionary, settled = model.facts, model.dictionary, model.pending.settled
        if facts.round_index:
            raise UnavailableError(f"learn_history: {facts.round_index} observations were learned already.")
        history = History()
        history.extend(points, rewards, weights)
        level = dictionary.leverage_regularization or facts.regularization
        with np.errstate(invalid="ignore", over="ignore"):
            second_moment = _choose_anchors(model, points, history, candidates, level)
        model.history = None if model.history is None else history
        facts.dimension, facts.round_index = points.shape[1], len(points)
        # (μI + Σφφᵀ)⁻¹, which is P where μ = λ
        inverse = settled.covariance.copy()
        if level != facts.regularization:
            second_moment.flat[:: len(second_moment) + 1] += level
            inverse, _ = linalg.inverse_and_log_determinant(second_moment)
        dictionary.adopt(inverse)

    def refactor(self) -> None:
        """Recompute the tracked inverse in O(m³); predictions change by rounding alone."""
        self._model.refactor()

    def __repr__(self) -> str:
        return (
            f"NystromPosterior({self.kernel!r}, regularization={self.regularization:g}, {type(self.rule).__name__}, "
            f"history={self.history!r}, round_index={self.round_index}, dictionary_size={self.dictionary_size})"
        )


def _slopes(model: AnchoredRegression, evaluation: _NystromEvaluation, bonus: float) -> tuple[FloatArray, FloatArray]:
    """Return the derivatives of mean + bonus·std by k_Z(s), shape (A, m), and by k(s, s), shape (A,)."""
    # d mean = wᵀdφ and d std² = d residual + 2λ(Pφ)ᵀdφ with d residual = dk(s, s) − 2φᵀdφ, or 0 where it is cut off
    slopes = bonus * linalg.half_inverse(evaluation.std)
    own = np.where(evaluation.residual > 0.0, slopes, 0.0)
    by_features = 2.0 * model.facts.regularization * slopes[:, None] * evaluation.solved
    by_features += model.pending.settled.weights - 2.0 * own[:, None] * evaluation.features
    return model.basis.pulled_back(by_features), own


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
            evaluation = self._posterior._evaluate(*self._sections(actions))
        self._posterior.require_finite(evaluation)
        return evaluation.mean + self._bonus * evaluation.std

    def with_gradients(self, actions: FloatArray) -> tuple[FloatArray, FloatArray]:
        gram, prior, pullback = self._sections.with_pullback(actions)
        evaluation = self._posterior._evaluate(gram, prior)
        gradients = pullback(*_slopes(self._posterior.model, evaluation, self._bonus))
        return evaluation.mean + self._bonus * evaluation.std, gradients


# Multiplications that have to be saved, as a share of all: products of few rows are slower than they look.
LEAST_SAVED = 0.6


class Kinship(NamedTuple):
    """Which anchors are of the kind of one of the actions: of its arm, where the others are equally far from all.

    Attributes:
        common: the kernel of actions and anchors, shape (m,), but for an anchor and the action of its kind.
        anchors: those of the kind of an action, by action.
        extra: what the kernel of an anchor and its action is above ``common``, shape of ``anchors``.
        starts: where in these the anchors of each action begin, and the end, A + 1 of them.
    """

    common: FloatArray
    anchors: NDArray[np.intp]
    extra: FloatArray
    starts: list[int]

    @classmethod
    def of(cls, beside: FloatArray) -> Kinship | None:
        """Return the kinship in a kernel (A, m) of actions and anchors; None where an anchor is of several kinds."""
        common = beside.min(axis=0)
        extra = beside - common
        own = extra.argmax(axis=0)
        largest = extra.max(axis=0)
        (anchors,) = largest.nonzero()
        if np.count_nonzero(extra) > len(anchors):
            return None
        anchors = anchors[np.argsort(own[anchors], kind="stable")]
        starts = np.searchsorted(own[anchors], np.arange(len(beside) + 1)).tolist()
        return cls(common, anchors, largest[anchors], starts)


class Forms(NamedTuple):
    """Of n contexts with each of A actions, context by context: φᵀw, ‖φ‖² and φᵀPφ, shape (n·A,)."""

    mean: FloatArray
    norm: FloatArray
    explained: FloatArray


def _saves_products(contexts: int, actions: int, anchors: int) -> bool:
    """Return whether :func:`_forms` multiplies so much less than Φ = KJᵀ and ΦP that it is faster."""
    # in units of m²: a triangular product and a full one of every row, against those of every context and of JᵀP
    return 3.5 * contexts + 0.5 * anchors < (1.0 - LEAST_SAVED) * 1.5 * contexts * actions


def evaluate_together(model: AnchoredRegression, points: FloatArray, split: int) -> Evaluation | None:
    """Evaluate n rounds (n, A, d) that offer the same actions, n·A rows; None where nothing is gained by that."""
    basis, facts, pending, (contexts, actions, columns) = model.basis, model.facts, model.pending, points.shape
    factors = basis.factors_of_rounds(points, split) if _saves_products(contexts, actions, len(basis)) else None
    kin = None if factors is None else Kinship.of(factors[1])
    if factors is None or kin is None:
        return None
    mean, norm, explained = _forms(basis, factors[0], kin, pending.ahead.covariance, pending.settled.weights)
    # std² = residual + λ·φᵀPφ with residual = k(s, s) − ‖φ‖²
    residual = linalg.not_negative(basis.kernel.diag(points.reshape(-1, columns)) - norm)
    return Evaluation(facts.round_index, mean, linalg.safe_sqrt(residual + facts.regularization * explained))


def _forms(basis: AnchorBasis, near: FloatArray, kin: Kinship, covariance: FloatArray, weights: FloatArray) -> Forms:
    """Return what predictions are made of, for P and w in the coordinates of a basis.

    Args:
        basis: of the coordinates φ = J k_Z.
        near: the kernel of contexts and anchors, shape (n, m); that of joint points is its product with the actions'.
        kin: of actions and anchors.
        covariance: P, shape (m, m).
        weights: w, shape (m,).
    """
    size, actions = len(weights), len(kin.starts) - 1
    # k_Z(x, a) = near∘common + near∘extra at the anchors of a alone, so that J and JP meet m columns once, not A times
    shared = basis.projected(near * kin.common)
    both = np.hstack([shared, linalg.times(shared, covariance)])
    # JᵀP as (PJ)ᵀ, since P is symmetric
    solved_factor = linalg.times_upper_transpose(covariance.copy(), basis.factor).T
    wide = np.hstack([basis.factor[kin.anchors], solved_factor[kin.anchors]])
    rows = near[:, kin.anchors] * kin.extra
    slopes, level = basis.weights(weights)[kin.anchors], linalg.times_vector(shared, weights)
    found = np.empty((3, len(near), actions))
    for action, (start, stop) in enumerate(zip(kin.starts, kin.starts[1:], strict=False)):
        own = np.ascontiguousarray(rows[:, start:stop])
        pair = linalg.plus_times(both, own, wide[start:stop])
        features, solved = pair[:, :size], pair[:, size:]
        found[0, :, action] = level + own.dot(slopes[start:stop])
        found[1, :, action] = np.vecdot(features, features)
        found[2, :, action] = np.vecdot(features, solved)
    return Forms(*found.reshape(3, -1))


# It pays from this many actions, anchors and kernel entries between them on.
MINIMUM_ACTIONS, MINIMUM_ANCHORS, MINIMUM_ENTRIES = 500, 80, 200_000
# One action per this many actions and anchors is evaluated exactly first, and this many likely winners.
ACTIONS_PER_PIVOT, ANCHORS_PER_PIVOT = 64, 16
LIKELY_WINNERS = 16
# Unless a third is spared all are evaluated together.
WORTH = 2 / 3


def is_worth_a_look(actions: int, anchors: int) -> bool:
    """Return whether bounds for these actions are cheap beside their standard deviations."""
    return actions >= MINIMUM_ACTIONS and anchors >= MINIMUM_ANCHORS and actions * anchors >= MINIMUM_ENTRIES


def pivots(actions: int, anchors: int) -> NDArray[np.intp]:
    """Return the actions to evaluate first, evenly spread."""
    number = 1 + min(anchors // ANCHORS_PER_PIVOT, actions // ACTIONS_PER_PIVOT)
    return np.arange(0, actions, -(-actions // number))


def std_bounds(
    kernel: KernelLike, points: FloatArray, prior: FloatArray, known: NDArray[np.intp], stds: FloatArray
) -> FloatArray:
    """Upper bounds of the posterior std at points (A, d), prior variances (A,), from its values at some of them, p.

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


def likely_winners(bounds: FloatArray) -> NDArray[np.intp]:
    """Return the actions with the largest bounds."""
    return np.argpartition(bounds, -LIKELY_WINNERS)[-LIKELY_WINNERS:]


def survivors(bounds: FloatArray, best: float) -> NDArray[np.intp] | None:
    """Return the actions whose bound is not below the best exact value, or None where they are too many."""
    # not below, so that a bound that is not a number stays in and is noticed
    chosen = np.flatnonzero(~(bounds < best))
    return chosen if len(chosen) <= WORTH * len(bounds) else None


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
            explained = features[0] @ linalg.symmetric_times_vector(frozen, features[0])
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
            explained = np.vecdot(features, linalg.times(features, self.pending.ahead.covariance))
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
            second_moment += linalg.times(features.T, counts[:, None] * features)
            moment += linalg.transpose_times_vector(features, rewards)
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
    solved = linalg.symmetric_times_vector(pending.ahead.covariance, features)
    return solved, float(features @ solved), float(features @ pending.settled.weights)


# Anchors that are chosen from a whole history at once are enough if they leave no more of it unexplained than, in
# variance, this share of what the posterior leaves uncertain at its points, λ·trace K(K + λI)⁻¹ together;
UNEXPLAINED_SHARE = 0.2
# or if they are this many times trace K(K + λI)⁻¹: what KORS draws is 2 to 5 times that.
ANCHORS_PER_DIMENSION, NEARLY = 4.0, 0.95
# What they leave of a candidate on average, as a share of μ, before that is known.
FIRST_RESIDUAL = 0.1
# Anchors are chosen from at most this many candidates, whose Gram matrix has 32 MB, in at most this many passes over
# at most this many observations; one pass over all of them follows.
MOST_CANDIDATES, MOST_PASSES, MOST_OBSERVATIONS = 2048, 25, 4096
# Where nothing is known about how often the dictionary changes, a log is absorbed in blocks of this many rows first.
FIRST_BATCH_ROWS = 16


@np.errstate(invalid="ignore", over="ignore")
def _learn_log(posterior: NystromPosterior, points: FloatArray, rewards: FloatArray) -> None:
    """Learn a log of points (n, d) and rewards (n,) in order, in a posterior that nobody else holds.

    If the kernel fails, what came before that is learned.
    """
    model = posterior.model
    if model.pending.awaited:
        for point, reward in zip(points, rewards.tolist(), strict=True):
            posterior.observe(point, reward, posterior.evaluate_finite(point[None, :]))
        return
    # A dictionary that does without P lets anchors come in without their past, which follows for all in one pass; P is
    # then computed anew, which a short log is not worth.
    needs_solutions = model.dictionary.uses_variance or model.dictionary.merges_repeats
    deferred = not needs_solutions and len(points) > len(model.basis)
    postponed_here = deferred and model.postpone()
    start, count = 0, FIRST_BATCH_ROWS
    try:
        while start < len(points):
            quiet = _learn_quiet(model, points[start : start + count], rewards[start : start + count])
            start += quiet
            if quiet < count and start < len(points):
                if not (deferred and _learn_deferred(model, points[start], float(rewards[start]))):
                    model.catch_up()
                    point = points[start]
                    posterior.observe(point, float(rewards[start]), posterior.evaluate_finite(point[None, :]))
                start += 1
            # Rows behind a point that changes the dictionary are evaluated in vain: aim at the gap between two.
            count = min(2 * (quiet + 1), batch_rows(len(model.basis)))
    except Exception:
        _settle(model, postponed_here)
        raise
    _settle(model, postponed_here)


def _absorb(
    model: AnchoredRegression, dictionary: Dictionary, points: FloatArray
) -> tuple[FloatArray, FloatArray, int]:
    """Show points (n, d) to a dictionary; return φ (n, m), residuals (n,), and how many leave the anchors alone."""
    settled, facts = model.pending.settled, model.facts
    features, residual, prior = model.basis(points)
    if not is_finite(features) or not is_finite(residual):
        raise InputError(f"kernel: {facts.kernel!r} returned values that are not finite in the log.")
    require_resolution(facts.kernel, float(prior.max()), facts.regularization)
    variance = np.zeros(len(points))
    if dictionary.uses_variance:
        settled.settle()
        solved = linalg.times(features, settled.covariance)
        # φᵀPφ of each point after the ones before it; σ² = residual/λ + φᵀPφ
        explained = np.diagonal(sequential_factor(features, solved)) ** 2 - 1.0
        variance = residual / facts.regularization + explained
    block = Candidate(features, residual, prior, variance)
    return features, residual, dictionary.absorb(block, residual <= least_direction(prior, facts.regularization))


def _settle(model: AnchoredRegression, postponed: bool) -> None:
    """Bring the regression up to date with all that was deferred, and with what was postponed."""
    try:
        if postponed:
            model.project_postponed()
    finally:
        model.pending.settled.settle()


def _learn_deferred(model: AnchoredRegression, point: FloatArray, reward: float) -> bool:
    """Learn a point that may become an anchor, without P; False, and nothing done, if the dictionary resamples."""
    features, residual, prior = model.basis(point[None, :])
    candidate = Candidate(features[0], residual.item(0), prior.item(0), 0.0)
    proposal = model.dictionary.propose(candidate)
    if proposal.resample:
        return False
    admitted = model.admit(point, candidate, proposal, deferred=True)
    model.pending.settled.defer(admitted.features[None, :], np.array([reward]))
    carry_out(admitted.steps)
    carry_out(model.dictionary.commit_steps(admitted.candidate, proposal, admitted.appended))
    carry_out(model.remember_steps(point, reward, admitted.residual_trace + admitted.residual))
    return True


def _learn_quiet(model: AnchoredRegression, points: FloatArray, rewards: FloatArray) -> int:
    """Learn the leading points that change nothing about the dictionary; how many they were."""
    settled, facts = model.pending.settled, model.facts
    features, residual, quiet = _absorb(model, model.dictionary, points)
    if quiet:
        settled.defer(features[:quiet], rewards[:quiet])
        facts.residual_trace += float(residual[:quiet].sum())
        if model.history is not None:
            model.history.extend(points[:quiet], rewards[:quiet])
        facts.dimension = points.shape[1]
        facts.round_index += quiet
    return quiet


def _choose_anchors(
    model: AnchoredRegression, points: FloatArray, history: History, candidates: FloatArray, level: float
) -> FloatArray:
    """Carry a history by as many anchors as it takes; returns Σφφᵀ."""
    seen: Blocks = history
    rows, count = points, len(points)
    if count > MOST_OBSERVATIONS:
        seen = thinned = Thinned(points, np.zeros(count), MOST_OBSERVATIONS)
        rows = thinned.points
    candidates = candidates[:: -(-len(candidates) // MOST_CANDIDATES)]
    candidates, mean_residual, limit, second_moment = _enough(model, rows, count, seen, candidates, level)
    if seen is not history:
        second_moment = model.rebuild(candidates, history, mean_residual, limit)[1]
    return second_moment


def _enough(
    model: AnchoredRegression, points: FloatArray, count: int, history: Blocks, candidates: FloatArray, level: float
) -> tuple[FloatArray, float, int, FloatArray]:
    """Return candidates, mean residual and most anchors that are enough for points (n, d) of a history, and Σφφᵀ."""
    largest = float(model.facts.kernel.diag(points).max())
    require_resolution(model.facts.kernel, largest, model.facts.regularization)
    least = float(least_direction(largest, model.facts.regularization))
    mean_residual, limit, known = FIRST_RESIDUAL * min(level, largest), len(points), 0
    for done in range(1, MOST_PASSES + 1):
        left, second_moment = model.rebuild(candidates, history, mean_residual, limit)
        dimension, size = model.pending.settled.effective_dimension, len(model.basis)
        allowed = max(UNEXPLAINED_SHARE * level * dimension / count, least)
        # the dimension grows a little with the anchors, so that a limit of the pass before may just be missed
        many = size >= NEARLY * ANCHORS_PER_DIMENSION * dimension or model.dictionary.is_full(size)
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
    return candidates, mean_residual, limit, second_moment
