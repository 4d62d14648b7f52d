"""The state of a loop as a function of its events: the same events give the same bits, in every process."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, ClassVar

from kernel_bandits.errors import InputError
from kernel_bandits.tables import Arms, TablePolicy
from kernel_bandits.tables.arms import ARM
from kernel_bandits.tables.values import nearest, shown
from kernel_bandits_server.choosing import REFUSED, arm_of, await_many, from_bytes, tell_many, to_bytes, update_many
from kernel_bandits_server.events import Event, blocks, encode_finite
from kernel_bandits_server.settings import LoopSettings
from kernel_bandits_server.store import Snapshot
from kernel_bandits_server.tally import GROUPS, Open, Tally

# What actions without a name are called in the tally.
UNNAMED = "unnamed"


class Replica:
    """Policies, open decisions and the tally after some events of a loop.

    Args:
        settings: of the loop.
    """

    def __init__(self, settings: LoopSettings) -> None:
        challenger = settings.new_challenger()
        self._begin_with(settings, [settings.new_policy(), *([] if challenger is None else [challenger])])
        for model in self.models:
            model.reseed_choices(None)

    def _begin_with(self, settings: LoopSettings, models: list[TablePolicy]) -> None:
        self.settings, self.models = settings, models
        self.applied, self.time = 0, 0.0
        self.open: dict[str, Open] = {}
        # all decisions that do not count in the averages yet, in their order
        self.line: deque[Open] = deque()
        self.tally = Tally(settings)
        # the challenger's traffic, and since when
        self.share, self.share_since = 0.0, 0.0
        # arms that were added or described by a request, and those that were retired
        self.added: dict[Any, dict[str, Any] | None] = {}
        self.retired: dict[Any, None] = {}
        self._offer: list[Any] | None = None
        # what the policies have yet to take in of the block at hand, and what the tally has
        self._begun: list[Open] = []
        self._earned: list[Open] = []
        self._read: list[dict[str, Any]] = []
        self._played: list[int] = []

    @property
    def policy(self) -> TablePolicy:
        """The policy that decides."""
        return self.models[0]

    @property
    def challenger(self) -> TablePolicy | None:
        """The policy in its shadow."""
        return self.models[1] if len(self.models) > 1 else None

    @classmethod
    def restore(cls, settings: LoopSettings, snapshot: Snapshot) -> Replica:
        """Return the state that a snapshot holds."""
        replica, state = object.__new__(cls), snapshot.state
        ends = [0, *state["ends"]]
        files = [snapshot.policy[start:end] for start, end in pairwise(ends)]
        replica._begin_with(settings, list(map(from_bytes, files)))
        replica.applied, replica.time = snapshot.number, state["time"]
        replica.share, replica.share_since = state["share"], state["share_since"]
        replica.added, replica.retired = dict(state["added"]), dict.fromkeys(state["retired"])
        for id, values in state["line"]:
            one = Open.load(values)
            replica.line.append(one)
            if not one.settled:
                replica.open[id] = one
        replica.tally = Tally.load(settings, state["tally"])
        return replica

    def snapshot(self) -> Snapshot:
        """Return the state as a snapshot."""
        files = [to_bytes(model, self.settings.seed) for model in self.models]
        ids = {id(one): decision for decision, one in self.open.items()}
        state = {
            "ends": [sum(map(len, files[: place + 1])) for place in range(len(files))],
            "time": self.time,
            "share": self.share,
            "share_since": self.share_since,
            "added": list(self.added.items()),
            "retired": list(self.retired),
            "line": [[ids.get(id(one)), one.dump()] for one in self.line],
            "tally": self.tally.dump(),
        }
        return Snapshot(self.applied, self.settings.fingerprint, state, b"".join(files))

    def digest(self) -> str:
        """Return a digest of all bits of the state."""
        snapshot = self.snapshot()
        body = encode_finite(snapshot.state).encode()
        return hashlib.sha256(body + snapshot.policy + str(snapshot.number).encode()).hexdigest()

    def offer(self, given: Any = None) -> list[Any]:
        """Return the actions on offer: those of a request, or else all known arms that are not retired."""
        if not isinstance(self.settings.features.actions, Arms):
            if not isinstance(given, list):
                got = "none" if given is None else f"one ({shown(given)})"
                raise InputError(f"actions: expected a list of rows of features, got {got}.")
            return given
        if given is None:
            if self._offer is None:
                names = dict.fromkeys([*self.policy.arms, *self.added])
                self._offer = [self._described(name) for name in names if name not in self.retired]
            if not self._offer:
                raise InputError("actions: expected the names of the arms on offer; none is known yet.")
            return self._offer
        rows = [{ARM: name, **row} for name, row in given.items()] if isinstance(given, dict) else given
        for action in rows:
            self.require_arm(arm_of(action))
        return [self._described(one) if not isinstance(one, dict) else one for one in rows]

    def require_arm(self, name: Any) -> None:
        """Refuse an arm that is retired, or not known where only known ones may be offered."""
        if name is None or isinstance(name, (dict, list)):
            # the policy says what it expected
            return
        if name in self.retired:
            raise InputError(f"actions: the arm {shown(name)} is retired; add it again with PUT …/arms/{name}.")
        if self.settings.strict and name not in self.added and name not in self._labels:
            known = [*self._labels, *self.added]
            raise InputError(
                f"actions: unknown arm {shown(name)}{nearest(name, known)} Arms are strict; add it with PUT "
                "…/arms/NAME."
            )

    @property
    def _labels(self) -> tuple[Any, ...]:
        actions = self.settings.features.actions
        return actions.labels if isinstance(actions, Arms) else ()

    def _described(self, name: Any) -> Any:
        row = self.added.get(name)
        return {ARM: name, **row} if row else name

    def apply(self, events: Sequence[Event]) -> None:
        """Take the next events of the log into account: whole blocks, which the policies learn together."""
        for block in blocks(events):
            first, last = block[0].number, block[-1].number
            if first != self.applied + 1 or last != self.applied + len(block):
                raise AssertionError(f"events {first} to {last}, {len(block)} of them, do not follow {self.applied}")
            for event in block:
                self._takers[event.kind](self, event)
            self.applied, self.time = last, block[-1].time
            self._begin_all()
            self._learn_all()
            # the events of a block have one time
            if self._played:
                self.tally.play(self.time, self._played)
                self._played = []
            self._settle()

    def silent(self, now: float) -> Iterator[str]:
        """Yield the decisions whose reward counts as missing, oldest first."""
        for decision, one in self.open.items():
            if now - one.time < self.settings.silence.after:
                return
            yield decision

    def _decide(self, event: Event) -> None:
        body = event.body
        if "played" in body:
            action, arm, propensity = body["played"], body.get("played_arm"), body.get("played_probability")
            if action == body["action"]:
                self.tally.count("agreed")
        else:
            action, arm, propensity = body["action"], body.get("arm"), body["propensity"]
        weights = body.get("weights")
        one = Open(
            event.time,
            self.tally.arm(UNNAMED if arm is None else str(arm)),
            propensity,
            body["offered"],
            body["active"],
            GROUPS.index(body.get("group", "policy")),
            body["place"] if self.settings.control and body.get("control") == str(self.settings.control) else None,
            None if weights is None else (weights[0], weights[1]),
            self.tally.segments.code(body["context"]),
            row=body["context"],
            action=action,
        )
        self.open[event.decision] = one
        self.line.append(one)
        self.tally.count("decisions")
        if one.active:
            self._begin(one)

    def _activate(self, event: Event) -> None:
        one = self.open[event.decision]
        one.active = True
        self._begin(one)
        if one.held is not None:
            del self.open[event.decision]
            self._earn(one, one.held)

    def _begin(self, one: Open) -> None:
        """Count a decision as played; the policies await it before they learn anything else."""
        self._played.append(one.arm)
        if self.settings.anticipates:
            self._learn_all()
            self._begun.append(one)

    def _begin_all(self) -> None:
        if not self._begun:
            return
        begun, self._begun = self._begun, []
        rows, actions = [one.row or {} for one in begun], [one.action for one in begun]
        ids = [await_many(model, rows, actions) for model in self.models]
        for one, own in zip(begun, zip(*ids, strict=True), strict=True):
            one.pending, one.row, one.action = list(own), None, None
            if own[0] is None:
                self._give_up(one)
        self._offer = None

    def _reward(self, event: Event) -> None:
        one = self.open[event.decision]
        if one.active:
            del self.open[event.decision]
            self._earn(one, event.body)
        else:
            one.held = event.body

    def _earn(self, one: Open, body: dict[str, Any]) -> None:
        one.reward, one.settled, one.held = body["reward"], True, None
        self.tally.count("silent" if body["source"] == "silence" else "rewards")
        if self._begun or self._read:
            self._begin_all()
            self._learn_read()
        if one.learnable:
            self._earned.append(one)

    def _learn_all(self) -> None:
        self._learn_read()
        if not self._earned:
            return
        earned, self._earned = self._earned, []
        rewards = [one.reward or 0.0 for one in earned]
        for place, model in enumerate(self.models):
            if self.settings.anticipates:
                known = [(one, one.pending[place]) for one in earned if one.pending and one.pending[place] is not None]
                own = [one.reward or 0.0 for one, _ in known]
                learned = tell_many(model, [id or 0 for _, id in known], own)
                each = [one for one, _ in known]
            else:
                rows, actions, each = [one.row or {} for one in earned], [one.action for one in earned], earned
                learned = update_many(model, rows, actions, rewards)
            for one, done in zip(each, learned, strict=True):
                if not done and place == 0:
                    self._give_up(one)
        for one in earned:
            one.row = one.action = one.pending = None
        self._offer = None

    def _expire(self, event: Event) -> None:
        self._begin_all()
        self._learn_all()
        one = self.open.pop(event.decision)
        one.settled = True
        self.tally.count("expired")
        for model, pending in zip(self.models, one.pending or (), strict=False):
            if pending is not None:
                try:
                    model.expire(pending)
                except REFUSED:
                    self._give_up(one)
        one.row = one.action = one.pending = one.held = None

    def _late(self, _: Event) -> None:
        self.tally.count("late")

    def _import(self, event: Event) -> None:
        self._begin_all()
        if self._earned:
            self._learn_all()
        self._read.append(event.body)
        self.tally.count("imported")

    def _learn_read(self) -> None:
        if not self._read:
            return
        rows, self._read = self._read, []
        contexts, actions = [row["context"] for row in rows], [row["action"] for row in rows]
        for place, model in enumerate(self.models):
            learned = update_many(model, contexts, actions, [row["reward"] for row in rows])
            if place == 0:
                self.tally.count("unlearned", learned.count(False))
        self._offer = None

    def _change(self, event: Event) -> None:
        body = event.body
        if "share" in body:
            self.share, self.share_since = body["share"], event.time
            self._begin_all()
            self._learn_all()
            self.tally.restart_challenger()
        elif "retire" in body:
            self.retired[body["retire"]] = None
        else:
            self.retired.pop(body["arm"], None)
            self.added[body["arm"]] = body.get("features") or self.added.get(body["arm"])
        self._offer = None

    def _give_up(self, one: Open) -> None:
        """Go on without a decision that the policy refuses; it refuses it in every replay."""
        one.learnable = False
        self.tally.count("unlearned")

    def _settle(self) -> None:
        """Count the decisions that are settled, up to the first that is not."""
        line, rows = self.line, []
        while line and line[0].settled:
            one = line.popleft()
            if one.time <= self.share_since:
                # the challenger is compared by what came after its last step
                one.weights = None
            if one.reward is not None:
                rows.append(one)
        if rows:
            self.tally.settle(rows)

    _takers: ClassVar[dict[str, Callable[[Replica, Event], None]]] = {
        "decision": _decide,
        "activation": _activate,
        "reward": _reward,
        "expiry": _expire,
        "late": _late,
        "imported": _import,
        "change": _change,
    }
