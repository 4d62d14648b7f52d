"""Studies as data: which policies meet which environments, with which seeds, for how many rounds.

A study is read from TOML tables, or from the same tables in Python with classes in place of names; every mistake is an
:class:`InputError` that names the place and what to write. It expands to runs. The id of a run depends only on what the
run does: labels, the order of options and the file it comes from do not enter, so a finished run is found again.
"""

import functools
import hashlib
import importlib
import importlib.util
import inspect
import itertools
import json
import math
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Literal, Self, TypeAlias, get_args

import numpy as np

import kernel_bandits.environments
from kernel_bandits import confidence, dictionaries, kernels, presets
from kernel_bandits.arrays import as_count
from kernel_bandits.environments import Environment, Table
from kernel_bandits.errors import InputError, KernelBanditsError
from kernel_bandits.learning import KernelLearning
from kernel_bandits.loop import run as run_loop
from kernel_bandits.policy.policy import Policy

Factory: TypeAlias = Callable[..., Any]
Role: TypeAlias = Literal["environment", "policy", "kernel, radius or rule"]


def catalogue(role: Role) -> dict[str, Factory]:
    """Return what the library offers for a role, by name."""
    if role == "environment":
        return _classes(kernel_bandits.environments, Environment)
    if role == "policy":
        return {name: getattr(presets, name) for name in presets.__all__}
    return {
        **_classes(kernels, kernels.Kernel),
        **_classes(confidence, confidence.Confidence),
        **rules(),
        KernelLearning.__name__: KernelLearning,
    }


def rules() -> dict[str, Factory]:
    """Return the dictionary rules that the library offers, by name."""
    return _classes(dictionaries, dictionaries.DictionaryRule)


def find_factory(role: Role, name: str) -> Factory:
    """Return the class or function that a name stands for."""
    if ":" in name:
        return _import(name)
    known = catalogue(role)
    if name not in known:
        raise InputError(
            f"unknown {role} {name!r}{did_you_mean(name, known)} There are {', '.join(sorted(known))}; "
            "write your own as 'module:attribute'."
        )
    return known[name]


def name_of(factory: Factory) -> str:
    """Return the name of a class or function: that in the catalogue, or ``module:attribute``."""
    for role in get_args(Role):
        for known, value in catalogue(role).items():
            if value is factory:
                return known
    module, name = getattr(factory, "__module__", None), getattr(factory, "__qualname__", "<")
    if module is None or "<" in name:
        raise InputError(f"name: another process cannot find {factory!r}; define it at the top level of a module.")
    if module == "__main__":
        # A study has the same run ids whether it runs as a script or through the command line.
        module = Path(getattr(sys.modules["__main__"], "__file__", None) or "__main__").stem
    return f"{module}:{name}"


def parameters(factory: Factory) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a class or function."""
    try:
        return _signature(factory)
    except TypeError:  # one that cannot be hashed, or has no signature
        return _parameters(factory)


def _parameters(factory: Factory) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(factory).parameters
    except (TypeError, ValueError) as reason:
        raise InputError(f"{factory!r} does not say which options it takes; wrap it in a function.") from reason


@functools.lru_cache(maxsize=256)
def _signature(factory: Factory) -> Mapping[str, inspect.Parameter]:
    return _parameters(factory)


def check_options(name: str, factory: Factory, options: Iterable[str], added: Collection[str] = ()) -> None:
    """Raise :class:`InputError` if an option is unknown, or a required one is neither given nor added by a run."""
    known = parameters(factory)
    named = [key for key, value in known.items() if value.kind not in (value.VAR_POSITIONAL, value.VAR_KEYWORD)]
    takes_any = any(value.kind is value.VAR_KEYWORD for value in known.values())
    given = set(options)
    for option in sorted(given - set(named)):
        if not takes_any:
            hint = _rule_hint(option, named) if "dictionary" in named else did_you_mean(option, named)
            raise InputError(f"{name}: unknown option {option!r}{hint} It takes {', '.join(named) or 'no options'}.")
    for key in named:
        if known[key].default is inspect.Parameter.empty and key not in given and key not in added:
            raise InputError(f"{name}: needs the option {key!r}; add it to its options.")


def _rule_hint(option: str, known: Collection[str]) -> str:
    """Say where to write an option of a dictionary rule; a rule calls ``max_dictionary_size`` just ``max_size``."""
    moved = option.replace("dictionary_", "")
    # Kors, the default of EK-UCB, is named before the other rules that share its options.
    for rule, factory in sorted(rules().items(), key=lambda item: item[0] != "Kors"):
        if moved in parameters(factory):
            return f"; write dictionary = {{ rule = {rule!r}, {moved} = … }}."
    return did_you_mean(option, known)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``; did you mean …?`` if a known name is close, else a full stop."""
    close = get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else "."


