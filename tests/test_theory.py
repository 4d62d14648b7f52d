import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernel_bandits as kb
from kernel_bandits import theory
from kernel_bandits.dictionaries import Kors
from kernel_bandits.posterior import NystromPosterior

gram_cases = {
    "seed": st.integers(0, 2**32 - 1),
    "size": st.integers(2, 40),
    "regularization": st.sampled_from([1e-3, 0.1, 1.0, 30.0]),
    "lengthscale": st.sampled_from([0.05, 0.3, 2.0]),
}


def gram_of(seed, size, lengthscale):
    return kb.Gaussian(lengthscale)(np.random.default_rng(seed).random((size, 2)))


@settings(max_examples=60, deadline=None)
@given(**gram_cases)
def test_definitions(seed, size, regularization, lengthscale):
    gram = gram_of(seed, size, lengthscale)
    identity = np.eye(size)
    dense_dimension = np.trace(gram @ np.linalg.inv(gram + regularization * identity))
    assert theory.effective_dimension(gram, regularization) == pytest.approx(dense_dimension, rel=1e-6, abs=1e-8)
    dense_gain = 0.5 * np.linalg.slogdet(identity + gram / regularization)[1]
    assert theory.information_gain(gram, regularization) == pytest.approx(dense_gain, rel=1e-6, abs=1e-8)
    eigenvalues = np.sort(np.linalg.eigvalsh(gram))[::-1]
    valko = theory.valko_dimension(gram, regularization, size)
    step = regularization * math.log(size)
    assert valko * step >= eigenvalues[valko:].sum() - 1e-9
    assert valko == 0 or (valko - 1) * step < eigenvalues[valko - 1 :].sum() + 1e-9


@settings(max_examples=60, deadline=None)
@given(**gram_cases)
def test_equivalences_of_the_appendix(seed, size, regularization, lengthscale):
    """d_eff ≤ 2γ ≤ log(e + eTκ²/λ)·d_eff; 2γ ≤ d̃·(log T + log(1 + Tκ²/λ)); d̃ ≤ 2γ/log 2 + 1."""
    gram = gram_of(seed, size, lengthscale)
    dimension = theory.effective_dimension(gram, regularization)
    twice_gain = 2 * theory.information_gain(gram, regularization)
    assert dimension <= twice_gain + 1e-9
    assert twice_gain <= theory.capacity_factor(size, regularization) * dimension + 1e-9
    valko = theory.valko_dimension(gram, regularization, size)
    assert twice_gain <= valko * (math.log(size) + math.log1p(size / regularization)) + 1e-9
    # d̃ ≤ 2γ/log 2 + 1 for T ≥ 3: an eigenvalue ≥ λ adds at least log 2 to 2γ, the smaller ones sum to ≤ 2γλ/log 2
    if size >= 3:
        assert valko <= twice_gain / math.log(2) + 1 + 1e-9


def test_a_gram_matrix_may_have_rounding_errors_in_proportion_to_its_size():
    gram = 5.0 * np.eye(3)
    gram[0, 2] = 4e-8
    assert theory.effective_dimension(gram, 1.0) == pytest.approx(3 * 5 / 6)
    gram[0, 2] = 7e-8
    with pytest.raises(kb.InputError, match="symmetric"):
        theory.effective_dimension(gram, 1.0)


def test_bounds_of_the_dictionary_by_hand():
    assert theory.kors_budget(100, 0.5) == pytest.approx(12.0 * math.log(200.0))
    assert theory.kors_dictionary_bound(3.0, 100, 0.5) == pytest.approx(27.0 * math.log(400.0) ** 2)


def test_valko_dimension_by_hand():
    """Eigenvalues 4, 2, 1 and λ·log T = 1: 0 ≥ 7 no, 1 ≥ 3 no, 2 ≥ 1 yes."""
    assert theory.valko_dimension(np.diag([2.0, 4.0, 1.0]), 1 / math.log(10), 10) == 2
    assert theory.valko_dimension(np.zeros((3, 3)), 1.0, 10) == 0


