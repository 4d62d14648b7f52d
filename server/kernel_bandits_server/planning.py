"""Which events a batch of commands becomes, decided while no one else can append."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import InputError, KernelBanditsError
from kernel_bandits.tables.values import shown
from kernel_bandits_server.choosing import Asked, Chosen, as_box, choose_many
from kernel_bandits_server.commands import Activate, Command, Decide, Expire, RefusedError, Reward
from kernel_bandits_server.events import Event, Kind
from kernel_bandits_server.replica import Replica
from kernel_bandits_server.store import Log

# Silent decisions that are settled in one transaction.
SILENT_AT_ONCE = 1_000
_NOTHING: dict[str, Event] = {}


def draft_all(commands: Sequence[Decide], replica: Replica) -> None:
    """Choose the actions of decisions with one state of the model.

    Each gets a ``draft``, the body of its event, or an ``error`` if it is refused.
    """
    asked: list[Asked] = []
    asking: list[Decide] = []
    for command in commands:
        try:
            asked.append(_asked(command, replica))
            asking.append(command)
        except KernelBanditsError as reason:
            command.error = reason
    arms = None
    for command, chosen in zip(asking, choose_many(replica.policy, asked), strict=True):
        if isinstance(chosen, KernelBanditsError):
            command.error = chosen
            continue
        if command.actions is None and command.box is None and arms is None:
            arms = list(replica.policy.codec.offered(None))
        command.draft, command.vector = _draft(command, chosen, arms, replica), chosen.vector


def _asked(command: Decide, replica: Replica) -> Asked:
    if command.box is None and not command.has_played and not replica.settings.apprentice:
        return Asked(command.context, command.actions, command.excluded)
    policy = replica.policy
    if command.has_played:
        if not replica.settings.apprentice:
            raise InputError("played: this loop decides itself; set apprentice = true for one that watches.")
        policy.codec.actions([command.played])
    elif replica.settings.apprentice:
        raise InputError("played: this loop only watches; say which action was played.")
    offer = command.actions if command.box is None else as_box(policy, command.box)
    return Asked(command.context, offer, command.excluded)


def _draft(command: Decide, chosen: Chosen, arms: list[Any] | None, replica: Replica) -> dict[str, Any]:
    offer = arms if command.actions is None else command.actions
    body: dict[str, Any] = {
        "context": command.context,
        "actions": offer if command.box is None else {"box": command.box},
        "excluded": list(command.excluded),
        "action": chosen.action,
        "arm": chosen.arm,
        "propensity": chosen.propensity,
        "probabilities": chosen.probabilities,
        "offered": chosen.offered,
        "mean": chosen.mean,
        "std": chosen.std,
        "model": replica.applied,
        "active": command.active,
    }
    if command.has_played:
        body["played"] = command.played
        body["played_arm"] = replica.policy.codec.arm_of(command.played)
        body["played_probability"] = command.probability
    return body


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
        # encoded contexts of the decisions among them, as far as they are known
        self.vectors: dict[str, FloatArray] = {}
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
            if before.body["context"] != command.context:
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
        if command.vector is not None:
            self.vectors[command.id] = command.vector
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


def _again(id: str, earlier: float, reward: float, status: str = "repeated") -> dict[str, Any]:
    if earlier == reward:
        return {"id": id, "status": status}
    message = f"decision {id} had the reward {shown(earlier)} already; a reward counts once."
    return {"id": id, "status": "conflict", "message": message}


def _unknown(id: str) -> dict[str, Any]:
    return {"id": id, "status": "unknown", "message": f"decision {id} was not made in this loop."}
