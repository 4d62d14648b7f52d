"""Forgetting: equality with dense weighted regressions, bounded memory, late rewards, a moving optimum."""

import numpy as np
import pytest
from roles import classified
from test_weights import generalised_least_squares

import kernel_bandits as kb
from kernel_bandits.drift import residual
from kernel_bandits.kernels.composite import Timed
from kernel_bandits.learning.defaults import FIRST_TESTED_ROUND as FIRST_TESTED
from kernel_bandits.learning.defaults import LARGEST_RESIDUAL as LARGEST
from kernel_bandits.numerics.linalg import safe_sqrt

KERNEL, RIDGE = kb.Matern(0.5), 0.2
RULES = [kb.Kors(), kb.PosteriorVariance(), kb.Resampling(), kb.Kors(history="none")]


def play(policy, rounds, seed=0, late=False):
    generator = np.random.default_rng(seed)
    for _ in range(rounds):
        context, action = generator.random(1), generator.random((1, 1))
        reward = float(np.sin(6.0 * action[0, 0]) + context[0])
        if late:
            policy.tell(policy.ask(context, action).id, reward)
        else:
            policy.update(context, action[0], reward)
    return policy


def queries():
    return np.random.default_rng(5).random((9, 2))


def dense_exact(kernel, points, rewards, weights, places):
    solved = np.linalg.solve(kernel(points) + np.diag(RIDGE / weights), kernel(points, places))
    variance = kernel.diag(places) - (kernel(points, places) * solved).sum(axis=0)
    return solved.T @ rewards, variance


def fallen(posterior, half_life):
    """Weights by the definition: 2^(−age/half-life) at the last renewal, and 1 since."""
    rounds = posterior.round_index
    renewed = rounds - rounds % posterior.forgetting.step
    times = np.arange(rounds - len(posterior.observed_points), rounds)
    return np.exp2(-np.maximum(renewed - times, 0) / half_life)


@pytest.mark.parametrize("late", [False, True])
def test_a_discounted_exact_posterior_is_the_weighted_regression(late):
    policy = play(kb.k_ucb(KERNEL, regularization=RIDGE, forgetting=kb.Discount(20.0), seed=0), 110, late=late)
    posterior = policy.posterior
    weights = fallen(posterior, 20.0)
    np.testing.assert_allclose(posterior.observed_weights, weights, rtol=1e-12)
    assert weights.min() < 0.05
    mean, variance = dense_exact(KERNEL, posterior.observed_points, posterior.observed_rewards, weights, queries())
    np.testing.assert_allclose(posterior.predict(queries()).mean, mean, rtol=0, atol=1e-8)
    np.testing.assert_allclose(posterior.predict(queries()).std ** 2, variance, rtol=0, atol=1e-8)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{type(rule).__name__}-{rule.history}")
@pytest.mark.parametrize("forgetting", [kb.Discount(20.0), kb.Window(50)], ids=lambda each: type(each).__name__)
def test_a_projected_posterior_is_the_weighted_regression_on_its_anchors(rule, forgetting):
    policy = play(kb.ek_ucb(KERNEL, regularization=RIDGE, dictionary=rule, forgetting=forgetting, seed=0), 112)
    if rule.history == "none":
        # between renewals the past has nothing in new directions; right after one it is projected on all anchors
        play(policy, -policy.round_index % forgetting.step)
    posterior, places = policy.posterior, queries()
    points, rewards = posterior.observed_points, posterior.observed_rewards
    weights = posterior.observed_weights
    anchors = posterior.dictionary_points
    factor = np.linalg.cholesky(KERNEL(anchors))
    features, at = (np.linalg.solve(factor, KERNEL(anchors, each)).T for each in (points, places))
    residual = KERNEL.diag(places) - (at**2).sum(axis=1)
    mean, variance, log_determinant, _ = generalised_least_squares(
        features, np.zeros(len(points)), rewards, weights, at, residual
    )
    np.testing.assert_allclose(posterior.predict(places).mean, mean, rtol=0, atol=1e-8)
    np.testing.assert_allclose(posterior.predict(places).std ** 2, np.maximum(variance, 0), rtol=0, atol=1e-8)
    assert posterior.log_determinant == pytest.approx(log_determinant, abs=1e-8)


@pytest.mark.parametrize("make", [kb.k_ucb, kb.ek_ucb])
def test_a_window_forgets_what_is_older(make):
    policy = play(make(KERNEL, regularization=RIDGE, forgetting=kb.Window(40), seed=0), 200)
    assert 40 <= len(policy.posterior.observed_points) <= 46
    assert policy.round_index == 200
    assert policy.diagnostics().observations == 200


