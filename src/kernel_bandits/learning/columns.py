"""What is measured of columns and of rewards: which belong together, and in what units they are learned from."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import InputError
from kernel_bandits.kernels import Constant, KernelLike, Product, Stationary
from kernel_bandits.kernels.mixed import Bends, Mixed
from kernel_bandits.learning import defaults

# A column that varies by less than this share of its values is as good as constant: an action that is found again in a
# box comes back with such differences.
NEGLIGIBLE_SPREAD = 1e-7
# That of the smallest positive number, 2⁻¹⁰⁷⁴, and less.
SMALLEST_POWER = -1100
# The relevance of variables that all count alike.
ALIKE: FloatArray = np.empty(0)
Rewards = TypeVar("Rewards", float, FloatArray)
# The first and the last decile of a normal distribution are this many standard deviations apart.
NORMAL_DECILES = 2.563
# Of so many extreme rewards it is looked whether they have neighbours.
LARGEST_HANDFUL = 64
# Rewards that differ by less than this share of themselves are equal up to rounding.
ROUNDING = 2.0**-48
# Rewards that differ by less are equal: variances are squares, and those of less would underflow.
LEAST_DEVIATION = 1e-60


@dataclass(frozen=True)
class Warp:
    """Standardised contexts x become x·exp ρ, and described actions a become (a − Mx)·exp ρ', variable by variable.

    Attributes:
        contexts: ρ of each variable; empty where all count alike.
        actions: ρ' of each variable; empty where all count alike.
        moves: M, shape (d_a, d_x): how many standard deviations what an action does moves with one of a context column;
            of shape (0, 0) where nothing moves.
    """

    contexts: FloatArray
    actions: FloatArray
    moves: FloatArray

    @property
    def flat(self) -> FloatArray:
        """All of it in one row."""
        return np.concatenate([self.contexts, self.actions, self.moves.ravel()])

    @property
    def relevance(self) -> FloatArray:
        """ρ and ρ' in one row."""
        return np.concatenate([self.contexts, self.actions])

    def moved(self, step: FloatArray) -> Warp:
        """Return the warp whose relevance is larger by a step."""
        split = len(self.contexts)
        return Warp(self.contexts + step[:split], self.actions + step[split:], self.moves)


NO_WARP = Warp(np.empty(0), np.empty(0), np.empty((0, 0)))


def weight_count(labels: NDArray[np.intp]) -> int:
    """Return how many variables of columns (d,) may have a weight of their own: all, or none where there is one."""
    variables = int(labels.max(initial=-1)) + 1
    return variables if variables > 1 else 0


def column_factors(relevance: FloatArray, labels: NDArray[np.intp]) -> FloatArray:
    """Return exp(relevance of its variable) for each column, shape (d,); 1 where all count alike."""
    return np.exp(relevance)[labels] if len(relevance) else np.ones(len(labels))


def relabelled(relevance: FloatArray, before: NDArray[np.intp], labels: NDArray[np.intp]) -> FloatArray:
    """Return the relevance of variables whose columns (d,) were those of others before: the mean over its columns."""
    if not len(relevance) or np.array_equal(before, labels):
        return relevance
    return np.bincount(labels, relevance[before]) / np.bincount(labels) if weight_count(labels) else ALIKE


def category_labels(points: FloatArray) -> NDArray[np.intp]:
    """Return the variable of each column of points (n, d), numbered from 0, shape (d,).

    Neighbouring columns of zeros and ones, exactly one of which is 1 in every row, are the levels of one category. All
    other columns are variables of their own.
    """
    count, dimension = points.shape
    is_flag = ((points == 0.0) | (points == 1.0)).all(axis=0)
    flags = np.where(is_flag, points, 0.0)
    # how often two of them are 1 in one row
    both = np.einsum("ni,nj->ij", flags, flags, optimize=True)
    ones = both.diagonal()
    labels = np.empty(dimension, dtype=np.intp)
    first = variable = 0
    while first < dimension:
        last, total = first, 0.0
        while last < dimension and is_flag[last] and not both[first:last, last].any() and total < count:
            total += ones[last]
            last += 1
        # a level that nobody had yet begins no category, and one that everybody has is none
        if total < count or not 0.0 < ones[first] < count:
            last = first + 1
        labels[first:last] = variable
        first, variable = last, variable + 1
    return labels


