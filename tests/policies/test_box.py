"""Continuous actions: the contract over every policy, and the laws of the search."""

import math
import pickle

import boxes
import numpy as np
import pytest
from sklearn.gaussian_process import kernels as sk
from test_kernels import CountingKernel
from test_policy_contract import KERNEL_VARIANTS, VARIANTS, PoisonedKernel, build, models, variant_name

import kernel_bandits as kb
from kernel_bandits.boxes import search
from kernel_bandits.boxes.ascent import ascend
from kernel_bandits.policy import Policy

BOX = kb.Box([0.0], [1.0])


def plays_boxes(variants):
    return [v for v in variants if v[0] != "sup_kernel_ucb"]


def play(policy, rounds, seed=0, box=BOX):
    generator = np.random.default_rng(seed)
    chosen = []
    for _ in range(rounds):
        context = generator.random(2)
        decision = policy.select(context, box)
        policy.update(context, decision.action, np.sin(5 * context[0] * decision.action[0]) + 0.1 * generator.normal())
        chosen.append(decision)
    return chosen


@pytest.fixture(params=plays_boxes(VARIANTS), ids=variant_name)
def variant(request):
    return request.param


def test_a_decision_is_a_point_of_the_box_with_its_prediction(variant):
    name, options = variant
    policy = build(name, **options)
    box = kb.Box([-0.5], [0.25])
    for decision in play(policy, 15, box=box):
        assert decision.index == -1
        assert decision.propensity is None
        assert decision.action.shape == (1,)
        assert box.contains(decision.action[None, :]).all()
    context = np.array([0.3, 0.8])
    decision = policy.select(context, box)
    if isinstance(policy.model, kb.posterior.Posterior):
        prediction = policy.predict(context, decision.action[None, :])
        assert decision.mean == pytest.approx(prediction.mean[0], abs=1e-10)
        assert decision.std == pytest.approx(prediction.std[0], abs=1e-7)
        # a draw at the one action that a floor has chosen may fall below the mean
        assert decision.upper_bound >= decision.mean or (name == "thompson_sampling" and "exploration_floor" in options)


def test_same_seed_same_run(variant):
    name, options = variant
    first, second = build(name, 3, **options), build(name, 3, **options)
    for one, other in zip(play(first, 15), play(second, 15), strict=True):
        np.testing.assert_array_equal(one.action, other.action)
    assert pickle.dumps(first) == pickle.dumps(second)


def test_select_leaves_predictions_unchanged(variant):
    name, options = variant
    policy = build(name, **options)
    play(policy, 15)
    points = np.random.default_rng(9).random((6, 3))
    before = [model.predict(points) for model in models(policy)]
    for _ in range(3):
        policy.select([0.1, 0.9], BOX)
    for prediction, model in zip(before, models(policy), strict=True):
        np.testing.assert_array_equal(prediction.mean, model.predict(points).mean)
        np.testing.assert_array_equal(prediction.std, model.predict(points).std)


def test_a_resumed_run_continues_bit_for_bit(variant, tmp_path):
    name, options = variant
    policy = build(name, **options)
    play(policy, 10)
    policy.save(tmp_path / "policy.kb")
    resumed = kb.load(tmp_path / "policy.kb")
    for one, other in zip(play(policy, 5, seed=1), play(resumed, 5, seed=1), strict=True):
        np.testing.assert_array_equal(one.action, other.action)
        assert one.upper_bound == other.upper_bound


@pytest.mark.parametrize(
    ("context", "box", "mask", "words"),
    [
        ([0.5, 0.5], kb.Box([0, 0], [1, 1]), None, "expected a box of 1 dimensions, got 2"),
        ([0.5], BOX, None, "context: expected length 2"),
        ([0.5, np.nan], BOX, None, "context"),
        ([0.5, 0.5], BOX, [True], "mask: a box has no rows"),
    ],
)
def test_a_failed_select_leaves_the_state_byte_for_byte(variant, context, box, mask, words):
    name, options = variant
    policy = build(name, **options)
    play(policy, 5)
    before = pickle.dumps(policy)
    with pytest.raises(kb.InputError, match=words):
        policy.select(context, box, mask)
    assert pickle.dumps(policy) == before


