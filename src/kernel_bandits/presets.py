"""The algorithms by name: each a choice of posterior, dictionary rule and radius.

Options that several presets have mean the same in all of them; :func:`ek_ucb` explains them.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, ParamSpec, Protocol, TypeVar, cast, overload

import numpy as np
from numpy.typing import ArrayLike

from kernel_bandits.arrays import as_positive, as_vector
from kernel_bandits.boxes.design import BoxDesign
from kernel_bandits.confidence import Confidence, GuaranteedRadius, KrauseOng, LearnedDeviations, StandardDeviations
from kernel_bandits.dictionaries import DictionaryRule, Kors, Resampling
from kernel_bandits.dictionaries.base import as_rule, rule_or_none
from kernel_bandits.drift import Forgetting, ForgettingPosterior, require_forgetting
from kernel_bandits.errors import InputError
from kernel_bandits.kernels import KernelLike, Linear
from kernel_bandits.kernels.base import with_defaults
from kernel_bandits.kernels.composite import Timed
from kernel_bandits.kernels.fourier import (
    InteractionFeatures,
    LinearFeatures,
    QuadratureFourierFeatures,
    RandomFourierFeatures,
)
from kernel_bandits.learning import KernelLearning
from kernel_bandits.learning.columns import Columns, RewardModel
from kernel_bandits.learning.learned import LearnedPosterior
from kernel_bandits.learning.learners import Learner, MixedLearner, StationaryLearner
from kernel_bandits.learning.noise import UnequalNoise
from kernel_bandits.policy.exploration import Exploration, as_exploration, as_floor
from kernel_bandits.policy.family import FamilyUpperConfidenceBound
from kernel_bandits.policy.inverse_gap import InformationSharpness, InverseGapWeighting, PowerSharpness, Sharpness
from kernel_bandits.policy.policy import Policy
from kernel_bandits.policy.sup_kernel_ucb import SupKernelUCB
from kernel_bandits.policy.thompson import ThompsonSampling
from kernel_bandits.policy.ucb import UpperConfidenceBound
from kernel_bandits.policy.uniform import Uniform
from kernel_bandits.posterior import (
    ExactPosterior,
    FeaturePosterior,
    NystromPosterior,
    Posterior,
    SplitPosterior,
)
from kernel_bandits.rng import Seed, seed_of, stream
from kernel_bandits.tables import Features, TablePolicy
from kernel_bandits.values import evolve

__all__ = [
    "cbbkb",
    "cbkb",
    "cgp_ucb",
    "ek_ucb",
    "family_ucb",
    "inverse_gap_weighting",
    "k_ucb",
    "lin_ucb",
    "random_features_ucb",
    "sup_kernel_ucb",
    "thompson_sampling",
    "uniform",
]

P = ParamSpec("P")
T = TypeVar("T", bound=Policy)
T_co = TypeVar("T_co", bound=Policy, covariant=True)

# Anchors where nothing is set, at most: per arm, and for all actions together where they are described.
ARM_ANCHORS, JOINT_ANCHORS = 150, 400
_ONE_STANDARD_DEVIATION = StandardDeviations(1.0)
_KORS = Kors()
_INFORMATION = InformationSharpness()


class Preset(Protocol[P, T_co]):
    """A preset that returns a policy over arrays or, with ``features=``, one over a table."""

    __name__: str

    @overload
    def __call__(self, *arguments: P.args, **options: P.kwargs) -> T_co: ...

    @overload
    def __call__(self, kernel: KernelLike | None = None, *, features: Features, **options: Any) -> TablePolicy: ...


def takes_features(preset: Callable[P, T]) -> Preset[P, T]:
    """Let a preset take ``features=``, and return a policy over a table where it is given."""

    @functools.wraps(preset)
    def with_features(*arguments: Any, features: Features | None = None, **options: Any) -> Any:
        policy = preset(*arguments, **options)
        if isinstance(features, Features):
            policy.group_columns(features.layout.labels)
        return policy if features is None else TablePolicy(policy, features)

    signature = inspect.signature(preset)
    added = inspect.Parameter("features", inspect.Parameter.KEYWORD_ONLY, default=None, annotation="Features | None")
    parameters = [*signature.parameters.values(), added]
    with_features.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return cast("Preset[P, T]", with_features)


@takes_features
def ek_ucb(
    kernel: KernelLike | None = None,
    *,
    regularization: float = 0.1,
    learn_kernel: bool | KernelLearning | None = None,
    confidence: Confidence = _ONE_STANDARD_DEVIATION,
    dictionary: DictionaryRule = _KORS,
    exploration_floor: float = 0.0,
    forgetting: Forgetting | None = None,
    noise: UnequalNoise | None = None,
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
        noise: ``UnequalNoise()`` for noise that depends on context and action, and is learned; one λ unless given.
        features: the columns of a table, to use it by name; the preset then returns a :class:`TablePolicy`.
        seed: of the coins, tie-breaks and exploration.
    """
    posterior = _posterior(kernel, regularization, learn_kernel, as_rule(dictionary), seed, forgetting, noise)
    return _ucb(posterior, confidence, exploration_floor, seed, nothing_set=kernel is None)


