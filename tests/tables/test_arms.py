"""Arms by name: with features and without, that appear and disappear."""

import json

import numpy as np
import pytest

import kernel_bandits as kb

KERNEL = kb.Gaussian(1.0)


def build(actions, seed=0, context=None, **options):
    features = kb.Features({"x": kb.Numeric()} if context is None else context, actions)
    return kb.TablePolicy(kb.ek_ucb(KERNEL, seed=seed, **options), features)


def test_a_decision_names_its_arm_and_knows_its_row():
    policy = build(kb.Arms(["red", "blue", "green"]))
    row = {"x": 0.3}
    decision = policy.select(row, ["green", "red"])
    assert decision.arm == decision.action == ["green", "red"][decision.index]
    row["x"] = 9.0
    assert decision.context == {"x": 0.3}
    policy.update(decision, reward=1.0)
    again = policy.select({"x": 0.3}, [decision.arm])
    assert again.mean > 0.8
    logged = json.loads(json.dumps(decision.to_dict()))
    assert logged["arm"] == decision.arm
    assert logged["context"] == {"x": 0.3}


def test_all_known_arms_are_on_offer_unless_some_are_named():
    policy = build(["red", "blue"])
    chosen = {build(["red", "blue"], seed).select({"x": 0.0}).arm for seed in range(20)}
    assert chosen == {"red", "blue"}
    policy.update({"x": 0.0}, "green", 5.0)
    assert policy.arms == ("red", "blue", "green")
    assert policy.select({"x": 0.0}).arm == "green"


def test_an_arm_that_appears_later_is_at_the_prior_and_explored():
    policy = build(["red", "blue"])
    for number in range(60):
        policy.update({"x": 0.0}, ["red", "blue"][number % 2], 0.1)
    prediction = policy.predict({"x": 0.0}, ["red", "green"])
    # unit vectors are √2 apart, so that k = e⁻¹ between arms; of the two others everything is known
    shared = np.exp(-1.0)
    assert prediction.mean[1] == pytest.approx(0.1 * 2 * shared / (1 + shared), abs=1e-3)
    assert prediction.std[1] == pytest.approx(np.sqrt(1 - 2 * shared**2 / (1 + shared)), abs=1e-3)
    assert prediction.std[0] < 0.1
    assert policy.select({"x": 0.0}, ["red", "blue", "green"]).arm == "green"


def test_an_arm_that_disappears_keeps_its_data():
    policy = build(["red", "blue"])
    for _ in range(5):
        policy.update({"x": 0.0}, "red", 1.0)
    for _ in range(5):
        policy.update(policy.select({"x": 0.0}, ["blue"]), reward=0.0)
    assert policy.predict({"x": 0.0}, ["red"]).mean[0] > 0.8


def test_beyond_the_room_arms_are_told_apart_all_the_same():
    policy = build(kb.Arms(["red"], room=12))
    names = ["red", *(f"arm {i}" for i in range(40))]
    for name in names:
        policy.update({"x": 0.0}, name, 1.0 if name == "arm 33" else 0.0)
    vectors = policy.encode({"x": 0.0}, names)[1]
    assert len(np.unique(vectors, axis=0)) == len(names)
    means = policy.predict({"x": 0.0}, names).mean
    assert names[int(means.argmax())] == "arm 33"
    assert policy.explain(policy.select({"x": 0.0}, ["arm 33"])).rounds[0].action == "arm 33"


def test_masks_by_name_and_by_position():
    policy = build(["red", "blue", "green"])
    for _ in range(10):
        assert policy.select({"x": 0.0}, mask={"red": False, "blue": False}).arm == "green"
        assert policy.select({"x": 0.0}, ["blue", "red"], mask=[False, True]).arm == "red"
        assert policy.select({"x": 0.0}, mask={"red": True, "green": False}).arm != "green"
        assert policy.ask({"x": 0.0}, mask={"red": False, "blue": False}).arm == "green"
    with pytest.raises(kb.InputError, match=r"mask: 'gren' is not on offer; did you mean 'green'\?"):
        policy.select({"x": 0.0}, mask={"gren": True})
    with pytest.raises(kb.InputError, match="mask: expected True or False for 'red'"):
        policy.select({"x": 0.0}, mask={"red": "no"})
    with pytest.raises(kb.InputError, match="at least one action"):
        policy.select({"x": 0.0}, mask={"red": False, "blue": False, "green": False})