@dataclass(frozen=True)
class Columns:
    """What the columns of a joint point are.

    Attributes:
        contexts: how many of the leading columns are the context.
        variables: the variable of each column, shape (d,); the columns of one variable share a spread. None for one
            variable per column.
        box: the corners of the smallest box that holds every box offered so far, and the coordinate of each of its
            columns; None where rows were.
    """

    contexts: int = 0
    variables: tuple[int, ...] | None = None
    box: tuple[tuple[float, ...], tuple[float, ...], tuple[int, ...]] | None = None

    def within(self, low: FloatArray, high: FloatArray, labels: NDArray[np.intp]) -> Columns:
        """Return the same, with actions from one more box, whose columns are of these coordinates."""
        if self.box is not None:
            low, high = np.minimum(low, self.box[0]), np.maximum(high, self.box[1])
        return replace(self, box=(tuple(low.tolist()), tuple(high.tolist()), tuple(labels.tolist())))

    def recognised_contexts(self, contexts: FloatArray) -> NDArray[np.intp]:
        """Return the variable of each column of contexts (n, d_x), shape (d_x,)."""
        if self.variables is None:
            return category_labels(contexts)
        return np.unique(np.asarray(self.variables[: self.contexts], dtype=np.intp), return_inverse=True)[1]

    def recognised(self, points: FloatArray, shown: FloatArray | None = None) -> Columns:
        """Return the same with the categories among the columns of joint points (t, d), unless variables are known.

        Those of contexts and of actions are told apart. Those of a box are given. Contexts that were shown
        without rewards (n, d_x) count as those that were played.
        """
        if self.variables is not None:
            return self
        contexts, actions = points[:, : self.contexts], points[:, self.contexts :]
        of_actions = category_labels(actions) if self.box is None else np.array(self.box[2], dtype=np.intp)
        of_contexts = category_labels(contexts if shown is None else np.concatenate([shown, contexts]))
        labels = np.concatenate([of_contexts, of_contexts.max(initial=-1) + 1 + of_actions])
        return replace(self, variables=tuple(labels.tolist()))

    def of(self, part: slice, dimension: int) -> NDArray[np.intp]:
        """Return the variables of some of the columns, numbered from 0."""
        labels = np.arange(dimension) if self.variables is None else np.asarray(self.variables, dtype=np.intp)
        return np.unique(labels[part], return_inverse=True)[1]


