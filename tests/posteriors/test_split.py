"""One posterior per arm is the posterior of a kernel by which arms share nothing."""

import numpy as np
import pytest
from observing import await_each, learn, settle

import kernel_bandits as kb
from kernel_bandits.posterior import ExactPosterior, SplitPosterior

KERNEL = kb.PerArm(kb.Mixed(0.2, 0.5, 1.0), 2)


def split():
    return SplitPosterior(KERNEL, 0.1, lambda kernel, regularization, _number: ExactPosterior(kernel, regularization))


def log(count, seed=0):
    generator = np.random.default_rng(seed)
    points = np.hstack([generator.normal(size=(count, 2)), np.eye(3)[generator.integers(3, size=count)]])
    return points, generator.normal(size=count)


def assert_equal(one, other):
    points, _ = log(20, seed=9)
    np.testing.assert_allclose(one.predict(points).mean, other.predict(points).mean, atol=1e-9)
    np.testing.assert_allclose(one.predict(points).std, other.predict(points).std, atol=1e-9)
    covariances = [each.covariance(points, each.evaluate(points)) for each in (one, other)]
    np.testing.assert_allclose(*covariances, atol=1e-9)
    for quantity in ("log_determinant", "effective_dimension", "round_index", "dimension", "dictionary_size"):
        assert getattr(one, quantity) == pytest.approx(getattr(other, quantity), abs=1e-8)


@pytest.mark.parametrize("at_once", [True, False])
def test_it_is_the_posterior_of_its_kernel(at_once):
    points, rewards = log(30)
    one, other = (
        fresh.learned(points, rewards) if at_once else learn(fresh, points, rewards)
        for fresh in (split(), ExactPosterior(KERNEL, 0.1))
    )
    assert_equal(one, other)
    np.testing.assert_array_equal(one.observed_points, points)
    np.testing.assert_array_equal(one.observed_rewards, rewards)


def test_late_rewards_are_learned_alike():
    points, rewards = log(20)
    found = []
    for posterior in (split(), ExactPosterior(KERNEL, 0.1)):
        late = await_each(posterior, points)
        for key in (3, 1, 15, 7):
            late = settle(late, key, points, rewards)
        found.append(late.abandoned([2]))
    assert_equal(*found)


def test_an_arm_never_played_has_the_prior():
    posterior = split()
    point = np.array([0.3, -0.2, 0.0, 0.0, 1.0])
    assert posterior.predict(point[None, :]).std[0] == pytest.approx(KERNEL.diag(point[None, :])[0] ** 0.5)


def test_arms_offered_in_one_context_are_evaluated_together():
    posterior = kb.ek_ucb(KERNEL, seed=0).posterior.learned(*log(40))
    offered = np.hstack([np.tile([0.4, 0.1], (3, 1)), np.eye(3)])
    together = posterior.evaluate(offered)
    for row in range(3):
        alone = posterior.evaluate(offered[[row]])
        assert together.mean[row] == pytest.approx(alone.mean[0], abs=1e-12)
        assert together.std[row] == pytest.approx(alone.std[0], abs=1e-12)


def test_columns_in_which_all_anchors_agree_are_left_out_of_the_kernel(tmp_path):
    # columns 1 to 3 of the context are constant, as those of levels never met
    kernel = kb.PerArm(kb.Mixed(0.2, 0.5, 1.0, centre=[0.1, 0.0, 0.3, 0.0], scale=[1.0, 2.0, 1.0, 0.5]), 4)
    policy = kb.ek_ucb(kernel, seed=0)
    generator = np.random.default_rng(0)
    for round_index in range(40):
        context = np.array([generator.normal(), 0.0, 1.0, 0.0])
        policy.update(context, np.eye(3)[round_index % 3], float(generator.normal()))
    assert list(policy.posterior._anchors._columns) == [0]
    policy.save(tmp_path / "policy")
    for known in (policy, kb.load(tmp_path / "policy")):
        # with what the anchors hold in the constant columns, and with a level that none of them has
        for context in ([0.4, 0.0, 1.0, 0.0], [0.4, 1.0, 0.0, 0.0]):
            offered = np.hstack([np.tile(context, (3, 1)), np.eye(3)])
            together = known.posterior.predict(offered)
            alone = [known.posterior.predict(offered[[row]]) for row in range(3)]
            np.testing.assert_allclose(together.mean, [each.mean[0] for each in alone], atol=1e-12)
            np.testing.assert_allclose(together.std, [each.std[0] for each in alone], atol=1e-12)
