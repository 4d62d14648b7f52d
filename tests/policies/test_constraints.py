"""Constraints: the actions they leave, what they promise, and equality with a dense computation."""

import numpy as np
import pytest

import kernel_bandits as kb

REWARD, OUTPUT = kb.Matern(0.4), 4.0 * kb.Matern(0.4)
GRID = np.linspace(0, 1, 21)[:, None]
SAFE = [[0.1]]


def build(preset=kb.ek_ucb, seed=0, **options):
    limits = {"constraints": {"heat": kb.Below(1.0, OUTPUT, regularization=0.01)}, "safe_actions": SAFE}
    limits |= {name: options.pop(name) for name in ("constraints", "safe_actions", "if_unsafe") if name in options}
    dictionary = None if preset is kb.k_ucb else options.get("dictionary", kb.Kors())
    policy = preset(REWARD, regularization=0.05, seed=seed, **options)
    return policy.constrained(**limits, dictionary=dictionary)


def heat(context, action):
    return float(3.0 * action[0] ** 2 + 0.3 * context[0] - 0.5)


def reward(context, action):
    return float(action[0] + 0.1 * context[0])


def play(policy, rounds, actions=GRID, seed=0, late=False):
    generator, violations, decisions = np.random.default_rng(seed), 0, []
    for _ in range(rounds):
        context = generator.random(1)
        decision = policy.ask(context, actions) if late else policy.select(context, actions)
        noise, other = 0.1 * generator.standard_normal(2)
        outputs = {"heat": heat(context, decision.action) + other}
        violations += heat(context, decision.action) > 1.0
        if late:
            policy.tell(decision.id, reward(context, decision.action) + noise, outputs=outputs)
        else:
            policy.update(context, decision.action, reward(context, decision.action) + noise, outputs=outputs)
        decisions.append(decision)
    return violations, decisions


@pytest.mark.parametrize("preset", [kb.ek_ucb, kb.k_ucb])
@pytest.mark.parametrize("late", [False, True])
def test_the_allowed_actions_are_those_of_a_dense_computation(preset, late):
    policy = build(preset, **({} if preset is kb.k_ucb else {"dictionary": kb.Kors(oversampling=1e9)}))
    _, decisions = play(policy, 25, late=late)
    points = np.array([[*decision.context, *decision.action] for decision in decisions])
    generator = np.random.default_rng(0)
    outputs = []
    for point in points:
        generator.random(1)
        _, other = 0.1 * generator.standard_normal(2)
        outputs.append(heat(point[:1], point[1:]) + other)
    context = np.array([0.3])
    places = np.column_stack([np.full(len(GRID), 0.3), GRID])
    solved = np.linalg.solve(OUTPUT(points) + 0.01 * np.eye(len(points)), OUTPUT(points, places))
    mean = 1.0 + solved.T @ (np.array(outputs) - 1.0)
    std = np.sqrt(OUTPUT.diag(places) - (OUTPUT(points, places) * solved).sum(axis=0))
    prediction = policy.predict_outputs(context, GRID)["heat"]
    np.testing.assert_allclose(prediction.mean, mean, atol=1e-6)
    np.testing.assert_allclose(prediction.std, std, atol=1e-6)
    allowed, _ = policy.guards.allowed(places)
    np.testing.assert_array_equal(allowed, (mean + 2.0 * std <= 1.0) | np.isclose(GRID[:, 0], 0.1))
    assert 2 < allowed.sum() < len(GRID)


@pytest.mark.parametrize("actions", [GRID, kb.Box(0.0, 1.0)], ids=["rows", "box"])
def test_violations_are_rare_and_the_best_safe_action_is_found(actions):
    violations, shortfall = 0, []
    for seed in range(3):
        count, decisions = play(build(seed=seed), 80, actions, seed)
        violations += count
        for decision in decisions[-20:]:
            context = decision.context
            best = max(reward(context, action) for action in GRID if heat(context, action) <= 1.0)
            shortfall.append(best - reward(context, decision.action))
        assert all(decision.safe for decision in decisions)
    # Φ(−2) = 2.3 % of 240 plays, all of them at the boundary, would be 5.5
    assert violations <= 5
    assert np.mean(shortfall) < 0.12


def test_several_constraints_all_hold():
    policy = build(
        constraints={
            "heat": kb.Below(1.0, OUTPUT, regularization=0.01),
            "flow": kb.Above(-0.5, OUTPUT, regularization=0.01),
        },
        safe_actions=[[0.4]],
    )
    generator = np.random.default_rng(0)
    for _ in range(60):
        decision = policy.select([0.5], GRID)
        outputs = {"heat": heat([0.5], decision.action), "flow": 2.0 * decision.action[0] - 0.7}
        policy.update([0.5], decision.action, generator.standard_normal(), outputs=outputs)
        assert outputs["heat"] <= 1.0
        assert outputs["flow"] >= -0.5