@dataclass(frozen=True)
class ColumnUnits:
    """Centre and spread of the columns of contexts or of actions.

    Attributes:
        centre: shape (d,).
        spread: shape (d,): the standard deviation of the variable, common to its columns; 1 where it never varied.
        varies: which columns did.
        variables: how many variables they stand for.
        precision: shape (d, d): the inverse correlations W of the columns, shrunk, with ⟨x, Wx⟩ = 1 on average.
        labels: the variable of each column, shape (d,), numbered from 0.
        bends: of columns with long tails; centre and spread are those of the bent ones.
    """

    centre: FloatArray
    spread: FloatArray
    varies: NDArray[np.bool_]
    variables: int
    precision: FloatArray
    labels: NDArray[np.intp]
    bends: Bends | None = None

    @classmethod
    def of_contexts(
        cls, points: FloatArray, variables: NDArray[np.intp], before: ColumnUnits | None, may_bend: bool
    ) -> ColumnUnits:
        """Those of a sample of contexts, with long tails bent if they may be.

        The spread is at least that of before, unless columns are bent now or were before: the spreads of a bent and a
        straight column do not compare.
        """
        bends = measured_bends(points, variables) if may_bend else None
        if bends is None and (before is None or before.bends is None):
            return cls.measured(points, variables, before)
        units = cls.measured(points if bends is None else bends(points), variables, None)
        return replace(units, bends=bends)

    @classmethod
    def measured(cls, points: FloatArray, variables: NDArray[np.intp], before: ColumnUnits | None) -> ColumnUnits:
        """Those of a sample, at least as wide as before: a policy that plays what is good sees less and less."""
        if not points.shape[1]:
            return cls(np.empty(0), np.empty(0), np.empty(0, dtype=bool), 1, np.empty((0, 0)), variables)
        centre = points.mean(axis=0)
        # Squares of 1e-200 are 0. In units of a power of two they are not, and nothing is rounded otherwise.
        powers = np.full(int(variables.max()) + 1, SMALLEST_POWER)
        np.maximum.at(powers, variables, np.frexp(np.abs(points - centre).max(axis=0))[1])
        scaled = np.ldexp(points - centre, -powers[variables])
        # One categorical variable is one coordinate: its indicators together vary by Σ p(1 − p).
        variances = np.bincount(variables, (scaled**2).mean(axis=0))
        spread = np.ldexp(np.sqrt(variances), powers)[variables]
        varies = spread > NEGLIGIBLE_SPREAD * np.abs(centre)
        spread = np.where(varies & np.isfinite(spread), spread, 1.0)
        if before is not None:
            wider = np.where(varies, np.maximum(spread, before.spread), before.spread)
            spread, varies = np.where(before.varies, wider, spread), varies | before.varies
            # a level that nobody had before has the spread of its variable too
            widest = np.zeros(int(variables.max()) + 1)
            np.maximum.at(widest, variables, np.where(varies, spread, 0.0))
            spread = np.where(varies, widest[variables], spread)
        count = len(np.unique(variables[varies]))
        precision = _precision((points - centre) / spread, varies)
        return cls(centre, spread, varies, max(count, 1), precision, variables)

    @classmethod
    def of_box(cls, low: FloatArray, high: FloatArray, labels: NDArray[np.intp]) -> ColumnUnits:
        """Those of actions that fill a box evenly, whichever were played; labels are the coordinates of columns."""
        width = high - low
        # however far from the origin: the corners are given, not measured
        varies = width > 0.0
        levels = np.bincount(labels, varies)[labels]
        # a uniform value has a standard deviation of 1/√12 of its range, and the unit vectors of n levels that come
        # equally often vary by 1 − 1/n together
        spread = width * np.where(levels > 1.0, np.sqrt(1.0 - 1.0 / np.maximum(levels, 1.0)), 1.0 / math.sqrt(12.0))
        centre = np.where(levels > 1.0, low + width / np.maximum(levels, 1.0), 0.5 * (low + high))
        count = max(len(np.unique(labels[varies])), 1)
        return cls(centre, np.where(varies, spread, 1.0), varies, count, np.diag(varies / count), labels)

    def mean_square(self, relevance: FloatArray) -> float:
        """Return the mean of exp(2·relevance) over the variables that vary; 1 where none has a weight of its own."""
        if not len(relevance):
            return 1.0
        varying = np.unique(self.labels[self.varies])
        return float(np.exp(2.0 * relevance[varying]).mean()) if len(varying) else 1.0

    def standardised(self, points: FloatArray) -> FloatArray:
        """Columns about their centre, in units of their spread."""
        return ((points if self.bends is None else self.bends(points)) - self.centre) / self.spread

    def kernel(
        self,
        bias: float,
        linear: float,
        smooth: float,
        lengthscale: float,
        *,
        decorrelated: float = 0.0,
        own: float = 0.0,
        relevance: FloatArray = ALIKE,
    ) -> Mixed:
        """Return the kernel of these parts, in the units of the data, with weighted variables but in W."""
        scale, precision = self.spread, self.precision
        if len(relevance):
            # l·⟨x, y⟩ and ‖x − y‖/ℓ stay the same if columns shrink by c, l grows by c² and ℓ shrinks by c
            square = self.mean_square(relevance)
            linear, lengthscale = linear * square, lengthscale / math.sqrt(square)
            shrink = math.sqrt(square) / column_factors(relevance, self.labels)
            # ⟨x, Wx⟩ stays as it is
            scale, precision = scale * shrink, precision * np.multiply.outer(shrink, shrink)
        metric, both = None, linear + decorrelated
        if decorrelated:
            # l·⟨x, y⟩/n + w·⟨x, Wy⟩ = (l + w)·⟨x, My⟩
            metric = decorrelated / both * precision
            metric.flat[:: len(metric) + 1] += linear / both / self.variables
        return Mixed(
            bias,
            both,
            smooth,
            lengthscale,
            centre=self.centre,
            scale=scale,
            variables=self.variables,
            metric=metric,
            own=own,
            bends=self.bends,
        )


