"""Kernels that split points, into context and action or into point and time; checks of what a kernel returns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from kernel_bandits.arrays import FloatArray, as_count, as_floats, as_positive, require_finite
from kernel_bandits.errors import InputError
from kernel_bandits.kernels.base import (
    Kernel,
    KernelLike,
    Pullback,
    Sections,
    as_kernel,
    diagonal_gradient,
    kernel_gradient,
    weighted_gradient,
    with_defaults,
)
from kernel_bandits.numerics.linalg import times

# A kernel is checked on this many points of the first round, up to this share of its largest value.
FIRST_POINTS, ROUNDING = 4, 1e-6


@dataclass(frozen=True, eq=False)
class Shear:
    """Actions that the context moves: a − M(x − centre).

    Attributes:
        slopes: M, shape (d_a, d_x).
        centre: shape (d_x,).
    """

    slopes: FloatArray
    centre: FloatArray

    def __post_init__(self) -> None:
        for name in ("slopes", "centre"):
            object.__setattr__(self, name, as_floats(name, getattr(self, name)).copy())
            require_finite(name, getattr(self, name))
        if self.slopes.ndim != 2 or self.centre.shape != self.slopes.shape[1:]:
            raise InputError(
                f"slopes: expected shape (d_a, d_x) and a centre of shape (d_x,), got {self.slopes.shape} and "
                f"{self.centre.shape}."
            )

    def offsets(self, contexts: FloatArray) -> FloatArray:
        """Return M(x − centre) for contexts (n, d_x), shape (n, d_a)."""
        return times(contexts - self.centre, np.ascontiguousarray(self.slopes.T))

    def portable(self, kernel: dict[str, Any], start: int, stop: int) -> dict[str, Any]:
        """Return the portable form of a kernel of points that are moved first, by s ← As + offset."""
        matrix = np.eye(stop - start)
        actions, contexts = self.slopes.shape
        matrix[-actions:, :contexts] = -self.slopes
        offset = np.concatenate([np.zeros(contexts), self.slopes @ self.centre])
        moved = {"kind": "moved", "columns": [start, stop], "matrix": matrix.tolist(), "offset": offset.tolist()}
        return moved | {"kernel": kernel}


class _Split(Kernel):
    """A kernel of points whose first ``context_dimension`` columns are the context."""

    saved: ClassVar[tuple[str, ...]] = ("context_kernel", "context_dimension")
    context_kernel: KernelLike
    context_dimension: int

    def _halves(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return contexts and actions."""
        if X.shape[1] <= self.context_dimension:
            raise InputError(
                f"context_dimension: {self.context_dimension} context columns and at least one action column are "
                f"expected, got points with {X.shape[1]} columns."
            )
        return X[:, : self.context_dimension], X[:, self.context_dimension :]


