import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from kernel_bandits_lab.accelerated.arrays import bounded, choose
from kernel_bandits_lab.accelerated.replicas import computing


def test_bounded_draws_what_numpy_draws():
    counts = np.random.default_rng(0).integers(1, 2000, size=400)
    words = np.random.default_rng(9).integers(0, 2**32, size=402, dtype=np.uint32)
    generator = np.random.default_rng(9)
    place = 0
    with computing("float64", "cpu"):
        for count in counts.tolist():
            drawn, used = bounded(jnp.asarray(words[None, place : place + 2]), jnp.array([count]))
            assert int(drawn[0]) == generator.integers(count)
            place += int(used[0])
    assert place < 402


def test_a_word_that_would_favour_some_numbers_is_passed_over_as_in_numpy():
    # With the state of a Mersenne twister at hand its next words can be chosen: 0 is passed over for a count of 3.
    twister = np.random.MT19937()
    key = np.zeros(624, np.uint32)
    key[1] = 12345
    for pos in (0, 1):
        twister.state = {"bit_generator": "MT19937", "state": {"key": key, "pos": pos}}
        words = twister.random_raw(2).astype(np.uint32)
        twister.state = {"bit_generator": "MT19937", "state": {"key": key, "pos": pos}}
        expected = int(np.random.Generator(twister).integers(3))
        with computing("float64", "cpu"):
            drawn, used = bounded(jnp.asarray(words[None, :]), jnp.array([3]))
        assert (int(drawn[0]), int(used[0])) == (expected, 2 - pos)


@given(
    st.lists(st.sampled_from([0.0, 1.0, 1.0 - 1e-13, 1.0 - 1e-9, -2.0]), min_size=1, max_size=12),
    st.integers(0, 2**32 - 1),
)
def test_ties_up_to_rounding_are_broken_by_the_word_and_nothing_else_is(values, word):
    best = max(values)
    tied = [row for row, value in enumerate(values) if value >= best - 1e-12 * abs(best)]
    with computing("float64", "cpu"):
        row, used = choose(jnp.array([values]), jnp.array([[word, word]], jnp.uint32))
    assert int(row[0]) == (tied[word * len(tied) >> 32] if len(tied) > 1 else tied[0])
    assert int(used[0]) in ((1, 2) if len(tied) > 1 else (0,))
