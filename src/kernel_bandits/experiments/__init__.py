"""Runs and what they leave behind: the loop, studies as data, records, and what they say together."""

from kernel_bandits.experiments.execute import Failure, executor, play_run
from kernel_bandits.experiments.loop import run
from kernel_bandits.experiments.parts import Part
from kernel_bandits.experiments.records import Record, RunResult
from kernel_bandits.experiments.storage import Results, read_record, read_results, write_record
from kernel_bandits.experiments.study import Run, Study
from kernel_bandits.experiments.summary import Summary, group, mean_interval, summarize
from kernel_bandits.experiments.sweep import Sweep
from kernel_bandits.experiments.tables import load_study, study_of

__all__ = [
    "Failure",
    "Part",
    "Record",
    "Results",
    "Run",
    "RunResult",
    "Study",
    "Summary",
    "Sweep",
    "executor",
    "group",
    "load_study",
    "mean_interval",
    "play_run",
    "read_record",
    "read_results",
    "run",
    "study_of",
    "summarize",
    "write_record",
]
