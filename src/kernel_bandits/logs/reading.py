"""Read a log: a frame, a file in Parquet, CSV or JSON lines, the export of the service, Vowpal Wabbit's formats."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import InputError, needs
from kernel_bandits.logs.log import (
    Columns,
    ContinuousLog,
    Log,
    as_plain_actions,
    columns_of,
    key_of,
    refuse,
    require_once,
)
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
# The names of the Open Bandit Dataset, and what they are here.
_OPEN_BANDIT = {"action": "item_id", "reward": "click", "propensity": "propensity_score"}
# What the columns of a context are called in a file, unless they are named.
PREFIX = "context_"
# Features of a line by name; more distinct names than this would not fit a dense table.
MOST_FEATURES = 5_000
Sparse = Mapping[str, float]


@dataclass(frozen=True)
class Roles:
    """Which columns of a log are what, as for :func:`read`.

    Attributes:
        names: of the actions, where they are known from elsewhere, in the order of the catalogue.
        shares: of the actions in the log as a whole, where they are the same in every round.
    """

    context: Sequence[str] | None = None
    action: str | None = None
    reward: str | None = None
    propensity: str | None = None
    actions: Any = None
    features: Features | None = None
    names: tuple[Any, ...] | None = None
    shares: FloatArray | None = None


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
    roles = Roles(context, action, reward, propensity, actions, features)
    data = source
    if isinstance(source, (str, Path)):
        file = Path(source)
        if not file.exists():
            raise InputError(f"{file}: there is no such file.")
        kind = format or ("parquet" if file.is_dir() else _SUFFIXES.get(file.suffix))
        if kind not in _READERS:
            raise InputError(
                f"format: expected one of {', '.join(sorted(_READERS))}, got {format or file.suffix!r}; give format=…."
            )
        data = _READERS[kind](file)
        if isinstance(data, Log):
            return data
    elif not isinstance(source, (list, tuple)) and not is_frame(source):
        raise InputError(f"source: expected a frame, a list of dicts or a path, got {type(source).__name__}.")
    if isinstance(data, (list, tuple)):
        if data and _is_decision(data[0]):
            return _of_service(data, actions, features)
        return as_log(_of_records(data), roles)
    return as_log(columns_of(data), roles)


def as_log(columns: Columns, roles: Roles) -> Log | ContinuousLog:
    """Return columns as a log."""
    if not len(next(iter(columns.values()), ())):
        raise InputError("log: expected at least one row, got none.")
    names = {"action": roles.action, "reward": roles.reward, "propensity": roles.propensity}
    context, actions, features = roles.context, roles.actions, roles.features
    if {"item_id", "propensity_score", "click"} <= set(columns):
        names = {role: names[role] or name for role, name in _OPEN_BANDIT.items()}
        if context is None:
            context = [name for name in columns if name.startswith("user_feature_") or name == "position"]
            if "position" in context:
                # a place on the page is no quantity
                places = [f"position {place:g}" for place in numbers("position", columns["position"])]
                columns = {**columns, "position": np.array(places, dtype=object)}
    renamed = context_columns(tuple(columns), context, features, names)
    shown = {name: _get(columns, column, "context") for column, name in renamed.items()}
    rewards = numbers("reward", _get(columns, names["reward"] or "reward", "reward"))
    if "density" in columns and names["action"] is None:
        coordinates = [name for name in columns if name.removeprefix("action_").isdigit()]
        points, wanted = (
            np.column_stack([numbers(name, column) for name, column in group.items()] or [np.empty((len(rewards), 0))])
            for group in (shown, {name: columns[name] for name in coordinates})
        )
        return ContinuousLog(points, wanted, rewards, numbers("density", columns["density"]))
    propensities = numbers("propensity", _get(columns, names["propensity"] or "propensity", "propensity"))
    offered = next((name for name in ("action_index", "index") if name in columns), "action")
    played = _get(columns, names["action"] or offered, "action")
    table = columns.get("probabilities")
    contexts = None if features is not None else _as_matrix(shown, len(rewards))
    if contexts is None:
        for name in renamed:
            nested = [row for row, value in enumerate(columns[name]) if isinstance(value, Mapping)]
            if nested:
                raise refuse(name, nested[0], "a number or a text", repr(columns[name][nested[0]]))
        known = roles.names if actions is None else as_plain_actions(actions)
        log = Log(shown, played, rewards, propensities, known, features=features)
        return log if table is None else _with_probabilities(log, table, known)
    catalogue = None if actions is None else np.asarray(actions, dtype=float)
    own = () if roles.names is None else roles.names
    log = Log(contexts, played, rewards, propensities, catalogue, own, columns=tuple(shown))
    if table is None or (actions is None and log.names != tuple(range(len(log.names)))):
        return log
    probabilities = lists("probabilities", table)
    if actions is None and probabilities.shape[1] > len(log.names):
        log = Log(contexts, played, rewards, propensities, np.eye(probabilities.shape[1]), columns=tuple(shown))
    return log.with_probabilities(probabilities)


def _get(columns: Columns, name: str, role: str) -> NDArray[Any]:
    if name not in columns:
        raise InputError(f"{role}: expected a column {name!r}, got {', '.join(columns)}; name it with {role}=….")
    return columns[name]


def _as_matrix(columns: Columns, count: int) -> FloatArray | None:
    """Return columns as numbers (n, d); None if one of them has text, dates or gaps."""
    found = [as_numbers(column) for column in columns.values()]
    if any(column is None or not np.isfinite(column).all() for column in found):
        return None
    return np.column_stack(found) if found else np.empty((count, 0))  # type: ignore[arg-type]


def context_columns(
    names: Sequence[str],
    context: Sequence[str] | None,
    features: Features | None,
    roles: Mapping[str, str | None],
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
    # records of decisions and of runs have further columns, and a context that may be empty
    if left and not found and not {"index", "action_index", "density"}.intersection(names):
        raise InputError(
            f"context: expected columns {PREFIX}…, got {', '.join(left)}; name those of the context with context=[…], "
            "or context=[] for none (--context NAME or --context '' on the command line), or give features=."
        )
    return found


def _with_probabilities(log: Log, table: Any, known: Sequence[Any] | None) -> Log:
    """Return a log with probabilities in the order of the arms that are known, where there is one."""
    order = known if known is not None else log.arms
    width = np.size(table[0])
    if len(order) != width:
        return log
    places = [log.names.index(key_of(one)) for one in order]
    found = np.zeros((len(log), len(log.names)))
    found[:, places] = lists("probabilities", table, width)
    return log.with_probabilities(found)


def as_numbers(values: Any) -> FloatArray | None:
    """Return a column as numbers, or None if it does not read as such."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "fiub":
        return values.astype(np.float64)
    if any(is_gap(value) for value in values):
        return None
    try:
        found = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        return None
    return found if found.ndim == 1 else None


