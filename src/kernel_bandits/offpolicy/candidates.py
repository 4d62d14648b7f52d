"""What can be evaluated: a policy, a fixed action, a function, or a table of probabilities."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from kernel_bandits.actions import Box
from kernel_bandits.arrays import FloatArray, as_points, as_vector
from kernel_bandits.errors import InputError
from kernel_bandits.logs.log import ContinuousLog, Log, blocks, require_rows
from kernel_bandits.policy.policy import Policy

# A policy is never changed by an evaluation. A function takes a context (d_x,) and the actions (A, d_a) and returns a
# row, or probabilities (A,).
Candidate: TypeAlias = Policy | int | str | Callable[[FloatArray, FloatArray], Any] | FloatArray
ContinuousCandidate: TypeAlias = Policy | Callable[[FloatArray], Any] | FloatArray | float
SUM_TOLERANCE = 1e-6
ROWS_AT_ONCE = 4096


class Probabilities:
    """The probabilities of a candidate in every round of a log, block by block: a table of all may not fit."""

    def __init__(self, log: Log, candidate: Candidate) -> None:
        self.log = log
        self._count = len(log.catalogue)
        # decisions draw from generators, which are not to be touched
        self._candidate: Any = copy.deepcopy(candidate) if isinstance(candidate, Policy) else candidate
        if isinstance(candidate, (int, str, np.integer)) and not isinstance(candidate, bool):
            self._candidate = self._row(candidate)
        elif not (isinstance(candidate, Policy) or callable(candidate)):
            self._candidate = self._table(candidate)

    def _row(self, candidate: Any) -> int:
        """Return the row of a fixed action, given by name or by number."""
        if candidate in self.log.names:
            return self.log.names.index(candidate)
        known = ", ".join(map(repr, self.log.names[:10]))
        raise InputError(f"candidate: expected one of the actions {known}, …, got {candidate!r}.")

    def _table(self, candidate: Any) -> FloatArray:
        table = np.asarray(candidate, dtype=float) if np.ndim(candidate) == 2 else None
        if table is None or table.shape != (len(self.log), self._count):
            raise InputError(
                f"candidate: expected a policy, an action, a function, or probabilities of shape "
                f"({len(self.log)}, {self._count}), got {type(candidate).__name__} of shape {np.shape(candidate)}."
            )
        self._require(table, 0)
        return table

    @staticmethod
    def _require(table: FloatArray, start: int) -> None:
        valid = (table >= 0.0).all(axis=1) & (np.abs(table.sum(axis=1) - 1.0) <= SUM_TOLERANCE)
        try:
            require_rows("candidate", table, valid, "probabilities from 0 to 1 with sum 1")
        except InputError as reason:
            offset = f" (rows counted from row {start} of the log)" if start else ""
            raise InputError(f"{reason}{offset}") from None

    def block(self, rows: slice) -> FloatArray:
        """Return the probabilities of some rounds, shape (b, A)."""
        candidate, count = self._candidate, rows.stop - rows.start
        if isinstance(candidate, np.ndarray):
            return candidate[rows]
        if isinstance(candidate, int):
            return self._certain(np.full(count, candidate))
        contexts, actions = self.log.contexts[rows], self.log.catalogue
        if isinstance(candidate, Policy):
            decisions = candidate.select_many(contexts, actions)
            table = self._certain(np.array([decision.index for decision in decisions]))
            for row, decision in enumerate(decisions):
                if decision.probabilities is not None:
                    table[row] = decision.probabilities
            return table
        answers = [candidate(context, actions) for context in contexts]
        if all(np.ndim(answer) == 0 for answer in answers):
            return self._certain(np.array([self._checked(int(answer)) for answer in answers]))
        table = as_points("candidate", np.array(answers, dtype=float), self._count)
        self._require(table, rows.start)
        return table

    def _checked(self, row: int) -> int:
        if not 0 <= row < self._count:
            raise InputError(f"candidate: expected a row from 0 to {self._count - 1}, got {row}.")
        return row

    def _certain(self, rows: Any) -> FloatArray:
        table = np.zeros((len(rows), self._count))
        table[np.arange(len(rows)), rows] = 1.0
        return table


def continuous_actions(log: ContinuousLog, candidate: ContinuousCandidate, box: Box | None) -> FloatArray:
    """Return the action of a candidate in every round of a log, shape (n, d_a).

    A policy that chooses at random is evaluated at one draw for each round.
    """
    width = log.actions.shape[1]
    if isinstance(candidate, Policy):
        if box is None:
            raise InputError("box: expected the Box that the candidate chooses in, got none.")
        own = copy.deepcopy(candidate)
        parts = [own.select_many(log.contexts[rows], box) for rows in blocks(len(log), ROWS_AT_ONCE)]
        return np.array([decision.action for part in parts for decision in part])
    if callable(candidate):
        candidate = np.array([np.reshape(candidate(context), -1) for context in log.contexts], dtype=float)
    actions = np.asarray(candidate, dtype=float)
    if actions.ndim == 0 or actions.shape == (width,):
        actions = np.broadcast_to(as_vector("candidate", np.atleast_1d(actions), width), (len(log), width))
    if actions.shape != (len(log), width) or not np.isfinite(actions).all():
        raise InputError(f"candidate: expected finite actions of shape ({len(log)}, {width}), got {actions.shape}.")
    return actions
