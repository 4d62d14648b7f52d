"""Learning the mixed kernel of a table: how much of the reward is noise, constant, linear and smooth.

The prior is 20 % constant, 40 % linear and 40 % smooth, with a lengthscale of √n standard deviations; the evidence
moves it where the data ask for it. Everything is in units of the spread of the columns and of the rewards. The
constants were chosen on the development tables of the bake-off, and ``BONUS`` on Chessboard and Step Diagonal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import KernelBanditsError
from kernel_bandits.kernels import Kernel, TensorProduct
from kernel_bandits.kernels.mixed import Mixed, PerArm
from kernel_bandits.learning import blocks
from kernel_bandits.learning.blocks import Block, BlockEvidence, Similarity, block_evidence
from kernel_bandits.learning.units import NEGLIGIBLE_SPREAD


@dataclass(frozen=True)
class MixedPrior:
    """Where the parameters start, and how far the evidence has to carry them.

    Attributes:
        signal: median share of the variance of the rewards that is no noise.
        bias: share of the constant part of contexts in the signal.
        linear: share of the linear part.
        smooth: share of the smooth part.
        lengthscale: median, in standard deviations times √n.
        action: median of the linear and of the smooth part of actions over their constant part.
        width: of the logarithm of a share.
        lengthscale_width: of the logarithm of a lengthscale, where rewards have two values.
        free_lengthscale_width: the same for other rewards.
        noise_width: of the logarithm of the noise, where rewards have two values.
        free_noise_width: the same for other rewards.
        total_width: of the logarithm of signal and noise together over the variance of the rewards, which they make up.
        reach: no parameter leaves its median by more than this factor, as a logarithm.
        observations: per function, before anything but the level and the spread of the rewards is learned. Fewer say
            more of the policy that chose them than of the reward.
        two_valued_power: by which the evidence of two-valued rewards is raised: they are not Gaussian.
        sample_size: at most this many observations of one function are looked at, and twice that of several.
        iterations: of the optimiser.
    """

    signal: float = 0.9
    bias: float = 0.2
    linear: float = 0.4
    smooth: float = 0.4
    lengthscale: float = 1.0
    action: float = 1.0
    width: float = 1.0
    lengthscale_width: float = 0.3
    free_lengthscale_width: float = 1.0
    noise_width: float = 0.7
    free_noise_width: float = 1.0
    total_width: float = 1.0
    reach: float = 5.0
    observations: int = 16
    two_valued_power: float = 0.5
    sample_size: int = 400
    iterations: int = 15


PRIOR = MixedPrior()
# Standard deviations of the exploration bonus: for rewards of any values, half of one more than is right for a known
# kernel, since this one is uncertain too; and for two-valued rewards, at least.
BONUS, LEAST_BONUS = 1.5, 0.5


@dataclass(frozen=True)
class Columns:
    """What the columns of a joint point are.

    Attributes:
        contexts: how many of the leading columns are the context.
        variables: the variable of each column, shape (d,); the columns of one variable share a spread. None for one
            variable per column.
        box: the corners of the smallest box that holds every box offered so far; None where rows were.
    """

    contexts: int = 0
    variables: tuple[int, ...] | None = None
    box: tuple[tuple[float, ...], tuple[float, ...]] | None = None

    def within(self, low: FloatArray, high: FloatArray) -> Columns:
        """The same, with actions from one more box."""
        if self.box is not None:
            low, high = np.minimum(low, self.box[0]), np.maximum(high, self.box[1])
        return replace(self, box=(tuple(low.tolist()), tuple(high.tolist())))

    def of(self, part: slice, dimension: int) -> NDArray[np.intp]:
        """The variables of some of the columns, numbered from 0."""
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
    """

    centre: FloatArray
    spread: FloatArray
    varies: NDArray[np.bool_]
    variables: int

    @classmethod
    def measured(cls, points: FloatArray, variables: NDArray[np.intp], before: ColumnUnits | None) -> ColumnUnits:
        """Those of a sample, at least as wide as before: a policy that plays what is good sees less and less."""
        if not points.shape[1]:
            return cls(np.empty(0), np.empty(0), np.empty(0, dtype=bool), 1)
        centre = points.mean(axis=0)
        with np.errstate(over="ignore"):
            variances = ((points - centre) ** 2).mean(axis=0)
        # One categorical variable is one coordinate: its indicators together vary by Σ p(1 − p).
        spread = np.sqrt(np.bincount(variables, variances)[variables])
        varies = spread > NEGLIGIBLE_SPREAD * np.abs(centre)
        spread = np.where(varies & np.isfinite(spread), spread, 1.0)
        if before is not None:
            wider = np.where(varies, np.maximum(spread, before.spread), before.spread)
            spread, varies = np.where(before.varies, wider, spread), varies | before.varies
        count = len(np.unique(variables[varies]))
        return cls(centre, spread, varies, max(count, 1))

    @classmethod
    def of_box(cls, low: FloatArray, high: FloatArray) -> ColumnUnits:
        """Those of actions that fill a box evenly, whichever were played."""
        width = high - low
        varies = width > NEGLIGIBLE_SPREAD * np.maximum(np.abs(low), np.abs(high))
        # a uniform value has a standard deviation of 1/√12 of its range
        spread = np.where(varies, width / math.sqrt(12.0), 1.0)
        return cls(0.5 * (low + high), spread, varies, max(int(varies.sum()), 1))

    def standardised(self, points: FloatArray) -> FloatArray:
        """Columns about their centre, in units of their spread."""
        return (points - self.centre) / self.spread

    def kernel(self, bias: float, linear: float, smooth: float, lengthscale: float) -> Mixed:
        """The kernel of these parts, in the units of the data."""
        return Mixed(bias, linear, smooth, lengthscale, centre=self.centre, scale=self.spread, variables=self.variables)


