"""Covariance functions on joint points, in scikit-learn's protocol.

A kernel is called as ``kernel(X, Y)`` with points as rows and answers their cross-Gram matrix; ``kernel.diag(X)``
answers k(x, x) row by row. Any object that does both works in every policy, scikit-learn's Gaussian-process kernels
included. The other way round, :func:`register_with_scikit_learn` lets scikit-learn's ``GaussianProcessRegressor`` take
the kernels here, whose parameters it treats as fixed. Kernels are immutable; ``+`` and ``*`` combine them with each
other and with numbers.

Continuous actions need derivatives. A kernel that has ``kernel.gradient(X, Y, weights)`` gives its own, as all kernels
here do; for any other :func:`weighted_gradient` takes differences.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist, pdist

from kernel_bandits.arrays import (
    FloatArray,
    InputError,
    as_count,
    as_floats,
    as_points,
    as_positive,
    missing,
    require_finite,
)
from kernel_bandits.linalg import times

Lengthscale: TypeAlias = float | Sequence[float] | FloatArray
# Numbers that are worked on at once where several steps follow each other: they stay in the cache.
PIECE = 2**14


@runtime_checkable
class KernelLike(Protocol):
    """What a policy needs of a kernel; scikit-learn's kernels have it too."""

    def __call__(self, X: FloatArray, Y: FloatArray | None = None) -> FloatArray:
        """The cross-Gram matrix k(X, Y), shape (len(X), len(Y)); Y defaults to X."""
        ...

    def diag(self, X: FloatArray) -> FloatArray:
        """k(x, x) for each row of X, shape (len(X),)."""
        ...


@runtime_checkable
class Differentiable(Protocol):
    """A kernel that knows its derivative."""

    def gradient(self, X: FloatArray, Y: FloatArray, weights: FloatArray) -> FloatArray:
        """Σ_j weights_ij·∂k(x_i, y_j)/∂x_i, the second argument held fixed.

        A weighted sum is what the chain rule asks for, and it never needs an array of shape (n, m, d).

        Args:
            X: shape (n, d).
            Y: shape (m, d).
            weights: shape (n, m).

        Returns:
            One row for each point of X, shape (n, d), a fresh array. Where the kernel has a kink, 0 will do.
        """
        ...


class Kernel(ABC):
    """A positive-definite function of two points; subclasses are final."""

    # NumPy must not take a kernel for a number, as in array + kernel.
    __array_ufunc__ = None
    requires_vector_input = True
    n_dims = 0

    @abstractmethod
    def __call__(self, X: FloatArray, Y: FloatArray | None = None) -> FloatArray:
        """The cross-Gram matrix k(X, Y), shape (len(X), len(Y)), a fresh array; Y defaults to X."""

    @abstractmethod
    def diag(self, X: FloatArray) -> FloatArray:
        """k(x, x) for each row of X, shape (len(X),)."""

    def __add__(self, other: KernelLike | float) -> Sum:
        return Sum(self, as_kernel(other))

    def __radd__(self, other: KernelLike | float) -> Sum:
        return Sum(as_kernel(other), self)

    def __mul__(self, other: KernelLike | float) -> Product:
        return Product(self, as_kernel(other))

    def __rmul__(self, other: KernelLike | float) -> Product:
        return Product(as_kernel(other), self)

    # The rest is what scikit-learn's regressor asks of a kernel whose hyper-parameters are all fixed.
    def __sklearn_clone__(self) -> Kernel:
        return self

    @property
    def theta(self) -> FloatArray:
        """The free log-hyper-parameters: none."""
        return np.empty(0)

    @theta.setter
    def theta(self, value: FloatArray) -> None:
        if np.size(value):
            raise InputError(f"theta: {self!r} has no free hyper-parameters; build a kernel with the values you want.")


class Constant(Kernel):
    """k(x, y) = value: an offset in a sum, an output variance in a product."""

    def __init__(self, value: float) -> None:
        self.value = as_positive("value", value)

    def __call__(self, X: FloatArray, Y: FloatArray | None = None) -> FloatArray:
        return np.full((len(X), len(X if Y is None else Y)), self.value)

    def diag(self, X: FloatArray) -> FloatArray:
        return np.full(len(X), self.value)

    def gradient(self, X: FloatArray, Y: FloatArray, weights: FloatArray) -> FloatArray:  # noqa: ARG002 (constant)
        return np.zeros(X.shape)

    def __repr__(self) -> str:
        return f"Constant({self.value:g})"