def numbers(name: str, values: Any) -> FloatArray:
    """Return a column as numbers, or an error that names the row."""
    found = as_numbers(values)
    if found is not None:
        return found
    for row, value in enumerate(values):
        if is_gap(value):
            raise refuse(name, row, "a value", "none")
        try:
            float(value)
        except (TypeError, ValueError):
            raise refuse(name, row, "a number", repr(value)) from None
    raise InputError(f"{name}: expected one number in each row, got {values!r}.")


def lists(name: str, values: Any, width: int | None = None) -> FloatArray:
    """Return a column of lists of equal length as numbers (n, k), or an error that names the row."""
    width = np.size(values[0]) if width is None else width
    table = np.empty((len(values), width))
    for row, value in enumerate(values):
        if np.ndim(value) != 1 or len(value) != width:
            raise refuse(name, row, f"a list of {width} numbers", repr(value))
        try:
            table[row] = value
        except (TypeError, ValueError):
            raise refuse(name, row, f"a list of {width} numbers", repr(value)) from None
    return table


def _read_parquet(path: Path) -> Any:
    """Read a Parquet file, or a folder of them."""
    with needs("pyarrow", "kernel-bandits[arrow]"):
        from pyarrow import dataset
    return dataset.dataset(path, format="parquet").to_table()


