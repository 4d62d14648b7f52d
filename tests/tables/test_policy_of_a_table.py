"""A policy over a table has every public method of a policy over arrays, and each does the same to the same numbers."""

import inspect
import json

import numpy as np
import pytest

import kernel_bandits as kb
from kernel_bandits.boxes.constraints import Guards
from kernel_bandits.policy.diagnostics import Diagnostics, Residuals
from kernel_bandits.policy.outlook import Outlook
from kernel_bandits.policy.policy import Choice, Explanation, Policy
from kernel_bandits.posterior.base import Posterior, Prediction
from kernel_bandits.tables import NamedDecision, NamedDiagnostics, NamedExplanation

NAMES = {name for name in dir(Policy) if not name.startswith("_")}
# What a policy over a table has no use for, and why.
ONLY_OVER_ARRAYS = {
    **dict.fromkeys(("choose", "choose_many", "shortlist", "draw_in_box", "on_reseed"), "hooks: the rule is inside"),
    **dict.fromkeys(("box_of", "design", "due_row"), "hooks: the rule is inside"),
    **dict.fromkeys(("argmax", "will_draw"), "what hooks call"),
    **dict.fromkeys(("saved", "restore_saved"), "what a file holds of the policy inside"),
    "group_columns": "the preset says it to the policy inside, from the description of the table",
    "learn_sums": "sums are in the coordinates of encoded points, and rows cannot be added up",
    "require_unlearned": "update says it of its own decisions",
}
# Arguments that a policy over a table knows from its description.
KNOWN = {"export": {"columns", "variables"}, "explain": {"box"}}

ARMS = np.eye(2, 10)
QUERIES = np.random.default_rng(0).random((20, 11))
KERNEL = kb.Gaussian(0.7)


def build(features=None):
    policy = kb.ek_ucb(KERNEL, exploration_floor=0.3, features=features, seed=4)
    policy.constrained({"heat": kb.Below(1.0, KERNEL)}, if_unsafe="flag")
    return policy


def twins():
    """The same policy over a table and over arrays, after the same rounds, some of which await their rewards."""
    table, arrays = build(kb.Features({"x": kb.Numeric()}, ["red", "blue"])), build()
    for number in range(30):
        x = float(np.sin(number))
        decision, expected = table.select({"x": x}), arrays.select([x], ARMS)
        table.update(decision, reward=x * decision.index, outputs={"heat": x})
        arrays.update(expected.context, expected.action, x * expected.index, outputs={"heat": x})
    for x in (0.1, 0.2, 0.3):
        table.ask({"x": x})
        arrays.ask([x], ARMS)
    return table, arrays


def exported(policy, folder):
    path = folder / "policy.json"
    policy.export(path)
    return without_names(json.loads(path.read_text()))


def without_names(value):
    if not isinstance(value, dict):
        return value
    return {key: without_names(item) for key, item in value.items() if key not in ("columns", "variables")}


def loaded(policy, folder):
    policy.save(folder / "policy.kb")
    return plain(kb.load(folder / "policy.kb"))