class _Scales:
    """A scalar lengthscale, or one per column."""

    def __init__(self, lengthscale: Lengthscale) -> None:
        self.values = as_floats("lengthscale", lengthscale).copy()
        if self.values.ndim > 1 or self.values.size == 0 or not (self.values > 0).all():
            raise InputError(f"lengthscale: expected a positive number, or one per column, got {lengthscale!r}.")
        require_finite("lengthscale", self.values)
        self.scalar = float(self.values) if self.values.ndim == 0 else None

    def check(self, X: FloatArray) -> None:
        if self.scalar is None and X.shape[1] != self.values.shape[0]:
            raise InputError(
                f"lengthscale: {self.values.shape[0]} lengthscales were given for points with {X.shape[1]} columns "
                "(context columns first, then action columns); give one number, or one per column."
            )

    def squared_distances(self, X: FloatArray, Y: FloatArray, factor: float) -> FloatArray:
        """factor·‖(x − y)/ℓ‖² from differences, not from norms: close points far from the origin stay apart."""
        if self.scalar is None:
            self.check(X)
            X, Y = X / self.values, Y / self.values
        else:
            factor = factor / self.scalar / self.scalar
        squared: FloatArray = cdist(X, Y, "sqeuclidean")
        squared *= factor
        return squared

    def __repr__(self) -> str:
        if self.scalar is not None:
            return f"{self.scalar:g}"
        return f"[{', '.join(f'{value:g}' for value in self.values.tolist())}]"


