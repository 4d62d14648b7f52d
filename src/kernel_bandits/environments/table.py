"""A table as a bandit: each row is a context, and its label or its reward columns say what each action earns."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from kernel_bandits.arrays import FloatArray, require_finite
from kernel_bandits.environments.base import Environment, Round
from kernel_bandits.errors import InputError, needs
from kernel_bandits.tables.arms import Action, Arms
from kernel_bandits.tables.features import Features
from kernel_bandits.tables.rows import FrameLike, Row, as_rows
from kernel_bandits.tables.values import Level, is_gap, level_of, nearest, number_of

Reward: TypeAlias = str | Mapping[Level, str] | Callable[[Row, Action], float]

# A label with more different numbers than this is a quantity to be guessed, not a class.
MOST_CLASSES = 30
GUESSES = 10


class Table(Environment):
    """Rows of a table in random order, each once, then in another order.

    The context is a row without its reward columns. What an action earns is taken from the row as it is, without noise.

    Args:
        source: a pandas or polars frame, a list of dicts, a NumPy structured array; or the path of a CSV or Parquet
            file, which needs pyarrow.
        reward: the name of a column of classes: the arms are the classes, and the right one earns 1, all others 0. If
            it is a column of numbers, more than 30 different ones, the actions are ten guesses at its quantiles, and
            one earns 1 less its distance from the number, in units of the range of the column. Or a mapping from arms
            to the columns that hold what they earn. Or a function of a row and an action, with ``actions``.
        actions: arms or rows to be offered in every round, where ``reward`` is a function.
        features: what the columns are; inferred from all rows unless given.

    Attributes:
        features: as given or inferred: ``kb.ek_ucb(features=environment.features)`` plays the table by name.
        rows: the contexts, as they stand in the table.
        actions: the actions on offer, as arms or rows.
        rewards: what each action earns in each row, shape (n, A).
    """

    noise_std: float = 0.0

    def __init__(
        self,
        source: FrameLike | str | os.PathLike[str],
        reward: Reward,
        actions: Sequence[Action] | None = None,
        features: Features | None = None,
    ) -> None:
        rows = read_table(source) if isinstance(source, (str, os.PathLike)) else as_rows("source", source)
        if not rows:
            raise InputError("source: expected at least one row, got none.")
        self.source: str = str(source) if isinstance(source, (str, os.PathLike)) else f"{len(rows)} rows"
        self.actions: list[Action]
        self.rewards: FloatArray
        self.actions, self.rewards, used = _rewards(rows, reward, actions)
        self.rows: list[dict[str, Any]] = [
            {name: value for name, value in row.items() if name not in used} for row in rows
        ]
        if features is None:
            are_rows = all(isinstance(action, Mapping) for action in self.actions)
            features = Features.infer(self.rows, self.actions if are_rows else Arms(self.actions, room=0))  # type: ignore[arg-type]
        self.features: Features = features
        self._contexts = self.features.described(self.rows)[0]
        choices = self.features.choices
        self._actions = choices.encode(choices.offered(list(self.actions)), "actions")
        self._by_context: dict[bytes, list[int]] = {}
        for number, vector in enumerate(self._contexts):
            self._by_context.setdefault(vector.tobytes(), []).append(number)
        # The generator that drew the order of the rows, the order, and how many of them were offered.
        self._order: tuple[np.random.Generator | None, list[int], int] = (None, [], 0)

    def next_round(self, contexts: np.random.Generator) -> Round:
        generator, order, place = self._order
        if generator is not contexts or place == len(order):
            order, place = contexts.permutation(len(self.rows)).tolist(), 0
        self._order = (contexts, order, place + 1)
        return Round(self._contexts[order[place]].copy(), self._actions.copy())

    def expected_rewards(self, context: FloatArray, actions: FloatArray) -> FloatArray:
        """Return what actions earn in the row that was offered last, elsewhere the mean over the rows of a context."""
        _, order, place = self._order
        numbers = self._by_context.get(np.asarray(context).tobytes())
        if numbers is None:
            raise InputError("context: expected a row of the table, encoded as next_round does, got another.")
        if place and order[place - 1] in numbers:
            numbers = [order[place - 1]]
        earned = self.rewards[numbers].mean(axis=0)
        if actions is self._actions or np.array_equal(actions, self._actions):
            return earned
        known = {vector.tobytes(): column for column, vector in enumerate(self._actions)}
        try:
            return earned[[known[action.tobytes()] for action in np.asarray(actions)]]
        except KeyError as reason:
            raise InputError("actions: expected actions that the table offers, got another.") from reason

    def __repr__(self) -> str:
        return f"Table({self.source}, {len(self.actions)} actions)"


def read_table(path: str | os.PathLike[str]) -> Sequence[Row]:
    """Return the rows of a CSV file with a header, or of a Parquet file."""
    name = Path(path)
    with needs("pyarrow", "kernel-bandits[arrow]"):
        import pyarrow.csv
        import pyarrow.parquet
    try:
        if name.suffix == ".csv":
            return as_rows("source", pyarrow.csv.read_csv(name))
        if ".parquet" in name.suffixes:
            return as_rows("source", pyarrow.parquet.read_table(name))
    except (OSError, ValueError) as reason:
        raise InputError(f"source: cannot read {name} ({reason}).") from reason
    raise InputError(f"source: expected a file whose name ends in .csv or .parquet, got {name}.")


def _rewards(
    rows: Sequence[Row], reward: Reward, actions: Sequence[Action] | None
) -> tuple[list[Action], FloatArray, list[str]]:
    """Return the actions, what each earns in each row, and the columns that say so."""
    if callable(reward):
        if not actions:
            raise InputError("actions: expected the arms or rows that reward is a function of, got none.")
        offered = list(actions)
        return offered, _checked([[reward(row, action) for action in offered] for row in rows]), []
    if actions is not None:
        raise InputError("actions: the reward columns say which actions there are; leave actions out.")
    if isinstance(reward, Mapping):
        earned = [[_number(row, column, i) for column in reward.values()] for i, row in enumerate(rows)]
        return list(reward), _checked(earned), list(reward.values())
    labels = [_value(row, reward, number) for number, row in enumerate(rows)]
    numeric = all(isinstance(label, (int, float, np.number)) for label in labels)
    if numeric and len(set(labels)) > MOST_CLASSES:
        numbers = np.array(labels, dtype=np.float64)
        require_finite(reward, numbers)
        guesses = np.unique(np.quantile(numbers, (np.arange(GUESSES) + 0.5) / GUESSES))
        earned_by_guess = 1.0 - np.abs(numbers[:, None] - guesses) / np.ptp(numbers)
        return [{"guess": guess} for guess in guesses.tolist()], earned_by_guess, [reward]
    classes = sorted(set(map(level_of, labels)), key=str)
    earned = [[float(level_of(label) == one) for one in classes] for label in labels]
    return [one for one in classes if one is not None], _checked(earned), [reward]


def _value(row: Row, column: str, number: int) -> Any:
    if column not in row:
        raise InputError(f"reward: row {number} has no column {column!r}{nearest(column, row)}")
    if is_gap(row[column]):
        raise InputError(f"reward: row {number} has nothing in column {column!r}; leave out such rows.")
    return row[column]


def _number(row: Row, column: str, number: int) -> float:
    try:
        return number_of(_value(row, column, number))
    except InputError as reason:
        raise InputError(f"reward: row {number}, column {column!r}: {reason}") from reason


def _checked(earned: list[list[float]]) -> FloatArray:
    rewards = np.array(earned, dtype=np.float64)
    require_finite("reward", rewards)
    return rewards
