"""Mean and standard deviation as a function of the point, in a JSON file that a few lines of any language evaluate."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
from scipy.linalg import solve_triangular

from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import InputError, UnavailableError
from kernel_bandits.io import as_path, atomic_write
from kernel_bandits.kernels import (
    Bends,
    Constant,
    Exponential,
    Gaussian,
    KernelLike,
    Linear,
    Matern,
    Mixed,
    PerArm,
    Polynomial,
    Product,
    Shear,
    Stationary,
    Sum,
    TensorProduct,
)
from kernel_bandits.kernels.mixed import SAME
from kernel_bandits.posterior.base import Posterior
from kernel_bandits.posterior.basis import AnchorBasis
from kernel_bandits.version import __version__

FORMAT = "kernel-bandits surface 2"
Node: TypeAlias = dict[str, Any]


def export(
    posterior: Posterior,
    path: str | os.PathLike[str],
    columns: Sequence[str] | None,
    variables: Sequence[Node] | None = None,
) -> None:
    """Write mean and standard deviation of a posterior as a function of the joint point to a JSON file, atomically.

    The variables say how the columns of a table are encoded, where there is one.
    """
    target = as_path("export", path)
    surface = described(posterior, columns) | ({} if variables is None else {"variables": variables})
    content = json.dumps(surface, allow_nan=False).encode()
    try:
        with atomic_write(target) as file:
            file.write(content)
    except OSError as reason:
        raise InputError(f"export: cannot write {path} ({reason.strerror}); choose another place.") from reason


def described(posterior: Posterior, columns: Sequence[str] | None = None) -> Node:
    """Return what the file holds.

    With k_Z = (k(s, z_1), …, k(s, z_m)) and φ = J k_Z, the mean at s is prior_mean + φᵀw, and the variance
    k(s, s) − ‖φ‖² + φᵀQφ. That holds for every posterior whose functions are spanned by its anchors, exact ones too; w
    and Q follow from its predictions at the anchors.
    """
    anchors = posterior.dictionary_points
    if not len(anchors):
        raise UnavailableError(
            "export: the posterior has no anchors; learn some rewards first, or use a kernel policy."
        )
    if posterior.unit != 1.0:
        raise UnavailableError(
            f"export: the variance of rewards of about {posterior.unit:.0e} is no floating-point number; learn rewards "
            "in a smaller unit."
        )
    dimension = anchors.shape[1]
    if columns is not None:
        names = list(columns) if isinstance(columns, Iterable) and not isinstance(columns, str) else []
        if len(names) != dimension or not all(isinstance(name, str) for name in names):
            raise InputError(f"columns: expected {dimension} names, context columns first, got {columns!r}.")
    kernel = as_node(posterior.kernel, 0, dimension)
    basis = AnchorBasis.chosen(posterior.kernel, posterior.regularization, np.unique(anchors, axis=0))
    evaluation = posterior.evaluate_finite(basis.anchors)
    # φ of the anchors are the rows of L: mean − c = Lw and covariance = LQLᵀ
    lower = basis(basis.anchors).features
    order = {"lower": True, "check_finite": False}
    weights = solve_triangular(lower, evaluation.mean - posterior.prior_mean, **order)
    half = solve_triangular(lower, posterior.covariance(basis.anchors, evaluation), **order)
    spread = solve_triangular(lower, half.T, **order)
    return {
        "format": FORMAT,
        "library": f"kernel-bandits {__version__}",
        "observations": posterior.round_index,
        "columns": [f"column {number}" for number in range(dimension)] if columns is None else list(columns),
        "kernel": kernel,
        "noise_variance": posterior.regularization,
        "prior_mean": posterior.prior_mean,
        "anchors": basis.anchors.tolist(),
        "J": np.tril(basis.factor.T).tolist(),
        "w": weights.tolist(),
        "Q": (0.5 * (spread + spread.T)).tolist(),
    }


def as_node(kernel: KernelLike, start: int, stop: int) -> Node:
    """Return a kernel on the columns from start to stop as a tree of sums, products, linear maps and six functions."""
    columns = [start, stop]
    if isinstance(kernel, Constant):
        return {"kind": "constant", "value": kernel.value}
    if isinstance(kernel, (Sum, Product)):
        kind = "sum" if isinstance(kernel, Sum) else "product"
        return {"kind": kind, "parts": [as_node(part, start, stop) for part in (kernel.left, kernel.right)]}
    if isinstance(kernel, Stationary):
        return {"kind": _kind(kernel), "columns": columns, "scale": _per_column(kernel.lengthscale, stop - start)}
    if isinstance(kernel, (Polynomial, Linear)):
        return _dot(kernel if isinstance(kernel, Polynomial) else kernel.as_polynomial, columns)
    if isinstance(kernel, Mixed):
        node = _mixed(kernel, columns)
        return node if kernel.bends is None else _bent(node, kernel.bends, columns)
    if isinstance(kernel, TensorProduct):
        split = start + kernel.context_dimension
        parts = [as_node(kernel.context_kernel, start, split), as_node(kernel.action_kernel, split, stop)]
        product: Node = {"kind": "product", "parts": parts}
        return product if kernel.shear is None else _moved(product, kernel.shear, columns)
    if isinstance(kernel, PerArm):
        split = start + kernel.context_dimension
        parts = [as_node(kernel.context_kernel, start, split), _same([split, stop], [1.0] * (stop - split), 0.0)]
        return {"kind": "product", "parts": parts}
    raise InputError(f"export: {kernel!r} has no portable form; use a kernel of this library.")


def _moved(node: Node, shear: Shear, columns: list[int]) -> Node:
    """Return a node of points whose columns are first mapped by s ← Ms + offset: a − slopes·(x − centre) of actions."""
    matrix = np.eye(columns[1] - columns[0])
    actions, contexts = shear.slopes.shape
    matrix[-actions:, :contexts] = -shear.slopes
    offset = np.concatenate([np.zeros(contexts), shear.slopes @ shear.centre])
    return {
        "kind": "moved",
        "columns": columns,
        "matrix": matrix.tolist(),
        "offset": offset.tolist(),
        "kernel": node,
    }


def _bent(node: Node, bends: Bends, columns: list[int]) -> Node:
    """Return a node of points some columns of which are first mapped by s ← asinh((s − middle)/knee)."""
    return {
        "kind": "bent",
        "columns": columns,
        "bent": (columns[0] + bends.columns).tolist(),
        "middle": bends.middle.tolist(),
        "knee": bends.knee.tolist(),
        "kernel": node,
    }


def _kind(kernel: Stationary) -> str:
    if isinstance(kernel, Matern):
        return "matern 3/2" if kernel.smoothness == 1.5 else "matern 5/2"
    return {Gaussian: "gaussian", Exponential: "exponential"}[type(kernel)]


def _per_column(values: float | FloatArray, count: int) -> list[float]:
    return np.broadcast_to(np.asarray(values, dtype=float), (count,)).tolist()


def _dot(kernel: Polynomial, columns: list[int]) -> Node:
    scale = _per_column(kernel.lengthscale, columns[1] - columns[0])
    centre = [0.0] * len(scale)
    node = {"kind": "dot", "columns": columns, "centre": centre, "scale": scale, "metric": np.eye(len(scale)).tolist()}
    return node | {"offset": kernel.offset, "degree": kernel.degree}


def _same(columns: list[int], scale: list[float], within: float) -> Node:
    return {"kind": "same", "columns": columns, "scale": scale, "within": within}


def _mixed(kernel: Mixed, columns: list[int]) -> Node:
    width = columns[1] - columns[0]
    count = kernel.variables or max(width, 1)
    scale, centre = np.array(_per_column(kernel.scale, width)), _per_column(kernel.centre, width)
    smooth = {
        "kind": "matern 5/2",
        "columns": columns,
        "scale": (scale * kernel.lengthscale * math.sqrt(count)).tolist(),
    }
    linear = {"kind": "dot", "columns": columns, "centre": centre, "scale": scale.tolist(), "offset": 0.0, "degree": 1}
    metric = np.eye(width) / count if kernel.metric is None else kernel.metric
    linear["metric"] = metric.tolist()
    parts: list[Node] = [{"kind": "constant", "value": kernel.bias}]
    weighted = [(kernel.linear, linear), (kernel.smooth, smooth)]
    if kernel.own:
        weighted.append((kernel.own, _same(columns, scale.tolist(), SAME)))
    for value, part in weighted:
        parts.append({"kind": "product", "parts": [{"kind": "constant", "value": value}, part]})
    return {"kind": "sum", "parts": parts}
