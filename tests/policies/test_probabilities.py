"""Probabilities of every offered action, densities in boxes, and the floor: one contract over all presets."""

import inspect
import json

import numpy as np
import pytest
from kernel_bandits_lab.results import Record, read_record, write_record
from kernel_bandits_lab.study import study_of
from scipy import stats
from test_policy_contract import PRESETS, VARIANTS, build, play, rounds, variant_name

import kernel_bandits as kb
from kernel_bandits.boxes.density import BoxDensity, centres, divisions

FLOOR = 0.2
WITH_FLOOR = [
    (name, {"exploration_floor": FLOOR})
    for name in PRESETS
    if "exploration_floor" in inspect.signature(getattr(kb, name)).parameters
]
# those that draw, whatever their options
AT_RANDOM = ("inverse_gap_weighting", "thompson_sampling", "uniform")
ACTIONS = np.linspace(0.0, 1.0, 6)[:, None]
CONTEXT = np.array([0.3, 0.6])


def test_every_preset_but_two_has_a_floor():
    """SupKernelUCB's guarantee needs its own choices, and uniform play is the floor itself."""
    assert {name for name, _ in WITH_FLOOR} == set(PRESETS) - {"sup_kernel_ucb", "uniform"}


@pytest.mark.parametrize("variant", VARIANTS + WITH_FLOOR, ids=variant_name)
def test_probabilities_sum_to_one_and_belong_to_the_choice(variant):
    name, options = variant
    policy = build(name, **options)
    play(policy, 30)
    expects = name in AT_RANDOM or bool(options.get("exploration_floor"))
    for context, actions, _ in rounds(20, seed=5):
        for decision in (policy.select(context, actions), policy.select_many(context[None, :], actions)[0]):
            assert (decision.probabilities is not None) == expects
            assert decision.density is None
            if not expects:
                assert decision.propensity is None
                continue
            assert decision.probabilities.shape == (len(actions),)
            assert abs(decision.probabilities.sum() - 1.0) <= 1e-12
            assert decision.probabilities.min() >= options.get("exploration_floor", 0.0) / len(actions) * (1 - 1e-12)
            assert decision.propensity == decision.probabilities[decision.index] > 0.0


@pytest.mark.parametrize("variant", [*WITH_FLOOR, *((name, {}) for name in AT_RANDOM)], ids=variant_name)
def test_actions_are_played_as_often_as_the_probabilities_say(variant):
    """Given the model; under Thompson sampling the expected counts are sums over the draws."""
    name, options = variant
    policy = build(name, **({"number_of_draws": 5} if name == "thompson_sampling" else {}), **options)
    play(policy, 30)
    decisions = [policy.select(CONTEXT, ACTIONS) for _ in range(1500)]
    expected = np.sum([decision.probabilities for decision in decisions], axis=0)
    played = np.bincount([decision.index for decision in decisions], minlength=len(ACTIONS))
    possible = expected > 0.0
    assert not played[~possible].any()
    assert stats.chisquare(played[possible], expected[possible]).pvalue > 1e-6


def test_thompson_sampling_without_a_floor_leaves_losers_at_zero_and_with_one_none():
    decision = build("thompson_sampling", number_of_draws=2).select(CONTEXT, ACTIONS)
    assert (decision.probabilities == 0.0).any()
    with_floor = build("thompson_sampling", number_of_draws=2, exploration_floor=0.06).select(CONTEXT, ACTIONS)
    np.testing.assert_allclose(with_floor.probabilities, 0.94 * decision.probabilities + 0.01, rtol=0, atol=1e-15)


@pytest.mark.parametrize("name", ["ek_ucb", "inverse_gap_weighting", "thompson_sampling"])
def test_a_mask_leaves_rows_without_probability(name):
    policy = build(name, exploration_floor=0.3)
    play(policy, 20)
    mask = np.array([True, False, True, True, False, True])
    for _ in range(20):
        decision = policy.select(CONTEXT, ACTIONS, mask)
        assert decision.probabilities.shape == (6,)
        assert ((decision.probabilities > 0.0) == mask).all()
        assert decision.probabilities.sum() == pytest.approx(1.0, abs=1e-12)
        assert decision.propensity == decision.probabilities[decision.index]


BOX = kb.Box([-1.0, 2.0, 0.0], [1.0, 2.0, 4.0])  # the coordinate in the middle is fixed


def test_the_density_of_a_box_is_one_in_all():
    generator = np.random.default_rng(0)
    parts = divisions(BOX)
    assert parts == (16, 1, 16)
    assert len(centres(parts)) == 256
    volume = BOX.volumes(np.full((1, len(BOX.settings)), 0.5)).item()
    assert volume == 8.0
    cells = generator.dirichlet(np.ones(256)) * 0.7
    density = BoxDensity(BOX, cells, np.array([0.005, 0.0, 0.5]), 0.3)
    # midpoints of a grid whose lines fall on those of the cells and of the neighbourhood, [0, 0.015] × [0.49, 0.51]
    steps = [np.unique(np.concatenate([np.arange(17) / 16, edges])) for edges in ([0.0, 0.015], [0.49, 0.51])]
    middles = [(step[1:] + step[:-1]) / 2 for step in steps]
    grid = np.array([[x, 0.0, y] for x in middles[0] for y in middles[1]])
    areas = np.outer(np.diff(steps[0]), np.diff(steps[1])).ravel()
    assert density(BOX.at(grid)) @ areas * volume == pytest.approx(1.0, abs=1e-12)


