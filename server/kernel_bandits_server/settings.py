"""Decision loops and the service's own options: their types, and the TOML file that is checked line by line."""

from __future__ import annotations

import hashlib
import inspect
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from kernel_bandits import confidence, dictionaries, kernels, learning, presets
from kernel_bandits.errors import InputError, KernelBanditsError
from kernel_bandits.tables import Arms, Features, TablePolicy
from kernel_bandits.tables.values import LARGEST, nearest, shown
from kernel_bandits_server.wording import in_words, line_of

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
# What presets call the probability that is spread over all actions; the first that a preset takes is used.
FLOOR_OPTIONS = ("exploration_floor", "exploration_rate")
# What may stand in the options of a preset, by name.
_PARTS = {
    name: value
    for module in (kernels, confidence, dictionaries, learning)
    for name, value in vars(module).items()
    if inspect.isclass(value) and name[0] != "_"
}
Share = Annotated[float, Meta(ge=0.0, le=1.0)]
Positive = Annotated[float, Meta(gt=0.0, le=1e12)]
Count = Annotated[int, Meta(ge=1)]
Reward = Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]


class Silence(Struct, frozen=True, forbid_unknown_fields=True):
    """What becomes of a decision whose reward does not arrive.

    Attributes:
        after: seconds until the decision counts as silent.
        reward: what it is learned with then; None if nothing is learned from it.
    """

    after: Positive = 3600.0
    reward: Reward | None = None


class Control(Struct, frozen=True, forbid_unknown_fields=True):
    """The share of decisions that go on as today, to compare with.

    Attributes:
        share: of the decisions.
        rule: what plays them: the caller's own choice, sent with each request as ``current``; one arm; all arms alike;
            or what another loop would choose.
        arm: that is played, for ``fixed``.
        loop: that chooses, for ``loop``.
    """

    share: Annotated[float, Meta(gt=0.0, lt=1.0)]
    rule: Literal["current", "fixed", "uniform", "loop"] = "current"
    arm: str | None = None
    loop: str | None = None

    def __str__(self) -> str:
        of = self.arm or self.loop
        return f"{self.share:.3g} by {self.rule}{f' ({of})' if of else ''}"


class Challenger(Struct, frozen=True, forbid_unknown_fields=True):
    """A second policy of a loop: it learns from the same log, and decides the share of traffic it was promoted to.

    Attributes:
        policy: the preset.
        options: of the preset.
        exploration_floor: the probability that is spread evenly over the offered actions.
        automatic: whether it is promoted and stepped back by what it earns, and not by hand alone.
    """

    policy: str = "ek_ucb"
    options: dict[str, Any] = {}
    exploration_floor: Share = 0.0
    automatic: bool = False