@pytest.mark.parametrize("late", [False, True])
def test_a_kernel_in_time_is_the_dense_regression_on_points_with_their_time(late):
    policy = play(kb.k_ucb(KERNEL, regularization=RIDGE, forgetting=kb.Wander(30.0), seed=0), 80, late=late)
    posterior, now = policy.posterior, 80
    points = np.column_stack([posterior.observed_points, np.arange(now - len(posterior.observed_points), now)])
    places = np.column_stack([queries(), np.full(9, now)])
    mean, variance = dense_exact(Timed(KERNEL, 30.0), points, posterior.observed_rewards, np.ones(len(points)), places)
    np.testing.assert_allclose(posterior.predict(queries()).mean, mean, rtol=0, atol=1e-8)
    np.testing.assert_allclose(posterior.predict(queries()).std, safe_sqrt(variance), rtol=0, atol=1e-8)


def test_the_gradient_of_a_kernel_in_time_is_that_of_the_kernel():
    generator = np.random.default_rng(0)
    X, Y, weights = generator.random((4, 3)), generator.random((5, 3)), generator.standard_normal((4, 5))
    kernel, step = Timed(KERNEL, 0.7), 1e-6
    gradient = kernel.gradient(X, Y, weights)
    for column in range(3):
        shift = step * np.eye(3)[column]
        numeric = ((kernel(X + shift, Y) - kernel(X - shift, Y)) * weights).sum(axis=1) / (2 * step)
        np.testing.assert_allclose(gradient[:, column], numeric, atol=1e-6)


@pytest.mark.parametrize(
    "forgetting", [kb.Discount(30.0), kb.Window(60), kb.Wander(30.0)], ids=lambda f: type(f).__name__
)
def test_memory_is_bounded_and_a_saved_policy_goes_on(forgetting, tmp_path):
    policy = play(kb.ek_ucb(KERNEL, regularization=RIDGE, forgetting=forgetting, seed=0), 300)
    early = policy.diagnostics().memory_bytes
    play(policy, 500, seed=1)
    assert policy.diagnostics().memory_bytes <= 1.2 * early
    assert len(policy.posterior.observed_points) <= forgetting.memory + forgetting.step
    policy.save(tmp_path / "policy.kb")
    other = kb.load(tmp_path / "policy.kb")
    for each in (policy, other):
        play(each, 20, seed=2)
    np.testing.assert_array_equal(policy.posterior.predict(queries()).mean, other.posterior.predict(queries()).mean)


def test_a_learned_kernel_is_learned_from_what_is_left():
    policy = kb.ek_ucb(forgetting=kb.Window(64), seed=0)
    generator = np.random.default_rng(0)
    for t in range(200):
        context, action = generator.random(1), generator.random(1)
        level = 0.0 if t < 100 else 40.0
        policy.update(context, action, level + np.sin(6.0 * action[0]) + 0.1 * generator.standard_normal())
    assert policy.posterior.prior_mean == pytest.approx(40.0, abs=2.0)
    assert policy.predict([0.5], [[0.25]]).mean[0] == pytest.approx(40.0 + np.sin(1.5), abs=0.5)


def moving_regret(forgetting, moves, rounds=400):
    policy = kb.ek_ucb(kb.Gaussian(0.2), regularization=0.05, forgetting=forgetting, seed=0)
    generator, actions, total = np.random.default_rng(0), np.linspace(0, 1, 11)[:, None], 0.0
    for t in range(rounds):
        centre = 0.5 + 0.5 * np.sin(2 * np.pi * t / rounds) if moves else 0.3
        expected = np.exp(-((actions[:, 0] - centre) ** 2) / 0.05)
        decision = policy.select([], actions)
        total += expected.max() - expected[decision.index]
        policy.update([], decision.action, expected[decision.index] + 0.1 * generator.standard_normal())
    return total


def test_forgetting_follows_a_moving_optimum():
    assert moving_regret(kb.Discount(25.0), True) < 0.5 * moving_regret(None, True)


def test_a_restart_loses_nothing_while_nothing_changes():
    # λ is larger than the noise, of which there is none
    policies = [
        play(kb.k_ucb(KERNEL, regularization=RIDGE, forgetting=rule, seed=0), 120) for rule in (None, kb.Restart())
    ]
    expected, actual = (policy.posterior.predict(queries()) for policy in policies)
    np.testing.assert_array_equal(actual.mean, expected.mean)
    np.testing.assert_array_equal(actual.std, expected.std)


