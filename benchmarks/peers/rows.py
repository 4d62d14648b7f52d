"""Comparisons that may be stopped: each run is a line of a file, and lines that stand there are not repeated."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def load(results: Path) -> list[Row]:
    """Return the runs that a file holds; none if it is not there."""
    return [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []


def run_missing(results: Path, wanted: Iterable[Row], play: Callable[[Row], Row]) -> None:
    """Play each wanted run of which the file holds no row with the same entries, and append what it gives."""
    rows = load(results)
    for run in wanted:
        if any(run.items() <= row.items() for row in rows):
            continue
        row = {**run, **play(run)}
        with results.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(row, flush=True)
