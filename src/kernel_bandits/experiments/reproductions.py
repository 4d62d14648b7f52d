"""Folders of studies with figures of their own, such as the paper's in ``reproduce/``.

Each figure is a folder: ``sweep.toml`` or ``sweep.py`` says what to run, and ``figure.py`` makes a figure of the
records (``figure``) and says which claims they confirm (``claims``). What is no sweep has ``figure.py`` alone, whose
functions take the folder of results instead, and a function ``measure`` where something has to be measured first.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import kernel_bandits
from kernel_bandits import plots
from kernel_bandits.errors import InputError
from kernel_bandits.experiments.parts import nearest
from kernel_bandits.experiments.storage import MANIFEST, read_results
from kernel_bandits.experiments.study import Study
from kernel_bandits.experiments.summary import group
from kernel_bandits.experiments.tables import importable, load_study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from kernel_bandits.experiments.report import Section

# Where a wheel has the paper's studies, and where a checkout of the repository has them.
_PLACES = (Path("studies", "reproduce"), Path("..", "..", "reproduce"))
_SWEEPS = ("sweep.toml", "sweep.py")


@dataclass(frozen=True)
class Reproduction:
    """A figure and how to come by it.

    Attributes:
        name: of its folder, and of the folder of its results.
        folder: where ``figure.py`` is.
    """

    name: str
    folder: Path

    @property
    def sweep(self) -> Path | None:
        """The file of its study; None if it is no sweep."""
        files = [self.folder / name for name in _SWEEPS if (self.folder / name).is_file()]
        return files[0] if files else None

    def study(self, quick: bool = False) -> Study:
        """Its study, short if it is for a quick look."""
        assert self.sweep is not None
        study = replace(load_study(self.sweep), name=self.name)
        return study.capped(**study.quick) if quick else study

    @cached_property
    def module(self) -> ModuleType:
        """Its ``figure.py``, as a module of the package that the folders make up."""
        package = self.folder.parent
        with importable(package.parent):
            return importlib.import_module(f"{package.name}.{self.name}.figure")

    @property
    def measure(self) -> Callable[..., None] | None:
        """``measure(folder, quick, progress)``, where something that is no sweep has to be measured."""
        return getattr(self.module, "measure", None)


def find_reproductions(folder: Path | None = None) -> dict[str, Reproduction]:
    """The figures in a folder, by name; by default the paper's."""
    here = Path(kernel_bandits.__file__).parent
    places = [folder.resolve()] if folder is not None else [(here / place).resolve() for place in _PLACES]
    found = {
        path.parent.name: Reproduction(path.parent.name, path.parent)
        for place in places
        for path in sorted(place.glob("*/figure.py"))
    }
    if folder is not None and not found:
        raise InputError(f"{folder}: expected folders with a figure.py each, found none.")
    return found


def choose(known: dict[str, Reproduction], names: Sequence[str]) -> list[Reproduction]:
    """Those with the given names; all of them if none is given."""
    for name in names:
        if name not in known:
            raise InputError(f"there is no figure {name!r}{nearest(name, known)} There are {', '.join(known)}.")
    return [known[name] for name in names or known]


def result_folders(results: Path, known: dict[str, Reproduction]) -> list[Path]:
    """A folder of results itself, or those in it."""
    folders = [
        path
        for path in (results, *sorted(results.glob("*/")))
        if (path / MANIFEST).is_file() or (path.is_dir() and path.name in known)
    ]
    if not folders:
        raise InputError(f"{results}: expected the results of a study, but there is no {MANIFEST} in it.")
    return folders


def figure_of(folder: Path, known: dict[str, Reproduction]) -> Figure:
    """The figure of a folder of results: that of a known figure, or the general comparison."""
    material = _material(folder, known)
    if folder.name in known:
        return known[folder.name].module.figure(material)
    return plots.comparison_figure(group(material))


def section_of(folder: Path, known: dict[str, Reproduction]) -> Section:
    """What a folder of results says, for a report."""
    from kernel_bandits.experiments.report import Section

    results = read_results(folder) if (folder / MANIFEST).is_file() else None
    module = known[folder.name].module if folder.name in known else None
    material = _material(folder, known)
    caption = inspect.getdoc(module) if module is not None else None
    return Section(
        title=getattr(module, "TITLE", folder.name) if results is None else results.title,
        results=results,
        figures=[((caption or folder.name).partition("\n\n")[0], figure_of(folder, known))],
        claims=_call(module, "claims", material),
        tables=_call(module, "tables", material),
    )


def _material(folder: Path, known: dict[str, Reproduction]) -> Any:
    """What figures are made of: records, or the folder where there is no sweep."""
    if folder.name in known and known[folder.name].sweep is None:
        return folder
    records = read_results(folder).records
    if not records:
        raise InputError(f"{folder}: there is no finished run in it yet.")
    return records


def _call(module: ModuleType | None, name: str, material: Any) -> list[Any]:
    function = getattr(module, name, None)
    return [] if function is None else function(material)
