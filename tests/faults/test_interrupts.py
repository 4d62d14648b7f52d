"""An interrupt at any line leaves a policy as it was before the call, or as it is after it."""

import copy

import numpy as np
import pytest
from faults.injection import fingerprint, lines_of, some_lines, torn_lines
from faults.scenes import (
    CALLS,
    CONTEXTS,
    KINDS,
    OFFERS,
    POLICIES,
    SCENES,
    TABLE_CALLS,
    constrained,
    played,
    scene,
    table,
)


@pytest.mark.parametrize("name", POLICIES)
def test_an_interrupt_leaves_the_state_before_or_after_the_call(name):
    calls = [call for one, call in SCENES if one == name]
    torn = {call: torn_lines(*scene(name, 15, call), some_lines(*scene(name, 15, call), 2)) for call in calls}
    assert not any(torn.values()), torn


FIRST = [call for call, (_, pending, _) in CALLS.items() if not pending]


@pytest.mark.parametrize("name", KINDS)
def test_a_first_call_may_be_interrupted(name):
    calls = [call for one, call in SCENES if one == name and call in FIRST]
    torn = {call: torn_lines(*scene(name, 0, call), some_lines(*scene(name, 0, call), 2)) for call in calls}
    assert not any(torn.values()), torn


def before_a_turn(name):
    """A policy whose next update learns a kernel or draws all anchors anew, and that update."""
    policy, rounds = POLICIES[name](), 0

    def update(victim):
        victim.update(CONTEXTS[70], OFFERS[70, 0], 0.5)

    def turned(victim):
        posterior = victim.posterior
        learned = len(posterior.kernel_changes)
        kept = set(map(bytes, posterior.dictionary_points))
        update(victim)
        anew = not kept <= set(map(bytes, victim.posterior.dictionary_points))
        return len(victim.posterior.kernel_changes) > learned or (anew and not posterior.learns_kernel)

    while rounds < 10 or not turned(copy.deepcopy(policy)):
        policy.update(CONTEXTS[rounds], OFFERS[rounds, 0], float(np.sin(9.0 * CONTEXTS[rounds, 0])))
        rounds += 1
    return lambda: copy.deepcopy(policy), update


@pytest.mark.parametrize("name", ["ek_ucb, learned", "k_ucb, learned", "thompson_sampling, learned", "cbkb", "cbbkb"])
def test_a_refit_and_a_resampling_may_be_interrupted(name):
    turn = before_a_turn(name)
    assert torn_lines(*turn, some_lines(*turn, 12)) == []


@pytest.mark.parametrize("name", KINDS)
def test_memory_may_run_out_within_a_call(name):
    calls = [call for call in ("update", "update_many", "ask", "tell") if (name, call) in SCENES]
    torn = {
        call: torn_lines(*scene(name, 15, call), some_lines(*scene(name, 15, call), 3), MemoryError) for call in calls
    }
    assert not any(torn.values()), torn


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

    def make():
        return copy.deepcopy(policy)

    assert torn_lines(make, act, some_lines(make, act, 12)) == []


@pytest.mark.parametrize("call", TABLE_CALLS)
def test_a_table_meets_a_town_and_an_arm_with_its_model_or_not_at_all(call):
    act = TABLE_CALLS[call]
    assert torn_lines(table, act, some_lines(table, act, 12)) == []


@pytest.mark.slow
@pytest.mark.parametrize("call", ["update", "update_many", "ask", "tell"])
@pytest.mark.parametrize("name", KINDS)
def test_every_line_may_be_interrupted(name, call):
    at = scene(name, 15, call)
    assert torn_lines(*at, range(lines_of(*at))) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ek_ucb, learned", "cbkb"])
def test_every_line_of_a_refit_and_a_resampling_may_be_interrupted(name):
    turn = before_a_turn(name)
    assert torn_lines(*turn, range(lines_of(*turn))) == []


def test_what_is_played_twice_is_the_same():
    """Without this no two states could be told apart."""
    for name in KINDS:
        once, again = (fingerprint(played(POLICIES[name], 20)) for _ in range(2))
        assert once == again != fingerprint(played(POLICIES[name], 21))
