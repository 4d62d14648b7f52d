"""Radii of the confidence set: how many of the paper's σ the upper bound lies above the mean.

A radius object returns the paper's β for a posterior; the bonus of an action is β·std/√λ. Practical radii come first.
The others hold θ*, the unknown reward function, with probability 1 − δ for all rounds at once, under the assumptions
that their arguments name: ``norm_bound`` B ≥ ‖θ*‖ in the kernel's space, noise that is R-sub-Gaussian with
``noise_bound`` R (a standard deviation, in the units of the reward), and ``failure_probability`` δ in (0, 1). Each says
for which posteriors it is valid and refuses the others. Where rewards are awaited, standard deviations count their
points already and the mean does not; β then grows by as much as they shrank at most, so that the bounds hold.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

from kernel_bandits.arrays import as_count, as_positive
from kernel_bandits.errors import InputError
from kernel_bandits.posterior.base import Approximation, Posterior
from kernel_bandits.theory import capacity_factor, number_of_stages, projected_excess


class Confidence(ABC):
    """A rule for the radius β of the confidence set."""

    @abstractmethod
    def radius(self, posterior: Posterior) -> float:
        """Return the paper's β for the next round; enters the upper bound linearly, as β·std/√λ."""


class FixedRadius(Confidence):
    """A radius that depends on λ alone: the same at every round, whatever is observed."""


@dataclass(frozen=True)
class ConstantRadius(FixedRadius):
    """β = value at every round, the paper's practice (it used 0.1)."""

    value: float

    def __post_init__(self) -> None:
        _require_non_negative("value", self.value)

    def radius(self, posterior: Posterior) -> float:  # noqa: ARG002 (the same for every posterior)
        return self.value


@dataclass(frozen=True)
class StandardDeviations(FixedRadius):
    """β = number·√λ: the bonus is ``number`` Gaussian-process standard deviations, whatever λ.

    The default of every policy, with number = 1: the setting that works on all environments here.
    """

    number: float = 1.0

    def __post_init__(self) -> None:
        _require_non_negative("number", self.number)

    def radius(self, posterior: Posterior) -> float:
        return self.number * math.sqrt(posterior.regularization)


@dataclass(frozen=True)
class LearnedDeviations(Confidence):
    """The number of standard deviations that the posterior has learned to be worth exploring.

    The default where the kernel is learned. One, unless rewards have two values; then as many as lie between the mean
    and the best that may be hoped for (:class:`~kernel_bandits.learning.mixed.MixedSample`).
    """

    def radius(self, posterior: Posterior) -> float:
        return posterior.bonus * math.sqrt(posterior.regularization)


@dataclass(frozen=True, kw_only=True)
class GuaranteedRadius(Confidence):
    """A radius that holds with probability 1 − δ for all rounds at once; abstract.

    Attributes:
        valid_for: the posteriors that it is proved for.
    """

    valid_for: ClassVar[tuple[Approximation, ...]] = ("exact",)

    norm_bound: float  # B ≥ ‖θ*‖, the norm of the expected reward in the kernel's space
    noise_bound: float  # R, noise of weight w is R/√w-sub-Gaussian; a Gaussian of that standard deviation is
    failure_probability: float  # δ in (0, 1)

    def __post_init__(self) -> None:
        _require_non_negative("norm_bound", self.norm_bound)
        _require_non_negative("noise_bound", self.noise_bound)
        if not 0.0 < self.failure_probability < 1.0:
            given = self.failure_probability
            raise InputError(f"failure_probability: expected a number between 0 and 1, got {given!r}.")

    @property
    def _log_failure(self) -> float:
        return math.log(1.0 / self.failure_probability)

    @abstractmethod
    def settled_radius(self, posterior: Posterior) -> float:
        """Return the β that belongs to standard deviations of observed points alone."""

    def radius(self, posterior: Posterior) -> float:
        self._require(posterior)
        # σ² ≤ σ_pending²·max σ²/σ_pending²
        return self.settled_radius(posterior) * math.sqrt(posterior.pending_shrinkage)

    def require_covers_noise(self, regularization: float) -> None:
        """Raise unless R covers noise whose variance is given, which the posterior scales to variance λ."""
        # a root of 0.1² is rounded
        if self.noise_bound < math.sqrt(regularization) * (1.0 - 1e-9):
            raise InputError(
                f"noise_variance: {type(self).__name__}(noise_bound={self.noise_bound:g}) is told the noise of rewards "
                f"of weight 1, and here that is √λ = {math.sqrt(regularization):.4g}, since a weight is λ/variance. "
                f"Give noise_bound={math.sqrt(regularization):.4g} or more, or weight={self.noise_bound:g}²/variance "
                "in place of noise_variance."
            )

    def _require(self, posterior: Posterior) -> None:
        if posterior.learns_kernel:
            raise InputError(
                f"confidence: {type(self).__name__} holds for a kernel that is fixed beforehand, and this one is "
                "learned from the same rewards, which makes the set too small. Give a kernel and learn_kernel=False; "
                "or, if one of several is right, write kernel_bandits.family_ucb([…], confidence=…), whose guarantee "
                "counts the choice. StandardDeviations works with a learned kernel, without a guarantee."
            )
        if posterior.forgets:
            raise InputError(
                f"confidence: {type(self).__name__} holds for observations that keep their weight, and this posterior "
                "forgets them: its set then misses the truth sooner or later, even without drift. Leave forgetting= "
                "out; or write kernel_bandits.StandardDeviations(…), which has no guarantee."
            )
        if posterior.approximation not in self.valid_for:
            raise InputError(
                f"confidence: {type(self).__name__} is valid for {' and '.join(self.valid_for)} posteriors, and this "
                f"one is {posterior.approximation}; Tightened covers exact, projected and history-free ones, "
                "StandardDeviations works everywhere without a guarantee."
            )


