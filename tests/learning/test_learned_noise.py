"""Noise that depends on context and action, learned from residuals."""

import numpy as np
import pytest

import kernel_bandits as kb
from kernel_bandits.learning.noise import NoiseModel

KERNEL = kb.Gaussian([0.5, 0.5])
ACTIONS = np.linspace(0.0, 1.0, 11)[:, None]


def variance(points):
    return 0.01 * 100.0 ** points[:, 0]


def played(seed, count=200, equal=False, **options):
    options = {"noise": kb.UnequalNoise()} | options
    policy, generator = kb.k_ucb(KERNEL, regularization=0.2, seed=seed, **options), np.random.default_rng(seed)
    for _ in range(count):
        context, action = generator.random(1), ACTIONS[generator.integers(11)]
        own = 0.2 if equal else variance(context[None, :])[0]
        reward = np.sin(4.0 * action[0]) + np.sqrt(own) * generator.standard_normal()
        policy.update(context, action, reward)
    return policy


def test_the_variance_is_found_within_a_factor():
    points = np.array([[0.1, 0.5], [0.5, 0.2], [0.9, 0.8]])
    ratios = [played(seed).posterior.noise.variances(points) / variance(points) for seed in range(8)]
    assert (np.abs(np.log(np.median(ratios, axis=0))) < np.log(2.0)).all()


def test_equal_noise_changes_nothing():
    varying = 0
    for seed in range(10):
        policy, plain = played(seed, 100, equal=True), played(seed, 100, equal=True, noise=None)
        if policy.posterior.noise.posterior is not None:
            varying += 1
            continue
        np.testing.assert_allclose(policy.predict([0.3], ACTIONS).mean, plain.predict([0.3], ACTIONS).mean, atol=1e-9)
    assert varying <= 2


@pytest.mark.parametrize("options", [{}, {"forgetting": kb.Discount(100)}], ids=["all", "discounted"])
def test_rewards_are_weighted_by_it(options):
    posterior = played(3, **options).posterior
    weights, points, rewards = posterior.observed_weights, posterior.observed_points, posterior.observed_rewards
    if not options:
        np.testing.assert_allclose(weights, 0.2 / posterior.noise.variances(points))
    at = np.column_stack([np.full(11, 0.4), ACTIONS])
    system = KERNEL(points) + np.diag(0.2 / weights)
    np.testing.assert_allclose(
        posterior.predict(at).mean, KERNEL(at, points) @ np.linalg.solve(system, rewards), atol=1e-8
    )


def test_it_is_kept_in_a_file_and_a_known_weight_counts(tmp_path):
    policy = played(1, 60)
    policy.save(tmp_path / "policy.kb")
    loaded = kb.load(tmp_path / "policy.kb")
    for one in (policy, loaded):
        one.update([0.9], [0.5], 1.0, noise_variance=1e-4)
        assert one.posterior.observed_weights[-1] == pytest.approx(2000.0)
    assert loaded.predict([0.9], ACTIONS).mean.tolist() == policy.predict([0.9], ACTIONS).mean.tolist()


def test_a_box_with_nothing_set_and_late_rewards_learns_it_too():
    policy, generator, box = kb.ek_ucb(noise=kb.UnequalNoise(), seed=0), np.random.default_rng(0), kb.Box(0.0, 1.0)
    for _ in range(15):
        for decision in policy.ask_many([[], [], [], []], box)[::-1]:
            at = decision.action[0]
            policy.tell(decision, -20.0 * (at - 0.3) ** 2 + (0.1 + at) * generator.standard_normal())
    assert abs(policy.best([], box).action[0] - 0.3) < 0.1
    with pytest.raises(kb.InputError, match="UnequalNoise"):
        kb.ek_ucb(noise=0.1)


def test_zeros_that_are_predicted_exactly_are_not_noise_of_nothing():
    generator = np.random.default_rng(0)
    points = generator.random((30, 2))
    rewards = np.where(points[:, 0] > 0.8, 50.0 * generator.standard_normal(30), 0.0)
    # before a kernel is learned all expected rewards are 0
    model = kb.posterior.ExactPosterior(KERNEL, 0.2).learned(points, np.zeros(30))
    found = NoiseModel.of(model, points, rewards, np.ones(30), most=400)
    variances = found.variances(points)
    assert variances.max() <= 1e9 * variances.min()
    assert variances[rewards != 0.0].mean() > variances[rewards == 0.0].mean()
