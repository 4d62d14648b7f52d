"""Laws 1, 2 and 4 of the design: incremental = from scratch, Nyström with Z = S = exact = scikit-learn."""

import dense
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from observing import learn
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk

import kernel_bandits as kb
from kernel_bandits.dictionaries import Dictionary, DictionaryRule, Fixed, Kors, Proposal
from kernel_bandits.numerics.linalg import Symmetric
from kernel_bandits.posterior import ExactPosterior, NystromPosterior, basis
from kernel_bandits.values import evolve

KERNEL = kb.Gaussian(0.4)


def stream(seed, count, dimension=2):
    generator = np.random.default_rng(seed)
    points = generator.random((count, dimension))
    return points, np.sin(5 * points.sum(axis=1)) + 0.1 * generator.normal(size=count)


def kors(kernel, regularization, seed=0, **options):
    rule = Kors(**{"leverage_regularization": 0.1, **options})
    return NystromPosterior(kernel, regularization, rule, np.random.default_rng(seed))


def assert_equals_dense(posterior, expected, queries, tolerance):
    prediction = posterior.predict(queries)
    np.testing.assert_allclose(prediction.mean, expected.mean, atol=tolerance, rtol=0)
    np.testing.assert_allclose(prediction.std, expected.std, atol=tolerance, rtol=0)
    assert posterior.log_determinant == pytest.approx(expected.log_determinant, abs=tolerance, rel=tolerance)
    assert posterior.information_gain == posterior.log_determinant / 2
    size = posterior.dictionary_size
    dimension = size - posterior.regularization * expected.inverse_trace
    assert posterior.effective_dimension == pytest.approx(dimension, abs=tolerance, rel=tolerance)
    assert posterior.residual_trace == pytest.approx(expected.residual_trace, abs=tolerance, rel=tolerance)


@pytest.mark.parametrize("rounds", [1, 10, 600, 1000])
@pytest.mark.parametrize("regularization", [1.0, 0.01])
def test_exact_incremental_equals_from_scratch(rounds, regularization):
    points, rewards = stream(0, rounds)
    queries = stream(1, 20)[0]
    posterior = learn(ExactPosterior(KERNEL, regularization), points, rewards)
    assert_equals_dense(posterior, dense.exact(KERNEL, points, rewards, regularization, queries), queries, 1e-8)
    np.testing.assert_array_equal(posterior.observed_points, points)
    np.testing.assert_array_equal(posterior.observed_rewards, rewards)


@pytest.mark.parametrize("rounds", [1, 10, 1000])
@pytest.mark.parametrize("regularization", [1.0, 0.01])
def test_nystrom_incremental_equals_from_scratch(rounds, regularization):
    points, rewards = stream(0, rounds)
    queries = stream(1, 20)[0]
    posterior = learn(kors(KERNEL, regularization), points, rewards)
    assert 1 <= posterior.dictionary_size <= min(rounds, 100)
    expected = dense.nystrom(KERNEL, posterior.dictionary_points, points, rewards, regularization, queries)
    assert_equals_dense(posterior, expected, queries, 1e-8)


@pytest.mark.parametrize("rounds", [1, 10, 1000])
def test_history_free_equals_its_own_operator_from_scratch(rounds):
    points, rewards = stream(0, rounds)
    queries = stream(1, 20)[0]
    posterior, sizes = kors(KERNEL, 0.01, history="none"), []
    for point, reward in zip(points, rewards, strict=True):
        posterior = posterior.updated(point, reward)
        sizes.append(posterior.dictionary_size)
    anchor_rounds = np.searchsorted(sizes, np.arange(1, sizes[-1] + 1))
    anchors = posterior.dictionary_points
    np.testing.assert_array_equal(anchors, points[anchor_rounds])
    expected = dense.history_free(KERNEL, anchors, anchor_rounds, points, rewards, 0.01, queries)
    assert_equals_dense(posterior, expected, queries, 1e-8)
    with pytest.raises(kb.UnavailableError, match="history='none'"):
        _ = posterior.observed_points


