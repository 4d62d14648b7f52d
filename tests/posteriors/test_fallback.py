"""A policy that earns less than its model promises notices it, and begins again with what still holds."""

from dataclasses import replace
from itertools import islice
from types import SimpleNamespace

import numpy as np
import pytest
from roles import UNWATCHED, classified, visitors

import kernel_bandits as kb
from kernel_bandits.learning.defaults import FALL_LIMIT as LIMIT
from kernel_bandits.learning.defaults import FIRST_TESTED_ROUND as FIRST_TESTED
from kernel_bandits.policy.short_list import Plays
from kernel_bandits.posterior.drift import FORGOTTEN, Trust


def at_round(round_index, regularization=0.25, **facts):
    """Return what a test of residuals looks at in a posterior."""
    known = {"unit": 1.0, "is_provisional": False, "kernel_changes": (), **facts}
    return SimpleNamespace(round_index=round_index, regularization=regularization, **known)


def trust_after(residuals, trust=None, first=FIRST_TESTED):
    """Return the trust after rewards that miss their predictions by so many standard deviations."""
    trust = trust or Trust()
    for place, z in enumerate(residuals):
        trust = trust.after(2.0 + 0.5 * z, 2.0, 0.0, at_round(first + place))
    return trust


def test_rewards_that_stay_below_lose_the_trust_in_what_came_before():
    holds = trust_after([0.1, -0.2, 0.3] * 10)
    lost = trust_after([-2.0] * 9, holds, first=FIRST_TESTED + 30)
    # Σ(2 − 0.5) after nine exceeds the limit, after eight it does not
    assert 8 * 1.5 <= LIMIT < 9 * 1.5
    assert holds.changed_at is None
    assert trust_after([-2.0] * 8, holds, first=FIRST_TESTED + 30).changed_at is None
    assert lost.changed_at == FIRST_TESTED + 30
    assert lost.again().since == FIRST_TESTED + 30
    assert lost.again().changed_at is None


def test_the_more_there_is_to_lose_the_longer_it_takes():
    seen = 1_000_000
    holds = Trust(test=replace(Trust().test, count=seen))
    needed = next(n for n in range(1, 100) if trust_after([-1.0] * n, holds).changed_at is not None)
    assert (needed - 1) * 0.5 <= 2.0 * np.log(seen + needed) < needed * 0.5


def test_a_model_that_holds_is_kept():
    """Rewards of two values, nine of ten the higher one, are the worst case: their residuals are skewed downwards."""
    generator, trust, facts = np.random.default_rng(0), Trust(), at_round(FIRST_TESTED, 0.09)
    for _ in range(300_000):
        trust = trust.after(float(generator.random() < 0.9), 0.9, 0.0, facts)
        facts.round_index += 1
        assert trust.changed_at is None


@pytest.mark.parametrize(("before", "lost"), [(13, True), (11, False)])
def test_a_fit_begins_the_test_again_unless_it_is_close_to_an_alarm(before, lost):
    facts, trust = at_round(FIRST_TESTED), Trust()
    # rewards one standard deviation short add 1 − 0.5 each; from half of the limit on the sum survives a fit
    assert (0.5 * before > 0.5 * LIMIT) == lost
    for number in range(before + 12):
        facts.kernel_changes = (None,) * (number >= before)
        trust = trust.after(1.5, 2.0, 0.0, facts)
        facts.round_index += 1
    assert (trust.changed_at is not None) == lost


def test_rewards_above_their_predictions_cost_nothing():
    assert trust_after([3.0] * 500).changed_at is None


def test_the_first_observations_are_not_tested():
    assert trust_after([-3.0] * FIRST_TESTED, first=0).changed_at is None
    # nor are the first ones after a fall
    assert trust_after([-3.0] * FIRST_TESTED, Trust(since=100), first=100).changed_at is None
    provisional = at_round(1000, is_provisional=True)
    trust = Trust()
    for _ in range(100):
        trust = trust.after(-100.0, 0.0, 0.0, provisional)
    assert trust == Trust()


def test_weights_of_what_no_longer_counts():
    assert Trust().weights(None, 5) is None
    assert Trust(since=2).weights(None, 4).tolist() == [FORGOTTEN, FORGOTTEN, 1.0, 1.0]
    given = np.array([2.0, 1e-12, 3.0])
    assert Trust(since=2).weights(given, 3).tolist() == [FORGOTTEN, 1e-12, 3.0]
    assert given[0] == 2.0


@pytest.mark.parametrize("delay", [0, 20])
def test_a_default_that_loses_recovers(delay):
    """Where every arm takes the role of another, what was learned is worse than chance."""
    stays, falls = (
        np.mean([classified(kb.ek_ucb(**each, seed=seed), 4, 500, 250, seed, delay)[330:] for seed in range(2)])
        for each in ({"learn_kernel": UNWATCHED}, {})
    )
    assert falls > 0.7
    assert stays < 0.5


