"""The ascent against SciPy's L-BFGS-B, and what must hold of it on any function."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import lsq_linear, minimize

from kernel_bandits.boxes.ascent import LONGEST_STEP, _direction, ascend


def hills(seed, dimension, count=6):
    """A sum of Gaussian hills of random places, heights and widths, with its gradient."""
    generator = np.random.default_rng(seed)
    places = generator.uniform(-0.2, 1.2, (count, dimension))
    heights, widths = generator.normal(size=count), generator.uniform(0.1, 0.6, count)

    def objective(x):
        offsets = (x[:, None, :] - places) / widths[:, None]
        terms = heights * np.exp(-0.5 * (offsets**2).sum(axis=2))
        return terms.sum(axis=1), -(terms[:, :, None] * offsets / widths[:, None]).sum(axis=1)

    return objective


def scipy_end(objective, start):
    def negative(x):
        value, gradient = objective(x[None, :])
        return -value[0], -gradient[0]

    options = {"maxiter": 500, "ftol": 1e-15, "gtol": 1e-9}
    return minimize(negative, start, jac=True, method="L-BFGS-B", bounds=[(0, 1)] * len(start), options=options).x


@pytest.mark.parametrize("dimension", [1, 2, 5])
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_top_of_a_concave_function_is_found(dimension, seed):
    """It is unique, inside or on the wall, and the solution of a bounded least-squares problem."""
    generator = np.random.default_rng(seed)
    root = generator.normal(size=(dimension, dimension))
    curvature = root @ root.T + 0.1 * np.eye(dimension)
    top = generator.uniform(-0.5, 1.5, dimension)

    def objective(x):
        return -0.5 * np.einsum("ni,ij,nj->n", x - top, curvature, x - top), -(x - top) @ curvature

    starts = generator.random((4, dimension))
    ends, values = ascend(objective, starts, first_step=0.1, tolerance=1e-13)
    factor = np.linalg.cholesky(curvature).T
    best = objective(lsq_linear(factor, factor @ top, bounds=(0, 1), method="bvls").x[None, :])[0]
    np.testing.assert_allclose(values, np.full(4, best), atol=1e-8)
    np.testing.assert_allclose(values, objective(ends)[0], rtol=1e-9, atol=1e-15)
    assert ((ends >= 0) & (ends <= 1)).all()


@pytest.mark.parametrize("dimension", [1, 2, 4])
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_ends_are_stationary_and_no_lower_than_they_began(dimension, seed):
    objective = hills(seed, dimension)
    starts = np.random.default_rng(seed).random((8, dimension))
    ends, values = ascend(objective, starts, first_step=0.1, tolerance=1e-13, iterations=200)
    _, gradients = objective(ends)
    assert (values >= objective(starts)[0]).all()
    # nothing is left to gain along the gradient, inside the cube
    still = np.abs(np.clip(ends + gradients, 0, 1) - ends).max(axis=1)
    assert (still < 1e-4).all()


def test_as_high_as_scipy_on_most_hills():
    """Another local maximum may be reached from a start, by either; on average neither climbs higher."""
    ours, theirs = [], []
    for seed in range(60):
        objective = hills(seed, 3)
        starts = np.random.default_rng(seed).random((4, 3))
        ours.extend(ascend(objective, starts, first_step=0.1, tolerance=1e-12)[1])
        theirs.extend(objective(np.array([scipy_end(objective, start) for start in starts]))[0])
    difference = np.array(ours) - np.array(theirs)
    assert (difference > -1e-7).mean() > 0.85
    assert difference.mean() > -0.02


def test_starts_do_not_disturb_each_other():
    objective = hills(3, 2)
    starts = np.random.default_rng(3).random((6, 2))
    together, _ = ascend(objective, starts, first_step=0.1, tolerance=1e-12)
    alone = [ascend(objective, start[None, :], first_step=0.1, tolerance=1e-12)[0][0] for start in starts]
    np.testing.assert_allclose(together, alone, atol=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_nobody_waits_for_another(seed):
    """All starts together take as many evaluations as the slowest of them alone."""
    objective, evaluations = hills(seed, 3), []

    def counted(x):
        evaluations.append(len(x))
        return objective(x)

    def count(starts):
        evaluations.clear()
        ascend(counted, starts, first_step=0.1, tolerance=1e-9)
        return len(evaluations)

    starts = np.random.default_rng(seed).random((8, 3))
    assert count(starts) == max(count(start[None, :]) for start in starts)


def test_a_kink_is_climbed_to_within_a_fraction_of_the_first_step():
    def cone(x):
        distances = np.linalg.norm(x - 0.3, axis=1)
        return -distances, -(x - 0.3) / np.maximum(distances, 1e-300)[:, None]

    _, heights = ascend(cone, np.random.default_rng(0).random((16, 2)), first_step=0.1, tolerance=1e-9)
    assert -heights.max() < 1e-3


def test_the_highest_survive():
    """After a few steps the others stay where they are; who survives ends as if all had gone on."""
    objective = hills(5, 2)
    starts = np.random.default_rng(5).random((12, 2))
    everyone, heights = ascend(objective, starts, first_step=0.05, tolerance=1e-12)
    few, few_heights = ascend(objective, starts, first_step=0.05, tolerance=1e-12, survivors=3)
    finished = np.abs(few - everyone).max(axis=1) < 1e-9
    assert 3 <= finished.sum() < 12
    assert few_heights.max() == pytest.approx(heights.max(), rel=1e-12)
    assert (few_heights >= objective(starts)[0]).all()


def test_flat_and_broken_functions_end_where_they_began():
    starts = np.random.default_rng(0).random((3, 2))
    for value, slope in ((1.0, 0.0), (np.nan, np.nan), (1.0, np.nan), (np.nan, 1.0), (1.0, np.inf)):
        ends, _ = ascend(
            lambda x, value=value, slope=slope: (np.full(len(x), value), np.full(x.shape, slope)),
            starts,
            first_step=0.1,
            tolerance=1e-12,
        )
        np.testing.assert_array_equal(ends, starts)


@given(st.integers(1, 5), st.integers(0, 2**32 - 1))
@settings(max_examples=30)
def test_a_step_is_as_long_as_the_curvature_says_up_to_the_longest(dimension, seed):
    generator = np.random.default_rng(seed)
    x = generator.uniform(0.3, 0.7, (6, dimension))
    g = generator.standard_normal((6, dimension))
    scales = np.geomspace(1e-3, 1e3, 6)[:, None, None]
    step = _direction(x, g, np.eye(dimension) / scales)
    newton = scales[:, :, 0] * g
    longest = np.abs(newton).max(axis=1, keepdims=True)
    # far from walls B⁻¹g, shortened along its direction to at most LONGEST_STEP in any coordinate
    inside = longest[:, 0] < 0.25
    np.testing.assert_allclose(step[inside], newton[inside])
    np.testing.assert_allclose(np.abs(step).max(axis=1), np.minimum(longest[:, 0], LONGEST_STEP))
    np.testing.assert_allclose(step * longest, newton * np.abs(step).max(axis=1, keepdims=True), rtol=1e-9)


def test_a_wall_is_near_if_the_next_step_would_reach_it():
    """g_i/B_ii is 10⁻⁴ here and the wall 0.005 away: no coordinate is held back, and the step is B⁻¹g."""
    x, g, curvature = np.array([[0.005, 0.5]]), np.array([[-1e-3, 1e-3]]), np.array([[[10.0, 5.0], [5.0, 10.0]]])
    np.testing.assert_allclose(_direction(x, g, curvature), np.linalg.solve(curvature[0], g[0])[None, :])
    # where the step would pass it, the coordinate is scaled by itself
    steep = 100.0 * g
    np.testing.assert_allclose(_direction(x, steep, curvature), steep / 10.0)


@pytest.mark.parametrize("slope", [1.0, -1.0, 3.0])
def test_a_plane_is_climbed_to_its_corner(slope):
    ends, values = ascend(
        lambda x: (slope * x.sum(axis=1), np.full(x.shape, slope)),
        np.random.default_rng(0).random((5, 3)),
        first_step=0.1,
        tolerance=1e-12,
    )
    np.testing.assert_allclose(ends, float(slope > 0.0), atol=1e-9)
    np.testing.assert_allclose(values, max(3.0 * slope, 0.0), atol=1e-9)


def test_a_coordinate_that_is_pushed_against_its_wall_stays():
    x, g = np.array([[1.0, 0.5], [0.0, 0.5]]), np.array([[0.5, 0.1], [-0.5, 0.1]])
    np.testing.assert_allclose(_direction(x, g, np.tile(np.eye(2), (2, 1, 1))), [[0.0, 0.1], [0.0, 0.1]])
