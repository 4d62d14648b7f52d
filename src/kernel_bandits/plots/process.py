"""Figures of a policy in a box: what it expects where, what it has played, and whether its predictions hold.

They need matplotlib: ``pip install 'kernel-bandits[plots]'``.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from kernel_bandits.actions import Box
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


def _settings(policy: Policy | TablePolicy, box: Box, actions: Sequence[Any]) -> FloatArray:
    """Return actions, rows of a table or arrays, in the coordinates of a box, shape (n, d_a)."""
    if isinstance(policy, TablePolicy):
        names = policy.codec.names_in(box)
        actions = [[action[name] for name in names] for action in actions]
    return np.reshape(np.array(actions, dtype=float), (-1, box.dimension))


def _points(policy: Policy | TablePolicy, context: Any, box: Box, actions: FloatArray) -> FloatArray:
    """Return joint points of a context and actions (n, d_a) of a box."""
    if isinstance(policy, TablePolicy):
        names = policy.codec.names_in(box)
        return join(*policy.encode(context, [dict(zip(names, row, strict=True)) for row in actions.tolist()]))
    return join(as_vector("context", context), actions)


def _which(box: Box, axes: Sequence[int | str] | None) -> list[int]:
    """Return the coordinates that a slice runs along: one or two, by number or name."""
    if axes is None:
        return list(range(min(2, box.dimension)))
    names = list(box.names)
    chosen = [names.index(axis) if isinstance(axis, str) and axis in names else axis for axis in axes]
    fit = all(isinstance(axis, (int, np.integer)) and 0 <= axis < box.dimension for axis in chosen)
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
    """Draw what a policy believes along one or two coordinates of a box, in one context.

    Mean, standard deviation, upper bound and constrained outputs, with the actions observed so far (the paler, the
    farther from the slice) and the next one as a star. The figure is matplotlib's: ``figure.savefig("surface.png")``.

    Args:
        policy: one with a posterior, over arrays or over a table whose actions are numbers.
        context: shape (d_x,), or a row of the table.
        box: of the actions, in the units of the table; its names and units label the axes.
        axes: one or two coordinates, by name or number; the first two unless given.
        through: the action that the slice goes through, shape (d_a,); the next one unless given.
    """
    model = _require_policy(policy)
    from matplotlib.figure import Figure

    along = _which(box, axes)
    following = _settings(model, box, [model.preview(context, box).action])[0]
    centre = following if through is None else as_vector("through", through, box.dimension)
    count = ALONG_LINE if len(along) == 1 else ALONG_SIDE
    ticks = [np.linspace(box.low[axis], box.high[axis], count) for axis in along]
    actions = np.tile(centre, (count ** len(along), 1))
    for axis, values in zip(along, np.meshgrid(*ticks, indexing="ij"), strict=True):
        actions[:, axis] = values.ravel()
    panels = _panels(model.inner if isinstance(model, TablePolicy) else model, _points(model, context, box, actions))
    rows = -(-len(panels) // 2) if len(along) == 2 else 1
    columns = min(2, len(panels)) if len(along) == 2 else len(panels)
    figure = Figure(figsize=(4.2 * columns, 3.4 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    played = _played(model, box)
    for place, (title, values, limit) in zip(grid, panels, strict=False):
        place.set_title(title, fontsize=10)
        if len(along) == 2:
            _draw_slice(place, ticks, values.reshape(count, count), limit)
            place.set_ylabel(box.label(along[1]))
        else:
            place.plot(ticks[0], values, color=_BLUE)
            if limit is not None:
                place.axhline(limit, color=_ORANGE, linestyle="--")
        place.set_xlabel(box.label(along[0]))
        _draw_played(place, box, played, centre, along)
        _draw_next(place, following, along)
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
            constraint = guards.constraints[name]
            sign = (
                1.0
                if constraint.excess(np.ones(1), np.zeros(1)) > constraint.excess(np.zeros(1), np.zeros(1))
                else -1.0
            )
            title = (
                f"{name}: mean {'+' if sign > 0 else '−'} {constraint.deviations:.2g} std, limit {constraint.limit:g}"
            )
            panels.append((title, output.mean + sign * constraint.deviations * output.std, constraint.limit))
    return panels


def _draw_slice(place: Axes, ticks: list[FloatArray], values: FloatArray, limit: float | None) -> None:
    flat = float(np.ptp(values)) <= 1e-9 * max(1.0, float(np.abs(values).max()))
    mesh = place.pcolormesh(*ticks, values.T, shading="gouraud", cmap="viridis")
    place.figure.colorbar(mesh, ax=place)
    if not flat:
        place.contour(*ticks, values.T, levels=6, colors="white", linewidths=0.5, alpha=0.6)
    if limit is not None and values.min() < limit < values.max():
        place.contour(*ticks, values.T, levels=[limit], colors=_ORANGE, linewidths=2.0)


def _played(model: Policy | TablePolicy, box: Box) -> FloatArray:
    """Return the actions observed so far in the coordinates of a box, shape (t, d_a)."""
    points = model.observed_points
    if isinstance(model, TablePolicy):
        return _settings(model, box, [action for _, action in model.codec.decode(points)])
    return points[:, -box.dimension :] if len(points) else np.empty((0, box.dimension))


def _draw_played(place: Axes, box: Box, played: FloatArray, centre: FloatArray, along: list[int]) -> None:
    if not len(played):
        return
    others = [axis for axis in range(box.dimension) if axis not in along]
    apart = box.fractions(played)[:, others] - box.fractions(centre[None, :])[:, others]
    opacity = np.clip(np.exp(-4.0 * np.linalg.norm(apart, axis=1)), 0.12, 1.0)
    if len(along) == 2:
        across, along_side = played[:, along].T
        place.scatter(across, along_side, s=14, c="black", alpha=opacity, edgecolors="white", linewidths=0.4, zorder=3)
    else:
        for action, strength in zip(played[:, along[0]], opacity, strict=True):
            place.axvline(action, ymax=0.04, color="black", alpha=float(strength), linewidth=1.0)


def _draw_next(place: Axes, following: FloatArray, along: list[int]) -> None:
    if len(along) == 2:
        place.plot(*following[along], marker="*", markersize=14, color=_ORANGE, markeredgecolor="white", zorder=4)
    else:
        place.axvline(following[along[0]], color=_ORANGE, linewidth=1.0)


def _subtitle(box: Box, centre: FloatArray, along: list[int], count: int) -> str:
    fixed = [f"{box.label(axis)} = {centre[axis]:.4g}" for axis in range(box.dimension) if axis not in along]
    where = f"slice at {', '.join(fixed)}; " if fixed else ""
    return f"{where}{count} observations (dots), next action (orange)"


def history(policy: object, box: Box | None = None) -> Figure:
    """Draw the rewards in order, with their running mean, and what was played in a box.

    Args:
        policy: one with a posterior that keeps its history.
        box: of the actions; a panel for each of its coordinates, labelled by its names and units.
    """
    model = _require_policy(policy)
    from matplotlib.figure import Figure

    rewards, number = model.posterior.observed_rewards, 1 if box is None else 1 + box.dimension
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
        for axis, place in enumerate(grid[1:]):
            place.plot(rounds, played[:, axis], ".", color=_GREEN, markersize=3)
            place.set_ylabel(box.label(axis))
            margin = 0.05 * (box.high[axis] - box.low[axis])
            if margin > 0.0:
                place.set_ylim(box.low[axis] - margin, box.high[axis] + margin)
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
        centred = np.array([(reward - posterior.prior_mean) / posterior.unit])
        replay = replay.learned(point[None, :], centred, None if weight == 1.0 else np.array([weight]))
    deviations = posterior.unit * np.sqrt(stds**2 + posterior.regularization / weights)
    return posterior.unit * means + posterior.prior_mean, deviations, rewards
