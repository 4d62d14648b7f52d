"""The figures of the page: critical differences, learning curves, and reward against time per decision."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from bakeoff.comparison import Ranking, cliques
from bakeoff.report import Report

CURVE_TABLES = 8
# Okabe and Ito's colours, which colour-blind readers can distinguish; dashes tell lines apart in grey.
OURS = "#D55E00"
OTHERS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#777777", "#000000")
DASHES = ("--", "-.", ":", (0, (6, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (5, 5)))
# Fixed so that the same records give the same file.
METADATA = {"Date": None}
mpl.rcParams["svg.hashsalt"] = "bakeoff"


def draw_ranks(ranking: Ranking, path: Path) -> None:
    """Draw mean ranks on an axis and join those that Nemenyi's test cannot tell apart."""
    order = np.argsort(ranking.mean_ranks, kind="stable")
    names = [ranking.names[index] for index in order]
    ranks = ranking.mean_ranks[order]
    count = len(names)
    figure, axes = plt.subplots(figsize=(5, 1.3 + 0.15 * count))
    axes.set(xlim=(0.8, count + 0.2), ylim=(-(count + 1) // 2 - 1, 1.6), yticks=[])
    axes.xaxis.tick_top()
    axes.set_xticks(range(1, count + 1))
    for side in ("left", "right", "bottom"):
        axes.spines[side].set_visible(False)
    for place, (name, rank) in enumerate(zip(names, ranks, strict=True)):
        # Names of the better half stand on the left, the others on the right, so that no line crosses a name.
        is_left = 2 * place < count
        edge, side = (0.8, "right") if is_left else (count + 0.2, "left")
        level = -1 - (place if is_left else count - 1 - place)
        axes.plot([rank, rank, edge], [1.6, level, level], color="0.3", linewidth=0.8)
        offset = (-4, 0) if is_left else (4, 0)
        axes.annotate(f"{name}  {rank:.2f}", (edge, level), offset, textcoords="offset points", va="center", ha=side)
    for level, (first, last) in enumerate(cliques(list(ranks), ranking.critical_difference)):
        height = 1.2 - 0.3 * level
        axes.plot([ranks[first] - 0.03, ranks[last] + 0.03], [height, height], color="C0", linewidth=4)
    axes.set_title(
        f"Mean rank on {ranking.tables} tables; critical difference {ranking.critical_difference:.2f} (5 %)",
        fontsize=10,
    )
    _save(figure, path)


def draw_speed(report: Report, path: Path) -> None:
    """Draw mean rank against time per decision, one point per library at its best."""
    figure, axes = plt.subplots(figsize=(6.5, 4))
    speeds = report.speed()
    slowest = max((milliseconds for _, milliseconds in speeds.values()), default=0.0)
    for name, (rank, milliseconds) in speeds.items():
        is_ours = name == report.ours
        axes.plot(milliseconds, rank, "D" if is_ours else "o", color=OURS if is_ours else "0.4", markersize=8)
        # towards the middle, so that no name leaves the frame
        offset, side = ((-7, 4), "right") if milliseconds == slowest else ((7, 4), "left")
        axes.annotate(report.libraries[name].name, (milliseconds, rank), offset, textcoords="offset points", ha=side)
    axes.set(xscale="log", xlabel="median time per decision and update [ms]", ylabel="mean rank (1 is best)")
    axes.invert_yaxis()
    axes.grid(alpha=0.3)
    axes.margins(x=0.25, y=0.12)
    _save(figure, path)


def draw_curves(report: Report, path: Path) -> None:
    """Draw learning curves on the tables with the most rounds, each library at its best."""
    shown = sorted(report.tables, key=lambda table: -table.horizon * table.problem.arms)[:CURVE_TABLES]
    columns = 2  # readable in the column of a page
    rows = -(-len(shown) // columns)
    figure, grid = plt.subplots(rows, columns, figsize=(3.8 * columns, 2.1 * rows), squeeze=False)
    names = [*report.competitors, *report.role("skyline")]
    others = [name for name in names if name != report.ours]
    colours = {name: OTHERS[place % len(OTHERS)] for place, name in enumerate(others)} | {report.ours: OURS}
    dashes = {name: DASHES[place % len(DASHES)] for place, name in enumerate(others)}
    for axes, table in zip(grid.flat, shown, strict=False):
        for name in names:
            if name in table.by_library and len(table.by_library[name].curve):
                rounds, means = table.by_library[name].curve.T
                style = dashes.get(name, "-")
                width = 2.0 if name == report.ours else 1.0
                label = report.libraries[name].name
                axes.plot(rounds, means, linestyle=style, color=colours[name], linewidth=width, label=label)
        axes.set_title(table.table.name, fontsize=10)
        axes.set_xscale("log")
        axes.tick_params(labelsize=8)
    for axes in grid.flat[len(shown) :]:
        axes.axis("off")
    figure.supxlabel("round", fontsize=10, y=0.065)
    figure.supylabel("mean reward so far", fontsize=10)
    handles = {label: line for axes in grid.flat for line, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="lower center", ncols=3, fontsize=9, frameon=False)
    figure.tight_layout(rect=(0.01, 0.07, 1, 1))
    _save(figure, path)


def _save(figure: Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, bbox_inches="tight", metadata=METADATA)
    plt.close(figure)
