"""Play the bake-off and write its page.

    python benchmarks/bakeoff/run.py                 everything: hours on two cores; stop and start it as you like
    python benchmarks/bakeoff/run.py --quick         500 rows, two shuffles: minutes
    python benchmarks/bakeoff/run.py --page          the page from the records there are
    python benchmarks/bakeoff/run.py --table pima --library mabwiser

Records of peers that the repository ships are not played again, nor our own if the sources are the same; with
``--fresh`` and a new ``--folder`` they are. ``--page`` shows our shipped records whatever sources made them.
Packages with tables are fetched by pip, peers are installed into environments of their own, both below ``--folder``.
The workers of a Dask scheduler must share that folder and have ``benchmarks`` on their PYTHONPATH.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Not the folder of this file, whose modules would hide others of the same name.
sys.path[0:1] = [str(ROOT / "benchmarks"), str(ROOT / "src")]

from bakeoff import archive, sources  # noqa: E402 (the path is set above)
from bakeoff.environments import InstallationError, interpreter  # noqa: E402
from bakeoff.execution import Ended, play_here, play_on_cluster, tasks_of  # noqa: E402
from bakeoff.libraries import all_libraries  # noqa: E402
from bakeoff.libraries.base import Library  # noqa: E402
from bakeoff.plan import QUICK, Extent, final_cells, first_cells  # noqa: E402
from bakeoff.problem import Problem  # noqa: E402
from bakeoff.records import Cell, read_records  # noqa: E402
from bakeoff.tables import all_tables  # noqa: E402
from bakeoff.tables.base import Table  # noqa: E402

# Seconds between two lines of progress.
PAUSE = 10.0


class Bakeoff:
    """Tables, libraries and the folder of what they leave.

    Attributes:
        tables: by name.
        libraries: by module.
        extent: how much is played.
        folder: of wheels, problems, environments and records.
    """

    def __init__(self, tables: dict[str, Table], libraries: dict[str, Library], extent: Extent, folder: Path) -> None:
        self.tables, self.libraries, self.extent, self.folder = tables, libraries, extent, folder
        self.records = folder / "records"
        self.problems: dict[str, Path] = {}
        self._loaded: dict[str, Problem] = {}

    def prepare(self) -> None:
        """Fetch the tables."""
        for name, table in self.tables.items():
            self.problems[name] = table.prepare(self.folder / "wheels", self.folder / "problems")

    def problem(self, table: str) -> Problem:
        """Return a prepared problem."""
        if table not in self._loaded:
            self._loaded[table] = Problem.load(self.problems[table])
        return self._loaded[table]

    def first(self) -> list[Cell]:
        """Return the cells of the screening, and of grids too small to be screened."""
        return [
            cell
            for table in self.tables
            for library in self.libraries.values()
            for cell in first_cells(table, self.problem(table), library, self.extent)
        ]

    def final(self) -> list[Cell]:
        """Return the cells of the finalists."""
        cells = []
        for table in self.tables:
            for library in self.libraries.values():
                screened = first_cells(table, self.problem(table), library, self.extent)
                records = list(read_records(self.records, screened))
                cells += final_cells(table, self.problem(table), library, self.extent, records)
        return cells

    def cells(self) -> list[Cell]:
        """Return every cell, as far as the screening has been played."""
        return [*self.first(), *self.final()]

    def play(self, cells: Sequence[Cell], jobs: int, scheduler: str | None, title: str) -> list[Ended]:
        """Play the cells without a record and return those that failed."""
        needed = {cell.library for cell in cells if not (self.records / cell.path).exists()}
        pythons = {module: interpreter(self.libraries[module], self.folder / "environments") for module in needed}
        tasks = tasks_of(cells, pythons, self.problems, self.records)
        progress = Progress(title, sum(len(task.cells) for task in tasks))
        outcomes = play_on_cluster(tasks, scheduler, progress) if scheduler else play_here(tasks, jobs, progress)
        return [one for ended in outcomes for one in ended if one.error]


class Progress:
    """A line now and then on how far a stage has come."""

    def __init__(self, title: str, total: int) -> None:
        self.title, self.total, self.done, self.failed = title, total, 0, 0
        self.started = self.told = time.monotonic()
        print(f"{title}: {total} runs to play", flush=True)

    def __call__(self, ended: Ended) -> None:
        self.done += 1
        self.failed += bool(ended.error)
        if ended.error:
            print(f"{ended.cell.path}: {ended.error.strip().splitlines()[-1]}", flush=True)
        now = time.monotonic()
        if now - self.told >= PAUSE or self.done == self.total:
            self.told = now
            left = (now - self.started) / self.done * (self.total - self.done)
            print(
                f"{self.title}: {self.done} of {self.total}, {self.failed} failed, "
                f"last {ended.cell.table} by {ended.cell.library}, about {left / 60:.0f} min left",
                flush=True,
            )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=ROOT / "results" / "bakeoff", help="where everything is kept")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="workers on this machine")
    parser.add_argument("--scheduler", help="address of a Dask scheduler whose workers share the folder")
    parser.add_argument("--table", action="append", help="only this table; may be repeated")
    parser.add_argument("--library", action="append", help="only this library; may be repeated")
    parser.add_argument("--without", action="append", default=[], help="leave this library out; may be repeated")
    parser.add_argument("--quick", action="store_true", help="500 rows and two shuffles of each table")
    parser.add_argument("--horizon", type=int, help=f"at most this many rows of a table ({Extent().horizon})")
    parser.add_argument("--shuffles", type=int, help=f"shuffles of a table ({Extent().shuffles})")
    parser.add_argument("--large", type=int, help=f"rows from which a table counts as large ({Extent().large})")
    parser.add_argument("--shuffles-of-large", type=int, help=f"at most this many ({Extent().shuffles_of_large})")
    parser.add_argument("--screening", type=int, help="shuffles on which every setting of a peer is played (2)")
    parser.add_argument("--refresh", action="append", default=[], help="play this library again; may be repeated")
    parser.add_argument("--fresh", action="store_true", help="leave out the records that the repository ships")
    parser.add_argument("--pack", action="store_true", help="add the records to peers.jsonl.gz and ours.jsonl.gz")
    parser.add_argument("--page", action="store_true", help="play nothing, write the page")
    parser.add_argument("--pin", action="store_true", help="record the checksums of new tables")
    parser.add_argument("--output", type=Path, help="where the page goes (FOLDER/bakeoff.md; docs/bakeoff.md is ours)")
    return parser.parse_args()


def chosen(options: argparse.Namespace) -> Bakeoff:
    """Return the bake-off that the options ask for."""
    tables = all_tables()
    libraries = {library.module: library for library in all_libraries().values()}
    for name, known in (("table", tables), ("library", libraries)):
        for one in getattr(options, name) or []:
            if one not in known:
                sys.exit(f"--{name}: expected one of {', '.join(known)}; got {one}.")
    extent = QUICK if options.quick else Extent()
    for name in ("horizon", "shuffles", "large", "shuffles_of_large"):
        if getattr(options, name) is not None:
            extent = replace(extent, **{name: getattr(options, name)})
    screening = min(options.screening or extent.screening, extent.shuffles, extent.shuffles_of_large)
    extent = replace(extent, screening=screening)
    return Bakeoff(
        {name: table for name, table in tables.items() if not options.table or name in options.table},
        without({name: libraries[name] for name in options.library or libraries}, options.without),
        extent,
        options.folder,
    )


def without(libraries: dict[str, Library], names: Sequence[str]) -> dict[str, Library]:
    """Return the libraries but for some."""
    return {name: library for name, library in libraries.items() if name not in names}


def main() -> None:
    options = arguments()
    bakeoff = chosen(options)
    try:
        if options.pin:
            sources.pin([table.source for table in bakeoff.tables.values()], options.folder / "wheels")
        bakeoff.prepare()
        for library in options.refresh:
            for table in bakeoff.tables:
                shutil.rmtree(bakeoff.records / table / library, ignore_errors=True)
        if not options.fresh:
            kept = without(bakeoff.libraries, options.refresh)
            archive.unpack(bakeoff.records, kept)
            archive.unpack(bakeoff.records, kept, archive.OURS, of_any_sources=options.page)
        if not options.page:
            failed = bakeoff.play(bakeoff.first(), options.jobs, options.scheduler, "first stage")
            failed += bakeoff.play(bakeoff.final(), options.jobs, options.scheduler, "finalists")
            (options.folder / "failures.txt").write_text("\n\n".join(f"{one.cell}\n{one.error}" for one in failed))
        if options.pack:
            print(f"{archive.pack(bakeoff.records, bakeoff.libraries)} records of peers are in {archive.ARCHIVE.name}.")
            print(f"{archive.pack_ours(bakeoff.records, bakeoff.libraries)} of ours are in {archive.OURS.name}.")
    except (sources.SourceError, InstallationError) as reason:
        sys.exit(str(reason))
    except KeyboardInterrupt:
        sys.exit("Stopped. What is finished is kept; the same command goes on from there.")
    from bakeoff.page import write_page

    path = options.output or options.folder / "bakeoff.md"
    write_page(bakeoff, path)
    print(f"The page is {path}.")


if __name__ == "__main__":
    main()