def _read_csv(path: Path) -> dict[str, list[Any]]:
    """Read a CSV file with a header; cells without text are gaps, and columns of numbers become numbers."""
    # spreadsheets begin a file with a byte order mark, and some end it with an empty line
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file)
        header = next(reader, None)
        if not header:
            raise InputError(f"{path}: expected a line of column names, got an empty file.")
        require_once("columns with different names", filter(None, header), "drop or rename one")
        rows: list[list[str]] = []
        for row in filter(None, reader):
            if len(row) != len(header):
                raise refuse("columns", len(rows), f"{len(header)} values", len(row))
            rows.append(row)
    # a column without a name numbers the rows, as pandas writes them
    return {name: _parsed([row[place] for row in rows]) for place, name in enumerate(header) if name}


def _parsed(cells: list[str]) -> list[Any]:
    """Return cells as numbers if all but the empty ones are, and otherwise as text; empty ones are gaps."""
    try:
        return [None if cell == "" else float(cell) for cell in cells]
    except ValueError:
        return [None if cell == "" else cell for cell in cells]


def _read_json_lines(path: Path) -> list[dict[str, Any]]:
    """Read one JSON object per line."""
    rows: list[dict[str, Any]] = []
    with path.open(encoding="utf-8") as file:
        for line in file:
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as reason:
                raise refuse("line", len(rows), "a JSON object", reason) from reason
            if not isinstance(row, dict):
                raise refuse("line", len(rows), "a JSON object", type(row).__name__)
            rows.append(row)
    return rows


def _of_records(rows: Sequence[Mapping[str, Any]]) -> Columns:
    """Return records as columns: lists of numbers as ``name_0``, ``name_1``, …, nested contexts as ``context_key``.

    Probabilities stay lists, since they are one value. A column of a context may have gaps; others are the same in
    every record, where empty values, as the id of a decision without one, are left out.
    """
    flat = [_flat(row) for row in rows]
    shared = [{name for name in row if not name.startswith("context_")} for row in flat]
    for number, names in enumerate(shared):
        if names != shared[0]:
            odd = sorted(names ^ shared[0])
            raise refuse("columns", number, "the same as in row 0", f"a difference in {', '.join(odd)}")
    every = dict.fromkeys(name for row in flat for name in row)
    return columns_of({name: [row.get(name) for row in flat] for name in every})


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in row.items():
        if value is None:
            continue
        if isinstance(value, Mapping):
            found |= {f"{name}_{key}": item for key, item in value.items()}
        elif isinstance(value, list) and name != "probabilities":
            found |= {f"{name}_{place}": item for place, item in enumerate(value)}
        else:
            found[name] = value
    return found


def _is_decision(row: Mapping[str, Any]) -> bool:
    """Return whether a record is a decision over a table, with its context and perhaps its action in columns."""
    said = {"arm", "actions", "excluded", "active"} & row.keys()
    return isinstance(row.get("context"), Mapping) and (bool(said) or isinstance(row.get("action"), Mapping))


