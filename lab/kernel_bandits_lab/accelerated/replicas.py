"""Describe policies as plain data and run many of them at once."""

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from kernel_bandits.arrays import as_count, as_positive
from kernel_bandits.confidence import Confidence, FixedRadius, StandardDeviations
from kernel_bandits.dictionaries import Kors
from kernel_bandits.dictionaries.base import as_rule
from kernel_bandits.dictionaries.kors import OVERSAMPLING
from kernel_bandits.environments import Environment
from kernel_bandits.errors import InputError, UnavailableError
from kernel_bandits.kernels import Gaussian, KernelLike
from kernel_bandits.loop import RunResult
from kernel_bandits.posterior import ExactPosterior
from kernel_bandits_lab.accelerated.arrays import family_of, scaling_of
from kernel_bandits_lab.accelerated.engine import Trajectories, simulate
from kernel_bandits_lab.accelerated.models import AnyModel, Batch, Capacity, ExactModel, ExactSettings, UniformModel
from kernel_bandits_lab.accelerated.nystrom import NystromModel, NystromSettings
from kernel_bandits_lab.accelerated.problems import PureEnvironment, RoundSource, Tables, draw, table_length, tabulate

Precision: TypeAlias = Literal["float64", "float32"]
Device: TypeAlias = Literal["cpu", "gpu"]

# Replicas of one compiled program: enough to fill a large GPU, few enough for dictionaries of a thousand anchors.
BATCH_SIZE = 1024
_ONE_STANDARD_DEVIATION = StandardDeviations(1.0)
_KORS = Kors()


class OutOfMemoryError(UnavailableError):
    """The device does not have enough memory for this many replicas at once."""


@dataclass(frozen=True)
class Replica:
    """A policy that is yet to run.

    Attributes:
        model: one compiled program serves all replicas with the same model.
        settings: the numbers that the model takes; None if it takes none.
        seed: of the coins and tie-breaks, a whole number.
        lengthscales: one per column, or (1,) if the settings hold a common one.
        max_anchors: hard cap on the number of anchors.
    """

    model: AnyModel
    settings: Any
    seed: int
    lengthscales: tuple[float, ...] = (1.0,)
    max_anchors: float = math.inf


def ek_ucb(
    kernel: KernelLike,
    *,
    regularization: float = 0.1,
    confidence: Confidence = _ONE_STANDARD_DEVIATION,
    dictionary: Kors = _KORS,
    seed: int = 0,
) -> Replica:
    """Describe EK-UCB with a KORS dictionary; the arguments are those of :func:`kernel_bandits.ek_ucb`."""
    if not isinstance(as_rule(dictionary), Kors):
        raise InputError(
            f"dictionary: expected kernel_bandits.Kors(…), got {dictionary!r}; other rules run with kernel_bandits.run."
        )
    regularization = as_positive("regularization", regularization)
    mu, oversampling, limit = dictionary.leverage_regularization, dictionary.oversampling, dictionary.max_size
    factor, lengthscales = scaling_of(kernel)
    settings = NystromSettings(
        regularization=regularization,
        bonus=_bonus(confidence, regularization),
        leverage_regularization=regularization if mu is None else float(mu),
        leverage_accuracy=float(dictionary.leverage_accuracy),
        oversampling=OVERSAMPLING if oversampling is None else float(oversampling),
        factor=factor,
    )
    model = NystromModel(family_of(kernel), dictionary.history == "all")
    return Replica(model, settings, seed, lengthscales, math.inf if limit is None else float(limit))


def k_ucb(
    kernel: KernelLike, *, regularization: float = 0.1, confidence: Confidence = _ONE_STANDARD_DEVIATION, seed: int = 0
) -> Replica:
    """Describe K-UCB; the arguments are those of :func:`kernel_bandits.k_ucb`. A replica takes 8t² bytes."""
    regularization = as_positive("regularization", regularization)
    factor, lengthscales = scaling_of(kernel)
    settings = ExactSettings(regularization, bonus=_bonus(confidence, regularization), factor=factor)
    return Replica(ExactModel(family_of(kernel)), settings, seed, lengthscales)


