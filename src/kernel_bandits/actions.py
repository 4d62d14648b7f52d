"""The offered actions: rows, masks or a box; and the joint points (context, action) that the kernel compares."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from kernel_bandits.arrays import FloatArray, as_floats, as_points, as_reward, as_vector, join, require_finite
from kernel_bandits.errors import InputError

# The value of a setting.
Value: TypeAlias = float | int | str | bool
# Linear limits hold up to this share of the widths of the settings they name: rounding.
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, repr=False)
class Range:
    """A setting that is a number between two others.

    Args:
        low: the least value.
        high: the largest; the setting is fixed where the two agree.
        whole: whether only whole numbers are possible, both ends included.
        logarithm: whether ratios matter, not differences; actions then hold the logarithm.
        unit: as "°C", for plots.
    """

    low: float
    high: float
    whole: bool = False
    logarithm: bool = False
    unit: str = ""
    # actions hold (y − origin)/length, with y the number or its logarithm; others where a table encodes them so
    origin: float = 0.0
    length: float = 1.0
    # how many columns of an action it has
    width: ClassVar[int] = 1

    def __post_init__(self) -> None:
        try:
            low, high = float(self.low), float(self.high)
        except (TypeError, ValueError) as reason:
            raise InputError(f"Range: expected two numbers, got {self.low!r} and {self.high!r}.") from reason
        if not (math.isfinite(low) and math.isfinite(high) and low <= high):
            raise InputError(f"Range: expected finite numbers low ≤ high, got {low:g} and {high:g}.")
        if self.logarithm and low <= 0.0:
            raise InputError(f"Range: expected limits above 0, whose logarithms are taken, got {low:g}.")
        if self.whole and not (low.is_integer() and high.is_integer()):
            raise InputError(f"Range: expected whole numbers as limits, got {low:g} and {high:g}.")

    def __repr__(self) -> str:
        return f"Range({self.low!r}, {self.high!r}{_options(self, 'whole', 'logarithm', 'unit')})"

    def columns(self, values: FloatArray) -> FloatArray:
        """Return what actions hold for values."""
        return ((np.log(values) if self.logarithm else values) - self.origin) / self.length

    def column(self, value: float) -> float:
        """Return what an action holds for a value."""
        return float(self.columns(np.float64(value)))  # type: ignore[arg-type] # a number is an array without axes

    def encoded(self, name: str, value: Any) -> FloatArray:
        """Return the columns of an action for a value of the setting of this name, shape (1,)."""
        del name  # errors are of numbers
        return np.array([self.column(as_reward(value))])

    def value(self, columns: FloatArray) -> float | int:
        """Return the value that these columns of an action stand for."""
        number = float(columns[0]) * self.length + self.origin
        if self.logarithm:
            # e^{log v} is v but for the last digits
            number = float(f"{math.exp(number):.12g}")
        return round(number) if self.whole else number

    def column_names(self, name: str) -> list[str]:
        """Return the names of the columns of the setting of this name."""
        return [name]

    @property
    def corners(self) -> FloatArray:
        """The least and the largest of each column, shape (2, 1)."""
        return np.array([[self.column(self.low)], [self.column(self.high)]])

    @property
    def varies(self) -> bool:
        """Whether there is anything to choose."""
        return self.low < self.high

    @property
    def ends(self) -> tuple[float, float]:
        """What an action holds at fractions 0 and 1; half a step beyond the limits where numbers are rounded."""
        half = 0.5 if self.whole and self.varies else 0.0
        return self.column(self.low - half), self.column(self.high + half)

    def rounded(self, columns: FloatArray) -> FloatArray:
        """Return columns of actions, each at the nearest whole number."""
        return self.columns(self._whole(columns))

    def _whole(self, columns: FloatArray) -> FloatArray:
        numbers = columns * self.length + self.origin
        return np.rint(np.exp(numbers) if self.logarithm else numbers)

    def alike(self, fractions: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return from which and up to which fractions the whole number is that at fractions (n,)."""
        first, last = self.ends
        if first == last:
            return np.zeros(len(fractions)), np.ones(len(fractions))
        numbers = np.clip(self._whole(first + fractions * (last - first)), self.low, self.high)
        low, high = ((self.columns(numbers + step) - first) / (last - first) for step in (-0.5, 0.5))
        return low, high


