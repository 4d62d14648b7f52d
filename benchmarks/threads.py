"""Rounds with the default number of BLAS threads against rounds with one, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
from measure import interleaved_medians, policy_with_anchors
from rounds import one_round

SHAPES = ((64, 10), (128, 10), (256, 10), (512, 10), (1024, 10), (256, 100))
REPEATS = 5
LIMITS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def medians() -> list[float]:
    return [interleaved_medians([one_round(policy_with_anchors(m), a)], 240)[0] for m, a in SHAPES]


def measure() -> list[dict[str, object]]:
    plain = {name: value for name, value in os.environ.items() if name not in LIMITS}
    found: dict[str, list[list[float]]] = {"default": [], "one": []}
    for _ in range(REPEATS):
        for label, environment in (("default", plain), ("one", {**plain, **dict.fromkeys(LIMITS, "1")})):
            answer = subprocess.run(
                [sys.executable, __file__], env=environment, capture_output=True, text=True, check=True
            )
            found[label].append(json.loads(answer.stdout))
    answers = {label: np.median(medians, axis=0) for label, medians in found.items()}
    return [
        {
            "m, actions": f"{m}, {a}",
            "one thread, µs": 1e6 * one,
            f"default ({os.cpu_count()} cores), µs": 1e6 * default,
            "default / one": default / one,
        }
        for (m, a), one, default in zip(SHAPES, answers["one"], answers["default"], strict=True)
    ]


if __name__ == "__main__":
    print(json.dumps(medians()))
