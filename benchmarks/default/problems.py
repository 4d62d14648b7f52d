"""Random problems: is the default ever worse than chance, or than the best single arm?

    python benchmarks/default/problems.py --problems 300 --rounds 600 [--first 0]
    python benchmarks/default/problems.py --problems 100 --rounds 3000 [--first 1000]

Each problem draws its own signal, noise, columns and arms, how its rewards are told, and whether a log of uniform play
comes before it. The default and uniform play meet the same contexts, and what is compared is the expected reward of the
actions played, so that luck in what they paid does not blur it. A run is *below chance* where it earns less than
uniform play by more than the rewards of uniform play spread, noise included, at a level of 5 % divided by the number of
problems. It is *short* where the best single arm earns more by over 5 % of the way from uniform play to the best of
each context. That arm is known in hindsight only, and where rewards are mostly noise nobody finds it; so it is said how
short a bandit falls that looks at arms alone, by bounds of two standard errors, and is told every reward at once.
"""

from __future__ import annotations

import argparse
import heapq
import math
import multiprocessing
import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

import kernel_bandits as kb

Array = NDArray[np.float64]
NOISES = ("gaussian", "coin", "rare coin", "heavy", "outliers", "none", "constant", "zero-inflated", "jackpots")
ACTIONS = ("named", "described", "described anew", "one")
# Rewards come at once, all late, the better half earlier, or a fifth of them never.
TOLD = ("at once", "at once", "late", "hurried", "missing")
# Rows of the log of a warm start, and rounds that late rewards wait; the better half hurries to a tenth of them.
LOG, WAIT = 500, 150


@dataclass(frozen=True)
class Problem:
    """Contexts (T, d), actions (T, A, a), expected rewards, what is paid, and the same in other units (T, A).

    The first rows are a log of uniform play; ``waits`` (T, A) are the rounds until a reward is told, inf for never.
    """

    contexts: Array
    actions: Array
    expected: Array
    paid: Array
    rewards: Array
    waits: Array
    log: int
    description: str


def _surface(generator: np.random.Generator, contexts: Array, actions: Array, named: bool) -> Array:
    """Expected rewards before scaling: linear and smooth parts of some of the columns, different for every arm."""
    rounds, count = actions.shape[:2]
    useful = generator.random(contexts.shape[1]) < generator.choice([0.2, 0.6, 1.0])
    columns = contexts * useful
    size = actions.shape[2] if not named else count
    described = np.broadcast_to(np.eye(count), (rounds, count, count)) if named else actions
    weights = generator.normal(size=(columns.shape[1], size))
    linear = np.einsum("td,dk,tak->ta", columns, weights, described)
    width = max(1.0, math.sqrt(max(useful.sum(), 1)))
    frequencies = generator.normal(size=(columns.shape[1], size)) / width
    wave = np.sin(2.0 * np.einsum("td,dk->tk", columns, frequencies) + generator.uniform(0.0, 6.3, size))
    smooth = np.einsum("tk,tak->ta", wave, described)
    base = described @ generator.normal(size=size)
    parts = [one / (one.std() or 1.0) * generator.random() for one in (linear, smooth, base)]
    return np.sum(parts, axis=0)


