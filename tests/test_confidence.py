"""Radii: formulas by hand, validity, order, and coverage by simulation."""

import math

import confidence_coverage as coverage
import numpy as np
import pytest

import kernel_bandits as kb
from kernel_bandits import theory

B, R, DELTA = 2.0, 0.3, 0.05
BOUNDS = {"norm_bound": B, "noise_bound": R, "failure_probability": DELTA}


def played(preset, rounds=60, **options):
    policy = preset(kb.Gaussian(0.2), regularization=0.2, seed=0, **options)
    kb.run(policy, kb.environments.Chessboard(), rounds, seed=0)
    return policy


@pytest.fixture(scope="module")
def exact():
    return played(kb.k_ucb)


@pytest.fixture(scope="module")
def history_free():
    return played(kb.ek_ucb, dictionary=kb.Kors(oversampling=0.7, history="none"))


@pytest.fixture(scope="module")
def projected():
    return played(kb.ek_ucb, dictionary=kb.Kors(oversampling=0.7))


def test_exact_radii_by_their_formulas(exact):
    gram = theory.observed_gram(exact)
    log_determinant = np.linalg.slogdet(np.eye(60) + gram / 0.2)[1]
    dimension = np.trace(gram @ np.linalg.inv(gram + 0.2 * np.eye(60)))
    log_failure = math.log(1 / DELTA)
    capacity = math.log(math.e + math.e * 60 * 1.5**2 / 0.2)
    expected = {
        kb.Lemma31(**BOUNDS, kernel_bound=1.5): math.sqrt(0.2) * B
        + R * math.sqrt(2 * log_failure + capacity * dimension),
        kb.Lemma31(**BOUNDS, complexity="log_determinant"): math.sqrt(0.2) * B
        + R * math.sqrt(2 * log_failure + log_determinant),
        kb.Tightened(**BOUNDS): math.sqrt(0.2 * B**2 + R**2 * (2 * log_failure + log_determinant)),
        kb.ChowdhuryGopalan(**BOUNDS, horizon=100): math.sqrt(0.2) * B
        + R * math.sqrt(1.02) * math.sqrt(2 * (log_determinant / 2 + 1 + log_failure)),
        kb.KrauseOng(**BOUNDS): math.sqrt(
            2 * 0.2 * B**2 + 300 * R**2 * log_determinant / 2 * math.log(61 / DELTA) ** 3
        ),
        kb.KrauseOng(**BOUNDS, maximum_information_gain=7.0): math.sqrt(
            2 * 0.2 * B**2 + 300 * R**2 * 7.0 * math.log(61 / DELTA) ** 3
        ),
    }
    for confidence, value in expected.items():
        assert confidence.radius(exact.posterior) == pytest.approx(value, rel=1e-9)


def test_projected_radii_by_their_formulas(projected):
    points, anchors = projected.observed_points, projected.dictionary_points
    kernel = projected.posterior.kernel
    explained = kernel(points, anchors) @ np.linalg.solve(kernel(anchors), kernel(anchors, points))
    residual = np.trace(kernel(points) - explained)
    assert residual > 0.1
    log_determinant = np.linalg.slogdet(np.eye(60) + explained / 0.2)[1]
    dimension = np.trace(explained @ np.linalg.inv(explained + 0.2 * np.eye(60)))
    log_failure = math.log(1 / DELTA)
    capacity = math.log(math.e + math.e * 60 / 0.2)
    excess = 60 * math.log(1 + residual / (60 * 0.2))
    assert (
        np.linalg.slogdet(np.eye(60) + kernel(points) / 0.2)[1]
        <= log_determinant + excess
        < residual / 0.2 + log_determinant
    )
    bias, tight_bias = (math.sqrt(0.2) + math.sqrt(residual)) * B, math.sqrt(0.2 + residual) * B
    expected = {
        kb.Lemma41(**BOUNDS): bias + R * math.sqrt(4 * log_failure + 2 * capacity * (dimension + residual / 0.2)),
        kb.Lemma41(**BOUNDS, complexity="log_determinant"): bias
        + R * math.sqrt(4 * log_failure + 2 * (log_determinant + residual / 0.2)),
        kb.Tightened(**BOUNDS): tight_bias + R * math.sqrt(2 * log_failure + log_determinant + excess),
        kb.Tightened(**BOUNDS, projection_error=0.01): math.sqrt(0.21) * B
        + R * math.sqrt(2 * log_failure + log_determinant + excess),
    }
    for confidence, value in expected.items():
        assert confidence.radius(projected.posterior) == pytest.approx(value, rel=1e-6)


