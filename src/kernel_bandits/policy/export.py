"""Mean and standard deviation as a function of the point, in a JSON file that a few lines of any language evaluate."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
from scipy.linalg import solve_triangular

from kernel_bandits import persistence
from kernel_bandits.boxes.constraints import Guards
from kernel_bandits.errors import InputError, UnavailableError
from kernel_bandits.kernels.base import with_defaults
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
    guards: Guards | None = None,
) -> None:
    """Write mean and standard deviation of a posterior as a function of the joint point to a JSON file, atomically.

    The variables say how the columns of a table are encoded, where there is one. Guards have a surface of their own for
    each output.
    """
    surface = described(posterior, columns) | ({} if variables is None else {"variables": variables})
    if guards is not None:
        surface["outputs"] = {name: _limited(guards, name, columns) for name in guards.constraints}
    persistence.write(json.dumps(surface, allow_nan=False).encode(), path, "export")


def _limited(guards: Guards, name: str, columns: Sequence[str] | None) -> Node:
    """Return the surface of an output, and where it may lie: mean ± deviations·std within the limit."""
    one, posterior = guards.constraints[name], guards.posteriors[name]
    if not len(posterior.dictionary_points):
        raise UnavailableError(f"export: {name} was never measured; pass outputs= with rewards first.")
    limit = {"limit": one.limit, "side": type(one).__name__.lower(), "deviations": one.deviations}
    return described(posterior, columns) | {"prior_mean": one.offset} | limit


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
    dimension = anchors.shape[1]
    if columns is not None:
        names = list(columns) if isinstance(columns, Iterable) and not isinstance(columns, str) else []
        if len(names) != dimension or not all(isinstance(name, str) for name in names):
            raise InputError(f"columns: expected {dimension} names, context columns first, got {columns!r}.")
    kernel = with_defaults(posterior.kernel).portable(0, dimension)
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
        "J": np.tril(basis.whitening.upper.T).tolist(),
        "w": weights.tolist(),
        "Q": (0.5 * (spread + spread.T)).tolist(),
    }