def test_paper_form_of_the_projected_posterior():
    """Proposition 4.2 with its explicit inverses, where they are accurate."""
    points, rewards = stream(0, 60)
    queries = stream(1, 20)[0]
    regularization = 0.5
    posterior = learn(kors(KERNEL, regularization), points, rewards)
    Z = posterior.dictionary_points
    K_ZZ, K_ZS, k_Z = KERNEL(Z), KERNEL(Z, points), KERNEL(Z, queries)
    Lambda = np.linalg.inv(K_ZS @ K_ZS.T + regularization * K_ZZ)
    mean = k_Z.T @ Lambda @ K_ZS @ rewards
    Delta = np.einsum("ij,ik,kj->j", k_Z, Lambda - np.linalg.inv(K_ZZ) / regularization, k_Z)
    prediction = posterior.predict(queries)
    np.testing.assert_allclose(prediction.mean, mean, atol=1e-5)
    np.testing.assert_allclose(prediction.std**2 / regularization, 1 / regularization + Delta, atol=1e-5)


@pytest.mark.parametrize("regularization", [1.0, 0.01])
@pytest.mark.parametrize("kernel", [KERNEL, sk.Matern(0.4, nu=1.5) + sk.WhiteKernel(0.1)], ids=repr)
def test_exact_equals_scikit_learn(kernel, regularization):
    points, rewards = stream(0, 150)
    queries = stream(1, 40)[0]
    posterior = learn(ExactPosterior(kernel, regularization), points, rewards)
    theirs = sk.RBF(0.4) if kernel is KERNEL else kernel
    regressor = GaussianProcessRegressor(theirs, alpha=regularization, optimizer=None).fit(points, rewards)
    mean, std = regressor.predict(queries, return_std=True)
    prediction = posterior.predict(queries)
    np.testing.assert_allclose(prediction.mean, mean, atol=1e-8, rtol=0)
    np.testing.assert_allclose(prediction.std, std, atol=1e-8, rtol=0)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), rounds=st.integers(1, 30), regularization=st.sampled_from([1e-2, 1.0, 30.0]))
def test_nystrom_with_every_point_equals_exact(seed, rounds, regularization):
    points, rewards = stream(seed, rounds)
    queries = stream(seed + 1, 10)[0]
    kernel = kb.Exponential(0.4)
    exact = learn(ExactPosterior(kernel, regularization), points, rewards)
    incremental = learn(kors(kernel, regularization, oversampling=1e12), points, rewards)
    fixed = learn(NystromPosterior(kernel, regularization, Fixed(points)), points, rewards)
    for posterior in (incremental, fixed):
        assert posterior.dictionary_size == rounds
        np.testing.assert_allclose(posterior.predict(queries).mean, exact.predict(queries).mean, atol=1e-8)
        np.testing.assert_allclose(posterior.predict(queries).std, exact.predict(queries).std, atol=1e-8)
        assert posterior.log_determinant == pytest.approx(exact.log_determinant, rel=1e-8)
        assert posterior.effective_dimension == pytest.approx(exact.effective_dimension, rel=1e-8)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), regularization=st.sampled_from([1e-2, 1.0]))
def test_log_determinant_bracket(seed, regularization):
    """log det(I + K̃/λ) ≤ log det(I + K/λ) ≤ log det(I + K̃/λ) + ρ/λ."""
    points, rewards = stream(seed, 40)
    posterior = learn(kors(KERNEL, regularization, seed), points, rewards)
    exact = learn(ExactPosterior(KERNEL, regularization), points, rewards)
    slack = 1e-7
    assert posterior.log_determinant <= exact.log_determinant + slack
    assert exact.log_determinant <= posterior.log_determinant + posterior.residual_trace / regularization + slack


def near_duplicates(count, seed=0):
    """60 places in a row, two fifths of a lengthscale apart, each visited again exactly or a hair's breadth away."""
    generator = np.random.default_rng(seed)
    places = np.linspace(0.0, 1.0, 60)[:, None]
    order = np.concatenate([np.arange(60), generator.integers(60, size=count - 60)])
    moved = generator.random((count, 1)) < 0.5
    jitter = 10.0 ** generator.uniform(-9, -2, size=(count, 1)) * generator.normal(size=(count, 1))
    points = places[order] + moved * jitter * (np.arange(count)[:, None] >= 60)
    rewards = np.sin(9 * points[:, 0]) + 0.1 * generator.normal(size=count)
    queries = np.vstack([generator.random((30, 1)), places[:30], points[-30:]])
    return points, rewards, queries


