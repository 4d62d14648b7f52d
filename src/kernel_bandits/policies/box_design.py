"""The first actions of a policy that knows nothing yet: points that fill a box evenly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernel_bandits.actions import Box
from kernel_bandits.arrays import FloatArray
from kernel_bandits.learning.box import FLAT, PLANE
from kernel_bandits.policies.box_search import sobol
from kernel_bandits.posteriors.base import Posterior

# Points of the design for each coordinate that is free, and besides.
PER_COORDINATE, BESIDES = 3, 3
# Points for each free coordinate while rewards show no more than a plane, the number that Loeppky, Sacks & Welch (2009)
# recommend for a function of unknown shape.
FOR_A_PLANE = 10


@dataclass(frozen=True)
class BoxDesign:
    """A Sobol sequence, shifted at random, whose points are played one after the other before anything is chosen.

    A model that has seen nothing has its largest bounds at the walls, and would not look inside. A played point counts
    from the moment it is asked for, so that late rewards and batches spread over the same design.

    The design goes on for as long as rewards show nothing of the settings: there is nothing to gain from a choice then,
    and the next point may be the first on a peak. While they show a plane, there is something to gain, and the design
    ends sooner.

    Attributes:
        seed: of the shifts.
    """

    seed: np.random.SeedSequence

    def next_action(self, posterior: Posterior[Any], box: Box) -> FloatArray | None:
        """Return the next point of the design, shape (d_a,); None once enough were played."""
        awaited = posterior.awaited_points
        played = posterior.round_index + len(awaited)
        free = int((box.high > box.low).sum())
        # before the first fit, and where all rewards are equal, there is no shape yet
        shows_nothing = posterior.shape == FLAT or not posterior.kernel_changes
        if not free or (not shows_nothing and played >= self._size(posterior, free)):
            return None
        waiting = {point[-box.dimension :].tobytes() for point in awaited.values()}
        # after one has expired, the count points at actions that are pending
        while True:
            action = self._action(played, box)
            if action.tobytes() not in waiting:
                return action
            played += 1

    def _size(self, posterior: Posterior[Any], free: int) -> int:
        return FOR_A_PLANE * free if posterior.shape == PLANE else PER_COORDINATE * free + BESIDES

    def _action(self, number: int, box: Box) -> FloatArray:
        """Return a point of the design, shape (d_a,)."""
        points = sobol(box.dimension)
        # a Sobol sequence shifted on the torus stays as even as it was; when it ends, another shift begins
        shifts = np.random.default_rng(self.seed).random((number // len(points) + 1, box.dimension))
        return box.at(((points[number % len(points)] + shifts[-1]) % 1.0)[None, :])[0]
