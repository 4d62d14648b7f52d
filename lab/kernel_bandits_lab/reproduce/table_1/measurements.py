"""Time and memory of every algorithm of Table 1 against T, the number of anchors m and the number of actions A.

A case runs twice with one BLAS thread: once for the processor time of the thread, and once traced for peak memory. The
environment is smooth, so m hardly grows once it is explored. The kernel's lengthscale, which determines the effective
dimension, varies m.
"""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from time import thread_time
from typing import Literal, TypeAlias

import kernel_bandits as kb
from kernel_bandits.environments import MovingOptimum
from kernel_bandits.numerics.linalg import single_threaded
from kernel_bandits.policy import Policy
from kernel_bandits.rng import stream

Axis: TypeAlias = Literal["T", "m", "A"]
FILE = "measurements.jsonl"
RIDGE = 0.1
LENGTHSCALE, ACTIONS = 0.5, 10
LENGTHSCALES = (1.0, 0.5, 0.35, 0.25, 0.18)
ACTION_NUMBERS = (10, 40, 160, 640)


@dataclass(frozen=True, slots=True)
class Algorithm:
    """An algorithm of Table 1.

    Attributes:
        label: its name.
        preset: makes the policy.
        horizon: the longest run, on the axis T.
        size_horizon: rounds on the axis m; None where there are no anchors to vary.
        action_horizon: rounds on the axis A.
    """

    label: str
    preset: Callable[..., Policy]
    horizon: int
    size_horizon: int | None
    action_horizon: int

    def policy(self, kernel: kb.Gaussian, horizon: int, seed: int) -> Policy:
        """Return the policy for a run."""
        options = {"horizon": horizon} if self.preset is kb.sup_kernel_ucb else {}
        return self.preset(kernel, regularization=RIDGE, seed=seed, **options)


ALGORITHMS = (
    Algorithm("K-UCB, CGP-UCB", kb.k_ucb, 2400, None, 400),
    Algorithm("SupKernelUCB", kb.sup_kernel_ucb, 2400, None, 400),
    Algorithm("CBKB", kb.cbkb, 1200, 300, 200),
    Algorithm("CBBKB, C = 10", kb.cbbkb, 4800, 2000, 400),
    Algorithm("EK-UCB", kb.ek_ucb, 4800, 2000, 400),
    Algorithm("EK-UCB, no history", partial(kb.ek_ucb, dictionary=kb.Kors(history="none")), 4800, 2000, 400),
)


@dataclass(frozen=True, slots=True)
class Case:
    """One point or, on the axis T, one curve of one algorithm."""

    axis: Axis
    algorithm: str
    horizon: int
    lengthscale: float
    actions: int
    seed: int


@dataclass(frozen=True, slots=True)
class Measurement:
    """Time and memory of a case, after several numbers of rounds.

    Attributes:
        case: what was run.
        rounds: T.
        seconds: processor time of ``select`` and ``update`` until then.
        peak_bytes: peak memory of Python and NumPy until then.
        sizes: number of anchors, or of points that carry the model.
    """

    case: Case
    rounds: tuple[int, ...]
    seconds: tuple[float, ...]
    peak_bytes: tuple[int, ...]
    sizes: tuple[int, ...]


def cases(quick: bool) -> list[Case]:
    """Return all cases, ordered by seed; the quick ones are shorter, fewer and smaller."""
    shorter, seeds = (4, 1) if quick else (1, 5)
    sizes = LENGTHSCALES[:3] if quick else LENGTHSCALES
    numbers = ACTION_NUMBERS[:3] if quick else ACTION_NUMBERS
    planned = []
    for seed in range(seeds):
        for one in ALGORITHMS:
            planned.append(Case("T", one.label, one.horizon // shorter, LENGTHSCALE, ACTIONS, seed))
            if one.size_horizon is not None:
                rounds = one.size_horizon // shorter
                planned += [Case("m", one.label, rounds, lengthscale, ACTIONS, seed) for lengthscale in sizes]
            rounds = one.action_horizon // shorter
            planned += [Case("A", one.label, rounds, LENGTHSCALE, number, seed) for number in numbers]
    return planned


def measure(folder: Path, quick: bool, progress: Callable[[int, int, str], None]) -> None:
    """Measure the cases that the folder does not have yet.

    Args:
        folder: holds a line of JSON per case.
        quick: measure fewer, shorter cases.
        progress: called with the number done, the total, and a label of the next case.
    """
    folder.mkdir(parents=True, exist_ok=True)
    planned = cases(quick)
    done = {measurement.case for measurement in read(folder)}
    with (folder / FILE).open("a", encoding="utf-8") as file:
        for number, case in enumerate(planned):
            progress(number, len(planned), f"{case.algorithm}, axis {case.axis}, seed {case.seed}")
            if case not in done:
                file.write(json.dumps(asdict(measure_case(case)), ensure_ascii=False) + "\n")
                file.flush()
    progress(len(planned), len(planned), "")


def read(folder: Path) -> list[Measurement]:
    """Read the measurements in the folder. An incomplete last line is dropped, and so measured again."""
    path = folder / FILE
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    whole = [line for line in lines if line.endswith("}\n")]
    if whole != lines:
        path.write_text("".join(whole), encoding="utf-8")
    return [_measurement(json.loads(line)) for line in whole]


def _measurement(data: dict[str, object]) -> Measurement:
    case = data.pop("case")
    assert isinstance(case, dict)
    return Measurement(Case(**case), **{key: tuple(value) for key, value in data.items()})  # type: ignore[arg-type] # JSON


def measure_case(case: Case) -> Measurement:
    """Run the case twice, timed and traced."""
    with single_threaded():
        timed = list(_rounds(case))
        tracemalloc.start()
        try:
            traced = list(_rounds(case, peak=lambda: tracemalloc.get_traced_memory()[1]))
        finally:
            tracemalloc.stop()
    rounds, seconds, _, sizes = zip(*timed, strict=True)
    peaks = tuple(peak for _, _, peak, _ in traced)
    return Measurement(case, rounds, seconds, peaks, sizes)


def _rounds(case: Case, peak: Callable[[], int] = lambda: 0) -> Iterator[tuple[int, float, int, int]]:
    """Yield rounds, seconds, peak bytes and anchors after 1/8, 1/4, 1/2 and all of the rounds."""
    environment = MovingOptimum(2, case.actions)
    algorithm = next(one for one in ALGORITHMS if one.label == case.algorithm)
    contexts, noise = stream(case.seed, "contexts"), stream(case.seed, "noise")
    policy = algorithm.policy(kb.Gaussian(case.lengthscale), case.horizon, case.seed)
    stops: Sequence[int] = [case.horizon // 8, case.horizon // 4, case.horizon // 2, case.horizon]
    seconds = 0.0
    for number in range(1, case.horizon + 1):
        offer = environment.next_round(contexts)
        started = thread_time()
        decision = policy.select(offer.context, offer.actions)
        seconds += thread_time() - started
        reward = environment.expected_rewards(offer.context, offer.rows)[decision.index] + environment.noise(noise)
        started = thread_time()
        policy.update(offer.context, decision.action, reward)
        seconds += thread_time() - started
        if number in stops:
            yield number, seconds, peak(), policy.dictionary_size
