"""The study of real tables: what it plays, and what it says of it."""

from dataclasses import replace

import numpy as np
import pytest
from kernel_bandits_lab import Failure, execute, executor
from kernel_bandits_lab.figures import Figures
from kernel_bandits_lab.reproduce.real_tables import figure
from short_runs import study

from kernel_bandits.environments import Table
from kernel_bandits.learning.learned import LearnedPosterior

ROUNDS = 50


@pytest.fixture(scope="module")
def records():
    return [execute(replace(run, horizon=ROUNDS)) for run in study("real_tables").capped(seeds=2).runs]


def test_it_plays_the_default_by_the_columns_of_the_table():
    run = next(run for run in study("real_tables").runs if run.policy.label == figure.OURS)
    policy, environment = run.build()
    assert isinstance(environment, Table)
    assert isinstance(policy.posterior, LearnedPosterior)
    assert len(environment.features.context) == 64


def test_shares_are_what_regret_leaves(records):
    (table,) = figure.tables(records)
    for place, policy, runs, rounds, share, _ in table.rows:
        regrets = [one.result.regret[-1] for one in records if one.run.cell == (place, policy)]
        assert (runs, rounds) == ("2", str(ROUNDS))
        assert share.startswith(f"{1 - np.mean(regrets) / ROUNDS:.1%}")


def test_the_headline_names_both_tables_and_every_policy(records):
    line = figure.headline(records)
    assert line.startswith(f"Right choices on real tables in {ROUNDS} rounds")
    assert line.count("linear") == 2
    for place in ("Digits", "Breast cancer"):
        ours = np.mean([one.result.rewards.mean() for one in records if one.run.cell == (place, figure.OURS)])
        assert f"{place} {ours:.0%} (linear" in line


def test_a_figure_without_its_package_is_named_with_what_installs_it(tmp_path):
    for name, package in (("here", "numpy"), ("gone", "no_such_package")):
        folder = tmp_path / "own_figures" / name
        folder.mkdir(parents=True)
        (folder / "figure.py").write_text(f'"""A figure."""\nPACKAGE = "{package}"\n')
    found = Figures(tmp_path / "own_figures")
    assert set(found.names) == {"here", "gone"}
    assert list(found.unavailable) == ["gone"]
    assert "pip install" in found.unavailable["gone"]


def test_worker_processes_play_the_tables():
    runs = [
        replace(run, horizon=3) for run in study("real_tables").capped(seeds=1).runs if run.policy.name == "uniform"
    ]
    outcomes = list(executor(jobs=2)(runs))
    assert [outcome for outcome in outcomes if isinstance(outcome, Failure)] == []
    assert {outcome.run.environment.label for outcome in outcomes} == {"Digits", "Breast cancer"}
