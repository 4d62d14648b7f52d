"""Policies as plain data, and the run of many of them."""

from __future__ import annotations

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

from kernel_bandits.accelerated.covariance import family_of, scaling_of
from kernel_bandits.accelerated.engine import Played, draw, play, table_length
from kernel_bandits.accelerated.exact import ExactModel, UniformModel
from kernel_bandits.accelerated.models import Model, Room, Settings
from kernel_bandits.accelerated.nystrom import NystromModel
from kernel_bandits.accelerated.problems import PureEnvironment, Tables, tabulate
from kernel_bandits.arrays import FloatArray, as_count, as_positive
from kernel_bandits.confidence import Confidence, FixedRadius, StandardDeviations
from kernel_bandits.dictionaries import Kors
from kernel_bandits.dictionaries.base import as_rule
from kernel_bandits.dictionaries.leverage import OVERSAMPLING
from kernel_bandits.environments import Environment
from kernel_bandits.errors import InputError, UnavailableError
from kernel_bandits.experiments.records import RunResult
from kernel_bandits.kernels import KernelLike

Precision: TypeAlias = Literal["float64", "float32"]
Device: TypeAlias = Literal["cpu", "gpu"]

# Replicas of one compiled program: enough to fill a large GPU, few enough for dictionaries of a thousand anchors.
BATCH_SIZE = 1024
_ONE_STANDARD_DEVIATION = StandardDeviations(1.0)
_KORS = Kors()


class OutOfMemoryError(UnavailableError):
    """The memory of the device does not suffice for so many replicas at once."""


@dataclass(frozen=True)
class Replica:
    """A policy to be: what it computes, its numbers, and the seed of its coins and ties.

    Attributes:
        model: what one compiled program is made for.
        numbers: the fields of ``Settings`` up to the factor of squared distances.
        divisor: the lengthscale of each column, or (1,) where the factor holds it.
        seed: a whole number.
    """

    model: Model[Any]
    numbers: tuple[float, ...]
    divisor: tuple[float, ...]
    seed: int


def ek_ucb(
    kernel: KernelLike,
    *,
    regularization: float = 0.1,
    confidence: Confidence = _ONE_STANDARD_DEVIATION,
    dictionary: Kors = _KORS,
    seed: int = 0,
) -> Replica:
    """EK-UCB with a KORS dictionary; the arguments are those of :func:`kernel_bandits.ek_ucb`."""
    if not isinstance(as_rule(dictionary), Kors):
        raise InputError(
            f"dictionary: expected kernel_bandits.Kors(…), got {dictionary!r}; other rules run with kernel_bandits.run."
        )
    regularization = as_positive("regularization", regularization)
    mu = dictionary.leverage_regularization
    factor, divisor = scaling_of(kernel)
    numbers = (
        regularization,
        _bonus(confidence, regularization),
        regularization if mu is None else mu,
        dictionary.leverage_accuracy,
        OVERSAMPLING if dictionary.oversampling is None else dictionary.oversampling,
        math.inf if dictionary.max_size is None else float(dictionary.max_size),
        factor,
    )
    return Replica(NystromModel(family_of(kernel), dictionary.history == "all"), numbers, tuple(divisor.tolist()), seed)


def k_ucb(
    kernel: KernelLike,
    *,
    regularization: float = 0.1,
    confidence: Confidence = _ONE_STANDARD_DEVIATION,
    seed: int = 0,
) -> Replica:
    """K-UCB; the arguments are those of :func:`kernel_bandits.k_ucb`. A replica takes 8t² bytes."""
    regularization = as_positive("regularization", regularization)
    factor, divisor = scaling_of(kernel)
    numbers = (regularization, _bonus(confidence, regularization), 1.0, 1.0, 1.0, math.inf, factor)
    return Replica(ExactModel(family_of(kernel)), numbers, tuple(divisor.tolist()), seed)


def uniform(*, seed: int = 0) -> Replica:
    """Uniform play."""
    return Replica(UniformModel(), (1.0, 0.0, 1.0, 1.0, 1.0, math.inf, 1.0), (1.0,), seed)


