"""What a table is to the bake-off."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from bakeoff.problem import Problem
from bakeoff.sources import Source, digest, fetched

Kind: TypeAlias = Literal["classes", "numbers", "choices", "trial"]
# Part of the name of a prepared problem: to be raised when the encoding changes.
ENCODING = 1


@dataclass(frozen=True)
class Table:
    """A real table and how it is played.

    Attributes:
        name: short, unique.
        kind: ``"classes"`` (name the class of the row), ``"numbers"`` (the reward is a number), ``"choices"``
            (recommend one of several described alternatives) or ``"trial"`` (replay a randomised log).
        source: where its files are.
        read: turns the contents of the source's files, each as bytes, into a problem.
        shape: rows, variables and arms, to be checked.
        note: what arms and rewards are, where that is not the class of the row.
        is_synthetic: whether a program made the rows; such tables are played and not counted as real.
        is_development: whether our default was designed while looking at this table, or at another copy of its rows.
    """

    name: str
    kind: Kind
    source: Source
    read: Callable[..., Problem]
    shape: tuple[int, int, int]
    note: str = ""
    is_synthetic: bool = False
    is_development: bool = False

    def prepare(self, wheels: Path, folder: Path) -> Path:
        """Return the file of the prepared problem, which is made unless it is there."""
        contents = fetched(self.source, wheels)
        path = folder / f"{self.name}-{ENCODING}-{digest(contents)[:12]}.npz"
        if not path.exists():
            problem = self.read(*contents)
            self.check(problem)
            problem.save(path)
        return path

    def check(self, problem: Problem) -> None:
        """Raise unless the problem has the shape it should have."""
        variables = len(set(problem.variables.tolist()))
        got = (problem.rows, variables, problem.arms)
        if got != self.shape:
            raise ValueError(f"{self.name}: expected {self.shape} rows, variables and arms, got {got}.")
