"""Where the time of one round goes: its numerical calls one by one, and what Python spends between them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from time import perf_counter
from typing import Any
from unittest.mock import patch

import numpy as np
from measure import policy_with_anchors
from rounds import one_round
from scipy.spatial import distance

import kernel_bandits.kernels.stationary as kernels
from kernel_bandits.numerics import linalg
from kernel_bandits.policy import Policy
from kernel_bandits.posterior.history import History
from kernel_bandits.posterior.ridge import RidgeRegression

SHAPES = ((64, 10), (512, 10))
ROUNDS = 3000
# Where a name is looked up, the name, and what it computes there.
CALLS: tuple[tuple[Any, str, str], ...] = (
    (distance, "cdist", "distances to the anchors"),
    (kernels.Gaussian, "_of_squared_distance", "exponentials"),
    (linalg, "times_upper", "Φ = k_Z Jᵀ"),
    (linalg, "quadratic_forms", "φᵀPφ"),
    (linalg, "times_vector", "means Φw"),
    (linalg, "safe_sqrt", "std"),
    (Policy, "argmax", "argmax with ties"),
    (linalg, "symmetric_times_vector", "Pφ, and KORS: Qφ"),
    (linalg, "minus_outer", "P − hhᵀ/c"),
    (RidgeRegression, "learned", "the rest of the update of P, w, log det"),
    (History, "appended", "history"),
)


class _Stopwatch:
    """Seconds of each call of a round, less what the calls inside it took."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._inside = [0.0]

    def timed(self, label: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def timing(*arguments: Any, **options: Any) -> Any:
            self._inside.append(0.0)
            started = perf_counter()
            answer = call(*arguments, **options)
            taken = perf_counter() - started
            own = taken - self._inside.pop()
            self._inside[-1] += taken
            self.seconds[label] = self.seconds.get(label, 0.0) + own
            return answer

        return timing


def measure() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for size, actions in SHAPES:
        play = one_round(policy_with_anchors(size), actions)
        watch, plain = _Stopwatch(), []
        stages: dict[str, list[float]] = {label: [] for _, _, label in CALLS}
        for block in range(ROUNDS // 100):
            for repeat in range(50):
                started = perf_counter()
                play(100 * block + repeat)
                plain.append(perf_counter() - started)
            with ExitStack() as patches:
                for owner, name, label in CALLS:
                    patches.enter_context(patch.object(owner, name, watch.timed(label, getattr(owner, name))))
                for repeat in range(50, 100):
                    watch.seconds.clear()
                    play(100 * block + repeat)
                    for label, kept in stages.items():
                        kept.append(watch.seconds.get(label, 0.0))
        medians = {label: float(np.median(kept)) for label, kept in stages.items()}
        whole = float(np.median(plain))
        medians["checks, small vectors, objects"] = whole - sum(medians.values())
        parts = [*sorted(medians.items(), key=lambda part: -part[1]), ("whole", whole)]
        rows += [
            {
                "m, actions": f"{size}, {actions}",
                "part of the round": label,
                "µs": 1e6 * seconds,
                "share, %": round(100 * seconds / whole),
            }
            for label, seconds in parts
        ]
    return rows
