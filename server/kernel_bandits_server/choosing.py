"""The seam to the policy: what the service asks of it, and the randomness that is not part of the model.

The coins of a decision (ties, exploration, draws) leave no trace in what is learned, since the event names the action
that was chosen. So each process tosses coins of its own, and a saved policy holds them as they were at the beginning.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kernel_bandits import persistence
from kernel_bandits.actions import Box
from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import InputError, KernelBanditsError
from kernel_bandits.policy.policy import Choice, Decision, State
from kernel_bandits.tables import TablePolicy
from kernel_bandits.tables.values import as_plain, nearest, shown

# A policy that raises one of these has changed nothing.
REFUSED = (KernelBanditsError, np.linalg.LinAlgError, ArithmeticError)
# What holds no generator: thousands of numbers are looked at in a moment, thousands of objects are not.
_PLAIN = frozenset({type(None), bool, int, float, str})


class Chosen(NamedTuple):
    """What a policy chose, as JSON has it.

    Attributes:
        action: as it was offered.
        arm: its name; None where actions are described by features alone.
        propensity: the probability with which it was chosen; None if the policy does not choose at random.
        probabilities: of all offered actions, in order; None where the policy does not know them.
        mean: its expected reward.
        std: the posterior standard deviation of its expected reward.
        offered: the number of actions that could have been chosen.
        vector: the encoded context, shape (d_x,), if it is encoded like this for good; None where that is not known.
    """

    action: Any
    arm: Any
    propensity: float | None
    probabilities: list[float] | None
    mean: float
    std: float
    offered: int
    vector: FloatArray | None = None


class Asked(NamedTuple):
    """What a decision is asked for.

    Attributes:
        row: the context.
        offer: actions, None for all known arms, or a box.
        excluded: names of arms that may not be chosen.
    """

    row: Mapping[str, Any]
    offer: Any = None
    excluded: Sequence[Any] = ()


def choose(policy: TablePolicy, asked: Asked) -> Chosen:
    """Choose for a row among an offer, but for the excluded arms; changes nothing that is learned."""
    row, offer, excluded = asked
    if isinstance(offer, Box):
        if excluded:
            raise InputError("excluded: a box has no arms to leave out; offer a smaller box.")
        decision, offered = policy.select(row, offer), 0
    else:
        actions = policy.codec.offered(offer)
        mask = _mask(policy, actions, excluded) if excluded else None
        decision = policy.select(row, actions, mask)
        offered = len(actions) if mask is None else sum(mask)
    return _chosen(decision.encoded, as_plain(decision.action), as_plain(decision.arm), offered)


def _chosen(
    decision: Decision | Choice, action: Any, arm: Any, offered: int, vector: FloatArray | None = None
) -> Chosen:
    propensity = 1.0 if decision.propensity is None and offered == 1 else decision.propensity
    table = None if decision.probabilities is None else decision.probabilities.tolist()
    return Chosen(action, arm, propensity, table, decision.mean, decision.std, offered, vector)


def choose_many(policy: TablePolicy, asked: Sequence[Asked]) -> list[Chosen | KernelBanditsError]:
    """Choose for many rows with one state of the model, those with the same offer by one matrix product.

    One that is refused has its error in its place.
    """
    found: list[Chosen | KernelBanditsError | None] = [None] * len(asked)
    alike: dict[str, list[int]] = {}
    for place, (_, offer, excluded) in enumerate(asked):
        if not excluded and not isinstance(offer, Box):
            alike.setdefault("" if offer is None else repr(offer), []).append(place)
    for places in alike.values():
        if len(places) > 1:
            _choose_alike(policy, asked, places, found)
    return [
        _choose_or_refuse(policy, one) if chosen is None else chosen for one, chosen in zip(asked, found, strict=True)
    ]


def _choose_alike(
    policy: TablePolicy,
    asked: Sequence[Asked],
    places: Sequence[int],
    found: list[Chosen | KernelBanditsError | None],
) -> None:
    """Choose at places that have one offer; those that have to be looked at one by one are left out."""
    table, rows = policy.codec, [asked[place].row for place in places]
    try:
        offered = table.offered(asked[places[0]].offer)
        contexts, settled = table.contexts(rows)
        choices = policy.inner.choices(contexts, table.actions(offered)[0])
    except KernelBanditsError:
        good = [place for place in places if _is_encoded(policy, asked[place].row)]
        if 1 < len(good) < len(places):
            _choose_alike(policy, asked, good, found)
        return
    # as JSON has them, once for all rows
    named = [(as_plain(action), as_plain(table.arm_of(action))) for action in offered]
    for place, choice, vector in zip(places, choices, contexts if settled else repeat(None), strict=False):
        found[place] = _chosen(choice, *named[choice.index], len(offered), vector)


def _is_encoded(policy: TablePolicy, row: Mapping[str, Any]) -> bool:
    try:
        policy.codec.context(row)
    except KernelBanditsError:
        return False
    return True


def _choose_or_refuse(policy: TablePolicy, asked: Asked) -> Chosen | KernelBanditsError:
    try:
        return choose(policy, asked)
    except KernelBanditsError as reason:
        return reason


def _mask(policy: TablePolicy, actions: Sequence[Any], excluded: Sequence[Any]) -> list[bool]:
    names = [policy.codec.arm_of(action) for action in actions]
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


def await_many(
    policy: TablePolicy,
    rows: Sequence[Mapping[str, Any]],
    actions: Sequence[Any],
    vectors: Sequence[FloatArray | None],
) -> list[int | None]:
    """Count actions as played whose rewards arrive later; return their ids, None for one that is refused.

    The vectors are those of :class:`Chosen`. A column is encoded by itself, in whichever company: a replay, which has
    none of them, gives the same bits.
    """
    ids: list[int | None] = []
    if len(rows) > 1:
        first = policy.inner.issued
        try:
            return list(_await_together(policy, rows, actions, vectors))
        except REFUSED:
            # those before the one at fault are awaited; the others are counted one by one
            ids = list(range(first, policy.inner.issued))
    for row, action in zip(rows[len(ids) :], actions[len(ids) :], strict=True):
        try:
            ids.append(policy.ask(row, [action]).id)
        except REFUSED:
            ids.append(None)
    return ids


def _await_together(
    policy: TablePolicy,
    rows: Sequence[Mapping[str, Any]],
    actions: Sequence[Any],
    vectors: Sequence[FloatArray | None],
) -> list[int]:
    known = [vector for vector in vectors if vector is not None]
    if len(known) == len(rows):
        encoded, settled = policy.codec.actions(actions)
        if settled:
            # nothing is left to be learned of how rows and actions are encoded
            return policy.inner.await_many(np.array(known), encoded)
    return policy.await_many(rows, actions)


def tell_many(policy: TablePolicy, ids: Sequence[int], rewards: Sequence[float]) -> list[bool]:
    """Learn rewards of actions that were awaited; return which were learned."""
    return _learn_all(
        policy,
        len(ids),
        lambda: policy.tell_many(ids, rewards),
        lambda place: policy.tell(ids[place], rewards[place]),
    )


def update_many(
    policy: TablePolicy, rows: Sequence[Mapping[str, Any]], actions: Sequence[Any], rewards: Sequence[float]
) -> list[bool]:
    """Learn rewards of actions that were not awaited; return which were learned."""

    def update(place: int) -> None:
        # the model has to depend on the log and on nothing else
        policy.inner.forget_choice()
        policy.update(rows[place], actions[place], rewards[place])

    return _learn_all(policy, len(rows), lambda: policy.update_many(rows, actions, rewards), update)


def _learn_all(
    policy: TablePolicy, count: int, learn_together: Callable[[], None], learn: Callable[[int], None]
) -> list[bool]:
    """Learn some rewards together, or those after one that is refused one by one."""
    learned: list[bool] = []
    if count > 1:
        before = policy.round_index
        try:
            learn_together()
            return [True] * count
        except REFUSED:
            learned = [True] * (policy.round_index - before)
    for place in range(len(learned), count):
        try:
            learn(place)
            learned.append(True)
        except REFUSED:
            learned.append(False)
    return learned


def reseed(policy: TablePolicy) -> None:
    """Give the decisions of a policy fresh coins, independent of those in every other process."""
    for generator in _deciding(policy):
        generator.bit_generator.state = np.random.PCG64(secrets.randbits(128)).state


def to_bytes(policy: TablePolicy, seed: int) -> bytes:
    """Return the file of a policy; it depends on what was learned alone, not on the decisions in between."""
    with _canonical(policy, seed):
        return persistence.to_bytes(policy)


def from_bytes(content: bytes) -> TablePolicy:
    """Return the policy of a file that :func:`to_bytes` returned, with coins of its own."""
    policy = persistence.from_bytes(content, Path("snapshot")).restore()
    if not isinstance(policy, TablePolicy):
        raise InputError(f"load: expected a policy over a table, got {type(policy).__name__}.")
    reseed(policy)
    return policy


@contextmanager
def _canonical(policy: TablePolicy, seed: int) -> Iterator[None]:
    generators = _deciding(policy)
    states = [generator.bit_generator.state for generator in generators]
    policy.inner.forget_choice()
    try:
        for number, generator in enumerate(generators):
            generator.bit_generator.state = np.random.PCG64([seed, number]).state
        yield
    finally:
        for generator, state in zip(generators, states, strict=True):
            generator.bit_generator.state = state


def _deciding(policy: TablePolicy) -> list[np.random.Generator]:
    """Return the generators that belong to the rule; what was learned is a value, coins included."""
    found: dict[int, np.random.Generator] = {}
    waiting: list[Any] = [policy.inner]
    seen: set[int] = set()
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen or isinstance(thing, State):
            continue
        seen.add(id(thing))
        if isinstance(thing, np.random.Generator):
            found[id(thing)] = thing
        elif isinstance(thing, (list, tuple)):
            waiting.extend(one for one in reversed(thing) if type(one) not in _PLAIN)
        elif isinstance(thing, dict):
            waiting.extend(one for one in reversed(thing.values()) if type(one) not in _PLAIN)
        elif type(thing).__module__.startswith("kernel_bandits."):
            waiting.extend(reversed(persistence.state_of(thing).values()))
    return list(found.values())
