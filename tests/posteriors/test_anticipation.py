"""Points whose reward is still to come: counted into std at once, into the mean when it comes, in any order."""

import copy

import dense
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernel_bandits as kb
from kernel_bandits.dictionaries import Fixed, Kors, PosteriorVariance, Resampling
from kernel_bandits.kernels.fourier import LinearFeatures
from kernel_bandits.posterior import ExactPosterior, FeaturePosterior, NystromPosterior

LAMBDA = 0.05
KERNEL = kb.Gaussian(0.4)
PROBES = np.random.default_rng(99).random((15, 2))


def nystrom(rule):
    return NystromPosterior(KERNEL, LAMBDA, rule, coins())


def coins():
    return np.random.default_rng(5)


BUILDERS = {
    "exact": lambda: ExactPosterior(KERNEL, LAMBDA),
    "kors": lambda: nystrom(Kors()),
    "kors-history-free": lambda: nystrom(Kors(history="none")),
    "posterior-variance": lambda: nystrom(PosteriorVariance()),
    "fixed": lambda: nystrom(Fixed(np.random.default_rng(3).random((12, 2)))),
    "resampling": lambda: nystrom(Resampling(batch_variance_limit=3.0)),
    "linear": lambda: FeaturePosterior(kb.Linear(), LAMBDA, LinearFeatures(True)),
}
# A resampled dictionary draws its coins in the order in which points became history.
ORDERLESS = [name for name in BUILDERS if name != "resampling"]


def anticipate(posterior, key, point):
    posterior.anticipate(key, point, posterior.evaluate_finite(point[None, :]))


def assert_same(one, other, tolerance=1e-8):
    np.testing.assert_allclose(one.mean, other.mean, rtol=0, atol=tolerance)
    np.testing.assert_allclose(one.std, other.std, rtol=0, atol=tolerance)


def log(count=60, seed=0):
    generator = np.random.default_rng(seed)
    points = generator.random((count, 2))
    return points, np.sin(4 * points[:, 0]) + 0.1 * generator.normal(size=count)


