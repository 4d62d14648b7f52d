"""Explicit finite-dimensional features, the alternative to a dictionary."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
import scipy

from kernel_bandits.arrays import FloatArray, as_count
from kernel_bandits.errors import InputError
from kernel_bandits.kernels import (
    Exponential,
    Gaussian,
    Kernel,
    KernelLike,
    Linear,
    Matern,
    Mixed,
    PerArm,
    TensorProduct,
)


class FeatureMap(ABC):
    """A feature map whose inner products equal or approximate a kernel."""

    exact: bool

    @abstractmethod
    def __call__(self, points: FloatArray) -> FloatArray:
        """Return the features of points (n, d), shape (n, D); equal points have equal features."""

    @abstractmethod
    def gradient(self, points: FloatArray, weights: FloatArray) -> FloatArray:
        """Return Σ_j weights_ij·∂φ_j(s_i)/∂s_i for points (n, d) and weights (n, D), shape (n, d)."""

    def described(
        self, context_columns: int, arms: bool, centre: FloatArray | None = None
    ) -> tuple[FeatureMap, Kernel | None]:
        """Return the map for points whose leading columns are the context, and its kernel if that depends on them.

        Args:
            context_columns: how many there are.
            arms: whether actions are unit vectors that name arms.
            centre: what is taken off columns that lie far from 0, shape (d,); None where none does.
        """
        del context_columns, arms, centre  # most maps treat all columns alike
        return self, None

    def reseeded(self, entropy: int) -> FeatureMap:
        """Return the map with frequencies of another seed; those that were drawn already stay."""
        del entropy  # most maps draw nothing
        return self


def _linear(offset: float, centre: FloatArray | None) -> Kernel:
    """Return ⟨x − c, y − c⟩ + offset."""
    if centre is None or not centre.any():
        return Linear(offset=offset)
    return Mixed(offset, len(centre), 0.0, centre=centre)


class LinearFeatures(FeatureMap):
    """The columns themselves, plus a constant 1 if the model has an intercept.

    With an intercept, columns far from 0 are taken about their first value: an intercept of prior variance 1 cannot
    make up for a column of 10⁶ ± 1, and nothing would be learned of it.
    """

    saved: ClassVar[tuple[str, ...]] = ("intercept", "centre")

    exact = True

    def __init__(self, intercept: bool = True, centre: FloatArray | None = None) -> None:
        self.intercept: bool = bool(intercept)
        self.centre: FloatArray | None = centre

    def described(
        self, context_columns: int, arms: bool, centre: FloatArray | None = None
    ) -> tuple[FeatureMap, Kernel | None]:
        del context_columns, arms
        offset, centre = (1.0, centre) if self.intercept else (0.0, None)
        return LinearFeatures(self.intercept, centre), _linear(offset, centre)

    def __call__(self, points: FloatArray) -> FloatArray:
        if self.centre is not None:
            points = points - self.centre
        return np.column_stack([points, np.ones(len(points))]) if self.intercept else points.copy()

    def gradient(self, points: FloatArray, weights: FloatArray) -> FloatArray:
        return weights[:, : points.shape[1]].copy()

    def __repr__(self) -> str:
        return f"LinearFeatures(intercept={self.intercept})"


class InteractionFeatures(FeatureMap):
    """Products of the columns of context and action, so that what is best may depend on the context.

    Described actions have (1, x) ⊗ (1, a); arms have one copy of (1, x) each. Before the first round says which columns
    are the context, all of them are taken for a context of one arm. Far columns are centred as in
    :class:`LinearFeatures`.
    """

    saved: ClassVar[tuple[str, ...]] = ("intercept", "context_columns", "arms", "centre")

    exact = True

    def __init__(
        self,
        intercept: bool = True,
        context_columns: int | None = None,
        arms: bool = False,
        centre: FloatArray | None = None,
    ) -> None:
        self.intercept: bool = bool(intercept)
        self.context_columns: int | None = context_columns
        self.arms: bool = arms
        self.centre: FloatArray | None = centre

    def described(
        self, context_columns: int, arms: bool, centre: FloatArray | None = None
    ) -> tuple[FeatureMap, Kernel | None]:
        offset, centre = (1.0, centre) if self.intercept else (0.0, None)
        contexts = _linear(offset, None if centre is None else centre[:context_columns])
        actions = _linear(offset, None if centre is None else centre[context_columns:])
        kernel: Kernel
        if arms:
            kernel = PerArm(contexts if context_columns else 1.0, context_columns)
        else:
            kernel = TensorProduct(contexts, actions, context_columns) if context_columns else actions
        return InteractionFeatures(self.intercept, context_columns, arms, centre), kernel

    def _factors(self, points: FloatArray) -> tuple[FloatArray, FloatArray]:
        split = points.shape[1] if self.context_columns is None else self.context_columns
        if self.centre is not None:
            points = points - self.centre
        ones = np.ones((len(points), 1))
        contexts, actions = points[:, :split], points[:, split:]
        if self.intercept or not split:
            contexts = np.hstack([contexts, ones])
        if not self.arms and (self.intercept or not actions.shape[1]):
            actions = np.hstack([actions, ones])
        return contexts, actions

    def __call__(self, points: FloatArray) -> FloatArray:
        contexts, actions = self._factors(points)
        return (contexts[:, :, None] * actions[:, None, :]).reshape(len(points), -1)

    def gradient(self, points: FloatArray, weights: FloatArray) -> FloatArray:
        contexts, actions = self._factors(points)
        # φ = u ⊗ v: ∂/∂u = Wv and ∂/∂v = Wᵀu
        by_product = weights.reshape(len(points), contexts.shape[1], actions.shape[1])
        by_context = np.einsum("nij,nj->ni", by_product, actions)
        by_action = np.einsum("nij,ni->nj", by_product, contexts)
        split = points.shape[1] if self.context_columns is None else self.context_columns
        return np.hstack([by_context[:, :split], by_action[:, : points.shape[1] - split]])

    def __repr__(self) -> str:
        return f"InteractionFeatures(intercept={self.intercept})"


class _FourierFeatures(FeatureMap):
    """√w·cos(ωᵀx) and √w·sin(ωᵀx): k(x, y) = E cos(ωᵀ(x − y)) under the kernel's spectral density (Bochner).

    The frequencies depend on the number of columns, so they are computed at the first call and kept.
    """

    saved: ClassVar[tuple[str, ...]] = ("kernel", "number_of_features", "_spectrum")

    exact = False

    def __init__(self, kernel: Gaussian | Exponential | Matern, number_of_features: int) -> None:
        self.kernel: Gaussian | Exponential | Matern = kernel
        self.number_of_features: int = as_count("number_of_features", number_of_features)
        self._spectrum: tuple[FloatArray, FloatArray] | None = None

    @abstractmethod
    def _frequencies(self, dimension: int) -> tuple[FloatArray, FloatArray]:
        """Return the frequencies (D/2, d) for unit lengthscale and their weights (D/2,), which sum to 1."""

    def _phases(self, points: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return ωᵀx, shape (n, D/2), the frequencies ω, and √w."""
        if self._spectrum is None or self._spectrum[0].shape[1] != points.shape[1]:
            self._spectrum = self._frequencies(points.shape[1])
        frequencies, weights = self._spectrum
        return self.kernel.scaled(points) @ frequencies.T, frequencies, np.sqrt(weights)

    def __call__(self, points: FloatArray) -> FloatArray:
        phases, _, roots = self._phases(points)
        # φ(x)ᵀφ(y) = Σ w(cos ωᵀx cos ωᵀy + sin ωᵀx sin ωᵀy) = Σ w·cos ωᵀ(x − y)
        return np.hstack([np.cos(phases), np.sin(phases)]) * np.concatenate([roots, roots])

    def gradient(self, points: FloatArray, weights: FloatArray) -> FloatArray:
        phases, frequencies, roots = self._phases(points)
        of_cosine, of_sine = weights[:, : len(roots)], weights[:, len(roots) :]
        # ∂cos ωᵀx/∂x = −sin(ωᵀx)·ω and ∂sin ωᵀx/∂x = cos(ωᵀx)·ω, in columns over ℓ
        by_phase = (of_sine * np.cos(phases) - of_cosine * np.sin(phases)) * roots
        return (by_phase @ frequencies) / self.kernel.lengthscale