def _classes(module: Any, base: type) -> dict[str, Factory]:
    return {
        name: value
        for name, value in vars(module).items()
        if inspect.isclass(value) and issubclass(value, base) and not inspect.isabstract(value) and name[0] != "_"
    }


def _import(reference: str) -> Factory:
    module, _, attribute = reference.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for name in attribute.split("."):
            found = getattr(found, name)
    except (ImportError, AttributeError, ValueError) as reason:
        raise InputError(f"{reference}: cannot be imported ({reason}); put the module beside the study.") from reason
    if not callable(found):
        raise InputError(f"{reference}: expected a class or a function, got {found!r}.")
    return found


# Makes a nested reference or component from a name (or a class or function) and its options.
Make: TypeAlias = Callable[[Any, Mapping[str, Any]], Any]


@dataclass(frozen=True, eq=False)
class _Named:
    """The data that references and components share; make them with :func:`reference` and :func:`component`.

    Attributes:
        name: in the catalogue, or ``"module:attribute"``.
        options: arguments: numbers, texts, tuples, and references or components.
        label: what tables and figures call it. It does not enter comparisons or run ids.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""

    def __post_init__(self) -> None:
        if not self.label:
            object.__setattr__(self, "label", self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Named) and (self.name, self.options) == (other.name, other.options)

    __hash__ = None  # type: ignore[assignment] # options are a dict

    @property
    def settings(self) -> dict[str, Any]:
        """Name and options as plain data, without labels; the order of the options does not matter."""
        return {"name": self.name, **{key: _as_data(self.options[key]) for key in sorted(self.options)}}


@dataclass(frozen=True, eq=False)
class Reference(_Named):
    """A component known by name and options alone, as read from a record. It cannot be built."""


@dataclass(frozen=True, eq=False)
class Component(_Named):
    """A component with the class or function that builds it.

    Attributes:
        factory: the class or function.
    """

    factory: Factory = field(kw_only=True, repr=False)

    def accepts(self, option: str) -> bool:
        """Return whether the factory has a parameter of this name."""
        return option in parameters(self.factory)

    def check(self, added: Collection[str] = ()) -> None:
        """Raise :class:`InputError` if an option is unknown or missing, here or in a nested component.

        A run adds the options ``added`` itself.
        """
        check_options(self.name, self.factory, self.options, added)
        for value in self.options.values():
            for item in value if isinstance(value, tuple) else (value,):
                if isinstance(item, Component):
                    item.check()

    def build(self, **added: Any) -> Any:
        """Call the factory with the options and with ``added``."""
        options = {key: _build(value) for key, value in self.options.items()} | added
        check_options(self.name, self.factory, options)
        try:
            return self.factory(**options)
        except KernelBanditsError as reason:
            raise InputError(f"{self.name}: {reason}") from reason


def reference(name: str, options: Mapping[str, Any] | None = None, label: str = "") -> Reference:
    """Return a reference; its options may be tables as in a study's file."""
    return Reference(name, parse_options(options or {}, reference), label)


