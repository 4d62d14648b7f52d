"""A study in one file: records, settings, code, versions and checksums, to be replayed and checked by others."""

from __future__ import annotations

import hashlib
import json
import sys
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from kernel_bandits.errors import InputError
from kernel_bandits.io import atomic_write
from kernel_bandits.version import __version__
from kernel_bandits_lab.execution import execute
from kernel_bandits_lab.results import MANIFEST, RUNS, Record, provenance, read_results
from kernel_bandits_lab.study import Component, Reference, Run, component, importable

CHECKSUMS, VERSIONS, README, SOURCE = "checksums.json", "versions.json", "README.txt", "source"
# The columns that a run determines; times differ from run to run.
COMPARED = ("regret", "rewards", "action_indices", "actions", "contexts", "dictionary_size")
# A study's own files, and pictures of its results.
_KEPT = (".toml", ".py", ".png", ".pdf", ".svg", ".html", ".json")
_DATE = (1980, 1, 1, 0, 0, 0)
_LARGEST_FILE = 2**32


@dataclass(frozen=True)
class Replay:
    """A run that was executed again.

    Attributes:
        run: the run.
        same: whether every column but the times is bit for bit the same.
        first_difference: the round from which on regrets differ; None if they do not.
    """

    run: Run
    same: bool
    first_difference: int | None


def write_archive(folder: Path, path: Path) -> int:
    """Write the results in a folder to a zip file, atomically; return the number of its records."""
    results = read_results(folder)
    if results.missing or not results.records:
        raise InputError(f"{folder}: {len(results.missing)} runs have no record; finish the sweep first.")
    wanted = {f"{record.run.id}.parquet" for record in results.records}
    files = {f"{RUNS}/{name}": (folder / RUNS / name).read_bytes() for name in sorted(wanted)}
    for file in sorted(folder.rglob("*")):
        name = file.relative_to(folder).as_posix()
        if file.is_file() and file.suffix in _KEPT and not name.startswith((".", f"{RUNS}/")):
            files[name] = file.read_bytes()
    versions = {one.metadata["Name"]: one.version for one in metadata.distributions() if one.metadata["Name"]}
    files[VERSIONS] = _as_json({"provenance": provenance(), "packages": dict(sorted(versions.items()))})
    files[README] = _readme(results.title).encode()
    files[CHECKSUMS] = _as_json({name: hashlib.sha256(content).hexdigest() for name, content in sorted(files.items())})
    with atomic_write(path) as draft, zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(files.items()):
            # with a fixed date the same results make the same archive
            archive.writestr(zipfile.ZipInfo(name, _DATE), content, zipfile.ZIP_DEFLATED)
    return len(results.records)


def unpack(path: Path, folder: Path) -> int:
    """Unpack an archive whose checksums are right into an empty folder; return the number of its files."""
    try:
        with zipfile.ZipFile(path) as archive:
            expected = json.loads(archive.read(CHECKSUMS))
            names = {one.filename for one in archive.infolist()} - {CHECKSUMS}
            if names != set(expected):
                odd = sorted(names ^ set(expected))
                raise InputError(f"{path}: files are missing or were added: {', '.join(odd[:5])}.")
            for name, digest in expected.items():
                _require_inside(path, name)
                if archive.getinfo(name).file_size > _LARGEST_FILE:
                    raise InputError(f"{path}: {name} is larger than {_LARGEST_FILE} bytes.")
                content = archive.read(name)
                if hashlib.sha256(content).hexdigest() != digest:
                    raise InputError(f"{path}: {name} was changed after the archive was written.")
                target = folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
    except (OSError, KeyError, ValueError, zipfile.BadZipFile, RecursionError) as reason:
        if isinstance(reason, InputError):
            raise
        raise InputError(f"{path}: not an archive that `kernel-bandits export` wrote ({reason}).") from reason
    return len(expected)


def replay(folder: Path, count: int | None = None, trust_code: bool = False) -> Iterator[Replay]:
    """Execute the runs of an unpacked archive again and compare; the first ``count`` of them, or all.

    Runs that use the study's own code import it from the archive, which ``trust_code`` has to allow.
    """
    records = read_results(folder).records
    with importable(folder / SOURCE):
        for record in records[:count]:
            yield _compare(record, execute(_resolved(record.run, trust_code)))


def changed_versions(folder: Path) -> list[str]:
    """Return the versions that differ from those in an unpacked archive, in words."""
    there = json.loads((folder / VERSIONS).read_text(encoding="utf-8"))["provenance"]
    here = provenance()
    names = ("python", "kernel_bandits", "numpy", "scipy", "processor")
    return [f"{name}: {there.get(name)} there, {here[name]} here" for name in names if there.get(name) != here[name]]


def copy_source(file: Path, modules: Sequence[Path], folder: Path) -> None:
    """Keep a study's file and its own modules with its results, as they are now."""
    for one in {file, *modules}:
        target = folder / SOURCE / one.name
        target.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(target) as written:
            written.write(one.read_bytes())


def _resolved(run: Run, trust_code: bool) -> Run:
    """Return a run of a record that can be executed."""
    resolved = Run(
        _component("environment", run.environment, trust_code),
        _component("policy", run.policy, trust_code),
        run.seed,
        run.horizon,
    )
    if resolved.id != run.id:
        raise InputError(f"{run.label}: its settings do not give its id; the archive was not written by this library.")
    return resolved


def _component(role: Any, found: Component | Reference, trust_code: bool) -> Component:
    settings = found.settings
    if not trust_code and ":" in json.dumps(names_of(settings)):
        raise InputError(
            f"{found.label}: it uses code of the study's own, {found.name}; read it in the archive's folder {SOURCE!r} "
            "and, if you trust it, pass --trust-code."
        )
    return component(role, settings.pop("name"), settings, found.label)


def names_of(settings: Any) -> list[str]:
    """Return the names of all components in the settings of a run."""
    if isinstance(settings, dict):
        own = [str(settings["name"])] if "name" in settings else []
        return own + [name for value in settings.values() for name in names_of(value)]
    if isinstance(settings, list):
        return [name for value in settings for name in names_of(value)]
    return []


def _compare(before: Record, after: Record) -> Replay:
    same = all(np.array_equal(getattr(before.result, name), getattr(after.result, name)) for name in COMPARED)
    rounds = np.flatnonzero(before.result.regret != after.result.regret)
    return Replay(before.run, same, int(rounds[0]) + 1 if len(rounds) else None)


def _require_inside(path: Path, name: str) -> None:
    parts = PurePosixPath(name)
    if parts.is_absolute() or ".." in parts.parts or "\\" in name or ":" in name or not parts.parts:
        raise InputError(f"{path}: {name!r} lies outside of the archive.")


def _as_json(data: Any) -> bytes:
    return (json.dumps(data, indent=1, ensure_ascii=False) + "\n").encode()


def _readme(title: str) -> str:
    return (
        f"{title}\n\nResults of a study, written by kernel-bandits {__version__} with Python "
        f"{sys.version.split()[0]}.\n\n  pip install kernel-bandits-lab=={__version__}\n"
        f"  kernel-bandits check ARCHIVE.zip\n\nchecks every file and plays every run again. {RUNS}/ holds a Parquet "
        f"file per run, {MANIFEST} lists them, {SOURCE}/ holds the study's file and code, {VERSIONS} the versions.\n"
    )
