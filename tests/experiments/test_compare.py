import subprocess
import sys

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

from kernel_bandits import InputError, KernelBanditsError
from kernel_bandits.experiments import __main__ as command_line
from kernel_bandits.experiments import compare

SEEDS, HORIZON = 2, 30
POLICIES = ["EK-UCB", "EK-UCB, no history", "K-UCB", "Uniform"]
ENVIRONMENTS = ["Bump", "Chessboard", "StepDiagonal", "MovingOptimum"]


@pytest.fixture(scope="module")
def outcomes():
    return list(compare.play(compare.cells(SEEDS, HORIZON), jobs=1))


def invoke(*arguments):
    # A log, whatever the terminal of whoever runs the tests.
    log = {"FORCE_COLOR": None, "TTY_COMPATIBLE": None, "COLUMNS": "100"}
    return CliRunner().invoke(command_line.app, [str(argument) for argument in arguments], env=log)


def noise_of(run, environment):
    actions = environment.next_round(np.random.default_rng(0)).actions  # the same at every round
    expected = np.array([environment.expected_rewards(context, actions) for context in run.contexts])
    return run.rewards - expected[np.arange(run.horizon), run.action_indices]


def test_every_environment_meets_every_policy_with_every_seed_once(outcomes):
    played = sorted(cell.label for cell, _ in outcomes)
    assert played == sorted(
        f"{environment}, {policy}, seed {seed}"
        for environment in ENVIRONMENTS
        for policy in POLICIES
        for seed in range(SEEDS)
    )


def test_policies_with_one_seed_meet_the_same_contexts_and_noise(outcomes):
    groups = compare.group(outcomes)
    for problem in compare.PROBLEMS:
        by_policy, environment = groups[problem.label], problem.build()
        for first, *others in zip(*by_policy.values(), strict=True):
            for other in others:
                np.testing.assert_array_equal(other.contexts, first.contexts)
                np.testing.assert_allclose(noise_of(other, environment), noise_of(first, environment), atol=1e-12)
        one_seed, next_seed = (run.contexts for run in by_policy["K-UCB"])
        assert (one_seed != next_seed).all()


def test_groups_follow_the_plan_whatever_the_order_of_arrival(outcomes):
    groups = compare.group(reversed(outcomes))
    assert list(groups) == ENVIRONMENTS
    assert all(list(by_policy) == POLICIES for by_policy in groups.values())
    for cell, result in outcomes:
        assert groups[cell.problem.label][cell.contender.label][cell.seed] is result


def test_processes_do_not_change_the_regret(outcomes):
    in_parallel = compare.group(compare.play(compare.cells(SEEDS, HORIZON), jobs=2))
    for environment, by_policy in compare.group(outcomes).items():
        for policy, runs in by_policy.items():
            for here, there in zip(runs, in_parallel[environment][policy], strict=True):
                np.testing.assert_array_equal(there.regret, here.regret)


def test_the_summary_is_what_numpy_and_scipy_say(outcomes):
    runs = [result for cell, result in outcomes if cell.contender.label == "K-UCB"]
    summary = compare.summarize(runs)
    finals = np.array([run.regret[-1] for run in runs])
    low, high = stats.t.interval(0.95, df=len(finals) - 1, loc=np.mean(finals), scale=stats.sem(finals))
    rounds = np.concatenate([np.diff(run.seconds, prepend=0.0) for run in runs])
    assert summary.runs == len(ENVIRONMENTS) * SEEDS
    assert summary.regret == pytest.approx((low + high) / 2)
    assert summary.regret_interval == pytest.approx((high - low) / 2)
    assert summary.dictionary_size == HORIZON  # an exact posterior keeps every point
    assert summary.round_microseconds == pytest.approx(1e6 * np.mean(rounds))


def test_one_run_has_no_interval(outcomes):
    _, result = outcomes[0]
    summary = compare.summarize([result])
    assert summary.regret == result.regret[-1]
    assert np.isnan(summary.regret_interval)


