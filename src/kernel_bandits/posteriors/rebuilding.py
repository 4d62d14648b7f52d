"""How a learned posterior is rebuilt from its history when its model changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kernel_bandits.arrays import FloatArray
from kernel_bandits.kernels import KernelLike
from kernel_bandits.learning.defaults import UNKNOWN_NOISE
from kernel_bandits.posteriors.base import Posterior
from kernel_bandits.posteriors.learners import Refit


def sampler(seed: np.random.SeedSequence, number: int) -> np.random.Generator:
    """Return what draws the sample of a fit after this number of observations."""
    return np.random.default_rng(np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, number)))


def model_of(refit: Refit[Any] | None) -> tuple[KernelLike | None, float]:
    """Return kernel and λ of a model; None and that of unknown rewards where nothing is known."""
    return (None, UNKNOWN_NOISE) if refit is None else (refit.kernel, refit.regularization)


def rebuild(
    posterior: Posterior[Any],
    refit: Refit[Any] | None,
    points: FloatArray,
    centred: FloatArray,
    weights: FloatArray | None,
    anchors: FloatArray,
    awaited: Mapping[int, FloatArray],
) -> None:
    """Let a fresh posterior of a model learn all observations.

    Args:
        posterior: the fresh one.
        refit: the model; None where nothing is known.
        points: all that were observed, shape (t, d).
        centred: their rewards in units of the model, less its mean, shape (t,).
        weights: of them, shape (t,); None for 1 each. The kernel was learned without them: they change what is known
            of f, not how rough it is.
        anchors: points to choose anchors from besides the sample, such as those before, shape (m, d).
        awaited: points whose reward is to come, by key.
    """
    candidates = anchors if refit is None else refit.sample
    if len(candidates) < len(points) or awaited:
        # what anchors stand for is to be explained too, whether or not it was sampled
        candidates = _candidates(candidates, anchors.reshape(-1, points.shape[1]), list(awaited.values()))
    posterior.learn_history(points, centred, candidates, weights)
    if awaited:
        posterior.anticipate_all(awaited)


def _candidates(sample: FloatArray, anchors: FloatArray, awaited: list[FloatArray]) -> FloatArray:
    """Return what anchors are chosen from; of the points whose reward is to come, as many at most as were sampled."""
    some = awaited[:: -(-len(awaited) // len(sample)) or 1]
    return np.unique(np.concatenate([sample, anchors, np.reshape(some, (-1, sample.shape[1]))]), axis=0)