def _of_service(rows: Sequence[Mapping[str, Any]], actions: Any, features: Features | None) -> Log:
    """Return the log of decisions over a table, as the service and ``NamedDecision.to_dict`` write them.

    Decisions that were not activated, and imported rounds without a propensity, say nothing. Those without a reward
    are left out and counted.
    """
    kept, left_out = [], 0
    for place, row in enumerate(rows):
        drawn = row.get("propensity") is not None
        if not row.get("active", True) or (row.get("group") == "imported" and not drawn):
            continue
        if row.get("reward") is None:
            left_out += 1
        elif drawn:
            kept.append(row)
        else:
            raise refuse(
                "propensity", place, "a probability", "none; set exploration_floor in the policy or the service"
            )
    if not kept:
        raise InputError("log: expected at least one decision with a reward, got none.")
    if all("number" in row for row in kept):
        require_once("each decision once", (row["number"] for row in kept), "drop what was exported twice")
        # an interval that is watched needs the order of the decisions
        kept.sort(key=lambda row: int(row["number"]))
    played = [
        row["action"] if row.get("arm") is None or isinstance(row["action"], Mapping) else row["arm"] for row in kept
    ]
    offers = [row.get("actions") for row in kept]
    listed = [] if actions is None else as_plain_actions(actions)
    known = [*listed]
    for offer in offers:
        known += [] if offer is None else [one for one in as_plain_actions(offer) if one not in known]
    log = Log(
        [row["context"] for row in kept],
        played,
        np.array([row["reward"] for row in kept], dtype=float),
        np.array([row["propensity"] for row in kept], dtype=float),
        known or None,
        features=features,
        left_out=left_out,
    )
    # arms that nobody listed are in the order of their first play, which is not that of probabilities
    return _with_offers(log, kept, offers, log.arms if actions is None and features is not None else listed)


def _with_offers(log: Log, rows: Sequence[Mapping[str, Any]], offers: Sequence[Any], default: Sequence[Any]) -> Log:
    """Return a log with what was on offer in each decision, and the probabilities where their order is known."""
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


class _Round(NamedTuple):
    """A round of Vowpal Wabbit: the place of what was played, its cost and propensity, and what was on offer."""

    context: Sparse
    played: int
    cost: float
    propensity: float
    offers: Sequence[Sparse] = ()
    probabilities: FloatArray | None = None


def _log(rounds: Sequence[_Round]) -> Log:
    """Return rounds as a log; a reward is the negative of a cost."""
    offers = [one.offers for one in rounds]
    for row, offer in enumerate(offers):
        if len(offer) != len(offers[0]):
            raise refuse("actions", row, f"{len(offers[0])} on offer, as in row 0", len(offer))
    tables = [one.probabilities for one in rounds if one.probabilities is not None]
    # the features of the actions, if they are the same in every round; otherwise their numbers
    actions: FloatArray | None = None
    if offers and any(offers[0]) and all(offer == offers[0] for offer in offers):
        actions = _dense(offers[0])
    elif tables:
        actions = np.eye(len(tables[0]))
    played, costs, propensities = (np.array([one[place] for one in rounds]) for place in (1, 2, 3))
    contexts = _dense([one.context for one in rounds])
    return Log(contexts, played, -costs, propensities, actions, probabilities=np.array(tables) if tables else None)


def _dense(rows: Sequence[Sparse]) -> FloatArray:
    """Return sparse features as a table (n, d), columns in order of first appearance."""
    places = {name: place for place, name in enumerate(dict.fromkeys(name for row in rows for name in row))}
    if len(places) > MOST_FEATURES:
        raise InputError(
            f"log: expected at most {MOST_FEATURES} distinct features, got {len(places)}; hash them first."
        )
    table = np.zeros((len(rows), len(places)))
    for number, row in enumerate(rows):
        for name, value in row.items():
            table[number, places[name]] = value
    return table


def _read_text(path: Path) -> Log:
    """Read ``--cb`` lines (``2:-1:0.5 | a:1``), or ``--cb_adf`` blocks that end with an empty line."""
    lines = path.read_text(encoding="utf-8").splitlines()
    if any(not line.strip() for line in lines[:-1]) or any(line.startswith("shared") for line in lines):
        blocks = [list(block) for is_line, block in groupby(lines, lambda line: bool(line.strip())) if is_line]
        return _log([_of_block(row, block) for row, block in enumerate(blocks)])
    rounds = []
    for row, line in enumerate(lines):
        label, _, features = line.partition("|")
        action, cost, propensity = _label(row, label.split())
        rounds.append(_Round(_features(row, features), int(action) - 1, cost, propensity))
    return _log(rounds)