def test_history_free_radius_by_its_formula():
    posterior = played(kb.ek_ucb, dictionary=kb.Kors(history="none", oversampling=0.7)).posterior
    expected = math.sqrt(0.2 + posterior.residual_trace) * B + R * math.sqrt(
        2 * math.log(1 / DELTA) + posterior.log_determinant
    )
    assert posterior.residual_trace > 0.1
    assert kb.Tightened(**BOUNDS).radius(posterior) == pytest.approx(expected)


def test_what_the_projection_loses_is_bracketed(projected):
    """d_eff(K) ≤ d_eff(K̃) + ρ/λ and ‖(I − P)F^{1/2}‖² ≤ ρ, which the radii rely on."""
    posterior = projected.posterior
    gram, anchors = theory.observed_gram(projected), projected.dictionary_points
    excess = posterior.residual_trace / posterior.regularization
    dimension = theory.effective_dimension(gram, posterior.regularization)
    assert posterior.effective_dimension <= dimension <= posterior.effective_dimension + excess
    cross = posterior.kernel(projected.observed_points, anchors)
    assert theory.projection_error(gram, cross, posterior.kernel(anchors)) <= posterior.residual_trace


def test_tightened_radii_are_the_smallest(exact, projected):
    for policy, others in [
        (exact, [kb.Lemma31(**BOUNDS, complexity="log_determinant"), kb.ChowdhuryGopalan(**BOUNDS, horizon=60)]),
        (projected, [kb.Lemma41(**BOUNDS, complexity="log_determinant")]),
    ]:
        tightened = kb.Tightened(**BOUNDS).radius(policy.posterior)
        assert all(tightened < other.radius(policy.posterior) for other in others)
    printed, proof = kb.Lemma31(**BOUNDS), kb.Lemma31(**BOUNDS, complexity="log_determinant")
    assert proof.radius(exact.posterior) < printed.radius(exact.posterior)


INVALID = [
    (kb.Lemma31(**BOUNDS), kb.ek_ucb, {}),
    (kb.ChowdhuryGopalan(**BOUNDS, horizon=10), kb.ek_ucb, {}),
    (kb.KrauseOng(**BOUNDS), kb.ek_ucb, {}),
    (kb.Lemma31(**BOUNDS), kb.ek_ucb, {"dictionary": kb.Kors(history="none")}),
    (kb.Lemma41(**BOUNDS), kb.ek_ucb, {"dictionary": kb.Kors(history="none")}),
    (kb.Tightened(**BOUNDS), kb.random_features_ucb, {}),
    (kb.Lemma31(**BOUNDS), kb.random_features_ucb, {}),
]


@pytest.mark.parametrize(("confidence", "preset", "options"), INVALID)
def test_a_radius_refuses_the_posteriors_it_is_not_valid_for(confidence, preset, options):
    with pytest.raises(kb.InputError, match=r"is valid for .* posteriors, and this one is"):
        preset(kb.Gaussian(0.2), confidence=confidence, seed=0, **options)


GUARANTEED = [
    kb.Lemma31(**BOUNDS),
    kb.Lemma41(**BOUNDS),
    kb.Tightened(**BOUNDS),
    kb.ChowdhuryGopalan(**BOUNDS, horizon=10),
    kb.KrauseOng(**BOUNDS),
]


@pytest.mark.parametrize("confidence", GUARANTEED, ids=lambda confidence: type(confidence).__name__)
@pytest.mark.parametrize("preset", [kb.k_ucb, kb.ek_ucb])
@pytest.mark.parametrize("arguments", [{}, {"kernel": kb.Gaussian(0.2), "learn_kernel": True}])
def test_a_radius_with_a_guarantee_refuses_a_learned_kernel_and_names_the_way_out(confidence, preset, arguments):
    with pytest.raises(kb.InputError, match=r"fixed beforehand.*learn_kernel=False.*family_ucb"):
        preset(confidence=confidence, seed=0, **arguments)
    preset(confidence=kb.StandardDeviations(2.0), seed=0, **arguments)


