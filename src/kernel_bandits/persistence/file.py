"""Reading and writing the file of a policy."""

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kernel_bandits.errors import InputError
from kernel_bandits.io import as_path, atomic_write, remove_drafts
from kernel_bandits.persistence.decoder import Decoder
from kernel_bandits.persistence.encoder import Encoder, Json
from kernel_bandits.version import __version__

MAGIC = b"kernel-bandits policy\n"
# Raise by one when the classes can no longer be filled from a file of the release before.
FORMAT = 8
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