@pytest.mark.parametrize("preset", [kb.k_ucb, kb.thompson_sampling, kb.inverse_gap_weighting])
def test_other_learned_policies_recover_too(preset):
    right = classified(preset(seed=0), 3, 420, 220, 0)
    assert right[320:].mean() > 0.6


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_where_nothing_changes_nothing_is_dropped(seed):
    expected = classified(kb.ek_ucb(learn_kernel=UNWATCHED, seed=seed), 12, 450, np.inf, seed)
    watched = kb.ek_ucb(seed=seed)
    np.testing.assert_array_equal(classified(watched, 12, 450, np.inf, seed), expected)
    assert watched.diagnostics().trusted_since == 0


def fallen(preset=kb.ek_ucb, more=0):
    """Return a policy that has just fallen back, or some rounds later."""
    policy, left = preset(seed=0), None
    for context, best in islice(visitors(4, 200, 0), 300):
        decision = policy.select(context, np.eye(4))
        policy.update(context, decision.action, float(decision.index == best))
        if left is None and policy.posterior.trusted_since:
            left = more
        if left == 0:
            return policy
        left = None if left is None else left - 1
    raise AssertionError("it did not fall back")


@pytest.mark.parametrize("more", [0, 30])
def test_what_was_dropped_no_longer_counts(more):
    posterior = fallen(kb.k_ucb, more).posterior
    since, points = posterior.trusted_since, posterior.observed_points
    assert 195 <= since < len(points) == posterior.round_index
    # the same kernel and λ with the trusted observations alone
    kept, rewards = points[since:], posterior.observed_rewards[since:]
    twin = posterior.learner.build(posterior.kernel, posterior.regularization, 0)
    twin = twin.learned(kept, rewards - posterior.prior_mean)
    expected, found = twin.predict(points), posterior.predict(points)
    np.testing.assert_allclose(found.mean - posterior.prior_mean, expected.mean, atol=1e-6)
    np.testing.assert_allclose(found.std, expected.std, rtol=1e-6)


def test_anchors_stand_for_what_still_counts():
    posterior = fallen(more=30).posterior
    since = posterior.trusted_since
    assert posterior.observed_weights[:since].max() <= FORGOTTEN
    assert (posterior.observed_weights[since:] == 1.0).all()
    points, centred = posterior.observed_points, posterior.observed_rewards - posterior.prior_mean
    exact = kb.posterior.ExactPosterior(posterior.kernel, posterior.regularization)
    exact = exact.learned(points[since:], centred[since:])
    expected, found = exact.predict(points), posterior.predict(points)
    # up to what the anchors leave out
    assert np.corrcoef(found.mean, expected.mean)[0, 1] > 0.98
    assert np.corrcoef(found.std, expected.std)[0, 1] > 0.98


def test_it_learns_again_as_from_the_start():
    policy = fallen()
    since = policy.diagnostics().trusted_since
    changes = len(policy.diagnostics().kernel_changes)
    generator = np.random.default_rng(1)
    for _ in range(100):
        context = generator.standard_normal(6)
        decision = policy.select(context, np.eye(4))
        policy.update(context, decision.action, float(decision.index == int(context[0] > 0)))
    rounds = [change.round_index - since for change in policy.diagnostics().kernel_changes[changes:]]
    # at shorter intervals than a policy of 500 rounds would
    assert len(rounds) >= 3
    assert rounds[0] < 40


def test_it_is_said_and_saved(tmp_path):
    policy = fallen()
    state = policy.diagnostics()
    assert any(f"observation {state.trusted_since}" in warning for warning in state.warnings)
    policy.save(tmp_path / "policy")
    twin = kb.load(tmp_path / "policy")
    assert twin.diagnostics().trusted_since == state.trusted_since
    generator = np.random.default_rng(2)
    for _ in range(60):
        context, reward = generator.standard_normal(6), float(generator.random() < 0.5)
        one, other = policy.select(context, np.eye(4)), twin.select(context, np.eye(4))
        assert one.index == other.index
        assert one.upper_bound == other.upper_bound
        policy.update(context, one.action, reward)
        twin.update(context, other.action, reward)


def test_warnings_say_what_will_happen():
    """Before a fall the default says that it will start again; one that may not names what does."""
    words = {}
    for name, options in {
        "default": {},
        "never": {"learn_kernel": UNWATCHED},
        "restart": {"forgetting": kb.Restart(limit=100.0)},
        "window": {"forgetting": kb.Window(10_000)},
    }.items():
        policy, found = kb.ek_ucb(seed=0, **options), set()
        for context, best in islice(visitors(4, 200, 0), 230):
            decision = policy.select(context, np.eye(4))
            policy.update(context, decision.action, float(decision.index == best))
            found.update(policy.diagnostics().warnings)
        words[name] = " ".join(sorted(found))
    assert "the policy drops what came before and starts again" in words["default"]
    assert "forgetting=kernel_bandits.Restart()" in words["never"]
    assert "what came before is dropped" in words["restart"]
    assert "shorter half-life" in words["window"]


