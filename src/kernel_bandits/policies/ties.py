"""The tie rule: values that differ by rounding alone count as equal, and chance decides between them.

Far from all data the bounds of different actions agree up to the order of rounding, which must not decide.
"""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from kernel_bandits.arrays import FloatArray

# Values this close to the largest, relative to its distance from the level that all share, count as equal to it.
TIE_TOLERANCE = 1e-12
ROUNDING = float(np.finfo(float).eps)
V = TypeVar("V", float, FloatArray)


def tie_threshold(largest: V, level: float = 0.0) -> V:
    """Return the value from which on others count as equal to the largest, or those of several largest ones.

    Values are sums of a level that all share, which only the sum is rounded for, and of what was computed.
    """
    return largest - (TIE_TOLERANCE * abs(largest - level) + ROUNDING * abs(level))


def tied_rows(values: FloatArray, level: float = 0.0) -> NDArray[np.intp]:
    """Return the indices of the values that count as the largest, given the level that all share."""
    best, tied = contenders(values, level)
    return np.array([best]) if tied is None else tied


def contenders(values: FloatArray, level: float = 0.0) -> tuple[int, NDArray[np.intp] | None]:
    """Return the index of the largest value, and the indices of all that count as the largest if they are several."""
    best = int(values.argmax())
    (tied,) = (values >= tie_threshold(values.item(best), level)).nonzero()
    return best, None if len(tied) <= 1 else tied


def shares(values: FloatArray, level: float = 0.0) -> FloatArray:
    """Return the probabilities (…, A) of a choice at random among the values of each row that count as the largest."""
    tied = are_tied(values, level)
    return tied / tied.sum(axis=-1, keepdims=True)


def are_tied(values: FloatArray, level: float = 0.0) -> NDArray[np.bool_]:
    """Return which values of each row (…, A) count as its largest."""
    return values >= tie_threshold(values.max(axis=-1, keepdims=True), level)
