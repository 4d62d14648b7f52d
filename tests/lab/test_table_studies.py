"""A study plays a table from a file, with the description that the table suggests."""

import numpy as np
import pandas as pd
import pytest
from kernel_bandits_lab import Sweep, executor, load_study, read_results

import kernel_bandits as kb

STUDY = """
title = "A table"
horizon = 40
seeds = 2

[[environments]]
name = "Table"
options = {{ source = "{source}", reward = "label" }}

[[policies]]
name = "ek_ucb"
options = {{ kernel = {{ name = "Gaussian", lengthscale = 1.0 }} }}

[[policies]]
name = "random_features_ucb"
options = {{ kernel = {{ name = "Gaussian", lengthscale = 1.0 }} }}

[[policies]]
name = "uniform"
"""


@pytest.fixture
def study(tmp_path):
    generator = np.random.default_rng(0)
    numbers = generator.normal(size=60)
    frame = pd.DataFrame(
        {"x": numbers, "colour": generator.choice(list("rgb"), 60), "label": np.where(numbers > 0, "high", "low")}
    )
    frame.to_csv(tmp_path / "table.csv", index=False)
    (tmp_path / "study.toml").write_text(STUDY.format(source=tmp_path / "table.csv"))
    return load_study(tmp_path / "study.toml")


def test_a_study_plays_a_csv_file(study, tmp_path):
    list(Sweep(study, tmp_path / "results").run(executor(jobs=1)))
    records = read_results(tmp_path / "results").records
    assert len(records) == 6
    for record in records:
        assert set(record.result.rewards.tolist()) == {0.0, 1.0}
        np.testing.assert_allclose(record.result.regret[-1], 40 - record.result.rewards.sum())
    earned = {record.run.policy.label: record.result.rewards.sum() for record in records}
    assert earned["ek_ucb"] > earned["uniform"]


def test_a_run_is_that_of_the_policy_over_arrays(study):
    run = next(run for run in study.runs if run.policy.name == "ek_ucb")
    policy, environment = run.build()
    assert isinstance(policy, kb.policy.UpperConfidenceBound)
    same = kb.ek_ucb(kb.Gaussian(1.0), features=environment.features, seed=run.seed).inner
    one, other = (kb.run(player, environment, 30, seed=run.seed) for player in (policy, same))
    np.testing.assert_array_equal(one.action_indices, other.action_indices)
