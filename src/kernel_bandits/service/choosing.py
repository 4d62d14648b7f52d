"""The seam to the policy: what the service asks of it, and the randomness that is not part of the model.

The coins of a decision (ties, exploration, draws) leave no trace in what is learned, since the event names the action
that was chosen. So each process tosses coins of its own, and a saved policy holds them as they were at the beginning.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kernel_bandits import persistence
from kernel_bandits.actions import Box
from kernel_bandits.errors import InputError
from kernel_bandits.features.values import nearest, shown
from kernel_bandits.policies.decision import NOTHING_CHOSEN
from kernel_bandits.policies.table import TablePolicy
from kernel_bandits.policies.table_records import as_plain


@dataclass(frozen=True, slots=True)
class Chosen:
    """What a policy chose, as JSON has it.

    Attributes:
        action: as it was offered.
        arm: its name; None where actions are described by features alone.
        propensity: the probability with which it was chosen; None if the policy does not choose at random.
        probabilities: of all offered actions, in order; None where the policy does not know them.
        mean: its expected reward.
        std: the posterior standard deviation of its expected reward.
        offered: the number of actions that could have been chosen.
    """

    action: Any
    arm: Any
    propensity: float | None
    probabilities: list[float] | None
    mean: float
    std: float
    offered: int


def choose(policy: TablePolicy, row: Mapping[str, Any], offer: Any, excluded: Sequence[Any]) -> Chosen:
    """Choose for a row among an offer, but for the excluded arms; changes nothing that is learned."""
    if isinstance(offer, Box):
        if excluded:
            raise InputError("excluded: a box has no arms to leave out; offer a smaller box.")
        decision, offered = policy.select(row, offer), 0
    else:
        actions = policy.translator.offered(offer)
        mask = _mask(policy, actions, excluded) if excluded else None
        decision = policy.select(row, actions, mask)
        offered = len(actions) if mask is None else sum(mask)
    probabilities = getattr(decision, "probabilities", None)
    if isinstance(probabilities, Mapping):
        probabilities = list(probabilities.values())
    propensity = decision.propensity
    if propensity is None and offered == 1:
        propensity = 1.0
    return Chosen(
        as_plain(decision.action),
        as_plain(decision.arm),
        propensity,
        None if probabilities is None else [float(one) for one in probabilities],
        decision.mean,
        decision.std,
        offered,
    )


def _mask(policy: TablePolicy, actions: Sequence[Any], excluded: Sequence[Any]) -> list[bool]:
    names = [policy.translator.arm_of(action) for action in actions]
    for name in excluded:
        if name not in names:
            raise InputError(f"excluded: {shown(name)} is not on offer{nearest(name, names)}")
    mask = [name not in excluded for name in names]
    if not any(mask):
        raise InputError("excluded: every action is excluded; leave one to choose.")
    return mask


def as_box(policy: TablePolicy, ranges: Mapping[str, Any]) -> Box:
    """Return a box from a range for each column of the actions."""
    columns = policy.features.actions
    if not isinstance(columns, Mapping):
        raise InputError("box: the actions of this loop are arms; offer their names.")
    if set(ranges) != set(columns):
        raise InputError(f"box: expected a range for each of {', '.join(columns)}, got {', '.join(ranges) or 'none'}.")
    low, high = [], []
    for name in columns:
        pair = ranges[name]
        numbers = isinstance(pair, list) and len(pair) == 2
        if not numbers or any(isinstance(one, bool) or not isinstance(one, (int, float)) for one in pair):
            raise InputError(f"box: expected [low, high] for {name!r}, got {shown(pair)}.")
        low.append(pair[0])
        high.append(pair[1])
    return Box(np.array(low, dtype=float), np.array(high, dtype=float))


def forget_last(policy: TablePolicy) -> None:
    """Drop what the last ``select`` computed.

    An update would use it again, and products with other shapes round differently: the model has to depend on the log
    and on nothing else.
    """
    policy.inner._last = NOTHING_CHOSEN


def reseed(policy: TablePolicy) -> None:
    """Give the decisions of a policy fresh coins, independent of those in every other process."""
    for generator in _deciding(policy):
        generator.bit_generator.state = np.random.PCG64(secrets.randbits(128)).state


def to_bytes(policy: TablePolicy, seed: int) -> bytes:
    """Return the file of a policy; it depends on what was learned alone, not on the decisions in between."""
    with _canonical(policy, seed), tempfile.TemporaryDirectory(prefix="kernel-bandits-") as folder:
        path = Path(folder, "policy")
        policy.save(path)
        return path.read_bytes()


def from_bytes(content: bytes) -> TablePolicy:
    """Return the policy of a file that :func:`to_bytes` returned, with coins of its own."""
    with tempfile.TemporaryDirectory(prefix="kernel-bandits-") as folder:
        path = Path(folder, "policy")
        path.write_bytes(content)
        policy = persistence.read(path).restore()
    if not isinstance(policy, TablePolicy):
        raise InputError(f"load: expected a policy over a table, got {type(policy).__name__}.")
    reseed(policy)
    return policy


@contextmanager
def _canonical(policy: TablePolicy, seed: int) -> Iterator[None]:
    generators = _deciding(policy)
    states = [generator.bit_generator.state for generator in generators]
    last = policy.inner._last
    try:
        policy.inner._last = NOTHING_CHOSEN
        for number, generator in enumerate(generators):
            generator.bit_generator.state = np.random.PCG64([seed, number]).state
        yield
    finally:
        policy.inner._last = last
        for generator, state in zip(generators, states, strict=True):
            generator.bit_generator.state = state


def _deciding(policy: TablePolicy) -> list[np.random.Generator]:
    """Return the generators that belong to the rule, without those of its models."""
    found: dict[int, np.random.Generator] = {}
    models = {id(model) for model in policy.inner.posteriors}
    waiting: list[Any] = [policy.inner]
    seen: set[int] = set()
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen or id(thing) in models:
            continue
        seen.add(id(thing))
        if isinstance(thing, np.random.Generator):
            found[id(thing)] = thing
        elif isinstance(thing, (list, tuple)):
            waiting.extend(reversed(thing))
        elif isinstance(thing, dict):
            waiting.extend(reversed(thing.values()))
        elif type(thing).__module__.startswith("kernel_bandits."):
            waiting.extend(reversed(persistence.attributes(thing).values()))
    return list(found.values())
