"""Which events a batch of commands becomes, decided while no one else can append."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Iterable, Sequence
from typing import Any

from kernel_bandits.errors import InputError, KernelBanditsError
from kernel_bandits.tables import Arms
from kernel_bandits.tables.values import as_plain, shown
from kernel_bandits_server.choosing import Asked, Chosen, arm_of, as_box, choose_many, playable
from kernel_bandits_server.commands import Activate, Change, Command, Decide, Expire, Import, RefusedError, Reward
from kernel_bandits_server.events import Event, Kind
from kernel_bandits_server.messages import DecisionRequest
from kernel_bandits_server.replica import Replica
from kernel_bandits_server.settings import Control
from kernel_bandits_server.store import Log
from kernel_bandits_server.tally import OTHERS

# Silent decisions that are settled in one transaction.
SILENT_AT_ONCE = 1_000
# What no id of a caller begins with.
APART = "#"
_NOTHING: dict[str, Event] = {}
_coins = random.SystemRandom()


def draft_all(commands: Sequence[Decide], replica: Replica) -> None:
    """Choose the actions of decisions with one state of the models.

    Each gets a ``draft``, the body of its event, or an ``error`` if it is refused.
    """
    asked: list[Asked] = []
    asking: list[Decide] = []
    for command in commands:
        try:
            asked.append(_asked(command.request, replica))
            asking.append(command)
        except KernelBanditsError as reason:
            command.error = reason
    chosen = choose_many(replica.policy, asked)
    rival = replica.challenger
    # a box has no probabilities to compare
    rivals = [None] * len(asked) if rival is None or not _has_offers(asked) else choose_many(rival, asked)
    for command, one, ours, theirs in zip(asking, asked, chosen, rivals, strict=True):
        try:
            for made in (ours, theirs):
                if isinstance(made, KernelBanditsError):
                    raise made
            command.draft = _draft(command, one, ours, theirs, replica)  # type: ignore[arg-type] # no errors are left
        except KernelBanditsError as reason:
            command.error = reason


def _has_offers(asked: Sequence[Asked]) -> bool:
    return all(isinstance(one.offer, list) for one in asked)


def _asked(ask: DecisionRequest, replica: Replica) -> Asked:
    apprentice = replica.settings.apprentice
    if ask.played is not None:
        if not apprentice:
            raise InputError("played: this loop decides itself; set apprentice = true for one that watches.")
        replica.policy.encode(ask.context, [ask.played])
    elif apprentice:
        raise InputError("played: this loop only watches; say which action was played.")
    offer = replica.offer(ask.actions) if ask.box is None else as_box(replica.policy, ask.box)
    return Asked(ask.context, offer, ask.excluded)


def _draft(command: Decide, asked: Asked, ours: Chosen, theirs: Chosen | None, replica: Replica) -> dict[str, Any]:
    ask, settings, has_arms = command.request, replica.settings, isinstance(replica.settings.features.actions, Arms)
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
    if settings.control is not None or theirs is not None:
        body |= _of_a_group(command, asked, ours, theirs, replica)
    else:
        table = ours.probabilities
        propensity = table[ours.place] if table else 1.0 if ours.offered == 1 else None
        body |= {"action": ours.action, "propensity": propensity, "probabilities": table}
        body |= {"mean": ours.mean, "std": ours.std}
    body["arm"] = arm_of(body["action"]) if has_arms else None
    if ask.played is not None:
        body["played"] = ask.played
        body["played_arm"] = arm_of(ask.played) if has_arms else None
        body["played_probability"] = ask.played_probability
    return body


def _of_a_group(command: Decide, asked: Asked, ours: Chosen, theirs: Chosen | None, replica: Replica) -> dict[str, Any]:
    """Return what the group that a decision belongs to plays, and how likely the loop as a whole was to play that."""
    ask, control, traffic = command.request, replica.settings.control, replica.share if theirs else 0.0
    share = control.share if control else 0.0
    place = place_of(replica.settings.name, ask.visitor or command.id)
    group = "control" if place < share else "policy"
    if group == "policy" and (place - share) / (1.0 - share) < traffic:
        group = "challenger"
    body: dict[str, Any] = {"group": group} | ({"place": place, "control": str(control)} if control else {})
    if ask.box is not None:
        if ask.current is None:
            raise InputError("current: expected what is played today, which the control group goes on with.")
        action = ask.current if group == "control" else ours.action
        return body | {"action": action, "propensity": None, "probabilities": None, "mean": None, "std": None}
    policy = _table(ours, asked)
    rival = policy if theirs is None else _table(theirs, asked)
    today = policy if control is None else _of_today(control, command, asked)
    # m(a) = s·q(a) + (1 − s)·((1 − t)·p(a) + t·c(a))
    mixed = [
        share * q + (1.0 - share) * ((1.0 - traffic) * p + traffic * c)
        for q, p, c in zip(today, policy, rival, strict=True)
    ]
    if group == "control":
        (index,) = _coins.choices(range(len(today)), today)
        made = None
    else:
        made = theirs if group == "challenger" and theirs else ours
        index = made.place
    body |= {"action": as_plain(asked.offer[index]), "propensity": mixed[index], "probabilities": mixed}
    body |= {"mean": made.mean if made else None, "std": made.std if made else None}
    if theirs is not None:
        body["weights"] = [policy[index] / mixed[index], rival[index] / mixed[index]]
    return body


def _table(chosen: Chosen, asked: Asked) -> list[float]:
    """Return the probability of each action; a policy without coins plays what it chose."""
    return chosen.probabilities or [float(place == chosen.place) for place in range(len(asked.offer))]


def _of_today(control: Control, command: Decide, asked: Asked) -> list[float]:
    """Return the probability with which the rule of today plays each action."""
    current, names = command.request.current, [arm_of(action) for action in asked.offer]
    allowed = playable(asked.offer, asked.excluded) if asked.excluded else [True] * len(names)
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
        if current is None:
            raise InputError("current: expected what is played today, which the control group goes on with.")
        wanted = [action == current for action in asked.offer]
        if not any(wanted):
            wanted = [name is not None and name == arm_of(current) for name in names]
        what = f"current: {shown(current)} is not on offer."
    found = [float(one and may) for one, may in zip(wanted, allowed, strict=True)]
    if sum(found) != 1.0:
        raise InputError(what)
    return found


def place_of(loop: str, key: str) -> float:
    """Return a number from 0 to 1 for a visitor or a decision, the same in every process and on every day."""
    digest = hashlib.blake2b(f"{loop}\0{key}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2.0**64


class Plan:
    """The events of one batch, each with the number it will have.

    Args:
        replica: the state after every event of the log.
        log: of the loop, within the transaction.
        now: the time.
        most_pending: decisions that may await their reward.
    """

    def __init__(self, replica: Replica, log: Log, now: float, most_pending: int) -> None:
        self._replica = replica
        self._log = log
        # later than every transaction before it, so that the time says which events belong together
        self._time = max(now, math.nextafter(replica.time, math.inf))
        self._most_pending = most_pending
        self.events: list[Event] = []
        # what this batch has done to a decision so far, by kind
        self._fresh: dict[str, dict[str, Event]] = {}
        self._stored: dict[str, dict[str, Event]] = {}

    def add_all(self, commands: Sequence[Command]) -> None:
        """Plan commands in their order; one that is refused has its ``error`` set."""
        self._stored = self._log.find_many(self._unknown(commands))
        for command in commands:
            try:
                if isinstance(command, Decide):
                    self._decide(command)
                elif isinstance(command, Reward):
                    command.result = self._rewards(command.rewards)
                elif isinstance(command, Activate):
                    command.result = self._activate(command.id)
                elif isinstance(command, Expire):
                    command.result = self._expire(command.id)
                elif isinstance(command, Import):
                    command.result = self._import(command.rows)
                elif isinstance(command, Change):
                    command.result = self._change(command.body)
            except KernelBanditsError as reason:
                command.error = reason

    def add_silent(self) -> None:
        """Settle decisions whose reward counts as missing."""
        silence = self._replica.settings.silence
        for id in self._replica.silent(self._time):
            if len(self.events) >= SILENT_AT_ONCE:
                return
            one = self._replica.open[id]
            if id in self._fresh:
                continue
            if silence.reward is None or not one.active:
                self._append("expiry", id, {"source": "silence"})
            else:
                self._append("reward", id, {"reward": silence.reward, "source": "silence"})

    def _unknown(self, commands: Iterable[Command]) -> list[str]:
        """Return the ids that may be in the log and are not open."""
        ids: dict[str, None] = {}
        for command in commands:
            if isinstance(command, Decide):
                if command.own_id:
                    ids[command.id] = None
            elif isinstance(command, Reward):
                ids.update((id, None) for id, _ in command.rewards if id not in self._replica.open)
            elif isinstance(command, Import):
                ids.update((f"{APART}{row['id']}", None) for row in command.rows)
            elif isinstance(command, (Activate, Expire)) and command.id not in self._replica.open:
                ids[command.id] = None
        return list(ids)

    def _append(self, kind: Kind, id: str, body: dict[str, Any]) -> Event:
        event = Event._make((kind, id, body, self._time, self._replica.applied + len(self.events) + 1))
        self.events.append(event)
        known = self._fresh.get(id)
        if known is None:
            self._fresh[id] = {kind: event}
        else:
            known[kind] = event
        return event

    def _seen(self, id: str) -> dict[str, Event]:
        """Return what is known of a decision that is not open."""
        return {**self._stored.get(id, {}), **self._fresh.get(id, {})}

    def _decide(self, command: Decide) -> None:
        assert command.draft is not None
        before = self._seen(command.id).get("decision") if command.own_id else None
        if before is not None:
            if before.body["context"] != command.request.context:
                raise RefusedError(
                    409, "id_taken", f"decision {command.id} was made for another context; use a fresh id."
                )
            command.result = before, True
            return
        if len(self._replica.open) + len(self.events) >= self._most_pending:
            raise RefusedError(
                429,
                "too_many_pending",
                f"{self._most_pending} decisions await their reward; send rewards, expire decisions, shorten "
                "silence.after, or raise service.limits.pending.",
            )
        command.result = self._append("decision", command.id, command.draft), False

    def _rewards(self, rewards: Sequence[tuple[str, float]]) -> list[dict[str, Any]]:
        """Plan rewards; those that are the first of an open decision, as nearly all are, without a further call."""
        opened, fresh, events, results = self._replica.open, self._fresh, self.events, []
        time, before = self._time, self._replica.applied + 1
        for id, reward in rewards:
            one = opened.get(id)
            if one is None or one.held is not None or id in fresh:
                results.append(self._reward(id, reward))
                continue
            body = {"reward": reward, "source": "caller"}
            event = Event._make(("reward", id, body, time, before + len(events)))
            events.append(event)
            fresh[id] = {"reward": event}
            results.append({"id": id, "status": "learned" if one.active else "held"})
        return results

    def _reward(self, id: str, reward: float) -> dict[str, Any]:
        fresh = self._fresh.get(id, _NOTHING)
        one = self._replica.open.get(id)
        if "expiry" not in fresh and (one is not None or "decision" in fresh):
            earlier = fresh["reward"].body if "reward" in fresh else None if one is None else one.held
            if earlier is not None:
                return _again(id, earlier["reward"], reward)
            active = one.active if one is not None else bool(fresh["decision"].body["active"])
            self._append("reward", id, {"reward": reward, "source": "caller"})
            return {"id": id, "status": "learned" if active or "activation" in fresh else "held"}
        seen = self._seen(id)
        if not seen and one is None:
            return _unknown(id)
        if "late" in seen:
            # said again: it was late the first time, and was not learned
            return _again(id, seen["late"].body["reward"], reward, "late")
        if "reward" in seen and seen["reward"].body["source"] == "caller":
            return _again(id, seen["reward"].body["reward"], reward)
        self._append("late", id, {"reward": reward})
        return {"id": id, "status": "late"}

    def _activate(self, id: str) -> dict[str, Any]:
        fresh = self._fresh.get(id, _NOTHING)
        one = self._replica.open.get(id)
        if "expiry" not in fresh and (one is not None or "decision" in fresh):
            active = one.active if one is not None else bool(fresh["decision"].body["active"])
            if active or "activation" in fresh:
                return {"id": id, "status": "repeated"}
            self._append("activation", id, {})
            return {"id": id, "status": "activated"}
        seen = self._seen(id)
        if not seen and one is None:
            return _unknown(id)
        if "expiry" in seen:
            return {"id": id, "status": "late"}
        return {"id": id, "status": "repeated"}

    def _expire(self, id: str) -> dict[str, Any]:
        fresh = self._fresh.get(id, _NOTHING)
        one = self._replica.open.get(id)
        if "expiry" not in fresh and "reward" not in fresh and (one is not None or "decision" in fresh):
            self._append("expiry", id, {"source": "caller"})
            return {"id": id, "status": "expired"}
        seen = self._seen(id)
        if not seen and one is None:
            return _unknown(id)
        return {"id": id, "status": "repeated" if "expiry" in seen else "late"}

    def _import(self, rows: Sequence[dict[str, Any]]) -> dict[str, int]:
        fresh = [row for row in rows if not self._seen(f"{APART}{row['id']}")]
        for row in fresh:
            try:
                self._replica.policy.encode(row["context"], [row["action"]])
            except KernelBanditsError as reason:
                raise InputError(f"row {row['id']}: {reason}") from reason
        before = len(self.events)
        for row in fresh:
            # a row that stands there twice is one
            if not self._seen(f"{APART}{row['id']}"):
                self._append("imported", f"{APART}{row['id']}", {name: row[name] for name in row if name != "id"})
        imported = len(self.events) - before
        return {"imported": imported, "repeated": len(rows) - imported}

    def _change(self, body: dict[str, Any]) -> dict[str, Any]:
        replica, number = self._replica, self._replica.applied + len(self.events) + 1
        if "share" in body:
            if replica.challenger is None:
                raise InputError("challenger: this loop has none; add challenger = { policy = … } to its file.")
        elif not isinstance(replica.settings.features.actions, Arms):
            raise InputError("arms: the actions of this loop are no arms.")
        elif "retire" in body:
            return self._retire(body, f"{APART}{number}")
        else:
            name = next((one for one in replica.policy.arms if str(one) == body["arm"]), body["arm"])
            body = {**body, "arm": name}
            self._require_description(name, body.get("features"))
        self._append("change", f"{APART}{number}", body)
        return body

    def _retire(self, body: dict[str, Any], id: str) -> dict[str, Any]:
        replica, control = self._replica, self._replica.settings.control
        # in an address every name is text
        known = [one for one in (*replica.policy.arms, *replica.added) if str(one) == str(body["retire"])]
        if not known:
            raise RefusedError(404, "unknown_arm", f"there is no arm {shown(body['retire'])} in this loop.")
        name = known[0]
        if control is not None and control.arm == name:
            raise RefusedError(
                409,
                "in_control",
                f"the control group plays {shown(name)}; without it no decision could be made. Change control in the "
                "loop's file first.",
            )
        arms = replica.tally.arms
        place = arms.get(str(name), arms.get(OTHERS))
        pending = [own for own, one in replica.open.items() if one.arm == place and own not in self._fresh]
        # arms beyond the first share a place in the tally
        decided = self._log.find_many(pending)
        pending = [own for own in pending if decided[own]["decision"].body["arm"] == name]
        if name not in replica.retired:
            self._append("change", id, {**body, "retire": name})
        for own in pending if body["pending"] == "expire" else ():
            self._append("expiry", own, {"source": "retired"})
        return {"arm": name, "retired": True, "pending": body["pending"], "decisions": len(pending)}

    def _require_description(self, name: Any, row: dict[str, Any] | None) -> None:
        """Refuse an arm whose features are missing or wrong."""
        actions = self._replica.settings.features.actions
        assert isinstance(actions, Arms)
        if row and actions.columns is None:
            raise InputError("features: the arms of this loop have none; describe them in [arms.columns].")
        if actions.columns is not None and (row or name not in self._replica.policy.arms):
            action = {"arm": name, **(row or {})}
            self._replica.policy.features.choices.encode([action], "actions")


def _again(id: str, earlier: float, reward: float, status: str = "repeated") -> dict[str, Any]:
    if earlier == reward:
        return {"id": id, "status": status}
    message = f"decision {id} had the reward {shown(earlier)} already; a reward counts once."
    return {"id": id, "status": "conflict", "message": message}


def _unknown(id: str) -> dict[str, Any]:
    return {"id": id, "status": "unknown", "message": f"decision {id} was not made in this loop."}