@pytest.mark.parametrize("confidence", [1.0, None, kb.StandardDeviations])
def test_a_radius_must_be_a_radius_object(confidence):
    for build in (kb.k_ucb, kb.ek_ucb, kb.cbkb):
        with pytest.raises(kb.InputError, match="expected a radius object"):
            build(kb.Gaussian(0.2), confidence=confidence)
    with pytest.raises(kb.InputError, match="expected a radius object"):
        kb.sup_kernel_ucb(kb.Gaussian(0.2), horizon=10, confidence=confidence)


def test_chowdhury_and_gopalan_refuse_rounds_beyond_their_horizon(exact):
    assert kb.ChowdhuryGopalan(**BOUNDS, horizon=60).radius(exact.posterior) > 0
    with pytest.raises(kb.InputError, match="holds up to 59 observations, and there are 60"):
        kb.ChowdhuryGopalan(**BOUNDS, horizon=59).radius(exact.posterior)


def test_the_radius_of_a_stage_by_its_formula_and_nowhere_else(exact, projected, history_free):
    radius = kb.StageRadius(**BOUNDS, horizon=1000, number_of_actions=7)
    deviation = R * math.sqrt(2 * math.log(2 * 1000 * 7 * 6 / DELTA))
    assert radius.radius(exact.posterior) == pytest.approx(math.sqrt(0.2) * B + deviation)
    bounded = kb.StageRadius(**BOUNDS, horizon=1000, number_of_actions=7, projection_error=1e-3)
    residuals = [policy.posterior.residual_trace for policy in (projected, history_free)]
    assert min(residuals) > 1e-3
    for policy, residual, error in zip((projected, history_free), residuals, (1e-3, residuals[1]), strict=True):
        assert radius.radius(policy.posterior) == pytest.approx(math.sqrt(0.2 + residual) * B + deviation)
        # a bound on the projection error says nothing of features that were projected in their own round
        assert bounded.radius(policy.posterior) == pytest.approx(math.sqrt(0.2 + error) * B + deviation)
    kb.sup_kernel_ucb(kb.Gaussian(0.2), horizon=1000, confidence=radius)
    for preset in (kb.k_ucb, kb.ek_ucb, kb.cbbkb):
        with pytest.raises(kb.InputError, match=r"in sup_kernel_ucb alone; write .*Tightened"):
            preset(kb.Gaussian(0.2), confidence=radius)


def test_the_radius_of_a_stage_refuses_more_rounds_or_actions_than_it_counts():
    eta = kb.StageRadius(**BOUNDS, horizon=4, number_of_actions=3)
    with pytest.raises(kb.InputError, match="counts 4 rounds, and 5 are played"):
        kb.sup_kernel_ucb(kb.Gaussian(0.2), horizon=5, confidence=eta)
    policy = kb.sup_kernel_ucb(kb.Gaussian(0.2), horizon=4, confidence=eta, seed=0)
    actions = np.array([[0.1], [0.5], [0.9], [1.0]])
    with pytest.raises(kb.InputError, match="at most that many actions a round, and 4 are offered"):
        policy.select([0.3], actions)
    # rounds whose reward came, is awaited or never came
    first, second, _ = (policy.ask([0.3], actions[:3]) for _ in range(3))
    policy.tell(first.id, 0.5)
    policy.expire(second.id)
    policy.ask([0.3], actions[:3])
    with pytest.raises(kb.InputError, match="counts 4 rounds, and 5 are played"):
        policy.ask([0.3], actions[:3])


PENDING = {
    "exact": lambda: kb.k_ucb(kb.Gaussian(0.3), regularization=0.02, seed=0),
    "projected": lambda: kb.ek_ucb(kb.Gaussian(0.3), regularization=0.02, seed=0),
    "history-free": lambda: kb.ek_ucb(
        kb.Gaussian(0.3), regularization=0.02, dictionary=kb.Kors(history="none"), seed=0
    ),
    "linear": lambda: kb.lin_ucb(regularization=0.02, seed=0),
    "split by arm": lambda: kb.ek_ucb(kb.PerArm(kb.Gaussian(0.3), 1), regularization=0.02, seed=0),
}


