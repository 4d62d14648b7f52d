"""Statistics of the bake-off on numbers that can be checked by hand or against published tables."""

import math

import numpy as np
import pytest
from bakeoff.comparison import (
    Difference,
    best_of,
    cliques,
    critical_difference,
    holm,
    mean_curve,
    normalised_loss,
    paired,
    ranking,
    results_of,
    tally,
)
from bakeoff.records import Cell, Record
from scipy.stats import ttest_rel


def _record(reward, seed, entry="LinUCB", library="mabwiser", alpha=0.1):
    cell = Cell("pima", library, entry, {"alpha": alpha}, seed, 100)
    return Record(cell, 100, reward, 0.5, 2.0, [[10, 0.5], [100, reward]])


def test_an_interval_agrees_with_the_paired_t_test():
    generator = np.random.default_rng(0)
    for shift in (0.0, 0.02, 0.5):
        ours, theirs = generator.normal(shift, 0.1, 10), generator.normal(0.0, 0.1, 10)
        difference = paired(ours, theirs)
        interval = ttest_rel(ours, theirs).confidence_interval(0.95)
        np.testing.assert_allclose(
            (difference.mean - difference.half_width, difference.mean + difference.half_width), interval
        )
        assert (difference.verdict == "draw") == (ttest_rel(ours, theirs).pvalue > 0.05)
        assert difference.p_value == pytest.approx(ttest_rel(ours, theirs).pvalue)


def test_verdicts():
    assert Difference(0.02, 0.01).verdict == "win"
    assert Difference(-0.02, 0.01).verdict == "loss"
    assert Difference(0.01, 0.01).verdict == "draw"
    assert paired(np.array([1.0]), np.array([0.0])).verdict == "draw", "one shuffle proves nothing"
    assert paired(np.array([0.5, 0.5]), np.array([0.5, 0.5])).verdict == "draw", "the same play is no win"
    assert tally(["win", "loss", "win", "draw"]) == (2, 1, 1)


def test_what_cannot_be_tested_has_the_p_value_of_no_evidence():
    assert paired(np.array([1.0]), np.array([0.0])).p_value == 1.0
    assert paired(np.array([0.5, 0.5]), np.array([0.5, 0.5])).p_value == 1.0
    assert paired(np.array([0.6, 0.7]), np.array([0.5, 0.6])).p_value < 1e-10


def test_holms_correction_is_that_of_the_textbook():
    # 0.01 ≤ 0.05/4, 0.013 ≤ 0.05/3, 0.03 > 0.05/2: the two that follow stay, though 0.04 ≤ 0.05
    assert holm([0.03, 0.01, 0.04, 0.013]) == [False, True, False, True]
    assert holm([0.04]) == [True]
    assert holm([]) == []
    assert holm([0.05 / 3, 0.05 / 2, 0.05]) == [True, True, True]
    # false discoveries among true hypotheses: at most one time in twenty, where single tests have some nearly always
    generator = np.random.default_rng(0)
    draws = generator.random((2000, 100))
    assert np.mean([any(holm(row)) for row in draws]) < 0.065
    assert np.mean((draws < 0.05).any(axis=1)) > 0.9


@pytest.mark.parametrize(("competitors", "quantile"), [(2, 1.960), (3, 2.343), (5, 2.728), (7, 2.949), (10, 3.164)])
def test_the_critical_difference_is_demsars(competitors, quantile):
    # Demšar (2006), table 5a
    expected = quantile * math.sqrt(competitors * (competitors + 1) / (6 * 30))
    assert critical_difference(competitors, 30) == pytest.approx(expected, rel=1e-3)


def test_ranks_are_means_over_the_tables_that_all_played():
    rewards = {
        "one": {"a": 0.9, "b": 0.8, "c": 0.7},
        "two": {"a": 0.5, "b": 0.6, "c": 0.6},
        "three": {"a": 0.9, "b": 0.1, "c": 0.5},
        "not by c": {"a": 0.1, "b": 0.2},
    }
    found = ranking(rewards)
    assert found.names == ("a", "b", "c")
    assert found.tables == 3
    np.testing.assert_allclose(found.mean_ranks, [(1 + 3 + 1) / 3, (2 + 1.5 + 3) / 3, (3 + 1.5 + 2) / 3])
    assert 0 < found.p_value <= 1


def test_a_ranking_of_nothing_or_of_two_has_no_friedman_test():
    assert ranking({}).tables == 0
    assert math.isnan(ranking({"one": {"a": 1.0, "b": 0.0}, "two": {"a": 1.0, "b": 0.0}}).p_value)


def test_cliques_are_the_longest_runs_within_a_difference():
    assert cliques([1.0, 1.4, 2.2, 4.0, 4.1], 1.0) == [(0, 1), (1, 2), (3, 4)]
    assert cliques([1.0, 1.5, 2.0], 1.0) == [(0, 2)], "a run inside another is not drawn"
    assert cliques([1.0, 3.0], 1.0) == []


def test_only_settings_that_played_every_shuffle_count():
    records = [_record(0.7, 0), _record(0.8, 1), _record(0.99, 0, alpha=0.3)]
    (result,) = results_of(records, 2)
    assert result.settings == {"alpha": 0.1}
    assert result.rewards.tolist() == [0.7, 0.8]
    assert result.milliseconds == pytest.approx(5.0)


def test_rewards_are_in_the_order_of_seeds():
    (result,) = results_of([_record(0.8, 1), _record(0.7, 0)], 2)
    assert result.rewards.tolist() == [0.7, 0.8]


def test_a_library_counts_at_its_best_in_hindsight():
    records = [
        _record(reward, seed, entry, library, alpha)
        for seed in range(2)
        for reward, entry, library, alpha in (
            (0.6, "LinUCB", "mabwiser", 0.1),
            (0.7, "LinUCB", "mabwiser", 0.3),
            (0.8, "LinTS", "mabwiser", 0.1),
            (0.9, "LinUCB", "river", 1.0),
        )
    ]
    results = results_of(records, 2)
    assert {name: result.mean for name, result in best_of(results, "library").items()} == {
        "mabwiser": pytest.approx(0.8),
        "river": pytest.approx(0.9),
    }
    assert best_of(results, "entry")["mabwiser: LinUCB"].settings == {"alpha": 0.3}


def test_curves_of_different_lengths_meet_where_the_shortest_ends():
    curve = mean_curve([[[10, 0.0], [20, 1.0]], [[10, 1.0], [40, 1.0]]])
    assert curve.tolist() == [[10, 0.5], [20, 1.0]]
    assert mean_curve([[], [[10, 1.0]]]).shape == (0, 2)


def test_normalised_loss_is_0_at_the_skyline_and_1_at_uniform_play():
    assert normalised_loss(0.9, 0.1, 0.9) == 0
    assert normalised_loss(0.1, 0.1, 0.9) == 1
    assert math.isnan(normalised_loss(0.5, 0.5, 0.5))
