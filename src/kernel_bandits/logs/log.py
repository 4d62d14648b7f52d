"""A log in memory: what was seen, what was played with which probability, and what it earned."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernel_bandits.arrays import FloatArray, as_points, as_vector
from kernel_bandits.errors import InputError
from kernel_bandits.policy.policy import Decision, Policy
from kernel_bandits.tables.arms import ARM, Arms
from kernel_bandits.tables.columns import infer_columns
from kernel_bandits.tables.features import Features
from kernel_bandits.tables.policy import NamedDecision, TablePolicy
from kernel_bandits.tables.rows import as_rows, is_frame
from kernel_bandits.tables.values import level_of

PolicyT = TypeVar("PolicyT", bound=Policy)
T = TypeVar("T")
# Columns are inferred from at most this many rows; describe by features= what these do not show.
MOST_INFERRED = 20_000
# Numbers of actions are rows of a catalogue; larger ones are rather identifiers.
MOST_ACTIONS = 10_000


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

    Contexts are numbers, or a table: a pandas, polars or pyarrow frame, a list of dicts. Where they are a table,
    actions are named or described as for a policy with the same ``features``.

    Args:
        contexts: shape (n, d_x), empty for a problem without contexts; or a table with a row for each round.
        played: the row of the action that was played, in the catalogue, shape (n,); or, for a table, the arm's name, or
            the row of an action that is described by columns.
        rewards: shape (n,).
        propensities: the probability with which it was played, above 0 and at most 1, shape (n,).
        actions: the catalogue, shape (A, d_a); by default one column per action, as many as were played. For a table,
            arms or described actions, as for :meth:`TablePolicy.select`; by default those described and those played.
        names: of the actions, in the order of the catalogue; by default their numbers. For a table they are the arms.
        probabilities: of every action in every round, shape (n, A), where they were logged.
        offered: which actions were on offer, shape (n, A); by default all of them.
        features: what the columns of a table are; by default inferred. A log of numbers has none.
        left_out: how many decisions have no reward and are not among the rows.
        columns: the names of the columns of numbers, so that a policy over a table can be asked, too.
    """

    contexts: Any
    played: Any
    rewards: FloatArray
    propensities: FloatArray
    actions: Any = None
    names: tuple[Any, ...] = ()
    probabilities: FloatArray | None = None
    offered: NDArray[np.bool_] | None = None
    features: Features | None = None
    left_out: int = 0
    columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        rewards = _finite("reward", as_vector("rewards", self.rewards))
        propensities = as_vector("propensities", self.propensities)
        if not len(rewards):
            raise InputError("log: expected at least one row, got none.")
        valid = (propensities > 0.0) & (propensities <= 1.0)
        require_rows("propensity", propensities, valid, "a probability above 0 and at most 1")
        as_table = self.features is not None or is_table(self.contexts)
        found = (self._of_table if as_table else self._of_numbers)(len(rewards))
        _same_length(contexts=found["contexts"], played=found["played"], rewards=rewards, propensities=propensities)
        for name, value in {**found, "rewards": rewards, "propensities": propensities}.items():
            object.__setattr__(self, name, value)
        if self.offered is not None:
            object.__setattr__(self, "offered", self._checked_offers(self.offered))
        if self.probabilities is not None:
            object.__setattr__(self, "probabilities", self._checked_probabilities(self.probabilities))

    def _of_numbers(self, count: int) -> dict[str, Any]:
        played = np.asarray(self.played)
        if played.ndim != 1 or played.dtype.kind not in "iu":
            raise InputError(
                f"played: expected the number of an action per row, got {played.dtype} of shape {played.shape}; names "
                "of arms go with contexts that are a table."
            )
        contexts = _finite("context", _contexts(self.contexts, count))
        known = int(played.max(initial=0)) + 1 if self.actions is None else len(as_points("actions", self.actions))
        valid = (played >= 0) & (played < known)
        require_rows("action", played, valid, f"one of {known} actions, numbered from 0")
        actions = np.eye(known) if self.actions is None else _finite("actions", as_points("actions", self.actions))
        names = tuple(self.names) or tuple(range(known))
        if len(names) != known:
            raise InputError(f"names: expected one for each of {known} actions, got {len(names)}.")
        return {"contexts": contexts, "played": played.astype(np.intp), "actions": actions, "names": names}

    def _of_table(self, count: int) -> dict[str, Any]:
        contexts = self.contexts if is_frame(self.contexts) else as_rows("contexts", self.contexts)
        played = as_plain_actions(self.played)
        described = [] if self.features is None else _described(self.features)
        offer = [*described, *(() if self.actions is None else as_plain_actions(self.actions))]
        actions: dict[Any, Any] = {}
        for action in (*offer, *_in_order(played, bool(offer))):
            key = key_of(action)
            # the arm alone may stand for the row that describes it
            if key not in actions or not isinstance(actions[key], Mapping):
                actions[key] = action
        if len(actions) > MOST_ACTIONS:
            raise InputError(
                f"played: expected at most {MOST_ACTIONS} different actions, got {len(actions)}; describe continuous "
                "actions by a ContinuousLog."
            )
        names = list(actions)
        features = self.features
        if features is None:
            features = Features.infer(table_rows(contexts, _sample(count)), _described_actions(actions))
        places = {key: place for place, key in enumerate(names)}
        found = np.array([places[key_of(action)] for action in played], dtype=np.intp)
        return {
            "contexts": contexts,
            "played": found,
            "actions": tuple(actions.values()),
            "names": tuple(names),
            "features": features,
        }

    @property
    def known_probabilities(self) -> FloatArray | None:
        """The probabilities of every action: those logged, or the shares of a trial that are the same in every round.

        None if each action's propensity varies and nothing else was logged.
        """
        if self.probabilities is not None:
            return self.probabilities
        shares = np.zeros(len(self.names))
        shares[self.played] = self.propensities
        if np.abs(shares[self.played] - self.propensities).max() > 1e-9 or abs(float(shares.sum()) - 1.0) > 1e-6:
            return None
        return np.broadcast_to(shares, (len(self), len(shares)))

    def _checked_offers(self, offered: ArrayLike) -> NDArray[np.bool_]:
        table = np.asarray(offered, dtype=bool)
        if table.shape != (len(self), len(self.catalogue)):
            raise InputError(
                f"offered: expected shape ({len(self)}, {len(self.catalogue)}), one for each round and action, got "
                f"{table.shape}."
            )
        require_rows(
            "offered", table, table[np.arange(len(self)), self.played], "the action that was played among them"
        )
        return table

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
    def catalogue(self) -> Any:
        """The actions: numbers, shape (A, d_a), or for a table a tuple of arms and rows."""
        return self.actions

    def __len__(self) -> int:
        return len(self.rewards)

    def each(self, function: Callable[..., T], *along: Any) -> list[T]:
        """Return a function of the whole log and of what has a part for each of its rows, as a list of one."""
        return [function(self, *along)]

    @classmethod
    def joined(cls, logs: Sequence[Log]) -> Log:
        """Return logs with the same catalogue as one, in order."""
        whole = copy.copy(logs[0])
        for name in ("played", "rewards", "propensities", "probabilities", "offered"):
            values = [getattr(log, name) for log in logs]
            missing = any(value is None for value in values)
            object.__setattr__(whole, name, None if missing else np.concatenate(values))
        if whole.features is None:
            object.__setattr__(whole, "contexts", np.concatenate([log.contexts for log in logs]))
        else:
            object.__setattr__(whole, "contexts", [row for log in logs for row in log.table()])
        return whole

    @property
    def without_contexts(self) -> bool:
        """Whether nothing is known of a round before its action is chosen."""
        return self.features is None and self.contexts.shape[1] == 0

    def table(self, chosen: slice | NDArray[Any] = slice(None)) -> Any:
        """Return contexts of some rounds as a policy takes them: numbers, or rows as dicts."""
        return self.contexts[chosen] if self.features is None else table_rows(self.contexts, chosen)

    def rows(self, chosen: slice | NDArray[Any]) -> Log:
        """Return a log of some of the rows."""
        part = copy.copy(self)
        for name in ("played", "rewards", "propensities", "probabilities", "offered"):
            value = getattr(self, name)
            object.__setattr__(part, name, None if value is None else value[chosen])
        object.__setattr__(part, "contexts", self.table(chosen))
        return part

    def seen_by(self, policy: Policy, chosen: slice | NDArray[Any]) -> tuple[Any, Any]:
        """Return contexts of some rounds and the catalogue as a policy takes them, with the columns that it reads."""
        if not isinstance(policy, TablePolicy):
            if self.features is not None:
                raise InputError(
                    "policy: it decides on arrays and the log is a table; build it with features=log.features."
                )
            return self.contexts[chosen], self.catalogue
        rows = self.table(chosen)
        if self.features is None:
            if len(self.columns) != self.contexts.shape[1]:
                raise InputError(
                    "policy: it decides on a table and the log holds numbers without names; build the log from a frame "
                    "or with columns=."
                )
            rows = [dict(zip(self.columns, row, strict=True)) for row in rows.tolist()]
        features = policy.features
        offered = self.names if self.features is None else self.catalogue
        return [_columns(row, features.context) for row in rows], [_action(one, features.actions) for one in offered]

    def with_probabilities(self, probabilities: ArrayLike) -> Log:
        """Return the log with the probabilities of every action, which are checked."""
        other = copy.copy(self)
        object.__setattr__(other, "probabilities", other._checked_probabilities(probabilities))
        return other

    def with_offers(self, offered: ArrayLike) -> Log:
        """Return the log with what was on offer in every round, which is checked."""
        other = copy.copy(self)
        object.__setattr__(other, "offered", other._checked_offers(offered))
        return other

    def taught(self, policy: PolicyT, weights: FloatArray | None = None) -> PolicyT:
        """Return a copy of a policy that has learned the log, each round with its weight."""
        policy = copy.deepcopy(policy)
        contexts, actions = self.seen_by(policy, slice(None))
        actions = actions[self.played] if isinstance(actions, np.ndarray) else [actions[place] for place in self.played]
        if weights is None:
            policy.update_many(contexts, actions, self.rewards)
        else:
            for row in range(len(self)):
                policy.update(contexts[row], actions[row], float(self.rewards[row]), weight=float(weights[row]))
        return policy

    @classmethod
    def of_decisions(
        cls,
        decisions: Sequence[Decision] | Sequence[NamedDecision],
        rewards: ArrayLike,
        actions: Any = None,
        features: Features | None = None,
    ) -> Log:
        """Build a log from decisions of a policy that chooses at random among the same actions in every round.

        Args:
            decisions: of a policy over arrays, or over a table.
            rewards: of the decisions, shape (n,).
            actions: that were on offer, in their order; may be left out for arms that ``features`` names.
            features: of the policy, for decisions over a table; inferred where left out.
        """
        propensities = [decision.propensity for decision in decisions]
        if None in propensities:
            reason = "none (give the policy an exploration_floor=, …)"
            raise refuse("propensity", propensities.index(None), "a decision at random", reason)
        tables = [decision.probabilities for decision in decisions]
        named = [decision for decision in decisions if isinstance(decision, NamedDecision)]
        contexts: Any = [decision.context for decision in decisions]
        played: Any = [decision.action for decision in named]
        if not named:
            contexts, played = np.array(contexts), np.array([decision.index for decision in decisions])
            actions = as_points("actions", actions)
        chances = np.array(propensities, dtype=float)
        log = cls(contexts, played, as_vector("rewards", rewards), chances, actions, features=features)
        # arms that appeared meanwhile leave earlier probabilities shorter than the catalogue
        if any(table is None or len(table) != len(log.names) for table in tables):
            return log
        return log.with_probabilities(np.array(tables))


