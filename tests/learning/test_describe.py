"""Contexts without rewards: what a policy knows of its columns before the first decision."""

import numpy as np
import pytest

import kernel_bandits as kb

ARMS = np.eye(3)


def visitors(count, seed=0):
    """Return amounts with a long tail, years, and the three levels of a category."""
    generator = np.random.default_rng(seed)
    columns = generator.lognormal(8.0, 1.5, count), 1990.0 + 30.0 * generator.random(count)
    return np.column_stack([*columns, np.eye(3)[generator.integers(3, size=count)]])


def played(policy, contexts):
    for number, context in enumerate(contexts):
        decision = policy.select(context, ARMS)
        policy.update(context, decision.action, float((number + decision.index) % 3 == 0))
    return policy


def test_columns_levels_and_tails_are_measured_before_the_first_decision():
    rows, policy = visitors(500), kb.ek_ucb(seed=0)
    policy.describe(rows)
    policy.select(rows[0], ARMS)
    kernel = policy.posterior.kernel.of_each_arm()[0]
    assert kernel.bends.columns.tolist() == [0]
    assert kernel.variables == 3
    # the levels share a spread, √Σ p(1 − p)
    shares = rows[:, 2:].mean(axis=0)
    np.testing.assert_allclose(kernel.scale[2:], np.sqrt((shares * (1.0 - shares)).sum()))
    assert kernel.scale[1] == pytest.approx(rows[:, 1].std())
    # about one, as nothing is known, whatever the units
    np.testing.assert_allclose(policy.predict(rows[0], ARMS).std, 1.0, rtol=0.5)


def test_the_units_of_contexts_do_not_matter_once_they_were_shown():
    # powers of two, so that nothing is rounded otherwise
    rows, units, choices = visitors(300), np.array([1024.0, 1.0 / 128.0, 1.0, 1.0, 1.0]), []
    for scale in (np.ones(5), units):
        policy = kb.ek_ucb(seed=1)
        policy.describe(rows * scale)
        made = []
        for number, context in enumerate(rows[:30] * scale):
            decision = policy.select(context, ARMS)
            made.append(decision.index)
            policy.update(context, decision.action, float((number + decision.index) % 3 == 0))
        choices.append(made)
    assert choices[0] == choices[1]


def test_fits_measure_columns_on_what_was_shown_too():
    rows = visitors(400)
    policy = kb.ek_ucb(seed=0)
    policy.describe(rows[100:])
    played(policy, rows[:60])
    seen = np.concatenate([rows[100:], rows[:60]])
    assert policy.posterior.model.contexts.spread[1] == pytest.approx(seen[:, 1].std(), rel=0.05)


def test_contexts_of_another_width_are_refused():
    policy = kb.ek_ucb(seed=0)
    policy.describe(visitors(10))
    with pytest.raises(kb.InputError, match="expected 5 columns as in the contexts that describe was given"):
        policy.select(np.zeros(4), ARMS)


def test_a_table_learns_the_levels_of_the_rows_it_is_shown():
    features = kb.Features({"plan": kb.Categorical(), "age": kb.Numeric()}, ["a", "b"])
    policy = kb.ek_ucb(features=features, seed=0)
    policy.describe([{"plan": plan, "age": age} for plan, age in (("free", 20.0), ("pro", 60.0), ("free", 40.0))])
    assert policy.diagnostics().levels["plan"] == ("free", "pro")
    assert policy.round_index == 0
    assert policy.codec.knows({"plan": "pro", "age": 30.0}, ["a", "b"])
