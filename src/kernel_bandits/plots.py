"""Figures as functions of records, never of live policies. They need matplotlib, which the ``plots`` extra brings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from kernel_bandits.arrays import FloatArray, InputError, missing
from kernel_bandits.experiments.compare import mean_interval
from kernel_bandits.experiments.records import RunResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Curves: TypeAlias = dict[str, tuple[FloatArray, FloatArray]]

# Colour, dashes and width by order of policy. The colours are Okabe and Ito's, which colour-blind readers tell apart;
# dashes and widths tell the lines apart in grey, and let one line show beneath another where policies agree.
_STYLES: tuple[tuple[str, tuple[float, ...], float], ...] = (
    ("#0072B2", (), 1.6),
    ("#D55E00", (4.0, 2.5), 1.6),
    ("#E69F00", (), 3.6),
    ("#555555", (1.0, 1.5), 1.6),
    ("#009E73", (6.0, 2.0, 1.0, 2.0), 1.6),
    ("#CC79A7", (2.0, 2.0), 2.4),
)
# A policy that ends this many times above the median policy leaves the frame: beside one that does not learn, the
# differences between those that do would vanish.
_OFF_SCALE = 2.5
_INK, _LIGHT = "#333333", "#CCCCCC"


def require_matplotlib() -> None:
    """Raise an error that says what to install unless figures can be drawn."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as reason:
        raise missing("matplotlib", "plots") from reason


def comparison_figure(runs: Mapping[str, Mapping[str, Sequence[RunResult]]]) -> Figure:
    """Cumulative regret and cumulative time against rounds: a row per environment, a line per policy.

    Lines are means over runs, bands 95 % Student intervals of the mean.

    Args:
        runs: records by environment label, then policy label; the runs of one policy have one horizon.
    """
    require_matplotlib()
    from matplotlib.figure import Figure

    if not runs:
        raise InputError("runs: expected the records of at least one environment, got none.")
    policies = list(dict.fromkeys(label for by_policy in runs.values() for label in by_policy))
    figure = Figure(figsize=(8.0, 0.8 + 2.3 * len(runs)), layout="constrained")
    grid = figure.subplots(len(runs), 2, sharex=True, squeeze=False)
    for (environment, by_policy), (regret_axes, time_axes) in zip(runs.items(), grid, strict=True):
        regret = {label: _curve([run.regret for run in records]) for label, records in by_policy.items()}
        seconds = {label: _curve([run.seconds for run in records]) for label, records in by_policy.items()}
        for axes, curves in ((regret_axes, regret), (time_axes, seconds)):
            _draw(axes, curves, policies)
        _fit_to_learners(regret_axes, regret)
        regret_axes.set_title(environment, loc="left", fontweight="bold", fontsize=10, color=_INK)
        regret_axes.set_ylabel("cumulative regret")
        time_axes.set_ylabel("cumulative time (s)")
    for axes in grid[-1]:
        axes.set_xlabel("round")
    figure.align_ylabels(grid)
    handles = {handle.get_label(): handle for axes in grid[:, 0] for handle in axes.get_lines()}
    figure.legend(
        [handles[label] for label in policies],
        policies,
        loc="outside upper center",
        ncols=min(len(policies), 4),
        frameon=False,
        handlelength=3.0,
    )
    return figure


def _curve(rows: Sequence[FloatArray]) -> tuple[FloatArray, FloatArray]:
    """Mean and interval half-width at every round, each of shape (T,)."""
    horizons = sorted({len(row) for row in rows})
    if len(horizons) != 1:
        raise InputError(f"runs: expected at least one run, and runs of one horizon, got horizons {horizons}.")
    return mean_interval(np.array(rows))


def _draw(axes: Axes, curves: Curves, policies: Sequence[str]) -> None:
    for label, (mean, half_width) in curves.items():
        colour, dashes, width = _STYLES[policies.index(label) % len(_STYLES)]
        rounds = np.arange(1, len(mean) + 1)
        # Wide lines go beneath narrow ones, dashed lines above solid ones.
        order = 3.0 - 0.1 * width + (0.05 if dashes else 0.0)
        axes.fill_between(rounds, mean - half_width, mean + half_width, color=colour, alpha=0.2, linewidth=0, zorder=2)
        (line,) = axes.plot(rounds, mean, color=colour, linewidth=width, label=label, zorder=order)
        if dashes:
            line.set_dashes(dashes)
    axes.set_xlim(0, max(len(mean) for mean, _ in curves.values()))
    axes.set_ylim(bottom=0)
    axes.locator_params(nbins=5)
    axes.grid(axis="y", color=_LIGHT, linewidth=0.5, alpha=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(_LIGHT)
    axes.tick_params(color=_LIGHT, labelcolor=_INK, labelsize=8)
    for label_of_axis in (axes.xaxis.label, axes.yaxis.label):
        label_of_axis.set(color=_INK, fontsize=9)


def _fit_to_learners(axes: Axes, curves: Curves) -> None:
    """Cut the axis above the policies that end near the median; say of the others, where they leave, how they end."""
    limit = _OFF_SCALE * float(np.median([mean[-1] for mean, _ in curves.values()]))
    beyond = {label: mean for label, (mean, _) in curves.items() if mean[-1] > limit > 0}
    if beyond:
        axes.set_ylim(0, limit)
    for label, mean in beyond.items():
        leaves = int(np.searchsorted(mean, limit))
        room_on_the_right = leaves < len(mean) / 2
        axes.annotate(
            f"{label} ends at {mean[-1]:.0f}",
            (leaves, limit),
            xytext=(8 if room_on_the_right else -8, 0),
            textcoords="offset points",
            ha="left" if room_on_the_right else "right",
            va="top",
            fontsize=8,
            color=_INK,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0},
        )
