"""Sweeps: execute the missing runs of a study and keep their records in a folder.

Only the sweeping process writes records, one per run, so a run that a cluster had to start twice is recorded once.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from kernel_bandits.errors import InputError, UnavailableError
from kernel_bandits.io import remove_drafts
from kernel_bandits_lab.execution import Executor, Outcome, code_digests
from kernel_bandits_lab.results import (
    RUNS,
    Record,
    Results,
    find_records,
    manifest_of,
    provenance,
    require_arrow,
    write_manifest,
    write_record,
)
from kernel_bandits_lab.study import Run, Study


class Sweep:
    """A study and the folder of its records, which is created if needed.

    Attributes:
        study: what to run.
        folder: where records are kept.
        missing: runs without a complete record when the sweep was created or last adopted records.
        damaged: why a file cannot be read, by run id; these runs are missing too.
        outdated: finished runs recorded by another version of the library or of the study's own code. A run id does not
            depend on code, so they count as finished.
    """

    def __init__(self, study: Study, folder: str | Path) -> None:
        self.study = study
        self.folder = Path(folder)
        require_arrow()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as reason:
            raise InputError(f"{self.folder}: cannot be written to ({reason.strerror}); choose another.") from reason
        self._manifest = manifest_of(study)
        with _lock(self.folder):
            self._write_manifest()
        self._records, self.damaged = find_records(self.folder, study.runs)
        self._code = code_digests(study.runs)
        self.missing = self._without_record()
        self.outdated = tuple(run for run in study.runs if self._is_outdated(run))

    @property
    def results(self) -> Results:
        """The records so far, as :func:`read_results` reads them from the folder."""
        records = (replace(self._records[run.id], run=run) for run in self.study.runs if run.id in self._records)
        missing = tuple(run for run in self.study.runs if run.id not in self._records)
        damaged = {run: reason for run, reason in self.damaged.items() if run not in self._records}
        return Results(self.study.name, self.study.title, tuple(records), missing, damaged)

    def adopt(self, others: Iterable[str | Path]) -> None:
        """Copy records of missing runs from the folders of other studies, which may share runs with this one."""
        with _lock(self.folder):
            for other in others:
                found, _ = find_records(Path(other), self.missing)
                for run in self.missing:
                    if run.id in found:
                        self._keep(replace(found[run.id], run=run))
                self.missing = self._without_record()

    def run(self, execute_runs: Executor) -> Iterator[Outcome]:
        """Execute the missing runs, keep a record of each, and yield outcomes as they finish.

        Any function that takes runs and yields their outcomes may take the place of an :func:`executor`.
        """
        with _lock(self.folder):
            self._write_manifest()  # another sweep may have been there in the meantime
            remove_drafts(self.folder / RUNS)
            for outcome in execute_runs(self.missing):
                if isinstance(outcome, Record):
                    code = {"code": self._code[outcome.run.id]}
                    self._keep(replace(outcome, provenance={**outcome.provenance, **code}))
                yield outcome

    def _without_record(self) -> tuple[Run, ...]:
        # A run may appear in a study under several labels; it is executed once.
        missing: dict[str, Run] = {}
        for run in self.study.runs:
            if run.id not in self._records:
                missing.setdefault(run.id, run)
        return tuple(missing.values())

    def _write_manifest(self) -> None:
        try:
            write_manifest(self.folder, self._manifest)
            remove_drafts(self.folder)
        except OSError as reason:
            raise InputError(f"{self.folder}: cannot be written to ({reason.strerror}); choose another.") from reason

    def _keep(self, record: Record) -> None:
        try:
            write_record(self.folder, record)
        except OSError as reason:
            raise UnavailableError(
                f"{self.folder}: a record cannot be written ({reason.strerror}). "
                "Free some space and run the command again to continue."
            ) from reason
        self._records[record.run.id] = record

    def _is_outdated(self, run: Run) -> bool:
        if run.id not in self._records:
            return False
        made_with = self._records[run.id].provenance
        current = provenance()["kernel_bandits"], self._code[run.id]
        return (made_with.get("kernel_bandits"), made_with.get("code")) != current


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Keep other sweeps out of the folder: all that is written there is written inside. It ends with the process."""
    try:
        import fcntl
    except ImportError:  # a system without such locks
        yield
        return
    try:
        file = (folder / ".lock").open("w")
    except OSError as reason:
        raise InputError(f"{folder}: its file .lock cannot be opened ({reason.strerror}); choose another.") from reason
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UnavailableError(
                f"{folder}: another sweep is running there; wait for it or choose another folder."
            ) from None
        yield
