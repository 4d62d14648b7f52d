"""Do intervals that are looked at after every round keep what they promise, and how much longer are they?

Logs of 3,000 rounds, three arms and two kinds of visitors, rewards 0 or 1, simulated side by side: of a fixed rule,
and of UCB with a floor, Thompson sampling and inverse gap weighting, which learn from the log that they write. For each
candidate: the share of logs whose interval ever excludes the truth, its length at the end against that of the interval
of a fixed time, and how often that one contains the truth. Models are the running means of what was seen.

Run: python benchmarks/off_policy_watched.py [logs] [sequences | fixed | caps | differences]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernel_bandits.arrays import FloatArray
from kernel_bandits.offpolicy import ArmDifference, BoundedMean, CandidateValue, modelled_terms
from kernel_bandits.offpolicy.estimators import stabilising_weights
from kernel_bandits.offpolicy.intervals import studentised
from kernel_bandits.offpolicy.overlap import effective_rounds
from kernel_bandits.offpolicy.sequences import CAPS, Sums, log_mixture

ROUNDS, ARMS, FLOOR, TOGETHER = 3000, 3, 0.05, 100
RULES = ("fixed", "UCB with a floor", "Thompson", "inverse gap")
WORLDS = {
    "different arms": np.array([[0.3, 0.4, 0.5], [0.5, 0.4, 0.3]]),
    "equal arms": np.full((2, 3), 0.4),
}


@dataclass(frozen=True)
class Logs:
    """Logs side by side, shapes (L, T) and (L, T, A): visitors, probabilities, plays, rewards, running means."""

    kinds: NDArray[np.intp]
    probabilities: FloatArray
    played: NDArray[np.intp]
    rewards: FloatArray
    means: FloatArray


def shares(rule: str, means: FloatArray, plays: FloatArray, t: int, generator: np.random.Generator) -> FloatArray:
    """Return the probabilities (L, A) of a rule, from the means and plays of each arm for the visitor at hand."""
    each, best = np.arange(len(means)), means.argmax(axis=1)
    if rule == "fixed":
        return np.tile([0.2, 0.3, 0.5], (len(means), 1))
    if rule == "UCB with a floor":
        best = (means + 0.5 * np.sqrt(2.0 * np.log(t + 2) / plays)).argmax(axis=1)
        table = np.zeros(means.shape)
        table[each, best] = 1.0
    elif rule == "Thompson":
        draws = means[:, None] + np.sqrt(0.25 / plays)[:, None] * generator.normal(size=(len(means), 100, ARMS))
        table = np.stack([(draws.argmax(axis=2) == arm).mean(axis=1) for arm in range(ARMS)], axis=1)
    else:
        gaps = means.max(axis=1, keepdims=True) - means
        table = 1.0 / (ARMS + 4.0 * np.sqrt(t + 1) * gaps)
        table[each, best] = 0.0
        table[each, best] = 1.0 - table.sum(axis=1)
        return table
    return FLOOR / ARMS + (1.0 - FLOOR) * table


def simulated(rule: str, expected: FloatArray, count: int, seed: int) -> Logs:
    generator, each = np.random.default_rng(seed), np.arange(count)
    plays, sums = np.ones((count, 2, ARMS)), np.full((count, 2, ARMS), 0.5)
    kinds = generator.integers(2, size=(count, ROUNDS))
    tables, means = np.empty((2, count, ROUNDS, ARMS))
    played, rewards = np.empty((count, ROUNDS), dtype=np.intp), np.empty((count, ROUNDS))
    for t in range(ROUNDS):
        kind = kinds[:, t]
        means[:, t] = sums[each, kind] / plays[each, kind]
        tables[:, t] = shares(rule, means[:, t], plays[each, kind], t, generator)
        chosen = (generator.random((count, 1)) > tables[:, t].cumsum(axis=1)).sum(axis=1).clip(0, ARMS - 1)
        played[:, t], rewards[:, t] = chosen, generator.random(count) < expected[kind, chosen]
        plays[each, kind, chosen] += 1.0
        sums[each, kind, chosen] += rewards[:, t]
    return Logs(kinds, tables, played, rewards, means)


def candidates(expected: FloatArray) -> dict[str, NDArray[np.intp]]:
    """Return the arm that each candidate plays for each kind of visitor."""
    if (expected == expected[0, 0]).all():
        return {"arm 3": np.array([2, 2])}
    return {"arm 3": np.array([2, 2]), "best": expected.argmax(axis=1), "worst": expected.argmin(axis=1)}


def batches(rule: str, expected: FloatArray, logs: int) -> Iterator[Logs]:
    for seed in range(-(-logs // TOGETHER)):
        yield simulated(rule, expected, TOGETHER, seed)


def played_by(arms: NDArray[np.intp], logs: Logs) -> FloatArray:
    return np.eye(ARMS)[arms[logs.kinds]]


def terms_of(target: FloatArray, logs: Logs, caps: tuple[float, ...] = CAPS) -> FloatArray:
    def flat(part: NDArray[Any]) -> NDArray[Any]:
        return part.reshape(-1, *part.shape[2:])

    of_logs = flat(logs.probabilities), flat(logs.played), flat(logs.rewards), flat(logs.means)
    return modelled_terms(flat(target), *of_logs, 0.0, 1.0, caps).reshape(2, len(caps), len(target), ROUNDS)


def doubly_robust(target: FloatArray, logs: Logs) -> FloatArray:
    own = logs.played[..., None]
    weights, predicted = (np.take_along_axis(one, own, 2)[..., 0] for one in (target / logs.probabilities, logs.means))
    return (target * logs.means).sum(axis=2) + weights * (logs.rewards - predicted)


def started(sequence: CandidateValue, logs: int) -> CandidateValue:
    zeros = np.zeros((2, len(sequence.caps), logs))
    return replace(sequence, sums=Sums(0, zeros, zeros))


def ever_excluded(sums: Sums, scale: float, truth: float, failure: float) -> NDArray[np.bool_]:
    """Return for each log whether its lower bound of the mean ever exceeds the truth: m(S, V) ≥ 1/α at some time."""
    surplus = np.maximum(sums.total - sums.count * truth, 0.0) / scale
    return (log_mixture(surplus, sums.squares / scale**2)[0] >= -np.log(failure)).any(axis=-1)


def excluded(path: CandidateValue, truth: float) -> NDArray[np.bool_]:
    """Return for each log whether the interval of a value ever excludes the truth, on either side, with any cap."""
    found, failure = np.zeros(path.sums.total.shape[2], dtype=bool), 0.025 / len(path.caps)
    for side, center in enumerate((truth, -truth)):
        for place, cap in enumerate(path.caps):
            own = Sums(path.sums.count, path.sums.total[side, place], path.sums.squares[side, place])
            found |= ever_excluded(own, 1.0 + cap, center, failure)
    return found


def sequences(logs: int) -> None:
    print(f"value of a candidate, {logs} logs each: ever excluded, length against the fixed-time interval at the end")
    for world, expected in WORLDS.items():
        for rule in RULES:
            played = candidates(expected)
            left, ratios = dict.fromkeys(played, 0), {name: list[FloatArray]() for name in played}
            for batch in batches(rule, expected, logs):
                for name, arms in played.items():
                    target, truth = played_by(arms, batch), float(expected[[0, 1], arms].mean())
                    path = started(CandidateValue(), TOGETHER).path(terms_of(target, batch))
                    left[name] += int(excluded(path, truth).sum())
                    low, high = path.at(-1).interval
                    error = doubly_robust(target, batch).std(axis=1) / np.sqrt(ROUNDS)
                    ratios[name].append((high - low) / (2 * 1.96 * error))
            for name, count in left.items():
                share = count / logs
                error = np.sqrt(share * (1 - share) / logs)
                words = f"{100 * share:.1f} % ± {100 * error:.1f}  {np.median(ratios[name]):.2f}"
                print(f"  {world:15} {rule:17} {name:6} {words}", flush=True)


def fixed(logs: int) -> None:
    print(f"intervals of a fixed time, doubly robust, {logs} logs each: share that contains the truth, mean length")
    for world, expected in WORLDS.items():
        for rule in RULES:
            played = candidates(expected)
            held, length = np.zeros((2, len(played), 2, 2))
            for batch in batches(rule, expected, logs):
                for which, arms in enumerate(played.values()):
                    target, truth = played_by(arms, batch), float(expected[[0, 1], arms].mean())
                    terms, ratios = doubly_robust(target, batch), target / batch.probabilities
                    spreads = (target * ratios).sum(axis=2)
                    heavy = np.take_along_axis(ratios, batch.played[..., None], 2)[..., 0]
                    for log in range(TOGETHER):
                        for place, count in enumerate((600, ROUNDS)):
                            weights = stabilising_weights(spreads[log, :count], known=False)
                            for kind, own in enumerate((np.ones(count), weights)):
                                effective = effective_rounds(own * heavy[log, :count])
                                _, low, high, _ = studentised(terms[log, :count], own, 0.95, effective)
                                held[which, place, kind] += low <= truth <= high
                                length[which, place, kind] += high - low
            for which, name in enumerate(played):
                words = "; ".join(
                    f"{count} rounds: equal {100 * h[0] / logs:.1f} % ({w[0] / logs:.3f}), "
                    f"adaptive {100 * h[1] / logs:.1f} % ({w[1] / logs:.3f})"
                    for count, h, w in zip((600, ROUNDS), held[which], length[which], strict=True)
                )
                print(f"  {world:15} {rule:17} {name:6} {words}", flush=True)


def caps(logs: int) -> None:
    print("where the model is cut: length against the fixed-time interval at the end")
    expected = WORLDS["different arms"]
    for rule in RULES:
        batch = simulated(rule, expected, logs, 0)
        for name, arms in candidates(expected).items():
            target = played_by(arms, batch)
            error = doubly_robust(target, batch).std(axis=1) / np.sqrt(ROUNDS)
            words = []
            for own in ((0.0,), (1.0,), (2.0,), (4.0,), (8.0,), (16.0,), (32.0,), (2.0, 16.0)):
                after = started(CandidateValue(caps=own), logs).after(terms_of(target, batch, own))
                low, high = after.interval
                words.append(
                    f"{'+'.join(f'{cap:g}' for cap in own)}: {np.median((high - low) / (2 * 1.96 * error)):.2f}"
                )
            print(f"  {rule:17} {name:6} {', '.join(words)}", flush=True)


def both_sides(sums: Sums, scale: float, truth: float) -> NDArray[np.bool_]:
    """Return for each log whether the interval of terms that are bounded on both sides ever excludes the truth."""
    above = ever_excluded(sums, scale, truth, 0.025)
    return above | ever_excluded(replace(sums, total=-np.asarray(sums.total)), scale, -truth, 0.025)


def differences(logs: int) -> None:
    print(
        f"means of one group and differences of two, {logs} runs of {ROUNDS} rounds: ever excluded, length at the end"
    )
    generator, zeros = np.random.default_rng(0), np.zeros(TOGETHER)
    for rate in (0.02, 0.1, 0.5):
        left, ratios = 0, []
        for _ in range(logs // TOGETHER):
            values = (generator.random((TOGETHER, ROUNDS)) < rate).astype(float)
            path = BoundedMean(sums=Sums(0, zeros, zeros)).path(values)
            left += int(both_sides(path.sums, 1.0, rate).sum())
            low, high = path.at(-1).interval
            ratios.append((high - low) / (2 * 1.96 * np.sqrt(rate * (1 - rate) / ROUNDS)))
        print(f"  mean {rate}: {100 * left / logs:.1f} %, {np.median(ratios):.2f}", flush=True)
    for first, second, share in ((0.5, 0.4, 0.5), (0.1, 0.1, 0.5), (0.1, 0.1, 0.9), (0.05, 0.05, 0.9)):
        left, ratios = 0, []
        for _ in range(logs // TOGETHER):
            groups = generator.random((TOGETHER, ROUNDS)) < share
            rewards = (generator.random(groups.shape) < np.where(groups, first, second)).astype(float)
            pair = (zeros, zeros)
            start = ArmDifference(least_share=1 - share, sums=Sums(0, zeros, zeros), counts=pair, totals=pair)
            watched = start.path(groups, rewards, share)
            left += int(both_sides(watched.sums, 1.0 / (1.0 - share), first - second).sum())
            low, high = watched.at(-1).interval
            variance = first * (1 - first) / share + second * (1 - second) / (1 - share)
            ratios.append((high - low) / (2 * 1.96 * np.sqrt(variance / ROUNDS)))
        print(
            f"  {first} against {second}, share {share}: {100 * left / logs:.1f} %, {np.median(ratios):.2f}", flush=True
        )


if __name__ == "__main__":
    logs = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    chosen = {"sequences": sequences, "fixed": fixed, "caps": caps, "differences": differences}
    for name in sys.argv[2:] or chosen:
        chosen[name](100 if name == "caps" else logs)
