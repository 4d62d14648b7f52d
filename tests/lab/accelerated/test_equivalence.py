"""Fed the same contexts, noise, coins and ties, a replica does what the policy of the library does."""

import jax
import numpy as np
import pytest
from kernel_bandits_lab import accelerated
from kernel_bandits_lab.accelerated.engine import traces
from kernel_bandits_lab.accelerated.models import Capacity, Demand
from kernel_bandits_lab.accelerated.problems import CHUNK
from kernel_bandits_lab.accelerated.replicas import computing, simulate_batch

import kernel_bandits as kb

HORIZON = 500
# A GPU adds in another order: history-free replicas on an H200 were seen to differ by 4e-8.
TOLERANCE = 1e-7 if jax.default_backend() == "gpu" else 1e-8
ENVIRONMENTS = (
    kb.environments.Bump(),
    kb.environments.Chessboard(),
    kb.environments.StepDiagonal(),
    kb.environments.MovingOptimum(),
)
by_name = pytest.mark.parametrize("environment", ENVIRONMENTS, ids=lambda environment: environment.name)


def efficient(module, environment, history):
    """Replicas or policies that differ in every number that may vary; with few enough anchors for a short test."""
    lengthscale = environment.lengthscale * (1.0 if len(questions(environment)[0]) == 2 else 2.0)
    options = [
        (kb.Gaussian(lengthscale), {}, {"regularization": 0.1}),
        (kb.Gaussian(1.5 * lengthscale), {"leverage_regularization": 0.3}, {"confidence": kb.StandardDeviations(0.5)}),
        (
            kb.Gaussian(lengthscale),
            {"oversampling": 1.0},
            {"regularization": 1.0, "confidence": kb.ConstantRadius(0.3)},
        ),
        (kb.Gaussian(lengthscale), {"max_size": 30, "oversampling": 5.0, "leverage_accuracy": 0.2}, {}),
    ]
    return [
        module.ek_ucb(kernel, dictionary=kb.Kors(history=history, **rule), seed=seed, **chosen)
        for seed, (kernel, rule, chosen) in enumerate(options)
    ]


def exact(module, environment):
    kernels = [kb.Gaussian(environment.lengthscale), kb.Gaussian(2.0 * environment.lengthscale)]
    return [
        module.k_ucb(kernel, regularization=ridge, seed=seed)
        for seed, (kernel, ridge) in enumerate(zip(kernels, (0.01, 0.5), strict=True))
    ]


def simulated(replicas, environment, horizon=HORIZON, capacity=None):
    """The records of replicas and what they believe in the end about some points, by replica."""
    seeds = [replica.seed for replica in replicas]
    with computing("float64", None):
        _, trajectories = simulate_batch(replicas, environment, horizon, seeds, capacity=capacity)
        points = questions(environment)
        offered = np.array([points / np.array(replica.lengthscales) for replica in replicas])
        _, beliefs = replicas[0].model.bounds(trajectories.state, offered)
    return trajectories, np.asarray(beliefs.mean), np.asarray(beliefs.std)


def questions(environment):
    offer = environment.next_round(np.random.default_rng(7))
    context = np.repeat(offer.context[None, :], len(offer.actions), axis=0)
    return np.hstack([context, offer.actions])


def assert_same(replicas, policies, environment, horizon=HORIZON, capacity=None, tolerance=TOLERANCE):
    trajectories, mean, std = simulated(replicas, environment, horizon, capacity)
    for number, policy in enumerate(policies):
        record = kb.run(policy, environment, horizon, seed=number)
        np.testing.assert_array_equal(trajectories.rows[number], record.action_indices)
        np.testing.assert_array_equal(trajectories.sizes[number], record.dictionary_size)
        np.testing.assert_allclose(trajectories.rewards[number], record.rewards, atol=1e-12)
        np.testing.assert_allclose(np.cumsum(trajectories.regrets[number]), record.regret, atol=1e-10)
        offer = environment.next_round(np.random.default_rng(7))
        prediction = policy.predict(offer.context, offer.actions)
        np.testing.assert_allclose(mean[number], prediction.mean, rtol=0, atol=tolerance)
        np.testing.assert_allclose(std[number], prediction.std, rtol=0, atol=tolerance)


