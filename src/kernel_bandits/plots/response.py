"""The picture people ask for first: what a policy expects of each action as one column of the table changes.

It needs matplotlib: ``pip install 'kernel-bandits[plots]'``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import InputError, needs
from kernel_bandits.policy.policy import in_words
from kernel_bandits.posterior import Prediction
from kernel_bandits.tables import Column, Cyclic, Date, TablePolicy
from kernel_bandits.tables.arms import Action, Offer
from kernel_bandits.tables.rows import Row, RowLike, as_row
from kernel_bandits.tables.values import is_gap, moment_of, nearest

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which colour-blind readers can distinguish; lines also differ in their dashes.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C564B")
DASHES = ("-", "--", "-.", ":")
STEPS, MAP_STEPS = 60, 25
# More lines than this cannot be distinguished.
MOST_ACTIONS = 8
_INK, _LIGHT = "#333333", "#CCCCCC"


@dataclass(frozen=True)
class _Sweep:
    """One variable and the values it takes.

    Attributes:
        name: of the column.
        of_action: whether it describes actions and not contexts.
        values: in the order of the axis.
        places: of the values on the axis.
        smooth: whether values between two others make sense.
    """

    name: str
    of_action: bool
    values: Sequence[Any]
    places: FloatArray
    smooth: bool


def response(
    policy: TablePolicy,
    variable: str | Sequence[str],
    row: RowLike,
    *,
    actions: Offer | None = None,
    values: Sequence[Any] | None = None,
) -> Figure:
    """Draw the expected reward ± one standard deviation over one variable, or a heat map over two.

    Everything else is as in the given row. The policy stays as it is.

    Args:
        policy: over a table, as ``kb.ek_ucb(features=…)``.
        variable: the name of a column of contexts or actions, or two names for a heat map.
        row: the context that all other columns are taken from.
        actions: the arms or rows to draw, all known arms unless given; eight at most.
        values: of the variable (one only); unless given, those of past rounds: levels, or from the 2nd to the 98th
            percentile.
    """
    with needs("matplotlib", "kernel-bandits[plots]"):
        from matplotlib.figure import Figure
    if not isinstance(policy, TablePolicy):
        raise InputError(f"policy: expected a policy over a table (features=…), got {type(policy).__name__}.")
    names = [variable] if isinstance(variable, str) else list(variable)
    if len(names) not in (1, 2) or (len(names) == 2 and values is not None):
        raise InputError(f"variable: expected one name, or two names and no values, got {variable!r}.")
    context, offered = dict(as_row("row", row)), list(policy.codec.choices.offered(actions))
    if len(offered) > MOST_ACTIONS:
        raise InputError(f"actions: expected at most {MOST_ACTIONS} to draw, got {len(offered)}; name some of them.")
    is_map = len(names) == 2
    sweeps = [_sweep(policy, name, context, values, MAP_STEPS if is_map else STEPS) for name in names]
    figure = Figure(figsize=(0.8 + 2.9 * len(offered), 3.0) if is_map else (6.4, 3.6), layout="constrained")
    if is_map:
        _draw_maps(figure, policy, (sweeps[0], sweeps[1]), context, offered)
    else:
        _draw_lines(figure.subplots(), policy, sweeps[0], context, offered)
    return figure


def _column(policy: TablePolicy, name: str) -> tuple[Column, bool]:
    """Return the description of a column, and whether it describes actions."""
    described = {False: policy.features.rows.described, True: policy.features.choices.described}
    for of_action, columns in described.items():
        if name in columns:
            return columns[name], of_action
    known = [key for columns in described.values() for key in columns]
    if not known:
        raise InputError(
            f"variable: {name!r} goes through a transformer, so its kind and its values are not known; describe the "
            "columns by kb.Features to draw them."
        )
    raise InputError(f"variable: unknown column {name!r}{nearest(name, known) or '.'} There are {', '.join(known)}.")


def _sweep(policy: TablePolicy, name: str, context: Row, values: Sequence[Any] | None, steps: int) -> _Sweep:
    column, of_action = _column(policy, name)
    if column.kind == "embedding":
        raise InputError(f"variable: {name!r} is an embedding of {len(column.names(name))} numbers, which has no axis.")
    smooth = column.kind not in ("categorical", "ordered", "boolean")
    if values is None:
        past = [action if of_action else row for row, action in policy.codec.decode(policy.points)]
        found = [row[name] for row in past if isinstance(row, Mapping) and row[name] is not None]
        if not of_action and not is_gap(context.get(name)):
            here = context[name]
            found.append(moment_of(here) if isinstance(column, Date) else here)
        values = _values(column, found, smooth, steps)
    if not len(values):
        raise InputError(f"values: no past round has a value of {name!r}; give some.")
    places = np.asarray(values, dtype="datetime64[s]" if smooth and hasattr(values[0], "year") else None)
    return _Sweep(name, of_action, values, places if smooth else np.arange(float(len(values))), smooth)


def _values(column: Column, found: list[Any], smooth: bool, steps: int) -> Sequence[Any]:
    """Return values of a column to draw: those that were found, or evenly between them."""
    if column.values is not None:
        return list(column.values)
    if not smooth or not found:
        return list(dict.fromkeys(found))
    if isinstance(column, Cyclic):
        return np.linspace(0.0, column.period, steps).tolist()
    if hasattr(found[0], "year"):
        return _moments(np.array(found, dtype="datetime64[s]"), steps)
    low, high = np.quantile(np.array(found, dtype=float), (0.02, 0.98))
    return np.linspace(low, high, steps).tolist()


def _moments(found: NDArray[np.datetime64], steps: int) -> list[Any]:
    """Return moments from the first to the last, whole weeks apart, so that the day of the week stays."""
    first, here, last = found.min(), found[-1], found.max()
    week = np.timedelta64(7, "D")
    back, forth = int((here - first) / week), int((last - here) / week)
    if back + forth >= 2:
        stride = -(-(back + forth) // steps)
        return (here + np.arange(-(back // stride), forth // stride + 1) * stride * week).tolist()
    return np.linspace(first.astype(float), last.astype(float), steps).astype("datetime64[s]").tolist()


def _predicted(
    policy: TablePolicy, context: dict[str, Any], offered: Sequence[Action], *changes: tuple[_Sweep, Any]
) -> Prediction:
    """Return what is predicted of the actions in the row, with some values changed."""
    row, actions = dict(context), list(offered)
    for sweep, value in changes:
        if sweep.of_action:
            actions = [{**policy.codec.choices.row_of(action), sweep.name: value} for action in actions]
        else:
            row[sweep.name] = value
    return policy.predict(row, actions)


def _draw_lines(
    axes: Axes, policy: TablePolicy, sweep: _Sweep, context: dict[str, Any], offered: Sequence[Action]
) -> None:
    from matplotlib import dates

    predictions = [_predicted(policy, context, offered, (sweep, value)) for value in sweep.values]
    means, stds = (np.array([getattr(one, name) for one in predictions]) for name in ("mean", "std"))
    offset = np.linspace(-0.12, 0.12, len(offered)) if len(offered) > 1 else np.zeros(1)
    for number, action in enumerate(offered):
        colour, mean, std = COLOURS[number % len(COLOURS)], means[:, number], stds[:, number]
        label = _label(policy, action)
        if sweep.smooth:
            axes.plot(sweep.places, mean, DASHES[number % len(DASHES)], color=colour, label=label)
            low, high = ((mean + shift).clip(*policy.reward_range) for shift in (-std, std))
            axes.fill_between(sweep.places, low, high, color=colour, alpha=0.15, linewidth=0)
        else:
            places = sweep.places + offset[number]
            axes.errorbar(places, mean, std, fmt="o", color=colour, capsize=3, markersize=4, label=label)
    here: Any = context.get(sweep.name)
    dated = hasattr(sweep.values[0], "year")
    if sweep.smooth and not sweep.of_action and not is_gap(here):
        place: Any = np.datetime64(moment_of(here)) if dated else here
        axes.axvline(place, color=_LIGHT, linewidth=1.0, zorder=0)
    if dated:
        locator = dates.AutoDateLocator(maxticks=7)  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    if not sweep.smooth:
        axes.set_xticks(sweep.places, list(map(str, sweep.values)), rotation=30 if len(sweep.values) > 6 else 0)
    _decorate(axes, sweep.name, "expected reward ± std")
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    axes.set_title(_rest(context, [sweep.name]), fontsize=8, color=_INK, loc="left")


def _draw_maps(
    figure: Figure,
    policy: TablePolicy,
    sweeps: tuple[_Sweep, _Sweep],
    context: dict[str, Any],
    offered: Sequence[Action],
) -> None:
    across, up = sweeps
    both = [[((across, x), (up, y)) for x in across.values] for y in up.values]
    means = np.array([[_predicted(policy, context, offered, *pair).mean for pair in row] for row in both])
    grid = figure.subplots(1, len(offered), sharey=True, squeeze=False)[0]
    image: Any = None
    for number, (axes, action) in enumerate(zip(grid, offered, strict=True)):
        image = axes.pcolormesh(
            across.places, up.places, means[:, :, number], vmin=means.min(), vmax=means.max(), shading="nearest"
        )
        for sweep, set_ticks in ((across, axes.set_xticks), (up, axes.set_yticks)):
            if not sweep.smooth:
                set_ticks(sweep.places, [str(value) for value in sweep.values])
        _decorate(axes, across.name, up.name if number == 0 else "")
        axes.set_title(_label(policy, action), fontsize=9, color=_INK)
    figure.colorbar(image, ax=list(grid), label="expected reward")
    figure.supxlabel(_rest(context, [across.name, up.name]), fontsize=8, color=_INK)


def _decorate(axes: Axes, x: str, y: str) -> None:
    axes.set_xlabel(x, color=_INK, fontsize=9)
    axes.set_ylabel(y, color=_INK, fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(color=_LIGHT, labelcolor=_INK, labelsize=8)


def _label(policy: TablePolicy, action: Action) -> str:
    if not isinstance(action, Mapping):
        return str(action)
    name = policy.codec.choices.name_of(action)
    return in_words(action) if name is None else str(name)


def _rest(context: Row, left_out: Sequence[str]) -> str:
    """Return all other columns of the row, in words."""
    text = in_words({key: value for key, value in context.items() if key not in left_out})
    return text if len(text) <= 100 else f"{text[:99]}…"
