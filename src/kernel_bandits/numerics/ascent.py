"""Local maximisation over the unit cube from many starts at once, by projected BFGS.

This does what L-BFGS-B does, with full matrices instead of limited memory, since actions have few coordinates. All
starts advance together because a posterior evaluates thirty points almost as fast as one; SciPy runs one at a time.
"""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

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
# Number of steps after which the most promising starts are known.
TRIAL_STEPS = 3


def ascend(
    objective: Objective,
    starts: FloatArray,
    *,
    first_step: float,
    tolerance: float,
    survivors: int | None = None,
    iterations: int = 50,
) -> tuple[FloatArray, FloatArray]:
    """Maximise over [0, 1]^d from each start (n, d); return the ends (n, d) and the values there, shape (n,).

    No start ends lower than it began. The first step has length ``first_step``; a start has converged when a step
    predicts or gains less than the tolerance, in units of the objective. After a few steps only as many ``survivors``
    continue, the highest that have not converged; by default all.
    """
    ends = starts.copy()
    values, gradients = objective(ends)
    curvature = _first_curvature(gradients, first_step)
    moving = np.flatnonzero(np.isfinite(curvature).all(axis=(1, 2)) & (gradients != 0.0).any(axis=1))
    fresh = np.ones(len(starts), dtype=bool)
    for iteration in range(iterations):
        if iteration == TRIAL_STEPS and survivors is not None:
            moving = moving[np.argsort(values[moving])[-survivors:]]
        x, f, g, B = ends[moving], values[moving], gradients[moving], curvature[moving]
        step = _direction(x, g, B)
        worth = np.vecdot(step, g) > tolerance
        if not worth.all():
            moving, x, f, g, B, step = (array[worth] for array in (moving, x, f, g, B, step))
        if not len(moving):
            break
        new_x, new_f, new_g = _line_search(objective, x, f, g, step)
        gained = new_f - f > tolerance
        learned = _with_curvature(B, new_x - x, g - new_g)
        if not gained.all():
            # reset a curvature model that yields no gain, once
            learned = np.where(gained[:, None, None], learned, _first_curvature(new_g, first_step))
        curvature[moving] = learned
        ends[moving], values[moving], gradients[moving] = new_x, new_f, new_g
        again = gained | ~fresh[moving]
        fresh[moving] = ~gained
        moving = moving[again]
    return ends, values


def _first_curvature(gradients: FloatArray, first_step: float) -> FloatArray:
    """Return B ≈ −Hessian as a multiple of the identity for which B⁻¹g has the length of the first step, (n, d, d)."""
    steepness = np.maximum(np.linalg.norm(gradients, axis=1), np.finfo(float).tiny)
    return np.eye(gradients.shape[1]) * (steepness / first_step)[:, None, None]


def _direction(x: FloatArray, g: FloatArray, B: FloatArray) -> FloatArray:
    """Return B⁻¹g over the free coordinates, and g_i/B_ii for each coordinate that is pushed against a nearby wall.

    If the latter were part of B⁻¹g, the projection onto the wall could turn ascent into descent (Bertsekas 1982).
    """
    diagonal = np.diagonal(B, axis1=1, axis2=2)
    reach = np.linalg.norm(np.clip(x + g / diagonal, 0.0, 1.0) - x, axis=1)
    near = np.minimum(reach, NEAR_WALL)[:, None]
    free = ~(((x <= near) & (g < 0.0)) | ((x >= 1.0 - near) & (g > 0.0)))
    reduced, slope = B, g
    if not free.all():
        both = free[:, :, None] & free[:, None, :]
        reduced = np.where(both, B, diagonal[:, :, None] * np.eye(x.shape[1]))
        at_wall = ((x <= 0.0) & (g < 0.0)) | ((x >= 1.0) & (g > 0.0))
        slope = np.where(at_wall, 0.0, g)
    step = np.asarray(np.linalg.solve(reduced, slope[:, :, None])[:, :, 0], dtype=np.float64)
    return step * (LONGEST_STEP / np.maximum(np.abs(step).max(axis=1, keepdims=True), LONGEST_STEP))


def _line_search(
    objective: Objective, x: FloatArray, f: FloatArray, g: FloatArray, step: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Shorten each step separately until it gains enough; a start whose step never does stays where it was."""
    new_x, new_f, new_g = x.copy(), f.copy(), g.copy()
    length = np.ones(len(x))
    pending = np.arange(len(x))
    for _ in range(CUTS):
        trial = np.clip(x[pending] + length[pending, None] * step[pending], 0.0, 1.0)
        trial_f, trial_g = objective(trial)
        promise, gain = np.vecdot(trial - x[pending], g[pending]), trial_f - f[pending]
        good = (gain >= SUFFICIENT_GAIN * np.maximum(promise, 0.0)) & np.isfinite(trial_g).all(axis=1)
        if len(good) == len(x) and good.all():
            return trial, trial_f, trial_g
        accepted = pending[good]
        new_x[accepted], new_f[accepted], new_g[accepted] = trial[good], trial_f[good], trial_g[good]
        pending, promise, gain = pending[~good], promise[~good], gain[~good]
        if not len(pending):
            break
        # gain(t) ≈ promise·t − (promise − gain)t² is largest at t = ½·promise/(promise − gain)
        cut = np.where(np.isfinite(gain), 0.5 * promise / (promise - gain), SHORTEST_CUT)
        length[pending] *= np.clip(np.nan_to_num(cut, nan=SHORTEST_CUT), SHORTEST_CUT, LONGEST_CUT)
    return new_x, new_f, new_g


def _with_curvature(B: FloatArray, s: FloatArray, y: FloatArray) -> FloatArray:
    """Return the BFGS update of B for steps s and gradient decreases y, damped so that B stays positive definite."""
    Bs = np.einsum("nij,nj->ni", B, s)
    assumed, seen = np.vecdot(s, Bs), np.vecdot(s, y)
    with np.errstate(divide="ignore", invalid="ignore"):
        # y ← θy + (1 − θ)Bs such that sᵀy = 0.2·sᵀBs, if it is smaller
        theta = np.where(seen < LEAST_CURVATURE * assumed, (1.0 - LEAST_CURVATURE) * assumed / (assumed - seen), 1.0)
        y = theta[:, None] * y + (1.0 - theta)[:, None] * Bs
        # B ← B − Bs(Bs)ᵀ/sᵀBs + yyᵀ/sᵀy
        updated = B - Bs[:, :, None] * (Bs / assumed[:, None])[:, None, :]
        updated += y[:, :, None] * (y / np.vecdot(s, y)[:, None])[:, None, :]
    usable = np.isfinite(updated).all(axis=(1, 2)) & (assumed > 0.0)
    return np.where(usable[:, None, None], updated, B)
