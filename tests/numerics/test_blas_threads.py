"""BLAS threads: one for small matrices, what the user set before and after, and no thread left behind."""

import sys
from contextlib import nullcontext

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController, threadpool_limits

import kernel_bandits as kb
from kernel_bandits.numerics import linalg as threads


@pytest.fixture
def two_threads(monkeypatch):
    """Two threads in every BLAS library, whatever the environment says, and a fresh look at them."""
    monkeypatch.setattr(threads, "one_thread", threads._OneThread())
    with threadpool_limits(2, user_api="blas"):
        if not threads.one_thread.libraries:
            pytest.skip("the BLAS libraries here have one thread only")
        yield


def counts():
    """Threads of SciPy's BLAS, the one that matrices of that size are given to."""
    libraries = ThreadpoolController().select(user_api="blas").lib_controllers
    return [library.num_threads for library in libraries if "scipy.libs" in library.filepath] or [
        library.num_threads for library in libraries
    ]


@pytest.mark.usefixtures("two_threads")
def test_middling_sizes_run_with_one_thread_and_put_back_what_was():
    context = threads.threads_for(256, 10)
    before = counts()
    with context:
        assert set(counts()) == {1}
        with context:
            assert set(counts()) == {1}
        assert set(counts()) == {1}
    assert counts() == before


@pytest.mark.usefixtures("two_threads")
def test_the_libraries_of_wheels_are_found_without_threadpoolctl(monkeypatch):
    if not any(".libs" in library.filepath for library in ThreadpoolController().lib_controllers):
        pytest.skip("NumPy and SciPy are not installed from wheels")
    monkeypatch.setitem(sys.modules, "threadpoolctl", None)
    limit, before = threads._OneThread(), counts()
    with limit:
        assert set(counts()) == {1}
    assert counts() == before
    everywhere = threads._OneThread(everywhere=True)
    assert len(everywhere.libraries) >= len(limit.libraries) > 0


@pytest.mark.usefixtures("two_threads")
def test_a_limit_set_by_the_user_survives():
    with threadpool_limits(1, user_api="blas"):
        with threads.threads_for(256, 10):
            pass
        assert set(counts()) == {1}


@pytest.mark.usefixtures("two_threads")
def test_small_and_large_sizes_are_left_alone():
    assert isinstance(threads.threads_for(64, 10), nullcontext)
    assert isinstance(threads.threads_for(2000, 100), nullcontext)


@pytest.mark.usefixtures("two_threads")
def test_an_error_puts_the_threads_back():
    before = counts()
    policy = kb.ek_ucb(kb.Gaussian(0.05), dictionary=kb.Kors(oversampling=1e6), seed=0)
    generator = np.random.default_rng(0)
    policy.update_many(generator.random((150, 1)), generator.random((150, 1)), generator.random(150))
    assert policy.dictionary_size > 90
    with pytest.raises(kb.InputError):
        policy.update([0.5], [0.5], float("nan"))
    with pytest.raises(kb.InputError):
        policy.select([0.5], [[float("nan")]])
    assert counts() == before
