"""Our policies in river's bandit evaluations."""

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kernel_bandits.arrays import FloatArray, as_vector
from kernel_bandits.errors import InputError, needs
from kernel_bandits.policy.policy import Policy

with needs("river", "kernel-bandits[river]"):
    from river.bandit.base import ArmID, ContextualPolicy


class KernelBandit(ContextualPolicy):
    """A policy as a river bandit policy: it pulls arms that are described by features.

    ``river.bandit.evaluate`` passes no context, so there the policy learns from the features of the arms alone;
    ``river.bandit.evaluate_offline`` passes contexts: dictionaries of numbers with the same keys every time.

    Args:
        policy: is copied; the copy learns, and every clone that river makes starts from the original again.
        actions: the features of each arm, shape (d_a,): a mapping by arm, or an array with a row for arms 0, 1, ….
        reward_obj: the statistic that river keeps per arm for its ranking; by default a mean.
        burn_in: the number of pulls of each arm before the policy decides.
    """

    def __init__(
        self, policy: Policy, actions: Mapping[ArmID, ArrayLike] | ArrayLike, reward_obj: Any = None, burn_in: int = 0
    ) -> None:
        super().__init__(reward_obj=reward_obj, burn_in=burn_in)
        self.policy: Policy = policy
        self.actions = actions
        self._learner = copy.deepcopy(policy)
        self._names: list[Any] | None = None

    def _pull(self, arm_ids: list[ArmID], context: Mapping[Any, float] | None = None) -> ArmID:
        offered = np.array([self._features(arm) for arm in arm_ids])
        return arm_ids[self._learner.select(self._vector(context), offered).index]

    def update(self, arm_id: ArmID, *context_and_reward: Any) -> None:
        """Learn the reward of an arm: ``update(arm, reward)``, or ``update(arm, context, reward)``."""
        *contexts, reward = context_and_reward
        context = contexts[0] if contexts else None
        self._learner.update(self._vector(context), self._features(arm_id), reward)
        if self._names is None and context is not None:
            self._names = sorted(context)
        super().update(arm_id, context, reward)  # type: ignore[no-untyped-call] # river leaves it untyped

    def _features(self, arm: ArmID) -> FloatArray:
        try:
            return as_vector("actions", self.actions[arm])  # type: ignore[index] # a mapping or an array
        except LookupError as reason:
            raise InputError(f"actions: expected the features of every arm, got none for {arm!r}.") from reason

    def _vector(self, context: Mapping[Any, float] | None) -> FloatArray:
        """Return the values of a context in the order of its names, which must be those of the first one learned."""
        if context is None:
            return np.empty(0)
        if self._names is not None and set(self._names) != set(context):
            raise InputError(f"context: expected the keys {self._names}, as before, got {sorted(context)}.")
        return as_vector("context", [context[name] for name in sorted(context)])
