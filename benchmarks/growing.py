"""EK-UCB against K-UCB round by round, in alternation: where the dictionary is large against the history, and small.

Times are of the processor, so that other work on the machine does not count: each is a mean over all rounds.
"""

from __future__ import annotations

from time import process_time

import numpy as np
from numpy.typing import NDArray

import kernel_bandits as kb

# Environment, lengthscale, λ, and the horizon up to which it is played.
PROBLEMS = (
    ("Bump", 1.0, 0.01, 2000),
    ("MovingOptimum", 0.25, 0.01, 2000),
    ("Bump", 0.3, 0.1, 2000),
    ("Chessboard", 0.1, 1.0, 2000),
    ("StepDiagonal", 0.1, 1.0, 2000),
)
HORIZONS = (250, 500, 1000, 2000)
# Rounds of one policy before the other has its turn, so that a slow phase of the machine hits both.
TURN = 10


def target(anchors: int, rounds: int) -> str:
    """What EK-UCB may cost at most against K-UCB, at this share of anchors."""
    if 2 * anchors >= rounds:
        return "≤ 4"
    if 5 * anchors <= rounds:
        return "< 1"
    return "≤ 1.5" if 3 * anchors <= rounds else ""


def play(name: str, lengthscale: float, regularization: float, horizon: int) -> tuple[NDArray[np.float64], list[int]]:
    """Return the seconds of each round of EK-UCB and of K-UCB, shape (2, T), and the anchors after each."""
    environment, kernel = getattr(kb.environments, name)(), kb.Gaussian(lengthscale)
    policies = [preset(kernel, regularization=regularization, seed=0) for preset in (kb.ek_ucb, kb.k_ucb)]
    contexts, noise = np.random.default_rng([0, 0]), np.random.default_rng([0, 1])
    seconds, anchors = np.zeros((2, horizon)), list[int]()
    for start in range(0, horizon, TURN):
        shown = [environment.next_round(contexts) for _ in range(min(TURN, horizon - start))]
        errors = [environment.noise(noise) for _ in shown]
        for number, policy in enumerate(policies):
            for step, (each, error) in enumerate(zip(shown, errors, strict=True), start):
                started = process_time()
                decision = policy.select(each.context, each.actions)
                seconds[number, step] = process_time() - started
                expected = float(environment.expected_rewards(each.context, decision.action[None, :])[0])
                started = process_time()
                policy.update(each.context, decision.action, expected + error)
                seconds[number, step] += process_time() - started
                if number == 0:
                    anchors.append(policy.dictionary_size)
    return seconds, anchors


def measure() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    # what is imported when it is first needed
    play("Bump", 1.0, 0.01, 2 * TURN)
    for name, lengthscale, regularization, horizon in PROBLEMS:
        seconds, anchors = play(name, lengthscale, regularization, horizon)
        for rounds in HORIZONS:
            efficient, exact = 1e6 * seconds[:, :rounds].mean(axis=1)
            rows.append(
                {
                    "environment": f"{name}, ℓ = {lengthscale:g}, λ = {regularization:g}",
                    "T": rounds,
                    "m": anchors[rounds - 1],
                    "EK-UCB, µs": float(efficient),
                    "K-UCB, µs": float(exact),
                    "ratio": float(efficient / exact),
                    "target": target(anchors[rounds - 1], rounds),
                }
            )
    return rows
