"""Arms that were hardly tried in a place that keeps coming back are tried there, as often as surprises are likely."""

import math
from dataclasses import replace

import numpy as np
import pytest

import kernel_bandits as kb
from kernel_bandits.learning.columns import ColumnUnits
from kernel_bandits.learning.defaults import PLACE_WIDTH, REMEMBERED_PLAYS
from kernel_bandits.posterior.places import Places

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
    places = Places(2).measured(2, units(2), None).played(joint(contexts, [0, 1, 1]))
    visits, of_each = places.visits(offered(np.zeros(2)))
    # ‖x − y‖² = ¼, in units of the width times √2
    near = math.exp(-0.5 * 0.25 / (2.0 * PLACE_WIDTH**2))
    assert visits == pytest.approx(2.0 + near)
    np.testing.assert_allclose(of_each, [1.0, 1.0 + near, 0.0])


def test_an_arm_is_due_once_the_place_has_come_back_often_enough():
    # an arm that was tried once is due again where (1 + ½)² < N/3
    means, places = np.array([1.0, 0.9, 0.8]), Places(1).measured(1, units(1), None)
    # far away all were
    places = places.played(joint(np.full((60, 1), 9.0), np.arange(60) % 3)).played(joint(np.zeros((2, 1)), [1, 2]))
    for visits in range(3, 12):
        places = places.played(joint(np.zeros((1, 1)), [0]))
        due = places.due(offered(np.zeros(1)), means, np.zeros(3), best=2.0, surprise=1.0)
        assert (due in (1, 2)) == (visits > 6.75)
    elsewhere = offered(np.array([9.0]))
    assert places.due(elsewhere, means, np.zeros(3), best=2.0, surprise=1.0) is None


def test_what_cannot_be_worth_it_is_not_tried():
    places = Places(1).measured(1, units(1), None).played(joint(np.zeros((40, 1)), np.zeros(40, dtype=int)))
    here, means = offered(np.zeros(1)), np.array([1.0, 0.9, 0.8])
    assert places.due(here, means, np.zeros(3), best=2.0, surprise=1.0) is not None
    assert places.due(here, means, np.array([1.0, 0.0, 0.0]), best=2.0, surprise=1.0) is None
    # nothing better was ever seen than what is expected here
    assert places.due(here, means, np.zeros(3), best=1.0, surprise=1.0) is None
    # much to lose for little
    assert places.due(here, np.array([50.0, 1.0, 1.0]), np.zeros(3), best=50.1, surprise=1.0) is None


def test_without_surprises_a_described_action_is_due_that_was_hardly_tried_anywhere():
    # (n_a + ½)² < t/K for actions 1 and 2 with 4 and 3 of 60 plays, all of them far away
    arms = np.array([1] * 4 + [2] * 3 + [0] * 53)
    places = Places(1).measured(1, units(1), units(3)).played(joint(np.full((60, 1), 9.0), arms))
    means = np.array([1.0, 0.9, 0.8])
    assert places.due(offered(np.zeros(1)), means, np.full(3, 0.1), best=2.0, surprise=0.0) == 2
    often = places.played(joint(np.full((4, 1), 9.0), [1, 1, 2, 2]))
    assert often.due(offered(np.zeros(1)), means, np.full(3, 0.1), best=2.0, surprise=0.0) is None


def test_actions_that_hardly_return_are_not_due():
    generator, places = np.random.default_rng(0), Places(1).measured(1, units(1), units(2))
    actions = generator.standard_normal((80, 2))
    places = places.played(np.hstack([np.zeros((80, 1)), actions]))
    fresh = np.hstack([np.zeros((5, 1)), generator.standard_normal((5, 2))])
    assert places.due(fresh, np.arange(5.0), np.ones(5), best=9.0, surprise=0.0) is None


def test_thousands_of_plays_are_thinned_and_count_as_many():
    generator = np.random.default_rng(0)
    places, count = Places(1).measured(1, units(1), None), 5 * REMEMBERED_PLAYS
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
