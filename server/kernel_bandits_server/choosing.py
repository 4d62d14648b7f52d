"""Which action a request gets: what a policy chooses, which group the request belongs to, and what that group plays."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kernel_bandits.actions import Box
from kernel_bandits.errors import InputError, KernelBanditsError
from kernel_bandits.tables import Arms, TablePolicy
from kernel_bandits.tables.arms import ARM
from kernel_bandits.tables.values import as_plain, is_number, nearest, shown
from kernel_bandits_server.messages import Action, DecisionRequest
from kernel_bandits_server.planning import Decide
from kernel_bandits_server.replica import Replica
from kernel_bandits_server.settings import Control

_coins = random.SystemRandom()


def draft_all(commands: Sequence[Decide], replica: Replica) -> None:
    """Choose the actions of decisions with one state of the models.

    Each gets a ``draft``, the body of its event, or an ``error`` if it is refused.
    """
    asked: dict[int, Asked] = {}
    for place, command in enumerate(commands):
        try:
            asked[place] = _asked(command.request, replica)
        except KernelBanditsError as reason:
            command.error = reason
    ours = choose_many(replica.policy, list(asked.values()))
    # a box has no probabilities to compare
    compared = {place: one for place, one in asked.items() if replica.challenger and not isinstance(one.offer, Box)}
    theirs = dict(zip(compared, choose_many(replica.models[-1], list(compared.values())), strict=True))
    for (place, one), own in zip(asked.items(), ours, strict=True):
        chosen = [own, theirs[place]] if place in theirs else [own]
        try:
            for made in chosen:
                if isinstance(made, KernelBanditsError):
                    raise made
            commands[place].draft = _draft(commands[place], one, chosen, replica)
        except KernelBanditsError as reason:
            commands[place].error = reason


def _asked(ask: DecisionRequest, replica: Replica) -> Asked:
    apprentice = replica.settings.apprentice
    if ask.played is not None:
        if not apprentice:
            raise InputError("played: this loop decides itself; set apprentice = true for one that watches.")
        replica.policy.encode(ask.context, replica.offer([ask.played]))
    elif apprentice:
        raise InputError("played: this loop only watches; say which action was played.")
    if ask.actions is None and replica.policy.features.offer is not None:
        ask.box = ask.box or {}
    if ask.box is None:
        return Asked(ask.context, replica.offer(ask.actions), ask.excluded)
    if replica.settings.control is not None:
        # in both groups, or what is refused would not be alike
        replica.policy.encode(ask.context, [_current(ask)])
    return Asked(ask.context, _as_box(replica.policy, ask.box), ask.excluded)


def _as_box(policy: TablePolicy, given: Mapping[str, list[Any]]) -> Box:
    """Return a box from a range or levels for each column of the actions; the one that describes them for {}."""
    columns, described = policy.features.actions, policy.features.offer
    if not isinstance(columns, Mapping):
        raise InputError("box: the actions of this loop are arms; offer their names.")
    if not given and described is not None:
        return described
    if set(given) != set(columns):
        raise InputError(f"box: expected a range for each of {', '.join(columns)}, got {', '.join(given) or 'none'}.")
    # two numbers are the ends of a range
    pairs = {name: tuple(value) for name, value in given.items() if len(value) == 2 and all(map(is_number, value))}
    return Box({**given, **pairs})


def _draft(command: Decide, asked: Asked, chosen: Sequence[Chosen], replica: Replica) -> dict[str, Any]:
    """Return the body of a decision's event, from what the policy chose and the challenger, if there is one."""
    ask, settings, ours = command.request, replica.settings, chosen[0]
    body: dict[str, Any] = {
        "context": ask.context,
        "actions": {"box": ask.box} if ask.box is not None else asked.offer,
        "excluded": list(ask.excluded),
        "offered": ours.offered,
        "model": replica.applied,
        "active": not ask.deferred,
    }
    if ask.visitor is not None:
        body["visitor"] = ask.visitor
    if settings.control is not None or len(chosen) > 1:
        body |= _of_a_group(command, asked, chosen, replica)
    else:
        table = ours.probabilities
        propensity = table[ours.place] if table else 1.0 if ours.offered == 1 else None
        body |= {"action": ours.action, "propensity": propensity, "probabilities": table}
        body |= {"mean": ours.mean, "std": ours.std}
    has_arms = isinstance(settings.features.actions, Arms)
    body["arm"] = arm_of(body["action"]) if has_arms else None
    if ask.played is not None:
        body["played"] = ask.played
        body["played_arm"] = arm_of(ask.played) if has_arms else None
        body["played_probability"] = ask.played_probability
    return body


