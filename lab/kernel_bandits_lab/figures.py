"""Figures that studies bring with them, such as those of the paper.

They come from the package ``reproduce``, which is not part of this library. It is found beside the sources in a
checkout, and inside the installed library otherwise, and loaded by name.
"""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from kernel_bandits.errors import InputError
from kernel_bandits_lab.report import Section
from kernel_bandits_lab.store import Results
from kernel_bandits_lab.study import Study, importable

PACKAGE = "reproduce"
# In an installed library, and in a checkout.
_FOLDERS = (Path("studies"), Path("..", ".."))


class Figures(Protocol):
    """Studies with figures of their own, by name; the folder of their results has the same name."""

    @property
    def names(self) -> Sequence[str]:
        """The names of the figures."""

    @property
    def unavailable(self) -> Mapping[str, str]:
        """Names of figures that need a package that is not installed, and what to do about it."""

    def find(self, name: str) -> str | None:
        """Return the name of a figure, which may be given by its number in the paper; None if there is none."""

    def description(self, name: str) -> str:
        """Return what a figure shows, in one line."""

    def study(self, name: str) -> Study | None:
        """Return the study of a figure; None if it has none."""

    def measure(self, name: str, folder: Path, quick: bool, progress: Callable[[int, int, str], None]) -> None:
        """Measure what a figure without a study needs, if anything."""

    def section(self, folder: Path, results: Results | None) -> Section:
        """Return the section of a report about a folder of results."""


def load_figures(folder: Path | None = None) -> Figures:
    """Return the figures in a folder; by default those of the paper."""
    library = Path(__file__).parent
    for place in _FOLDERS:
        parent = (library / place).resolve()
        if (parent / PACKAGE).is_dir():
            with importable(parent):
                found: Any = import_module(f"{PACKAGE}.figures")
                return found.StudyFigures((folder or parent / PACKAGE).resolve())
    raise InputError(f"the package {PACKAGE} is not installed; install kernel-bandits from a wheel or a checkout.")
