"""The same records from one process, two, a killed sweep that goes on, and after Ctrl-C; none lost, none twice."""

import signal

import numpy as np
import psutil
import pytest
from kernel_bandits_lab import Failure, Sweep, executor, load_study, read_results, study_of
from sweeping import DEADLY, NUMBER_OF_RUNS, Command, assert_same_records, command, record_files, wait_for_records

import kernel_bandits as kb


@pytest.fixture(scope="module")
def one_process(study_file, tmp_path_factory):
    folder = tmp_path_factory.mktemp("one_process")
    outcomes = list(Sweep(load_study(study_file), folder).run(executor(jobs=1)))
    assert not [outcome for outcome in outcomes if isinstance(outcome, Failure)]
    return folder


def fingerprints(files):
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def test_a_record_is_what_run_returns(one_process):
    for record in read_results(one_process).records:
        if record.run.policy.label == "EK-UCB, λ = 0.1":
            environment = load_slow_environment(record)
            policy = kb.ek_ucb(kb.Gaussian(0.3), regularization=0.1, seed=record.run.seed)
            result = kb.run(policy, environment, 15, seed=record.run.seed)
            np.testing.assert_array_equal(record.result.regret, result.regret)
            np.testing.assert_array_equal(record.result.actions, result.actions)


def load_slow_environment(record):
    import slow_rounds

    return slow_rounds.Slow(**record.run.environment.options)


def test_two_processes_leave_the_same_records(study_file, one_process, tmp_path):
    answer = command("sweep", study_file, "--jobs", 2, "--out", tmp_path)
    assert answer.process.returncode == 0, answer.stderr
    assert_same_records(tmp_path, one_process)
    assert len(record_files(tmp_path)) == NUMBER_OF_RUNS
    assert len({record.provenance["process"] for record in read_results(tmp_path).records}) == 2


def test_a_killed_sweep_goes_on_and_leaves_finished_runs_as_they_are(study_file, one_process, tmp_path):
    killed = Command("sweep", study_file, "--jobs", 2, "--out", tmp_path)
    wait_for_records(tmp_path, 3, killed.process)
    killed.stop(signal.SIGKILL)
    killed.process.communicate()
    finished = fingerprints(record_files(tmp_path))
    assert 3 <= len(finished) < NUMBER_OF_RUNS
    answer = command("sweep", study_file, "--jobs", 2, "--out", tmp_path)
    assert answer.process.returncode == 0, answer.stderr
    assert f"{len(finished)} of {NUMBER_OF_RUNS} runs are finished already." in answer.stdout
    assert finished.items() <= fingerprints(record_files(tmp_path)).items()
    assert_same_records(tmp_path, one_process)


def test_workers_do_not_outlive_a_killed_sweep(study_file, tmp_path):
    killed = Command("sweep", study_file, "--jobs", 2, "--out", tmp_path)
    wait_for_records(tmp_path, 1, killed.process)
    below = psutil.Process(killed.process.pid).children(recursive=True)
    assert len(below) >= 2
    killed.process.kill()  # the process alone, not its group
    killed.process.wait()
    _, alive = psutil.wait_procs(below, timeout=30)
    for process in alive:
        process.kill()
    killed.process.communicate()
    assert not alive


def test_ctrl_c_keeps_what_is_done(study_file, one_process, tmp_path):
    interrupted = Command("sweep", study_file, "--jobs", 2, "--out", tmp_path)
    wait_for_records(tmp_path, 2, interrupted.process)
    interrupted.stop(signal.SIGINT)
    assert interrupted.finish() == 130
    assert interrupted.stderr == "Interrupted. Finished runs are kept; run the command again to continue.\n"
    finished = fingerprints(record_files(tmp_path))
    assert 2 <= len(finished) < NUMBER_OF_RUNS
    assert command("sweep", study_file, "--jobs", 1, "--out", tmp_path).process.returncode == 0
    assert finished.items() <= fingerprints(record_files(tmp_path)).items()
    assert_same_records(tmp_path, one_process)


def test_a_finished_sweep_plays_nothing(study_file, one_process):
    before = fingerprints(record_files(one_process))

    def unwanted(runs):
        assert not runs
        return iter(())

    assert list(Sweep(load_study(study_file), one_process).run(unwanted)) == []
    assert fingerprints(record_files(one_process)) == before


