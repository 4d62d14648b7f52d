"""The exceptions of this library."""


class KernelBanditsError(Exception):
    """Base class of all exceptions that this library defines."""


class InputError(KernelBanditsError, ValueError):
    """An argument is invalid; the message says what was expected, what was given, and what to do."""


class UnavailableError(KernelBanditsError, RuntimeError):
    """The requested data or resource is not available, such as the history of a history-free posterior."""


class MissingPackageError(KernelBanditsError, ImportError):
    """An optional package is missing or too old; the message has the command that installs it."""


def missing(package: str, extra: str) -> MissingPackageError:
    """Return the error for an optional package that cannot be imported, with the extra that installs it."""
    return MissingPackageError(f"{package} cannot be imported; try: pip install 'kernel-bandits[{extra}]'")