def measured_bends(points: FloatArray, variables: NDArray[np.intp]) -> Bends | None:
    """Return the bends of the columns of a sample (n, d) that have long tails; None if none has.

    Amounts of money and counts often do: a few values are far from all others, and in units of the standard deviation
    the others lie in one place. The scale of most values is the mean absolute deviation from the median, which is
    √(2/π) standard deviations of a normal variable and less where tails are long.
    """
    if not len(points):
        return None
    middle = np.median(points, axis=0)
    deviations = points - middle
    largest = np.abs(deviations).max(axis=0)
    # flags have no tails, and levels of a category share one spread
    is_alone = np.bincount(variables, minlength=points.shape[1])[variables] == 1
    has_tail = is_alone & np.isfinite(largest) & (largest > NEGLIGIBLE_SPREAD * np.abs(middle))
    columns = np.flatnonzero(has_tail)
    if not len(columns):
        return None
    # in units of the largest: squares of 1e-200 are 0
    relative = deviations[:, columns] / largest[columns]
    usual = math.sqrt(math.pi / 2.0) * np.abs(relative).mean(axis=0)
    # by more than the ratio of n normal values varies
    limit = defaults.LONG_TAIL + 1.0 / math.sqrt(len(points))
    is_long = (relative.std(axis=0) > limit * usual) & np.array([len(np.unique(one)) > 2 for one in relative.T])
    if not is_long.any():
        return None
    columns = columns[is_long]
    return Bends(columns, middle[columns], defaults.TAIL_KNEE * usual[is_long] * largest[columns])


def action_units(actions: FloatArray, columns: Columns, before: ColumnUnits | None) -> ColumnUnits:
    """Return the units of described actions: those of their box, or of the actions that were played."""
    if columns.box is not None:
        return ColumnUnits.of_box(*(np.array(corner) for corner in columns.box))
    dimension = columns.contexts + actions.shape[1]
    variables = columns.of(slice(columns.contexts, dimension), dimension)
    return ColumnUnits.measured(actions, variables, before)


def _precision(standardised: FloatArray, varies: NDArray[np.bool_]) -> FloatArray:
    """Return the inverse of the correlations of a sample, shrunk towards none.

    The signal often lies where the columns hardly vary: in the difference of two that nearly agree. The share d/(n + d)
    of shrinkage is what is left of the eigenvalues of a sample of n rows whose columns do not correlate at all.
    """
    count, dimension = standardised.shape
    correlations = np.einsum("ni,nj->ij", standardised, standardised, optimize=True) / count
    share = dimension / (count + dimension)
    shrunk = (1.0 - share) * correlations
    shrunk.flat[:: dimension + 1] += share
    precision = np.linalg.inv(shrunk) * np.multiply.outer(varies, varies)
    total = float(np.vdot(precision, correlations))
    return precision / total if total > 0.0 else np.zeros_like(precision)


@dataclass(frozen=True)
class RewardModel:
    """Rewards as mean + f(s) + noise, with f a Gaussian process of covariance variance·kernel.

    Attributes:
        kernel: k, 1 at distance 0.
        variance: the output variance v, in squared reward units.
        noise: the noise variance λ, in squared reward units.
        mean: c, the expected reward where nothing is known.
    """

    kernel: Stationary
    variance: float
    noise: float
    mean: float = 0.0

    @classmethod
    def of(cls, kernel: KernelLike, noise: float) -> RewardModel:
        """Return the model that a kernel given by the user stands for."""
        if isinstance(kernel, Stationary):
            return cls(kernel, 1.0, noise)
        if isinstance(kernel, Product):
            for factor, other in ((kernel.left, kernel.right), (kernel.right, kernel.left)):
                if isinstance(factor, Constant) and isinstance(other, Stationary):
                    return cls(other, factor.value, noise)
        raise InputError(
            f"learn_kernel: lengthscales are learned for Gaussian, Exponential and Matern and for multiples of them, "
            f"got {kernel!r}; pass one of these, or learn_kernel=False to keep the kernel as it is."
        )

    @property
    def covariance(self) -> KernelLike:
        """The kernel variance·k that a posterior takes."""
        return self.kernel if self.variance == 1.0 else self.variance * self.kernel


