"""A finished run with its settings."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernel_bandits.loop import RunResult
from kernel_bandits_lab.study.specification import Run


@dataclass(frozen=True, slots=True)
class Record:
    """A finished run with its settings, its result and its provenance.

    Attributes:
        run: the settings.
        result: round by round.
        provenance: versions, machine, start and duration, as plain data.
    """

    run: Run
    result: RunResult
    provenance: Mapping[str, Any]