def drawn(number: int, rounds: int) -> Problem:
    """Return the problem of a number."""
    generator = np.random.default_rng([20261119, number])
    noise, kind, told = generator.choice(NOISES), generator.choice(ACTIONS), generator.choice(TOLD)
    log = LOG if generator.random() < 0.25 else 0
    rounds += log
    columns, count = round(10 ** generator.uniform(0.0, 2.0)), int(generator.integers(2, 31))
    if noise == "jackpots":
        # nobody comes back to a place in many columns
        columns = min(columns, 3)
    signal = float(generator.choice([0.0, 0.02, 0.1, 0.3, 0.7, 1.0]))
    contexts = generator.normal(size=(rounds, columns))
    flags = generator.random(columns) < 0.3
    contexts[:, flags] = contexts[:, flags] > 1.0
    if columns > 2 and generator.random() < 0.3:
        contexts[:, -1], contexts[:, -2] = contexts[:, 0], 7.0
    contexts *= 10.0 ** generator.integers(-3, 4, size=columns)
    if kind == "one":
        count = 1
    named = kind in ("named", "one")
    if named:
        actions = np.broadcast_to(np.eye(count), (rounds, count, count))
    elif kind == "described":
        actions = np.broadcast_to(generator.normal(size=(count, 3)), (rounds, count, 3))
    else:
        actions = generator.normal(size=(rounds, count, 3))
    scaled = (contexts - contexts.mean(axis=0)) / np.where(contexts.std(axis=0) > 0.0, contexts.std(axis=0), 1.0)
    surface = _surface(generator, scaled, actions, named)
    surface = (surface - surface.mean()) / (surface.std() or 1.0)
    if noise in ("coin", "rare coin"):
        level = -0.5 if noise == "coin" else -3.5
        expected = 1.0 / (1.0 + np.exp(-(level + 2.5 * signal * surface)))
        rewards = (generator.random(expected.shape) < expected).astype(float)
    elif noise == "zero-inflated":
        # some buy, each action at a price of its own
        prices = np.exp(generator.normal(size=count) if named else actions @ generator.normal(size=3) / math.sqrt(3.0))
        chances = 1.0 / (1.0 + np.exp(2.5 - 2.5 * signal * surface))
        amounts = prices * np.exp(0.5 * generator.normal(size=chances.shape) - 0.125)
        expected, rewards = chances * prices, np.where(generator.random(chances.shape) < chances, amounts, 0.0)
    elif noise == "jackpots":
        # where a column is large, or anywhere, one action pays a thousand times what others differ by
        share = generator.uniform(0.02, 0.2)
        where = scaled[:, 0] > np.quantile(scaled[:, 0], 1.0 - share) if signal else generator.random(rounds) < share
        lucky = surface.argmin(axis=1) if kind == "described anew" else surface.mean(axis=0).argmin()
        lucky = np.broadcast_to(lucky, rounds) if signal else generator.integers(count, size=rounds)
        expected = 1.0 + 0.05 * math.sqrt(signal) * surface
        expected[where, lucky[where]] = 50.0
        rewards = expected + 0.05 * generator.normal(size=expected.shape)
        if not signal:
            # nobody could know
            expected = np.full_like(expected, expected.mean())
    else:
        expected, rest = math.sqrt(signal) * surface, math.sqrt(1.0 - signal)
        if noise == "constant":
            expected = np.zeros_like(expected)
        size = expected.shape
        shapes = {
            "gaussian": lambda: rest * generator.normal(size=size),
            "heavy": lambda: rest * generator.standard_t(2.1, size=size),
            "outliers": lambda: (
                rest * generator.normal(size=size) * np.where(generator.random(size) < 0.01, 100.0, 1.0)
            ),
        }
        rewards = expected + (shapes[noise]() if noise in shapes else 0.0)
    unit = 10.0 ** float(generator.integers(-4, 5))
    shift = unit * float(generator.choice([0.0, 0.0, 10.0, -100.0]))
    waits = np.full(rewards.shape, 0.0 if told in ("at once", "missing") else float(WAIT))
    if told == "hurried":
        waits[rewards > np.median(rewards)] = WAIT // 10
    if told == "missing":
        waits[generator.random(waits.shape) < 0.2] = np.inf
    words = f"{noise}, {kind}, told {told}{', after a log' if log else ''}"
    description = f"{words}, {columns} columns, {count} actions, signal {signal:g}"
    return Problem(contexts, actions, expected, rewards, shift + unit * rewards, waits, log, description)


@dataclass(frozen=True)
class Result:
    """How far above uniform play a run came, in standard deviations of its rewards and as a share of the way.

    ``short`` is what the best single arm earned more, as a share of the way; ``by_arms`` that over a bandit of arms.
    """

    number: int
    description: str
    deviations: float
    share: float
    short: float
    by_arms: float
    seconds: float
    slowest: float