@dataclass(frozen=True, kw_only=True)
class _OfThePaper(GuaranteedRadius):
    """A radius of the paper's lemmas, with the complexity they take."""

    kernel_bound: float = 1.0
    complexity: Literal["effective_dimension", "log_determinant"] = "effective_dimension"

    def __post_init__(self) -> None:
        super().__post_init__()
        as_positive("kernel_bound", self.kernel_bound)
        if self.complexity not in ("effective_dimension", "log_determinant"):
            given = self.complexity
            raise InputError(f"complexity: expected 'effective_dimension' or 'log_determinant', got {given!r}.")

    def _complexity(self, posterior: Posterior, excess: float) -> float:
        """Return log(e + etκ²/λ)·d_eff or log det(I + K/λ), of which the posterior tracks all but the excess."""
        log_determinant = posterior.log_determinant + excess
        if self.complexity == "log_determinant":
            return log_determinant
        factor = capacity_factor(posterior.round_index, posterior.regularization, self.kernel_bound)
        # the larger by Proposition 3.1, unless κ is too small for the kernel or for the weights of observations
        return max(factor * (posterior.effective_dimension + excess), log_determinant)


@dataclass(frozen=True, kw_only=True)
class Lemma31(_OfThePaper):
    """Lemma 3.1 of the paper, for exact posteriors: β = √λ·B + R·√(2·log(1/δ) + complexity).

    The complexity is log(e + etκ²/λ)·d_eff as printed in the lemma, or the smaller log det(I + K/λ) of its proof. The
    paper takes R = 1 and states probability 1 − Tδ; its supermartingale argument holds for all t at once, so 1 − δ.

    Args:
        kernel_bound: κ with k(s, s) ≤ κ².
        complexity: ``"effective_dimension"`` (as printed) or ``"log_determinant"``.
    """

    def settled_radius(self, posterior: Posterior) -> float:
        # β = √λB + R√(2 log(1/δ) + complexity)
        noise = self.noise_bound * math.sqrt(2.0 * self._log_failure + self._complexity(posterior, 0.0))
        return math.sqrt(posterior.regularization) * self.norm_bound + noise


@dataclass(frozen=True, kw_only=True)
class Lemma41(_OfThePaper):
    """Lemma 4.1 of the paper, for projected posteriors: β = (√λ + √μ_t)·B + R·√(4·log(1/δ) + 2·complexity).

    μ_t = ‖(I − P_t)F_t^{1/2}‖² is not known; the residual trace ρ ≥ μ_t stands for it, or a bound that you have, such
    as KORS's μ where Proposition 4.1 applies. The complexity is of the exact Gram matrix K; what the posterior tracks
    is of the projected K̃, and d_eff(K) ≤ d_eff(K̃) + ρ/λ, log det(I + K/λ) ≤ log det(I + K̃/λ) + ρ/λ.

    Args:
        kernel_bound: κ with k(s, s) ≤ κ².
        complexity: ``"effective_dimension"`` (as printed) or ``"log_determinant"``.
        projection_error: a bound on μ_t that holds for all t; none by default.
    """

    valid_for: ClassVar[tuple[Approximation, ...]] = ("exact", "projected")

    projection_error: float = math.inf

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_projection_error(self.projection_error)

    def settled_radius(self, posterior: Posterior) -> float:
        complexity = self._complexity(posterior, posterior.residual_trace / posterior.regularization)
        # β̃ = (√λ + √μ_t)B + R√(4 log(1/δ) + 2·complexity)
        noise = self.noise_bound * math.sqrt(4.0 * self._log_failure + 2.0 * complexity)
        error = min(posterior.residual_trace, self.projection_error)
        return (math.sqrt(posterior.regularization) + math.sqrt(error)) * self.norm_bound + noise


