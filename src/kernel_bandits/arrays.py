"""Names for shapes, and all checks of inputs.

Shapes use these letters everywhere: ``A`` actions offered in a round, ``d_x`` context columns, ``d_a``
action columns, ``d = d_x + d_a`` columns of a joint point, ``m`` anchors in the dictionary, ``t`` rounds observed.
"""

import math
from math import isfinite
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernel_bandits.errors import InputError

FloatArray: TypeAlias = NDArray[np.float64]
# Beyond this, sums of rewards times features could overflow.
LARGEST_REWARD = 1e100
_ARRAY, _FLOAT64 = np.ndarray, np.dtype(np.float64)


def as_floats(name: str, value: ArrayLike) -> FloatArray:
    """Return ``value`` as a float64 array of any shape, or raise an :class:`InputError` that names it."""
    if type(value) is _ARRAY and value.dtype is _FLOAT64:
        return value
    try:
        if isinstance(value, np.ma.MaskedArray):
            raise TypeError("masked entries have no value; fill or drop them")
        array = np.asarray(value)
        if array.dtype.kind not in "biuf":
            raise TypeError(f"its dtype is {array.dtype}")
        return array.astype(np.float64)
    except (TypeError, ValueError) as reason:
        hint = "rows of different lengths" if "inhomogeneous" in str(reason) else str(reason)
        raise InputError(f"{name}: expected real numbers, got {type(value).__name__} ({hint}).") from reason


def as_vector(name: str, value: ArrayLike, length: int | None = None) -> FloatArray:
    """Return a one-dimensional float64 array, of the given length if there is one."""
    # what every round passes is recognised in one look
    if type(value) is _ARRAY and value.dtype is _FLOAT64 and value.shape == (length,):
        return value
    array = as_floats(name, value)
    if array.ndim != 1:
        raise InputError(
            f"{name}: expected a vector, got an array of shape {array.shape}; "
            "pass one row at a time, and [value] for a single number."
        )
    if length is not None and array.shape[0] != length:
        raise InputError(
            f"{name}: expected length {length}, got {array.shape[0]}; a policy keeps the dimensions of its first round."
        )
    return array


def as_points(name: str, value: ArrayLike, columns: int | None = None) -> FloatArray:
    """Return a non-empty float64 matrix with one point per row, with the given number of columns if there is one."""
    if type(value) is _ARRAY and value.dtype is _FLOAT64 and value.shape[1:] == (columns,) and len(value):
        return value
    array = as_floats(name, value)
    if array.ndim in (1, 2) and not len(array):
        raise InputError(f"{name}: expected at least one row, got none.")
    if array.ndim != 2:
        raise InputError(
            f"{name}: expected a matrix with one row each, got an array of shape {array.shape}; "
            "for scalars use values.reshape(-1, 1), for one row values.reshape(1, -1)."
        )
    if columns is not None and array.shape[1] != columns:
        raise InputError(
            f"{name}: expected {columns} columns, got {array.shape[1]}; "
            "a policy keeps the dimensions of its first round."
        )
    return array


def is_finite(array: FloatArray) -> bool:
    """Return whether every entry is finite, fast.

    If the sum of squares is finite, so is every entry, and one product settles the ordinary case. Entries above 1e154
    overflow it, and NumPy may warn; call this where that warning is silenced.
    """
    flat = array.ravel()
    return isfinite(flat.dot(flat)) or bool(np.isfinite(array).all())


def require_finite(name: str, array: FloatArray) -> None:
    """Raise unless every entry is finite."""
    finite = np.isfinite(array)
    if not finite.all():
        where = tuple(int(i) for i in np.argwhere(~finite)[0])
        raise InputError(
            f"{name}: expected finite numbers, got {array[where]} at index {where}; clean the input first."
        )


def as_reward(value: float) -> float:
    """Return a reward as a finite Python float."""
    if type(value) is float and -LARGEST_REWARD <= value <= LARGEST_REWARD:
        return value
    try:
        if isinstance(value, (str, bytes)):
            raise TypeError("text is no number")
        reward = float(value)
    except (TypeError, ValueError) as reason:
        raise InputError(f"reward: expected one real number, got {value!r}.") from reason
    except OverflowError as reason:
        raise InputError(
            f"reward: expected at most {LARGEST_REWARD:g} in size, got a larger whole number; rescale the rewards."
        ) from reason
    if not math.isfinite(reward):
        raise InputError(f"reward: expected a finite number, got {reward}; leave out a round whose reward is unknown.")
    if abs(reward) > LARGEST_REWARD:
        raise InputError(f"reward: expected at most {LARGEST_REWARD:g} in size, got {reward}; rescale the rewards.")
    return reward


def as_rewards(values: FloatArray) -> list[float]:
    """Return rewards (n,) as finite Python floats."""
    numbers = values.tolist()
    # one look at all of them; NaN is neither
    if not (np.abs(values) <= LARGEST_REWARD).all():
        for number in numbers:
            as_reward(number)
    return numbers


def as_positive(name: str, value: float) -> float:
    """Return a finite, positive Python float."""
    try:
        number = float(value)
    except (TypeError, ValueError) as reason:
        raise InputError(f"{name}: expected a positive number, got {value!r}.") from reason
    except OverflowError as reason:
        raise InputError(
            f"{name}: expected a positive finite number, got a whole number beyond all of them."
        ) from reason
    if not (math.isfinite(number) and number > 0):
        raise InputError(f"{name}: expected a positive finite number, got {number}.")
    return number


def as_count(name: str, value: int, least: int = 1) -> int:
    """Return an integer that is not below the least."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise InputError(f"{name}: expected a whole number of at least {least}, got {value!r}.")
    return int(value)


def as_probability(name: str, value: float) -> float:
    """Return a number between 0 and 1 that is neither."""
    if not 0.0 < value < 1.0:
        raise InputError(f"{name}: expected a probability between 0 and 1, got {value!r}.")
    return float(value)


def join(context: FloatArray, actions: FloatArray) -> FloatArray:
    """Do the work of :func:`pair` for arrays whose shapes are checked already; checks that the numbers are finite."""
    split = len(context)
    rows, columns = actions.shape
    points = np.empty((rows, split + columns))
    points[:, :split] = context
    points[:, split:] = actions
    # the sum of squares, as in is_finite
    flat = points.ravel()
    if not isfinite(flat.dot(flat)):
        require_finite("context", context)
        require_finite("actions", actions)
    return points
