"""Runs and what they leave behind: the loop, its result, and the comparison behind ``make run``."""

from kernel_bandits.experiments.loop import run
from kernel_bandits.experiments.records import RunResult

__all__ = ["RunResult", "run"]
