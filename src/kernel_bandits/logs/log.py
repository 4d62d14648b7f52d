"""A log in memory: what was seen, what was played with which probability, and what it earned."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

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
from kernel_bandits.tables.values import is_gap, level_of

PolicyT = TypeVar("PolicyT", bound=Policy)
T = TypeVar("T")
# A table as columns of equal length by name: arrays of numbers, or of objects where there are text, dates or gaps.
Columns: TypeAlias = Mapping[str, NDArray[Any]]
# What a log has of every round.
OF_ROUNDS = ("contexts", "played", "rewards", "propensities", "probabilities", "offered")
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


def require_once(expected: str, values: Iterable[Any], cure: str) -> None:
    """Raise if a value comes again."""
    known = set()
    for value in values:
        if value in known:
            raise InputError(f"log: expected {expected}, got {value!r} twice; {cure}.")
        known.add(value)


def columns_of(table: Any) -> Columns:
    """Return the columns of a pandas, polars or pyarrow frame, of a mapping, or of rows."""
    if not isinstance(table, Mapping) and not is_frame(table):
        rows = as_rows("log", table)
        table = {name: [row.get(name) for row in rows] for name in dict.fromkeys(name for row in rows for name in row)}
    if isinstance(table, np.ndarray):
        names = table.dtype.names or ()
    else:
        names = table.column_names if hasattr(table, "column_names") else getattr(table, "columns", table)
    require_once("columns with different names", names, "drop or rename one")
    return {str(name): as_column(table[name]) for name in names}


def as_column(values: Any) -> NDArray[Any]:
    """Return values as an array of numbers where all of them are, and otherwise of Python's own objects."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "fiubO":
        return values
    if hasattr(values, "to_numpy") and not getattr(values, "null_count", 0):
        array = np.asarray(values.to_numpy())
        if array.dtype.kind in "fiub":
            return array
    listed = values
    if not isinstance(values, (list, tuple)):
        listed = getattr(values, next(name for name in ("to_pylist", "to_list", "tolist") if hasattr(values, name)))()
    kinds = set(map(type, listed))
    if kinds <= {float, int} or kinds == {bool}:
        numbers = np.array(listed)
        if numbers.dtype.kind in "fib":
            return numbers
    return np.fromiter(listed, dtype=object, count=len(listed))


def rows_of(columns: Columns, count: int) -> list[dict[str, Any]]:
    """Return a table as rows, in Python's own values, with None for a gap wherever the table came from."""
    if not columns:
        return [{} for _ in range(count)]
    names, listed = list(columns), [one.tolist() for one in columns.values()]
    for column, values in zip(columns.values(), listed, strict=True):
        if column.dtype.kind in "fO":
            gaps = np.isnan(column) if column.dtype.kind == "f" else [is_gap(value) for value in values]
            for place in np.flatnonzero(gaps):
                values[place] = None
    return [dict(zip(names, row, strict=True)) for row in zip(*listed, strict=True)]


def _finite(name: str, values: FloatArray) -> FloatArray:
    if not len(values):
        raise InputError("log: expected at least one row, got none.")
    finite = np.isfinite(values).reshape(len(values), -1)
    require_rows(name, values, np.asarray(finite.all(axis=1)), "finite numbers")
    return values


def _contexts(contexts: ArrayLike, count: int) -> FloatArray:
    return _finite("context", as_points("contexts", contexts) if np.size(contexts) else np.empty((count, 0)))


def _taken(values: Any, take: Callable[[Any], Any]) -> Any:
    """Return a function of an array, or of each column of a table."""
    return {name: take(column) for name, column in values.items()} if isinstance(values, Mapping) else take(values)


def _same_length(**columns: Any) -> None:
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        words = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise InputError(f"log: expected as many rows in every column, got {words}; a row is missing somewhere.")


