"""The results of a run: one row per round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kernel_bandits.arrays import FloatArray

if TYPE_CHECKING:
    from kernel_bandits.experiments.study.specification import Run


@dataclass(frozen=True, slots=True, repr=False)
class RunResult:
    """The result of a run of T rounds; every array has one entry per round.

    Attributes:
        regret: cumulative pseudo-regret: the best expected reward on offer minus that of the chosen action.
        rewards: the noisy rewards the policy saw.
        action_indices: row numbers of the chosen actions.
        actions: the chosen actions, shape (T, d_a).
        contexts: the contexts, shape (T, d_x).
        dictionary_size: number of points that carry the model after the round.
        select_seconds: time spent in ``select``.
        update_seconds: time spent in ``update``.
        propensities: the probability of each chosen action, or its density in a box; None if the policy does not choose
            at random.
    """

    regret: FloatArray
    rewards: FloatArray
    action_indices: NDArray[np.int64]
    actions: FloatArray
    contexts: FloatArray
    dictionary_size: NDArray[np.int64]
    select_seconds: FloatArray
    update_seconds: FloatArray
    propensities: FloatArray | None = None

    def __repr__(self) -> str:
        return (
            f"RunResult({self.horizon} rounds, regret {self.regret[-1]:.4g}, mean reward {self.rewards.mean():.4g}, "
            f"dictionary {self.dictionary_size[-1]}, {self.seconds[-1]:.3g} s)"
        )

    @property
    def horizon(self) -> int:
        """T, the number of rounds."""
        return len(self.regret)

    @property
    def seconds(self) -> FloatArray:
        """Cumulative time spent in ``select`` and ``update``."""
        return np.cumsum(self.select_seconds + self.update_seconds)


@dataclass(frozen=True, slots=True)
class Record:
    """A finished run with its settings, its result and its provenance.

    Attributes:
        run: the settings.
        result: round by round.
        provenance: versions, machine, start and duration, as plain data.
    """

    run: Run
    result: RunResult
    provenance: Mapping[str, Any]
