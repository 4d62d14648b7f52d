"""Variables that count more or less than others: earned by evidence, and the same in the fit and in the kernel."""

from dataclasses import replace

import numpy as np
import pytest

import kernel_bandits as kb
from kernel_bandits.learning.columns import NO_WARP, Columns
from kernel_bandits.learning.mixed import MixedSample


def tables(reward, count=300, columns=8, seed=0, actions=None):
    """A sample in which only the first column matters to the reward of each of three arms."""
    generator = np.random.default_rng(seed)
    contexts = generator.normal(size=(count, columns))
    arms = generator.integers(3, size=count)
    rewards = np.array([reward(x, a, generator) for x, a in zip(contexts, arms, strict=True)])
    offered = np.eye(3) if actions is None else actions
    return np.hstack([contexts, offered[arms]]), rewards, Columns(columns)


def bent(x, arm, generator):
    return np.sin(2.5 * x[0] + 2.0 * arm) + 0.1 * generator.normal()


def test_the_one_column_that_matters_is_found():
    points, rewards, columns = tables(bent)
    model = MixedSample(points, rewards, columns, True, None).fit(None)
    lengths = np.array(model.relative_lengthscales(points.shape[1]))[:8]
    assert lengths[0] < 0.3 * lengths[1:].min()


@pytest.mark.parametrize("seed", range(3))
def test_variables_of_pure_noise_count_alike(seed):
    points, rewards, columns = tables(lambda _x, _a, generator: generator.normal(), seed=seed)
    model = MixedSample(points, rewards, columns, True, None).fit(None)
    assert np.abs(model.warp.contexts).max() < 0.5


@pytest.mark.parametrize("count", [2, 3])
def test_variables_that_matter_alike_count_alike(count):
    def reward(x, arm, generator):
        return np.sin(x[:count].sum() + arm) + 0.1 * generator.normal()

    points, rewards, columns = tables(reward, columns=count)
    model = MixedSample(points, rewards, columns, True, None).fit(None)
    assert np.ptp(model.warp.contexts) < 0.5


@pytest.mark.parametrize("actions", [None, np.array([[0.0, 5.0], [1.0, 7.0], [2.5, 2.0]])], ids=["arms", "described"])
def test_the_kernel_is_the_one_that_was_fitted(actions):
    """Its density of the rewards is the evidence of the model, with weights and with all parts."""
    points, rewards, columns = tables(bent, count=120, actions=actions)
    sample = MixedSample(points, rewards, columns, actions is None, None)
    model = sample.fit(None)
    assert model.warp.contexts.any()
    spread = rewards.std()
    # in units of the rewards, to which the evidence refers: y/s has the covariance Σ/s²
    covariance = (model.kernel(points) + model.noise * np.eye(len(points))) / spread**2
    residuals, mean = (rewards - model.mean) / spread, (model.mean - rewards.mean()) / spread
    value = -0.5 * (
        residuals @ np.linalg.solve(covariance, residuals)
        + np.linalg.slogdet(covariance)[1]
        + len(points) * np.log(2.0 * np.pi)
        + mean**2
    )
    assert value == pytest.approx(model.evidence, abs=1e-5)


def test_the_shares_are_those_of_the_kernel():
    points, rewards, columns = tables(lambda x, a, generator: (a - 1.0) * x[0] + 0.3 * generator.normal())
    model = MixedSample(points, rewards, columns, True, None).fit(None)
    shares = dict(model.shares)
    total = model.kernel.diag(points).mean() + model.noise
    assert shares["noise"] == pytest.approx(model.noise / total, rel=0.15)


def test_evidence_is_gained_over_a_model_without_weights():
    points, rewards, columns = tables(bent)
    sample = MixedSample(points, rewards, columns, True, None)
    model = sample.fit(None)
    alike = replace(model, warp=NO_WARP)
    assert sample.evidence_gained(model, model) == pytest.approx(0.0, abs=1e-8)
    assert sample.evidence_gained(model, alike) > 10.0


