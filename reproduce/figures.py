"""Studies with figures of their own: a folder per figure, as in this package.

``sweep.toml`` or ``sweep.py`` says what to run. ``figure.py`` defines ``figure(records)`` and, optionally,
``claims(records)`` and ``tables(records)``. A figure without a sweep has ``figure.py`` alone. Its functions take the
folder of results instead, and ``measure(folder, quick, progress)`` fills that folder if something has to be measured.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from kernel_bandits.errors import InputError
from kernel_bandits.experiments import Results, Study, group, load_study, plots
from kernel_bandits.experiments.report import Section
from kernel_bandits.experiments.study import importable
from reproduce.report import check_of

SWEEPS = ("sweep.toml", "sweep.py")


class StudyFigures:
    """The figures in a folder.

    Args:
        folder: with one folder per figure.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names = tuple(path.parent.name for path in sorted(folder.glob("*/figure.py")))
        if not self.names:
            raise InputError(f"{folder}: expected folders with a figure.py each, found none.")

    def study(self, name: str) -> Study | None:
        """Return the study of a figure; None if it has none."""
        for file in SWEEPS:
            path = self.folder / name / file
            if path.is_file():
                return replace(load_study(path), name=name)
        return None

    def measure(self, name: str, folder: Path, quick: bool, progress: Callable[[int, int, str], None]) -> None:
        """Measure what a figure without a study needs, if anything."""
        measure = getattr(self._module(name), "measure", None)
        if measure is not None:
            measure(folder, quick, progress)

    def section(self, folder: Path, results: Results | None) -> Section:
        """Return the section about a folder of results: with its own figure, or else with the general comparison."""
        if results is not None and not results.records:
            raise InputError(f"{folder}: there is no finished run in it yet.")
        module = self._module(folder.name) if folder.name in self.names else None
        if module is None:
            assert results is not None  # only a figure's own folder may come without results
            figure = plots.comparison_figure(group(results.records))
            return Section(results.title, results, [(folder.name, figure)])
        material = folder if results is None else results.records
        caption = (inspect.getdoc(module) or folder.name).partition("\n\n")[0]
        return Section(
            title=getattr(module, "TITLE", folder.name) if results is None else results.title,
            results=results,
            figures=[(caption, module.figure(material))],
            checks=[check_of(claim) for claim in _call(module, "claims", material)],
            tables=_call(module, "tables", material),
        )

    def _module(self, name: str) -> ModuleType:
        """Import ``figure.py`` as a module of the package that the folders make up."""
        with importable(self.folder.parent):
            return importlib.import_module(f"{self.folder.name}.{name}.figure")


def _call(module: ModuleType, name: str, material: Any) -> list[Any]:
    function = getattr(module, name, None)
    return [] if function is None else function(material)