@pytest.mark.parametrize("history", ["all", "none"])
def test_hundred_thousand_rounds_of_near_duplicates_and_repeats(history):
    """K_ZZ has condition 1e12 and more; predictions stay within 1e-6 of the dense ones, finite, variances positive."""
    points, rewards, queries = near_duplicates(100_000)
    kernel, regularization = kb.Gaussian(2.5 / 59), 0.01
    options = {"leverage_regularization": 1e-6, "oversampling": 50.0, "history": history}
    posterior, sizes = kors(kernel, regularization, **options), []
    for point, reward in zip(points, rewards, strict=True):
        posterior = posterior.updated(point, reward)
        sizes.append(posterior.dictionary_size)
    anchors = posterior.dictionary_points
    assert np.linalg.cond(kernel(anchors)) >= 1e12
    assert len(anchors) >= 60

    anchor_rounds = np.searchsorted(sizes, np.arange(1, sizes[-1] + 1))
    if history == "all":
        expected = dense.nystrom(kernel, anchors, points, rewards, regularization, queries)
    else:
        expected = dense.history_free(kernel, anchors, anchor_rounds, points, rewards, regularization, queries)
    assert_equals_dense(posterior, expected, queries, 1e-6)
    evaluation = posterior.evaluate(points[:5000])
    assert np.isfinite(evaluation.mean).all()
    assert (evaluation.explained > 0).all()
    assert (evaluation.std > 0).all()


def orthonormality_error(posterior):
    gram = posterior.kernel(posterior.dictionary_points)
    basis = posterior.basis.whitening.upper.T
    return np.abs(basis @ gram @ basis.T - np.eye(len(gram))).max()


@pytest.mark.skipif(np.finfo(dense.EXTENDED).eps == np.finfo(float).eps, reason="no extended precision to measure by")
def test_the_basis_of_the_anchors_stays_orthonormal():
    """JKJᵀ = I far better than the condition of K times the rounding of doubles, here 4e10·1e-16."""
    points, rewards = stream(1, 500)
    posterior = learn(kors(kb.Gaussian(0.3), 0.1, leverage_regularization=0.01), points, rewards)
    gram = posterior.kernel(posterior.dictionary_points)
    assert np.linalg.cond(gram) > 1e10
    basis = posterior.basis.whitening.upper.T.astype(dense.EXTENDED)
    product = basis @ gram.astype(dense.EXTENDED) @ basis.T
    np.testing.assert_allclose(product.astype(float), np.eye(len(gram)), atol=1e-7)


@pytest.mark.parametrize("history", ["all", "none"])
def test_an_anchor_takes_the_kernel_at_its_own_point_alone(history):
    """The past has no mass of anchors in a further direction; JKJᵀ = I without a second look at K_ZZ."""
    points, rewards = np.random.default_rng(0).normal(size=(400, 12)), np.zeros(400)
    sizes = []

    class Recorder:
        def __call__(self, X, Y=None):
            sizes.append(len(X))
            return kb.Matern(3.0)(X, Y)

        def diag(self, X):
            return np.ones(len(X))

    posterior = learn(kors(Recorder(), 1.0, oversampling=1e9, history=history), points, rewards)
    assert posterior.dictionary_size == len(points)
    # between one point and the anchors, or itself
    assert max(sizes) == 1
    assert orthonormality_error(posterior) < 1e-12


@pytest.mark.parametrize("late", [False, True])
def test_anchors_and_other_points_in_turn_equal_the_projection_from_scratch(late):
    """Every third point is an anchor: the others have mass in its direction, whether their reward is there or not."""
    points, rewards = stream(3, 400)
    queries = stream(4, 20)[0]

    class EveryThird(Dictionary):
        __slots__ = ("seen",)

        def __init__(self):
            self.seen = 0

        def propose(self, _):
            return Proposal(draw=self.seen % 3 == 0)

        def after(self, *_):
            return evolve(self, seen=self.seen + 1)

    class Rule(DictionaryRule):
        def start(self, *_):
            return EveryThird()

    posterior = NystromPosterior(KERNEL, 0.01, Rule())
    for start in range(0, len(points), 40):
        some = range(start, start + 40)
        for row in some:
            if late:
                posterior = posterior.awaiting([row], points[row : row + 1])
            else:
                posterior = posterior.learned(points[row : row + 1], rewards[row : row + 1])
        if late:
            # one by one and together
            posterior = posterior.settled([start], points[start : start + 1], rewards[start : start + 1])
            posterior = posterior.settled(some[1:], points[some[1:]], rewards[some[1:]])
        if start in (0, 40, 360):
            done = slice(0, start + 40)
            anchors = posterior.dictionary_points
            expected = dense.nystrom(KERNEL, anchors, points[done], rewards[done], 0.01, queries)
            assert_equals_dense(posterior, expected, queries, 1e-6)


