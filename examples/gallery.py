"""The pictures of the documentation: learning on Chessboard, and what a wrong lengthscale or no exploration do.

Run: python examples/gallery.py docs/figures
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import kernel_bandits as kb

GRID = np.linspace(0, 1, 81)
MOMENTS = (20, 100, 500, 2000)


def surface(policy):
    """Mean and standard deviation over the square of contexts and actions, shape (2, actions, contexts)."""
    columns = [policy.predict([x], GRID[:, None]) for x in GRID]
    return np.array([[column.mean for column in columns], [column.std for column in columns]]).transpose(0, 2, 1)


def draw(axes, values, limits, policy=None):
    axes.imshow(values, origin="lower", extent=(0, 1, 0, 1), vmin=limits[0], vmax=limits[1], cmap="viridis")
    axes.set(xticks=(0, 1), yticks=(0, 1))
    if policy is not None:
        axes.plot(*policy.dictionary_points.T, "o", ms=2.5, mfc="white", mec="black", mew=0.4)


def learning(folder):
    """Mean, standard deviation and dictionary on Chessboard as rounds go by."""
    environment = kb.environments.Chessboard()
    policy = kb.ek_ucb(kb.Gaussian(0.1), regularization=0.01, seed=0)
    contexts, noise = np.random.default_rng(0), np.random.default_rng(1)
    figure, axes = plt.subplots(2, 5, figsize=(10.5, 4.4), layout="constrained")
    truth = np.array([environment.expected_rewards(np.array([x]), GRID[:, None]) for x in GRID]).T
    draw(axes[0, 0], truth, (0, 1))
    axes[0, 0].set(title="expected reward", xlabel="context", ylabel="action")
    axes[1, 0].axis("off")
    axes[1, 0].text(0, 0.95, "above: posterior mean\nbelow: standard deviation\ncircles: anchors", va="top")
    for t in range(1, MOMENTS[-1] + 1):
        offer = environment.next_round(contexts)
        assert isinstance(offer.actions, np.ndarray)  # no box
        decision = policy.select(offer.context, offer.actions)
        expected = environment.expected_rewards(offer.context, offer.actions)
        policy.update(offer.context, decision.action, expected[decision.index] + environment.noise(noise))
        if t in MOMENTS:
            column = 1 + MOMENTS.index(t)
            mean, std = surface(policy)
            draw(axes[0, column], mean, (0, 1), policy)
            draw(axes[1, column], std, (0, 1), policy)
            axes[0, column].set_title(f"{t} rounds, m = {policy.dictionary_size}")
    save(figure, folder / "learning.png")


def choices(folder):
    """Regret against rounds for good and bad choices of lengthscale, exploration and regularisation."""
    environment = kb.environments.Chessboard()
    good = {"lengthscale": 0.1, "exploration": 1.0, "regularization": 0.01}
    panels = {
        "lengthscale": (0.01, 0.1, 1.0),
        "exploration": (0.0, 1.0, 10.0),
        "regularization": (0.0001, 0.01, 10.0),
    }
    styles = ("--", "-", ":")
    figure, axes = plt.subplots(1, 3, figsize=(10.5, 3.2), sharey=True, layout="constrained")
    for panel, (name, values) in zip(axes, panels.items(), strict=True):
        for value, style in zip(values, styles, strict=True):
            chosen = {**good, name: value}
            regrets = [regret(environment, seed=seed, **chosen) for seed in range(5)]
            panel.plot(
                np.mean(regrets, axis=0), style, lw=2, label=f"{value:g}" + (" (good)" if value == good[name] else "")
            )
        panel.set(title=name, xlabel="round")
        panel.legend(frameon=False)
    axes[0].set_ylabel("regret, mean of 5 runs")
    save(figure, folder / "choices.png")


def regret(environment, *, lengthscale, exploration, regularization, seed):
    policy = kb.ek_ucb(
        kb.Gaussian(lengthscale),
        regularization=regularization,
        confidence=kb.StandardDeviations(exploration),
        dictionary=kb.Kors(max_size=400),
        seed=seed,
    )
    return kb.run(policy, environment, horizon=1000, seed=seed).regret


def save(figure, path):
    """A white ground, so that the figure reads on light and dark pages alike."""
    figure.savefig(path, dpi=110, facecolor="white")
    plt.close(figure)
    print(path)


def main(folder):
    learning(folder)
    choices(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
