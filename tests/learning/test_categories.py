"""Categories among plain columns: 0/1 columns of which one is 1 in every row are one variable."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kernel_bandits as kb
from kernel_bandits.learning.columns import Columns, ColumnUnits, category_labels, relabelled
from kernel_bandits.learning.mixed import MixedSample


def one_hot(levels, count):
    return np.eye(count)[np.asarray(levels)]


def test_columns_by_hand():
    numbers = np.array([[0.3], [1.0], [0.0], [2.0]])
    colour, size = one_hot([0, 1, 2, 1], 3), one_hot([1, 0, 0, 1], 2)
    flags = np.array([[1.0, 1.0], [0.0, 1.0], [1.0, 0.0], [0.0, 0.0]])
    points = np.hstack([numbers, colour, size, flags])
    assert category_labels(points).tolist() == [0, 1, 1, 1, 2, 2, 3, 4]


@pytest.mark.parametrize(
    "columns",
    [
        # a constant is no category
        np.ones((4, 1)),
        # two flags that are both 1 in one row
        np.array([[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]]),
        # two flags that are both 0 in one row
        np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]),
        # ones and twos
        np.array([[2.0, 1.0], [1.0, 2.0]]),
    ],
)
def test_other_columns_are_variables_of_their_own(columns):
    np.testing.assert_array_equal(category_labels(columns), np.arange(columns.shape[1]))


def test_a_level_that_nobody_had_yet_joins_later():
    seen = one_hot([1, 2, 1, 2], 4)
    assert category_labels(seen).tolist() == [0, 1, 1, 2]
    assert category_labels(np.vstack([seen, np.eye(4)])).tolist() == [0, 0, 0, 0]


@given(st.lists(st.integers(2, 5), min_size=1, max_size=5), st.integers(0, 2**32 - 1))
def test_variables_are_those_that_were_encoded(sizes, seed):
    generator = np.random.default_rng(seed)
    blocks, expected = [], []
    for number, size in enumerate(sizes):
        # every level is there, and no column of numbers is one of flags
        levels = np.concatenate([np.arange(size), generator.integers(size, size=20)])[:20]
        blocks += [one_hot(generator.permutation(levels), size), generator.normal(size=(20, 1))]
        expected += [2 * number] * size + [2 * number + 1]
    assert category_labels(np.hstack(blocks)).tolist() == expected


def test_contexts_and_actions_are_told_apart():
    # the last column of the contexts and the first of the actions are never 1 together
    contexts, actions = np.array([[0.0], [1.0], [1.0]]), np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    found = Columns(1).recognised(np.hstack([contexts, actions]))
    assert found.variables == (0, 1, 1)


def test_what_the_user_says_of_variables_counts():
    columns = Columns(2, (0, 1, 2))
    assert columns.recognised(one_hot([0, 1, 2], 3)) is columns


def test_the_settings_of_a_box_are_no_levels():
    columns = Columns(0, None, ((0.0, 0.0), (1.0, 1.0), (0, 1)))
    assert columns.recognised(one_hot([0, 1], 2)).variables == (0, 1)


def played(policy, seed, rounds=150):
    generator, arms = np.random.default_rng(seed), np.eye(3)
    colours = np.concatenate([np.arange(6), generator.integers(6, size=rounds)])
    right, chosen = generator.integers(3, size=6), []
    for colour in colours[:rounds]:
        context = np.append(one_hot(colour, 6), generator.normal(size=2))
        decision = policy.select(context, arms)
        policy.update(context, decision.action, float(decision.index == right[colour]))
        chosen.append(decision.index)
    return chosen


@pytest.mark.parametrize("seed", [0, 1])
def test_plain_columns_are_learned_from_as_those_of_a_category(seed):
    told = kb.KernelLearning(groups=[0] * 6 + [1, 2, 3, 4, 5], first_round=6)
    untold = kb.KernelLearning(first_round=6)
    assert played(kb.ek_ucb(learn_kernel=untold, seed=seed), seed) == played(
        kb.ek_ucb(learn_kernel=told, seed=seed), seed
    )


def test_a_relevance_goes_with_its_columns():
    before, relevance = np.array([0, 1, 2]), np.array([1.0, 3.0, -2.0])
    assert relabelled(relevance, before, np.array([0, 0, 1])).tolist() == [2.0, -2.0]
    assert relabelled(relevance, before, before) is relevance
    # one variable has no weight of its own, and where none had one none gets one
    assert len(relabelled(relevance, before, np.zeros(3, dtype=int))) == 0
    assert len(relabelled(np.empty(0), before, np.array([0, 0, 1]))) == 0


def test_a_model_goes_on_when_a_level_appears():
    generator = np.random.default_rng(0)
    colours, arms = generator.integers(4, size=200), generator.integers(2, size=200)
    contexts = np.hstack([one_hot(colours, 5), generator.normal(size=(200, 2))])
    points = np.hstack([contexts, np.eye(2)[arms]])
    rewards = ((colours > 1) == (arms > 0)) + 0.1 * generator.normal(size=200)
    columns = Columns(7).recognised(points)
    before = MixedSample(points, rewards, columns, True, None).fit(None)
    assert len(before.warp.contexts) == 4
    points[0, :5] = one_hot(4, 5)
    later = Columns(7).recognised(points)
    sample = MixedSample(points, rewards, later, True, before.with_variables(later, 9))
    moved = before.with_variables(later, 9)
    assert len(moved.warp.contexts) == 3
    assert np.isfinite(sample.evidence_gained(sample.fit(moved), moved))


def test_levels_that_come_later_have_the_spread_of_their_variable():
    points = one_hot([1, 2] * 10, 4)
    before = ColumnUnits.measured(points, category_labels(points), None)
    points = np.vstack([one_hot([0] * 400, 4), one_hot([1, 2, 3], 4)])
    after = ColumnUnits.measured(points, category_labels(points), before)
    assert len(np.unique(after.spread)) == 1


def test_a_row_without_any_level_counts_however_rare():
    """Categories are looked for in the history, not in the sample of a fit."""
    generator, learner = np.random.default_rng(0), kb.ek_ucb(seed=0).posterior.learner
    contexts = one_hot(generator.integers(3, size=2000), 3)
    contexts[generator.choice(2000, 4, replace=False)] = 0.0
    points = np.hstack([contexts, np.eye(2)[generator.integers(2, size=2000)]])
    learner.describe(3, points[:2], None)
    for seed in range(5):
        refit = learner.refit(points, generator.normal(size=2000), None, np.random.default_rng(seed))
        assert refit.model.contexts.labels.tolist() == [0, 1, 2]