@dataclass(frozen=True, kw_only=True)
class Tightened(GuaranteedRadius):
    """The smallest radius here with a proof, for exact, projected and history-free posteriors.

    - exact: β² = λB² + R²(2·log(1/δ) + log det(I + K/λ)), the method of mixtures applied to the likelihood ratio of θ*
      against the prior, so that bias and noise add as squares: the AMM radius of Flynn et al. (2023);
    - projected: β = √(λ + min(μ*, ρ))·B + R·√(2·log(1/δ) + log det(I + K̃/λ) + t·log(1 + ρ/(tλ))): the factor 2 of
      Lemma 4.1 is exactly 1 since Ṽ^{-1/2}PVPṼ^{-1/2} = P, and its two bias terms are one vector, −√λθ* beside
      Φ(I − P)θ*, seen through Ṽ^{-1/2}[√λI, PΦ*], whose norm is 1;
    - history-free: β = √(λ + ρ)·B + R·√(2·log(1/δ) + log det): each point is seen through the projection of its own
      round, a predictable feature whose bias is at most B·√residual.

    Args:
        projection_error: μ*, a bound on ‖(I − P_t)F_t^{1/2}‖² that holds for all t; none by default.
    """

    valid_for: ClassVar[tuple[Approximation, ...]] = ("exact", "projected", "history-free")

    projection_error: float = math.inf

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_projection_error(self.projection_error)

    def settled_radius(self, posterior: Posterior) -> float:
        ridge, residual = posterior.regularization, posterior.residual_trace
        deviation = 2.0 * self._log_failure + posterior.log_determinant
        if posterior.approximation == "exact":
            # β² = λB² + R²(2 log(1/δ) + log det)
            return math.sqrt(ridge * self.norm_bound**2 + self.noise_bound**2 * deviation)
        error = residual
        if posterior.approximation == "projected":
            # log det(I + K/λ) ≤ log det(I + K̃/λ) + t·log(1 + ρ/(tλ))
            deviation += projected_excess(residual, posterior.round_index, ridge)
            error = min(residual, self.projection_error)
        return math.sqrt(ridge + error) * self.norm_bound + self.noise_bound * math.sqrt(deviation)


@dataclass(frozen=True, kw_only=True)
class ChowdhuryGopalan(GuaranteedRadius):
    """Improved GP-UCB (Chowdhury & Gopalan 2017, Theorem 2), for exact posteriors.

    In Gaussian-process standard deviations: B + R·√(2(γ_t + 1 + log(1/δ))) at ridge 1 + 2/T. At another ridge λ the
    kernel is rescaled by (1 + 2/T)/λ, which gives β = √λ·B + R·√(1 + 2/T)·√(2(γ_t + 1 + log(1/δ))). γ_t is the
    information gain of the observed points, which is what their proof uses.

    Args:
        horizon: T; valid up to that many observations, and refused beyond.
    """

    horizon: int

    def __post_init__(self) -> None:
        super().__post_init__()
        as_count("horizon", self.horizon)

    def settled_radius(self, posterior: Posterior) -> float:
        if posterior.round_index > self.horizon:
            raise InputError(
                f"confidence: ChowdhuryGopalan(horizon={self.horizon}) holds up to {self.horizon} observations, and "
                f"there are {posterior.round_index}; give a larger horizon, or Tightened, which has none."
            )
        gain = 2.0 * (posterior.information_gain + 1.0 + self._log_failure)
        noise = self.noise_bound * math.sqrt((1.0 + 2.0 / self.horizon) * gain)
        return math.sqrt(posterior.regularization) * self.norm_bound + noise


