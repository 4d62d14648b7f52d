"""A kernel model of the rewards of a log, cross-fitted: no round is predicted by a model that has learned it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernel_bandits.arrays import FloatArray, as_count
from kernel_bandits.dictionaries import Kors
from kernel_bandits.errors import InputError
from kernel_bandits.kernels import KernelLike
from kernel_bandits.policy import UpperConfidenceBound
from kernel_bandits.posterior.base import Posterior
from kernel_bandits.presets import ek_ucb

# Points predicted at once.
ROWS_AT_ONCE = 8192


@dataclass(frozen=True)
class RewardModel:
    """Kernel ridge regression on (context, action), as EK-UCB learns it.

    Args:
        kernel: of joint points; None for one that is learned.
        regularization: λ; learned too if the kernel is.
        folds: K; the rounds of a fold are predicted by a model of the K − 1 others.
        most_rows: a model learns a sample of at most this many rounds.
        most_anchors: with a given kernel, a model has at most this many anchors.
        seed: of folds and samples.
    """

    kernel: KernelLike | None = None
    regularization: float = 0.1
    folds: int = 3
    most_rows: int = 5_000
    most_anchors: int = 500
    seed: int = 0

    def __post_init__(self) -> None:
        if as_count("folds", self.folds) < 2:
            raise InputError(f"folds: expected at least 2, got {self.folds}.")
        as_count("most_rows", self.most_rows)
        as_count("most_anchors", self.most_anchors)

    def fit(self, contexts: FloatArray, actions: FloatArray, rewards: FloatArray) -> CrossFit:
        """Learn one model for each fold of a log: contexts (n, d_x), actions that were played (n, d_a), rewards."""
        count = len(rewards)
        if count < 2 * self.folds:
            raise InputError(f"log: expected at least {2 * self.folds} rows for {self.folds} folds, got {count}.")
        generator = np.random.default_rng(self.seed)
        folds = generator.permutation(np.arange(count) % self.folds)
        models = []
        for fold in range(self.folds):
            rows = np.flatnonzero(folds != fold)
            if len(rows) > self.most_rows:
                rows = np.sort(generator.choice(rows, self.most_rows, replace=False))
            policy = self._policy()
            policy.update_many(contexts[rows], actions[rows], rewards[rows])
            models.append(policy.posterior)
        return CrossFit(tuple(models), folds)

    def _policy(self) -> UpperConfidenceBound:
        # where most points are far from each other, anchors would be as many as rounds, at a cost of n³
        limit: dict[str, Any] = {} if self.kernel is None else {"dictionary": Kors(max_size=self.most_anchors)}
        return ek_ucb(self.kernel, regularization=self.regularization, seed=self.seed, **limit)


@dataclass(frozen=True)
class CrossFit:
    """The models of a log, and the fold of each of its rounds, shape (n,)."""

    models: tuple[Posterior, ...]
    folds: NDArray[np.intp]

    def predict(self, points: FloatArray, rounds: NDArray[np.intp]) -> FloatArray:
        """Return the predicted rewards at points (k, d) of rounds (k,), by models that did not learn these rounds."""
        folds, predicted = self.folds[rounds], np.empty(len(points))
        for fold, model in enumerate(self.models):
            for part in _parts(np.flatnonzero(folds == fold)):
                predicted[part] = model.means(points[part])
        return predicted


def _parts(rows: NDArray[np.intp]) -> Iterator[NDArray[np.intp]]:
    for start in range(0, len(rows), ROWS_AT_ONCE):
        yield rows[start : start + ROWS_AT_ONCE]
