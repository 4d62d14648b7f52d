"""Learning the warp of columns: each number of it has to be paid for by the evidence.

A variable of relevance ρ is multiplied by exp ρ in the linear and in the smooth part: what does not matter for one does
not matter for the other either. The priors of ρ and of moves are Cauchy distributions. They hold what is nearly 0
there, as normal ones do, and ask 2·log(ρ/τ) nats for a number that leaves, however far: the price of a parameter, not
of a distance.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import KernelBanditsError
from kernel_bandits.learning.descent import descend
from kernel_bandits.learning.mixed_objective import IMPOSSIBLE, MixedObjective
from kernel_bandits.learning.warp import Warp


class WarpObjective:
    """The objective over θ and a warp.

    Args:
        objective: over θ, of columns that are not warped.
    """

    def __init__(self, objective: MixedObjective) -> None:
        self._objective = objective
        self._count, self._sizes = len(objective.medians), objective.blocks[0].warp_sizes
        prior = objective.prior
        widths = [prior.relevance_width] * self._sizes.weights
        self._widths = np.array(widths + [prior.moves_width] * (self._sizes.total - self._sizes.weights))
        self._varying = np.zeros(self._sizes.moves[0], dtype=bool)
        for block in objective.blocks:
            if block.actions is not None and len(self._varying):
                self._varying |= np.ptp(block.actions.columns, axis=0) > 0.0

    def __call__(self, both: FloatArray) -> tuple[float, FloatArray]:
        """Return the value at θ and the numbers of a warp and its gradient; a large value where there is none."""
        parameters, numbers = both[: self._count], both[self._count :]
        power = self._objective.power
        try:
            score = self._objective.score(
                parameters, self._objective.blocks, mean_precision=1.0, warp=self._sizes.warp(numbers)
            )
        except KernelBanditsError:
            return IMPOSSIBLE, np.zeros(len(both))
        penalty, slope = self._objective.penalty(parameters)
        # −log of a Cauchy density of scale τ is log(1 + ρ²/τ²), with the slope 2ρ/(τ² + ρ²)
        penalty += float(np.log1p((numbers / self._widths) ** 2).sum())
        slope = np.append(slope, 2.0 * numbers / (self._widths**2 + numbers**2))
        return penalty - power * score.value, slope - power * score.gradient

    def minimum(self, starts: Sequence[tuple[FloatArray, FloatArray]]) -> tuple[FloatArray, Warp, float]:
        """Return the best θ and warp found from the best of some starts, and the value.

        Starts of another size are ignored.
        """
        prior, total = self._objective.prior, self._sizes.total
        reach = np.full(total, prior.reach)
        # a move of an action column that never varies would only be another kernel of the contexts
        reach[self._sizes.weights :].reshape(self._sizes.moves)[~self._varying] = 0.0
        low, high = np.append(self._objective.low, -reach), np.append(self._objective.high, reach)
        joined = [np.append(*start) for start in starts if len(start[1]) == total]
        count = self._objective.count
        found, value = descend(self, joined, low, high, prior.warp_iterations, count, prior.tolerance)
        return found[: self._count], self._sizes.warp(found[self._count :]), value
