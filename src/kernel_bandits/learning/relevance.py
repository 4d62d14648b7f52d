"""Which variables matter: each may leave the lengthscale that all share, if the evidence pays for it.

A variable of relevance ρ is multiplied by exp ρ in the linear and in the smooth part: what does not matter for one does
not matter for the other either. The prior of ρ is a Cauchy distribution. It holds what is nearly 0 there, as a normal
one does, and asks 2·log(ρ/τ) nats for a variable that leaves, however far: the price of a parameter, not of a distance.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import minimize

from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import KernelBanditsError
from kernel_bandits.learning.blocks import block_evidence
from kernel_bandits.learning.mixed_objective import IMPOSSIBLE, MixedObjective


class RelevanceObjective:
    """The objective over θ and the relevance of variables.

    Args:
        objective: over θ, of variables that all count alike.
    """

    def __init__(self, objective: MixedObjective) -> None:
        self._objective = objective
        self._count = len(objective.medians)

    def __call__(self, both: FloatArray) -> tuple[float, FloatArray]:
        """Return the value at θ and ρ and its gradient; a large value where the evidence cannot be computed."""
        parameters, relevance = both[: self._count], both[self._count :]
        power, width = self._objective.power, self._objective.prior.relevance_width
        blocks = self._objective.weighted(relevance).blocks
        try:
            evidence = block_evidence(parameters, blocks, mean_precision=1.0, of_relevance=True)
        except KernelBanditsError:
            return IMPOSSIBLE, np.zeros(len(both))
        penalty, slope = self._objective.penalty(parameters)
        # −log of a Cauchy density of scale τ is log(1 + ρ²/τ²), with the slope 2ρ/(τ² + ρ²)
        penalty += float(np.log1p((relevance / width) ** 2).sum())
        relevance_slope = 2.0 * relevance / (width**2 + relevance**2)
        gradient = np.concatenate(
            [slope - power * evidence.gradient, relevance_slope - power * evidence.relevance_gradient]
        )
        return penalty - power * evidence.value, gradient

    def minimum(self, starts: Sequence[tuple[FloatArray, FloatArray]]) -> tuple[FloatArray, FloatArray]:
        """Return the best θ and ρ found from the best of some starts; those of other variables are left out."""
        prior = self._objective.prior
        variables = sum(self._objective.blocks[0].weights)
        low = np.append(self._objective.low, np.full(variables, -prior.reach))
        high = np.append(self._objective.high, np.full(variables, prior.reach))
        clipped = [np.clip(np.append(*start), low, high) for start in starts if len(start[1]) == variables]
        start = min(clipped, key=lambda each: self(each)[0]) if len(clipped) > 1 else clipped[0]
        bounds = list(zip(low, high, strict=True))
        options = {"maxiter": prior.relevance_iterations}
        found = minimize(self, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        return found.x[: self._count], found.x[self._count :]
