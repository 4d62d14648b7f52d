"""Our policies as learners of coba's experiments."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kernel_bandits.arrays import FloatArray, as_floats, as_vector
from kernel_bandits.errors import InputError, needs
from kernel_bandits.policy.policy import Policy

with needs("coba", "kernel-bandits[coba]"):
    from coba.primitives import Learner


class KernelBanditLearner(Learner):  # type: ignore[misc] # coba has no types
    """A policy as a coba learner: it chooses by the features of the actions and learns from the reward.

    Contexts and actions are numbers or sequences of numbers; a context of None is an empty one. coba encodes
    its categorical values before a learner sees them. The probability that coba records is the propensity of the
    decision, None if the policy does not choose at random; coba's ``score`` is not offered.

    Args:
        policy: an experiment with several environments gives each a copy of it.
        name: shown in coba's tables and plots; by default the class of the policy.
    """

    def __init__(self, policy: Policy, name: str | None = None) -> None:
        self.policy: Policy = policy
        self.name: str = type(policy).__name__ if name is None else name

    @property
    def params(self) -> Mapping[str, Any]:
        """The columns of coba's learner table."""
        return {"family": self.name}

    def predict(self, context: Any, actions: Sequence[Any]) -> tuple[Any, float | None]:
        """Return the chosen action, one of the objects in ``actions``, and its propensity."""
        described = [_features("action", action) for action in actions]
        if len({len(row) for row in described}) > 1:
            raise InputError("actions: expected as many numbers for each action, got different ones.")
        decision = self.policy.select(_features("context", context), described)
        return actions[decision.index], decision.propensity

    def learn(self, context: Any, action: Any, reward: float, probability: float | None) -> None:  # noqa: ARG002
        """Learn a reward; the probability is not used, since a posterior needs no weights."""
        self.policy.update(_features("context", context), _features("action", action), reward)


def _features(name: str, value: Any) -> FloatArray:
    """Return a context or an action of coba as a vector."""
    if value is None:
        return np.empty(0)
    if isinstance(value, Mapping):
        raise InputError(
            f"{name}: expected numbers, got sparse features; make them dense with coba's Environments.dense(…)."
        )
    return as_vector(name, np.atleast_1d(as_floats(name, value)))
