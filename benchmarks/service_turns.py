"""Load on the decision service of two versions, each in a server of its own, in blocks that take turns.

Where other programs share the machine, its speed changes within seconds: versions are compared block by block.

Run: python benchmarks/service_turns.py OTHER [--blocks 8] [--seconds 1.2] [--ignore-pending]
OTHER is a checkout of another version.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import markdown
from service import Load, _wait, decisions, processor_seconds, send_rewards

HERE = Path(__file__).resolve().parent.parent
DECISIONS = "/v1/loops/load/decisions"


class Version:
    """A server of one version.

    Args:
        checkout: its folder.
        port: to serve at.
        folder: of its database.
        options: of the benchmark.
    """

    def __init__(self, checkout: Path, port: int, folder: str, options: list[str]) -> None:
        self.port, self._generator = port, random.Random(0)
        self._bodies = decisions(self._generator, 2000)
        command = [sys.executable, str(checkout / "benchmarks/service.py"), "--serve", str(port)]
        environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
        self.process = subprocess.Popen(
            [*command, "--database", str(Path(folder, f"{port}.db")), *options], env=environment
        )

    def warm_up(self) -> None:
        """Wait until it serves, and let its dictionary grow."""
        _wait(self.port)
        warm = Load(self.port, DECISIONS, self._bodies, 3.0)
        asyncio.run(warm.run())
        send_rewards(self.port, warm.ids, self._generator)

    def measure(self, seconds: float) -> dict[str, float]:
        """Return the figures of one block."""
        marks = [processor_seconds(self.process.pid)]
        empty, made = Load(self.port, "/v1/empty", [b"{}"], seconds), Load(self.port, DECISIONS, self._bodies, seconds)
        floor = asyncio.run(empty.run())
        marks.append(processor_seconds(self.process.pid))
        rate = asyncio.run(made.run())
        marks.append(processor_seconds(self.process.pid))
        rewards = send_rewards(self.port, made.ids, self._generator)
        marks.append(processor_seconds(self.process.pid))
        counts = (len(empty.times), len(made.times), len(made.ids))
        costs = [1e6 * (marks[i + 1] - marks[i]) / count for i, count in enumerate(counts)]
        return {
            "decisions/s": rate,
            "decisions/empty": rate / floor,
            "empty CPU µs": costs[0],
            "decision CPU µs": costs[1],
            "reward CPU µs": costs[2],
            "CPU empty/decision": costs[0] / costs[1],
            "rewards/decisions": rewards / rate,
            "p50 ms": 1000 * statistics.median(made.times),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, help="a checkout of another version")
    parser.add_argument("--blocks", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=1.2, help="of each block")
    parser.add_argument("--port", type=int, default=8193)
    parser.add_argument("--ignore-pending", action="store_true", help="anticipates = false")
    arguments = parser.parse_args()
    options = ["--ignore-pending"] if arguments.ignore_pending else []
    found: list[list[dict[str, float]]] = [[], []]
    with tempfile.TemporaryDirectory(prefix="kernel-bandits-") as folder:
        checkouts = (arguments.other.resolve(), HERE)
        versions: list[Version] = []
        try:
            for place, checkout in enumerate(checkouts):
                versions.append(Version(checkout, arguments.port + place, folder, options))
            for version in versions:
                version.warm_up()
            for block in range(arguments.blocks):
                for place in (0, 1) if block % 2 else (1, 0):
                    found[place].append(versions[place].measure(arguments.seconds))
        finally:
            for version in versions:
                version.process.terminate()
            for version in versions:
                version.process.wait()
    print(markdown([_row(name, *([one[name] for one in rows] for rows in found)) for name in found[0][0]]))


def _row(name: str, before: list[float], now: list[float]) -> dict[str, object]:
    def words(values: list[float]) -> str:
        return f"{statistics.median(values):.3g} ({min(values):.3g} to {max(values):.3g})"

    ratio = statistics.median(two / one for one, two in zip(before, now, strict=True))
    return {"": name, "other": words(before), "this": words(now), "this/other, block by block": round(ratio, 2)}


if __name__ == "__main__":
    main()
