import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_bandits_lab.accelerated.seeding import streams

import kernel_bandits as kb
from kernel_bandits.rng import stream


@given(
    st.lists(st.integers(0, 2**140), min_size=1, max_size=5), st.sampled_from(["contexts", "noise", "ties", "coins"])
)
def test_generators_are_those_of_numpy(seeds, name):
    for seed, generator in zip(seeds, streams(seeds, name), strict=True):
        assert generator.bit_generator.state == stream(seed, name).bit_generator.state


def test_words_are_carried_over_to_further_ones():
    seeds = [0, 2**32 - 1, 2**32, 2**64 + 3, 2**128 - 1, 2**128]
    for several in (seeds, seeds[:-1]):
        for seed, generator in zip(several, streams(several, "noise"), strict=True):
            assert generator.standard_normal() == stream(seed, "noise").standard_normal()


def test_what_is_no_seed_is_refused():
    with pytest.raises(kb.InputError, match="seed: expected a whole number"):
        list(streams([1, -1], "ties"))
    with pytest.raises(kb.InputError, match="or None, got True"):
        list(streams([1, True], "ties"))


def test_whole_numbers_of_numpy_are_seeds():
    for seed, generator in enumerate(streams(list(np.arange(3)), "coins")):
        assert generator.bit_generator.state == stream(seed, "coins").bit_generator.state