@dataclass(frozen=True, slots=True, repr=False)
class Choice:
    """A setting that is one of several levels.

    Args:
        levels: at least one, all different.
        ordered: whether neighbours are alike, as small, medium and large. Actions then hold the number of the level,
            otherwise a unit vector.
        unit: for plots.
    """

    levels: Sequence[Value]
    ordered: bool = False
    unit: str = ""
    # the vector of each level; others where a table encodes them so
    codes: tuple[tuple[float, ...], ...] | None = None
    whole: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if isinstance(self.levels, (str, bytes)) or not isinstance(self.levels, Sequence) or not self.levels:
            raise InputError(f"Choice: expected a list of levels, got {self.levels!r}.")
        if not all(isinstance(level, (str, int, float, np.generic)) for level in self.levels):
            raise InputError(f"Choice: expected text, numbers or booleans as levels, got {list(self.levels)}.")
        if len(set(self.levels)) < len(self.levels):
            raise InputError(f"Choice: expected different levels, got {list(self.levels)}.")
        object.__setattr__(self, "levels", tuple(self.levels))

    def __repr__(self) -> str:
        return f"Choice({list(self.levels)}{_options(self, 'ordered', 'unit')})"

    @property
    def vectors(self) -> FloatArray:
        """What an action holds for each level, shape (L, w)."""
        if self.codes is not None:
            return np.array(self.codes)
        count = len(self.levels)
        return np.arange(float(count))[:, None] if self.ordered else np.eye(count)

    @property
    def width(self) -> int:
        """How many columns of an action it has."""
        return self.vectors.shape[1]

    def number(self, name: str, level: Any) -> int:
        """Return the number of a level."""
        if level not in self.levels:
            raise InputError(f"{name}: expected one of {list(self.levels)}, got {level!r}.")
        return list(self.levels).index(level)

    def encoded(self, name: str, value: Any) -> FloatArray:
        """Return the columns of an action for a level of the setting of this name, shape (w,)."""
        return self.vectors[self.number(name, value)]

    def value(self, columns: FloatArray) -> Value:
        """Return the level that these columns of an action stand for."""
        return self.levels[int(_nearest(self.vectors, columns[None, :])[0])]

    def column_names(self, name: str) -> list[str]:
        """Return the names of the columns of the setting of this name."""
        return [f"{name}={level}" for level in self.levels] if self.width > 1 else [name]

    @property
    def corners(self) -> FloatArray:
        """The least and the largest of each column, shape (2, w)."""
        return np.array([self.vectors.min(axis=0), self.vectors.max(axis=0)])

    @property
    def varies(self) -> bool:
        """Whether there is anything to choose."""
        return len(self.levels) > 1


def _options(value: object, *names: str) -> str:
    """Return arguments that are not empty, for a repr."""
    return "".join(f", {name}={own!r}" for name in names if (own := getattr(value, name)))


Setting: TypeAlias = Range | Choice
# By the name of a choice and by its level: the range of other settings.
Sides: TypeAlias = Mapping[str, Mapping[Any, Mapping[str, tuple[float, float]]]]


@dataclass(frozen=True, slots=True, repr=False)
class LinearLimit:
    """A limit on a weighted sum of settings: least ≤ Σ weight·value ≤ most.

    A mixture is one whose least and most agree: ``LinearLimit({"water": 1, "acid": 1, "salt": 1}, 1.0, 1.0)``.

    Args:
        weights: by the name of a setting, each a range of plain numbers.
        least: of the sum.
        most: of the sum.
    """

    weights: Mapping[str, float]
    least: float = -math.inf
    most: float = math.inf

    def __post_init__(self) -> None:
        weights = list(self.weights.values()) if isinstance(self.weights, Mapping) else []
        numbers = all(isinstance(one, (int, float, np.number)) and math.isfinite(one) for one in weights)
        if not (weights and numbers) or not self.least <= self.most or math.inf in (self.least, -self.most):
            raise InputError(
                f"LinearLimit: expected weights by the name of a setting and least ≤ most, got {self.weights!r}, "
                f"{self.least} and {self.most}."
            )

    def __repr__(self) -> str:
        ends = [f", {name}={end!r}" for name in ("least", "most") if math.isfinite(end := getattr(self, name))]
        return f"LinearLimit({dict(self.weights)}{''.join(ends)})"


