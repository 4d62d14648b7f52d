"""What the records say about each table and about all of them: the numbers behind the page and its figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bakeoff.comparison import Difference, Ranking, Result, Verdict, best_of, holm, paired, ranking, tally
from bakeoff.libraries.base import Library
from bakeoff.problem import FloatArray, Problem
from bakeoff.tables.base import Table


@dataclass(frozen=True)
class TableReport:
    """The results on one table.

    Attributes:
        table: the table.
        problem: the prepared table.
        horizon: T.
        shuffles: how many there are.
        results: of every setting that played all shuffles.
    """

    table: Table
    problem: Problem
    horizon: int
    shuffles: int
    results: Sequence[Result]

    @cached_property
    def by_library(self) -> Mapping[str, Result]:
        """The best result of each library in hindsight."""
        return best_of(self.results, "library")

    @cached_property
    def by_entry(self) -> Mapping[str, Result]:
        """The best result of each entry in hindsight."""
        return best_of(self.results, "entry")

    def difference(self, one: str, other: str) -> Difference | None:
        """Return the reward of one library less that of another, each at its best, if both played."""
        if one not in self.by_library or other not in self.by_library:
            return None
        return paired(self.by_library[one].rewards, self.by_library[other].rewards)


@dataclass(frozen=True)
class Report:
    """The results on all tables.

    Attributes:
        tables: one report each.
        libraries: by module.
    """

    tables: Sequence[TableReport]
    libraries: Mapping[str, Library]

    def role(self, role: str) -> list[str]:
        """Return the modules of the libraries of a role that played some table."""
        played = {name for table in self.tables for name in table.by_library}
        return [module for module, library in self.libraries.items() if library.role == role and module in played]

    @property
    def ours(self) -> str | None:
        """The module of our library, if it played."""
        return next(iter(self.role("ours")), None)

    @property
    def peers(self) -> list[str]:
        """The modules of the peers that played."""
        return self.role("peer")

    @property
    def competitors(self) -> list[str]:
        """Ours and the peers."""
        return [*self.role("ours"), *self.peers]

    def tally(self, one: str, other: str) -> tuple[int, int, int]:
        """Return on how many tables one library is significantly better, alike and significantly worse than another."""
        found = [table.difference(one, other) for table in self.tables]
        return tally([difference.verdict for difference in found if difference is not None])

    @cached_property
    def corrected(self) -> Mapping[tuple[str, str], Verdict]:
        """Our verdicts by table and peer, after Holm's correction over all of them; what it does not pass is alike."""
        found = {
            (table.table.name, peer): difference
            for table in self.tables
            for peer in self.peers
            if (difference := table.difference(self.ours or "", peer)) is not None
        }
        falls = holm([difference.p_value for difference in found.values()])
        return {
            key: difference.verdict if fallen else "draw"
            for (key, difference), fallen in zip(found.items(), falls, strict=True)
        }

    def corrected_tally(self, peer: str) -> tuple[int, int, int]:
        """Return what :meth:`tally` does of ours and a peer, by corrected verdicts."""
        return tally([verdict for (_, other), verdict in self.corrected.items() if other == peer])

    def losses(self) -> list[tuple[TableReport, str, Difference]]:
        """Return where a peer is significantly better than we are, the largest differences first."""
        found = []
        for table in self.tables:
            for peer in self.peers:
                difference = table.difference(self.ours or "", peer)
                if difference is not None and difference.verdict == "loss":
                    found.append((table, peer, difference))
        return sorted(found, key=lambda loss: loss[2].mean)

    def ranking(self) -> Ranking:
        """Rank the libraries, each at its best in hindsight, on the tables that all of them played."""
        names = set(self.competitors)
        return ranking(
            {
                table.table.name: {
                    self.libraries[name].name: result.mean for name, result in table.by_library.items() if name in names
                }
                for table in self.tables
            }
        )

    def rank_by_table(self) -> dict[str, float]:
        """Return our rank among those libraries that played a table; ties count half."""
        ours, peers = self.ours, self.peers
        if ours is None:
            return {}
        return {
            table.table.name: self._rank(table, ours)
            for table in self.tables
            if ours in table.by_library and any(peer in table.by_library for peer in peers)
        }

    def among(self, entries: Sequence[str]) -> dict[str, tuple[float, FloatArray]]:
        """Compare ours with some libraries and entries (``library: entry``) on the tables that all of them played.

        Returns:
            By table our rank, ties half, and our mean reward less that of each at its best, in order.
        """
        found = {}
        for table in self.tables:
            best = {**table.by_entry, **table.by_library}
            if self.ours in best and all(name in best for name in entries):
                less = best[self.ours].mean - np.array([best[name].mean for name in entries])
                found[table.table.name] = 1.0 + float((less < 0).sum() + 0.5 * (less == 0).sum()), less
        return found

    def speed(self) -> dict[str, tuple[float, float]]:
        """Return the mean rank and the median milliseconds per decision of each library at its best, by module."""
        found = {}
        for name in self.competitors:
            played = [table for table in self.tables if name in table.by_library]
            ranks = [self._rank(table, name) for table in played]
            times = [table.by_library[name].milliseconds for table in played]
            found[name] = (float(np.mean(ranks)), float(np.median(times)))
        return found

    def memory(self) -> dict[str, float]:
        """Return the median growth of memory of each library at its best, in megabytes, by module."""
        return {
            name: float(
                np.median([table.by_library[name].megabytes for table in self.tables if name in table.by_library])
            )
            for name in self.competitors
        }

    def _rank(self, table: TableReport, name: str) -> float:
        means = [table.by_library[one].mean for one in self.competitors if one in table.by_library]
        own = table.by_library[name].mean
        return 1.0 + sum(mean > own for mean in means) + 0.5 * (sum(mean == own for mean in means) - 1)
