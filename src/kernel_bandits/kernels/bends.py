"""Columns with long tails, bent so that a few extreme values do not press all others together."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernel_bandits.arrays import FloatArray, as_floats, require_finite
from kernel_bandits.errors import InputError


class Bends:
    """Some columns s as asinh((s − middle)/knee): straight within a knee of the middle, logarithmic far from it.

    Args:
        columns: which are bent, counted from 0, each once, shape (k,).
        middle: of each of them, shape (k,).
        knee: of each of them, positive, shape (k,).
    """

    saved: ClassVar[tuple[str, ...]] = ("columns", "middle", "knee")

    def __init__(self, columns: ArrayLike, middle: ArrayLike, knee: ArrayLike) -> None:
        numbers = np.asarray(columns).reshape(-1)
        if len(numbers) and numbers.dtype.kind not in "iu":
            raise InputError(f"columns: expected different numbers from 0 on, got {columns!r}.")
        self.columns: NDArray[np.intp] = numbers.astype(np.intp)
        self.middle = as_floats("middle", middle).reshape(-1).copy()
        self.knee = as_floats("knee", knee).reshape(-1).copy()
        if not len(self.columns) == len(self.middle) == len(self.knee):
            raise InputError(
                f"knee: expected one middle and one knee per bent column, got {len(self.columns)} columns, "
                f"{len(self.middle)} middles and {len(self.knee)} knees."
            )
        if len(np.unique(self.columns)) < len(self.columns) or (self.columns < 0).any():
            raise InputError(f"columns: expected different numbers from 0 on, got {self.columns.tolist()}.")
        require_finite("middle", self.middle)
        if not ((self.knee > 0.0) & np.isfinite(self.knee)).all():
            raise InputError(f"knee: expected positive numbers, got {self.knee.tolist()}.")

    def __call__(self, X: FloatArray) -> FloatArray:
        """Return points (n, d) with these columns bent, in a fresh array."""
        bent = X.copy()
        bent[:, self.columns] = np.arcsinh(self._offsets(X) / self.knee)
        return bent

    def _offsets(self, X: FloatArray) -> FloatArray:
        if self.columns.max(initial=-1) >= X.shape[1]:
            raise InputError(f"columns: column {self.columns.max()} is bent, and points have {X.shape[1]} columns.")
        return X[:, self.columns] - self.middle

    def slopes(self, X: FloatArray) -> FloatArray:
        """Return the derivative of each bent column by its own, and 1 for the others, shape (n, d)."""
        slopes = np.ones(X.shape)
        # d asinh((s − m)/b)/ds = 1/√(b² + (s − m)²)
        slopes[:, self.columns] = 1.0 / np.hypot(self.knee, self._offsets(X))
        return slopes

    def restricted(self, columns: NDArray[np.intp]) -> Self | None:
        """Return the bends of points with these columns alone; None if none of them is bent."""
        known = {column: number for number, column in enumerate(self.columns.tolist())}
        places = [place for place, column in enumerate(columns.tolist()) if column in known]
        kept = [known[int(columns[place])] for place in places]
        return type(self)(places, self.middle[kept], self.knee[kept]) if places else None

    def portable(self, kernel: dict[str, Any], start: int, stop: int) -> dict[str, Any]:
        """Return the portable form of a kernel whose points are bent first: s ← asinh((s − middle)/knee)."""
        places = (start + self.columns).tolist()
        bent = {"kind": "bent", "columns": [start, stop], "bent": places, "middle": self.middle.tolist()}
        return bent | {"knee": self.knee.tolist(), "kernel": kernel}

    def __repr__(self) -> str:
        return f"Bends(columns={self.columns.tolist()})"
