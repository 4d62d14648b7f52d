"""What the service asks of a policy: choices for many rows, and what came of them.

The coins of a decision (ties, exploration, draws) leave no trace in what is learned, since the event names the action
that was chosen. So each process tosses coins of its own, and a saved policy holds them as they were at the beginning.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from kernel_bandits import persistence
from kernel_bandits.actions import Box
from kernel_bandits.errors import InputError, KernelBanditsError
from kernel_bandits.policy.policy import Choice
from kernel_bandits.tables import NamedDecision, TablePolicy
from kernel_bandits.tables.arms import ARM
from kernel_bandits.tables.values import as_plain, nearest, shown

# A policy that raises one of these has changed nothing.
REFUSED = (KernelBanditsError, np.linalg.LinAlgError, ArithmeticError)


class Chosen(NamedTuple):
    """What a policy chose, as JSON has it.

    Attributes:
        place: its place among the offered actions; −1 in a box.
        action: as it was offered.
        probabilities: of all offered actions, in order; None where the policy does not know them.
        mean: its expected reward.
        std: the posterior standard deviation of its expected reward.
        offered: the number of actions that could have been chosen; 0 for a box.
    """

    place: int
    action: Any
    probabilities: list[float] | None
    mean: float
    std: float
    offered: int


class Asked(NamedTuple):
    """What a decision is asked for.

    Attributes:
        row: the context.
        offer: actions, or a box.
        excluded: names of arms that may not be chosen.
    """

    row: Mapping[str, Any]
    offer: Any
    excluded: Sequence[Any] = ()


def arm_of(action: Any) -> Any:
    """Return the name of an action's arm; None for a row of features without one."""
    return action.get(ARM) if isinstance(action, dict) else action


def choose(policy: TablePolicy, asked: Asked) -> Chosen:
    """Choose for a row among an offer, but for the excluded arms; changes nothing that is learned."""
    row, offer, excluded = asked
    if isinstance(offer, Box):
        if excluded:
            raise InputError("excluded: a box has no arms to leave out; offer a smaller box.")
        made = policy.select(row, offer)
        return _chosen(made, as_plain(made.action), 0)
    mask = playable(offer, excluded) if excluded else None
    made = policy.select(row, offer, mask)
    return _chosen(made, as_plain(made.action), len(offer) if mask is None else sum(mask))


def _chosen(made: NamedDecision | Choice, action: Any, offered: int) -> Chosen:
    table = None if made.probabilities is None else made.probabilities.tolist()
    return Chosen(made.index, action, table, made.mean, made.std, offered)


def choose_many(policy: TablePolicy, asked: Sequence[Asked]) -> list[Chosen | KernelBanditsError]:
    """Choose for many rows with one state of the model, those with the same offer by one matrix product.

    One that is refused has its error in its place.
    """
    found: list[Chosen | KernelBanditsError | None] = [None] * len(asked)
    alike: dict[str, list[int]] = {}
    known: dict[int, str] = {}
    for place, (_, offer, excluded) in enumerate(asked):
        if not excluded and not isinstance(offer, Box):
            # most share one list
            key = known.get(id(offer))
            if key is None:
                key = known[id(offer)] = repr(offer)
            alike.setdefault(key, []).append(place)
    for places in alike.values():
        offer = asked[places[0]].offer
        try:
            choices = policy.choices([asked[place].row for place in places], offer)
        except KernelBanditsError:
            # each says what is wrong with it
            continue
        plain = [as_plain(action) for action in offer]
        for place, choice in zip(places, choices, strict=True):
            found[place] = _chosen(choice, plain[choice.index], len(offer))
    return [
        _choose_or_refuse(policy, one) if chosen is None else chosen for one, chosen in zip(asked, found, strict=True)
    ]


def _choose_or_refuse(policy: TablePolicy, asked: Asked) -> Chosen | KernelBanditsError:
    try:
        return choose(policy, asked)
    except KernelBanditsError as reason:
        return reason


def playable(offer: Sequence[Any], excluded: Sequence[Any]) -> list[bool]:
    """Return which actions of an offer are not excluded."""
    names = [arm_of(action) for action in offer]
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


def await_many(policy: TablePolicy, rows: Sequence[Any], actions: Sequence[Any]) -> list[int | None]:
    """Count actions as played whose rewards arrive later; return their ids, None for one that is refused."""
    try:
        return list(policy.await_many(rows, actions))
    except REFUSED:
        if len(rows) == 1:
            return [None]
    return [id for row, action in zip(rows, actions, strict=True) for id in await_many(policy, [row], [action])]


def tell_many(policy: TablePolicy, ids: Sequence[int], rewards: Sequence[float]) -> list[bool]:
    """Learn rewards of actions that were awaited; return which were learned."""
    return _learn_all(len(ids), lambda some: policy.tell_many(ids[some], rewards[some]))


def update_many(
    policy: TablePolicy, rows: Sequence[Mapping[str, Any]], actions: Sequence[Any], rewards: Sequence[float]
) -> list[bool]:
    """Learn rewards of actions that were not awaited; return which were learned."""
    return _learn_all(len(rows), lambda some: policy.update_many(rows[some], actions[some], rewards[some]))


def _learn_all(count: int, learn: Callable[[slice], None]) -> list[bool]:
    """Learn some rewards together, or one by one if that is refused."""
    try:
        learn(slice(0, count))
        return [True] * count
    except REFUSED:
        if count == 1:
            return [False]
    return [done for place in range(count) for done in _learn_all(1, partial(_learn_one, learn, place))]


def _learn_one(learn: Callable[[slice], None], place: int, _: slice) -> None:
    learn(slice(place, place + 1))


def to_bytes(policy: TablePolicy, seed: int) -> bytes:
    """Return the file of a policy; it depends on what was learned alone, not on the decisions in between."""
    canonical = copy.deepcopy(policy)
    canonical.reseed_choices(seed)
    return persistence.to_bytes(canonical)


def from_bytes(content: bytes) -> TablePolicy:
    """Return the policy of a file that :func:`to_bytes` returned, with coins of its own."""
    policy = persistence.from_bytes(content, "snapshot")
    if not isinstance(policy, TablePolicy):
        raise InputError(f"load: expected a policy over a table, got {type(policy).__name__}.")
    policy.reseed_choices(None)
    return policy