def _of_a_group(command: Decide, asked: Asked, chosen: Sequence[Chosen], replica: Replica) -> dict[str, Any]:
    """Return what the group that a decision belongs to plays, and how likely the loop as a whole was to play that."""
    ask, control, ours, theirs = command.request, replica.settings.control, chosen[0], chosen[-1]
    share, traffic = control.share if control else 0.0, replica.share if len(chosen) > 1 else 0.0
    place = place_of(replica.settings.name, ask.visitor or command.id)
    group = "control" if place < share else "policy"
    # drawn anew for each decision: what the challenger earns is estimated as if visitors who come again were others
    if group == "policy" and place_of(f"{replica.settings.name} challenger", command.id) < traffic:
        group = "challenger"
    body: dict[str, Any] = {"group": group} | ({"place": place, "control": str(control)} if control else {})
    if ask.box is not None:
        action = ask.current if group == "control" else ours.action
        return body | {"action": action, "propensity": None, "probabilities": None, "mean": None, "std": None}
    policy, rival = spread(ours, asked), spread(theirs, asked)
    today = policy if control is None else _of_today(control, command, asked)
    # m(a) = (1 − t)·p(a) + t·c(a) without the control group, s·q(a) + (1 − s)·m(a) with it
    both = [(1.0 - traffic) * p + traffic * c for p, c in zip(policy, rival, strict=True)]
    mixed = [share * q + (1.0 - share) * m for q, m in zip(today, both, strict=True)]
    made = {"policy": ours, "challenger": theirs}.get(group)
    index = _coins.choices(range(len(today)), today)[0] if made is None else made.place
    body |= {"mean": made.mean if made else None, "std": made.std if made else None}
    if made and len(chosen) > 1:
        body["weights"] = [policy[index] / both[index], rival[index] / both[index]]
    # where an action cannot be played, nothing is known of what it would have earned
    known = sum(probability > 0.0 for probability in mixed) == ours.offered
    body |= {"propensity": mixed[index] if known else None, "probabilities": mixed if known else None}
    return body | {"action": as_plain(asked.offer[index])}


def spread(chosen: Chosen, asked: Asked) -> list[float]:
    """Return the probability of each action; a policy without coins plays what it chose."""
    return chosen.probabilities or [float(place == chosen.place) for place in range(len(asked.offer))]


def _of_today(control: Control, command: Decide, asked: Asked) -> list[float]:
    """Return the probability with which the rule of today plays each action."""
    names = [arm_of(action) for action in asked.offer]
    allowed = _playable(asked.offer, asked.excluded) if asked.excluded else [True] * len(names)
    if control.rule == "uniform":
        return [one / sum(allowed) for one in allowed]
    if control.rule == "loop":
        known = command.other or {}
        weights = [known.get(name, 0.0) * one for name, one in zip(names, allowed, strict=True)]
        if not sum(weights):
            raise InputError(f"control: the loop {control.loop!r} plays none of the actions on offer.")
        return [weight / sum(weights) for weight in weights]
    if control.rule == "fixed":
        wanted = [name == control.arm for name in names]
        what = f"control: the arm {control.arm!r} of the control group is not on offer; offer it in each request."
    else:
        current = _current(command.request)
        wanted = [action == current for action in asked.offer]
        if not any(wanted):
            wanted = [name is not None and name == arm_of(current) for name in names]
        what = f"current: {shown(current)} is not on offer."
    found = [float(one and may) for one, may in zip(wanted, allowed, strict=True)]
    if sum(found) != 1.0:
        raise InputError(what)
    return found