@pytest.mark.parametrize("variant", plays_boxes(KERNEL_VARIANTS), ids=variant_name, indirect=True)
def test_a_kernel_that_is_not_finite_is_reported_and_changes_nothing(variant):
    name, options = variant
    policy = build(name, kernel=PoisonedKernel(np.nan), **options)
    play(policy, 5)
    before = pickle.dumps(policy)
    with pytest.raises(kb.InputError, match="not finite"):
        policy.select([0.5, 0.5], kb.Box(0.0, 2.0))
    assert pickle.dumps(policy) == before
    play(policy, 2)


def test_a_policy_that_cannot_search_says_what_to_do():
    policy = kb.sup_kernel_ucb(kb.Gaussian(0.5), horizon=10, seed=0)
    assert type(policy).shortlist is Policy.shortlist
    with pytest.raises(kb.InputError, match=r"SupKernelUCB chooses among finitely many.*box\.sample"):
        policy.select([0.5], BOX)


def test_rows_and_boxes_may_take_turns(variant):
    name, options = variant
    policy = build(name, **options)
    generator = np.random.default_rng(0)
    for t in range(6):
        context = generator.random(2)
        offered = BOX if t % 2 else generator.random((t + 1, 1))
        decision = policy.select(context, offered)
        assert (decision.index == -1) == (offered is BOX)
        policy.update(context, decision.action, 0.5)


def test_chance_decides_on_the_first_round(variant):
    """Every point of the box is as good as any other, or where a linear model looks further from the origin, is not."""
    name, options = variant
    actions = [build(name, seed, **options).select([0.5, 0.5], BOX).action[0] for seed in range(40)]
    assert len(set(actions)) > 15 or name == "lin_ucb" or isinstance(options.get("dictionary"), kb.Fixed)
    if name in ("ek_ucb", "k_ucb", "uniform") and not options:
        assert np.mean(actions) == pytest.approx(0.5, abs=0.2)
        assert np.std(actions) == pytest.approx(np.sqrt(1 / 12), abs=0.1)


def test_asks_in_a_box_spread_until_they_are_told():
    """Pending points count as played: a burst explores, where selecting again and again stays at one place."""
    policy = build("ek_ucb", regularization=0.01, confidence=kb.StandardDeviations(2.0))
    play(policy, 3)
    context = [0.4, 0.6]
    same = [policy.select(context, BOX).action[0] for _ in range(6)]
    asked = [policy.ask(context, BOX) for _ in range(6)]
    actions = np.array([decision.action[0] for decision in asked])
    assert np.ptp(same) < 1e-4
    assert np.ptp(actions) > 0.3
    for decision in reversed(asked):
        policy.tell(decision.id, np.sin(2 * decision.action[0]))
    direct = build("ek_ucb", regularization=0.01, confidence=kb.StandardDeviations(2.0))
    play(direct, 3)
    for action in actions:
        direct.update(context, [action], np.sin(2 * action))
    queries = np.linspace(0, 1, 7)[:, None]
    np.testing.assert_allclose(policy.predict(context, queries).mean, direct.predict(context, queries).mean, atol=1e-8)


def test_batches_take_boxes():
    policy = build("ek_ucb")
    play(policy, 10)
    contexts = np.random.default_rng(5).random((6, 2))
    batch = policy.ask_many(contexts, BOX)
    assert len(batch) == 6
    assert policy.pending == tuple(decision.id for decision in batch)
    assert BOX.contains(np.array([decision.action for decision in batch])).all()
    for decision, context in zip(batch, contexts, strict=True):
        np.testing.assert_array_equal(decision.context, context)


