"""The first actions of a policy that knows nothing yet: points that fill a box evenly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernel_bandits.actions import Box
from kernel_bandits.arrays import FloatArray
from kernel_bandits.policies.box_search import sobol
from kernel_bandits.posteriors.base import Posterior

# Points of the design for each coordinate that is free, and besides.
PER_COORDINATE, BESIDES = 3, 3


@dataclass(frozen=True)
class BoxDesign:
    """A Sobol sequence, shifted at random, whose points are played one after the other before anything is chosen.

    A model that has seen nothing has its largest bounds at the walls, and would not look inside. A played point counts
    from the moment it is asked for, so that late rewards and batches spread over the same design.

    Attributes:
        seed: of the shift.
    """

    seed: np.random.SeedSequence

    def next_action(self, posterior: Posterior[Any], box: Box) -> FloatArray | None:
        """Return the next point of the design, shape (d_a,); None once enough were played."""
        awaited = posterior.awaited_points
        played = posterior.round_index + len(awaited)
        free = int((box.high > box.low).sum())
        if played >= (PER_COORDINATE * free + BESIDES if free else 0):
            return None
        shift = np.random.default_rng(self.seed).random(box.dimension)
        # a Sobol sequence shifted on the torus stays as even as it was
        actions = box.at((sobol(box.dimension) + shift) % 1.0)
        waiting = {point[-box.dimension :].tobytes() for point in awaited.values()}
        # after one has expired, the count points at actions that are pending
        return next(action for action in actions[played:] if action.tobytes() not in waiting)
