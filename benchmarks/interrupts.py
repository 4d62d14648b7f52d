"""Interrupt calls of every policy at a sample of their lines and count the states that are torn.

``make test-slow`` takes every line of a few policies and calls; this takes some lines of every one, and moment.
"""

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

# the tests are on the path set above, which the type checker does not follow
from faults.injection import Injected, lines_of, some_lines, torn_lines  # type: ignore[import-not-found]
from faults.scenes import ROUNDS, SCENES, scene  # type: ignore[import-not-found]

# Policies whose calls run out of memory.
WITHOUT_MEMORY = ("ek_ucb", "k_ucb", "lin_ucb", "ek_ucb, learned")


def main() -> None:
    """Print how many lines there are, how many were interrupted, and how many states were torn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=20, help="of each policy, call and moment; 20 by default")
    options = parser.parse_args()
    scenes = [("interrupts", Injected, name, rounds, call) for rounds in ROUNDS for name, call in SCENES]
    scenes += [("memory runs out", MemoryError, name, 15, call) for name, call in SCENES if name in WITHOUT_MEMORY]
    points, lines, torn = Counter[str](), Counter[str](), Counter[str]()
    begun = time.process_time()
    for fault, error, name, rounds, call in scenes:
        at = scene(name, rounds, call)
        chosen = some_lines(*at, options.lines)
        found = torn_lines(*at, chosen, error)
        points[fault] += len(chosen)
        lines[fault] += lines_of(*at)
        torn[fault] += len(found)
        if found:
            print(f"torn: {name}, {call}, after {rounds} rounds, at lines {found}", flush=True)
    for fault in points:
        print(f"{fault}: {points[fault]:,} of {lines[fault]:,} lines, {torn[fault]} torn")
    print(f"{time.process_time() - begun:.0f} s of processor time")


if __name__ == "__main__":
    main()
