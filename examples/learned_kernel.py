"""What a wrong lengthscale does on Chessboard, and how learning the kernel repairs it.

Run: python examples/learned_kernel.py docs/figures/learned-kernel.png
"""

from __future__ import annotations

import sys

import matplotlib.pyplot as plt
import numpy as np

import kernel_bandits as kb

HORIZON, SEEDS = 1000, range(5)
STARTS = {0.01: "C0", 0.1: "C1", 1.0: "C2"}


def play(lengthscale, learn_kernel, seed):
    """The run and its policy; a cap on m spares time where the lengthscale is far too short."""
    policy = kb.ek_ucb(kb.Gaussian(lengthscale), learn_kernel=learn_kernel, dictionary=kb.Kors(max_size=400), seed=seed)
    return kb.run(policy, kb.environments.Chessboard(), HORIZON, seed=seed), policy


def path(lengthscale, policy):
    """Rounds and lengthscales (context, action) from each on."""
    changes = policy.diagnostics().kernel_changes
    rounds = [1, *(change.round_index for change in changes), HORIZON]
    values = [[lengthscale, lengthscale], *(change.kernel.right.lengthscale for change in changes)]
    return rounds, np.array([*values, values[-1]])


def main():
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 3.6), layout="constrained")
    for lengthscale, colour in STARTS.items():
        for learn_kernel, style in ((False, ":"), (True, "-")):
            runs = [play(lengthscale, learn_kernel, seed) for seed in SEEDS]
            regret = np.mean([run.regret for run, _ in runs], axis=0)
            words = "learned from" if learn_kernel else "fixed"
            left.plot(regret, style, color=colour, lw=2, label=f"{words} {lengthscale:g}")
            print(f"{words} {lengthscale:g}: regret {regret[-1]:.0f}")
            if learn_kernel:
                rounds, values = path(lengthscale, runs[0][1])
                for column, marker in enumerate(("-", "--")):
                    right.step(rounds, values[:, column], marker, color=colour, where="post", lw=2)
    left.set(title="regret on Chessboard, mean of five runs", xlabel="round", ylim=(0, 260))
    left.legend(frameon=False)
    right.set(
        title="lengthscales in one run: context (solid), action (dashed)", xlabel="round", xscale="log", yscale="log"
    )
    figure.savefig(sys.argv[1], dpi=110, facecolor="white")
    plt.close(figure)


if __name__ == "__main__":
    main()
