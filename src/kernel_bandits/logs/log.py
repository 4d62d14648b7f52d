"""A log in memory: what was seen, what was played with which probability, and what it earned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernel_bandits.arrays import FloatArray, as_points, as_vector
from kernel_bandits.errors import InputError
from kernel_bandits.policy.policy import Decision


def refuse(where: str, row: int, expected: str, got: object) -> InputError:
    """Return the error that names a bad row of a log, counted from 0."""
    return InputError(f"log: row {row}: {where}: expected {expected}, got {got}; correct or drop the row.")


def require_rows(name: str, values: NDArray[Any], valid: NDArray[np.bool_], expected: str) -> None:
    """Raise, with the first row named, unless all rows are valid."""
    if not valid.all():
        row = int(np.flatnonzero(~valid)[0])
        raise refuse(name, row, expected, values[row].tolist())


def _finite(name: str, values: FloatArray) -> FloatArray:
    finite = np.isfinite(values).reshape(len(values), -1)
    require_rows(name, values, np.asarray(finite.all(axis=1)), "finite numbers")
    return values


def _contexts(contexts: ArrayLike, count: int) -> FloatArray:
    array = np.asarray(contexts)
    if array.size == 0:
        return np.empty((count, 0))
    return as_points("contexts", contexts)


def _same_length(**columns: Any) -> None:
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        words = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise InputError(f"log: expected as many rows in every column, got {words}; a row is missing somewhere.")


@dataclass(frozen=True, eq=False)
class Log:
    """A log of n rounds with a catalogue of A actions, checked row by row.

    Args:
        contexts: shape (n, d_x); empty for a problem without contexts.
        played: the row of the action that was played, in the catalogue, shape (n,).
        rewards: shape (n,).
        propensities: the probability with which it was played, above 0 and at most 1, shape (n,).
        actions: the catalogue, shape (A, d_a); by default one column per action, as many as were played.
        names: of the actions, in the order of the catalogue; by default their numbers.
        probabilities: of every action in every round, shape (n, A), where they were logged.
    """

    contexts: FloatArray
    played: NDArray[np.intp]
    rewards: FloatArray
    propensities: FloatArray
    actions: FloatArray | None = None
    names: tuple[Any, ...] = ()
    probabilities: FloatArray | None = None

    def __post_init__(self) -> None:
        rewards = _finite("reward", as_vector("rewards", self.rewards))
        propensities = as_vector("propensities", self.propensities)
        played = np.asarray(self.played)
        if played.ndim != 1 or played.dtype.kind not in "iu":
            raise InputError(
                f"played: expected the number of an action per row, got {played.dtype} of shape {played.shape}."
            )
        contexts = _contexts(self.contexts, len(rewards))
        _same_length(contexts=contexts, played=played, rewards=rewards, propensities=propensities)
        if not len(rewards):
            raise InputError("log: expected at least one row, got none.")
        _finite("context", contexts)
        valid = (propensities > 0.0) & (propensities <= 1.0)
        require_rows("propensity", propensities, valid, "a probability above 0 and at most 1")
        count = int(played.max()) + 1 if self.actions is None else len(as_points("actions", self.actions))
        known = (played >= 0) & (played < count)
        require_rows("action", played, known, f"one of {count} actions, numbered from 0")
        actions = np.eye(count) if self.actions is None else _finite("actions", as_points("actions", self.actions))
        names = tuple(self.names) or tuple(range(count))
        if len(names) != count:
            raise InputError(f"names: expected one for each of {count} actions, got {len(names)}.")
        for name, value in {
            "contexts": contexts,
            "played": played.astype(np.intp),
            "rewards": rewards,
            "propensities": propensities,
            "actions": actions,
            "names": names,
        }.items():
            object.__setattr__(self, name, value)
        if self.probabilities is not None:
            object.__setattr__(self, "probabilities", self._checked_probabilities(self.probabilities))

    def _checked_probabilities(self, probabilities: ArrayLike) -> FloatArray:
        table = as_points("probabilities", probabilities, len(self.catalogue))
        _same_length(rewards=self.rewards, probabilities=table)
        valid = ((table >= 0.0) & (table <= 1.0)).all(axis=1) & (np.abs(table.sum(axis=1) - 1.0) <= 1e-6)
        require_rows("probabilities", table, valid, "numbers from 0 to 1 with sum 1")
        of_played = table[np.arange(len(table)), self.played]
        same = np.abs(of_played - self.propensities) <= 1e-6
        require_rows("propensity", self.propensities, same, "the probability of the action that was played")
        return table

    @property
    def catalogue(self) -> FloatArray:
        """The actions on offer, shape (A, d_a)."""
        assert self.actions is not None
        return self.actions

    def __len__(self) -> int:
        return len(self.rewards)

    def rows(self, chosen: slice | NDArray[Any]) -> Log:
        """Return a log of some of the rows."""
        table = None if self.probabilities is None else self.probabilities[chosen]
        return replace(
            self,
            contexts=self.contexts[chosen],
            played=self.played[chosen],
            rewards=self.rewards[chosen],
            propensities=self.propensities[chosen],
            probabilities=table,
        )

    @property
    def points(self) -> FloatArray:
        """The joint points that were played, shape (n, d_x + d_a)."""
        return np.hstack([self.contexts, self.catalogue[self.played]])

    @classmethod
    def of_decisions(cls, decisions: Sequence[Decision], rewards: ArrayLike, actions: ArrayLike) -> Log:
        """Build a log from decisions of a policy that chooses at random among the same actions in every round."""
        for row, decision in enumerate(decisions):
            if decision.propensity is None:
                raise refuse(
                    "propensity", row, "a decision at random", "none (give the policy an exploration_floor=, …)"
                )
        tables = [decision.probabilities for decision in decisions]
        return cls(
            np.array([decision.context for decision in decisions]),
            np.array([decision.index for decision in decisions]),
            as_vector("rewards", rewards),
            np.array([decision.propensity for decision in decisions], dtype=float),
            as_points("actions", actions),
            probabilities=None if any(table is None for table in tables) else np.array(tables),
        )


@dataclass(frozen=True, eq=False)
class ContinuousLog:
    """A log of n rounds whose actions are points, drawn from a density.

    Args:
        contexts: shape (n, d_x).
        actions: what was played, shape (n, d_a).
        rewards: shape (n,).
        densities: of what was played, above 0, per unit of the action's coordinates, shape (n,).
    """

    contexts: FloatArray
    actions: FloatArray
    rewards: FloatArray
    densities: FloatArray

    def __post_init__(self) -> None:
        rewards = _finite("reward", as_vector("rewards", self.rewards))
        actions = _finite("action", as_points("actions", self.actions))
        densities = _finite("density", as_vector("densities", self.densities))
        contexts = _contexts(self.contexts, len(rewards))
        _same_length(contexts=contexts, actions=actions, rewards=rewards, densities=densities)
        _finite("context", contexts)
        require_rows("density", densities, densities > 0.0, "a number above 0")
        columns = {"contexts": contexts, "actions": actions, "rewards": rewards, "densities": densities}
        for name, value in columns.items():
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return len(self.rewards)

    @property
    def points(self) -> FloatArray:
        """The joint points that were played, shape (n, d_x + d_a)."""
        return np.hstack([self.contexts, self.actions])

    @classmethod
    def of_decisions(cls, decisions: Sequence[Decision], rewards: ArrayLike) -> ContinuousLog:
        """Build a log from decisions of a policy that draws from a box."""
        for row, decision in enumerate(decisions):
            if decision.density is None:
                raise refuse("density", row, "a decision at random in a box", "none (give an exploration_floor=, …)")
        return cls(
            np.array([decision.context for decision in decisions]),
            np.array([decision.action for decision in decisions]),
            as_vector("rewards", rewards),
            np.array([decision.density for decision in decisions], dtype=float),
        )


def blocks(count: int, size: int) -> Iterator[slice]:
    """Yield slices of at most ``size`` rows that cover ``count`` rows."""
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))