def test_regret_bounds_by_hand():
    ell = math.log(math.e + math.e * 100 * 4 / 2.0)
    beta = math.sqrt(2.0) * 3 + 0.5 * math.sqrt(2 * math.log(100) + ell * 5)
    common = {
        "horizon": 100,
        "regularization": 2.0,
        "norm_bound": 3.0,
        "effective_dimension": 5.0,
        "noise_bound": 0.5,
        "kernel_bound": 2.0,
    }
    printed = 2 + 2 * math.sqrt(100 * ell * 5) * beta
    assert theory.k_ucb_regret_bound(**common, corrected=False) == pytest.approx(printed)
    assert theory.k_ucb_regret_bound(**common) == pytest.approx(2 + math.sqrt(1 / math.log(2)) * (printed - 2))

    # widths above 1 are cut off in the proof, so that β counts as 1 at least
    quiet = common | {"norm_bound": 0.0, "noise_bound": 0.01}
    assert theory.k_ucb_regret_bound(**quiet) == pytest.approx(2 + 2 * math.sqrt(100 * ell * 5 / math.log(2)))

    efficient = {"leverage_regularization": 0.5, "dictionary_size": 8, "draws": 11, "oversampling": 2.0, **common}
    bias = (math.sqrt(2.0) + math.sqrt(0.5)) * 3
    printed = 2 + 2 * (bias + 0.5 * math.sqrt(4 * math.log(100) + 2 * ell * 5)) * math.sqrt(
        100 * (4 * ell * 5 + 2 * 8 * 0.5 / 2.0)
    )
    assert theory.ek_ucb_regret_bound(**efficient, corrected=False) == pytest.approx(printed)
    bias, left_out = math.sqrt(2.5) * 3, 0.5 * 11 / (2 * 1.5 - 1)
    corrected = 4 + 2 * (bias + 0.5 * math.sqrt(2 * math.log(100) + ell * 5)) * math.sqrt(
        100 * (ell * 5 / math.log(2) + 8 + left_out / 2.0)
    )
    assert theory.ek_ucb_regret_bound(**efficient) == pytest.approx(corrected)
    for bad in ({"oversampling": 0.5}, {"oversampling": 0.5, "leverage_accuracy": 1.0}, {"draws": None}):
        with pytest.raises(kb.InputError, match=r"γ\(1 \+ ε\) > 1"):
            theory.ek_ucb_regret_bound(**{**efficient, **bad})


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), oversampling=st.sampled_from([0.8, 2.0]), ridge=st.sampled_from([0.05, 1.0]))
def test_the_widths_of_a_projected_posterior_add_up_as_the_repaired_proof_says(seed, oversampling, ridge):
    """Σ min(σ²_{t−1}(s_t), 1) ≤ log det(I + K/λ)/ln 2 + m + Σ residual/λ: the step in which the printed proof fails."""
    generator = np.random.default_rng(seed)
    points, kernel = generator.random((80, 2)), kb.Gaussian(0.3)
    rule = Kors(oversampling=oversampling)
    posterior = NystromPosterior(kernel, ridge, rule, generator)
    widths = left_out = 0.0
    for point in points:
        widths += min(float(posterior.predict(point[None, :]).std[0]) ** 2 / ridge, 1.0)
        posterior = posterior.updated(point, 0.0)
        left_out += float(posterior.evaluate(point[None, :]).residual[0])
    twice_gain = 2 * theory.information_gain(kernel(points), ridge)
    assert widths <= twice_gain / math.log(2) + posterior.dictionary_size + left_out / ridge + 1e-9


def test_rates_of_the_corollaries():
    assert theory.k_ucb_rate(0.0) == 0.5
    assert theory.k_ucb_rate(1.0) == 1.0
    assert theory.k_ucb_rate(0.5) == pytest.approx(2.5 / 3)
    for capacity in (0.2, 0.5, 0.9):
        threshold = capacity / (1 + capacity)
        # continuous at m = T^{α/(1+α)}, worse with fewer anchors, no better with more
        assert theory.ek_ucb_rate(capacity, threshold - 1e-9) == pytest.approx(theory.k_ucb_rate(capacity))
        assert theory.ek_ucb_rate(capacity, threshold / 2) > theory.k_ucb_rate(capacity)
        assert theory.ek_ucb_rate(capacity, 1.0) == theory.k_ucb_rate(capacity)
    assert theory.ek_ucb_rate(0.5, 0.0) == 1.0


