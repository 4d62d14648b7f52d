"""An interrupt at any line leaves a policy as it was before the call, or as it is after it."""

import copy

import numpy as np
import pytest
from faults.injection import Injected, fingerprint, run_with_interrupt
from faults.scenes import (
    CALLS,
    CONTEXTS,
    HAVE_NO_BATCH,
    HAVE_NO_BOX_OR_WEIGHT,
    NEWER,
    NEWER_CALLS,
    OFFERS,
    POLICIES,
    ROUNDS,
    TABLE_CALLS,
    after,
    constrained,
    scene,
    table,
)

QUICK_POINTS = 3


def allowed_states(policy, act, parts):
    """The states in which an interrupted call may leave a policy."""
    states = {fingerprint(policy), fingerprint(after(policy, act))}
    states.update(fingerprint(after(policy, part)) for part in parts)
    if not policy.round_index:
        # a first call looks at the columns before it does anything else, and may do so again
        described = copy.deepcopy(policy)
        for posterior in described.posteriors[:1]:
            posterior.describe(2, np.hstack([np.tile(CONTEXTS[70], (4, 1)), OFFERS[70]]))
            # and draws random features, if there are any, by their seed
            posterior.evaluate(np.zeros((1, 3)))
        states.add(fingerprint(described))
    return states


def torn_points(policy, act, parts, lines, error=Injected):
    """The lines at which an interrupt leaves a state that is not allowed, or a policy that does not go on."""
    states, torn = allowed_states(policy, act, parts), []
    for line in lines:
        victim = copy.deepcopy(policy)
        run_with_interrupt(lambda: act(victim), line, error)  # noqa: B023 (called at once)
        if fingerprint(victim) not in states:
            torn.append(line)
    return torn


def lines_of(policy, act):
    count, _ = run_with_interrupt(lambda: act(copy.deepcopy(policy)), None)
    return count


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", POLICIES)
def test_an_interrupt_leaves_the_state_before_or_after_the_call(name, call):
    generator = np.random.default_rng([sorted(POLICIES).index(name), sorted(CALLS).index(call)])
    policy, act, parts = scene(name, 15, call)
    lines = generator.choice(lines_of(policy, act), QUICK_POINTS)
    assert torn_points(policy, act, parts, lines.tolist()) == []


NEWER_SCENES = [
    (name, call)
    for name in NEWER
    for call in NEWER_CALLS
    if name not in HAVE_NO_BOX_OR_WEIGHT or not call.endswith(("weight", "box"))
]


@pytest.mark.parametrize(("name", "call"), NEWER_SCENES)
def test_an_interrupt_leaves_what_came_later_in_one_of_two_states(name, call):
    policy, act, parts = scene(name, 15, call)
    lines = np.random.default_rng(len(name + call)).choice(lines_of(policy, act), 2)
    assert torn_points(policy, act, parts, lines.tolist()) == []


@pytest.mark.slow
@pytest.mark.parametrize(("name", "call"), NEWER_SCENES)
def test_every_line_of_what_came_later_may_be_interrupted(name, call):
    policy, act, parts = scene(name, 15, call)
    assert torn_points(policy, act, parts, range(lines_of(policy, act))) == []


CONSTRAINED_CALLS = {
    "select": lambda p: p.select(CONTEXTS[70], OFFERS[70]),
    "update": lambda p: p.update(CONTEXTS[71], [0.3], 0.5, outputs={"pressure": 6.0}),
    "ask": lambda p: p.ask(CONTEXTS[70], OFFERS[70]),
    "tell": lambda p: p.tell(0, 0.5, outputs={"pressure": 7.0}),
}


@pytest.mark.parametrize("call", CONSTRAINED_CALLS)
def test_an_interrupt_learns_reward_and_outputs_or_neither(call):
    policy, act = constrained(), CONSTRAINED_CALLS[call]
    for context, offered in zip(CONTEXTS[:8], OFFERS[:8], strict=True):
        decision = policy.select(context, offered)
        policy.update(context, decision.action, 0.5, outputs={"pressure": 5.0 + decision.action[0]})
    policy.ask(CONTEXTS[9], OFFERS[9])
    lines = np.random.default_rng(0).choice(lines_of(policy, act), 12)
    assert torn_points(policy, act, (), lines.tolist()) == []


@pytest.mark.slow
@pytest.mark.parametrize("rounds", ROUNDS)
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", POLICIES)
def test_every_line_may_be_interrupted(name, call, rounds):
    policy, act, parts = scene(name, rounds, call)
    assert torn_points(policy, act, parts, range(lines_of(policy, act))) == []


@pytest.mark.slow
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", ["ek_ucb", "k_ucb", "lin_ucb", "ek_ucb, learned"])
def test_memory_may_run_out_at_every_line(name, call):
    policy, act, parts = scene(name, 15, call)
    assert torn_points(policy, act, parts, range(lines_of(policy, act)), MemoryError) == []


@pytest.mark.parametrize("name", [name for name in POLICIES if name not in HAVE_NO_BATCH])
def test_a_batch_may_be_interrupted(name):
    def batch(length):
        return lambda policy: policy.select_batch(CONTEXTS[70 : 70 + length], OFFERS[70], batch_variance_limit=100.0)

    policy = scene(name, 15, "ask")[0]
    lines = np.random.default_rng(0).choice(lines_of(policy, batch(3)), QUICK_POINTS)
    assert torn_points(policy, batch(3), [batch(1), batch(2)], lines.tolist()) == []


@pytest.mark.parametrize("call", TABLE_CALLS)
def test_a_table_meets_a_town_and_an_arm_with_its_model_or_not_at_all(call):
    policy, act = table(), TABLE_CALLS[call]
    lines = np.random.default_rng(0).choice(lines_of(policy, act), 4 * QUICK_POINTS)
    assert torn_points(policy, act, (), lines.tolist()) == []
