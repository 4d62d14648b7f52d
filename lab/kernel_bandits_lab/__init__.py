"""The laboratory: studies as data, their execution, records, plots and reports, and the command line.

Names are loaded on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernel_bandits_lab.execution import Failure, execute, executor
    from kernel_bandits_lab.results import Record, Results, read_record, read_results, write_record
    from kernel_bandits_lab.study import Component, Reference, Run, Study, load_study, study_of, validate
    from kernel_bandits_lab.sweep import Sweep
    from kernel_bandits_lab.tables import Summary, group, mean_interval, summarize

__all__ = [
    "Component",
    "Failure",
    "Record",
    "Reference",
    "Results",
    "Run",
    "Study",
    "Summary",
    "Sweep",
    "execute",
    "executor",
    "group",
    "load_study",
    "mean_interval",
    "read_record",
    "read_results",
    "study_of",
    "summarize",
    "validate",
    "write_record",
]
_MODULES = {
    "execution": ("Failure", "execute", "executor"),
    "results": ("Record", "Results", "read_record", "read_results", "write_record"),
    "study": ("Component", "Reference", "Run", "Study", "load_study", "study_of", "validate"),
    "sweep": ("Sweep",),
    "tables": ("Summary", "group", "mean_interval", "summarize"),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