def _bonus(confidence: Confidence, regularization: float) -> float:
    if not isinstance(confidence, FixedRadius):
        raise InputError(
            f"confidence: expected StandardDeviations or ConstantRadius, got {confidence!r}; radii that follow the "
            "posterior run with kernel_bandits.run."
        )
    return confidence.radius_at(regularization) / math.sqrt(regularization)


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
    """Play many policies in an environment at once.

    The same seed meets the same contexts and noise, flips the same coins and breaks ties alike as under
    ``kernel_bandits.run``: the record is that of the policy there, but for what rounding does to it.

    Args:
        replicas: what :func:`ek_ucb`, :func:`k_ucb` and :func:`uniform` describe. Those that differ in numbers alone
            share a program, and are sorted by their numbers into batches of one size.
        environment: one of ``kernel_bandits.environments``, any other with as many actions at every round, or a
            :class:`PureEnvironment`.
        horizon: T, the number of rounds.
        seeds: of the contexts and the noise, one per replica; that of each replica unless given.
        dtype: ``"float32"`` halves the memory and decides otherwise than float64 now and then.
        device: ``"gpu"`` or ``"cpu"``; the GPU unless there is none.
        batch_size: the most replicas that are in memory at once; memory is that of the largest dictionary in the batch
            for all.
        progress: called with the number of runs that have finished after each batch.

    Returns:
        One record per replica, in order. ``select_seconds`` holds the time of its batch, shared evenly over replicas
        and rounds, and ``update_seconds`` zeros: the two are one program.
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
    """Double precision switched on, and arrays placed on the device."""
    if dtype not in ("float64", "float32"):
        raise InputError(f"dtype: expected 'float64' or 'float32', got {dtype!r}.")
    try:
        chosen = jax.devices(device)[0]
    except RuntimeError as reason:
        raise InputError(
            f"device: JAX has no {device!r} here ({reason}); leave it out to take what there is."
        ) from reason
    with jax.enable_x64(True), jax.default_device(chosen):
        yield


def batches(replicas: Sequence[Replica], batch_size: int) -> Iterator[list[int]]:
    """Positions of replicas of one model, at most so many, neighbours in their numbers.

    The batches of a model are of one size, since each size has programs of its own; the last repeats a replica for it.
    """
    by_model: dict[Model[Any], list[int]] = {}
    for position, replica in enumerate(replicas):
        by_model.setdefault(replica.model, []).append(position)
    for positions in by_model.values():
        ordered = sorted(positions, key=lambda position: (replicas[position].numbers, replicas[position].divisor))
        size = math.ceil(len(ordered) / math.ceil(len(ordered) / batch_size))
        for start in range(0, len(ordered), size):
            batch = ordered[start : start + size]
            yield batch + batch[-1:] * (size - len(batch))


def _run_batch(
    replicas: Sequence[Replica],
    environment: Environment | PureEnvironment,
    horizon: int,
    seeds: Sequence[int],
    dtype: Precision,
) -> list[RunResult]:
    started = perf_counter()
    tables, played = play_batch(replicas, environment, horizon, seeds, dtype)
    share = np.full(horizon, (perf_counter() - started) / (len(replicas) * horizon))
    zeros = np.zeros(horizon)
    _, scene = distinct(seeds)
    regret = np.cumsum(played.regrets, axis=1)
    rounds = np.arange(horizon)
    return [
        RunResult(
            regret=regret[i],
            rewards=played.rewards[i],
            action_indices=rows,
            actions=tables.actions[rows] if tables.actions.ndim == 2 else tables.actions[scene[i], rounds, rows],
            contexts=tables.contexts[scene[i], :horizon],
            dictionary_size=played.sizes[i],
            select_seconds=share,
            update_seconds=zeros,
        )
        for i, rows in enumerate(played.rows)
    ]


def play_batch(
    replicas: Sequence[Replica],
    environment: Environment | PureEnvironment,
    horizon: int,
    seeds: Sequence[int],
    dtype: Precision = "float64",
    room: Room | None = None,
    progress: Callable[[int], None] | None = None,
) -> tuple[Tables, Played]:
    """Play replicas of one model at once, inside :func:`computing`; what was met and what was done.

    ``progress`` is told the number of finished rounds after each chunk of them.
    """
    unique_seeds, scene = distinct(seeds)
    unique_players, player = distinct([replica.seed for replica in replicas])
    with ThreadPoolExecutor(1) as other:
        drawing = other.submit(draw, horizon, unique_players)
        tables = tabulate(environment, horizon, unique_seeds, table_length(horizon))
        draws = drawing.result()
    dimension = tables.contexts.shape[2] + tables.actions.shape[-1]
    settings = settings_of(replicas, dimension, dtype)
    return tables, play(replicas[0].model, settings, tables, draws, scene, player, room, progress)


def distinct(seeds: Sequence[int]) -> tuple[list[int], NDArray[np.intp]]:
    """Each seed once, and the place of every seed among them; as an array large seeds beside small ones are rounded."""
    places = {seed: place for place, seed in enumerate(dict.fromkeys(seeds))}
    return list(places), np.array([places[seed] for seed in seeds], np.intp)


def settings_of(replicas: Sequence[Replica], dimension: int, dtype: Precision) -> Settings:
    """The numbers of replicas as arrays, for points of ``dimension`` columns."""
    wrong = {len(replica.divisor) for replica in replicas} - {1, dimension}
    if wrong:
        raise InputError(
            f"lengthscale: {wrong.pop()} lengthscales were given for points with {dimension} columns; "
            "give one number, or one per column, context columns first."
        )
    divisor: FloatArray = np.array([np.broadcast_to(replica.divisor, dimension) for replica in replicas])
    columns = np.array([replica.numbers for replica in replicas]).T
    return Settings._make(jnp.asarray(column, dtype) for column in (*columns, divisor))
