"""Confidence sequences: intervals of a mean that hold at every time at once, so that they may be watched.

A sequence is a small value. ``sequence.after(values)`` returns the sequence after one value or a block of them, in O(1)
memory, and ``sequence.interval`` is valid at whatever time the log is read or the experiment is stopped. Observations
are fed in the order of the decisions, and what a round adds may depend on the rounds before it: the probabilities of a
policy that learns, the predictions of a model.

All but :class:`SubGaussianMean` rest on one inequality (Howard et al. 2021, Theorem 4). Let the
terms X have conditional expectations μ, and let guesses X̂, made before, satisfy X − X̂ ≥ −c. With S = Σ(X − μ) and
V = Σ(X − X̂)²,

    exp(λS − ψ(λ)V),  ψ(λ) = (−log(1 − cλ) − cλ)/c²,

is a supermartingale for each λ in [0, 1/c). It is averaged over λ, 1 − cλ having a truncated gamma density, in closed
form; the average exceeds 1/α at any time with probability α at most. Only a bound from below is needed, so importance
weights may be as large as they come. Without drift the interval contains the mean; with drift it contains the average
of the μ so far.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, TypeAlias, final

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from kernel_bandits.arrays import FloatArray, as_floats, as_probability
from kernel_bandits.errors import InputError

# A state holds numbers; along a path, or for several logs at once, it holds arrays.
Numbers: TypeAlias = Any
# ρ of the mixture in units of c². It is best near V = 100c² and costs little elsewhere: from V = 30c² to 10⁵c² an
# interval of level 0.95 is at most twice as long as the normal one of a fixed time.
MIXTURE = 16.0
# Above this, Stirling's formula is more accurate than a difference of large numbers.
LARGE = 1e7
# Newton's method starts above the root of a convex function, and no V, α needed more than eleven steps.
STEPS = 30
# Where a model's part of a term is cut, in ranges of the reward. A low cut suits weights near 1, a high one weights
# near 100; the better of both costs about 7 % more than the one that would have been right
# (python benchmarks/off_policy_watched.py 100 caps).
CAPS = (2.0, 16.0)


def log_mixture(s: FloatArray, v: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the logarithm of the mixture of exp(λs − ψ(λ)v) over λ, where c is 1, and its slope in s.

    With a = v + ρ, x = s + a and the regularised incomplete gamma function P (Howard et al. 2021, Proposition 9),

        m(s, v) = ρ^ρ/(Γ(ρ)·P(ρ, ρ)) · Γ(a)·P(a, x)/x^a · exp(s + v)
        d log m/ds = s/x + x^{a−1}e^{−x}/(Γ(a)·P(a, x))
    """
    a, rho = v + MIXTURE, MIXTURE
    x, mass = s + a, scipy.special.gammainc(a, s + a)
    constant = scipy.special.xlogy(rho, rho) - scipy.special.gammaln(rho) - np.log(scipy.special.gammainc(rho, rho))
    # log Γ(a) − a·log x + s + v, whose parts cancel where a is large: by Stirling's formula there
    exact = scipy.special.gammaln(a) - a * np.log(x) + s + v
    series = 0.5 * np.log(2.0 * np.pi / a) - rho + a * (s / a - np.log1p(s / a))
    core = np.where(a < LARGE, exact, series)
    return constant + core + np.log(mass), s / x + np.exp(-core - rho) / (x * mass)


def excess(variance: ArrayLike, failure_probability: float) -> FloatArray:
    """Return the s that S exceeds at any time with the given probability at most, where V is ``variance`` and c is 1.

    It solves m(s, v) = 1/α by Newton's method.
    """
    v, threshold = np.asarray(variance, dtype=np.float64), -np.log(failure_probability)
    # the sub-gamma bound at λ = √(2ℓ/a), with room for the mixture, lies above the root
    room = threshold + np.log1p(v / MIXTURE) + 1.0
    s = np.sqrt(2.0 * (v + MIXTURE) * room) + 2.0 * room
    for _ in range(STEPS):
        value, slope = log_mixture(s, v)
        step = (value - threshold) / slope
        s = np.maximum(s - step, 0.0)
        if np.all(np.abs(step) <= 1e-12 * (1.0 + s)):
            break
    return s


