"""Points whose reward is still to come: counted into std at once, into the mean when it comes, in any order."""

import pickle

import dense
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from observing import await_each, learn, settle

import kernel_bandits as kb
from kernel_bandits.dictionaries import Fixed, Kors, PosteriorVariance, Resampling
from kernel_bandits.kernels.fourier import LinearFeatures
from kernel_bandits.posterior import ExactPosterior, FeaturePosterior, NystromPosterior
from kernel_bandits.values import evolve

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
    posterior = learn(BUILDERS[name](), points[:40], rewards[:40])
    if name == "resampling":
        posterior = evolve(posterior, dictionary=evolve(posterior.dictionary, batch_variance_limit=1e9))
    before = posterior.predict(PROBES)
    twin = learn(posterior, points[40:], np.zeros(20))
    posterior = await_each(posterior, points[40:])
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

    def after(posterior, key):
        return posterior.abandoned([key]) if key in lost else settle(posterior, key, points, rewards)

    at_once = BUILDERS[name]()
    for key in range(50):
        at_once = at_once.awaiting([key], points[[key]])
        if key not in lost:
            at_once = settle(at_once, key, points, rewards)
    for key in lost:
        at_once = at_once.abandoned([key])

    late = BUILDERS[name]()
    waiting = []
    for key in range(50):
        late = late.awaiting([key], points[[key]])
        waiting.append(key)
        while waiting and generator.random() < 0.45:
            late = after(late, waiting.pop(generator.integers(len(waiting))))
    for key in generator.permutation(waiting).tolist():
        late = after(late, key)

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
            posterior = posterior.awaiting([asked], points[[asked]])
            asked += 1
        ready = next(key for key in order.tolist() if key < asked and key not in told)
        posterior = settle(posterior, ready, points, rewards) if ready % 7 else posterior.abandoned([ready])
        told.append(ready)
    kept = np.array([key for key in told if key % 7])
    if name == "exact":
        expected = ExactPosterior(KERNEL, LAMBDA).learned(points[kept], rewards[kept]).predict(PROBES)
    else:
        expected = dense.nystrom(KERNEL, posterior.dictionary_points, points[kept], rewards[kept], LAMBDA, PROBES)
    assert_same(posterior.predict(PROBES), expected)


@pytest.mark.parametrize("name", BUILDERS)
def test_ordinary_observations_mix_with_awaited_ones(name):
    points, rewards = log(40, seed=3)
    posterior, direct = BUILDERS[name](), BUILDERS[name]()
    for start in range(0, 40, 4):
        posterior = posterior.awaiting([start], points[[start]])
        for rows in (slice(start + 1, start + 2), slice(start + 2, start + 4)):
            posterior = posterior.learned(points[rows], rewards[rows])
        posterior = settle(posterior, start, points, rewards)
        direct = direct.learned(points[start : start + 4], rewards[start : start + 4])
    if name != "resampling":
        assert_same(posterior.predict(PROBES), direct.predict(PROBES))
    assert posterior.round_index == direct.round_index == 40


@pytest.mark.parametrize("name", BUILDERS)
def test_gradients_follow_the_std_that_counts_what_is_awaited(name):
    points, rewards = log(30, seed=6)
    posterior = await_each(BUILDERS[name]().learned(points[:20], rewards[:20]), points[20:])
    gradient = posterior.gradient(PROBES, posterior.evaluate(PROBES), 1.5)
    for column in range(2):
        step = np.zeros(2)
        step[column] = 1e-5
        above, below = posterior.predict(PROBES + step), posterior.predict(PROBES - step)
        slope = (above.mean - below.mean + 1.5 * (above.std - below.std)) / 2e-5
        np.testing.assert_allclose(gradient[:, column], slope, rtol=1e-4, atol=1e-5)


def test_forgetting_a_dominant_observation_keeps_its_digits():
    points, rewards = log(10)
    before = nystrom(Fixed([[0.5, 0.5], [0.1, 0.9]])).learned(points, rewards)
    posterior = await_each(before, np.full((2000, 2), 0.5))
    for key in range(1, 2000):
        posterior = posterior.abandoned([key])
    posterior = posterior.awaiting([2000], points[:1])
    for key in (0, 2000):
        posterior = posterior.abandoned([key])
    assert_same(posterior.predict(PROBES), before.predict(PROBES), 1e-12)