def component(role: Role, thing: str | Factory, options: Mapping[str, Any], label: str = "") -> Component:
    """Return the component that a name in the catalogue of a role, a class or a function stands for.

    Options are as in a study's file; tables and figures call the component by its label.
    """
    if isinstance(thing, str):
        name, factory = thing, find_factory(role, thing)
    elif callable(thing):
        name, factory = name_of(thing), thing
    else:
        raise InputError(f"name: expected a name, a class or a function, got {thing!r}.")
    return Component(name, parse_options(options), label, factory=factory)


def _nested(thing: str | Factory, options: Mapping[str, Any]) -> Component:
    return component("kernel, radius or rule", thing, options)


def parse_options(options: Mapping[str, Any], make: Make = _nested) -> dict[str, Any]:
    """Return options with every nested table turned into a component, or into what ``make`` returns."""
    return {key: _parse(key, value, make) for key, value in options.items()}


def readable(value: Any) -> Any:
    """Return an option as labels see it: ``{kernel.lengthscale}`` looks into a component."""
    if isinstance(value, _Named):
        return SimpleNamespace(name=value.name, **{key: readable(item) for key, item in value.options.items()})
    return value


def in_words(value: Any) -> str:
    """Return an option as text: ``Gaussian(lengthscale=0.1)``."""
    if isinstance(value, _Named):
        return f"{value.name}({', '.join(f'{key}={in_words(item)}' for key, item in value.options.items())})"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _parse(key: str, value: Any, make: Make) -> Any:
    if isinstance(value, Mapping):
        return _parse_table(key, value, make)
    if isinstance(value, (list, tuple)):
        return tuple(_parse(key, item, make) for item in value)
    if isinstance(value, (np.ndarray, np.generic)):
        return _parse(key, value.tolist(), make)
    if key == "dictionary" and isinstance(value, str) and value in rules():
        return make(value, {})
    if value is None or isinstance(value, (bool, int, float, str, _Named)):
        return value
    raise InputError(
        f"{key}: expected a number, a text, a list or a table with a name, got {value!r}; "
        "settings are data, as {'name': 'Gaussian', 'lengthscale': 0.1}."
    )


def _parse_table(key: str, table: Mapping[str, Any], make: Make) -> Any:
    """Make the component of ``{name = "Gaussian", …}``; dictionary rules may also be ``{rule = "Kors", …}``."""
    names = [entry for entry in ("name", "rule") if entry in table]
    if len(names) != 1:
        example = "{rule = 'Kors', …}" if key == "dictionary" else "{name = 'Gaussian', …}"
        raise InputError(f"{key}: expected a table with a name, such as {example}, got {dict(table)!r}.")
    thing = table[names[0]]
    if names == ["rule"] and isinstance(thing, str) and ":" not in thing and thing not in rules():
        raise InputError(f"{key}: unknown rule {thing!r}. There are {', '.join(sorted(rules()))}.")
    return make(thing, {entry: value for entry, value in table.items() if entry != names[0]})


def _as_data(value: Any) -> Any:
    if isinstance(value, _Named):
        return value.settings
    if isinstance(value, tuple):
        return [_as_data(item) for item in value]
    # 10 and 10.0 are the same setting.
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _build(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_build(item) for item in value]
    return value.build() if isinstance(value, Component) else value


# What a run passes to its policy, where the policy takes it.
ADDED_OPTIONS = ("seed", "horizon")


