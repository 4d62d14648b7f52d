"""A fitted scikit-learn transformer in place of our own encoding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from kernel_bandits.arrays import FloatArray, require_finite
from kernel_bandits.errors import InputError, needs
from kernel_bandits.features.encoder import RowEncoder, numbered
from kernel_bandits.features.layout import ColumnGroup, Side
from kernel_bandits.features.rows import Row, RowLike, as_row, require_columns
from kernel_bandits.features.values import Level


@runtime_checkable
class Transformer(Protocol):
    """What is needed of a transformer; scikit-learn's have it once they are fitted."""

    def transform(self, X: Any) -> Any:
        """Turn rows of a table into rows of numbers, dense or sparse."""
        ...

    def get_feature_names_out(self) -> Any:
        """Return the names of the columns that :meth:`transform` returns."""
        ...


def input_names(transformer: Transformer) -> list[str]:
    """Return the columns that a fitted transformer takes."""
    names = getattr(transformer, "feature_names_in_", None)
    if names is None:
        raise InputError(
            f"{type(transformer).__name__}: expected a transformer that was fitted to a frame with column names; call "
            "fit(frame) first."
        )
    return [str(name) for name in names]


def output_names(transformer: Transformer) -> list[str]:
    """Return the columns that a fitted transformer makes."""
    try:
        return [str(name) for name in transformer.get_feature_names_out()]
    except Exception as reason:
        raise InputError(
            f"{type(transformer).__name__}: it does not name its columns ({reason}); fit it first, and give a "
            "FunctionTransformer feature_names_out='one-to-one'."
        ) from reason


def transformer_groups(transformer: Transformer, side: Side) -> tuple[ColumnGroup, ...]:
    """Return one group for neighbouring columns that, by their names, come from one column of the table."""
    inputs = sorted(input_names(transformer), key=len, reverse=True)
    groups: list[ColumnGroup] = []
    for column in output_names(transformer):
        # a ColumnTransformer puts the name of the step before the name of the column, and levels behind it
        bare = column.partition("__")[2] or column
        variable = next((name for name in inputs if bare == name or bare.startswith(f"{name}_")), bare)
        if groups and groups[-1].variable == variable:
            groups[-1] = _widened(groups[-1], column)
        else:
            taken = [group.name for group in groups]
            name = variable if variable not in taken else column
            groups.append(ColumnGroup(name, variable, "numeric", side, (column,)))
    return tuple(groups)


def _widened(group: ColumnGroup, column: str) -> ColumnGroup:
    return ColumnGroup(group.name, group.variable, "categorical", group.side, (*group.columns, column))


class TransformerEncoder(RowEncoder):
    """Encodes rows by a fitted transformer, which learns nothing more.

    Args:
        transformer: takes a pandas frame.
    """

    def __init__(self, transformer: Transformer) -> None:
        self.transformer = transformer
        self.names = input_names(transformer)
        self.width = len(output_names(transformer))

    def write(self, out: FloatArray, row: RowLike, place: str, number: int | None = None) -> bool:
        place = numbered(place, number)
        out[:] = self._transform([self._checked(row, place)], place)[0]
        return True

    def encode(self, rows: Sequence[RowLike], place: str) -> tuple[FloatArray, bool]:
        if not len(rows):
            return np.empty((0, self.width)), True
        checked = [self._checked(row, f"{place}, row {number}") for number, row in enumerate(rows)]
        return self._transform(checked, place), True

    def _checked(self, row: RowLike, place: str) -> Row:
        row = as_row(place, row)
        require_columns(place, row, self.names)
        return row

    def _transform(self, rows: Sequence[Row], place: str) -> FloatArray:
        with needs("pandas", "kernel-bandits[sklearn]"):
            import pandas as pd
        frame = pd.DataFrame(rows, columns=self.names)
        try:
            result = self.transformer.transform(frame)
            dense = np.asarray(result.toarray() if hasattr(result, "toarray") else result, dtype=np.float64)
        except Exception as reason:
            raise InputError(f"{place}: {type(self.transformer).__name__} refused it ({reason}).") from reason
        if dense.shape != (len(rows), self.width):
            raise InputError(
                f"{place}: {type(self.transformer).__name__} returned shape {dense.shape}, expected "
                f"({len(rows)}, {self.width})."
            )
        require_finite(f"{place}, transformed", dense)
        return dense

    def learn(self, row: RowLike) -> None:
        pass

    def read(self, vector: FloatArray) -> dict[str, Any]:
        names = output_names(self.transformer)
        return dict(zip(names, vector[-self.width :].tolist(), strict=True))

    def copy(self) -> TransformerEncoder:
        return self

    @property
    def levels(self) -> dict[str, tuple[Level, ...]]:
        return {}
