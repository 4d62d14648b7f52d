"""When a kernel is learned, and from what."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kernel_bandits.arrays import as_count, as_positive
from kernel_bandits.errors import InputError

# Observations between two refits grow by this factor unless another is given.
DOUBLING = 2.0


@dataclass(frozen=True)
class KernelLearning:
    """When and from what a kernel is learned.

    Args:
        first_round: how many observations there are when it is learned first.
        growth: refit each time the number of observations has grown by this factor. By default 2, doubling times, which
            keeps the cost of learning a fixed share of that of playing; where no kernel is given, a smaller factor as
            long as observations are few.
        sample_size: n, the most observations that a fit looks at, drawn at random, round t with weight 1/t.
        groups: a label from 0 on for each column of a joint point, context columns first: columns with the same label
            share a lengthscale, in units of their spread. None for one lengthscale per column.
        from_scratch: start from nothing: only the family of the kernel counts, not its lengthscale nor λ. Until the
            first fit, decisions go by standard deviations alone.
        warm_up: without a history, how many observations are kept for learning; then the kernel is frozen.
        fall_back: where no kernel is given, or only its family counts, and the history is kept: drop what was learned
            once rewards stay below what was predicted of them.
    """

    first_round: int = 4
    growth: float | None = None
    sample_size: int = 256
    groups: tuple[int, ...] | None = None
    warm_up: int = 512
    from_scratch: bool = False
    fall_back: bool = True

    def __post_init__(self) -> None:
        for name in ("first_round", "sample_size", "warm_up"):
            if as_count(name, getattr(self, name)) < 2:
                raise InputError(f"{name}: expected at least 2, got {getattr(self, name)}.")
        if self.growth is not None and not as_positive("growth", self.growth) > 1.0:
            raise InputError(f"growth: expected more than 1, got {self.growth!r}.")
        if self.warm_up < self.first_round:
            raise InputError(
                f"warm_up: expected at least first_round={self.first_round}, got {self.warm_up}; without a history the "
                "kernel is learned from the first warm_up observations."
            )
        if not isinstance(self.fall_back, bool):
            raise InputError(f"fall_back: expected True or False, got {self.fall_back!r}.")
        if self.groups is not None:
            object.__setattr__(self, "groups", _labels(self.groups))

    def after(self, round_index: int, growth: float = DOUBLING) -> int:
        """Return the round of the next learning, which has grown by the given factor unless the user chose another."""
        factor = growth if self.growth is None else self.growth
        return max(self.first_round, round_index + 1, math.ceil(factor * round_index))


def _labels(groups: Sequence[int]) -> tuple[int, ...]:
    try:
        labels = tuple(int(label) for label in groups)
    except (TypeError, ValueError):
        labels = ()
    if not labels or set(labels) != set(range(max(labels) + 1)):
        raise InputError(f"groups: expected labels 0, 1, … without a gap, one per column, got {groups!r}.")
    return labels
