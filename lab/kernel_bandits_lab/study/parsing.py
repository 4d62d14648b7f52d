"""Read a study from TOML tables, or from the same tables in Python with classes in place of names.

Every mistake in a file is an :class:`InputError` that names the place and what to write.
"""

import importlib.util
import itertools
import math
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from kernel_bandits.arrays import as_count
from kernel_bandits.errors import InputError, KernelBanditsError
from kernel_bandits_lab.study.catalogue import Role, did_you_mean
from kernel_bandits_lab.study.components import Component, component, in_words, parse_options, readable
from kernel_bandits_lab.study.specification import ADDED_OPTIONS, Run, Study

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