def by_arms(expected: Array, paid: Array) -> float:
    """Return the expected rewards (T, A) of a bandit that looks at arms alone."""
    count = expected.shape[1]
    sums, plays, square, total = np.zeros(count), np.zeros(count), 0.0, 0.0
    for t in range(len(paid)):
        if t < count:
            arm = t
        else:
            means = sums / plays
            deviation = math.sqrt(max(square / t - (sums.sum() / t) ** 2, 0.0))
            arm = int((means + 2.0 * deviation / np.sqrt(plays)).argmax())
        sums[arm] += paid[t, arm]
        plays[arm] += 1.0
        square += paid[t, arm] ** 2
        total += expected[t, arm]
    return total


def played(task: tuple[int, int]) -> Result:
    """Play one problem."""
    number, rounds = task
    problem = drawn(number, rounds)
    policy, log = kb.ek_ucb(seed=number), problem.log
    if log:
        rows, arms = np.arange(log), np.random.default_rng(number).integers(problem.actions.shape[1], size=log)
        policy.update_many(problem.contexts[:log], problem.actions[rows, arms], problem.rewards[rows, arms])
    earned, started, slowest, waiting = 0.0, time.perf_counter(), 0.0, list[tuple[float, int, float]]()
    for t in range(log, log + rounds):
        begun = time.perf_counter()
        decision = policy.ask(problem.contexts[t], problem.actions[t])
        index, key = decision.index, decision.id
        assert key is not None  # as always from ask
        due = t + problem.waits[t, index]
        if np.isfinite(due):
            heapq.heappush(waiting, (due, key, float(problem.rewards[t, index])))
        while waiting and waiting[0][0] <= t:
            policy.tell(*heapq.heappop(waiting)[1:])
        slowest = max(slowest, time.perf_counter() - begun)
        if not np.isfinite([decision.mean, decision.std]).all():
            raise FloatingPointError(f"problem {number}, round {t}: {decision}")
        earned += problem.expected[t, index]
    expected, paid = problem.expected[log:], problem.paid[log:]
    uniform, best = expected.mean(axis=1).sum(), expected.max(axis=1).sum()
    spread, way, single = math.sqrt(paid.var(axis=1).sum()), best - uniform, expected.mean(axis=0).max() * rounds
    return Result(
        number,
        problem.description,
        (earned - uniform) / spread if spread > 1e-9 else 0.0,
        (earned - uniform) / way if way > 1e-9 else 0.0,
        (single - earned) / way if way > 1e-9 else 0.0,
        (single - by_arms(expected, paid)) / way if way > 1e-9 else 0.0,
        time.perf_counter() - started,
        slowest,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=600)
    parser.add_argument("--first", type=int, default=0, help="number of the first problem")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    tasks = [(options.first + number, options.rounds) for number in range(options.problems)]
    with multiprocessing.Pool(options.jobs) as pool:
        results = pool.map(played, tasks, chunksize=1)
    limit = float(norm.ppf(0.05 / len(tasks)))
    below = [result for result in results if result.deviations < limit]
    for result in sorted(results, key=lambda result: result.deviations)[:15]:
        print(f"{result.number:4d} {result.deviations:7.2f} {result.share:6.2f}  {result.description}")
    print(
        f"{len(below)} of {len(results)} below chance "
        f"(under {limit:.2f} standard deviations of the rewards of uniform play)"
    )
    short = [result for result in results if result.short > 0.05]
    for result in sorted(short, key=lambda result: -result.short):
        words = f"short by {result.short:.2f}, by arms alone {result.by_arms:.2f}, share {result.share:.2f}"
        print(f"{result.number:4d} {words}  {result.description}")
    own = sum(result.short > 0.05 + max(result.by_arms, 0.0) for result in results)
    print(
        f"{len(short)} of {len(results)} below the best single arm by more than 5 % of the way; {own} by as much more "
        "than a bandit over arms is"
    )
    shares = np.array([result.share for result in results if result.share])
    print(f"median share of the way from uniform to the best {np.median(shares):.2f}")
    print(f"slowest run {max(r.seconds for r in results):.1f} s, slowest round {max(r.slowest for r in results):.2f} s")


if __name__ == "__main__":
    main()
