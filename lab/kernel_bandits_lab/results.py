"""Records of finished runs, in memory and on disk: one Parquet file per run.

A file has a row per round. Run, environment, policy and seed are repeated in every row (they compress to nothing), so
files can be queried together. Settings and provenance are JSON in the file's metadata. Files are written atomically and
carry a digest of their content, so a damaged file is detected.
"""

import hashlib
import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from kernel_bandits.errors import InputError, KernelBanditsError, needs
from kernel_bandits.io import atomic_write
from kernel_bandits.loop import RunResult
from kernel_bandits_lab.study import Reference, Run, Study, reference

PACKAGES = ("kernel-bandits", "numpy", "scipy")


@cache
def provenance() -> dict[str, str | int]:
    """Return the versions of Python and of the packages that compute, and the machine."""
    versions = {name.replace("-", "_"): _version(name) for name in PACKAGES}
    return {
        "python": platform.python_version(),
        **versions,
        "platform": platform.platform(),
        "processor": _processor(),
        "processors": os.cpu_count() or 1,
        "host": platform.node(),
        "process": os.getpid(),
    }


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _processor() -> str:
    """Return the model name from Linux; Python often knows only the architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


@dataclass(frozen=True, slots=True)
class Record:
    """A finished run with its settings, its result and its provenance.

    Attributes:
        run: the settings.
        result: round by round.
        provenance: versions, machine, start and duration, as plain data.
    """

    run: Run
    result: RunResult
    provenance: Mapping[str, Any]


METADATA_KEY, DIGEST_KEY = b"kernel_bandits", b"digest"
TEXTS = ("run", "environment", "policy")
MANIFEST = "study.json"
RUNS = "runs"


class DamagedRecordError(KernelBanditsError):
    """The content of a record's file is not what was written."""


@dataclass(frozen=True)
class Results:
    """The finished runs of a study.

    Attributes:
        name: of the study.
        title: of the study.
        records: in the order of the study, with its labels.
        missing: runs without a record.
        damaged: why a file cannot be read, by run id; these runs are missing too.
    """

    name: str
    title: str
    records: tuple[Record, ...]
    missing: tuple[Run, ...]
    damaged: Mapping[str, str]


def record_path(folder: Path, run: Run) -> Path:
    """Return where the folder of a study holds the record of a run."""
    return folder / RUNS / f"{run.id}.parquet"


def write_record(folder: Path, record: Record) -> Path:
    """Write a record atomically, under its run's id."""
    pa, parquet = require_arrow()
    run, columns = record.run, _columns(record)
    texts = dict(zip(TEXTS, (run.id, run.environment.label, run.policy.label), strict=True))
    data = {"id": run.id, **_run_as_data(run), "facts": dict(record.provenance)}
    described = json.dumps(data, ensure_ascii=False)
    metadata = {METADATA_KEY: described.encode(), DIGEST_KEY: _digest(described, texts, columns).encode()}
    repeated = {name: pa.repeat(text, record.result.horizon) for name, text in texts.items()}
    table = pa.table({**repeated, **columns}, metadata=metadata)
    path = record_path(folder, run)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        parquet.write_table(table, file, compression="zstd")
    return path


def read_record(path: Path) -> Record:
    """Read a record, or raise :class:`DamagedRecordError` unless it is what was written."""
    pa, parquet = require_arrow()
    try:
        table = parquet.ParquetFile(path).read()
        metadata = table.schema.metadata or {}
        described = metadata[METADATA_KEY].decode()
        texts = {name: "".join(table[name].unique().to_pylist()) for name in TEXTS}
        columns = {name: _as_array(table[name]) for name in table.column_names if name not in TEXTS}
        if _digest(described, texts, columns) != metadata[DIGEST_KEY].decode():
            raise DamagedRecordError(f"{path}: its content is not what was written.")
        data = json.loads(described)
        return Record(_run_of(data), _result(columns), data["facts"])
    except (OSError, LookupError, ValueError, TypeError, AttributeError, RecursionError, pa.ArrowException) as reason:
        message = " ".join(str(reason).split())  # pyarrow's messages have several lines
        raise DamagedRecordError(f"{path}: {type(reason).__name__}: {message}") from reason


def manifest_of(study: Study) -> bytes:
    """Return the list of the study's runs, in order and with their labels, as the text of its file."""
    # a line per run: the encoder with indentation is ten times as slow
    lines = (json.dumps({"id": run.id, **_run_as_data(run)}, ensure_ascii=False) for run in study.runs)
    names = json.dumps({"name": study.name, "title": study.title}, ensure_ascii=False)
    return (names[:-1] + ', "runs": [\n' + ",\n".join(lines) + "\n]}\n").encode()


