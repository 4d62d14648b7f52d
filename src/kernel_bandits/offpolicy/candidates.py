"""What can be evaluated: a policy, an action, a function, a table of probabilities, or a preset that learns the log."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernel_bandits import presets
from kernel_bandits.actions import Box
from kernel_bandits.arrays import FloatArray, as_points, as_vector
from kernel_bandits.errors import InputError
from kernel_bandits.logs.log import ContinuousLog, Log, blocks, key_of, require_rows, seen_by
from kernel_bandits.offpolicy.reward_model import CrossFit, cross_fitted
from kernel_bandits.policy import load
from kernel_bandits.policy.policy import Policy
from kernel_bandits.tables.policy import TablePolicy
from kernel_bandits.tables.values import nearest

# A policy is never changed by an evaluation. A function takes a context (d_x,) and the actions (A, d_a), or the row of a
# table and perhaps the actions on offer.
Candidate: TypeAlias = Policy | int | str | Path | Callable[..., Any] | FloatArray
ContinuousCandidate: TypeAlias = Policy | Callable[[FloatArray], Any] | FloatArray | float
SUM_TOLERANCE = 1e-6
ROWS_AT_ONCE = 4096


@dataclass(frozen=True)
class Play:
    """What a candidate would have done in every round of a log.

    Attributes:
        table: of probabilities, shape (n, A).
        row: of a fixed action.
        function: of context and actions, or of rows.
        policies: that decide, one for each fold, or one for all rounds.
        folds: of the rounds, shape (n,), where there are several policies.
    """

    table: FloatArray | None = None
    row: int | None = None
    function: Callable[..., Any] | None = None
    policies: tuple[Policy, ...] = ()
    folds: NDArray[np.intp] | None = None

    @classmethod
    def of(cls, log: Any, candidate: Candidate, fitted: CrossFit | None = None, seed: int = 0) -> Play:
        """Return what a candidate would have done, taught by the log if it is a preset.

        Args:
            log: that is asked.
            candidate: as for :func:`evaluate`.
            fitted: the models of the rewards, whose folds presets are taught by.
            seed: of presets, and of their folds without a model.
        """
        if isinstance(candidate, Policy):
            # decisions draw from generators, which are not to be touched
            return cls(policies=(copy.deepcopy(candidate),))
        if isinstance(candidate, (int, str, np.integer)) and candidate in log.names:
            return cls(row=log.names.index(candidate))
        if isinstance(candidate, (str, Path)) and Path(candidate).is_file():
            return cls(policies=(load(candidate),))
        preset = _preset(candidate)
        if preset is not None:
            return cls.learned(log, preset, fitted, seed)
        if callable(candidate):
            return cls(function=candidate)
        if isinstance(candidate, (int, str, Path, np.integer)):
            known = ", ".join(map(repr, log.names[:10]))
            hint = nearest(str(candidate), [*map(str, log.names), *presets.__all__])
            raise InputError(
                f"candidate: expected one of the actions {known}, …, the file of a saved policy, or a preset such as "
                f"'ek_ucb', got {candidate!r}{hint}"
            )
        shape = (len(log), len(log.names))
        table = np.asarray(candidate, dtype=float) if np.ndim(candidate) == 2 else None
        if table is None or table.shape != shape:
            raise InputError(
                f"candidate: expected a policy, an action, a function, or probabilities of shape {shape}, got "
                f"{type(candidate).__name__} of shape {np.shape(candidate)}."
            )
        _require(table, 0)
        return cls(table=table)

    @classmethod
    def learned(cls, log: Any, make: Callable[..., Policy] | Policy, fitted: CrossFit | None, seed: int) -> Play:
        """Return what a policy would have done that learns all rounds but those of the fold it decides in."""
        fresh = make if isinstance(make, Policy) else fresh_policy(log, make, seed)
        if fitted is not None:
            folds = fitted.folds
            others = [np.flatnonzero(folds != fold) for fold in range(len(fitted.models))]
        else:
            folds, others = cross_fitted(len(log), 3, len(log), seed, "apart")
        return cls(policies=tuple(log.rows(rows).taught(fresh) for rows in others), folds=folds)

    def rows(self, chosen: slice) -> Play:
        """Return what the candidate would have done in some of the rounds."""
        return Play(
            None if self.table is None else self.table[chosen],
            self.row,
            self.function,
            self.policies,
            None if self.folds is None else self.folds[chosen],
        )

    def probabilities(self, log: Log, start: int = 0) -> FloatArray:
        """Return the probabilities of every action in the rounds of a log, shape (n, A).

        Args:
            log: as many rounds as the table or the folds have.
            start: the number of its first row, for errors.
        """
        found = self.table
        if self.row is not None:
            found = certain(np.full(len(log), self.row), len(log.names))
        elif self.function is not None:
            found = _by_function(self.function, log, start)
        elif self.policies:
            found = np.zeros((len(log), len(log.names)))
            for fold, policy in enumerate(self.policies):
                rounds = np.arange(len(log)) if self.folds is None else np.flatnonzero(self.folds == fold)
                if len(rounds):
                    found[rounds] = decided(policy, log, rounds)
        assert found is not None
        if log.offered is not None and (found[~log.offered] > SUM_TOLERANCE).any():
            row, place = (int(each[0]) for each in np.nonzero(np.where(log.offered, 0.0, found) > SUM_TOLERANCE))
            raise InputError(
                f"candidate: in row {start + row} it plays {log.names[place]!r}, which was not on offer; give a "
                "function of the row and the actions on offer that says what to play there."
            )
        return found


def _preset(candidate: Any) -> Callable[..., Policy] | None:
    """Return the preset of a name, or the preset itself."""
    if isinstance(candidate, str):
        return getattr(presets, candidate) if candidate in presets.__all__ else None
    named = getattr(presets, getattr(candidate, "__name__", ""), None)
    return candidate if named is candidate else None


def fresh_policy(log: Any, preset: Callable[..., Policy], seed: int) -> Policy:
    """Return the policy of a preset over what a log holds."""
    return preset(seed=seed) if log.features is None else preset(features=log.features, seed=seed)


def certain(rows: Any, count: int) -> FloatArray:
    """Return probabilities 1 of one action in each round."""
    table = np.zeros((len(rows), count))
    table[np.arange(len(rows)), rows] = 1.0
    return table


def offers(log: Log, rounds: NDArray[np.intp]) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Yield rounds that had the same actions on offer, by their places among ``rounds``, and these actions."""
    if log.offered is None:
        yield np.arange(len(rounds)), np.arange(len(log.names))
        return
    kinds, which = np.unique(log.offered[rounds], axis=0, return_inverse=True)
    for kind, allowed in enumerate(kinds):
        yield np.flatnonzero(which == kind), np.flatnonzero(allowed)


