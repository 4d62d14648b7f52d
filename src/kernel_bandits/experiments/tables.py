"""The file of a study: tables in TOML, or the same tables in Python with classes in place of names.

``load_study`` reads both. Every mistake in a file is an :class:`InputError` that names the place and what to write.
"""

from __future__ import annotations

import importlib.util
import itertools
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, TypeAlias

from kernel_bandits.arrays import as_count
from kernel_bandits.errors import InputError, KernelBanditsError
from kernel_bandits.experiments.loop import run as play
from kernel_bandits.experiments.parts import Kind, Part, nearest, part_of
from kernel_bandits.experiments.study import Run, Study

Table: TypeAlias = Mapping[str, Any]

STUDY_KEYS = ("name", "title", "environments", "policies", "defaults", "seeds", "horizon", "quick")
ENVIRONMENT_KEYS = ("name", "label", "options", "grid", "kernel")
POLICY_KEYS = ("name", "label", "options", "grid", "seeds", "horizon", "environments")
QUICK_KEYS = ("seeds", "horizon")


def load_study(path: str | Path) -> Study:
    """Read a study from a TOML file, or from a Python file that defines ``study``, a :class:`Study` or its tables.

    Modules beside the file can be imported by it and named in it, as ``"module:attribute"``. Their code travels with
    the runs to other processes and machines.
    """
    path = Path(path).resolve()
    if path.suffix not in (".toml", ".py"):
        raise InputError(f"{path}: expected a study in a .toml or a .py file.")
    if not path.is_file():
        raise InputError(f"{path}: there is no such file.")
    with importable(path.parent):
        try:
            tables = _python_tables(path) if path.suffix == ".py" else _toml_tables(path)
            return tables if isinstance(tables, Study) else study_of(tables, path.stem)
        except KernelBanditsError as reason:
            raise InputError(f"{path.name}: {reason}") from reason


def study_of(tables: Table, name: str = "study") -> Study:
    """The study that tables describe.

    Args:
        tables: as in a TOML file; wherever a ``name`` stands there may be a class or function instead.
        name: the study's, unless the tables say.
    """
    _check_keys("the study", tables, STUDY_KEYS, required=("environments", "policies", "seeds", "horizon"))
    name = _text("name", tables.get("name", name))
    environments = list(_environments(tables))
    entries = list(_entries(tables, environments))
    cells = _cells(environments, entries, _table("defaults", tables.get("defaults", {})))
    for run, *_ in cells:
        _try_first_round(run)
    rows = itertools.zip_longest(*cells)
    quick = _table("quick", tables.get("quick", {}))
    _check_keys("quick", quick, QUICK_KEYS)
    return Study(
        name=name,
        title=_text("title", tables.get("title", name)),
        runs=tuple(run for row in rows for run in row if run is not None),
        quick={key: as_count(f"quick.{key}", value) for key, value in quick.items()},
    )


def _try_first_round(run: Run) -> None:
    """Mistakes that show when a policy first meets its environment are the file's, not a run's."""
    where = f"{run.policy.label} in {run.environment.label}"
    try:
        play(*run.build(), 1, run.seed)
    except KernelBanditsError as reason:
        raise InputError(f"{where}: {reason}") from reason
    except Exception as reason:
        raise InputError(f"{where}: the first round fails: {type(reason).__name__}: {reason}") from reason


def _cells(environments: Sequence[_Place], entries: Sequence[_Entry], defaults: Table) -> list[list[Run]]:
    """The runs of each policy in each environment it plays in."""
    _check_labels([place.part.label for place in environments], "environments")
    for option in defaults:
        if not any(entry.part.accepts(option) for entry in entries):
            raise InputError(f"defaults: no policy takes an option {option!r}; check its name or leave it out.")
    cells = []
    for place in environments:
        playing = [entry for entry in entries if place.part.label in entry.environments]
        _check_labels([entry.part.label for entry in playing], f"policies in {place.part.label}")
        for entry in playing:
            policy = _complete(entry.part, place, defaults)
            cells.append([Run(place.part, policy, seed, entry.horizon) for seed in entry.seeds])
    return cells


@dataclass(frozen=True)
class _Place:
    """An environment, the kernel that the file gives policies there, and the one that it suggests itself."""

    part: Part
    kernel: Part | None
    suggested: Part | None


@dataclass(frozen=True)
class _Entry:
    """A policy, where it plays, with which seeds and how long."""

    part: Part
    environments: tuple[str, ...]
    seeds: tuple[int, ...]
    horizon: int


def _environments(tables: Table) -> Iterator[_Place]:
    for where, table in _numbered("environments", tables["environments"]):
        _check_keys(where, table, ENVIRONMENT_KEYS, required=("name",))
        kernel = Part("", {"kernel": table["kernel"]}).options["kernel"] if "kernel" in table else None
        for part in _grid(where, table, "environment"):
            lengthscale = getattr(part.build(), "lengthscale", None)
            suggested = None if lengthscale is None else Part("Gaussian", {"lengthscale": lengthscale})
            yield _Place(part, kernel, suggested)


