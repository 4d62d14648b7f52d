"""One file per policy: a JSON manifest and the arrays it names, checksummed, written atomically, never pickle.

Layout: a line that names the format, its number (4 bytes), the length of the manifest (8 bytes), the manifest, the
arrays one after the other, and the SHA-256 of all that. Numbers are big-endian, arrays as they lie in memory. The
manifest describes the policy as the tree of its attributes. The reader looks classes up among those of this library,
those given to :func:`register` and scikit-learn's kernels, and fills in attributes; nothing that a file names is ever
called.
"""

import array
import hashlib
import importlib
import json
import math
import os
import sys
from collections import deque
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np

from kernel_bandits.errors import InputError, needs
from kernel_bandits.io import atomic_write
from kernel_bandits.version import __version__

Json: TypeAlias = Any
C = TypeVar("C", bound=type)

MAGIC = b"kernel-bandits policy\n"
# Raise by one when the classes can no longer be filled from a file of the release before.
FORMAT = 3
DIGEST_BYTES = hashlib.sha256().digest_size
_PACKAGE = __name__.partition(".")[0]
_FOREIGN_KERNELS = "sklearn.gaussian_process.kernels"
_registered: dict[str, type] = {}
_BIT_GENERATORS = {name: getattr(np.random, name) for name in ("PCG64", "PCG64DXSM", "Philox", "SFC64", "MT19937")}


def register(cls: C) -> C:
    """Allow objects of your own class (a kernel, a radius, a policy) in saved files; use it as a decorator.

    Their attributes are saved; ``__init__`` is not called on load. Register the class again, under the same module and
    name, before you load a file that holds such an object.
    """
    _registered[f"{cls.__module__}:{cls.__qualname__}"] = cls
    return cls


def save(policy: object, path: str | os.PathLike[str]) -> None:
    """Write a policy with all it has learned, its generators and its pending decisions to a file, atomically.

    An older file of that name stays until the new one is complete.
    """
    encoder = _Encoder()
    tree = encoder.encode(policy, "policy")
    described = [{"dtype": block.dtype.str, "shape": block.shape, "order": _layout(block)} for block in encoder.arrays]
    manifest = json.dumps({"library": __version__, "policy": tree, "arrays": described}, allow_nan=False).encode()
    head = MAGIC + FORMAT.to_bytes(4, "big") + len(manifest).to_bytes(8, "big") + manifest
    target = Path(path)
    try:
        with atomic_write(target) as file:
            digest = hashlib.sha256()
            for part in (head, *(block.tobytes(order=_layout(block)) for block in encoder.arrays)):
                digest.update(part)
                file.write(part)
            file.write(digest.digest())
    except OSError as reason:
        raise InputError(f"save: cannot write {target} ({reason.strerror}); choose another place.") from reason


def load(path: str | os.PathLike[str]) -> object:
    """Read the object that :func:`save` wrote; the caller checks that it is a policy.

    A file that is truncated, damaged, foreign, or of another format is an :class:`InputError`.
    """
    manifest, payload = _read(Path(path))
    try:
        return _Decoder(manifest["arrays"], payload).decode(manifest["policy"])
    except InputError as reason:
        raise InputError(f"load: {path}: {reason}") from reason
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RecursionError) as reason:
        raise InputError(
            f"load: {path} does not describe a policy ({type(reason).__name__}: {reason}); restore an intact copy."
        ) from reason


def _layout(block: np.ndarray[Any, Any]) -> Any:
    """Return the memory layout of an array; it decides the last bits of its products, so it is kept."""
    return "F" if block.flags.f_contiguous and not block.flags.c_contiguous else "C"


def _read(path: Path) -> tuple[Json, memoryview]:
    """Return the manifest of an intact file, and the bytes of its arrays."""
    try:
        content = memoryview(path.read_bytes())
    except OSError as reason:
        raise InputError(f"load: cannot read {path} ({reason.strerror}); check the path.") from reason
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
    except ValueError as reason:
        raise InputError(f"load: {path} is damaged (its manifest is not JSON); restore an intact copy.") from reason
    if not (isinstance(manifest, dict) and "policy" in manifest and isinstance(manifest.get("arrays"), list)):
        raise InputError(f"load: {path} has no policy in its manifest; restore an intact copy.")
    return manifest, body[start + length :]


def _wrong_format(path: Path, number: int, manifest: bytes) -> InputError:
    """Return the error for a file of another format; all formats so far name the release in their manifest."""
    try:
        release = f"kernel-bandits {json.loads(manifest)['library']}"
    except (ValueError, KeyError, TypeError):
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


def attributes(thing: object) -> dict[str, Any]:
    """Return the attributes that make up an object's state, those in slots included."""
    state = dict(getattr(thing, "__dict__", {}))
    for cls in type(thing).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(thing, name):
                state[name] = getattr(thing, name)
    return state


def _name_of(cls: type) -> str | None:
    """Return the name under which objects of a class are saved; None if they may not be."""
    name = f"{cls.__module__}:{cls.__qualname__}"
    ours = cls.__module__.startswith(f"{_PACKAGE}.") or cls.__module__ == _FOREIGN_KERNELS
    return name if ours or name in _registered else None


def _class_of(name: str) -> type:
    """Return the class saved under a name, without importing anything but scikit-learn's kernels."""
    if name in _registered:
        return _registered[name]
    module_name, _, qualified = name.partition(":")
    if module_name == _FOREIGN_KERNELS:
        with needs("scikit-learn", "sklearn"):
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


class _Encoder:
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
            return {"generator": self.encode(value.bit_generator.state, where)}
        if isinstance(value, np.random.SeedSequence):
            return {"seed": [self.encode(value.entropy, where), self.encode(tuple(value.spawn_key), where)]}
        name = _name_of(type(value))
        if name is None:
            raise InputError(
                f"save: {where} is {type(value).__module__}.{type(value).__qualname__}, which is not of this library; "
                "apply kb.register to its class, or build the policy from parts that can be saved."
            )
        state = {key: self.encode(item, f"{where}.{key}") for key, item in attributes(value).items()}
        return {"object": name, "state": state}


class _Decoder:
    """Turns the JSON of :class:`_Encoder` back into objects."""

    def __init__(self, described: list[Json], payload: memoryview) -> None:
        self._arrays = []
        start = 0
        for item in described:
            dtype = np.dtype(str(item["dtype"]))
            if dtype.kind not in "fiub":
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
            cls = _class_of(value["object"])
            thing: object = object.__new__(cls)
            self._seen[number] = thing
            for name, item in value["state"].items():
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
            bit_generator = _BIT_GENERATORS[state["bit_generator"]](0)
            bit_generator.state = state
            self._seen[number] = np.random.Generator(bit_generator)
        elif "seed" in value:
            entropy, spawn_key = (self.decode(item) for item in value["seed"])
            self._seen[number] = np.random.SeedSequence(entropy, spawn_key=spawn_key)
        else:
            raise InputError(f"its manifest holds an entry of an unknown kind: {sorted(value)}.")
        return self._seen[number]
