"""Virtual environments of peers: one per library, with pinned versions, made when first needed."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

from bakeoff.libraries.base import Library

READY = "ready"
# A requirement that begins so is installed by itself, after the others, with the option.
OPTION = "--no-build-isolation "


class InstallationError(RuntimeError):
    """An environment that could not be made."""


def interpreter(library: Library, folder: Path) -> str:
    """Return the Python of a library's environment, which is made unless it is there."""
    if not library.requirements:
        return sys.executable
    home = folder / f"{library.module}-{requirements_digest(library)}"
    python = home / "bin" / "python"
    if not (home / READY).exists():
        _run([sys.executable, "-m", "venv", "--clear", str(home)], library)
        plain = [line for line in library.requirements if not line.startswith(OPTION)]
        _run([str(python), "-m", "pip", "install", "--quiet", *plain], library)
        for line in library.requirements:
            if line.startswith(OPTION):
                _run([str(python), "-m", "pip", "install", "--quiet", *line.split()], library)
        (home / READY).touch()
    return str(python)


def requirements_digest(library: Library) -> str:
    """Return a short name for the requirements of a library."""
    return hashlib.sha256("\n".join(library.requirements).encode()).hexdigest()[:10]


def _run(line: list[str], library: Library) -> None:
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode:
        raise InstallationError(
            f"{library.name}: its environment could not be made.\n{done.stderr.strip()[-2000:]}\n"
            f"Leave the library out with --without {library.module}, or run the line yourself: {' '.join(line)}"
        )
