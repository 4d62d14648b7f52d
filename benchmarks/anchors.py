"""Where the time of a long run goes: rounds that add an anchor, with their pass over the history, and all others."""

from __future__ import annotations

import numpy as np

import kernel_bandits as kb

HORIZON = 20_000
ENVIRONMENTS = ("Bump", "Chessboard", "StepDiagonal", "MovingOptimum")


def measure() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for name in ENVIRONMENTS:
        environment = getattr(kb.environments, name)()
        policy = kb.ek_ucb(kb.Gaussian(environment.lengthscale), seed=0)
        result = kb.run(policy, environment, HORIZON, seed=0)
        grew = np.diff(result.dictionary_size, prepend=0) > 0
        # an update that adds an anchor does what any other does and the anchor besides
        ordinary = np.median(result.update_seconds[~grew])
        anchors = float((result.update_seconds[grew] - ordinary).sum())
        rounds = float((result.select_seconds + result.update_seconds).sum()) - anchors
        rows.append(
            {
                "environment": name,
                "m": policy.dictionary_size,
                "anchors, s": anchors,
                "rounds, s": rounds,
                "anchors / rounds": anchors / rounds,
                "target": "< 1",
            }
        )
    return rows
