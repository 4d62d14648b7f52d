"""How rows of a table become joint points, in a form that a few lines of any language follow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np

from kernel_bandits.errors import InputError
from kernel_bandits.features.arms import ARM
from kernel_bandits.features.cells import (
    BooleanCell,
    CategoricalCell,
    Cell,
    CyclicCell,
    DateCell,
    GivenLevelsCell,
    NumericCell,
    OrderedCell,
)
from kernel_bandits.features.codebook import Codebook
from kernel_bandits.features.encoder import ColumnEncoder, RowEncoder
from kernel_bandits.features.layout import Side
from kernel_bandits.features.offers import ActionEncoder, ArmEncoder, DescribedActions
from kernel_bandits.features.values import Level

Node: TypeAlias = dict[str, Any]


def variables(contexts: RowEncoder, actions: ActionEncoder) -> list[Node]:
    """Return the encoding of every variable with what is known now, in the order of the columns of a joint point."""
    nodes = _rows(contexts, "context", 0)
    if isinstance(actions, DescribedActions):
        return nodes + _rows(actions.rows, "action", contexts.width)
    assert isinstance(actions, ArmEncoder)
    if actions.codebook.capacity:
        width = actions.codebook.capacity
        nodes.append(_node(ARM, "action", contexts.width, width) | _levels(actions.codebook, width) | {"missing": None})
    return nodes if actions.features is None else nodes + _rows(actions.features, "action", contexts.width)


def _rows(rows: RowEncoder, side: Side, shift: int) -> list[Node]:
    if not isinstance(rows, ColumnEncoder):
        raise InputError(
            "export: a transformer is code and cannot be written to a file; export the policy over arrays, "
            "policy.inner.export(path), and apply the transformer yourself."
        )
    return [_node(name, side, shift + cell.start, cell.width) | _encoding(cell) for name, cell in rows.cells]


def _node(name: str, side: Side, start: int, width: int) -> Node:
    return {"name": name, "side": side, "columns": [start, start + width]}


def _encoding(cell: Cell) -> Node:
    gap = {"missing": _written(cell, None) if cell.missing else None}
    if isinstance(cell, NumericCell):
        scale = {"logarithm": cell.logarithm, "origin": cell.origin, "length": cell.length}
        return {"kind": "number"} | scale | gap
    if isinstance(cell, CyclicCell):
        return {"kind": "cyclic", "period": cell.period} | gap
    if isinstance(cell, DateCell):
        return {"kind": "date", "origin": cell.origin} | gap
    if isinstance(cell, CategoricalCell):
        return _levels(cell.codebook, cell.width) | gap
    if isinstance(cell, (OrderedCell, BooleanCell, GivenLevelsCell)):
        levels: Iterable[Level] = (False, True)
        other = None
        if isinstance(cell, OrderedCell):
            levels = cell.places
        elif isinstance(cell, GivenLevelsCell):
            levels, other = cell.columns, np.eye(cell.width)[cell.other - cell.start].tolist()
        return {"kind": "levels", "levels": [[level, _written(cell, level)] for level in levels], "other": other} | gap
    return {"kind": "direction"} | gap


def _written(cell: Cell, value: object) -> list[float]:
    """Return the columns of a cell in which a value was written."""
    row = np.zeros(cell.start + cell.width)
    cell.write(row, value)
    return row[cell.start :].tolist()


def _levels(codebook: Codebook, width: int) -> Node:
    """Return the vectors of known levels, and of all others where they have the next free column in common."""
    known, free = [*codebook.slots, *codebook.late], len(codebook.slots)
    vectors = np.zeros((len(known), width))
    for vector, level in zip(vectors, known, strict=True):
        codebook.write(vector, 0, level)
    other = np.eye(width)[free].tolist() if free < codebook.capacity else None
    levels = [[level, vector] for level, vector in zip(known, vectors.tolist(), strict=True)]
    return {"kind": "levels", "levels": levels, "other": other}
