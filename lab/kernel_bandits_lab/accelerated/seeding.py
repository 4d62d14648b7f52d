"""Make the generators of :func:`kernel_bandits.rng.stream` for many seeds at once.

NumPy's ``SeedSequence`` takes a seed through about eighty steps of 32-bit arithmetic, three quarters of the time that a
generator takes; here all seeds take them together.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernel_bandits.rng import seed_of, stream

Words = NDArray[np.uint32]

# The constants of SeedSequence: its hash has a multiplier that changes from word to word.
_POOL = 4
_START, _STEP = 0x43B0D7E5, 0x931E8875
_OUT_START, _OUT_STEP = 0x8B51F9DD, 0x58F38DED
_LEFT, _RIGHT = np.uint32(0xCA01F9DD), np.uint32(0x4973F715)
_HALF = np.uint32(16)


def streams(seeds: Sequence[int], name: str) -> Iterator[np.random.Generator]:
    """Yield ``stream(seed, name)`` for each seed."""
    if not all(_is_whole(seed) and 0 <= seed < 2 ** (32 * _POOL) for seed in seeds):
        yield from (stream(seed, name) for seed in seeds)
        return
    entropy = [np.array([int(seed) >> 32 * place & 0xFFFFFFFF for seed in seeds], np.uint32) for place in range(_POOL)]
    (key,) = seed_of(0, name).spawn_key
    for state in _states([*entropy, np.full(len(seeds), key, np.uint32)]):
        yield np.random.Generator(np.random.PCG64(_Given(state)))  # type: ignore[arg-type]  # the stubs know SeedSequence alone


def _is_whole(seed: object) -> bool:
    return isinstance(seed, (int, np.integer)) and not isinstance(seed, bool)


class _Given(np.random.bit_generator.ISeedSequence):
    """A seed sequence whose words are known."""

    def __init__(self, state: NDArray[np.uint64]) -> None:
        self._state = state

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> NDArray[np.uint64]:
        assert (n_words, dtype) == (len(self._state), np.uint64)
        return self._state


class _Hash:
    """x ← (x ⊕ c)·c′ with c′ the next multiplier, then x ⊕ (x >> 16)."""

    def __init__(self, start: int, step: int) -> None:
        self._constant, self._step = start, step

    def __call__(self, words: Words) -> Words:
        words = words ^ np.uint32(self._constant)
        self._constant = self._constant * self._step & 0xFFFFFFFF
        words = words * np.uint32(self._constant)
        return words ^ (words >> _HALF)


def _states(entropy: Sequence[Words]) -> NDArray[np.uint64]:
    """Return the four 64-bit words that seed the PCG64 of each seed, from at least four words of entropy; (S, 4)."""
    scramble = _Hash(_START, _STEP)
    pool = [scramble(words) for words in entropy[:_POOL]]
    for source in range(_POOL):
        for target in range(_POOL):
            if source != target:
                pool[target] = _mix(pool[target], scramble(pool[source]))
    for words in entropy[_POOL:]:
        pool = [_mix(mixed, scramble(words)) for mixed in pool]
    finish = _Hash(_OUT_START, _OUT_STEP)
    halves = [finish(pool[number % _POOL]).astype(np.uint64) for number in range(2 * _POOL)]
    return np.stack([low | high << np.uint64(32) for low, high in zip(halves[::2], halves[1::2], strict=True)], axis=1)


def _mix(left: Words, right: Words) -> Words:
    mixed = _LEFT * left - _RIGHT * right
    return mixed ^ (mixed >> _HALF)