@takes_features
def k_ucb(
    kernel: KernelLike | None = None,
    *,
    regularization: float = 0.1,
    learn_kernel: bool | KernelLearning | None = None,
    confidence: Confidence = _ONE_STANDARD_DEVIATION,
    exploration_floor: float = 0.0,
    forgetting: Forgetting | None = None,
    noise: UnequalNoise | None = None,
    seed: Seed = None,
) -> UpperConfidenceBound:
    """K-UCB: the exact posterior, O(t²) per action (the paper's Algorithm "Kernel UCB"). Options as for EK-UCB."""
    posterior = _posterior(kernel, regularization, learn_kernel, None, seed, forgetting, noise)
    return _ucb(posterior, confidence, exploration_floor, seed, nothing_set=kernel is None)


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

    Further options as for :func:`ek_ucb`.

    Args:
        confidence: the radius; by default :class:`KrauseOng` with the three numbers below.
        norm_bound: B ≥ ‖θ*‖ of that radius.
        noise_bound: R of that radius, the bound on the noise; √λ unless given.
        failure_probability: δ of that radius.
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

    Further options as for :func:`ek_ucb`.

    Args:
        oversampling: q̄ in p_i = min(1, q̄·σ²(s_i)); sets the dictionary size.
        batch_variance_limit: C; a batch ends when 1 + Σσ² over it exceeds C. Independent of q̄.
        keeps_first: whether the first point is an anchor until the first resampling, as in the published code.
    """
    rule = Resampling(oversampling=oversampling, batch_variance_limit=batch_variance_limit, keeps_first=keeps_first)
    return _ucb(
        NystromPosterior(kernel, regularization, rule, stream(seed, "coins")), confidence, exploration_floor, seed
    )


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

    Options as for :func:`cbbkb`.
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

    Further options as for :func:`ek_ucb`.

    Args:
        confidence: the radius β; :class:`~kernel_bandits.confidence.Tightened` and the other exact ones are valid.
        intercept: whether the model has a constant term.
        interactions: whether it has products of context and action columns.
    """
    kernel = Linear(offset=1.0 if intercept else 0.0)
    feature_map = InteractionFeatures(intercept) if interactions else LinearFeatures(intercept)
    return _ucb(FeaturePosterior(kernel, regularization, feature_map), confidence, exploration_floor, seed)


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

    Further options as for :func:`ek_ucb`.

    Args:
        kernel: Gaussian, Exponential or Matern; Gaussian only for quadrature.
        confidence: the radius β; none with a guarantee is valid, since the features span a fixed finite-dimensional
            space.
        number_of_features: D.
        feature_map: ``"random"``, or ``"quadrature"`` for at most three columns in context and action together.
    """
    fourier: RandomFourierFeatures | QuadratureFourierFeatures
    if feature_map == "random":
        fourier = RandomFourierFeatures(kernel, number_of_features, seed_of(seed, "coins"))
    elif feature_map == "quadrature":
        fourier = QuadratureFourierFeatures(kernel, number_of_features)
    else:
        raise InputError(f"feature_map: expected 'random' or 'quadrature', got {feature_map!r}.")
    return _ucb(FeaturePosterior(kernel, regularization, fourier), confidence, exploration_floor, seed)


@takes_features
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
    efficient one the bias term needs ‖(I − P)F^{1/2}‖² ≤ λ at every stage (``docs/theory.md``).

    Further options as for :func:`ek_ucb`.

    Args:
        horizon: T; sets the number of stages and the final width 1/√T.
        confidence: returns η, the multiple of σ that is called width; :class:`StageRadius` is that of the theory.
        dictionary: None for exact posteriors, or the rule of projected ones; each stage starts one of its own.
    """
    stages = _OfKernel(kernel, regularization, _Posteriors(rule_or_none(dictionary), seed_of(seed, "coins")))
    return SupKernelUCB(stages, confidence, horizon, stream(seed, "ties"))