@dataclass(frozen=True)
class Run:
    """One policy in one environment with one seed.

    Attributes:
        environment: a component, or a reference if the run was read from a record.
        policy: the same; its kernel is one of its options.
        seed: of contexts, noise, ties and coins. Runs with the same seed share contexts and noise.
        horizon: T, the number of rounds.
    """

    environment: Component | Reference
    policy: Component | Reference
    seed: int
    horizon: int

    @property
    def settings(self) -> dict[str, Any]:
        """What the run does, as plain data."""
        return {
            "environment": self.environment.settings,
            "policy": self.policy.settings,
            "seed": self.seed,
            "horizon": self.horizon,
        }

    @cached_property
    def id(self) -> str:
        """A readable prefix and a digest of the settings."""
        digest = hashlib.sha256(json.dumps(self.settings, sort_keys=True).encode()).hexdigest()[:12]
        readable = f"{self.environment.name.split(':')[-1]}-{self.policy.name.split(':')[-1]}-{self.seed}"
        return re.sub(r"[^\w.-]", "_", f"{readable}-{digest}")

    @property
    def cell(self) -> tuple[str, str]:
        """The labels of environment and policy; the runs of a cell differ in their seeds."""
        return self.environment.label, self.policy.label

    @property
    def label(self) -> str:
        """The run in words."""
        return f"{self.environment.label}, {self.policy.label}, seed {self.seed}"

    def resolved(self) -> tuple[Component, Component]:
        """Return environment and policy as components, or raise :class:`InputError` if they are references."""
        if isinstance(self.environment, Reference) or isinstance(self.policy, Reference):
            raise InputError(f"{self.label}: a run read from a record cannot be built; load its study instead.")
        return self.environment, self.policy

    def build(self) -> tuple[Policy, Environment]:
        """Return the policy, with ``seed`` and ``horizon`` if it takes them, and the environment."""
        place, player = self.resolved()
        environment = place.build()
        if not isinstance(environment, Environment):
            raise InputError(f"{place.name}: expected an Environment, got {environment!r}.")
        added = {key: getattr(self, key) for key in ADDED_OPTIONS if key not in player.options and player.accepts(key)}
        if isinstance(environment, Table) and player.accepts("features") and "features" not in player.options:
            # the policy over arrays that a table's own description makes: it knows which columns belong together
            return player.build(features=environment.features, **added).inner, environment
        policy = player.build(**added)
        if not isinstance(policy, Policy):
            raise InputError(f"{player.name}: expected a Policy, got {policy!r}.")
        return policy, environment


@dataclass(frozen=True)
class Study:
    """Runs that belong together.

    Attributes:
        name: of the folder that holds its records.
        title: one line for figures and reports.
        runs: ordered by seed, so that a study stopped early has finished the same seeds for every policy.
        quick: caps on ``horizon`` and ``seeds`` for a quick look; may be empty.
    """

    name: str
    title: str
    runs: tuple[Run, ...]
    quick: Mapping[str, int] = field(default_factory=dict)

    def capped(self, horizon: int | None = None, seeds: int | None = None) -> Self:
        """Return the study with at most ``horizon`` rounds and the first ``seeds`` seeds per policy and environment."""
        kept: list[Run] = []
        seen: dict[tuple[str, str], int] = {}
        for run in self.runs:
            seen[run.cell] = seen.get(run.cell, 0) + 1
            if seeds is None or seen[run.cell] <= as_count("seeds", seeds):
                rounds = run.horizon if horizon is None else min(run.horizon, as_count("horizon", horizon))
                kept.append(replace(run, horizon=rounds))
        return replace(self, runs=tuple(kept))

    def shifted(self, by: int) -> Self:
        """Return the study with ``by`` added to every seed."""
        largest = max((run.seed for run in self.runs), default=0) + by
        if not 0 <= largest < 2**63:
            raise InputError(f"seed: expected seeds below 2⁶³, got {largest}.")
        return replace(self, runs=tuple(replace(run, seed=run.seed + by) for run in self.runs))


TomlTable: TypeAlias = Mapping[str, Any]

STUDY_KEYS = ("name", "title", "environments", "policies", "defaults", "seeds", "horizon", "quick")
ENVIRONMENT_KEYS = ("name", "label", "options", "grid", "kernel")
POLICY_KEYS = ("name", "label", "options", "grid", "seeds", "horizon", "environments")
QUICK_KEYS = ("seeds", "horizon")
# Files with more than this are taken for a mistake: a run is a file, and a round a row of it.
MOST_RUNS, MOST_ROUNDS, LARGEST_SEED = 1_000_000, 1_000_000_000, 2**63 - 1
_WIDE = re.compile(r"\{[^{}]*:[^{}]*\d{4}")


