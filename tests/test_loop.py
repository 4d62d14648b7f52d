import itertools

import numpy as np
import pytest

import kernel_bandits as kb
from kernel_bandits.loop import Simulation


def test_every_policy_meets_the_same_contexts_and_noise():
    environment = kb.environments.Bump()
    results = [
        kb.run(policy, environment, 100, seed=5)
        for policy in (kb.uniform(seed=5), kb.ek_ucb(kb.Gaussian(1.0), seed=5), kb.k_ucb(kb.Gaussian(1.0), seed=8))
    ]
    noises = []
    for result in results:
        expected = [
            environment.expected_rewards(context, action[None, :])[0]
            for context, action in zip(result.contexts, result.actions, strict=True)
        ]
        noises.append(result.rewards - expected)
        np.testing.assert_array_equal(result.contexts, results[0].contexts)
    np.testing.assert_allclose(noises[1], noises[0], atol=1e-12)
    np.testing.assert_allclose(noises[2], noises[0], atol=1e-12)
    assert not np.array_equal(results[0].action_indices, results[1].action_indices)


def test_regret_is_the_sum_of_the_gaps():
    environment = kb.environments.StepDiagonal()
    result = kb.run(kb.uniform(seed=0), environment, 200, seed=0)
    gaps = [
        environment.expected_rewards(context, environment.actions).max()
        - environment.expected_rewards(context, action[None, :])[0]
        for context, action in zip(result.contexts, result.actions, strict=True)
    ]
    np.testing.assert_allclose(result.regret, np.cumsum(gaps))
    np.testing.assert_array_equal(environment.actions[result.action_indices], result.actions)
    assert result.horizon == 200


def test_seeds_separate_runs_and_a_run_repeats_itself():
    def rewards(policy_seed, run_seed):
        return kb.run(kb.ek_ucb(kb.Gaussian(0.1), seed=policy_seed), kb.environments.Chessboard(), 50, run_seed).rewards

    np.testing.assert_array_equal(rewards(1, 1), rewards(1, 1))
    assert not np.array_equal(rewards(1, 1), rewards(1, 2))
    assert not np.array_equal(rewards(1, 1), rewards(2, 1))


def test_streams_of_one_seed_do_not_repeat_each_other():
    from kernel_bandits.rng import stream

    draws = [stream(0, name).random(4) for name in ("contexts", "noise", "ties", "coins")]
    assert len({tuple(draw) for draw in draws}) == 4


def test_times_and_progress():
    calls = []
    result = kb.run(kb.uniform(seed=0), kb.environments.Chessboard(), 30, seed=0, progress=calls.append)
    assert calls == list(range(1, 31))
    assert (result.select_seconds > 0).all()
    assert (result.update_seconds > 0).all()
    np.testing.assert_allclose(result.seconds[-1], result.select_seconds.sum() + result.update_seconds.sum())


def test_the_clock_is_read_around_select_and_around_update():
    ticks = itertools.count()
    result = kb.run(kb.uniform(seed=0), kb.environments.Chessboard(), 30, seed=0, clock=lambda: float(next(ticks)))
    np.testing.assert_array_equal(result.seconds, 2.0 * np.arange(1, 31))
    assert next(ticks) == 4 * 30


@pytest.mark.parametrize("horizon", [0, -3, 2.5, "long", True])
def test_bad_horizons_are_named(horizon):
    with pytest.raises(kb.InputError, match="horizon"):
        kb.run(kb.uniform(seed=0), kb.environments.Chessboard(), horizon)


def test_a_round_is_played_once():
    simulation = Simulation(kb.environments.Chessboard(), seed=0)
    with pytest.raises(kb.InputError, match=r"offer\(\) before each"):
        simulation.play(0)
    simulation.offer()
    simulation.play(0)
    with pytest.raises(kb.InputError, match=r"offer\(\) before each"):
        simulation.play(0)