OFFERS = {"red": {"price": 3.0, "brand": "a"}, "blue": {"price": 4.0, "brand": "b"}}
COLUMNS = {"price": kb.Numeric(), "brand": kb.Categorical(["a", "b"])}


def test_arms_with_features_are_both():
    policy = build(kb.Arms(OFFERS, columns=COLUMNS, room=1))
    _, vectors = policy.encode({"x": 0.0})
    np.testing.assert_array_equal(vectors, [[1, 0, 0, 3, 1, 0, 0], [0, 1, 0, 4, 0, 1, 0]])
    decision = policy.select({"x": 0.0}, ["blue"])
    assert (decision.arm, decision.action) == ("blue", "blue")
    cheap = {"blue": {"price": 1.0, "brand": "b"}, "green": {"price": 2.0, "brand": "c"}}
    _, vectors = policy.encode({"x": 0.0}, cheap)
    np.testing.assert_array_equal(vectors, [[0, 1, 0, 1, 0, 1, 0], [0, 0, 1, 2, 0, 0, 1]])
    decision = policy.select({"x": 0.0}, cheap, mask={"blue": False})
    assert decision.arm == "green"
    assert decision.action == {"arm": "green", "price": 2.0, "brand": "c"}
    policy.update(decision, reward=1.0)
    policy.update({"x": 0.0}, {"arm": "red", "price": 9.0, "brand": "a"}, 0.0)
    past = policy.explain(policy.select({"x": 0.0}, cheap, mask={"blue": False})).rounds[0]
    assert past.action == {"arm": "green", "price": 2.0, "brand": None}
    with pytest.raises(kb.InputError, match="expected the features of the arm 'yellow', which are not known"):
        policy.select({"x": 0.0}, ["red", "yellow"])
    with pytest.raises(kb.InputError, match="arm 'red', column 'price': expected a number"):
        policy.select({"x": 0.0}, {"red": {"price": "3", "brand": "a"}})


def test_features_alone_make_arms_alike():
    policy = build(kb.Arms(OFFERS, columns=COLUMNS, indicator=False))
    twins = {"one": OFFERS["red"], "other": OFFERS["red"]}
    _, vectors = policy.encode({"x": 0.0}, twins)
    np.testing.assert_array_equal(vectors[0], vectors[1])
    assert "arm" not in [group.kind for group in policy.features.layout.groups]
    decision = policy.select({"x": 0.0}, twins)
    assert decision.arm in twins
    policy.update(decision, reward=1.0)
    np.testing.assert_allclose(policy.predict({"x": 0.0}, twins).mean, 1.0, atol=0.15)
    assert set(policy.arms) == {"red", "blue", decision.arm}


def test_a_box_with_names_is_taken_by_name():
    actions = {"dose": kb.Numeric((0.0, 1.0)), "time": kb.Numeric((0.0, 100.0))}
    policy = build(actions)
    plain, named = kb.Box([0.1, 20.0], [0.2, 30.0]), kb.Box([20.0, 0.1], [30.0, 0.2], names=["time", "dose"])
    for box in (plain, named):
        action = policy.select({"x": 0.0}, box).action
        assert 0.1 <= action["dose"] <= 0.2
        assert 20.0 <= action["time"] <= 30.0
    with pytest.raises(kb.InputError, match="settings are named dose, time, got dose, hours"):
        policy.select({"x": 0.0}, kb.Box([0.1, 20.0], [0.2, 30.0], names=["dose", "hours"]))