def test_draws_in_a_box_have_its_density():
    generator = np.random.default_rng(1)
    box = kb.Box([0.0], [2.0])
    cells = generator.dirichlet(np.ones(256)) * 0.6
    density = BoxDensity(box, cells, np.array([0.5]), 0.4)
    drawn = np.array([density.draw(generator) for _ in range(6_000)])
    assert box.contains(drawn).all()
    expected = 6_000 * (cells.reshape(32, 8).sum(axis=1))
    # the neighbourhood [0.49, 0.51] lies half in one, half in the other of two groups of cells
    expected[15:17] += 6_000 * 0.2
    played = np.histogram(drawn[:, 0] / 2.0, bins=32, range=(0, 1))[0]
    assert stats.chisquare(played, expected).pvalue > 1e-6


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ek_ucb", {"exploration_floor": 0.3}),
        ("thompson_sampling", {"exploration_floor": 0.3, "number_of_draws": 10}),
        ("inverse_gap_weighting", {}),
        ("inverse_gap_weighting", {"exploration_floor": 0.3, "effective_actions": 8}),
        ("uniform", {}),
    ],
)
def test_inverse_densities_recover_integrals(name, options):
    """E[g(a)/density(a)] = ∫ g over the box, which holds only if the density is the one that was drawn from."""
    policy = build(name, **options)
    box = kb.Box([0.0], [2.0])
    generator = np.random.default_rng(0)
    for _ in range(25):
        action = box.sample(generator, 1)[0]
        policy.update(CONTEXT, action, np.sin(3 * action[0]) + 0.1 * generator.normal())
    decisions = [policy.select(CONTEXT, box) for _ in range(80)]
    for decision in decisions:
        assert decision.probabilities is None
        assert decision.propensity is None
        assert decision.density >= options.get("exploration_floor", 0.0) / 2.0 - 1e-12
    terms = np.array([decision.action[0] / decision.density for decision in decisions])
    assert terms.mean() == pytest.approx(2.0, abs=5 * terms.std() / np.sqrt(80) + 1e-12)


def test_where_all_actions_look_alike_inverse_gap_weighting_is_uniform_in_a_box():
    policy = build("inverse_gap_weighting")
    decisions = [policy.select(CONTEXT, kb.Box([0.0], [2.0])) for _ in range(30)]
    assert [decision.density for decision in decisions] == pytest.approx([0.5] * 30)
    assert np.ptp([decision.action[0] for decision in decisions]) > 1.0


def test_ucb_without_a_floor_has_no_density():
    assert build("ek_ucb").select(CONTEXT, kb.Box(0.0, 1.0)).density is None


def test_decisions_and_records_carry_probabilities(tmp_path):
    policy = build("inverse_gap_weighting")
    logged = json.loads(json.dumps(policy.select(CONTEXT, ACTIONS).to_dict()))
    assert sum(logged["probabilities"]) == pytest.approx(1.0)
    assert json.loads(json.dumps(policy.select(CONTEXT, kb.Box(0.0, 1.0)).to_dict()))["density"] > 0.0
    features = kb.Features(context={"age": kb.Numeric()}, actions=kb.Arms(["a", "b"]))
    named = kb.inverse_gap_weighting(features=features, seed=0).select({"age": 3.0})
    assert json.loads(json.dumps(named.to_dict()))["probabilities"] == [0.5, 0.5]
    table = {
        "environments": [{"name": "Chessboard"}],
        "policies": [{"name": "inverse_gap_weighting", "options": {"kernel": {"name": "Gaussian"}}}],
    }
    (one,) = study_of({**table, "seeds": 1, "horizon": 20}, "one").runs
    result = kb.run(build("inverse_gap_weighting"), kb.environments.Chessboard(), 20, seed=0)
    assert ((result.propensities > 0.0) & (result.propensities <= 1.0)).all()
    again = read_record(write_record(tmp_path, Record(one, result, {})))
    np.testing.assert_array_equal(again.result.propensities, result.propensities)
    assert kb.run(build("ek_ucb"), kb.environments.Chessboard(), 5, seed=0).propensities is None


@pytest.mark.parametrize("floor", [-0.1, 1.5, "often", np.nan, True])
@pytest.mark.parametrize("name", ["ek_ucb", "thompson_sampling", "inverse_gap_weighting", "lin_ucb"])
def test_floors_that_are_no_probability(name, floor):
    with pytest.raises(kb.InputError, match="exploration_floor: expected a probability"):
        build(name, exploration_floor=floor)


def test_the_best_action_of_a_box_is_drawn_as_often_as_its_density_says():
    policy, box = build("inverse_gap_weighting"), kb.Box([0.0], [2.0])
    generator = np.random.default_rng(0)
    for _ in range(12):
        action = box.sample(generator, 1)[0]
        policy.update(CONTEXT, action, np.sin(3 * action[0]) + 0.1 * generator.normal())
    densities = np.array([policy.select(CONTEXT, box).density for _ in range(100)])
    # cells have a density of ½ at most; the neighbourhood of the best action is a fiftieth of the box
    near = densities > 1.0
    assert 0.1 < near.mean() < 0.8
    assert near.mean() == pytest.approx((densities[near].mean() - 0.5) * 0.02 * 2.0, abs=0.15)
