"""A study with ``device="gpu"``, on the processor where there is no GPU: the same records either way."""

import subprocess
import sys

import jax
import numpy as np
import pytest
from kernel_bandits_lab import Failure, Record, Sweep, executor, read_results, study_of
from kernel_bandits_lab.accelerated import replicas
from kernel_bandits_lab.accelerated.studies import has_gpu, replica_of
from kernel_bandits_lab.cli import app
from pyarrow import parquet
from typer.testing import CliRunner

import kernel_bandits as kb
from kernel_bandits.environments import Environment, Round

HISTORY_FREE = {"rule": "Kors", "history": "none"}
NOT_ON_A_DEVICE = {"rule": "PosteriorVariance"}
STUDY = {
    "environments": [{"name": "Chessboard"}, {"name": "Bump"}],
    "policies": [
        {"name": "ek_ucb", "label": "EK-UCB, {regularization:g}", "grid": {"regularization": [0.1, 1]}},
        {"name": "ek_ucb", "label": "history-free", "options": {"dictionary": HISTORY_FREE}},
        {"name": "k_ucb", "horizon": 20},
        {"name": "uniform"},
        {"name": "cbkb", "seeds": 1, "horizon": 10},
        {"name": "ek_ucb", "label": "mixed", "options": {"exploration_floor": 0.1}, "seeds": 1},
    ],
    "seeds": 3,
    "horizon": 40,
}
NUMBER_OF_RUNS, ONE_BY_ONE = 2 * (5 * 3 + 2), 2 * 2


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """The folder of an ordinary sweep, that of one with a device, and the lines it told."""
    ordinary, accelerated = tmp_path_factory.mktemp("ordinary"), tmp_path_factory.mktemp("accelerated")
    lines = []
    study = study_of(STUDY)
    assert all(isinstance(outcome, Record) for outcome in Sweep(study, ordinary).run(executor()))
    outcomes = list(Sweep(study, accelerated).run(executor(device="gpu", notify=lines.append)))
    assert len(outcomes) == NUMBER_OF_RUNS
    assert all(isinstance(outcome, Record) for outcome in outcomes)
    return ordinary, accelerated, lines


def test_records_have_the_same_ids_columns_and_rounds(played):
    ordinary, accelerated, _ = played
    files = sorted(path.name for path in (ordinary / "runs").iterdir())
    assert sorted(path.name for path in (accelerated / "runs").iterdir()) == files
    for name in files:
        expected, found = (parquet.read_table(folder / "runs" / name) for folder in (ordinary, accelerated))
        assert found.schema.equals(expected.schema, check_metadata=False)
        for column in expected.column_names:
            if column in ("run", "environment", "policy"):
                assert found[column].equals(expected[column])
            elif column in ("regret", "reward"):
                np.testing.assert_allclose(found[column], expected[column], atol=1e-10)
            elif not column.endswith("_seconds"):
                np.testing.assert_array_equal(found[column], expected[column])


def test_what_has_no_program_is_played_one_by_one_and_told_in_a_line(played):
    *_, lines = played
    told = lines[-1]
    assert told.startswith(f"{ONE_BY_ONE} of {NUMBER_OF_RUNS} runs are played one by one: ")
    assert told.count("cbkb has no program for a GPU") == 1
    assert told.count("unknown option 'exploration_floor'") == 1
    assert len(lines) == (1 if has_gpu() else 2)


def test_times_are_shares_and_the_record_says_so(played):
    _, accelerated, _ = played
    records = read_results(accelerated).records
    shared = [record for record in records if "times" in record.provenance]
    assert len(shared) == NUMBER_OF_RUNS - ONE_BY_ONE
    group = [r for r in shared if r.run.environment.label == "Bump" and r.run.policy.label.startswith("EK-UCB")]
    assert {record.provenance["times"] for record in group} == {"shares of the wall time of 6 runs at once"}
    # six equal shares of one wall time
    assert len({record.result.seconds[-1] for record in group}) == 1
    assert group[0].provenance["seconds"] == pytest.approx(group[0].result.select_seconds.sum())


def test_what_is_finished_is_not_played_again(played):
    _, accelerated, _ = played
    study = study_of(STUDY)
    assert Sweep(study, accelerated).missing == ()
    files = {path: path.stat().st_mtime_ns for path in (accelerated / "runs").iterdir()}
    lost = next(path for path in files if "k_ucb" in path.name)
    lost.unlink()
    outcomes = list(Sweep(study, accelerated).run(executor(device="gpu", notify=lambda _: None)))
    assert [outcome.run.id for outcome in outcomes] == [lost.stem]
    assert all(path.stat().st_mtime_ns == time for path, time in files.items() if path != lost)


class Shrinking(Environment):
    lengthscale = 0.5

    def next_round(self, contexts):
        return Round(contexts.random(1), contexts.random((1 + int(contexts.random() < 0.5), 1)))

    def expected_rewards(self, context, actions):
        return actions[:, 0] * context[0]