@pytest.mark.parametrize("distance", [1e-3, 1e-4])
def test_growing_by_nearly_equal_anchors_equals_the_projection_from_scratch(distance):
    """Incremental = from scratch to 1e-6 at a condition of 1e12, of 200 points of which half are nearly anchors."""
    generator = np.random.default_rng(0)
    places = generator.random((100, 3))
    points = np.stack([places, places + distance * generator.normal(size=places.shape)], axis=1).reshape(-1, 3)
    rewards, queries = generator.normal(size=200), generator.random((20, 3))
    kernel = kb.Gaussian(0.5)
    posterior = kors(kernel, 1e-4, oversampling=1e12)
    for row in range(200):
        posterior = posterior.learned(points[row : row + 1], rewards[row : row + 1])
        if row + 1 in (20, 60, 200):
            anchors, seen = posterior.dictionary_points, slice(0, row + 1)
            expected = dense.nystrom(kernel, anchors, points[seen], rewards[seen], 1e-4, queries)
            assert_equals_dense(posterior, expected, queries, 1e-6)
    assert np.linalg.cond(kernel(posterior.dictionary_points)) > 1e12


def test_two_posteriors_that_grow_from_one_do_not_know_of_each_other():
    """Each equals what it is without the other, and the one they grew from stays what it was."""
    points, rewards = stream(5, 240)
    queries = stream(6, 20)[0]
    common = learn(kors(KERNEL, 0.01, oversampling=1e9), points[:100], rewards[:100])
    before = common.predict(queries)
    ends = [common, common]
    for row in range(100, 170):
        for branch, place in enumerate((row, row + 70)):
            one = slice(place, place + 1)
            ends[branch] = ends[branch].learned(points[one], rewards[one])
    for branch, end in enumerate(ends):
        own = np.r_[0:100, 100 + 70 * branch : 170 + 70 * branch]
        expected = dense.nystrom(KERNEL, end.dictionary_points, points[own], rewards[own], 0.01, queries)
        assert_equals_dense(end, expected, queries, 1e-6)
    np.testing.assert_array_equal(common.predict(queries).mean, before.mean)
    np.testing.assert_array_equal(common.predict(queries).std, before.std)


def test_drift_is_noticed_and_repaired():
    points, rewards = stream(0, 300)
    queries = stream(1, 20)[0]
    posterior = learn(kors(KERNEL, 0.01), points, rewards)
    drifted = evolve(
        posterior.regression, inverse=Symmetric((1.0 + 1e-5) * posterior.regression.covariance, 1.0 / 0.01)
    )
    posterior = learn(evolve(posterior, regression=drifted, with_pending=drifted), points, rewards)
    assert posterior.refactorizations == 1
    twice = dense.nystrom(
        KERNEL, posterior.dictionary_points, np.vstack([points] * 2), np.tile(rewards, 2), 0.01, queries
    )
    assert_equals_dense(posterior, twice, queries, 1e-8)


def test_refactoring_changes_nothing_but_rounding():
    points, rewards = stream(0, 300)
    queries = stream(1, 20)[0]
    posterior = learn(kors(KERNEL, 0.01), points, rewards)
    fresh = posterior.refactored()
    assert fresh.refactorizations == posterior.refactorizations + 1
    np.testing.assert_allclose(fresh.predict(queries).mean, posterior.predict(queries).mean, atol=1e-9)
    np.testing.assert_allclose(fresh.predict(queries).std, posterior.predict(queries).std, atol=1e-9)
    assert fresh.log_determinant == pytest.approx(posterior.log_determinant, abs=1e-8)


def test_the_history_pass_holds_one_block_within_its_budget(monkeypatch):
    """No t×m matrix: the largest cross-Gram block of a pass over the history stays within the stated budget."""

    class Recorder:
        largest = 0

        def __call__(self, X, Y=None):
            gram = KERNEL(X, Y)
            self.largest = max(self.largest, gram.nbytes)
            return gram

        def diag(self, X):
            return KERNEL.diag(X)

    points, rewards = stream(0, 2000)
    queries = stream(1, 20)[0]
    free = learn(kors(KERNEL, 0.01), points, rewards)
    monkeypatch.setattr(basis, "BLOCK_BYTES", 4096)
    recorder = Recorder()
    tight = learn(kors(recorder, 0.01), points, rewards)
    assert recorder.largest <= 4096
    np.testing.assert_allclose(tight.predict(queries).mean, free.predict(queries).mean, atol=1e-9)