class TensorProduct(_Split):
    """k((x, a), (x', a')) = k_context(x, x')·k_action(a, a'), the paper's tensor-product example (section 3.3).

    All points of a round share one context. If the context columns of all rows are equal, the context factor is
    evaluated for a single row: once per round instead of once per action.

    Args:
        context_kernel: the kernel of the first ``context_dimension`` columns.
        action_kernel: the kernel of the remaining columns.
        context_dimension: d_x.
        shear: how contexts move actions: k_action is of a − M(x − centre) then. None if contexts do not move actions.
    """

    saved: ClassVar[tuple[str, ...]] = ("action_kernel", "shear")

    def __init__(
        self,
        context_kernel: KernelLike,
        action_kernel: KernelLike,
        context_dimension: int,
        shear: Shear | None = None,
    ) -> None:
        self.context_kernel: KernelLike = as_kernel(context_kernel)
        self.action_kernel: KernelLike = as_kernel(action_kernel)
        self.context_dimension: int = as_count("context_dimension", context_dimension)
        if shear is not None and not isinstance(shear, Shear):
            raise InputError(f"shear: expected a Shear or None, got {type(shear).__name__}.")
        if shear is not None and shear.slopes.shape[1] != self.context_dimension:
            raise InputError(
                f"shear: expected slopes of {self.context_dimension} context columns, as context_dimension says, got "
                f"slopes of shape {shear.slopes.shape}; give a row per action column and a column per context column."
            )
        self.shear: Shear | None = shear

    def _split(self, X: FloatArray, share_context: bool = True) -> tuple[FloatArray, FloatArray]:
        contexts, actions = self._halves(X)
        # most rows that differ at all differ at the ends
        if share_context and (contexts[-1] == contexts[0]).all() and (contexts == contexts[0]).all():
            contexts = contexts[:1]
        if self.shear is None:
            return contexts, actions
        if len(self.shear.slopes) != actions.shape[1]:
            raise InputError(
                f"shear: expected slopes of {actions.shape[1]} action columns, one row each, got slopes of shape "
                f"{self.shear.slopes.shape}."
            )
        return contexts, actions - self.shear.offsets(contexts)

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
        by_context = weighted_gradient(self.context_kernel, contexts, other_contexts, of_context)
        by_action = weighted_gradient(self.action_kernel, actions, other_actions, of_action)
        return self._joined(by_context, by_action)

    def _joined(self, by_context: FloatArray, by_action: FloatArray) -> FloatArray:
        """Return the gradient by joint points from those by contexts and by the actions that they move."""
        if self.shear is not None:
            by_context = by_context - by_action @ self.shear.slopes
        return np.hstack([by_context, by_action])

    def gradient_from(self, X: FloatArray, Y: FloatArray, weights: FloatArray, first: int) -> FloatArray:
        if first != self.context_dimension:
            return super().gradient_from(X, Y, weights, first)
        (contexts, actions), (other_contexts, other_actions) = self._split(X), self._split(Y)
        of_action = weights * self.context_kernel(contexts, other_contexts)
        return weighted_gradient(self.action_kernel, actions, other_actions, of_action)

    def diag_gradient(self, X: FloatArray) -> FloatArray | None:
        contexts, actions = self._split(X, share_context=False)
        by_context = diagonal_gradient(self.context_kernel, contexts)
        by_action = diagonal_gradient(self.action_kernel, actions)
        if by_context is None or by_action is None:
            return None
        by_context *= self.action_kernel.diag(actions)[:, None]
        return self._joined(by_context, by_action * self.context_kernel.diag(contexts)[:, None])

    def sections_in(self, context: FloatArray, Y: FloatArray) -> Sections | None:
        if len(context) != self.context_dimension:
            return None
        other_contexts, other_actions = self._split(Y)
        contexts = context[None, :]
        factors, prior = self.context_kernel(contexts, other_contexts), float(self.context_kernel.diag(contexts)[0])
        offset = None if self.shear is None else self.shear.offsets(contexts)
        actions = with_defaults(self.action_kernel).sections(other_actions)
        actions = _PlainSections(self.action_kernel, other_actions) if actions is None else actions
        return _SectionsInContext(actions, factors, prior, offset)

    def require_split(self, context_columns: int) -> None:
        if self.context_dimension != context_columns:
            raise InputError(
                f"context_dimension: {self!r} takes the first {self.context_dimension} columns for the context, but "
                f"contexts have length {context_columns}; build it with context_dimension={context_columns}."
            )

    def portable(self, start: int, stop: int) -> dict[str, Any]:
        split = start + self.context_dimension
        of_context = with_defaults(self.context_kernel).portable(start, split)
        product = {"kind": "product", "parts": [of_context, with_defaults(self.action_kernel).portable(split, stop)]}
        return product if self.shear is None else self.shear.portable(product, start, stop)

    def __repr__(self) -> str:
        moved = "" if self.shear is None else ", shear"
        return f"TensorProduct({self.context_kernel!r}, {self.action_kernel!r}, {self.context_dimension}{moved})"


