"""One file per policy: a JSON manifest and the arrays it names, checksummed, written atomically, never pickle.

Layout: a line that names the format, its number (4 bytes), the length of the manifest (8 bytes), the manifest, the
arrays one after the other, and the SHA-256 of all that. Numbers are big-endian, arrays as they lie in memory. The
manifest describes the policy as the tree of its attributes. The reader looks classes up among those of this library,
those given to :func:`register` and scikit-learn's kernels, and fills in attributes; nothing that a file names is ever
called.
"""

from __future__ import annotations

import array
import dis
import hashlib
import importlib
import itertools
import json
import keyword
import math
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, cached_property
from inspect import getattr_static
from pathlib import Path
from types import MemberDescriptorType
from typing import Any, TypeAlias, TypeVar

import numpy as np

from kernel_bandits.commit import attributes
from kernel_bandits.errors import InputError, needs
from kernel_bandits.io import as_path, atomic_write, remove_drafts
from kernel_bandits.rng import Seed, entropy_of, restored
from kernel_bandits.version import __version__

MAGIC = b"kernel-bandits policy\n"
# Raise by one when the classes can no longer be filled from a file of the release before.
FORMAT = 9
DIGEST_BYTES = hashlib.sha256().digest_size


def save(policy: object, path: str | os.PathLike[str], require_unchanged: Callable[[], None] | None = None) -> None:
    """Write a policy with all it has learned, its generators and its pending decisions to a file, atomically.

    An older file of that name stays until the new one is complete.

    Args:
        policy: to write.
        path: of the file.
        require_unchanged: raises if the policy was changed while it was read; called before anything is written.
    """
    target = as_path("save", path)
    content = to_bytes(policy)
    if require_unchanged is not None:
        require_unchanged()
    try:
        with atomic_write(target) as file:
            file.write(content)
    except OSError as reason:
        raise InputError(f"save: cannot write {target} ({reason.strerror}); choose another place.") from reason
    remove_drafts(target.parent)


def to_bytes(policy: object) -> bytes:
    """Return the content of the file that :func:`save` writes."""
    encoder = Encoder()
    tree = encoder.encode(policy)
    described = [{"dtype": block.dtype.str, "shape": block.shape, "order": _layout(block)} for block in encoder.arrays]
    manifest = json.dumps({"library": __version__, "policy": tree, "arrays": described}, allow_nan=False).encode()
    head = MAGIC + FORMAT.to_bytes(4, "big") + len(manifest).to_bytes(8, "big") + manifest
    body = b"".join([head, *(block.tobytes(order=_layout(block)) for block in encoder.arrays)])
    return body + hashlib.sha256(body).digest()


@dataclass(frozen=True)
class SavedState:
    """The content of an intact file."""

    path: Path
    manifest: Json
    payload: memoryview

    def restore(self) -> Any:
        """Return a new object with the saved state; the caller checks that it is a policy."""
        try:
            return Decoder(self.manifest["arrays"], self.payload).restore(self.manifest["policy"])
        except InputError as reason:
            raise InputError(f"load: {self.path}: {reason}") from reason
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as reason:
            raise InputError(
                f"load: {self.path} does not describe a policy ({type(reason).__name__}: {reason}); "
                "restore an intact copy."
            ) from reason


def _layout(block: np.ndarray[Any, Any]) -> Any:
    """Return the memory layout of an array; it decides the last bits of its products, so it is kept."""
    return "F" if block.flags.f_contiguous and not block.flags.c_contiguous else "C"


def read(path: str | os.PathLike[str]) -> SavedState:
    """Read what :func:`save` wrote.

    A file that is truncated, damaged, foreign, or of another format is an :class:`InputError`.
    """
    path = as_path("load", path)
    try:
        content = path.read_bytes()
    except OSError as reason:
        raise InputError(f"load: cannot read {path} ({reason.strerror}); check the path.") from reason
    return from_bytes(content, path)


