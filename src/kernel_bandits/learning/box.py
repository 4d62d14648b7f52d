"""What is known of rewards in a box: before any were seen, and whether those that were show any shape."""

from __future__ import annotations

import math

import numpy as np

from kernel_bandits.arrays import FloatArray
from kernel_bandits.kernels import Constant, Kernel, TensorProduct
from kernel_bandits.learning import blocks
from kernel_bandits.learning.columns import Columns, ColumnUnits
from kernel_bandits.learning.mixed_objective import MixedObjective
from kernel_bandits.learning.mixed_prior import BOX_PRIOR

# What rewards show of the settings: nothing, a plane, or more than that.
FLAT, PLANE, CURVED = range(3)
# The median of |z| of a standard normal z.
NORMAL_MEDIAN = 0.6745


def shape(objective: MixedObjective, parameters: FloatArray) -> int:
    """Return what the rewards of a box show of the settings: ``FLAT``, ``PLANE`` or ``CURVED``.

    A part of the model has to earn ½·log n nats for each of its parameters. A single reward on a peak earns nothing,
    since it might be noise; but it stands out.

    Args:
        objective: of the rewards.
        parameters: θ of the model with all parts.
    """
    price, full = 0.5 * math.log(objective.count), objective.evidence(parameters).value
    # what is absent are a part and its lengthscale, or two parts and the lengthscale of one
    for_plane, for_flat = 2.0 * price, 3.0 * price
    plane, _ = objective.minimum([parameters], [blocks.ACTION_SMOOTH])
    earned = full - objective.evidence(plane).value
    # flat rewards are a plane without slopes, and such a one explains no more
    if earned > for_flat:
        return CURVED
    flat, _ = objective.minimum([parameters], [blocks.ACTION_LINEAR, blocks.ACTION_SMOOTH])
    if full - objective.evidence(flat).value <= for_flat and not _stands_out(objective.surprises(flat)):
        return FLAT
    return PLANE if earned <= for_plane and not _stands_out(objective.surprises(plane)) else CURVED


def _stands_out(surprises: FloatArray) -> bool:
    """Return whether the largest of some deviations is more than chance."""
    # the largest of n standard normals is below √(2 log n) on average, and rarely one above that
    usual = float(np.median(np.abs(surprises - np.median(surprises)))) / NORMAL_MEDIAN
    return float(surprises.max() - np.median(surprises)) > usual * (math.sqrt(2.0 * math.log(len(surprises))) + 1.0)


def unknown_kernel(columns: Columns) -> Kernel:
    """Return a kernel of variance 1 of the settings of a box, whatever the sensors."""
    assert columns.box is not None
    linear, smooth = BOX_PRIOR.action_linear, BOX_PRIOR.action_smooth
    total = 1.0 + linear + smooth
    units = ColumnUnits.of_box(*(np.array(corner) for corner in columns.box))
    settings = units.kernel(1.0 / total, linear / total, smooth / total, BOX_PRIOR.action_lengthscale)
    return TensorProduct(Constant(1.0), settings, columns.contexts) if columns.contexts else settings