def _current(ask: DecisionRequest) -> Action:
    if ask.current is None:
        raise InputError("current: expected what is played today, which the control group goes on with.")
    return ask.current


def place_of(loop: str, key: str) -> float:
    """Return a number from 0 to 1 for a visitor or a decision, the same in every process and on every day."""
    digest = hashlib.blake2b(f"{loop}\0{key}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2.0**64


class Asked(NamedTuple):
    """What a decision is asked for: a context, actions or a box, and names of arms that may not be chosen."""

    row: Mapping[str, Any]
    offer: Any
    excluded: Sequence[Any] = ()


class Chosen(NamedTuple):
    """What a policy chose, as JSON has it."""

    place: int  # its place among the offered actions; −1 in a box
    action: Any  # as it was offered
    probabilities: list[float] | None  # of all offered actions, in order; None where the policy does not know them
    mean: float  # its expected reward
    std: float  # the posterior standard deviation of its expected reward
    offered: int  # the number of actions that could have been chosen; 0 for a box


def choose_many(policy: TablePolicy, asked: Sequence[Asked]) -> list[Any]:
    """Choose for many rows with one state of the model, those with the same offer by one matrix product.

    One that is refused has its error in its place.
    """
    found: list[Any] = [None] * len(asked)
    alike: dict[str, list[int]] = {}
    for place, (_, offer, excluded) in enumerate(asked):
        if not excluded and not isinstance(offer, Box):
            alike.setdefault(repr(offer), []).append(place)
    for places in alike.values():
        offer = asked[places[0]].offer
        try:
            choices = policy.select_many([asked[place].row for place in places], offer)
        except KernelBanditsError:
            # each says what is wrong with it
            continue
        plain = [as_plain(action) for action in offer]
        for place, made in zip(places, choices, strict=True):
            found[place] = _chosen(made, plain[made.index], len(offer))
    for place, one in enumerate(asked):
        if found[place] is None:
            try:
                found[place] = choose(policy, one)
            except KernelBanditsError as reason:
                found[place] = reason
    return found


def choose(policy: TablePolicy, asked: Asked) -> Chosen:
    """Choose for a row among an offer, but for the excluded arms; changes nothing that is learned."""
    row, offer, excluded = asked
    if isinstance(offer, Box) and excluded:
        raise InputError("excluded: a box has no arms to leave out; offer a smaller box.")
    mask = _playable(offer, excluded) if excluded else None
    made = policy.select(row, offer, mask)
    count = 0 if isinstance(offer, Box) else len(offer) if mask is None else sum(mask)
    return _chosen(made, as_plain(made.action), count)


def _chosen(made: Any, action: Any, offered: int) -> Chosen:
    table = None if made.probabilities is None else made.probabilities.tolist()
    return Chosen(made.index, action, table, made.mean, made.std, offered)


def arm_of(action: Any) -> Any:
    """Return the name of an action's arm; None for a row of features without one."""
    return action.get(ARM) if isinstance(action, dict) else action


def _playable(offer: Sequence[Any], excluded: Sequence[Any]) -> list[bool]:
    """Return which actions of an offer are not excluded."""
    names = [arm_of(action) for action in offer]
    for name in excluded:
        if name not in names:
            raise InputError(f"excluded: {shown(name)} is not on offer{nearest(name, names)}")
    mask = [name not in excluded for name in names]
    if not any(mask):
        raise InputError("excluded: every action is excluded; leave one to choose.")
    return mask
