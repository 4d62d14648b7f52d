import jax.numpy as jnp
import numpy as np
import pytest
from kernel_bandits_lab import accelerated
from kernel_bandits_lab.accelerated.problems import as_pure, tabulate
from kernel_bandits_lab.accelerated.replicas import computing

import kernel_bandits as kb
from kernel_bandits.environments import Environment, Round
from kernel_bandits.rng import stream

KNOWN = [
    kb.environments.Bump(),
    kb.environments.Bump(instance_seed=4),
    kb.environments.Chessboard(),
    kb.environments.StepDiagonal(instance_seed=2),
    kb.environments.MovingOptimum(2, 7, instance_seed=3),
]


@pytest.mark.parametrize("environment", KNOWN, ids=repr)
def test_the_environments_of_the_package_are_known_as_functions(environment):
    pure = as_pure(environment)
    contexts, noise = stream(5, "contexts"), stream(5, "noise")
    tables = tabulate(environment, 200, [5], 256)
    with computing("float64", "cpu"):
        parameters = [jnp.asarray(parameter) for parameter in pure.parameters]
        for t in range(200):
            offer = environment.next_round(contexts)
            np.testing.assert_array_equal(tables.contexts[0, t], offer.context)
            np.testing.assert_array_equal(tables.actions, offer.actions)
            assert tables.noise[0, t] == environment.noise(noise)
            rewards = pure.expected_rewards(jnp.asarray(offer.context), jnp.asarray(offer.actions), *parameters)
            np.testing.assert_allclose(
                np.asarray(rewards), environment.expected_rewards(offer.context, offer.actions), atol=1e-14
            )


class Wandering(Environment):
    """Offers other actions at every round, and noise of its own kind."""

    def next_round(self, contexts):
        return Round(contexts.random(2), contexts.random((5, 1)))

    def expected_rewards(self, context, actions):
        return np.sin(3.0 * actions[:, 0] + context[0]) * context[1]

    def noise(self, noise):
        return float(noise.uniform(-0.1, 0.1))


class Shrinking(Wandering):
    def next_round(self, contexts):
        return Round(contexts.random(2), contexts.random((1 + int(contexts.random() < 0.5), 1)))


def test_any_environment_is_played_out_on_the_host():
    environment = Wandering()
    options = {"dictionary": kb.Kors(history="none"), "seed": 3}
    result = accelerated.run_many([accelerated.ek_ucb(kb.Gaussian(0.5), **options)], environment, 60)[0]
    record = kb.run(kb.ek_ucb(kb.Gaussian(0.5), **options), environment, 60, seed=3)
    np.testing.assert_array_equal(result.action_indices, record.action_indices)
    np.testing.assert_array_equal(result.actions, record.actions)
    np.testing.assert_array_equal(result.contexts, record.contexts)
    np.testing.assert_allclose(result.regret, record.regret)
    np.testing.assert_allclose(result.rewards, record.rewards)


def test_a_changing_number_of_actions_is_refused():
    with pytest.raises(kb.InputError, match="as many actions at every round"):
        accelerated.run_many([accelerated.uniform()], Shrinking(), 50)


def ridge_rewards(context, actions, slope):
    return 1.0 - slope * jnp.abs(actions[:, 0] - context[0])


class Ridge(Environment):
    def next_round(self, contexts):
        return Round(contexts.normal(size=1), np.linspace(-1, 1, 6)[:, None])

    def expected_rewards(self, context, actions):
        return 1.0 - 0.3 * np.abs(actions[:, 0] - context[0])


def normal_contexts(generator, horizon, dimension):
    return generator.normal(size=(horizon, dimension))


def test_an_environment_of_ones_own_as_a_function():
    actions = np.linspace(-1, 1, 6)[:, None]
    pure = accelerated.PureEnvironment(ridge_rewards, actions, 1, (0.3,), draw_contexts=normal_contexts)
    result = accelerated.run_many([accelerated.uniform(seed=1)], pure, 100)[0]
    record = kb.run(kb.uniform(seed=1), Ridge(), 100, seed=1)
    np.testing.assert_array_equal(result.contexts, record.contexts)
    np.testing.assert_allclose(result.regret, record.regret)
    np.testing.assert_allclose(result.rewards, record.rewards)


def test_contexts_of_a_wrong_shape_are_refused():
    pure = accelerated.PureEnvironment(ridge_rewards, np.zeros((2, 1)), 2, (0.3,), draw_contexts=lambda *_: np.zeros(3))
    with pytest.raises(kb.InputError, match=r"draw_contexts: expected shape \(10, 2\), got \(3,\)"):
        accelerated.run_many([accelerated.uniform()], pure, 10)


def test_a_policy_is_no_environment():
    with pytest.raises(kb.InputError, match="expected an Environment or a PureEnvironment"):
        accelerated.run_many([accelerated.uniform()], kb.uniform(), 10)
