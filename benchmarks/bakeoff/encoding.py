"""Columns of a table as numbers: numbers are standardised, categories become 0/1 columns, labels become rewards."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bakeoff.problem import CONSTANT, FloatArray


def column(values: Sequence[object]) -> NDArray[np.generic]:
    """Return the values as numbers if all are, otherwise as strings."""
    try:
        return np.array([float(value) for value in values])  # type: ignore[arg-type] # what is no number raises
    except ValueError:
        return np.array([str(value).strip() for value in values])


def encode(columns: Sequence[NDArray[np.generic]]) -> tuple[FloatArray, list[int]]:
    """Return the encoded columns side by side, shape (n, d), and the variable that each of them comes from."""
    blocks, variables = [], []
    for number, values in enumerate(columns):
        block = standardised(values) if values.dtype.kind == "f" else indicators(values)
        blocks.append(block)
        variables += [number] * block.shape[1]
    return np.hstack(blocks), variables


def standardised(values: NDArray[np.generic]) -> FloatArray:
    """Return one column of mean 0 and standard deviation 1, or of zeros if the values are constant."""
    numbers = values.astype(float)
    centred = numbers - numbers.mean()
    spread = centred.std()
    if spread <= CONSTANT * max(1.0, float(np.abs(numbers).max())):
        return np.zeros((len(numbers), 1))
    return (centred / spread)[:, None]


def indicators(values: NDArray[np.generic]) -> FloatArray:
    """Return one 0/1 column per distinct value, in sorted order."""
    return (values[:, None] == np.unique(values)[None, :]).astype(float)


def right_or_wrong(labels: Sequence[object]) -> FloatArray:
    """Return the reward of naming each class, 1 for the label of the row, shape (n, K)."""
    return indicators(np.array([str(label).strip() for label in labels]))


def posted_prices(values: FloatArray, prices: FloatArray) -> FloatArray:
    """Return the takings of asking each price: the price where the buyer's value is not below it, else 0.

    In units of the highest price, shape (n, number of prices).
    """
    return np.where(values[:, None] >= prices[None, :], prices[None, :], 0.0) / prices.max()


def closeness(values: FloatArray, guesses: FloatArray) -> FloatArray:
    """Return 1 − |guess − value| / range, the range being that of the values, shape (n, number of guesses)."""
    return 1.0 - np.abs(guesses[None, :] - values[:, None]) / (values.max() - values.min())
