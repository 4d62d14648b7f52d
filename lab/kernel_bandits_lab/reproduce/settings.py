"""Names, styles and notes that the studies share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernel_bandits.loop import RunResult
from kernel_bandits_lab import Record, group, plots
from kernel_bandits_lab.plots import Style

PAPER, LIBRARY, ANY = "paper's settings", "library settings", "any settings"
# The budgets of the published code in units of λ; the paper's text says γ ≈ λ.
BUDGETS = (0.1, 0.05, 0.02, 0.001)
# For claims that do not depend on the settings.
EVERY = "every setting"
# How much "similar" regrets may differ; the paper gives no number.
MARGIN = 0.1

# An algorithm has the same style in all figures; a family shares a colour.
STYLES = {
    "EK-UCB": Style("#0072B2", (), 2.0, "o"),
    "EK-UCB γ = 0.1·λ": Style("#56B4E9", (4.0, 1.5), 1.6, "s"),
    "EK-UCB γ = 0.05·λ": Style("#56B4E9", (3.0, 1.5), 1.4, "d"),
    "EK-UCB γ = 0.02·λ": Style("#56B4E9", (2.0, 1.5), 1.2, "P"),
    "EK-UCB γ = 0.001·λ": Style("#56B4E9", (1.0, 1.5), 1.0, "*"),
    "EK-UCB μ = 1": Style("#56B4E9", (4.0, 1.5), 1.6, "s"),
    "EK-UCB μ = 10": Style("#0072B2", (), 2.0, "o"),
    "EK-UCB μ = 100": Style("#004469", (1.0, 1.2), 2.0, "p"),
    "CBBKB C = 3": Style("#D55E00", (6.0, 2.0), 1.4, "^"),
    "CBBKB C = 10": Style("#D55E00", (2.0, 2.0), 1.4, "v"),
    "CBBKB C = 30": Style("#D55E00", (6.0, 2.0, 1.0, 2.0), 1.4, "<"),
    "CBKB": Style("#CC79A7", (), 1.2, "D"),
    "SupKernelUCB": Style("#009E73", (8.0, 2.0, 2.0, 2.0), 1.4, "X"),
    "SupKernelUCB η = 1": Style("#009E73", (3.0, 1.0, 1.0, 1.0), 1.2, "H"),
    "K-UCB": Style("#E69F00", (), 2.4, ""),
    "uniform": Style("#555555", (1.0, 2.0), 1.0, ""),
}


def draw_panels(axes: Any, by_policy: Mapping[str, Sequence[RunResult]], title: str) -> None:
    """Draw regret and processor time on two axes; nothing if there are no runs."""
    if by_policy:
        plots.draw_regret(axes[0], by_policy, STYLES)
        plots.draw_time(axes[1], by_policy, STYLES, scale="log")
        plots.panel_title(axes[0], title)
        axes[1].set_ylabel("cumulative processor time (s)")


def shorter_runs(records: Sequence[Record]) -> str:
    """Say how many runs a figure shows and how long, and which policies have fewer or shorter ones."""
    by_settings = {place.rpartition(", ")[2]: by_policy for place, by_policy in group(records).items()}
    shape = plots.shape_of_runs(by_settings, _together)
    return f"Mean and 95 % interval over paired seeds: {shape}. Time: processor time of select and update."


def _together(labels: Sequence[str]) -> str:
    """Join labels by algorithm, with the λ of each: ``CBKB (λ = 1, 10)``."""
    by_family: dict[str, list[str]] = {}
    for label in labels:
        family, _, number = label.partition(", λ = ")
        by_family.setdefault(family, []).append(number)
    return ", ".join(
        f"{family} (λ = {', '.join(numbers)})" if any(numbers) else family for family, numbers in by_family.items()
    )
