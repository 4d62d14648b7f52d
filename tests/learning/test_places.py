"""What was hardly tried in a place that keeps coming back is tried there, for a share of what was earned."""

import math
from dataclasses import replace

import numpy as np
import pytest

import kernel_bandits as kb
from kernel_bandits.learning.columns import ColumnUnits
from kernel_bandits.learning.defaults import PLACE_WIDTH, REMEMBERED_PLAYS, SHORT_LIST
from kernel_bandits.learning.places import Places
from kernel_bandits.posterior.base import Evaluation

ARMS = np.eye(3)
NONE = np.empty((0, 4))

# Standard deviations with which all actions may be the best.
WIDE = np.array(9.0)


def units(columns):
    """Units in which columns are as they are."""
    box = ColumnUnits.of_box(np.zeros(columns), np.ones(columns), np.arange(columns))
    return replace(box, centre=np.zeros(columns), spread=np.ones(columns))


def places_of(columns, u=1.0, best=1e3):
    return Places(columns).measured(units(columns), True, u, best, np.empty((0, columns + 3)))


def with_left(places, left, nowhere=NONE):
    return places.found(nowhere, np.array([left]), 0.0)


def joint(contexts, arms):
    return np.hstack([contexts, ARMS[arms]])


def offered(context):
    return np.hstack([np.tile(context, (3, 1)), ARMS])


def test_a_play_counts_by_its_distance():
    contexts = np.array([[0.0, 0.0], [0.3, 0.4], [0.0, 0.0]])
    places = places_of(2).played(joint(contexts, [0, 1, 1]))
    visits, of_each = places.visits(offered(np.zeros(2)))
    # ‖x − y‖² = ¼, in units of the width times √2
    near = math.exp(-0.5 * 0.25 / (2.0 * PLACE_WIDTH**2))
    assert visits == pytest.approx(2.0 + near)
    np.testing.assert_allclose(of_each, [1.0, 1.0 + near, 0.0])


def test_a_play_of_a_described_action_counts_in_all_contexts():
    prices = np.array([[0.0, 1.0], [0.0, 1.2], [0.0, 9.0]])
    places = (
        Places(1)
        .measured(units(1), False, 1.0, 1e3, prices[:0])
        .played(prices[[0, 0, 2]] + [[0.0, 0.0], [7.0, 0.0], [9.0, 0.0]])
    )
    visits, of_each = places.visits(prices)
    assert visits == 3.0
    assert of_each.tolist() == [2.0, 0.0, 1.0]


def test_a_described_action_is_tried_a_logarithm_of_times_while_there_is_hope():
    prices, means = np.array([[0.0, 1.0], [0.0, 1.2]]), np.array([1.0, 0.5])
    for noise in (0.2, 0.9):
        for plays in (20, 60, 200, 600):
            for tried in range(6):
                rows = prices[np.repeat([0, 1], [plays - tried, tried])]
                places = Places(1).played(rows).measured(units(1), False, noise, 1e3, prices[:0])
                # n + ½ < ν·log(t/K), and the gain exceeds what a look costs
                expected = 1 if tried + 0.5 < noise * math.log(plays / 2) else None
                assert places.due(prices, means, WIDE) == expected
                # without hope none is tried: 0.5 + √(2 log 600)·0.1 < 1
                assert places.due(prices, means, np.array(0.1)) is None


def test_of_a_long_list_nothing_is_tried():
    points = np.column_stack([np.zeros(SHORT_LIST + 1), np.arange(SHORT_LIST + 1)])
    for count in (SHORT_LIST, SHORT_LIST + 1):
        rows = np.vstack([points[:count], np.tile(points[:1], (1000, 1))])
        places = Places(1).played(rows).measured(units(1), False, 1.0, 1e3, points[:0])
        assert (places.due(points[:2], np.array([1.0, 0.5]), WIDE) is None) == (count > SHORT_LIST)


def test_a_share_of_what_is_earned_beyond_uniform_play_is_left_to_be_spent():
    means, points = np.array([2.0, 1.0, 0.0]), offered(np.zeros(1))
    evaluation, u = Evaluation(means, np.zeros(3)), 0.5
    # thirty plays of the best, each of which earned 2 − 1 beyond uniform play
    places = places_of(1, u)
    for _ in range(30):
        places = places.played(points[:1], (evaluation, 0))
    earned = u * sum(1.0 / math.sqrt(number) for number in range(1, 31))
    assert places.due(points, np.array([2.0, 2.0 - 0.99 * earned, -9.0]), WIDE) == 1
    assert places.due(points, np.array([2.0, 2.0 - 1.01 * earned, -9.0]), WIDE) is None
    # a play that looked worse by ½ cost as much, and earned half as much beyond uniform play
    spent = places.played(points[1:2], (Evaluation(np.array([2.0, 1.5, -0.5]), np.zeros(3)), 1))
    left = earned - 0.5 + 0.5 * u / math.sqrt(31)
    assert spent.due(points, np.array([2.0, -9.0, 2.0 - 0.99 * left]), WIDE) == 2
    assert spent.due(points, np.array([2.0, -9.0, 2.0 - 1.01 * left]), WIDE) is None