def plain(value):
    """What can be compared: a policy by what it knows and draws, names by what they encode."""
    match value:
        case NamedDecision():
            return value.encoded
        case NamedDiagnostics():
            return plain(value.model)
        case NamedExplanation():
            rounds = [(past.contribution, past.reward) for past in value.rounds]
            return value.mean, value.exploration, rounds, value.rest, value.prior_mean
        case Explanation():
            rounds = list(zip(value.contributions.tolist(), value.rewards.tolist(), strict=True))
            return value.mean, value.exploration, rounds, value.rest, value.prior_mean
        case kb.TablePolicy():
            return plain(value.inner)
        case Policy():
            drawn = value.generator.bit_generator.state, value.exploration.generator.bit_generator.state
            return plain(value.posterior), plain(value.guards), value.pending, value.issued, value.round_index, drawn
        case Guards():
            return list(value.constraints), plain(value.predict(QUERIES))
        case Posterior():
            return plain(value.predict(QUERIES))
        case Choice():
            return value.index, value.mean, value.std, value.upper_bound, value.propensity, value.safe
        case Prediction():
            return value.mean.tolist(), value.std.tolist()
        case Diagnostics() | Residuals():
            return repr(value)
        case Outlook():
            return plain(value.best), str(value), value.expected_after, value.probability
        case dict():
            return {key: plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case np.ndarray():
            return value.tolist()
    return value


ROW, ROWS, VECTOR, VECTORS = {"x": 0.4}, [{"x": 0.4}, {"x": -0.3}], [0.4], [[0.4], [-0.3]]
BLUE, MASK = {"red": False}, [False, True]
HEAT, HEATS = {"heat": 0.2}, {"heat": [0.2, np.nan]}
WEIGHTED = {"weight": 3.0, "outputs": HEAT}
# Each method over the table and over arrays; a property is read.
CALLS = {
    "select": (lambda t, _: t.select(ROW, mask=BLUE), lambda a, _: a.select(VECTOR, ARMS, MASK)),
    "preview": (lambda t, _: t.preview(ROW, ["blue"]), lambda a, _: a.preview(VECTOR, ARMS[1:])),
    "ask": (lambda t, _: t.ask(ROW, mask=BLUE), lambda a, _: a.ask(VECTOR, ARMS, MASK)),
    "best": (lambda t, _: t.best(ROW, mask=BLUE), lambda a, _: a.best(VECTOR, ARMS, MASK)),
    "outlook": (lambda t, _: t.outlook(ROW, more_than=0.1), lambda a, _: a.outlook(VECTOR, ARMS, more_than=0.1)),
    "select_many": (lambda t, _: t.select_many(ROWS), lambda a, _: a.select_many(VECTORS, ARMS)),
    "ask_many": (lambda t, _: t.ask_many(ROWS), lambda a, _: a.ask_many(VECTORS, ARMS)),
    "await_many": (lambda t, _: t.await_many(ROWS, ["blue", "red"]), lambda a, _: a.await_many(VECTORS, ARMS[::-1])),
    "update": (
        lambda t, _: t.update(ROW, "blue", 0.7, **WEIGHTED),
        lambda a, _: a.update(VECTOR, ARMS[1], 0.7, **WEIGHTED),
    ),
    "update_many": (
        lambda t, _: t.update_many(ROWS, ["blue", "red"], [0.7, 0.1], outputs=HEATS),
        lambda a, _: a.update_many(VECTORS, ARMS[::-1], [0.7, 0.1], outputs=HEATS),
    ),
    "tell": (
        lambda t, _: t.tell(1, 0.6, noise_variance=0.2, outputs=HEAT),
        lambda a, _: a.tell(1, 0.6, noise_variance=0.2, outputs=HEAT),
    ),
    "tell_many": (
        lambda t, _: t.tell_many([2, 0], [0.6, 0.2], outputs=HEATS),
        lambda a, _: a.tell_many([2, 0], [0.6, 0.2], outputs=HEATS),
    ),
    "describe": (lambda t, _: t.describe(ROWS), lambda a, _: a.describe(VECTORS)),
    "expire": (lambda t, _: t.expire(1), lambda a, _: a.expire(1)),
    "expire_before": (lambda t, _: t.expire_before(2), lambda a, _: a.expire_before(2)),
    "predict": (lambda t, _: t.predict(ROW), lambda a, _: a.predict(VECTOR, ARMS)),
    "predict_outputs": (lambda t, _: t.predict_outputs(ROW), lambda a, _: a.predict_outputs(VECTOR, ARMS)),
    "explain": (
        lambda t, _: t.explain(t.preview(ROW), count=3),
        lambda a, _: a.explain(a.preview(VECTOR, ARMS), count=3),
    ),
    "diagnostics": (lambda t, _: t.diagnostics(), lambda a, _: a.diagnostics()),
    "export": (exported, exported),
    "save": (loaded, loaded),
    "reseed": (lambda t, _: t.reseed(9), lambda a, _: a.reseed(9)),
    "reseed_choices": (lambda t, _: t.reseed_choices(9), lambda a, _: a.reseed_choices(9)),
}


def test_what_it_leaves_out_is_named_with_a_reason():
    missing = {name for name in NAMES if not hasattr(kb.TablePolicy, name)}
    assert missing == set(ONLY_OVER_ARRAYS)
    assert all(ONLY_OVER_ARRAYS.values())


@pytest.mark.parametrize("name", sorted(CALLS))
def test_a_method_takes_the_same_arguments(name):
    expected, found = (inspect.signature(getattr(one, name)).parameters for one in (Policy, kb.TablePolicy))
    assert set(expected) - set(found) == KNOWN.get(name, set())


@pytest.mark.parametrize("name", sorted(NAMES - set(ONLY_OVER_ARRAYS)))
def test_it_does_what_the_policy_over_arrays_does(name, tmp_path):
    table, arrays = twins()
    if name == "awaited":
        found = {key: table.encode(row, [action]) for key, (row, action) in table.awaited.items()}
        expected = {key: (context, action[None, :]) for key, (context, action) in arrays.awaited.items()}
    elif isinstance(getattr(Policy, name), property):
        found, expected = getattr(table, name), getattr(arrays, name)
    else:
        of_table, of_arrays = CALLS[name]
        found, expected = of_table(table, tmp_path), of_arrays(arrays, tmp_path)
    assert plain(found) == plain(expected)
    assert plain(table) == plain(arrays)