def test_the_interval_is_taken_column_by_column():
    samples = np.array([[1.0, 10.0], [3.0, 10.0]])
    mean, half_width = compare.mean_interval(samples)
    np.testing.assert_array_equal(mean, [2.0, 10.0])
    # two samples at distance 2: standard error 1, and the quantile of Student's law with one degree of freedom
    np.testing.assert_allclose(half_width, [12.706204736, 0.0])


def test_missing_joblib_is_answered_with_the_install_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "joblib", None)
    with pytest.raises(KernelBanditsError, match=r"pip install 'kernel-bandits\[experiments\]'"):
        compare.play([], jobs=1)


@pytest.mark.parametrize(("seeds", "horizon"), [(1, 10), (0, 10), (2, 0)])
def test_a_plan_without_spread_or_rounds_is_refused(seeds, horizon):
    with pytest.raises(InputError, match="expected"):
        compare.cells(seeds, horizon)


def test_the_command_prints_a_row_per_policy_and_writes_the_figure(tmp_path, outcomes):
    out = tmp_path / "deep" / "folder"
    answer = invoke("--seeds", SEEDS, "--horizon", HORIZON, "--jobs", 1, "--out", out)
    assert answer.exit_code == 0
    rows = [line.split("  ") for line in answer.stdout.splitlines()]
    for policy in POLICIES:
        assert sum(policy in [cell.strip() for cell in row] for row in rows) == len(ENVIRONMENTS)
    bump = compare.summarize(compare.group(outcomes)["Bump"]["EK-UCB"])
    assert f"{bump.regret:.1f} ± {bump.regret_interval:.1f}" in answer.stdout
    assert answer.stdout.endswith(f"Figure: {out / 'comparison.png'}\n")
    assert (out / "comparison.png").read_bytes().startswith(b"\x89PNG")


def test_progress_in_a_log_is_a_few_lines(tmp_path):
    answer = invoke("--seeds", SEEDS, "--horizon", 1, "--jobs", 1, "--out", tmp_path)
    progress = [line for line in answer.stdout.splitlines() if "of 32 runs" in line]
    assert len(progress) == 10
    assert progress[-1].startswith("32 of 32 runs")


@pytest.mark.parametrize(
    ("option", "value", "complaint"),
    [
        ("--seeds", 1, "seeds: expected at least 2, got 1"),
        ("--horizon", 0, "horizon: expected a whole number of at least 1, got 0"),
        ("--jobs", 0, "jobs: expected a whole number of at least 1, got 0"),
    ],
)
def test_a_bad_option_is_one_line_and_exit_code_2(tmp_path, option, value, complaint):
    answer = invoke("--out", tmp_path, option, value)
    assert answer.exit_code == 2
    assert complaint in answer.stderr
    assert len(answer.stderr.splitlines()) == 1
    assert not answer.stdout


def test_a_folder_that_cannot_be_made_is_said_before_anything_runs(tmp_path):
    blocked = tmp_path / "file"
    blocked.touch()
    answer = invoke("--out", blocked / "below")
    assert answer.exit_code == 2
    assert f"out: cannot make the folder {blocked / 'below'}" in answer.stderr


def test_a_missing_matplotlib_is_said_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    answer = invoke("--out", tmp_path)
    assert answer.exit_code == 1
    assert "pip install 'kernel-bandits[plots]'" in answer.stderr


def test_ctrl_c_keeps_the_finished_runs(tmp_path, monkeypatch, outcomes):
    def interrupted(planned, jobs):  # noqa: ARG001
        yield from outcomes[:5]
        raise KeyboardInterrupt

    monkeypatch.setattr(command_line, "play", interrupted)
    answer = invoke("--seeds", SEEDS, "--horizon", HORIZON, "--out", tmp_path)
    assert answer.exit_code == 130
    assert "Stopped after 5 of 32 runs" in answer.stdout
    assert "Chessboard" in answer.stdout
    assert "MovingOptimum" not in answer.stdout
    assert not list(tmp_path.iterdir())


def test_python_m_runs_the_command():
    answer = subprocess.run(
        [sys.executable, "-m", "kernel_bandits.experiments", "--seeds", "1"], capture_output=True, text=True
    )
    assert answer.returncode == 2
    assert answer.stderr == "error: seeds: expected at least 2, got 1; one run says nothing about the spread.\n"
