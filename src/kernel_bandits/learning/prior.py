"""What is believed of a kernel before rewards are seen, in units in which the data have spread one.

Weak for stationary kernels. For the mixed kernel of named arms the signal is 20 % constant, 40 % linear (half of that
in decorrelated columns) and 40 % smooth in the contexts, with a lengthscale of √n standard deviations. Of described
actions the constant part is what they earn in every context. It counts twice, since the effects of one factor are
usually larger than those of two together. The numbers of mixed kernels were chosen on development tables of the
bake-off.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from kernel_bandits.arrays import FloatArray
from kernel_bandits.kernels import Constant, Kernel, TensorProduct
from kernel_bandits.learning import evidence
from kernel_bandits.learning.columns import Columns, ColumnUnits
from kernel_bandits.learning.evidence import Block


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


STATIONARY_PRIOR = KernelPrior()


@dataclass(frozen=True)
class MixedPrior:
    """Where the parameters start, and how far the evidence has to carry them.

    Attributes:
        signal: median share of the variance of the rewards that is no noise.
        two_valued_noise: by how much less of it is signal where K named arms have earned enough rewards of two values
            to be fitted, times 1/K, or ½ for one arm. A function fits them best where it leaves much to chance; a
            smaller noise learns more from each reward and finds the right one of many arms sooner.
        bias: share of the constant part of contexts in the signal.
        linear: share of the linear part.
        decorrelated: share of the linear part of decorrelated columns.
        smooth: share of the smooth part.
        lengthscale: median, in standard deviations times √n.
        action_linear: median of the linear part of actions over their constant part.
        action_smooth: the same of the smooth part.
        action_own: the same of what each action that returns earns of its own.
        action_lengthscale: as ``lengthscale``, of actions.
        width: of the logarithm of a share.
        signal_width: of the logarithm by which all shares are larger or smaller together. Clicks and purchases are
            nearly all noise: that the signal is faint is one fact, and each part need not pay for it.
        lengthscale_width: of the logarithm of a lengthscale, where rewards have two values.
        free_lengthscale_width: the same for other rewards.
        noise_width: of the logarithm of the noise, where rewards have two values.
        free_noise_width: the same for other rewards.
        total_width: of the logarithm of signal and noise together over the variance of the rewards, which they make up.
        reach: no parameter leaves its median by more than this factor, as a logarithm.
        observations: per function, before anything but the level and the spread of the rewards is learned. Fewer say
            more of the policy that chose them than of the reward.
    """

    signal: float = 0.9
    two_valued_noise: float = 0.4
    bias: float = 0.2
    linear: float = 0.2
    decorrelated: float = 0.2
    smooth: float = 0.4
    lengthscale: float = 1.0
    action_linear: float = 1.0
    action_smooth: float = 1.0
    action_own: float = 0.5
    action_lengthscale: float = 1.0
    width: float = 1.0
    signal_width: float = 2.0
    lengthscale_width: float = 0.3
    free_lengthscale_width: float = 0.7
    noise_width: float = 0.7
    free_noise_width: float = 1.0
    total_width: float = 1.0
    reach: float = 5.0
    observations: int = 16

    def medians(self, block: Block) -> FloatArray:
        """Return the median of θ for observations such as those of a block."""
        shares = self.signal * np.array([self.bias, self.linear, self.decorrelated, self.smooth])
        if block.actions is not None:
            own = 0.0 if block.same_action is None else self.action_own
            shares = shares / (1.0 + self.action_linear + self.action_smooth + own)
        medians = [*shares, self.lengthscale, 1.0 - self.signal]
        if block.actions is not None:
            medians += [
                self.action_linear,
                self.action_smooth,
                own or math.exp(evidence.ABSENT),
                self.action_lengthscale,
            ]
        elif block.other_arm is not None:
            # arms that share nothing
            medians.append(1.0)
        return np.log(medians)

    def widths(self, block: Block, two_valued: bool) -> FloatArray:
        """Return the standard deviations of θ."""
        # A very short lengthscale fits noise as well as a noise term does. Two-valued rewards are mostly noise.
        length = self.lengthscale_width if two_valued else self.free_lengthscale_width
        noise = self.noise_width if two_valued else self.free_noise_width
        widths = [self.width] * evidence.LENGTH + [length, noise]
        if block.actions is not None:
            widths += [self.width, self.width, self.width, length]
        elif block.other_arm is not None:
            widths.append(self.width)
        return np.array(widths)


ARM_PRIOR = MixedPrior()
DESCRIBED_PRIOR = MixedPrior(bias=0.4, linear=0.15, decorrelated=0.15, smooth=0.3)
# Of the settings of a box: sensors move what settings do, and settings do it smoothly rather than along a line.
BOX_PRIOR = MixedPrior(
    bias=0.6,
    linear=0.1,
    decorrelated=0.1,
    smooth=0.2,
    action_linear=0.5,
    action_smooth=2.0,
    action_lengthscale=0.7,
)


def unknown_kernel(columns: Columns) -> Kernel:
    """Return a kernel of variance 1 of the settings of a box, whatever the sensors."""
    assert columns.box is not None
    linear, smooth = BOX_PRIOR.action_linear, BOX_PRIOR.action_smooth
    total = 1.0 + linear + smooth
    units = ColumnUnits.of_box(*(np.array(corner) for corner in columns.box))
    settings = units.kernel(1.0 / total, linear / total, smooth / total, BOX_PRIOR.action_lengthscale)
    return TensorProduct(Constant(1.0), settings, columns.contexts) if columns.contexts else settings
