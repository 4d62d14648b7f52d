"""All speed and memory measurements: tables on the screen, numbers in results/bench.json.

Run: make bench, or python benchmarks/bench.py [SECTION …]
"""

from __future__ import annotations

import json
import os
import platform
import sys
from pathlib import Path

# One BLAS thread, set before NumPy is loaded: ratios to a floor mean nothing while threads wait for each other.
os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")


import against
import anchors
import boxes
import growing
import many
import memory
import numpy as np
import profile_round
import pruning
import rounds
import scipy
import threads
from measure import markdown

SECTIONS = {
    "floor": ("EK-UCB round against its BLAS floor", rounds.efficient_rounds),
    "exact": ("K-UCB round against its BLAS floor", rounds.exact_rounds),
    "profile": ("Where the time of a round goes", profile_round.measure),
    "scikit-learn": ("Against scikit-learn", against.against_scikit_learn),
    "k-ucb": ("Against K-UCB", against.against_k_ucb),
    "pruning": ("Large action sets", pruning.measure),
    "boxes": ("Selection in a box", boxes.times),
    "anchors": ("Anchors, T = 20,000", anchors.measure),
    "growing": ("Growing dictionaries, against K-UCB", growing.measure),
    "many": ("A log of 100,000 rounds", many.measure),
    "threads": ("Threads", threads.measure),
    "memory": ("Memory", memory.measure),
}


def main() -> None:
    chosen = sys.argv[1:] or list(SECTIONS)
    unknown = set(chosen) - set(SECTIONS)
    if unknown:
        sys.exit(f"unknown section {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)}")
    path = Path("results/bench.json")
    path.parent.mkdir(exist_ok=True)
    kept = json.loads(path.read_text()) if path.exists() else {}
    kept["versions"] = {"python": platform.python_version(), "numpy": np.__version__, "scipy": scipy.__version__}
    for name in chosen:
        title, measure = SECTIONS[name]
        rows = measure()
        print(f"\n{title}\n\n{markdown(rows)}", flush=True)
        kept[name] = rows
        path.write_text(json.dumps(kept, indent=1, default=float))
    print(f"\nwritten to {path}")


if __name__ == "__main__":
    main()