@dataclass(frozen=True)
class MixedModel:
    """Rewards as mean + f(s) + noise, with f of a mixed kernel.

    Attributes:
        kernel: of joint points.
        noise: λ, in squared reward units.
        mean: c, the expected reward where nothing is known.
        parameters: θ in units of the sample.
        bonus: how many standard deviations an upper bound lies above the mean.
        contexts: units of the context columns.
        actions: units of the action columns; None where arms share nothing.
        power: by which the evidence counted; 0 where only level and spread of the rewards were learned.
        evidence: the log evidence of the sample, in nats.
    """

    kernel: Kernel
    noise: float
    mean: float
    parameters: FloatArray
    bonus: float
    contexts: ColumnUnits
    actions: ColumnUnits | None
    power: float
    evidence: float

    @property
    def shares(self) -> tuple[tuple[str, float], ...]:
        """The parts of the variance of a reward: noise, constant, linear and smooth."""
        values = np.exp(self.parameters)
        bias, linear, smooth = values[: blocks.LENGTH].tolist()
        by_linear, by_smooth = values[blocks.ACTION_LINEAR : blocks.ACTION_LENGTH] if self.actions else (0.0, 0.0)
        # (b + l + s)(1 + l' + s'): what has a smooth factor is smooth, what is left with a linear one linear
        straight = linear * (1.0 + by_linear) + bias * by_linear
        parts = {
            "noise": float(values[blocks.NOISE]),
            "constant": bias,
            "linear": float(straight),
            "smooth": float((bias + linear + smooth) * (1.0 + by_linear + by_smooth) - bias - straight),
        }
        total = sum(parts.values())
        return tuple((name, part / total) for name, part in parts.items())

    def relative_lengthscales(self, dimension: int) -> tuple[float, ...]:
        """Lengthscales over the spread of their columns, √12 standard deviations; 0 in the columns that name an arm."""
        values = np.exp(self.parameters)
        relative = np.zeros(dimension)
        split = len(self.contexts.varies)
        relative[:split] = _relative(self.contexts, values[blocks.LENGTH])
        if self.actions is not None:
            relative[split:] = _relative(self.actions, values[blocks.ACTION_LENGTH])
        return tuple(relative.tolist())


def _relative(units: ColumnUnits, lengthscale: float) -> FloatArray:
    return np.where(units.varies, lengthscale * math.sqrt(units.variables / 12.0), math.inf)


def _action_units(actions: FloatArray, columns: Columns, before: MixedModel | None) -> ColumnUnits:
    """The units of described actions: those of their box, or of the actions that were played."""
    if columns.box is not None:
        return ColumnUnits.of_box(*(np.array(corner) for corner in columns.box))
    dimension = columns.contexts + actions.shape[1]
    variables = columns.of(slice(columns.contexts, dimension), dimension)
    return ColumnUnits.measured(actions, variables, None if before is None else before.actions)


