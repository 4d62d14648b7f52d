"""What either side of a table may be described by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from kernel_bandits.features.arms import Arms
from kernel_bandits.features.columns import Column
from kernel_bandits.features.transformer import Transformer

ContextSide: TypeAlias = Mapping[str, Column] | Transformer
ActionSide: TypeAlias = Arms | Mapping[str, Column] | Transformer