def test_a_box_in_the_units_of_the_table():
    features = {"price": kb.Numeric(range=(10, 20)), "weight": kb.Numeric(logarithm=True)}
    policy = build(features)
    box = kb.Box([10.0, 1.0], [15.0, 100.0])
    decision = policy.select({"x": 0.0}, box)
    assert 10.0 <= decision.action["price"] <= 15.0
    assert 1.0 <= decision.action["weight"] <= 100.0 + 1e-9
    assert decision.encoded.action[0] == pytest.approx((decision.action["price"] - 10) / 10)
    policy.update(decision, reward=1.0)
    policy.tell(policy.ask({"x": 0.0}, box), 1.0)
    assert len(policy.select_many([{"x": 0.0}] * 2, box)) == 2
    with pytest.raises(kb.InputError, match=r"box of 2 settings \(price, weight\)"):
        policy.select({"x": 0.0}, kb.Box(0.0, 1.0))
    with pytest.raises(kb.InputError, match="smaller box"):
        policy.select({"x": 0.0}, box, mask=[True])
    with pytest.raises(kb.InputError, match="expected arms, got Box"):
        build(["red"]).select({"x": 0.0}, box)
    with pytest.raises(kb.InputError, match="'brand' of the box needs a column"):
        build(COLUMNS).select({"x": 0.0}, kb.Box([0.0, 0.0], [1.0, 1.0]))


def test_rewards_that_come_late():
    policy = build(["red", "blue"], context={"x": kb.Numeric(), "country": kb.Categorical()})
    decisions = [policy.ask({"x": 0.1 * i, "country": f"country {i}"}, ["red", "new"]) for i in range(6)]
    assert policy.pending == tuple(range(6))
    with pytest.raises(kb.InputError, match=r"decision 0 came from ask; write tell\(decision, reward\)"):
        policy.update(decisions[0], reward=1.0)
    policy.tell(decisions[1], 1.0)
    policy.tell(2, 1.0)
    policy.tell_many([decisions[3], 4], [1.0, 0.0])
    policy.expire(decisions[0])
    policy.update(decisions[0], reward=0.5)
    assert policy.expire_before(decisions[5]) == ()
    policy.expire(5)
    assert policy.round_index == 5
    levels = policy.diagnostics().levels
    assert levels["country"] == tuple(f"country {i}" for i in range(6))


def test_many_rows_are_learned_as_one_by_one():
    context = {"x": kb.Numeric(missing=True), "country": kb.Categorical()}
    rows = [{"x": None if i % 4 == 0 else float(i), "country": f"country {i % 7}"} for i in range(30)]
    arms = [f"arm {i % 5}" for i in range(30)]
    rewards = np.sin(np.arange(30.0))
    one, many, decided = (build(["arm 0"], context=context) for _ in range(3))
    for row, arm, reward in zip(rows, arms, rewards, strict=True):
        one.update(row, arm, reward)
    many.update_many(rows, arms, rewards)
    decisions = [decided.select(row, [arm]) for row, arm in zip(rows, arms, strict=True)]
    decided.update_many(decisions, rewards=rewards)
    for policy in (many, decided):
        np.testing.assert_array_equal(policy.inner.observed_points, one.inner.observed_points)
        assert policy.diagnostics().levels == one.diagnostics().levels


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda p: p.update({"x": 0.0}, "red"), "expected a row, an action and a reward"),
        (lambda p: p.update(p.select({"x": 0.0})), "reward: expected a number, got none"),
        (lambda p: p.update(p.select({"x": 0.0}), "red", 1.0), "a decision knows its action"),
        (lambda p: p.update_many([{"x": 0.0}], ["red"]), "rewards: expected one number for each round"),
        (lambda p: p.update_many([{"x": 0.0}], ["red", "red"], [0.0]), "got 1 and 2"),
        (lambda p: p.select({"x": 0.0}, "red"), r"expected a list of arms, got 'red'; write \['red'\]"),
        (lambda p: p.select({"x": 0.0}, []), "at least one row"),
        (lambda p: p.select({"x": 0.0}, ["red", None]), "actions, row 1"),
        (lambda p: p.select({"x": 0.0}, [{"arm": "red", "price": 3}]), "unknown column 'price'; these arms have no"),
        (lambda p: p.select({"x": 0.0}, [{"name": "red"}]), "the name of an arm under 'arm'"),
        (lambda p: p.explain(3), "expected what select or ask returned"),
        (lambda p: kb.TablePolicy(p.inner, 3), "features: expected kb.Features"),
        (lambda p: kb.TablePolicy(p.inner, p.features), "learned nothing yet"),
    ],
)
def test_misuse_is_explained(call, words):
    policy = build(["red", "blue"])
    policy.update({"x": 0.0}, "red", 1.0)
    with pytest.raises(kb.InputError, match=words):
        call(policy)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("red",), "names: expected a list of different names"),
        ((["red", "red"],), "'red' twice"),
        (([], None, 0), "at least one arm"),
        ((["red"], {"arm": kb.Numeric()}), "'arm' is the name of the arm itself"),
        ((["red"], {"price": kb.Numeric}), r"expected Numeric\(\), an instance"),
        (({"red": {"price": 1}},), "columns: expected a description"),
        (({"red": {"price": "1"}}, {"price": kb.Numeric()}), "arm 'red', row 0, column 'price'"),
        ((["red"], None, -1), "room: expected"),
        ((["red"], None, 8, False), "indicator"),
    ],
)
def test_arms_that_make_no_sense_are_refused(arguments, words):
    with pytest.raises(kb.InputError, match=words):
        kb.Arms(*arguments)


