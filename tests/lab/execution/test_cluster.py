"""A sweep on a real Dask cluster: a scheduler and two workers, processes of their own that talk over TCP."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from kernel_bandits_lab import Sweep, execution, executor, load_study, read_record, read_results
from sweeping import DEADLY, NUMBER_OF_RUNS, Command, assert_same_records, command, record_files, wait_for_records

import kernel_bandits as kb

LOOPBACK = ("--host", "127.0.0.1", "--no-dashboard")


class Cluster:
    """Started in a folder of its own, so that workers cannot import what lies beside a study."""

    def __init__(self, folder):
        self.folder = folder
        # a run is given up when it was on two workers that died
        self.environment = {
            **os.environ,
            "OPENBLAS_NUM_THREADS": "1",
            "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1",
        }
        self.processes = []
        self.start("scheduler", "--port", "0", "--scheduler-file", "scheduler.json")
        self.address = self.wait_for_address()
        self.workers = [self.start("worker", self.address, "--nthreads", "1", "--no-nanny") for _ in range(2)]

    def start(self, role, *arguments):
        with (self.folder / f"{role}-{len(self.processes)}.log").open("w") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", f"distributed.cli.dask_{role}", *arguments, *LOOPBACK],
                cwd=self.folder,
                env=self.environment,
                stdout=log,
                stderr=log,
            )
        self.processes.append(process)
        return process

    def wait_for_address(self, timeout=120):
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            try:
                return json.loads((self.folder / "scheduler.json").read_text())["address"]
            except (FileNotFoundError, json.JSONDecodeError):
                time.sleep(0.05)
        raise AssertionError((self.folder / "scheduler-0.log").read_text())

    def stop(self):
        for process in reversed(self.processes):
            process.kill()
            process.wait()


@pytest.fixture
def cluster(tmp_path):
    running = Cluster(tmp_path)
    yield running
    running.stop()


def test_a_worker_killed_in_the_middle_changes_no_record(cluster, study_file, tmp_path_factory):
    out, here = tmp_path_factory.mktemp("cluster"), tmp_path_factory.mktemp("here")
    sweep = Command("sweep", study_file, "--scheduler", cluster.address, "--out", out)
    first, *_ = wait_for_records(out, 3, sweep.process)
    (victim,) = [worker for worker in cluster.workers if worker.pid == read_record(first).provenance["process"]]
    victim.kill()
    done_before = len(record_files(out))
    assert sweep.finish() == 0, sweep.stderr
    assert 3 <= done_before < NUMBER_OF_RUNS
    assert len(record_files(out)) == NUMBER_OF_RUNS
    played_by = {record.provenance["process"] for record in read_results(out).records}
    assert played_by == {worker.pid for worker in cluster.workers}
    list(Sweep(load_study(study_file), here).run(executor()))
    assert_same_records(out, here)


def test_a_run_that_kills_every_worker_is_a_failure_and_not_an_endless_wait(cluster, tmp_path):
    (tmp_path / "deadly.py").write_text(DEADLY)
    sweep = Command(
        "sweep", tmp_path / "deadly.py", "--seeds", 1, "--scheduler", cluster.address, "--out", tmp_path / "out"
    )
    assert sweep.finish() == 1
    complaints = sweep.stderr.splitlines()
    assert complaints[-2].startswith("failed: Deadly, uniform, seed 0: the cluster could not execute it")
    assert complaints[-1].startswith("error: 1 runs failed")


def test_ctrl_c_and_the_loss_of_the_scheduler_keep_what_is_done(cluster, study_file, tmp_path_factory):
    out = tmp_path_factory.mktemp("lost")
    interrupted = Command("sweep", study_file, "--scheduler", cluster.address, "--out", out)
    done = len(wait_for_records(out, 2, interrupted.process))
    interrupted.stop(signal.SIGINT)
    assert interrupted.finish() == 130
    assert interrupted.stderr == "Interrupted. Finished runs are kept; run the command again to continue.\n"
    assert done <= len(read_results(out).records) < NUMBER_OF_RUNS
    lost = Command("sweep", study_file, "--scheduler", cluster.address, "--out", out)
    done = len(wait_for_records(out, len(record_files(out)) + 1, lost.process))
    cluster.processes[0].kill()
    assert lost.finish() == 1
    assert "Finished runs are kept" in lost.stderr.splitlines()[-1]
    assert done <= len(read_results(out).records) < NUMBER_OF_RUNS


def test_an_address_that_is_none_is_one_line(study_file, tmp_path):
    answer = command("sweep", study_file, "--scheduler", "nonsense", "--out", tmp_path)
    assert answer.process.returncode == 2
    assert answer.stderr.startswith("error: scheduler: expected an address like tcp://host:8786, got 'nonsense'")
    assert len(answer.stderr.splitlines()) == 1


def test_an_address_where_nobody_answers_is_said(study_file, tmp_path, monkeypatch):
    monkeypatch.setattr(execution, "TIMEOUT", 0.5)
    sweep = Sweep(load_study(study_file), tmp_path)
    with pytest.raises(kb.UnavailableError, match="No Dask scheduler responds at tcp://"):
        next(sweep.run(executor(scheduler="tcp://127.0.0.1:1")))
