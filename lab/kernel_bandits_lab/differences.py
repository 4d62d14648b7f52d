"""Paired differences of policies to a reference, with intervals and p-values corrected for their number."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtr

from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import InputError
from kernel_bandits.loop import RunResult
from kernel_bandits_lab.results import Record
from kernel_bandits_lab.study.catalogue import did_you_mean
from kernel_bandits_lab.summary import mean_interval


@dataclass(frozen=True, slots=True)
class Difference:
    """The regret of a policy less that of the reference in the same environment, over the seeds that both have.

    Attributes:
        environment: its label.
        policy: its label.
        reference: the label of the other policy.
        pairs: n, the number of seeds that both have.
        rounds: after which regrets are compared, those of the shorter runs.
        mean: of the differences, in units of the reward; negative if the policy is better.
        half_width: of the 95 % Student interval of the mean; NaN for a single pair.
        p_value: of the two-sided paired t-test of no difference; NaN for a single pair.
        adjusted_p_value: after Holm's correction over all differences that were computed together.
    """

    environment: str
    policy: str
    reference: str
    pairs: int
    rounds: int
    mean: float
    half_width: float
    p_value: float
    adjusted_p_value: float


def differences(records: Iterable[Record], reference: str | None = None) -> list[Difference]:
    """Return the differences of all policies to a reference, which is the first of each environment by default."""
    cells: dict[str, dict[str, dict[int, RunResult]]] = {}
    for record in records:
        environment, policy = record.run.cell
        cells.setdefault(environment, {}).setdefault(policy, {})[record.run.seed] = record.result
    labels = {policy: None for by_policy in cells.values() for policy in by_policy}
    if reference is not None and reference not in labels:
        hint = did_you_mean(reference, labels)
        raise InputError(f"reference: there is no policy {reference!r}{hint} There are {', '.join(labels)}.")
    found = []
    for environment, by_policy in cells.items():
        base = next(iter(by_policy)) if reference is None else reference
        for policy in by_policy:
            if base in by_policy and policy != base:
                found += _difference(environment, policy, base, by_policy)
    adjusted = holm([one.p_value for one in found])
    return [replace(one, adjusted_p_value=p_value) for one, p_value in zip(found, adjusted, strict=True)]


def _difference(
    environment: str, policy: str, reference: str, by_policy: dict[str, dict[int, RunResult]]
) -> list[Difference]:
    """Return the difference in a list, which is empty if no seed is shared."""
    ours, theirs = by_policy[policy], by_policy[reference]
    seeds = sorted(set(ours) & set(theirs))
    if not seeds:
        return []
    rounds = min(runs[seed].horizon for runs in (ours, theirs) for seed in seeds)
    samples = np.array([ours[seed].regret[rounds - 1] - theirs[seed].regret[rounds - 1] for seed in seeds])
    mean, half_width = (float(value) for value in mean_interval(samples))
    p_value = _p_value(samples)
    return [Difference(environment, policy, reference, len(seeds), rounds, mean, half_width, p_value, p_value)]


def _p_value(samples: FloatArray) -> float:
    """Return the p-value of Student's t-test that the mean is 0."""
    if len(samples) < 2:
        return float("nan")
    mean, spread = float(samples.mean()), float(samples.std(ddof=1))
    if spread == 0.0:
        return 0.0 if mean else 1.0
    return float(2.0 * stdtr(len(samples) - 1, -abs(mean) / (spread / np.sqrt(len(samples)))))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number as Holm (1979) does; NaN stays, and does not count.

    In increasing order p_(i) becomes max over j ≤ i of min(1, (n − j + 1)·p_(j)): the probability that any true
    hypothesis is rejected at level α is at most α.
    """
    order = sorted((i for i, p in enumerate(p_values) if not np.isnan(p)), key=lambda i: p_values[i])
    adjusted, largest = list(map(float, p_values)), 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * p_values[i]))
        adjusted[i] = largest
    return adjusted