def test_policies_without_a_posterior_play_tables_too():
    policy = kb.TablePolicy(kb.uniform(seed=0), kb.Features({"x": kb.Numeric()}, ["red", "blue"]))
    policy.update(policy.select({"x": 0.0}), reward=1.0)
    assert policy.relevance() == {}
    with pytest.raises(kb.InputError, match="predict: Uniform has no posterior"):
        policy.predict({"x": 0.0})


def test_a_reward_that_was_told_is_not_learned_again():
    policy = build(["red", "blue"])
    told, expired, open_ = (policy.ask({"x": 0.1 * i}) for i in range(3))
    policy.tell(told, 1.0)
    policy.expire(expired)
    before = policy.inner.posterior.observed_rewards.tolist()
    with pytest.raises(kb.InputError, match=r"decision 0 was told already, with reward 1\.0; a reward counts once"):
        policy.update(told, reward=1.0)
    for bad in (told, open_):
        with pytest.raises(kb.InputError, match="update_many: decision"):
            policy.update_many([expired, bad], rewards=[0.5, 1.0])
    assert policy.inner.posterior.observed_rewards.tolist() == before
    # a late reward of one that has expired, and a second one of the same action in so many words
    policy.update(expired, reward=0.5)
    policy.update(told.context, told.action, 0.0)
    assert policy.inner.posterior.observed_rewards.tolist() == [*before, 0.5, 0.0]


def test_constraints_by_name():
    kernel = 4.0 * kb.Gaussian(1.0)
    policy = build(["mild", "strong"]).constrained({"pressure": kb.Below(5.0, kernel)}, safe_actions=["mild"])
    inner = build(["mild", "strong"]).inner
    arrays = policy.encode({"x": 0.0}, ["mild", "strong"])
    inner.constrained({"pressure": kb.Below(5.0, kernel)}, safe_actions=arrays[1][:1])
    for x, pressure in ((0.1, 3.0), (0.2, 3.5), (0.0, 2.5)):
        decision = policy.ask({"x": x}) if x == 0.2 else policy.select({"x": x})
        context, actions = policy.encode({"x": x})
        same = inner.select(context, actions)
        assert (decision.index, decision.mean, decision.safe) == (same.index, same.mean, same.safe)
        assert decision.to_dict()["safe"] is decision.safe
        if x == 0.2:
            policy.tell(decision, x, outputs={"pressure": pressure})
        else:
            policy.update(decision, reward=x, outputs={"pressure": pressure})
        inner.update(context, same.action, x, outputs={"pressure": pressure})
    found, expected = policy.predict_outputs({"x": 0.1})["pressure"], inner.predict_outputs(*policy.encode({"x": 0.1}))
    np.testing.assert_allclose(found.mean, expected["pressure"].mean, atol=1e-12)
    with pytest.raises(kb.InputError, match="outputs: expected"):
        policy.update({"x": 0.0}, "mild", 0.0)
    with pytest.raises(kb.InputError, match=r"safe_actions: expected arms .* name it in kb\.Arms"):
        build(["mild"]).constrained({"pressure": kb.Below(5.0, kernel)}, safe_actions=["new"])
    plain = kb.uniform(features=kb.Features({"x": kb.Numeric()}, kb.Arms(["mild"])), seed=0)
    with pytest.raises(kb.InputError, match="constrained: Uniform takes no constraints"):
        plain.constrained({"pressure": kb.Below(5.0, kernel)})