@takes_features
def family_ucb(
    kernels: Sequence[KernelLike],
    *,
    confidence: Confidence,
    regularization: float = 0.1,
    weights: ArrayLike | None = None,
    play: Literal["balanced", "largest bound"] = "balanced",
    dictionary: DictionaryRule | None = _KORS,
    seed: Seed = None,
) -> FamilyUpperConfidenceBound:
    """UCB with a guarantee that accounts for choosing the kernel from the rewards, if one of several kernels is right.

    Further options as for :func:`ek_ucb`.

    Args:
        kernels: fixed beforehand; the expected reward lies in the space of at least one of them. To give a kernel
            another norm bound, scale it: the norm in the space of c·k is 1/√c times that in the space of k.
        confidence: a radius with a guarantee, such as :class:`Tightened`; its ``norm_bound`` and ``noise_bound`` hold
            for the right kernel, its ``failure_probability`` for the family.
        regularization: λ of every kernel.
        weights: how likely each kernel is before anything is seen, positive; equal unless given.
        play: ``"balanced"`` lets kernels take turns so that none costs more than the others; ``"largest bound"`` plays
            the largest bound over all of them, which is slower to learn but needs no assumption on contexts.
        dictionary: as for :func:`ek_ucb`, one dictionary for each kernel, with the history; None for exact posteriors,
            which refute sooner and cost O(t²) a round.
    """
    if isinstance(kernels, (str, bytes)) or not isinstance(kernels, Sequence) or not len(kernels):
        raise InputError(f"kernels: expected a list of kernels, got {kernels!r}.")
    if not isinstance(confidence, GuaranteedRadius) or not confidence.noise_bound > 0:
        raise InputError(
            f"confidence: a family of kernels needs a radius with a guarantee and noise_bound > 0, got {confidence!r}; "
            "write kernel_bandits.Tightened(norm_bound=…, noise_bound=…, failure_probability=…). Without a guarantee, "
            "learn the kernel: kernel_bandits.ek_ucb()."
        )
    share = as_vector("weights", np.ones(len(kernels)) if weights is None else weights, len(kernels))
    if not (np.isfinite(share).all() and (share > 0).all()):
        raise InputError(f"weights: expected positive numbers, one for each kernel, got {weights!r}.")
    if play not in ("balanced", "largest bound"):
        raise InputError(f"play: expected 'balanced' or 'largest bound', got {play!r}.")
    rule = None if dictionary is None else as_rule(dictionary)
    if rule is not None and rule.history != "all":
        raise InputError("dictionary: a family of kernels is judged by the whole history; use history='all'.")
    build = _Posteriors(rule, seed_of(seed, "coins"))
    posteriors = [build(kernel, regularization, number) for number, kernel in enumerate(kernels)]
    return FamilyUpperConfidenceBound(
        posteriors, confidence, share / share.sum(), play == "balanced", stream(seed, "ties")
    )


@takes_features
def thompson_sampling(
    kernel: KernelLike | None = None,
    *,
    regularization: float = 0.1,
    learn_kernel: bool | KernelLearning | None = None,
    scale: float = 1.0,
    number_of_draws: int = 100,
    dictionary: DictionaryRule | None = _KORS,
    exploration_floor: float = 0.0,
    seed: Seed = None,
) -> ThompsonSampling:
    """Thompson sampling on the posterior of EK-UCB, or with ``dictionary=None`` on that of K-UCB.

    Further options as for :func:`ek_ucb`.

    Args:
        scale: v, standard deviations are multiplied by it; 1 draws from the posterior itself.
        number_of_draws: of which one decides; the others estimate the probabilities.
        dictionary: as for :func:`ek_ucb`, or None for the exact posterior.
        exploration_floor: as for :func:`ek_ucb`; without it an action that wins no draw has probability 0.
    """
    posterior = _posterior(kernel, regularization, learn_kernel, dictionary, seed)
    draws = stream(seed, "exploration")
    return ThompsonSampling(posterior, stream(seed, "ties"), draws, scale, number_of_draws, exploration_floor)