@dataclass(frozen=True, slots=True)
class Sums:
    """What a bound needs of the terms X and their guesses X̂.

    Attributes:
        count: t, the number of terms.
        total: ΣX.
        squares: V = Σ(X − X̂)².
    """

    count: Numbers = 0
    total: Numbers = 0.0
    squares: Numbers = 0.0

    def path(self, terms: FloatArray, guesses: FloatArray) -> Sums:
        """Return the sums after each of the terms (…, n)."""
        return Sums(self._counts(terms), running(self.total, terms), running(self.squares, (terms - guesses) ** 2))

    def means_before(self, terms: FloatArray, first: float) -> FloatArray:
        """Return, for each term, the mean of ``first`` and all terms before it."""
        return (first + running(self.total, terms) - terms) / self._counts(terms)

    def _counts(self, terms: FloatArray) -> NDArray[np.intp]:
        return np.asarray(np.asarray(self.count)[..., None] + np.arange(1, terms.shape[-1] + 1))

    def at(self, places: Any) -> Sums:
        """Return the sums at some places of a path; −1 is its end."""
        return Sums(*(_at(value, places) for value in (self.count, self.total, self.squares)))

    def times(self, factor: float) -> Sums:
        """Return what the sums are after so many times as many rounds, if all goes on as it did."""
        return Sums(factor * self.count, factor * self.total, factor * self.squares)

    @property
    def mean(self) -> Numbers:
        """The mean of the terms; NaN without terms."""
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = np.divide(self.total, self.count)
        return mean.item() if np.ndim(mean) == 0 else mean

    def lower_bound(self, scale: float | FloatArray, failure_probability: float) -> Numbers:
        """Return the bound from below of the mean of the μ_t, where X − X̂ ≥ −``scale``; −∞ without terms."""
        with np.errstate(divide="ignore", invalid="ignore"):
            above = scale * excess(np.divide(self.squares, np.square(scale)), failure_probability)
            return np.where(np.asarray(self.count) > 0, (self.total - above) / self.count, -np.inf)

    def bounds(self, scale: float, level: float) -> tuple[Numbers, Numbers]:
        """Return both bounds of terms that are never further than ``scale`` from their guesses."""
        low = self.lower_bound(scale, 0.5 * (1.0 - level))
        with np.errstate(invalid="ignore"):
            return low, np.where(np.asarray(self.count) > 0, 2.0 * np.asarray(self.mean) - low, np.inf)


def running(start: Numbers, steps: FloatArray) -> FloatArray:
    """Return a sum after each of the steps along the last axis."""
    return np.asarray(start)[..., None] + np.cumsum(steps, axis=-1)


def _at(value: Numbers, places: Any) -> Numbers:
    """Return some places of a path, a plain number where there is one."""
    found = np.asarray(value)[..., places]
    return found.item() if found.ndim == 0 else found


def _block(name: str, values: ArrayLike) -> FloatArray:
    """Return values as a block: one value is a block of one."""
    block = np.atleast_1d(as_floats(name, values))
    if not np.isfinite(block).all():
        raise InputError(f"{name}: expected finite numbers, got {block[~np.isfinite(block)][0]}.")
    return block


def _within(name: str, values: ArrayLike, low: float, high: float) -> FloatArray:
    block = _block(name, values)
    outside = (block < low) | (block > high)
    if outside.any():
        raise InputError(
            f"{name}: expected numbers from {low:g} to {high:g}, got {block[outside][0]:g}; give the lowest and the "
            "highest value that is possible, as low= and high=, before the first observation."
        )
    return block


def _require(level: float, low: float = 0.0, high: float = 1.0) -> None:
    as_probability("level", level)
    if not -np.inf < low < high < np.inf:
        raise InputError(f"low, high: expected finite numbers with low < high, got {low!r} and {high!r}.")


def _ends(low: Numbers, high: Numbers) -> tuple[Numbers, Numbers]:
    """Return the ends of an interval, as plain numbers where there is one."""
    return (low.item(), high.item()) if np.ndim(low) == 0 else (low, high)


