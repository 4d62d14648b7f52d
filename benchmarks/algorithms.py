"""Every algorithm on the paper's environments with common settings: regret, carrying points, time per round.

All share the Gaussian kernel of the environment, λ = μ = 0.01, one standard deviation of exploration and an
oversampling of 2 (γ of KORS, q̄ of BKB); CGP-UCB alone keeps its own radius, which is what it is. Paired seeds. Records
are kept in results/algorithms, so that a benchmark that was stopped continues where it stopped.

Run: python benchmarks/algorithms.py [SEEDS]
"""

from __future__ import annotations

import sys
from typing import Any

from kernel_bandits_lab import Failure, Sweep, executor, group, study_of, summarize
from kernel_bandits_lab.tables import Difference, differences

FOLDER, JOBS = "results/algorithms", 2
ENVIRONMENTS = ("Bump", "Chessboard", "StepDiagonal")


def policy(label: str, name: str, *environments: str, **options: object) -> dict[str, Any]:
    return {"label": label, "name": name, "options": options, "environments": environments or ENVIRONMENTS}


STUDY: dict[str, Any] = {
    "name": "algorithms",
    "horizon": 2000,
    "defaults": {"regularization": 0.01},
    "environments": [{"name": name} for name in ENVIRONMENTS],
    "policies": [
        policy("K-UCB", "k_ucb"),
        policy("EK-UCB", "ek_ucb"),
        policy("EK-UCB, no history", "ek_ucb", dictionary={"rule": "Kors", "history": "none"}),
        policy("CBKB", "cbkb"),
        policy("CBBKB, C = 10", "cbbkb", batch_variance_limit=10.0),
        policy("SupKernelUCB", "sup_kernel_ucb"),
        policy("SupKernelUCB, KORS", "sup_kernel_ucb", dictionary={"rule": "Kors"}),
        policy("CGP-UCB, its radius", "cgp_ucb"),
        policy("LinUCB", "lin_ucb"),
        policy("random features, D = 100", "random_features_ucb", number_of_features=100),
        policy("random features, D = 500", "random_features_ucb", number_of_features=500),
        # quadrature features need at most three columns, and Bump has six
        policy(
            "quadrature, D = 400",
            "random_features_ucb",
            "Chessboard",
            "StepDiagonal",
            number_of_features=400,
            feature_map="quadrature",
        ),
        policy("uniform", "uniform"),
    ],
}


def main() -> None:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    sweep = Sweep(study_of({**STUDY, "seeds": seeds}), FOLDER)
    for done, outcome in enumerate(sweep.run(executor(JOBS)), start=1):
        if isinstance(outcome, Failure):
            raise SystemExit(f"{outcome.run.label}: {outcome.message}")
        print(f"\r{done}/{len(sweep.missing)} runs", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    groups = group(sweep.results.records)
    print("| | " + " | ".join(f"{name}: regret | m | µs" for name in ENVIRONMENTS) + " |")
    print("|---" * (1 + 3 * len(ENVIRONMENTS)) + "|")
    for player in STUDY["policies"]:
        row = [player["label"]]
        for name in ENVIRONMENTS:
            runs = groups[name].get(player["label"])
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
    found = {(one.environment, one.policy): one for one in differences(sweep.results.records, "K-UCB")}
    print(f"\nRegret less that of K-UCB, paired by seed; * after Holm's correction for {len(found)} comparisons:\n")
    print("| | " + " | ".join(ENVIRONMENTS) + " |\n" + "|---" * (1 + len(ENVIRONMENTS)) + "|")
    for player in STUDY["policies"][1:]:
        cells = [_words(found.get((name, player["label"]))) for name in ENVIRONMENTS]
        print(f"| {player['label']} | " + " | ".join(cells) + " |")


def _words(difference: Difference | None) -> str:
    if difference is None:
        return "–"
    mark = "\\*" if difference.adjusted_p_value < 0.05 else ""
    return f"{difference.mean:+.2f} ± {difference.half_width:.2f}{mark}".replace("-", "−")


if __name__ == "__main__":
    main()
