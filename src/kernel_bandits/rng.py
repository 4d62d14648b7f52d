"""Independent random streams from one seed: contexts, noise, ties, coins, exploration, learning and designs.

Environments draw from the first two and policies from the others, so that all policies run with one seed meet the
same contexts and the same noise, whatever they draw themselves.
"""

from typing import TypeAlias

import numpy as np

from kernel_bandits.errors import InputError

Seed: TypeAlias = int | None
_STREAMS = ("contexts", "noise", "ties", "coins", "exploration", "learning", "design")


def seed_of(seed: Seed, name: str) -> np.random.SeedSequence:
    """Return the seed of the named stream; ``None`` takes fresh entropy and cannot be repeated."""
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0):
        raise InputError(f"seed: expected a whole number of at least 0, or None, got {seed!r}.")
    # the child that spawn() would return, without its siblings
    return np.random.SeedSequence(seed, spawn_key=(_STREAMS.index(name),))


def stream(seed: Seed, name: str) -> np.random.Generator:
    """Return the generator of the named stream."""
    return np.random.default_rng(seed_of(seed, name))
