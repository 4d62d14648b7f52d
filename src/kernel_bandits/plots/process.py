"""Figures of a policy in a box: what it expects where, what it has played, and whether its predictions hold.

They need matplotlib: ``pip install 'kernel-bandits[plots]'``.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernel_bandits.actions import Box, Choice, Range
from kernel_bandits.arrays import FloatArray, as_vector, join
from kernel_bandits.errors import InputError, needs
from kernel_bandits.policy.policy import Policy
from kernel_bandits.policy.ucb import UpperConfidenceBound
from kernel_bandits.posterior import ExactPosterior, Posterior
from kernel_bandits.tables import TablePolicy
from kernel_bandits.tables.rows import RowLike

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Points of a slice along each axis: more than the eye resolves in a contour plot.
ALONG_LINE, ALONG_SIDE = 201, 61
# Observations replayed for a calibration, the newest: O(n³).
REPLAYED = 500
_BLUE, _ORANGE, _GREEN, _GREY = "#0072B2", "#D55E00", "#009E73", "#888888"


def _require_policy(policy: object) -> Policy | TablePolicy:
    with needs("matplotlib", "kernel-bandits[plots]"):
        importlib.import_module("matplotlib.figure")
    if not (isinstance(policy, (Policy, TablePolicy)) and isinstance(policy.model, Posterior)):
        raise InputError(f"policy: expected one with a posterior, as ek_ucb returns, got {type(policy).__name__}.")
    return policy


@dataclass(frozen=True)
class _Axis:
    """A setting of a box as an axis.

    Attributes:
        number: of the setting.
        columns: of actions that hold it.
        vectors: what they hold at each tick, shape (n, w).
        places: of the ticks on the axis, shape (n,).
        setting: what it is.
        label: its name and unit.
    """

    number: int
    columns: NDArray[np.intp]
    vectors: FloatArray
    places: FloatArray
    setting: Range | Choice
    label: str

    @classmethod
    def of(cls, box: Box, number: int, count: int) -> _Axis:
        """Return a setting with all levels of a choice, and at most ``count`` values of a range."""
        setting, columns = box.settings[number], np.flatnonzero(box.labels == number)
        if isinstance(setting, Choice):
            vectors = setting.vectors
            return cls(number, columns, vectors, np.arange(float(len(vectors))), setting, box.label(number))
        spaced = np.geomspace if setting.logarithm else np.linspace
        places = spaced(setting.low, setting.high, count)
        if setting.whole:
            places = np.unique(np.rint(places))
        return cls(number, columns, setting.columns(places)[:, None], places, setting, box.label(number))

    def placed(self, box: Box, actions: FloatArray) -> FloatArray:
        """Return where actions (n, d_a) of the box lie on the axis, shape (n,)."""
        values = [box.named(action)[box.names[self.number]] for action in actions]
        if isinstance(self.setting, Choice):
            values = [self.setting.number(self.label, value) for value in values]
        return np.array(values, dtype=float)

    def mark(self, axis: Any, set_scale: Any) -> None:
        """Label one of matplotlib's axes, given with what sets its scale."""
        axis.set_label_text(self.label)
        if isinstance(self.setting, Choice):
            axis.set_ticks(self.places, [str(level) for level in self.setting.levels])
        elif self.setting.logarithm:
            set_scale("log")


def _of_box(policy: Policy | TablePolicy, box: Box, actions: Sequence[Any]) -> FloatArray:
    """Return actions, rows of a table or arrays, as those of a box, shape (n, d_a)."""
    if isinstance(policy, TablePolicy):
        names = dict(zip(box.names, policy.codec.names_in(box), strict=True))
        actions = [box.encode({name: action[names[name]] for name in box.names}) for action in actions]
    return np.reshape(np.array(actions, dtype=float), (-1, box.dimension))


def _points(policy: Policy | TablePolicy, context: Any, box: Box, actions: FloatArray) -> FloatArray:
    """Return joint points of a context and actions (n, d_a) of a box."""
    if isinstance(policy, TablePolicy):
        names = policy.codec.names_in(box)
        rows = [dict(zip(names, box.named(action).values(), strict=True)) for action in actions]
        return join(*policy.encode(context, rows))
    return join(as_vector("context", context), actions)


