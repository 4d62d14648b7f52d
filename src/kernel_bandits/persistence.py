"""One file per policy: a JSON manifest and the arrays it names, checksummed, written atomically, never pickle.

Layout: a line that names the format, its number (4 bytes), the length of the manifest (8 bytes), the manifest, the
arrays one after the other, and the SHA-256 of all that. Numbers are big-endian, arrays as they lie in memory. The
manifest describes the policy as a tree of objects. A class declares what is saved of it: the fields of a dataclass, its
slots, or the names in ``saved``. The reader looks classes up among those of this library, those given to
:func:`register` and scikit-learn's kernels, and fills in what they declare; nothing that a file names is ever called.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import math
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from functools import cache, cached_property
from inspect import getattr_static
from keyword import iskeyword
from typing import Any, TypeAlias, TypeVar

import numpy as np

from kernel_bandits.errors import InputError, needs
from kernel_bandits.io import as_path, atomic_write, remove_drafts
from kernel_bandits.rng import restored
from kernel_bandits.values import Pending, Rows, fields_of
from kernel_bandits.version import __version__

MAGIC = b"kernel-bandits policy\n"
# Raise by one when the classes can no longer be filled from a file of the release before.
FORMAT = 14
DIGEST_BYTES = hashlib.sha256().digest_size
Json: TypeAlias = Any


def save(policy: object, path: str | os.PathLike[str]) -> None:
    """Write a policy with all it has learned, its generators and its pending decisions to a file, atomically."""
    write(to_bytes(policy), path)


def write(content: bytes, path: str | os.PathLike[str], verb: str = "save") -> None:
    """Write the content of a file atomically; an older file of that name stays until the new one is complete."""
    target = as_path(verb, path)
    try:
        with atomic_write(target) as file:
            file.write(content)
    except OSError as reason:
        raise InputError(f"{verb}: cannot write {target} ({reason.strerror}); choose another place.") from reason
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


def _layout(block: np.ndarray[Any, Any]) -> Any:
    """Return the memory layout of an array; it decides the last bits of its products, so it is kept."""
    return "F" if block.flags.f_contiguous and not block.flags.c_contiguous else "C"


def read(path: str | os.PathLike[str]) -> bytes:
    """Return the content of a file."""
    path = as_path("load", path)
    try:
        return path.read_bytes()
    except OSError as reason:
        raise InputError(f"load: cannot read {path} ({reason.strerror}); check the path.") from reason


def from_bytes(content: bytes, path: str | os.PathLike[str]) -> Any:
    """Return a new object with the state that :func:`to_bytes` was given; the caller checks that it is a policy.

    What is truncated, damaged, foreign, or of another format is an :class:`InputError` that names the path.
    """
    manifest, payload = _parts(memoryview(content), path)
    try:
        return Decoder(manifest["arrays"], payload).restore(manifest["policy"])
    except InputError as reason:
        raise InputError(f"load: {path}: {reason}") from reason
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as reason:
        raise InputError(
            f"load: {path} does not describe a policy ({type(reason).__name__}: {reason}); restore an intact copy."
        ) from reason


def _parts(content: memoryview, path: str | os.PathLike[str]) -> tuple[Json, memoryview]:
    """Return the manifest and the arrays of an intact file."""
    body, digest = content[:-DIGEST_BYTES], content[-DIGEST_BYTES:]
    if bytes(content[: len(MAGIC)]) != MAGIC:
        raise InputError(f"load: {path} is not a file that policy.save wrote, or its beginning is damaged.")
    if hashlib.sha256(body).digest() != bytes(digest):
        raise InputError(f"load: {path} is damaged or truncated (its checksum differs); restore an intact copy.")
    start = len(MAGIC) + 12
    number = int.from_bytes(body[len(MAGIC) : len(MAGIC) + 4], "big")
    stop = start + int.from_bytes(body[len(MAGIC) + 4 : start], "big")
    try:
        manifest = json.loads(bytes(body[start:stop]))
    except (ValueError, RecursionError):
        manifest = None
    if number != FORMAT:
        raise _wrong_format(path, number, manifest)
    if stop > len(body) or not isinstance(manifest, dict) or not isinstance(manifest.get("arrays"), list):
        raise InputError(f"load: {path} is damaged (its manifest is none); restore an intact copy.")
    return manifest, body[stop:]


def _wrong_format(path: str | os.PathLike[str], number: int, manifest: Json) -> InputError:
    """Return the error for a file of another format; all formats so far name the release in their manifest."""
    known = isinstance(manifest, dict) and "library" in manifest
    release = f"kernel-bandits {manifest['library']}" if known else "another release of kernel-bandits"
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
    """Return the class saved under a name, without importing anything but this library and scikit-learn's kernels."""
    if name in _registered:
        return _registered[name]
    module_name, _, qualified = name.partition(":")
    if module_name == _FOREIGN_KERNELS:
        with needs("scikit-learn", "kernel-bandits[sklearn]"):
            importlib.import_module(_FOREIGN_KERNELS)
    elif module_name.startswith(f"{_PACKAGE}."):
        with contextlib.suppress(ImportError):
            importlib.import_module(module_name)
    else:
        module_name = ""
    cls = getattr(sys.modules.get(module_name), qualified, None)
    if not isinstance(cls, type) or cls.__module__ != module_name:
        raise InputError(
            f"it holds an object of the class {name!r}, which is not known here; "
            "apply kb.register to the class before loading."
        )
    return cls


