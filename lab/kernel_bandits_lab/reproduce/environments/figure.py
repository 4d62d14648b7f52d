"""The picture of the two environments in the appendix: expected rewards over contexts and actions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from kernel_bandits_lab import plots
from kernel_bandits_lab.reproduce.claims import Claim, Finding
from kernel_bandits_lab.reproduce.settings import EVERY

from kernel_bandits.arrays import FloatArray
from kernel_bandits.environments import Chessboard, Environment, StepDiagonal

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Chessboard and Step Diagonal"
SIZE = 401


def expected_rewards(environment: Environment, size: int = SIZE) -> FloatArray:
    """Return expected rewards on a grid of [0, 1)², shape (size, size): rows are actions, columns contexts."""
    places = (np.arange(size) + 0.5) / size
    columns = [environment.expected_rewards(np.array([context]), places[:, None]) for context in places]
    return np.column_stack(columns)


def figure(_folder: Path) -> Figure:
    """Draw both environments, with the offered actions as lines."""
    plots.require_matplotlib()
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(9.0, 4.4), layout="constrained")
    panels = drawn.subplots(1, 2, sharey=True)
    for axes, environment in zip(panels, (Chessboard(), StepDiagonal()), strict=True):
        image = axes.imshow(
            expected_rewards(environment), origin="lower", extent=(0, 1, 0, 1), cmap="Greys", vmin=0, vmax=1.4
        )
        for action in environment.actions[:, 0]:
            axes.axhline(action, color="#0072B2", linewidth=0.8, linestyle=(0, (4, 3)))
        axes.set(title=environment.name, xlabel="context x")
    panels[0].set_ylabel("action a")
    bar = drawn.colorbar(image, ax=list(panels), ticks=[0, 0.5, 1], shrink=0.85)
    bar.ax.set_ylim(0, 1)
    bar.set_label("expected reward")
    drawn.supxlabel("Dashed: the ten actions of the published instance.", fontsize=8)
    return drawn


def claims(_folder: Path) -> list[Claim]:
    """Check what the appendix claims about the environments."""
    return [_values(Chessboard()), _values(StepDiagonal()), _side(), _one_everywhere()]


def _values(environment: Environment) -> Claim:
    found = sorted({float(value) for value in np.unique(expected_rewards(environment))})
    return Claim(
        f"{environment.name}: the values are 1, 0.5 and 0.",
        "appendix, “Chessboard and Step Diagonal synthetic setups”",
        {EVERY: [Finding("values on a grid", ", ".join(f"{v:g}" for v in found), found == [0.0, 0.5, 1.0])]},
        f"expected rewards on {SIZE} × {SIZE} points",
    )


def _side() -> Claim:
    """Find the side of the diagonal a = x on which the band of reward 1 lies."""
    rewards = expected_rewards(StepDiagonal())
    actions, contexts = np.meshgrid(np.arange(SIZE), np.arange(SIZE), indexing="ij")
    share = float(np.mean((actions < contexts)[rewards == 1.0]))
    return Claim(
        "Step Diagonal: 0.5 below the diagonal, 1 above it.",
        "appendix, “Chessboard and Step Diagonal synthetic setups”",
        {EVERY: [Finding("points of reward 1 with a below x", f"{share:.0%}", None)]},
        "the text does not say which axis points upwards; the published code has 1 where a is below x",
    )


def _one_everywhere() -> Claim:
    """Check whether the best reward of every round is 1, as the published regret assumes."""
    findings = []
    for environment in (Chessboard(), StepDiagonal()):
        contexts = (np.arange(20_000) + 0.5) / 20_000
        best = [environment.expected_rewards(np.array([context]), environment.actions).max() for context in contexts]
        loss = 1.0 - float(np.mean(best))
        findings.append(
            Finding(environment.name, f"1 less the best offered reward is {loss:.3f} on average", loss == 0)
        )
    return Claim(
        "The best reward of a round is 1 (as the published code assumes when it computes regret).",
        "the authors' code",
        {EVERY: findings},
        "mean over contexts; regrets here are against the best offered action",
    )
