"""The posteriors behind the presets: of a kernel as it is, or of one that is learned."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kernel_bandits.arrays import as_positive
from kernel_bandits.dictionaries import DictionaryRule
from kernel_bandits.errors import InputError
from kernel_bandits.kernels import KernelLike, PerArm
from kernel_bandits.kernels.timed import Timed
from kernel_bandits.learning import KernelLearning
from kernel_bandits.learning.columns import Columns
from kernel_bandits.learning.units import RewardModel
from kernel_bandits.policies.box_design import BoxDesign
from kernel_bandits.posteriors import ExactPosterior, LearnedPosterior, NystromPosterior, Posterior, SplitPosterior
from kernel_bandits.posteriors.drift import Forgetting, ForgettingPosterior, require_forgetting
from kernel_bandits.posteriors.learners import Learner, MixedLearner, StationaryLearner
from kernel_bandits.rng import Seed, seed_of

# Anchors where nothing is set, at most: per arm, and for all actions together where they are described.
ARM_ANCHORS, JOINT_ANCHORS = 150, 400


@dataclass(frozen=True)
class Posteriors:
    """Builds posteriors of one kind; those with a dictionary have coins of their own for each number, if one is given.

    Attributes:
        rule: of the dictionary; None for exact posteriors.
        seed: of the coins.
    """

    rule: DictionaryRule | None
    seed: np.random.SeedSequence

    def __call__(self, kernel: KernelLike, regularization: float, number: int | None = None) -> Posterior[Any]:
        if self.rule is None:
            return ExactPosterior(kernel, regularization)
        own = () if number is None else (number,)
        coins = np.random.default_rng(np.random.SeedSequence(self.seed.entropy, spawn_key=(*self.seed.spawn_key, *own)))
        return NystromPosterior(kernel, regularization, self.rule, coins)

    def capped(self, size: int) -> Posteriors:
        """Return the same, with this many anchors at most unless the rule has a cap of its own."""
        return self if self.rule is None else Posteriors(self.rule.capped(size), self.seed)


def when_learned(kernel: KernelLike | None, learn_kernel: bool | KernelLearning | None) -> KernelLearning | None:
    """When the kernel is learned, or None where it stays as it is given."""
    if learn_kernel is None:
        learn_kernel = kernel is None
    if learn_kernel is False:
        if kernel is None:
            raise InputError("kernel: without one it has to be learned; leave learn_kernel out, or give a kernel.")
        return None
    if learn_kernel is not True and not isinstance(learn_kernel, KernelLearning):
        raise InputError(f"learn_kernel: expected True, False or a KernelLearning, got {learn_kernel!r}.")
    return KernelLearning() if learn_kernel is True else learn_kernel


@dataclass(frozen=True)
class _Renewals:
    """Builds the posteriors that follow each other as observations are forgotten."""

    kernel: KernelLike
    regularization: float
    posteriors: Posteriors

    def __call__(self, number: int, before: Posterior[Any] | None) -> Posterior[Any]:
        del before  # the kernel is given
        if isinstance(self.kernel, PerArm):
            return SplitPosterior(self.kernel, self.regularization, self.posteriors)
        return self.posteriors(self.kernel, self.regularization, number)


@dataclass(frozen=True)
class _LearnedRenewals:
    """The same for a kernel that is learned, always from what is left."""

    learner: Learner[Any]
    learning: KernelLearning
    seed: np.random.SeedSequence

    def __call__(self, number: int, before: Posterior[Any] | None) -> Posterior[Any]:
        del number  # the sample is drawn by the number of observations
        # what the columns and the box are is known to the learner of the posterior before
        learner = before.learner if isinstance(before, LearnedPosterior) else self.learner
        # what forgets has a test of its own, or none
        return LearnedPosterior(copy.copy(learner), replace(self.learning, fall_back=False), self.seed)


def posterior_of(
    kernel: KernelLike | None,
    regularization: float,
    learning: KernelLearning | None,
    posteriors: Posteriors,
    seed: Seed,
    forgetting: Forgetting | None = None,
) -> Posterior[Any]:
    """Return the posterior of a kernel as it is, or one that learns it; with ``forgetting`` one that forgets."""
    as_positive("regularization", regularization)
    if forgetting is not None:
        return _forgetting(kernel, regularization, learning, posteriors, seed, require_forgetting(forgetting))
    if kernel is None:
        assert learning is not None
        learner: Learner[Any] = MixedLearner(
            posteriors.capped(JOINT_ANCHORS), posteriors.capped(ARM_ANCHORS), Columns(variables=learning.groups)
        )
        return LearnedPosterior(learner, learning, seed_of(seed, "learning"))
    if learning is None:
        if isinstance(kernel, PerArm):
            return SplitPosterior(kernel, regularization, posteriors)
        return posteriors(kernel, regularization)
    start = RewardModel.of(kernel, regularization)
    return LearnedPosterior(StationaryLearner(posteriors, start, learning), learning, seed_of(seed, "learning"))


def _forgetting(
    kernel: KernelLike | None,
    regularization: float,
    learning: KernelLearning | None,
    posteriors: Posteriors,
    seed: Seed,
    forgetting: Forgetting,
) -> Posterior[Any]:
    half_life = forgetting.time_half_life
    if learning is None:
        assert kernel is not None
        timed = kernel if half_life is None else Timed(kernel, half_life)
        return ForgettingPosterior(_Renewals(timed, regularization, posteriors), forgetting)
    if half_life is not None:
        raise InputError(
            "forgetting: a kernel in time needs a kernel that is given and fixed; pass one, or another rule."
        )
    plain = posterior_of(kernel, regularization, learning, posteriors, seed)
    assert isinstance(plain, LearnedPosterior)
    return ForgettingPosterior(_LearnedRenewals(plain.learner, learning, seed_of(seed, "learning")), forgetting)


def design_of(kernel: KernelLike | None, seed: Seed) -> BoxDesign | None:
    """The first actions in boxes, where nothing is known of the rewards."""
    return BoxDesign(seed_of(seed, "design")) if kernel is None else None