class ConfidenceSequence(ABC):
    """An interval of a mean that may be looked at after every observation.

    Attributes:
        sums: of the terms so far.
    """

    __slots__ = ()
    sums: Sums

    @abstractmethod
    def path(self, *observations: Any, **options: Any) -> Self:
        """Return the sequence after each observation of a block: what it returns are arrays."""

    @property
    @abstractmethod
    def interval(self) -> tuple[Numbers, Numbers]:
        """The interval, valid at all times at once."""

    @final
    def after(self, *observations: Any, **options: Any) -> Self:
        """Return the sequence after one observation or a block of them; the arguments are those of :meth:`path`."""
        path = self.path(*observations, **options)
        return path.at(-1) if np.size(path.count) else self

    def at(self, places: Any) -> Self:
        """Return a path at some of its places; −1 is its end."""
        return replace(self, sums=self.sums.at(places))  # type: ignore[type-var]

    @property
    def count(self) -> Numbers:
        """The number of observations so far."""
        return self.sums.count

    @property
    def estimate(self) -> Numbers:
        """The mean so far, which is unbiased; NaN without observations."""
        return self.sums.mean


@dataclass(frozen=True, slots=True)
class BoundedMean(ConfidenceSequence):
    """The mean of bounded rewards, such as clicks, of one group.

    Args:
        low: the lowest reward that is possible.
        high: the highest.
        level: of the intervals.
    """

    low: float = 0.0
    high: float = 1.0
    level: float = 0.95
    sums: Sums = Sums()

    def __post_init__(self) -> None:
        _require(self.level, self.low, self.high)

    def path(self, values: ArrayLike) -> Self:
        block = _within("values", values, self.low, self.high)
        guesses = self.sums.means_before(block, 0.5 * (self.low + self.high))
        return replace(self, sums=self.sums.path(block, guesses))

    @property
    def interval(self) -> tuple[Numbers, Numbers]:
        low, high = self.sums.bounds(self.high - self.low, self.level)
        return _ends(np.maximum(low, self.low), np.minimum(high, self.high))


@dataclass(frozen=True, slots=True)
class SubGaussianMean(ConfidenceSequence):
    """The mean of rewards whose noise is sub-Gaussian, as normal noise is, with a known deviation.

    The mixture of exp(λS − λ²V/2), V = tσ², over a normal λ gives S² < (V + ρ)(log(1 + V/ρ) + 2·log(1/α)) at all times.

    Args:
        noise: σ, or an upper bound of it.
        level: of the intervals.
    """

    noise: float
    level: float = 0.95
    sums: Sums = Sums()

    def __post_init__(self) -> None:
        if not 0.0 < self.noise < np.inf:
            raise InputError(f"noise: expected a finite standard deviation above 0, got {self.noise!r}.")
        _require(self.level)

    def path(self, values: ArrayLike) -> Self:
        block = _block("values", values)
        return replace(self, sums=self.sums.path(block, block))

    @property
    def interval(self) -> tuple[Numbers, Numbers]:
        count, rho = np.asarray(self.count, dtype=np.float64), MIXTURE
        half = self.noise * np.sqrt((count + rho) * (np.log1p(count / rho) - 2.0 * np.log(1.0 - self.level)))
        with np.errstate(divide="ignore", invalid="ignore"):
            half = np.where(count > 0, half / count, np.inf)
            center = np.where(count > 0, np.asarray(self.estimate), 0.0)
        return _ends(center - half, center + half)


