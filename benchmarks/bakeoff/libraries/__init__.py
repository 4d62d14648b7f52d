"""One module per library; each lists its ``LIBRARY``. Modules import the library itself only when a player is built."""

from __future__ import annotations

import importlib
import pkgutil

from bakeoff.libraries.base import Library


def all_libraries() -> dict[str, Library]:
    """Return the library of every module of this package by name, ours first."""
    modules = [module.name for module in pkgutil.iter_modules(__path__) if module.name != "base"]
    found = [importlib.import_module(f"{__name__}.{name}").LIBRARY for name in modules]
    return {library.name: library for library in sorted(found, key=lambda one: (one.role != "ours", one.name))}


def library_of(module: str) -> Library:
    """Return the library of one module."""
    library: Library = importlib.import_module(f"{__name__}.{module}").LIBRARY
    return library
