"""The tie rule: values that differ by rounding alone count as equal, and chance decides between them.

Far from all data the bounds of different actions agree up to the order of rounding, which must not decide.
"""

import numpy as np
from numpy.typing import NDArray

from kernel_bandits.arrays import FloatArray

# Values this close to the largest, relative to it, count as equal to it.
TIE_TOLERANCE = 1e-12


def tie_threshold(largest: float) -> float:
    """Return the value from which on others count as equal to the largest."""
    return largest - TIE_TOLERANCE * abs(largest)


def tied_rows(values: FloatArray) -> NDArray[np.intp]:
    """Return the indices of the values that count as the largest."""
    best, tied = contenders(values)
    return np.array([best]) if tied is None else tied


def contenders(values: FloatArray) -> tuple[int, NDArray[np.intp] | None]:
    """Return the index of the largest value, and the indices of all that count as the largest if they are several."""
    best = int(values.argmax())
    (tied,) = (values >= tie_threshold(values.item(best))).nonzero()
    return best, None if len(tied) <= 1 else tied
