"""The state of a loop as a function of its events: the same events give the same bits, in every process."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any

from kernel_bandits.arrays import FloatArray
from kernel_bandits_server.choosing import REFUSED, await_many, from_bytes, reseed, tell_many, to_bytes, update_many
from kernel_bandits_server.events import Event, blocks, encode_finite
from kernel_bandits_server.settings import LoopSettings
from kernel_bandits_server.store import Snapshot
from kernel_bandits_server.tally import Tally

# What actions without a name are called in the tally.
UNNAMED = "unnamed"
_NO_VECTORS: Mapping[str, FloatArray] = {}


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


# all attributes, without copies of what they hold
_values = attrgetter(*(one.name for one in fields(Open)))


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
        # what the policy has yet to take in of the block at hand, and what the tally has
        self._begun: list[tuple[Open, FloatArray | None]] = []
        self._earned: list[tuple[Open, float]] = []
        self._counted: list[tuple[float, str, float | None, int]] = []
        self._played: list[str] = []

    @classmethod
    def restore(cls, settings: LoopSettings, snapshot: Snapshot) -> Replica:
        """Return the state that a snapshot holds."""
        replica = object.__new__(cls)
        replica.settings, replica.applied = settings, snapshot.number
        replica.policy = from_bytes(snapshot.policy)
        replica.time = snapshot.state["time"]
        replica.open = {decision: Open(*values) for decision, values in snapshot.state["open"].items()}
        replica.tally = Tally.load(snapshot.state["tally"])
        replica._begun, replica._earned, replica._counted, replica._played = [], [], [], []
        return replica

    def snapshot(self) -> Snapshot:
        """Return the state as a snapshot."""
        state = {
            "time": self.time,
            "open": {decision: _values(one) for decision, one in self.open.items()},
            "tally": self.tally.dump(),
        }
        content = to_bytes(self.policy, self.settings.seed)
        return Snapshot(self.applied, self.settings.fingerprint, state, content)

    def digest(self) -> str:
        """Return a digest of all bits of the state."""
        snapshot = self.snapshot()
        body = encode_finite(snapshot.state).encode()
        return hashlib.sha256(body + snapshot.policy + str(snapshot.number).encode()).hexdigest()

    def apply(self, events: Sequence[Event], vectors: Mapping[str, FloatArray] = _NO_VECTORS) -> None:
        """Take the next events of the log into account: whole blocks, which the policy learns together.

        Args:
            events: of the log.
            vectors: encoded contexts of decisions, as far as they are known; the state does not depend on them.
        """
        for block in blocks(events):
            first, last = block[0].number, block[-1].number
            if first != self.applied + 1 or last != self.applied + len(block):
                raise AssertionError(f"events {first} to {last}, {len(block)} of them, do not follow {self.applied}")
            for event in block:
                if event.kind == "reward":
                    # most events of a large block are rewards
                    self._reward(event)
                else:
                    self._take(event, vectors)
            self.applied, self.time = last, block[-1].time
            self._begin_all()
            self._learn_all()
            # the events of a block have one time
            if self._played:
                self.tally.play(self.time, self._played)
                self._played = []
            if self._counted:
                self.tally.earn(self.time, self._counted)
                self._counted = []

    def _take(self, event: Event, vectors: Mapping[str, FloatArray]) -> None:
        if event.kind == "decision":
            self._decide(event, vectors)
        elif event.kind == "activation":
            self._activate(event)
        elif event.kind == "expiry":
            self._expire(event)
        else:
            self.tally.count("late")

    def silent(self, now: float) -> Iterator[str]:
        """Yield the decisions whose reward counts as missing, oldest first."""
        for decision, one in self.open.items():
            if now - one.time < self.settings.silence.after:
                return
            yield decision

    def _decide(self, event: Event, vectors: Mapping[str, FloatArray]) -> None:
        body = event.body
        if "played" in body:
            action, arm, propensity = body["played"], body.get("played_arm"), body.get("played_probability")
            if action == body["action"]:
                self.tally.count("agreed")
        else:
            action, arm, propensity = body["action"], body.get("arm"), body["propensity"]
        name = UNNAMED if arm is None else str(arm)
        one = Open(event.time, name, propensity, body["offered"], body["active"], None, body["context"], action)
        self.open[event.decision] = one
        self.tally.count("decisions")
        if one.active:
            self._begin(one, vectors.get(event.decision))

    def _activate(self, event: Event) -> None:
        one = self.open[event.decision]
        one.active = True
        self._begin(one)
        if one.held is not None:
            del self.open[event.decision]
            self._learn(one, one.held)

    def _begin(self, one: Open, vector: FloatArray | None = None) -> None:
        """Count a decision as played; the policy awaits it before it learns anything else."""
        self._played.append(one.arm)
        if self.settings.anticipates:
            self._learn_all()
            self._begun.append((one, vector))

    def _begin_all(self) -> None:
        if not self._begun:
            return
        begun, self._begun = self._begun, []
        rows, actions = [one.row or {} for one, _ in begun], [one.action for one, _ in begun]
        ids = await_many(self.policy, rows, actions, [vector for _, vector in begun])
        for (one, _), id in zip(begun, ids, strict=True):
            one.pending, one.row, one.action = id, None, None
            if id is None:
                self._give_up(one)

    def _reward(self, event: Event) -> None:
        one = self.open[event.decision]
        if one.active:
            del self.open[event.decision]
            self._learn(one, event.body)
        else:
            one.held = event.body

    def _learn(self, one: Open, body: dict[str, Any]) -> None:
        reward = body["reward"]
        self.tally.count("silent" if body["source"] == "silence" else "rewards")
        self._counted.append((reward, one.arm, one.propensity, one.offered))
        if self._begun:
            self._begin_all()
        if one.learnable:
            self._earned.append((one, reward))

    def _learn_all(self) -> None:
        if not self._earned:
            return
        earned, self._earned = self._earned, []
        rewards = [reward for _, reward in earned]
        if self.settings.anticipates:
            learned = tell_many(self.policy, [one.pending or 0 for one, _ in earned], rewards)
        else:
            rows, actions = [one.row or {} for one, _ in earned], [one.action for one, _ in earned]
            learned = update_many(self.policy, rows, actions, rewards)
        for (one, _), done in zip(earned, learned, strict=True):
            if not done:
                self._give_up(one)

    def _expire(self, event: Event) -> None:
        self._begin_all()
        self._learn_all()
        one = self.open.pop(event.decision)
        self.tally.count("expired")
        if one.pending is not None and one.learnable:
            try:
                self.policy.expire(one.pending)
            except REFUSED:
                self._give_up(one)

    def _give_up(self, one: Open) -> None:
        """Go on without a decision that the policy refuses; it refuses it in every replay."""
        one.learnable = False
        self.tally.count("unlearned")