@takes_features
def inverse_gap_weighting(
    kernel: KernelLike | None = None,
    *,
    regularization: float = 0.1,
    learn_kernel: bool | KernelLearning | None = None,
    sharpness: float | Sharpness = _INFORMATION,
    effective_actions: int | None = None,
    dictionary: DictionaryRule | None = _KORS,
    exploration_floor: float = 0.0,
    seed: Seed = None,
) -> InverseGapWeighting:
    """Inverse-gap weighting (SquareCB; Foster & Rakhlin 2020) on the mean of EK-UCB's posterior.

    Every action but the best is played with probability 1/(A + γ·gap), so every decision has exact probabilities, or a
    density in a box. Only means are needed, O(m) per action. Further options as for :func:`ek_ucb`.

    Args:
        sharpness: γ, in units of one over the reward: by default a schedule that follows what the model has learned; a
            number c for c·√t, or a :class:`~kernel_bandits.policy.Sharpness`.
        effective_actions: K; where more actions are offered they count as K, and less is explored. By default all rows
            count, and a box counts as 32.
        dictionary: as for :func:`ek_ucb`, or None for the exact posterior.
    """
    posterior = _posterior(kernel, regularization, learn_kernel, dictionary, seed)
    schedule = sharpness if isinstance(sharpness, Sharpness) else PowerSharpness(as_positive("sharpness", sharpness))
    exploration = Exploration(as_floor(exploration_floor), stream(seed, "exploration"))
    return InverseGapWeighting(posterior, schedule, stream(seed, "ties"), exploration, effective_actions)


@takes_features
def uniform(*, seed: Seed = None) -> Uniform:
    """Uniform play, the baseline that learns nothing."""
    return Uniform(stream(seed, "ties"))


def _ucb(
    posterior: Posterior, confidence: Confidence, exploration_floor: float, seed: Seed, nothing_set: bool = False
) -> UpperConfidenceBound:
    """Return UCB on a posterior; with nothing set the bonus is learned too, and play in a box begins with a design."""
    if nothing_set and confidence is _ONE_STANDARD_DEVIATION:
        confidence = LearnedDeviations()
    design = BoxDesign(seed_of(seed, "design")) if nothing_set else None
    exploration = as_exploration(exploration_floor, seed)
    return UpperConfidenceBound(posterior, confidence, stream(seed, "ties"), exploration, design)


def _posterior(
    kernel: KernelLike | None,
    regularization: float,
    learn_kernel: bool | KernelLearning | None,
    dictionary: DictionaryRule | None,
    seed: Seed,
    forgetting: Forgetting | None = None,
    noise: UnequalNoise | None = None,
) -> Posterior:
    """Return the posterior of a kernel as it is, or one that learns it; with ``forgetting`` one that forgets."""
    if noise is not None and not isinstance(noise, UnequalNoise):
        raise InputError(f"noise: expected UnequalNoise(), got {noise!r}; give the noise of one reward to update.")
    as_positive("regularization", regularization)
    learning, rule = _when_learned(kernel, learn_kernel), rule_or_none(dictionary)
    half_life = None if forgetting is None else require_forgetting(forgetting).time_half_life
    fresh: _OfKernel | _Learned
    if learning is None:
        assert kernel is not None
        timed = kernel if half_life is None else Timed(kernel, half_life)
        fresh = _OfKernel(timed, regularization, _Posteriors(rule, seed_of(seed, "coins")))
    elif half_life is not None:
        raise InputError(
            "forgetting: a kernel in time needs a kernel that is given and fixed; pass one, or another rule."
        )
    else:
        learner: Learner[Any]
        posteriors = _Posteriors(None if rule is None else rule.for_learned_kernel(), seed_of(seed, "coins"))
        if kernel is None:
            joint, own = posteriors.capped(JOINT_ANCHORS), posteriors.capped(ARM_ANCHORS)
            learner = MixedLearner(joint, own, Columns(variables=learning.groups))
        else:
            learner = StationaryLearner(posteriors, RewardModel.of(kernel, regularization), learning)
        fresh = _Learned(learner, learning, seed_of(seed, "learning"))
    if forgetting is None and noise is None:
        return fresh()
    return ForgettingPosterior(fresh, Forgetting() if forgetting is None else forgetting, noise)


