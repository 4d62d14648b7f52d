"""Sweeps: one line for every mistake, a folder that is taken, kills while records are written, clocks that jump."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from kernel_bandits_lab import executor, load_study, read_results
from kernel_bandits_lab.cli import app
from kernel_bandits_lab.results import MANIFEST
from kernel_bandits_lab.study import study_of
from kernel_bandits_lab.sweep import Sweep
from typer.testing import CliRunner

import kernel_bandits as kb

SMALL = {"environments": [{"name": "Chessboard"}], "policies": [{"name": "uniform"}], "seeds": 3, "horizon": 4}
HEAD = 'seeds = {seeds}\nhorizon = {horizon}\n[[environments]]\nname = "Chessboard"\n[[policies]]\n'


def toml(tmp_path, policies='name = "uniform"', seeds="2", horizon="3"):
    path = tmp_path / "study.toml"
    path.write_text(HEAD.format(seeds=seeds, horizon=horizon) + policies)
    return path


def failing(*arguments):
    """The one line that a command prints before it ends with an error."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code in (1, 2), result.output
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    return line


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"seeds": "1000000000"}, "expected at most 1,000,000, got 1,000,000,000"),
        ({"seeds": f"[{10**23 - 1}]"}, "expected at most 9,223,372,036,854,775,807"),
        ({"seeds": "999999", "horizon": "1000000000000"}, "horizon: expected at most 1,000,000,000"),
        ({"policies": f'name = "uniform"\noptions = {"{a=" * 3000}1{"}" * 3000}'}, "nested too deeply"),
        ({"policies": f'name = "uniform"\nlabel = {"[" * 5000}{"]" * 5000}'}, "nested too deeply"),
        (
            {"policies": 'name = "lin_ucb"\nlabel = "{regularization:2000000000}"\noptions = {regularization = 1}'},
            "width",
        ),
        ({"policies": 'name = "lin_ucb"\nlabel = "{regularization:.9999f}"\noptions = {regularization = 1}'}, "width"),
        (
            {"policies": f'name = "lin_ucb"\ngrid = {{regularization = {[1] * 1001}, confidence = {[1] * 1001}}}'},
            "expected at most 1,000,000",
        ),
    ],
)
def test_what_a_study_may_not_ask_for(tmp_path, options, complaint):
    assert complaint in failing("sweep", toml(tmp_path, **options), "--out", tmp_path / "out")


def test_a_seed_beyond_what_a_record_holds(tmp_path):
    assert "seeds below 2⁶³" in failing("sweep", toml(tmp_path), "--seed", 2**63 - 1, "--out", tmp_path / "out")


def test_options_nested_too_deeply():
    assert "nested too deeply" in failing("run", "ek_ucb", "--option", f"kernel={'[' * 5000}")


def test_a_lock_that_cannot_be_opened(tmp_path):
    (tmp_path / ".lock").mkdir()
    with pytest.raises(kb.InputError, match=r"\.lock cannot be opened"):
        Sweep(study_of(SMALL), tmp_path)
    assert ".lock cannot be opened" in failing("sweep", toml(tmp_path), "--out", tmp_path)


@pytest.mark.parametrize(
    "manifest",
    ["{}", '{"runs": []}', '{"runs": [], "name": "x"}', '{"runs": 3}', "[]", "[" * 100_000, '{"runs": [[]]}'],
)
def test_a_manifest_that_makes_no_sense(tmp_path, manifest):
    (tmp_path / MANIFEST).write_text(manifest)
    assert "cannot be read" in failing("report", tmp_path)


def test_a_refused_sweep_leaves_the_folder_of_the_other_as_it_was(tmp_path):
    first = Sweep(study_of(SMALL, "first"), tmp_path).run(executor())
    next(first)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(kb.UnavailableError, match="another sweep is running"):
        Sweep(study_of({**SMALL, "horizon": 9}, "second"), tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert len(list(first)) == 2
    results = read_results(tmp_path)
    assert (results.name, len(results.records), results.missing) == ("first", 3, ())


def test_a_sweep_writes_its_manifest_again_if_another_was_there(tmp_path):
    first = Sweep(study_of(SMALL, "first"), tmp_path)
    list(Sweep(study_of({**SMALL, "horizon": 9}, "second"), tmp_path).run(executor()))
    list(first.run(executor()))
    assert read_results(tmp_path).name == "first"


def test_many_labels_are_compared_quickly():
    """Counted, not timed: as many comparisons as there are labels, not their square."""

    class Label(str):
        compared = 0

        def __eq__(self, other):
            Label.compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    from kernel_bandits_lab.study import _check_labels

    _check_labels([Label(number) for number in range(5000)], "policies")
    assert Label.compared < 5000


def test_a_clock_that_jumps_back_does_no_harm(tmp_path, monkeypatch):
    times = iter(np.linspace(2e9, 0, 10_000))
    monkeypatch.setattr(time, "time", lambda: float(next(times)))
    outcomes = list(Sweep(study_of(SMALL), tmp_path).run(executor()))
    assert len(outcomes) == 3
    for path in tmp_path.rglob("*"):
        os.utime(path, (0, 0))
    assert Sweep(study_of(SMALL), tmp_path).missing == ()


def kill_and_continue(tmp_path, kills):
    """Kill a sweep while it writes records, until it is done; return its results and how often it was killed."""
    study = toml(tmp_path, 'name = "ek_ucb"\n[[policies]]\nname = "uniform"', seeds="20", horizon="30")
    folder = tmp_path / "out"
    command = [sys.executable, "-m", "kernel_bandits_lab", "sweep", study, "--jobs", "1", "--out", folder]
    generator = np.random.default_rng(0)
    killed = 0
    for _ in range(kills):
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        count = len(list(folder.glob("runs/*.parquet")))
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:
            if len(list(folder.glob("runs/*.parquet"))) > count:
                break
        time.sleep(generator.random() * 0.01)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            killed += 1
        process.wait()
        assert not read_results(folder).damaged
    list(Sweep(load_study(study), folder).run(executor()))
    assert not list(Path(folder).rglob(".*.draft"))
    return read_results(folder), killed


@pytest.mark.slow
def test_kills_while_records_are_written_lose_none(tmp_path):
    results, killed = kill_and_continue(tmp_path, 15)
    assert killed > 5
    assert len(results.records) == 40
    assert not results.missing
    assert json.loads((tmp_path / "out" / MANIFEST).read_text())["name"] == "study"