class Units:
    """Units in which a sample has spread one, and the way there and back.

    Args:
        points: shape (n, d).
        rewards: shape (n,).
        groups: the group of each column, shape (d,); columns of a group share a lengthscale in these units.
        before: units of an earlier sample, which these are at least as large as: a policy that plays what it knows to
            be good sees less and less of the columns, but they are as wide as they were.
    """

    saved: ClassVar[tuple[str, ...]] = (
        "groups",
        "number_of_groups",
        "centres",
        "reward_centre",
        "measured",
        "reward_measured",
        "spreads",
        "reward_spread",
    )

    def __init__(
        self, points: FloatArray, rewards: FloatArray, groups: NDArray[np.intp], before: Units | None = None
    ) -> None:
        self.groups: NDArray[np.intp] = groups
        self.number_of_groups: int = int(groups.max()) + 1
        self.centres: FloatArray = points.mean(axis=0)
        self.reward_centre: float = float(rewards.mean())
        # √12 standard deviations are the length of an interval of uniform values; a column that never varies has none
        measured = math.sqrt(12.0) * _standard_deviations(points, self.centres)
        varies = measured > NEGLIGIBLE_SPREAD * np.abs(self.centres)
        self.measured: FloatArray = np.where(varies, measured, 0.0)
        deviation = float(rewards.std())
        # what rounding makes of equal rewards
        self.reward_measured: float = deviation if deviation > np.finfo(float).eps * abs(self.reward_centre) else 0.0
        if before is not None:
            self.measured = np.maximum(self.measured, before.measured)
            self.reward_measured = max(self.reward_measured, before.reward_measured)
        self.spreads: FloatArray = np.where(self.measured > 0.0, self.measured, 1.0)
        self.reward_spread: float = self.reward_measured or abs(self.reward_centre) or 1.0

    def scaled(self, points: FloatArray) -> FloatArray:
        """Return points in these units, about their centre."""
        return (points - self.centres) / self.spreads

    def relative(self, lengthscales: FloatArray | float) -> FloatArray:
        """Lengthscales over the spread of their columns, shape (d,); infinite where a column never varied."""
        with np.errstate(divide="ignore"):
            return lengthscales / self.measured

    def parameters(self, model: RewardModel) -> FloatArray:
        """Return θ = (log ℓ of each group, log v, log λ) in these units."""
        lengthscales = np.log(model.kernel.lengthscale / self.spreads)
        shared = np.bincount(self.groups, lengthscales) / np.bincount(self.groups)
        variances = np.log([model.variance, model.noise]) - 2.0 * math.log(self.reward_spread)
        return np.concatenate([shared, variances])

    def model(self, family: Stationary, parameters: FloatArray, mean: float) -> RewardModel:
        """Return the model of parameters and a mean in these units."""
        variance, noise = (np.exp(parameters[-2:]) * self.reward_spread**2).tolist()
        lengthscales = np.exp(parameters[:-2])[self.groups] * self.spreads
        return RewardModel(
            family.with_lengthscale(lengthscales), variance, noise, self.reward_centre + self.reward_spread * mean
        )


def _standard_deviations(points: FloatArray, centres: FloatArray) -> FloatArray:
    """Column by column, without squares that overflow."""
    offsets = points - centres
    largest = np.abs(offsets).max(axis=0)
    safe = np.where(largest > 0.0, largest, 1.0)
    return np.sqrt(((offsets / safe) ** 2).mean(axis=0)) * largest


