"""Read a policy from JSON and arrays, and check whatever can be checked for any object."""

import array
import math
from collections import deque
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from kernel_bandits.commit import attributes
from kernel_bandits.errors import InputError
from kernel_bandits.persistence.classes import assigned_names, class_of, is_ours, require_attribute
from kernel_bandits.persistence.encoder import Json
from kernel_bandits.rng import restored


class Decoder:
    """Turns the JSON of an ``Encoder`` back into objects."""

    def __init__(self, described: list[Json], payload: memoryview) -> None:
        self._arrays = []
        start = 0
        for item in described:
            dtype = np.dtype(str(item["dtype"]))
            if dtype.kind not in "fiub" or not dtype.isnative:
                raise InputError(f"it holds an array of {dtype}, which no policy has.")
            shape = tuple(int(length) for length in item["shape"])
            size = math.prod(shape) * dtype.itemsize
            if min(shape, default=0) < 0 or start + size > len(payload):
                raise InputError("its arrays are cut short.")
            flat = np.frombuffer(payload[start : start + size], dtype=dtype)
            self._arrays.append(flat.reshape(shape, order=item["order"]).copy(order="K"))
            start += size
        if start != len(payload):
            raise InputError("it holds bytes that belong to no array.")
        self._seen: dict[int, Any] = {}

    def restore(self, tree: Json) -> Any:
        """Return the object that a tree describes, once every object in it has been checked."""
        thing = self.decode(tree)
        for one in self._seen.values():
            if is_ours(type(one)):
                _require_complete(one)
        return thing

    def decode(self, value: Json) -> Any:
        if not isinstance(value, dict):
            if isinstance(value, list):
                raise InputError("its manifest holds a bare list.")
            return value
        if "float" in value:
            return float(value["float"])
        if "bytes" in value:
            return bytes.fromhex(value["bytes"])
        if "tuple" in value:
            return tuple(self.decode(item) for item in value["tuple"])
        if "same" in value:
            return self._seen[value["same"]]
        return self._decode_once(value["number"], value)

    def _decode_once(self, number: int, value: Json) -> Any:
        if "object" in value:
            cls = class_of(value["object"])
            thing: object = object.__new__(cls)
            self._seen[number] = thing
            for name, item in value["state"].items():
                require_attribute(cls, name)
                # past the guard of frozen dataclasses
                object.__setattr__(thing, name, self.decode(item))
            return thing
        if "dict" in value:
            mapping: dict[Any, Any] = {}
            self._seen[number] = mapping
            mapping.update((self.decode(key), self.decode(item)) for key, item in value["dict"])
            return mapping
        if "numbers" in value:
            values = self.decode(value["list"])
            self._seen[number] = array.array(str(value["numbers"]), values.tolist())
        elif "list" in value or "deque" in value:
            sequence: list[Any] | deque[Any] = [] if "list" in value else deque()
            self._seen[number] = sequence
            sequence.extend(self.decode(item) for item in value.get("list", value.get("deque")))
        elif "array" in value:
            self._seen[number] = self._arrays[value["array"]]
        elif "generator" in value:
            state = self.decode(value["generator"])
            self._seen[number] = restored(state, self.decode(value.get("stream", {"tuple": []})))
        elif "seed" in value:
            entropy, spawn_key = (self.decode(item) for item in value["seed"])
            self._seen[number] = np.random.SeedSequence(entropy, spawn_key=spawn_key)
        else:
            raise InputError(f"its manifest holds an entry of an unknown kind: {sorted(value)}.")
        return self._seen[number]


def _require_complete(thing: object) -> None:
    """Raise if an object lacks a field, holds a number that is none, or a value that its class refuses."""
    for name, value in attributes(thing).items():
        if not all(map(_is_number, _leaves(value))):
            raise InputError(f"the {name} of its {type(thing).__qualname__} has entries that are not finite.")
    cls: Any = type(thing)
    declared = {field.name for field in fields(cls)} if is_dataclass(cls) else assigned_names(cls)
    for name in sorted(declared):
        if not hasattr(thing, name):
            raise InputError(f"its {type(thing).__qualname__} has no {name}.")
    check = getattr(thing, "__post_init__", None)
    if check is not None:
        check()


def _leaves(value: Any) -> Iterable[Any]:
    """Yield what a value holds outside of other objects."""
    if isinstance(value, (tuple, list, deque)):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, dict):
        yield from _leaves(list(value.values()))
    else:
        yield value


def _is_number(value: Any) -> bool:
    """Return whether a value is fit to compute with: a single number may be infinite, as a limit."""
    if isinstance(value, float):
        return not math.isnan(value)
    if isinstance(value, array.array) and value.typecode in "fd":
        return all(map(math.isfinite, value))
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        return bool(np.isfinite(value).all())
    return True