class PerArm(_Split):
    """A kernel on contexts for each arm: k((x, a), (y, b)) = [a = b]·k(x, y). Arms learn nothing from each other.

    Args:
        context_kernel: k, on the context columns; a number where there are none.
        context_dimension: how many of the leading columns are the context. The others name the arm: two actions are
            the same arm if all their columns agree.
    """

    def __init__(self, context_kernel: KernelLike | float, context_dimension: int) -> None:
        self.context_kernel: KernelLike = as_kernel(context_kernel)
        self.context_dimension: int = as_count("context_dimension", context_dimension, least=0)

    def _same(self, X: FloatArray, Y: FloatArray) -> FloatArray:
        return (X[:, None, :] == Y[None, :, :]).all(axis=2).astype(np.float64)

    def __call__(self, X: FloatArray, Y: FloatArray | None = None) -> FloatArray:
        (contexts, arms), (other_contexts, other_arms) = self._halves(X), self._halves(X if Y is None else Y)
        return self._same(arms, other_arms) * self.context_kernel(contexts, other_contexts)

    def diag(self, X: FloatArray) -> FloatArray:
        return self.context_kernel.diag(self._halves(X)[0])

    def gradient(self, X: FloatArray, Y: FloatArray, weights: FloatArray) -> FloatArray:
        (contexts, arms), (other_contexts, other_arms) = self._halves(X), self._halves(Y)
        of_same = weights * self._same(arms, other_arms)
        return np.hstack([weighted_gradient(self.context_kernel, contexts, other_contexts, of_same), 0.0 * arms])

    def of_each_arm(self) -> tuple[KernelLike, int]:
        return self.context_kernel, self.context_dimension

    def portable(self, start: int, stop: int) -> dict[str, Any]:
        split = start + self.context_dimension
        same = {"kind": "same", "columns": [split, stop], "scale": [1.0] * (stop - split), "within": 0.0}
        return {"kind": "product", "parts": [with_defaults(self.context_kernel).portable(start, split), same]}

    def __repr__(self) -> str:
        return f"PerArm({self.context_kernel!r}, {self.context_dimension})"


class Timed(Kernel):
    """k(s, s')·2^(−|t − t'|/half_life), of points (s, t) whose last column is the time.

    A function that forgets itself at a constant rate, as in TV-GP-UCB (Bogunovic et al. 2016).

    Args:
        kernel: k, on all columns but the last.
        half_life: after which a value keeps half of its correlation, in the units of the last column.
    """

    saved: ClassVar[tuple[str, ...]] = ("kernel", "half_life")

    def __init__(self, kernel: KernelLike, half_life: float) -> None:
        self.kernel: KernelLike = as_kernel(kernel)
        self.half_life: float = as_positive("half_life", half_life)

    def _decay(self, X: FloatArray, Y: FloatArray) -> FloatArray:
        return np.exp2(-np.abs(X[:, -1:] - Y[:, -1]) / self.half_life)

    def __call__(self, X: FloatArray, Y: FloatArray | None = None) -> FloatArray:
        if Y is None:
            return self.kernel(X[:, :-1]) * self._decay(X, X)
        return self.kernel(X[:, :-1], Y[:, :-1]) * self._decay(X, Y)

    def diag(self, X: FloatArray) -> FloatArray:
        return self.kernel.diag(X[:, :-1])

    def gradient(self, X: FloatArray, Y: FloatArray, weights: FloatArray) -> FloatArray:
        decayed = weights * self._decay(X, Y)
        by_point = weighted_gradient(self.kernel, X[:, :-1], Y[:, :-1], decayed)
        # d2^(−|u|/h)/dt = −ln 2/h·sign(u)·2^(−|u|/h) with u = t − t'
        slopes = -np.log(2.0) / self.half_life * np.sign(X[:, -1:] - Y[:, -1])
        by_time = (decayed * slopes * self.kernel(X[:, :-1], Y[:, :-1])).sum(axis=1)
        return np.hstack([by_point, by_time[:, None]])

    def __repr__(self) -> str:
        return f"Timed({self.kernel!r}, {self.half_life:g})"


