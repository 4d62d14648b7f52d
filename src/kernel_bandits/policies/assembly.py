"""The posteriors behind the presets: of a kernel as it is, or of one that is learned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernel_bandits.arrays import as_positive
from kernel_bandits.dictionaries import DictionaryRule
from kernel_bandits.errors import InputError
from kernel_bandits.kernels import KernelLike, PerArm
from kernel_bandits.learning import KernelLearning
from kernel_bandits.learning.columns import Columns
from kernel_bandits.learning.units import RewardModel
from kernel_bandits.posteriors import ExactPosterior, LearnedPosterior, NystromPosterior, Posterior, SplitPosterior
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
        """The same, with this many anchors at most unless the rule has a cap of its own."""
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


def posterior_of(
    kernel: KernelLike | None,
    regularization: float,
    learning: KernelLearning | None,
    posteriors: Posteriors,
    seed: Seed,
) -> Posterior[Any]:
    """The posterior of a kernel as it is, or one that learns it."""
    as_positive("regularization", regularization)
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
