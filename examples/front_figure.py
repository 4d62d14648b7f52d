"""The figure of the front page: regret and time on Chessboard.

The final regrets of other libraries are those of docs/peers.md. Times are processor times.
Run: OPENBLAS_NUM_THREADS=1 python examples/front_figure.py docs/figures
"""

from __future__ import annotations

import sys
from pathlib import Path
from time import process_time

import matplotlib.pyplot as plt
import numpy as np

import kernel_bandits as kb

ROUNDS, SEEDS = 2000, range(10)
POLICIES = {
    "EK-UCB": (lambda seed: kb.ek_ucb(kb.Gaussian(0.1), regularization=0.01, seed=seed), "#0072b2", "-"),
    "K-UCB": (lambda seed: kb.k_ucb(kb.Gaussian(0.1), regularization=0.01, seed=seed), "#e69f00", "--"),
    "linear": (lambda seed: kb.lin_ucb(regularization=0.01, seed=seed), "#009e73", "-."),
    "uniform": (lambda seed: kb.uniform(seed=seed), "#777777", ":"),
}
# after 2,000 rounds, ten seeds: python benchmarks/peers/libraries.py
OTHERS = {"Vowpal Wabbit": 466.0, "MABWiser, nearest neighbours": 162.0}


def play():
    """Mean cumulative regret and time of each policy, shape (rounds,); all of EK-UCB takes the time 1."""
    environment = kb.environments.Chessboard()
    curves = {}
    for name, (build, *_) in POLICIES.items():
        runs = [kb.run(build(seed), environment, horizon=ROUNDS, seed=seed, clock=process_time) for seed in SEEDS]
        regret = np.mean([run.regret for run in runs], axis=0)
        seconds = np.median([np.cumsum(run.select_seconds + run.update_seconds) for run in runs], axis=0)
        curves[name] = (regret, seconds)
        print(f"{name}: regret {regret[-1]:.1f}, {seconds[-1]:.2f} s")
    unit = curves["EK-UCB"][1][-1]
    return {name: (regret, seconds / unit) for name, (regret, seconds) in curves.items()}


def draw(curves, axes):
    regret, time = axes
    for name, (_, colour, style) in POLICIES.items():
        for axis, values in zip(axes, curves[name], strict=True):
            axis.plot(values, color=colour, ls=style, lw=2.2)
    label(regret, "EK-UCB and K-UCB", curves["EK-UCB"][0][-1], "#0072b2", offset=6)
    label(regret, "linear", curves["linear"][0][-1], POLICIES["linear"][1], left=30)
    label(regret, "random", curves["uniform"][0][-1], "#666666", offset=-30)
    for name, value in OTHERS.items():
        regret.plot(ROUNDS, value, "o", color="#555555", ms=5, clip_on=False)
        label(regret, name, value, "#555555")
    label(time, "K-UCB", curves["K-UCB"][1][-1], "#b07600", offset=-10, left=22)
    label(time, "EK-UCB", curves["EK-UCB"][1][-1], "#0072b2", offset=6)
    regret.set(title="Regret: reward lost so far", xlabel="round", xlim=(0, ROUNDS), ylim=(0, 1200))
    time.set(title="Computing time so far", xlabel="round", xlim=(0, ROUNDS), ylim=(0, None))
    time.set_ylabel("EK-UCB's run = 1×")
    time.yaxis.set_major_formatter("{x:g}×")
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.set_xticks((0, 1000, 2000), ("0", "1,000", "2,000"))


def label(axis, text, value, colour, *, offset=4, left=4):
    """Name a curve at its end."""
    axis.annotate(
        text,
        (ROUNDS, value),
        xytext=(-left, offset),
        textcoords="offset points",
        ha="right",
        color=colour,
        weight="bold" if "EK-UCB" in text else "normal",
    )


def main(folder):
    curves = play()
    plt.rcParams.update({"font.size": 11, "axes.titlesize": 12, "axes.titleweight": "bold"})
    figure, axes = plt.subplots(1, 2, figsize=(8.6, 3.2), layout="constrained")
    draw(curves, axes)
    figure.savefig(folder / "front.png", dpi=160, facecolor="white")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