def is_table(value: Any) -> bool:
    """Return whether contexts are a table rather than numbers."""
    return is_frame(value) or (isinstance(value, (list, tuple)) and bool(value) and isinstance(value[0], Mapping))


def table_rows(table: Any, chosen: slice | NDArray[Any]) -> list[Mapping[str, Any]]:
    """Return some rows of a table as mappings, in Python's own values."""
    if isinstance(table, (list, tuple)):
        return list(table[chosen]) if isinstance(chosen, slice) else [table[i] for i in np.arange(len(table))[chosen]]
    if hasattr(table, "iloc"):
        part = table.iloc[chosen]
    elif isinstance(chosen, slice) and hasattr(table, "slice"):
        start, stop, _ = chosen.indices(len(table))
        part = table.slice(start, stop - start)
    else:
        part = table.take(np.arange(len(table))[chosen]) if hasattr(table, "take") else table[chosen]
    return list(as_rows("contexts", part))


def _described_actions(actions: Mapping[Any, Any]) -> Arms | list[Mapping[str, Any]]:
    """Return arms, with their features where they have some, or actions described by columns alone."""
    rows = {key: action for key, action in actions.items() if isinstance(action, Mapping)}
    if not rows:
        return Arms(list(actions))
    if len(rows) < len(actions) or any(ARM not in row for row in rows.values()):
        return list(rows.values())
    own = {arm: {name: value for name, value in row.items() if name != ARM} for arm, row in rows.items()}
    if not any(own.values()):
        return Arms(list(own))
    return Arms(own, infer_columns("actions", list(own.values())))


