"""Pictures of a policy in a box: what they show is what the policy believes."""

import numpy as np
import pytest

import kernel_bandits as kb
from kernel_bandits.plots.process import replayed

BOX = kb.Box([150.0, 1.0], [250.0, 5.0], names=["temperature", "pressure"], units=["°C", "bar"])
KERNEL = 4.0 * kb.Matern([1.0, 60.0, 2.0])


def played(rounds=15, **options):
    policy = kb.ek_ucb(KERNEL, regularization=0.1, seed=0)
    if options:
        policy.constrained(**options)
    generator = np.random.default_rng(0)
    for _ in range(rounds):
        context, action = generator.random(1), BOX.sample(generator, 1)[0]
        outputs = {"outputs": {"purity": 1.0 - BOX.fractions(action[None])[0, 0]}} if options else {}
        policy.update(context, action, float(np.sin(action[1]) + 0.1 * generator.standard_normal()), **outputs)
    return policy


def meshes(figure):
    return {place.get_title(): place.collections[0].get_array() for place in figure.axes if place.get_title()}


def test_a_surface_shows_the_predictions_and_changes_nothing():
    policy = played()
    before = policy.generator.bit_generator.state
    figure = kb.plots.surface(policy, [0.5], BOX)
    assert policy.generator.bit_generator.state == before
    shown = meshes(figure)
    side = np.linspace(0, 1, 61)
    grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    prediction = policy.predict([0.5], BOX.at(grid))
    np.testing.assert_allclose(np.ravel(shown["expected reward"]), prediction.mean, atol=1e-9)
    np.testing.assert_allclose(np.ravel(shown["standard deviation"]), prediction.std, atol=1e-9)
    assert figure.axes[0].get_xlabel() == "temperature (°C)"


def test_a_line_goes_through_the_action_asked_for():
    policy, through = played(), [200.0, 2.0]
    figure = kb.plots.surface(policy, [0.5], BOX, axes=["pressure"], through=through)
    line = figure.axes[0].lines[0]
    actions = np.column_stack([np.full(len(line.get_xdata()), 200.0), line.get_xdata()])
    np.testing.assert_allclose(line.get_ydata(), policy.predict([0.5], actions).mean, atol=1e-9)
    assert "temperature (°C) = 200" in figure.get_suptitle()


def test_constraints_have_panels():
    constraint = kb.Above(0.2, 0.1 * kb.Matern([1.0, 60.0, 2.0]), regularization=0.01)
    policy = played(constraints={"purity": constraint}, if_unsafe="flag")
    titles = list(meshes(kb.plots.surface(policy, [0.5], BOX)))
    assert titles[-1] == "purity: mean − 2 std, limit 0.2"


def test_histories_and_calibrations():
    policy = played(30)
    figure = kb.plots.history(policy, BOX)
    np.testing.assert_allclose(figure.axes[0].lines[0].get_ydata(), policy.posterior.observed_rewards)
    assert [place.get_ylabel() for place in figure.axes] == ["reward", "temperature (°C)", "pressure (bar)"]
    means, stds, rewards = replayed(policy)
    exact = kb.k_ucb(KERNEL, regularization=0.1)
    points = policy.observed_points
    exact.update_many(points[:20, :1], points[:20, 1:], rewards[:20])
    prediction = exact.predict(points[20, :1], points[20:21, 1:])
    assert means[20] == pytest.approx(prediction.mean[0])
    assert stds[20] ** 2 == pytest.approx(prediction.std[0] ** 2 + 0.1)
    assert len(kb.plots.calibration(policy).axes) == 2


def test_a_calibration_sees_rewards_as_the_policy_does():
    policy, generator = kb.ek_ucb(seed=0), np.random.default_rng(0)
    for t in range(60):
        action = BOX.sample(generator, 1)[0]
        reward = np.sin(action[1]) + 0.1 * generator.standard_normal() + (1e12 if t % 20 == 10 else 0.0)
        policy.update(generator.random(1), action, float(reward))
    means, stds, rewards = replayed(policy)
    assert rewards.max() < 100.0
    ordinary = np.delete(np.arange(60), [10, 30, 50])
    assert np.abs(means[ordinary]).max() < 10.0
    assert stds.max() < 10.0