def test_when_nothing_is_known_to_be_safe():
    with pytest.raises(kb.UnavailableError, match="safe_actions="):
        build(safe_actions=None).select([0.5], GRID)
    flagged = build(safe_actions=None, if_unsafe="flag")
    decision = flagged.select([0.5], GRID)
    assert decision.safe is False
    flagged.update([0.5], decision.action, 0.0, outputs={"heat": -2.0})
    nearby = flagged.select([0.5], decision.action[None, :])
    assert nearby.safe is True
    assert flagged.select([0.5], kb.Box(0.0, 1.0)).safe is True


def test_outputs_are_checked_before_anything_changes():
    policy = build()
    for outputs, complaint in ((None, "outputs"), ({"cold": 1.0}, "cold"), ({"heat": np.nan}, "finite")):
        with pytest.raises(kb.InputError, match=complaint):
            policy.update([0.5], [0.1], 0.0, outputs=outputs)
    assert policy.round_index == 0
    assert policy.guards.posteriors["heat"].round_index == 0
    policy.update([0.5], [0.1], 0.0, outputs={})
    assert policy.round_index == 1
    with pytest.raises(kb.InputError, match="no constraints"):
        kb.ek_ucb(REWARD).update([0.5], [0.1], 0.0, outputs={"heat": 1.0})
    with pytest.raises(kb.InputError, match="by the name of an output"):
        kb.ek_ucb(REWARD).constrained(kb.Below(1.0, OUTPUT))
    with pytest.raises(kb.InputError, match="limit"):
        kb.Below(np.inf, OUTPUT)


def test_a_constrained_policy_is_saved_whole(tmp_path):
    policy = build()
    play(policy, 20)
    policy.save(tmp_path / "policy.kb")
    other = kb.load(tmp_path / "policy.kb")
    for one, two in zip(play(policy, 10, seed=4)[1], play(other, 10, seed=4)[1], strict=True):
        assert one.to_dict() == two.to_dict()


def test_logs_and_batches_take_outputs():
    one_by_one, together = build(), build()
    generator = np.random.default_rng(3)
    contexts, actions = generator.random((6, 1)), 0.3 * generator.random((6, 1))
    rewards = [reward(context, action) for context, action in zip(contexts, actions, strict=True)]
    outputs = np.array([heat(context, action) for context, action in zip(contexts, actions, strict=True)])
    outputs[2] = np.nan
    for context, action, value, output in zip(contexts, actions, rewards, outputs, strict=True):
        one_by_one.update(context, action, value, outputs={} if np.isnan(output) else {"heat": output})
    together.update_many(contexts, actions, rewards, outputs={"heat": outputs})
    for policy in (one_by_one, together):
        batch = policy.ask_many(contexts[:3], GRID)
        values = [reward(each.context, each.action) for each in batch]
        measured = [heat(each.context, each.action) for each in batch]
        if policy is together:
            policy.tell_many(batch, values, outputs={"heat": measured})
        else:
            for each, value, output in zip(batch, values, measured, strict=True):
                policy.tell(each, value, outputs={"heat": output})
    expected, found = (policy.predict_outputs([0.4], GRID)["heat"] for policy in (one_by_one, together))
    np.testing.assert_array_equal(found.mean, expected.mean)
    np.testing.assert_array_equal(found.std, expected.std)
    np.testing.assert_array_equal(together.predict([0.4], GRID).mean, one_by_one.predict([0.4], GRID).mean)


def test_bad_outputs_of_a_batch_change_nothing():
    policy = build()
    play(policy, 3)
    batch = policy.ask_many(np.zeros((2, 1)), GRID)
    before = policy.predict_outputs([0.4], GRID)["heat"]
    for outputs in ({"heat": [0.1]}, {"heat": [0.1, np.inf]}, {"cold": [0.1, 0.2]}, [0.1, 0.2], None):
        with pytest.raises(kb.InputError, match="outputs"):
            policy.tell_many(batch, [1.0, 2.0], outputs=outputs)
    with pytest.raises(kb.InputError, match="outputs"):
        policy.update_many(np.zeros((2, 1)), GRID[:2], [1.0, 2.0], outputs={"heat": [0.1, np.inf]})
    assert len(policy.pending) == 2
    assert policy.round_index == 3
    np.testing.assert_array_equal(policy.predict_outputs([0.4], GRID)["heat"].mean, before.mean)
    policy.tell_many(batch, [1.0, 2.0], outputs={})
    assert policy.pending == ()
    with pytest.raises(kb.InputError, match="no constraints"):
        kb.ek_ucb(REWARD, seed=0).update_many([[0.0]], [[0.0]], [1.0], outputs={"heat": [1.0]})


def test_safe_actions_have_the_columns_of_what_is_on_offer():
    box = kb.Box({"heat": kb.Range(0.0, 1.0), "nozzle": ["round", "flat"]})
    policy = kb.ek_ucb(seed=0).constrained({"pressure": kb.Below(1.0, kb.Matern(0.5))}, safe_actions=[[0.2]])
    for offered in (box, box.sample(np.random.default_rng(0), 4)):
        with pytest.raises(kb.InputError, match=r"safe_actions: expected 3 columns, .* got 1; .* box\.encode"):
            policy.ask([], offered)
