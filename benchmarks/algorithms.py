"""Every algorithm on the paper's environments with common settings: regret, carrying points, time per round.

All share the Gaussian kernel, λ = μ = 0.01, one standard deviation of exploration and an oversampling of 2 (γ of KORS,
q̄ of BKB); CGP-UCB alone keeps its own radius, which is what it is. Paired seeds.

Run: python benchmarks/algorithms.py [SEEDS]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

import kernel_bandits as kb
from kernel_bandits.experiments.compare import Cell, Contender, Problem, play, summarize
from kernel_bandits.experiments.records import RunResult
from kernel_bandits.kernels import KernelLike

HORIZON, JOBS = 2000, 2
RIDGE = 0.01
PROBLEMS = (
    Problem("Bump", kb.environments.Bump, 1.0),
    Problem("Chessboard", kb.environments.Chessboard, 0.1),
    Problem("StepDiagonal", kb.environments.StepDiagonal, 0.1),
)


def build(preset: Callable[..., kb.Policy], options: dict[str, object], kernel: KernelLike, seed: int) -> kb.Policy:
    arguments = [] if preset in (kb.lin_ucb, kb.uniform) else [kernel]
    ridge = {} if preset is kb.uniform else {"regularization": RIDGE}
    return preset(*arguments, seed=seed, **ridge, **options)


def contender(label: str, preset: Callable[..., kb.Policy], **options: object) -> Contender:
    return Contender(label, partial(build, preset, options))


CONTENDERS = (
    contender("K-UCB", kb.k_ucb),
    contender("EK-UCB", kb.ek_ucb),
    contender("EK-UCB, no history", kb.ek_ucb, history="none"),
    contender("CBKB", kb.cbkb),
    contender("CBBKB, C = 10", kb.cbbkb, batch_variance_limit=10.0),
    contender("SupKernelUCB", kb.sup_kernel_ucb, horizon=HORIZON),
    contender("SupKernelUCB, KORS", kb.sup_kernel_ucb, horizon=HORIZON, dictionary="kors"),
    contender("CGP-UCB, its radius", kb.cgp_ucb),
    contender("LinUCB", kb.lin_ucb),
    contender("random features, D = 100", kb.random_features_ucb, number_of_features=100),
    contender("random features, D = 500", kb.random_features_ucb, number_of_features=500),
    contender("quadrature, D = 400", kb.random_features_ucb, number_of_features=400, features="quadrature"),
    contender("uniform", kb.uniform),
)


def planned(seeds: int) -> list[Cell]:
    """All runs; quadrature features need at most three columns, and Bump has six."""
    return [
        Cell(problem, player, seed, HORIZON)
        for problem in PROBLEMS
        for player in CONTENDERS
        for seed in range(seeds)
        if not (problem.label == "Bump" and player.label.startswith("quadrature"))
    ]


def main() -> None:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    records: dict[tuple[str, str], list[RunResult]] = {}
    cells = planned(seeds)
    for done, (cell, result) in enumerate(play(cells, JOBS), start=1):
        records.setdefault((cell.problem.label, cell.contender.label), []).append(result)
        print(f"\r{done}/{len(cells)} runs", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    print("| | " + " | ".join(f"{problem.label}: regret | m | µs" for problem in PROBLEMS) + " |")
    print("|---" * (1 + 3 * len(PROBLEMS)) + "|")
    for player in CONTENDERS:
        row = [player.label]
        for problem in PROBLEMS:
            runs = records.get((problem.label, player.label))
            if runs is None:
                row += ["–", "–", "–"]
                continue
            summary = summarize(runs)
            row += [
                f"{summary.regret:.1f} ± {summary.regret_interval:.1f}",
                f"{summary.dictionary_size:.0f}",
                f"{summary.round_microseconds:.0f}",
            ]
        print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
