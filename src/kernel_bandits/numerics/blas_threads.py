"""Limit BLAS to one thread where several would only wait for each other.

A round with a few hundred anchors makes tens of matrix products of a few microseconds each; distributing them over
threads costs more than it saves. Large products may use all threads. Setting the limit needs threadpoolctl, which is
optional; without it BLAS uses its own settings.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from threading import Lock
from typing import Any

# OpenBLAS uses several threads for matrix-vector products from this many rows on, and for other products from this many
# multiplications.
SHARED_SIZE, SHARED_PRODUCT = 200, 2**18
# Multiplications (and rows of a factorisation) from which several threads beat one: about half a millisecond of work.
WORTH_SHARING = 16_000_000
WORTH_FACTORISING_TOGETHER = 500


class _OneThread:
    """A re-entrant context that limits BLAS libraries to one thread and restores their settings at the end.

    It limits all libraries, or only SciPy's: this library gives NumPy's BLAS only products that it computes in one
    thread.
    """

    def __init__(self, everywhere: bool = False) -> None:
        self._everywhere = everywhere
        self._lock, self._depth = Lock(), 0
        self._before: list[int] = []

    @cached_property
    def libraries(self) -> list[tuple[Callable[[], int], Callable[[int], None]]]:
        """The getter and setter of the thread count, for each library that had several threads at first access."""
        try:
            from threadpoolctl import ThreadpoolController
        except ImportError:
            return []
        found = ThreadpoolController().select(user_api="blas").lib_controllers
        of_scipy = [library for library in found if "scipy.libs" in library.filepath]
        chosen = found if self._everywhere or not of_scipy else of_scipy
        return [_accessors(library) for library in chosen if library.num_threads > 1]

    def __enter__(self) -> None:
        with self._lock:
            self._depth += 1
            if self._depth == 1:
                self._before = [ask() for ask, _ in self.libraries]
                for _, set_threads in self.libraries:
                    set_threads(1)

    def __exit__(self, *reason: object) -> None:
        with self._lock:
            self._depth -= 1
            if self._depth == 0:
                for (_, set_threads), threads in zip(self.libraries, self._before, strict=True):
                    set_threads(threads)


def _accessors(library: Any) -> tuple[Callable[[], int], Callable[[int], None]]:
    """Return the library's getter and setter, directly if their names are known: a lookup takes longer than a call."""
    for prefix in ("scipy_", ""):
        for suffix in ("", "64_", "_64"):
            ask = getattr(library.dynlib, f"{prefix}openblas_get_num_threads{suffix}", None)
            set_threads = getattr(library.dynlib, f"{prefix}openblas_set_num_threads{suffix}", None)
            if ask is not None and set_threads is not None:
                return ask, set_threads
    return library.get_num_threads, library.set_num_threads


one_thread = _OneThread()
_NOTHING_TO_CHANGE = nullcontext()
_one_thread_everywhere = _OneThread(everywhere=True)


def threads_for(size: int, count: int = 1) -> AbstractContextManager[None]:
    """Return a context with the best number of threads for products of ``count`` rows and a matrix (size, size)."""
    product = count * size * size
    if (size < SHARED_SIZE and product <= SHARED_PRODUCT) or product >= WORTH_SHARING or not one_thread.libraries:
        return _NOTHING_TO_CHANGE
    return one_thread


def factorisation_threads(size: int) -> AbstractContextManager[None]:
    """Return a context for factorising a ``size``×``size`` matrix; LAPACK uses threads even for the smallest."""
    return in_one_thread() if size < WORTH_FACTORISING_TOGETHER else _NOTHING_TO_CHANGE


def in_one_thread() -> AbstractContextManager[None]:
    """Return a context with one thread in SciPy's BLAS, for many calls of a millisecond or so each.

    Threads that wait for each other between them take many times as long wherever the cores have something else to do.
    """
    return one_thread if one_thread.libraries else _NOTHING_TO_CHANGE


def single_threaded() -> AbstractContextManager[None]:
    """Return a context with one thread in every BLAS library.

    It serves runs in parallel processes, and runs that must not depend on the number of threads: with several threads a
    product sums in a different order.
    """
    # First access must be outside the context, where the libraries still have their threads.
    assert isinstance(one_thread.libraries, list)
    return _one_thread_everywhere
