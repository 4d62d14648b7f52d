"""Figures of recorded runs."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import InputError, needs
from kernel_bandits.loop import RunResult
from kernel_bandits_lab.tables import mean_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Curves: TypeAlias = dict[str, tuple[FloatArray, FloatArray]]


@dataclass(frozen=True, slots=True)
class Style:
    """How the line of a policy is drawn, in every panel."""

    colour: str  # of the line and, paler, of its band
    dashes: tuple[float, ...]  # lengths of dash and gap, in points; empty for a solid line
    width: float  # of the line, in points
    marker: str  # matplotlib's name of the markers on the line


# In the order of the policies. The colours are those of Okabe and Ito, which colour-blind readers can distinguish.
# Dashes, widths and markers distinguish lines in grey, and show a line beneath another where policies agree.
STYLES = (
    Style("#0072B2", (), 1.6, "o"),
    Style("#D55E00", (4.0, 2.5), 1.6, "s"),
    Style("#E69F00", (), 2.4, "^"),
    Style("#555555", (1.0, 1.5), 1.6, ""),
    Style("#009E73", (6.0, 2.0, 1.0, 2.0), 1.6, "D"),
    Style("#CC79A7", (2.0, 2.0), 2.4, "v"),
    Style("#56B4E9", (8.0, 2.0), 2.0, "P"),
    Style("#000000", (3.0, 1.5, 1.0, 1.5, 1.0, 1.5), 1.2, "X"),
    Style("#8C564B", (), 1.0, "*"),
)
_MARKS = 6
_LETTERS_PER_INCH = 13  # of the note below the panels
# More than a screen resolves, yet few enough for a small file.
_MOST_POINTS = 120
# The axis is cut at this multiple of the median final regret: beside a policy that does not learn, the differences
# between those that do would vanish.
_OFF_SCALE = 2.5
_INK, _LIGHT = "#333333", "#CCCCCC"


def require_matplotlib() -> None:
    """Raise the error that says what to install if matplotlib is missing."""
    with needs("matplotlib", "kernel-bandits-lab"):
        importlib.import_module("matplotlib.figure")


def comparison_figure(runs: Mapping[str, Mapping[str, Sequence[RunResult]]]) -> Figure:
    """Draw cumulative regret and cumulative time against rounds: a row per environment, a line per policy.

    Lines are means over runs; bands are 95 % Student intervals of the mean. Runs are results by environment label,
    then by policy label; those of one policy have the same horizon.
    """
    require_matplotlib()
    from matplotlib.figure import Figure

    if not runs:
        raise InputError("runs: expected the results of at least one environment, got none.")
    styles = line_styles(label for by_policy in runs.values() for label in by_policy)
    figure = Figure(figsize=(8.0, 0.8 + 2.3 * len(runs)), layout="constrained")
    grid = figure.subplots(len(runs), 2, sharex=True, squeeze=False)
    for (environment, by_policy), (regret_axes, time_axes) in zip(runs.items(), grid, strict=True):
        draw_regret(regret_axes, by_policy, styles)
        draw_time(time_axes, by_policy, styles)
        panel_title(regret_axes, environment)
    finish(figure, grid, styles, shape_of_runs(runs))
    return figure


def line_styles(labels: Iterable[str]) -> dict[str, Style]:
    """Return a style for each distinct label, in order; styles repeat after nine."""
    return {label: STYLES[number % len(STYLES)] for number, label in enumerate(dict.fromkeys(labels))}


def draw_regret(axes: Axes, by_policy: Mapping[str, Sequence[RunResult]], styles: Mapping[str, Style]) -> None:
    """Draw cumulative regret against rounds; policies far above the others leave the frame."""
    curves = {label: _curve([run.regret for run in records]) for label, records in by_policy.items()}
    _draw(axes, curves, styles)
    _fit_to_learners(axes, curves)
    axes.set_ylabel("cumulative regret")


def draw_time(
    axes: Axes,
    by_policy: Mapping[str, Sequence[RunResult]],
    styles: Mapping[str, Style],
    scale: Literal["linear", "log"] = "linear",
) -> None:
    """Draw the cumulative time of ``select`` and ``update`` against rounds."""
    curves = {label: _curve([run.seconds for run in records]) for label, records in by_policy.items()}
    _draw(axes, curves, styles)
    if scale == "log":
        # The first rounds take microseconds and would fill most of a logarithmic axis.
        first = min(float(mean[len(mean) // 20]) for mean, _ in curves.values())
        last = max(float(mean[-1]) for mean, _ in curves.values())
        axes.set(yscale="log", ylim=(0.7 * first, 1.5 * last))
    axes.set_ylabel("cumulative time (s)")


def draw_dictionary(axes: Axes, by_policy: Mapping[str, Sequence[RunResult]], styles: Mapping[str, Style]) -> None:
    """Draw the number of points that carry the model against rounds."""
    curves = {
        label: _curve([run.dictionary_size.astype(float) for run in records]) for label, records in by_policy.items()
    }
    _draw(axes, curves, styles)
    axes.set_ylabel("dictionary size")


def panel_title(axes: Axes, text: str) -> None:
    """Write a title above the first panel of a row."""
    axes.set_title(text, loc="left", fontweight="bold", fontsize=10, color=_INK)


def finish(figure: Figure, grid: Any, styles: Mapping[str, Style], note: str = "") -> None:
    """Label the rounds of a grid of axes (rows, columns), and add a legend above and a note below the panels.

    The figure has constrained layout. Policies that no panel shows are left out of the legend.
    """
    for axes in grid[-1]:
        axes.set_xlabel("round", color=_INK, fontsize=9)
    figure.align_ylabels(grid)
    handles = {handle.get_label(): handle for axes in grid.flat for handle in axes.get_lines()}
    labels = [label for label in styles if label in handles]
    figure.legend(
        [handles[label] for label in labels],
        labels,
        loc="outside upper center",
        ncols=min(len(labels), 4 if figure.get_figwidth() < 10 else 9),
        frameon=False,
        handlelength=3.5,
        fontsize=9,
    )
    if note:
        figure.supxlabel(fill(note, int(_LETTERS_PER_INCH * figure.get_figwidth())), fontsize=8, color=_INK)


def shape_of_runs(
    runs: Mapping[str, Mapping[str, Sequence[RunResult]]], together: Callable[[Sequence[str]], str] = ", ".join
) -> str:
    """Say how many runs there are and how long, and which policies, joined ``together``, have fewer or shorter ones."""
    shapes = {
        (place, label): (len(records), records[0].horizon)
        for place, by_policy in runs.items()
        for label, records in by_policy.items()
    }
    most, longest = (max(shape[axis] for shape in shapes.values()) for axis in (0, 1))
    less: dict[tuple[str, int, int], list[str]] = {}
    for (place, label), (count, horizon) in shapes.items():
        if count < most or horizon < longest:
            less.setdefault((place, count, horizon), []).append(label)
    exceptions = [
        f"{place}, {together(labels)}: " + (f"{count} of " if count < most else "") + f"{horizon} rounds"
        for (place, count, horizon), labels in less.items()
    ]
    return "; ".join([f"{most} runs of {longest} rounds", *exceptions])


def _curve(rows: Sequence[FloatArray]) -> tuple[FloatArray, FloatArray]:
    """Return mean and half-width of the interval at every round, each of shape (T,)."""
    horizons = sorted({len(row) for row in rows})
    if len(horizons) != 1:
        raise InputError(f"runs: expected one or more runs with the same horizon, got horizons {horizons}.")
    return mean_interval(np.array(rows))


def _draw(axes: Axes, curves: Curves, styles: Mapping[str, Style]) -> None:
    for label, (mean, half_width) in curves.items():
        style = styles[label]
        rounds = np.unique(np.linspace(1, len(mean), min(len(mean), _MOST_POINTS)).round().astype(int))
        mean, half_width = mean[rounds - 1], half_width[rounds - 1]
        # Draw wide lines beneath narrow ones, dashed lines above solid ones.
        order = 3.0 - 0.1 * style.width + (0.05 if style.dashes else 0.0)
        low, high = mean - half_width, mean + half_width
        axes.fill_between(rounds, low, high, color=style.colour, alpha=0.2, linewidth=0, zorder=2)
        (line,) = axes.plot(rounds, mean, color=style.colour, linewidth=style.width, label=label, zorder=order)
        if style.dashes:
            line.set_dashes(style.dashes)
        # Put the markers of different policies at different rounds, so that they do not hide each other.
        place = list(styles).index(label) / len(styles)
        step = max(len(mean) // _MARKS, 1)
        line.set(marker=style.marker, markersize=4.5, markevery=(int(place * step), step), markeredgewidth=0)
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
    """Cut the axis above the policies that end near the median, and write where the others end."""
    longest = max(len(mean) for mean, _ in curves.values())
    limit = _OFF_SCALE * float(np.median([mean[-1] for mean, _ in curves.values() if len(mean) == longest]))
    beyond = {label: mean for label, (mean, _) in curves.items() if mean[-1] > limit > 0}
    if beyond:
        axes.set_ylim(0, limit)
    for number, (label, mean) in enumerate(beyond.items()):
        leaves = int(np.searchsorted(mean, limit))
        room_on_the_right = leaves < len(mean) / 2
        axes.annotate(
            f"{label} ends at {mean[-1]:.0f}",
            (leaves, limit),
            xytext=(8 if room_on_the_right else -8, -11 * number),
            textcoords="offset points",
            ha="left" if room_on_the_right else "right",
            va="top",
            fontsize=8,
            color=_INK,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0},
        )
