"""The state of a loop as a function of its events: the same events give the same bits, in every process."""

from __future__ import annotations

import copy
import hashlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby, pairwise
from operator import attrgetter
from typing import Any, ClassVar

import msgspec
import numpy as np
from msgspec import Struct

from kernel_bandits import persistence
from kernel_bandits.errors import InputError, KernelBanditsError
from kernel_bandits.tables import Arms, Column, TablePolicy
from kernel_bandits.tables.arms import ARM
from kernel_bandits.tables.values import nearest, shown
from kernel_bandits_server.events import Event, blocks, encode
from kernel_bandits_server.settings import LoopSettings
from kernel_bandits_server.store import Snapshot
from kernel_bandits_server.tally import GROUPS, Open, Tally

# What actions without a name are called in the tally.
UNNAMED = "unnamed"
# Decisions that matured are added up so many at a time, which costs a tenth of one by one.
TOGETHER = 512
# A policy that raises one of these has changed nothing.
REFUSED = (KernelBanditsError, np.linalg.LinAlgError, ArithmeticError)


class State(Struct):
    """What a loop knows besides its policies."""

    tally: Tally  # of what has matured
    time: float = 0.0  # of the last event
    share: float = 0.0  # the challenger's traffic
    share_since: float = 0.0  # when it was set
    added: list[tuple[Any, dict[str, Any] | None]] = []  # arms that were added or described by a request
    retired: list[Any] = []  # arms that were
    # all decisions that do not count in the averages yet, in their order, with the ids of those that are open
    line: list[tuple[str | None, Open]] = []
    matured: list[Open] = []  # decisions that are to be added to the tally
    ends: list[int] = []  # of the policies' files