def _entries(tables: Table, environments: Sequence[_Place]) -> Iterator[_Entry]:
    labels = [place.part.label for place in environments]
    for where, table in _numbered("policies", tables["policies"]):
        _check_keys(where, table, POLICY_KEYS, required=("name",))
        chosen = table.get("environments", labels)
        if not isinstance(chosen, (list, tuple)) or not chosen:
            raise InputError(f"{where}.environments: expected a list of labels, got {chosen!r}.")
        for label in chosen:
            if label not in labels:
                raise InputError(
                    f"{where}.environments: there is no environment {label!r}{nearest(str(label), labels)}"
                )
        seeds = _seeds(f"{where}.seeds", table.get("seeds", tables["seeds"]))
        horizon = as_count(
            f"{where}.horizon" if "horizon" in table else "horizon", table.get("horizon", tables["horizon"])
        )
        for part in _grid(where, table, "policy"):
            yield _Entry(part, tuple(chosen), seeds, horizon)


def _complete(policy: Part, place: _Place, defaults: Table) -> Part:
    """The policy with the options it takes from elsewhere; what is said more specifically wins."""
    suggested, given = ({} if kernel is None else {"kernel": kernel} for kernel in (place.suggested, place.kernel))
    if policy.options.get("learn_kernel"):
        # what is learned should not start from what the environment knows
        suggested = {}
    taken = {key: value for key, value in {**suggested, **defaults, **given}.items() if policy.accepts(key)}
    return replace(policy, options={**taken, **policy.options}).resolved("policy")


def _grid(where: str, table: Table, kind: Kind) -> Iterator[Part]:
    """A part for every point of the grid; one if there is none."""
    options = _table(f"{where}.options", table.get("options", {}))
    for point in _points(f"{where}.grid", table.get("grid", {})):
        twice = sorted(set(point) & set(options))
        if twice:
            raise InputError(f"{where}: {twice[0]!r} is both among the options and in the grid; leave one out.")
        try:
            part = part_of(table["name"], {**options, **point}).resolved(kind)
            yield replace(part, label=_label(table.get("label"), part, point))
        except KernelBanditsError as reason:
            raise InputError(f"{where}: {reason}") from reason


def _points(where: str, grid: Any) -> Iterator[dict[str, Any]]:
    """Of a table of lists their product; of a list of tables the tables themselves."""
    if isinstance(grid, (list, tuple)):
        for table in grid:
            yield dict(_table(where, table))
        return
    axes = _table(where, grid)
    for key, values in axes.items():
        if not isinstance(values, (list, tuple)) or not values:
            raise InputError(f"{where}.{key}: expected a list of values, got {values!r}; a single value is an option.")
    for values in itertools.product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def _label(pattern: Any, part: Part, point: Table) -> str:
    if pattern is None:
        varied = ", ".join(f"{key}={_in_words(part.options[key])}" for key in point)
        name = part.name.split(":")[-1]
        return f"{name}({varied})" if varied else name
    try:
        return _text("label", pattern).format(**{key: _readable(value) for key, value in part.options.items()})
    except (KeyError, AttributeError, IndexError, ValueError) as reason:
        raise InputError(
            f"label: {pattern!r} cannot be filled in ({type(reason).__name__}: {reason}); "
            f"there are {', '.join(part.options) or 'no options'}."
        ) from reason


def _readable(value: Any) -> Any:
    """A value as labels see it: ``{kernel.lengthscale}`` looks into a part."""
    if isinstance(value, Part):
        return SimpleNamespace(name=value.name, **{key: _readable(item) for key, item in value.options.items()})
    return value


def _in_words(value: Any) -> str:
    if isinstance(value, Part):
        return f"{value.name}({', '.join(f'{key}={_in_words(item)}' for key, item in value.options.items())})"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _seeds(where: str, value: Any) -> tuple[int, ...]:
    if isinstance(value, (list, tuple)):
        whole = all(isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0 for seed in value)
        if not value or not whole or len(set(value)) < len(value):
            raise InputError(f"{where}: expected different whole numbers of at least 0, got {value!r}.")
        return tuple(value)
    return tuple(range(as_count(where, value)))


def _check_labels(labels: Sequence[str], where: str) -> None:
    for label in labels:
        if labels.count(label) > 1:
            raise InputError(
                f"{where}: two of them are called {label!r}; give each a label, with {{option}} where a grid varies it."
            )


def _check_keys(where: str, table: Table, known: Sequence[str], required: Sequence[str] = ()) -> None:
    for key in table:
        if key not in known:
            raise InputError(f"{where}: unknown entry {key!r}{nearest(str(key), known)} It has {', '.join(known)}.")
    for key in required:
        if key not in table:
            raise InputError(f"{where}: the entry {key!r} is missing.")


def _numbered(where: str, tables: Any) -> Iterator[tuple[str, Table]]:
    if not isinstance(tables, (list, tuple)) or not tables:
        raise InputError(f"{where}: expected one or more tables, as [[{where}]], got {tables!r}.")
    for number, table in enumerate(tables, start=1):
        yield f"{where}[{number}]", _table(f"{where}[{number}]", table)


def _table(where: str, value: Any) -> Table:
    if not isinstance(value, Mapping):
        raise InputError(f"{where}: expected a table, got {value!r}.")
    return value


def _text(where: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise InputError(f"{where}: expected a text, got {value!r}.")
    return value


def _toml_tables(path: Path) -> Table:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as reason:
        raise InputError(f"not a TOML file: {reason}") from reason


def _python_tables(path: Path) -> Table | Study:
    module = _load_module(path)
    study = getattr(module, "study", None)
    if not isinstance(study, (Mapping, Study)):
        raise InputError(f"expected it to define `study`, a Study or a table, got {study!r}.")
    return study


def _load_module(path: Path) -> ModuleType:
    """The module of a study's file, under its own name: its classes are known by that name in records."""
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


@contextmanager
def importable(folder: Path) -> Iterator[None]:
    """Modules in the folder can be imported inside this context."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
