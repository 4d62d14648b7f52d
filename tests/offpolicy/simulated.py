"""Logs of a known world: contexts in two dimensions, a few actions, rewards with noise."""

import numpy as np

from kernel_bandits.offpolicy import Log

ARMS = 4


def expected_rewards(contexts):
    """The truth, shape (n, A)."""
    x, y = contexts.T
    return np.stack([0.5 + 0.4 * np.sin(3 * x), 0.3 + 0.5 * y, 0.6 - 0.3 * x * y, np.full(len(x), 0.45)], axis=1)


def softmax(scores):
    table = np.exp(scores - scores.max(axis=1, keepdims=True))
    return table / table.sum(axis=1, keepdims=True)


def logging_table(contexts, sharpness=2.0):
    return softmax(
        sharpness * np.stack([contexts[:, 0], contexts[:, 1], 0 * contexts[:, 0], 1 - contexts[:, 0]], axis=1)
    )


def target_table(contexts, sharpness=3.0):
    return softmax(sharpness * expected_rewards(contexts))


def simulated_log(count, seed, sharpness=2.0, noise=0.2):
    generator = np.random.default_rng(seed)
    contexts = generator.random((count, 2))
    table = logging_table(contexts, sharpness)
    played = (generator.random((count, 1)) > np.cumsum(table, axis=1)).sum(axis=1).clip(0, ARMS - 1)
    rewards = expected_rewards(contexts)[np.arange(count), played] + noise * generator.normal(size=count)
    return Log(contexts, played, rewards, table[np.arange(count), played], probabilities=table)


def true_value(table_of, seed=99, count=200_000):
    contexts = np.random.default_rng(seed).random((count, 2))
    return float((table_of(contexts) * expected_rewards(contexts)).sum(axis=1).mean())
