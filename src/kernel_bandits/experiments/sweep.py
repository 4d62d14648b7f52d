"""A study and the folder of its records: what is missing is played and kept, what is there stays.

Only the process that sweeps writes records, and one per run, so that a run that a cluster had to start twice is
recorded once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from kernel_bandits.errors import InputError, UnavailableError
from kernel_bandits.experiments.execute import Executor, Outcome
from kernel_bandits.experiments.facts import machine_facts
from kernel_bandits.experiments.records import Record
from kernel_bandits.experiments.storage import find_records, require_arrow, write_manifest, write_record
from kernel_bandits.experiments.study import Run, Study
from kernel_bandits.experiments.travel import own_code


class Sweep:
    """A study and the folder its records are kept in; the folder is made if it is not there.

    Attributes:
        study: what to run.
        folder: where records are kept.
        missing: runs without a whole record when the sweep was made.
        damaged: why a file cannot be read, by run id; their runs are among the missing.
        outdated: runs with a record by another version of the library, or of the study's own code. An id says what is
            run and not by which code, so they count as finished.
    """

    def __init__(self, study: Study, folder: str | Path) -> None:
        self.study = study
        self.folder = Path(folder)
        require_arrow()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_manifest(self.folder, study)
        except OSError as reason:
            raise InputError(f"{self.folder}: cannot be written to ({reason.strerror}); choose another.") from reason
        found, self.damaged = find_records(self.folder, study.runs)
        # One run may stand in a study under several labels; it is played once.
        to_play: dict[str, Run] = {}
        for run in study.runs:
            if run.id not in found:
                to_play.setdefault(run.id, run)
        self.missing = tuple(to_play.values())
        self._code = own_code(study.runs)
        self.outdated = tuple(run for run in study.runs if run.id in found and self._is_outdated(found[run.id], run))

    def adopt(self, others: Iterable[str | Path]) -> None:
        """Take over records of missing runs from the folders of other studies: one run may belong to several."""
        for other in others:
            found, _ = find_records(Path(other), self.missing)
            for run in self.missing:
                if run.id in found:
                    write_record(self.folder, replace(found[run.id], run=run))
            self.missing = tuple(run for run in self.missing if run.id not in found)

    def play(self, play_runs: Executor) -> Iterator[Outcome]:
        """Play the missing runs, keep a record of each, and yield outcomes as they come.

        Args:
            play_runs: an :func:`executor`, or anything else that takes runs and yields their outcomes.
        """
        with _alone_in(self.folder):
            for outcome in play_runs(self.missing):
                if isinstance(outcome, Record):
                    self._keep(outcome)
                yield outcome

    def _keep(self, record: Record) -> None:
        facts = {**record.facts, "code": self._code[record.run.id]}
        try:
            write_record(self.folder, replace(record, facts=facts))
        except OSError as reason:
            raise UnavailableError(
                f"{self.folder}: a record cannot be written ({reason.strerror}); make room and run again to go on."
            ) from reason

    def _is_outdated(self, record: Record, run: Run) -> bool:
        made_with = record.facts.get("kernel_bandits"), record.facts.get("code")
        return made_with != (machine_facts()["kernel_bandits"], self._code[run.id])


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Nobody else sweeps into the folder meanwhile; the lock goes with the process, however that ends."""
    try:
        import fcntl
    except ImportError:  # a system without such locks
        yield
        return
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UnavailableError(
                f"{folder}: another sweep is at work there; wait for it or choose another."
            ) from None
        yield
