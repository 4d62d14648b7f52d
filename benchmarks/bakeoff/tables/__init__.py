"""One module per family of tables; each lists its ``TABLES``."""

from __future__ import annotations

import importlib
import pkgutil

from bakeoff.tables.base import Table


def all_tables() -> dict[str, Table]:
    """Return the tables of every module of this package by name."""
    found: dict[str, Table] = {}
    for module in pkgutil.iter_modules(__path__):
        if module.name not in ("base", "frames"):
            for table in importlib.import_module(f"{__name__}.{module.name}").TABLES:
                if table.name in found:
                    raise ValueError(f"{table.name}: two tables have this name; rename one.")
                found[table.name] = table
    return found
