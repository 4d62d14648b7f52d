"""Loading a policy from its file."""

import math
import os
from typing import Any

import numpy as np

from kernel_bandits import persistence
from kernel_bandits.errors import InputError
from kernel_bandits.policy.policy import Decision, Policy
from kernel_bandits.rng import Seed


def load(path: str | os.PathLike[str], *, seed: Seed = None) -> Policy:
    """Read a policy that :meth:`Policy.save` wrote; it continues as if it had never stopped.

    A file that is truncated, damaged, foreign, or of another format is an :class:`InputError`, and so is one whose
    policy cannot play: a round or two are played on a copy first.

    Args:
        path: of the file.
        seed: of new random streams, as :meth:`Policy.reseed` sets them; by default the saved ones continue. Processes
            that load the same file need different seeds: with the saved streams all of them explore identically.
    """
    content = persistence.read(path)
    _require_working(persistence.from_bytes(content, path), path)
    policy: Policy = persistence.from_bytes(content, path)
    if seed is not None:
        policy.reseed(seed)
    return policy


def _require_working(policy: Any, path: str | os.PathLike[str]) -> None:
    """Raise unless the object is a policy that predicts, decides and learns; it is used up."""
    if not isinstance(policy, Policy):
        raise InputError(f"load: {path} holds {type(policy).__name__}, not a policy; restore an intact copy.")
    try:
        # a policy over a table has the one over arrays inside
        _play_a_round(getattr(policy, "inner", policy))
    except Exception as reason:
        raise InputError(
            f"load: {path} holds a policy that cannot play a round ({type(reason).__name__}: {reason}); "
            "restore an intact copy."
        ) from reason


@np.errstate(all="ignore")
def _play_a_round(policy: Policy) -> None:
    """Decide and learn at points that the policy knows, expire a pending decision and tell another."""
    columns, action_columns = policy.dimensions
    if policy.round_index < 0 or policy.dictionary_size < 0:
        raise InputError("the number of rounds or of anchors is negative")
    if not isinstance(policy.generator, np.random.Generator):
        raise InputError(f"its generator is {type(policy.generator).__name__}")
    if columns is None:
        return
    outputs: dict[str, float] | None = None
    if policy.guards is not None:
        # the copy is used up: what is not known to be safe is played in it alone
        policy.guards.if_unsafe, outputs = "flag", {}
    # the kernel is known to work at anchors, or at the origin where there are none
    anchors = [points for each in policy.posteriors if len(points := each.dictionary_points)]
    for point in anchors[0][[0, -1]] if anchors else np.zeros((1, columns + int(action_columns or 0))):
        if not 0 <= columns < len(point):
            raise InputError(f"{columns} context columns in points of {len(point)}")
        context, actions, rounds = point[:columns], point[None, columns:], policy.round_index
        decision = policy.select(context, actions)
        _require_sound(decision)
        policy.update(context, decision.action, decision.mean, outputs=outputs)
        if policy.round_index != rounds + 1:
            raise InputError("an update does not count as a round")
        _require_sound(policy.ask(context, actions))
        policy.expire(policy.pending[0])
    if policy.pending:
        policy.tell(policy.pending[0], decision.mean, outputs=outputs)


def _require_sound(decision: Decision) -> None:
    mean, std, upper_bound = decision.mean, decision.std, decision.upper_bound
    if not all(map(math.isfinite, (mean, std, upper_bound))) or std < 0:
        raise InputError(f"it predicts {mean} with standard deviation {std} and upper bound {upper_bound}")
