"""The offered actions: rows, masks or a box; and the joint points (context, action) that the kernel compares."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernel_bandits.arrays import FloatArray, as_floats, as_points, as_reward, as_vector, join, require_finite
from kernel_bandits.errors import InputError


class Box:
    """Continuous actions: every point between two corners, low ≤ a ≤ high in each coordinate.

    Offered in place of rows of actions, ``policy.select(context, kb.Box(low, high))``; the decision's action is a point
    of the box. Boxes are immutable and may differ from round to round, in everything but their dimension.

    Args:
        low: the lower corner, shape (d_a,); a single number holds for every coordinate.
        high: the upper corner, likewise. A coordinate in which the two agree is fixed.
        names: of the coordinates, for plots, errors and records; ``action 0`` and so on unless given.
        units: of the coordinates, as "°C"; none unless given. Boxes are equal whatever their labels.
    """

    __slots__ = ("high", "low", "names", "units")
    low: FloatArray
    high: FloatArray
    names: tuple[str, ...]
    units: tuple[str, ...]

    def __init__(
        self,
        low: ArrayLike,
        high: ArrayLike,
        *,
        names: Sequence[str] | None = None,
        units: Sequence[str] | None = None,
    ) -> None:
        corners = []
        for name, value in (("low", low), ("high", high)):
            number_or_vector = as_floats(name, value)
            corner = number_or_vector if number_or_vector.ndim == 0 else as_vector(name, number_or_vector)
            require_finite(name, corner)
            corners.append(corner)
        if len({len(corner) for corner in corners if corner.ndim}) > 1 or not all(corner.size for corner in corners):
            raise InputError(
                f"low and high: expected corners of one dimension, at least 1, got {corners[0].size} and "
                f"{corners[1].size} coordinates; a number instead of a list holds for every coordinate."
            )
        lower, upper = (np.array(corner) for corner in np.broadcast_arrays(*np.atleast_1d(*corners)))
        count = len(lower)
        labels = (
            _labels("names", [f"action {number}" for number in range(count)] if names is None else names, count),
            _labels("units", [""] * count if units is None else units, count),
        )
        if len(set(labels[0])) < count:
            raise InputError(f"names: expected different ones, got {list(labels[0])}.")
        if (lower > upper).any():
            where = int(np.flatnonzero(lower > upper)[0])
            raise InputError(
                f"low and high: expected low ≤ high, got {lower[where]:g} above {upper[where]:g} in coordinate {where}"
                f"{'' if names is None else f' ({labels[0][where]})'}."
            )
        with np.errstate(over="ignore"):
            require_finite("high - low", upper - lower)
        if ((upper > lower) & (upper - lower < np.finfo(float).tiny)).any():
            raise InputError(
                f"high - low: expected 0 or at least {np.finfo(float).tiny:.2g}, below which numbers lose their "
                "digits; give the coordinate in a smaller unit."
            )
        for name, corner in (("low", lower), ("high", upper)):
            corner.setflags(write=False)
            object.__setattr__(self, name, corner)
        for name, values in (("names", labels[0]), ("units", labels[1])):
            object.__setattr__(self, name, values)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name}: a Box is immutable; build another.")

    def __reduce__(self) -> tuple[Any, tuple[FloatArray, FloatArray]]:
        return partial(type(self), names=self.names, units=self.units), (self.low, self.high)

    def label(self, coordinate: int) -> str:
        """Return name and unit of a coordinate, as "temperature (°C)"."""
        unit = self.units[coordinate]
        return f"{self.names[coordinate]} ({unit})" if unit else self.names[coordinate]

    def named(self, action: ArrayLike) -> dict[str, float]:
        """Return the coordinates of an action (d_a,) by name, for a record."""
        return dict(zip(self.names, as_vector("action", action, self.dimension).tolist(), strict=True))

    @property
    def is_named(self) -> bool:
        """Whether names were given to the coordinates."""
        return self.names[0] != "action 0"

    @property
    def dimension(self) -> int:
        """The number of coordinates, d_a."""
        return len(self.low)

    @property
    def labels(self) -> NDArray[np.intp]:
        """The coordinate of each column of an action, shape (d_a,)."""
        return np.arange(self.dimension)

    def at(self, fractions: FloatArray) -> FloatArray:
        """Return the points at fractions (n, d_a) of the way from low to high, each in [0, 1]."""
        # fractions 0 and 1 give the corners exactly; between them a sum may be rounded beyond a corner
        between = (1.0 - fractions) * self.low
        between += fractions * self.high
        # half the time of np.clip on a few points
        return np.minimum(np.maximum(between, self.low, out=between), self.high, out=between)

    def fractions(self, points: FloatArray) -> FloatArray:
        """Return the inverse of :meth:`at` for points (n, d_a) clipped to the box; 0 in a fixed coordinate."""
        width = self.high - self.low
        inside = np.clip(points, self.low, self.high) - self.low
        return np.divide(inside, width, out=np.zeros(inside.shape), where=width > 0.0)

    def sample(self, generator: np.random.Generator, count: int) -> FloatArray:
        """Return points drawn uniformly, shape (count, d_a)."""
        return self.at(generator.random((count, self.dimension)))

    def contains(self, points: FloatArray) -> NDArray[np.bool_]:
        """Return whether each of the points (n, d_a) lies in the box, shape (n,)."""
        outside = np.logical_or(points < self.low, points > self.high)
        return np.logical_not(outside.any(axis=1))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Box):
            return NotImplemented
        return np.array_equal(self.low, other.low) and np.array_equal(self.high, other.high)

    def __hash__(self) -> int:
        return hash((self.low.tobytes(), self.high.tobytes()))

    def __repr__(self) -> str:
        named = f", names={list(self.names)}" if self.is_named else ""
        units = f", units={list(self.units)}" if any(self.units) else ""
        return f"Box({self.low.tolist()}, {self.high.tolist()}{named}{units})"


def _labels(name: str, values: Sequence[str], count: int) -> tuple[str, ...]:
    if isinstance(values, str) or len(values) != count or not all(isinstance(value, str) for value in values):
        raise InputError(f"{name}: expected {count} strings, one for each coordinate, got {values!r}.")
    return tuple(values)


def available_rows(mask: ArrayLike, count: int) -> NDArray[np.intp]:
    """Return the rows of ``count`` actions that a mask leaves, in order."""
    try:
        array = np.asarray(mask)
    except ValueError as reason:
        raise InputError(f"mask: expected {count} booleans, got rows of different lengths.") from reason
    if array.shape != (count,) or array.dtype != np.bool_:
        raise InputError(
            f"mask: expected {count} booleans, True where the action may be played, got {array.dtype} of shape "
            f"{array.shape}."
        )
    rows = np.flatnonzero(array)
    if not len(rows):
        raise InputError("mask: expected at least one action that may be played, got none; leave out such a round.")
    return rows


def pair(
    context: ArrayLike, actions: ArrayLike, context_dimension: int | None = None, action_dimension: int | None = None
) -> FloatArray:
    """Return joint points s = (x, a), one row per action: a new array of shape (A, d_x + d_a), finite in every entry.

    The context (d_x,) is empty for a problem without contexts. Dimensions that are known already are checked.
    """
    return join(as_vector("context", context, context_dimension), as_points("actions", actions, action_dimension))


def require_action_columns(actions: FloatArray) -> None:
    """Raise if actions have no columns."""
    if not actions.shape[-1]:
        raise InputError("actions: expected at least one column, got none; describe an action by a number at least.")


def as_rounds(
    contexts: ArrayLike, actions: ArrayLike, context_dimension: int | None = None, action_dimension: int | None = None
) -> tuple[FloatArray, FloatArray]:
    """Return the finite contexts (n, d_x) of n rounds and the actions offered in each, (n, A, d_a).

    Actions of shape (A, d_a) are offered in every round. Dimensions that are known already are checked.
    """
    contexts = as_points("contexts", contexts, context_dimension)
    actions = offered = as_floats("actions", actions)
    if actions.ndim == 2:
        actions = np.broadcast_to(actions, (len(contexts), *actions.shape))
    if actions.ndim != 3 or len(actions) != len(contexts) or not actions.size:
        raise InputError(
            f"actions: expected shape (A, d_a), or (n, A, d_a) with n = {len(contexts)} as many as contexts, "
            f"and A at least 1, got {actions.shape}."
        )
    if action_dimension not in (None, actions.shape[2]):
        raise InputError(f"actions: expected {action_dimension} columns, got {actions.shape[2]}.")
    require_finite("contexts", contexts)
    require_finite("actions", offered)
    return contexts, actions


def as_log(
    contexts: ArrayLike,
    actions: ArrayLike,
    rewards: ArrayLike,
    context_dimension: int | None = None,
    action_dimension: int | None = None,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Check a log of n rounds: contexts (n, d_x), the actions that were played (n, d_a), and their rewards (n,)."""
    contexts = as_points("contexts", contexts, context_dimension)
    actions = as_points("actions", actions, action_dimension)
    rewards = as_vector("rewards", rewards)
    if not len(contexts) == len(actions) == len(rewards):
        raise InputError(
            f"contexts, actions and rewards: expected as many of each, "
            f"got {len(contexts)}, {len(actions)} and {len(rewards)}."
        )
    require_finite("contexts", contexts)
    require_finite("actions", actions)
    require_finite("rewards", rewards)
    as_reward(np.abs(rewards).max())
    return contexts, actions, rewards


def are_arms(actions: FloatArray) -> bool:
    """Return whether actions are names of arms: unit vectors of two columns or more."""
    return actions.shape[1] > 1 and bool(
        (((actions == 0.0) | (actions == 1.0)).all(axis=1) & (actions.sum(axis=1) == 1.0)).all()
    )
