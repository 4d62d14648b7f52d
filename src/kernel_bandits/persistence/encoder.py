"""A policy as JSON and arrays."""

import array
import math
from collections import deque
from typing import Any, TypeAlias

import numpy as np

from kernel_bandits.commit import attributes
from kernel_bandits.errors import InputError
from kernel_bandits.persistence.classes import name_of

Json: TypeAlias = Any
# Where in a policy a value stands, to be put into words if it cannot be saved: that takes longer than to encode it.
Place: TypeAlias = Any
_ITEM, _ATTRIBUTE, _KEY = "{}[{!r}]", "{}.{}", "a key of {}"
_PLAIN = frozenset({type(None), bool, str, int})


def _words(where: Place) -> str:
    if isinstance(where, str):
        return where
    owner, form, part = where
    return str(form.format(_words(owner), part))


class Encoder:
    """Turns a policy into JSON and collects its arrays; an object met twice is written once."""

    def __init__(self) -> None:
        self.arrays: list[np.ndarray[Any, Any]] = []
        self._seen: dict[int, int] = {}
        # Python may give the id of a deleted object to another, so none is deleted meanwhile.
        self._kept: list[object] = []

    def encode(self, value: Any, where: Place = "policy") -> Json:
        kind = type(value)
        if kind in _PLAIN or isinstance(value, str):
            return value
        if kind is not np.ndarray:
            if isinstance(value, (int, np.integer)):
                return int(value)
            if isinstance(value, (float, np.floating)):
                return float(value) if math.isfinite(value) else {"float": repr(float(value))}
            if isinstance(value, bytes):
                return {"bytes": value.hex()}
            if kind is tuple:
                return {"tuple": [self.encode(item, (where, _ITEM, i)) for i, item in enumerate(value)]}
        if id(value) in self._seen:
            return {"same": self._seen[id(value)]}
        number = self._seen[id(value)] = len(self._seen)
        self._kept.append(value)
        return {"number": number, **self._encode_once(value, where)}

    def _encode_once(self, value: Any, where: Place) -> dict[str, Json]:
        if isinstance(value, np.ndarray):
            if value.dtype.kind not in "fiub":
                raise InputError(f"save: {_words(where)} is an array of {value.dtype}; only numbers can be saved.")
            self.arrays.append(value)
            return {"array": len(self.arrays) - 1}
        if isinstance(value, (list, deque)):
            if {*map(type, value)} <= _PLAIN:
                # as JSON has them; thousands of numbers are looked at in a moment
                return {type(value).__name__: list(value)}
            return {type(value).__name__: [self.encode(item, (where, _ITEM, i)) for i, item in enumerate(value)]}
        if isinstance(value, dict):
            key: Place = (where, _KEY, None)
            named = [(self.encode(k, key), self.encode(item, (where, _ITEM, k))) for k, item in value.items()]
            return {"dict": named}
        if isinstance(value, array.array):
            return {"numbers": value.typecode, "list": self.encode(np.array(value), where)}
        if isinstance(value, np.random.Generator):
            # the stream that it is, so that a loaded policy can be reseeded as a new one
            stream = tuple(getattr(value.bit_generator.seed_seq, "spawn_key", ()))
            return {"generator": self.encode(value.bit_generator.state, where), "stream": self.encode(stream, where)}
        if isinstance(value, np.random.SeedSequence):
            return {"seed": [self.encode(value.entropy, where), self.encode(tuple(value.spawn_key), where)]}
        name = name_of(type(value))
        if name is None:
            raise InputError(
                f"save: {_words(where)} is {type(value).__module__}.{type(value).__qualname__}, which is not of this "
                "library; apply kb.register to its class, or build the policy from parts that can be saved."
            )
        state = {key: self.encode(item, (where, _ATTRIBUTE, key)) for key, item in attributes(value).items()}
        return {"object": name, "state": state}
