"""Independent random streams from one seed: contexts, noise, ties, coins, exploration, learning and designs.

Environments draw from the first two and policies from the others, so that all policies run with one seed meet the
same contexts and the same noise, whatever they draw themselves.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import InputError

Seed: TypeAlias = int | None
_STREAMS = ("contexts", "noise", "ties", "coins", "exploration", "learning", "design")
_BIT_GENERATORS = {name: getattr(np.random, name) for name in ("PCG64", "PCG64DXSM", "Philox", "SFC64", "MT19937")}
# The largest value of each whole number in a generator's state.
_LARGEST = {
    "state": 2**128 - 1,
    "inc": 2**128 - 1,
    "has_uint32": 1,
    "uinteger": 2**32 - 1,
    "buffer_pos": 4,
    "pos": 624,
}


def seed_of(seed: Seed, name: str) -> np.random.SeedSequence:
    """Return the seed of the named stream; ``None`` takes fresh entropy and cannot be repeated."""
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0):
        raise InputError(f"seed: expected a whole number of at least 0, or None, got {seed!r}.")
    # the child that spawn() would return, without its siblings
    return np.random.SeedSequence(seed, spawn_key=(_STREAMS.index(name),))


def stream(seed: Seed, name: str) -> np.random.Generator:
    """Return the generator of the named stream."""
    return np.random.default_rng(seed_of(seed, name))


def entropy_of(seed: Seed) -> int:
    """Return the entropy of a seed, fresh for ``None``."""
    entropy = seed_of(seed, _STREAMS[0]).entropy
    assert isinstance(entropy, int)
    return entropy


def reseeded(generator: np.random.Generator, entropy: int) -> np.random.Generator:
    """Return a generator of the same stream of another seed."""
    key = tuple(getattr(generator.bit_generator.seed_seq, "spawn_key", ()))
    return np.random.Generator(type(generator.bit_generator)(np.random.SeedSequence(entropy, spawn_key=key)))


def draw_row(probabilities: FloatArray, generator: np.random.Generator) -> int:
    """Return a row drawn with the given probabilities (A,), whose sum is 1 up to rounding."""
    cumulative = np.cumsum(probabilities)
    row = int(np.searchsorted(cumulative, generator.random() * cumulative[-1], side="right"))
    # rounding in the product may reach the sum itself
    return row if row < len(probabilities) else int(np.flatnonzero(probabilities)[-1])


def restored(state: Mapping[str, Any], stream_key: Sequence[int] = ()) -> np.random.Generator:
    """Return a generator in a state that was read from its ``bit_generator``, or raise :class:`InputError`.

    NumPy takes any position in a buffer and then reads there, so the state is checked entry by entry. The stream key is
    the spawn key of its seed, for a later reseeding.
    """
    kind = _BIT_GENERATORS.get(str(state["bit_generator"]))
    if kind is None:
        raise InputError(f"a generator of the kind {state['bit_generator']!r}, which no policy has.")
    bit_generator = kind(np.random.SeedSequence(0, spawn_key=tuple(stream_key)))
    _require_like(state, bit_generator.state)
    bit_generator.state = state
    return np.random.Generator(bit_generator)


def _require_like(state: Any, model: Any, name: str = "state") -> None:
    """Raise unless a generator's state has the entries of another one, each within its range."""
    if isinstance(model, dict):
        fits = isinstance(state, Mapping) and state.keys() == model.keys()
        for key in model if fits else ():
            _require_like(state[key], model[key], key)
    elif isinstance(model, np.ndarray):
        fits = isinstance(state, np.ndarray) and (state.dtype, state.shape) == (model.dtype, model.shape)
    elif isinstance(model, int):
        fits = type(state) is int and 0 <= state <= _LARGEST[name]
        # the increment of a congruential generator is odd, or its period is short
        fits = fits and (name != "inc" or state % 2 == 1)
    else:
        fits = state == model
    if not fits:
        raise InputError(f"a generator's state in which {name!r} is not possible.")
