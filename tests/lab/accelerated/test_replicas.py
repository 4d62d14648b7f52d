import jax.numpy as jnp
import numpy as np
import pytest
from kernel_bandits_lab import accelerated
from kernel_bandits_lab.accelerated.engine import Compiler, traces
from kernel_bandits_lab.accelerated.replicas import computing, simulate_batch

import kernel_bandits as kb


def test_results_come_in_the_order_asked_for_whatever_the_batches():
    environment = kb.environments.Chessboard()
    replicas = [accelerated.uniform(seed=seed) for seed in (4, 1, 3, 0, 2)]
    seen = []
    results = accelerated.run_many(replicas, environment, 70, batch_size=2, progress=seen.append)
    assert seen == [2, 4, 5]
    for replica, result in zip(replicas, results, strict=True):
        record = kb.run(kb.uniform(seed=replica.seed), environment, 70, seed=replica.seed)
        np.testing.assert_array_equal(result.action_indices, record.action_indices)
        assert result.seconds[-1] > 0


def test_run_seeds_may_differ_from_policy_seeds():
    environment = kb.environments.Chessboard()
    results = accelerated.run_many([accelerated.uniform(seed=8)] * 2, environment, 50, seeds=[1, 2])
    for seed, result in zip((1, 2), results, strict=True):
        record = kb.run(kb.uniform(seed=8), environment, 50, seed=seed)
        np.testing.assert_array_equal(result.action_indices, record.action_indices)
        np.testing.assert_array_equal(result.contexts, record.contexts)


def test_large_seeds_stand_beside_small_ones():
    # NumPy makes an array of such numbers one of floats
    seeds = [2**63 + 1, 3, 2**63 + 1, 2**53 + 1]
    environment = kb.environments.Chessboard()
    results = accelerated.run_many([accelerated.uniform(seed=seed) for seed in seeds], environment, 20)
    for seed, result in zip(seeds, results, strict=True):
        record = kb.run(kb.uniform(seed=seed), environment, 20, seed=seed)
        np.testing.assert_array_equal(result.action_indices, record.action_indices)
        np.testing.assert_array_equal(result.contexts, record.contexts)


def sine_rewards(context, actions):
    return jnp.sin(4.0 * context[0]) * jnp.cos(3.0 * context[1]) + actions[:, 0]