class Replica:
    """Policies, open decisions and the tally after some events of a loop.

    Args:
        settings: of the loop.
        snapshot: that it goes on from; nothing has happened unless given.
    """

    def __init__(self, settings: LoopSettings, snapshot: Snapshot | None = None) -> None:
        self.settings = settings
        if snapshot is None:
            self.applied, state = 0, State(Tally.of(settings))
            self.models = settings.new_policies()
        else:
            self.applied, state = snapshot.number, _decoder.decode(snapshot.state)
            self.models = [_from_bytes(snapshot.policy[a:b]) for a, b in pairwise([0, *state.ends])]
        # the coins of a decision leave no trace in what is learned, so each process tosses its own
        for model in self.models:
            model.reseed_choices(None)
        self.tally, self.time, self.share, self.share_since = state.tally, state.time, state.share, state.share_since
        self.added, self.retired, self.matured = dict(state.added), dict.fromkeys(state.retired), state.matured
        self.line = deque(one for _, one in state.line)
        self.open = {id: one for id, one in state.line if id is not None}
        self._offer: list[Any] | None = None

    @property
    def policy(self) -> TablePolicy:
        """The policy that decides."""
        return self.models[0]

    @property
    def challenger(self) -> TablePolicy | None:
        """The policy in its shadow."""
        return self.models[1] if len(self.models) > 1 else None

    def snapshot(self) -> Snapshot:
        """Return the state as a snapshot: what was learned, whatever was decided in between."""
        files, ends, ids = [], [0], {id(one): decision for decision, one in self.open.items()}
        for model in self.models:
            canonical = copy.deepcopy(model)
            canonical.reseed_choices(self.settings.seed)
            files.append(persistence.to_bytes(canonical))
            ends.append(ends[-1] + len(files[-1]))
        line = [(ids.get(id(one)), one) for one in self.line]
        state = State(
            self.tally, self.time, self.share, self.share_since, list(self.added.items()), list(self.retired), line,
            self.matured, ends[1:],
        )  # fmt: skip
        return Snapshot(self.applied, self.settings.fingerprint, encode(state), b"".join(files))

    def digest(self) -> str:
        """Return a digest of all bits of the state."""
        snapshot = self.snapshot()
        return hashlib.sha256(f"{snapshot.number} {snapshot.state}".encode() + snapshot.policy).hexdigest()

    def seen(self) -> Tally:
        """Return the tally with all that has matured, to be read; the state stays as it is."""
        tally = copy.deepcopy(self.tally)
        if self.matured:
            tally.settle(self.matured)
        return tally

    @property
    def columns(self) -> Mapping[str, Column]:
        """The columns of a context, by name."""
        columns = self.settings.features.context
        return columns if isinstance(columns, Mapping) else {}

    def offer(self, given: Any = None) -> list[Any]:
        """Return the actions on offer: those of a request, or else all known arms that are not retired."""
        actions = self.settings.features.actions
        if not isinstance(actions, Arms):
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
            self._require_arm(action.get(ARM) if isinstance(action, dict) else action, actions.labels)
        return [self._described(one) if not isinstance(one, dict) else one for one in rows]

    def _require_arm(self, name: Any, labels: Sequence[Any]) -> None:
        """Refuse an arm that is retired, or not known where only known ones may be offered."""
        if name is None or isinstance(name, (dict, list)):
            # the policy says what it expected
            return
        if name in self.retired:
            raise InputError(f"actions: the arm {shown(name)} is retired; add it again with PUT …/arms/{name}.")
        if self.settings.strict and name not in self.added and name not in labels:
            hint = nearest(name, [*labels, *self.added]) or "."
            raise InputError(f"actions: unknown arm {shown(name)}{hint} Arms are strict; add it with PUT …/arms/NAME.")

    def _described(self, name: Any) -> Any:
        row = self.added.get(name)
        return {ARM: name, **row} if row else name

    def silent(self, now: float) -> Iterator[str]:
        """Yield the decisions whose reward counts as missing, oldest first."""
        for decision, one in self.open.items():
            if now - one.time < self.settings.silence.after:
                return
            yield decision

    def apply(self, events: Sequence[Event]) -> None:
        """Take the next events of the log into account: whole blocks, whose runs of one kind are learned together."""
        for block in blocks(events):
            first, last = block[0].number, block[-1].number
            if first != self.applied + 1 or last != self.applied + len(block):
                raise AssertionError(f"events {first} to {last}, {len(block)} of them, do not follow {self.applied}")
            for kind, run in groupby(block, attrgetter("kind")):
                self._takers[kind](self, list(run))
            self.applied, self.time = last, block[-1].time
            self._offer = None
            self._mature()

    def _decide(self, events: Sequence[Event]) -> None:
        made = [self._opened(event) for event in events]
        self.open.update(zip((event.decision for event in events), made, strict=True))
        self.line += made
        self.tally.counts["decisions"] += len(made)
        self._begin([one for one in made if one.active], events[0].time)

    def _opened(self, event: Event) -> Open:
        body, prefix = event.body, ""
        if "played" in body:
            prefix = "played_"
            self.tally.counts["agreed"] += body["played"] == body["action"]
        arm, weights, control = body.get(f"{prefix}arm"), body.get("weights"), self.settings.control
        return Open(
            event.time,
            self.tally.arm(UNNAMED if arm is None else str(arm)),
            body["played_probability" if prefix else "propensity"],
            body["offered"],
            body["active"],
            GROUPS.index(body.get("group", "policy")),
            body["place"] if control and body.get("control") == str(control) else None,
            None if weights is None else tuple(weights),
            self.tally.segments.code(body["context"], self.columns),
            row=body["context"],
            action=body["played" if prefix else "action"],
        )

    def _begin(self, ones: Sequence[Open], time: float) -> None:
        """Count decisions as played at a time; the policies await them."""
        if ones:
            self.tally.play(time, [one.arm for one in ones])
        if ones and self.settings.anticipates:
            rows, actions = [one.row or {} for one in ones], [one.action for one in ones]
            ids = [_await(model, rows, actions) for model in self.models]
            for one, *own in zip(ones, *ids, strict=True):
                one.pending, one.row, one.action = own, None, None
                if own[0] is None:
                    self._give_up(one)

    def _activate(self, events: Sequence[Event]) -> None:
        ones = [self.open[event.decision] for event in events]
        for one in ones:
            one.active = True
        self._begin(ones, events[0].time)
        held = {event.decision: one for event, one in zip(events, ones, strict=True) if one.held is not None}
        self._earn(list(held), [one.held or {} for one in held.values()])

    def _reward(self, events: Sequence[Event]) -> None:
        known = [event for event in events if self.open[event.decision].active]
        self._earn([event.decision for event in known], [event.body for event in known])
        for event in events:
            if event.decision in self.open:
                self.open[event.decision].held = event.body

    def _earn(self, decisions: Sequence[str], bodies: Sequence[Mapping[str, Any]]) -> None:
        """Learn what decisions earned."""
        ones = [self.open.pop(decision) for decision in decisions]
        for one, body in zip(ones, bodies, strict=True):
            one.reward, one.settled, one.held = body["reward"], True, None
            self.tally.counts["silent" if body["source"] == "silence" else "rewards"] += 1
        earned = [one for one in ones if one.learnable]
        for place, model in enumerate(self.models):
            if self.settings.anticipates:
                known = [one for one in earned if one.pending and one.pending[place] is not None]
                learn = partial(_tell, model, [one.pending[place] for one in known if one.pending])
            else:
                known = earned
                learn = partial(_update, model, [one.row for one in known], [one.action for one in known])
            learned = _learn(learn, [one.reward or 0.0 for one in known])
            for one, done in zip(known, learned, strict=True):
                if not done and place == 0:
                    self._give_up(one)
        for one in ones:
            one.row = one.action = one.pending = None

    def _expire(self, events: Sequence[Event]) -> None:
        for event in events:
            one = self.open.pop(event.decision)
            self.tally.counts["expired"] += 1
            for model, pending in zip(self.models, one.pending or (), strict=False):
                if pending is not None:
                    try:
                        model.expire(pending)
                    except REFUSED:
                        self._give_up(one)
            one.settled, one.row, one.action, one.pending, one.held = True, None, None, None, None

    def _late(self, events: Sequence[Event]) -> None:
        self.tally.counts["late"] += len(events)

    def _import(self, events: Sequence[Event]) -> None:
        self.tally.counts["imported"] += len(events)
        contexts, actions, rewards = zip(
            *((event.body["context"], event.body["action"], event.body["reward"]) for event in events), strict=True
        )
        for place, model in enumerate(self.models):
            learned = _learn(partial(_update, model, contexts, actions), rewards)
            if place == 0:
                self.tally.counts["unlearned"] += learned.count(False)

    def _change(self, events: Sequence[Event]) -> None:
        for event in events:
            body = event.body
            if "share" in body:
                self.share, self.share_since = body["share"], event.time
                self._add_up(len(self.matured))
                if self.tally.trial is not None:
                    self.tally.trial = self.tally.trial.restarted()
            elif "retire" in body:
                self.retired[body["retire"]] = None
            else:
                self.retired.pop(body["arm"], None)
                self.added[body["arm"]] = body.get("features") or self.added.get(body["arm"])

    def _give_up(self, one: Open) -> None:
        """Go on without a decision that the policy refuses; it refuses it in every replay."""
        one.learnable = False
        self.tally.counts["unlearned"] += 1

    def _mature(self) -> None:
        """Count the decisions that are settled, up to the first that is not."""
        while self.line and self.line[0].settled:
            one = self.line.popleft()
            if one.time <= self.share_since:
                # the challenger is compared by what came after its last step
                one.weights = None
            if one.reward is not None:
                self.matured.append(one)
        while len(self.matured) >= TOGETHER:
            self._add_up(TOGETHER)

    def _add_up(self, count: int) -> None:
        rows, self.matured = self.matured[:count], self.matured[count:]
        if rows:
            self.tally.settle(rows)

    _takers: ClassVar[dict[str, Callable[[Replica, Sequence[Event]], None]]] = {
        "decision": _decide,
        "activation": _activate,
        "reward": _reward,
        "expiry": _expire,
        "late": _late,
        "imported": _import,
        "change": _change,
    }