def write_manifest(folder: Path, manifest: bytes) -> None:
    """Write the list of a study's runs to its folder, unless it is there."""
    path = folder / MANIFEST
    if not path.is_file() or path.read_bytes() != manifest:
        with atomic_write(path) as file:
            file.write(manifest)


def read_results(folder: str | Path) -> Results:
    """Read the records in the folder of a study."""
    folder = Path(folder)
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        runs = [_run_of(data) for data in manifest["runs"]]
        name, title = str(manifest["name"]), str(manifest["title"])
    except FileNotFoundError:
        raise InputError(f"{folder}: expected the results of a study, but there is no {MANIFEST} in it.") from None
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as reason:
        problem = f"{type(reason).__name__}: {reason}"
        raise InputError(f"{folder / MANIFEST}: cannot be read ({problem}); run the sweep again.") from reason
    found, damaged = find_records(folder, runs)
    without = tuple(run for run in runs if run.id not in found)
    records = tuple(Record(run, found[run.id].result, found[run.id].provenance) for run in runs if run.id in found)
    return Results(name, title, records, without, damaged)


def find_records(folder: Path, runs: Sequence[Run]) -> tuple[dict[str, Record], dict[str, str]]:
    """Return the records of finished runs, and what is wrong with damaged files; both by run id."""
    found: dict[str, Record] = {}
    damaged: dict[str, str] = {}
    for run in runs:
        path = record_path(folder, run)
        if run.id not in found and path.exists():
            try:
                found[run.id] = read_record(path)
            except DamagedRecordError as reason:
                damaged[run.id] = str(reason)
    return found, damaged


def _columns(record: Record) -> dict[str, Any]:
    result = record.result
    columns = {
        "seed": np.full(result.horizon, record.run.seed),
        "round": np.arange(1, result.horizon + 1),
        "regret": result.regret,
        "reward": result.rewards,
        "action_index": result.action_indices,
        **{f"action_{number}": column for number, column in enumerate(result.actions.T)},
        **{f"context_{number}": column for number, column in enumerate(result.contexts.T)},
        "dictionary_size": result.dictionary_size,
        "select_seconds": result.select_seconds,
        "update_seconds": result.update_seconds,
        **({} if result.propensities is None else {"propensity": result.propensities}),
    }
    return {name: np.ascontiguousarray(column) for name, column in columns.items()}


def _as_array(column: Any) -> Any:
    # NumPy would ask again for an array with gaps, in a way that pyarrow warns about.
    if column.null_count:
        raise ValueError("a column has missing values.")
    return np.from_dlpack(column.combine_chunks()).copy()


def _result(columns: Mapping[str, Any]) -> RunResult:
    def block(prefix: str) -> Any:
        parts = [column for name, column in columns.items() if name.removeprefix(prefix).isdigit()]
        return np.column_stack(parts) if parts else np.empty((len(columns["round"]), 0))

    return RunResult(
        regret=columns["regret"],
        rewards=columns["reward"],
        action_indices=columns["action_index"],
        actions=block("action_"),
        contexts=block("context_"),
        dictionary_size=columns["dictionary_size"],
        select_seconds=columns["select_seconds"],
        update_seconds=columns["update_seconds"],
        propensities=columns.get("propensity"),
    )


def _digest(described: str, texts: Mapping[str, str], columns: Mapping[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps([described, texts, list(columns)]).encode())
    for column in columns.values():
        digest.update(column.tobytes())
    return digest.hexdigest()


def _run_as_data(run: Run) -> dict[str, Any]:
    labels = {"environment": run.environment.label, "policy": run.policy.label}
    return {**run.settings, "labels": labels}


def _run_of(data: Mapping[str, Any]) -> Run:
    def named(role: str) -> Reference:
        table = dict(data[role])
        return reference(table.pop("name"), table, data["labels"][role])

    return Run(named("environment"), named("policy"), data["seed"], data["horizon"])


def require_arrow() -> tuple[Any, Any]:
    """Return pyarrow and its Parquet module, or raise the error that says what to install."""
    with needs("pyarrow", "kernel-bandits-lab"):
        import pyarrow as pa
        from pyarrow import parquet
    # The first array loads pandas if it is installed, which takes a while: do it before results wait.
    pa.array([0])
    return pa, parquet
