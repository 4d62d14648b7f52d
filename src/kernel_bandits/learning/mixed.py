"""Learning the mixed kernel of a table: how much of the reward is noise, constant, linear and smooth.

The prior is 20 % constant, 40 % linear (half of that in decorrelated columns) and 40 % smooth, with a lengthscale of
√n standard deviations; the evidence moves it where the data ask for it. Everything is in units of the
spread of the columns and of the rewards. The constants were chosen on development tables of the bake-off, and ``BONUS``
on Chessboard and Step Diagonal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import KernelBanditsError
from kernel_bandits.kernels import Constant, Kernel, TensorProduct
from kernel_bandits.kernels.mixed import PerArm
from kernel_bandits.learning import blocks
from kernel_bandits.learning.blocks import Block, BlockEvidence, Similarity, block_evidence
from kernel_bandits.learning.columns import Columns, ColumnUnits, action_units


@dataclass(frozen=True)
class MixedPrior:
    """Where the parameters start, and how far the evidence has to carry them.

    Attributes:
        signal: median share of the variance of the rewards that is no noise.
        bias: share of the constant part of contexts in the signal.
        linear: share of the linear part.
        decorrelated: share of the linear part of decorrelated columns.
        smooth: share of the smooth part.
        lengthscale: median, in standard deviations times √n.
        action_linear: median of the linear part of actions over their constant part.
        action_smooth: the same of the smooth part.
        action_lengthscale: as ``lengthscale``, of actions.
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
    linear: float = 0.2
    decorrelated: float = 0.2
    smooth: float = 0.4
    lengthscale: float = 1.0
    action_linear: float = 1.0
    action_smooth: float = 1.0
    action_lengthscale: float = 1.0
    width: float = 1.0
    lengthscale_width: float = 0.3
    free_lengthscale_width: float = 0.7
    noise_width: float = 0.7
    free_noise_width: float = 1.0
    total_width: float = 1.0
    reach: float = 5.0
    observations: int = 16
    two_valued_power: float = 0.5
    sample_size: int = 400
    iterations: int = 15


PRIOR = MixedPrior()
# Of the settings of a box: sensors move what settings do, and settings do it smoothly rather than along a line.
BOX_PRIOR = MixedPrior(
    bias=0.6, linear=0.1, decorrelated=0.1, smooth=0.2, action_linear=0.5, action_smooth=2.0, action_lengthscale=0.7
)


def unknown_in_box(columns: Columns) -> Kernel:
    """Return a kernel of variance 1 of the settings of a box, whatever the sensors, for rewards that are unknown."""
    assert columns.box is not None
    low, high = (np.array(corner) for corner in columns.box)
    linear, smooth = BOX_PRIOR.action_linear, BOX_PRIOR.action_smooth
    total = 1.0 + linear + smooth
    units = ColumnUnits.of_box(low, high)
    settings = units.kernel(1.0 / total, linear / total, smooth / total, BOX_PRIOR.action_lengthscale)
    return TensorProduct(Constant(1.0), settings, columns.contexts) if columns.contexts else settings


# Standard deviations of the exploration bonus: for rewards of any values, half of one more than is right for a known
# kernel, since this one is uncertain too; and for two-valued rewards, at least.
BONUS, LEAST_BONUS = 1.5, 0.5


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
        bias, linear, decorrelated, smooth = values[: blocks.LENGTH].tolist()
        linear += decorrelated
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


class MixedSample:
    """Observations on which a mixed kernel is fitted.

    Args:
        points: joint points, shape (n, d).
        rewards: shape (n,), not all equal.
        columns: what they are.
        arms: whether actions name arms that share nothing.
        before: the model before, if there was one.
        prior: of the parameters; by default ``BOX_PRIOR`` in a box and ``PRIOR`` elsewhere.
    """

    def __init__(
        self,
        points: FloatArray,
        rewards: FloatArray,
        columns: Columns,
        arms: bool,
        before: MixedModel | None,
        prior: MixedPrior | None = None,
    ) -> None:
        if prior is None:
            prior = PRIOR if columns.box is None else BOX_PRIOR
        split, dimension = columns.contexts, points.shape[1]
        self._split, self._arms, self._prior = split, arms, prior
        contexts, actions = points[:, :split], points[:, split:]
        self._contexts = ColumnUnits.measured(
            contexts, columns.of(slice(0, split), dimension), None if before is None else before.contexts
        )
        self._actions = None if arms else action_units(actions, columns, None if before is None else before.actions)
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
            decorrelated = standardised[rows] @ self._contexts.precision @ standardised[rows].T
            self._blocks.append(Block(similarity, decorrelated, described, self._rewards[rows]))

    @property
    def _medians(self) -> FloatArray:
        prior = self._prior
        shares = prior.signal * np.array([prior.bias, prior.linear, prior.decorrelated, prior.smooth])
        if self._actions is not None:
            shares = shares / (1.0 + prior.action_linear + prior.action_smooth)
        medians = [*shares, prior.lengthscale, 1.0 - prior.signal]
        if self._actions is not None:
            medians += [prior.action_linear, prior.action_smooth, prior.action_lengthscale]
        return np.log(medians)

    @property
    def _widths(self) -> FloatArray:
        prior = self._prior
        # A very short lengthscale fits noise as well as a noise term does. Two-valued rewards are mostly noise.
        length = prior.lengthscale_width if self._is_two_valued else prior.free_lengthscale_width
        noise = prior.noise_width if self._is_two_valued else prior.free_noise_width
        widths = [prior.width, prior.width, prior.width, prior.width, length, noise]
        return np.array(widths if self._actions is None else [*widths, prior.width, prior.width, length])

    def _log_total(self, parameters: FloatArray) -> tuple[float, FloatArray]:
        """Return the log of signal plus noise, in units of the variance of the rewards, and its gradient."""
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
        """Return the model with the largest evidence times prior, near the prior where the evidence is thin."""
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
        """Return the log evidence of a model, in these units."""
        return self._evidence(model.parameters).value

    def _evidence(self, parameters: FloatArray) -> BlockEvidence:
        return block_evidence(parameters, self._blocks, mean_precision=1.0)

    def _model(self, parameters: FloatArray, power: float) -> MixedModel:
        evidence = self._evidence(parameters)
        square = self._spread**2
        values = np.exp(parameters)
        bias, linear, decorrelated, smooth = (values[: blocks.LENGTH] * square).tolist()
        contexts = self._contexts.kernel(bias, linear, smooth, float(values[blocks.LENGTH]), decorrelated)
        variance = contexts.variance
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
        """Return how many prior standard deviations lie between the mean and what may be hoped for.

        ``BONUS``, unless rewards have two values. Then the expected reward of mean c and deviation σ that is either the
        lower value or a single higher one has the higher one at c + σ²/(c − lower): rare successes are worth looking
        for.
        """
        if not self._is_two_valued:
            return BONUS
        lower, upper = self._values.tolist()
        hoped = deviation / max(mean - lower, 1e-3 * (upper - lower))
        return max(LEAST_BONUS, min(hoped, (upper - mean) / deviation))
