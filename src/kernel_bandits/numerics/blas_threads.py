"""One BLAS thread where more would only wait for each other.

A round on a few hundred anchors is tens of matrix products of some microseconds each; handing them to several threads
costs more than it saves. Large products are left to as many threads as the libraries have. The limit needs
threadpoolctl, which is optional: without it the libraries do as they like.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from threading import Lock
from typing import Any

# OpenBLAS shares products of a matrix with a vector from so many rows on, other products from so many multiplications.
SHARED_SIZE, SHARED_PRODUCT = 200, 2**18
# From so many multiplications on several threads are faster than one: half a millisecond of work or more.
WORTH_SHARING = 16_000_000
WORTH_FACTORISING_TOGETHER = 500


class _OneThread:
    """Sets BLAS libraries to one thread and back to what they had; a second entry does nothing more.

    Args:
        everywhere: whether in all of them, or in SciPy's alone: NumPy's is given nothing by this library that it would
            share among threads.
    """

    def __init__(self, everywhere: bool = False) -> None:
        self._everywhere = everywhere
        self._lock = Lock()
        self._depth = 0
        self._before: list[int] = []

    @cached_property
    def libraries(self) -> list[tuple[Callable[[], int], Callable[[int], None]]]:
        """How to ask for and set the threads of each library that had several when first looked at."""
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
    """The library's own functions where their names are known, since looking them up takes longer than calling them."""
    for prefix in ("scipy_", ""):
        for suffix in ("", "64_", "_64"):
            ask = getattr(library.dynlib, f"{prefix}openblas_get_num_threads{suffix}", None)
            set_threads = getattr(library.dynlib, f"{prefix}openblas_set_num_threads{suffix}", None)
            if ask is not None and set_threads is not None:
                return ask, set_threads
    return library.get_num_threads, library.set_num_threads


one_thread = _OneThread()
_one_thread_everywhere = _OneThread(everywhere=True)


def threads_for(size: int, count: int = 1) -> AbstractContextManager[None] | None:
    """The threads that pay for products of ``count`` rows with a square matrix of ``size`` rows.

    Returns:
        A context to compute them in, or None where there is nothing to change.
    """
    product = count * size * size
    if (size < SHARED_SIZE and product <= SHARED_PRODUCT) or product >= WORTH_SHARING:
        return None
    return one_thread if one_thread.libraries else None


def factorisation_threads(size: int) -> AbstractContextManager[None]:
    """A context for factorising a square matrix of ``size`` rows; LAPACK shares even the smallest among threads."""
    return one_thread if size < WORTH_FACTORISING_TOGETHER and one_thread.libraries else nullcontext()


def single_threaded() -> AbstractContextManager[None]:
    """A context with one thread in every BLAS library.

    For runs beside each other, and for runs that must not depend on how many threads there are: the sums of a product
    shared among threads are taken in another order.
    """
    # Looked at inside the context they would be taken for libraries that have one thread for good.
    assert isinstance(one_thread.libraries, list)
    return _one_thread_everywhere