@pytest.mark.parametrize("name", BUILDERS)
def test_std_counts_what_is_awaited_and_the_mean_does_not(name):
    points, rewards = log()
    posterior = BUILDERS[name]()
    for point, reward in zip(points[:40], rewards[:40], strict=True):
        posterior.update(point, reward)
    if name == "resampling":
        posterior.dictionary.batch_variance_limit = 1e9
    before = posterior.predict(PROBES)
    twin = copy.deepcopy(posterior)
    for key, point in enumerate(points[40:]):
        anticipate(posterior, key, point)
        twin.update(point, 0.0)
    ahead = posterior.predict(PROBES)
    np.testing.assert_allclose(ahead.std, twin.predict(PROBES).std, rtol=0, atol=1e-9)
    assert (ahead.std <= before.std + 1e-12).all()
    assert posterior.round_index == 40
    if name in ("exact", "fixed", "linear", "resampling", "kors-history-free"):
        np.testing.assert_allclose(ahead.mean, before.mean, rtol=0, atol=1e-9)
    else:
        # the anchors that came in among the awaited points carry the same forty rewards
        expected = dense.nystrom(KERNEL, posterior.dictionary_points, points[:40], rewards[:40], LAMBDA, PROBES)
        np.testing.assert_allclose(ahead.mean, expected.mean, rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", ORDERLESS)
@given(st.integers(0, 2**32 - 1))
@settings(max_examples=15, deadline=None)
def test_the_order_of_arrival_does_not_matter(name, seed):
    generator = np.random.default_rng(seed)
    points, rewards = log(50, seed=1)
    lost = set(generator.choice(50, 5, replace=False).tolist()) if name != "posterior-variance" else set()

    at_once = BUILDERS[name]()
    for key, point in enumerate(points):
        anticipate(at_once, key, point)
        if key not in lost:
            at_once.fulfil(key, rewards[key])
    for key in lost:
        at_once.abandon(key)

    late = BUILDERS[name]()
    waiting = []
    for key, point in enumerate(points):
        anticipate(late, key, point)
        waiting.append(key)
        while waiting and generator.random() < 0.45:
            late_key = waiting.pop(generator.integers(len(waiting)))
            late.abandon(late_key) if late_key in lost else late.fulfil(late_key, rewards[late_key])
    for key in generator.permutation(waiting).tolist():
        late.abandon(key) if key in lost else late.fulfil(key, rewards[key])

    np.testing.assert_array_equal(late.dictionary_points.shape, at_once.dictionary_points.shape)
    assert_same(late.predict(PROBES), at_once.predict(PROBES))
    assert late.round_index == at_once.round_index == 50 - len(lost)
    assert late.log_determinant == pytest.approx(at_once.log_determinant, abs=1e-8)
    assert late.residual_trace == pytest.approx(at_once.residual_trace, abs=1e-8)


@pytest.mark.parametrize("name", ["exact", "kors", "posterior-variance", "fixed", "resampling"])
def test_what_is_left_in_the_end_is_the_posterior_of_the_rewards_that_came(name):
    points, rewards = log(80, seed=2)
    posterior = BUILDERS[name]()
    generator = np.random.default_rng(0)
    order = generator.permutation(80)
    told, asked = [], 0
    for step in range(80):
        while asked < 80 and asked <= step + 10:
            anticipate(posterior, asked, points[asked])
            asked += 1
        ready = next(key for key in order if key < asked and key not in told)
        posterior.abandon(int(ready)) if ready % 7 == 0 else posterior.fulfil(int(ready), rewards[ready])
        told.append(ready)
    kept = np.array([key for key in told if key % 7])
    if name == "exact":
        reference = ExactPosterior(KERNEL, LAMBDA)
        reference.update_many(points[kept], rewards[kept])
        expected = reference.predict(PROBES)
    else:
        expected = dense.nystrom(KERNEL, posterior.dictionary_points, points[kept], rewards[kept], LAMBDA, PROBES)
    assert_same(posterior.predict(PROBES), expected)


@pytest.mark.parametrize("name", BUILDERS)
def test_ordinary_observations_mix_with_awaited_ones(name):
    points, rewards = log(40, seed=3)
    posterior, direct = BUILDERS[name](), BUILDERS[name]()
    for posterior_step in range(0, 40, 4):
        block = slice(posterior_step, posterior_step + 4)
        anticipate(posterior, 0, points[posterior_step])
        posterior.update(points[posterior_step + 1], rewards[posterior_step + 1])
        posterior.update_many(points[posterior_step + 2 : posterior_step + 4], rewards[block][2:])
        posterior.fulfil(0, rewards[posterior_step])
        direct.update_many(points[block], rewards[block])
    if name != "resampling":
        assert_same(posterior.predict(PROBES), direct.predict(PROBES))
    assert posterior.round_index == direct.round_index == 40


@pytest.mark.parametrize("name", BUILDERS)
def test_gradients_follow_the_std_that_counts_what_is_awaited(name):
    points, rewards = log(30, seed=6)
    posterior = BUILDERS[name]()
    posterior.update_many(points[:20], rewards[:20])
    for key, point in enumerate(points[20:]):
        anticipate(posterior, key, point)
    gradient = posterior.gradient(PROBES, posterior.evaluate(PROBES), 1.5)
    for column in range(2):
        step = np.zeros(2)
        step[column] = 1e-5
        above, below = posterior.predict(PROBES + step), posterior.predict(PROBES - step)
        slope = (above.mean - below.mean + 1.5 * (above.std - below.std)) / 2e-5
        np.testing.assert_allclose(gradient[:, column], slope, rtol=1e-4, atol=1e-5)


def test_forgetting_a_dominant_observation_keeps_its_digits():
    posterior = nystrom(Fixed([[0.5, 0.5], [0.1, 0.9]]))
    points, rewards = log(10)
    posterior.update_many(points, rewards)
    before = posterior.predict(PROBES)
    for key in range(2000):
        anticipate(posterior, key, np.array([0.5, 0.5]))
    for key in range(1, 2000):
        posterior.abandon(key)
    anticipate(posterior, 2000, points[0])
    posterior.abandon(0)
    posterior.abandon(2000)
    assert_same(posterior.predict(PROBES), before, 1e-12)


@pytest.mark.parametrize("name", BUILDERS)
def test_an_unknown_key_changes_nothing(name):
    points, rewards = log(30, seed=4)
    posterior = BUILDERS[name]()
    for key, point in enumerate(points[:20]):
        anticipate(posterior, key, point)
        if key % 2:
            posterior.fulfil(key, rewards[key])
    before = posterior.predict(PROBES)
    with pytest.raises(KeyError):
        posterior.fulfil(77, 0.0)
    with pytest.raises(KeyError):
        posterior.abandon(77)
    assert_same(posterior.predict(PROBES), before, 0.0)


@pytest.mark.parametrize("name", ["exact", "fixed", "kors", "posterior-variance"])
def test_a_late_reward_is_compared_with_what_all_others_predict_of_it(name):
    points, rewards = log(40)
    posterior = BUILDERS[name]()
    posterior.update_many(points[:30], rewards[:30])
    for key in range(30, 40):
        anticipate(posterior, key, points[key])
    for key in (35, 31):
        posterior.fulfil(key, float(rewards[key]))
    # nothing is awaited in a copy that gave up the others, and its anchors are the same
    alone = posterior.copy()
    for key in (30, 32, 33, 34, 36, 37, 38, 39):
        alone.abandon(key)
    expected = alone.evaluate_finite(points[[33, 39]])
    found = np.array([posterior.predict_awaited(key) for key in (33, 39)]).T
    np.testing.assert_allclose(found[0], expected.mean, rtol=0, atol=1e-9)
    if name != "exact":
        # the exact posterior takes the std that counts the point itself, which costs no further factorisation
        np.testing.assert_allclose(found[1], expected.std, rtol=0, atol=1e-9)


@pytest.mark.parametrize("awaited", [0, 5])
def test_the_covariance_of_an_exact_posterior_counts_what_is_awaited(awaited):
    generator, kernel = np.random.default_rng(0), kb.Gaussian(0.4)
    posterior, points, queries = ExactPosterior(kernel, 0.1), generator.random((12, 2)), generator.random((6, 2))
    for point in points:
        posterior.update(point, float(point[0]))
    more = generator.random((awaited, 2))
    for key, point in enumerate(more):
        posterior.anticipate(key, point, posterior.evaluate(point[None, :]))
    played = np.vstack([points, more])
    solved = np.linalg.solve(kernel(played) + 0.1 * np.eye(len(played)), kernel(played, queries))
    expected = kernel(queries) - kernel(queries, played) @ solved
    np.testing.assert_allclose(posterior.covariance(queries, posterior.evaluate(queries)), expected, atol=1e-10)
