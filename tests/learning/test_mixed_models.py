"""The mixed kernel of a table: what it takes for noise, what it learns, and in which units."""

import math
from dataclasses import replace

import numpy as np
import pytest

import kernel_bandits as kb
from kernel_bandits.learning.columns import Columns, ColumnUnits
from kernel_bandits.learning.defaults import LESS_NOISE
from kernel_bandits.learning.mixed import MixedSample
from kernel_bandits.learning.prior import ARM_PRIOR as PRIOR


def sample(reward, count=300, seed=0, arms=True, scale=1.0, height=1.0):
    generator = np.random.default_rng(seed)
    contexts = generator.normal(size=(count, 4))
    actions = np.eye(3)[generator.integers(3, size=count)] if arms else generator.random((count, 1))
    rewards = np.array([reward(x, a, generator) for x, a in zip(contexts, actions, strict=True)])
    return MixedSample(np.hstack([scale * contexts, actions]), height * rewards, Columns(4), arms, None).fit(None)


def test_pure_noise_is_taken_for_noise():
    shares = dict(sample(lambda _x, _a, g: g.normal()).shares)
    assert shares["noise"] > 0.7


def test_clicks_with_a_faint_signal_are_taken_for_noise():
    """Clicks of chance 0.2 ± 0.06: 2 % of their variance is signal."""
    shares = dict(sample(lambda x, a, g: float(g.random() < 0.2 + 0.06 * x @ [1, -1, 0, 0] * a[0]), count=800).shares)
    assert shares["noise"] > 0.85


def test_a_linear_reward_is_taken_for_linear():
    shares = dict(sample(lambda x, _a, g: x @ [1.0, -2.0, 0.5, 1.5] + 0.1 * g.normal()).shares)
    assert shares["linear"] > 0.5
    assert shares["noise"] < 0.1


def test_a_rough_reward_without_noise_is_not_taken_for_noise():
    """Noise explains it too, 59 nats worse: more than the price of a short lengthscale."""
    generator = np.random.default_rng(0)
    contexts = generator.normal(size=(150, 2))
    points = np.hstack([contexts, np.ones((150, 1))])
    model = MixedSample(points, np.sin(8.0 * contexts[:, 0]), Columns(2), False, None).fit(None)
    assert dict(model.shares)["noise"] < 0.1


def test_clicks_are_mostly_noise():
    model = sample(lambda x, _a, g: float(g.random() < 0.1 + 0.05 * (x[0] > 0)), count=600)
    assert dict(model.shares)["noise"] > 0.5
    assert model.mean == pytest.approx(0.125, abs=0.05)


@pytest.mark.parametrize("arms", [True, False])
def test_units_do_not_matter(arms):
    def reward(x, a, g):
        return np.sin(2.0 * x[0]) + a[0] + 0.3 * g.normal()

    plain, scaled = sample(reward, arms=arms), sample(reward, arms=arms, scale=1024.0, height=1.0 / 64.0)
    np.testing.assert_allclose(scaled.parameters, plain.parameters, atol=1e-4)
    assert scaled.noise == pytest.approx(plain.noise / 4096.0, rel=1e-3)
    assert scaled.bonus == pytest.approx(plain.bonus, rel=1e-3)


