"""New random streams for an object that holds old ones."""

from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np

from kernel_bandits.commit import attributes
from kernel_bandits.rng import Seed, entropy_of


def reseed(thing: object, seed: Seed) -> None:
    """Restart every random stream in an object from one seed; streams that are shared stay shared.

    A stream keeps its key, so that a policy that has drawn nothing is afterwards one that was built with this seed. An
    owner that draws ahead has a method ``on_reseed``, which is called at the end.
    """
    entropy = entropy_of(seed)
    generators: dict[int, np.random.Generator] = {}
    owners: dict[int, object] = {}
    sequences: list[tuple[object, str, np.random.SeedSequence]] = []
    for owner, name, value in _streams(thing):
        owners.setdefault(id(owner), owner)
        if isinstance(value, np.random.Generator):
            generators.setdefault(id(value), value)
        else:
            sequences.append((owner, name, value))
    used: set[tuple[int, ...]] = set()
    for number, generator in enumerate(generators.values()):
        key = tuple(getattr(generator.bit_generator.seed_seq, "spawn_key", ()))
        if key in used:  # two streams of unknown origin
            key = (*key, number)
        used.add(key)
        fresh = type(generator.bit_generator)(np.random.SeedSequence(entropy, spawn_key=key))
        generator.bit_generator.state = fresh.state
    for owner, name, sequence in sequences:
        # past the guard of frozen dataclasses
        object.__setattr__(owner, name, np.random.SeedSequence(entropy, spawn_key=sequence.spawn_key))
    for owner in owners.values():
        getattr(owner, "on_reseed", lambda: None)()


def _streams(thing: object) -> Iterator[tuple[object, str, Any]]:
    """Yield the generators and seeds in an object with their owners and names, each owner once."""
    seen: set[int] = set()
    waiting: deque[tuple[object, str, Any]] = deque([(thing, "", thing)])
    while waiting:
        owner, name, value = waiting.popleft()
        if isinstance(value, (np.random.Generator, np.random.SeedSequence)):
            yield owner, name, value
        elif isinstance(value, (tuple, list, deque)):
            waiting.extend((owner, "", item) for item in value)
        elif isinstance(value, dict):
            waiting.extend((owner, "", item) for item in value.values())
        elif id(value) not in seen:
            seen.add(id(value))
            waiting.extend((value, key, item) for key, item in attributes(value).items())
