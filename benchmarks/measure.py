"""Measuring: medians of repeated calls, interleaved with what they are compared with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import process_time

import numpy as np

import kernel_bandits as kb
from kernel_bandits.dictionaries.kors import LeverageDictionary
from kernel_bandits.policy import UpperConfidenceBound
from kernel_bandits.posterior import NystromPosterior


def interleaved_medians(calls: Sequence[Callable[[int], object]], repeats: int, blocks: int = 8) -> list[float]:
    """Median processor seconds of each call; blocks of repeats take turns, so that a slow phase hits all alike.

    Each call is told the number of its repeat, and is run once per block beforehand to warm the caches it will use.
    """
    times: list[list[float]] = [[] for _ in calls]
    for block in range(blocks):
        for call, seconds in zip(calls, times, strict=True):
            call(block)
            for repeat in range(repeats // blocks):
                started = process_time()
                call(repeat)
                seconds.append(process_time() - started)
    return [float(np.median(seconds)) for seconds in times]


def policy_with_anchors(size: int, dimension: int = 6) -> UpperConfidenceBound:
    """EK-UCB with exactly this many anchors, which from now on scores every point by KORS and adds none."""
    policy = kb.ek_ucb(kb.Gaussian(0.15), dictionary=kb.Kors(oversampling=1e6), seed=0)
    generator = np.random.default_rng(0)
    while policy.dictionary_size < size:
        policy.update(generator.random(dimension - 1), generator.random(1), 0.5)
    assert isinstance(policy.posterior, NystromPosterior)
    dictionary = policy.posterior.dictionary
    assert isinstance(dictionary, LeverageDictionary)
    dictionary.oversampling = 1e-12
    return policy


def markdown(rows: Sequence[dict[str, object]]) -> str:
    """A table, one row per dict."""
    head = list(rows[0])
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for row in rows:
        cells = (f"{value:.3g}" if isinstance(value, float) else str(value) for value in row.values())
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
