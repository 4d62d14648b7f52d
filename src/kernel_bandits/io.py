"""Atomic file writes."""

import errno
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from kernel_bandits.errors import InputError

try:
    import fcntl
except ImportError:  # a system without such locks
    fcntl = None  # type: ignore[assignment]

_DRAFT = re.compile(r"\.kernel-bandits-[0-9a-f]{16}\.draft")
# A draft is new, and never what a link planted under its name points to.
_CREATE = os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_CREATE |= getattr(os, "O_BINARY", 0)


def as_path(name: str, value: str | os.PathLike[str]) -> Path:
    """Return the path of a file, or raise an :class:`InputError` that names it."""
    try:
        text = os.fspath(value)
    except TypeError as reason:
        raise InputError(f"{name}: expected the path of a file, got {value!r}.") from reason
    if not isinstance(text, str) or not text or "\0" in text:
        raise InputError(f"{name}: expected the path of a file, got {value!r}.")
    return Path(text)


@contextmanager
def atomic_write(path: Path) -> Iterator[IO[bytes]]:
    """Open a draft that takes the name ``path``, durably, when the context ends without an error.

    An older file of that name stays until then, and its permissions are kept. A link, a folder or a device of that
    name is an :class:`OSError`. After an error the draft is removed; that of a killed process is left for
    :func:`remove_drafts`.
    """
    mode = _mode_of(path)
    draft, descriptor = _create_draft(path.parent, 0o666 if mode is None else mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if mode is not None and hasattr(os, "fchmod"):
                os.fchmod(descriptor, mode)
            yield file
            file.flush()
            os.fsync(descriptor)
            if os.name == "posix":
                # while the draft is locked: otherwise it could be taken for that of a killed process
                draft.replace(path)
        if os.name != "posix":
            draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    _sync_folder(path.parent)


def remove_drafts(folder: Path) -> int:
    """Remove the drafts that killed processes left in a folder; return how many.

    A draft is locked as long as its process writes it, so neither the age nor the clock matters.
    """
    if fcntl is None:
        return 0
    removed = 0
    with suppress(OSError):
        for name in os.listdir(folder):
            if _DRAFT.fullmatch(name):
                with suppress(OSError):
                    removed += _remove_unlocked(folder / name)
    return removed


def _remove_unlocked(draft: Path) -> bool:
    descriptor = os.open(draft, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _has_name(descriptor, draft):
            draft.unlink()
            return True
        return False
    finally:
        os.close(descriptor)


def _mode_of(path: Path) -> int | None:
    """Return the permissions of the file that is to be replaced; None if there is none."""
    try:
        found = os.lstat(path).st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found):
        kind = "a symbolic link" if stat.S_ISLNK(found) else "a folder" if stat.S_ISDIR(found) else "not a regular file"
        raise OSError(errno.EINVAL, f"it is {kind}, which is not replaced")
    return stat.S_IMODE(found)


def _create_draft(folder: Path, mode: int) -> tuple[Path, int]:
    """Return a new draft under a random name, and its locked descriptor."""
    while True:
        draft = folder / f".kernel-bandits-{secrets.token_hex(8)}.draft"
        descriptor = os.open(draft, _CREATE, mode)
        if fcntl is None:
            return draft, descriptor
        # Some network file systems have no locks; then drafts are never removed there either.
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if _has_name(descriptor, draft):
            return draft, descriptor
        # another process removed it between the two calls
        os.close(descriptor)


def _has_name(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False


def _sync_folder(folder: Path) -> None:
    """Make the rename durable on systems that can sync folders."""
    if hasattr(os, "O_DIRECTORY"):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
