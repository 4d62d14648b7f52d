"""The records of peers that the repository ships: nobody has to play them for hours to add a shuffle or a table.

They are laid out in the folder of records as if they had been played there, if the versions that played are those that
are pinned now. What is made of our own parts is not shipped: it is played with the sources at hand.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bakeoff.environments import OPTION
from bakeoff.libraries.base import Library
from bakeoff.problem import write_atomically
from bakeoff.records import Record, record_of, write_record

ARCHIVE = Path(__file__).with_name("peers.jsonl.gz")


def pack(folder: Path, libraries: Mapping[str, Library], archive: Path = ARCHIVE) -> int:
    """Add the records of peers in a folder to the archive, the same bytes for the same records; return how many it has.

    Records of the same cells are replaced.
    """
    names = {module for module, library in libraries.items() if library.role not in ("ours", "probe")}
    played = (json.loads(path.read_text()) for path in folder.glob("*/*/*.json") if path.parent.name in names)
    lines = {
        str(record_of(content).cell.path): json.dumps(content, sort_keys=True, separators=(",", ":"))
        for content in (*_archived(archive), *played)
    }
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as file:
        file.write("".join(f"{lines[path]}\n" for path in sorted(lines)).encode())
    write_atomically(archive, buffer.getvalue())
    return len(lines)


def unpack(folder: Path, libraries: Mapping[str, Library], archive: Path = ARCHIVE) -> int:
    """Lay out the archived records of these libraries unless they are there; return how many."""
    count = 0
    for record in map(record_of, _archived(archive)):
        library = libraries.get(record.cell.library)
        if library is not None and is_current(record, library) and not (folder / record.cell.path).exists():
            write_record(folder, record)
            count += 1
    return count


def _archived(archive: Path) -> Iterator[dict[str, Any]]:
    """Return what the archive holds, if it is there."""
    if archive.exists():
        with gzip.open(archive, "rt", encoding="utf-8") as lines:
            yield from map(json.loads, lines)


def is_current(record: Record, library: Library) -> bool:
    """Return whether the versions that played are those that the library's requirements pin."""
    pinned = (line.removeprefix(OPTION).partition("==") for line in library.requirements)
    return all(record.facts.get(name, version) == version for name, _, version in pinned)
