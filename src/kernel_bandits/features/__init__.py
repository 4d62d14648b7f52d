"""Tables as they are: columns of any kind, with names, become the joint points that kernels compare.

A layer above the arrays. Swappable: what a column is (a :class:`Column`), and the whole encoding of either side (a
fitted scikit-learn transformer). :class:`Layout` says what each column of a joint point stands for.
"""

from kernel_bandits.features.arms import Arms
from kernel_bandits.features.columns import Boolean, Categorical, Column, Cyclic, Date, Embedding, Numeric, Ordered
from kernel_bandits.features.description import Features
from kernel_bandits.features.layout import ColumnGroup, Layout

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
    "Numeric",
    "Ordered",
]
