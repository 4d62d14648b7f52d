"""Teach a policy a dataset that need not fit into memory, nor onto one machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import numpy as np

from kernel_bandits.arrays import as_count
from kernel_bandits.confidence import GuaranteedRadius
from kernel_bandits.errors import InputError
from kernel_bandits.logs.partitions import (
    Layout,
    ParquetPart,
    frame_parts,
    here,
    on_cluster,
    parquet_parts,
    part_sample,
    part_sums,
)
from kernel_bandits.policy.policy import Policy
from kernel_bandits.posterior.nystrom import NystromPosterior
from kernel_bandits.posterior.sums import is_enough, sample_basis


@dataclass(frozen=True)
class Learned:
    """What :func:`learn` did.

    Attributes:
        rows: the number of rounds learned.
        anchors: m.
        passes: how often the dataset was read, the sample not counted.
        unexplained: the mean of what the anchors leave of k(s, s).
    """

    rows: int
    anchors: int
    passes: int
    unexplained: float


def learn(
    policy: Policy,
    dataset: Any,
    *,
    context: Sequence[str] | None = None,
    action: Sequence[str] | None = None,
    reward: str = "reward",
    sample: int = 2_000,
    most_passes: int = 2,
    client: Any = None,
    seed: int = 0,
) -> Learned:
    """Learn a log in bounded memory; the policy then continues online.

    Anchors are chosen from a sample. One pass over the dataset then adds up Σφφᵀ and Σrφ, part by part, which is the
    posterior of ``update_many`` with these anchors. If they leave much unexplained, points that they explain least join
    the sample, and the pass is repeated. The sums are added in the order of the parts, so the result does not depend on
    the workers. A failed call leaves the policy as it was.

    Args:
        policy: a fresh one, with a kernel and a dictionary rule with ``history="none"``, such as
            ``ek_ucb(kernel, dictionary=Kors(history="none", max_size=500))``.
        dataset: the path of a Parquet file or of a folder of them, or a Dask DataFrame. All columns are numbers.
        context: the columns of the context; by default those named ``context_…``.
        action: the columns of the action; by default ``action_0``, ``action_1``, ….
        reward: the column of the reward.
        sample: how many rows to choose anchors from.
        most_passes: the largest number of passes.
        client: a Dask client on whose workers the parts are read; needed for a Dask DataFrame.
        seed: of the sample.
    """
    posterior = _fresh_posterior(policy)
    as_count("most_passes", most_passes)
    parts, names = _parts(dataset, client)
    layout = Layout.of(names, context, action, reward)
    apply = here if client is None else on_cluster(client)
    each = -(-as_count("sample", sample) // len(parts))
    drawn = list(apply(part_sample, parts, layout, each, seed))
    candidates, rows = np.concatenate([points for points, _ in drawn]), sum(count for _, count in drawn)
    if not len(candidates):
        raise InputError("dataset: expected at least one row, got none.")
    passes = 0
    while True:
        basis = sample_basis(posterior, np.unique(candidates, axis=0), rows)
        sums = reduce(add, apply(part_sums, parts, basis, layout))
        passes += 1
        if passes >= most_passes or is_enough(posterior, sums):
            break
        candidates = np.concatenate([candidates, sums.missed])
    policy.learn_sums(basis, sums, len(layout.context))
    return Learned(sums.count, len(basis), passes, sums.residual_trace / sums.count)


def _fresh_posterior(policy: Policy) -> NystromPosterior:
    # a policy over a table has a posterior too, but encodes row by row
    posterior = policy.model if hasattr(policy, "learn_sums") else None
    if not isinstance(posterior, NystromPosterior) or posterior.history is not None:
        raise InputError(
            "policy: expected one over arrays with a kernel and a dictionary rule with history='none', since a log "
            "larger than memory cannot be kept; build ek_ucb(kernel, dictionary=Kors(history='none')). To learn the "
            "kernel, let another policy learn a sample first and take its posterior.kernel and "
            "posterior.regularization."
        )
    if policy.round_index or policy.pending:
        raise InputError("policy: expected one that has learned nothing yet.")
    if isinstance(getattr(policy, "confidence", None), GuaranteedRadius):
        raise InputError(
            "confidence: a radius with a guarantee does not hold for anchors chosen by points that came after "
            "rewards; learn the log with kernel_bandits.StandardDeviations(…)."
        )
    return posterior


def _parts(dataset: Any, client: Any) -> tuple[list[Any], list[str]]:
    """Return the parts of a dataset and its columns."""
    if isinstance(dataset, (str, Path)):
        parts: tuple[list[ParquetPart], list[str]] = parquet_parts(dataset)
        return parts
    return frame_parts(dataset, client), list(dataset.columns)