def _in_order(played: Sequence[Any], some_known: bool) -> Sequence[Any]:
    """Return actions in an order that does not depend on that of the rounds: numbers count from 0, names are sorted."""
    if any(isinstance(action, Mapping) for action in played):
        return sorted(played, key=lambda action: str(key_of(action)))
    distinct = set(played)
    if all(type(action) is int and 0 <= action < MOST_ACTIONS for action in distinct) and not some_known:
        return range(max(distinct) + 1)
    return sorted(distinct, key=str)


def _sample(count: int) -> NDArray[np.intp]:
    """Return at most ``MOST_INFERRED`` rows, evenly spread, to infer columns from."""
    return np.unique(np.linspace(0, count - 1, min(count, MOST_INFERRED)).astype(np.intp))


def action_features(log: Log, action: Any) -> Mapping[str, Any]:
    """Return the columns of an action of a table, wherever they were described."""
    known = log.features.actions if log.features is not None else None
    if isinstance(action, Mapping):
        return action
    return {ARM: action, **(known.rows.get(action, {}) if isinstance(known, Arms) else {})}


def _columns(row: Mapping[str, Any], side: Any) -> Any:
    """Return the columns of a row that are described; what is missing is for the policy to refuse."""
    if not isinstance(side, Mapping) or row.keys() == side.keys():
        return row
    return {name: row[name] for name in side if name in row}