def are_arms(actions: FloatArray) -> bool:
    """Whether actions are names: unit vectors of two columns or more."""
    return actions.shape[1] > 1 and bool(
        (((actions == 0.0) | (actions == 1.0)).all(axis=1) & (actions.sum(axis=1) == 1.0)).all()
    )


class MixedSample:
    """Observations on which a mixed kernel is fitted.

    Args:
        points: joint points, shape (n, d).
        rewards: shape (n,), not all equal.
        columns: what they are.
        arms: whether actions name arms that share nothing.
        before: the model before, if there was one.
        prior: of the parameters.
    """

    def __init__(
        self,
        points: FloatArray,
        rewards: FloatArray,
        columns: Columns,
        arms: bool,
        before: MixedModel | None,
        prior: MixedPrior = PRIOR,
    ) -> None:
        split, dimension = columns.contexts, points.shape[1]
        self._split, self._arms, self._prior = split, arms, prior
        contexts, actions = points[:, :split], points[:, split:]
        self._contexts = ColumnUnits.measured(
            contexts, columns.of(slice(0, split), dimension), None if before is None else before.contexts
        )
        self._actions = None if arms else _action_units(actions, columns, before)
        self._centre, self._spread = float(rewards.mean()), float(rewards.std())
        self._values = np.unique(rewards)
        self._rewards = (rewards - self._centre) / self._spread
        standardised = self._contexts.standardised(contexts)
        groups = np.unique(actions, axis=0, return_inverse=True)[1].reshape(-1) if arms else np.zeros(len(points), int)
        self._blocks = []
        for group in range(int(groups.max()) + 1):
            rows = groups == group
            described = None
            if self._actions is not None:
                described = Similarity.of(self._actions.standardised(actions[rows]), self._actions.variables)
            similarity = Similarity.of(standardised[rows], self._contexts.variables)
            self._blocks.append(Block(similarity, described, self._rewards[rows]))

    @property
    def _medians(self) -> FloatArray:
        prior = self._prior
        shares = prior.signal * np.array([prior.bias, prior.linear, prior.smooth])
        if self._actions is not None:
            shares = shares / (1.0 + 2.0 * prior.action)
        medians = [*shares, prior.lengthscale, 1.0 - prior.signal]
        if self._actions is not None:
            medians += [prior.action, prior.action, prior.lengthscale]
        return np.log(medians)

    @property
    def _widths(self) -> FloatArray:
        prior = self._prior
        # A very short lengthscale fits noise as well as a noise term does. Two-valued rewards are mostly noise.
        length = prior.lengthscale_width if self._is_two_valued else prior.free_lengthscale_width
        noise = prior.noise_width if self._is_two_valued else prior.free_noise_width
        widths = [prior.width, prior.width, prior.width, length, noise]
        return np.array(widths if self._actions is None else [*widths, prior.width, prior.width, length])

    def _log_total(self, parameters: FloatArray) -> tuple[float, FloatArray]:
        """The logarithm of signal and noise together, in units of the variance of the rewards, and its gradient."""
        values = np.exp(parameters)
        parts, factor = values[: blocks.LENGTH], 1.0
        gradient = np.zeros(len(values))
        if self._actions is not None:
            factors = values[blocks.ACTION_LINEAR : blocks.ACTION_LENGTH]
            factor = 1.0 + float(factors.sum())
            gradient[blocks.ACTION_LINEAR : blocks.ACTION_LENGTH] = parts.sum() * factors
        gradient[: blocks.LENGTH] = factor * parts
        gradient[blocks.NOISE] = values[blocks.NOISE]
        total = factor * float(parts.sum()) + float(values[blocks.NOISE])
        return math.log(total), gradient / total

    @property
    def _power(self) -> float:
        """How much the evidence counts.

        The variance of a sample variance is (κ − 1)/2 times what it is for Gaussian rewards, κ their kurtosis: rare
        rewards and outliers tell as much less of variances.
        """
        if len(self._rewards) < self._prior.observations * len(self._blocks):
            return 0.0
        kurtosis = float((self._rewards**4).mean())
        power = min(1.0, 2.0 / max(kurtosis - 1.0, 1e-9))
        return power * (self._prior.two_valued_power if self._is_two_valued else 1.0)

    @property
    def _is_two_valued(self) -> bool:
        return len(self._values) == 2

    def fit(self, before: MixedModel | None) -> MixedModel:
        """The model with the largest evidence times prior, near the prior where the evidence is thin."""
        medians, widths, power = self._medians, self._widths, self._power

        def negated(parameters: FloatArray) -> tuple[float, FloatArray]:
            try:
                evidence = self._evidence(parameters)
            except KernelBanditsError:
                return 1e12, np.zeros(len(parameters))
            offset = (parameters - medians) / widths
            total, slope = self._log_total(parameters)
            width = self._prior.total_width
            penalty = 0.5 * (float(offset @ offset) + (total / width) ** 2)
            return (
                penalty - power * evidence.value,
                offset / widths + total / width**2 * slope - power * evidence.gradient,
            )

        def best(start: FloatArray) -> FloatArray:
            reach = self._prior.reach
            bounds = list(zip(medians - reach, medians + reach, strict=True))
            options = {"maxiter": self._prior.iterations}
            start = np.clip(start, medians - reach, medians + reach)
            return minimize(negated, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x

        if power == 0.0:
            return self._model(medians, power)
        starts = [medians]
        if before is not None and len(before.parameters) == len(medians):
            starts.append(before.parameters)
        parameters = best(min(starts, key=lambda each: negated(each)[0]))
        # A very short lengthscale fits noise as well as a noise term does: it has to earn the price of a parameter.
        mostly_noise = medians.copy()
        mostly_noise[: blocks.LENGTH] += math.log((1.0 - self._prior.signal) / self._prior.signal)
        mostly_noise[blocks.NOISE] = math.log(self._prior.signal)
        noisy = best(mostly_noise)
        price = 0.5 * math.log(len(self._rewards))
        if noisy[blocks.NOISE] > parameters[blocks.NOISE] and negated(noisy)[0] <= negated(parameters)[0] + price:
            parameters = noisy
        return self._model(parameters, power)

    def evidence_of(self, model: MixedModel) -> float:
        """The log evidence of a model, in these units."""
        return self._evidence(model.parameters).value

    def _evidence(self, parameters: FloatArray) -> BlockEvidence:
        return block_evidence(parameters, self._blocks, mean_precision=1.0)

    def _model(self, parameters: FloatArray, power: float) -> MixedModel:
        evidence = self._evidence(parameters)
        square = self._spread**2
        values = np.exp(parameters)
        bias, linear, smooth = (values[: blocks.LENGTH] * square).tolist()
        contexts = self._contexts.kernel(bias, linear, smooth, float(values[blocks.LENGTH]))
        variance = bias + linear + smooth
        kernel: Kernel
        if self._actions is None:
            kernel = PerArm(contexts, self._split)
        else:
            action = values[blocks.ACTION_LINEAR :]
            actions = self._actions.kernel(1.0, *action.tolist())
            variance *= actions.variance
            if self._split:
                kernel = TensorProduct(contexts, actions, self._split)
            else:
                kernel = self._actions.kernel(
                    variance / actions.variance,
                    variance / actions.variance * action[0],
                    variance / actions.variance * action[1],
                    float(action[2]),
                )
        mean = self._centre + self._spread * evidence.mean
        return MixedModel(
            kernel,
            float(values[blocks.NOISE] * square),
            mean,
            parameters,
            self._bonus(mean, math.sqrt(variance)),
            self._contexts,
            self._actions,
            power,
            evidence.value,
        )

    def _bonus(self, mean: float, deviation: float) -> float:
        """How many prior standard deviations lie between the mean and what may be hoped for.

        ``BONUS``, unless rewards have two values. Then the expected reward of mean c and deviation σ that is either the
        lower value or a single higher one has the higher one at c + σ²/(c − lower): rare successes are worth looking
        for.
        """
        if not self._is_two_valued:
            return BONUS
        lower, upper = self._values.tolist()
        hoped = deviation / max(mean - lower, 1e-3 * (upper - lower))
        return max(LEAST_BONUS, min(hoped, (upper - mean) / deviation))
