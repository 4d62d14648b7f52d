"""A small study with code of its own, the command line as a process, and what both leave behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from kernel_bandits_lab import read_results

# The environment takes its time, so that a sweep can be stopped in the middle; one policy is from a module beside the
# study.
STUDY = """
import time
import kernel_bandits as kb
from beside import greedy


class Slow(kb.environments.Environment):
    lengthscale = 0.3

    def __init__(self, seconds):
        self.seconds = seconds

    def next_round(self, contexts):
        time.sleep(self.seconds)
        return kb.environments.Round(contexts.random(2), contexts.random((5, 1)))

    def expected_rewards(self, context, actions):
        return 1.0 - abs(actions[:, 0] - context[0])


study = {
    "title": "Slow rounds",
    "horizon": 15,
    "seeds": 4,
    "environments": [{"name": Slow, "options": {"seconds": 0.02}}],
    "policies": [
        {"name": "ek_ucb", "label": "EK-UCB, λ = {regularization:g}", "grid": {"regularization": [0.1, 1.0]}},
        {"name": greedy, "label": "greedy"},
        {"name": "sup_kernel_ucb", "seeds": 2, "horizon": 10},
    ],
}
"""
BESIDE = """
import kernel_bandits as kb

RIDGE = 0.1


def greedy(kernel, seed):
    return kb.k_ucb(kernel, regularization=RIDGE, confidence=kb.StandardDeviations(0.0), seed=seed)
"""
# Kills every process that plays it but the one that loaded the file.
DEADLY = """
import os
import signal
import kernel_bandits as kb

LOADED_BY = os.getpid()


class Deadly(kb.environments.Environment):
    def next_round(self, contexts):
        if os.getpid() != LOADED_BY:
            os.kill(os.getpid(), signal.SIGKILL)
        return kb.environments.Round(contexts.random(1), contexts.random((3, 1)))

    def expected_rewards(self, context, actions):
        return actions[:, 0]


study = {"environments": [{"name": Deadly}], "policies": [{"name": "uniform"}], "seeds": 2, "horizon": 2}
"""
NUMBER_OF_RUNS = 3 * 4 + 2
TIMES = ("select_seconds", "update_seconds")


class Command:
    """``kernel-bandits`` in a process group of its own."""

    def __init__(self, *arguments):
        # A log, whatever the terminal of whoever runs the tests; one BLAS thread, or each process warms up as many.
        environment = {**os.environ, "COLUMNS": "100", "OPENBLAS_NUM_THREADS": "1"}
        for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
            environment.pop(name, None)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kernel_bandits_lab", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )

    def finish(self, timeout=300):
        try:
            self.stdout, self.stderr = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.stop(signal.SIGKILL)
            raise
        return self.process.returncode

    def stop(self, number):
        os.killpg(self.process.pid, number)


def command(*arguments):
    """Run the command to its end."""
    started = Command(*arguments)
    started.finish()
    return started


def record_files(folder):
    return sorted((Path(folder) / "runs").glob("*.parquet"))


def wait_for_records(folder, count, process, timeout=120):
    """The files of at least so many records, once they are there."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if len(record_files(folder)) >= count:
            return record_files(folder)
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)
    raise AssertionError(f"{len(record_files(folder))} records after {timeout} s")


def assert_same_records(one, other):
    """Record for record the same settings, labels and columns, times apart."""
    one, other = read_results(one), read_results(other)
    for results in (one, other):
        assert not results.missing
        assert not results.damaged
    assert [record.run for record in one.records] == [record.run for record in other.records]
    assert [record.run.label for record in one.records] == [record.run.label for record in other.records]
    for left, right in zip(one.records, other.records, strict=True):
        for name in left.result.__slots__:
            if name not in TIMES:
                np.testing.assert_array_equal(getattr(left.result, name), getattr(right.result, name))