class RandomFourierFeatures(_FourierFeatures):
    """Frequencies drawn from the spectral density (Rahimi & Recht 2007): error O(D^{-1/2}) in any dimension.

    Args:
        kernel: a :class:`Gaussian`, :class:`Exponential` or :class:`Matern`.
        number_of_features: D, even.
        seed: of the frequencies.
    """

    saved: ClassVar[tuple[str, ...]] = ("_seed",)

    def __init__(self, kernel: KernelLike, number_of_features: int, seed: np.random.SeedSequence) -> None:
        if not isinstance(kernel, (Gaussian, Exponential, Matern)):
            raise InputError(f"kernel: random features are known for Gaussian, Exponential and Matern, got {kernel!r}.")
        super().__init__(kernel, number_of_features)
        if self.number_of_features % 2:
            raise InputError(f"number_of_features: cosines and sines come in pairs, got the odd {number_of_features}.")
        self._seed = seed

    def _frequencies(self, dimension: int) -> tuple[FloatArray, FloatArray]:
        count = self.number_of_features // 2
        generator = np.random.default_rng(self._seed)
        frequencies = generator.standard_normal((count, dimension))
        if not isinstance(self.kernel, Gaussian):
            # the spectral density of Matérn ν is Student's t with 2ν degrees of freedom
            degrees = 1.0 if isinstance(self.kernel, Exponential) else 2 * self.kernel.smoothness
            frequencies *= np.sqrt(degrees / generator.chisquare(degrees, (count, 1)))
        return frequencies, np.full(count, 1.0 / count)

    def reseeded(self, entropy: int) -> RandomFourierFeatures:
        twin = copy.copy(self)
        twin._seed = np.random.SeedSequence(entropy, spawn_key=self._seed.spawn_key)
        return twin

    def __repr__(self) -> str:
        return f"RandomFourierFeatures({self.kernel!r}, {self.number_of_features})"


