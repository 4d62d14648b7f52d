"""The paper's studies with two seeds of a few rounds."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import kernel_bandits_lab
from kernel_bandits_lab import execute, load_study

REPRODUCE = Path(kernel_bandits_lab.__file__).parent / "reproduce"


@cache
def study(name):
    return load_study(REPRODUCE / name / "sweep.toml")


@cache
def records(name):
    """Two seeds of a few rounds, each policy a little shorter where the study has it shorter."""
    runs = study(name).capped(seeds=2).runs
    return tuple(execute(replace(run, horizon=run.horizon // 125)) for run in runs)