def with_pending(name, settled, pending):
    """A posterior with observed points, and the same with awaited ones beside them."""
    policy, generator = PENDING[name](), np.random.default_rng(3)
    actions = np.array([[0.2], [0.8]])
    for number in range(settled):
        policy.update(generator.random(1), actions[number % 2] if name == "split by arm" else generator.random(1), 0.5)
    before = policy.posterior
    for number in range(pending):
        policy.await_many(generator.random((1, 1)), actions[number % 2 : number % 2 + 1])
    return before, policy.posterior


@pytest.mark.parametrize("pending", [1, 7, 60])
@pytest.mark.parametrize("name", PENDING)
def test_awaited_points_shrink_no_width_by_more_than_is_said_and_some_by_as_much(name, pending):
    before, after = with_pending(name, 40, pending)
    assert before.pending_shrinkage == 1.0
    said = after.pending_shrinkage
    # λ_max(V_pending/V), at most det(V_pending)/det(V), and no less for a single point
    determinant = math.exp(min(after.log_determinant_with_pending - before.log_determinant, 700.0))
    if name != "projected":
        # anchors that come in with awaited points raise the determinant of the settled ones too
        assert 1.0 < said <= determinant * (1 + 1e-9)
    if pending == 1 and name in ("exact", "linear"):
        assert said == pytest.approx(determinant)
    settled = after.abandoned(list(after.awaited_points))
    places = np.vstack([list(after.awaited_points.values()), np.random.default_rng(5).random((400, 2))])
    if name == "split by arm":
        places[:, 1] = np.where(places[:, 1] < 0.5, 0.2, 0.8)
    ratios = (settled.predict(places).std / after.predict(places).std) ** 2
    assert ratios.max() <= said * (1 + 1e-6)
    if pending == 1 and name != "split by arm":
        # where nothing of the point is left unexplained the bound is reached at the point itself
        assert ratios[0] >= said * (1 - 1e-6) or name != "exact"
    assert said <= 2.0 * ratios.max() + 1.0


def test_a_radius_grows_while_rewards_are_awaited_and_only_then():
    confidence = kb.Tightened(**BOUNDS)
    before, after = with_pending("exact", 40, 9)
    assert confidence.radius(before) == confidence.settled_radius(before)
    grown = confidence.settled_radius(before) * math.sqrt(after.pending_shrinkage)
    assert confidence.radius(after) == pytest.approx(grown)
    # radii without a guarantee say what they say
    assert kb.StandardDeviations(2.0).radius(after) == kb.StandardDeviations(2.0).radius(before)


@pytest.mark.parametrize("history", ["all", "none"])
def test_a_radius_is_there_while_rewards_are_awaited_and_nothing_is_an_anchor(history):
    rule = kb.Kors(oversampling=1e-12, history=history)
    policy = kb.ek_ucb(kb.Gaussian(0.3), dictionary=rule, confidence=kb.Tightened(**BOUNDS), seed=0)
    first = policy.ask([0.5], [[0.2]])
    assert policy.dictionary_size == 0
    # no direction of the model is awaited, and what lies outside is as uncertain as before
    assert policy.posterior.pending_shrinkage == 1.0
    assert policy.ask([0.5], [[0.2]]).std == first.std


@pytest.mark.parametrize("kind", coverage.DICTIONARIES)
@pytest.mark.parametrize(("late", "in_stages"), [(20, False), (20, True)])
def test_bounds_hold_while_rewards_are_awaited(kind, late, in_stages):
    """Runs of 200 rounds with rewards 20 decisions late: with β of the observed points alone nearly all fail."""
    runs = [coverage.bounds_run(kind, late, seed, in_stages=in_stages) for seed in range(8)]
    assert sum(run.failed for run in runs) <= 1
    assert sum(run.failed_settled for run in runs) >= 5


FORGETTING = [kb.Window(20), kb.Discount(50), kb.Wander(50), kb.Restart()]


@pytest.mark.parametrize("forgetting", FORGETTING, ids=lambda rule: type(rule).__name__)
@pytest.mark.parametrize("preset", [kb.k_ucb, kb.ek_ucb])
def test_a_radius_with_a_guarantee_refuses_a_posterior_that_forgets(preset, forgetting):
    with pytest.raises(kb.InputError, match=r"keep their weight, and this posterior forgets"):
        preset(kb.Gaussian(0.2), confidence=kb.Tightened(**BOUNDS), forgetting=forgetting, seed=0)
    preset(kb.Gaussian(0.2), confidence=kb.StandardDeviations(2.0), forgetting=forgetting, seed=0)


