"""A kernel that is given and may be left: for evidence, and not before."""

import numpy as np
import pytest
from test_learned import play

import kernel_bandits as kb


def test_one_observation_is_no_rival_to_a_given_kernel():
    learning = kb.KernelLearning(first_round=2, growth=50.0)
    posterior = kb.k_ucb(kb.Gaussian(1.0), regularization=0.01, learn_kernel=learning, seed=0).posterior
    posterior = posterior.updated(np.array([[0.1], [0.2]]), np.array([0.0, 30.0]))
    assert posterior.kernel_changes == ()


@pytest.mark.parametrize("start", [0.003, 30.0])
def test_a_bad_start_is_left_behind(start):
    policy = kb.ek_ucb(kb.Gaussian(start), learn_kernel=True, seed=0)
    play(policy, 130)
    lengthscales = policy.posterior.kernel.right.lengthscale
    assert 0.1 < lengthscales[0] < 2.0
    assert 0.1 < lengthscales[2] < 3.0


def test_a_given_kernel_that_is_right_is_kept():
    """Prequential evidence: at δ = 0.05 a truth is left in at most that share of runs; 30 runs of 130 rounds."""
    left = 0
    for seed in range(30):
        generator = np.random.default_rng(seed)
        points = generator.random((130, 2))
        covariance = kb.Gaussian(0.4)(points) + 1e-9 * np.eye(130)
        rewards = np.linalg.cholesky(covariance) @ generator.standard_normal(130) + 0.2 * generator.standard_normal(130)
        posterior = kb.ek_ucb(kb.Gaussian(0.4), regularization=0.04, learn_kernel=True, seed=seed).posterior
        left += bool(posterior.learned(points, rewards).kernel_changes)
    assert left <= 3


@pytest.mark.parametrize("refits", [1, 3])
@pytest.mark.parametrize("extra", [-0.01, 0.01])
def test_a_given_kernel_is_left_for_enough_nats_and_no_fewer(refits, extra, monkeypatch):
    """The k-th refit asks for log(k(k + 1)/0.05) nats, so that all of them together err with probability 0.05."""
    learner = kb.ek_ucb(kb.Gaussian(0.4), learn_kernel=True, seed=0).posterior.learner
    learner._refits = refits
    generator = np.random.default_rng(0)
    points, rewards, early = generator.random((20, 2)), generator.standard_normal(20), np.arange(20) < 10
    lead = np.log(refits * (refits + 1) / 0.05) + extra

    def score(kernel, variance, noise, points, rewards):
        del variance, noise, rewards
        return lead if len(points) == 20 and kernel is not learner.start.kernel else 0.0

    monkeypatch.setattr("kernel_bandits.learning.learners.log_marginal_likelihood", score)
    assert learner._is_outpredicted(learner.start, points, rewards, early) == (extra > 0)
