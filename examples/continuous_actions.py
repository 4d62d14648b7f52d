"""The figure of docs/continuous-actions.md: a bound over a box, and what a grid of actions costs against it.

Run: python examples/continuous_actions.py [FIGURE], about ten minutes.
"""

from __future__ import annotations

import sys

import numpy as np
from matplotlib.figure import Figure

import kernel_bandits as kb
from kernel_bandits.arrays import FloatArray
from kernel_bandits.loop import Simulation

HORIZON, SEEDS, LAST = 2000, range(10), 200
KERNEL, REGULARIZATION = kb.Gaussian(0.5), 0.01
BLUE, ORANGE, GREEN, PINK = "#0072B2", "#D55E00", "#009E73", "#CC79A7"


def learned_price() -> kb.policy.UpperConfidenceBound:
    """Twelve rounds of a price between 0 and 1 for customers of different worth."""
    policy = kb.ek_ucb(kb.Matern([0.5, 0.25]), regularization=0.01, seed=1)
    generator = np.random.default_rng(3)
    for worth in generator.random((12, 1)):
        decision = policy.select(worth, kb.Box(0.0, 1.0))
        price = decision.action[0]
        policy.update(worth, decision.action, 2 * price / (1 + np.exp(15 * (price - worth[0]))))
    return policy


def regret(offered: kb.Box | FloatArray, seed: int) -> FloatArray:
    """Cumulative regret against the best point of the square, playing the square or a grid on it."""
    policy = kb.ek_ucb(KERNEL, regularization=REGULARIZATION, seed=seed)
    simulation = Simulation(kb.environments.MovingPeak(context_dimension=2), seed)
    regrets = np.empty(HORIZON)
    for t in range(HORIZON):
        context = simulation.offer().context
        decision = policy.select(context, offered)
        reward, regrets[t] = simulation.play(decision.action)
        policy.update(context, decision.action, reward)
    return np.cumsum(regrets)


def grid(per_dimension: int) -> FloatArray:
    ticks = (np.arange(per_dimension) + 0.5) / per_dimension
    return np.stack(np.meshgrid(ticks, ticks), axis=-1).reshape(-1, 2)


def draw_bound(axes, policy: kb.policy.UpperConfidenceBound) -> None:
    context, box = np.array([0.6]), kb.Box(0.0, 1.0)
    decision = policy.select(context, box)
    prices = np.linspace(0, 1, 400)
    prediction = policy.predict(context, prices[:, None])
    upper = prediction.mean + prediction.std
    axes.fill_between(prices, prediction.mean - prediction.std, upper, color=BLUE, alpha=0.15, linewidth=0)
    axes.plot(prices, prediction.mean, color=BLUE, linewidth=1.6)
    axes.plot(prices, upper, color=BLUE, linewidth=1.0, linestyle="--")
    axes.plot(decision.action[0], decision.upper_bound, "o", color=ORANGE)
    axes.annotate("mean", (0.97, prediction.mean[-12]), color=BLUE, ha="right", va="bottom", fontsize=9)
    axes.annotate(
        f"select: {decision.action[0]:.3f}",
        (decision.action[0], decision.upper_bound),
        xytext=(6, 6),
        textcoords="offset points",
        color=ORANGE,
        fontsize=9,
    )
    axes.set(xlabel="action (price)", ylabel="reward", xlim=(0, 1), ylim=(None, 1.1))
    axes.set_title("The bound over a box, after 12 rounds", loc="left", fontsize=10)


def draw_regret(axes) -> None:
    offers: list[tuple[str, kb.Box | FloatArray, str]] = [
        ("grid of 4 × 4", grid(4), PINK),
        ("grid of 16 × 16", grid(16), GREEN),
        ("box", kb.Box([0, 0], [1, 1]), BLUE),
    ]
    for label, offered, colour in offers:
        curves = np.array([regret(offered, seed) for seed in SEEDS])
        mean, half = curves.mean(axis=0), 2.262 * curves.std(axis=0, ddof=1) / np.sqrt(len(curves))
        rounds = np.arange(1, HORIZON + 1)
        axes.fill_between(rounds, mean - half, mean + half, color=colour, alpha=0.15, linewidth=0)
        # the last line is narrow, so that one beneath it shows where the two agree
        axes.plot(rounds, mean, color=colour, linewidth=1.6 if label == "box" else 3.6, label=label)
        late = mean[-1] - mean[-1 - LAST]
        print(f"{label}: {mean[-1]:.1f} ± {half[-1]:.1f}, last {LAST} rounds {late:.2f}", flush=True)
    axes.legend(frameon=False, fontsize=8)
    axes.set(xlabel="round", ylabel="cumulative regret", xlim=(0, HORIZON), ylim=(0, None))
    axes.set_title("What a grid costs: MovingPeak, 10 seeds", loc="left", fontsize=10)


def main() -> None:
    figure = Figure(figsize=(9.0, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    draw_bound(left, learned_price())
    draw_regret(right)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
    figure.savefig(sys.argv[1] if sys.argv[1:] else "docs/figures/continuous-actions.png", dpi=130)


if __name__ == "__main__":
    main()
