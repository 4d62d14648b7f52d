"""Every error that this library raises on purpose."""

from __future__ import annotations


class KernelBanditsError(Exception):
    """Base of every error this library raises on purpose."""


class InputError(KernelBanditsError, ValueError):
    """An argument cannot be used; the message says what was expected, what came, and what to do."""


class UnavailableError(KernelBanditsError, RuntimeError):
    """Something asked for was never kept, as the history of a history-free posterior."""


class MissingPackageError(KernelBanditsError, ImportError):
    """An optional package is not there, or is too old; the message has the line that installs it."""


def missing(package: str, extra: str) -> MissingPackageError:
    """The error for an optional package that could not be imported and the extra of this library that brings it."""
    return MissingPackageError(f"{package} cannot be imported; try: pip install 'kernel-bandits[{extra}]'")