class Box:
    """Settings that may all be chosen: numbers between two corners, and levels of choices.

    Offered in place of rows of actions: ``policy.select(context, kb.Box(low, high))``, or setting by setting,
    ``kb.Box({"temperature": kb.Range(150, 250), "nozzle": ["round", "flat"]})``. The decision's action is a vector;
    :meth:`named` returns its settings. Boxes are immutable and may differ from round to round, in everything but their
    dimension.

    A point of a box is also given by fractions in [0, 1], one for each setting, which :meth:`at` maps onto the box; the
    levels of a choice are equal parts of them. So a design, a search or a density over the unit cube is one over any
    box.

    Args:
        low: the lower corner, shape (d_a,); a single number holds for every setting. Or the settings by name, each a
            :class:`Range`, a :class:`Choice`, a pair of numbers or a list of levels.
        high: the upper corner, likewise; left out where settings are named. A setting in which the two agree is fixed.
        names: of the settings, for plots, errors and records; ``action 0`` and so on unless given.
        units: of the settings, as "°C"; none unless given. Boxes are equal whatever their labels.
        sides: ranges that depend on a choice: ``{"nozzle": {"flat": {"temperature": (150, 200)}}}``.
        limits: on weighted sums of settings.

    Attributes:
        settings: what each setting is.
        is_plain: whether every setting is a plain number between two fixed ones.
    """

    __slots__ = ("_layout", "_regions", "high", "is_plain", "limits", "low", "names", "settings", "sides", "units")
    saved: ClassVar[tuple[str, ...]] = ("names", "settings", "sides", "limits")
    low: FloatArray
    high: FloatArray
    names: tuple[str, ...]
    units: tuple[str, ...]
    settings: tuple[Setting, ...]
    sides: Sides
    limits: tuple[LinearLimit, ...]
    is_plain: bool
    _layout: _Layout
    _regions: dict[tuple[int, ...], _Region]

    def __init__(
        self,
        low: ArrayLike | Mapping[str, Any],
        high: ArrayLike | None = None,
        *,
        names: Sequence[str] | None = None,
        units: Sequence[str] | None = None,
        sides: Sides | None = None,
        limits: Sequence[LinearLimit] = (),
    ) -> None:
        if isinstance(low, Mapping):
            if high is not None or names is not None or units is not None:
                raise InputError("Box: settings by name have their limits, names and units; leave the others out.")
            settings = tuple(_as_setting(name, value) for name, value in low.items())
            if not settings:
                raise InputError("Box: expected at least one setting, got none.")
            labels = tuple(low), tuple(setting.unit for setting in settings)
            lower, upper = np.hstack([one.corners for one in settings])
        else:
            lower, upper, labels = _corners(low, high, names, units)
            corners = zip(lower.tolist(), upper.tolist(), labels[1], strict=True)
            settings = tuple(Range(first, last, unit=unit) for first, last, unit in corners)
        ranges = [one for one in settings if isinstance(one, Range)]
        plain = len(ranges) == len(settings) and not sides and not limits
        plain = plain and not any(one.whole or one.logarithm or one.origin or one.length != 1.0 for one in ranges)
        for corner in (lower, upper):
            corner.setflags(write=False)
        if not isinstance(limits, Sequence) or not all(isinstance(one, LinearLimit) for one in limits):
            raise InputError(f"limits: expected a list of LinearLimit, got {limits!r}.")
        sides = {name: {level: dict(own) for level, own in of.items()} for name, of in (sides or {}).items()}
        values = {"low": lower, "high": upper, "names": labels[0], "units": labels[1], "settings": settings}
        values |= {"sides": sides, "limits": tuple(limits), "is_plain": plain, "_regions": {}}
        values["_layout"] = _Layout.of(settings)
        for name, value in values.items():
            object.__setattr__(self, name, value)
        if not plain:
            self._check()
        elif isinstance(low, Mapping):
            _corners(lower, upper, *labels)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name}: a Box is immutable; build another.")

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return _rebuilt, (dict(zip(self.names, self.settings, strict=True)), self.sides, self.limits)

    def restore_saved(self, state: Mapping[str, Any]) -> None:
        """Fill in a box that was saved in a file."""
        settings = dict(zip(state["names"], state["settings"], strict=True))
        self.__init__(settings, sides=state["sides"], limits=state["limits"])  # type: ignore[misc]

    def _check(self) -> None:
        """Raise unless sides and limits fit the settings, and leave room for each combination of levels."""
        for name, levels in self.sides.items():
            choice = self._setting(name, Choice, "sides")
            for level, own in levels.items():
                choice.number(f"sides: {name}", level)
                for other, pair in own.items():
                    self._within(other, pair)
        for limit in self.limits:
            for name in limit.weights:
                one = self._setting(name, Range, "limits")
                if one.whole or one.logarithm:
                    raise InputError(f"limits: expected plain numbers, and {name!r} is whole or a logarithm.")
        for key in product(*(range(len(self._choice(name).levels)) for name in self.sides)):
            self._region(key)

    def _setting(self, name: str, kind: type[Any], place: str) -> Any:
        setting = self.settings[self.names.index(name)] if name in self.names else None
        if not isinstance(setting, kind):
            known = [one for one, own in zip(self.names, self.settings, strict=True) if isinstance(own, kind)]
            raise InputError(f"{place}: expected one of {known}, got {name!r}.")
        return setting

    def _choice(self, name: str) -> Choice:
        choice: Choice = self._setting(name, Choice, "sides")
        return choice

    def _within(self, name: str, pair: tuple[float, float]) -> Range:
        """Return the range of a setting where sides narrow it."""
        whole: Range = self._setting(name, Range, "sides")
        own = replace(whole, low=pair[0], high=pair[1])
        if not whole.low <= own.low <= own.high <= whole.high:
            raise InputError(f"sides: expected {name!r} within {whole.low:g} to {whole.high:g}, got {pair}.")
        return own

    def label(self, setting: int) -> str:
        """Return name and unit of a setting, as "temperature (°C)"."""
        unit = self.units[setting]
        return f"{self.names[setting]} ({unit})" if unit else self.names[setting]

    def named(self, action: ArrayLike) -> dict[str, Any]:
        """Return the settings of an action (d_a,) by name, for a record."""
        vector = as_vector("action", action, self.dimension)
        parts = zip(self.names, self.settings, self._layout.places, strict=True)
        return {name: setting.value(vector[place]) for name, setting, place in parts}

    def encode(self, settings: Mapping[str, Any]) -> FloatArray:
        """Return the action (d_a,) of settings by name, the inverse of :meth:`named`."""
        if not isinstance(settings, Mapping) or set(settings) != set(self.names):
            raise InputError(f"settings: expected a value for each of {', '.join(self.names)}, got {settings!r}.")
        parts = zip(self.names, self.settings, strict=True)
        return np.concatenate([setting.encoded(name, settings[name]) for name, setting in parts])

    @property
    def is_named(self) -> bool:
        """Whether names were given to the settings."""
        return self.names[0] != "action 0"

    @property
    def dimension(self) -> int:
        """The number of columns of an action, d_a."""
        return len(self.low)

    @property
    def labels(self) -> NDArray[np.intp]:
        """The setting of each column of an action, shape (d_a,)."""
        return self._layout.labels

    @property
    def column_names(self) -> tuple[str, ...]:
        """The name of each column of an action; those of a choice are named after its levels."""
        parts = zip(self.names, self.settings, strict=True)
        return tuple(column for name, setting in parts for column in setting.column_names(name))

    @property
    def free(self) -> NDArray[np.bool_]:
        """Which settings may be chosen, shape (k,); others are fixed, or given by the others and a limit."""
        found = np.array([one.varies for one in self.settings])
        for key in product(*(range(len(self._choice(name).levels)) for name in self.sides)):
            body = self._region(key).body
            if body is not None:
                found[self._layout.ranges[body.dependent]] = False
        return found

    def _region(self, key: tuple[int, ...]) -> _Region:
        """Return the ranges and limits for one combination of the levels that they depend on."""
        if key not in self._regions:
            own = {name: one for name, one in zip(self.names, self.settings, strict=True) if isinstance(one, Range)}
            for name, level in zip(self.sides, key, strict=True):
                for other, pair in self.sides[name].get(self._choice(name).levels[level], {}).items():
                    narrow, known = self._within(other, pair), own[other]
                    own[other] = replace(narrow, low=max(narrow.low, known.low), high=min(narrow.high, known.high))
            self._regions[key] = _Region.of(own, self.limits)
        return self._regions[key]

    def _by_region(self, fractions: FloatArray) -> Iterator[tuple[NDArray[np.intp], _Region]]:
        """Yield the rows of fractions (n, k) that lie in each region."""
        if not self.sides:
            yield np.arange(len(fractions)), self._region(())
            return
        places = [(self.names.index(name), len(self._choice(name).levels)) for name in self.sides]
        levels = np.stack([_level(fractions[:, number], count) for number, count in places], axis=1)
        found, rows = np.unique(levels, axis=0, return_inverse=True)
        for number, key in enumerate(found.tolist()):
            yield np.flatnonzero(rows.ravel() == number), self._region(tuple(key))

    def at(self, fractions: FloatArray, rounded: bool = True) -> FloatArray:
        """Return the points (n, d_a) at fractions (n, k) in [0, 1], one for each setting.

        With ``rounded=False`` whole numbers may lie between two of them.
        """
        if self.is_plain:
            # fractions 0 and 1 give the corners exactly; between them a sum may be rounded beyond a corner
            between = (1.0 - fractions) * self.low
            between += fractions * self.high
            # half the time of np.clip on a few points
            return np.minimum(np.maximum(between, self.low, out=between), self.high, out=between)
        points = np.empty((len(fractions), self.dimension))
        for number, (setting, place) in enumerate(zip(self.settings, self._layout.places, strict=True)):
            if isinstance(setting, Choice):
                points[:, place] = setting.vectors[_level(fractions[:, number], len(setting.levels))]
        for rows, region in self._by_region(fractions):
            points[np.ix_(rows, self._layout.columns)] = region.at(fractions[np.ix_(rows, self._layout.ranges)])
        if rounded:
            for setting, place in zip(self.settings, self._layout.places, strict=True):
                if isinstance(setting, Range) and setting.whole:
                    points[:, place] = setting.rounded(points[:, place])
        return points

    def fractions(self, points: FloatArray) -> FloatArray:
        """Return the inverse of :meth:`at` for points (n, d_a) clipped to the box; 0 in a fixed setting."""
        if self.is_plain:
            width = self.high - self.low
            inside = np.clip(points, self.low, self.high) - self.low
            return np.divide(inside, width, out=np.zeros(inside.shape), where=width > 0.0)
        found = np.zeros((len(points), len(self.settings)))
        for number, (setting, place) in enumerate(zip(self.settings, self._layout.places, strict=True)):
            if isinstance(setting, Choice):
                found[:, number] = (_nearest(setting.vectors, points[:, place]) + 0.5) / len(setting.levels)
        for rows, region in self._by_region(found):
            found[np.ix_(rows, self._layout.ranges)] = region.fractions(points[np.ix_(rows, self._layout.columns)])
        return found

    def slopes(self, fractions: FloatArray, gradients: FloatArray) -> FloatArray:
        """Return gradients by fractions (n, k) of what has gradients (n, d_a) by points; 0 in a choice."""
        if self.is_plain:
            return gradients * (self.high - self.low)
        found = np.zeros(fractions.shape)
        for rows, region in self._by_region(fractions):
            own = gradients[np.ix_(rows, self._layout.columns)]
            found[np.ix_(rows, self._layout.ranges)] = region.slopes(fractions[np.ix_(rows, self._layout.ranges)], own)
        return found

    def volumes(self, fractions: FloatArray) -> FloatArray:
        """Return how much of the box a unit of fractions is at fractions (n, k), shape (n,).

        In the columns of ranges that are not fixed; levels and whole numbers are counted.
        """
        found = np.ones(len(fractions))
        for rows, region in self._by_region(fractions):
            found[rows] = region.volumes(fractions[np.ix_(rows, self._layout.ranges)])
        low, high = self.alike(fractions)
        found /= np.where(self.is_counted, high - low, 1.0).prod(axis=1)
        return found

    def alike(self, fractions: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return from which and up to which fractions each setting stays as it is at fractions (n, k)."""
        low, high = fractions.copy(), fractions.copy()
        for number, setting in enumerate(self.settings):
            if isinstance(setting, Choice):
                count = len(setting.levels)
                level = _level(fractions[:, number], count)
                low[:, number], high[:, number] = level / count, (level + 1) / count
        for rows, region in self._by_region(fractions):
            for number, setting in zip(self._layout.ranges, region.ranges, strict=True):
                if setting.whole:
                    low[rows, number], high[rows, number] = setting.alike(fractions[rows, number])
        return low, high

    def neighbours(self, fractions: FloatArray) -> FloatArray:
        """Return fractions (m, k) at which one choice or whole number is another one than at fractions (n, k).

        Choices without an order take every other level, others the next ones to either side.
        """
        found = [fractions]
        low, high = self.alike(fractions)
        for number, setting in enumerate(self.settings):
            if not setting.whole:
                continue
            if isinstance(setting, Choice) and not setting.ordered:
                others: list[Any] = [(level + 0.5) / len(setting.levels) for level in range(len(setting.levels))]
            else:
                step = 0.5 * (high - low)[:, number]
                others = [low[:, number] - step, high[:, number] + step]
            for other in others:
                moved = fractions.copy()
                moved[:, number] = other
                found.append(moved[(moved[:, number] > 0.0) & (moved[:, number] < 1.0)])
        return np.concatenate(found)

    @property
    def is_choice(self) -> NDArray[np.bool_]:
        """Which settings are choices, shape (k,)."""
        return np.array([isinstance(one, Choice) for one in self.settings])

    @property
    def is_counted(self) -> NDArray[np.bool_]:
        """Which settings are choices or whole numbers, shape (k,)."""
        return np.array([one.whole for one in self.settings])

    def lengthscales(self, share: float) -> FloatArray:
        """Return lengthscales for the columns of actions, shape (d_a,): a share of the width of each setting.

        The columns of a choice vary together as much as those of a range that is played evenly; L levels are then
        1/√(6 − 6/L) widths apart.
        """
        width = np.where(self.high > self.low, self.high - self.low, 1.0)
        for setting, place in zip(self.settings, self._layout.places, strict=True):
            if isinstance(setting, Choice) and not setting.ordered and setting.varies:
                width[place] = math.sqrt(12.0 * (1.0 - 1.0 / len(setting.levels)))
        return share * width

    def places(self, points: FloatArray) -> FloatArray:
        """Return points (n, d_a) in widths of the settings, between which distances compare; 0 in a fixed column."""
        if self.is_plain:
            return self.fractions(points)
        return np.where(self.high > self.low, (points - self.low) / self.lengthscales(1.0), 0.0)

    def sample(self, generator: np.random.Generator, count: int) -> FloatArray:
        """Return points drawn evenly, shape (count, d_a)."""
        return self.at(generator.random((count, len(self.settings))))

    def contains(self, points: FloatArray) -> NDArray[np.bool_]:
        """Return whether each of the points (n, d_a) lies in the box, shape (n,)."""
        if self.is_plain:
            outside = np.logical_or(points < self.low, points > self.high)
            return np.logical_not(outside.any(axis=1))
        slack = ROUNDING * self.lengthscales(1.0)
        away = np.abs(self.at(self.fractions(points)) - points)
        return np.logical_not((away > slack).any(axis=1))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Box):
            return NotImplemented
        if self.is_plain and other.is_plain:
            return np.array_equal(self.low, other.low) and np.array_equal(self.high, other.high)
        mine, theirs = (
            (tuple(replace(one, unit="") for one in box.settings), str(box.sides), str(box.limits))
            for box in (self, other)
        )
        return mine == theirs

    def __hash__(self) -> int:
        return hash((self.low.tobytes(), self.high.tobytes()))

    def __repr__(self) -> str:
        if not self.is_plain:
            settings = ", ".join(f"{name!r}: {one!r}" for name, one in zip(self.names, self.settings, strict=True))
            options = (f", sides={self.sides!r}" if self.sides else "") + (
                f", limits={list(self.limits)!r}" if self.limits else ""
            )
            return f"Box({{{settings}}}{options})"
        named = f", names={list(self.names)}" if self.is_named else ""
        units = f", units={list(self.units)}" if any(self.units) else ""
        return f"Box({self.low.tolist()}, {self.high.tolist()}{named}{units})"


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where the settings of a box stand in its actions.

    Attributes:
        labels: the setting of each column.
        places: the columns of each setting.
        ranges: which settings are ranges,
        columns: and the column of each of these.
    """

    labels: NDArray[np.intp]
    places: tuple[slice, ...]
    ranges: NDArray[np.intp]
    columns: NDArray[np.intp]

    @classmethod
    def of(cls, settings: Sequence[Setting]) -> Self:
        """Return where settings stand that follow each other."""
        widths = [one.width for one in settings]
        ends = np.cumsum(widths).tolist()
        places = tuple(slice(first, last) for first, last in zip([0, *ends[:-1]], ends, strict=True))
        ranges = np.array([number for number, one in enumerate(settings) if isinstance(one, Range)], dtype=np.intp)
        labels = np.repeat(np.arange(len(widths)), widths)
        return cls(labels, places, ranges, np.array([places[number].start for number in ranges], dtype=np.intp))


@dataclass(frozen=True, slots=True)
class _Region:
    """The ranges of a box for one combination of the levels that they depend on.

    Attributes:
        ranges: in their order.
        start: their columns at fraction 0.
        stop: their columns at fraction 1.
        low: their least columns; above ``start`` where numbers are rounded.
        high: their largest columns.
        body: what limits leave of them; None without limits.
    """

    ranges: tuple[Range, ...]
    start: FloatArray
    stop: FloatArray
    low: FloatArray
    high: FloatArray
    body: _Body | None

    @classmethod
    def of(cls, ranges: Mapping[str, Range], limits: Sequence[LinearLimit]) -> Self:
        """Return the region of ranges by name."""
        own = tuple(ranges.values())
        for name, one in ranges.items():
            if one.low > one.high:
                raise InputError(f"sides: two of them leave nothing of {name!r}.")
        start, stop = np.array([one.ends for one in own]).reshape(-1, 2).T
        low, high = np.hstack([np.empty((2, 0)), *(one.corners for one in own)])
        return cls(own, start, stop, low, high, _Body.of(ranges, limits) if limits else None)

    def at(self, fractions: FloatArray) -> FloatArray:
        """Return the columns (n, r) at fractions (n, r) of the ranges."""
        within = fractions if self.body is None else self.body.at(fractions)
        return np.clip((1.0 - within) * self.start + within * self.stop, self.low, self.high)

    def fractions(self, columns: FloatArray) -> FloatArray:
        """Return the inverse of :meth:`at`."""
        width = self.stop - self.start
        inside = np.clip(columns, self.low, self.high) - self.start
        within = np.divide(inside, width, out=np.zeros(inside.shape), where=width != 0.0)
        return within if self.body is None else self.body.fractions(within)

    def slopes(self, fractions: FloatArray, gradients: FloatArray) -> FloatArray:
        """Return gradients by fractions of what has these gradients by columns, shape (n, r) each."""
        width = self.stop - self.start
        # beyond the last whole number nothing changes
        columns = self.start + fractions * width
        by_widths = np.where((columns < self.low) | (columns > self.high), 0.0, gradients * width)
        return by_widths if self.body is None else self.body.slopes(fractions, by_widths)

    def volumes(self, fractions: FloatArray) -> FloatArray:
        """Return by how much :meth:`at` stretches volumes in the ranges of plain numbers, shape (n,)."""
        width = np.abs(self.stop - self.start)
        counts = (width > 0.0) & np.array([not one.whole for one in self.ranges], dtype=bool)
        if self.body is None:
            return np.full(len(fractions), float(np.prod(width[counts])))
        counts[self.body.dependent] = False
        stretch: FloatArray = np.prod(width[counts]) * self.body.shrinking(fractions) ** len(self.body.free)
        return stretch


@dataclass(frozen=True, slots=True)
class _Body:
    """What linear limits leave of the unit cube, as an image of the cube.

    Each ray from a centre c inside is shortened so that the wall of the cube goes to the wall of the body: with
    v = x − c, x becomes c + s·v, where s = min(1, g(v)/h(v)) with the gauges g of the cube and h of the limits. Since s
    is the same all along a ray, the inverse divides by it, and volumes shrink by s to the number of settings. A sum
    that is given makes some settings p + Qx of the others.

    Attributes:
        free: which ranges the limits name,
        dependent: and which of them the others give.
        offset: p.
        matrix: Q.
        centre: c.
        faces: the limits as ⟨f, v⟩ ≤ 1, shape (n, free).
    """

    free: list[int]
    dependent: list[int]
    offset: FloatArray
    matrix: FloatArray
    centre: FloatArray
    faces: FloatArray

    @classmethod
    def of(cls, ranges: Mapping[str, Range], limits: Sequence[LinearLimit]) -> Self:
        """Return what limits leave of ranges by name."""
        names, own = list(ranges), list(ranges.values())
        low, width = (np.array(values) for values in ([one.low for one in own], [one.high - one.low for one in own]))
        given: list[tuple[FloatArray, float]] = []
        most: list[tuple[FloatArray, float]] = []
        for limit in limits:
            weights = np.array([float(limit.weights.get(name, 0.0)) for name in names])
            row, base = weights * width, float(weights @ low)
            if limit.least == limit.most:
                given.append((row, limit.most - base))
                continue
            most += [(row, limit.most - base)] if limit.most < math.inf else []
            most += [(-row, base - limit.least)] if limit.least > -math.inf else []
        rows = np.array([row for row, _ in [*given, *most]])
        named = np.flatnonzero(rows.any(axis=0))
        equal, equals = np.array([row for row, _ in given]).reshape(-1, len(own)), np.array([one for _, one in given])
        dependent: list[int] = []
        if len(equal):
            triangle, order = scipy.linalg.qr(equal[:, named], mode="r", pivoting=True)
            if len(named) < len(equal) or np.abs(np.diagonal(triangle)).min() <= ROUNDING * np.abs(triangle).max():
                raise InputError("limits: expected sums that do not follow from each other, got one too many.")
            dependent = sorted(named[order[: len(equal)]].tolist())
        free = [number for number in named.tolist() if number not in dependent]
        offset = np.linalg.solve(equal[:, dependent], equals) if dependent else np.empty(0)
        matrix = -np.linalg.solve(equal[:, dependent], equal[:, free]) if dependent else np.empty((0, len(free)))
        bounds, levels = np.array([row for row, _ in most]).reshape(-1, len(own)), np.array([one for _, one in most])
        # what is dependent stays between its ends
        faces = np.concatenate([bounds[:, free] + bounds[:, dependent] @ matrix, matrix, -matrix])
        levels = np.concatenate([levels - bounds[:, dependent] @ offset, 1.0 - offset, offset])
        # the largest ball in the body and the cube: Σ f_i·c_i + ‖f‖·r ≤ level
        cube = np.eye(len(free))
        walls = np.concatenate([faces, cube, -cube])
        found = scipy.optimize.linprog(
            np.append(np.zeros(len(free)), -1.0),
            np.column_stack([walls, np.linalg.norm(walls, axis=1)]),
            np.concatenate([levels, np.ones(len(free)), np.zeros(len(free))]),
            bounds=[(0.0, 1.0)] * len(free) + [(0.0, 1.0)],
        )
        if not found.success or found.x[-1] <= ROUNDING:
            raise InputError(f"limits: {', '.join(map(str, limits))} leave no room in {', '.join(map(str, own))}.")
        centre = found.x[:-1]
        return cls(free, dependent, offset, matrix, centre, faces / (levels - faces @ centre)[:, None])

    def _gauges(self, away: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Return g(v) and h(v) for v (n, free), and their gradients."""
        upper, lower = 1.0 / (1.0 - self.centre), 1.0 / self.centre
        slopes = np.where(away > 0.0, upper, -lower)
        wall = (slopes * away).argmax(axis=1)
        of_cube = np.zeros(away.shape)
        rows = np.arange(len(away))
        of_cube[rows, wall] = slopes[rows, wall]
        of_limits = self.faces[(away @ self.faces.T).argmax(axis=1)]
        return np.vecdot(of_cube, away), np.vecdot(of_limits, away), of_cube, of_limits

    def _shrinking(self, away: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return s for v (n, free), and its gradient."""
        if not self.free:
            # sums that give every setting
            return np.ones(len(away)), away
        cube, limits, of_cube, of_limits = self._gauges(away)
        shrinks = limits > cube
        safe = np.where(shrinks, limits, 1.0)
        s = np.where(shrinks, cube / safe, 1.0)
        # ∇(g/h) = (∇g − s·∇h)/h
        gradient = np.where(shrinks[:, None], (of_cube - s[:, None] * of_limits) / safe[:, None], 0.0)
        return s, gradient

    def shrinking(self, fractions: FloatArray) -> FloatArray:
        """Return s at fractions (n, r), shape (n,)."""
        return self._shrinking(fractions[:, self.free] - self.centre)[0]

    def at(self, fractions: FloatArray) -> FloatArray:
        """Return the points of the body at fractions (n, r)."""
        away, points = fractions[:, self.free] - self.centre, fractions.copy()
        inside = self.centre + self._shrinking(away)[0][:, None] * away
        points[:, self.free] = inside
        points[:, self.dependent] = self.offset + inside @ self.matrix.T
        return points

    def fractions(self, points: FloatArray) -> FloatArray:
        """Return the inverse of :meth:`at`; ½ for what is dependent."""
        away, found = points[:, self.free] - self.centre, points.copy()
        found[:, self.free] = np.clip(self.centre + away / self._shrinking(away)[0][:, None], 0.0, 1.0)
        found[:, self.dependent] = 0.5
        return found

    def slopes(self, fractions: FloatArray, gradients: FloatArray) -> FloatArray:
        """Return gradients by fractions of what has these gradients by points of the body."""
        away, found = fractions[:, self.free] - self.centre, gradients.copy()
        own = gradients[:, self.free] + gradients[:, self.dependent] @ self.matrix
        s, gradient = self._shrinking(away)
        found[:, self.free] = s[:, None] * own + np.vecdot(away, own)[:, None] * gradient
        found[:, self.dependent] = 0.0
        return found


def _level(fractions: FloatArray, count: int) -> NDArray[np.intp]:
    """Return which of ``count`` equal parts each of the fractions (n,) lies in."""
    return np.minimum((fractions * count).astype(np.intp), count - 1)


def _nearest(vectors: FloatArray, points: FloatArray) -> NDArray[np.intp]:
    """Return the row of the nearest of some vectors (L, w) to each of the points (n, w)."""
    away = points[:, None, :] - vectors
    nearest: NDArray[np.intp] = np.vecdot(away, away).argmin(axis=1)
    return nearest


def _rebuilt(settings: dict[str, Setting], sides: Sides, limits: Sequence[LinearLimit]) -> Box:
    return Box(settings, sides=sides, limits=limits)


def _as_setting(name: Any, value: Any) -> Setting:
    """Return what a setting is: given, or as a pair of numbers or a list of levels."""
    if not isinstance(name, str) or not name:
        raise InputError(f"Box: expected the name of a setting, got {name!r}; names are text.")
    if isinstance(value, (Range, Choice)):
        return value
    try:
        if isinstance(value, tuple) and len(value) == 2 and not isinstance(value[0], (str, bool)):
            return Range(*value)
        if isinstance(value, Sequence):
            return Choice(value)
    except InputError as reason:
        raise InputError(f"{name}: {reason}") from reason
    raise InputError(f"{name}: expected (low, high), a list of levels, a Range or a Choice, got {value!r}.")


def _corners(
    low: ArrayLike, high: ArrayLike | None, names: Sequence[str] | None, units: Sequence[str] | None
) -> tuple[FloatArray, FloatArray, tuple[tuple[str, ...], tuple[str, ...]]]:
    """Return the corners of a box of plain numbers, checked, and its names and units."""
    if high is None:
        raise InputError("high: expected the upper corner, got none; or describe the settings by name, kb.Box({…}).")
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
    return lower, upper, labels


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
