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
