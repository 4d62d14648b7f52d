"""Play the sealed holdout: tables that nobody has looked at, once for each release.

    python benchmarks/bakeoff/sealed.py --list               seal the tables: record what they are
    python benchmarks/bakeoff/sealed.py --peers              play the peers ahead, for every release; nothing is told
    python benchmarks/bakeoff/sealed.py --release 1.0.0      play them, print the result and record it, whatever it is
    python benchmarks/bakeoff/sealed.py --rehearse pima      the same on open tables; nothing is recorded

``sealed.json`` beside this file lists the tables with the SHA-256 of their rows, and the result of every release. A
release begins when it is first played: from then on its sources may not change, and it has one result. The same
command goes on after an interruption. What is recorded and printed is of all tables together. The records of single
tables stay in the folder; whoever reads them takes the table out of the list and puts in a fresh one.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
# Not the folder of this file, whose modules would hide others of the same name.
sys.path[0:1] = [str(ROOT / "benchmarks"), str(ROOT / "src")]

import numpy as np  # noqa: E402 (the path is set above)

from bakeoff import archive, sources  # noqa: E402
from bakeoff.libraries import all_libraries  # noqa: E402
from bakeoff.libraries.base import Library  # noqa: E402
from bakeoff.plan import Extent  # noqa: E402
from bakeoff.problem import Problem, write_atomically  # noqa: E402
from bakeoff.records import read_record, write_record  # noqa: E402
from bakeoff.report import Report  # noqa: E402
from bakeoff.run import Bakeoff, without  # noqa: E402
from bakeoff.sealed_tables import TABLES  # noqa: E402
from bakeoff.tables import all_tables  # noqa: E402
from bakeoff.tables.base import Table  # noqa: E402
from bakeoff.worker import sources_digest  # noqa: E402

LEDGER = Path(__file__).with_name("sealed.json")
# A release cannot take days: fewer rows and shuffles than the open tables have.
EXTENT = Extent(horizon=1000, shuffles=4, shuffles_of_large=4, screening=2, finalists=2)
FEWEST = 15


class SealError(RuntimeError):
    """A holdout that is not what was sealed, or was played already."""


@dataclass(frozen=True)
class Outcome:
    """What is told of a play of the sealed tables.

    Attributes:
        tables: how many there are.
        rank: our mean rank among the libraries that played a table; ties half.
        error: one standard error of it over tables.
        shared: how many tables all libraries played.
        ranks: the mean rank of each library on those.
        better: on how many tables ours is significantly better than a peer, after Holm's correction over all tests.
        worse: on how many it is significantly worse.
        points: the median over tables of our reward less that of a peer, in hundredths.
        left_out: libraries that did not play.
    """

    tables: int
    rank: float
    error: float
    shared: int
    ranks: dict[str, float]
    better: dict[str, int]
    worse: dict[str, int]
    points: dict[str, float]
    left_out: list[str]


def outcome_of(report: Report, left_out: list[str]) -> Outcome:
    """Return what is told of a report."""
    own, ranked, names = list(report.rank_by_table().values()), report.ranking(), report.libraries
    tallies = {peer: report.corrected_tally(peer) for peer in report.peers}
    leads = {peer: [table.difference(report.ours or "", peer) for table in report.tables] for peer in report.peers}
    return Outcome(
        tables=len(own),
        rank=round(float(np.mean(own)), 3),
        error=round(float(np.std(own, ddof=1) / np.sqrt(len(own))), 3) if len(own) > 1 else 0.0,
        shared=ranked.tables,
        ranks=dict(zip(ranked.names, np.round(ranked.mean_ranks, 3).tolist(), strict=True)),
        better={names[peer].name: found[0] for peer, found in tallies.items()},
        worse={names[peer].name: found[2] for peer, found in tallies.items()},
        points={
            names[peer].name: round(100 * float(np.median([lead.mean for lead in found if lead is not None])), 2)
            for peer, found in leads.items()
        },
        left_out=left_out,
    )


def told(outcome: Outcome) -> str:
    """Return an outcome in words."""
    lines = [
        f"{outcome.tables} tables: our mean rank is {outcome.rank:.2f} ± {outcome.error:.2f}, one standard error.",
        f"On the {outcome.shared} that all libraries play: "
        + ", ".join(f"{name} {rank:.2f}" for name, rank in sorted(outcome.ranks.items(), key=lambda item: item[1]))
        + ".",
        "Significantly better and worse, after Holm's correction, and the median lead in points: "
        + "; ".join(
            f"{name} {outcome.better[name]} and {outcome.worse[name]}, {outcome.points[name]:+.2f}"
            for name in outcome.better
        )
        + ".",
    ]
    if outcome.left_out:
        lines.append(f"Not played: {', '.join(outcome.left_out)}.")
    return "\n".join(lines)


def rows_digest(problem: Problem) -> str:
    """Return the SHA-256 of what is played of a table."""
    parts = (problem.contexts, problem.rewards, problem.actions, problem.variables)
    return hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).hexdigest()


def ledger(path: Path = LEDGER) -> dict[str, Any]:
    """Return the sealed tables and the results of releases."""
    content: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"tables": {}, "releases": []}
    return content


def write_ledger(content: dict[str, Any], path: Path = LEDGER) -> None:
    """Write what :func:`ledger` reads."""
    write_atomically(path, (json.dumps(content, indent=1) + "\n").encode())


def seal(tables: dict[str, Table], folder: Path, path: Path = LEDGER) -> int:
    """Record what the tables are that are not listed yet, drop those that are no longer there; return how many."""
    if len(tables) < FEWEST:
        raise SealError(f"a sealed holdout needs at least {FEWEST} tables, and there are {len(tables)}.")
    content = ledger(path)
    sources.pin([table.source for table in tables.values()], folder / "wheels")
    known = content["tables"]
    content["tables"] = {
        name: known.get(name) or rows_digest(Problem.load(table.prepare(folder / "wheels", folder / "problems")))
        for name, table in tables.items()
    }
    write_ledger(content, path)
    return len(content["tables"])


def require_sealed(bakeoff: Bakeoff, content: dict[str, Any]) -> None:
    """Raise unless the tables are those that were sealed."""
    if set(bakeoff.tables) != set(content["tables"]):
        raise SealError("the tables are not those of sealed.json; seal them with --list, before anything is played.")
    for name, digest in content["tables"].items():
        if rows_digest(bakeoff.problem(name)) != digest:
            raise SealError(f"{name}: its rows are not those that were sealed; fix the reader, or replace the table.")


def begin(content: dict[str, Any], release: str, sources_of_ours: str) -> dict[str, Any]:
    """Return the entry of a release, a fresh one if it has none; raise if it was played or its sources changed."""
    found = next((one for one in content["releases"] if one["release"] == release), None)
    if found is None:
        found = {"release": release, "sources": sources_of_ours, "tables": sorted(content["tables"]), "outcome": None}
        content["releases"].append(found)
    elif found["outcome"] is not None:
        raise SealError(f"{release} was played: {told(Outcome(**found['outcome']))}")
    elif found["sources"] != sources_of_ours:
        raise SealError(
            f"{release} was begun with sources {found['sources']}, and these are {sources_of_ours}: "
            "finish it with those, or give another name of a release."
        )
    return found


def play(bakeoff: Bakeoff, jobs: int) -> None:
    """Play everything; raise if a run of ours failed."""
    failed = bakeoff.play(bakeoff.first(), jobs, None, "first stage")
    failed += bakeoff.play(bakeoff.final(), jobs, None, "finalists")
    if any(one.cell.library == "ours" for one in failed):
        raise SealError(f"{len(failed)} runs failed, ours among them: {failed[0].error.strip().splitlines()[-1]}")


def take_over(bakeoff: Bakeoff, folder: Path) -> int:
    """Lay out the records of peers that were played ahead with the versions that are pinned; return how many."""
    records = (read_record(path) for module in bakeoff.libraries for path in folder.glob(f"*/{module}/*.json"))
    current = [one for one in records if archive.is_current(one, bakeoff.libraries[one.cell.library])]
    for record in current:
        write_record(bakeoff.records, record)
    return len(current)


def outcome(bakeoff: Bakeoff, left_out: list[str]) -> Outcome:
    """Return what is told of what was played."""
    from bakeoff.page import report_of

    return outcome_of(report_of(bakeoff), left_out)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--list", action="store_true", help="record what the sealed tables are")
    what.add_argument("--peers", action="store_true", help="play the peers ahead; their records serve every release")
    what.add_argument("--release", help="play them for this release")
    what.add_argument("--rehearse", action="append", metavar="TABLE", help="play an open table; may be repeated")
    parser.add_argument("--folder", type=Path, default=ROOT / "results" / "bakeoff", help="as that of run.py")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="workers on this machine")
    parser.add_argument("--without", action="append", default=[], help="leave this library out; may be repeated")
    return parser.parse_args()


def competitors(left_out: list[str]) -> dict[str, Library]:
    """Return ours and the peers but for some."""
    libraries = {one.module: one for one in all_libraries().values() if one.role in ("ours", "peer")}
    for name in left_out:
        if name not in libraries:
            sys.exit(f"--without: expected one of {', '.join(libraries)}; got {name}.")
    return without(libraries, left_out)


def main() -> None:
    options = arguments()
    content = ledger()
    try:
        if options.list:
            print(f"{seal(TABLES, options.folder)} tables are sealed in {LEDGER.name}.")
            return
        tables = {name: all_tables()[name] for name in options.rehearse} if options.rehearse else dict(TABLES)
        bakeoff = Bakeoff(tables, competitors(options.without), EXTENT, options.folder)
        bakeoff.prepare()
        if options.rehearse:
            bakeoff.records = options.folder / "rehearsed" / sources_digest()
            play(bakeoff, options.jobs)
            print(told(outcome(bakeoff, options.without)))
            return
        require_sealed(bakeoff, content)
        ahead = options.folder / "sealed" / "peers"
        if options.peers:
            bakeoff.records = ahead
            bakeoff.libraries = {name: one for name, one in bakeoff.libraries.items() if one.role == "peer"}
            play(bakeoff, options.jobs)
            return
        entry = begin(content, options.release, sources_digest())
        write_ledger(content)
        bakeoff.records = options.folder / "sealed" / f"{options.release}-{entry['sources']}"
        take_over(bakeoff, ahead)
        play(bakeoff, options.jobs)
        found = outcome(bakeoff, options.without)
        entry["outcome"] = asdict(found)
        write_ledger(content)
        print(told(found))
    except (SealError, sources.SourceError) as reason:
        sys.exit(str(reason))
    except KeyboardInterrupt:
        sys.exit("Stopped. What is finished is kept; the same command goes on from there.")


if __name__ == "__main__":
    main()
