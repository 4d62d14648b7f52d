"""Arms that were hardly tried in a place that keeps coming back are tried there, as often as surprises are likely."""

import math
from dataclasses import replace

import numpy as np
import pytest

import kernel_bandits as kb
from kernel_bandits.learning.columns import ColumnUnits
from kernel_bandits.learning.defaults import PLACE_WIDTH, REMEMBERED_PLAYS, SHORT_LIST
from kernel_bandits.learning.places import Places, ShortList, price_of

ARMS = np.eye(3)


def units(columns):
    """Units in which columns are as they are."""
    box = ColumnUnits.of_box(np.zeros(columns), np.ones(columns), np.arange(columns))
    return replace(box, centre=np.zeros(columns), spread=np.ones(columns))


def joint(contexts, arms):
    return np.hstack([contexts, ARMS[arms]])


def offered(context):
    return np.hstack([np.tile(context, (3, 1)), ARMS])


def test_a_play_counts_by_its_distance():
    contexts = np.array([[0.0, 0.0], [0.3, 0.4], [0.0, 0.0]])
    places = Places(2).measured(units(2)).played(joint(contexts, [0, 1, 1]))
    visits, of_each = places.visits(offered(np.zeros(2)))
    # ‖x − y‖² = ¼, in units of the width times √2
    near = math.exp(-0.5 * 0.25 / (2.0 * PLACE_WIDTH**2))
    assert visits == pytest.approx(2.0 + near)
    np.testing.assert_allclose(of_each, [1.0, 1.0 + near, 0.0])


def test_an_arm_is_due_once_the_place_has_come_back_often_enough():
    # an arm that was tried once is due again where (1 + ½)² < N/3
    means, places = np.array([1.0, 0.9, 0.8]), Places(1).measured(units(1))
    # far away all were
    places = places.played(joint(np.full((60, 1), 9.0), np.arange(60) % 3)).played(joint(np.zeros((2, 1)), [1, 2]))
    for visits in range(3, 12):
        places = places.played(joint(np.zeros((1, 1)), [0]))
        due = places.due(offered(np.zeros(1)), means, np.zeros(3), best=2.0, surprise=1.0)
        assert (due in (1, 2)) == (visits > 6.75)
    elsewhere = offered(np.array([9.0]))
    assert places.due(elsewhere, means, np.zeros(3), best=2.0, surprise=1.0) is None


def test_what_cannot_be_worth_it_is_not_tried():
    places = Places(1).measured(units(1)).played(joint(np.zeros((40, 1)), np.zeros(40, dtype=int)))
    here, means = offered(np.zeros(1)), np.array([1.0, 0.9, 0.8])
    assert places.due(here, means, np.zeros(3), best=2.0, surprise=1.0) is not None
    assert places.due(here, means, np.array([1.0, 0.0, 0.0]), best=2.0, surprise=1.0) is None
    # nothing better was ever seen than what is expected here
    assert places.due(here, means, np.zeros(3), best=1.0, surprise=1.0) is None
    # much to lose for little
    assert places.due(here, np.array([50.0, 1.0, 1.0]), np.zeros(3), best=50.1, surprise=1.0) is None


def test_a_look_that_costs_much_is_taken_where_visits_are_rare_and_while_the_ration_lasts():
    # ten of a hundred visits were here, all to arm 0; elsewhere all arms were tried
    contexts, arms = np.repeat([9.0, 0.0], [90, 10])[:, None], np.r_[np.arange(90) % 3, np.zeros(10, dtype=int)]
    means, gain = np.array([1.0, 0.5, 0.4]), 1.0
    options = {"means": means, "stds": np.zeros(3), "best": 1.0 + gain, "surprise": 1.0}
    places = Places(1).played(joint(contexts, arms)).measured(units(1))
    assert places.due(offered(np.zeros(1)), **options) == 1
    # most of the visits are here, and only places that are visited least are rare
    often = Places(1).played(joint(np.repeat([9.0, 0.0], [10, 20])[:, None], np.r_[np.arange(10) % 3, [0] * 20]))
    assert often.measured(units(1)).due(offered(np.zeros(1)), **options) is None
    # what looks have cost in units of what they may find, K·log t and more
    spent = places.played(joint(np.full((1, 1), 9.0), [1]), 3.0 * math.log(102))
    assert spent.due(offered(np.zeros(1)), **options) is None
    # one that costs a tenth of what it may find is free
    cheap = options | {"means": np.array([1.0, 0.95, 0.4])}
    assert spent.due(offered(np.zeros(1)), **cheap) == 1


def test_the_price_of_a_play_is_what_it_costs_over_what_it_may_find():
    means, stds = np.array([1.0, 0.5, 0.0]), np.full(3, 0.2)
    assert price_of(means, stds, 0, best=3.2) == 0.0
    assert price_of(means, stds, 1, best=3.2) == pytest.approx(0.25)
    # no more than it may find, and nothing where nothing better was ever seen
    assert price_of(means, stds, 2, best=1.6) == 1.0
    assert price_of(means, stds, 2, best=1.0) == 0.0


def test_what_earned_more_than_counts_is_tried_there_again_until_it_did_not():
    found, here, elsewhere = joint(np.zeros((1, 1)), [1]), offered(np.zeros(1)), offered(np.array([9.0]))
    places = Places(1).measured(units(1)).played(np.vstack([found, joint(np.zeros((5, 1)), [0] * 5)]))
    assert places.doubtful(here, found) == 1
    assert places.doubtful(elsewhere, found) is None
    assert places.doubtful(here, np.empty((0, 4))) is None
    # an ordinary reward: it was an outlier; the same once more: it is worth another look
    again = places.played(found)
    assert again.doubtful(here, found) is None
    assert again.doubtful(here, np.vstack([found, found])) == 1


def test_thousands_of_plays_are_thinned_and_count_as_many():
    generator = np.random.default_rng(0)
    places, count = Places(1).measured(units(1)), 5 * REMEMBERED_PLAYS
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


def test_a_described_action_is_due_as_far_as_rewards_are_noise_and_there_is_hope():
    prices = np.array([[0.0, 1.0], [0.0, 2.0], [0.0, 3.0]])
    # 40 plays, of which the last price had 2: log(40/3) = 2.59
    plays = ShortList(1).played(np.repeat(prices, [19, 19, 2], axis=0))
    means, stds = np.array([1.0, 0.9, 0.8]), np.full(3, 0.1)
    assert plays.due(prices, means, stds, best=2.0, surprise=1.0) == 2
    # a model that explains rewards is trusted
    assert plays.due(prices, means, stds, best=2.0, surprise=0.5) is None
    # √(2·log 40) = 2.7 deviations do not reach the best
    assert plays.due(prices, means, 0.5 * stds, best=2.0, surprise=1.0) is None
    assert plays.played(prices[2:]).due(prices, means, stds, best=2.0, surprise=1.0) is None


def test_plays_of_a_long_list_are_not_counted():
    points = np.column_stack([np.zeros(SHORT_LIST + 1), np.arange(SHORT_LIST + 1)])
    assert ShortList(1).played(points[:-1]) is not None
    assert ShortList(1).played(points) is None