def _when_learned(kernel: KernelLike | None, learn_kernel: bool | KernelLearning | None) -> KernelLearning | None:
    """Return when the kernel is learned, or None where it stays as it is given."""
    if learn_kernel is None:
        learn_kernel = kernel is None
    if learn_kernel is False:
        if kernel is None:
            raise InputError("kernel: without one it has to be learned; leave learn_kernel out, or give a kernel.")
        return None
    if learn_kernel is not True and not isinstance(learn_kernel, KernelLearning):
        raise InputError(f"learn_kernel: expected True, False or a KernelLearning, got {learn_kernel!r}.")
    return KernelLearning() if learn_kernel is True else learn_kernel


@dataclass(frozen=True)
class _Posteriors:
    """Builds posteriors of one kind; those with a dictionary have coins of their own for each number, if one is given.

    Attributes:
        rule: of the dictionary; None for exact posteriors.
        seed: of the coins.
    """

    rule: DictionaryRule | None
    seed: np.random.SeedSequence

    def __call__(self, kernel: KernelLike, regularization: float, number: int | None = None) -> Posterior:
        if self.rule is None:
            return ExactPosterior(kernel, regularization)
        own = () if number is None else (number,)
        coins = np.random.default_rng(np.random.SeedSequence(self.seed.entropy, spawn_key=(*self.seed.spawn_key, *own)))
        return NystromPosterior(kernel, regularization, self.rule, coins)

    def capped(self, size: int) -> _Posteriors:
        """Return the same, with this many anchors at most unless the rule has a cap of its own."""
        return self if self.rule is None else _Posteriors(self.rule.capped(size), self.seed)

    def reseeded(self, entropy: int) -> _Posteriors:
        """Return the same with coins of another seed."""
        return replace(self, seed=np.random.SeedSequence(entropy, spawn_key=self.seed.spawn_key))


@dataclass(frozen=True)
class _OfKernel:
    """Builds posteriors of a given kernel: of stages, or those that follow each other as observations are forgotten."""

    kernel: KernelLike
    regularization: float
    posteriors: _Posteriors

    def __call__(self, number: int | None = None, before: Posterior | None = None) -> Posterior:
        """Return one for each arm where arms share nothing, otherwise a joint one."""
        del before  # the kernel is given
        own = with_defaults(self.kernel)
        if own.of_each_arm() is not None:
            return SplitPosterior(own, self.regularization, self.posteriors)
        return self.posteriors(self.kernel, self.regularization, number)

    def reseeded(self, entropy: int) -> _OfKernel:
        """Return the same with coins of another seed."""
        return replace(self, posteriors=self.posteriors.reseeded(entropy))


@dataclass(frozen=True)
class _Learned:
    """Builds posteriors that learn their kernel, each from nothing but its own observations."""

    learner: Learner[Any]
    learning: KernelLearning
    seed: np.random.SeedSequence

    def __call__(self, number: int | None = None, before: Posterior | None = None) -> Posterior:
        del number  # the sample is drawn by the number of observations
        # what the columns and the box are is known to the learner of the posterior before
        learner = before.learner if isinstance(before, LearnedPosterior) else self.learner
        fresh = LearnedPosterior(copy.copy(learner), self.learning, self.seed)
        return fresh if before is None else evolve(fresh, failures=before.failures)

    def reseeded(self, entropy: int) -> _Learned:
        """Return the same with coins and samples of another seed."""
        seed = np.random.SeedSequence(entropy, spawn_key=self.seed.spawn_key)
        return replace(self, learner=self.learner.reseeded(entropy), seed=seed)
