"""The algorithms by name: each a choice of posterior, dictionary rule and radius."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from kernel_bandits.arrays import as_positive
from kernel_bandits.confidence import Confidence, KrauseOng, LearnedDeviations, StandardDeviations
from kernel_bandits.dictionaries import DictionaryRule, Kors, Resampling
from kernel_bandits.dictionaries.base import as_rule, rule_or_none
from kernel_bandits.errors import InputError
from kernel_bandits.kernels import KernelLike, Linear
from kernel_bandits.kernels.fourier import (
    InteractionFeatures,
    LinearFeatures,
    QuadratureFourierFeatures,
    RandomFourierFeatures,
)
from kernel_bandits.learning import KernelLearning
from kernel_bandits.policies.assembly import Posteriors, design_of, posterior_of, when_learned
from kernel_bandits.policies.by_name import takes_features
from kernel_bandits.policies.exploration import as_exploration
from kernel_bandits.policies.retired import names_new_options
from kernel_bandits.policies.sup_kernel_ucb import SupKernelUCB
from kernel_bandits.policies.ucb import UpperConfidenceBound
from kernel_bandits.posteriors import (
    FeaturePosterior,
    NystromPosterior,
    Posterior,
)
from kernel_bandits.posteriors.drift import Forgetting
from kernel_bandits.rng import Seed, seed_of, stream

_ONE_STANDARD_DEVIATION = StandardDeviations(1.0)
_KORS = Kors()


@takes_features
@names_new_options
def k_ucb(
    kernel: KernelLike | None = None,
    *,
    regularization: float = 0.1,
    learn_kernel: bool | KernelLearning | None = None,
    confidence: Confidence = _ONE_STANDARD_DEVIATION,
    exploration_floor: float = 0.0,
    forgetting: Forgetting | None = None,
    seed: Seed = None,
) -> UpperConfidenceBound:
    """K-UCB: the exact posterior, O(t²) per action (the paper's Algorithm "Kernel UCB").

    Args:
        kernel: covariance of joint points, ours or scikit-learn's; None for one that is learned.
        regularization: the λ of the ridge; the noise variance in the Gaussian-process view, in squared reward units. If
            the kernel is learned, so is λ: this is where it starts, or nothing if no kernel is given.
        learn_kernel: whether lengthscales, output variance and λ are learned from the rewards, starting from the given
            ones; by default only if no kernel is given. A :class:`KernelLearning` says when.
        confidence: the radius β; by default one posterior standard deviation.
        exploration_floor: ε; with this probability any offered action is played instead, so that each of A has a
            probability of at least ε/A, and decisions carry all probabilities.
        forgetting: as for :func:`ek_ucb`.
        features: the columns of a table, to use it by name; the preset then returns a :class:`TablePolicy`.
        seed: of the tie-breaks and the exploration.
    """
    posteriors = Posteriors(None, seed_of(seed, "coins"))
    posterior = posterior_of(kernel, regularization, when_learned(kernel, learn_kernel), posteriors, seed, forgetting)
    radius = _radius(confidence, kernel)
    exploration, design = as_exploration(exploration_floor, seed), design_of(kernel, seed)
    return UpperConfidenceBound(posterior, radius, stream(seed, "ties"), exploration, design)


def _radius(confidence: Confidence, kernel: KernelLike | None) -> Confidence:
    """Return the radius that a ``confidence=`` argument asks for.

    With nothing set the bonus is learned with the kernel.
    """
    return LearnedDeviations() if kernel is None and confidence is _ONE_STANDARD_DEVIATION else confidence


@takes_features
def cgp_ucb(
    kernel: KernelLike,
    *,
    regularization: float = 0.1,
    confidence: Confidence | None = None,
    norm_bound: float = 1.0,
    noise_bound: float | None = None,
    failure_probability: float = 0.1,
    exploration_floor: float = 0.0,
    seed: Seed = None,
) -> UpperConfidenceBound:
    """CGP-UCB (Krause & Ong 2011): K-UCB with the radius of contextual GP-UCB.

    Args:
        kernel: covariance of joint points.
        regularization: λ, the noise variance.
        confidence: the radius; by default :class:`KrauseOng` with the three numbers below.
        norm_bound: B ≥ ‖θ*‖ of that radius.
        noise_bound: R of that radius, the bound on the noise; √λ unless given.
        failure_probability: δ of that radius.
        exploration_floor: as for :func:`k_ucb`.
        features: as for :func:`ek_ucb`.
        seed: of the tie-breaks and the exploration.
    """
    if confidence is None:
        noise = as_positive("regularization", regularization) ** 0.5 if noise_bound is None else noise_bound
        confidence = KrauseOng(norm_bound=norm_bound, noise_bound=noise, failure_probability=failure_probability)
    return k_ucb(
        kernel,
        regularization=regularization,
        confidence=confidence,
        exploration_floor=exploration_floor,
        seed=seed,
    )


@takes_features
@names_new_options
def ek_ucb(
    kernel: KernelLike | None = None,
    *,
    regularization: float = 0.1,
    learn_kernel: bool | KernelLearning | None = None,
    confidence: Confidence = _ONE_STANDARD_DEVIATION,
    dictionary: DictionaryRule = _KORS,
    exploration_floor: float = 0.0,
    forgetting: Forgetting | None = None,
    seed: Seed = None,
) -> UpperConfidenceBound:
    """EK-UCB: the posterior projected on a dictionary that grows by KORS, O(m²) per action (Algorithm 2 of the paper).

    Args:
        kernel: covariance of joint points, ours or scikit-learn's; None for one that is learned.
        regularization: the λ of the ridge; the noise variance in the Gaussian-process view, in squared reward units. If
            the kernel is learned, so is λ: this is where it starts, or nothing if no kernel is given.
        learn_kernel: whether lengthscales, output variance and λ are learned from the rewards, starting from the given
            ones; by default only if no kernel is given. A :class:`KernelLearning` says when.
        confidence: the radius β; by default one posterior standard deviation.
        dictionary: the rule that chooses anchors, with its options: ``Kors(max_size=200)``, ``PosteriorVariance()``,
            ``Fixed(points)``, ``Resampling()``, or one of your own.
        exploration_floor: ε; with this probability any offered action is played instead, so that each of A has a
            probability of at least ε/A, and decisions carry all probabilities.
        forgetting: for rewards that drift: ``Discount(half_life)``, ``Window(size)``, ``Wander(half_life)`` or
            ``Restart()``.
        features: the columns of a table, to use it by name; the preset then returns a :class:`TablePolicy`.
        seed: of the coins, tie-breaks and exploration.
    """
    learning = when_learned(kernel, learn_kernel)
    rule = as_rule(dictionary)
    posteriors = Posteriors(rule if learning is None else rule.for_learned_kernel(), seed_of(seed, "coins"))
    posterior = posterior_of(kernel, regularization, learning, posteriors, seed, forgetting)
    radius = _radius(confidence, kernel)
    exploration, design = as_exploration(exploration_floor, seed), design_of(kernel, seed)
    return UpperConfidenceBound(posterior, radius, stream(seed, "ties"), exploration, design)


@takes_features
def cbbkb(
    kernel: KernelLike,
    *,
    regularization: float = 0.1,
    confidence: Confidence = _ONE_STANDARD_DEVIATION,
    oversampling: float = 2.0,
    batch_variance_limit: float = 10.0,
    exploration_floor: float = 0.0,
    keeps_first: bool = False,
    seed: Seed = None,
) -> UpperConfidenceBound:
    """Contextual BBKB (Calandriello et al. 2020): the dictionary is redrawn from the whole history after each batch.

    Args:
        kernel: covariance of joint points.
        regularization: λ.
        confidence: the radius β.
        oversampling: q̄ in p_i = min(1, q̄·σ²(s_i)); sets the dictionary size.
        batch_variance_limit: C; a batch ends when 1 + Σσ² over it exceeds C. Independent of q̄.
        exploration_floor: as for :func:`ek_ucb`.
        keeps_first: whether the first point is an anchor until the first resampling, as in the published code.
        features: as for :func:`ek_ucb`.
        seed: of the coins, tie-breaks and exploration.
    """
    rule = Resampling(oversampling=oversampling, batch_variance_limit=batch_variance_limit, keeps_first=keeps_first)
    posterior = NystromPosterior(kernel, regularization, rule, stream(seed, "coins"))
    return UpperConfidenceBound(posterior, confidence, stream(seed, "ties"), as_exploration(exploration_floor, seed))


@takes_features
def cbkb(
    kernel: KernelLike,
    *,
    regularization: float = 0.1,
    confidence: Confidence = _ONE_STANDARD_DEVIATION,
    oversampling: float = 2.0,
    exploration_floor: float = 0.0,
    seed: Seed = None,
) -> UpperConfidenceBound:
    """Contextual BKB (Calandriello et al. 2019): the dictionary is redrawn from the whole history in every round.

    Args:
        kernel: covariance of joint points.
        regularization: λ.
        confidence: the radius β.
        oversampling: q̄ in p_i = min(1, q̄·σ²(s_i)).
        exploration_floor: as for :func:`ek_ucb`.
        features: as for :func:`ek_ucb`.
        seed: of the coins, tie-breaks and exploration.
    """
    return cbbkb(
        kernel,
        regularization=regularization,
        confidence=confidence,
        oversampling=oversampling,
        batch_variance_limit=1.0,
        exploration_floor=exploration_floor,
        seed=seed,
    )


@dataclass(frozen=True)
class _StagePosteriors:
    """Builds the posterior of a stage of SupKernelUCB, with coins of its own where it has any."""

    kernel: KernelLike
    regularization: float
    posteriors: Posteriors

    def __call__(self, stage: int) -> Posterior[Any]:
        return self.posteriors(self.kernel, self.regularization, stage)


@takes_features
@names_new_options
def sup_kernel_ucb(
    kernel: KernelLike,
    *,
    horizon: int,
    regularization: float = 0.1,
    confidence: Confidence = _ONE_STANDARD_DEVIATION,
    dictionary: DictionaryRule | None = None,
    seed: Seed = None,
) -> SupKernelUCB:
    """SupKernelUCB (Valko et al. 2013), exact or, with ``dictionary=``, one incremental Nyström posterior per stage.

    With ``confidence=StageRadius(…)`` both have a regret bound of order √(T·d_eff·log A) up to logarithms; for the
    efficient one the bias term needs ‖(I − P)F^{1/2}‖² ≤ λ at every stage (``docs/theory/sup-kernel-ucb.md``).

    Args:
        kernel: covariance of joint points.
        horizon: T; sets the number of stages and the final width 1/√T.
        regularization: λ.
        confidence: returns η, the multiple of σ that is called width; :class:`StageRadius` is that of the theory.
        dictionary: None for exact posteriors, or the rule of projected ones; each stage starts one of its own.
        features: as for :func:`ek_ucb`.
        seed: of the coins and tie-breaks.
    """
    posteriors = Posteriors(rule_or_none(dictionary), seed_of(seed, "coins"))
    stages = _StagePosteriors(kernel, regularization, posteriors)
    return SupKernelUCB(stages, confidence, horizon, stream(seed, "ties"))


@takes_features
def lin_ucb(
    *,
    regularization: float = 0.1,
    confidence: Confidence = _ONE_STANDARD_DEVIATION,
    intercept: bool = True,
    interactions: bool = True,
    exploration_floor: float = 0.0,
    seed: Seed = None,
) -> UpperConfidenceBound:
    """LinUCB / OFUL (Li et al. 2010, Abbasi-Yadkori et al. 2011): ridge regression on the columns.

    By default what is best may depend on the context: arms that are unit vectors have a linear model each, and
    described actions the products of their columns with those of the context. Without interactions the model is a sum
    of a function of the context and one of the action, and ranks the actions alike in every context.

    Args:
        regularization: λ.
        confidence: the radius β; :class:`~kernel_bandits.confidence.Tightened` and the other exact ones are valid.
        intercept: whether the model has a constant term.
        interactions: whether it has products of context and action columns.
        exploration_floor: as for :func:`ek_ucb`.
        features: as for :func:`ek_ucb`.
        seed: of the tie-breaks and the exploration.
    """
    kernel = Linear(offset=1.0 if intercept else 0.0)
    feature_map = InteractionFeatures(intercept) if interactions else LinearFeatures(intercept)
    posterior = FeaturePosterior(kernel, regularization, feature_map)
    return UpperConfidenceBound(posterior, confidence, stream(seed, "ties"), as_exploration(exploration_floor, seed))


@takes_features
def random_features_ucb(
    kernel: KernelLike,
    *,
    regularization: float = 0.1,
    confidence: Confidence = _ONE_STANDARD_DEVIATION,
    number_of_features: int = 200,
    feature_map: Literal["random", "quadrature"] = "random",
    exploration_floor: float = 0.0,
    seed: Seed = None,
) -> UpperConfidenceBound:
    """UCB on Fourier features, random or by quadrature (Mutný & Krause 2018): the alternative to a dictionary.

    Args:
        kernel: Gaussian, Exponential or Matern; Gaussian only for quadrature.
        regularization: λ.
        confidence: the radius β; none with a guarantee is valid, since the features span a fixed finite-dimensional
            space.
        number_of_features: D.
        feature_map: ``"random"``, or ``"quadrature"`` for at most three columns in context and action together.
        exploration_floor: as for :func:`ek_ucb`.
        features: as for :func:`ek_ucb`.
        seed: of the frequencies, tie-breaks and exploration.
    """
    fourier: RandomFourierFeatures | QuadratureFourierFeatures
    if feature_map == "random":
        fourier = RandomFourierFeatures(kernel, number_of_features, seed_of(seed, "coins"))
    elif feature_map == "quadrature":
        fourier = QuadratureFourierFeatures(kernel, number_of_features)
    else:
        raise InputError(f"feature_map: expected 'random' or 'quadrature', got {feature_map!r}.")
    posterior = FeaturePosterior(kernel, regularization, fourier)
    return UpperConfidenceBound(posterior, confidence, stream(seed, "ties"), as_exploration(exploration_floor, seed))