class LoopSettings(Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """A decision loop.

    Attributes:
        policy: the preset.
        options: of the preset.
        exploration_floor: the probability that is spread evenly over the offered actions.
        silence: when a reward counts as missing, and what is learned then.
        control: the share that goes on as today; None for none.
        challenger: a second policy; None for none.
        rewards: the lowest and the highest that are possible; others are refused. Intervals that may be watched need
            them: 0 and 1 unless given, where there is a control group or a challenger.
        apprentice: whether the loop only watches: the caller says what was played, and the policy learns from it.
        anticipates: whether decisions that await their reward narrow the bounds, so that a burst explores.
        seed: of the coins that are part of the model.
        context: the columns of a context, by name.
        arms: the arms, if actions have names; ``strict`` among them.
        actions: the columns of an action, if they have none.
        box: ``settings``, ``sides`` and ``limits`` of actions that are chosen from one box in every round.
        name: in addresses; that of its table.
    """

    policy: str = "ek_ucb"
    options: dict[str, Any] = {}
    exploration_floor: Share = 0.0
    silence: Silence = Silence()
    control: Control | None = None
    challenger: Challenger | None = None
    rewards: tuple[float, float] | None = None
    apprentice: bool = False
    anticipates: bool = True
    seed: Annotated[int, Meta(ge=0)] = 0
    context: dict[str, Any] = {}
    arms: dict[str, Any] | None = None
    actions: dict[str, Any] | None = None
    box: dict[str, Any] | None = None
    name: str = ""

    @cached_property
    def features(self) -> Features:
        """The columns of its table and its actions."""
        arms = None if self.arms is None else {key: value for key, value in self.arms.items() if key != "strict"}
        tables = {"context": self.context, "arms": arms, "actions": self.actions, "box": self.box}
        return Features.from_tables({key: table for key, table in tables.items() if table is not None})

    @property
    def strict(self) -> bool:
        """Whether only arms that are described, or added by a request, may be offered."""
        return bool((self.arms or {}).get("strict"))

    @property
    def range(self) -> tuple[float, float] | None:
        """The lowest and the highest reward that are possible; None for any."""
        return self.rewards or ((0.0, 1.0) if self.control or self.challenger else None)

    def new_policies(self) -> list[TablePolicy]:
        """Return the policy, and the challenger if there is one, which have learned nothing."""
        both: list[LoopSettings | Challenger] = [self, *([self.challenger] if self.challenger else [])]
        return [_policy(one.policy, one.options, self.features, one.exploration_floor, self.seed) for one in both]

    @property
    def fingerprint(self) -> str:
        """What the state after some events depends on besides these, as a digest; a snapshot of another is not used."""
        one = self.challenger
        second = one and [one.policy, one.options, one.exploration_floor]
        own = [self.policy, self.options, self.exploration_floor, self.anticipates, self.seed]
        parts = [self.features.to_toml(), own, self.control, second, self.range, self.strict]
        return hashlib.sha256(msgspec.json.encode(parts, order="deterministic")).hexdigest()


class Limits(Struct, frozen=True, forbid_unknown_fields=True):
    """What a caller may ask for.

    Attributes:
        body_bytes: of a request.
        actions: offered in one decision.
        batch: rewards, or imported rows, in one request.
        pending: decisions of a loop that await their reward; beyond that, decisions are refused.
        requests_per_second: of one key, or of one address where there are no keys; 0 for no limit.
        waiting: requests of a loop that wait for its thread; others are refused.
    """

    body_bytes: Count = 1_000_000
    actions: Count = 1_000
    batch: Count = 10_000
    pending: Count = 100_000
    requests_per_second: Annotated[int, Meta(ge=0)] = 0
    waiting: Count = 10_000


class Service(Struct, frozen=True, forbid_unknown_fields=True):
    """The table ``[service]``.

    Attributes:
        limits: on requests.
        lag: seconds between two looks at what other processes have appended.
        snapshot_events: a snapshot is written after this number of events.
        log_contexts: whether the log names the contexts of decisions.
    """

    limits: Limits = Limits()
    lag: Annotated[float, Meta(ge=0.001, le=3600.0)] = 0.25
    snapshot_events: Count = 20_000
    log_contexts: bool = False


class Settings(Struct, frozen=True):
    """All that a file says: the loops by name, and the service."""

    loops: dict[str, LoopSettings]
    service: Service = Service()


class _File(Struct, forbid_unknown_fields=True):
    """The tables of a file, each of which is read by itself."""

    loops: Annotated[dict[str, Any], Meta(min_length=1)]
    service: Any = {}


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


def read_settings(path: str | Path) -> Settings:
    """Read the file of a service; raise :class:`SettingsError` with the line of all that is wrong."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as reason:
        raise SettingsError([f"{path}: cannot be read ({reason}); name a TOML file."]) from reason
    return parse_settings(text, str(path))


def parse_settings(text: str, source: str = "loop.toml") -> Settings:
    """Return what the text of a file says; ``source`` names it in errors."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as reason:
        found = re.search(r"at line (\d+)", str(reason))
        place = f"{source}:{found[1]}" if found else source
        raise SettingsError([f"{place}: expected TOML, got something else ({reason})."]) from reason
    problems: list[_MistakeError] = []
    loops: dict[str, LoopSettings] = {}
    service = Service()
    try:
        service = _convert(("service",), data.get("service", {}), Service)
    except _MistakeError as problem:
        problems.append(problem)
    try:
        tables = _convert((), data, _File).loops
    except _MistakeError as problem:
        problems.append(problem)
        tables = data.get("loops")
    for name, table in tables.items() if isinstance(tables, dict) else ():
        ill_typed = list(_ill_typed(("loops", name), table))
        problems += ill_typed
        try:
            if not ill_typed:
                loops[name] = _loop(name, table, list(tables))
        except _MistakeError as problem:
            problems.append(problem)
    if problems:
        raise SettingsError([_sentence(source, text, problem) for problem in problems])
    return Settings(loops, service)


def _sentence(source: str, text: str, problem: _MistakeError) -> str:
    line = line_of(text, problem.path)
    return f"{source}{'' if line is None else f':{line}'}: {'.'.join(problem.path)}: {problem}"


def _convert(here: Sequence[str], table: Any, kind: Any) -> Any:
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as reason:
        path, words = in_words(reason, kind, table)
        raise _MistakeError((*here, *path), words) from reason


def _ill_typed(here: Sequence[str], table: Any) -> Iterator[_MistakeError]:
    """Yield a mistake for each key of a loop whose value does not fit."""
    for key, value in table.items() if isinstance(table, dict) else ():
        try:
            _convert(here, {key: value}, LoopSettings)
        except _MistakeError as problem:
            yield problem


def _loop(name: str, table: Any, names: Sequence[str]) -> LoopSettings:
    """Return a loop, one of those with these names; raise for the first mistake in its table."""
    here = ("loops", name)
    if not NAME.fullmatch(name):
        raise _MistakeError(here, "expected a name of letters, digits, - and _ that begins with a letter, 64 at most.")
    if isinstance(table, dict) and "name" in table:
        raise _MistakeError((*here, "name"), "unknown key 'name'; a loop has the name of its table.")
    read: LoopSettings = _convert(here, {**table, "name": name} if isinstance(table, dict) else table, LoopSettings)
    strict = (read.arms or {}).get("strict", False)
    if not isinstance(strict, bool):
        raise _MistakeError((*here, "arms", "strict"), f"expected true or false, got {shown(strict)}.")
    try:
        features = read.features
    except KernelBanditsError as reason:
        message = str(reason).removeprefix("from_toml: ")
        place = message.partition(":")[0].split(".")
        known = place[0] in ("context", "arms", "actions", "box") and getattr(read, place[0]) is not None
        raise _MistakeError((*here, *place) if known else here, message) from reason
    for path, one in ((here, read), ((*here, "challenger"), read.challenger)):
        if one is not None:
            try:
                _policy(one.policy, one.options, features, one.exploration_floor, read.seed)
            except KernelBanditsError as reason:
                at = "policy" if "unknown policy" in str(reason) or not one.options else "options"
                raise _MistakeError((*path, at), str(reason)) from reason
    low, high = read.range or (-LARGEST, LARGEST)
    if not -LARGEST <= low < high <= LARGEST:
        raise _MistakeError((*here, "rewards"), f"expected the lowest and the highest reward, got {[low, high]}.")
    if read.silence.reward is not None and not low <= read.silence.reward <= high:
        message = f"expected a reward from {low:g} to {high:g}, got {read.silence.reward:g}."
        raise _MistakeError((*here, "silence", "reward"), message)
    _check_control(here, read, names)
    return read


def _check_control(here: Sequence[str], read: LoopSettings, names: Sequence[str]) -> None:
    """Refuse a control group or a challenger that cannot be."""
    control, arms = read.control, read.features.actions
    if read.apprentice and (control or read.challenger):
        place = "control" if control else "challenger"
        raise _MistakeError((*here, place), "a loop that only watches decides nothing; leave it or apprentice out.")
    if control is None:
        return
    here = (*here, "control")
    if (control.rule == "fixed") != (control.arm is not None) or (control.rule == "loop") != (control.loop is not None):
        raise _MistakeError(here, 'expected arm = "…" with rule = "fixed", and loop = "…" with rule = "loop".')
    if control.rule != "current" and not isinstance(arms, Arms):
        raise _MistakeError((*here, "rule"), 'the actions of this loop are no arms; use rule = "current".')
    if control.arm is not None and isinstance(arms, Arms) and control.arm not in arms.labels:
        raise _MistakeError((*here, "arm"), f"unknown arm {control.arm!r}{nearest(control.arm, arms.labels)}")
    others = [name for name in names if name != read.name]
    if control.loop is not None and control.loop not in others:
        known = ", ".join(others) or "none"
        raise _MistakeError(
            (*here, "loop"), f"expected the name of another loop, got {control.loop!r}. There are {known}."
        )


def _policy(name: str, options: Mapping[str, Any], features: Features, floor: float, seed: int) -> TablePolicy:
    """Return the policy of a preset's name and options, which has learned nothing."""
    if name not in presets.__all__:
        hint = nearest(name, presets.__all__) or "."
        raise InputError(f"unknown policy {name!r}{hint} See the presets of kernel_bandits.")
    preset = getattr(presets, name)
    takes = inspect.signature(preset).parameters
    if "features" not in takes:
        raise InputError(f"{name} takes no features=; use ek_ucb, k_ucb or another that does.")
    for option in ("seed", "features", *FLOOR_OPTIONS):
        if option in options:
            advice = "write exploration_floor beside policy" if option in FLOOR_OPTIONS else "write it beside policy"
            raise InputError(f"the loop sets {option} itself; {advice}.")
    added: dict[str, Any] = {"features": features}
    if floor:
        taken = [option for option in FLOOR_OPTIONS if option in takes]
        if not taken:
            raise InputError(f"{name}: takes no exploration floor; leave exploration_floor out, or use ek_ucb.")
        added[taken[0]] = floor
    if "seed" in takes:
        added["seed"] = seed
    made = _call(name, preset, {key: _part(key, value) for key, value in options.items()}, added)
    assert isinstance(made, TablePolicy)
    return made


def _part(key: str, value: Any) -> Any:
    """Return an option: a table ``{ name = …, option = … }``, or ``{ rule = … }``, is a part of the library."""
    if isinstance(value, list):
        return tuple(_part(key, item) for item in value)
    if key == "dictionary" and isinstance(value, str):
        value = {"rule": value}
    if not isinstance(value, dict):
        return value
    name = value.get("name", value.get("rule"))
    if name not in _PARTS:
        raise InputError(
            f"{key}: expected the name of a kernel, radius or rule, got {shown(name)}{nearest(name, _PARTS)}"
        )
    inner = {own: _part(own, item) for own, item in value.items() if own not in ("name", "rule")}
    return _call(str(name), _PARTS[name], inner, {})


def _call(name: str, factory: Any, options: Mapping[str, Any], added: Mapping[str, Any]) -> Any:
    takes = inspect.signature(factory).parameters
    named = [key for key, one in takes.items() if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    for option in options:
        if option not in named:
            hint = nearest(option, named) or "."
            raise InputError(f"{name}: unknown option {option!r}{hint} It takes {', '.join(named)}.")
    for key in named:
        if takes[key].default is inspect.Parameter.empty and key not in options and key not in added:
            raise InputError(f"{name}: needs the option {key!r}; add it to its options.")
    try:
        return factory(**options, **added)
    except KernelBanditsError as reason:
        raise InputError(f"{name}: {reason}") from reason
