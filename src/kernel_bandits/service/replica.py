"""The state of a loop as a function of its events: the same events give the same bits, in every process."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np

from kernel_bandits.errors import KernelBanditsError
from kernel_bandits.service.choosing import forget_last, from_bytes, reseed, to_bytes
from kernel_bandits.service.events import Event, encode
from kernel_bandits.service.settings import LoopSettings
from kernel_bandits.service.store import Snapshot
from kernel_bandits.service.tally import Tally

# A policy that raises one of these has changed nothing.
_REFUSED = (KernelBanditsError, np.linalg.LinAlgError, ArithmeticError)
# What actions without a name are called in the tally.
UNNAMED = "unnamed"


@dataclass(slots=True)
class Open:
    """A decision that awaits its reward.

    Attributes:
        time: when it was made.
        arm: that was played.
        propensity: the probability with which it was chosen, where it is known.
        offered: the number of actions it was chosen from.
        active: whether it was played; a deferred decision waits for its activation.
        pending: the id under which the policy awaits its reward; None if it does not.
        row: its context, until the policy knows it.
        action: likewise.
        held: a reward that came before the activation.
        learnable: whether the policy took it.
    """

    time: float
    arm: str
    propensity: float | None
    offered: int
    active: bool
    pending: int | None = None
    row: dict[str, Any] | None = None
    action: Any = None
    held: dict[str, Any] | None = None
    learnable: bool = True


class Replica:
    """A policy, its open decisions and its tally after some events of a loop.

    Args:
        settings: of the loop.
    """

    def __init__(self, settings: LoopSettings) -> None:
        self.settings = settings
        self.policy = settings.new_policy()
        reseed(self.policy)
        self.applied = 0
        self.time = 0.0
        self.open: dict[str, Open] = {}
        self.tally = Tally()

    @classmethod
    def restore(cls, settings: LoopSettings, snapshot: Snapshot) -> Replica:
        """Return the state that a snapshot holds."""
        replica = object.__new__(cls)
        replica.settings, replica.applied = settings, snapshot.number
        replica.policy = from_bytes(snapshot.policy)
        replica.time = snapshot.state["time"]
        replica.open = {decision: Open(*values) for decision, values in snapshot.state["open"].items()}
        replica.tally = Tally.load(snapshot.state["tally"])
        return replica

    def snapshot(self) -> Snapshot:
        """Return the state as a snapshot."""
        state = {
            "time": self.time,
            "open": {decision: astuple(one) for decision, one in self.open.items()},
            "tally": self.tally.dump(),
        }
        content = to_bytes(self.policy, self.settings.seed)
        return Snapshot(self.applied, self.settings.fingerprint, state, content)

    def digest(self) -> str:
        """Return a digest of all bits of the state."""
        snapshot = self.snapshot()
        body = encode(snapshot.state).encode()
        return hashlib.sha256(body + snapshot.policy + str(snapshot.number).encode()).hexdigest()

    def apply(self, event: Event) -> None:
        """Take the next event of the log into account."""
        if event.number != self.applied + 1:
            raise AssertionError(f"event {event.number} does not follow {self.applied}")
        if event.kind == "decision":
            self._decide(event)
        elif event.kind == "activation":
            self._activate(event)
        elif event.kind == "reward":
            self._reward(event)
        elif event.kind == "expiry":
            self._expire(event)
        else:
            self.tally.count("late")
        self.applied, self.time = event.number, event.time

    def silent(self, now: float) -> Iterator[str]:
        """Yield the decisions whose reward counts as missing, oldest first."""
        for decision, one in self.open.items():
            if now - one.time < self.settings.silence.after:
                return
            yield decision

    def _decide(self, event: Event) -> None:
        body = event.body
        watched = "played" in body
        action = body["played"] if watched else body["action"]
        arm = body.get("played_arm" if watched else "arm")
        one = Open(
            event.time,
            UNNAMED if arm is None else str(arm),
            body.get("played_probability") if watched else body["propensity"],
            body["offered"],
            body["active"],
            row=body["context"],
            action=action,
        )
        self.open[event.decision] = one
        self.tally.count("decisions")
        if watched and action == body["action"]:
            self.tally.count("agreed")
        if one.active:
            self._begin(one, event.time)

    def _activate(self, event: Event) -> None:
        one = self.open[event.decision]
        one.active = True
        self._begin(one, event.time)
        if one.held is not None:
            del self.open[event.decision]
            self._learn(one, one.held, event.time)

    def _begin(self, one: Open, time: float) -> None:
        """Count a decision as played."""
        self.tally.play(time, one.arm)
        if self.settings.anticipates:
            try:
                one.pending = self.policy.ask(one.row, [one.action]).id
            except _REFUSED:
                self._give_up(one)
            one.row = one.action = None

    def _reward(self, event: Event) -> None:
        one = self.open[event.decision]
        if one.active:
            del self.open[event.decision]
            self._learn(one, event.body, event.time)
        else:
            one.held = event.body

    def _learn(self, one: Open, body: dict[str, Any], time: float) -> None:
        reward = body["reward"]
        self.tally.count("silent" if body["source"] == "silence" else "rewards")
        self.tally.earn(time, one.arm, reward, one.propensity, one.offered)
        if not one.learnable:
            return
        try:
            if one.pending is not None:
                self.policy.tell(one.pending, reward)
            else:
                forget_last(self.policy)
                self.policy.update(one.row, one.action, reward)
        except _REFUSED:
            self._give_up(one)

    def _expire(self, event: Event) -> None:
        one = self.open.pop(event.decision)
        self.tally.count("expired")
        if one.pending is not None and one.learnable:
            try:
                self.policy.expire(one.pending)
            except _REFUSED:
                self._give_up(one)

    def _give_up(self, one: Open) -> None:
        """Go on without a decision that the policy refuses; it refuses it in every replay."""
        one.learnable = False
        self.tally.count("unlearned")