def uniform(*, seed: int = 0) -> Replica:
    """Describe uniform play."""
    return Replica(UniformModel(), None, seed)


def _bonus(confidence: Confidence, regularization: float) -> float:
    """Return β/√λ."""
    if not isinstance(confidence, FixedRadius):
        raise InputError(
            f"confidence: expected StandardDeviations or ConstantRadius, got {confidence!r}; radii that follow the "
            "posterior run with kernel_bandits.run."
        )
    return confidence.radius(ExactPosterior(Gaussian(), regularization)) / math.sqrt(regularization)


def run_many(
    replicas: Sequence[Replica],
    environment: Environment | PureEnvironment,
    horizon: int,
    seeds: Sequence[int] | None = None,
    *,
    dtype: Precision = "float64",
    device: Device | None = None,
    batch_size: int = BATCH_SIZE,
    progress: Callable[[int], None] | None = None,
) -> list[RunResult]:
    """Run many policies in an environment at once.

    A seed draws the same contexts, noise, coins and tie-breaks as under ``kernel_bandits.run``: the record is the one
    of the policy there, up to rounding.

    Args:
        replicas: from :func:`ek_ucb`, :func:`k_ucb` and :func:`uniform`. Those that differ only in numbers share a
            program; they are sorted by their numbers into batches of one size.
        environment: one of ``kernel_bandits.environments``, any other with the same number of actions at every round,
            or a :class:`PureEnvironment`.
        horizon: T, the number of rounds.
        seeds: of the contexts and the noise, one per replica; by default the seed of the replica.
        dtype: ``"float32"`` halves the memory, and now and then decides differently from float64.
        device: ``"gpu"`` or ``"cpu"``; by default the GPU if there is one.
        batch_size: the largest number of replicas in memory at once; each takes the memory of the largest dictionary
            in its batch.
        progress: called with the number of finished runs after each batch.

    Returns:
        One record per replica, in order. ``select_seconds`` is the time of the batch, shared evenly over replicas and
            rounds, and ``update_seconds`` is zero: the two are one program.
    """
    horizon, batch_size = as_count("horizon", horizon), as_count("batch_size", batch_size)
    seeds = [replica.seed for replica in replicas] if seeds is None else list(seeds)
    if not replicas or len(seeds) != len(replicas):
        raise InputError(f"seeds: expected one per replica, {len(replicas)} and at least one, got {len(seeds)}.")
    results: list[RunResult | None] = [None] * len(replicas)
    with computing(dtype, device):
        for numbers in batches(replicas, batch_size):
            batch = [replicas[i] for i in numbers]
            try:
                records = _run_batch(batch, environment, horizon, [seeds[i] for i in numbers], dtype)
            except jax.errors.JaxRuntimeError as reason:
                if "RESOURCE_EXHAUSTED" not in str(reason):
                    raise
                raise OutOfMemoryError(
                    f"batch_size: {len(batch)} replicas at once do not fit into the memory of the device; "
                    "give a smaller one."
                ) from reason
            for i, record in zip(numbers, records, strict=True):
                results[i] = record
            if progress is not None:
                progress(sum(result is not None for result in results))
    return [result for result in results if result is not None]


@contextmanager
def computing(dtype: Precision, device: Device | None) -> Iterator[None]:
    """Switch on double precision and place arrays on the device."""
    if dtype not in ("float64", "float32"):
        raise InputError(f"dtype: expected 'float64' or 'float32', got {dtype!r}.")
    try:
        chosen = jax.devices(device)[0]
    except RuntimeError as reason:
        raise InputError(
            f"device: JAX has no {device!r} here ({reason}); leave it out to use the device there is."
        ) from reason
    with jax.enable_x64(True), jax.default_device(chosen):
        yield


