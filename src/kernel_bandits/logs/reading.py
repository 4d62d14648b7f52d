"""Read a log from a file: our schema in Parquet, CSV or JSON lines, and the formats of others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from kernel_bandits.errors import InputError
from kernel_bandits.logs.log import ContinuousLog, Log, refuse
from kernel_bandits.logs.tables import (
    Columns,
    as_columns,
    encoded,
    is_numeric,
    lists,
    numbers,
    read_csv,
    read_json_lines,
    read_parquet,
    require_plain,
)
from kernel_bandits.logs.vowpal import read_decision_json, read_text

Format: TypeAlias = Literal["parquet", "csv", "jsonl", "vw", "dsjson"]
_SUFFIXES: dict[str, Format] = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".vw": "vw",
    ".txt": "vw",
    ".dsjson": "dsjson",
}
_TABLES: dict[str, Callable[[Path], Columns]] = {
    "parquet": read_parquet,
    "csv": read_csv,
    "jsonl": lambda path: as_columns(read_json_lines(path)),
}
# Numbers of actions are rows of a catalogue; larger ones are rather identifiers.
MOST_ACTIONS = 10_000
# The names of the Open Bandit Dataset, and what they are here.
_OPEN_BANDIT = {"action": "item_id", "reward": "click", "propensity": "propensity_score"}


def read(
    path: str | Path,
    *,
    format: Format | None = None,  # noqa: A002 (the word of pandas and pyarrow)
    context: Sequence[str] | None = None,
    action: str | None = None,
    reward: str | None = None,
    propensity: str | None = None,
    actions: ArrayLike | None = None,
) -> Log | ContinuousLog:
    """Read a log; a bad row is refused by its number, counted from 0.

    Columns, unless named otherwise: ``context_…`` (numbers or text), ``action_index`` or ``index`` or ``action``,
    ``reward``, ``propensity``, and perhaps ``probabilities``. With a column ``density`` the actions are points, in
    ``action_0``, ``action_1``, …. Records of runs and ``decision.to_dict()`` with a reward have these names. A file
    with the columns of the Open Bandit Dataset is recognised.

    Args:
        path: of the file; a folder of Parquet files counts as one.
        format: ``"parquet"``, ``"csv"``, ``"jsonl"``, or Vowpal Wabbit's ``"vw"`` (text) and ``"dsjson"``; by default
            from the file's suffix.
        context: the columns of the context.
        action: the column of the action.
        reward: the column of the reward.
        propensity: the column of the propensity.
        actions: features of the actions, shape (A, d_a), where the action column holds row numbers.
    """
    file = Path(path)
    if not file.exists():
        raise InputError(f"{file}: there is no such file.")
    kind = format or ("parquet" if file.is_dir() else _SUFFIXES.get(file.suffix))
    if kind == "vw":
        return read_text(file)
    if kind == "dsjson":
        return read_decision_json(file)
    if kind not in _TABLES:
        known = ", ".join(sorted({*_TABLES, "vw", "dsjson"}))
        raise InputError(f"format: expected one of {known}, got {format or file.suffix!r}; give format=….")
    columns = _TABLES[kind](file)
    if not columns or not len(next(iter(columns.values()))):
        raise InputError(f"{file}: expected at least one row, got none.")
    names = {"action": action, "reward": reward, "propensity": propensity}
    return _as_log(columns, names, context, actions)


def _as_log(
    columns: Columns, names: dict[str, str | None], context: Sequence[str] | None, actions: ArrayLike | None
) -> Log | ContinuousLog:
    if {"item_id", "propensity_score", "click"} <= columns.keys():
        names = {role: names[role] or name for role, name in _OPEN_BANDIT.items()}
        if context is None:
            context = [name for name in columns if name.startswith("user_feature_") or name == "position"]
            columns = {**columns, "position": [f"position {place}" for place in columns.get("position", ())]}
    if context is None:
        context = [name for name in columns if name.startswith("context_")]
    for name in context:
        _column(columns, name, "context")
    rewards = numbers("reward", _column(columns, names["reward"] or "reward", "reward"))
    contexts = encoded(columns, context)
    if "density" in columns and names["action"] is None:
        coordinates = [name for name in columns if name.removeprefix("action_").isdigit()]
        return ContinuousLog(contexts, encoded(columns, coordinates), rewards, numbers("density", columns["density"]))
    propensities = numbers("propensity", _column(columns, names["propensity"] or "propensity", "propensity"))
    offered = "action_index" if "action_index" in columns else "index" if "index" in columns else "action"
    played, labels = _actions(_column(columns, names["action"] or offered, "action"), actions is not None)
    table = lists("probabilities", columns["probabilities"]) if "probabilities" in columns else None
    if table is not None and actions is None and labels == tuple(range(len(labels))):
        labels = tuple(range(table.shape[1]))
    catalogue = np.eye(len(labels)) if actions is None else np.asarray(actions, dtype=float)
    return Log(contexts, played, rewards, propensities, catalogue, () if actions is not None else labels, table)


def _column(columns: Columns, name: str, role: str) -> Sequence[Any]:
    if name not in columns:
        raise InputError(f"{role}: expected a column {name!r}, got {', '.join(columns)}; name it with {role}=….")
    return columns[name]


def _actions(values: Sequence[Any], are_rows: bool) -> tuple[Any, tuple[Any, ...]]:
    """Return the rows of the actions in the catalogue, and its names: numbers from 0 as they are, others sorted."""
    if is_numeric(values):
        floats = numbers("action", values)
        whole = np.isfinite(floats) & (floats == np.floor(floats))
        if not whole.all():
            row = int(np.flatnonzero(~whole)[0])
            raise refuse("action", row, "a whole number", floats[row])
        found = floats.astype(np.intp)
        if are_rows:
            return found, ()
        if found.min() < 0:
            row = int(found.argmin())
            raise refuse("action", row, "a number from 0", found[row])
        if found.max() >= MOST_ACTIONS:
            row = int(found.argmax())
            raise refuse("action", row, f"a number below {MOST_ACTIONS}, or identifiers as texts", found[row])
        return found, tuple(range(int(found.max()) + 1))
    require_plain("action", values)
    empty = [row for row, value in enumerate(values) if value == ""]
    if empty:
        raise refuse("action", empty[0], "an action", "none")
    names = tuple(sorted(set(values), key=str))
    places = {name: place for place, name in enumerate(names)}
    return np.array([places[value] for value in values], dtype=np.intp), names
