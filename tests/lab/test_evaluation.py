"""``kernel-bandits evaluate``: candidates side by side from a file."""

import numpy as np
import pyarrow as pa
import pytest
from kernel_bandits_lab.cli import app
from kernel_bandits_lab.log_commands import evaluate_candidates
from pyarrow import parquet
from simulated import simulated_log
from typer.testing import CliRunner

import kernel_bandits as kb
from kernel_bandits.offpolicy import ContinuousLog


@pytest.fixture(scope="module")
def log():
    return simulated_log(800, seed=0)


@pytest.fixture
def path(tmp_path, log):
    columns = {"context_0": log.contexts[:, 0], "context_1": log.contexts[:, 1], "action": log.played}
    table = pa.table({**columns, "reward": log.rewards, "propensity": log.propensities})
    parquet.write_table(table, tmp_path / "log.parquet")
    return tmp_path / "log.parquet"


def test_the_command_prints_values_and_draws_them(path, tmp_path, log):
    saved = tmp_path / "saved.policy"
    policy = kb.lin_ucb(exploration_floor=0.1, seed=0)
    policy.update_many(log.contexts[:50], log.actions[log.played[:50]], log.rewards[:50])
    policy.save(saved)
    figure = tmp_path / "values.png"
    candidates = [f"--policy={name}" for name in ("uniform", "2", saved)]
    result = CliRunner().invoke(app, ["evaluate", str(path), *candidates, "--no-model", f"--out={figure}"])
    assert result.exit_code == 0, result.output
    assert result.output.count("95 % interval") == 3
    assert "rounds effective" in result.output
    assert figure.stat().st_size > 1000


def test_policies_learn_the_first_rounds_and_are_judged_on_the_others(log):
    found = evaluate_candidates(log, ["lin_ucb", "0"], model=None)
    policy = kb.lin_ucb(seed=0)
    policy.update_many(log.contexts[:400], log.actions[log.played[:400]], log.rewards[:400])
    expected = kb.offpolicy.evaluate(log.rows(slice(400, 800)), policy, model=None)
    assert found["lin_ucb"].estimates == expected.estimates
    assert found["0"].overlap.rounds == 400


def test_what_cannot_be_evaluated_is_named(path, log):
    result = CliRunner().invoke(app, ["evaluate", str(path), "--policy=ek_ucp"])
    assert result.exit_code == 2
    assert "got 'ek_ucp'" in result.output
    assert "ek_ucb" in result.output
    with pytest.raises(kb.InputError, match="learned_share"):
        evaluate_candidates(log, ["0"], learned_share=1.0)
    with pytest.raises(kb.InputError, match="evaluate_continuous"):
        evaluate_candidates(ContinuousLog(np.zeros((2, 1)), np.zeros((2, 1)), np.zeros(2), np.ones(2)), ["0"])
