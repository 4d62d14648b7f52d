"""A table as a bandit: contexts, arms and the reward of every arm in every row.

Only NumPy is imported: this module runs in the environment of every peer.
"""

from __future__ import annotations

import io
import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]

# A column whose standard deviation is below this share of its largest value is constant.
CONSTANT = 1e-12


@dataclass(frozen=True)
class Offer:
    """What a player sees in a round.

    Attributes:
        context: shape (d_x,).
        actions: one row per arm, shape (A, d_a); unit vectors where arms are names.
        described: whether ``actions`` says more than which arm is which.
    """

    context: FloatArray
    actions: FloatArray
    described: bool

    @property
    def flat(self) -> FloatArray:
        """Everything there is to see as one vector, for libraries whose arms have no features."""
        return np.concatenate((self.context, self.actions.ravel())) if self.described else self.context


@dataclass(frozen=True, eq=False)
class Problem:
    """A table, ready to be played.

    Attributes:
        contexts: numbers standardised, categories as 0/1 columns, shape (n, d_x).
        variables: the variable of the table that each column of ``contexts`` comes from, shape (d_x,).
        rewards: the reward of each arm in each row, shape (n, A); NaN where a log does not know it.
        actions: features of the arms in each row, shape (n, A, d_a); (0, A, 0) where arms are names.
        taken: in a log with a continuous action, the features of the action taken, shape (n, d_a); else (0, 0).
    """

    contexts: FloatArray
    variables: NDArray[np.int64]
    rewards: FloatArray
    actions: FloatArray
    taken: FloatArray

    @property
    def rows(self) -> int:
        """n, the number of rows."""
        return len(self.contexts)

    @property
    def arms(self) -> int:
        """A, the number of arms."""
        return self.rewards.shape[1]

    @property
    def described(self) -> bool:
        """Whether the arms have features."""
        return self.actions.shape[2] > 0

    @property
    def is_binary(self) -> bool:
        """Whether every reward is 0 or 1."""
        known = self.rewards[~np.isnan(self.rewards)]
        return bool(np.isin(known, (0.0, 1.0)).all())

    @property
    def is_log(self) -> bool:
        """Whether some rewards are unknown, so that a row counts only if the logged arm is chosen."""
        return bool(np.isnan(self.rewards).any())

    def offer(self, row: int) -> Offer:
        """Return what a player sees of a row."""
        actions = self.actions[row] if self.described else np.eye(self.arms)
        return Offer(self.contexts[row], actions, self.described)

    def observed(self, row: int, arm: int, offer: Offer) -> Offer:
        """Return the offer a player learns from: in a log the chosen arm has the features of the action taken."""
        if not self.taken.size:
            return offer
        actions = offer.actions.copy()
        actions[arm] = self.taken[row]
        return Offer(offer.context, actions, offer.described)

    def save(self, path: Path) -> None:
        """Write the problem to a file that is complete or absent."""
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **{field.name: getattr(self, field.name) for field in fields(self)})
        write_atomically(path, buffer.getvalue())

    @staticmethod
    def load(path: Path) -> Problem:
        """Read a problem that :meth:`save` wrote."""
        with np.load(path) as file:
            return Problem(**{field.name: file[field.name] for field in fields(Problem)})


def problem(
    contexts: FloatArray,
    variables: list[int],
    rewards: FloatArray,
    actions: FloatArray | None = None,
    taken: FloatArray | None = None,
) -> Problem:
    """Return a problem with the empty arrays filled in and the shapes checked."""
    rows, arms = rewards.shape
    described = np.empty((0, arms, 0)) if actions is None else actions
    log = np.empty((0, 0)) if taken is None else taken
    expected = {
        "contexts": (contexts.shape[:1], (rows,)),
        "variables": ((len(variables),), contexts.shape[1:]),
        "actions": (described.shape[:2], (rows if actions is not None else 0, arms)),
        "taken": (log.shape, (rows, described.shape[2]) if taken is not None else (0, 0)),
    }
    for name, (got, wanted) in expected.items():
        if got != wanted:
            raise ValueError(f"{name}: expected shape {wanted} for rewards of shape {rewards.shape}, got {got}.")
    return Problem(contexts, np.array(variables, dtype=np.int64), rewards, described, log)


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that it appears under its name only when it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_bytes(content)
    draft.replace(path)