class _PlainSections(Sections):
    """Any kernel, of which nothing is computed in advance."""

    def __init__(self, kernel: KernelLike, points: FloatArray) -> None:
        self._kernel, self._points = kernel, points

    def __call__(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        return self._kernel(X, self._points), self._kernel.diag(X)

    def with_pullback(self, X: FloatArray) -> tuple[FloatArray, FloatArray, Pullback]:
        return *self(X), partial(kernel_gradient, self._kernel, X, self._points)


class _SectionsInContext(Sections):
    """A tensor product in one context, as a function of the action; the factor of the context is known.

    Args:
        sections: of the kernel of actions.
        factors: k(x, y) of the context x and the contexts y of the fixed points, shape (1, m) or (1, 1).
        prior: k(x, x).
        offset: what the context moves all actions by, shape (1, d_a); None for nothing.
    """

    def __init__(self, sections: Sections, factors: FloatArray, prior: float, offset: FloatArray | None) -> None:
        self._sections, self._factors, self._prior, self._offset = sections, factors, prior, offset

    def _moved(self, X: FloatArray) -> FloatArray:
        return X if self._offset is None else X - self._offset

    def __call__(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        gram, prior = self._sections(self._moved(X))
        return self._factors * gram, self._prior * prior

    def with_pullback(self, X: FloatArray) -> tuple[FloatArray, FloatArray, Pullback]:
        gram, prior, of_actions = self._sections.with_pullback(self._moved(X))

        def pullback(weights: FloatArray, own_weights: FloatArray) -> FloatArray:
            return of_actions(weights * self._factors, own_weights * self._prior)

        return self._factors * gram, self._prior * prior, pullback


def require_columns(kernel: KernelLike, points: FloatArray, context_columns: int | None = None) -> None:
    """Raise unless a kernel accepts the first of the points (n, d), and splits them where the context ends, if known.

    It must be symmetric and positive semi-definite there. The message of a foreign kernel is passed on.
    """
    if context_columns is not None:
        with_defaults(kernel).require_split(context_columns)
    first = points[:FIRST_POINTS]
    try:
        with np.errstate(all="ignore"):
            gram, diagonal = kernel(first, first.copy()), np.asarray(kernel.diag(first))
        require_gram(kernel, gram, (len(first), len(first)))
    except InputError:
        raise
    except (ValueError, IndexError) as reason:
        raise InputError(f"kernel: {kernel!r} does not take points with {first.shape[1]} columns: {reason}") from reason
    if diagonal.shape != (len(first),):
        raise InputError(
            f"kernel: diag of {kernel!r} returned shape {diagonal.shape} for {len(first)} points; it must be (len(X),)."
        )
    if not (np.isfinite(gram).all() and np.isfinite(diagonal).all()):
        # said where the kernel is used, with the points that are not finite
        return
    largest = float(np.abs(gram).max())
    if np.abs(gram - gram.T).max() > ROUNDING * largest:
        raise InputError(f"kernel: {kernel!r} is not symmetric: k(x, y) and k(y, x) differ at the first points.")
    if min(float(np.linalg.eigvalsh(gram).min()), float(diagonal.min())) < -ROUNDING * largest:
        raise InputError(
            f"kernel: {kernel!r} is not positive semi-definite: it gives a negative variance at the first points; "
            "check its sign."
        )


def require_gram(kernel: KernelLike, gram: FloatArray, shape: tuple[int, int]) -> None:
    """Raise unless a foreign kernel returned a float64 matrix of the right shape."""
    if gram.shape != shape or gram.dtype != np.float64:
        raise InputError(
            f"kernel: a {type(kernel).__name__} returned {gram.dtype} of shape {gram.shape} for {shape[0]} and "
            f"{shape[1]} points; kernel(X, Y) must be float64 of shape (len(X), len(Y)). "
            "In a sum or product with a scikit-learn kernel, ours comes first."
        )
