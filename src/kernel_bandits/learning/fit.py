"""When a kernel is learned, how the best parameters are searched for, and the best lengthscales of a stationary kernel.

Rewards are y = c + f(s) + noise with f a Gaussian process of covariance v·k, k a stationary kernel, v its output
variance, and Gaussian noise of variance λ; c is a constant mean. A fit maximises the log evidence of a sample plus a
weak prior, in units in which every column of the points and the rewards have spread one, so that the result does not
depend on the units of the data. The prior ties the columns together while little is known: a handful of points cannot
declare a column irrelevant.

The parameters of any model are searched for on a grid: one after the other is moved by a step while that gains.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack

from kernel_bandits.arrays import FloatArray, as_count, as_positive
from kernel_bandits.errors import InputError, KernelBanditsError
from kernel_bandits.kernels import Stationary
from kernel_bandits.learning import defaults
from kernel_bandits.learning.columns import RewardModel, Units
from kernel_bandits.learning.prior import STATIONARY_PRIOR
from kernel_bandits.numerics.linalg import factorise


@dataclass(frozen=True)
class KernelLearning:
    """When and from what a kernel is learned.

    Args:
        first_round: how many observations there are when it is learned first.
        growth: refit each time the number of observations has grown by this factor. By default 2, doubling times, which
            keeps the cost of learning a fixed share of that of playing; where no kernel is given, a smaller factor as
            long as observations are few.
        sample_size: n, the most observations that a fit looks at, drawn at random, round t with weight 1/t.
        groups: a label from 0 on for each column of a joint point, context columns first: columns with the same label
            share a lengthscale, in units of their spread. None for one lengthscale per column.
        from_scratch: start from nothing: only the family of the kernel counts, not its lengthscale nor λ. Until the
            first fit, decisions go by standard deviations alone.
        warm_up: without a history, how many observations are kept for learning; then the kernel is frozen.
    """

    first_round: int = 4
    growth: float | None = None
    sample_size: int = 256
    groups: tuple[int, ...] | None = None
    warm_up: int = 512
    from_scratch: bool = False

    def __post_init__(self) -> None:
        for name in ("first_round", "sample_size", "warm_up"):
            if as_count(name, getattr(self, name)) < 2:
                raise InputError(f"{name}: expected at least 2, got {getattr(self, name)}.")
        if self.growth is not None and not as_positive("growth", self.growth) > 1.0:
            raise InputError(f"growth: expected more than 1, got {self.growth!r}.")
        if self.warm_up < self.first_round:
            raise InputError(
                f"warm_up: expected at least first_round={self.first_round}, got {self.warm_up}; without a history the "
                "kernel is learned from the first warm_up observations."
            )
        if self.groups is not None:
            object.__setattr__(self, "groups", _labels(self.groups))

    def after(self, round_index: int, growth: float = defaults.REFIT_GROWTH) -> int:
        """Return the round of the next learning, which has grown by the given factor unless the user chose another."""
        factor = growth if self.growth is None else self.growth
        return max(self.first_round, round_index + 1, math.ceil(factor * round_index))


def _labels(groups: Sequence[int]) -> tuple[int, ...]:
    try:
        labels = tuple(int(label) for label in groups)
    except (TypeError, ValueError):
        labels = ()
    if not labels or set(labels) != set(range(max(labels) + 1)):
        raise InputError(f"groups: expected labels 0, 1, … without a gap, one per column, got {groups!r}.")
    return labels


def search(
    objective: Callable[[FloatArray], float],
    start: FloatArray,
    directions: FloatArray,
    low: FloatArray,
    high: FloatArray,
    effort: int = defaults.SEARCHED,
) -> tuple[FloatArray, float]:
    """Return the best parameters of a search on a grid, and their value.

    A pattern search: a step along each direction in turn, forth or back, is taken if the objective falls. Where no step
    does, steps are halved, until they are as small as they get or the objective was asked often enough.

    Args:
        objective: infinite where there is no value.
        start: within the bounds.
        directions: shape (k, p).
        low: lower bounds.
        high: upper bounds.
        effort: how often the objective is asked for each direction.
    """
    best, value, left = start, objective(start), effort * len(directions)
    signs = np.ones(len(directions))
    for step in defaults.SEARCH_STEPS:
        number = stale = 0
        while stale < len(directions) and left > 0:
            along = directions[number] != 0.0
            stale += 1
            for sign in (signs[number], -signs[number]):
                moved = np.clip(best + sign * step * directions[number], low, high)
                # what is left out of a model is beyond its bounds
                candidate = np.where(along, moved, best)
                if np.array_equal(candidate, best):
                    continue
                left -= 1
                found = objective(candidate)
                if found < value - defaults.STEP_NATS:
                    best, value, signs[number], stale = candidate, found, sign, 0
                    break
            number = (number + 1) % len(directions)
    return best, value


def log_marginal_likelihood(
    kernel: Stationary, variance: float, noise: float, points: FloatArray, rewards: FloatArray
) -> float:
    """Return the log marginal likelihood log N(y; 0, v·K + λI)."""
    return _evidence(kernel, variance, noise, points, rewards, None)[0]


def _evidence(
    kernel: Stationary,
    variance: float,
    noise: float,
    points: FloatArray,
    rewards: FloatArray,
    mean_precision: float | None,
) -> tuple[float, float, FloatArray]:
    """Return log N(y; c, Σ) − ½·precision·c² at the best c, that c, and Σ⁻¹(y − c); c = 0 without a precision."""
    covariance = variance * kernel(points)
    covariance.flat[:: len(points) + 1] += noise
    log_determinant = factorise(covariance)
    solved, _ = lapack.dpotrs(covariance.T, np.stack([rewards, np.ones(len(rewards))]).T, lower=1)
    mean = 0.0
    if mean_precision is not None:
        # c = 1ᵀΣ⁻¹y/(1ᵀΣ⁻¹1 + precision)
        mean = float(solved[:, 0].sum()) / (float(solved[:, 1].sum()) + mean_precision)
    weights = solved[:, 0] - mean * solved[:, 1]
    misfit = float((rewards - mean) @ weights) + (mean_precision or 0.0) * mean * mean
    return -0.5 * (log_determinant + len(rewards) * math.log(2.0 * math.pi) + misfit), mean, weights


class Score(NamedTuple):
    """How well a model explains a sample.

    Attributes:
        evidence: the log marginal likelihood, in nats.
        objective: that plus the log prior, which learning maximises.
    """

    evidence: float
    objective: float


class Sample:
    """A sample of observations on which models are fitted and compared.

    Args:
        points: shape (n, d).
        rewards: shape (n,).
        groups: a label from 0 on for each column; columns with the same label share a lengthscale in units of their
            spread. None for one lengthscale per column.
        units: of an earlier sample of the same stream, if there was one.
    """

    def __init__(
        self,
        points: FloatArray,
        rewards: FloatArray,
        groups: Sequence[int] | None = None,
        units: Units | None = None,
    ) -> None:
        labels = np.arange(points.shape[1]) if groups is None else np.asarray(groups, dtype=np.intp)
        self.units: Units = Units(points, rewards, labels, units)
        self._points = self.units.scaled(points)
        self._rewards = (rewards - self.units.reward_centre) / self.units.reward_spread
        count = self.units.number_of_groups
        self._centre = STATIONARY_PRIOR.centre(count, points.shape[1])
        self._precision = STATIONARY_PRIOR.precision(count)
        self._low, self._high = np.array(STATIONARY_PRIOR.bounds(count)).T

    def fit(self, family: Stationary, before: RewardModel | None) -> RewardModel:
        """Return the model that explains the sample best.

        From the best of a few lengthscales and of the model before; then lengthscales by the slopes of what was
        learned, and once more the best.

        Args:
            family: the kernel whose lengthscales are sought; its own do not matter.
            before: a model to start from too.
        """
        count = self.units.number_of_groups
        longer, trade = np.zeros((2, count + 2))
        longer[:count], trade[count:] = 1.0, (1.0, -1.0)

        def objective(parameters: FloatArray) -> float:
            return -self._score(family, parameters, None).objective

        starts = [self._centre + power * longer for power in defaults.START_LENGTHSCALE_POWERS]
        if before is not None:
            starts.append(np.clip(self.units.parameters(before), self._low, self._high))
        # all lengthscales, the function for noise, and each by itself
        directions = np.stack([longer, trade, *np.eye(count + 2)[count:]])
        parameters, value = search(objective, min(starts, key=objective), directions, self._low, self._high)
        # A very short lengthscale fits noise as well as a noise term does, and makes every point an anchor: it has to
        # earn the price of a parameter.
        mostly_noise = self._centre - defaults.MOSTLY_NOISE * trade
        noisy, noisy_value = search(objective, mostly_noise, directions, self._low, self._high)
        price = 0.5 * math.log(len(self._rewards))
        if noisy[-1] > parameters[-1] and noisy_value <= value + price:
            parameters, value = noisy, noisy_value
        if count > 1:
            # so do lengthscales of their own, in inverse proportion to the slopes to begin with
            by_slopes = self._by_slopes(family, parameters)
            start = parameters if by_slopes is None or objective(by_slopes) > value else by_slopes
            each = np.concatenate([directions, np.eye(count + 2)[:count]])
            own, own_value = search(objective, start, each, self._low, self._high)
            if own_value < value - price:
                parameters = own
        mean = self._evidence(family, parameters)[1]
        return self.units.model(family, parameters, mean)

    def score(self, model: RewardModel) -> Score:
        """Return how well a model explains the sample."""
        mean = (model.mean - self.units.reward_centre) / self.units.reward_spread
        return self._score(model.kernel, self.units.parameters(model), mean)

    def _score(self, family: Stationary, parameters: FloatArray, mean: float | None) -> Score:
        """Return the score at θ and a mean, the best where none is given; −∞ where it cannot be computed."""
        offset = parameters - self._centre
        log_prior = -0.5 * float(offset @ self._precision @ offset)
        try:
            evidence = self._evidence(family, parameters, mean)[0]
        except KernelBanditsError:
            evidence = -math.inf
        if not math.isfinite(evidence):
            return Score(-math.inf, -math.inf)
        if mean is not None:
            log_prior -= 0.5 * STATIONARY_PRIOR.mean_precision * mean**2
        return Score(evidence, evidence + log_prior)

    def _evidence(
        self, family: Stationary, parameters: FloatArray, mean: float | None = None
    ) -> tuple[float, float, FloatArray]:
        kernel = self._kernel(family, parameters)
        variance, noise = np.exp(parameters[-2:]).tolist()
        precision = STATIONARY_PRIOR.mean_precision if mean is None else None
        return _evidence(kernel, variance, noise, self._points, self._rewards - (mean or 0.0), precision)

    def _kernel(self, family: Stationary, parameters: FloatArray) -> Stationary:
        return family.with_lengthscale(np.exp(parameters[:-2])[self.units.groups])

    def _by_slopes(self, family: Stationary, parameters: FloatArray) -> FloatArray | None:
        """Return θ with lengthscales in inverse proportion to the slopes of the function; None if it has none."""
        groups, count = self.units.groups, len(self._points)
        weights = self._evidence(family, parameters)[2]
        slopes = self._kernel(family, parameters).gradient(self._points, self._points, np.tile(weights, (count, 1)))
        squares = np.bincount(groups, (slopes**2).sum(axis=0) * self._points.var(axis=0))
        mean = float(squares.mean())
        if not (math.isfinite(mean) and mean > 0.0):
            return None
        share = count / (count + len(squares))
        found = parameters.copy()
        found[:-2] -= 0.5 * np.log(1.0 - share + share * squares / mean)
        return np.clip(found, self._low, self._high)