def _action(action: Any, side: Any) -> Any:
    if not isinstance(action, Mapping):
        return action
    if not isinstance(side, Arms):
        return _columns(action, side)
    if side.columns is None:
        return action.get(ARM, action)
    return {ARM: action[ARM], **_columns(action, side.columns)} if ARM in action else action


def as_plain_actions(actions: Any) -> list[Any]:
    """Return actions as names and rows, one by one; rows of numbers describe arms that are numbered from 0."""
    if isinstance(actions, np.ndarray) and actions.ndim == 2:
        actions = actions.tolist()
    if isinstance(actions, list) and actions and isinstance(actions[0], (list, tuple)):
        return [
            {ARM: place, **{f"feature_{column}": float(value) for column, value in enumerate(row)}}
            for place, row in enumerate(actions)
        ]
    if is_frame(actions):
        return list(as_rows("actions", actions))
    if isinstance(actions, Mapping):
        return [{ARM: name, **row} for name, row in actions.items()]
    return [dict(one) if isinstance(one, Mapping) else level_of(one) for one in actions]


def key_of(action: Any) -> Any:
    """Return what tells actions apart: the name of the arm, or the values of the row."""
    if not isinstance(action, Mapping):
        return action
    return action[ARM] if ARM in action else tuple(sorted((str(name), str(value)) for name, value in action.items()))


def _described(features: Features) -> list[Any]:
    """Return the arms that a description names."""
    return list(features.actions.labels) if isinstance(features.actions, Arms) else []


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

    def rows(self, chosen: slice | NDArray[Any]) -> ContinuousLog:
        """Return a log of some of the rows."""
        return ContinuousLog(*(part[chosen] for part in (self.contexts, self.actions, self.rewards, self.densities)))

    def taught(self, policy: PolicyT) -> PolicyT:
        """Return a copy of a policy that has learned the log."""
        policy = copy.deepcopy(policy)
        policy.update_many(self.contexts, self.actions, self.rewards)
        return policy

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