@dataclass(frozen=True, slots=True)
class ArmDifference(ConfidenceSequence):
    """The mean reward of one group of an experiment less that of another, such as a policy and its control group.

    Each round is assigned to one of the two at random, with a probability that is known beforehand and may change from
    round to round. The terms are augmented inverse propensity weights with the running means q of the groups,

        X = q₁ − q₀ + [first]·(r − q₁)/p − [second]·(r − q₀)/(1 − p),

    whose conditional expectation is the difference whatever q is.

    Args:
        low: the lowest reward that is possible.
        high: the highest.
        least_share: the least probability with which a round is assigned to either group.
        level: of the intervals.

    Attributes:
        counts: how many rounds each group had: the first, the second.
        totals: of their rewards.
    """

    low: float = 0.0
    high: float = 1.0
    least_share: float = 0.5
    level: float = 0.95
    sums: Sums = Sums()
    counts: tuple[Numbers, Numbers] = (0, 0)
    totals: tuple[Numbers, Numbers] = (0.0, 0.0)

    def __post_init__(self) -> None:
        _require(self.level, self.low, self.high)
        if not 0.0 < self.least_share <= 0.5:
            raise InputError(f"least_share: expected a probability above 0 and at most 0.5, got {self.least_share!r}.")

    def path(self, first: ArrayLike, rewards: ArrayLike, probability: ArrayLike = 0.5) -> Self:
        """Return the sequence after each of the rounds: what it returns are arrays.

        Args:
            first: whether a round was assigned to the first group.
            rewards: of the rounds.
            probability: with which each was assigned to the first group.
        """
        chosen = np.atleast_1d(np.asarray(first))
        if chosen.dtype.kind != "b":
            raise InputError(f"first: expected True or False for each round, got {chosen.dtype}.")
        values = _within("rewards", rewards, self.low, self.high)
        share = np.broadcast_to(_block("probability", probability), values.shape)
        # shares such as 1 − 0.9 are rounded
        least = self.least_share * (1.0 - 1e-9)
        if ((share < least) | (share > 1.0 - least)).any():
            raise InputError(
                f"probability: expected {self.least_share:g} to {1.0 - self.least_share:g}, as least_share= says, got "
                f"{share[(share < least) | (share > 1.0 - least)][0]:g}."
            )
        if chosen.shape != values.shape:
            raise InputError(f"first: expected one for each of {values.shape} rewards, got {chosen.shape}.")
        middle = 0.5 * (self.low + self.high)
        guesses: Numbers = 0.0
        correction: Numbers = 0.0
        counts: list[FloatArray] = []
        totals: list[FloatArray] = []
        for group, sign, weight in ((chosen, 1.0, 1.0 / share), (~chosen, -1.0, 1.0 / (1.0 - share))):
            place, own = len(counts), np.where(group, values, 0.0)
            counts.append(running(self.counts[place], group))
            totals.append(running(self.totals[place], own))
            # q, the mean of the middle of the range and all rewards of the group before this round
            mean = (middle + totals[-1] - own) / (1.0 + counts[-1] - group)
            guesses = guesses + sign * mean
            correction = correction + sign * np.where(group, weight * (values - mean), 0.0)
        sums = self.sums.path(np.asarray(guesses + correction), np.asarray(guesses))
        return replace(self, sums=sums, counts=(counts[0], counts[1]), totals=(totals[0], totals[1]))

    def at(self, places: Any) -> Self:
        first, second = ((_at(pair[0], places), _at(pair[1], places)) for pair in (self.counts, self.totals))
        return replace(self, sums=self.sums.at(places), counts=first, totals=second)

    @property
    def interval(self) -> tuple[Numbers, Numbers]:
        extent = self.high - self.low
        low, high = self.sums.bounds(extent / self.least_share, self.level)
        return _ends(np.maximum(low, -extent), np.minimum(high, extent))


def weighted_terms(weights: FloatArray, rewards: FloatArray, low: float, high: float, paired: bool) -> FloatArray:
    """Return the terms of inverse propensity weights w alone for :class:`CandidateValue`, shape (2, 1, n).

    For a value, w(r − low) and w(high − r) − (high − low); for what a candidate gains over the log itself, which is
    ``paired``, (w − 1)(r − low) and (w − 1)(high − r).
    """
    if paired:
        return np.stack([(weights - 1.0) * (rewards - low), (weights - 1.0) * (high - rewards)])[:, None]
    return np.stack([weights * (rewards - low), weights * (high - rewards) - (high - low)])[:, None]


def modelled_terms(
    difference: FloatArray,
    probabilities: FloatArray,
    played: NDArray[np.intp],
    rewards: FloatArray,
    predicted: FloatArray,
    low: float,
    high: float,
    caps: Sequence[float] = CAPS,
) -> FloatArray:
    """Return doubly robust terms for :class:`CandidateValue`, shape (2, K, n).

    Their model is cut so that they stay bounded (Waudby-Smith et al. 2024, section 2). Let δ(a) be the probability of
    the candidate, less that of what it is compared with, s = δ/p, and R = high − low. The gain
    g(a, r) = s⁺(r − low) + s⁻(high − r) is never negative, and with its prediction ĝ

        X = g(A, r) − ĝ(A)∧κR + Σ_a p(a)·(ĝ(a)∧κR) − R·Σ_a δ⁻(a)

    has the expectation Σ_a δ(a)·(μ(a) − low), whatever ĝ is, and X ≥ −(κ + 1)R. The second row has the terms of −δ.

    Args:
        difference: δ, shape (n, A).
        probabilities: p of every action, shape (n, A).
        played: A, shape (n,).
        rewards: r, shape (n,).
        predicted: of every action, from earlier rounds alone, shape (n, A); NaN where there is no prediction.
        low: the lowest reward that is possible.
        high: the highest.
        caps: the K values of κ.
    """
    extent, each = high - low, np.arange(len(played))
    model = np.clip(np.where(np.isnan(predicted), 0.5 * (low + high), predicted), low, high)
    found = []
    for delta in (difference, -difference):
        # an action that the log never plays carries no weight
        ratio = np.divide(delta, probabilities, out=np.zeros_like(delta), where=probabilities > 0.0)
        more, less = np.maximum(ratio, 0.0), np.maximum(-ratio, 0.0)
        expected = more * (model - low) + less * (high - model)
        gain = more[each, played] * (rewards - low) + less[each, played] * (high - rewards)
        gain = gain - extent * np.maximum(-delta, 0.0).sum(axis=1)
        cuts = [np.minimum(expected, cap * extent) for cap in caps]
        found.append([gain - cut[each, played] + np.vecdot(probabilities, cut) for cut in cuts])
    return np.array(found)


