"""The results of docs/theory, each attacked where it would break first."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernel_bandits as kb
from kernel_bandits import theory
from kernel_bandits.posterior import NystromPosterior


@settings(max_examples=200, deadline=None)
@given(ratio=st.floats(1e-8, 1e8), rate=st.floats(1e-3, 1e3))
def test_a_draw_raises_the_log_determinant_by_its_share_on_average(ratio, rate):
    """The step of (a): p·log(1 + x/p) ≥ p·log(1 + 1/c) with p = min(1, c·x/(1 + x)), whatever x and c."""
    probability = min(1.0, rate * ratio / (1.0 + ratio))
    assert math.log1p(ratio / probability) >= math.log1p(1.0 / rate) - 1e-12


def kors_against(adversary, oversampling, mu, horizon, seed):
    """Play an adversary that sees the coins; return Σp, the number of draws, and F_T."""
    generator = np.random.default_rng(seed)
    rule = kb.Kors(leverage_regularization=mu, oversampling=oversampling, history="none")
    posterior = NystromPosterior(kb.Linear(offset=0.0), 1.0, rule, generator)
    moment, total, drawn, point = np.zeros((4, 4)), 0.0, True, np.zeros(4)
    for _ in range(horizon):
        dictionary = posterior.dictionary
        point = adversary(point, drawn, dictionary.draws, generator)
        evaluation = posterior.evaluate(point[None, :])
        seen = evaluation.features[0], evaluation.residual.item(0), point @ point, 0.0
        total += dictionary.propose(kb.dictionaries.Candidate(point, posterior.dictionary_points, *seen)).probability
        posterior = posterior.updated(point, 0.0)
        drawn = posterior.dictionary.draws > dictionary.draws
        moment += np.outer(point, point)
    return total, posterior.dictionary.draws, moment


def repeat_until_drawn(point, drawn, draws, generator):
    """The next direction as soon as the last one was drawn."""
    return np.eye(4)[draws % 4] * generator.choice([0.3, 1.0]) if drawn else point


def tiny_steps(point, drawn, draws, generator):
    """Points so small that every step is nearly an equality."""
    del point, drawn, draws
    return 0.1 * np.eye(4)[int(generator.integers(4))]


def flee_the_dictionary(point, drawn, draws, generator):
    """A random direction after a draw, otherwise almost the same point again."""
    fresh = generator.standard_normal(4)
    return fresh / np.linalg.norm(fresh) if drawn or draws == 0 else point + 0.05 * generator.standard_normal(4)


@pytest.mark.parametrize("adversary", [repeat_until_drawn, tiny_steps, flee_the_dictionary])
@pytest.mark.parametrize(("oversampling", "mu"), [(0.2, 0.5), (2.0, 0.5), (2.0, 10.0)])
def test_the_number_of_draws_against_an_adversary_that_sees_the_coins(adversary, oversampling, mu):
    """(a): E[Σp] ≤ log det(I + E[F_T]/μ)/log(1 + 1/c), for points that depend on past coins; 24 runs of 120 rounds."""
    found = [kors_against(adversary, oversampling, mu, 120, seed) for seed in range(24)]
    totals, draws, moments = (np.array(column) for column in zip(*found, strict=True))
    bound = theory.kors_draws_bound(moments.mean(axis=0), mu, oversampling)
    error = 3.0 * totals.std(ddof=1) / math.sqrt(len(totals))
    assert totals.mean() <= bound + error
    assert abs(draws.mean() - totals.mean()) <= 4.0 * math.sqrt(totals.mean() / len(totals)) + 1e-9
    if adversary is tiny_steps and mu == 10.0:
        # the bound is no gross exaggeration: a quarter of it and more is reached
        assert totals.mean() > bound / 4


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.integers(2, 40),
    anchors=st.integers(1, 12),
    ridge=st.sampled_from([1e-3, 0.1, 10.0]),
    lengthscale=st.sampled_from([0.05, 0.3, 2.0]),
)
def test_the_projected_log_determinant_lacks_less_than_the_excess(seed, size, anchors, ridge, lengthscale):
    """(c): log det(I + K/λ) ≤ log det(I + K̃/λ) + n·log(1 + ρ/(nλ)) ≤ … + ρ/λ, for any anchors."""
    generator = np.random.default_rng(seed)
    points, kernel = generator.random((size, 2)), kb.Gaussian(lengthscale)
    chosen = points[generator.permutation(size)[:anchors]]
    gram, cross = kernel(points), kernel(points, chosen)
    projected = cross @ np.linalg.lstsq(kernel(chosen), cross.T, rcond=1e-12)[0]
    residual = max(float(np.trace(gram - projected)), 0.0)
    exact = np.linalg.slogdet(np.eye(size) + gram / ridge)[1]
    tracked = np.linalg.slogdet(np.eye(size) + projected / ridge)[1]
    excess = theory.projected_excess(residual, size, ridge)
    assert exact <= tracked + excess + 1e-6 * (1 + exact)
    assert excess <= residual / ridge + 1e-12


def test_the_excess_is_reached():
    """Orthogonal points of equal length without an anchor: K = I, K̃ = 0, and equality."""
    assert theory.projected_excess(7.0, 7, 0.2) == pytest.approx(np.linalg.slogdet(np.eye(7) + np.eye(7) / 0.2)[1])
    assert theory.projected_excess(0.0, 0, 0.2) == 0.0


BOUNDS = {"norm_bound": 1.0, "noise_bound": 0.05, "failure_probability": 0.1}


def sup_run(dictionary, seed, horizon=250):
    """Play the efficient SupKernelUCB; check every step of the proof of (b) on the way."""
    generator = np.random.default_rng(seed)
    kernel, ridge = kb.Gaussian(0.5), 0.05
    centres, coefficients = generator.random((10, 2)), generator.standard_normal(10)
    coefficients /= math.sqrt(coefficients @ kernel(centres) @ coefficients)
    confidence = kb.StageRadius(**BOUNDS, horizon=horizon, number_of_actions=6)
    policy = kb.sup_kernel_ucb(
        kernel, horizon=horizon, regularization=ridge, confidence=confidence, dictionary=dictionary, seed=seed
    )
    sums, left_out = {}, {}
    for _ in range(horizon):
        context, actions = generator.random(1), generator.random((6, 1))
        points = np.column_stack([np.full(6, context[0]), actions])
        expected = kernel(points, centres) @ coefficients
        decision = policy.select(context, actions)
        sizes = [stage.round_index for stage in policy.stages]
        regret = float(expected.max() - expected[decision.index])
        policy.update(context, decision.action, float(expected[decision.index]) + 0.05 * generator.choice([-1.0, 1.0]))
        joined = [s for s, stage in enumerate(policy.stages) if stage.round_index > (sizes[s] if s < len(sizes) else 0)]
        for s in joined:
            stage = policy.stages[s]
            # a round of stage s (from 1) costs at most 8·2⁻ˢ on the event
            assert regret <= 8.0 * 2.0 ** -(s + 1) + 1e-9
            sums[s] = sums.get(s, 0.0) + min(decision.std**2 / ridge, 1.0)
            left = stage.evaluate(points[decision.index][None, :])
            left_out[s] = left_out.get(s, 0.0) + (float(left.residual[0]) if dictionary is not None else 0.0)
        if not joined:
            assert regret <= 2.0 / math.sqrt(horizon) + 1e-9
    for s, total in sums.items():
        stage = policy.stages[s]
        gram = kernel(np.array(stage.observed_points))
        own = theory.stage_widths_bound(
            2 * theory.information_gain(gram, ridge),
            stage.dictionary_size if dictionary is not None else 0.0,
            left_out[s],
            regularization=ridge,
        )
        assert total <= own + 1e-9


@pytest.mark.parametrize("dictionary", [None, kb.Kors(oversampling=2.0)], ids=["exact", "efficient"])
def test_every_step_of_the_regret_of_sup_kernel_ucb(dictionary):
    """(b): a round of stage s costs at most 8·2⁻ˢ, and its widths add up to G_s at most; the bound follows."""
    for seed in range(2):
        sup_run(dictionary, seed)


def test_the_bound_of_sup_kernel_ucb_says_something():
    """Two orthogonal arms and many rounds: well below 2T, which any play loses at most."""
    horizon, ridge = 200_000, 0.1
    radius = kb.StageRadius(
        norm_bound=1.0, noise_bound=0.1, failure_probability=0.1, horizon=horizon, number_of_actions=2
    )
    policy = kb.sup_kernel_ucb(kb.Linear(offset=0.0), horizon=horizon, regularization=ridge, confidence=radius, seed=0)
    stages = theory.number_of_stages(horizon)
    widths = theory.stage_widths_bound(2 * math.log1p(horizon / ridge), regularization=ridge)
    bound = theory.sup_kernel_ucb_regret_bound(
        horizon=horizon, radius=radius.radius(policy.stages[0]), widths=stages * widths
    )
    assert bound < 0.5 * 2 * horizon


def test_the_widths_of_a_stage_fail_without_the_term_for_what_is_left_out():
    """A direction that is played fifty times and never drawn: its width stays 1, while log det(I + K/λ)/ln 2 is 5.7."""
    posterior = NystromPosterior(kb.Linear(offset=0.0), 1.0, kb.Kors(oversampling=1e-12), np.random.default_rng(0))
    point, widths = np.array([1.0, 0.0]), 0.0
    for _ in range(50):
        widths += min(float(posterior.predict(point[None, :]).std[0]) ** 2, 1.0)
        posterior = posterior.updated(point, 0.0)
    gain = math.log1p(50.0)
    assert posterior.dictionary_size == 0
    assert widths > theory.stage_widths_bound(gain, regularization=1.0)
    assert widths <= theory.stage_widths_bound(gain, left_out=posterior.residual_trace, regularization=1.0)
