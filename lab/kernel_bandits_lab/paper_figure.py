"""Figures for a paper: the width of a column, the venue's text size and font, panels and axes to choose."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from kernel_bandits.arrays import as_positive
from kernel_bandits.errors import InputError
from kernel_bandits.loop import RunResult
from kernel_bandits_lab import plots
from kernel_bandits_lab.study import did_you_mean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Panel: TypeAlias = Literal["regret", "time", "dictionary"]
Font: TypeAlias = Literal["serif", "sans-serif"]
PANELS: tuple[Panel, ...] = ("regret", "time", "dictionary")
# Times-like and Helvetica-like fonts that matplotlib brings, so that every machine draws the same figure.
_FAMILIES = {"serif": ["STIXGeneral", "DejaVu Serif"], "sans-serif": ["DejaVu Sans"]}
_DRAW = {"regret": plots.draw_regret, "time": plots.draw_time, "dictionary": plots.draw_dictionary}
# Below this width, in inches, panels stand in one column.
_TWO_COLUMNS = 5.0
_ASPECT, _WIDE_ASPECT = 0.62, 0.78
_THICKEST = 1.5
# Embeds TrueType fonts: many venues refuse the Type 3 fonts that are matplotlib's default. SVG keeps its texts.
SAVING: Any = {"pdf.fonttype": 42, "ps.fonttype": 42, "svg.fonttype": "none"}


@dataclass(frozen=True)
class Layout:
    """How a figure for a paper looks.

    Attributes:
        width: in inches; 3.25 for a column of most two-column styles, 6.75 for the page.
        font: ``"serif"`` as Times, or ``"sans-serif"``.
        text_size: in points; that of captions in most styles.
        panels: which to draw, in order.
        logarithmic: axes with a logarithmic scale: names of panels, and ``"round"``.
    """

    width: float = 3.25
    font: Font = "serif"
    text_size: float = 8.0
    panels: tuple[Panel, ...] = ("regret", "time")
    logarithmic: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        as_positive("width", self.width)
        as_positive("text_size", self.text_size)
        _require_known("font", [self.font], tuple(_FAMILIES))
        _require_known("panels", self.panels, PANELS)
        _require_known("log", self.logarithmic, (*PANELS, "round"))
        if not self.panels:
            raise InputError(f"panels: expected at least one of {', '.join(PANELS)}.")


def paper_figure(runs: Mapping[str, Mapping[str, Sequence[RunResult]]], layout: Layout | None = None) -> Figure:
    """Draw a row of panels per environment, a line per policy; legend above, nothing else around.

    Runs are results by environment label, then by policy label, as :func:`comparison_figure` takes them.
    """
    plots.require_matplotlib()
    import matplotlib as mpl
    from matplotlib.figure import Figure

    if not runs:
        raise InputError("runs: expected the results of at least one environment, got none.")
    layout = layout or Layout()
    styles = {label: _thin(style) for label, style in _styles(runs).items()}
    columns = len(layout.panels) if layout.width >= _TWO_COLUMNS else 1
    rows = len(runs) * len(layout.panels) // columns
    height = (_ASPECT if columns == 1 else _WIDE_ASPECT) * layout.width / columns * rows
    family: Any = {"font.family": _FAMILIES[layout.font], "mathtext.fontset": "stix"}
    with mpl.rc_context({**family, "font.size": layout.text_size}):
        legend_rows = math.ceil(len(styles) / _legend_columns(styles, layout))
        legend_height = legend_rows * 1.5 * layout.text_size / 72
        figure = Figure(figsize=(layout.width, height + legend_height), layout="constrained")
        grid = figure.subplots(rows, columns, sharex=True, squeeze=False)
        cells = iter(grid.flat)
        for environment, by_policy in runs.items():
            for number, panel in enumerate(layout.panels):
                axes = next(cells)
                _DRAW[panel](axes, by_policy, styles)
                _scale(axes, panel, layout)
                if not number:
                    plots.panel_title(axes, environment)
        if "round" in layout.logarithmic:  # of the axis that all panels share
            grid[0, 0].set(xscale="log", xlim=(1, grid[0, 0].get_xlim()[1]))
        for axes in grid[-1]:
            axes.set_xlabel("round", color=axes.yaxis.label.get_color())
        figure.align_ylabels(grid)
        _add_legend(figure, grid, styles, layout)
        _set_text(figure, layout)
    return figure


def write(figure: Any, path: Path, resolution: int = 150) -> None:
    """Write a figure to a file with fonts that every venue takes, and say where."""
    import matplotlib as mpl

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with mpl.rc_context(SAVING):
            figure.savefig(path, dpi=resolution)
    except (OSError, ValueError) as reason:
        raise InputError(f"{path}: the figure cannot be written ({reason}); choose another file.") from reason
    # Arranging the panels takes as long as drawing them; the next file repeats it otherwise.
    figure.set_layout_engine("none")
    print(f"Figure: {path}")


def _styles(runs: Mapping[str, Mapping[str, Any]]) -> dict[str, plots.Style]:
    return plots.line_styles(label for by_policy in runs.values() for label in by_policy)


def _thin(style: plots.Style) -> plots.Style:
    """Return a style for a small figure; dashes, which are in points, shrink with it."""
    return replace(style, width=min(0.7 * style.width, _THICKEST), dashes=tuple(0.8 * one for one in style.dashes))


def _scale(axes: Axes, panel: Panel, layout: Layout) -> None:
    values = [np.asarray(line.get_ydata(), dtype=float) for line in axes.get_lines()]
    most = max(float(one.max()) for one in values)
    # a small panel has no room to say where a policy ends that leaves the frame, so all of them stay inside
    for text in list(axes.texts):
        text.remove()
    axes.set_ylim(0, 1.05 * most if most > 0 else 1.0)
    if panel in layout.logarithmic:
        # The first rounds lie far below the rest and would fill most of a logarithmic axis.
        least = min(float(one[len(one) // 20 :][one[len(one) // 20 :] > 0].min(initial=np.inf)) for one in values)
        if 0 < least < most:
            axes.set(yscale="log", ylim=(0.7 * least, 1.5 * most))
            axes.tick_params(which="minor", length=1.5, width=0.4)


def _legend_columns(styles: Mapping[str, plots.Style], layout: Layout) -> int:
    """Return how many columns of the longest label fit; a letter is about half as wide as high."""
    longest = max(map(len, styles))
    letters = layout.width * 72 / layout.text_size / 0.52
    return max(1, min(len(styles), int(letters / (longest + 8))))


def _add_legend(figure: Figure, grid: Any, styles: Mapping[str, plots.Style], layout: Layout) -> None:
    handles = {handle.get_label(): handle for axes in grid.flat for handle in axes.get_lines()}
    figure.legend(
        [handles[label] for label in styles],
        list(styles),
        loc="outside upper center",
        ncols=_legend_columns(styles, layout),
        frameon=False,
        handlelength=2.4,
        columnspacing=1.2,
        handletextpad=0.5,
        labelspacing=0.3,
        borderpad=0.1,
    )


def _set_text(figure: Figure, layout: Layout) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        text.set(fontsize=layout.text_size, fontfamily=_FAMILIES[layout.font])
    for line in figure.findobj(Line2D):
        line.set_markersize(0.45 * layout.text_size)


def _require_known(name: str, given: Sequence[str], known: Sequence[str]) -> None:
    for one in given:
        if one not in known:
            raise InputError(f"{name}: unknown {one!r}{did_you_mean(one, known)} There are {', '.join(known)}.")