@pytest.mark.parametrize("history", ["all", "none"])
@by_name
def test_efficient_replicas_decide_and_predict_as_the_policies(environment, history):
    # room for all anchors from the start: one program per environment
    assert_same(
        efficient(accelerated, environment, history),
        efficient(kb, environment, history),
        environment,
        capacity=Capacity(400, 256 if history == "all" else 0),
    )


@by_name
def test_exact_replicas_decide_and_predict_as_the_policies(environment):
    assert_same(
        exact(accelerated, environment), exact(kb, environment), environment, capacity=Capacity(0, HORIZON + CHUNK)
    )


@by_name
def test_uniform_replicas_draw_as_the_policy(environment):
    results = accelerated.run_many([accelerated.uniform(seed=seed) for seed in range(3)], environment, HORIZON)
    for seed, result in enumerate(results):
        record = kb.run(kb.uniform(seed=seed), environment, HORIZON, seed=seed)
        np.testing.assert_array_equal(result.action_indices, record.action_indices)
        np.testing.assert_array_equal(result.actions, record.actions)
        np.testing.assert_array_equal(result.contexts, record.contexts)


@pytest.mark.parametrize("history", ["all", "none"])
def test_capacity_grows_without_a_trace_in_the_record(history):
    environment, kernel = kb.environments.Chessboard(), kb.Gaussian(0.1)
    rule = kb.Kors(history=history)
    replicas = [accelerated.ek_ucb(kernel, regularization=0.01, dictionary=rule, seed=seed) for seed in range(12)]
    policies = [kb.ek_ucb(kernel, regularization=0.01, dictionary=rule, seed=seed) for seed in range(12)]
    # 40 → 64 → 96 anchors; the history outgrows its first rows; the last chunk is cut short
    horizon, capacity = (270, Capacity(40, 256)) if history == "all" else (150, Capacity(40, 0))
    # with λ = 0.01 the policy's step in extended precision shows, which a device has not: 1.6e-7 was seen
    assert_same(replicas, policies, environment, horizon, capacity, tolerance=5e-7)


@pytest.mark.parametrize("history", ["all", "none"])
def test_replicas_that_are_all_capped_below_the_first_room(history):
    """No replica may have more than 20 anchors, where there is room for 136 at first: no program for less is asked."""
    environment, kernel, rule = kb.environments.Bump(), kb.Gaussian(0.3), kb.Kors(max_size=20, history=history)
    replicas = [accelerated.ek_ucb(kernel, dictionary=rule, seed=seed) for seed in range(2)]
    policies = [kb.ek_ucb(kernel, dictionary=rule, seed=seed) for seed in range(2)]
    assert_same(replicas, policies, environment, horizon=80)
    assert all(policy.dictionary_size == 20 for policy in policies)
    # asked for more than the cap, it keeps what it has, and grows to the cap from below
    model, demand = replicas[0].model, Demand(0, 80, full=True, max_anchors=20.0)
    assert model.next_capacity(model.first_capacity, demand) == model.first_capacity
    assert model.next_capacity(Capacity(16, 0), demand).anchors == 20


def test_exact_capacity_grows_without_a_trace_in_the_record():
    environment = kb.environments.Chessboard()
    assert_same(
        exact(accelerated, environment), exact(kb, environment), environment, horizon=200, capacity=Capacity(0, 128)
    )


@pytest.mark.parametrize(
    "kernel", [kb.Exponential(0.3), kb.Matern(0.3, 1.5), kb.Matern([0.2, 0.4], 2.5)], ids=lambda kernel: repr(kernel)
)
def test_every_kernel(kernel):
    environment = kb.environments.StepDiagonal()
    assert_same([accelerated.k_ucb(kernel, seed=0)], [kb.k_ucb(kernel, seed=0)], environment, horizon=60)


def test_changing_settings_seeds_or_horizon_compiles_nothing():
    environment = kb.environments.Chessboard()

    def run(ridge, oversampling, first_seed, horizon):
        replicas = [
            accelerated.ek_ucb(
                kb.Gaussian(0.05 * (1 + seed)),
                regularization=ridge,
                dictionary=kb.Kors(oversampling=oversampling, history="none"),
                seed=first_seed + seed,
            )
            for seed in range(3)
        ]
        return accelerated.run_many(replicas, environment, horizon)

    run(1.0, 0.5, 0, 60)
    before = traces()
    run(10.0, 0.1, 5, 150)
    run(3.0, 0.2, 9, 40)
    assert traces() == before
    assert max(before.values()) == 1
