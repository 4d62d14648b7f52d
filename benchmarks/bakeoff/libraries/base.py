"""What a library is to the bake-off."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from bakeoff.game import Player, Shape

Settings: TypeAlias = Mapping[str, float | int | str]
Role: TypeAlias = Literal["ours", "probe", "peer", "skyline", "floor"]


@dataclass(frozen=True)
class Entry:
    """An algorithm of a library with the settings that are tried.

    Attributes:
        name: of the algorithm.
        build: makes a player from settings, the shape of the problem and a seed.
        grid: every setting that is tried; the best on a table counts, in hindsight.
        plays: whether the algorithm can play a problem of this shape.
    """

    name: str
    build: Callable[[Settings, Shape, int], Player]
    grid: tuple[Settings, ...] = ({},)
    plays: Callable[[Shape], bool] = lambda _: True

    def __post_init__(self) -> None:
        if len({digest(settings) for settings in self.grid}) != len(self.grid):
            raise ValueError(f"{self.name}: a setting stands in the grid twice.")


@dataclass(frozen=True)
class Library:
    """A library with its environment.

    Attributes:
        name: as its authors write it.
        module: the module of this package that describes it.
        requirements: lines for pip, versions pinned; empty for the environment that runs the bake-off.
        entries: its algorithms.
        role: ``"ours"``, ``"probe"`` (our parts, nothing learned), ``"peer"``, ``"skyline"`` (sees the rewards of all
            arms) or ``"floor"`` (sees nothing).
        most_shuffles: of a table that it plays; None for all.
    """

    name: str
    module: str
    requirements: tuple[str, ...]
    entries: tuple[Entry, ...]
    role: Role = "peer"
    most_shuffles: int | None = None

    def entry(self, name: str) -> Entry:
        """Return the entry of this name."""
        return next(entry for entry in self.entries if entry.name == name)


def grid(**values: tuple[float | int | str, ...]) -> tuple[Settings, ...]:
    """Return every combination of the given values."""
    combinations: list[dict[str, float | int | str]] = [{}]
    for name, choices in values.items():
        combinations = [{**settings, name: choice} for settings in combinations for choice in choices]
    return tuple(combinations)


def digest(settings: Settings) -> str:
    """Return a short name for settings, the same whatever their order."""
    return hashlib.sha256(json.dumps(dict(settings), sort_keys=True).encode()).hexdigest()[:10]