def test_a_calibration_knows_the_noise_of_weighted_rewards():
    policy, generator = kb.k_ucb(KERNEL, regularization=0.1, seed=0), np.random.default_rng(0)
    weights = generator.uniform(0.1, 10.0, 25)
    for weight in weights.tolist():
        action = BOX.sample(generator, 1)[0]
        policy.update([0.5], action, float(np.sin(action[1])), weight=weight)
    stds = replayed(policy)[1]
    points, rewards = policy.observed_points, policy.posterior.observed_rewards
    before = kb.k_ucb(KERNEL, regularization=0.1)
    for point, reward, weight in zip(points[:20], rewards[:20], weights[:20], strict=True):
        before.update(point[:1], point[1:], float(reward), weight=float(weight))
    std = before.predict(points[20, :1], points[20:21, 1:]).std[0]
    assert stds[20] ** 2 == pytest.approx(std**2 + 0.1 / weights[20])


def test_a_surface_over_a_wider_box_leaves_the_units_of_the_policy():
    generator = np.random.default_rng(0)
    policy, other = kb.ek_ucb(seed=0), kb.ek_ucb(seed=0)
    for _ in range(40):
        context, reward = generator.random(1), float(generator.standard_normal())
        for each in (policy, other):
            each.update(context, each.select(context, BOX).action, reward)
        kb.plots.surface(policy, [0.5], kb.Box([100.0, 0.0], [900.0, 50.0]), axes=[0])
    np.testing.assert_array_equal(policy.observed_points, other.observed_points)


def test_a_policy_over_a_table_is_drawn_in_the_units_of_the_table():
    columns = {"pressure": kb.Numeric(range=(1.0, 5.0)), "temperature": kb.Numeric(range=(100.0, 300.0))}
    policy = kb.ek_ucb(kb.Matern(0.7), features=kb.Features({"x": kb.Numeric()}, columns), seed=0)
    generator, settings, rewards = np.random.default_rng(0), [], []
    for _ in range(12):
        decision = policy.ask({"x": float(generator.random())}, BOX)
        settings.append([decision.action["temperature"], decision.action["pressure"]])
        rewards.append(float(np.sin(decision.action["pressure"])))
        policy.tell(decision, rewards[-1])
    row = {"x": 0.5}
    figure = kb.plots.surface(policy, row, BOX)
    side = np.linspace(0, 1, 61)
    grid = BOX.at(np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2))
    prediction = policy.predict(row, [{"temperature": t, "pressure": p} for t, p in grid.tolist()])
    np.testing.assert_allclose(np.ravel(meshes(figure)["expected reward"]), prediction.mean, atol=1e-9)
    following = policy.preview(row, BOX).action
    star = figure.axes[0].lines[-1]
    found = [*star.get_xdata(), *star.get_ydata()]
    np.testing.assert_allclose(found, [following["temperature"], following["pressure"]])
    drawn = [axis.lines[0].get_ydata() for axis in kb.plots.history(policy, BOX).axes]
    np.testing.assert_allclose(drawn, [rewards, *np.transpose(settings)], atol=1e-9)
    assert len(kb.plots.calibration(policy).axes) == 2
    np.testing.assert_array_equal(replayed(policy), replayed(policy.inner))


def test_bad_arguments_are_explained():
    with pytest.raises(kb.InputError, match="temperature"):
        kb.plots.surface(played(), [0.5], BOX, axes=["humidity"])
    with pytest.raises(kb.InputError, match="posterior"):
        kb.plots.history(kb.uniform())
    with pytest.raises(kb.InputError, match="no rewards"):
        kb.plots.history(kb.ek_ucb(KERNEL))