def half_settled(name):
    """Return a posterior with ten rewards in it that awaits ten more, and all its points and rewards."""
    points, rewards = log(40, seed=4)
    posterior = BUILDERS[name]()
    for key in range(20):
        posterior = posterior.awaiting([key], points[[key]])
        if key % 2:
            posterior = settle(posterior, key, points, rewards)
    return posterior, points, rewards


@pytest.mark.parametrize("name", BUILDERS)
def test_an_unknown_key_is_an_error_and_the_posterior_stays_usable(name):
    posterior, points, rewards = half_settled(name)
    before = pickle.dumps(posterior)
    with pytest.raises(KeyError):
        posterior.settled([77], points[:1], np.zeros(1))
    with pytest.raises(KeyError):
        posterior.abandoned([77])
    assert pickle.dumps(posterior) == before
    assert settle(posterior, 0, points, rewards).round_index == 11


@pytest.mark.parametrize("name", BUILDERS)
def test_a_posterior_stays_as_it_is_whatever_grows_from_it(name):
    """Two that grow from one share memory; neither sees what the other learned."""
    posterior, points, rewards = half_settled(name)
    before = pickle.dumps(posterior)

    def grown(start, stop, key):
        more = learn(posterior, points[start:stop], rewards[start:stop])
        more = settle(await_each(more, points[start:stop], start), key, points, rewards).abandoned([key + 2])
        return more.learned(points[start:stop], rewards[start:stop])

    one = grown(20, 30, 4)
    known = pickle.dumps(one)
    other = grown(30, 40, 6)
    assert pickle.dumps(posterior) == before
    assert pickle.dumps(one) == known
    assert_same(grown(20, 30, 4).predict(PROBES), one.predict(PROBES), 0.0)
    assert np.abs(other.predict(PROBES).mean - one.predict(PROBES).mean).max() > 1e-6


@pytest.mark.parametrize("name", BUILDERS)
def test_a_block_of_awaited_points_is_each_of_them_in_order(name):
    points, rewards = log(40, seed=5)
    keys, told, lost = list(range(10, 40)), list(range(12, 32)), list(range(32, 38))
    learned = learn(BUILDERS[name](), points[:10], rewards[:10])
    each, block = await_each(learned, points[10:], 10), learned.awaiting(keys, points[10:])
    for key in told:
        each = settle(each, key, points, rewards)
    block = block.settled(told, points[told], rewards[told])
    for key in lost:
        each = each.abandoned([key])
    block = block.abandoned(lost)
    np.testing.assert_allclose(block.dictionary_points, each.dictionary_points, rtol=0, atol=0)
    assert_same(block.predict(PROBES), each.predict(PROBES))
    assert list(block.awaited_points) == list(each.awaited_points) == [10, 11, 38, 39]
    assert block.round_index == each.round_index == 30


@pytest.mark.parametrize("name", ["exact", "fixed", "kors", "posterior-variance"])
def test_a_late_reward_is_compared_with_what_all_others_predict_of_it(name):
    points, rewards = log(40)
    posterior = await_each(BUILDERS[name]().learned(points[:30], rewards[:30]), points[30:], 30)
    for key in (35, 31):
        posterior = settle(posterior, key, points, rewards)
    # nothing is awaited in one that gave up the others, and its anchors are the same
    alone = posterior.abandoned([30, 32, 33, 34, 36, 37, 38, 39])
    expected = alone.evaluate_finite(points[[33, 39]])
    found = posterior.evaluate_awaited([33, 39], points[[33, 39]])
    np.testing.assert_allclose(found.mean, expected.mean, rtol=0, atol=1e-9)
    if name != "exact":
        # the exact posterior takes the std that counts the point itself, which costs no further factorisation
        np.testing.assert_allclose(found.std, expected.std, rtol=0, atol=1e-9)


@pytest.mark.parametrize("awaited", [0, 5])
def test_the_covariance_of_an_exact_posterior_counts_what_is_awaited(awaited):
    generator, kernel = np.random.default_rng(0), kb.Gaussian(0.4)
    points, queries, more = generator.random((12, 2)), generator.random((6, 2)), generator.random((awaited, 2))
    posterior = await_each(learn(ExactPosterior(kernel, 0.1), points, points[:, 0]), more)
    played = np.vstack([points, more])
    solved = np.linalg.solve(kernel(played) + 0.1 * np.eye(len(played)), kernel(played, queries))
    expected = kernel(queries) - kernel(queries, played) @ solved
    np.testing.assert_allclose(posterior.covariance(queries, posterior.evaluate(queries)), expected, atol=1e-10)
