"""Decision loops and the service's own options, from a TOML file that is checked line by line."""

from __future__ import annotations

import hashlib
import json
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from kernel_bandits_lab.study.catalogue import did_you_mean
from kernel_bandits_lab.study.components import Component, component

from kernel_bandits.errors import InputError, KernelBanditsError
from kernel_bandits.tables import Features, TablePolicy
from kernel_bandits_server.lines import line_of

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
FEATURES = ("context", "arms", "actions")
# What presets call the probability that is spread over all actions; the first that a preset takes is used.
FLOOR_OPTIONS = ("exploration_floor", "exploration_rate")


@dataclass(frozen=True)
class Silence:
    """What becomes of a decision whose reward does not arrive.

    Attributes:
        after: seconds until the decision counts as silent.
        reward: what it is learned with then; None if nothing is learned from it.
    """

    after: float = 3600.0
    reward: float | None = None


@dataclass(frozen=True)
class LoopSettings:
    """A decision loop.

    Attributes:
        name: in addresses.
        features: the columns of its table and its actions.
        policy: the preset and its options.
        exploration_floor: the probability that is spread evenly over the offered actions.
        silence: when a reward counts as missing, and what is learned then.
        apprentice: whether the loop only watches: the caller says what was played, and the policy learns from it.
        anticipates: whether decisions that await their reward narrow the bounds, so that a burst explores.
        seed: of the coins that are part of the model.
    """

    name: str
    features: Features
    policy: Component
    exploration_floor: float = 0.0
    silence: Silence = Silence()
    apprentice: bool = False
    anticipates: bool = True
    seed: int = 0

    def new_policy(self) -> TablePolicy:
        """Return a policy that has learned nothing."""
        return _build_policy(self.policy, self.features, self.exploration_floor, self.seed)

    @property
    def fingerprint(self) -> str:
        """What the state after some events depends on besides these, as a digest; a snapshot of another is not used."""
        parts = {
            "features": self.features.to_toml(),
            "policy": self.policy.settings,
            "floor": self.exploration_floor,
            "anticipates": self.anticipates,
            "seed": self.seed,
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Limits:
    """What a caller may ask for.

    Attributes:
        body_bytes: of a request.
        actions: offered in one decision.
        batch: rewards in one request.
        pending: decisions of a loop that await their reward; beyond that, decisions are refused.
        requests_per_second: of one key, or of all callers together where there are no keys; 0 for no limit.
        waiting: requests of a loop that wait for the model, on either side of the channel; others are refused.
    """

    body_bytes: int = 1_000_000
    actions: int = 1_000
    batch: int = 10_000
    pending: int = 100_000
    requests_per_second: float = 0.0
    waiting: int = 10_000


@dataclass(frozen=True)
class ServiceSettings:
    """All that a file says.

    Attributes:
        loops: by name.
        limits: on requests.
        lag: seconds between two looks at what other processes have appended.
        snapshot_events: a snapshot is written after this number of events.
        log_contexts: whether the log names the contexts of decisions.
        text: the file as it was read, from which another process takes the same settings.
    """

    loops: Mapping[str, LoopSettings]
    limits: Limits = field(default_factory=Limits)
    lag: float = 0.25
    snapshot_events: int = 20_000
    log_contexts: bool = False
    text: str = ""


class SettingsError(InputError):
    """A file that cannot be used; ``problems`` holds one line for each thing that is wrong."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class _MistakeError(Exception):
    """What is wrong at one place of the file."""

    def __init__(self, path: Sequence[str], message: str) -> None:
        super().__init__(message)
        self.path = tuple(path)


def read_settings(path: str | Path) -> ServiceSettings:
    """Read the file of a service; raise :class:`SettingsError` with the line of all that is wrong."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as reason:
        raise SettingsError([f"{path}: cannot be read ({reason}); name a TOML file."]) from reason
    return parse_settings(text, str(path))


def parse_settings(text: str, source: str = "loop.toml") -> ServiceSettings:
    """Return what the text of a file says; ``source`` names it in errors."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as reason:
        found = re.search(r"at line (\d+)", str(reason))
        place = f"{source}:{found[1]}" if found else source
        raise SettingsError([f"{place}: expected TOML, got something else ({reason})."]) from reason
    problems: list[_MistakeError] = []
    loops: dict[str, LoopSettings] = {}
    options: dict[str, Any] = {}
    for name in data:
        if name not in ("loops", "service"):
            hint = did_you_mean(name, ("loops", "service"))
            problems.append(
                _MistakeError([name], f"unknown table {name!r}{hint} There are [loops.NAME] and [service].")
            )
    tables = data.get("loops", {})
    if not isinstance(tables, dict) or not tables:
        problems.append(_MistakeError(["loops"], "expected at least one table [loops.NAME], got none."))
        tables = {}
    for name, table in tables.items():
        try:
            loops[name] = _loop(name, table)
        except _MistakeError as problem:
            problems.append(problem)
    try:
        options = _service(data.get("service", {}))
    except _MistakeError as problem:
        problems.append(problem)
    if problems:
        raise SettingsError([_sentence(source, text, problem) for problem in problems])
    return ServiceSettings(loops, **options, text=text)


def _sentence(source: str, text: str, problem: _MistakeError) -> str:
    line = line_of(text, problem.path)
    return f"{source}{'' if line is None else f':{line}'}: {'.'.join(problem.path)}: {problem}"


def _loop(name: str, table: Any) -> LoopSettings:
    here = ("loops", name)
    if not NAME.fullmatch(name):
        raise _MistakeError(here, "expected a name of letters, digits, - and _ that begins with a letter, 64 at most.")
    if not isinstance(table, dict):
        raise _MistakeError(here, f"expected a table [loops.{name}], got {table!r}.")
    known = ("policy", "options", "exploration_floor", "silence", "apprentice", "anticipates", "seed", *FEATURES)
    _require_known(here, table, known)
    features = _features(here, {key: table[key] for key in FEATURES if key in table})
    floor = _number(here, table, "exploration_floor", 0.0, 0.0, 1.0)
    seed = _whole(here, table, "seed", 0, 0)
    policy = _policy(here, table)
    try:
        _build_policy(policy, features, floor, seed)
    except KernelBanditsError as reason:
        raise _MistakeError((*here, "options" if "options" in table else "policy"), str(reason)) from reason
    return LoopSettings(
        name,
        features,
        policy,
        floor,
        _silence((*here, "silence"), table.get("silence", {})),
        _flag(here, table, "apprentice", False),
        _flag(here, table, "anticipates", True),
        seed,
    )


def _features(here: Sequence[str], tables: Mapping[str, Any]) -> Features:
    try:
        return Features.from_tables(tables)
    except KernelBanditsError as reason:
        message = str(reason).removeprefix("from_toml: ")
        place = message.partition(":")[0].split(".")
        path = (*here, *place) if place[0] in tables else here
        raise _MistakeError(path, message) from reason


def _policy(here: Sequence[str], table: Mapping[str, Any]) -> Component:
    name, options = table.get("policy", "ek_ucb"), table.get("options", {})
    if not isinstance(name, str):
        raise _MistakeError((*here, "policy"), f"expected the name of a preset, got {name!r}.")
    if not isinstance(options, dict):
        raise _MistakeError((*here, "options"), f"expected a table of options, got {options!r}.")
    try:
        policy = component("policy", name, options)
    except KernelBanditsError as reason:
        raise _MistakeError((*here, "options" if "options" in table else "policy"), str(reason)) from reason
    if not policy.accepts("features"):
        raise _MistakeError((*here, "policy"), f"{name} takes no features=; use ek_ucb, k_ucb or another that does.")
    for option in ("seed", "features", *FLOOR_OPTIONS):
        if option in options:
            advice = "write exploration_floor beside policy" if option in FLOOR_OPTIONS else "write it beside policy"
            raise _MistakeError((*here, "options", option), f"the loop sets {option} itself; {advice}.")
    return policy


def _build_policy(policy: Component, features: Features, floor: float, seed: int) -> TablePolicy:
    added: dict[str, Any] = {}
    if floor:
        taken = [option for option in FLOOR_OPTIONS if policy.accepts(option)]
        if not taken:
            raise InputError(f"{policy.name}: takes no exploration floor; leave exploration_floor out, or use ek_ucb.")
        added[taken[0]] = floor
    if policy.accepts("seed"):
        added["seed"] = seed
    made = policy.build(features=features, **added)
    assert isinstance(made, TablePolicy)
    return made


def _silence(here: Sequence[str], table: Any) -> Silence:
    if not isinstance(table, dict):
        raise _MistakeError(here, f"expected a table such as {{ after = 3600, reward = 0.0 }}, got {table!r}.")
    _require_known(here, table, ("after", "reward"))
    after = _number(here, table, "after", Silence.after, 1e-3, math.inf)
    reward = None if "reward" not in table else _number(here, table, "reward", 0.0, -math.inf, math.inf)
    return Silence(after, reward)


def _service(table: Any) -> dict[str, Any]:
    here = ("service",)
    if not isinstance(table, dict):
        raise _MistakeError(here, f"expected a table [service], got {table!r}.")
    _require_known(here, table, ("limits", "lag", "snapshot_events", "log_contexts"))
    limits = table.get("limits", {})
    place = ("service", "limits")
    if not isinstance(limits, dict):
        raise _MistakeError(place, f"expected a table [service.limits], got {limits!r}.")
    names = {one.name: one.default for one in fields(Limits)}
    _require_known(place, limits, tuple(names))
    rate = _number(place, limits, "requests_per_second", 0.0, 0.0, math.inf)
    wholes = {
        name: _whole(place, limits, name, int(default), 1)  # type: ignore[arg-type]
        for name, default in names.items()
        if name != "requests_per_second"
    }
    return {
        "limits": Limits(requests_per_second=rate, **wholes),
        "lag": _number(here, table, "lag", 0.25, 0.001, 3600.0),
        "snapshot_events": _whole(here, table, "snapshot_events", 20_000, 1),
        "log_contexts": _flag(here, table, "log_contexts", False),
    }


def _require_known(here: Sequence[str], table: Mapping[str, Any], known: Sequence[str]) -> None:
    for key in table:
        if key not in known:
            hint = did_you_mean(key, known)
            raise _MistakeError((*here, key), f"unknown key {key!r}{hint} There are {', '.join(known)}.")


def _number(here: Sequence[str], table: Mapping[str, Any], key: str, default: float, low: float, high: float) -> float:
    value = table.get(key, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise _MistakeError((*here, key), f"expected a number from {low:g} to {high:g}, got {value!r}.")
    if not math.isfinite(value):
        raise _MistakeError((*here, key), f"expected a finite number, got {value!r}.")
    return float(value)


def _whole(here: Sequence[str], table: Mapping[str, Any], key: str, default: int, low: int) -> int:
    value = table.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise _MistakeError((*here, key), f"expected a whole number of at least {low}, got {value!r}.")
    return value


def _flag(here: Sequence[str], table: Mapping[str, Any], key: str, default: bool) -> bool:
    value = table.get(key, default)
    if not isinstance(value, bool):
        raise _MistakeError((*here, key), f"expected true or false, got {value!r}.")
    return value
