"""The weak prior on lengthscales, output variance, noise and mean, in units in which the data have spread one."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from kernel_bandits.arrays import FloatArray


@dataclass(frozen=True)
class KernelPrior:
    """A Gaussian on logarithms, within bounds.

    It ties the columns together while little is known: a handful of points cannot declare a column irrelevant.

    Attributes:
        median_lengthscale: in spreads, times √d: distances grow as √d.
        common_width: lengthscales move together by this many factors of e,
        column_width: and each apart from the others by this many.
        median_variance: the output variance, in variances of the rewards.
        variance_width: its width.
        median_noise: λ, in variances of the rewards.
        noise_width: its width: rewards may be nearly all noise.
        mean_precision: the mean of the rewards moves by one standard deviation of them.
        lengthscale_bounds: beyond these a lengthscale is as good as zero or infinite.
        variance_bounds: of the output variance.
        noise_bounds: noise below 1 % of the spread of the rewards would let one surprising reward decide.
    """

    median_lengthscale: float = 0.2
    common_width: float = 1.0
    column_width: float = 1.0
    median_variance: float = 1.0
    variance_width: float = 2.0
    median_noise: float = 0.2
    noise_width: float = 2.0
    mean_precision: float = 1.0
    lengthscale_bounds: tuple[float, float] = (0.005, 500.0)
    variance_bounds: tuple[float, float] = (1e-2, 1e2)
    noise_bounds: tuple[float, float] = (1e-4, 4.0)

    def centre(self, groups: int, dimension: int) -> FloatArray:
        """Return the median of θ = (log ℓ of each group, log v, log λ) for points of ``dimension`` columns."""
        lengthscale = self.median_lengthscale * math.sqrt(dimension)
        return np.log([*[lengthscale] * groups, self.median_variance, self.median_noise])

    def precision(self, groups: int) -> FloatArray:
        """Return the inverse covariance of θ."""
        covariance = np.diag([*[self.column_width**2] * groups, self.variance_width**2, self.noise_width**2])
        covariance[:groups, :groups] += self.common_width**2
        return np.linalg.inv(covariance)

    def bounds(self, groups: int) -> list[tuple[float, float]]:
        """Return what no data can leave, of each entry of θ."""
        limits = [*[self.lengthscale_bounds] * groups, self.variance_bounds, self.noise_bounds]
        return [(math.log(low), math.log(high)) for low, high in limits]


PRIOR = KernelPrior()
