"""Local maximisation over the unit cube from many starts at once, by projected BFGS.

This does what L-BFGS-B does, with full matrices instead of limited memory, since actions have few coordinates. All
starts advance together because a posterior evaluates thirty points almost as fast as one; SciPy runs one at a time.
Nobody waits for another's line search: at each evaluation some try a new step and others a shorter one.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernel_bandits.arrays import FloatArray

# Maps points of the unit cube (n, d) to values (n,) and gradients (n, d).
Objective: TypeAlias = Callable[[FloatArray], tuple[FloatArray, FloatArray]]

# A step is accepted if it gains this share of the gain that the slope predicts (Armijo).
SUFFICIENT_GAIN = 1e-4
# A rejected step is shortened to the maximum of a parabola through the values, by a factor within these bounds.
SHORTEST_CUT, LONGEST_CUT = 0.1, 0.5
CUTS = 8
# Longest step in any coordinate: the local model of the curvature is useless beyond.
LONGEST_STEP = 0.5
# Largest distance at which a coordinate counts as near a wall; it shrinks close to a maximum.
NEAR_WALL = 0.01
# The curvature along a step is taken to be at least this share of the model's (Powell's damping), to keep it concave.
LEAST_CURVATURE = 0.2
# Number of evaluations after which the most promising starts are known.
TRIAL_EVALUATIONS = 3


def ascend(
    objective: Objective,
    starts: FloatArray,
    *,
    first_step: float,
    tolerance: float,
    survivors: int | None = None,
    iterations: int = 100,
) -> tuple[FloatArray, FloatArray]:
    """Maximise over [0, 1]^d from each start (n, d); return the ends (n, d) and the values there, shape (n,).

    No start ends lower than it began. The first step has length ``first_step``; a start has converged when a step
    predicts or gains less than the tolerance, in units of the objective. After a few evaluations only as many
    ``survivors`` continue, the highest that have not converged; by default all. The objective is evaluated once before
    the first of at most so many ``iterations``, and once in each.
    """
    ends = starts.copy()
    values, gradients = objective(ends)
    climbers = _Climbers.starting(ends, values, gradients, first_step)
    for iteration in range(iterations):
        if iteration == TRIAL_EVALUATIONS and survivors is not None:
            climbers = climbers.only(np.argsort(climbers.f)[-survivors:])
        if not len(climbers.rows):
            break
        moving = climbers.advance(objective, tolerance, first_step)
        ends[climbers.rows], values[climbers.rows] = climbers.x, climbers.f
        if not moving.all():
            climbers = climbers.only(moving)
    return ends, values


@dataclass(slots=True)
class _Climbers:
    """Starts that have not converged, one row each.

    Attributes:
        rows: which of the starts they are.
        x: where they are.
        f: the objective there.
        g: its gradient there.
        B: ≈ −Hessian.
        step: to try, if it were not shortened.
        length: the share of the step to try.
        cuts: how often the step was shortened.
        fresh: whether nothing was learned of the curvature yet.
    """

    rows: NDArray[np.intp]
    x: FloatArray
    f: FloatArray
    g: FloatArray
    B: FloatArray
    step: FloatArray
    length: FloatArray
    cuts: NDArray[np.intp]
    fresh: NDArray[np.bool_]

    @classmethod
    def starting(cls, x: FloatArray, f: FloatArray, g: FloatArray, first_step: float) -> Self:
        """Return all starts that have a direction to go."""
        B = _first_curvature(g, first_step)
        rows = np.flatnonzero(np.isfinite(B).all(axis=(1, 2)) & (g != 0.0).any(axis=1))
        x, f, g, B = x[rows], f[rows], g[rows], B[rows]
        count = len(rows)
        step, cuts = _direction(x, g, B), np.zeros(count, dtype=np.intp)
        return cls(rows, x, f, g, B, step, np.ones(count), cuts, np.ones(count, dtype=bool))

    def only(self, chosen: NDArray[np.intp] | NDArray[np.bool_]) -> Self:
        """Return some of the climbers."""
        return type(self)(*(getattr(self, field.name)[chosen] for field in fields(self)))

    def advance(self, objective: Objective, tolerance: float, first_step: float) -> NDArray[np.bool_]:
        """Let each climber try its step, in place; return who goes on.

        A step that gains enough is made, any other is shortened. A climber whose step gains nothing at
        any length stays where it is, and starts once more without what it had learned of the curvature.
        """
        trial = _into_cube(self.x + self.length[:, None] * self.step)
        f, g = objective(trial)
        moved, gain = trial - self.x, f - self.f
        promise = np.vecdot(moved, self.g)
        good = (gain >= SUFFICIENT_GAIN * np.maximum(promise, 0.0)) & np.isfinite(g).all(axis=1)
        np.copyto(self.B, _with_curvature(self.B, moved, self.g - g), where=good[:, None, None])
        np.copyto(self.x, trial, where=good[:, None])
        np.copyto(self.g, g, where=good[:, None])
        np.copyto(self.f, f, where=good)
        moving = ~good | (gain > tolerance)
        if good.all():
            self.length.fill(1.0)
            self.cuts.fill(0)
        else:
            moving &= self._shorten(good, promise, gain, first_step)
        self.fresh &= ~good
        np.copyto(self.step, _direction(self.x, self.g, self.B), where=(self.cuts == 0)[:, None])
        return moving & (np.vecdot(self.step, self.g) > tolerance)

    def _shorten(
        self, good: NDArray[np.bool_], promise: FloatArray, gain: FloatArray, first_step: float
    ) -> NDArray[np.bool_]:
        """Shorten the steps that were not good; return which climbers go on."""
        with np.errstate(divide="ignore", invalid="ignore"):
            # gain(t) ≈ promise·t − (promise − gain)t² is largest at t = ½·promise/(promise − gain)
            cut = np.where(np.isfinite(gain), 0.5 * promise / (promise - gain), SHORTEST_CUT)
        cut = np.clip(np.nan_to_num(cut, nan=SHORTEST_CUT), SHORTEST_CUT, LONGEST_CUT)
        self.length = np.where(good, 1.0, self.length * cut)
        self.cuts = np.where(good, 0, self.cuts + 1)
        failed = self.cuts == CUTS
        if failed.any():
            np.copyto(self.B, _first_curvature(self.g, first_step), where=failed[:, None, None])
            self.length[failed], self.cuts[failed] = 1.0, 0
        moving = ~(failed & self.fresh)
        self.fresh |= failed
        return moving


def _into_cube(points: FloatArray) -> FloatArray:
    """Move points onto the nearest wall, in place, where they are beyond it."""
    # half the time of np.clip on a few points
    return np.minimum(np.maximum(points, 0.0, out=points), 1.0, out=points)


def _first_curvature(gradients: FloatArray, first_step: float) -> FloatArray:
    """Return B ≈ −Hessian as a multiple of the identity for which B⁻¹g has the length of the first step, (n, d, d)."""
    steepness = np.maximum(np.linalg.norm(gradients, axis=1), np.finfo(float).tiny)
    # a product with the identity would be 0·∞ where the gradient is infinite
    return np.where(np.eye(gradients.shape[1], dtype=bool), (steepness / first_step)[:, None, None], 0.0)


def _direction(x: FloatArray, g: FloatArray, B: FloatArray) -> FloatArray:
    """Return B⁻¹g over the free coordinates, and g_i/B_ii for each coordinate that is pushed against a nearby wall.

    If the latter were part of B⁻¹g, the projection onto the wall could turn ascent into descent (Bertsekas 1982).
    """
    diagonal = np.diagonal(B, axis1=1, axis2=2)
    towards = _into_cube(x + g / diagonal) - x
    near = np.minimum(np.sqrt(np.vecdot(towards, towards)), NEAR_WALL)[:, None]
    room = np.where(g < 0.0, x, 1.0 - x)
    held = (room <= near) & (g != 0.0)
    reduced, slope = B, g
    if held.any():
        reduced = np.where(held[:, :, None] | held[:, None, :], diagonal[:, :, None] * np.eye(x.shape[1]), B)
        slope = np.where(held & (room <= 0.0), 0.0, g)
    step = np.asarray(np.linalg.solve(reduced, slope[:, :, None])[:, :, 0], dtype=np.float64)
    return step * (LONGEST_STEP / np.maximum(np.abs(step).max(axis=1, keepdims=True), LONGEST_STEP))


def _with_curvature(B: FloatArray, s: FloatArray, y: FloatArray) -> FloatArray:
    """Return the BFGS update of B for steps s and gradient decreases y, damped so that B stays positive definite."""
    with np.errstate(divide="ignore", invalid="ignore"):
        Bs = np.einsum("nij,nj->ni", B, s)
        assumed, seen = np.vecdot(s, Bs), np.vecdot(s, y)
        # y ← θy + (1 − θ)Bs such that sᵀy = 0.2·sᵀBs, if it is smaller
        theta = np.where(seen < LEAST_CURVATURE * assumed, (1.0 - LEAST_CURVATURE) * assumed / (assumed - seen), 1.0)
        y = theta[:, None] * y + (1.0 - theta)[:, None] * Bs
        # B ← B − Bs(Bs)ᵀ/sᵀBs + yyᵀ/sᵀy
        updated = B - Bs[:, :, None] * (Bs / assumed[:, None])[:, None, :]
        updated += y[:, :, None] * (y / np.vecdot(s, y)[:, None])[:, None, :]
    usable = np.isfinite(updated).all(axis=(1, 2)) & (assumed > 0.0)
    return np.where(usable[:, None, None], updated, B)
