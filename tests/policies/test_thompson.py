"""Draws from the posterior, and propensities that are what they say."""

import numpy as np
import pytest
from scipy import stats
from sklearn.gaussian_process import GaussianProcessRegressor

import kernel_bandits as kb
from kernel_bandits.posterior.base import JOINT_POINTS, draw_deviations

ACTIONS = np.linspace(0, 1, 6)[:, None]
CONTEXT = np.array([0.3])


def learned(policy, count=25):
    generator = np.random.default_rng(1)
    for _ in range(count):
        context, action = generator.random(1), generator.random(1)
        policy.update(context, action, np.sin(5 * action[0]) * context[0] + 0.1 * generator.normal())
    return policy


POSTERIORS = {
    "nystrom": lambda: kb.ek_ucb(kb.Gaussian(0.3), dictionary=kb.Kors(max_size=6), seed=0),
    "history-free": lambda: kb.ek_ucb(kb.Gaussian(0.3), dictionary=kb.Kors(history="none"), seed=0),
    "exact": lambda: kb.k_ucb(kb.Gaussian(0.3), seed=0),
    "linear": lambda: kb.lin_ucb(seed=0),
}


@pytest.mark.parametrize("name", POSTERIORS)
@pytest.mark.parametrize("pending", [0, 3])
def test_the_covariance_is_that_of_a_gaussian_process(name, pending):
    """Conditioning on one point more is what the covariance says it is, and its diagonal is std²."""
    policy = learned(POSTERIORS[name]())
    for _ in range(pending):
        policy.ask(CONTEXT, ACTIONS)
    posterior = policy.posterior
    points = np.hstack([np.full((6, 1), 0.3), ACTIONS])
    evaluation = posterior.evaluate(points)
    covariance = posterior.covariance(points, evaluation)
    np.testing.assert_allclose(np.diagonal(covariance), evaluation.std**2, rtol=0, atol=1e-12)
    np.testing.assert_allclose(covariance, covariance.T, rtol=0, atol=1e-12)
    assert np.linalg.eigvalsh(covariance).min() > -1e-10
    if name in ("exact", "linear"):
        # var(s | t) = var(s) − cov(s, t)²/(var(t) + λ)
        expected = evaluation.std**2 - covariance[2] ** 2 / (covariance[2, 2] + posterior.regularization)
        posterior = posterior.updated(points[2], 0.0)
        np.testing.assert_allclose(posterior.evaluate(points).std ** 2, expected, rtol=0, atol=1e-10)


def test_the_exact_covariance_is_that_of_scikit_learn():
    policy = learned(kb.k_ucb(kb.Gaussian(0.3), seed=0))
    kb.register_with_scikit_learn()
    peer = GaussianProcessRegressor(kb.Gaussian(0.3), alpha=0.1, optimizer=None)
    peer.fit(policy.observed_points, policy.posterior.observed_rewards)
    points = np.hstack([np.full((6, 1), 0.3), ACTIONS])
    _, expected = peer.predict(points, return_cov=True)
    ours = policy.posterior.covariance(points, policy.posterior.evaluate(points))
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", POSTERIORS)
def test_draws_have_the_covariance(name):
    posterior = learned(POSTERIORS[name]()).posterior
    points = np.hstack([np.full((6, 1), 0.3), ACTIONS])
    evaluation = posterior.evaluate(points)
    draws = draw_deviations(posterior, points, evaluation, 40_000, np.random.default_rng(0))
    expected = posterior.covariance(points, evaluation)
    scale = expected.diagonal().max()
    # a standard error of the sample covariance is at most √(2/n) of the variance; six of them
    np.testing.assert_allclose(np.cov(draws.T), expected, rtol=0, atol=6 * scale * np.sqrt(2 / 40_000))
    assert np.abs(draws.mean(axis=0)).max() < 6 * np.sqrt(scale / 40_000)


def test_many_points_are_drawn_in_blocks_with_the_right_marginals():
    posterior = learned(POSTERIORS["nystrom"]()).posterior
    points = np.random.default_rng(0).random((JOINT_POINTS + 50, 2))
    evaluation = posterior.evaluate(points)
    draws = draw_deviations(posterior, points, evaluation, 2000, np.random.default_rng(0))
    ratio = draws.std(axis=0) / evaluation.std
    assert np.abs(ratio - 1).max() < 6 * np.sqrt(1 / 4000)


def test_actions_are_played_as_often_as_they_win_a_draw():
    policy = learned(kb.thompson_sampling(kb.Gaussian(0.3), number_of_draws=7, seed=0))
    points = np.hstack([np.full((6, 1), 0.3), ACTIONS])
    evaluation = policy.posterior.evaluate(points)
    draws = evaluation.mean + draw_deviations(policy.posterior, points, evaluation, 200_000, np.random.default_rng(3))
    wins = np.bincount(draws.argmax(axis=1), minlength=6) / 200_000
    decisions = [policy.select(CONTEXT, ACTIONS) for _ in range(4000)]
    played = np.bincount([decision.index for decision in decisions], minlength=6)
    likely = wins > 0.002
    assert (
        stats.chisquare(played[likely], 4000 * wins[likely] / wins[likely].sum() * played[likely].sum() / 4000).pvalue
        > 1e-6
    )
    # given the draws, the propensity is exact: 1/propensity counts the actions that win at all
    assert {round(7 * decision.propensity, 9) % 1 for decision in decisions} == {0.0}
    weights = np.array([1 / decision.propensity for decision in decisions])
    assert 1.0 <= weights.mean() <= 6.0


