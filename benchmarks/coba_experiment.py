"""coba's own experiment on its kernel-synthetic environments: our policies next to its LinUCB, LinTS and VW learners.

Everything is coba's: environments (5 actions with 5 features each, 5 context features, no noise), learners with their
default settings where none is named, evaluator and result. Ours do not know the kernel of the environment: they take a
Gaussian of lengthscale 1, about the median distance of points, plus a constant for the level of the rewards.

Run: python benchmarks/coba_experiment.py [ENVIRONMENTS [ROUNDS]]
"""

from __future__ import annotations

import sys

import coba
from kernel_bandits_lab import mean_interval

import kernel_bandits as kb
from kernel_bandits.integrations.coba import KernelBanditLearner

KERNELS = ("gaussian", "exponential", "polynomial", "linear")


def learners() -> dict[str, coba.Learner]:
    kernel = kb.Gaussian(1.0) + kb.Constant(1.0)
    ours = {
        "EK-UCB": kb.ek_ucb(kernel, seed=0),
        "EK-UCB, no history": kb.ek_ucb(kernel, dictionary=kb.Kors(history="none"), seed=0),
        "K-UCB": kb.k_ucb(kernel, seed=0),
        "lin_ucb": kb.lin_ucb(seed=0),
    }
    return {name: KernelBanditLearner(policy, name) for name, policy in ours.items()} | {
        "coba LinUCB": coba.LinUCBLearner(),
        "coba LinUCB, alpha 0.1, quadratic in x": coba.LinUCBLearner(alpha=0.1, features=[1, "a", "ax", "axx"]),
        "coba LinTS": coba.LinTSLearner(),
        "VW epsilon": coba.VowpalEpsilonLearner(),
        "VW squarecb": coba.VowpalSquarecbLearner(),
        "VW cover": coba.VowpalCoverLearner(),
        "coba Random": coba.RandomLearner(),
    }


def mean_regrets(kernel: str, environments: int, rounds: int) -> list[str]:
    """Best reward on offer less the reward, per round, of each learner; mean over environments and 95 % interval."""
    offered = coba.Environments.from_kernel_synthetic(rounds, kernel=kernel, seed=list(range(environments)))
    evaluator = coba.SequentialCB(record=["reward", "rewards"])
    result = coba.Experiment(offered, list(learners().values()), evaluator).run(quiet=True)
    table = result.interactions.to_pandas()
    table["regret"] = table["rewards"].map(max) - table["reward"]
    means, half_widths = mean_interval(
        table.groupby(["environment_id", "learner_id"])["regret"].mean().unstack().to_numpy()
    )
    return [f"{mean:.3f} ± {half_width:.3f}" for mean, half_width in zip(means, half_widths, strict=True)]


def main() -> None:
    environments = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    columns = [mean_regrets(kernel, environments, rounds) for kernel in KERNELS]
    print("| | " + " | ".join(KERNELS) + " |")
    print("|---" * (1 + len(KERNELS)) + "|")
    for row in zip(learners(), *columns, strict=True):
        print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
