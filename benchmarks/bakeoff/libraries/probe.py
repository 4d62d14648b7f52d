"""Our own parts with nothing learned: one posterior for each arm, a kernel that is the same on every table.

What learning the kernel is worth, and what the default has to beat.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from bakeoff.game import Player, Shape
from bakeoff.libraries.base import Entry, Library, Settings
from bakeoff.libraries.ours import Ours

if TYPE_CHECKING:
    import kernel_bandits as kb


def probe(columns: int, seed: int) -> kb.Policy:
    """Return the policy for contexts with this many columns: 0.2 + 0.4·⟨x, y⟩/d + 0.4·Gaussian(√d) and λ = 0.1."""
    import kernel_bandits as kb

    contexts = kb.Constant(0.2) + 0.4 / columns * kb.Linear() + 0.4 * kb.Gaussian(math.sqrt(columns))
    kernel = kb.PerArm(contexts, columns)
    return kb.ek_ucb(kernel, regularization=0.1, dictionary=kb.Kors(max_size=150), seed=seed)


def without_learning(settings: Settings, shape: Shape, seed: int) -> Player:  # noqa: ARG001 (nothing is set)
    return Ours(probe(shape.context_columns, seed))


def has_contexts_and_names(shape: Shape) -> bool:
    """Return whether the probe can play: it knows arms by their names and contexts by their columns."""
    return shape.context_columns > 0 and shape.action_columns == 0


LIBRARY = Library(
    "our parts, nothing learned",
    "probe",
    (),
    (Entry("one posterior per arm", without_learning, plays=has_contexts_and_names),),
    role="probe",
)