@dataclass(frozen=True)
class RewardUnits:
    """Bounds within which rewards count.

    A least-squares fit weighs deviations by their squares. If a handful of n rewards hold most of the squares, neither
    the mean nor the variance can be estimated, and the other rewards hardly count. Tails are heavy then: the standard
    deviation is more than log n times the robust one, by deciles, and that because of log n rewards alone. For normal
    and exponential rewards this does not happen; for Cauchy ones it does as n grows. Rewards then count up to log n
    robust standard deviations from the median, where they are still the largest or the smallest. Where half of the
    rewards are equal but for rounding, as those of rare clicks, there is no scale to compare with and all count as they
    are; so do rare rewards once there are more than a handful.

    Where no tail is heavy, the bounds are √n times the largest deviation so far, which a tail with a finite variance
    passes once in n times as many rewards.

    Attributes:
        low: rewards below count as this.
        high: rewards above count as this.
    """

    low: float = -math.inf
    high: float = math.inf

    @classmethod
    def of(cls, rewards: FloatArray, may_be_cut: bool = True) -> RewardUnits:
        """Return the bounds of the rewards (n,) seen so far; unless they may be cut all of them count in full."""
        low, lower, middle, upper, high = np.quantile(rewards, (0.1, 0.25, 0.5, 0.75, 0.9)).tolist()
        deviations = np.abs(rewards - middle)
        largest = float(deviations.max())
        if largest < LEAST_DEVIATION:
            return cls(middle, middle) if largest else cls()
        count, bound = len(rewards), math.inf
        if count >= defaults.FEWEST_REWARDS_WITH_TAILS:
            robust = (high - low) / NORMAL_DECILES
            are_spread = upper - lower > ROUNDING * max(abs(lower), abs(upper))
            is_heavy = may_be_cut and are_spread and _is_heavy(deviations, robust)
            bound = math.log(count) * robust if is_heavy else math.sqrt(count) * largest
        return cls(middle - bound, middle + bound)

    def cuts(self, rewards: FloatArray) -> bool:
        """Return whether some of the rewards do not count in full."""
        return bool((rewards < self.low).any() or (rewards > self.high).any())

    def bounded(self, rewards: Rewards) -> Rewards:
        """Return what of rewards counts, in the units of the data."""
        if isinstance(rewards, float):
            return min(max(rewards, self.low), self.high)
        return np.clip(rewards, self.low, self.high)


def return_to_their_places(points: FloatArray, rewards: FloatArray, units: RewardUnits) -> bool:
    """Return whether rewards beyond what counts are to be expected.

    Most of them lie next to another one then, or more than by chance.

    Outliers have any neighbours: of b among n rewards, b²/n have another next to them. Jackpots have jackpots, where
    the action was the same.

    Args:
        points: joint points, shape (n, d).
        rewards: shape (n,).
        units: of the rewards.
    """
    is_beyond = (rewards < units.low) | (rewards > units.high)
    beyond = np.flatnonzero(is_beyond)[:LARGEST_HANDFUL]
    spread = points.std(axis=0)
    columns = (points / np.where(spread > 0.0, spread, 1.0))[:, spread > 0.0]
    distances = np.array([np.vecdot(columns - columns[row], columns - columns[row]) for row in beyond])
    distances[np.arange(len(beyond)), beyond] = math.inf
    by_chance = len(beyond) * is_beyond.mean()
    limit = min(0.5 * len(beyond), 1.0 + by_chance + 3.0 * math.sqrt(by_chance))
    return bool(is_beyond[distances.argmin(axis=1)].sum() > limit)


def _is_heavy(deviations: FloatArray, robust: float) -> bool:
    """Return whether a handful of deviations hide the others, given their robust standard deviation."""
    with np.errstate(over="ignore"):
        # far beyond, so that the sum of their squares stays finite
        squares = np.minimum(deviations / robust, 1e100) ** 2
    few = math.log(len(deviations))
    total = float(squares.sum())
    if total <= few**2 * len(squares):
        return False
    top = np.partition(squares, -math.ceil(few))[-math.ceil(few) :]
    return float(top.sum()) > defaults.DOMINANT_REWARDS_SHARE * total