def test_nothing_is_spent_where_no_surprise_is_to_be_expected():
    evaluation, places = Evaluation(np.array([1.0, 0.5, 0.0]), np.zeros(3)), places_of(1, u=0.0)
    for _ in range(100):
        places = places.played(offered(np.zeros(1))[:1], (evaluation, 0))
    assert places.due(offered(np.zeros(1)), evaluation.mean, WIDE) is None


def test_an_action_is_tried_again_as_squares_of_its_tries_are_affordable_and_the_place_comes_back():
    means, here = np.array([1.0, 0.9, 0.8]), offered(np.zeros(1))
    # each of the other arms was tried twice here: 2½² visits for each of three arms
    places = places_of(1).played(joint(np.zeros((4, 1)), [1, 1, 2, 2]))
    for visits in range(5, 25):
        places = places.played(joint(np.zeros((1, 1)), [0]))
        assert with_left(places, 1.0).due(here, means, WIDE) == (1 if visits >= 18.75 else None)
    # (2 + 1)²·0.1 is to be left
    assert with_left(places, 0.901).due(here, means, WIDE) == 1
    assert with_left(places, 0.899).due(here, means, WIDE) is None
    assert with_left(places, 0.901).due(offered(np.array([9.0])), means, WIDE) is None


def test_what_may_be_found_is_as_good_as_the_best_reward_so_far():
    means, here = np.array([1.0, 0.9, 0.8]), offered(np.zeros(1))
    played = joint(np.zeros((40, 1)), 40 * [0])
    # a look costs 0.1 and 0.2; half of that may be gained, and nothing
    half, nothing = (with_left(places_of(1, best=best).played(played), 0.201) for best in (1.05, 1.0))
    assert half.due(here, means, WIDE) == 1
    assert with_left(half, -0.002).due(here, means, WIDE) is None
    assert nothing.due(here, means, WIDE) is None


def test_every_second_look_is_taken_where_it_can_be_paid():
    means, here = np.array([1.0, 0.9, 0.8]), offered(np.zeros(1))
    places = places_of(1).played(joint(np.zeros((15, 1)), [1, 2] + 13 * [0]))
    looked = with_left(places.played(joint(np.full((1, 1), 9.0), [1]), (Evaluation(means, np.zeros(3)), 1)), 0.1)
    assert with_left(places, 0.11).due(here, means, WIDE) is None
    assert with_left(looked, 0.11).due(here, means, WIDE) == 1
    assert with_left(looked, 0.08).due(here, means, WIDE) is None


def test_what_earned_more_than_counts_is_tried_there_again_until_it_did_not():
    found, here, elsewhere = joint(np.zeros((1, 1)), [1]), offered(np.zeros(1)), offered(np.array([9.0]))
    places, means = places_of(1).played(np.vstack([found, joint(np.zeros((5, 1)), [0] * 5)])), np.zeros(3)
    assert places.due(here, means, WIDE) is None
    doubting = places.found(found, np.array([9.0]), 9.0)
    assert doubting.due(here, means, WIDE) == 1
    assert doubting.due(elsewhere, means, WIDE) is None
    # an ordinary reward: it was an outlier; the same once more: it is worth another look
    assert doubting.played(found).due(here, means, WIDE) is None
    assert doubting.played(found).found(found, np.array([9.0]), 9.0).due(here, means, WIDE) == 1
    # the next fit counts it in full
    assert doubting.measured(units(1), True, 1.0, 1e3, NONE).due(here, means, WIDE) is None


def test_thousands_of_plays_are_thinned_and_count_as_many():
    generator = np.random.default_rng(0)
    places, count = places_of(1), 5 * REMEMBERED_PLAYS
    contexts, arms = generator.standard_normal((count, 1)), generator.integers(3, size=count)
    for start in range(0, count, 512):
        places = places.played(joint(contexts[start : start + 512], arms[start : start + 512]))
    visits, of_each = places.visits(offered(np.zeros(1)))
    exact = np.exp(-0.5 * (contexts[:, 0] / PLACE_WIDTH) ** 2)
    assert visits == pytest.approx(exact.sum(), rel=0.1)
    np.testing.assert_allclose(of_each, [exact[arms == arm].sum() for arm in range(3)], rtol=0.15)


def test_jackpots_beside_rewards_that_hardly_differ_are_found():
    generator, policy = np.random.default_rng(0), kb.ek_ucb(seed=0)
    hits = 0
    for _ in range(300):
        context = generator.uniform(-1.0, 1.0, 2)
        decision = policy.select(context, ARMS)
        jackpot = context[0] > 0.5 and decision.index == (context[1] > 0.0)
        hits += jackpot
        level = 50.0 if jackpot else 1.2 if decision.index == 2 else 1.0
        policy.update(context, decision.action, level + 0.05 * generator.standard_normal())
    # a quarter of the contexts has one
    assert hits > 45