def test_thompson_sampling_learns():
    policy = kb.thompson_sampling(kb.Gaussian(0.1), regularization=0.01, number_of_draws=10, seed=0)
    environment = kb.environments.Chessboard()
    ours = kb.run(policy, environment, horizon=600, seed=0).regret[-1]
    blind = kb.run(kb.uniform(seed=0), environment, horizon=600, seed=0).regret[-1]
    assert ours < 0.35 * blind


def test_the_mixture_around_ucb_has_the_propensities_it_reports():
    policy = learned(kb.ek_ucb(kb.Gaussian(0.3), exploration_floor=0.3, seed=0))
    decisions = [policy.select(CONTEXT, ACTIONS) for _ in range(6000)]
    greedy = learned(kb.ek_ucb(kb.Gaussian(0.3), seed=0)).select(CONTEXT, ACTIONS).index
    expected = np.full(6, 0.3 / 6)
    expected[greedy] += 0.7
    played = np.bincount([decision.index for decision in decisions], minlength=6)
    assert stats.chisquare(played, 6000 * expected).pvalue > 1e-6
    for decision in decisions[:200]:
        assert decision.propensity == pytest.approx(expected[decision.index])
    # inverse propensity weights recover the value of uniform play
    values = np.arange(6.0)
    estimate = np.mean([values[decision.index] / decision.propensity / 6 for decision in decisions])
    assert estimate == pytest.approx(values.mean(), abs=6 * np.sqrt(25 * 3.4 / 6000))


def test_ties_share_the_propensity():
    policy = kb.k_ucb(kb.Gaussian(0.3), exploration_floor=0.2, seed=0)
    for decision in (policy.select(CONTEXT, ACTIONS) for _ in range(50)):
        assert decision.propensity == pytest.approx(1 / 6)
    assert kb.k_ucb(kb.Gaussian(0.3), seed=0).select(CONTEXT, ACTIONS).propensity is None
    assert kb.uniform(seed=0).select(CONTEXT, ACTIONS).propensity == pytest.approx(1 / 6)


@pytest.mark.parametrize("rate", [-0.1, 1.5, "often", np.nan])
def test_rates_that_are_no_probability(rate):
    with pytest.raises(kb.InputError, match="exploration_floor: expected a probability"):
        kb.ek_ucb(kb.Gaussian(0.3), exploration_floor=rate)


def test_many_decisions_carry_their_propensity():
    policy = learned(kb.ek_ucb(kb.Gaussian(0.3), exploration_floor=0.5, seed=0))
    decisions = policy.select_many(np.full((40, 1), 0.3), ACTIONS)
    assert {round(decision.propensity, 6) for decision in decisions} == {round(0.5 / 6, 6), round(0.5 / 6 + 0.5, 6)}


@pytest.mark.parametrize("copies", [1, 2, 5])
def test_equal_actions_share_the_draws_that_they_win(copies):
    """The propensity is the mean over draws of 1/(number of winners), so copies of one action share its probability."""
    policy = kb.thompson_sampling(kb.Gaussian(0.5), number_of_draws=1000, seed=0)
    for action in (0.0, 0.2):
        policy.update([], [action], 1.0)
    alone = np.full((copies, 1), 0.1)
    assert policy.select([], alone).propensity == pytest.approx(1.0 / copies)
    # beside another action, what all of them are given is a probability
    given = {}
    for _ in range(40):
        decision = policy.select([], np.concatenate([alone, [[0.9]]]))
        given[decision.index] = decision.propensity
    assert len(given) == copies + 1
    assert sum(given.values()) == pytest.approx(1.0, abs=0.1)


def test_actions_of_which_all_is_known_share_the_draws():
    """A linear function is 0 at the origin, whatever its slopes: no draw differs from another there."""
    policy = kb.thompson_sampling(kb.Linear(), number_of_draws=10, seed=0)
    decision = policy.select([0.0], [[0.0], [0.0]])
    assert (decision.mean, decision.std, decision.propensity) == (0.0, 0.0, 0.5)


@pytest.mark.parametrize("named", [True, False])
def test_with_nothing_set_the_kernel_is_learned(named):
    generator = np.random.default_rng(0)
    policy, actions = kb.thompson_sampling(seed=0), np.eye(3) if named else generator.normal(size=(4, 2))
    for _ in range(40):
        context = generator.normal(size=2)
        decision = policy.select(context, actions)
        policy.update(context, decision.action, float(context @ decision.action[:2]) + 0.1 * generator.normal())
    assert policy.posterior.kernel_changes
    assert decision.probabilities.sum() == pytest.approx(1.0, abs=1e-12)
