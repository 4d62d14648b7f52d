"""Studies with figures of their own: a folder per figure, such as those of the paper in ``reproduce``.

``sweep.toml`` or ``sweep.py`` says what to run. ``figure.py`` defines ``figure(records)`` and, optionally,
``claims(records)``, ``tables(records)``, ``headline(records)`` and ``PACKAGE``, an optional package that it needs. A
figure without a sweep has ``figure.py`` alone. Its functions take the folder of results instead, and
``measure(folder, quick, progress)`` fills that folder if something has to be measured.
"""

import importlib
import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from kernel_bandits.errors import InputError
from kernel_bandits_lab import plots
from kernel_bandits_lab.report import Section
from kernel_bandits_lab.reproduce.claims import check_of
from kernel_bandits_lab.results import Results
from kernel_bandits_lab.study import Run, Study, importable, load_study
from kernel_bandits_lab.tables import group

OF_THE_PAPER = Path(__file__).parent / "reproduce"
SWEEPS = ("sweep.toml", "sweep.py")
# As the paper numbers them; a folder may hold several of its figures.
NUMBERED = {
    "figure1": "bump_projection",
    "figure2": "chessboard",
    **dict.fromkeys(("figure3", "figure4", "figure5"), "bump"),
    "figure6": "environments",
    **dict.fromkeys(("figure7", "figure8", "figure9"), "chessboard"),
    **dict.fromkeys(("figure10", "figure11", "figure12"), "step_diagonal"),
    "table1": "table_1",
}
# Shown first, in this order.
FIRST = ("overview", "real_tables")


class Figures:
    """The figures in a folder; the folder of a figure's results has the figure's name.

    Args:
        folder: with one folder per figure; None for those of the paper.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder = OF_THE_PAPER if folder is None else folder.resolve()
        found = sorted(path.parent.name for path in folder.glob("*/figure.py"))
        self.names = tuple(sorted(found, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST)))
        if not self.names:
            raise InputError(f"{folder}: expected folders with a figure.py each, found none.")

    @cached_property
    def unavailable(self) -> dict[str, str]:
        """Names of figures whose ``PACKAGE`` cannot be imported, and the command that installs it."""
        needed = {name: getattr(self._module(name), "PACKAGE", None) for name in self.names}
        missing = {name: package for name, package in needed.items() if package and find_spec(package) is None}
        return {
            name: f"needs {package}; pip install 'kernel-bandits-lab[{package}]'" for name, package in missing.items()
        }

    def find(self, name: str) -> str | None:
        """Return the name of a figure's folder: the name itself, or that of its number in the paper."""
        plain = NUMBERED.get(name.lower().replace("_", "").replace(" ", ""), name)
        return next((one for one in (name, plain) if one in self.names), None)

    def description(self, name: str) -> str:
        """Return what a figure shows, in one line, with its numbers in the paper."""
        numbers = [number for number, folder in NUMBERED.items() if folder == name and folder in self.names]
        line = (inspect.getdoc(self._module(name)) or "").partition("\n")[0]
        return f"{line} ({', '.join(numbers)})" if numbers else line

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
        shortened, is_short = self._shortened(folder.name, results), self._is_short(folder, results)
        caption = (inspect.getdoc(module) or folder.name).partition("\n\n")[0]
        return Section(
            title=getattr(module, "TITLE", folder.name) if results is None else results.title,
            results=results,
            figures=[(caption, module.figure(material))],
            checks=[check_of(claim, is_short) for claim in _call(module, "claims", material)],
            tables=_call(module, "tables", material),
            headline=module.headline(material) if hasattr(module, "headline") else "",
            shortened=shortened,
            narrow=module.narrow(material) if hasattr(module, "narrow") else None,
        )

    def _shortened(self, name: str, results: Results | None) -> str:
        """Return how far results fall short of their study, in words; nothing if they do not."""
        study = self.study(name)
        if study is None or results is None or not results.records:
            return ""
        rounds, all_rounds = (max(one.horizon for one in runs) for runs in (_runs_of(results), study.runs))
        seeds, all_seeds = (len({one.seed for one in runs}) for runs in (_runs_of(results), study.runs))
        if (rounds, seeds) >= (all_rounds, all_seeds):
            return ""
        return f"{rounds} of {all_rounds} rounds, {seeds} of {all_seeds} seeds"

    def _is_short(self, folder: Path, results: Results | None) -> bool:
        """Return whether claims about a folder come from a shortened run; measurements say so themselves."""
        if results is not None:
            return bool(self._shortened(folder.name, results))
        is_quick = getattr(self._module(folder.name), "is_quick", None)
        return is_quick is not None and bool(is_quick(folder))

    def _module(self, name: str) -> ModuleType:
        """Import ``figure.py`` as a module of the package that the folders make up."""
        if self.folder == OF_THE_PAPER:
            return importlib.import_module(f"kernel_bandits_lab.reproduce.{name}.figure")
        with importable(self.folder.parent):
            return importlib.import_module(f"{self.folder.name}.{name}.figure")


def _runs_of(results: Results) -> list[Run]:
    return [record.run for record in results.records]


def _call(module: ModuleType, name: str, material: Any) -> list[Any]:
    function = getattr(module, name, None)
    return [] if function is None else function(material)