def test_a_kernel_that_is_zero_at_the_first_points():
    """A linear kernel at the origin: k(s, s) = 0, no direction, nothing to learn there, and no NaN."""
    posterior = kors(kb.Linear(), 0.1).updated(np.zeros(2), 1.0)
    prediction = posterior.predict([[0.0, 0.0], [1.0, 0.0]])
    np.testing.assert_array_equal(prediction.mean, [0.0, 0.0])
    np.testing.assert_array_equal(prediction.std, [0.0, 1.0])
    posterior = posterior.updated(np.array([1.0, 0.0]), 1.0)
    assert posterior.dictionary_size == 1
    assert posterior.predict([[1.0, 0.0]]).mean[0] == pytest.approx(1 / 1.1)


def test_one_point_by_hand():
    """One observation r at s: mean k·r/(k + λ), variance k − k²/(k + λ), at s itself."""
    for fresh in (ExactPosterior(KERNEL, 0.5), kors(KERNEL, 0.5, oversampling=10.0)):
        posterior = fresh.updated(np.array([0.3]), 3.0)
        prediction = posterior.predict([[0.3], [100.0]])
        np.testing.assert_allclose(prediction.mean, [2.0, 0.0], atol=1e-12)
        np.testing.assert_allclose(prediction.std**2, [1 / 3, 1.0], atol=1e-12)
        assert posterior.log_determinant == pytest.approx(np.log(3.0))
        assert posterior.effective_dimension == pytest.approx(2 / 3)


def test_unknown_history_mode():
    with pytest.raises(kb.InputError, match="expected 'all' or 'none'"):
        kors(KERNEL, 1.0, history="some")


@pytest.mark.parametrize("regularization", [0.0, -1.0, np.nan, np.inf, "small", None])
def test_regularization_must_be_positive(regularization):
    with pytest.raises(kb.InputError, match="regularization"):
        ExactPosterior(KERNEL, regularization)


@pytest.mark.parametrize("build", [kb.k_ucb, kb.ek_ucb])
def test_a_kernel_of_scikit_learn_for_other_dimensions_is_named_at_once(build):
    posterior = build(sk.RBF([1.0, 2.0])).posterior
    for call in (
        lambda: posterior.predict(np.zeros((4, 3))),
        lambda: posterior.updated(np.zeros(3), 1.0),
        lambda: posterior.updated(np.zeros((4, 3)), np.zeros(4)),
    ):
        with pytest.raises(kb.InputError, match="does not take points with 3 columns"):
            call()


def test_a_dictionary_that_its_kernel_does_not_take_is_named_at_once():
    with pytest.raises(kb.InputError, match="does not take points with 3 columns"):
        kb.ek_ucb(sk.RBF([1.0, 2.0]), dictionary=kb.Fixed(np.eye(3)))


def test_nearly_equal_anchors_are_orthonormal():
    points = np.random.default_rng(0).random((4, 2))
    posterior = learn(kors(kb.Gaussian(0.3), 1.0, oversampling=1e12), np.vstack([points, points + 1.5e-3]), np.zeros(8))
    assert posterior.dictionary_size == 8
    assert orthonormality_error(posterior) < 1e-9


def test_anchors_may_be_of_very_different_size():
    """Of a linear kernel one anchor may be 1e10 times as large as the next; there are five directions."""
    generator = np.random.default_rng(0)
    far = 1e4 * generator.normal(size=(3, 5))
    points = np.vstack([far, far + 0.3 * generator.normal(size=(3, 5)), 0.1 * generator.normal(size=(30, 5))])
    posterior = learn(kors(kb.Linear(), 1e-2), points, generator.normal(size=len(points)))
    assert posterior.dictionary_size <= 6


def test_a_kernel_that_is_not_finite_adds_no_first_anchor():
    class Odd:
        def __call__(self, X, Y=None):
            return np.full((len(X), len(X if Y is None else Y)), np.nan)

        def diag(self, X):
            return np.ones(len(X))

    policy = kb.ek_ucb(Odd(), dictionary=kb.Kors(), seed=0)
    policy.update([0.1], [0.2], 1.0)
    assert policy.dictionary_size == 0