def from_bytes(file: bytes, path: Path) -> SavedState:
    """Read what :func:`to_bytes` returned; errors name the path."""
    content = memoryview(file)
    body, digest = content[:-DIGEST_BYTES], content[-DIGEST_BYTES:]
    if bytes(content[: len(MAGIC)]) != MAGIC:
        raise InputError(f"load: {path} is not a file that policy.save wrote, or its beginning is damaged.")
    if hashlib.sha256(body).digest() != bytes(digest):
        raise InputError(f"load: {path} is damaged or truncated (its checksum differs); restore an intact copy.")
    start = len(MAGIC) + 12
    number = int.from_bytes(body[len(MAGIC) : len(MAGIC) + 4], "big")
    length = int.from_bytes(body[len(MAGIC) + 4 : start], "big")
    if number != FORMAT:
        raise _wrong_format(path, number, bytes(body[start : start + length]))
    if start + length > len(body):
        raise InputError(f"load: {path} is damaged (its manifest is cut short); restore an intact copy.")
    try:
        manifest = json.loads(bytes(body[start : start + length]))
    except (ValueError, RecursionError) as reason:
        raise InputError(f"load: {path} is damaged (its manifest is not JSON); restore an intact copy.") from reason
    if not (isinstance(manifest, dict) and "policy" in manifest and isinstance(manifest.get("arrays"), list)):
        raise InputError(f"load: {path} has no policy in its manifest; restore an intact copy.")
    return SavedState(path, manifest, body[start + length :])


def _wrong_format(path: Path, number: int, manifest: bytes) -> InputError:
    """Return the error for a file of another format; all formats so far name the release in their manifest."""
    try:
        release = f"kernel-bandits {json.loads(manifest)['library']}"
    except (ValueError, KeyError, TypeError, RecursionError):
        release = "another release of kernel-bandits"
    if number > FORMAT:
        advice = f"upgrade kernel-bandits (this is {__version__})"
    else:
        advice = (
            "load it where that is installed, save the arrays policy.observed_points and "
            "policy.posterior.observed_rewards, and learn them here by update_many of a new policy"
        )
    return InputError(
        f"load: {path} was written by {release} in format {number}, and this release reads format {FORMAT}; {advice}."
    )


C = TypeVar("C", bound=type)

_PACKAGE = __name__.partition(".")[0]
_FOREIGN_KERNELS = "sklearn.gaussian_process.kernels"
_registered: dict[str, type] = {}


def register(cls: C) -> C:
    """Allow objects of your own class (a kernel, a radius, a policy) in saved files; use it as a decorator.

    Their attributes are saved; ``__init__`` is not called on load. Register the class again, under the same module and
    name, before you load a file that holds such an object.
    """
    _registered[f"{cls.__module__}:{cls.__qualname__}"] = cls
    return cls


def name_of(cls: type) -> str | None:
    """Return the name under which objects of a class are saved; None if they may not be."""
    name = f"{cls.__module__}:{cls.__qualname__}"
    return name if is_ours(cls) or cls.__module__ == _FOREIGN_KERNELS or name in _registered else None


def class_of(name: str) -> type:
    """Return the class saved under a name, without importing anything but scikit-learn's kernels."""
    if name in _registered:
        return _registered[name]
    module_name, _, qualified = name.partition(":")
    if module_name == _FOREIGN_KERNELS:
        with needs("scikit-learn", "kernel-bandits[sklearn]"):
            importlib.import_module(_FOREIGN_KERNELS)
    module = sys.modules.get(module_name)
    ours = module_name.startswith(f"{_PACKAGE}.") or module_name == _FOREIGN_KERNELS
    cls = getattr(module, qualified, None) if ours and module is not None else None
    if not isinstance(cls, type) or cls.__module__ != module_name:
        raise InputError(
            f"it holds an object of the class {name!r}, which is not known here; "
            "apply kb.register to the class before loading."
        )
    return cls


def is_ours(cls: type) -> bool:
    """Return whether a class is of this library."""
    return cls.__module__.startswith(f"{_PACKAGE}.")


def require_attribute(cls: type, name: str) -> None:
    """Raise unless objects of a class may hold a value under this name: no method, no property, no special name."""
    plain = name.isidentifier() and not keyword.iskeyword(name) and not name.startswith("__")
    default = getattr_static(cls, name, None) if plain else None
    is_place = isinstance(default, (MemberDescriptorType, cached_property))
    is_value = not callable(default) and not hasattr(type(default), "__get__")
    if not (plain and (is_place or is_value)):
        raise InputError(f"it sets {name!r} of {cls.__qualname__}, which is no attribute of such an object.")


@cache
def assigned_names(cls: type) -> frozenset[str]:
    """Return the attributes that the constructors of a class assign to ``self``, from their byte code."""
    names = set()
    for one in cls.__mro__:
        code = getattr(one.__dict__.get("__init__"), "__code__", None)
        if code is None or not code.co_varnames:
            continue
        instructions = list(dis.get_instructions(code))
        for before, instruction in itertools.pairwise(instructions):
            # newer compilers load two variables at once
            loaded = before.argval[-1] if isinstance(before.argval, tuple) else before.argval
            if instruction.opname == "STORE_ATTR" and loaded == code.co_varnames[0]:
                names.add(str(instruction.argval))
    return frozenset(names)


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