def test_every_radius_plays_from_the_first_round():
    for confidence in coverage.RADII["exact"].values():
        for preset in (kb.k_ucb, kb.cgp_ucb):
            kb.run(preset(kb.Gaussian(0.2), confidence=confidence, seed=0), kb.environments.Chessboard(), 5, seed=0)
    kb.run(kb.lin_ucb(confidence=kb.Tightened(**BOUNDS), seed=0), kb.environments.Bump(), 5, seed=0)


def test_cgp_ucb_is_k_ucb_with_the_radius_of_krause_and_ong():
    policy = kb.cgp_ucb(kb.Gaussian(0.2), regularization=0.04, norm_bound=3.0, failure_probability=0.2, seed=0)
    assert policy.confidence == kb.KrauseOng(norm_bound=3.0, noise_bound=0.2, failure_probability=0.2)
    same = kb.k_ucb(kb.Gaussian(0.2), regularization=0.04, confidence=policy.confidence, seed=0)
    one = kb.run(policy, kb.environments.Chessboard(), 60, seed=0)
    other = kb.run(same, kb.environments.Chessboard(), 60, seed=0)
    np.testing.assert_array_equal(one.action_indices, other.action_indices)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: kb.Tightened(norm_bound=-1, noise_bound=1, failure_probability=0.1), "norm_bound"),
        (lambda: kb.Tightened(norm_bound=1, noise_bound=math.nan, failure_probability=0.1), "noise_bound"),
        (lambda: kb.Tightened(norm_bound=1, noise_bound=1, failure_probability=1.0), "failure_probability"),
        (lambda: kb.Tightened(**BOUNDS, projection_error=-1.0), "projection_error"),
        (lambda: kb.Lemma31(**BOUNDS, kernel_bound=0.0), "kernel_bound"),
        (lambda: kb.Lemma41(**BOUNDS, complexity="rank"), "complexity"),
        (lambda: kb.ChowdhuryGopalan(**BOUNDS, horizon=0), "horizon"),
        (lambda: kb.KrauseOng(**BOUNDS, maximum_information_gain=-1.0), "maximum_information_gain"),
    ],
)
def test_bad_arguments_are_named(build, words):
    with pytest.raises(kb.InputError, match=words):
        build()


@pytest.mark.parametrize("kind", coverage.RADII)
def test_confidence_sets_hold_the_truth_and_the_regret_stays_below_its_widths(kind):
    """200 runs of 300 rounds: θ* leaves a set of failure probability δ in at most a share δ of them.

    Where θ* stayed in the set that was played by, the regret is at most Σ min(2βσ, 2), the first step of both theorems;
    and it is below their bounds.
    """
    runs = [coverage.one_run(kind, seed) for seed in range(coverage.RUNS)]
    for name in coverage.RADII[kind]:
        left = sum(run.worst_ratios[name] > 1 for run in runs)
        assert left <= coverage.FAILURE * coverage.RUNS, name
    # a set that is never nearly left would be a useless one
    assert max(run.worst_ratios["Tightened"] for run in runs) > 0.5
    common = {
        "horizon": coverage.HORIZON,
        "regularization": coverage.RIDGE,
        "norm_bound": coverage.NORM,
        "noise_bound": coverage.NOISE,
    }
    for run in runs:
        dimension = run.effective_dimension
        assert run.regret <= run.summed_widths
        # the widths say something: below the 2 a round that any play loses at most
        assert run.summed_widths < 0.9 * 2 * coverage.HORIZON
        if kind == "exact":
            assert run.summed_widths <= theory.k_ucb_regret_bound(effective_dimension=dimension, **common)
        elif kind == "projected":
            bound = theory.ek_ucb_regret_bound(
                effective_dimension=dimension,
                # the played radius takes the residual trace for μ_t; so does the bound
                leverage_regularization=max(coverage.RIDGE, run.residual_trace),
                dictionary_size=run.dictionary_size,
                draws=run.draws,
                **common,
            )
            assert run.regret <= bound