def batches(replicas: Sequence[Replica], batch_size: int) -> Iterator[list[int]]:
    """Yield positions of replicas of one model, at most ``batch_size`` of them, with similar settings.

    The batches of a model have one size, since each size has programs of its own; the last batch repeats a replica to
    reach it.
    """
    by_model: dict[AnyModel, list[int]] = {}
    for position, replica in enumerate(replicas):
        by_model.setdefault(replica.model, []).append(position)
    for positions in by_model.values():
        if replicas[positions[0]].settings is not None:
            positions.sort(key=lambda i: (replicas[i].settings, replicas[i].max_anchors, replicas[i].lengthscales))
        size = math.ceil(len(positions) / math.ceil(len(positions) / batch_size))
        for start in range(0, len(positions), size):
            batch = positions[start : start + size]
            yield batch + batch[-1:] * (size - len(batch))


def _run_batch(
    replicas: Sequence[Replica],
    environment: Environment | PureEnvironment,
    horizon: int,
    seeds: Sequence[int],
    dtype: Precision,
) -> list[RunResult]:
    started = perf_counter()
    tables, trajectories = simulate_batch(replicas, environment, horizon, seeds, dtype)
    share = np.full(horizon, (perf_counter() - started) / (len(replicas) * horizon))
    zeros = np.zeros(horizon)
    _, table_rows = distinct(seeds)
    regret = np.cumsum(trajectories.regrets, axis=1)
    rounds = np.arange(horizon)
    chance = np.full(horizon, 1.0 / tables.actions.shape[-2])
    return [
        RunResult(
            regret=regret[i],
            rewards=trajectories.rewards[i],
            action_indices=rows,
            actions=tables.actions[rows] if tables.actions.ndim == 2 else tables.actions[table_rows[i], rounds, rows],
            contexts=tables.contexts[table_rows[i], :horizon],
            dictionary_size=trajectories.sizes[i],
            select_seconds=share,
            update_seconds=zeros,
            propensities=chance if isinstance(replicas[i].model, UniformModel) else None,
        )
        for i, rows in enumerate(trajectories.rows)
    ]


def simulate_batch(
    replicas: Sequence[Replica],
    environment: Environment | PureEnvironment,
    horizon: int,
    seeds: Sequence[int],
    dtype: Precision = "float64",
    capacity: Capacity | None = None,
    progress: Callable[[int], None] | None = None,
) -> tuple[Tables, Trajectories]:
    """Run replicas of one model at once, inside :func:`computing`; return the rounds they met and the choices made.

    The arguments are those of :func:`run_many` and :func:`simulate`.
    """
    environment_seeds, environment_rows = distinct(seeds)
    policy_seeds, policy_rows = distinct([replica.seed for replica in replicas])
    with ThreadPoolExecutor(1) as other:
        drawing = other.submit(draw, horizon, policy_seeds)
        tables = tabulate(environment, horizon, environment_seeds, table_length(horizon))
        draws = drawing.result()
    batch = batch_of(replicas, tables.contexts.shape[2] + tables.actions.shape[-1], dtype)
    source = RoundSource(tables, draws, environment_rows, policy_rows, batch.lengthscales)
    return tables, simulate(replicas[0].model, batch, source, capacity, progress)


def distinct(seeds: Sequence[int]) -> tuple[list[int], NDArray[np.intp]]:
    """Return each seed once, and the place of every seed among them; a NumPy array would round large seeds."""
    places = {seed: place for place, seed in enumerate(dict.fromkeys(seeds))}
    return list(places), np.array([places[seed] for seed in seeds], np.intp)


def batch_of(replicas: Sequence[Replica], dimension: int, dtype: Precision) -> Batch[Any]:
    """Return the settings of replicas as arrays, for points of ``dimension`` columns."""
    wrong = {len(replica.lengthscales) for replica in replicas} - {1, dimension}
    if wrong:
        raise InputError(
            f"lengthscale: {wrong.pop()} lengthscales were given for points with {dimension} columns; "
            "give one number, or one per column, context columns first."
        )
    lengthscales = np.array([np.broadcast_to(replica.lengthscales, dimension) for replica in replicas])
    return Batch(
        jax.tree.map(lambda *values: jnp.asarray(values, dtype), *(replica.settings for replica in replicas)),
        jnp.asarray(lengthscales, dtype),
        jnp.asarray([replica.max_anchors for replica in replicas], dtype),
    )
