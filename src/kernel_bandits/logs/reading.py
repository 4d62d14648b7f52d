"""Read a log: a frame, a file in Parquet, CSV or JSON lines, the export of the service, the formats of others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import InputError
from kernel_bandits.logs.columns import (
    Columns,
    lists,
    numbers,
    of_records,
    read_csv,
    read_json_lines,
    read_parquet,
    require_plain,
)
from kernel_bandits.logs.log import MOST_ACTIONS, ContinuousLog, Log, as_plain_actions, key_of, refuse
from kernel_bandits.logs.vowpal import read_decision_json, read_text
from kernel_bandits.tables.arms import Arms
from kernel_bandits.tables.features import Features
from kernel_bandits.tables.rows import is_frame
from kernel_bandits.tables.values import is_gap

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
_TABLES: dict[str, Callable[[Path], Any]] = {"parquet": read_parquet, "csv": read_csv, "jsonl": read_json_lines}
# The names of the Open Bandit Dataset, and what they are here.
_OPEN_BANDIT = {"action": "item_id", "reward": "click", "propensity": "propensity_score"}
# What the columns of a context are called in a file, unless they are named.
PREFIX = "context_"


@dataclass(frozen=True)
class Roles:
    """Which columns of a log are what, as for :func:`read`.

    Attributes:
        names: of the actions, where they are known from elsewhere, in the order of the catalogue.
    """

    context: Sequence[str] | None = None
    action: str | None = None
    reward: str | None = None
    propensity: str | None = None
    actions: Any = None
    features: Features | None = None
    names: tuple[Any, ...] | None = None


def read(
    source: Any,
    *,
    format: Format | None = None,  # noqa: A002 (the word of pandas and pyarrow)
    context: Sequence[str] | None = None,
    action: str | None = None,
    reward: str | None = None,
    propensity: str | None = None,
    actions: Any = None,
    features: Features | None = None,
) -> Log | ContinuousLog:
    """Read a log; a bad row is refused by its number, counted from 0.

    Columns, unless named otherwise: ``context_…``, ``action_index`` or ``index`` or ``action``, ``reward``,
    ``propensity``, and perhaps ``probabilities``. With a column ``density`` the actions are points, in ``action_0``,
    ``action_1``, …. Records of runs, ``decision.to_dict()`` with a reward and the export of the service have these
    names. A file with the columns of the Open Bandit Dataset is recognised.

    A context of numbers alone becomes an array. With ``features``, or where there are text, dates or gaps, the log is a
    table: columns become what ``features`` says or, without it, what they most likely are.

    Args:
        source: a pandas, polars or pyarrow frame, a list of dicts, or the path of a file; a folder of Parquet files
            counts as one.
        format: of a file: ``"parquet"``, ``"csv"``, ``"jsonl"``, or Vowpal Wabbit's ``"vw"`` (text) and ``"dsjson"``;
            by default from the file's suffix.
        context: the columns of the context.
        action: the column of the action.
        reward: the column of the reward.
        propensity: the column of the propensity.
        actions: features of the actions, shape (A, d_a), where the action column holds row numbers; or for a table the
            arms, in the order of their probabilities.
        features: what the columns are, as the policy has them.
    """
    data = source
    if isinstance(source, (str, Path)):
        file = Path(source)
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
        data = _TABLES[kind](file)
    if not isinstance(data, (Columns, list, tuple)) and not is_frame(data):
        raise InputError(f"source: expected a frame, a list of dicts or a path, got {type(source).__name__}.")
    if not len(data):
        raise InputError("log: expected at least one row, got none.")
    if isinstance(data, (list, tuple)):
        if _is_decision(data[0]):
            return _of_service(data, actions, features)
        columns = of_records(data)
    else:
        columns = data if isinstance(data, Columns) else Columns.of(data)
    roles = Roles(context, action, reward, propensity, actions, features)
    return as_log(columns, roles, is_frame(source))


def as_log(columns: Columns, roles: Roles, in_memory: bool = False) -> Log | ContinuousLog:
    """Return columns as a log."""
    names = {"action": roles.action, "reward": roles.reward, "propensity": roles.propensity}
    context, actions, features = roles.context, roles.actions, roles.features
    if {"item_id", "propensity_score", "click"} <= set(columns.names):
        names = {role: names[role] or name for role, name in _OPEN_BANDIT.items()}
        if context is None:
            context = [name for name in columns.names if name.startswith("user_feature_") or name == "position"]
            if "position" in context:
                # a place on the page is no quantity
                places = [f"position {place:g}" for place in numbers("position", columns.get("position"))]
                kept = {name: columns.get(name) for name in columns.names if name != "position"}
                columns = Columns.of({**kept, "position": places})
    renamed = context_columns(columns.names, context, features, names, in_memory)
    for name in renamed:
        columns.get(name, "context")
    rewards = numbers("reward", columns.get(names["reward"] or "reward", "reward"))
    if "density" in columns.names and names["action"] is None:
        coordinates = [name for name in columns.names if name.removeprefix("action_").isdigit()]
        shown, points = (
            np.column_stack([numbers(name, columns.get(name)) for name in group] or [np.empty((len(columns), 0))])
            for group in (renamed, coordinates)
        )
        return ContinuousLog(shown, points, rewards, numbers("density", columns.get("density")))
    propensities = numbers("propensity", columns.get(names["propensity"] or "propensity", "propensity"))
    offered = next((name for name in ("action_index", "index") if name in columns.names), "action")
    played = columns.get(names["action"] or offered, "action")
    table = columns.get("probabilities") if "probabilities" in columns.names else None
    contexts = None if features is not None else columns.numbers(list(renamed))
    if contexts is None:
        for name in renamed:
            if not columns.is_frame:
                require_plain(name, columns.get(name))
        gaps = [row for row, value in enumerate(played) if is_gap(value)]
        if gaps:
            raise refuse("action", gaps[0], "an action", "none")
        known = roles.names if actions is None else as_plain_actions(actions)
        log = Log(columns.table(renamed), _whole(played), rewards, propensities, known, features=features)
        return log if table is None else _with_probabilities(log, table, known)
    found, labels = _actions(played, actions is not None, roles.names)
    probabilities = None
    if table is not None and (actions is not None or labels == tuple(range(len(labels)))):
        probabilities = lists("probabilities", table)
        labels = tuple(range(probabilities.shape[1])) if actions is None else ()
    catalogue = np.eye(len(labels)) if actions is None else np.asarray(actions, dtype=float)
    own = () if actions is not None else labels
    columns_of = tuple(renamed.values())
    return Log(contexts, found, rewards, propensities, catalogue, own, probabilities, columns=columns_of)


def context_columns(
    names: Sequence[str],
    context: Sequence[str] | None,
    features: Features | None,
    roles: Mapping[str, str | None],
    in_memory: bool = False,
) -> dict[str, str]:
    """Return the columns of the context, each with its name as a policy knows it."""
    if context is not None:
        return {name: name for name in context}
    found = {name: name.removeprefix(PREFIX) for name in names if name.startswith(PREFIX)}
    if features is not None and isinstance(features.context, Mapping):
        wanted = list(features.context)
        return {name if name in names else f"{PREFIX}{name}": name for name in wanted}
    known = {*roles.values(), "action", "action_index", "index", "reward", "propensity", "probabilities"}
    left = [name for name in names if name not in known]
    if in_memory and not found and left:
        raise InputError(
            f"context: expected columns {PREFIX}…, got {', '.join(left)}; name those of the context with context=[…], "
            "or give features=, or context=[] for none."
        )
    return found


def _whole(values: Any) -> list[Any]:
    """Return names as they are, and whole numbers as such: a file knows no difference between 1 and 1.0."""
    plain = values.tolist() if isinstance(values, np.ndarray) else list(values)
    return [int(value) if isinstance(value, float) and value.is_integer() else value for value in plain]


def _with_probabilities(log: Log, table: Sequence[Any], known: Sequence[Any] | None) -> Log:
    """Return a log with probabilities in the order of the arms that are known, where there is one."""
    order = known if known is not None else _labels(log.features)
    width = np.size(table[0])
    if len(order) != width:
        return log
    places = [log.names.index(key_of(one)) for one in order]
    found = np.zeros((len(log), len(log.names)))
    found[:, places] = lists("probabilities", table, width)
    return log.with_probabilities(found)


def _labels(features: Features | None) -> Sequence[Any]:
    return features.actions.labels if features is not None and isinstance(features.actions, Arms) else ()


def _actions(values: Any, are_rows: bool, known: tuple[Any, ...] | None) -> tuple[NDArray[np.intp], tuple[Any, ...]]:
    """Return the rows of the actions in the catalogue, and its names: numbers from 0 as they are, others sorted."""
    plain = values if isinstance(values, np.ndarray) else np.array(list(values), dtype=object)
    if all(isinstance(value, (int, float, np.number)) for value in plain[:1]):
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
        return found, known or tuple(range(int(found.max()) + 1))
    require_plain("action", values)
    empty = [row for row, value in enumerate(values) if is_gap(value) or value == ""]
    if empty:
        raise refuse("action", empty[0], "an action", "none")
    names = known or tuple(sorted(set(values), key=str))
    places = {name: place for place, name in enumerate(names)}
    return np.array([places[value] for value in values], dtype=np.intp), names


def _is_decision(row: Mapping[str, Any]) -> bool:
    """Return whether a record is a decision over a table, with its context and perhaps its action in columns."""
    said = {"arm", "actions", "excluded", "active"} & row.keys()
    return isinstance(row.get("context"), Mapping) and (bool(said) or isinstance(row.get("action"), Mapping))


def _of_service(rows: Sequence[Mapping[str, Any]], actions: Any, features: Features | None) -> Log:
    """Return the log of decisions over a table, as the service and ``NamedDecision.to_dict`` write them.

    Decisions that were not activated, and imported rounds without a propensity, say nothing. Those without a reward
    are left out and counted.
    """
    active = [
        row
        for row in rows
        if row.get("active", True) and not (row.get("group") == "imported" and row.get("propensity") is None)
    ]
    kept = [row for row in active if row.get("reward") is not None]
    if not kept:
        raise InputError("log: expected at least one decision with a reward, got none.")
    for number, row in enumerate(rows):
        if row in kept[:1] and row.get("propensity") is None:
            raise refuse("propensity", number, "a probability", "none; set exploration_floor in the service")
    played = [
        row["action"] if row.get("arm") is None or isinstance(row["action"], Mapping) else row["arm"] for row in kept
    ]
    offers = [row.get("actions") for row in kept]
    known = [] if actions is None else as_plain_actions(actions)
    for offer in offers:
        known += [] if offer is None else [one for one in as_plain_actions(offer) if one not in known]
    log = Log(
        [row["context"] for row in kept],
        played,
        np.array([row["reward"] for row in kept], dtype=float),
        np.array([np.nan if row.get("propensity") is None else row["propensity"] for row in kept], dtype=float),
        known or None,
        features=features,
        left_out=len(active) - len(kept),
    )
    return _with_offers(log, kept, offers, actions)


def _with_offers(log: Log, rows: Sequence[Mapping[str, Any]], offers: Sequence[Any], actions: Any) -> Log:
    """Return a log with what was on offer in each decision, and the probabilities where their order is known."""
    default = as_plain_actions(actions) if actions is not None else list(_labels(log.features))
    offered = np.zeros((len(log), len(log.names)), dtype=bool)
    table: FloatArray | None = np.zeros(offered.shape)
    for number, (row, offer) in enumerate(zip(rows, offers, strict=True)):
        listed = default if offer is None else as_plain_actions(offer)
        places = [log.names.index(key_of(one)) for one in listed]
        excluded = {key_of(one) for one in as_plain_actions(row.get("excluded") or [])}
        # without a list, every arm that was known then: those of the log
        on_offer = places if listed else range(len(log.names))
        offered[number, [place for place in on_offer if log.names[place] not in excluded]] = True
        offered[number, log.played[number]] = True
        probabilities = row.get("probabilities")
        if table is not None and probabilities is not None and len(probabilities) == len(places):
            table[number, places] = probabilities
        else:
            table = None
    log = log if offered.all() else log.with_offers(offered)
    return log if table is None else log.with_probabilities(table)
