"""What was learned of a table: the mixed kernel, noise and mean, and how much of the reward each part is."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from kernel_bandits.arrays import FloatArray
from kernel_bandits.kernels import Kernel
from kernel_bandits.learning import blocks, box
from kernel_bandits.learning.columns import Columns, ColumnUnits, column_factors, relabelled
from kernel_bandits.learning.warp import Warp

# Far above a part that is absent, and far below one that is there.
PRESENT = math.exp(0.5 * blocks.ABSENT)


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
        actions: units of the action columns; None where they name arms.
        power: by which the evidence counted; 0 where only level and spread of the rewards were learned.
        evidence: the log evidence of the sample, in nats.
        warp: of the columns that the kernel compares.
        shape: what the rewards of a box show of the settings; ``CURVED`` elsewhere.
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
    warp: Warp
    shape: int = box.CURVED

    @property
    def correlation(self) -> float:
        """Of what two named arms earn in one context; 0 where arms share nothing."""
        if self.actions is not None or len(self.parameters) <= blocks.CONTRAST:
            return 0.0
        return 1.0 - math.exp(self.parameters[blocks.CONTRAST])

    @property
    def shares(self) -> tuple[tuple[str, float], ...]:
        """The parts of the variance of a reward: noise, constant, linear, smooth, and of single actions."""
        values = np.exp(self.parameters)
        bias, linear, decorrelated, smooth = values[: blocks.LENGTH].tolist()
        # without columns nothing is linear in them
        linear = (
            linear * self.contexts.mean_square(self.warp.contexts) + decorrelated if len(self.contexts.varies) else 0.0
        )
        by_linear = by_smooth = own = 0.0
        if self.actions is not None:
            by_linear, by_smooth, own = values[blocks.ACTION_LINEAR : blocks.ACTION_LENGTH].tolist()
            by_linear *= self.actions.mean_square(self.warp.actions)
        # (b + l + s)(1 + l' + s'): what has a smooth factor is smooth, what is left with a linear one linear
        straight = linear * (1.0 + by_linear) + bias * by_linear
        parts = {
            "noise": float(values[blocks.NOISE]),
            "constant": bias,
            "linear": float(straight),
            "smooth": float((bias + linear + smooth) * (1.0 + by_linear + by_smooth) - bias - straight),
        }
        if own > PRESENT:
            parts["of single actions"] = float((bias + linear + smooth) * own)
        total = sum(parts.values())
        return tuple((name, part / total) for name, part in parts.items())

    def with_variables(self, columns: Columns, dimension: int) -> MixedModel:
        """Return the same model of columns that are divided into variables otherwise."""
        split, warp = columns.contexts, self.warp
        contexts = relabelled(warp.contexts, self.contexts.labels, columns.of(slice(0, split), dimension))
        actions = warp.actions
        if self.actions is not None:
            actions = relabelled(actions, self.actions.labels, columns.of(slice(split, dimension), dimension))
        return replace(self, warp=replace(warp, contexts=contexts, actions=actions))

    def relative_lengthscales(self, dimension: int) -> tuple[float, ...]:
        """Lengthscales over the spread of their columns, √12 standard deviations; 0 in the columns that name an arm."""
        values = np.exp(self.parameters)
        relative = np.zeros(dimension)
        split = len(self.contexts.varies)
        relative[:split] = _relative(self.contexts, values[blocks.LENGTH], self.warp.contexts)
        if self.actions is not None:
            relative[split:] = _relative(self.actions, values[blocks.ACTION_LENGTH], self.warp.actions)
        return tuple(relative.tolist())


def _relative(units: ColumnUnits, lengthscale: float, relevance: FloatArray) -> FloatArray:
    shrink = 1.0 / column_factors(relevance, units.labels)
    return np.where(units.varies, shrink * lengthscale * math.sqrt(units.variables / 12.0), math.inf)
