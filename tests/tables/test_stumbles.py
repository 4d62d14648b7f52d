"""What a new user stumbled on with the guide alone, and is now told or spared."""

import numpy as np
import pytest

import kernel_bandits as kb

COLUMNS = {"age": kb.Numeric(), "since": kb.Date(missing=True)}
PRICED = {"price": kb.Numeric(), "brand": kb.Categorical()}
ROW = {"age": 34.0, "since": "2024-05-01"}


def policy_of(actions):
    return kb.ek_ucb(kb.Gaussian(1.0), features=kb.Features(COLUMNS, actions), seed=0)


def test_an_arm_that_came_later_keeps_the_features_it_was_first_learned_with(tmp_path):
    policy = policy_of(kb.Arms({"red": {"price": 1.0, "brand": "a"}}, columns=PRICED))
    with pytest.raises(kb.InputError, match="features of the arm 'green', which are not known"):
        policy.select(ROW, ["red", "green"])
    policy.update(ROW, {"arm": "green", "price": 2.0, "brand": "b"}, 1.0)
    policy.update(ROW, {"arm": "green", "price": 5.0, "brand": "c"}, 0.0)
    policy.save(tmp_path / "policy")
    for known in (policy, kb.load(tmp_path / "policy")):
        by_name = known.encode(ROW, ["green"])[1]
        np.testing.assert_array_equal(by_name, known.encode(ROW, {"green": {"price": 2.0, "brand": "b"}})[1])
        assert known.codec.choices.row_of("green") == {"arm": "green", "price": 2.0, "brand": "b"}
        # all known arms are on offer, the new one among them
        assert known.predict(ROW).mean.shape == (2,)


def test_a_log_of_later_arms_is_learned_as_one_by_one():
    arms = kb.Arms({"red": {"price": 1.0, "brand": "a"}}, columns=PRICED)
    one, many = policy_of(arms), policy_of(arms)
    played = [{"arm": "green", "price": 2.0, "brand": "b"}, "green", "red"]
    for action in played:
        one.update(ROW, action, 1.0)
    many.update_many([ROW] * 3, played, [1.0] * 3)
    np.testing.assert_array_equal(one.inner.observed_points, many.inner.observed_points)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda policy: policy.update(ROW, 0, 1.0), r"which is text, got 0; pass decision\.arm, not its index"),
        (lambda policy: policy.select(ROW, ["red", None]), "row 1: expected the name of an arm, or a row with"),
        (lambda policy: policy.select(ROW, [["red"]]), r"row 0: expected the name of an arm, .* got \['red'\]"),
        (lambda policy: policy.select({**ROW, "id": 3}), "unknown column 'id'; leave it out, or describe it. Expected"),
        (lambda policy: policy.select({**ROW, "since": ""}), "got ''; for a gap write None"),
        (lambda policy: policy.select({**ROW, "since": 1714557600}), "convert seconds since 1970"),
    ],
)
def test_errors_say_what_to_do(call, words):
    with pytest.raises(kb.InputError, match=words):
        call(policy_of(["red", "blue"]))


def test_numbers_may_name_arms_where_others_do():
    policy = policy_of([1, 2])
    policy.update(ROW, 3, 1.0)
    assert policy.arms == (1, 2, 3)
    assert policy_of(["red"]).select(ROW, ["red", "4"]).arm in ("red", "4")


def test_diagnostics_speak_of_variables_and_not_of_columns():
    policy = kb.ek_ucb(features=kb.Features(COLUMNS, ["red", "blue"]), seed=0)
    generator = np.random.default_rng(0)
    for _ in range(40):
        row = {"age": float(generator.normal()), "since": None}
        policy.update(policy.select(row), reward=row["age"])
    text = str(policy.diagnostics())
    assert "lengthscales" not in text
    assert "relevance: " in text


def test_columns_of_one_name_on_both_sides_keep_their_levels_apart():
    columns = {"arm": kb.Categorical(), "kind": kb.Categorical()}
    features = kb.Features(context=columns, actions={"kind": kb.Categorical()})
    policy = kb.k_ucb(kb.Gaussian(1.0), features=features, seed=0)
    policy.update({"arm": "left", "kind": "old"}, {"kind": "large"}, 1.0)
    levels = {"arm": ("left",), "kind (context)": ("old",), "kind (action)": ("large",)}
    assert policy.diagnostics().levels == levels
    # actions that are described have no arms, whatever a column is called
    assert policy.arms == ()
    policy = kb.k_ucb(kb.Gaussian(1.0), features=kb.Features(context=columns, actions=["red", "blue"]), seed=0)
    policy.update({"arm": "left", "kind": "old"}, "red", 1.0)
    levels = {"arm (context)": ("left",), "kind": ("old",), "arm (action)": ("red", "blue")}
    assert (policy.arms, policy.diagnostics().levels) == (("red", "blue"), levels)
