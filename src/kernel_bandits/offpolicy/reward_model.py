"""A kernel model of the rewards of a log: no round is predicted by a model that has learned it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernel_bandits.arrays import FloatArray, as_count
from kernel_bandits.dictionaries import Kors
from kernel_bandits.errors import InputError
from kernel_bandits.kernels import KernelLike
from kernel_bandits.logs.log import ContinuousLog, Log
from kernel_bandits.logs.parts import LogParts
from kernel_bandits.policy.policy import Policy
from kernel_bandits.presets import ek_ucb
from kernel_bandits.tables.policy import TablePolicy

# Points predicted at once.
ROWS_AT_ONCE = 8192
# A model of earlier rounds has learned at least this many, and is fitted again when there are twice as many.
FIRST_ROWS = 50
# How a log was written: by a rule that stays as it is, or by a policy that learned meanwhile. A fold of a fixed log is
# predicted by a model of the others, a round of one that was learned by a model of earlier rounds.
Written: TypeAlias = Literal["fixed", "learning"]


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

    def fit(self, log: Log | LogParts | ContinuousLog, written_by: Written = "fixed") -> CrossFit:
        """Learn models of a log, each of rounds that it does not predict.

        Args:
            log: to be learned.
            written_by: ``"fixed"`` for folds drawn at random; ``"learning"`` for models of the rounds before a round
                alone, which an interval that is valid at all times needs, too.
        """
        fresh = self.policy(log)
        folds, others = cross_fitted(len(log), self.folds, self.most_rows, self.seed, written_by)
        models = tuple(None if not len(rows) else log.rows(rows).taught(fresh) for rows in others)
        return CrossFit(models, folds, written_by)

    def policy(self, log: Log | LogParts | ContinuousLog) -> Policy:
        """Return what learns: a policy over the log's table, or over arrays."""
        # where most points are far from each other, anchors would be as many as rounds, at a cost of n³
        options: dict[str, Any] = {} if self.kernel is None else {"dictionary": Kors(max_size=self.most_anchors)}
        features = getattr(log, "features", None)
        if features is not None:
            options["features"] = features
        return ek_ucb(self.kernel, regularization=self.regularization, seed=self.seed, **options)


def cross_fitted(
    count: int, folds: int, most_rows: int, seed: int, written_by: Written
) -> tuple[NDArray[np.intp], list[NDArray[np.intp]]]:
    """Return the fold of each of n rounds, and for each fold the rounds that its model learns."""
    if written_by not in ("fixed", "learning"):
        raise InputError(f"written_by: expected 'fixed' or 'learning', got {written_by!r}.")
    if count < 2 * folds:
        raise InputError(f"log: expected at least {2 * folds} rows for {folds} folds, got {count}.")
    generator = np.random.default_rng(seed)
    if written_by == "fixed":
        drawn = generator.permutation(np.arange(count) % folds)
        others = [np.flatnonzero(drawn != fold) for fold in range(folds)]
    else:
        ends = [0, *(FIRST_ROWS * 2**power for power in range(64) if FIRST_ROWS * 2**power < count)]
        drawn = np.searchsorted(ends, np.arange(count), side="right") - 1
        others = [np.arange(end) for end in ends]
    limited = [
        rows if len(rows) <= most_rows else np.sort(generator.choice(rows, most_rows, replace=False)) for rows in others
    ]
    return drawn.astype(np.intp), limited


@dataclass(frozen=True)
class CrossFit:
    """The models of a log, and the fold of each of its rounds, shape (n,); without a model, rewards are NaN."""

    models: tuple[Policy | None, ...]
    folds: NDArray[np.intp]
    written_by: Written = "fixed"

    def rows(self, chosen: slice) -> CrossFit:
        """Return the models of some of the rounds."""
        return replace(self, folds=self.folds[chosen])

    def predict(self, log: Log, needed: NDArray[np.bool_]) -> FloatArray:
        """Return the predicted rewards of needed actions in every round of a log, shape (n, A); 0 for the others."""
        rewards = np.zeros(needed.shape)
        for fold, model in enumerate(self.models):
            rounds = np.flatnonzero(self.folds == fold)
            if not len(rounds):
                continue
            each, chosen = np.nonzero(needed[rounds])
            if model is None:
                rewards[rounds[each], chosen] = np.nan
                continue
            contexts, actions = encoded(model, log, rounds)
            found = [
                model.posteriors[0].means(np.hstack([contexts[each[part]], actions[chosen[part]]]))
                for part in _parts(len(each))
            ]
            rewards[rounds[each], chosen] = np.concatenate([np.empty(0), *found])
        return rewards

    def predict_points(self, points: FloatArray) -> FloatArray:
        """Return the predicted reward at one point (n, d) in every round."""
        rewards = np.full(len(points), np.nan)
        for fold, model in enumerate(self.models):
            rounds = np.flatnonzero(self.folds == fold)
            if model is not None and len(rounds):
                means = [model.posterior.means(points[rounds[part]]) for part in _parts(len(rounds))]
                rewards[rounds] = np.concatenate(means)
        return rewards


@dataclass(frozen=True)
class EarlierMean:
    """The mean reward of earlier rounds as a prediction for every action, shape (n,)."""

    means: FloatArray

    @classmethod
    def of(cls, rewards: FloatArray, first: float) -> EarlierMean:
        """Return the mean of ``first`` and all rewards before each round."""
        return cls((first + np.cumsum(rewards) - rewards) / np.arange(1, len(rewards) + 1))

    def rows(self, chosen: slice) -> EarlierMean:
        """Return the predictions of some of the rounds."""
        return EarlierMean(self.means[chosen])

    def predict(self, log: Log, needed: NDArray[np.bool_]) -> FloatArray:
        """Return the prediction of every action in every round of a log, shape (n, A)."""
        del log  # the mean depends on nothing else
        return np.broadcast_to(self.means[:, None], needed.shape)


def encoded(model: Policy, log: Log, rounds: NDArray[np.intp]) -> tuple[FloatArray, FloatArray]:
    """Return contexts (k, d_x) of some rounds and the catalogue (A, d_a) as a model has them."""
    contexts, actions = log.seen_by(model, rounds)
    if not isinstance(model, TablePolicy):
        return contexts, actions
    return model.codec.rows.encode(contexts, "contexts"), model.codec.choices.encode(actions, "actions")


def _parts(count: int) -> list[slice]:
    return [slice(start, start + ROWS_AT_ONCE) for start in range(0, count, ROWS_AT_ONCE)]