@pytest.mark.parametrize("late", [False, True])
def test_a_restart_keeps_what_came_after_the_change(late):
    policy = kb.k_ucb(KERNEL, regularization=RIDGE, forgetting=kb.Restart(), seed=0)
    generator = np.random.default_rng(0)
    for t in range(140):
        action = generator.random(1)
        reward = float(np.sin(6 * action[0]) + 2.0 * (t < 100) + np.sqrt(RIDGE) * generator.standard_normal())
        if late:
            policy.tell(policy.ask([0.5], action[None, :]).id, reward)
        else:
            policy.update([0.5], action, reward)
    posterior = policy.posterior
    # the change is dated to the round, give or take a few
    assert 35 <= len(posterior.observed_points) <= 45
    assert posterior.round_index == 140
    ones = np.ones(len(posterior.observed_points))
    mean, variance = dense_exact(KERNEL, posterior.observed_points, posterior.observed_rewards, ones, queries())
    np.testing.assert_allclose(posterior.predict(queries()).mean, mean, rtol=0, atol=1e-8)
    np.testing.assert_allclose(posterior.predict(queries()).std ** 2, variance, rtol=0, atol=1e-8)


def test_late_rewards_of_what_was_played_before_a_change_do_not_count():
    policy = kb.k_ucb(KERNEL, regularization=RIDGE, forgetting=kb.Restart(), seed=0)
    generator = np.random.default_rng(0)
    early = [policy.ask([0.5], generator.random((1, 1))) for _ in range(30)]
    for t in range(140):
        action = generator.random(1)
        reward = np.sin(6 * action[0]) + 2.0 * (t < 100) + np.sqrt(RIDGE) * generator.standard_normal()
        policy.update([0.5], action, float(reward))
    observed, means = len(policy.posterior.observed_points), policy.posterior.predict(queries()).mean
    assert observed < 50
    for decision in early:
        policy.tell(decision.id, float(np.sin(6 * decision.action[0]) + 2.0))
    assert policy.round_index == 170
    assert policy.pending == ()
    assert len(policy.posterior.observed_points) == observed
    np.testing.assert_allclose(policy.posterior.predict(queries()).mean, means, rtol=0, atol=1e-9)


@pytest.mark.parametrize("make", [kb.k_ucb, kb.ek_ucb])
def test_late_weighted_rewards_of_what_was_played_before_a_change_do_not_count(make):
    policy = make(KERNEL, regularization=RIDGE, forgetting=kb.Restart(), seed=0)
    generator = np.random.default_rng(0)
    early = [policy.ask([0.5], generator.random((1, 1))) for _ in range(10)]
    for t in range(140):
        action = generator.random(1)
        reward = np.sin(6 * action[0]) + 2.0 * (t < 100) + np.sqrt(RIDGE) * generator.standard_normal()
        policy.update([0.5], action, float(reward))
    recent = policy.ask([0.5], generator.random((1, 1)))
    observed, means = len(policy.posterior.observed_points), policy.posterior.predict(queries()).mean
    assert observed < 50
    for decision in early:
        policy.tell(decision, 50.0, weight=4.0)
    assert len(policy.posterior.observed_points) == observed
    np.testing.assert_allclose(policy.posterior.predict(queries()).mean, means, rtol=0, atol=1e-9)
    policy.tell(recent, 0.5, weight=4.0)
    assert policy.posterior.observed_weights[-1] == 4.0
    assert policy.round_index == 151
    assert policy.pending == ()


@pytest.mark.parametrize("forgetting", [kb.Discount(8.0), kb.Window(30)], ids=lambda each: type(each).__name__)
def test_a_late_weighted_reward_is_as_old_as_its_decision(forgetting):
    plain, weighted = (kb.k_ucb(KERNEL, regularization=RIDGE, forgetting=forgetting, seed=0) for _ in range(2))
    generator, waiting, given = np.random.default_rng(0), [], {}
    for _ in range(80):
        context, action = generator.random(1), generator.random((1, 1))
        waiting.append([policy.ask(context, action) for policy in (plain, weighted)])
        if len(waiting) == 12:
            one, other = waiting.pop(int(generator.integers(12)))
            weight = given[one.action[0]] = float(generator.uniform(0.2, 5.0))
            plain.tell(one, 1.0)
            weighted.tell(other, 1.0, weight=weight)
    expected, actual = plain.posterior, weighted.posterior
    np.testing.assert_array_equal(actual.observed_points, expected.observed_points)
    assert len(actual.observed_points) < 69
    weights = [given[point[1]] for point in actual.observed_points]
    np.testing.assert_allclose(actual.observed_weights, weights * expected.observed_weights, rtol=1e-12)


def test_settled_decisions_leave_nothing_behind():
    policy = kb.k_ucb(KERNEL, regularization=RIDGE, forgetting=kb.Window(16), seed=0)
    play(policy, 60, late=True)
    assert policy.posterior._awaited_times == {}


class Moody(kb.Gaussian):
    """A kernel that cannot be computed between many points while it is in a bad mood."""

    bad_mood = False

    def __call__(self, X, Y=None):
        if Moody.bad_mood and len(X) > 1 and (Y is None or len(Y) > 1):
            raise kb.KernelBanditsError("not now")
        return super().__call__(X, Y)


