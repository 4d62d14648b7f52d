"""The provenance of a record: versions and machine, as plain data."""

import os
import platform
from functools import cache
from importlib import metadata
from pathlib import Path

PACKAGES = ("kernel-bandits", "numpy", "scipy")


@cache
def provenance() -> dict[str, str | int]:
    """Return the versions of Python and of the packages that compute, and the machine."""
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
    """Return the model name from Linux; Python often knows only the architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()
