"""A block of points that add no direction, taken in at once: what one by one makes of them, repeats included."""

import numpy as np
import pytest

import kernel_bandits as kb
from kernel_bandits.dictionaries import Candidate


def block_of(count, seed):
    """Points in the span of three anchors: their φ, which have no residual."""
    features = np.random.default_rng(seed).standard_normal((count, 3))
    features /= np.linalg.norm(features, axis=1)[:, None]
    return Candidate(np.zeros((count, 2)), np.zeros((3, 2)), features, np.zeros(count), np.ones(count), np.ones(count))


def row(block, number):
    values = (
        block.point[number],
        block.anchors,
        block.features[number],
        *(column.item(number) for column in block[3:]),
    )
    return Candidate(*values)


@pytest.mark.parametrize("seed", range(5))
def test_scores_fall_within_a_block_once_a_repeat_is_drawn(seed):
    """700 points, several times the coins that are drawn ahead, and about 30 draws: as many, and of the same points."""
    block, rule = block_of(700, seed), kb.Kors(leverage_regularization=2.0, oversampling=0.5)
    start = rule.start(0.1, np.random.default_rng(seed)).adopting(np.eye(3) / 2.0)
    done, together = start.after_block(block, np.ones(700, dtype=bool))
    one_by_one = start
    for number in range(700):
        candidate = row(block, number)
        one_by_one = one_by_one.after(candidate, one_by_one.propose(candidate), appended=False)
    assert done == 700
    assert together.draws == one_by_one.draws
    assert together.draws - start.draws > 5
    np.testing.assert_allclose(together.score(block), one_by_one.score(block), rtol=1e-9)
    # what was drawn is remembered: with Q as it was at first several times as many would have been drawn
    assert (np.asarray(together.score(block)) < 0.5 * np.asarray(start.score(block))).all()
    assert together._used == one_by_one._used


def test_a_block_ends_at_a_draw_that_adds_a_direction():
    block, rule = block_of(50, 0), kb.Kors(leverage_regularization=2.0, oversampling=4.0)
    start = rule.start(0.1, np.random.default_rng(0)).adopting(np.eye(3) / 2.0)
    done, after = start.after_block(block, np.zeros(50, dtype=bool))
    assert done < 50
    assert after.draws == start.draws
    assert after.propose(row(block, done)).draw