@dataclass(frozen=True, slots=True)
class CandidateValue(ConfidenceSequence):
    """The value of a candidate, or with ``paired`` its difference to another candidate or to the log.

    It observes the terms of :func:`weighted_terms` or :func:`modelled_terms`. Their first row has the value, counted
    from the lowest reward, as expectation, and their second row the negative of it; both are bounded from below. Valid
    for logs of policies that learn, as long as each propensity is the one with which that round was played.

    Args:
        low: the lowest reward that is possible.
        high: the highest.
        level: of the intervals.
        paired: whether the terms are those of a difference.
        caps: κ of :func:`modelled_terms`, each with its share of the error; (0,) for :func:`weighted_terms`.
    """

    low: float = 0.0
    high: float = 1.0
    level: float = 0.95
    paired: bool = False
    caps: tuple[float, ...] = CAPS
    sums: Sums = Sums()

    def __post_init__(self) -> None:
        _require(self.level, self.low, self.high)
        if not self.caps or not all(0.0 <= cap < np.inf for cap in self.caps):
            raise InputError(f"caps: expected finite numbers of at least 0, got {self.caps!r}.")

    def path(self, terms: FloatArray) -> Self:
        values, extent = _block("terms", terms), self.high - self.low
        if values.shape[:2] != (2, len(self.caps)):
            raise InputError(f"terms: expected shape (2, {len(self.caps)}, n), a row for each cap, got {values.shape}.")
        # the range of the expectation of either row
        shape = (2, *[1] * (values.ndim - 1))
        least, most = ((-extent, -extent), (extent, extent)) if self.paired else ((0.0, -extent), (extent, 0.0))
        lows, highs = np.reshape(least, shape), np.reshape(most, shape)
        guesses = np.clip(self.sums.means_before(values, 0.5 * (lows + highs)), lows, highs)
        return replace(self, sums=self.sums.path(values, guesses))

    @property
    def estimate(self) -> Numbers:
        """The estimate so far: of the unbiased means, each counts by its precision; NaN without rounds."""
        means, squares = np.asarray(self.sums.mean), np.asarray(self.sums.squares)
        if means.ndim < 2:
            return np.nan
        # both sides of the range, and every cap, estimate the same value
        precision = 1.0 / np.maximum(squares, 1e-12)
        values = np.concatenate([means[0], -means[1]])
        found = np.average(values, axis=0, weights=np.concatenate([precision[0], precision[1]])) + self._start
        return found.item() if found.ndim == 0 else found

    @property
    def interval(self) -> tuple[Numbers, Numbers]:
        extent = self.high - self.low
        least, most = (-extent, extent) if self.paired else (self.low, self.high)
        if np.ndim(self.sums.total) == 0:
            return least, most
        # a guess is at most R above the range of the terms from 0, and in a difference R more
        scale = extent * (np.array(self.caps) + (2.0 if self.paired else 1.0))
        scale = scale.reshape(-1, *[1] * (np.ndim(self.sums.total) - 2))
        # the best of the bounds, each of which fails with its share of the probability
        failure = 0.5 * (1.0 - self.level) / len(self.caps)
        below, above = np.max(self.sums.lower_bound(scale, failure), axis=1)
        return _ends(np.clip(self._start + below, least, most), np.clip(self._start - above, least, most))

    @property
    def _start(self) -> float:
        return 0.0 if self.paired else self.low
