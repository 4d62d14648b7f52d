"""The kernel protocol, gradients, and sums and products of kernels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from kernel_bandits.arrays import FloatArray, as_positive
from kernel_bandits.errors import InputError, needs

# Maps weights (n, m) and own weights (n,) to ∂/∂x_i of Σ_j weights_ij·k(x_i, z_j) + own_weights_i·k(x_i, x_i), (n, d).
Pullback: TypeAlias = Callable[[FloatArray, FloatArray], FloatArray]


@runtime_checkable
class KernelLike(Protocol):
    """The methods that a policy needs of a kernel; scikit-learn's kernels have them too."""

    def __call__(self, X: FloatArray, Y: FloatArray | None = None) -> FloatArray:
        """Return the cross-Gram matrix k(X, Y), shape (len(X), len(Y)); Y defaults to X."""

    def diag(self, X: FloatArray) -> FloatArray:
        """Return k(x, x) for each row of X, shape (len(X),)."""


@runtime_checkable
class Differentiable(Protocol):
    """A kernel with a gradient."""

    def gradient(self, X: FloatArray, Y: FloatArray, weights: FloatArray) -> FloatArray:
        """Return Σ_j weights_ij·∂k(x_i, y_j)/∂x_i, with the second argument held fixed.

        X (n, d), Y (m, d) and weights (n, m) give a new array (n, d). Use 0 where the kernel has a kink. The chain rule
        needs only this weighted sum, which avoids an array of shape (n, m, d).
        """


