"""What a batch of commands becomes, and what silence does, without a server: the events that are planned."""

from itertools import pairwise
from types import SimpleNamespace

import pytest
from kernel_bandits_server.planning import Plan, Reward


def replica(decisions, *, reward=0.0, after=10.0, time=100.0):
    """A loop with open decisions, each (id, time, whether it was played)."""
    silence = SimpleNamespace(reward=reward, after=after)
    opened = {id: SimpleNamespace(time=at, active=active, held=None) for id, at, active in decisions}

    def silent(now):
        return (id for id, one in opened.items() if now - one.time >= after)

    return SimpleNamespace(time=time, applied=7, open=opened, settings=SimpleNamespace(silence=silence), silent=silent)


def plan(loop, now=100.0):
    log = SimpleNamespace(find=lambda _: {})
    return Plan(loop, log, now, most_pending=100)


@pytest.mark.parametrize("reward", [0.0, -1.5])
def test_silence_rewards_decisions_that_were_played_and_expires_the_others(reward):
    loop = replica([("played", 80.0, True), ("deferred", 81.0, False), ("recent", 95.0, True)], reward=reward)
    settling = plan(loop)
    settling.add_silent()
    events = [(event.kind, event.decision, event.body) for event in settling.events]
    assert events == [
        ("reward", "played", {"reward": reward, "source": "silence"}),
        ("expiry", "deferred", {"source": "silence"}),
    ]
    assert [event.number for event in settling.events] == [8, 9]


def test_silence_without_a_reward_expires_what_was_played_too():
    settling = plan(replica([("played", 80.0, True)], reward=None))
    settling.add_silent()
    assert [(event.kind, event.body) for event in settling.events] == [("expiry", {"source": "silence"})]


def test_silence_leaves_what_the_batch_has_settled_alone():
    settling = plan(replica([("played", 80.0, True), ("other", 80.0, True)]))
    settling.add_all([Reward([("played", 1.0)])])
    settling.add_silent()
    assert [(event.decision, event.body["source"]) for event in settling.events] == [
        ("played", "caller"),
        ("other", "silence"),
    ]


@pytest.mark.parametrize("now", [100.0, 99.0, 100.0 - 1e-9])
def test_time_passes_from_batch_to_batch_though_the_clock_does_not(now):
    """The time of an event says which transaction it belongs to, so two batches never have the same."""
    loop, seen = replica([(f"d{number}", 0.0, True) for number in range(4)]), [100.0]
    for number in range(4):
        batch = plan(loop, now)
        batch.add_all([Reward([(f"d{number}", 1.0)])])
        (event,) = batch.events
        seen.append(event.time)
        loop.time = event.time
    assert all(earlier < later for earlier, later in pairwise(seen))
    # a clock that runs is believed
    assert plan(loop, 200.0).append("expiry", "d0", {}).time == 200.0
