"""Search a box for the action with the largest upper confidence bound.

Three steps: candidates that cover the box are evaluated by matrix products, and more of them around the best; gradient
ascent starts from the best of all, all climbers in step; the highest ends are the finalists. Where settings are choices
or whole numbers, ascent and steps to other levels take turns. Coordinates are fractions of the box.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Self

import numpy as np
import scipy

from kernel_bandits.actions import Box
from kernel_bandits.arrays import FloatArray
from kernel_bandits.boxes.ascent import Objective, ascend
from kernel_bandits.numerics.linalg import threads_for
from kernel_bandits.posterior.base import Bound, Posterior

# All numbers here were chosen on 1,800 random posteriors (benchmarks/boxes.py): fewer miss more of the largest bounds.
# Quasi-random candidates as powers of 2, for boxes of 1, 2, 3 and from 4 dimensions on.
CANDIDATES = (8, 8, 9, 10)
# They cover a cube wider than the box by this factor; those outside are moved to the walls, where bounds are often
# largest.
STRETCH = 1.1
# The largest number of anchors that are candidates too: with a short lengthscale no other candidate is near a peak.
ANCHORS = 128
# Neighbours drawn around each of the best candidates, at distances of 1/100 to 2 spacings (powers of 10).
CENTRES, NEIGHBOURS, DISTANCES = 8, 32, (-2.0, 0.3)
# Ascent starts from this many peaks of the candidates, at least half a spacing apart, and this many of the neighbours,
# at least a 20th of a spacing apart.
PEAKS, PEAK_RADIUS = 64, 0.5
FINE_PEAKS, FINE_RADIUS = 8, 0.05
FIRST_STEP = 0.25
# A climber has arrived where a step changes the bound by less than this share of its range over the candidates.
TOLERANCE = 1e-11
FINALISTS = 8
# Turns of other levels and ascent, at most; usually the second finds nothing better.
ALTERNATIONS = 8
# Candidates evaluated at once: matrix products that fit the caches.
ROWS_AT_ONCE = 512


@dataclass(frozen=True, slots=True)
class BoundInBox:
    """A bound as a function of fractions of a box.

    Attributes:
        bound: of the actions.
        box: the box.
        size: m, of the posterior.
    """

    bound: Bound
    box: Box
    size: int

    @classmethod
    def of(cls, posterior: Posterior, bonus: float, context: FloatArray, box: Box) -> Self:
        """Return mean + bonus·std in a context (d_x,)."""
        return cls(posterior.bound_in(context, bonus), box, posterior.dictionary_size)

    def values(self, fractions: FloatArray) -> FloatArray:
        """Return the bound at fractions (n, k), shape (n,); raise if the kernel is not finite there."""
        values = np.empty(len(fractions))
        for start in range(0, len(fractions), ROWS_AT_ONCE):
            rows = slice(start, start + ROWS_AT_ONCE)
            actions = self.box.at(fractions[rows])
            with threads_for(self.size, len(actions)):
                values[rows] = self.bound.values(actions)
        return values

    def relaxed(self, fractions: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return values (n,) and gradients (n, k) at fractions (n, k), where whole numbers may lie in between."""
        with threads_for(self.size, len(fractions)):
            values, gradients = self.bound.with_gradients(self.box.at(fractions, rounded=False))
        return values, self.box.slopes(fractions, gradients)

    def with_gradients(self, fractions: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return values (n,) and gradients (n, k) at fractions (n, k)."""
        with threads_for(self.size, len(fractions)):
            values, gradients = self.bound.with_gradients(self.box.at(fractions))
        return values, np.where(self.box.is_counted, 0.0, self.box.slopes(fractions, gradients))


def finalists(
    posterior: Posterior, bonus: float, context: FloatArray, box: Box, generator: np.random.Generator
) -> FloatArray:
    """Return actions (n, d_a) of a box, one of which has the largest mean + bonus·std that the search has found.

    The posterior stays as it is. The generator shifts the quasi-random candidates at every call, so that no place is
    overlooked for good.
    """
    bound = BoundInBox.of(posterior, bonus, context, box)
    anchors = _anchors(posterior, context, box)
    settings = len(box.settings)
    covering = _covering(settings, anchors, generator)
    values = bound.values(covering)
    spacing = len(covering) ** (-1.0 / settings)
    peaks = covering[_peaks(covering, values, PEAK_RADIUS * spacing, PEAKS)]
    near = around(peaks[:CENTRES], spacing, generator)
    fine_peaks = near[_peaks(near, bound.values(near), FINE_RADIUS * spacing, FINE_PEAKS)]
    tolerance = TOLERANCE * float(np.ptp(values))

    def climbed(objective: Objective, starts: FloatArray) -> FloatArray:
        ends, heights = ascend(
            objective, starts, first_step=FIRST_STEP * spacing, tolerance=tolerance, survivors=FINALISTS
        )
        return ends[np.argsort(heights)[-FINALISTS:]]

    ends = climbed(bound.relaxed, np.concatenate([peaks, fine_peaks]))
    if box.is_counted.any():
        ends = _alternated(bound, ends, partial(climbed, bound.with_gradients))
    if len(anchors):
        # A kernel with a kink has its peaks at anchors, and ascent circles them: try the nearest anchors themselves.
        ends = np.concatenate(
            [ends, anchors[scipy.spatial.distance.cdist(ends, anchors, "sqeuclidean").argmin(axis=1)]]
        )
    return box.at(ends)


def candidates(posterior: Posterior, context: FloatArray, box: Box, generator: np.random.Generator) -> FloatArray:
    """Return actions that cover a box evenly and those of some anchors, shape (n, d_a); arguments as above."""
    return box.at(_covering(len(box.settings), _anchors(posterior, context, box), generator))


def _anchors(posterior: Posterior, context: FloatArray, box: Box) -> FloatArray:
    """Return the actions of the posterior's anchors as fractions of the box, shape (m, k)."""
    points = posterior.dictionary_points
    return box.fractions(points[:, len(context) :]) if len(points) else np.empty((0, len(box.settings)))


def _alternated(bound: BoundInBox, ends: FloatArray, climbed: Callable[[FloatArray], FloatArray]) -> FloatArray:
    """Return ends (n, k) from which neither another level or whole number nor ascent leads further.

    Ascent changes none of them, so both take turns (as in BoTorch's ``optimize_acqf_mixed_alternating``).
    """
    best, counted = -np.inf, bound.box.is_counted
    for _ in range(ALTERNATIONS):
        near = bound.box.neighbours(ends)
        values = bound.values(near)
        order = np.argsort(-values)
        if not values[order[0]] > best:
            break
        best = values[order[0]]
        # the best of each combination of levels
        first = np.unique(bound.box.alike(near[order])[0][:, counted], axis=0, return_index=True)[1]
        ends = near[order[np.sort(first)[:FINALISTS]]]
        ends = np.concatenate([ends, climbed(ends)])
    return ends[np.argsort(bound.values(ends))[-FINALISTS:]]


def _covering(dimension: int, anchors: FloatArray, generator: np.random.Generator) -> FloatArray:
    """Return points that cover the unit cube evenly, and some of the anchors, shape (n, d_a)."""
    # a Sobol sequence shifted on the torus stays as even as it was
    even = (sobol(dimension) + generator.random(dimension)) % 1.0
    if len(anchors) > ANCHORS:
        anchors = anchors[generator.choice(len(anchors), ANCHORS, replace=False)]
    return np.concatenate([np.clip(0.5 + STRETCH * (even - 0.5), 0.0, 1.0), anchors])


@lru_cache(maxsize=8)
def sobol(dimension: int) -> FloatArray:
    """Return the first points of the Sobol sequence, shape (n, d_a); not to be changed."""
    exponent = CANDIDATES[min(dimension, len(CANDIDATES)) - 1]
    points: FloatArray = scipy.stats.qmc.Sobol(dimension, scramble=False).random_base2(exponent)
    points.setflags(write=False)
    return points


def around(centres: FloatArray, spacing: float, generator: np.random.Generator) -> FloatArray:
    """Return neighbours of the centres at all scales from two spacings down, shape (n, d_a)."""
    count, dimension = centres.shape
    distances = spacing * 10.0 ** generator.uniform(*DISTANCES, (count, NEIGHBOURS, 1))
    offsets = distances * generator.uniform(-1.0, 1.0, (count, NEIGHBOURS, dimension))
    return np.clip(centres[:, None, :] + offsets, 0.0, 1.0).reshape(-1, dimension)


def _peaks(points: FloatArray, values: FloatArray, radius: float, count: int) -> list[int]:
    """Return the rows of the largest values, at most ``count``, none within the radius of a larger one."""
    rows: list[int] = []
    # largest first; usually the first piece is enough
    order = np.argsort(-values, kind="stable")
    for start in range(0, len(order), 2 * count):
        some = order[start : start + 2 * count]
        if rows:
            some = some[
                (scipy.spatial.distance.cdist(points[some], points[rows], "sqeuclidean") > radius * radius).all(axis=1)
            ]
        far = scipy.spatial.distance.cdist(points[some], points[some], "sqeuclidean") > radius * radius
        free = np.ones(len(some), dtype=bool)
        for number, row in enumerate(some.tolist()):
            if free[number]:
                rows.append(row)
                if len(rows) == count:
                    return rows
                free &= far[number]
    return rows
