"""Models of rewards, and units in which a sample of them does not depend on the units of the data."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import InputError
from kernel_bandits.kernels import Constant, KernelLike, Product, Stationary

# A column that varies by less than this share of its values is as good as constant: an action that is found again in a
# box comes back with such differences.
NEGLIGIBLE_SPREAD = 1e-7


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

    def __init__(
        self, points: FloatArray, rewards: FloatArray, groups: NDArray[np.intp], before: Units | None = None
    ) -> None:
        self.groups = groups
        self.number_of_groups = int(groups.max()) + 1
        self.centres, self.reward_centre = points.mean(axis=0), float(rewards.mean())
        # √12 standard deviations are the length of an interval of uniform values; a column that never varies has none
        measured = math.sqrt(12.0) * _standard_deviations(points, self.centres)
        varies = measured > NEGLIGIBLE_SPREAD * np.abs(self.centres)
        self.measured = np.where(varies, measured, 0.0)
        deviation = float(rewards.std())
        # what rounding makes of equal rewards
        self.reward_measured = deviation if deviation > np.finfo(float).eps * abs(self.reward_centre) else 0.0
        if before is not None:
            self.measured = np.maximum(self.measured, before.measured)
            self.reward_measured = max(self.reward_measured, before.reward_measured)
        self.spreads = np.where(self.measured > 0.0, self.measured, 1.0)
        self.reward_spread = self.reward_measured or abs(self.reward_centre) or 1.0

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
