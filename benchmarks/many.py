"""A log of 100,000 rounds absorbed at once against one by one, in processor time."""

from __future__ import annotations

from time import process_time

import numpy as np

import kernel_bandits as kb
from kernel_bandits.arrays import FloatArray
from kernel_bandits.policy import UpperConfidenceBound

ROUNDS = 100_000


def measure() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for label, dimension, lengthscale in (("2 columns", 2, 0.1), ("3 columns", 3, 0.3), ("6 columns", 6, 2.0)):
        generator = np.random.default_rng(0)
        contexts, actions = generator.random((ROUNDS, dimension - 1)), generator.random((ROUNDS, 1))
        rewards = np.sin(3 * contexts.sum(axis=1)) * actions[:, 0] + 0.1 * generator.normal(size=ROUNDS)
        policies = [kb.ek_ucb(kb.Gaussian(lengthscale), seed=0) for _ in range(2)]
        started = process_time()
        policies[0].update_many(contexts, actions, rewards)
        at_once = process_time() - started
        started = process_time()
        for context, action, reward in zip(contexts, actions, rewards, strict=True):
            policies[1].update(context, action, reward)
        one_by_one = process_time() - started
        started = process_time()
        policies[0].select_many(contexts[:5000], actions[:20])
        selected_at_once = process_time() - started
        started = process_time()
        for context in contexts[:5000]:
            policies[0].select(context, actions[:20])
        gap = float(np.abs(_means(policies[0], contexts) - _means(policies[1], contexts)).max())
        rows.append(
            {
                "log": label,
                "m": policies[0].dictionary_size,
                "same anchors": bool(np.array_equal(policies[0].dictionary_points, policies[1].dictionary_points)),
                "largest gap of means": gap,
                "update / update_many": one_by_one / at_once,
                "target": "≥ 5",
                "select / select_many": (process_time() - started) / selected_at_once,
            }
        )
    return rows


def _means(policy: UpperConfidenceBound, contexts: FloatArray) -> FloatArray:
    actions = np.linspace(0, 1, 9)[:, None]
    return np.array([policy.predict(context, actions).mean for context in contexts[:50]])