def is_ours(cls: type) -> bool:
    """Return whether a class is of this library."""
    return cls.__module__.startswith(f"{_PACKAGE}.")


@cache
def declared(cls: type) -> tuple[str, ...] | None:
    """Return the names of what is saved of an object: fields, slots or ``saved``; None where a class declares none."""
    names = [name for one in reversed(cls.__mro__) for name in one.__dict__.get("saved", ())]
    if names:
        return tuple(dict.fromkeys(names))
    if is_dataclass(cls):
        return tuple(field.name for field in fields(cls))
    if any(one.__dict__.get("__slots__") for one in cls.__mro__):
        return fields_of(cls)
    # a class without state, or one of a user's own
    return () if is_ours(cls) else None


def state_of(thing: object) -> dict[str, Any]:
    """Return what is saved of an object, by name."""
    cls: type = type(thing)
    names = declared(cls)
    if names is None:
        return dict(vars(thing))
    return {name: getattr(thing, name) for name in names}


def _stream_of(generator: np.random.Generator) -> tuple[Any, Any]:
    """Return the state of a generator, and which stream it is, so that a loaded policy can be reseeded as a new one."""
    return generator.bit_generator.state, tuple(getattr(generator.bit_generator.seed_seq, "spawn_key", ()))


def _rows(rows: Any, length: Any) -> Rows:
    if not (isinstance(rows, np.ndarray) and type(length) is int and length >= 1):
        raise InputError("its manifest holds rows that are none.")
    return Rows.of(rows, length)


def _pending(*items: Any) -> Pending[Any]:
    if not all(type(key) is int for key, _ in items):
        raise InputError("its manifest holds a pending decision without a number.")
    return Pending(dict(items))


# How objects of other types are taken apart to a tuple, and put together from it, by the name they have in a manifest.
_KINDS: dict[str, tuple[type, Callable[[Any], Any], Callable[..., Any]]] = {
    "list": (list, tuple, lambda *items: list(items)),
    "dict": (dict, lambda mapping: tuple(mapping.items()), lambda *items: dict(items)),
    "rows": (Rows, lambda rows: (rows.array, rows.length), _rows),
    "pending": (Pending, lambda pending: tuple(pending.items()), _pending),
    "generator": (np.random.Generator, _stream_of, restored),
    "seed": (
        np.random.SeedSequence,
        lambda seed: (seed.entropy, tuple(seed.spawn_key)),
        lambda entropy, key: np.random.SeedSequence(entropy, spawn_key=key),
    ),
}