def test_proposition_four_one_with_the_budget_of_the_theory():
    """γ = 12·log(T/δ), ε = ½: in at most a share δ of 40 runs does the projection error pass μ or m its bound."""
    horizon, failure, mu, kernel = 300, 0.1, 3.0, kb.Gaussian(0.8)
    budget = theory.kors_budget(horizon, failure)
    assert budget == pytest.approx(12 * math.log(3000))
    failures, smallest = 0, horizon
    for seed in range(40):
        points = np.random.default_rng(seed).random((horizon, 2))
        rule = Kors(leverage_regularization=mu, oversampling=budget)
        posterior = NystromPosterior(kernel, mu, rule, np.random.default_rng(seed))
        gram = kernel(points)
        dimension = theory.effective_dimension(gram, mu)
        failed = False
        for t, point in enumerate(points, start=1):
            posterior = posterior.updated(point, 0.0)
            if t % 60 == 0:
                anchors = posterior.dictionary_points
                error = theory.projection_error(gram[:t, :t], kernel(points[:t], anchors), kernel(anchors))
                failed |= error > mu or len(anchors) > theory.kors_dictionary_bound(dimension, horizon, failure)
        failures += failed
        smallest = min(smallest, posterior.dictionary_size)
    assert failures <= failure * 40
    assert smallest < horizon / 4


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), oversampling=st.sampled_from([0.8, 1.0, 2.0, 5.0]))
def test_what_kors_leaves_out_is_bounded_by_what_it_drew(seed, oversampling):
    """Σ‖(I − P_t)φ_t‖² ≤ μ·Σp_t/(γ(1 + ε) − 1): the step that repairs the proof of Theorem 4.1."""
    mu, points = 0.5, np.random.default_rng(seed).random((150, 2))
    rule = Kors(leverage_regularization=mu, oversampling=oversampling, history="none")
    posterior = NystromPosterior(kb.Gaussian(0.2), 0.1, rule, np.random.default_rng(seed))
    probabilities, kind = [], type(posterior.dictionary)
    propose = kind.propose

    def recording(dictionary, candidate):
        proposal = propose(dictionary, candidate)
        probabilities.append(proposal.probability)
        return proposal

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "propose", recording)
        for point in points:
            posterior = posterior.updated(point, 0.0)
    assert probabilities
    # without history the residual trace is exactly Σ‖(I − P_t)φ_t‖², each point against the anchors of its own round
    assert posterior.residual_trace <= mu * sum(probabilities) / (oversampling * 1.5 - 1) + 1e-6


def test_theory_of_a_policy_that_has_run():
    policy = kb.k_ucb(kb.Gaussian(0.2), regularization=0.3, seed=0)
    kb.run(policy, kb.environments.Chessboard(), 80, seed=0)
    gram = theory.observed_gram(policy)
    assert theory.effective_dimension(gram, 0.3) == pytest.approx(policy.posterior.effective_dimension)
    assert theory.information_gain(gram, 0.3) == pytest.approx(policy.posterior.information_gain)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: theory.effective_dimension(np.ones((2, 3)), 1.0), "symmetric"),
        (lambda: theory.effective_dimension(np.array([[1.0, 2.0], [0.0, 1.0]]), 1.0), "symmetric"),
        (lambda: theory.information_gain(np.eye(2), 0.0), "regularization"),
        (lambda: theory.k_ucb_rate(1.5), "capacity"),
        (lambda: theory.ek_ucb_rate(0.5, -1.0), "dictionary_exponent"),
        (lambda: theory.ek_ucb_rate(0.0, 0.5), "capacity"),
        (lambda: theory.kors_budget(10, 0.0), "failure_probability"),
        (lambda: theory.kors_dictionary_bound(3.0, 0, 0.1), "horizon"),
    ],
)
def test_bad_arguments_are_named(call, words):
    with pytest.raises(kb.InputError, match=words):
        call()


def test_the_bound_on_draws_takes_the_accuracy_of_kors_by_default():
    gram = kb.Gaussian(0.3)(np.random.default_rng(0).random((30, 2)))
    plain, given = (theory.kors_draws_bound(gram, 0.5, 2.0, *more) for more in ((), (Kors().leverage_accuracy,)))
    assert plain == given < theory.kors_draws_bound(gram, 0.5, 2.0, 1.5)
