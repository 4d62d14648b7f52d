"""Vowpal Wabbit's logs as they are: ``--cb`` text, one line or several per round, and decision-service JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import InputError
from kernel_bandits.logs.log import Log, refuse

# Features of a line by name; more distinct names than this would not fit a dense table.
MOST_FEATURES = 5_000
Sparse = Mapping[str, float]


def dense(rows: Sequence[Sparse]) -> FloatArray:
    """Return sparse features as a table (n, d), columns in order of first appearance."""
    places: dict[str, int] = {}
    for row in rows:
        for name in row:
            places.setdefault(name, len(places))
    if len(places) > MOST_FEATURES:
        raise InputError(
            f"log: expected at most {MOST_FEATURES} distinct features, got {len(places)}; hash them first."
        )
    table = np.zeros((len(rows), len(places)))
    for number, row in enumerate(rows):
        for name, value in row.items():
            table[number, places[name]] = value
    return table


def read_text(path: Path) -> Log:
    """Read ``--cb`` lines (``2:-1:0.5 | a:1``), or ``--cb_adf`` blocks that end with an empty line.

    A reward is the negative of a cost.
    """
    lines = path.read_text(encoding="utf-8").splitlines()
    if any(not line.strip() for line in lines[:-1]) or any(line.startswith("shared") for line in lines):
        return _blocks(lines)
    labels, contexts = [], []
    for row, line in enumerate(lines):
        label, _, features = line.partition("|")
        labels.append(_label(row, label.split()))
        contexts.append(_features(row, features))
    played = np.array([int(action) - 1 for action, _, _ in labels])
    return _log(dense(contexts), played, labels, None)


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
        tokens = part.split()[1:] if namespace else part.split()
        for token in tokens:
            name, _, value = token.partition(":")
            try:
                found[f"{namespace}^{name}"] = float(value) if value else 1.0
            except ValueError:
                raise refuse("features", row, "name:number", token) from None
    return found


def _blocks(lines: Sequence[str]) -> Log:
    contexts, labels, played, offers = [], [], [], []
    for row, block in enumerate(_separated(lines)):
        shared = [line for line in block if line.startswith("shared")]
        actions = [line for line in block if not line.startswith("shared")]
        contexts.append(_features(row, shared[0].partition("|")[2]) if shared else {})
        tokens = [line.partition("|")[0].split() for line in actions]
        chosen = [place for place, found in enumerate(tokens) if any(":" in token for token in found)]
        if len(chosen) != 1:
            raise refuse("label", row, "one labelled action line", len(chosen))
        played.append(chosen[0])
        labels.append(_label(row, tokens[chosen[0]]))
        offers.append([_features(row, line.partition("|")[2]) for line in actions])
    return _log(dense(contexts), np.array(played), labels, _catalogue(offers))


def _separated(lines: Sequence[str]) -> Iterator[list[str]]:
    block: list[str] = []
    for line in [*lines, ""]:
        if line.strip():
            block.append(line)
        elif block:
            yield block
            block = []


def _catalogue(offers: Sequence[Sequence[Sparse]]) -> FloatArray | None:
    """Return the features of the actions if they are the same in every round; otherwise None, for their numbers."""
    for row, offer in enumerate(offers):
        if len(offer) != len(offers[0]):
            raise refuse("actions", row, f"{len(offers[0])} on offer, as in row 0", len(offer))
    return dense(offers[0]) if any(offers[0]) and all(offer == offers[0] for offer in offers) else None


def _log(
    contexts: FloatArray,
    played: Any,
    labels: Sequence[tuple[float, float, float]],
    actions: FloatArray | None,
    probabilities: FloatArray | None = None,
) -> Log:
    costs, propensities = (np.array([label[place] for label in labels]) for place in (1, 2))
    return Log(contexts, played, -costs, propensities, actions, probabilities=probabilities)


def of_decision_json(lines: Sequence[Mapping[str, Any]]) -> Log:
    """Return the log of decision-service JSON: ``_label_cost``, ``_label_probability``, ``a``, ``p`` and ``c``."""
    contexts, labels, played, offers, tables = [], [], [], [], []
    for row, line in enumerate(lines):
        try:
            order, context = [int(action) - 1 for action in line["a"]], dict(line["c"])
            index = (
                int(line["_labelIndex"]) if "_labelIndex" in line else int(line.get("_label_Action", line["a"][0])) - 1
            )
            labels.append((index, float(line["_label_cost"]), float(line["_label_probability"])))
            table = np.zeros(len(order))
            table[order] = line["p"]
        except (KeyError, TypeError, ValueError, IndexError) as reason:
            raise refuse(
                "line", row, "a labelled decision with a, c, p", f"{type(reason).__name__} {reason}"
            ) from reason
        offers.append([_nested("", action) for action in context.pop("_multi", [{}] * len(order))])
        contexts.append(_nested("", context))
        played.append(index)
        tables.append(table)
    actions = _catalogue(offers)
    if actions is None and tables:
        actions = np.eye(len(tables[0]))
    return _log(dense(contexts), np.array(played), labels, actions, np.array(tables))


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