class Stationary(Kernel):
    """A function of the distance ‖(x − y)/ℓ‖ alone that is 1 at distance 0."""

    _factor = 1.0

    def __init__(self, lengthscale: Lengthscale = 1.0) -> None:
        self._scales = _Scales(lengthscale)
        self._other_arguments = ""

    @property
    def lengthscale(self) -> float | FloatArray:
        """ℓ, one number or one per column."""
        return self._scales.values.copy() if self._scales.scalar is None else self._scales.scalar

    def scaled(self, X: FloatArray) -> FloatArray:
        """X/ℓ, in which the kernel has unit lengthscale."""
        self._scales.check(X)
        return X / self._scales.values

    @abstractmethod
    def _of_squared_distance(self, squared: FloatArray) -> FloatArray:
        """The kernel, given ``_factor``·‖(x − y)/ℓ‖², which it may overwrite."""

    @abstractmethod
    def value_and_slope(self, squared: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The kernel k and its derivative dk/dq at squared scaled distances q = ‖(x − y)/ℓ‖²; 0 where it diverges.

        The distances may be overwritten.
        """

    @abstractmethod
    def with_lengthscale(self, lengthscale: Lengthscale) -> Stationary:
        """The same kernel with another lengthscale."""

    def __call__(self, X: FloatArray, Y: FloatArray | None = None) -> FloatArray:
        return self._of_squared_distance(self._scales.squared_distances(X, X if Y is None else Y, self._factor))

    def gradient(self, X: FloatArray, Y: FloatArray, weights: FloatArray) -> FloatArray:
        # ∂k/∂x = 2·(dk/dq)·(x − y)/ℓ², and Σ_j v_ij(x_i − y_j) = x_i·Σ_j v_ij − (vY)_i: a product of matrices, about a
        # point of X, so that points far from the origin keep their digits
        slopes = weights * self.value_and_slope(self._scales.squared_distances(X, Y, 1.0))[1]
        origin = X[0]
        differences = (X - origin) * slopes.sum(axis=1)[:, None] - times(slopes, Y - origin)
        return differences * (2.0 / self._scales.values**2)

    def diag(self, X: FloatArray) -> FloatArray:
        if self._scales.scalar is None:
            self._scales.check(X)
        ones = np.empty(len(X))
        ones.fill(1.0)
        return ones

    def __repr__(self) -> str:
        return f"{type(self).__name__}(lengthscale={self._scales!r}{self._other_arguments})"


class Gaussian(Stationary):
    """exp(−‖(x − y)/ℓ‖²/2), scikit-learn's ``RBF``.

    Args:
        lengthscale: ℓ, one positive number or one per column of the joint point (context columns first), in the units
            of the data. :func:`median_lengthscale` finds one from a sample.
    """

    _factor = -0.5

    def _of_squared_distance(self, squared: FloatArray) -> FloatArray:
        return np.exp(squared, out=squared)

    def value_and_slope(self, squared: FloatArray) -> tuple[FloatArray, FloatArray]:
        squared *= -0.5
        value = np.exp(squared, out=squared)
        return value, -0.5 * value

    def with_lengthscale(self, lengthscale: Lengthscale) -> Gaussian:
        return Gaussian(lengthscale)


class Exponential(Stationary):
    """exp(−‖(x − y)/ℓ‖), the Laplace kernel in the Euclidean norm (Matérn 1/2).

    Args:
        lengthscale: ℓ, one positive number or one per column.
    """

    def _of_squared_distance(self, squared: FloatArray) -> FloatArray:
        distance = np.sqrt(squared, out=squared)
        return np.exp(np.negative(distance, out=distance), out=distance)

    def value_and_slope(self, squared: FloatArray) -> tuple[FloatArray, FloatArray]:
        distance = np.sqrt(squared)
        value = np.exp(-distance)
        # d exp(−√q)/dq = −exp(−√q)/(2√q)
        return value, np.divide(-0.5 * value, distance, out=np.zeros_like(value), where=distance > 0)

    def with_lengthscale(self, lengthscale: Lengthscale) -> Exponential:
        return Exponential(lengthscale)


class Matern(Stationary):
    """The Matérn kernel of smoothness 3/2 or 5/2.

    With r = √(2ν)·‖(x − y)/ℓ‖ it is (1 + r)·exp(−r) for ν = 3/2 and (1 + r + r²/3)·exp(−r) for ν = 5/2.

    Args:
        lengthscale: ℓ, one positive number or one per column.
        smoothness: ν, 1.5 or 2.5; :class:`Exponential` is ν = 1/2 and :class:`Gaussian` the limit of large ν.
    """

    def __init__(self, lengthscale: Lengthscale = 1.0, smoothness: float = 2.5) -> None:
        if smoothness not in (1.5, 2.5):
            raise InputError(
                f"smoothness: expected 1.5 or 2.5, got {smoothness!r}; 0.5 is Exponential, and for other values pass "
                "scikit-learn's Matern, which works here too."
            )
        super().__init__(lengthscale)
        self.smoothness = float(smoothness)
        self._factor = 2 * self.smoothness
        self._other_arguments = f", smoothness={smoothness:g}"

    def _of_squared_distance(self, squared: FloatArray) -> FloatArray:
        # 1 + r or 1 + r + r²/3 in the place of r², piece by piece: a whole array for r would be new memory every time
        flat = squared.reshape(-1)
        room = np.empty(min(flat.size, PIECE))
        for start in range(0, flat.size, PIECE):
            piece = flat[start : start + PIECE]
            r = np.sqrt(piece, out=room[: len(piece)])
            piece *= 0.0 if self.smoothness == 1.5 else 1.0 / 3.0
            piece += r
            piece += 1.0
            piece *= np.exp(np.negative(r, out=r), out=r)
        return flat.reshape(squared.shape)

    def value_and_slope(self, squared: FloatArray) -> tuple[FloatArray, FloatArray]:
        squared *= 2.0 * self.smoothness
        r = np.sqrt(squared)
        decay = np.negative(r)
        np.exp(decay, out=decay)
        r += 1.0
        r *= decay
        # r = √(2νq): d(1 + r)e⁻ʳ/dq = −³⁄₂·e⁻ʳ, d(1 + r + r²/3)e⁻ʳ/dq = −⁵⁄₆·(1 + r)e⁻ʳ
        if self.smoothness == 1.5:
            decay *= -1.5
            return r, decay
        squared *= decay
        squared /= 3.0
        squared += r
        r *= -5.0 / 6.0
        return squared, r

    def with_lengthscale(self, lengthscale: Lengthscale) -> Matern:
        return Matern(lengthscale, self.smoothness)


class Polynomial(Kernel):
    """(⟨x/ℓ, y/ℓ⟩ + offset)^degree.

    Args:
        degree: a whole number of at least 1.
        lengthscale: ℓ, one positive number or one per column.
        offset: at least 0; scikit-learn's ``DotProduct`` calls its square root sigma_0.
    """

    def __init__(self, degree: int = 2, lengthscale: Lengthscale = 1.0, offset: float = 1.0) -> None:
        self.degree = as_count("degree", degree)
        self._scales = _Scales(lengthscale)
        self.offset = float(offset)
        if not (math.isfinite(self.offset) and self.offset >= 0):
            raise InputError(f"offset: expected a finite number of at least 0, got {offset!r}.")

    def _powers(self, products: FloatArray) -> FloatArray:
        powers = (products + self.offset) ** self.degree
        return np.asarray(powers, dtype=np.float64)

    def __call__(self, X: FloatArray, Y: FloatArray | None = None) -> FloatArray:
        self._scales.check(X)
        scaled = X / self._scales.values
        return self._powers(scaled @ (scaled if Y is None else Y / self._scales.values).T)

    def diag(self, X: FloatArray) -> FloatArray:
        self._scales.check(X)
        scaled = X / self._scales.values
        return self._powers(np.einsum("ij,ij->i", scaled, scaled))

    def gradient(self, X: FloatArray, Y: FloatArray, weights: FloatArray) -> FloatArray:
        self._scales.check(X)
        # degree·(⟨x/ℓ, y/ℓ⟩ + offset)^(degree − 1)·y/ℓ²
        other = Y / self._scales.values
        slopes = ((X / self._scales.values) @ other.T + self.offset) ** (self.degree - 1)
        return self.degree * times(weights * slopes, other) / self._scales.values

    def __repr__(self) -> str:
        return f"Polynomial(degree={self.degree}, lengthscale={self._scales!r}, offset={self.offset:g})"


class Linear(Kernel):
    """⟨x/ℓ, y/ℓ⟩ + offset, the kernel of linear regression.

    Args:
        lengthscale: ℓ, one positive number or one per column.
        offset: at least 0, the prior variance of the intercept.
    """

    def __init__(self, lengthscale: Lengthscale = 1.0, offset: float = 0.0) -> None:
        self._polynomial = Polynomial(1, lengthscale, offset)

    def __call__(self, X: FloatArray, Y: FloatArray | None = None) -> FloatArray:
        return self._polynomial(X, Y)

    def diag(self, X: FloatArray) -> FloatArray:
        return self._polynomial.diag(X)

    def gradient(self, X: FloatArray, Y: FloatArray, weights: FloatArray) -> FloatArray:
        return self._polynomial.gradient(X, Y, weights)

    def __repr__(self) -> str:
        return f"Linear(lengthscale={self._polynomial._scales!r}, offset={self._polynomial.offset:g})"


class Sum(Kernel):
    """k₁ + k₂, as ``kernel + kernel`` builds it."""

    def __init__(self, left: KernelLike, right: KernelLike) -> None:
        self.left, self.right = left, right

    def __call__(self, X: FloatArray, Y: FloatArray | None = None) -> FloatArray:
        return self.left(X, Y) + self.right(X, Y)

    def diag(self, X: FloatArray) -> FloatArray:
        return self.left.diag(X) + self.right.diag(X)

    def gradient(self, X: FloatArray, Y: FloatArray, weights: FloatArray) -> FloatArray:
        return weighted_gradient(self.left, X, Y, weights) + weighted_gradient(self.right, X, Y, weights)

    def __repr__(self) -> str:
        return f"({self.left!r} + {self.right!r})"


class Product(Kernel):
    """k₁·k₂, as ``kernel * kernel`` builds it."""

    def __init__(self, left: KernelLike, right: KernelLike) -> None:
        self.left, self.right = left, right

    def __call__(self, X: FloatArray, Y: FloatArray | None = None) -> FloatArray:
        # a number times a kernel is the common case, and a matrix of equal numbers a waste
        if isinstance(self.left, Constant):
            return self.left.value * self.right(X, Y)
        return self.left(X, Y) * self.right(X, Y)

    def diag(self, X: FloatArray) -> FloatArray:
        if isinstance(self.left, Constant):
            return self.left.value * self.right.diag(X)
        return self.left.diag(X) * self.right.diag(X)

    def gradient(self, X: FloatArray, Y: FloatArray, weights: FloatArray) -> FloatArray:
        # (k₁k₂)′ = k₁′k₂ + k₁k₂′
        left = weighted_gradient(self.left, X, Y, weights * self.right(X, Y))
        return left + weighted_gradient(self.right, X, Y, weights * self.left(X, Y))

    def __repr__(self) -> str:
        return f"{self.left!r} * {self.right!r}"


class TensorProduct(Kernel):
    """k((x, a), (x', a')) = k_context(x, x')·k_action(a, a'), the paper's tensor-product example (section 3.3).

    The points of one round share their context, so the context factor is evaluated for a single row whenever the
    context columns of all rows are equal: once per round instead of once per action.

    Args:
        context_kernel: the kernel of the first ``context_dimension`` columns.
        action_kernel: the kernel of the remaining columns.
        context_dimension: d_x.
    """

    def __init__(self, context_kernel: KernelLike, action_kernel: KernelLike, context_dimension: int) -> None:
        self.context_kernel = as_kernel(context_kernel)
        self.action_kernel = as_kernel(action_kernel)
        self.context_dimension = as_count("context_dimension", context_dimension)

    def _split(self, X: FloatArray, share_context: bool = True) -> tuple[FloatArray, FloatArray]:
        if X.shape[1] <= self.context_dimension:
            raise InputError(
                f"context_dimension: {self.context_dimension} context columns and at least one action column are "
                f"expected, got points with {X.shape[1]} columns."
            )
        contexts = X[:, : self.context_dimension]
        if share_context and (contexts == contexts[0]).all():
            contexts = contexts[:1]
        return contexts, X[:, self.context_dimension :]

    def __call__(self, X: FloatArray, Y: FloatArray | None = None) -> FloatArray:
        if Y is None:
            contexts, actions = self._split(X, share_context=False)
            return self.context_kernel(contexts) * self.action_kernel(actions)
        contexts, actions = self._split(X)
        other_contexts, other_actions = self._split(Y)
        return self.context_kernel(contexts, other_contexts) * self.action_kernel(actions, other_actions)

    def diag(self, X: FloatArray) -> FloatArray:
        contexts, actions = self._split(X)
        return self.context_kernel.diag(contexts) * self.action_kernel.diag(actions)

    def gradient(self, X: FloatArray, Y: FloatArray, weights: FloatArray) -> FloatArray:
        (contexts, actions), (other_contexts, other_actions) = self._split(X, False), self._split(Y, False)
        of_context = weights * self.action_kernel(actions, other_actions)
        of_action = weights * self.context_kernel(contexts, other_contexts)
        return np.hstack(
            [
                weighted_gradient(self.context_kernel, contexts, other_contexts, of_context),
                weighted_gradient(self.action_kernel, actions, other_actions, of_action),
            ]
        )

    def __repr__(self) -> str:
        return f"TensorProduct({self.context_kernel!r}, {self.action_kernel!r}, {self.context_dimension})"


def as_kernel(value: KernelLike | float) -> KernelLike:
    """A kernel as it is, a number as :class:`Constant`; anything else is an error."""
    if isinstance(value, (int, float)):
        return Constant(value)
    if not isinstance(value, KernelLike) or isinstance(value, type):
        raise InputError(
            f"kernel: expected an object with kernel(X, Y) and kernel.diag(X), got {value!r}; "
            "for instance kernel_bandits.Gaussian(lengthscale=0.1), an instance and not the class."
        )
    return value


def require_columns(kernel: KernelLike, points: FloatArray, context_columns: int | None = None) -> None:
    """Raise unless a kernel takes points as wide as these, and splits them where contexts end.

    Args:
        kernel: ours or another, which may complain in words of its own.
        points: shape (n, d), n ≥ 1; the first is tried.
        context_columns: d_x where it is known.
    """
    if context_columns is not None:
        _require_split(kernel, context_columns)
    point = points[:1]
    try:
        with np.errstate(all="ignore"):
            require_gram(kernel, kernel(point, point.copy()), (1, 1))
            kernel.diag(point)
    except InputError:
        raise
    except (ValueError, IndexError) as reason:
        raise InputError(f"kernel: {kernel!r} does not take points with {point.shape[1]} columns: {reason}") from reason


def require_gram(kernel: KernelLike, gram: FloatArray, shape: tuple[int, int]) -> None:
    """Raise unless what a foreign kernel answered is a matrix of numbers of the right shape."""
    if gram.shape != shape or gram.dtype != np.float64:
        raise InputError(
            f"kernel: a {type(kernel).__name__} answered {gram.dtype} of shape {gram.shape} for {shape[0]} and "
            f"{shape[1]} points; kernel(X, Y) must be float64 of shape (len(X), len(Y)). "
            "In a sum or product with a scikit-learn kernel, ours comes first."
        )


def _require_split(kernel: KernelLike, context_columns: int) -> None:
    if isinstance(kernel, (Sum, Product)):
        _require_split(kernel.left, context_columns)
        _require_split(kernel.right, context_columns)
    elif isinstance(kernel, TensorProduct) and kernel.context_dimension != context_columns:
        raise InputError(
            f"context_dimension: {kernel!r} takes the first {kernel.context_dimension} columns for the context, but "
            f"contexts have length {context_columns}; build it with context_dimension={context_columns}."
        )


def weighted_gradient(kernel: KernelLike, X: FloatArray, Y: FloatArray, weights: FloatArray) -> FloatArray:
    """:meth:`Differentiable.gradient` of any kernel: its own, or central differences at 2d kernel evaluations."""
    if isinstance(kernel, Differentiable):
        return kernel.gradient(X, Y, weights)
    gradient = np.empty(X.shape)
    # The error of central differences is least at a step of about ε^{1/3} times the scale of the data.
    scale = np.ptp(np.concatenate([X, Y]), axis=0)
    steps = np.cbrt(np.finfo(float).eps) * np.where(scale > 0.0, scale, np.maximum(1.0, np.abs(X[0])))
    for column, step in enumerate(steps):
        above, below = X.copy(), X.copy()
        above[:, column] += step
        below[:, column] -= step
        rise = np.vecdot(weights, kernel(above, Y) - kernel(below, Y))
        # the step that the rounded coordinates are really apart
        gradient[:, column] = rise / (above[:, column] - below[:, column])
    return gradient


def register_with_scikit_learn() -> None:
    """Let scikit-learn accept the kernels of this module wherever it asks for an instance of its own kernel class."""
    try:
        from sklearn.gaussian_process.kernels import Kernel as ScikitLearnKernel
    except ImportError as reason:
        raise missing("scikit-learn", "sklearn") from reason
    ScikitLearnKernel.register(Kernel)


def median_lengthscale(
    points: ArrayLike, *, per_dimension: bool = False, sample_size: int = 1000, seed: int = 0
) -> float | FloatArray:
    """A lengthscale from a sample of joint points: the median distance between two of them.

    A lengthscale ten times too small makes every point a stranger to every other, one ten times too large makes the
    reward look flat; the median distance is the usual first choice between the two.

    Args:
        points: joint points, shape (n, d) with n ≥ 2: contexts beside actions as they will be played.
        per_dimension: one lengthscale per column, the median distance in that column times √d, so that at typical
            distances all columns together add up to one lengthscale. Columns that never vary get 1.
        sample_size: at most so many of the points are compared, drawn without replacement.
        seed: of that draw.

    Returns:
        A float, or an array of length d with ``per_dimension=True``. Equal points are left out of the median.
    """
    sample = as_points("points", points)
    require_finite("points", sample)
    if len(sample) < 2:
        raise InputError("points: expected at least two, got one; distances need pairs.")
    if len(sample) > as_count("sample_size", sample_size):
        sample = np.random.default_rng(seed).choice(sample, size=sample_size, replace=False)

    def median_distance(columns: FloatArray) -> float:
        distances = pdist(columns)
        distances = distances[distances > 0]
        return float(np.median(distances)) if distances.size else 1.0

    if not per_dimension:
        return median_distance(sample)
    dimension = sample.shape[1]
    medians = [median_distance(sample[:, [j]]) for j in range(dimension)]
    varies = np.ptp(sample, axis=0) > 0
    return np.where(varies, np.array(medians) * math.sqrt(dimension), 1.0)