def prices(count, kinds, seed=0):
    """Rewards of prices, one of which earns more than its neighbours by far."""
    generator = np.random.default_rng(seed)
    offered = generator.integers(kinds, size=count)
    points = np.hstack([generator.normal(size=(count, 2)), offered[:, None] / kinds])
    rewards = 3.0 * (offered == kinds // 2) + 0.3 * generator.normal(size=count)
    return MixedSample(points, rewards, Columns(2), False, None).fit(None)


def test_actions_that_return_may_have_something_of_their_own():
    model = prices(200, 5)
    assert dict(model.shares)["of single actions"] > 0.2
    price, neighbour = np.array([[0.0, 0.0, 0.4]]), np.array([[0.0, 0.0, 0.401]])
    assert model.kernel(price, neighbour).item() < 0.9 * model.kernel.diag(price).item()


def test_actions_that_never_return_have_nothing_of_their_own():
    """Neither could it be known, nor would looking for it pay."""
    assert "of single actions" not in dict(prices(200, 10**6).shares)


@pytest.mark.parametrize("seed", range(4))
def test_a_price_that_its_neighbours_hide_is_found(seed):
    """Few come for nothing, most for a little, and a little costs less than much (as in Thornton 2008)."""
    generator, policy = np.random.default_rng(seed), kb.ek_ucb(seed=seed)
    amounts, chances = np.array([[0.0], [0.3], [0.9], [1.7], [2.6]]), np.array([0.3, 0.8, 0.8, 0.85, 0.85])
    left = 1.0 - amounts[:, 0] / 3.0
    earned = []
    for _ in range(300):
        context = generator.normal(size=2)
        index = policy.select(context, amounts).index
        policy.update(context, amounts[index], left[index] * (generator.random() < chances[index]))
        earned.append(left[index] * chances[index])
    # the dearest earns 0.11, all of them 0.41 on average, the best 0.72
    assert np.mean(earned) > 0.5


def test_columns_of_one_variable_share_a_spread():
    generator = np.random.default_rng(0)
    levels = np.eye(4)[generator.choice(4, p=[0.9, 0.05, 0.04, 0.01], size=300)]
    points = np.hstack([levels, generator.random((300, 1))])
    model = MixedSample(points, generator.normal(size=300), Columns(4, (0, 0, 0, 0, 1)), False, None).fit(None)
    assert np.ptp(model.contexts.spread) == 0.0
    assert model.contexts.variables == 1


def test_nothing_set_separates_classes():
    """A table of three classes that a line does not separate, played with nothing set."""
    generator, policy, right = np.random.default_rng(0), kb.ek_ucb(seed=0), 0
    for step in range(500):
        context = generator.normal(size=3)
        best = 0 if np.linalg.norm(context[:2]) < 1.0 else 1 + int(context[2] > 0)
        decision = policy.select(context, np.eye(3))
        policy.update(context, decision.action, float(decision.index == best))
        right += (decision.index == best) * (step >= 250)
    assert right / 250 > 0.75
    assert policy.dictionary_size <= 3 * 150


def test_rewards_that_hardly_depend_on_anything_are_not_lost():
    """Clicks at a few per cent: the best offer is found although nearly all is noise."""
    earned, chances = 0.0, np.array([0.02, 0.05, 0.12])
    for seed in range(3):
        generator, policy = np.random.default_rng(seed), kb.ek_ucb(seed=seed)
        for _ in range(600):
            context = generator.normal(size=3)
            decision = policy.select(context, np.eye(3))
            policy.update(context, decision.action, float(generator.random() < chances[decision.index]))
            earned += chances[decision.index] / 1800
    assert earned > chances.mean()


def test_a_signal_in_what_two_columns_differ_by_is_found():
    generator = np.random.default_rng(0)
    common = generator.normal(size=(200, 1))
    contexts = common + 0.1 * generator.normal(size=(200, 6))
    rewards = 10.0 * (contexts[:, 0] - contexts[:, 1]) + 0.3 * generator.normal(size=200)
    points = np.hstack([contexts, np.ones((200, 1)), np.zeros((200, 1))])
    model = MixedSample(points, rewards, Columns(6), True, None).fit(None)
    _, linear, decorrelated, smooth = np.exp(model.parameters[:4])
    assert decorrelated > 3.0 * max(linear, smooth)


def test_the_precision_of_columns_is_one_on_average_and_knows_which_vary():
    generator = np.random.default_rng(0)
    points = np.hstack([generator.normal(size=(50, 3)) @ generator.normal(size=(3, 3)), np.full((50, 1), 7.0)])
    units = ColumnUnits.measured(points, np.arange(4), None)
    standardised = units.standardised(points)
    assert np.einsum("ni,ij,nj->n", standardised, units.precision, standardised).mean() == pytest.approx(1.0)
    assert not units.precision[3].any()


@pytest.mark.parametrize("arms", [1, 3])
def test_the_evidence_counts_from_sixteen_observations_of_each_function_on(arms):
    generator = np.random.default_rng(0)
    for count in (16 * arms - 1, 16 * arms):
        actions = np.eye(3)[np.arange(count) % arms]
        points = np.hstack([generator.normal(size=(count, 2)), actions])
        sampled = MixedSample(points, generator.normal(size=count), Columns(2), True, None)
        is_median = dict(sampled.fit(None).shares)["noise"] == pytest.approx(0.1)
        assert is_median == (count < 16 * arms)


@pytest.mark.parametrize("two_valued", [True, False])
def test_more_noise_is_expected_of_two_values_once_there_are_enough_to_fit(two_valued):
    generator = np.random.default_rng(3)
    contexts, arms = generator.normal(size=(120, 3)), np.eye(2)[np.arange(120) % 2]
    rewards = (contexts[:, 0] + generator.normal(size=120) > 0.0).astype(float)
    if not two_valued:
        rewards[0] = 0.5
    points = np.hstack([contexts, arms])

    def noise(count: int, added: float) -> float:
        prior = replace(PRIOR, two_valued_noise=added)
        return MixedSample(points[:count], rewards[:count], Columns(3), True, None, prior).fit(None).noise

    assert noise(30, 0.8) == noise(30, 0.0) == pytest.approx((1.0 - PRIOR.signal) * rewards[:30].var())
    assert (noise(120, 0.8) > noise(120, 0.0)) == two_valued


def test_many_equal_rewards_of_two_values_are_not_taken_for_certain():
    """A function without noise explains them better than anything."""
    generator = np.random.default_rng(0)
    contexts, arms = generator.normal(size=(300, 4)), np.eye(3)[generator.integers(3, size=300)]
    rewards = (contexts[:, 0] < 1.5).astype(float)
    model = MixedSample(np.hstack([contexts, arms]), rewards, Columns(4), True, None).fit(None)
    median = 1.0 - PRIOR.signal + PRIOR.two_valued_noise / 3
    assert model.noise >= 0.999 * median * math.exp(-LESS_NOISE) * rewards.var()


def test_the_bonus_of_two_valued_rewards_is_what_may_be_hoped_for():
    """A mean of 5.5 between 5 and 7 with σ = ½: success has the value c + σ²/(c − lower), 1·σ above the mean."""
    generator = np.random.default_rng(0)
    points = np.hstack([generator.normal(size=(40, 2)), np.eye(2)[generator.integers(2, size=40)]])
    sampled = MixedSample(points, np.where(np.arange(40) % 4, 5.0, 7.0), Columns(2), True, None)
    assert sampled._bonus(5.5, 0.5) == pytest.approx(1.0)
    # no more than the way to the upper value
    assert sampled._bonus(5.5, 0.9) == pytest.approx(1.5 / 0.9)


def plant(moves, widths, count=80, seed=0, noise=0.05):
    """The model of a peak over three settings of different units that two sensors move, and how far it moves it."""
    generator = np.random.default_rng(seed)
    low, width = np.array([150.0, 1.0, -20.0]), np.array([100.0, 4.0, 0.5])
    sensors, fractions = generator.normal(size=(count, 2)), generator.random((count, 3))
    offsets = (fractions - 0.5 - sensors @ np.transpose(moves)) / widths
    rewards = np.exp(-0.5 * (offsets**2).sum(axis=1)) + noise * generator.normal(size=count)
    columns = Columns(2).within(low, low + width, np.arange(3))
    points = np.hstack([300.0 + 7.0 * sensors, low + width * fractions])
    return MixedSample(points, rewards, columns, False, None).fit(None), width


def test_each_setting_of_a_box_has_a_width_if_it_needs_one():
    model, _ = plant(np.zeros((3, 2)), [0.1, 0.4, 50.0])
    narrow, wide, irrelevant = model.relative_lengthscales(5)[2:]
    assert narrow < 0.6 * wide
    assert irrelevant > 1.5 * wide


def test_sensors_that_move_the_peak_shear_the_kernel():
    moves = np.array([[0.1, 0.0], [0.0, -0.1], [0.05, 0.05]])
    model, width = plant(moves, [0.25, 0.25, 0.25], count=120)
    # in the units of the data: settings over sensors
    found = model.kernel.shear.slopes / width[:, None] * 7.0
    np.testing.assert_allclose(found, moves, atol=0.04)
    np.testing.assert_allclose(model.kernel.shear.centre, 300.0, atol=2.0)


def test_noise_moves_nothing():
    model, _ = plant(np.zeros((3, 2)), [1e-3, 1e-3, 1e-3], noise=1.0)
    assert model.kernel.shear is None
    assert np.abs(model.warp.actions).max() < 0.3


@pytest.mark.parametrize("contexts", [0, 2])
@pytest.mark.parametrize("box", [None, ((0.0, 0.0), (1.0, 1.0), (0, 1))], ids=["rows", "box"])
def test_the_kernel_is_the_one_whose_evidence_was_maximised(contexts, box):
    generator = np.random.default_rng(0)
    points = generator.random((40, contexts + 2))
    rewards = 5.0 - 8.0 * (points[:, -1] - 0.5) ** 2 + 0.05 * generator.normal(size=40)
    model = MixedSample(points, rewards, Columns(contexts, None, box), False, None).fit(None)
    spread = rewards.std()
    covariance = model.kernel(points, points.copy()) + model.noise * np.eye(40)
    misfit = rewards - model.mean
    # in units of the spread, with a standard normal mean
    dense = -0.5 * (misfit @ np.linalg.solve(covariance, misfit) + np.linalg.slogdet(covariance)[1])
    dense += 40 * np.log(spread) - 20 * np.log(2 * np.pi) - 0.5 * ((model.mean - rewards.mean()) / spread) ** 2
    assert model.evidence == pytest.approx(dense, abs=1e-6)


@pytest.mark.parametrize(("count", "taking"), [(9, False), (200, False), (9, True), (200, True)])
def test_zero_inflated_rewards_of_many_arms_are_explored_further(count, taking):
    generator = np.random.default_rng(0)
    arms = np.arange(count) % 8
    rewards = generator.normal(size=count)
    if taking:
        # nothing, or the price of the arm
        rewards = np.where(generator.random(count) < 0.4, 0.0, arms + 1.0)
    points = np.hstack([generator.normal(size=(count, 2)), np.eye(8)[arms]])
    model = MixedSample(points, rewards, Columns(2), True, None).fit(None)
    assert model.bonus == pytest.approx(np.sqrt(2.0 * np.log(8.0)) if taking else 1.5)
