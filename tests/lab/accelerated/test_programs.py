from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from queue import Queue
from threading import Event, Semaphore

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kernel_bandits_lab.accelerated.arrays import bucket
from kernel_bandits_lab.accelerated.engine import WORKERS, Compiler, next_capacities
from kernel_bandits_lab.accelerated.models import Capacity, Demand, ExactModel
from kernel_bandits_lab.accelerated.nystrom import NystromModel
from kernel_bandits_lab.accelerated.problems import CHUNK

compiled = Counter()


def scaled(factor, state, further):
    compiled[state.shape] += 1
    if factor == 13:
        raise ValueError("cannot be compiled")
    return factor * state + further


def compiler(factor, ahead=False):
    return Compiler(scaled, factor, jax.devices("cpu")[0], ahead)


def test_a_program_is_compiled_once_for_its_shapes():
    compiled.clear()
    for _ in range(2):
        for length in (4, 5, 4):
            state, further = np.ones(length), np.full(length, 2.0)
            with jax.enable_x64(True):
                answer = compiler(3).program(state, further)(jnp.asarray(state), jnp.asarray(further))
            np.testing.assert_array_equal(answer, np.full(length, 5.0))
    assert compiled == {(4,): 1, (5,): 1}


@pytest.mark.parametrize("ahead", [True, False])
def test_a_program_is_prepared_only_where_that_is_asked_for(ahead):
    compiled.clear()
    asker = compiler(4 + ahead, ahead)
    arguments = np.ones(6), np.ones(6)
    asker.prepare(*arguments)
    if ahead:
        asker.ask(*arguments).result()
    assert compiled == ({(6,): 1} if ahead else {})
    asker.program(*arguments)
    assert compiled == {(6,): 1}
    asker.forget()
    asker.program(*arguments)
    assert compiled == {(6,): 1}


def test_a_program_that_failed_is_tried_again():
    compiled.clear()
    for _ in range(2):
        with pytest.raises(ValueError, match="cannot be compiled"):
            compiler(13).program(np.ones(7), np.ones(7))
    assert compiled == {(7,): 2}


def test_a_program_that_one_gives_up_is_still_compiled_for_another(monkeypatch):
    started, go_on = Semaphore(0), Event()

    def waiting(number, state):
        if number >= 0:
            started.release()
            go_on.wait()
        return number * state

    def asker(number):
        return Compiler(waiting, number, jax.devices("cpu")[0], ahead=True)

    busy = [asker(number) for number in range(WORKERS)]
    for one in busy:
        one.prepare(np.ones(3))
        started.acquire()
    # all are at work, so what is asked for now is not begun
    first, second = asker(-2), asker(-2)
    first.prepare(np.ones(3))
    ask, asked = second.ask, Queue()

    def ask_and_say(*arguments):
        future = ask(*arguments)
        asked.put(future)
        return future

    monkeypatch.setattr(second, "ask", ask_and_say)
    with ThreadPoolExecutor(1) as other:
        wanted = other.submit(second.program, np.ones(3))
        shared = asked.get()
        first.forget()
        go_on.set()
        program = wanted.result()
    assert shared.cancelled()
    with jax.enable_x64(True):
        np.testing.assert_array_equal(program(jnp.ones(3)), np.full(3, -2.0))


def test_capacities_that_may_come_next_are_few_and_the_likeliest_first():
    horizon = 2000 + CHUNK
    rows = bucket(horizon)
    demand = Demand(0, horizon, False, np.inf)
    nystrom, exact = NystromModel("gaussian", history=True), ExactModel("gaussian")
    larger = next_capacities(nystrom, Capacity(136, 256), demand)
    assert larger == [Capacity(200, 256), Capacity(136, rows), Capacity(200, rows), Capacity(288, rows)]
    assert next_capacities(nystrom, Capacity(200, rows), demand) == [Capacity(288, rows), Capacity(408, rows)]
    capped = demand._replace(max_anchors=150)
    assert next_capacities(NystromModel("gaussian", history=False), Capacity(136, 0), capped) == [Capacity(150, 0)]
    assert next_capacities(exact, Capacity(0, 128), demand) == [Capacity(0, 256)]
    assert next_capacities(exact, Capacity(0, 4096), demand) == []


@pytest.mark.parametrize(
    ("number", "size"), [(1, 512), (512, 512), (513, 576), (1024, 1024), (1025, 1152), (2128, 2304)]
)
def test_sizes_are_few(number, size):
    assert bucket(number) == size
