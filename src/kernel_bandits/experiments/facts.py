"""On what a run was made: versions and the machine, as plain data for its record."""

from __future__ import annotations

import os
import platform
from functools import cache
from importlib import metadata
from pathlib import Path

PACKAGES = ("kernel-bandits", "numpy", "scipy")


@cache
def machine_facts() -> dict[str, str | int]:
    """Versions of what computes, and the machine it computes on."""
    versions = {name.replace("-", "_"): _version(name) for name in PACKAGES}
    return {
        "python": platform.python_version(),
        **versions,
        "platform": platform.platform(),
        "processor": _processor(),
        "processors": os.cpu_count() or 1,
        "host": platform.node(),
        "process": os.getpid(),
    }


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _processor() -> str:
    """The model name where Linux tells it, since Python often knows the architecture only."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()