class Sections(ABC):
    """The functions k(·, z) of fixed points z (m, d), and k(x, x); what can be is computed in advance.

    Whoever calls may overwrite the arrays that come back; a gradient that is taken later does not rest on them.
    """

    @abstractmethod
    def __call__(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return k(x, z), shape (n, m), and k(x, x), shape (n,), at points x (n, d)."""

    @abstractmethod
    def with_pullback(self, X: FloatArray) -> tuple[FloatArray, FloatArray, Pullback]:
        """Return the same, and the gradient as a function of weights, which shares their work."""


class Kernel(ABC):
    """A positive-definite function of two points; subclasses are final."""

    # Keeps NumPy from treating a kernel as a number, as in array + kernel.
    __array_ufunc__ = None
    requires_vector_input = True
    n_dims = 0

    @abstractmethod
    def __call__(self, X: FloatArray, Y: FloatArray | None = None) -> FloatArray:
        """Return the cross-Gram matrix k(X, Y), shape (len(X), len(Y)), as a new array; Y defaults to X."""

    @abstractmethod
    def diag(self, X: FloatArray) -> FloatArray:
        """Return k(x, x) for each row of X, shape (len(X),)."""

    def diag_gradient(self, X: FloatArray) -> FloatArray | None:
        """Return ∂k(x, x)/∂x for each row of X, shape (n, d); None where it takes :meth:`Differentiable.gradient`."""
        del X  # by symmetry it is twice the slope in the first argument
        return None

    def gradient(self, X: FloatArray, Y: FloatArray, weights: FloatArray) -> FloatArray:
        """Return :meth:`Differentiable.gradient`; by default by central differences, 2 evaluations per column."""
        return _differences(self, X, Y, weights, 0)

    def gradient_from(self, X: FloatArray, Y: FloatArray, weights: FloatArray, first: int) -> FloatArray:
        """Return the columns of the gradient from one on, shape (n, d − first)."""
        return self.gradient(X, Y, weights)[:, first:]

    def sections(self, Y: FloatArray) -> Sections | None:
        """Return k(·, y) of fixed points y (m, d) and k(x, x) at less cost; None where nothing would be gained."""
        del Y  # by default nothing of a point can be computed in advance
        return None

    def sections_in(self, context: FloatArray, Y: FloatArray) -> Sections | None:
        """Return the :meth:`sections` of joint points y (m, d) in one context (d_x,), as functions of the action."""
        return None if len(context) else self.sections(Y)

    def restricted(self, columns: NDArray[np.intp], point: FloatArray) -> Kernel | None:
        """Return the kernel of points that agree with a point (d,) outside these columns, as a kernel of the columns.

        None where nothing would be gained.
        """
        del columns, point  # by default all columns are needed
        return None

    def of_each_arm(self) -> tuple[KernelLike, int] | None:
        """Return the kernel of contexts and d_x where arms, the distinct actions, share nothing; None where they do."""
        return None

    def require_split(self, context_columns: int) -> None:
        """Raise if the kernel splits points elsewhere than behind this many columns of the context."""
        del context_columns  # by default it does not split them

    def portable(self, start: int, stop: int) -> dict[str, Any]:
        """Return the kernel of the columns from start to stop of a point as exported files hold it, plain data."""
        del start, stop
        raise InputError(f"export: {self!r} has no portable form; use a kernel of this library.")

    def __add__(self, other: KernelLike | float) -> Sum:
        return Sum(self, as_kernel(other))

    def __radd__(self, other: KernelLike | float) -> Sum:
        return Sum(as_kernel(other), self)

    def __mul__(self, other: KernelLike | float) -> Product:
        return Product(self, as_kernel(other))

    def __rmul__(self, other: KernelLike | float) -> Product:
        return Product(as_kernel(other), self)

    # The remaining members are what scikit-learn's regressor needs of a kernel without free hyper-parameters.
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

    saved: ClassVar[tuple[str, ...]] = ("value",)
    value: float

    def __init__(self, value: float) -> None:
        self.value = as_positive("value", value)

    def __call__(self, X: FloatArray, Y: FloatArray | None = None) -> FloatArray:
        return np.full((len(X), len(X if Y is None else Y)), self.value)

    def diag(self, X: FloatArray) -> FloatArray:
        return np.full(len(X), self.value)

    def gradient(self, X: FloatArray, Y: FloatArray, weights: FloatArray) -> FloatArray:
        del Y, weights  # a constant has no slope
        return np.zeros(X.shape)

    def diag_gradient(self, X: FloatArray) -> FloatArray:
        return np.zeros(X.shape)

    def portable(self, start: int, stop: int) -> dict[str, Any]:
        del start, stop  # of all columns
        return {"kind": "constant", "value": self.value}

    def __repr__(self) -> str:
        return f"Constant({self.value:g})"


class _Foreign(Kernel):
    """A kernel of others, which knows no more than the defaults, and perhaps its gradient."""

    def __init__(self, kernel: KernelLike) -> None:
        self._kernel = kernel

    def __call__(self, X: FloatArray, Y: FloatArray | None = None) -> FloatArray:
        return self._kernel(X, Y)

    def diag(self, X: FloatArray) -> FloatArray:
        return self._kernel.diag(X)

    def gradient_from(self, X: FloatArray, Y: FloatArray, weights: FloatArray, first: int) -> FloatArray:
        # isinstance(kernel, Differentiable) takes as long as a small gradient in Python 3.11
        gradient: Callable[..., FloatArray] | None = getattr(self._kernel, "gradient", None)
        return (
            _differences(self._kernel, X, Y, weights, first) if gradient is None else gradient(X, Y, weights)[:, first:]
        )

    def __repr__(self) -> str:
        return repr(self._kernel)


class _Pair(Kernel):
    """Two kernels that are combined point by point."""

    saved: ClassVar[tuple[str, ...]] = ("left", "right")
    left: KernelLike
    right: KernelLike

    def __init__(self, left: KernelLike, right: KernelLike) -> None:
        self.left, self.right = left, right

    @property
    def _parts(self) -> tuple[Kernel, Kernel]:
        return with_defaults(self.left), with_defaults(self.right)

    def require_split(self, context_columns: int) -> None:
        for part in self._parts:
            part.require_split(context_columns)

    def portable(self, start: int, stop: int) -> dict[str, Any]:
        return {"kind": type(self).__name__.lower(), "parts": [part.portable(start, stop) for part in self._parts]}


class Sum(_Pair):
    """k₁ + k₂, the result of ``kernel + kernel``."""

    def __call__(self, X: FloatArray, Y: FloatArray | None = None) -> FloatArray:
        return self.left(X, Y) + self.right(X, Y)

    def diag(self, X: FloatArray) -> FloatArray:
        return self.left.diag(X) + self.right.diag(X)

    def gradient(self, X: FloatArray, Y: FloatArray, weights: FloatArray) -> FloatArray:
        left, right = self._parts
        return left.gradient_from(X, Y, weights, 0) + right.gradient_from(X, Y, weights, 0)

    def diag_gradient(self, X: FloatArray) -> FloatArray | None:
        left, right = (part.diag_gradient(X) for part in self._parts)
        return None if left is None or right is None else left + right

    def __repr__(self) -> str:
        return f"({self.left!r} + {self.right!r})"


class Product(_Pair):
    """k₁·k₂, the result of ``kernel * kernel``."""

    def __call__(self, X: FloatArray, Y: FloatArray | None = None) -> FloatArray:
        # a number times a kernel is the common case; avoid a matrix of equal numbers
        left = self.left.value if isinstance(self.left, Constant) else self.left(X, Y)
        return left * self.right(X, Y)

    def diag(self, X: FloatArray) -> FloatArray:
        return self.left.diag(X) * self.right.diag(X)

    def gradient(self, X: FloatArray, Y: FloatArray, weights: FloatArray) -> FloatArray:
        # (k₁k₂)′ = k₁′k₂ + k₁k₂′
        left, right = self._parts
        by_left = left.gradient_from(X, Y, weights * right(X, Y), 0)
        return by_left + right.gradient_from(X, Y, weights * left(X, Y), 0)

    def diag_gradient(self, X: FloatArray) -> FloatArray | None:
        left, right = (part.diag_gradient(X) for part in self._parts)
        if left is None or right is None:
            return None
        return left * self.right.diag(X)[:, None] + right * self.left.diag(X)[:, None]

    def __repr__(self) -> str:
        return f"{self.left!r} * {self.right!r}"


def as_kernel(value: KernelLike | float) -> KernelLike:
    """Return a kernel unchanged and a number as a :class:`Constant`; raise an error for anything else."""
    if isinstance(value, (int, float)):
        return Constant(value)
    if not isinstance(value, KernelLike) or isinstance(value, type):
        raise InputError(
            f"kernel: expected an object with kernel(X, Y) and kernel.diag(X), got {value!r}; "
            "for instance kernel_bandits.Gaussian(lengthscale=0.1), an instance and not the class."
        )
    return value


def with_defaults(kernel: KernelLike) -> Kernel:
    """Return one of our kernels unchanged, and one of others with the defaults of what ours can be asked."""
    return kernel if isinstance(kernel, Kernel) else _Foreign(kernel)


def weighted_gradient(
    kernel: KernelLike, X: FloatArray, Y: FloatArray, weights: FloatArray, first: int = 0
) -> FloatArray:
    """Return :meth:`Differentiable.gradient` of any kernel, in the columns from ``first`` on, shape (n, d − first)."""
    return with_defaults(kernel).gradient_from(X, Y, weights, first)


def _differences(kernel: KernelLike, X: FloatArray, Y: FloatArray, weights: FloatArray, first: int) -> FloatArray:
    """Return a gradient by central differences in the columns from ``first`` on, shape (n, d − first)."""
    gradient = np.zeros(X.shape)
    # The error of central differences is smallest at a step of about ε^{1/3} times the scale of the data.
    scale = np.ptp(np.concatenate([X, Y]), axis=0)
    steps = np.cbrt(np.finfo(float).eps) * np.where(scale > 0.0, scale, np.maximum(1.0, np.abs(X[0])))
    for column, step in enumerate(steps[first:], first):
        above, below = X.copy(), X.copy()
        above[:, column] += step
        below[:, column] -= step
        rise = np.vecdot(weights, kernel(above, Y) - kernel(below, Y))
        # divide by the actual distance of the rounded coordinates
        gradient[:, column] = rise / (above[:, column] - below[:, column])
    return gradient[:, first:]


def diagonal_gradient(kernel: KernelLike, X: FloatArray) -> FloatArray | None:
    """Return :meth:`Kernel.diag_gradient` of any kernel; None for those of others."""
    return with_defaults(kernel).diag_gradient(X)


def kernel_gradient(
    kernel: KernelLike,
    points: FloatArray,
    anchors: FloatArray,
    weights: FloatArray,
    own_weights: FloatArray,
    first: int = 0,
) -> FloatArray:
    """Return ∂/∂s_i of Σ_j weights_ij·k(s_i, z_j) + own_weights_i·k(s_i, s_i) at points s (A, d), weights fixed.

    The columns are those from ``first`` on, shape (A, d − first).
    """
    anchors = anchors.reshape(-1, points.shape[1])
    by_prior = diagonal_gradient(kernel, points)
    if by_prior is not None:
        own = own_weights[:, None] * by_prior[:, first:]
        return own + weighted_gradient(kernel, points, anchors, weights, first) if len(anchors) else own
    # k(s, s) moves with both arguments, by symmetry twice as much as with the first
    others = np.concatenate([anchors, points])
    return weighted_gradient(kernel, points, others, np.hstack([weights, np.diag(2.0 * own_weights)]), first)


def register_with_scikit_learn() -> None:
    """Make scikit-learn accept the kernels of this module wherever it requires an instance of its own kernel class."""
    with needs("scikit-learn", "kernel-bandits[sklearn]"):
        from sklearn.gaussian_process.kernels import Kernel as ScikitLearnKernel
    ScikitLearnKernel.register(Kernel)
