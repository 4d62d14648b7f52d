"""Matrices that gain a row and a column now and then, as values: what is new waits beside them and joins in blocks.

A matrix of n rows is copied once for tens of further ones, and not for each. What waits stands in :class:`Rows`, which
values that grew from the same one share. Rows are as long as the matrix may get until they join: zeros follow.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
from scipy.linalg import blas

from kernel_bandits.arrays import FloatArray
from kernel_bandits.numerics import linalg
from kernel_bandits.values import Rows, evolve

# So many rows wait for a matrix of so many times their number, within these limits: products with them then cost about
# as much as the copies that they save.
WAITING_SHARE, FEWEST_WAITING, MOST_WAITING = 16, 16, 64
# The room for rows of a triangle grows by this factor.
ROOM = 1.25


def waiting_rows(size: int) -> int:
    """Return how many rows may wait beside a matrix of this size."""
    return min(max(size // WAITING_SHARE, FEWEST_WAITING), MOST_WAITING)


def padded(rows: FloatArray, width: int) -> FloatArray:
    """Return rows (…, n) of this length, zeros behind."""
    wide = np.zeros((*rows.shape[:-1], width))
    wide[..., : rows.shape[-1]] = rows
    return wide


class _Terms(NamedTuple):
    """Terms ± vvᵀ: vectors v as rows, zeros behind, and signs."""

    rows: Rows
    signs: Rows

    @property
    def arrays(self) -> tuple[FloatArray, FloatArray]:
        """Views of the rows and signs."""
        (rows,), (signs,) = self.rows.blocks(), self.signs.blocks()
        return rows, signs


class Symmetric:
    """S = [[M, 0], [0, c·I]] + Σ ± vvᵀ: a matrix M as it was, coordinates that it did not have, and terms that wait.

    While nothing waits, a term enters M at once: one pass over M, in a new array.

    Attributes:
        size: n.
    """

    __slots__ = ("_corner", "_matrix", "_terms", "size")

    def __init__(self, matrix: FloatArray, corner: float, size: int | None = None, terms: _Terms | None = None) -> None:
        self._matrix, self._corner, self._terms = matrix, corner, terms
        self.size = len(matrix) if size is None else size

    @property
    def matrix(self) -> FloatArray:
        """S itself, shape (n, n); a fresh array where something waits. Not to be changed."""
        return self.settled()._matrix

    @property
    def trace(self) -> float:
        """The trace of S."""
        trace = float(np.trace(self._matrix)) + self._corner * (self.size - len(self._matrix))
        if self._terms is not None:
            rows, signs = self._terms.arrays
            trace += float(signs @ np.vecdot(rows, rows))
        return trace

    def bordered(self) -> Symmetric:
        """Return [[S, 0], [0, c]]."""
        has_room = self._terms is None or self.size < self._terms.arrays[0].shape[1]
        known = self if has_room else self.settled()
        return Symmetric(known._matrix, self._corner, self.size + 1, known._terms)

    def plus(self, vector: FloatArray, sign: float) -> Symmetric:
        """Return S ± vvᵀ for a sign of ±1."""
        terms, size = self._terms, self.size
        if terms is None:
            if len(self._matrix) == size and sign < 0.0:
                return Symmetric(linalg.minus_outer(self._matrix, vector), self._corner)
            length = waiting_rows(size)
            terms, width = _Terms(Rows(length), Rows(length)), size + length
        else:
            width = terms.arrays[0].shape[1]
        terms = _Terms(terms.rows.appended(padded(vector, width)), terms.signs.appended(sign))
        after = Symmetric(self._matrix, self._corner, size, terms)
        return after.settled() if len(terms.rows) == terms.rows.length else after

    def settled(self) -> Symmetric:
        """Return the same with nothing that waits."""
        size, known, terms = self.size, len(self._matrix), self._terms
        if known == size and terms is None:
            return self
        matrix = np.zeros((size, size))
        matrix[:known, :known] = self._matrix
        matrix.flat[known * (size + 1) :: size + 1] = self._corner
        if terms is not None:
            rows, signs = terms.arrays
            for sign in (-1.0, 1.0):
                linalg.add_gram(matrix, rows[signs == sign, :size], sign)
        return Symmetric(matrix, self._corner)

    def times(self, rows: FloatArray) -> FloatArray:
        """Return rows·S."""
        known = len(self._matrix)
        if known == self.size:
            product = linalg.times(rows, self._matrix)
        else:
            product = self._corner * rows
            product[:, :known] = linalg.times(rows[:, :known].copy(), self._matrix)
        if self._terms is not None:
            terms, signs = self._terms.arrays
            # Σ ± (rows·v)vᵀ
            inner = linalg.times_transpose(padded(rows, terms.shape[1]), terms)
            inner *= signs
            product += linalg.times(inner, terms)[:, : self.size]
        return product

    def times_vector(self, vector: FloatArray) -> FloatArray:
        """Return S·v."""
        known = len(self._matrix)
        if known == self.size:
            product = linalg.symmetric_times_vector(self._matrix, vector)
        else:
            product = self._corner * vector
            product[:known] = linalg.symmetric_times_vector(self._matrix, vector[:known])
        if self._terms is not None:
            terms, signs = self._terms.arrays
            inner = linalg.times_vector(terms, padded(vector, terms.shape[1]))
            product += linalg.transpose_times_vector(terms, signs * inner)[: self.size]
        return product

    def quadratic_forms(self, rows: FloatArray) -> FloatArray:
        """Return vᵀSv for each row v."""
        known = len(self._matrix)
        if known == self.size:
            forms = linalg.quadratic_forms(rows, self._matrix)
        else:
            behind = rows[:, known:]
            forms = linalg.quadratic_forms(rows[:, :known].copy(), self._matrix)
            forms += self._corner * np.vecdot(behind, behind)
        if self._terms is not None:
            terms, signs = self._terms.arrays
            inner = linalg.times_transpose(padded(rows, terms.shape[1]), terms)
            forms += np.square(inner, out=inner).dot(signs)
        return forms


class InverseFactor:
    """J = L⁻¹ for a lower-triangular L that gains rows: products with J, and solutions with L.

    The older rows of J are one triangle, for triangular products; the newer ones follow in a narrow block and join it
    now and then. A row of J is solved for with L and not computed from the rows before it: what rounding leaves of
    JL − I then grows with the condition of L, and not with its square from row to row.

    Attributes:
        size: n.
    """

    __slots__ = ("_lower", "_newer", "_older", "size")

    def __init__(self, upper: FloatArray | None = None, lower: FloatArray | None = None) -> None:
        # Jᵀ; L is packed, row by row
        self._older = np.empty((0, 0)) if upper is None else upper
        self.size = len(self._older)
        packed = [] if lower is None else [lower[row, : row + 1] for row in range(self.size)]
        self._lower = Rows.of(np.concatenate([np.empty(0), *packed]), max(1, self.size * (self.size + 1) // 2))
        self._newer = Rows(FEWEST_WAITING)

    @property
    def upper(self) -> FloatArray:
        """Jᵀ, shape (n, n); a fresh array where something waits. Not to be changed."""
        return self.settled()._older

    def settled(self) -> Self:
        """Return the same with nothing that waits."""
        if not len(self._newer):
            return self
        known = len(self._older)
        upper = np.zeros((self.size, self.size))
        upper[:known, :known] = self._older
        upper[:, known:] = next(self._newer.blocks())[:, : self.size].T
        return evolve(self, _older=upper, _newer=Rows(FEWEST_WAITING))

    def last_rows(self, count: int) -> FloatArray:
        """Return the last rows of J, shape (count, n)."""
        if count <= len(self._newer):
            return next(self._newer.blocks())[len(self._newer) - count :, : self.size]
        return self.upper[:, self.size - count :].T

    def times(self, rows: FloatArray) -> FloatArray:
        """Return rows·Jᵀ; may overwrite ``rows``."""
        if not len(self._newer):
            return linalg.times_upper(rows, self._older)
        known, newer = len(self._older), next(self._newer.blocks())
        product = np.empty_like(rows)
        product[:, known:] = linalg.times_transpose(padded(rows, newer.shape[1]), newer)
        product[:, :known] = linalg.times_upper(rows[:, :known].copy(), self._older)
        return product

    def times_transpose(self, rows: FloatArray) -> FloatArray:
        """Return rows·J; may overwrite ``rows``."""
        if not len(self._newer):
            return linalg.times_upper_transpose(rows, self._older)
        known, newer = len(self._older), next(self._newer.blocks())
        product = linalg.times(rows[:, known:].copy(), newer)[:, : self.size]
        product[:, :known] += linalg.times_upper_transpose(rows[:, :known].copy(), self._older)
        return product

    def transpose_times_vector(self, vector: FloatArray) -> FloatArray:
        """Return Jᵀv."""
        if not len(self._newer):
            return linalg.upper_times_vector(self._older, vector)
        known, newer = len(self._older), next(self._newer.blocks())
        product = linalg.transpose_times_vector(newer, vector[known:])[: self.size]
        product[:known] += linalg.upper_times_vector(self._older, vector[:known])
        return product

    def solve(self, column: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return φ = L⁻¹k and r = −L⁻ᵀφ."""
        (packed,) = self._lower.blocks()
        # the rows of L are the columns of the upper triangle that Fortran sees
        features = blas.dtpsv(self.size, packed, column, trans=1)
        return features, blas.dtpsv(self.size, packed, -features)

    def bordered(self, features: FloatArray, coefficients: FloatArray, pivot: float) -> Self:
        """Return J for [[L, 0], [φᵀ, l]], given r = −L⁻ᵀφ: its further row is [rᵀ, 1]/l."""
        size, newer, lower = self.size, self._newer, self._lower
        if len(lower) + size + 1 > lower.length:
            lower = Rows.of(lower.array, int(ROOM * (len(lower) + size + 1)))
        length = newer.length if len(newer) else waiting_rows(size)
        width = next(newer.blocks()).shape[1] if len(newer) else size + length
        row = np.zeros(width)
        row[:size], row[size] = coefficients / pivot, 1.0 / pivot
        after = evolve(
            self,
            size=size + 1,
            _newer=(newer if len(newer) else Rows(length)).appended(row),
            _lower=lower.extended(linalg.appended_to(features, pivot)),
        )
        return after.settled() if len(after._newer) == length else after
