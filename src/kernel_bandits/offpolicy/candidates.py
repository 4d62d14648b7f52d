"""What can be evaluated: a policy, an action, a function, a table of probabilities, or a preset that learns the log."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernel_bandits import presets
from kernel_bandits.arrays import FloatArray, as_vector
from kernel_bandits.errors import InputError
from kernel_bandits.logs.log import Log, key_of, some_of
from kernel_bandits.offpolicy.reward_model import CrossFit, RewardModel, Written, cross_fitted
from kernel_bandits.policy import load
from kernel_bandits.policy.policy import Policy
from kernel_bandits.tables.values import nearest

# A policy is never changed by an evaluation. A function takes a context (d_x,) and the actions (A, d_a), or the row of
# a table and perhaps the actions on offer.
Candidate: TypeAlias = "Policy | Play | int | str | Path | Callable[..., Any] | FloatArray"
SUM_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Play:
    """What a candidate would have done in every round of a log.

    Attributes:
        table: of probabilities, shape (n, A).
        function: of context and actions, or of rows.
        policies: that decide, one for each fold, or one for all rounds.
        folds: of the rounds, shape (n,), where there are several policies.
    """

    table: FloatArray | None = None
    function: Callable[..., Any] | None = None
    policies: tuple[Policy, ...] = ()
    folds: NDArray[np.intp] | None = None

    @classmethod
    def of(
        cls,
        log: Any,
        candidate: Candidate,
        fitted: CrossFit | None = None,
        seed: int = 0,
        written_by: Written = "fixed",
    ) -> Play:
        """Return what a candidate would have done, taught by the log if it is a preset.

        Of a fixed log a preset may know all other folds, those of the models of rewards if there are any, and otherwise
        earlier rounds.
        """
        if isinstance(candidate, Play):
            return candidate
        if isinstance(candidate, Policy):
            # decisions draw from generators, which are not to be touched
            return cls(policies=(copy.deepcopy(candidate),))
        shape, name = (len(log), len(log.names)), candidate if isinstance(candidate, (int, str, np.integer)) else None
        if name is not None and name in log.names:
            return cls(table=np.broadcast_to(certain([log.names.index(name)], shape[1]), shape))
        if isinstance(candidate, (str, Path)) and Path(candidate).is_file():
            return cls(policies=(load(candidate),))
        preset = preset_of(candidate)
        if preset is not None:
            return cls.learned(log, fresh_policy(log, preset, seed), fitted, seed, written_by)
        if callable(candidate):
            return cls(function=candidate)
        if isinstance(candidate, (int, str, Path, np.integer)):
            known = ", ".join(map(repr, log.names[:10])) + (", …" if len(log.names) > 10 else "")
            hint = nearest(str(candidate), [*map(str, log.names), *presets.__all__])
            raise InputError(
                f"candidate: expected one of the actions {known}, the file of a saved policy, or a preset such as "
                f"'ek_ucb', got {candidate!r}{hint or '; name an action that was never played by actions= of the log.'}"
            )
        table = np.asarray(candidate, dtype=float) if np.ndim(candidate) == 2 else None
        if table is None or table.shape != shape:
            raise InputError(
                f"candidate: expected a policy, an action, a function, or probabilities of shape {shape}, got "
                f"{type(candidate).__name__} of shape {np.shape(candidate)}."
            )
        _require(table, 0)
        return cls(table=table)

    @classmethod
    def learned(
        cls,
        log: Any,
        policy: Policy,
        fitted: CrossFit | None,
        seed: int,
        written_by: Written = "fixed",
        weights: FloatArray | None = None,
    ) -> Play:
        """Return what a policy would have done that learns the rounds it may know, and not those it decides in."""
        if fitted is not None and written_by == "fixed":
            folds = fitted.folds
            others = [np.flatnonzero(folds != fold) for fold in range(len(fitted.models))]
        else:
            folds, others = cross_fitted(len(log), RewardModel.folds, len(log), seed, written_by)
        taught = []
        for rows in others:
            own = None if weights is None else weights[rows]
            taught.append(log.rows(rows).taught(policy, own) if len(rows) else copy.deepcopy(policy))
        return cls(policies=tuple(taught), folds=folds)

    def rows(self, chosen: slice) -> Play:
        """Return what the candidate would have done in some of the rounds."""
        table = None if self.table is None else self.table[chosen]
        return replace(self, table=table, folds=None if self.folds is None else self.folds[chosen])

    def probabilities(self, log: Log, start: int = 0) -> FloatArray:
        """Return the probabilities of every action in rounds that begin with a row of the log, shape (n, A)."""
        found = np.zeros((len(log), len(log.names))) if self.table is None else self.table
        if self.function is not None:
            found = _by_function(self.function, log, start)
        for fold, policy in enumerate(self.policies):
            rounds = np.arange(len(log)) if self.folds is None else np.flatnonzero(self.folds == fold)
            if len(rounds):
                found[rounds] = decided(policy, log, rounds)
        if log.offered is not None and (found[~log.offered] > SUM_TOLERANCE).any():
            row, place = (int(each[0]) for each in np.nonzero(np.where(log.offered, 0.0, found) > SUM_TOLERANCE))
            raise InputError(
                f"candidate: in row {start + row} it plays {log.names[place]!r}, which was not on offer; give a "
                "function of the row and the actions on offer that says what to play there."
            )
        return found


def preset_of(candidate: Any) -> Callable[..., Policy] | None:
    """Return the preset of a name, or the preset itself; None if it is neither."""
    name = candidate if isinstance(candidate, str) else getattr(candidate, "__name__", "")
    named = getattr(presets, name) if name in presets.__all__ else None
    return named if candidate is named or isinstance(candidate, str) else None


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
    found = np.zeros((len(rounds), len(log.names)))
    contexts, actions = log.seen_by(policy, rounds)
    for places, allowed in offers(log, rounds):
        choices = policy.select_many(some_of(contexts, places), some_of(actions, allowed))
        for place, choice in zip(places, choices, strict=True):
            if choice.probabilities is None:
                found[place, allowed[choice.index]] = 1.0
            else:
                found[place, allowed] = choice.probabilities
    return found


def _by_function(function: Callable[..., Any], log: Log, start: int) -> FloatArray:
    contexts, found = log.table(), np.zeros((len(log), len(log.names)))
    takes_offer = log.features is None or _takes_two(function)
    # a function of arrays is always given all actions
    everything = [(np.arange(len(log)), np.arange(len(log.names)))]
    for places, allowed in everything if log.features is None else offers(log, np.arange(len(log))):
        offer = some_of(log.actions, allowed)
        for place in places:
            answer = function(contexts[place], offer) if takes_offer else function(contexts[place])
            if isinstance(answer, Mapping) and not isinstance(offer[0], Mapping):
                for name, probability in answer.items():
                    found[place, _place(name, log)] = probability
            elif np.ndim(answer) == 1:
                found[place, allowed] = as_vector("candidate", answer, len(allowed))
            else:
                found[place, _place(key_of(answer), log)] = 1.0
    _require(found, start)
    return found


def _takes_two(function: Callable[..., Any]) -> bool:
    """Return whether a function of rows also takes the actions on offer."""
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        return False
    return True


def _place(answer: Any, log: Log) -> int:
    if log.features is None:
        row = int(answer)
        if not 0 <= row < len(log.names):
            raise InputError(f"candidate: expected a row from 0 to {len(log.names) - 1}, got {row}.")
        return row
    if answer not in log.names:
        hint = nearest(answer, log.names)
        raise InputError(f"candidate: expected the name of an action of the log, got {answer!r}{hint}")
    return log.names.index(answer)


def _require(table: FloatArray, start: int) -> None:
    valid = (table >= 0.0).all(axis=1) & (np.abs(table.sum(axis=1) - 1.0) <= SUM_TOLERANCE)
    if not valid.all():
        row = int(np.flatnonzero(~valid)[0])
        raise InputError(
            f"candidate: expected probabilities from 0 to 1 with sum 1, got {table[row].tolist()} in row {start + row} "
            "of the log."
        )