@dataclass(frozen=True, kw_only=True)
class KrauseOng(GuaranteedRadius):
    """CGP-UCB (Krause & Ong 2011, Theorem 1, case 3, after Srinivas et al. 2010), for exact posteriors.

    In Gaussian-process standard deviations: √(2B² + 300·γ_t·log³(t/δ)) at ridge R². At another ridge λ the kernel is
    rescaled by R²/λ, which gives β² = 2λB² + 300·R²·γ_t·log³(t/δ). The theorem asks for noise *bounded* by R, and for
    the largest information gain γ_t over all sets of t points; pass a bound on it as ``maximum_information_gain``, or
    the gain of the t − 1 observed points is taken, as is usual. The 300 is the theorem's: expect a lot of exploration.

    Args:
        maximum_information_gain: a bound on γ_t, or None for the gain of the observed points.
    """

    maximum_information_gain: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.maximum_information_gain is not None:
            _require_non_negative("maximum_information_gain", self.maximum_information_gain)

    def settled_radius(self, posterior: Posterior) -> float:
        gain = self.maximum_information_gain
        gain = posterior.information_gain if gain is None else gain
        logarithm = math.log((posterior.round_index + 1) / self.failure_probability)
        # β² = 2λB² + 300·R²·γ_t·log³(t/δ)
        bias = 2.0 * posterior.regularization * self.norm_bound**2
        return math.sqrt(bias + 300.0 * self.noise_bound**2 * gain * logarithm**3)


@dataclass(frozen=True, kw_only=True)
class StageRadius(GuaranteedRadius):
    """The η with which SupKernelUCB has a regret bound, exact or efficient (``docs/theory.md``).

    η = √(λ + min(μ*, ρ))·B + R·√(2·log(2TAS/δ)), with ρ = 0 on an exact posterior and ρ for min(μ*, ρ) on a
    history-free one: no log-determinant, because the rewards of a stage are independent given its points. Valid inside
    SupKernelUCB alone, for T rounds of at most A actions, and contexts that do not depend on rewards.

    Args:
        horizon: T.
        number_of_actions: A, the most actions that are offered in a round.
        projection_error: μ*, a bound on ‖(I − P)F^{1/2}‖² of every projected stage; none by default, which needs no
            assumption.
    """

    valid_for: ClassVar[tuple[Approximation, ...]] = ("exact", "projected", "history-free")

    horizon: int
    number_of_actions: int
    projection_error: float = math.inf

    def __post_init__(self) -> None:
        super().__post_init__()
        as_count("horizon", self.horizon)
        as_count("number_of_actions", self.number_of_actions)
        _check_projection_error(self.projection_error)

    def settled_radius(self, posterior: Posterior) -> float:
        intervals = 2.0 * self.horizon * self.number_of_actions * number_of_stages(self.horizon)
        error = posterior.residual_trace
        if posterior.approximation == "projected":
            error = min(error, self.projection_error)
        deviation = 2.0 * (math.log(intervals) + self._log_failure)
        bias = math.sqrt(posterior.regularization + error) * self.norm_bound
        return bias + self.noise_bound * math.sqrt(deviation)

    def require_covers(self, rounds: int, number_of_actions: int) -> None:
        """Raise unless it counts this many rounds, each with this many actions."""
        if rounds > self.horizon:
            raise InputError(
                f"confidence: StageRadius(horizon={self.horizon}) counts {self.horizon} rounds, and {rounds} are "
                "played; give the same horizon= here and to sup_kernel_ucb, at least as many as there will be."
            )
        if number_of_actions > self.number_of_actions:
            raise InputError(
                f"confidence: StageRadius(number_of_actions={self.number_of_actions}) holds for at most that many "
                f"actions a round, and {number_of_actions} are offered; give the largest number that will be."
            )


def _check_projection_error(value: float) -> None:
    if not value >= 0:
        raise InputError(f"projection_error: expected a number of at least 0, got {value!r}.")


def _require_non_negative(name: str, value: float) -> None:
    if not (isinstance(value, (int, float)) and math.isfinite(value) and value >= 0):
        raise InputError(f"{name}: expected a finite number of at least 0, got {value!r}.")


def require_radius(confidence: Confidence, posterior: Posterior, *, in_stages: bool = False) -> None:
    """Raise unless it is a radius object that is valid for the posterior, alone or as a stage of SupKernelUCB."""
    if not isinstance(confidence, Confidence):
        raise InputError(
            f"confidence: expected a radius object, got {confidence!r}; "
            "for one posterior standard deviation write kernel_bandits.StandardDeviations(1.0)."
        )
    if isinstance(confidence, StageRadius) and not in_stages:
        raise InputError(
            "confidence: StageRadius holds where rewards are independent given the points, in sup_kernel_ucb alone; "
            "write kernel_bandits.Tightened(…) here."
        )
    confidence.radius(posterior)
