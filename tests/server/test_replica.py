import numpy as np
import pytest
from kernel_bandits_server.choosing import Asked, choose, draft_all
from kernel_bandits_server.events import BLOCK, Event, blocks, whole_blocks
from kernel_bandits_server.messages import DecisionRequest
from kernel_bandits_server.planning import Decide
from kernel_bandits_server.replica import Replica
from kernel_bandits_server.settings import parse_settings
from kernel_bandits_server.store import Snapshot, Store, StoreError

LOOP = """\
[loops.offers]
policy = "ek_ucb"
exploration_floor = 0.2
silence = {{ after = 60, reward = 0.0 }}
anticipates = {anticipates}
control = {{ share = 0.3, rule = "uniform" }}
challenger = {{ policy = "uniform" }}
{options}
[loops.offers.context]
age = {{ kind = "Numeric" }}
country = {{ kind = "Categorical" }}
[loops.offers.arms]
names = ["red", "blue", "green"]
"""
FIXED = "options = { kernel = { name = 'Gaussian', lengthscale = 0.5 } }"


def settings_of(anticipates=True, options=FIXED):
    text = LOOP.format(anticipates=str(anticipates).lower(), options=options)
    return parse_settings(text).loops["offers"]


def events_of(settings, count, generator):
    """A live loop: decisions by the policy, rewards out of order, deferred decisions, expiries."""
    replica = Replica(settings)
    waiting = []

    def append(kind, decision, body):
        event = Event(kind, decision, body, 1000.0 + replica.applied, replica.applied + 1)
        replica.apply([event])
        events.append(event)

    events = []
    for number in range(count):
        row = {"age": float(generator.integers(18, 80)), "country": str(generator.choice(["FR", "DE", "IT", "ES"]))}
        offer = None if number % 3 else ["red", "green", f"new{number // 20}"]
        excluded = ("green",) if number % 5 == 0 else ()
        command = Decide(
            f"d{number}",
            True,
            DecisionRequest(row, actions=offer, excluded=list(excluded), deferred=number % 7 == 0),
        )
        draft_all([command], replica)
        body = command.draft
        append("decision", f"d{number}", body)
        waiting.append((f"d{number}", body["active"]))
        while len(waiting) > 5:
            decision, active = waiting.pop(int(generator.integers(len(waiting))))
            if generator.random() < 0.1:
                append("expiry", decision, {"source": "caller"})
                continue
            append("reward", decision, {"reward": float(generator.random() < 0.5), "source": "caller"})
            if not active:
                append("activation", decision, {})
    return events, replica


@pytest.mark.parametrize("options", [FIXED, ""], ids=["fixed", "learned"])
@pytest.mark.parametrize("anticipates", [True, False])
def test_a_replay_has_the_same_bits(anticipates, options):
    settings = settings_of(anticipates, options)
    events, live = events_of(settings, 80, np.random.default_rng(0))
    replayed = Replica(settings)
    replayed.apply(events)
    assert replayed.digest() == live.digest()
    assert live.tally.counts["unlearned"] == 0
    assert live.policy.round_index == live.tally.counts["rewards"] > 50


@pytest.mark.parametrize("options", [FIXED, ""], ids=["fixed", "learned"])
def test_a_snapshot_and_the_rest_of_the_log_have_the_same_bits(options):
    settings = settings_of(options=options)
    events, live = events_of(settings, 80, np.random.default_rng(1))
    for cut in (1, 60, len(events)):
        first = Replica(settings)
        first.apply(events[:cut])
        # decisions in between leave no trace
        choose(first.policy, Asked({"age": 30.0, "country": "FR"}, ["red", "blue"]))
        second = Replica(settings, first.snapshot())
        second.apply(events[cut:])
        assert second.digest() == live.digest()


def test_blocks_are_those_of_transactions_and_never_too_long():
    times = [1.0] * 3 + [2.0] * (2 * BLOCK + 88) + [3.0]
    events = [Event("late", f"d{n}", {}, time, n + 1) for n, time in enumerate(times)]
    found = list(blocks(events))
    assert [event for block in found for event in block] == events
    assert all(len({event.time for event in block}) == 1 and len(block) <= BLOCK for block in found)
    # what is a block does not depend on where reading begins
    for limit in (BLOCK + 44, BLOCK + 144, 4 * BLOCK):
        read, start = [], 0
        while some := whole_blocks(events[start : start + limit], limit):
            read += list(blocks(some))
            start += len(some)
        assert read == found


def test_processes_toss_coins_of_their_own():
    settings = settings_of()
    _, live = events_of(settings, 60, np.random.default_rng(2))
    snapshot = live.snapshot()
    row = {"age": 30.0, "country": "FR"}
    first, second = (Replica(settings, snapshot) for _ in range(2))
    chosen = [
        [choose(one.policy, Asked(row, ["red", "blue", "green"])).action for _ in range(200)] for one in (first, second)
    ]
    assert chosen[0] != chosen[1]


def test_the_store_numbers_events_and_keeps_each_once(tmp_path):
    store = Store(str(tmp_path / "events.db"))
    with store.append("offers") as log:
        log.append([Event("decision", f"d{i}", {"context": {"x": "ü\0"}}, 5.0, i + 1) for i in range(3)])
    assert [event.number for event in store.read("offers")] == [1, 2, 3]
    assert store.find("offers", ["d1"])["d1"]["decision"].body == {"context": {"x": "ü\0"}}
    assert store.find("other", ["d1"]) == {}
    with pytest.raises(StoreError), store.append("offers") as log:
        log.append([Event("reward", "d1", {}, 5.0, 4), Event("decision", "d1", {}, 5.0, 5)])
    assert [event.number for event in store.read("offers")] == [1, 2, 3]
    store.write_snapshot("offers", Snapshot(2, "print", '{"a": 1}', b"policy"))
    assert store.latest_snapshot("offers", "print") == Snapshot(2, "print", '{"a": 1}', b"policy")
    assert store.latest_snapshot("offers", "other") is None


def test_one_process_leads(tmp_path):
    store = Store(str(tmp_path / "events.db"))
    first, second = store.leadership(), store.leadership()
    assert first.hold()
    assert first.hold()
    assert not second.hold()
    first.release()
    assert second.hold()
    second.release()


def test_those_who_read_do_not_wait_for_one_who_writes(tmp_path):
    store, other = Store(str(tmp_path / "log.db")), Store(str(tmp_path / "log.db"))
    with store.append("offers") as log:
        log.append([Event("decision", "d1", {}, 5.0, 1)])
        # the write lock would be refused after five seconds, with an error
        assert other.read("offers") == []
    assert [event.decision for event in other.read("offers")] == ["d1"]


@pytest.mark.parametrize("count", [0, 1, 3, 4, 37, 300])
def test_any_number_of_events_is_appended_in_order(tmp_path, count):
    store = Store(str(tmp_path / "log.db"))
    events = [Event("decision", f"d{n}", {"reward": n / 7}, 5.0, n + 1) for n in range(count)]
    with store.append("offers") as log:
        log.append(events)
    assert store.read("offers") == events


def test_a_log_takes_any_number_of_events_at_once(tmp_path):
    store, number = Store(str(tmp_path / "events.db")), 0
    for count in (1, 999, 1000, 1001, 2345):
        kinds = [Event("late", f"d{number + place}", {"reward": place / 7}) for place in range(count)]
        events = [event._replace(number=number + place, time=float(count)) for place, event in enumerate(kinds, 1)]
        with store.append("offers") as log:
            log.append(events)
        assert store.read("offers", number) == events
        number += count
    store.close()
