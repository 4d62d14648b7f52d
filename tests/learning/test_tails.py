"""Columns with long tails: which are bent, and what is gained."""

import numpy as np
import pytest

import kernel_bandits as kb
from kernel_bandits.learning.columns import Columns, ColumnUnits, measured_bends
from kernel_bandits.learning.mixed import MixedSample


def columns_of(generator, rows=400):
    """Return a normal, a uniform, a lognormal, a Cauchy, a constant column and a flag."""
    return np.column_stack(
        [
            generator.normal(size=rows),
            generator.uniform(size=rows),
            generator.lognormal(size=rows),
            generator.standard_cauchy(size=rows),
            np.full(rows, 3.0),
            generator.random(rows) < 0.01,
        ]
    )


@pytest.mark.parametrize("unit", [1.0, 1e-200, 1e150])
@pytest.mark.parametrize("seed", range(5))
def test_long_tails_are_bent_in_any_unit(seed, unit):
    points = columns_of(np.random.default_rng(seed))
    bends = measured_bends(unit * points, np.arange(6))
    assert bends.columns.tolist() == [2, 3]
    plain = measured_bends(points, np.arange(6))
    np.testing.assert_allclose(bends.knee, unit * plain.knee, rtol=1e-9)
    # straight in the middle, flat far from it
    middle = np.zeros((1, 6))
    middle[:, bends.columns] = plain.middle
    far = middle + 1e3 * np.abs(points).max()
    np.testing.assert_allclose(plain.slopes(middle)[0, 2:4], 1.0 / plain.knee)
    assert (plain.slopes(far)[0, 2:4] < 1e-2 / plain.knee).all()


def test_levels_and_rounding_have_no_tails():
    generator = np.random.default_rng(0)
    levels = np.eye(5)[np.minimum(generator.geometric(0.7, size=300) - 1, 4)]
    assert measured_bends(levels, np.zeros(5, dtype=int)) is None
    # differences of numbers this far from 0 are rounding
    far = 1e16 + generator.lognormal(size=(300, 1))
    assert measured_bends(far, np.arange(1)) is None
    assert measured_bends(np.empty((0, 2)), np.arange(2)) is None


def test_units_are_those_of_bent_columns():
    points = columns_of(np.random.default_rng(0))
    units = ColumnUnits.of_contexts(points, np.arange(6), None, may_bend=True)
    standardised = units.standardised(points)
    np.testing.assert_allclose(standardised[:, :4].mean(axis=0), 0.0, atol=1e-9)
    np.testing.assert_allclose(standardised[:, :4].std(axis=0), 1.0, rtol=1e-9)
    assert np.abs(standardised[:, 3]).max() < 8.0 < np.abs(points[:, 3] / points[:, 3].std()).max()
    # the kernel compares what was fitted
    kernel, straight = units.kernel(0.0, 1.0, 1.0, 0.7), kb.Mixed(0.0, 1.0, 1.0, 0.7, variables=units.variables)
    np.testing.assert_allclose(kernel(points[:9]), straight(standardised[:9]), atol=1e-9)


def test_a_tail_that_comes_later_is_bent_from_then_on():
    generator = np.random.default_rng(0)
    points = generator.normal(size=(50, 2))
    before = ColumnUnits.of_contexts(points, np.arange(2), None, may_bend=True)
    points[:5, 1] *= 100.0
    after = ColumnUnits.of_contexts(points, np.arange(2), before, may_bend=True)
    assert before.bends is None
    assert after.bends.columns.tolist() == [1]
    np.testing.assert_allclose(after.standardised(points).std(axis=0), 1.0, rtol=1e-9)


def test_contexts_of_described_actions_stay_as_they_are():
    generator = np.random.default_rng(0)
    points = np.column_stack([generator.lognormal(sigma=2.0, size=200), generator.normal(size=200)])
    model = MixedSample(points, points[:, 1], Columns(1), False, None).fit(None)
    assert model.contexts.bends is None


def earned(tail, seed, rounds=400):
    """Return how often the arm of a threshold within the bulk of a column was right, in the second half."""
    generator, policy, right = np.random.default_rng(seed), kb.ek_ucb(seed=seed), []
    for _ in range(rounds):
        normal = generator.normal(size=2)
        context = np.exp(tail * normal) if tail else normal
        decision = policy.select(context, np.eye(2))
        right.append(decision.index == int(normal[0] > 0))
        policy.update(context, decision.action, float(right[-1]))
    return np.mean(right[rounds // 2 :])


def test_a_long_tail_hides_nothing():
    """Money: most values lie close together, and what matters is on which side of their middle one is."""
    assert np.mean([earned(3.0, seed) for seed in range(3)]) > 0.9