class Encoder:
    """Turns a policy into JSON and collects its arrays; an object met twice is written once."""

    def __init__(self) -> None:
        self.arrays: list[np.ndarray[Any, Any]] = []
        self._seen: dict[int, int] = {}
        # Python may give the id of a deleted object to another, so none is deleted meanwhile.
        self._kept: list[object] = []
        self._place = ["policy"]

    def encode(self, value: Any) -> Json:
        if value is None or isinstance(value, (bool, str)):
            return value
        if isinstance(value, (int, np.integer)):
            return int(value)
        if isinstance(value, (float, np.floating)):
            return float(value) if math.isfinite(value) else {"float": repr(float(value))}
        if isinstance(value, bytes):
            return {"bytes": value.hex()}
        if type(value) is tuple:
            return {"tuple": [self.encode(item) for item in value]}
        if isinstance(value, tuple) and (name := name_of(type(value))) is not None:
            return {"named": name, "items": [self.encode(item) for item in value]}
        if id(value) in self._seen:
            return {"same": self._seen[id(value)]}
        number = self._seen[id(value)] = len(self._seen)
        self._kept.append(value)
        return {"number": number, **self._encode_once(value)}

    def _encode_once(self, value: Any) -> dict[str, Json]:
        if isinstance(value, np.ndarray):
            if value.dtype.kind not in "fiub":
                raise InputError(f"save: {self._words} is an array of {value.dtype}; only numbers can be saved.")
            self.arrays.append(value)
            return {"array": len(self.arrays) - 1}
        for tag, (kind, apart, _) in _KINDS.items():
            if isinstance(value, kind):
                parts = apart(value)
                self._kept.append(parts)
                return {tag: [self.encode(part) for part in parts]}
        name = name_of(type(value))
        if name is None:
            raise InputError(
                f"save: {self._words} is {type(value).__module__}.{type(value).__qualname__}, which is not of this "
                "library; apply kb.register to its class, or build the policy from parts that can be saved."
            )
        state = {}
        for key, item in state_of(value).items():
            self._place.append(key)
            state[key] = self.encode(item)
            self._place.pop()
        return {"object": name, "state": state}

    @property
    def _words(self) -> str:
        return ".".join(self._place)


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
        if "named" in value:
            cls, items = class_of(value["named"]), [self.decode(item) for item in value["items"]]
            if not issubclass(cls, tuple) or len(items) != len(getattr(cls, "_fields", ())):
                raise InputError(f"it holds {len(items)} entries of {cls.__qualname__}, which has others.")
            # filled and not called
            return tuple.__new__(cls, items)
        if "same" in value:
            return self._seen[value["same"]]
        number = value["number"]
        if "object" in value:
            return self._object(number, class_of(value["object"]), value["state"])
        if "array" in value:
            self._seen[number] = self._arrays[value["array"]]
            return self._seen[number]
        for tag in value.keys() & _KINDS.keys():
            together = _KINDS[tag][2]
            self._seen[number] = together(*(self.decode(part) for part in value[tag]))
            return self._seen[number]
        raise InputError(f"its manifest holds an entry of an unknown kind: {sorted(value)}.")

    def _object(self, number: int, cls: type, state: Json) -> Any:
        """Return an object with the state that its class declares, and no other."""
        names = declared(cls)
        if names is not None and set(state) != set(names):
            missing, unknown = sorted(set(names) - set(state)), sorted(set(state) - set(names))
            wrong = f"has no {missing[0]}" if missing else f"has {unknown[0]!r}, which is not declared"
            raise InputError(f"its {cls.__qualname__} {wrong}.")
        thing: object = object.__new__(cls)
        self._seen[number] = thing
        values = {name: self.decode(item) for name, item in state.items()}
        restore = getattr(cls, "restore_saved", None)
        if restore is not None:
            restore(thing, values)
            return thing
        for name, item in values.items():
            if names is None and not _is_place(cls, name):
                raise InputError(f"it sets {name!r} of {cls.__qualname__}, which is no attribute of such an object.")
            # past the guard of frozen dataclasses
            object.__setattr__(thing, name, item)
        return thing


def _is_place(cls: type, name: str) -> bool:
    """Return whether an object of a class may hold a value under this name: no method and no property, which act."""
    held = getattr_static(cls, name, None)
    acts = callable(held) or (hasattr(type(held), "__get__") and not isinstance(held, cached_property))
    return name.isidentifier() and not iskeyword(name) and not name.startswith("__") and not acts


def _require_complete(thing: object) -> None:
    """Raise if an object holds a number that is none, or a value that its class refuses."""
    for name, value in state_of(thing).items():
        if not all(map(_is_number, _leaves(value))):
            raise InputError(f"the {name} of its {type(thing).__qualname__} has entries that are not finite.")
    check = getattr(thing, "__post_init__", None)
    if check is not None:
        check()


def _leaves(value: Any) -> Iterable[Any]:
    """Yield what a value holds outside of other objects."""
    if isinstance(value, (tuple, list)):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, Rows):
        yield value.array
    elif isinstance(value, dict):
        yield from _leaves(list(value.values()))
    else:
        yield value


def _is_number(value: Any) -> bool:
    """Return whether a value is fit to compute with: a single number may be infinite, as a limit."""
    if isinstance(value, float):
        return not math.isnan(value)
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        return bool(np.isfinite(value).all())
    return True


def memory_of(thing: object) -> int:
    """Return the bytes of all arrays that can be reached from an object, each counted once."""
    total, seen, waiting = 0, set(), [thing]
    while waiting:
        item = waiting.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, np.ndarray):
            # a view counts as the array it is a view of
            total, waiting = (total + item.nbytes, waiting) if item.base is None else (total, [*waiting, item.base])
        elif isinstance(item, Rows):
            total += item.nbytes
        elif isinstance(item, (dict, Pending)):
            waiting.extend([*item.keys(), *item.values()])
        elif isinstance(item, (list, tuple)):
            waiting.extend(item)
        elif isinstance(item, bytes):
            total += len(item)
        elif is_ours(type(item)) or hasattr(item, "__dict__"):
            waiting.extend(state_of(item).values())
    return total