def load_study(path: str | Path) -> Study:
    """Read a study from a TOML file, or from a Python file that defines ``study``, a :class:`Study` or its tables.

    Modules beside the file can be imported by it and named in it as ``"module:attribute"``. Their code is sent with
    the runs to other processes and machines. Nothing is played; :func:`validate` does that.
    """
    path = Path(path).resolve()
    if path.suffix not in (".toml", ".py"):
        raise InputError(f"{path}: expected a study in a .toml or a .py file.")
    if not path.is_file():
        raise InputError(f"{path}: there is no such file.")
    with importable(path.parent):
        try:
            tables = _read_python(path) if path.suffix == ".py" else _read_toml(path)
            return tables if isinstance(tables, Study) else study_of(tables, path.stem)
        except KernelBanditsError as reason:
            raise InputError(f"{path.name}: {reason}") from reason
        except RecursionError as reason:
            raise InputError(f"{path.name}: its tables or lists are nested too deeply.") from reason


def study_of(tables: TomlTable, name: str = "study") -> Study:
    """Return the study that tables as in a TOML file describe; ``name`` is used unless the tables have one.

    A class or function may stand in place of the ``name`` of an environment, a policy or a part of them.
    """
    _check_keys("the study", tables, STUDY_KEYS, required=("environments", "policies", "seeds", "horizon"))
    name = _text("name", tables.get("name", name))
    places = list(_environments(tables))
    entries = list(_policies(tables, [place.environment.label for place in places]))
    cells = _cells(places, entries, _table("defaults", tables.get("defaults", {})))
    quick = _table("quick", tables.get("quick", {}))
    _check_keys("quick", quick, QUICK_KEYS)
    return Study(
        name=name,
        title=_text("title", tables.get("title", name)),
        runs=tuple(run for row in itertools.zip_longest(*cells) for run in row if run is not None),
        quick={key: as_count(f"quick.{key}", value) for key, value in quick.items()},
    )


