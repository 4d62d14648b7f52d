"""The leverage score of KORS, written once for NumPy and JAX arrays, and the check of its accuracy."""

from __future__ import annotations

import math
from typing import Any

from kernel_bandits.errors import InputError


def leverage_score(residual: Any, quadratic_form: Any, regularization: Any, accuracy: Any) -> Any:
    """Return τ = (1 + ε)(k − u)/(k − u + μ), the KORS score of the paper's appendix, in [0, 1 + ε].

    Args:
        residual: k(s, s) − ‖φ‖², the part of the point outside the span of the anchors.
        quadratic_form: φᵀQφ with Q = (μI + Σ φ(z)φ(z)ᵀ/p_z)⁻¹.
        regularization: μ.
        accuracy: ε.
    """
    # k − u = residual + μ·φᵀQφ
    unexplained = residual + regularization * quadratic_form
    return (1.0 + accuracy) * unexplained / (unexplained + regularization)


def as_accuracy(value: float) -> float:
    """Return the ε of the score as a finite float of at least 0."""
    accuracy = float(value)
    if not (math.isfinite(accuracy) and accuracy >= 0):
        raise InputError(f"leverage_accuracy: expected a finite number of at least 0, got {value!r}.")
    return accuracy
