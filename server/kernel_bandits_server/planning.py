"""What callers ask of a loop, and which events that becomes, decided while no one else can append."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernel_bandits.errors import InputError, KernelBanditsError
from kernel_bandits.tables import Arms
from kernel_bandits.tables.arms import ARM
from kernel_bandits.tables.values import shown
from kernel_bandits_server.events import Event, Kind
from kernel_bandits_server.messages import DecisionRequest
from kernel_bandits_server.replica import Replica
from kernel_bandits_server.store import Log
from kernel_bandits_server.tally import OTHERS

# Silent decisions that are settled in one transaction.
SILENT_AT_ONCE = 1_000
# What no id of a caller begins with.
APART = "#"


class RefusedError(KernelBanditsError):
    """A request that is not carried out, and changes nothing.

    Args:
        status: of HTTP.
        code: a word for programs.
        message: a sentence for people.
    """

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


@dataclass(slots=True)
class Command:
    """A request to a loop; ``result`` or ``error`` is set once it is carried out, and ``done`` is called then."""

    result: Any = field(default=None, kw_only=True)
    error: Exception | None = field(default=None, kw_only=True)
    done: Callable[[], None] | None = field(default=None, kw_only=True)


@dataclass(slots=True)
class Query(Command):
    """Compute something from the state of the loop; writes nothing."""

    function: Callable[[Replica], Any]


class Change(Command, ABC):
    """A command that becomes events."""

    __slots__ = ()

    def ids(self) -> Iterable[str]:
        """Return the decisions that it is about."""
        return ()

    @abstractmethod
    def plan(self, plan: Plan) -> Any:
        """Append its events to those of a batch, and return its result."""


@dataclass(slots=True)
class Decide(Change):
    """Choose an action."""

    id: str  # of the decision; the caller's, or a fresh one
    own_id: bool  # whether the caller gave the id, so that it may be a repetition
    request: DecisionRequest  # what the caller asks for
    other: Mapping[Any, float] | None = None  # the probability of each arm in the loop that the control group follows
    draft: dict[str, Any] | None = None  # the body of its event

    def ids(self) -> Iterable[str]:
        return (self.id,) if self.own_id else ()

    def plan(self, plan: Plan) -> tuple[Event, bool]:
        before = plan.happened(self.id).get("decision") if self.own_id else None
        if before is not None:
            if before.body["context"] != self.request.context:
                raise RefusedError(409, "id_taken", f"decision {self.id} was made for another context; use a fresh id.")
            return before, True
        assert self.draft is not None
        plan.require_room()
        return plan.append("decision", self.id, self.draft), False


@dataclass(slots=True)
class _Following(Change):
    """What comes after one decision."""

    id: str

    def ids(self) -> Iterable[str]:
        return (self.id,)

    def plan(self, plan: Plan) -> dict[str, Any]:
        seen = plan.happened(self.id)
        return self._follow(plan, seen) if "decision" in seen else _unknown(self.id)

    @abstractmethod
    def _follow(self, plan: Plan, seen: Mapping[str, Event]) -> dict[str, Any]:
        """Plan it after what happened to the decision before."""


class Activate(_Following):
    """Say that a deferred decision was played."""

    __slots__ = ()

    def _follow(self, plan: Plan, seen: Mapping[str, Event]) -> dict[str, Any]:
        if "expiry" in seen or _is_active(seen):
            return {"id": self.id, "status": "late" if "expiry" in seen else "repeated"}
        plan.append("activation", self.id, {})
        return {"id": self.id, "status": "activated"}


@dataclass(slots=True)
class Reward(Change):
    """Say what decisions earned; each is refused or taken on its own."""

    rewards: Sequence[tuple[str, float]]

    def ids(self) -> Iterable[str]:
        return (id for id, _ in self.rewards)

    def plan(self, plan: Plan) -> list[dict[str, Any]]:
        return [self._one(plan, id, reward) for id, reward in self.rewards]

    @staticmethod
    def _one(plan: Plan, id: str, reward: float) -> dict[str, Any]:
        seen = plan.happened(id)
        if "decision" not in seen:
            return _unknown(id)
        told, status = seen.get("late") or seen.get("reward"), "late" if "late" in seen else "repeated"
        if told is not None and told.body.get("source") != "silence":
            earlier = told.body["reward"]
            if earlier == reward:
                return {"id": id, "status": status}
            message = f"decision {id} had the reward {shown(earlier)} already; a reward counts once."
            return {"id": id, "status": "conflict", "message": message}
        if "reward" in seen or "expiry" in seen:
            plan.append("late", id, {"reward": reward})
            return {"id": id, "status": "late"}
        plan.append("reward", id, {"reward": reward, "source": "caller"})
        return {"id": id, "status": "learned" if _is_active(seen) else "held"}


class Expire(_Following):
    """Give up on the reward of a decision."""

    __slots__ = ()

    def _follow(self, plan: Plan, seen: Mapping[str, Event]) -> dict[str, Any]:
        if "expiry" in seen or ("reward" in seen and _is_active(seen)):
            return {"id": self.id, "status": "repeated" if "expiry" in seen else "late"}
        plan.append("expiry", self.id, {"source": "caller"})
        return {"id": self.id, "status": "expired"}


@dataclass(slots=True)
class Import(Change):
    """Learn rounds of another log; all of them or none. Each has an ``id``, and is taken once."""

    rows: Sequence[dict[str, Any]]

    def ids(self) -> Iterable[str]:
        return (f"{APART}{row['id']}" for row in self.rows)

    def plan(self, plan: Plan) -> dict[str, int]:
        # a row that stands there twice is one
        fresh = {id: row for id, row in zip(self.ids(), self.rows, strict=True) if not plan.happened(id)}
        for row in fresh.values():
            try:
                plan.replica.policy.encode(row["context"], [row["action"]])
            except KernelBanditsError as reason:
                raise InputError(f"row {row['id']}: {reason}") from reason
        for id, row in fresh.items():
            plan.append("imported", id, {name: row[name] for name in row if name != "id"})
        return {"imported": len(fresh), "repeated": len(self.rows) - len(fresh)}


@dataclass(slots=True)
class SetArm(Change):
    """Add an arm, describe it anew, or bring a retired one back."""

    arm: str
    features: dict[str, Any] | None

    def plan(self, plan: Plan) -> dict[str, Any]:
        actions, policy = plan.arms(), plan.replica.policy
        name = next((one for one in policy.arms if str(one) == self.arm), self.arm)
        if self.features and actions.columns is None:
            raise InputError("features: the arms of this loop have none; describe them in [arms.columns].")
        if actions.columns is not None and (self.features or name not in policy.arms):
            policy.features.choices.encode([{ARM: name, **(self.features or {})}], "actions")
        return plan.append("change", None, {"arm": name, "features": self.features}).body


@dataclass(slots=True)
class RetireArm(Change):
    """Offer an arm no longer; its pending decisions are kept, or expire."""

    arm: str
    expires: bool

    def plan(self, plan: Plan) -> dict[str, Any]:
        plan.arms()
        replica, control = plan.replica, plan.replica.settings.control
        # in an address every name is text
        known = [one for one in (*replica.policy.arms, *replica.added) if str(one) == self.arm]
        if not known:
            raise RefusedError(404, "unknown_arm", f"there is no arm {shown(self.arm)} in this loop.")
        name = known[0]
        if control is not None and control.arm == name:
            raise RefusedError(
                409,
                "in_control",
                f"the control group plays {shown(name)}; without it no decision could be made. Change control in the "
                "loop's file first.",
            )
        names = [one if one in (str(name), OTHERS) else None for one in replica.tally.arms]
        made = plan.look_up([id for id, one in replica.open.items() if names[one.arm] is not None])
        # arms beyond the first share a place in the tally
        pending = [id for id, seen in made.items() if seen["decision"].body["arm"] == name and id not in plan.fresh]
        found = {"arm": name, "pending": "expire" if self.expires else "keep"}
        if name not in replica.retired:
            plan.append("change", None, {"retire": name, "pending": found["pending"]})
        for id in pending if self.expires else ():
            plan.append("expiry", id, {"source": "retired"})
        return {**found, "retired": True, "decisions": len(pending)}


@dataclass(slots=True)
class SetShare(Change):
    """Give the challenger a share of the traffic; what its gain allows unless one is given."""

    share: float | None = None

    def plan(self, plan: Plan) -> dict[str, Any]:
        replica = plan.replica
        if replica.challenger is None:
            raise InputError("challenger: this loop has none; add challenger = { policy = … } to its file.")
        share = self.share
        if share is None:
            trial = replica.seen().trial
            share = replica.share if trial is None else trial.next_share(replica.share)
            if share == replica.share:
                return {}
        body = {"share": share, "by": "evidence" if self.share is None else "hand"}
        return plan.append("change", None, body).body


def _is_active(seen: Mapping[str, Event]) -> bool:
    return bool(seen["decision"].body["active"] or "activation" in seen)


def _unknown(id: str) -> dict[str, Any]:
    return {"id": id, "status": "unknown", "message": f"decision {id} was not made in this loop."}


class Plan:
    """The events of one batch, each with the number it will have.

    Args:
        replica: the state after every event of the log.
        log: of the loop, within the transaction.
        now: the time.
        most_pending: decisions that may await their reward.
    """

    def __init__(self, replica: Replica, log: Log, now: float, most_pending: int) -> None:
        self.replica, self._log, self._most_pending = replica, log, most_pending
        # later than every transaction before it, so that the time says which events belong together
        self._time = max(now, math.nextafter(replica.time, math.inf))
        self.events: list[Event] = []
        # what this batch has done to a decision so far, and what the log says of others than the open ones, by kind
        self.fresh: dict[str, dict[str, Event]] = {}
        self._stored: dict[str, dict[str, Event]] = {}

    def add_all(self, commands: Sequence[Change]) -> None:
        """Plan commands; one that is refused has its ``error`` set.

        Those of one kind come together, as they are learned: requests that wait at the same time have no order.
        """
        own = {one.id for one in commands if isinstance(one, Decide)}
        ids = dict.fromkeys(id for one in commands for id in one.ids() if id in own or id not in self.replica.open)
        self._stored = self.look_up(list(ids))
        for command in sorted(commands, key=lambda one: _ORDER.index(type(one))):
            try:
                command.result = command.plan(self)
            except KernelBanditsError as reason:
                command.error = reason

    def add_silent(self) -> None:
        """Settle decisions whose reward counts as missing."""
        silence, count = self.replica.settings.silence, 0
        for id in self.replica.silent(self._time):
            if id in self.fresh:
                continue
            if (count := count + 1) > SILENT_AT_ONCE:
                return
            if silence.reward is None or not self.replica.open[id].active:
                self.append("expiry", id, {"source": "silence"})
            else:
                self.append("reward", id, {"reward": silence.reward, "source": "silence"})

    def look_up(self, ids: Sequence[str]) -> dict[str, dict[str, Event]]:
        """Return what the log says of decisions, by kind of event."""
        return self._log.find(ids)

    def append(self, kind: Kind, id: str | None, body: dict[str, Any]) -> Event:
        """Add an event; one that is about no decision has an id of its own."""
        number = self.replica.applied + len(self.events) + 1
        event = Event(kind, f"{APART}{number}" if id is None else id, body, self._time, number)
        self.events.append(event)
        self.fresh.setdefault(event.decision, {})[kind] = event
        return event

    def happened(self, id: str) -> dict[str, Event]:
        """Return what has happened to a decision so far, by kind of event."""
        found, one = dict(self._stored.get(id, ())), self.replica.open.get(id)
        if one is not None and not found:
            found["decision"] = Event("decision", id, {"active": one.active})
            if one.held is not None:
                found["reward"] = Event("reward", id, one.held)
        found.update(self.fresh.get(id, ()))
        return found

    def arms(self) -> Arms:
        """Return the arms of the loop."""
        actions = self.replica.settings.features.actions
        if not isinstance(actions, Arms):
            raise InputError("arms: the actions of this loop are no arms.")
        return actions

    def require_room(self) -> None:
        """Refuse a decision where too many await their reward."""
        if len(self.replica.open) + len(self.events) >= self._most_pending:
            raise RefusedError(
                429,
                "too_many_pending",
                f"{self._most_pending} decisions await their reward; send rewards, expire decisions, shorten "
                "silence.after, or raise service.limits.pending.",
            )


_ORDER = (Decide, Activate, Reward, Expire, Import, SetArm, RetireArm, SetShare)
