"""The records that the repository ships: nobody plays for hours to check the page, or to add a shuffle or a table.

They are laid out in the folder of records as if they had been played there: those of peers if the versions that played
are those that are pinned now, our own if the sources that played are those at hand.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bakeoff.environments import OPTION
from bakeoff.libraries.base import Library
from bakeoff.problem import write_atomically
from bakeoff.records import Record, record_of, write_record
from bakeoff.worker import OWN_SOURCES, sources_digest

ARCHIVE = Path(__file__).with_name("peers.jsonl.gz")
OURS = Path(__file__).with_name("ours.jsonl.gz")
OWN_ROLES = ("ours", "probe")


def pack(folder: Path, libraries: Mapping[str, Library], archive: Path = ARCHIVE) -> int:
    """Add the records of peers in a folder to the archive, the same bytes for the same records; return how many it has.

    Records of the same cells are replaced.
    """
    peers = [module for module, library in libraries.items() if library.role not in OWN_ROLES]
    return _write([*_archived(archive), *_played(folder, peers)], archive)


def pack_ours(folder: Path, libraries: Mapping[str, Library], archive: Path = OURS) -> int:
    """Replace the archive of our own records by those of a folder that the sources at hand have made."""
    own = [module for module, library in libraries.items() if library.role in OWN_ROLES]
    played = (content for content in _played(folder, own) if is_of_these_sources(record_of(content)))
    return _write(played, archive)


def _played(folder: Path, modules: Collection[str]) -> Iterator[dict[str, Any]]:
    """Return the records of some libraries in a folder."""
    yield from (json.loads(path.read_text()) for path in folder.glob("*/*/*.json") if path.parent.name in modules)


def _write(contents: Iterable[dict[str, Any]], archive: Path) -> int:
    """Write an archive, of the records of one cell the last; return how many it has."""
    lines = {
        str(record_of(content).cell.path): json.dumps(content, sort_keys=True, separators=(",", ":"))
        for content in contents
    }
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as file:
        file.write("".join(f"{lines[path]}\n" for path in sorted(lines)).encode())
    write_atomically(archive, buffer.getvalue())
    return len(lines)


def unpack(
    folder: Path, libraries: Mapping[str, Library], archive: Path = ARCHIVE, *, of_any_sources: bool = False
) -> int:
    """Lay out the archived records of these libraries unless they are there; return how many.

    Args:
        folder: of records.
        libraries: by module.
        archive: the file.
        of_any_sources: whether our own records are laid out whatever sources have made them.
    """
    count = 0
    for record in map(record_of, _archived(archive)):
        library = libraries.get(record.cell.library)
        fits = library is not None and is_current(record, library) and (of_any_sources or is_of_these_sources(record))
        if fits and not (folder / record.cell.path).exists():
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


def is_of_these_sources(record: Record) -> bool:
    """Return whether our own sources at hand have made a record, or have no part in it."""
    return record.facts.get(OWN_SOURCES, sources_digest()) == sources_digest()
