"""Play cells of one table in the environment of one library.

Started by ``run.py`` with a task as JSON on standard input: the prepared problem, the folder of records and the cells.
Every cell is played in a process of its own, so that a crash ends one run and memory is that of one run. A line of
JSON on standard output says how each cell ended.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import sys
import traceback
from functools import cache
from importlib.metadata import distributions
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Not the folder of this file, whose modules would hide others of the same name.
sys.path[0:1] = [str(ROOT / "benchmarks"), str(ROOT / "src")]

from bakeoff.game import play, shape_of  # noqa: E402 (the path is set above)
from bakeoff.libraries import library_of  # noqa: E402
from bakeoff.problem import Problem  # noqa: E402
from bakeoff.records import Cell, Record, write_record  # noqa: E402

KILOBYTES_PER_MEGABYTE = 1024
SOURCES = ROOT / "src" / "kernel_bandits"
# The fact that says which of our own sources made a record.
OWN_SOURCES = "kernel-bandits"
# Packages whose versions stand in a record, where they are installed.
NOTED = (
    "numpy",
    "scipy",
    "scikit-learn",
    "mabwiser",
    "vowpalwabbit",
    "contextualbandits",
    "bayesianbandits",
    "river",
)


def main() -> None:
    task = json.load(sys.stdin)
    problem, folder = Problem.load(Path(task["problem"])), Path(task["records"])
    facts = versions(task["cells"][0]["library"])
    warm(task["cells"][0]["library"], problem)
    for content in task["cells"]:
        cell = Cell(**content)
        message = in_own_process(cell, problem, folder, facts)
        print(json.dumps({"path": str(cell.path), "error": message}), flush=True)


def in_own_process(cell: Cell, problem: Problem, folder: Path, facts: dict[str, str]) -> str:
    """Play a cell in a fork of this process; return what went wrong, or nothing."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        message = ""
        try:
            write_record(folder, recorded(cell, problem, facts))
        except Exception:
            message = traceback.format_exc()
        with os.fdopen(writer, "w") as pipe:
            pipe.write(message)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        message = pipe.read()
    _, status = os.waitpid(child, 0)
    return message if os.WIFEXITED(status) else f"ended by signal {os.WTERMSIG(status)}"


def recorded(cell: Cell, problem: Problem, facts: dict[str, str]) -> Record:
    before = resident_megabytes()
    player = library_of(cell.library).entry(cell.entry).build(cell.settings, shape_of(problem, cell.horizon), cell.seed)
    outcome = play(player, problem, cell.seed, cell.horizon)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / KILOBYTES_PER_MEGABYTE - before
    curve = [list(point) for point in outcome.curve]
    seconds, megabytes = round(outcome.seconds, 4), round(max(0.0, grown), 1)
    return Record(cell, outcome.rounds, outcome.reward, seconds, megabytes, curve, facts)


def warm(module: str, problem: Problem) -> None:
    """Import what the library needs before the first fork, by building a player of each entry that plays this shape."""
    shape = shape_of(problem, problem.rows)
    for entry in library_of(module).entries:
        if entry.plays(shape):
            entry.build(entry.grid[0], shape, 0)
            return


def resident_megabytes() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def versions(module: str) -> dict[str, str]:
    """Return the versions of what plays; of our own library, which has no release here, a digest of its sources."""
    found = {package.name.lower(): package.version for package in distributions()}
    facts = {name: found[name] for name in NOTED if name in found}
    if library_of(module).role in ("ours", "probe"):
        facts[OWN_SOURCES] = sources_digest()
    return facts


@cache
def sources_digest() -> str:
    """Return a digest of our own sources."""
    content = b"".join(path.read_bytes() for path in sorted(SOURCES.rglob("*.py")))
    return hashlib.sha256(content).hexdigest()[:12]


if __name__ == "__main__":
    main()
