"""The paper's formulas computed densely, from scratch and in extended precision, to check the library against."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

EXTENDED = np.longdouble


class Dense(NamedTuple):
    mean: np.ndarray
    std: np.ndarray
    log_determinant: float
    inverse_trace: float
    residual_trace: float


def cholesky(matrix):
    matrix = np.asarray(matrix, dtype=EXTENDED)
    factor = np.zeros_like(matrix)
    for j in range(len(matrix)):
        column = matrix[j:, j] - factor[j:, :j] @ factor[j, :j]
        factor[j:, j] = column / np.sqrt(column[0])
    return factor


def solve_lower(factor, right):
    right = np.asarray(right, dtype=EXTENDED)
    solution = np.zeros_like(right)
    for i in range(len(factor)):
        solution[i] = (right[i] - factor[i, :i] @ solution[:i]) / factor[i, i]
    return solution


def _ridge(features, residuals, rewards, regularization, query_features, query_residuals):
    """Ridge regression on explicit features (columns), with the paper's σ̃² = residual/λ + φᵀA⁻¹φ."""
    size = len(features)
    factor = cholesky(regularization * np.eye(size, dtype=EXTENDED) + features @ features.T)
    whitened_queries = solve_lower(factor, query_features)
    mean = whitened_queries.T @ solve_lower(factor, features @ np.asarray(rewards, dtype=EXTENDED))
    variance = np.maximum(query_residuals, 0) / regularization + (whitened_queries**2).sum(axis=0)
    inverse_factor = solve_lower(factor, np.eye(size, dtype=EXTENDED))
    return Dense(
        mean.astype(float),
        np.sqrt(regularization * variance).astype(float),
        float(2 * np.log(np.diag(factor)).sum() - size * np.log(EXTENDED(regularization))),
        float((inverse_factor**2).sum()),
        float(np.maximum(residuals, 0).sum()),
    )


def nystrom(kernel, anchors, points, rewards, regularization, queries):
    """Proposition 4.2 in an orthonormal basis of the span of the anchors."""
    factor = cholesky(kernel(anchors, anchors))
    features, query_features = (
        solve_lower(factor, kernel(anchors, points)),
        solve_lower(factor, kernel(anchors, queries)),
    )
    residuals = kernel.diag(points) - (features**2).sum(axis=0)
    query_residuals = kernel.diag(queries) - (query_features**2).sum(axis=0)
    return _ridge(features, residuals, rewards, regularization, query_features, query_residuals)


def history_free(kernel, anchors, anchor_rounds, points, rewards, regularization, queries):
    """W̃ in the proof of Theorem 4.1: point t is projected on the anchors that stood after round t only."""
    factor = cholesky(kernel(anchors, anchors))
    features, query_features = (
        solve_lower(factor, kernel(anchors, points)),
        solve_lower(factor, kernel(anchors, queries)),
    )
    features[np.asarray(anchor_rounds)[:, None] > np.arange(len(points))[None, :]] = 0
    residuals = kernel.diag(points) - (features**2).sum(axis=0)
    query_residuals = kernel.diag(queries) - (query_features**2).sum(axis=0)
    return _ridge(features, residuals, rewards, regularization, query_features, query_residuals)


def exact(kernel, points, rewards, regularization, queries):
    """The K-UCB appendix: mean k_Sᵀ(K + λI)⁻¹y and variance k − k_Sᵀ(K + λI)⁻¹k_S."""
    size = len(points)
    factor = cholesky(kernel(points, points) + regularization * np.eye(size))
    whitened = solve_lower(factor, kernel(points, queries))
    inverse_factor = solve_lower(factor, np.eye(size))
    return Dense(
        (whitened.T @ solve_lower(factor, rewards)).astype(float),
        np.sqrt(np.maximum(kernel.diag(queries) - (whitened**2).sum(axis=0), 0)).astype(float),
        float(2 * np.log(np.diag(factor)).sum() - size * np.log(EXTENDED(regularization))),
        float((inverse_factor**2).sum()),
        0.0,
    )


def kors_score(kernel, anchors, probabilities, point, leverage_regularization, leverage_accuracy):
    """The appendix's τ̃ with the dictionary augmented by the point itself at weight 1, as printed."""
    augmented = np.vstack([anchors, point])
    selection = np.diag(1 / np.sqrt(np.append(probabilities, 1.0)))
    column = kernel(augmented, point[None, :])[:, 0]
    gram = selection.T @ kernel(augmented, augmented) @ selection
    inverse = np.linalg.inv(gram + leverage_regularization * np.eye(len(augmented)))
    explained = column @ selection @ inverse @ selection.T @ column
    own = kernel.diag(point[None, :])[0]
    return (1 + leverage_accuracy) / leverage_regularization * (own - explained)
