"""Regret of inverse-gap weighting with several sharpnesses, beside EK-UCB and Thompson sampling.

The table of docs/algorithms/inverse-gap.md. Run: python benchmarks/inverse_gap.py
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from measure import markdown

import kernel_bandits as kb

ROUNDS, SEEDS = 1000, range(3)
PLACES: dict[str, tuple[kb.environments.Environment, float]] = {
    "Bump": (kb.environments.Bump(), 1.0),
    "Chessboard": (kb.environments.Chessboard(), 0.1),
    "StepDiagonal": (kb.environments.StepDiagonal(), 0.1),
}


def weighting(scale: float) -> Callable[[kb.Kernel, int], kb.Policy]:
    sharpness = kb.policies.InformationSharpness(scale)
    return lambda kernel, seed: kb.inverse_gap_weighting(kernel, regularization=0.01, sharpness=sharpness, seed=seed)


POLICIES: dict[str, Callable[[kb.Kernel, int], kb.Policy]] = {
    "EK-UCB": lambda kernel, seed: kb.ek_ucb(kernel, regularization=0.01, seed=seed),
    "Thompson sampling, one draw": lambda kernel, seed: kb.thompson_sampling(
        kernel, regularization=0.01, number_of_draws=1, seed=seed
    ),
    **{f"inverse-gap weighting, c = {scale:g}": weighting(scale) for scale in (2.0, 8.0, 32.0)},
}


def main() -> None:
    rows: list[dict[str, object]] = []
    for name, build in POLICIES.items():
        row: dict[str, object] = {"": name}
        for place, (environment, lengthscale) in PLACES.items():
            kernel = kb.Gaussian(lengthscale)
            regrets = [kb.run(build(kernel, seed), environment, ROUNDS, seed=seed).regret[-1] for seed in SEEDS]
            row[place] = f"{np.mean(regrets):.0f}"
        rows.append(row)
        print(row, flush=True)
    print(markdown(rows))


if __name__ == "__main__":
    main()
