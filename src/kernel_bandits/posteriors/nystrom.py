"""The projected posterior: a dictionary of anchors carries it, O(m²) per action and per update."""

import copy
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from kernel_bandits.arrays import FloatArray
from kernel_bandits.commit import Steps, carry_out, finish
from kernel_bandits.dictionaries.base import Candidate, Dictionary, DictionaryRule, HistoryMode, as_rule, fast
from kernel_bandits.kernels import KernelLike, kernel_gradient, require_columns
from kernel_bandits.kernels.sections import Sections
from kernel_bandits.numerics import linalg
from kernel_bandits.posteriors import bulk, pruning, rounds
from kernel_bandits.posteriors.anchored import AnchoredRegression, solved_anew
from kernel_bandits.posteriors.base import Bound, Evaluation, Facts, Fulfilled, Posterior, require_finite_kernel
from kernel_bandits.posteriors.basis import EPSILON, require_resolution
from kernel_bandits.posteriors.pending import Awaited, Pending
from kernel_bandits.posteriors.ridge import RidgeRegression


@dataclass(slots=True)
class _NystromEvaluation(Evaluation):
    """Adds φ and Pφ, shapes (A, m), and φᵀPφ, k(s, s) − ‖φ‖² and k(s, s), each (A,)."""

    features: FloatArray
    solved: FloatArray
    explained: FloatArray
    residual: FloatArray
    prior_variance: FloatArray


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

    def __init__(self, posterior: "NystromPosterior", sections: Sections, bonus: float) -> None:
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
        found = rounds.evaluate(self._model, points, split)
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
        return self._model.contributions(point)

    def contenders(self, points: FloatArray, bonus: float) -> tuple[NDArray[np.intp] | None, _NystromEvaluation]:
        basis = self._model.basis
        gram, prior = basis.gram(points), basis.kernel.diag(points)
        if len(points) < pruning.MINIMUM_ACTIONS or not pruning.is_worth_a_look(*gram.shape):
            return None, self._evaluate(gram, prior)
        # mean = k_Z(s)ᵀJᵀw at O(m) per action, std from what it is at some of them
        coefficients = basis.weights(self._pending.settled.weights)
        pivots = pruning.pivots(len(points), len(basis.anchors))
        exact = self._evaluate(gram[pivots], prior[pivots])
        stds = pruning.std_bounds(basis.kernel, points, prior, pivots, exact.std)
        bounds = linalg.times_vector(gram, coefficients) + bonus * stds
        likely = pruning.likely_winners(bounds)
        sample = self._evaluate(gram[likely], prior[likely])
        best = max(float((some.mean + bonus * some.std).max()) for some in (exact, sample))
        slack = pruning.slack(bounds, bonus, prior, coefficients, basis.kernel.diag(basis.anchors))
        chosen = pruning.survivors(bounds, best - slack)
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
        return bulk.anticipate_quiet(self._model, keys, points)

    def fulfil_many_steps(self, keys: Sequence[int], rewards: FloatArray) -> Fulfilled | None:
        return bulk.fulfil_together(self._model, keys, rewards)

    def predict_awaited(self, key: int) -> tuple[float, float]:
        return self._model.predict_awaited(key)

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

        def one_by_one(points: FloatArray, rewards: FloatArray) -> None:
            for point, reward in zip(points, rewards.tolist(), strict=True):
                twin.observe(point, reward, twin.evaluate_finite(point[None, :]))

        try:
            bulk.learn_log(twin._model, points, rewards, one_by_one)
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
        else:
            bulk.learn_history(self._model, points, rewards, candidates, weights)

    def refactor(self) -> None:
        """Recompute the tracked inverse in O(m³); predictions change by rounding alone."""
        self._model.refactor()

    def __repr__(self) -> str:
        return (
            f"NystromPosterior({self.kernel!r}, regularization={self.regularization:g}, {type(self.rule).__name__}, "
            f"history={self.history!r}, round_index={self.round_index}, dictionary_size={self.dictionary_size})"
        )