def test_a_batch_that_cannot_be_played_is_played_one_by_one(tmp_path):
    study = study_of(
        {"environments": [{"name": Shrinking}], "policies": [{"name": "ek_ucb"}], "seeds": 3, "horizon": 12}
    )
    lines = []
    outcomes = list(Sweep(study, tmp_path).run(executor(device="gpu", notify=lines.append)))
    assert len(outcomes) == 3
    assert all(isinstance(outcome, Record) and "times" not in outcome.provenance for outcome in outcomes)
    assert "3 of 3 runs are played one by one: environment: expected as many actions" in lines[-1]


class Wider(Environment):
    """A context in [0.9, 1] has a second column, which no policy takes."""

    lengthscale = 0.5

    def next_round(self, contexts):
        context = contexts.random()
        return Round([context] * (1 + (context > 0.9)), contexts.random((2, 1)))

    def expected_rewards(self, context, actions):
        return actions[:, 0] * context[0]


def test_what_no_one_foresaw_fails_where_it_is_and_the_others_go_on(tmp_path):
    study = study_of(
        {
            "environments": [{"name": Wider}, {"name": "Chessboard"}],
            "policies": [{"name": "uniform"}, {"name": "ek_ucb", "options": {"dictionary": NOT_ON_A_DEVICE}}],
            "seeds": [1],
            "horizon": 40,
        }
    )
    lines = []
    outcomes = list(Sweep(study, tmp_path).run(executor(device="gpu", notify=lines.append)))
    failed = {outcome.run.label for outcome in outcomes if isinstance(outcome, Failure)}
    assert failed == {"Wider, uniform, seed 1", "Wider, ek_ucb, seed 1"}
    assert len(outcomes) == 4
    assert "3 of 4 runs are played one by one: " in lines[-1]
    assert "ValueError: " in lines[-1]
    assert "\n" not in lines[-1]


def test_batches_are_halved_until_they_fit(monkeypatch, tmp_path):
    run_batch, sizes = replicas._run_batch, []

    def in_little_memory(batch, *arguments):
        sizes.append(len(batch))
        if len(batch) > 2:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory")
        return run_batch(batch, *arguments)

    monkeypatch.setattr(replicas, "_run_batch", in_little_memory)
    study = study_of(
        {"environments": [{"name": "Chessboard"}], "policies": [{"name": "uniform"}], "seeds": 5, "horizon": 20}
    )
    outcomes = list(Sweep(study, tmp_path).run(executor(device="gpu", notify=lambda _: None)))
    assert sizes == [5, 3, 2, 2, 2]
    assert {outcome.provenance["times"] for outcome in outcomes} == {"shares of the wall time of 2 runs at once"}
    for outcome in outcomes:
        seed = outcome.run.seed
        record = kb.run(kb.uniform(seed=seed), kb.environments.Chessboard(), 20, seed=seed)
        np.testing.assert_array_equal(outcome.result.action_indices, record.action_indices)


def test_where_nothing_is_missing_nothing_is_told():
    lines = []
    assert list(executor(device="gpu", notify=lines.append)([])) == []
    assert lines == []


def test_a_seed_among_the_options_is_that_of_the_policy():
    study = study_of(
        {
            "environments": [{"name": "Chessboard"}],
            "policies": [{"name": "uniform", "options": {"seed": 7}}],
            "seeds": [3],
            "horizon": 5,
        }
    )
    assert replica_of(study.runs[0]).seed == 7


def test_the_command_line_takes_a_device(tmp_path):
    file = tmp_path / "study.toml"
    file.write_text(
        'horizon = 20\nseeds = 2\n[[environments]]\nname = "Chessboard"\n'
        '[[policies]]\nname = "uniform"\n[[policies]]\nname = "lin_ucb"\n'
    )
    answer = CliRunner().invoke(
        app, ["sweep", str(file), "--device", "gpu", "--jobs", "1", "--out", str(tmp_path / "out")]
    )
    assert answer.exit_code == 0, answer.output
    assert "2 of 4 runs are played one by one: lin_ucb has no program for a GPU." in " ".join(answer.output.split())
    assert len(read_results(tmp_path / "out").records) == 4


def test_without_jax_the_line_that_installs_it_is_told():
    script = (
        "import sys; sys.modules['jax'] = None\n"
        "from kernel_bandits_lab import executor\n"
        "executor(device='auto')\n"
        "executor(device='gpu')\n"
    )
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "line 4" in answer.stderr
    assert "jax cannot be imported; try: pip install 'kernel-bandits-lab[jax]'" in answer.stderr


def test_a_device_that_nobody_knows_is_refused():
    with pytest.raises(kb.InputError, match="device: expected 'cpu', 'gpu' or 'auto', got 'tpu'"):
        executor(device="tpu")
