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

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammainc, gammaln, xlogy

from kernel_bandits.arrays import FloatArray, as_floats
from kernel_bandits.errors import InputError

# A state holds numbers; along a path, or for several logs at once, it holds arrays.
Numbers: TypeAlias = Any
# ρ of the mixture in units of c². It is best near V = 100c² and costs little elsewhere: from V = 30c² to 10⁵c² an
# interval of level 0.95 is at most twice as long as the normal one of a fixed time.
MIXTURE = 16.0
# Newton's method starts above the root of a convex function, and no V, α needed more than eleven steps.
STEPS = 30
# Where a model's part of a term is cut, in ranges of the reward. A low cut suits weights near 1, a high one weights
# near 100; the better of both costs 7 % more than the one that would have been right (docs/intervals.md).
CAPS = (2.0, 16.0)


def log_mixture(s: FloatArray, v: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the logarithm of the mixture of exp(λs − ψ(λ)v) over λ, where c is 1, and its slope in s.

    With a = v + ρ, x = s + a and the regularised incomplete gamma function P (Howard et al. 2021, Proposition 9),

        m(s, v) = ρ^ρ/(Γ(ρ)·P(ρ, ρ)) · Γ(a)·P(a, x)/x^a · exp(s + v)
        d log m/ds = s/x + x^{a−1}e^{−x}/(Γ(a)·P(a, x))
    """
    a, rho = v + MIXTURE, MIXTURE
    x = s + a
    mass, log_gamma = gammainc(a, x), gammaln(a)
    constant = xlogy(rho, rho) - gammaln(rho) - np.log(gammainc(rho, rho))
    value = constant + log_gamma + np.log(mass) - a * np.log(x) + s + v
    return value, s / x + np.exp((a - 1.0) * np.log(x) - x - log_gamma) / mass


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
        counts = np.asarray(self.count)[..., None] + np.arange(1, terms.shape[-1] + 1)
        return Sums(counts, running(self.total, terms), running(self.squares, (terms - guesses) ** 2))

    def means_before(self, terms: FloatArray, first: float) -> FloatArray:
        """Return, for each term, the mean of ``first`` and all terms before it."""
        before = running(self.total, terms) - terms
        counts = np.asarray(self.count)[..., None] + np.arange(1, terms.shape[-1] + 1)
        return (first + before) / counts

    def last(self) -> Sums:
        """Return the sums at the end of a path."""
        return Sums(*(_last(value) for value in (self.count, self.total, self.squares)))

    def lower_bound(self, scale: float, failure_probability: float) -> Numbers:
        """Return the bound from below of the mean of the μ_t, where X − X̂ ≥ −``scale``; −∞ without terms."""
        with np.errstate(divide="ignore", invalid="ignore"):
            above = scale * excess(np.divide(self.squares, scale**2), failure_probability)
            return np.where(np.asarray(self.count) > 0, (self.total - above) / self.count, -np.inf)


def running(start: Numbers, steps: FloatArray) -> FloatArray:
    """Return a sum after each of the steps along the last axis."""
    return np.asarray(start)[..., None] + np.cumsum(steps, axis=-1)


def _last(value: Numbers) -> Numbers:
    """Return the end of a path: a plain number where there is one log."""
    end = np.asarray(value)[..., -1]
    return end.item() if end.ndim == 0 else end


def _block(name: str, values: ArrayLike) -> FloatArray:
    """Return values as a block: one value is a block of one."""
    block = np.atleast_1d(as_floats(name, values))
    if not np.isfinite(block).all():
        raise InputError(f"{name}: expected finite numbers, got {block[~np.isfinite(block)][0]}.")
    return block


def _within(name: str, values: FloatArray, low: float, high: float) -> FloatArray:
    outside = (values < low) | (values > high)
    if outside.any():
        raise InputError(
            f"{name}: expected numbers from {low:g} to {high:g}, got {values[outside][0]:g}; give the lowest and the "
            "highest value that is possible, as low= and high=, before the first observation."
        )
    return values


def require_range(low: float, high: float) -> None:
    """Raise unless both are finite and in order."""
    if not -np.inf < low < high < np.inf:
        raise InputError(f"low, high: expected finite numbers with low < high, got {low!r} and {high!r}.")


def require_level(level: float) -> None:
    """Raise unless the level is a probability."""
    if not 0.0 < level < 1.0:
        raise InputError(f"level: expected a probability between 0 and 1, got {level!r}.")


def _ends(low: Numbers, high: Numbers) -> tuple[Numbers, Numbers]:
    """Return the ends of an interval, as plain numbers where there is one."""
    return (low.item(), high.item()) if np.ndim(low) == 0 else (low, high)


@dataclass(frozen=True, slots=True)
class BoundedMean:
    """The mean of bounded rewards, such as clicks, of one group.

    Args:
        low: the lowest reward that is possible.
        high: the highest.
        level: of the intervals.

    Attributes:
        sums: of the rewards so far.
    """

    low: float = 0.0
    high: float = 1.0
    level: float = 0.95
    sums: Sums = field(default=Sums())

    def __post_init__(self) -> None:
        require_range(self.low, self.high)
        require_level(self.level)

    def path(self, values: ArrayLike) -> Self:
        """Return the sequence after each of the values: what it returns are arrays."""
        values = _within("values", _block("values", values), self.low, self.high)
        guesses = self.sums.means_before(values, 0.5 * (self.low + self.high))
        return replace(self, sums=self.sums.path(values, guesses))

    def after(self, values: ArrayLike) -> Self:
        """Return the sequence after one value or a block of them."""
        return replace(self, sums=self.path(values).sums.last()) if np.size(values) else self

    @property
    def count(self) -> Numbers:
        """The number of values so far."""
        return self.sums.count

    @property
    def estimate(self) -> Numbers:
        """The mean so far; NaN without values."""
        return _mean(self.sums)

    @property
    def interval(self) -> tuple[Numbers, Numbers]:
        """The interval of the mean, valid at all times at once."""
        low, high = _two_sided(self.sums, self.high - self.low, self.level)
        return _ends(np.maximum(low, self.low), np.minimum(high, self.high))


def _mean(sums: Sums) -> Numbers:
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.divide(sums.total, sums.count)
    return mean.item() if np.ndim(mean) == 0 else mean


def _two_sided(sums: Sums, scale: float, level: float) -> tuple[Numbers, Numbers]:
    """Return both bounds of terms that are never further than ``scale`` from their guesses."""
    low = sums.lower_bound(scale, 0.5 * (1.0 - level))
    with np.errstate(invalid="ignore"):
        high = 2.0 * np.asarray(_mean(sums)) - low
    return low, np.where(np.asarray(sums.count) > 0, high, np.inf)


@dataclass(frozen=True, slots=True)
class SubGaussianMean:
    """The mean of rewards whose noise is sub-Gaussian, as normal noise is, with a known deviation.

    The mixture of exp(λS − λ²V/2), V = tσ², over a normal λ gives S² < (V + ρ)(log(1 + V/ρ) + 2·log(1/α)) at all times.

    Args:
        noise: σ, or an upper bound of it.
        level: of the intervals.

    Attributes:
        sums: of the rewards so far.
    """

    noise: float
    level: float = 0.95
    sums: Sums = field(default=Sums())

    def __post_init__(self) -> None:
        if not 0.0 < self.noise < np.inf:
            raise InputError(f"noise: expected a finite standard deviation above 0, got {self.noise!r}.")
        require_level(self.level)

    def path(self, values: ArrayLike) -> Self:
        """Return the sequence after each of the values: what it returns are arrays."""
        values = _block("values", values)
        return replace(self, sums=self.sums.path(values, values))

    def after(self, values: ArrayLike) -> Self:
        """Return the sequence after one value or a block of them."""
        return replace(self, sums=self.path(values).sums.last()) if np.size(values) else self

    @property
    def count(self) -> Numbers:
        """The number of values so far."""
        return self.sums.count

    @property
    def estimate(self) -> Numbers:
        """The mean so far; NaN without values."""
        return _mean(self.sums)

    @property
    def interval(self) -> tuple[Numbers, Numbers]:
        """The interval of the mean, valid at all times at once."""
        count, rho = np.asarray(self.count, dtype=np.float64), MIXTURE
        half = self.noise * np.sqrt((count + rho) * (np.log1p(count / rho) - 2.0 * np.log(1.0 - self.level)))
        with np.errstate(divide="ignore", invalid="ignore"):
            half = np.where(count > 0, half / count, np.inf)
            center = np.where(count > 0, np.asarray(self.estimate), 0.0)
        return _ends(center - half, center + half)


@dataclass(frozen=True, slots=True)
class ArmDifference:
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
        sums: of the terms so far.
        counts: how many rounds each group had: the first, the second.
        totals: of their rewards.
    """

    low: float = 0.0
    high: float = 1.0
    least_share: float = 0.5
    level: float = 0.95
    sums: Sums = field(default=Sums())
    counts: tuple[Numbers, Numbers] = (0, 0)
    totals: tuple[Numbers, Numbers] = (0.0, 0.0)

    def __post_init__(self) -> None:
        require_range(self.low, self.high)
        require_level(self.level)
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
        rewards = _within("rewards", _block("rewards", rewards), self.low, self.high)
        share = np.broadcast_to(_block("probability", probability), rewards.shape)
        # shares such as 1 − 0.9 are rounded
        least = self.least_share * (1.0 - 1e-9)
        if ((share < least) | (share > 1.0 - least)).any():
            raise InputError(
                f"probability: expected {self.least_share:g} to {1.0 - self.least_share:g}, as least_share= says, got "
                f"{share[(share < least) | (share > 1.0 - least)][0]:g}."
            )
        if chosen.shape != rewards.shape:
            raise InputError(f"first: expected one for each of {rewards.shape} rewards, got {chosen.shape}.")
        middle = 0.5 * (self.low + self.high)
        guesses: Numbers = 0.0
        correction: Numbers = 0.0
        counts: list[FloatArray] = []
        totals: list[FloatArray] = []
        for group, sign, weight in ((chosen, 1.0, 1.0 / share), (~chosen, -1.0, 1.0 / (1.0 - share))):
            place = len(counts)
            counts.append(running(self.counts[place], group))
            totals.append(running(self.totals[place], np.where(group, rewards, 0.0)))
            # q, the mean of the middle of the range and all rewards of the group before this round
            mean = (middle + totals[-1] - np.where(group, rewards, 0.0)) / (1.0 + counts[-1] - group)
            guesses = guesses + sign * mean
            correction = correction + sign * np.where(group, weight * (rewards - mean), 0.0)
        sums = self.sums.path(np.asarray(guesses + correction), np.asarray(guesses))
        return replace(self, sums=sums, counts=(counts[0], counts[1]), totals=(totals[0], totals[1]))

    def after(self, first: ArrayLike, rewards: ArrayLike, probability: ArrayLike = 0.5) -> Self:
        """Return the sequence after one round or a block of them; the arguments are those of :meth:`path`."""
        if not np.size(rewards):
            return self
        path = self.path(first, rewards, probability)
        counts, totals = (tuple(map(_last, pair)) for pair in (path.counts, path.totals))
        return replace(path, sums=path.sums.last(), counts=counts, totals=totals)

    @property
    def count(self) -> Numbers:
        """The number of rounds so far."""
        return self.sums.count

    @property
    def estimate(self) -> Numbers:
        """The estimated difference so far; NaN without rounds."""
        return _mean(self.sums)

    @property
    def interval(self) -> tuple[Numbers, Numbers]:
        """The interval of the difference, valid at all times at once."""
        extent = self.high - self.low
        low, high = _two_sided(self.sums, extent / self.least_share, self.level)
        return _ends(np.maximum(low, -extent), np.minimum(high, extent))


@dataclass(frozen=True, slots=True)
class BoundedTerms:
    """What rounds of a log say of a candidate's value, or of the difference of two.

    Attributes:
        lower: terms with the value, counted from the lowest reward, as expectation, which are bounded from below: one
            row for each cut, shape (K, n).
        upper: terms with the negative of it as expectation, which are bounded from below, too.
    """

    lower: FloatArray
    upper: FloatArray


def weighted_terms(weights: FloatArray, rewards: FloatArray, low: float, high: float, paired: bool) -> BoundedTerms:
    """Return the terms of inverse propensity weights w alone.

    For a value, w(r − low) and w(high − r) − (high − low); for what a candidate gains over the log itself, which is
    ``paired``, (w − 1)(r − low) and (w − 1)(high − r).
    """
    if paired:
        return BoundedTerms(((weights - 1.0) * (rewards - low))[None], ((weights - 1.0) * (high - rewards))[None])
    return BoundedTerms((weights * (rewards - low))[None], (weights * (high - rewards) - (high - low))[None])


def modelled_terms(
    difference: FloatArray,
    probabilities: FloatArray,
    played: NDArray[np.intp],
    rewards: FloatArray,
    predicted: FloatArray,
    low: float,
    high: float,
    caps: Sequence[float] = CAPS,
) -> BoundedTerms:
    """Return doubly robust terms, whose model is cut so that they stay bounded (Waudby-Smith et al. 2024, section 2).

    Let δ(a) be the probability of the candidate, less that of what it is compared with, s = δ/p, and R = high − low.
    The gain g(a, r) = s⁺(r − low) + s⁻(high − r) is never negative, and with its prediction ĝ

        X = g(A, r) − ĝ(A)∧κR + Σ_a p(a)·(ĝ(a)∧κR) − R·Σ_a δ⁻(a)

    has the expectation Σ_a δ(a)·(μ(a) − low), whatever ĝ is, and X ≥ −(κ + 1)R. The upper terms are those of −δ.

    Args:
        difference: δ, shape (n, A).
        probabilities: p of every action, shape (n, A).
        played: A, shape (n,).
        rewards: r, shape (n,).
        predicted: of every action, from earlier rounds alone, shape (n, A); NaN where there is no prediction.
        low: the lowest reward that is possible.
        high: the highest.
        caps: the values of κ.
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
        found.append(np.stack([gain - cut[each, played] + np.vecdot(probabilities, cut) for cut in cuts]))
    return BoundedTerms(*found)


@dataclass(frozen=True, slots=True)
class CandidateValue:
    """The value of a candidate, or with ``paired`` its difference to another candidate or to the log.

    Valid for logs of policies that learn, as long as each propensity is the one with which that round was played.

    Args:
        low: the lowest reward that is possible.
        high: the highest.
        level: of the intervals.
        paired: whether the terms are those of a difference.
        caps: κ of :func:`modelled_terms`, each with its share of the error; (0,) for :func:`weighted_terms`.

    Attributes:
        lower: sums of the lower terms.
        upper: sums of the upper terms.
    """

    low: float = 0.0
    high: float = 1.0
    level: float = 0.95
    paired: bool = False
    caps: tuple[float, ...] = CAPS
    lower: Sums = field(default=Sums())
    upper: Sums = field(default=Sums())

    def __post_init__(self) -> None:
        require_range(self.low, self.high)
        require_level(self.level)
        if not self.caps or not all(0.0 <= cap < np.inf for cap in self.caps):
            raise InputError(f"caps: expected finite numbers of at least 0, got {self.caps!r}.")

    def path(self, terms: BoundedTerms) -> Self:
        """Return the sequence after each of the rounds: what it returns are arrays."""
        extent, sums = self.high - self.low, []
        ranges = ((-extent, extent),) * 2 if self.paired else ((0.0, extent), (-extent, 0.0))
        sides = ((terms.lower, self.lower), (terms.upper, self.upper))
        for (side, before), (least, most) in zip(sides, ranges, strict=True):
            values = _block("terms", side)
            if len(values) != len(self.caps):
                raise InputError(f"terms: expected one row for each of {len(self.caps)} caps, got {len(values)}.")
            guesses = np.clip(before.means_before(values, 0.5 * (least + most)), least, most)
            sums.append(before.path(values, guesses))
        return replace(self, lower=sums[0], upper=sums[1])

    def after(self, terms: BoundedTerms) -> Self:
        """Return the sequence after a block of rounds."""
        if not np.size(terms.lower):
            return self
        path = self.path(terms)
        return replace(path, lower=path.lower.last(), upper=path.upper.last())

    @property
    def count(self) -> Numbers:
        """The number of rounds so far."""
        count = np.asarray(self.lower.count)
        return count[0] if count.ndim > 1 else count.flat[0].item()

    @property
    def estimate(self) -> Numbers:
        """The estimate so far, which is unbiased; NaN without rounds."""
        found = 0.5 * np.mean(np.atleast_1d(_mean(self.lower) - _mean(self.upper)), axis=0)
        return found + (0.0 if self.paired else self.low)

    @property
    def interval(self) -> tuple[Numbers, Numbers]:
        """The interval of the value, valid at all times at once."""
        extent = self.high - self.low
        least, most = (-extent, extent) if self.paired else (self.low, self.high)
        start = 0.0 if self.paired else self.low
        low = start + self._bound(self.lower)
        high = start - self._bound(self.upper)
        return _ends(np.clip(low, least, most), np.clip(high, least, most))

    def _bound(self, sums: Sums) -> Numbers:
        """Return the best of the bounds, each of which fails with its share of the probability."""
        failure, found = 0.5 * (1.0 - self.level) / len(self.caps), []
        if np.ndim(sums.total) == 0:
            return np.asarray(-np.inf)
        for place, cap in enumerate(self.caps):
            counts = np.asarray(sums.count)
            count = counts[place] if counts.ndim == np.ndim(sums.total) else counts
            own = Sums(count, sums.total[place], sums.squares[place])
            # a guess is at most R above the range of the terms from 0, and in a difference R more
            scale = (self.high - self.low) * (cap + (2.0 if self.paired else 1.0))
            found.append(own.lower_bound(scale, failure))
        return np.max(found, axis=0)