def test_select_many_searches_for_each_context():
    policy = build("ek_ucb")
    play(policy, 20)
    contexts = np.random.default_rng(2).random((4, 2))
    many = policy.select_many(contexts, BOX)
    for decision, context in zip(many, contexts, strict=True):
        assert decision.upper_bound == pytest.approx(policy.select(context, BOX).upper_bound, rel=1e-9)


def test_nothing_is_computed_twice_for_the_update():
    kernel = CountingKernel(kb.Gaussian(0.5))
    policy = kb.k_ucb(kernel, seed=0)
    play(policy, 10)
    decision = policy.select([0.2, 0.3], BOX)
    before = kernel.rows
    policy.update([0.2, 0.3], decision.action, 1.0)
    assert kernel.rows == before


def test_predict_takes_rows_and_says_so():
    policy = kb.ek_ucb(kb.Gaussian(0.3), seed=0)
    with pytest.raises(kb.InputError, match="was given a Box; pass rows"):
        policy.predict([0.5], kb.Box(0.0, 1.0))


def test_a_fixed_coordinate_stays_and_a_box_of_one_point_is_that_point():
    policy = kb.ek_ucb(kb.Gaussian(0.5), seed=0)
    for box in (kb.Box([0.2, 0.0], [0.2, 1.0]), kb.Box([0.2, 0.7], [0.2, 0.7])):
        for t in range(8):
            decision = policy.select([], box)
            assert decision.action[0] == 0.2
            policy.update([], decision.action, float(t))
    np.testing.assert_array_equal(decision.action, [0.2, 0.7])


def test_the_choice_follows_the_units():
    """The same problem in metres and in micrometres, with rewards in euros and in millions: the same place."""

    def last(unit, reward_unit):
        kernel = reward_unit**2 * kb.Matern([0.4, 0.3 * unit, 0.5])
        policy = kb.ek_ucb(kernel, regularization=0.01 * reward_unit**2, seed=0)
        generator = np.random.default_rng(0)
        for _ in range(25):
            context, action = generator.random(1), generator.random(2)
            policy.update(context, action * [unit, 1.0], reward_unit * np.sin(6 * (context[0] + action).sum()))
        decision = policy.select([0.4], kb.Box([0.0, 0.0], [unit, 1.0]))
        return decision.action / [unit, 1.0], decision.upper_bound / reward_unit

    action, bound = last(1.0, 1.0)
    for unit, reward_unit in ((1e6, 1.0), (1.0, 1e-6), (1e-3, 1e6)):
        other_action, other_bound = last(unit, reward_unit)
        np.testing.assert_allclose(other_action, action, atol=1e-5)
        assert other_bound == pytest.approx(bound, rel=1e-9)


def test_the_peak_of_a_kernel_with_a_kink_is_found_exactly():
    """The mean of an exponential posterior is made of tents over the points it has seen."""
    policy = kb.k_ucb(kb.Exponential(0.5), regularization=1e-6, confidence=kb.StandardDeviations(0.0), seed=0)
    generator = np.random.default_rng(0)
    actions = generator.random((40, 2))
    for action in actions:
        policy.update([], action, 1.0 - np.abs(action - 0.5).sum())
    best = actions[np.abs(actions - 0.5).sum(axis=1).argmin()]
    np.testing.assert_allclose(policy.select([], kb.Box([0, 0], [1, 1])).action, best, atol=1e-12)


def test_a_narrow_peak_around_an_anchor_is_found():
    """A hundred times narrower than the box in each of four dimensions, where no other candidate comes near it."""
    place = np.array([0.31, 0.62, 0.13, 0.84])
    policy = kb.ek_ucb(kb.Gaussian(0.01), confidence=kb.StandardDeviations(0.1), seed=0)
    policy.update([], place, 5.0)
    np.testing.assert_allclose(policy.select([], boxes.unit_box(4)).action, place, atol=1e-6)