def test_the_warning_of_a_fall_ends():
    policy = fallen()
    since, generator = policy.posterior.trusted_since, np.random.default_rng(1)
    while policy.round_index < 2 * since - 1:
        policy.update(generator.standard_normal(6), np.eye(4)[0], 0.0)
    assert any("no longer counts" in warning for warning in policy.diagnostics().warnings)
    policy.update(generator.standard_normal(6), np.eye(4)[0], 0.0)
    assert not any("no longer counts" in warning for warning in policy.diagnostics().warnings)


def test_bad_switches_are_named():
    with pytest.raises(kb.InputError, match="fall_back: expected True or False"):
        kb.KernelLearning(fall_back="no")


def test_pending_decisions_survive_a_fall():
    policy = kb.ek_ucb(seed=0)
    right = classified(policy, 4, 400, 200, 0, delay=20)
    assert policy.diagnostics().trusted_since > 0
    assert len(policy.pending) == 20
    assert right[340:].mean() > 0.5


def test_rewards_that_are_all_equal_after_a_fall_are_expected_as_they_are():
    policy, generator = kb.ek_ucb(seed=0), np.random.default_rng(0)
    for t in range(260):
        context = generator.standard_normal(3)
        decision = policy.select(context, np.eye(2))
        policy.update(context, decision.action, float(decision.index == int(context[0] > 0)) if t < 200 else -1.0)
    assert policy.diagnostics().trusted_since >= 195
    assert policy.diagnostics().prior_mean == pytest.approx(-1.0)
    np.testing.assert_allclose(policy.predict(np.zeros(3), np.eye(2)).mean, -1.0, atol=1e-6)


def test_a_fall_in_far_columns_is_learned_from():
    """A column that grows for ever is far from where it was when the policy was set up."""
    policy, generator = kb.ek_ucb(seed=0), np.random.default_rng(0)
    for t in range(260):
        context = np.append(generator.standard_normal(3), 1e7 * t)
        decision = policy.select(context, np.eye(2))
        policy.update(context, decision.action, float(decision.index == int(context[0] > 0)) if t < 200 else -1.0)
    assert policy.round_index == 260
    assert policy.diagnostics().trusted_since >= 195


def test_a_fall_that_cannot_be_computed_leaves_the_model(monkeypatch):
    policy = kb.ek_ucb(seed=0)
    # what the columns are is noted before the first reward
    policy.update(np.zeros(6), policy.select(np.zeros(6), np.eye(4)).action, 0.0)

    def fails(*_):
        raise kb.InputError("kernel: far too large")

    monkeypatch.setattr(type(policy.posterior.learner), "look_again", fails)
    for context, best in islice(visitors(4, 150, 0), 260):
        decision = policy.select(context, np.eye(4))
        policy.update(context, decision.action, float(decision.index == best))
    state = policy.diagnostics()
    assert policy.round_index == 261
    assert state.trusted_since == 0
    assert any("far too large" in warning for warning in state.warnings)


def test_a_design_and_forced_plays_begin_again():
    posterior = fallen(more=5).posterior
    plays = Plays(posterior, 6)
    assert sum(plays._count().values()) == posterior.round_index - posterior.trusted_since
    # a box: after the fall the settings fill it again
    policy, box, generator = kb.ek_ucb(seed=0), kb.Box([0.0, 0.0], [1.0, 1.0]), np.random.default_rng(0)
    walls = []
    for t in range(140):
        decision = policy.select(np.empty(0), box)
        peak = (0.3, 0.6) if t < 100 else (0.8, 0.2)
        reward = 5.0 * np.exp(-20.0 * ((decision.action - peak) ** 2).sum()) - 5.0 * (t >= 100)
        policy.update(np.empty(0), decision.action, float(reward + 0.1 * generator.standard_normal()))
        if policy.posterior.trusted_since and len(walls) < 8:
            walls.append(bool(np.isin(policy.posterior.observed_points[-1], (0.0, 1.0)).any()))
    assert len(walls) == 8
    assert sum(walls) <= 2


def test_given_kernels_and_streams_without_history_stay():
    given = kb.ek_ucb(kb.Gaussian(1.0), learn_kernel=True, regularization=0.1, seed=0)
    free = kb.ek_ucb(dictionary=kb.Kors(history="none"), seed=0)
    for policy in (given, free):
        classified(policy, 3, 300, 150, 0)
        assert policy.diagnostics().trusted_since == 0