@pytest.mark.parametrize("history", ["all", "none"])
def test_float32_predicts_as_float64_to_a_few_digits(history):
    # with one action there is nothing to decide, so both precisions learn from the same points
    environment = accelerated.PureEnvironment(sine_rewards, np.zeros((1, 1)), 2)
    rule = kb.Kors(history=history)
    replicas = [accelerated.ek_ucb(kb.Gaussian(0.5), dictionary=rule, seed=seed) for seed in (0, 1)]
    points = np.random.default_rng(0).random((50, 3)) * [1.0, 1.0, 0.0]
    beliefs = []
    for dtype in ("float64", "float32"):
        with computing(dtype, "cpu"):
            _, trajectories = simulate_batch(replicas, environment, 200, [0, 1], dtype)
            offered = jnp.broadcast_to(jnp.asarray(points, dtype), (2, 50, 3))
            _, believed = replicas[0].model.bounds(trajectories.state, offered)
            assert believed.mean.dtype == dtype
            beliefs.append(believed)
    np.testing.assert_allclose(beliefs[1].mean, beliefs[0].mean, atol=1e-2)
    np.testing.assert_allclose(beliefs[1].std, beliefs[0].std, atol=1e-2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: accelerated.ek_ucb(kb.Linear()), "expected Gaussian, Exponential or Matern"),
        (lambda: accelerated.ek_ucb(kb.Gaussian(1.0) * 2.0), "expected Gaussian, Exponential or Matern"),
        (
            lambda: accelerated.ek_ucb(
                kb.Gaussian(1.0),
                confidence=kb.Tightened(norm_bound=1.0, noise_bound=0.1, failure_probability=0.1),
            ),
            "expected StandardDeviations or ConstantRadius",
        ),
        (lambda: accelerated.ek_ucb(kb.Gaussian(1.0), regularization=0.0), "regularization: expected a positive"),
        (
            lambda: accelerated.ek_ucb(kb.Gaussian(1.0), dictionary=kb.Kors(oversampling=-1.0)),
            "oversampling: expected a positive",
        ),
        (
            lambda: accelerated.ek_ucb(kb.Gaussian(1.0), dictionary=kb.Kors(history="some")),
            "history: expected 'all' or 'none'",
        ),
        (lambda: accelerated.ek_ucb(kb.Gaussian(1.0), dictionary=kb.Kors(leverage_accuracy=-1.0)), "leverage_accuracy"),
        (lambda: accelerated.ek_ucb(kb.Gaussian(1.0), dictionary=kb.Kors(max_size=0)), "max_size"),
        (lambda: accelerated.ek_ucb(kb.Gaussian(1.0), dictionary="kors"), "dictionary: expected"),
        (lambda: accelerated.ek_ucb(kb.Gaussian(1.0), dictionary=kb.Resampling()), "other rules run with"),
        (lambda: accelerated.k_ucb(kb.Gaussian(1.0), regularization=-1.0), "regularization"),
        (lambda: accelerated.run_many([], kb.environments.Bump(), 10), "at least one"),
        (lambda: accelerated.run_many([accelerated.uniform()], kb.environments.Bump(), 0), "horizon"),
        (lambda: accelerated.run_many([accelerated.uniform()], kb.environments.Bump(), 9, seeds=[1, 2]), "seeds"),
        (
            lambda: accelerated.run_many([accelerated.uniform()], kb.environments.Bump(), 9, dtype="float16"),
            "dtype: expected 'float64' or 'float32'",
        ),
        (
            lambda: accelerated.run_many([accelerated.k_ucb(kb.Gaussian([1.0, 2.0]))], kb.environments.Bump(), 9),
            "2 lengthscales were given for points with 6 columns",
        ),
    ],
)
def test_what_cannot_be_used_is_refused_with_a_reason(make, message):
    with pytest.raises(kb.InputError, match=message):
        make()


def test_a_device_that_is_not_there_is_named():
    import jax

    if any(device.platform == "gpu" for device in jax.devices()):
        pytest.skip("this machine has a GPU")
    with pytest.raises(kb.InputError, match="device: JAX has no 'gpu' here"):
        accelerated.run_many([accelerated.uniform()], kb.environments.Bump(), 10, device="gpu")


def boundless_rewards(context, actions):
    return actions[:, 0] / (context[0] - context[0])


def test_a_run_that_fails_wants_no_further_programs(monkeypatch):
    forgotten = []
    monkeypatch.setattr(Compiler, "forget", lambda compiler: forgotten.append(compiler))
    environment = accelerated.PureEnvironment(boundless_rewards, np.array([[0.0], [1.0]]), 1)
    with pytest.raises(kb.KernelBanditsError, match="no longer finite"):
        accelerated.run_many([accelerated.k_ucb(kb.Gaussian(1.0))], environment, 10)
    assert len(forgotten) == 1


def test_rewards_that_are_no_numbers_are_reported():
    environment = accelerated.PureEnvironment(boundless_rewards, np.array([[0.0], [1.0]]), 1)
    with pytest.raises(kb.KernelBanditsError, match="no longer finite"):
        accelerated.run_many([accelerated.k_ucb(kb.Gaussian(1.0))], environment, 10)


def test_batches_of_one_size_share_programs():
    environment = kb.environments.StepDiagonal()
    before = traces()
    replicas = [accelerated.uniform(seed=seed) for seed in range(7)]
    results = accelerated.run_many(replicas, environment, 30, batch_size=4)
    assert len(results) == 7
    assert sum(traces().values()) - sum(before.values()) <= 1
    for seed, result in enumerate(results):
        record = kb.run(kb.uniform(seed=seed), environment, 30, seed=seed)
        np.testing.assert_array_equal(result.action_indices, record.action_indices)