@dataclass(frozen=True, eq=False, repr=False)
class Log:
    """A log of n rounds with a catalogue of A actions, checked row by row.

    Contexts are numbers, or a table: a pandas, polars or pyarrow frame, a list of dicts. Where they are a table,
    actions are named or described as for a policy with the same ``features``.

    Args:
        contexts: shape (n, d_x), empty for a problem without contexts; or a table with a row for each round.
        played: the row of the action that was played, in the catalogue, or its name, shape (n,); for a table also the
            row of an action that is described by columns.
        rewards: shape (n,).
        propensities: the probability with which it was played, above 0 and at most 1, shape (n,).
        actions: the catalogue, shape (A, d_a); by default one column per action, as many as were played. For a table,
            arms or described actions, as for :meth:`TablePolicy.select`; by default those described and those played.
            The log then holds a tuple of arms and rows.
        names: of the actions, in the order of the catalogue; by default their numbers, or those played in their order.
            For a table they are the arms.
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
    # the probabilities of actions, shape (A,), where they are the same in every round, of a log as a whole
    shares: FloatArray | None = field(init=False)

    def __post_init__(self) -> None:
        rewards = _finite("reward", as_vector("rewards", self.rewards))
        propensities = as_vector("propensities", self.propensities)
        valid = (propensities > 0.0) & (propensities <= 1.0)
        require_rows("propensity", propensities, valid, "a probability above 0 and at most 1")
        distinct, codes = _distinct(self.played)
        _same_length(rewards=rewards, propensities=propensities, played=codes)
        first = self.contexts[0] if isinstance(self.contexts, (list, tuple)) and self.contexts else self.contexts
        if self.features is not None or isinstance(first, Mapping) or is_frame(self.contexts):
            contexts: Any = columns_of(self.contexts)
            _same_length(rewards=rewards, **contexts)
            found = self._of_table(contexts, distinct, codes)
        else:
            contexts = _contexts(self.contexts, len(rewards))
            _same_length(rewards=rewards, contexts=contexts)
            found = self._of_numbers(distinct, codes)
        vars(self).update(found, contexts=contexts, rewards=rewards, propensities=propensities)
        checked = self.with_offers(self.offered).with_probabilities(self.probabilities)
        vars(self).update(vars(checked), shares=as_shares(self.fixed_propensities()))

    def _with(self, **changes: Any) -> Log:
        """Return the log with some attributes replaced, which are checked already."""
        twin = copy.copy(self)
        vars(twin).update(changes)
        return twin

    def _of_numbers(self, distinct: list[Any], codes: NDArray[np.intp]) -> dict[str, Any]:
        """Return the played rows of the catalogue, the catalogue, and its names."""
        names = tuple(self.names)
        if all(isinstance(action, (int, float)) for action in distinct):
            values = np.array(distinct, dtype=np.float64)[codes]
            require_rows("action", values, values == np.floor(values), "a whole number, or a name")
            played = values.astype(np.intp)
            if self.actions is None:
                few = played < MOST_ACTIONS
                require_rows("action", played, few, f"a number below {MOST_ACTIONS}, or identifiers as texts")
            known = int(played.max()) + 1 if self.actions is None else len(as_points("actions", self.actions))
            valid = (played >= 0) & (played < known)
            require_rows("action", played, valid, f"one of {known} actions, numbered from 0")
        else:
            names = names or tuple(sorted(distinct, key=str))
            missing = [action for action in distinct if action not in names]
            if missing:
                row = int(np.flatnonzero(codes == distinct.index(missing[0]))[0])
                raise refuse("action", row, f"one of {', '.join(map(str, names[:10]))}", repr(missing[0]))
            played = np.array([names.index(action) for action in distinct], dtype=np.intp)[codes]
            known = len(names)
        actions = np.eye(known) if self.actions is None else _finite("actions", as_points("actions", self.actions))
        names = names or tuple(range(known))
        if len(names) != len(actions):
            raise InputError(f"names: expected one for each of {len(actions)} actions, got {len(names)}.")
        return {"played": played, "actions": actions, "names": names}

    def _of_table(self, contexts: Columns, distinct: list[Any], codes: NDArray[np.intp]) -> dict[str, Any]:
        """Return the places of the played arms, the arms or described actions, their names, and the features."""
        offer = [*self.arms, *(() if self.actions is None else as_plain_actions(self.actions))]
        actions: dict[Any, Any] = {}
        for action in (*offer, *_in_order(distinct, bool(offer))):
            key = key_of(action)
            # the arm alone may stand for the row that describes it
            if key not in actions or not isinstance(actions[key], Mapping):
                actions[key] = action
        if len(actions) > MOST_ACTIONS:
            raise InputError(
                f"played: expected at most {MOST_ACTIONS} different actions, got {len(actions)}; describe continuous "
                "actions by a ContinuousLog."
            )
        names, features = tuple(actions), self.features
        if features is None:
            # at most so many rows, evenly spread
            sample = np.unique(np.linspace(0, len(codes) - 1, min(len(codes), MOST_INFERRED)).astype(np.intp))
            rows = rows_of(_taken(contexts, lambda column: column[sample]), len(sample))
            features = Features.infer(rows, _described_actions(actions))
        places = {key: place for place, key in enumerate(names)}
        played = np.array([places[key_of(action)] for action in distinct], dtype=np.intp)[codes]
        return {"played": played, "actions": tuple(actions.values()), "names": names, "features": features}

    def __repr__(self) -> str:
        shown = ", ".join(map(str, self.names[:5])) + (", …" if len(self.names) > 5 else "")
        return f"Log({len(self):,} rounds, {len(self.names)} actions: {shown}; mean reward {self.rewards.mean():.4g})"

    @property
    def known_probabilities(self) -> FloatArray | None:
        """The probabilities of every action: those logged, or the shares of a trial that are the same in every round.

        None if each action's propensity varies and nothing else was logged.
        """
        if self.probabilities is not None or self.shares is None:
            return self.probabilities
        return np.broadcast_to(self.shares, (len(self), len(self.shares)))

    def fixed_propensities(self) -> FloatArray:
        """Return the propensity of each action that was played, NaN where it varied and 0 where it was not, (A,)."""
        found = np.zeros(len(self.names))
        found[self.played] = self.propensities
        found[self.played[np.abs(found[self.played] - self.propensities) > 1e-9]] = np.nan
        return found

    def __len__(self) -> int:
        return len(self.rewards)

    def each(self, function: Callable[..., T], *along: Any) -> list[T]:
        """Return a function of the whole log and of what has a part for each of its rows, as a list of one."""
        return [function(self, *along)]

    @classmethod
    def joined(cls, logs: Sequence[Log]) -> Log:
        """Return logs with the same catalogue as one, in order."""
        whole: dict[str, Any] = {}
        for name in OF_ROUNDS:
            values = [getattr(log, name) for log in logs]
            if isinstance(values[0], Mapping):
                whole[name] = {column: np.concatenate([one[column] for one in values]) for column in values[0]}
            else:
                whole[name] = None if any(value is None for value in values) else np.concatenate(values)
        return logs[0]._with(**whole)

    @property
    def arms(self) -> tuple[Any, ...]:
        """The arms that the description of a table names."""
        return () if self.features is None else self.features.choices.arms

    @property
    def without_contexts(self) -> bool:
        """Whether nothing is known of a round before its action is chosen."""
        return self.features is None and self.contexts.shape[1] == 0

    def table(self, chosen: slice | NDArray[Any] = slice(None)) -> Any:
        """Return contexts of some rounds as a policy takes them: numbers, or rows as dicts."""
        contexts = _taken(self.contexts, lambda column: column[chosen])
        return contexts if self.features is None else rows_of(contexts, len(self.played[chosen]))

    def rows(self, chosen: slice | NDArray[Any]) -> Log:
        """Return a log of some of the rows."""
        parts = {name: getattr(self, name) for name in OF_ROUNDS}
        return self._with(
            **{
                name: None if value is None else _taken(value, lambda column: column[chosen])
                for name, value in parts.items()
            }
        )

    def seen_by(self, policy: Policy, chosen: slice | NDArray[Any]) -> tuple[Any, Any]:
        """Return contexts of some rounds and the catalogue as a policy takes them, with the columns that it reads."""
        if not isinstance(policy, TablePolicy):
            if self.features is not None:
                raise InputError(
                    "policy: it decides on arrays and the log is a table; build it with features=log.features."
                )
            return self.contexts[chosen], self.actions
        rows = self.table(chosen)
        if self.features is None:
            if len(self.columns) != self.contexts.shape[1]:
                raise InputError(
                    "policy: it decides on a table and the log holds numbers without names; build the log from a frame "
                    "or with columns=."
                )
            rows = [dict(zip(self.columns, row, strict=True)) for row in rows.tolist()]
        features = policy.features
        offered = self.names if self.features is None else self.actions
        return [_columns(row, features.context) for row in rows], [_action(one, features.actions) for one in offered]

    def with_probabilities(self, probabilities: ArrayLike | None) -> Log:
        """Return the log with the probabilities of every action, which are checked; None for none."""
        if probabilities is None:
            return self._with(probabilities=None)
        table = as_points("probabilities", probabilities, len(self.actions))
        _same_length(rewards=self.rewards, probabilities=table)
        valid = ((table >= 0.0) & (table <= 1.0)).all(axis=1) & (np.abs(table.sum(axis=1) - 1.0) <= 1e-6)
        require_rows("probabilities", table, valid, "numbers from 0 to 1 with sum 1")
        same = np.abs(table[np.arange(len(table)), self.played] - self.propensities) <= 1e-6
        require_rows("propensity", self.propensities, same, "the probability of the action that was played")
        return self._with(probabilities=table)

    def with_offers(self, offered: ArrayLike | None) -> Log:
        """Return the log with what was on offer in every round, which is checked; None for everything."""
        if offered is None:
            return self._with(offered=None)
        table, shape = np.asarray(offered, dtype=bool), (len(self), len(self.actions))
        if table.shape != shape:
            raise InputError(f"offered: expected shape {shape}, one for each round and action, got {table.shape}.")
        was_offered = table[np.arange(len(self)), self.played]
        require_rows("offered", table, was_offered, "the action that was played among them")
        return self._with(offered=table)

    def taught(self, policy: PolicyT, weights: FloatArray | None = None) -> PolicyT:
        """Return a copy of a policy that has learned the log, each round with its weight."""
        policy = copy.deepcopy(policy)
        contexts, actions = self.seen_by(policy, slice(None))
        actions = some_of(actions, self.played)
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


def as_shares(propensities: FloatArray) -> FloatArray | None:
    """Return the propensities of actions if they are all there are: of a trial, whose shares have the sum 1."""
    # also NaN, of an action whose propensity varied
    return propensities if abs(float(propensities.sum()) - 1.0) <= 1e-6 else None


def _distinct(played: Any) -> tuple[list[Any], NDArray[np.intp]]:
    """Return the different actions that were played, in order of appearance, and the place of each round's."""
    plain = as_rows("played", played) if is_frame(played) else as_column(played).tolist()
    places: dict[Any, int] = {}
    codes = np.empty(len(plain), dtype=np.intp)
    actions: list[Any] = []
    for row, action in enumerate(plain):
        if is_gap(action) or (isinstance(action, str) and not action):
            raise refuse("action", row, "an action", "none")
        # a file knows no difference between 1 and 1.0
        key = int(action) if isinstance(action, float) and action.is_integer() else key_of(action)
        if key not in places:
            places[key] = len(actions)
            actions.append(dict(action) if isinstance(action, Mapping) else level_of(key))
        codes[row] = places[key]
    return actions, codes


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


def _in_order(distinct: Sequence[Any], some_known: bool) -> Sequence[Any]:
    """Return actions in an order that does not depend on that of the rounds: numbers count from 0, names are sorted."""
    if all(type(action) is int and 0 <= action < MOST_ACTIONS for action in distinct) and not some_known:
        return range(max(distinct) + 1)
    return sorted(distinct, key=lambda action: str(key_of(action)))


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
        columns = {"contexts": _contexts(self.contexts, len(rewards)), "actions": actions, "rewards": rewards}
        _same_length(**columns, densities=densities)
        require_rows("density", densities, densities > 0.0, "a number above 0")
        vars(self).update(columns, densities=densities)

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


def some_of(values: Any, places: NDArray[np.intp]) -> Any:
    """Return some rows of an array, or some entries of a list."""
    return values[places] if isinstance(values, np.ndarray) else [values[place] for place in places]


def blocks(count: int, size: int) -> Iterator[slice]:
    """Yield slices of at most ``size`` rows that cover ``count`` rows."""
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))