def test_a_variable_of_several_columns_has_one_weight():
    generator = np.random.default_rng(0)
    levels = generator.integers(4, size=300)
    contexts = np.hstack([np.eye(4)[levels], generator.normal(size=(300, 5))])
    rewards = np.array([0.0, 3.0, -1.0, 1.0])[levels] * np.sin(2.0 * contexts[:, 4])
    rewards += 0.1 * generator.normal(size=300)
    points = np.hstack([contexts, np.ones((300, 1)), np.zeros((300, 1))])
    model = MixedSample(points, rewards, Columns(9, (0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7)), True, None).fit(None)
    assert len(model.warp.contexts) == 6
    assert model.warp.contexts[0] > np.median(model.warp.contexts[1:])
    lengths = np.array(model.relative_lengthscales(11))
    assert np.ptp(lengths[:4]) == 0.0


def test_many_columns_that_do_not_matter_cost_little():
    """Three arms, twelve columns, of which one decides; nothing set."""
    generator, policy, right = np.random.default_rng(0), kb.ek_ucb(seed=0), 0
    for step in range(400):
        context = generator.normal(size=12)
        best = int(np.digitize(context[0], [-0.5, 0.5]))
        decision = policy.select(context, np.eye(3))
        policy.update(context, decision.action, float(decision.index == best))
        right += (decision.index == best) * (step >= 200)
    assert right / 200 > 0.9


def diagonal(seed, moves, kinds=10**6, count=150):
    """The model of rewards with a narrow ridge along actions that the context moves."""
    generator = np.random.default_rng(seed)
    contexts, actions = generator.random((count, 1)), generator.integers(kinds, size=(count, 1)) / kinds
    rewards = np.exp(-0.5 * ((actions - moves * contexts) / 0.05) ** 2)[:, 0] + 0.05 * generator.normal(size=count)
    return MixedSample(np.hstack([contexts, actions]), rewards, Columns(1), False, None).fit(None)


@pytest.mark.parametrize("kinds", [50, 10**6])
def test_contexts_that_move_what_described_actions_do_are_seen_to(kinds):
    """Also where actions return and could have something of their own."""
    shear = diagonal(0, 0.8, kinds).kernel.shear
    assert shear is not None
    assert shear.slopes.item() == pytest.approx(0.8, abs=0.05)


@pytest.mark.parametrize("seed", range(3))
def test_contexts_that_do_not_matter_move_nothing(seed):
    shear = diagonal(seed, 0.0).kernel.shear
    assert shear is None or abs(shear.slopes.item()) < 0.05


def test_a_diagonal_is_learned_from_few_rounds():
    """Step Diagonal with nothing set: with one lengthscale for each factor the regret was above 55 after 500 rounds."""
    regrets = [
        kb.run(kb.ek_ucb(seed=seed), kb.environments.StepDiagonal(), horizon=500, seed=seed).regret[-1]
        for seed in range(3)
    ]
    assert np.mean(regrets) < 55.0


def plant(moves, sensors=6, count=100, seed=0, fixed=False):
    """The model of a peak in a box of three settings, which the first sensor moves."""
    generator = np.random.default_rng(seed)
    settings, contexts = generator.random((count, 3)), generator.normal(size=(count, sensors))
    if fixed:
        settings[:, 2] = 0.5
    offsets = settings[:, :2] - 0.4 - moves * contexts[:, :1]
    rewards = np.exp(-(offsets**2).sum(axis=1) / 0.05) + 0.1 * generator.normal(size=count)
    low, high = ((0.0, 0.0, 0.5), (1.0, 1.0, 0.5)) if fixed else ((0.0,) * 3, (1.0,) * 3)
    return MixedSample(
        np.hstack([contexts, settings]),
        rewards,
        Columns(sensors, None, (low, high, tuple(range(len(low))))),
        False,
        None,
    ).fit(None)


@pytest.mark.parametrize("seed", range(3))
def test_sensors_that_do_not_matter_move_no_peak(seed):
    """Eighteen small moves cost next to nothing each, and fitted noise: the error of the surface was a third larger."""
    assert plant(0.0, seed=seed).kernel.shear is None


@pytest.mark.parametrize("fixed", [False, True])
def test_a_sensor_that_moves_a_peak_is_seen_to_but_moves_no_setting_that_is_fixed(fixed):
    shear = plant(0.1, fixed=fixed).kernel.shear
    assert shear is not None
    assert shear.slopes[:2, 0] == pytest.approx(0.1, abs=0.05)
    assert not fixed or (shear.slopes[2] == 0.0).all()