def _of_block(row: int, block: Sequence[str]) -> _Round:
    shared = [line for line in block if line.startswith("shared")]
    actions = [line.partition("|") for line in block if not line.startswith("shared")]
    chosen = [place for place, (label, _, _) in enumerate(actions) if ":" in label]
    if len(chosen) != 1:
        raise refuse("label", row, "one labelled action line", len(chosen))
    _, cost, propensity = _label(row, actions[chosen[0]][0].split())
    context = _features(row, shared[0].partition("|")[2]) if shared else {}
    return _Round(context, chosen[0], cost, propensity, [_features(row, features) for _, _, features in actions])


def _label(row: int, tokens: Sequence[str]) -> tuple[float, float, float]:
    """Return action, cost and probability of the labelled token of a line."""
    labelled = [token.split(":") for token in tokens if token.count(":") == 2]
    if len(labelled) != 1:
        raise refuse("label", row, "one action:cost:probability", " ".join(tokens) or "none")
    try:
        action, cost, probability = map(float, labelled[0])
    except ValueError:
        raise refuse("label", row, "numbers in action:cost:probability", ":".join(labelled[0])) from None
    return action, cost, probability


def _features(row: int, text: str) -> Sparse:
    """Return the features of a line behind its first bar; a namespace is joined to their names."""
    found: dict[str, float] = {}
    for part in text.split("|"):
        namespace = "" if part[:1].isspace() or not part else part.split()[0].split(":")[0]
        for token in part.split()[1:] if namespace else part.split():
            name, _, value = token.partition(":")
            try:
                found[f"{namespace}^{name}"] = float(value) if value else 1.0
            except ValueError:
                raise refuse("features", row, "name:number", token) from None
    return found


def _of_decision(row: int, line: Mapping[str, Any]) -> _Round:
    """Return a line of decision-service JSON: ``_label_cost``, ``_label_probability``, ``a``, ``p`` and ``c``."""
    try:
        order, context = [int(action) - 1 for action in line["a"]], dict(line["c"])
        played = int(line["_labelIndex"]) if "_labelIndex" in line else int(line.get("_label_Action", order[0] + 1)) - 1
        cost, propensity, table = float(line["_label_cost"]), float(line["_label_probability"]), np.zeros(len(order))
        table[order] = line["p"]
    except (KeyError, TypeError, ValueError, IndexError) as reason:
        words = f"{type(reason).__name__} {reason}"
        raise refuse("line", row, "a labelled decision with a, c, p", words) from reason
    offers = [_nested("", action) for action in context.pop("_multi", [{}] * len(order))]
    return _Round(_nested("", context), played, cost, propensity, offers, table)


def _nested(prefix: str, value: Any) -> dict[str, float]:
    """Return the features of a JSON value by path; a text is a feature of its own."""
    if isinstance(value, Mapping):
        parts = [_nested(f"{prefix}^{key}" if prefix else str(key), item) for key, item in value.items()]
    elif isinstance(value, list):
        parts = [_nested(f"{prefix}^{place}", item) for place, item in enumerate(value)]
    elif isinstance(value, (bool, int, float)):
        return {prefix: float(value)}
    else:
        return {} if value is None else {f"{prefix}={value}": 1.0}
    return {name: number for part in parts for name, number in part.items()}


_READERS: dict[str, Callable[[Path], Any]] = {
    "parquet": _read_parquet,
    "csv": _read_csv,
    "jsonl": _read_json_lines,
    "vw": _read_text,
    "dsjson": lambda file: _log([_of_decision(row, line) for row, line in enumerate(_read_json_lines(file))]),
}