class QuadratureFourierFeatures(_FourierFeatures):
    """Frequencies at the nodes of Gauss–Hermite quadrature (Mutný & Krause 2018).

    The error falls exponentially with more than about (e/4)·(diameter/lengthscale)² nodes per column; with fewer, the
    features are inaccurate. Their number grows exponentially with the dimension, so three columns are the limit.

    Args:
        kernel: a :class:`Gaussian`.
        number_of_features: an upper bound on D = n^d; n, the number of nodes per column, is the largest even one.
    """

    def __init__(self, kernel: KernelLike, number_of_features: int) -> None:
        if not isinstance(kernel, Gaussian):
            raise InputError(f"kernel: quadrature features are known for Gaussian kernels, got {kernel!r}.")
        super().__init__(kernel, number_of_features)

    def _frequencies(self, dimension: int) -> tuple[FloatArray, FloatArray]:
        if dimension > 3:
            raise InputError(
                f"features: quadrature needs at most 3 columns in context and action together, got {dimension}; "
                "use features='random'."
            )
        nodes_per_dimension = 2 * int(self.number_of_features ** (1 / dimension) * (1 + 1e-12) / 2)
        if nodes_per_dimension < 2:
            raise InputError(f"number_of_features: at least {2**dimension} are needed for {dimension} columns.")
        # E f(ω) over a standard normal ω is Σ w f(√2 x)/√π at the Gauss–Hermite nodes x
        nodes, node_weights = scipy.special.roots_hermite(nodes_per_dimension)
        coordinates = np.meshgrid(*[math.sqrt(2.0) * nodes] * dimension, indexing="ij")
        grid = np.stack(coordinates, axis=-1).reshape(-1, dimension)
        products = np.meshgrid(*[node_weights / math.sqrt(math.pi)] * dimension, indexing="ij")
        weights = np.prod(np.stack(products, axis=-1).reshape(-1, dimension), axis=1)
        # ω and −ω have the same cosine and opposite sines: keep one of each pair, with twice the weight
        half = grid[:, 0] > 0
        return grid[half], 2.0 * weights[half]

    def __repr__(self) -> str:
        return f"QuadratureFourierFeatures({self.kernel!r}, {self.number_of_features})"
