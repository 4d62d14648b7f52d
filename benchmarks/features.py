"""What names cost: a round over a table against the round over the arrays that it stands for.

Run: python benchmarks/features.py
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import numpy as np
from measure import interleaved_medians, markdown

import kernel_bandits as kb

REPEATS, WARM_UP, LIMIT = 4000, 300, 40.0
ARMS = [f"arm {i}" for i in range(10)]
COUNTRIES = ["FR", "DE", "IT", "ES", "PT", "NL", "BE", "PL"]
CONTEXT: dict[str, kb.tables.Column] = {
    "age": kb.Numeric(),
    "income": kb.Numeric(logarithm=True, missing=True),
    "distance": kb.Numeric(range=(0.0, 100.0)),
    "size": kb.Ordered(["small", "medium", "large"]),
    "country": kb.Categorical(COUNTRIES),
    "device": kb.Categorical(["phone", "tablet", "desktop"], missing=True),
    "member": kb.Boolean(),
    "hour": kb.Cyclic(24),
    "weekday": kb.Cyclic(7),
    "when": kb.Date(),
}
OFFERS: dict[str | int | float | bool, dict[str, Any]] = {
    name: {"price": 1.0 + i, "brand": "abc"[i % 3]} for i, name in enumerate(ARMS)
}
DESCRIBED: dict[str, kb.tables.Column] = {"price": kb.Numeric(), "brand": kb.Categorical(["a", "b", "c"])}
ACTIONS: dict[str, Any] = {
    "names": kb.Arms(ARMS),
    "names and features": kb.Arms(OFFERS, columns=DESCRIBED),
    "rows of two columns": DESCRIBED,
}


def draw_rows(count: int) -> list[dict[str, Any]]:
    """Return rows of ten mixed columns."""
    generator = np.random.default_rng(0)
    return [
        {
            "age": float(generator.normal()),
            "income": None if generator.random() < 0.2 else float(generator.lognormal()),
            "distance": float(generator.uniform(0.0, 100.0)),
            "size": ["small", "medium", "large"][generator.integers(3)],
            "country": COUNTRIES[generator.integers(8)],
            "device": [None, "phone", "tablet", "desktop"][generator.integers(4)],
            "member": bool(generator.integers(2)),
            "hour": float(generator.uniform(0.0, 24.0)),
            "weekday": int(generator.integers(7)),
            "when": datetime(2024, 1, 1 + int(generator.integers(28)), int(generator.integers(24))),
        }
        for _ in range(count)
    ]


def measure(actions: Any) -> dict[str, object]:
    """Return median microseconds of ``select`` and of a whole round, in turns with the same over arrays."""
    rows = draw_rows(64)
    offer = list(OFFERS.values()) if isinstance(actions, dict) else ARMS
    policy = kb.TablePolicy(kb.ek_ucb(kb.Gaussian(3.0), seed=0), kb.Features(CONTEXT, actions))
    generator = np.random.default_rng(1)
    for i in range(WARM_UP):
        policy.update(policy.select(rows[i % 64], offer), reward=float(generator.normal()))
    inner = policy.inner
    arrays = [policy.encode(row, offer) for row in rows]

    def table_select(repeat: int) -> None:
        policy.select(rows[repeat % 64], offer)

    def array_select(repeat: int) -> None:
        inner.select(*arrays[repeat % 64])

    def table_update(repeat: int) -> None:
        policy.update(policy.select(rows[repeat % 64], offer), reward=0.3)

    def array_update(repeat: int) -> None:
        context, encoded = arrays[repeat % 64]
        inner.update(context, inner.select(context, encoded).action, 0.3)

    anchors = policy.dictionary_size
    selects: list[Callable[[int], object]] = [table_select, array_select]
    # rounds come last, since they change the policy
    rounds: list[Callable[[int], object]] = [table_update, array_update]
    table, array = (1e6 * value for value in interleaved_medians(selects, REPEATS, blocks=40))
    table_round, array_round = (1e6 * value for value in interleaved_medians(rounds, REPEATS // 4, blocks=40))
    return {
        "columns": policy.features.layout.dimension,
        "anchors": anchors,
        "select, table, µs": table,
        "select, arrays, µs": array,
        "more, µs": table - array,
        "limit, µs": LIMIT,
        "round, table, µs": table_round,
        "round, arrays, µs": array_round,
    }


def main() -> None:
    results = [{"actions": name, **measure(actions)} for name, actions in ACTIONS.items()]
    print(markdown(results))
    beyond = [str(row["actions"]) for row in results if float(str(row["more, µs"])) > LIMIT]
    print(f"beyond the limit: {', '.join(beyond)}" if beyond else f"all within {LIMIT:g} µs")


if __name__ == "__main__":
    main()