def test_damaged_records_are_reported_and_run_again(study_file, one_process, tmp_path):
    list(Sweep(load_study(study_file), tmp_path).run(executor()))
    cut, flipped, *whole = record_files(tmp_path)
    cut.write_bytes(cut.read_bytes()[:-100])
    content = bytearray(flipped.read_bytes())
    content[len(content) // 3] ^= 1
    flipped.write_bytes(content)
    untouched = fingerprints(whole)
    answer = command("sweep", study_file, "--jobs", 1, "--out", tmp_path)
    assert answer.process.returncode == 0, answer.stderr
    complaints = answer.stderr.splitlines()
    assert len(complaints) == 2
    assert all(line.startswith("damaged, run again: ") for line in complaints)
    assert all(any(path.name in line for line in complaints) for path in (cut, flipped))
    assert untouched == fingerprints(whole)
    assert_same_records(tmp_path, one_process)


def test_records_by_other_code_are_told(tmp_path):
    def write_study(radius):
        (tmp_path / "edited.py").write_text(
            "import kernel_bandits as kb\n"
            "def edited(kernel, seed):\n"
            f"    return kb.k_ucb(kernel, confidence=kb.ConstantRadius({radius}), seed=seed)\n"
            "study = {'environments': [{'name': 'Bump'}], 'seeds': 1, 'horizon': 2,\n"
            "         'policies': [{'name': edited}, {'name': 'uniform'}]}\n"
        )

    write_study(0.5)
    out = tmp_path / "out"
    assert command("sweep", tmp_path / "edited.py", "--jobs", 1, "--out", out).stderr == ""
    assert command("sweep", tmp_path / "edited.py", "--jobs", 1, "--out", out).stderr == ""
    write_study(0.25)
    answer = command("sweep", tmp_path / "edited.py", "--jobs", 1, "--out", out)
    assert answer.process.returncode == 0
    assert answer.stderr == (
        "1 of them come from another version of the library or of the study's own code; "
        f"delete {out} to run them again.\n"
    )


def test_a_run_under_two_labels_is_played_once_and_appears_twice(tmp_path):
    study = study_of(
        {
            "environments": [{"name": "Chessboard", "label": label} for label in ("here", "there")],
            "policies": [{"name": "uniform"}],
            "seeds": 1,
            "horizon": 5,
        }
    )
    assert len(study.runs) == 2
    assert len(list(Sweep(study, tmp_path).run(executor()))) == 1
    assert [record.run.environment.label for record in read_results(tmp_path).records] == ["here", "there"]


def test_runs_that_another_study_has_played_are_taken_over(tmp_path):
    def study(label, *policies):
        tables = {"environments": [{"name": "Bump"}], "seeds": 2, "horizon": 5}
        return study_of({**tables, "policies": [{"name": name, "label": f"{label} {name}"} for name in policies]})

    list(Sweep(study("one", "uniform", "lin_ucb"), tmp_path / "one").run(executor()))
    sweep = Sweep(study("other", "uniform", "k_ucb"), tmp_path / "other")
    sweep.adopt([tmp_path / "one", tmp_path / "nowhere"])
    assert [run.policy.name for run in sweep.missing] == ["k_ucb", "k_ucb"]
    list(sweep.run(executor()))
    records = {folder: read_results(tmp_path / folder).records for folder in ("one", "other")}
    taken, given = (
        [record for record in records[folder] if record.run.policy.name == "uniform"] for folder in ("other", "one")
    )
    assert [record.run.policy.label for record in taken] == ["other uniform"] * 2
    for one, other in zip(taken, given, strict=True):
        assert one.provenance == other.provenance
        np.testing.assert_array_equal(one.result.select_seconds, other.result.select_seconds)


def test_a_second_sweep_into_a_folder_is_refused_while_the_first_is_at_work(study_file, tmp_path):
    first = Sweep(load_study(study_file), tmp_path).run(executor())
    next(first)
    with pytest.raises(kb.UnavailableError, match="another sweep is running"):
        next(Sweep(load_study(study_file), tmp_path).run(executor()))
    first.close()
    next(Sweep(load_study(study_file), tmp_path).run(executor()))


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_run_that_fails_leaves_the_others_alone(tmp_path, jobs):
    (tmp_path / "failing.py").write_text(
        "import kernel_bandits as kb\n"
        "class Failing(kb.Confidence):\n"
        "    def radius(self, posterior):\n"
        "        if posterior.round_index == 2:\n"
        "            raise ArithmeticError('no radius')\n"
        "        return 1.0\n"
        "study = {'environments': [{'name': 'Chessboard'}], 'seeds': 2, 'horizon': 3, 'policies': [\n"
        "    {'name': 'ek_ucb', 'options': {'confidence': {'name': Failing}}}, {'name': 'uniform'}]}\n"
    )
    study = load_study(tmp_path / "failing.py")
    outcomes = list(Sweep(study, tmp_path).run(executor(jobs)))
    failures = [outcome for outcome in outcomes if isinstance(outcome, Failure)]
    assert [failure.run.policy.name for failure in failures] == ["ek_ucb"] * 2
    assert {failure.message for failure in failures} == {"ArithmeticError: no radius"}
    assert all("in radius" in failure.details for failure in failures)
    assert len(read_results(tmp_path).records) == 2


def test_a_worker_that_is_killed_is_said(tmp_path):
    (tmp_path / "deadly.py").write_text(DEADLY)
    answer = command("sweep", tmp_path / "deadly.py", "--jobs", 2, "--out", tmp_path / "out")
    assert answer.process.returncode == 1
    assert answer.stderr.splitlines()[-1].startswith("error: A worker process was killed")