def test_the_printed_radii_hold_where_their_bound_on_the_kernel_does_not():
    """κ² = 1 for a kernel of variance 2·10⁴, or for weights of 10⁴: the log-determinant of the proof is larger."""
    printed, proof = kb.Lemma31(**BOUNDS), kb.Lemma31(**BOUNDS, complexity="log_determinant")
    large = kb.k_ucb(1e4 * kb.Linear(), regularization=0.01, seed=0)
    weighted = kb.k_ucb(kb.Linear(), regularization=0.01, seed=0)
    for number in range(5):
        large.update([1.0], [1.0], float(number))
        weighted.update([1.0], [1.0], float(number), weight=1e4)
    for policy in (large, weighted):
        assert printed.radius(policy.posterior) == pytest.approx(proof.radius(policy.posterior))
    right = kb.Lemma31(**BOUNDS, kernel_bound=1000.0)
    assert right.radius(large.posterior) > proof.radius(large.posterior)


@pytest.mark.parametrize("preset", [kb.k_ucb, kb.ek_ucb])
def test_a_radius_refuses_noise_that_weights_raise_above_it(preset):
    """R = 0.1 and λ = 1: rewards of variance 0.01 weigh 100, and √100 times their noise is 1."""
    options = {"regularization": 1.0, "seed": 0}
    bounds = {"norm_bound": 1.0, "failure_probability": 0.1}
    policy = preset(kb.Gaussian(0.3), confidence=kb.Tightened(**bounds, noise_bound=0.1), **options)
    with pytest.raises(kb.InputError, match=r"noise_bound=1 or more, or weight=0\.1²/variance"):
        policy.update([0.5], [0.5], 1.0, noise_variance=0.01)
    assert policy.round_index == 0
    policy.update([0.5], [0.5], 1.0, weight=1.0)
    enough = preset(kb.Gaussian(0.3), confidence=kb.Tightened(**bounds, noise_bound=1.0), **options)
    enough.update([0.5], [0.5], 1.0, noise_variance=0.01)
    without = preset(kb.Gaussian(0.3), confidence=kb.StandardDeviations(1.0), **options)
    without.update([0.5], [0.5], 1.0, noise_variance=0.01)


def test_bounds_hold_where_noise_is_unequal_and_known():
    """Noise of 0.05 or 0.2 by the action, R = √λ = 0.1: the bounds of ten actions, 40 runs of 100 rounds."""
    failed = 0
    for seed in range(40):
        generator = np.random.default_rng(seed)
        function = coverage.draw_function(generator)
        policy = kb.k_ucb(
            coverage.KERNEL, regularization=coverage.RIDGE, confidence=kb.Tightened(**coverage.BOUNDS), seed=seed
        )
        is_left = False
        for _ in range(100):
            context, actions = generator.random(1), generator.random((10, 1))
            expected = function(np.column_stack([np.full(10, context[0]), actions]))
            prediction, decision = policy.predict(context, actions), policy.select(context, actions)
            is_left |= bool((np.abs(expected - prediction.mean) > policy.bonus * prediction.std + 1e-9).any())
            noise = 0.05 if decision.action[0] < 0.5 else 0.2
            reward = float(expected[decision.index]) + noise * generator.choice([-1.0, 1.0])
            policy.update(context, decision.action, reward, noise_variance=noise**2)
        failed += is_left
    assert failed <= 4


def test_a_radius_refuses_a_posterior_whose_anchors_were_chosen_after_the_rewards(tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    generator = np.random.default_rng(0)
    frame = pandas.DataFrame(generator.random((50, 3)), columns=["context_0", "action_0", "reward"])
    frame.to_parquet(tmp_path / "log.parquet")
    policy = kb.ek_ucb(kb.Gaussian(0.3), dictionary=kb.Kors(history="none"), confidence=kb.Tightened(**BOUNDS), seed=0)
    with pytest.raises(kb.InputError, match="does not hold for anchors chosen by points that came after"):
        kb.logs.learn(policy, tmp_path / "log.parquet")
    assert policy.round_index == 0


def test_stages_share_the_failure_probability_of_a_radius_for_all_rounds():
    confidence = kb.Tightened(**BOUNDS)
    policy = kb.sup_kernel_ucb(kb.Gaussian(0.2), horizon=100, regularization=0.2, confidence=confidence, seed=0)
    shared = kb.Tightened(**{**BOUNDS, "failure_probability": DELTA / policy.number_of_stages})
    decision = policy.select([0.5], [[0.5]])
    assert policy.confidence == confidence
    width = shared.radius(policy.stages[0]) * decision.std / math.sqrt(0.2)
    assert decision.upper_bound - decision.mean == pytest.approx(width)
