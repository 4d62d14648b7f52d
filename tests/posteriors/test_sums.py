"""Sums of the parts of a log."""

import numpy as np

import kernel_bandits as kb
from kernel_bandits.posterior.basis import AnchorBasis
from kernel_bandits.posterior.sums import MISSED_ROWS, sums_of

KERNEL = kb.Gaussian(0.2)


def parts(count, rows, seed=0):
    generator = np.random.default_rng(seed)
    basis = AnchorBasis.chosen(KERNEL, 0.1, generator.random((5, 2)))
    return basis, [(generator.random((rows, 2)), generator.normal(size=rows)) for _ in range(count)]


def test_the_sums_of_parts_are_those_of_the_whole():
    basis, logs = parts(3, 40)
    total = sum((sums_of(basis, *log) for log in logs[1:]), sums_of(basis, *logs[0]))
    points, rewards = (np.concatenate(column) for column in zip(*logs, strict=True))
    features = basis(points).features
    np.testing.assert_allclose(total.second_moment, features.T @ features, atol=1e-12)
    np.testing.assert_allclose(total.moment, features.T @ rewards, atol=1e-12)
    np.testing.assert_allclose(total.residual_trace, 120 - (features**2).sum())
    assert total.count == 120


def test_the_points_that_are_explained_least_are_kept_first():
    rows = MISSED_ROWS + 20
    basis, logs = parts(17, rows)
    one = sums_of(basis, *logs[0])
    left = 1.0 - (basis(logs[0][0]).features ** 2).sum(axis=1)
    np.testing.assert_allclose(one.left, np.sort(left)[::-1][:MISSED_ROWS], atol=1e-12)
    np.testing.assert_array_equal(one.missed, logs[0][0][np.argsort(-left)[:MISSED_ROWS]])
    total, kept = one, [one.left]
    for log in logs[1:]:
        more = sums_of(basis, *log)
        total, kept = total + more, [*kept, more.left]
    np.testing.assert_allclose(total.left, np.sort(np.concatenate(kept))[::-1][: 16 * MISSED_ROWS])
    np.testing.assert_allclose(total.left, 1.0 - (basis(total.missed).features ** 2).sum(axis=1), atol=1e-12)
