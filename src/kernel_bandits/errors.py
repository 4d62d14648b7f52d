"""The exceptions of this library."""

from collections.abc import Iterator
from contextlib import contextmanager


class KernelBanditsError(Exception):
    """Base class of all exceptions that this library defines."""


class InputError(KernelBanditsError, ValueError):
    """An argument is invalid; the message says what was expected, what was given, and what to do."""


class UnavailableError(KernelBanditsError, RuntimeError):
    """The requested data or resource is not available, such as the history of a history-free posterior."""


class MissingPackageError(KernelBanditsError, ImportError):
    """An optional package is missing or too old; the message has the command that installs it."""


@contextmanager
def needs(package: str, requirement: str) -> Iterator[None]:
    """Import an optional package inside this context; if that fails, the error names what to install."""
    try:
        yield
    except ImportError as reason:
        raise MissingPackageError(f"{package} cannot be imported; try: pip install '{requirement}'") from reason