def test_a_restart_that_fails_is_tried_again_with_the_next_reward(monkeypatch):
    policy = kb.ek_ucb(Moody(0.5), regularization=RIDGE, forgetting=kb.Restart(), seed=0)
    for _ in range(60):
        policy.update([0.5], [0.5], 0.0)
    monkeypatch.setattr(Moody, "bad_mood", True)
    for _ in range(20):
        policy.update([0.5], [0.5], 3.0)
    assert policy.predict([0.5], [[0.5]]).mean.item() < 2.0
    monkeypatch.setattr(Moody, "bad_mood", False)
    policy.update([0.5], [0.5], 3.0)
    assert policy.predict([0.5], [[0.5]]).mean.item() > 2.5
    assert policy.round_index == 81


def test_a_restart_follows_a_moving_optimum_and_costs_nothing_where_none_moves():
    assert moving_regret(kb.Restart(), True) < 0.5 * moving_regret(None, True)
    assert moving_regret(kb.Restart(), False) <= 1.1 * moving_regret(None, False)


def test_a_change_is_seen_and_said_in_words():
    policy = kb.ek_ucb(kb.Gaussian(0.3), regularization=0.05, seed=0)
    generator = np.random.default_rng(0)
    for t in range(300):
        action = generator.random(1)
        policy.update([], action, float(np.sin(6 * action[0]) - (t >= 200)) + 0.2 * generator.standard_normal())
        if t == 199:
            assert policy.diagnostics().warnings == ()
            assert policy.diagnostics().residual_mean_square == pytest.approx(1.0, abs=0.4)
    (warning,) = policy.diagnostics().warnings
    assert "below" in warning
    assert "Restart" in warning
    assert warning in str(policy.diagnostics())


def test_bad_forgetting_is_an_error():
    with pytest.raises(kb.InputError, match="half_life"):
        kb.Discount(0.0)
    with pytest.raises(kb.InputError, match="size"):
        kb.Window(0)
    with pytest.raises(kb.InputError, match="limit"):
        kb.Restart(limit=0.0)
    with pytest.raises(kb.InputError, match="Discount"):
        kb.ek_ucb(KERNEL, forgetting=100)
    with pytest.raises(kb.InputError, match="given and fixed"):
        kb.ek_ucb(forgetting=kb.Wander(10.0))


def test_residuals_count_from_the_first_tested_round_on():
    policy = kb.k_ucb(KERNEL, regularization=RIDGE, forgetting=kb.Restart(), seed=0)
    for number in range(FIRST_TESTED + 1):
        untouched = policy.posterior._test
        # far above what is predicted
        policy.update([0.5], [0.5], 100.0 * (number + 1))
        assert (policy.posterior._test.above > untouched.above) == (number >= FIRST_TESTED)


def test_a_residual_is_measured_in_standard_deviations_of_the_reward():
    # √(0.3² + 0.4²) = 0.5
    assert residual(1.4, 1.0, 0.3, 0.16) == pytest.approx(0.8)
    assert residual(0.4, 1.0, 0.3, 0.16) == pytest.approx(-1.2)
    assert residual(9.0, 1.0, 0.3, 0.16) == LARGEST


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_kernel_that_is_still_learned_is_no_change(seed):
    # many arms: for some hundred rounds the model is too sure of what it knows
    kept, restarted = kb.ek_ucb(seed=seed), kb.ek_ucb(forgetting=kb.Restart(), seed=seed)
    expected = classified(kept, 12, 450, np.inf, seed)
    np.testing.assert_array_equal(classified(restarted, 12, 450, np.inf, seed), expected)


def test_a_learned_policy_that_restarts_recovers_where_arms_change_their_roles():
    options = ({}, {"forgetting": kb.Restart()})
    stays, restarts = (
        np.mean([classified(kb.ek_ucb(**each, seed=seed), 4, 700, 400, seed)[450:] for seed in range(3)])
        for each in options
    )
    assert restarts > 0.7
    assert stays < 0.5


def test_residuals_of_a_model_that_is_too_sure_raise_no_alarm():
    generator, test = np.random.default_rng(0), kb.Restart().detector()
    for time, z in enumerate(np.clip(2.0 * generator.standard_normal(5_000), -LARGEST, LARGEST)):
        test = test.after(z, time)
        assert test.changed_at is None
    assert test.mean_square > 2.0


def test_another_kernel_begins_the_test_again():
    for limit, above, since in ((12.0, 0.5, 6), (4.0, 3.5, 0)):
        test = kb.Restart(limit=limit).detector()
        for time in range(6):
            test = test.after(1.0, time, kernel_changes=1)
        assert test.above == pytest.approx(3.0)
        # one that is close to an alarm goes on
        test = test.after(1.0, 6, kernel_changes=2)
        assert test.above == pytest.approx(above)
        assert test.above_since == since
        assert test.mean_square == 1.0