def test_foreign_kernels_choose_the_same_place():
    for ours, theirs in ((kb.Gaussian(0.4), sk.RBF(0.4)), (kb.Matern(0.4, 1.5), sk.Matern(0.4, nu=1.5))):
        decisions = []
        for kernel in (ours, theirs):
            policy = kb.ek_ucb(kernel, regularization=0.01, seed=0)
            play(policy, 1)
            points = np.random.default_rng(1).random((30, 3))
            policy.update_many(points[:, :2], points[:, 2:], np.sin(7 * points).sum(axis=1))
            decisions.append(policy.select([0.5, 0.5], BOX))
        np.testing.assert_allclose(decisions[0].action, decisions[1].action, atol=1e-5)
        assert decisions[0].upper_bound == pytest.approx(decisions[1].upper_bound, rel=1e-9)


@pytest.mark.parametrize("dimension", [1, 2, 4])
def test_the_largest_bound_of_the_box_is_found(dimension):
    """A sample of the 200 posteriors of the slow test, over all kernels, against fewer points."""
    kernels = list(boxes.KERNELS)
    shortfalls = [boxes.shortfall(kernels[seed % 6], dimension, seed, points=20_000)[0] for seed in range(12)]
    assert max(shortfalls) <= boxes.ROUNDING


@pytest.mark.slow
@pytest.mark.parametrize("dimension", [1, 2, 4])
@pytest.mark.parametrize("kernel", boxes.KERNELS)
def test_the_largest_bound_of_the_box_is_found_in_99_percent_of_200_posteriors(kernel, dimension):
    shortfalls = np.array([boxes.shortfall(kernel, dimension, seed)[0] for seed in range(200)])
    assert (shortfalls <= boxes.ROUNDING).mean() >= 0.99


@pytest.mark.parametrize("dimension", [1, 2])
def test_the_search_starts_on_every_hill(dimension, monkeypatch):
    """Starts lie half a spacing of the covering apart, so that a hill lower than another is climbed too."""
    policy = kb.k_ucb(kb.Gaussian(0.05), regularization=0.01, confidence=kb.StandardDeviations(0.0), seed=0)
    hills = np.array([0.2, 0.5, 0.8])
    for hill, height in zip(hills, (1.0, 0.7, 0.5), strict=True):
        policy.update([], np.full(dimension, hill), height)
    starts = []

    def spy(objective, points, **options):
        starts.append(points)
        return ascend(objective, points, **options)

    monkeypatch.setattr(search, "ascend", spy)
    policy.select([], kb.Box(np.zeros(dimension), np.ones(dimension)))
    for hill in hills:
        assert np.abs(starts[0] - hill).max(axis=1).min() < 0.06
    different = len(np.unique(starts[0], axis=0))
    assert 20 < different <= search.PEAKS + search.FINE_PEAKS


@pytest.mark.parametrize("make", [kb.ek_ucb, kb.thompson_sampling, kb.inverse_gap_weighting])
@pytest.mark.parametrize("late", [False, True], ids=["select", "ask"])
def test_a_learned_kernel_measures_actions_by_their_box(make, late):
    policy, generator = make(seed=0), np.random.default_rng(0)
    for _ in range(16):
        context = generator.random(1)
        if late:
            decision = policy.ask(context, kb.Box([0.0], [1000.0]))
            policy.tell(decision, math.sin(decision.action[0] / 200.0))
        else:
            decision = policy.select(context, kb.Box([0.0], [1000.0]))
            policy.update(context, decision.action, math.sin(decision.action[0] / 200.0))
    # a uniform value in the box has this standard deviation, whatever was played
    assert policy.posterior.learner._columns.box == ((0.0,), (1000.0,), (0,))
    assert policy.posterior.kernel_changes[-1].relative_lengthscales[1] < 2.0