def _which(box: Box, axes: Sequence[int | str] | None) -> list[int]:
    """Return the settings that a slice runs along: one or two, by number or name."""
    count = len(box.settings)
    if axes is None:
        return list(range(min(2, count)))
    names = list(box.names)
    chosen = [names.index(axis) if isinstance(axis, str) and axis in names else axis for axis in axes]
    fit = all(isinstance(axis, (int, np.integer)) and 0 <= axis < count for axis in chosen)
    if not fit or len(set(chosen)) != len(chosen) or not 1 <= len(chosen) <= 2:
        raise InputError(f"axes: expected one or two of {names}, by name or number, got {list(axes)!r}.")
    return [int(axis) for axis in chosen]


def surface(
    policy: object,
    context: ArrayLike | RowLike,
    box: Box,
    axes: Sequence[int | str] | None = None,
    *,
    through: ArrayLike | None = None,
) -> Figure:
    """Draw what a policy believes along one or two settings of a box, in one context.

    Mean, standard deviation, upper bound and constrained outputs, with the actions observed so far (the paler, the
    farther from the slice) and the next one as a star. The figure is matplotlib's: ``figure.savefig("surface.png")``.

    Args:
        policy: one with a posterior, over arrays or over a table whose actions are numbers.
        context: shape (d_x,), or a row of the table.
        box: of the actions, in the units of the table; its names and units label the axes.
        axes: one or two settings, by name or number; the first two unless given.
        through: the action that the slice goes through, shape (d_a,); the next one unless given.
    """
    model = _require_policy(policy)
    from matplotlib.figure import Figure

    chosen = _which(box, axes)
    along = [_Axis.of(box, number, ALONG_LINE if len(chosen) == 1 else ALONG_SIDE) for number in chosen]
    following = _of_box(model, box, [model.preview(context, box).action])[0]
    centre = following if through is None else as_vector("through", through, box.dimension)
    shape = [len(axis.places) for axis in along]
    actions = np.tile(centre, (math.prod(shape), 1))
    for axis, ticks in zip(along, np.indices(shape), strict=True):
        actions[:, axis.columns] = axis.vectors[ticks.ravel()]
    panels = _panels(model.inner if isinstance(model, TablePolicy) else model, _points(model, context, box, actions))
    inside = box.contains(actions)
    rows = -(-len(panels) // 2) if len(along) == 2 else 1
    columns = min(2, len(panels)) if len(along) == 2 else len(panels)
    figure = Figure(figsize=(4.2 * columns, 3.4 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    played = _played(model, box)
    for place, (title, found, limit) in zip(grid, panels, strict=False):
        values = np.where(inside, found, np.nan)
        place.set_title(title, fontsize=10)
        along[0].mark(place.xaxis, place.set_xscale)
        if len(along) == 2:
            _draw_slice(place, along, values.reshape(shape), limit)
            along[1].mark(place.yaxis, place.set_yscale)
        else:
            marker = "o" if isinstance(along[0].setting, Choice) else ""
            place.plot(along[0].places, values, color=_BLUE, marker=marker, linestyle="" if marker else "-")
            if limit is not None:
                place.axhline(limit, color=_ORANGE, linestyle="--")
        _draw_played(place, box, played, centre, along)
        _draw_next(place, [axis.placed(box, following[None, :]).item() for axis in along])
    for place in grid[len(panels) :]:
        place.set_axis_off()
    figure.suptitle(_subtitle(box, centre, along, len(played)), fontsize=9)
    return figure


def _panels(model: Policy, points: FloatArray) -> list[tuple[str, FloatArray, float | None]]:
    """Return title, values and limit of each panel."""
    prediction = model.posterior.predict(points)
    bonus = model.bonus if isinstance(model, UpperConfidenceBound) else 1.0
    panels: list[tuple[str, FloatArray, float | None]] = [
        ("expected reward", prediction.mean, None),
        ("standard deviation", prediction.std, None),
        (f"upper bound (mean + {bonus:.2g} std)", prediction.mean + bonus * prediction.std, None),
    ]
    guards = model.guards if isinstance(model, UpperConfidenceBound) else None
    if guards is not None:
        for name, output in guards.predict(points).items():
            one = guards.constraints[name]
            title = f"{name}: mean {'+' if one.sign > 0.0 else '−'} {one.deviations:.2g} std, limit {one.limit:g}"
            panels.append((title, one.bound(output.mean, output.std), one.limit))
    return panels


def _draw_slice(place: Axes, along: list[_Axis], values: FloatArray, limit: float | None) -> None:
    ticks, settings = [axis.places for axis in along], [axis.setting for axis in along]
    known = values[np.isfinite(values)]
    flat = float(np.ptp(known)) <= 1e-9 * max(1.0, float(np.abs(known).max()))
    is_smooth = known.size == values.size and not any(isinstance(one, Choice) or one.whole for one in settings)
    mesh = place.pcolormesh(*ticks, values.T, shading="gouraud" if is_smooth else "nearest", cmap="viridis")
    place.figure.colorbar(mesh, ax=place)
    if min(values.shape) < 2 or not is_smooth:
        return
    if not flat:
        place.contour(*ticks, values.T, levels=6, colors="white", linewidths=0.5, alpha=0.6)
    if limit is not None and values.min() < limit < values.max():
        place.contour(*ticks, values.T, levels=[limit], colors=_ORANGE, linewidths=2.0)


def _played(model: Policy | TablePolicy, box: Box) -> FloatArray:
    """Return the actions observed so far as those of a box, shape (t, d_a)."""
    points = model.observed_points
    if isinstance(model, TablePolicy):
        return _of_box(model, box, [action for _, action in model.codec.decode(points)])
    return points[:, -box.dimension :] if len(points) else np.empty((0, box.dimension))


def _draw_played(place: Axes, box: Box, played: FloatArray, centre: FloatArray, along: list[_Axis]) -> None:
    if not len(played):
        return
    others = ~np.isin(box.labels, [axis.number for axis in along])
    apart = (box.places(played) - box.places(centre[None, :]))[:, others]
    opacity = np.clip(np.exp(-4.0 * np.linalg.norm(apart, axis=1)), 0.12, 1.0)
    across = [axis.placed(box, played) for axis in along]
    if len(along) == 2:
        place.scatter(
            across[0], across[1], s=14, c="black", alpha=opacity, edgecolors="white", linewidths=0.4, zorder=3
        )
    else:
        for action, strength in zip(across[0], opacity, strict=True):
            place.axvline(action, ymax=0.04, color="black", alpha=float(strength), linewidth=1.0)


def _draw_next(place: Axes, following: list[float]) -> None:
    if len(following) == 2:
        place.plot(*following, marker="*", markersize=14, color=_ORANGE, markeredgecolor="white", zorder=4)
    else:
        place.axvline(following[0], color=_ORANGE, linewidth=1.0)


def _subtitle(box: Box, centre: FloatArray, along: list[_Axis], count: int) -> str:
    settings, shown = box.named(centre), [axis.number for axis in along]
    fixed = [
        f"{box.label(number)} = {value:.4g}" if isinstance(value, float) else f"{box.label(number)} = {value}"
        for number, value in enumerate(settings.values())
        if number not in shown
    ]
    where = f"slice at {', '.join(fixed)}; " if fixed else ""
    return f"{where}{count} observations (dots), next action (orange)"


def history(policy: object, box: Box | None = None) -> Figure:
    """Draw the rewards in order, with their running mean, and what was played in a box.

    Args:
        policy: one with a posterior that keeps its history.
        box: of the actions; a panel for each of its settings, labelled by its names and units.
    """
    model = _require_policy(policy)
    from matplotlib.figure import Figure

    rewards, number = model.posterior.observed_rewards, 1 if box is None else 1 + len(box.settings)
    if not len(rewards):
        raise InputError("policy: has no rewards to draw yet; call update or tell first.")
    figure = Figure(figsize=(7.0, 1.2 + 1.5 * number), layout="constrained")
    grid = figure.subplots(number, 1, sharex=True, squeeze=False)[:, 0]
    rounds = np.arange(model.round_index - len(rewards) + 1, model.round_index + 1)
    width = max(1, min(20, len(rewards) // 5))
    sums = np.cumsum(np.concatenate([[0.0], rewards]))
    grid[0].plot(rounds, rewards, ".", color=_GREY, markersize=3, label="reward")
    grid[0].plot(
        rounds[width - 1 :], (sums[width:] - sums[:-width]) / width, color=_BLUE, label=f"mean of the last {width}"
    )
    if model.residuals.changed_at is not None:
        grid[0].axvline(model.residuals.changed_at, color=_ORANGE, linestyle="--", label="change noticed")
    grid[0].set_ylabel("reward")
    grid[0].legend(fontsize=8, frameon=False, loc="best")
    if box is not None:
        played = _played(model, box)
        for number, place in enumerate(grid[1:]):
            axis = _Axis.of(box, number, 2)
            place.plot(rounds, axis.placed(box, played), ".", color=_GREEN, markersize=3)
            axis.mark(place.yaxis, place.set_yscale)
            low, high = axis.places[[0, -1]].tolist()
            if low < high and place.get_yscale() == "linear":
                place.set_ylim(low - 0.05 * (high - low), high + 0.05 * (high - low))
    grid[-1].set_xlabel("observation")
    return figure


def calibration(policy: object) -> Figure:
    """Draw predictions against what was observed, and their differences in standard deviations.

    The kernel, noise and mean that the policy has now predict each of its last observations from those before it. A
    model that holds has 68 % of the rewards within one standard deviation, of mean and noise together, and 95 % within
    two.

    Args:
        policy: one with a posterior that keeps its history.
    """
    model = _require_policy(policy)
    from matplotlib.figure import Figure

    predicted, spread, observed = replayed(model)
    z = (observed - predicted) / spread
    figure = Figure(figsize=(8.0, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.errorbar(
        predicted, observed, xerr=spread, fmt=".", color=_BLUE, ecolor="#BBD7EA", markersize=4, elinewidth=0.8
    )
    ends = [min(predicted.min(), observed.min()), max(predicted.max(), observed.max())]
    left.plot(ends, ends, color=_GREY, linewidth=0.8)
    left.set(xlabel="predicted before it was observed (± 1 std)", ylabel="observed reward")
    places = np.linspace(-4.0, 4.0, 161)
    right.hist(np.clip(z, -4.0, 4.0), bins=32, range=(-4.0, 4.0), density=True, color="#BBD7EA", edgecolor="white")
    right.plot(places, np.exp(-(places**2) / 2) / np.sqrt(2 * np.pi), color=_ORANGE, label="standard normal")
    within = [float((np.abs(z) <= limit).mean()) for limit in (1.0, 2.0)]
    right.set(xlabel="(observed − predicted)/std", ylabel="density")
    right.set_title(f"{within[0]:.0%} within one (68 %), {within[1]:.0%} within two (95 %)", fontsize=9)
    right.legend(fontsize=8, frameon=False)
    return figure


def replayed(model: Policy | TablePolicy) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the means that the last observations had before they came, the std of mean and noise, and the rewards.

    Rewards are what of them counts for the policy, where their tails are heavy.
    """
    posterior: Any = model.posterior
    points, rewards = posterior.observed_points, posterior.counted(posterior.observed_rewards)
    if len(rewards) < 3:
        raise InputError(f"policy: expected at least 3 rewards to judge predictions by, got {len(rewards)}.")
    given = posterior.given_weights
    weights = np.ones(len(rewards)) if given is None else given
    points, rewards, weights = points[-REPLAYED:], rewards[-REPLAYED:], weights[-REPLAYED:]
    replay = ExactPosterior(posterior.kernel, posterior.regularization)
    means, stds = np.empty(len(rewards)), np.empty(len(rewards))
    for row, (point, reward, weight) in enumerate(zip(points, rewards.tolist(), weights.tolist(), strict=True)):
        evaluation = replay.evaluate_finite(point[None, :])
        means[row], stds[row] = evaluation.mean.item(0), evaluation.std.item(0)
        centred = np.array([reward - posterior.prior_mean])
        replay = replay.learned(point[None, :], centred, None if weight == 1.0 else np.array([weight]))
    return means + posterior.prior_mean, np.sqrt(stds**2 + posterior.regularization / weights), rewards
