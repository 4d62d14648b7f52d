"""Peak memory of a long stream, each case in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np

import kernel_bandits as kb
from kernel_bandits.arrays import FloatArray
from kernel_bandits.dictionaries.base import HistoryMode

CHUNK = 10_000


def resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def peak_bytes() -> int:
    # not getrusage, whose peak a process inherits from the one that started it
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))


def stream(rounds: int, dimension: int, size: int, history: HistoryMode) -> dict[str, float]:
    """Learn a stream chunk by chunk; resident bytes after every tenth of it, and the growth of the peak."""
    generator = np.random.default_rng(0)

    def chunk(count: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        return generator.random((count, dimension - 1)), generator.random((count, 1)), generator.random(count)

    # what NumPy, SciPy and one chunk of the stream take is not the policy's
    kb.ek_ucb(kb.Gaussian(1.0), dictionary=kb.Kors(max_size=20, history="none"), seed=0).update_many(*chunk(CHUNK))
    before = peak_bytes()
    rule = kb.Kors(max_size=size, oversampling=100.0, history=history)
    policy = kb.ek_ucb(kb.Gaussian(1.0), dictionary=rule, seed=0)
    resident = []
    for _ in range(rounds // CHUNK):
        policy.update_many(*chunk(CHUNK))
        resident.append(resident_bytes())
    tenth = len(resident) // 10
    slope = np.polyfit(np.arange(len(resident))[tenth:], resident[tenth:], 1)[0] / CHUNK
    return {"m": policy.dictionary_size, "growth": peak_bytes() - before, "bytes a round": float(slope)}


def measure() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for rounds, dimension, size, history in ((1_000_000, 10, 1000, "all"), (1_000_000, 10, 200, "none")):
        answer = subprocess.run(
            [sys.executable, __file__, str(rounds), str(dimension), str(size), history],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        found = json.loads(answer)
        allowed = 8 * (rounds * dimension + rounds) + 40 * size**2 if history == "all" else 40 * size**2
        rows.append(
            {
                "history": history,
                "T": rounds,
                "d": dimension,
                "m": found["m"],
                "peak growth, MB": found["growth"] / 1e6,
                "8(Td + T) + 40m², MB" if history == "all" else "40m², MB": allowed / 1e6,
                "bytes a round from T/10 on": found["bytes a round"],
            }
        )
    return rows


if __name__ == "__main__":
    print(
        json.dumps(
            stream(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), "none" if sys.argv[4] == "none" else "all")
        )
    )
