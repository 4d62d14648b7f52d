"""Bad input to the parts around a policy: an error that says so, and a policy as it was."""

import copy

import numpy as np
import pytest
from faults.injection import fingerprint
from faults.scenes import KERNEL, POLICIES, constrained, table

import kernel_bandits as kb

BAD = (
    float("nan"),
    float("inf"),
    -(10**400),
    1e308,
    1e-320,
    None,
    "3",
    [],
    [[1], [2, 3]],
    {},
    object(),
    1j,
    np.full(2, np.nan),
    np.zeros((2, 2, 2)),
    [10**400],
    [None],
    np.array(["a", "b"]),
)
# rules that forget, that draw, and families of kernels
NAMES = ("discount", "discount, learned", "window", "wander", "inverse gap", "inverse gap, learned")
NAMES = (*NAMES, "thompson_sampling, learned", "no history, learned", "family_ucb")
CONTEXT, ACTIONS = np.array([0.1, 0.2]), np.array([[0.3], [0.5]])
CALLS = {
    "context of select": lambda p, bad: p.select(bad, ACTIONS),
    "actions of select": lambda p, bad: p.select(CONTEXT, bad),
    "mask of select": lambda p, bad: p.select(CONTEXT, ACTIONS, bad),
    "corner of a box": lambda p, bad: p.select(CONTEXT, kb.Box(bad, [1.0])),
    "context of update": lambda p, bad: p.update(bad, [0.3], 0.5),
    "action of update": lambda p, bad: p.update(CONTEXT, bad, 0.5),
    "reward of update": lambda p, bad: p.update(CONTEXT, [0.3], bad),
    "weight of update": lambda p, bad: p.update(CONTEXT, [0.3], 0.5, weight=bad),
    "noise of update": lambda p, bad: p.update(CONTEXT, [0.3], 0.5, noise_variance=bad),
    "outputs of update": lambda p, bad: p.update(CONTEXT, [0.3], 0.5, outputs=bad),
    "an output of update": lambda p, bad: p.update(CONTEXT, [0.3], 0.5, outputs={"pressure": bad}),
    "id of tell": lambda p, bad: p.tell(bad, 0.5),
    "reward of tell": lambda p, bad: p.tell(0, bad),
    "weight of tell": lambda p, bad: p.tell(0, 0.5, weight=bad),
    "ids of tell_many": lambda p, bad: p.tell_many(bad, [0.5]),
    "rewards of tell_many": lambda p, bad: p.tell_many([0], bad),
    "id of expire": lambda p, bad: p.expire(bad),
    "id of expire_before": lambda p, bad: p.expire_before(bad),
    "contexts of ask_many": lambda p, bad: p.ask_many(bad, ACTIONS),
    "actions of ask_many": lambda p, bad: p.ask_many([CONTEXT], bad),
    "contexts of select_many": lambda p, bad: p.select_many(bad, ACTIONS),
    "rewards of update_many": lambda p, bad: p.update_many([CONTEXT], [[0.3]], bad),
    "columns of export": lambda p, bad: p.export("unused.json", bad),
    "path of export": lambda p, bad: p.export(bad),
    "path of save": lambda p, bad: p.save(bad),
}
ROW = {"age": 0.3, "town": "Graz"}
TABLE_CALLS = {
    "row of select": lambda p, bad: p.select(bad, ["red"]),
    "number of select": lambda p, bad: p.select({**ROW, "age": bad}, ["red"]),
    "level of select": lambda p, bad: p.select({**ROW, "town": bad}, ["red"]),
    "arms of select": lambda p, bad: p.select(ROW, bad),
    "mask of select": lambda p, bad: p.select(ROW, ["red", "blue"], bad),
    "number of update": lambda p, bad: p.update({**ROW, "age": bad}, "red", 0.5),
    "arm of update": lambda p, bad: p.update(ROW, bad, 0.5),
    "reward of update": lambda p, bad: p.update(ROW, "red", bad),
    "id of tell": lambda p, bad: p.tell(bad, 0.5),
    "ids of tell_many": lambda p, bad: p.tell_many(bad, [0.5]),
    "rows of update_many": lambda p, bad: p.update_many(bad, ["red"], [0.5]),
    "rows of ask_many": lambda p, bad: p.ask_many(bad, ["red"]),
    "decision of explain": lambda p, bad: p.explain(bad),
}


def played(policy, outputs=None):
    for number in range(9):
        decision = policy.select([0.1 * number, 0.5], ACTIONS)
        policy.update(decision.context, decision.action, 0.3 * (number % 3), outputs=outputs)
    policy.ask(CONTEXT, ACTIONS)
    return policy


def changed_by(policy, call):
    """The values that end in another error than ours, or change the policy although it was refused."""
    before, found = fingerprint(policy), []
    for bad in BAD:
        victim = copy.deepcopy(policy)
        try:
            call(victim, bad)
        except kb.KernelBanditsError:
            if fingerprint(victim) != before:
                found.append(bad)
    return found


@pytest.fixture(scope="module")
def policies():
    """Policies after a few rounds; not to be changed."""
    every = {name: played(POLICIES[name]()) for name in NAMES}
    return {**every, "constrained": played(constrained(), {"pressure": 5.0})}


@pytest.mark.parametrize("call", CALLS)
def test_bad_input_is_refused_and_changes_nothing(call, policies, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, policy in policies.items():
        assert changed_by(policy, CALLS[call]) == [], name


@pytest.mark.parametrize("call", TABLE_CALLS)
@pytest.mark.parametrize("kernel", [KERNEL, None], ids=["given", "learned"])
def test_bad_rows_are_refused_and_change_nothing(call, kernel):
    policy = table(kernel)
    policy.ask(ROW, ["red", "blue"])
    assert changed_by(policy, TABLE_CALLS[call]) == []