# arrays are lists in JSON
_decoder = msgspec.json.Decoder(State, dec_hook=lambda _, value: np.array(value))


def _from_bytes(content: bytes) -> TablePolicy:
    policy = persistence.from_bytes(content, "snapshot")
    if not isinstance(policy, TablePolicy):
        raise InputError(f"load: expected a policy over a table, got {type(policy).__name__}.")
    return policy


def _await(policy: TablePolicy, rows: Sequence[Any], actions: Sequence[Any]) -> list[int | None]:
    """Await the rewards of actions that were played; return their ids, None for one that is refused."""
    try:
        return list(policy.await_many(rows, actions))
    except REFUSED:
        if len(rows) == 1:
            return [None]
    return [id for row, action in zip(rows, actions, strict=True) for id in _await(policy, [row], [action])]


def _learn(learn: Callable[[slice, Sequence[float]], None], rewards: Sequence[float]) -> list[bool]:
    """Learn rewards together, or one by one if that is refused; return which were learned."""

    def learned(some: slice) -> bool:
        try:
            learn(some, rewards[some])
        except REFUSED:
            return False
        return True

    if learned(slice(None)):
        return [True] * len(rewards)
    return [learned(slice(place, place + 1)) for place in range(len(rewards))]


def _tell(policy: TablePolicy, ids: Sequence[Any], some: slice, rewards: Sequence[float]) -> None:
    policy.tell_many(ids[some], rewards)


def _update(
    policy: TablePolicy, rows: Sequence[Any], actions: Sequence[Any], some: slice, rewards: Sequence[float]
) -> None:
    policy.update_many(rows[some], actions[some], rewards)
