"""Values that grow: what grew from them shares memory, and nobody sees it."""

import copy
import pickle

import numpy as np
import pytest
from faults.injection import Injected, lines_of, run_with_interrupt

from kernel_bandits.values import CHUNK, Pending, Rows


@pytest.mark.parametrize("seed", range(20))
def test_rows_that_grew_from_one_another_are_lists_of_their_own(seed):
    """Branches are extended in any order, by one row or by many, across the ends of blocks of four."""
    generator = np.random.default_rng(seed)
    grown = [(Rows(4), np.empty((0, 2)))]
    for _ in range(60):
        rows, plain = grown[generator.integers(len(grown))]
        more = generator.random((generator.integers(1, 7), 2))
        rows = rows.appended(more[0]) if len(more) == 1 else rows.extended(more)
        grown.append((rows, np.vstack([plain, more])))
    for rows, plain in grown[1:]:
        np.testing.assert_array_equal(rows.array, plain)
        np.testing.assert_array_equal(np.vstack(list(rows.blocks())), plain)
        assert len(rows) == len(plain)
    for again in (pickle.loads(pickle.dumps(rows)), copy.deepcopy(rows)):
        np.testing.assert_array_equal(again.appended([7.0, 8.0]).array, np.vstack([plain, [[7.0, 8.0]]]))


@pytest.mark.parametrize("change", [lambda rows: rows.appended(9.0), lambda rows: rows.extended(np.full(6, 9.0))])
def test_rows_whose_growth_was_interrupted_grow_as_before(change):
    for line in range(lines_of(lambda: Rows.of(np.arange(5.0), 4), change)):
        rows = Rows.of(np.arange(5.0), 4)
        run_with_interrupt(lambda: change(rows), line, Injected)  # noqa: B023 (called at once)
        np.testing.assert_array_equal(rows.array, np.arange(5.0))
        np.testing.assert_array_equal(rows.appended(3.0).appended(4.0).array, [*np.arange(5.0), 3.0, 4.0])
        assert rows.appended(3.0).tail[-1] == 3.0


def test_rows_are_not_copied_as_they_grow():
    rows, memory = Rows(8), set()
    for number in range(16):
        rows = rows.appended(float(number))
        memory |= {block.__array_interface__["data"][0] for block in rows.blocks()}
    assert len(memory) == 2


@pytest.mark.parametrize("seed", range(10))
def test_pending_is_a_dictionary_that_is_never_changed(seed):
    generator = np.random.default_rng(seed)
    grown = [(Pending(), {})]
    for _ in range(60):
        pending, plain = grown[generator.integers(len(grown))]
        if plain and generator.random() < 0.5:
            keys = generator.permutation(list(plain))[: generator.integers(1, len(plain) + 1)].tolist()
            changed = pending.without(keys), {key: item for key, item in plain.items() if key not in keys}
        else:
            items = dict.fromkeys(generator.integers(3 * CHUNK, size=generator.integers(1, 9)).tolist(), len(grown))
            changed = pending.with_items(items), {**plain, **items}
        grown.append(changed)
    for pending, plain in grown:
        assert dict(pending) == plain
        assert len(pending) == len(plain)
        assert pickle.loads(pickle.dumps(pending)) == pending
        assert all(key in pending for key in plain)
        assert -1 not in pending


def test_pending_keeps_the_order_in_which_decisions_were_asked_for():
    numbers = list(range(0, 3 * CHUNK, 7))
    pending = Pending()
    for number in numbers:
        pending = pending.with_items({number: None})
    assert list(pending) == numbers
    assert list(pending.without(numbers[::2])) == numbers[1::2]
    with pytest.raises(KeyError):
        pending.without([1])
