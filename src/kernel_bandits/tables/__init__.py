"""Tables: columns of any kind, with names, become the joint points that kernels compare; a policy over arrays chooses.

- ``values``: what a cell may hold, and how it is read.
- ``columns``: the kinds of columns, each with its encoding; the layout of a joint point.
- ``rows``: rows of any origin, encoded column by column or by a fitted scikit-learn transformer.
- ``arms``: actions by name, by features, or both, and their encoding.
- ``features``: the description of a table, which encodes it.
- ``policy``: the policy over a table, which has every method of a policy over arrays.
"""

from kernel_bandits.tables.arms import Arms
from kernel_bandits.tables.columns import (
    Boolean,
    Categorical,
    Column,
    ColumnGroup,
    Cyclic,
    Date,
    Embedding,
    Layout,
    Numeric,
    Ordered,
)
from kernel_bandits.tables.features import Features
from kernel_bandits.tables.policy import (
    NamedDecision,
    NamedDiagnostics,
    NamedExplanation,
    PastRound,
    TablePolicy,
)

__all__ = [
    "Arms",
    "Boolean",
    "Categorical",
    "Column",
    "ColumnGroup",
    "Cyclic",
    "Date",
    "Embedding",
    "Features",
    "Layout",
    "NamedDecision",
    "NamedDiagnostics",
    "NamedExplanation",
    "Numeric",
    "Ordered",
    "PastRound",
    "TablePolicy",
]