def decided(policy: Policy, log: Log, rounds: NDArray[np.intp]) -> FloatArray:
    """Return the probabilities with which a policy plays in some rounds of a log, shape (k, A)."""
    if isinstance(policy, TablePolicy) != (log.features is not None):
        kind = "a table" if isinstance(policy, TablePolicy) else "arrays"
        raise InputError(
            f"candidate: it is a policy over {kind}, and the log is not; read the log as the table that the policy "
            "decides on, or build the policy with features=log.features."
        )
    found = np.zeros((len(rounds), len(log.names)))
    contexts, actions = seen_by(policy, log.table(rounds), log.catalogue)
    for places, allowed in offers(log, rounds):
        some = contexts[places] if isinstance(contexts, np.ndarray) else [contexts[place] for place in places]
        offer = actions[allowed] if isinstance(actions, np.ndarray) else [actions[place] for place in allowed]
        for place, choice in zip(places, policy.choices(some, offer), strict=True):
            if choice.probabilities is None:
                found[place, allowed[choice.index]] = 1.0
            else:
                found[place, allowed] = choice.probabilities
    return found


def _by_function(function: Callable[..., Any], log: Log, start: int) -> FloatArray:
    contexts, count = log.table(), len(log.names)
    if log.features is None:
        answers = [function(context, log.catalogue) for context in contexts]
        if all(np.ndim(answer) == 0 for answer in answers):
            return certain(np.array([_place(int(answer), range(count), log) for answer in answers]), count)
        table = as_points("candidate", np.array(answers, dtype=float), count)
        _require(table, start)
        return table
    takes_offer = _takes_two(function)
    found = np.zeros((len(log), count))
    for places, allowed in offers(log, np.arange(len(log))):
        offer = [log.catalogue[place] for place in allowed]
        for place in places:
            answer = function(contexts[place], offer) if takes_offer else function(contexts[place])
            if isinstance(answer, Mapping) and not isinstance(log.catalogue[allowed[0]], Mapping):
                for name, probability in answer.items():
                    found[place, _place(name, log.names, log)] = probability
            elif isinstance(answer, (list, tuple, np.ndarray)):
                found[place, allowed] = as_vector("candidate", answer, len(allowed))
            else:
                found[place, _place(key_of(answer), log.names, log)] = 1.0
    _require(found, start)
    return found


def _takes_two(function: Callable[..., Any]) -> bool:
    """Return whether a function of rows also takes the actions on offer."""
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        return False
    return True


def _place(answer: Any, known: Sequence[Any], log: Log) -> int:
    if answer in known:
        return known.index(answer)
    if log.features is None:
        raise InputError(f"candidate: expected a row from 0 to {len(known) - 1}, got {answer}.")
    hint = nearest(answer, list(known))
    raise InputError(f"candidate: expected the name of an action of the log, got {answer!r}{hint}")


def _require(table: FloatArray, start: int) -> None:
    valid = (table >= 0.0).all(axis=1) & (np.abs(table.sum(axis=1) - 1.0) <= SUM_TOLERANCE)
    try:
        require_rows("candidate", table, valid, "probabilities from 0 to 1 with sum 1")
    except InputError as reason:
        offset = f" (rows counted from row {start} of the log)" if start else ""
        raise InputError(f"{reason}{offset}") from None


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