@contextmanager
def importable(folder: Path) -> Iterator[None]:
    """Make the modules in a folder importable inside this context."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


@dataclass(frozen=True)
class _Place:
    """An environment and the options it offers policies: from its own lengthscale, and from the file."""

    environment: Component
    suggested: Mapping[str, Any]
    given: Mapping[str, Any]


@dataclass(frozen=True)
class _Entry:
    """A policy, its environments, its seeds and its horizon."""

    policy: Component
    environments: tuple[str, ...]
    seeds: tuple[int, ...]
    horizon: int


def _environments(tables: TomlTable) -> Iterator[_Place]:
    for where, table in _numbered("environments", tables["environments"]):
        _check_keys(where, table, ENVIRONMENT_KEYS, required=("name",))
        given = parse_options({"kernel": table["kernel"]} if "kernel" in table else {})
        for environment in _grid(where, table, "environment"):
            lengthscale = getattr(environment.build(), "lengthscale", None)
            suggested = {} if lengthscale is None else {"kernel": {"name": "Gaussian", "lengthscale": lengthscale}}
            yield _Place(environment, parse_options(suggested), given)


def _policies(tables: TomlTable, labels: Sequence[str]) -> Iterator[_Entry]:
    for where, table in _numbered("policies", tables["policies"]):
        _check_keys(where, table, POLICY_KEYS, required=("name",))
        chosen = table.get("environments", labels)
        if not isinstance(chosen, (list, tuple)) or not chosen:
            raise InputError(f"{where}.environments: expected a list of labels, got {chosen!r}.")
        for label in chosen:
            if label not in labels:
                hint = did_you_mean(str(label), labels)
                raise InputError(f"{where}.environments: there is no environment {label!r}{hint}")
        seeds = _seeds(f"{where}.seeds", table.get("seeds", tables["seeds"]))
        of_horizon = f"{where}.horizon" if "horizon" in table else "horizon"
        horizon = _at_most(of_horizon, as_count(of_horizon, table.get("horizon", tables["horizon"])), MOST_ROUNDS)
        for policy in _grid(where, table, "policy"):
            yield _Entry(policy, tuple(chosen), seeds, horizon)


def _cells(places: Sequence[_Place], entries: Sequence[_Entry], defaults: TomlTable) -> list[list[Run]]:
    """Return the runs of each policy in each of its environments."""
    _check_labels([place.environment.label for place in places], "environments")
    for option in defaults:
        if not any(entry.policy.accepts(option) for entry in entries):
            raise InputError(f"defaults: no policy takes an option {option!r}; check its name or remove it.")
    _at_most("the study's runs", sum(len(entry.seeds) * len(entry.environments) for entry in entries), MOST_RUNS)
    parsed_defaults = parse_options(defaults)
    cells = []
    for place in places:
        label = place.environment.label
        here = [entry for entry in entries if label in entry.environments]
        _check_labels([entry.policy.label for entry in here], f"policies in {label}")
        for entry in here:
            policy = _complete(entry.policy, place, parsed_defaults)
            cells.append([Run(place.environment, policy, seed, entry.horizon) for seed in entry.seeds])
    return cells


def _complete(policy: Component, place: _Place, defaults: TomlTable) -> Component:
    """Add the options that a policy takes from elsewhere. Precedence: policy, then environment, then defaults."""
    # A learned kernel must not start from the lengthscale that the environment knows.
    suggested = {} if policy.options.get("learn_kernel") else place.suggested
    offered = {**suggested, **defaults, **place.given}
    taken = {key: value for key, value in offered.items() if policy.accepts(key)}
    completed = replace(policy, options={**taken, **policy.options})
    try:
        completed.check(added=ADDED_OPTIONS)
    except KernelBanditsError as reason:
        raise InputError(f"{policy.label} in {place.environment.label}: {reason}") from reason
    return completed


def _grid(where: str, table: TomlTable, role: Role) -> Iterator[Component]:
    """Yield a component for every point of the grid; one if there is no grid."""
    options = _table(f"{where}.options", table.get("options", {}))
    for point in _points(f"{where}.grid", table.get("grid", {})):
        twice = sorted(set(point) & set(options))
        if twice:
            raise InputError(f"{where}: {twice[0]!r} is both an option and in the grid; remove one of them.")
        try:
            made = component(role, table["name"], {**options, **point})
            yield replace(made, label=_label(table.get("label"), made, point))
        except KernelBanditsError as reason:
            raise InputError(f"{where}: {reason}") from reason


def _points(where: str, grid: Any) -> Iterator[dict[str, Any]]:
    """Yield the product of a table of lists, or the tables of a list."""
    if isinstance(grid, (list, tuple)):
        for table in grid:
            yield dict(_table(where, table))
        return
    axes = _table(where, grid)
    for key, values in axes.items():
        if not isinstance(values, (list, tuple)) or not values:
            raise InputError(f"{where}.{key}: expected a list of values, got {values!r}; a single value is an option.")
    _at_most(where, math.prod(map(len, axes.values())), MOST_RUNS)
    for values in itertools.product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def _label(pattern: Any, made: Component, point: TomlTable) -> str:
    if pattern is None:
        varied = ", ".join(f"{key}={in_words(made.options[key])}" for key in point)
        name = made.name.split(":")[-1]
        return f"{name}({varied})" if varied else name
    if isinstance(pattern, str) and _WIDE.search(pattern):
        raise InputError(f"label: {pattern!r} has a width or precision of four digits or more; make it shorter.")
    try:
        return _text("label", pattern).format(**{key: readable(value) for key, value in made.options.items()})
    except (KeyError, AttributeError, IndexError, ValueError) as reason:
        raise InputError(
            f"label: {pattern!r} cannot be filled in ({type(reason).__name__}: {reason}); "
            f"there are {', '.join(made.options) or 'no options'}."
        ) from reason


def _seeds(where: str, value: Any) -> tuple[int, ...]:
    if isinstance(value, (list, tuple)):
        whole = all(isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0 for seed in value)
        if not value or not whole or len(set(value)) < len(value):
            raise InputError(f"{where}: expected different whole numbers of at least 0, got {value!r}.")
        _at_most(where, max(value), LARGEST_SEED)
        return tuple(value)
    return tuple(range(_at_most(where, as_count(where, value), MOST_RUNS)))


def _at_most(where: str, number: int, limit: int) -> int:
    if number > limit:
        raise InputError(f"{where}: expected at most {limit:,}, got {number:,}.")
    return number


def _check_labels(labels: Sequence[str], where: str) -> None:
    label, count = Counter(labels).most_common(1)[0] if labels else ("", 0)
    if count > 1:
        raise InputError(
            f"{where}: {'two' if count == 2 else count} of them are called {label!r}; "
            "give each a label, with {option} where a grid varies it."
        )


def _check_keys(where: str, table: TomlTable, known: Sequence[str], required: Sequence[str] = ()) -> None:
    for key in table:
        if key not in known:
            hint = did_you_mean(str(key), known)
            raise InputError(f"{where}: unknown entry {key!r}{hint} It has {', '.join(known)}.")
    for key in required:
        if key not in table:
            raise InputError(f"{where}: the entry {key!r} is missing.")


def _numbered(where: str, tables: Any) -> Iterator[tuple[str, TomlTable]]:
    if not isinstance(tables, (list, tuple)) or not tables:
        raise InputError(f"{where}: expected one or more tables, as [[{where}]], got {tables!r}.")
    for number, table in enumerate(tables, start=1):
        yield f"{where}[{number}]", _table(f"{where}[{number}]", table)


def _table(where: str, value: Any) -> TomlTable:
    if not isinstance(value, Mapping):
        raise InputError(f"{where}: expected a table, got {value!r}.")
    return value


def _text(where: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise InputError(f"{where}: expected a text, got {value!r}.")
    return value


def _read_toml(path: Path) -> TomlTable:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as reason:
        raise InputError(f"not a TOML file: {reason}") from reason


def _read_python(path: Path) -> TomlTable | Study:
    study = getattr(_load_module(path), "study", None)
    if not isinstance(study, (Mapping, Study)):
        raise InputError(f"expected it to define `study`, a Study or a table, got {study!r}.")
    return study


def _load_module(path: Path) -> ModuleType:
    """Import a study's file under its own name, which records use for its classes."""
    specification = importlib.util.spec_from_file_location(path.stem, path)
    assert specification is not None  # there is a loader for every .py file
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    before = sys.modules.get(path.stem)
    if before is not None and Path(getattr(before, "__file__", None) or "").name != path.name:
        raise InputError(f"a module called {path.stem} is loaded already; give the file another name.")
    sys.modules[path.stem] = module
    try:
        specification.loader.exec_module(module)
    except KernelBanditsError:
        raise
    except Exception as reason:
        raise InputError(f"the file cannot be run: {type(reason).__name__}: {reason}") from reason
    return module


def validate(study: Study) -> None:
    """Play the first round of every policy in every environment, or raise :class:`InputError`.

    Values that a class refuses, and policies that do not fit their environment, show here rather than in the runs.
    """
    first: dict[tuple[str, str], Run] = {}
    for run in study.runs:
        first.setdefault(run.cell, run)
    for run in first.values():
        where = f"{study.name}: {run.policy.label} in {run.environment.label}"
        try:
            run_loop(*run.build(), 1, run.seed)
        except KernelBanditsError as reason:
            raise InputError(f"{where}: {reason}") from reason
        except Exception as reason:
            raise InputError(f"{where}: the first round fails: {type(reason).__name__}: {reason}") from reason
