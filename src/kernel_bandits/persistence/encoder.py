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


class Encoder:
    """Turns a policy into JSON and collects its arrays; an object met twice is written once."""

    def __init__(self) -> None:
        self.arrays: list[np.ndarray[Any, Any]] = []
        self._seen: dict[int, int] = {}
        # Python may give the id of a deleted object to another, so none is deleted meanwhile.
        self._kept: list[object] = []

    def encode(self, value: Any, where: str) -> Json:
        if value is None or isinstance(value, (bool, str)):
            return value
        if isinstance(value, (int, np.integer)):
            return int(value)
        if isinstance(value, (float, np.floating)):
            return float(value) if math.isfinite(value) else {"float": repr(float(value))}
        if isinstance(value, bytes):
            return {"bytes": value.hex()}
        if type(value) is tuple:
            return {"tuple": [self.encode(item, f"{where}[{i}]") for i, item in enumerate(value)]}
        if id(value) in self._seen:
            return {"same": self._seen[id(value)]}
        number = self._seen[id(value)] = len(self._seen)
        self._kept.append(value)
        return {"number": number, **self._encode_once(value, where)}

    def _encode_once(self, value: Any, where: str) -> dict[str, Json]:
        if isinstance(value, np.ndarray):
            if value.dtype.kind not in "fiub":
                raise InputError(f"save: {where} is an array of {value.dtype}; only numbers can be saved.")
            self.arrays.append(value)
            return {"array": len(self.arrays) - 1}
        if isinstance(value, (list, deque)):
            return {type(value).__name__: [self.encode(item, f"{where}[{i}]") for i, item in enumerate(value)]}
        if isinstance(value, dict):
            entries = value.items()
            named = [(self.encode(k, f"a key of {where}"), self.encode(item, f"{where}[{k!r}]")) for k, item in entries]
            return {"dict": named}
        if isinstance(value, array.array):
            return {"numbers": value.typecode, "list": self.encode(np.array(value), where)}
        if isinstance(value, np.random.Generator):
            # the stream that it is, so that a loaded policy can be reseeded as a new one
            key = tuple(getattr(value.bit_generator.seed_seq, "spawn_key", ()))
            return {"generator": self.encode(value.bit_generator.state, where), "stream": self.encode(key, where)}
        if isinstance(value, np.random.SeedSequence):
            return {"seed": [self.encode(value.entropy, where), self.encode(tuple(value.spawn_key), where)]}
        name = name_of(type(value))
        if name is None:
            raise InputError(
                f"save: {where} is {type(value).__module__}.{type(value).__qualname__}, which is not of this library; "
                "apply kb.register to its class, or build the policy from parts that can be saved."
            )
        state = {key: self.encode(item, f"{where}.{key}") for key, item in attributes(value).items()}
        return {"object": name, "state": state}
