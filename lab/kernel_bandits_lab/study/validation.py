"""Check a study before it runs."""

from kernel_bandits.errors import InputError, KernelBanditsError
from kernel_bandits.loop import run as run_loop
from kernel_bandits_lab.study.specification import Run, Study


def validate(study: Study) -> None:
    """Play the first round of every policy in every environment, or raise :class:`InputError`.

    Values that a class refuses, and policies that do not fit their environment, show here rather than in the runs.
    """
    first: dict[tuple[str, str], Run] = {}
    for run in study.runs:
        first.setdefault(run.cell, run)
    for run in first.values():
        where = f"{study.name}: {run.policy.label} in {run.environment.label}"
        try:
            run_loop(*run.build(), 1, run.seed)
        except KernelBanditsError as reason:
            raise InputError(f"{where}: {reason}") from reason
        except Exception as reason:
            raise InputError(f"{where}: the first round fails: {type(reason).__name__}: {reason}") from reason
