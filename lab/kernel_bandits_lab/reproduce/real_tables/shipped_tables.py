"""The two largest tables of classes that scikit-learn ships, as environments: the right class earns 1, any other 0."""

from __future__ import annotations

from typing import Any

from kernel_bandits.environments import Table
from kernel_bandits.errors import needs


def digits() -> Table:
    """Return handwritten digits: 1,797 rows, 64 grey levels, ten classes."""
    with needs("scikit-learn", "sklearn"):
        from sklearn.datasets import load_digits
    return _table(load_digits())


def breast_cancer() -> Table:
    """Return diagnoses from images of cells: 569 rows, 30 measurements, two classes."""
    with needs("scikit-learn", "sklearn"):
        from sklearn.datasets import load_breast_cancer
    return _table(load_breast_cancer())


def _table(bunch: Any) -> Table:
    columns, classes = map(str, bunch.feature_names), [str(name) for name in bunch.target_names]
    names = [*columns, "class"]
    rows = [(*map(float, row), classes[number]) for row, number in zip(bunch.data, bunch.target, strict=True)]
    return Table([dict(zip(names, row, strict=True)) for row in rows], reward="class")
