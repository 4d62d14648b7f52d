"""The kernel of tables: a constant, a linear and a smooth part, of columns whose long tails are bent."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Self

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from kernel_bandits.arrays import FloatArray, as_count, as_floats, as_positive, require_finite
from kernel_bandits.errors import InputError
from kernel_bandits.kernels.base import Kernel, Pullback, Sections
from kernel_bandits.kernels.dot_product import dot_node
from kernel_bandits.numerics.linalg import times, times_transpose

# From this many points and columns on, distances are computed as a product of matrices, if no squared norm is above
# this: they lose the digits of what they are differences of, and m has no slope at 0 to make that matter.
MANY_POINTS, MANY_COLUMNS, LARGEST_SQUARE = 16, 16, 1e5
# The smooth part is computed for this many numbers at a time, which stay in the cache.
CACHED_NUMBERS = 2**14
# Points this close are the same: rounding leaves no more of the distance of a point to itself.
SAME = 1e-5


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
        whole = not len(numbers) or numbers.dtype.kind in "iu"
        if not whole or len(np.unique(numbers)) < len(numbers) or (numbers < 0).any():
            raise InputError(f"columns: expected different numbers from 0 on, got {columns!r}.")
        self.columns: NDArray[np.intp] = numbers.astype(np.intp)
        self.middle: FloatArray = as_floats("middle", middle).reshape(-1).copy()
        self.knee: FloatArray = as_floats("knee", knee).reshape(-1).copy()
        if not len(numbers) == len(self.middle) == len(self.knee):
            raise InputError(f"knee: expected one middle and one knee per bent column, {len(numbers)} of each.")
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


def _distances(left: FloatArray, right: FloatArray) -> FloatArray:
    """Return ‖x − y‖ for rows x of (n, d) and y of (m, d), shape (n, m)."""
    if min(len(left), len(right)) >= MANY_POINTS and left.shape[1] >= MANY_COLUMNS:
        squares, others = np.vecdot(left, left), np.vecdot(right, right)
        if max(squares.max(), others.max()) <= LARGEST_SQUARE:
            # ‖x − y‖² = ‖x‖² − 2⟨x, y⟩ + ‖y‖²
            squared = times_transpose(left, right)
            squared *= -2.0
            squared += squares[:, None]
            squared += others
            return np.sqrt(np.maximum(squared, 0.0, out=squared), out=squared)
    between: FloatArray = scipy.spatial.distance.cdist(left, right)
    return between


class Mixed(Kernel):
    """bias + linear·⟨x, My⟩ + smooth·m(‖x − y‖/(ℓ·√n)) + own·[x = y], of standardised x = (s − centre)/scale.

    n is the number of variables, m the Matérn kernel of smoothness 5/2, and M = I/n unless a metric is given. The
    linear part generalises far beyond the data, the smooth part near them, and what a point has of its own not at all.

    Args:
        bias: variance of the constant part, at least 0.
        linear: variance of the linear part at a point one standard deviation out in every column, at least 0.
        smooth: variance of the smooth part, at least 0.
        lengthscale: ℓ of the smooth part; distances grow as √n, and so does what it is compared with.
        centre: of the columns, a number or one per column.
        scale: of the columns, positive, a number or one per column.
        variables: n, how many variables the columns stand for; as many as columns unless given. The columns of one
            categorical variable count once.
        metric: M, symmetric and positive semidefinite, shape (d, d): which linear functions are likely.
        own: variance of what a point has of its own, at least 0: for points that return, such as a few actions.
        bends: of columns with long tails, before they are standardised.
    """

    _PARTS = ("bias", "linear", "smooth", "own")
    saved: ClassVar[tuple[str, ...]] = (*_PARTS, "lengthscale", "centre", "scale", "variables", "metric", "bends")

    def __init__(
        self,
        bias: float,
        linear: float,
        smooth: float,
        lengthscale: float = 1.0,
        *,
        centre: ArrayLike = 0.0,
        scale: ArrayLike = 1.0,
        variables: int | None = None,
        metric: ArrayLike | None = None,
        own: float = 0.0,
        bends: Bends | None = None,
    ) -> None:
        for name, value in zip(self._PARTS, (bias, linear, smooth, own), strict=True):
            if not (math.isfinite(value) and value >= 0.0):
                raise InputError(f"{name}: expected a finite variance of at least 0, got {value!r}.")
        self.bias: float = float(bias)
        self.linear: float = float(linear)
        self.smooth: float = float(smooth)
        self.own: float = float(own)
        self.lengthscale: float = as_positive("lengthscale", lengthscale)
        self.centre: FloatArray = as_floats("centre", centre).copy()
        self.scale: FloatArray = as_floats("scale", scale).copy()
        require_finite("centre", self.centre)
        if not (self.scale > 0.0).all():
            raise InputError(f"scale: expected positive numbers, got {scale!r}.")
        self.variables: int | None = None if variables is None else as_count("variables", variables)
        self.metric: FloatArray | None = None if metric is None else _as_metric(metric)
        if bends is not None and not isinstance(bends, Bends):
            raise InputError(f"bends: expected kernel_bandits.kernels.Bends or None, got {bends!r}.")
        self.bends: Bends | None = bends

    @property
    def variance(self) -> float:
        """The prior variance at a point one standard deviation out in every column."""
        return self.bias + self.linear + self.smooth + self.own

    def _standardised(self, X: FloatArray) -> FloatArray:
        for name, values in (("centre", self.centre), ("scale", self.scale)):
            if values.ndim and len(values) != X.shape[1]:
                raise InputError(f"{name}: {len(values)} numbers were given for points with {X.shape[1]} columns.")
        standardised = (X if self.bends is None else self.bends(X)) - self.centre
        standardised /= self.scale
        return standardised

    def _by_points(self, by_bent: FloatArray, X: FloatArray) -> FloatArray:
        """Return the gradient by points from that by their bent columns."""
        return by_bent if self.bends is None else by_bent * self.bends.slopes(X)

    def _count(self, X: FloatArray) -> int:
        return self.variables or max(X.shape[1], 1)

    def _weighted(self, standardised: FloatArray) -> FloatArray:
        """Return linear·Mx for each row x."""
        if self.metric is None:
            return standardised * (self.linear / self._count(standardised))
        # the rows are few, the columns may be many
        weighted = times(standardised, self.metric)
        weighted *= self.linear
        return weighted

    def __call__(self, X: FloatArray, Y: FloatArray | None = None) -> FloatArray:
        left = self._standardised(X)
        right = left if Y is None else self._standardised(Y)
        if not (self.smooth or self.own):
            # a kernel of arms, for example
            gram = self._products(left, right)
            gram += self.bias
            return gram
        distances = _distances(left, right)
        same = self.own * (distances <= SAME) if self.own else None
        r = self._scaled(distances, self._count(X))
        gram = self._constant_and_smooth(r, decay=r)
        if same is not None:
            gram += same
        if self.linear:
            gram += self._products(left, right)
        return gram

    def _products(self, left: FloatArray, right: FloatArray) -> FloatArray:
        """Return linear·⟨x, My⟩ for rows x and y; M is symmetric, and goes with the fewer rows."""
        if len(left) <= len(right):
            return times_transpose(self._weighted(left), right)
        return times_transpose(left, self._weighted(right))

    def _scaled(self, distances: FloatArray, count: int) -> FloatArray:
        """Return r = √5·‖x − y‖/(ℓ√n), in the array of the distances."""
        distances *= math.sqrt(5.0 / count) / self.lengthscale
        return distances

    def _constant_and_smooth(self, r: FloatArray, decay: FloatArray) -> FloatArray:
        """Return bias + smooth·m and put e⁻ʳ into another array, or into r itself."""
        gram = np.empty_like(r)
        rows = max(1, CACHED_NUMBERS // max(r.shape[1], 1))
        for start in range(0, len(r), rows):
            some = slice(start, start + rows)
            part, own_r, own_decay = gram[some], r[some], decay[some]
            # m = (1 + r + r²/3)·e⁻ʳ
            np.multiply(own_r, self.smooth / 3.0, out=part)
            part += self.smooth
            part *= own_r
            part += self.smooth
            np.negative(own_r, out=own_decay)
            part *= np.exp(own_decay, out=own_decay)
            part += self.bias
        return gram

    def diag(self, X: FloatArray) -> FloatArray:
        standardised = self._standardised(X)
        return (self.bias + self.smooth + self.own) + np.vecdot(self._weighted(standardised), standardised)

    def sections(self, Y: FloatArray) -> Sections | None:
        # what a point has of its own is not continuous, and a subclass may be another kernel
        return _MixedSections(self, Y) if type(self) is Mixed and not self.own else None

    def restricted(self, columns: NDArray[np.intp], point: FloatArray) -> Mixed:
        # ‖x − y‖ loses nothing. With f the other columns and M in blocks, ⟨x, My⟩ = ⟨u + g, Mᵤᵤ(v + g)⟩ + constant for
        # g = Mᵤᵤ⁻¹Mᵤf·f: the centre moves, and the constant becomes bias.
        standardised, count = self._standardised(point[None, :])[0], self._count(point[None, :])
        centre = np.broadcast_to(self.centre, point.shape)[columns]
        scale = np.broadcast_to(self.scale, point.shape)[columns]
        rest = standardised.copy()
        rest[columns] = 0.0
        metric, shift = None, np.zeros(len(columns))
        if self.metric is None:
            constant = float(rest @ rest) / count
        else:
            metric = self.metric[np.ix_(columns, columns)]
            shift = np.linalg.lstsq(metric, self.metric[columns] @ rest, rcond=None)[0]
            constant = float(rest @ self.metric @ rest - shift @ metric @ shift)
        return Mixed(
            self.bias + self.linear * max(constant, 0.0),
            self.linear,
            self.smooth,
            self.lengthscale,
            centre=centre - scale * shift,
            scale=scale,
            variables=count,
            metric=metric,
            own=self.own,
            bends=None if self.bends is None else self.bends.restricted(columns),
        )

    def gradient(self, X: FloatArray, Y: FloatArray, weights: FloatArray) -> FloatArray:
        left, right = self._standardised(X), self._standardised(Y)
        r = math.sqrt(5.0 / (self.lengthscale**2 * self._count(X))) * scipy.spatial.distance.cdist(left, right)
        by_bent = self._gradient(left, right, weights, r, np.exp(-r))
        return self._by_points(by_bent + times(weights, self._weighted(right)) / self.scale, X)

    def _gradient(
        self, left: FloatArray, right: FloatArray, weights: FloatArray, r: FloatArray, decay: FloatArray
    ) -> FloatArray:
        """Return what the smooth part adds to the gradient, from standardised points, r and e⁻ʳ."""
        # dm/dq = −⁵⁄₆·(1 + r)·e⁻ʳ in q = ‖x − y‖²/(ℓ²n), and ∂q/∂x = 2(x − y)/(ℓ²n)
        slopes = weights * ((-5.0 / 6.0 * self.smooth) * (1.0 + r) * decay)
        differences = left * slopes.sum(axis=1)[:, None] - times(slopes, right)
        return differences * (2.0 / (self.lengthscale**2 * self._count(left)) / self.scale)

    def diag_gradient(self, X: FloatArray) -> FloatArray:
        # k(x, x) = bias + smooth + own + linear·⟨x, Mx⟩
        return self._by_points(2.0 * self._weighted(self._standardised(X)) / self.scale, X)

    def portable(self, start: int, stop: int) -> dict[str, Any]:
        width = stop - start
        count = self.variables or max(width, 1)
        scale = np.broadcast_to(self.scale, (width,))
        scales, centre = scale.tolist(), np.broadcast_to(self.centre, (width,)).tolist()
        distances = (scale * self.lengthscale * math.sqrt(count)).tolist()
        linear = dot_node(
            start, stop, centre, scales, np.eye(width) / count if self.metric is None else self.metric, 0.0, 1
        )
        weighted = [
            (self.linear, linear),
            (self.smooth, {"kind": "matern 5/2", "columns": [start, stop], "scale": distances}),
        ]
        if self.own:
            same = {"kind": "same", "columns": [start, stop], "scale": scales, "within": SAME}
            weighted.append((self.own, same))
        parts: list[dict[str, Any]] = [{"kind": "constant", "value": self.bias}]
        for value, part in weighted:
            parts.append({"kind": "product", "parts": [{"kind": "constant", "value": value}, part]})
        node: dict[str, Any] = {"kind": "sum", "parts": parts}
        return node if self.bends is None else self.bends.portable(node, start, stop)

    def __repr__(self) -> str:
        own = f", own={self.own:.3g}" if self.own else ""
        bends = f", bends={self.bends!r}" if self.bends is not None else ""
        return (
            f"Mixed(bias={self.bias:.3g}, linear={self.linear:.3g}, smooth={self.smooth:.3g}, "
            f"lengthscale={self.lengthscale:.3g}{own}{bends})"
        )


class _MixedSections(Sections):
    """A mixed kernel in which no point has anything of its own, at fixed points (m, d)."""

    def __init__(self, kernel: Mixed, points: FloatArray) -> None:
        self._kernel = kernel
        self._points = kernel._standardised(points)
        self._transposed = np.ascontiguousarray(self._points.T)
        self._weighted = kernel._weighted(self._points) / kernel.scale

    def __call__(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        gram, prior, _ = self.with_pullback(X)
        return gram, prior

    def with_pullback(self, X: FloatArray) -> tuple[FloatArray, FloatArray, Pullback]:
        kernel = self._kernel
        left = kernel._standardised(X)
        weighted = kernel._weighted(left)
        r = kernel._scaled(_distances(left, self._points), kernel._count(X))
        decay = np.empty(r.shape)
        gram = kernel._constant_and_smooth(r, decay)
        if kernel.linear:
            gram += times(weighted, self._transposed)
        prior = (kernel.bias + kernel.smooth) + np.vecdot(weighted, left)

        def pullback(weights: FloatArray, own_weights: FloatArray) -> FloatArray:
            gradient = kernel._gradient(left, self._points, weights, r, decay)
            gradient += times(weights, self._weighted)
            # k(x, x) = bias + smooth + linear·⟨x, Mx⟩
            gradient += (2.0 * own_weights)[:, None] * (weighted / kernel.scale)
            return kernel._by_points(gradient, X)

        return gram, prior, pullback


def _as_metric(values: ArrayLike) -> FloatArray:
    metric = as_floats("metric", values).copy()
    require_finite("metric", metric)
    if metric.ndim != 2 or metric.shape[0] != metric.shape[1] or not np.allclose(metric, metric.T):
        raise InputError(f"metric: expected a symmetric matrix, one row per column, got shape {metric.shape}.")
    return metric
