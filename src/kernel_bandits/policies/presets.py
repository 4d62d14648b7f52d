"""The algorithms by name: each a choice of posterior, dictionary rule and radius."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from kernel_bandits.arrays import as_positive
from kernel_bandits.confidence import Confidence, KrauseOng, StandardDeviations
from kernel_bandits.dictionaries import Dictionary, Fixed, Kors, PosteriorVariance, Resampling
from kernel_bandits.errors import InputError
from kernel_bandits.kernels import KernelLike, Linear, Matern
from kernel_bandits.kernels.fourier import LinearFeatures, QuadratureFourierFeatures, RandomFourierFeatures
from kernel_bandits.learning.fit import RewardModel
from kernel_bandits.policies.by_name import takes_features
from kernel_bandits.policies.sup_kernel_ucb import SupKernelUCB
from kernel_bandits.policies.thompson import ThompsonSampling
from kernel_bandits.policies.ucb import UpperConfidenceBound
from kernel_bandits.policies.uniform import Uniform
from kernel_bandits.posteriors import (
    ExactPosterior,
    FeaturePosterior,
    KernelLearning,
    LearnedPosterior,
    NystromPosterior,
    Posterior,
)
from kernel_bandits.posteriors.nystrom import HistoryMode
from kernel_bandits.rng import Seed, seed_of, stream

_ONE_STANDARD_DEVIATION = StandardDeviations(1.0)
# The kernel whose lengthscales are learned where none is given: smooth, but rough enough for rewards that jump.
LEARNED_KERNEL = Matern(smoothness=2.5)
# γ where the kernel is learned: a kernel that fits the rewards closely leaves more to explain than one chosen by hand,
# and half the anchors give the same regret in a third of the time.
LEARNED_OVERSAMPLING = 1.0


@takes_features
def k_ucb(
    kernel: KernelLike | None = None,
    *,
    regularization: float = 0.1,
    learn_kernel: bool | KernelLearning | None = None,
    confidence: Confidence = _ONE_STANDARD_DEVIATION,
    exploration_rate: float = 0.0,
    seed: Seed = None,
) -> UpperConfidenceBound:
    """K-UCB: the exact posterior, O(t²) per action (the paper's Algorithm "Kernel UCB").

    Args:
        kernel: covariance of joint points, ours or scikit-learn's; None for a Matérn kernel that is learned.
        regularization: the λ of the ridge; the noise variance in the Gaussian-process view, in squared reward units. If
            the kernel is learned, so is λ: this is where it starts, or nothing if no kernel is given.
        learn_kernel: whether lengthscales, output variance and λ are learned from the rewards, starting from the given
            ones; by default only if no kernel is given. A :class:`KernelLearning` says when.
        confidence: the radius β; by default one posterior standard deviation.
        exploration_rate: ε; with this probability any offered action is played instead of the one with the largest
            bound, and decisions carry their propensity.
        features: the columns of a table, to play it by name; a :class:`TablePolicy` is returned then.
        seed: of the tie-breaks and the exploration.
    """
    posteriors = _Posteriors(None, {}, "all", seed_of(seed, "coins"))
    posterior = _posterior(kernel, regularization, _learning(kernel, learn_kernel), posteriors, seed)
    return UpperConfidenceBound(posterior, confidence, stream(seed, "ties"), _mixture(exploration_rate, seed))


@dataclass(frozen=True)
class _Posteriors:
    """Builds posteriors of one kind; those with a dictionary have coins of their own for each number, if one is given.

    Attributes:
        dictionary: None for exact posteriors, else what ``dictionary=`` arguments take.
        options: of the dictionary.
        history: of posteriors with a dictionary.
        seed: of the coins.
    """

    dictionary: str | ArrayLike | None
    options: dict[str, Any]
    history: HistoryMode
    seed: np.random.SeedSequence

    def __call__(self, kernel: KernelLike, regularization: float, number: int | None = None) -> Posterior[Any]:
        if self.dictionary is None:
            return ExactPosterior(kernel, regularization)
        own = () if number is None else (number,)
        coins = np.random.default_rng(np.random.SeedSequence(self.seed.entropy, spawn_key=(*self.seed.spawn_key, *own)))
        rule = _incremental_rule(self.dictionary, coins, regularization=regularization, **self.options)
        return NystromPosterior(kernel, regularization, rule, self.history)


def _learning(kernel: KernelLike | None, learn_kernel: bool | KernelLearning | None) -> KernelLearning | None:
    """When the kernel is learned, or None where it stays as it is given."""
    if learn_kernel is None:
        learn_kernel = kernel is None
    if learn_kernel is False:
        if kernel is None:
            raise InputError("kernel: without one it has to be learned; leave learn_kernel out, or give a kernel.")
        return None
    if learn_kernel is not True and not isinstance(learn_kernel, KernelLearning):
        raise InputError(f"learn_kernel: expected True, False or a KernelLearning, got {learn_kernel!r}.")
    return KernelLearning() if learn_kernel is True else learn_kernel


def _posterior(
    kernel: KernelLike | None,
    regularization: float,
    learning: KernelLearning | None,
    posteriors: _Posteriors,
    seed: Seed,
) -> Posterior[Any]:
    """The posterior of a kernel as it is, or one that learns it."""
    if kernel is None:
        assert learning is not None
        return LearnedPosterior(posteriors, None, LEARNED_KERNEL, learning, seed_of(seed, "learning"))
    if learning is None:
        return posteriors(kernel, regularization)
    start = RewardModel.of(kernel, as_positive("regularization", regularization))
    return LearnedPosterior(posteriors, start, start.kernel, learning, seed_of(seed, "learning"))


def _mixture(rate: float, seed: Seed) -> tuple[float, np.random.Generator] | None:
    """The ε and the generator that an ``exploration_rate=`` argument asks for."""
    if not (isinstance(rate, (int, float, np.number)) and 0.0 <= rate <= 1.0):
        raise InputError(f"exploration_rate: expected a probability from 0 to 1, got {rate!r}.")
    return (float(rate), stream(seed, "exploration")) if rate else None


def cgp_ucb(
    kernel: KernelLike,
    *,
    regularization: float = 0.1,
    confidence: Confidence | None = None,
    norm_bound: float = 1.0,
    noise_bound: float | None = None,
    failure_probability: float = 0.1,
    seed: Seed = None,
) -> UpperConfidenceBound:
    """CGP-UCB (Krause & Ong 2011): K-UCB with the contextual GP-UCB radius, a radius and not another algorithm.

    Args:
        kernel: covariance of joint points.
        regularization: λ, the noise variance.
        confidence: the radius; by default :class:`KrauseOng` with the three numbers below.
        norm_bound: B ≥ ‖θ*‖ of that radius.
        noise_bound: R of that radius, the bound on the noise; √λ unless given.
        failure_probability: δ of that radius.
        seed: of the tie-breaks.
    """
    if confidence is None:
        noise = as_positive("regularization", regularization) ** 0.5 if noise_bound is None else noise_bound
        confidence = KrauseOng(norm_bound=norm_bound, noise_bound=noise, failure_probability=failure_probability)
    return k_ucb(kernel, regularization=regularization, confidence=confidence, seed=seed)


@takes_features
def ek_ucb(
    kernel: KernelLike | None = None,
    *,
    regularization: float = 0.1,
    learn_kernel: bool | KernelLearning | None = None,
    confidence: Confidence = _ONE_STANDARD_DEVIATION,
    leverage_regularization: float | None = None,
    leverage_accuracy: float = 0.5,
    oversampling: float | None = None,
    max_dictionary_size: int | None = None,
    dictionary: str | ArrayLike = "kors",
    history: HistoryMode = "all",
    exploration_rate: float = 0.0,
    seed: Seed = None,
) -> UpperConfidenceBound:
    """EK-UCB: the posterior projected on a dictionary that grows by KORS, O(m²) per action (Algorithm 2 of the paper).

    Args:
        kernel: covariance of joint points, ours or scikit-learn's; None for a Matérn kernel that is learned.
        regularization: the λ of the ridge; the noise variance in the Gaussian-process view, in squared reward units. If
            the kernel is learned, so is λ: this is where it starts, or nothing if no kernel is given.
        learn_kernel: whether lengthscales, output variance and λ are learned from the rewards, starting from the given
            ones; by default only if no kernel is given. A :class:`KernelLearning` says when.
        confidence: the radius β; by default one posterior standard deviation.
        leverage_regularization: the μ at which leverage scores are taken; λ unless given. Larger means fewer anchors.
        leverage_accuracy: the ε in the factor 1 + ε on the score.
        oversampling: the γ in p = min(1, γτ). Larger means more anchors. Unless given 2, or 1 if the kernel is learned.
        max_dictionary_size: hard cap on m. Once it is reached no anchor is added; the posterior goes on learning in the
            span it has, and the standard deviation stays wide outside it.
        dictionary: ``"kors"``, ``"posterior_variance"`` (τ' = (1+ε)σ²/(1+σ²), only at μ = λ), or joint points
            of shape (m, d) that stay the dictionary for good.
        history: ``"all"`` keeps states and rewards, 8(d + 1) bytes a round; ``"none"`` keeps nothing that grows with t.
        exploration_rate: ε; with this probability any offered action is played instead of the one with the largest
            bound, and decisions carry their propensity.
        features: the columns of a table, to play it by name; a :class:`TablePolicy` is returned then.
        seed: of the coins, tie-breaks and exploration.
    """
    learning = _learning(kernel, learn_kernel)
    if oversampling is None:
        # a dictionary that is given has no γ
        oversampling = 2.0 if learning is None or not isinstance(dictionary, str) else LEARNED_OVERSAMPLING
    options = {
        "leverage_regularization": leverage_regularization,
        "leverage_accuracy": leverage_accuracy,
        "oversampling": oversampling,
        "max_dictionary_size": max_dictionary_size,
    }
    posteriors = _Posteriors(dictionary, options, history, seed_of(seed, "coins"))
    posterior = _posterior(kernel, regularization, learning, posteriors, seed)
    return UpperConfidenceBound(posterior, confidence, stream(seed, "ties"), _mixture(exploration_rate, seed))


@takes_features
def thompson_sampling(
    kernel: KernelLike,
    *,
    regularization: float = 0.1,
    scale: float = 1.0,
    number_of_draws: int = 100,
    leverage_regularization: float | None = None,
    leverage_accuracy: float = 0.5,
    oversampling: float = 2.0,
    max_dictionary_size: int | None = None,
    dictionary: str | ArrayLike | None = "kors",
    history: HistoryMode = "all",
    seed: Seed = None,
) -> ThompsonSampling:
    """Thompson sampling on the posterior of EK-UCB, or with ``dictionary=None`` on that of K-UCB.

    Args:
        kernel: covariance of joint points, ours or scikit-learn's.
        regularization: the λ of the ridge; the noise variance in the Gaussian-process view, in squared reward units.
        scale: v, standard deviations are multiplied by it; 1 draws from the posterior itself.
        number_of_draws: of which one decides; the others tell the propensity.
        leverage_regularization: μ of the dictionary; λ unless given.
        leverage_accuracy: ε of the dictionary.
        oversampling: γ of the dictionary.
        max_dictionary_size: hard cap on m.
        dictionary: as for :func:`ek_ucb`, or None for the exact posterior.
        history: as for :func:`ek_ucb`.
        features: the columns of a table, to play it by name; a :class:`TablePolicy` is returned then.
        seed: of the draws, coins and tie-breaks.
    """
    options = {
        "leverage_regularization": leverage_regularization,
        "leverage_accuracy": leverage_accuracy,
        "oversampling": oversampling,
        "max_dictionary_size": max_dictionary_size,
    }
    posterior = _Posteriors(dictionary, options, history, seed_of(seed, "coins"))(kernel, regularization)
    return ThompsonSampling(posterior, stream(seed, "ties"), stream(seed, "exploration"), scale, number_of_draws)


def _incremental_rule(
    dictionary: str | ArrayLike,
    coins: np.random.Generator,
    *,
    regularization: float,
    leverage_regularization: float | None,
    leverage_accuracy: float,
    oversampling: float,
    max_dictionary_size: int | None,
) -> Dictionary:
    """The rule that a ``dictionary=`` argument names."""
    regularization = as_positive("regularization", regularization)
    if not isinstance(dictionary, str):
        if (leverage_regularization, leverage_accuracy, oversampling, max_dictionary_size) != (None, 0.5, 2.0, None):
            raise InputError("dictionary: a fixed dictionary takes no leverage options and no max_dictionary_size.")
        return Fixed(dictionary)
    if dictionary == "kors":
        return Kors(
            coins,
            leverage_regularization=regularization if leverage_regularization is None else leverage_regularization,
            leverage_accuracy=leverage_accuracy,
            oversampling=oversampling,
            max_dictionary_size=max_dictionary_size,
        )
    if dictionary != "posterior_variance":
        raise InputError(
            f"dictionary: expected 'kors', 'posterior_variance' or an array of points, got {dictionary!r}."
        )
    if leverage_regularization not in (None, regularization):
        raise InputError(
            "leverage_regularization: the posterior variance is a leverage score at μ = λ only; "
            "leave it out, or use dictionary='kors'."
        )
    return PosteriorVariance(
        coins,
        leverage_accuracy=leverage_accuracy,
        oversampling=oversampling,
        max_dictionary_size=max_dictionary_size,
    )


def cbbkb(
    kernel: KernelLike,
    *,
    regularization: float = 0.1,
    confidence: Confidence = _ONE_STANDARD_DEVIATION,
    oversampling: float = 2.0,
    batch_variance_limit: float = 10.0,
    seed: Seed = None,
) -> UpperConfidenceBound:
    """Contextual BBKB (Calandriello et al. 2020): a dictionary drawn anew once a batch has moved the variance.

    Args:
        kernel: covariance of joint points.
        regularization: λ.
        confidence: the radius β.
        oversampling: q̄ in p_i = min(1, q̄·σ²(s_i)); sets the dictionary size.
        batch_variance_limit: C; a batch ends when 1 + Σσ² over it exceeds C. Independent of q̄.
        seed: of the coins and tie-breaks.
    """
    rule = Resampling(
        stream(seed, "coins"),
        regularization=regularization,
        oversampling=oversampling,
        batch_variance_limit=batch_variance_limit,
    )
    return UpperConfidenceBound(NystromPosterior(kernel, regularization, rule), confidence, stream(seed, "ties"))


def cbkb(
    kernel: KernelLike,
    *,
    regularization: float = 0.1,
    confidence: Confidence = _ONE_STANDARD_DEVIATION,
    oversampling: float = 2.0,
    seed: Seed = None,
) -> UpperConfidenceBound:
    """Contextual BKB (Calandriello et al. 2019): the dictionary is drawn anew from the whole history at every round.

    Args:
        kernel: covariance of joint points.
        regularization: λ.
        confidence: the radius β.
        oversampling: q̄ in p_i = min(1, q̄·σ²(s_i)).
        seed: of the coins and tie-breaks.
    """
    return cbbkb(
        kernel,
        regularization=regularization,
        confidence=confidence,
        oversampling=oversampling,
        batch_variance_limit=1.0,
        seed=seed,
    )


@dataclass(frozen=True)
class _StagePosteriors:
    """Builds the posterior of a stage of SupKernelUCB, with coins of its own where it has any."""

    kernel: KernelLike
    regularization: float
    posteriors: _Posteriors

    def __call__(self, stage: int) -> Posterior[Any]:
        return self.posteriors(self.kernel, self.regularization, stage)


def sup_kernel_ucb(
    kernel: KernelLike,
    *,
    horizon: int,
    regularization: float = 0.1,
    confidence: Confidence = _ONE_STANDARD_DEVIATION,
    dictionary: Literal["kors", "posterior_variance"] | None = None,
    leverage_regularization: float | None = None,
    leverage_accuracy: float = 0.5,
    oversampling: float = 2.0,
    max_dictionary_size: int | None = None,
    seed: Seed = None,
) -> SupKernelUCB:
    """SupKernelUCB (Valko et al. 2013), exact or, with ``dictionary=``, one incremental Nyström posterior per stage.

    The exact one has the regret bound √(T·d̃·log A) up to logarithms. For the efficient one no bound is proved: rewards
    are independent given the points of a stage there too, since coins look at points and not at rewards, and its
    intervals hold with the bias B·√(λ + ρ) of a projected posterior, but how the widths of a stage add up is open.

    Args:
        kernel: covariance of joint points.
        horizon: T; sets the number of stages and the final width 1/√T.
        regularization: λ.
        confidence: answers η, the multiple of σ that is called width; √λ·B + R·√(2·log(2TAS/δ)) is enough in theory.
        dictionary: None for exact posteriors, ``"kors"`` or ``"posterior_variance"`` for projected ones.
        leverage_regularization: μ of the dictionaries; λ unless given.
        leverage_accuracy: ε of the dictionaries.
        oversampling: γ of the dictionaries.
        max_dictionary_size: hard cap on the anchors of one stage.
        seed: of the coins and tie-breaks.
    """
    if dictionary is not None and not isinstance(dictionary, str):
        raise InputError(
            "dictionary: expected None, 'kors' or 'posterior_variance'; the stages have no common fixed dictionary."
        )
    options = {
        "leverage_regularization": leverage_regularization,
        "leverage_accuracy": leverage_accuracy,
        "oversampling": oversampling,
        "max_dictionary_size": max_dictionary_size,
    }
    posteriors = _Posteriors(dictionary, options, "all", seed_of(seed, "coins"))
    stages = _StagePosteriors(kernel, regularization, posteriors)
    return SupKernelUCB(stages, confidence, horizon, stream(seed, "ties"))


@takes_features
def lin_ucb(
    *,
    regularization: float = 0.1,
    confidence: Confidence = _ONE_STANDARD_DEVIATION,
    intercept: bool = True,
    seed: Seed = None,
) -> UpperConfidenceBound:
    """LinUCB / OFUL (Abbasi-Yadkori et al. 2011): ridge regression on the columns of context and action.

    Args:
        regularization: λ.
        confidence: the radius β; :class:`~kernel_bandits.confidence.Tightened` and the other exact ones are valid.
        intercept: whether the model has a constant term.
        features: as for :func:`ek_ucb`.
        seed: of the tie-breaks.
    """
    kernel = Linear(offset=1.0 if intercept else 0.0)
    posterior = FeaturePosterior(kernel, regularization, LinearFeatures(intercept))
    return UpperConfidenceBound(posterior, confidence, stream(seed, "ties"))


def random_features_ucb(
    kernel: KernelLike,
    *,
    regularization: float = 0.1,
    confidence: Confidence = _ONE_STANDARD_DEVIATION,
    number_of_features: int = 200,
    features: Literal["random", "quadrature"] = "random",
    seed: Seed = None,
) -> UpperConfidenceBound:
    """UCB on Fourier features, random or by quadrature (Mutný & Krause 2018): the alternative to a dictionary.

    Args:
        kernel: Gaussian, Exponential or Matern; Gaussian only for quadrature.
        regularization: λ.
        confidence: the radius β; none with a guarantee is valid, since the features span a fixed finite-dimensional
            space.
        number_of_features: D.
        features: ``"random"``, or ``"quadrature"`` for at most three columns in context and action together.
        seed: of the frequencies and tie-breaks.
    """
    feature_map: RandomFourierFeatures | QuadratureFourierFeatures
    if features == "random":
        feature_map = RandomFourierFeatures(kernel, number_of_features, seed_of(seed, "coins"))
    elif features == "quadrature":
        feature_map = QuadratureFourierFeatures(kernel, number_of_features)
    else:
        raise InputError(f"features: expected 'random' or 'quadrature', got {features!r}.")
    posterior = FeaturePosterior(kernel, regularization, feature_map)
    return UpperConfidenceBound(posterior, confidence, stream(seed, "ties"))


@takes_features
def uniform(*, seed: Seed = None) -> Uniform:
    """Uniform play, the baseline that learns nothing.

    Args:
        features: as for :func:`ek_ucb`.
        seed: of the draws.
    """
    return Uniform(stream(seed, "ties"))
