import threading
import time
from contextlib import contextmanager

import pytest
import sqlalchemy as sql
from kernel_bandits_server import store as store_module
from kernel_bandits_server import worker as worker_module
from kernel_bandits_server.messages import DecisionRequest
from kernel_bandits_server.planning import Activate, Decide, Expire, Query, RefusedError, Reward
from kernel_bandits_server.replica import Replica
from kernel_bandits_server.settings import Limits, parse_settings
from kernel_bandits_server.settings import Service as ServiceSettings
from kernel_bandits_server.store import Log, Store, StoreError
from kernel_bandits_server.worker import Worker, replay

from kernel_bandits.errors import InputError

LOOP = """\
[loops.offers]
exploration_floor = 0.2
silence = { after = 3600 }
options = { kernel = { name = "Gaussian", lengthscale = 0.5 } }
[loops.offers.context]
age = { kind = "Numeric", range = [0, 100] }
[loops.offers.arms]
names = ["red", "blue"]
"""
ROW = {"age": 30.0}


class Service:
    """A worker whose commands can be called."""

    def __init__(self, path, text=LOOP, **options):
        settings = parse_settings(text)
        self.settings = settings.loops["offers"]
        self.store = Store(str(path))
        service = ServiceSettings(lag=0.01, **options)
        self.leader = self.store.leadership()
        self.worker = Worker(self.settings, service, self.store, self.leader, self._deliver)
        self.worker.start()

    @staticmethod
    def _deliver(commands):
        for command in commands:
            command.done()

    def __call__(self, *commands):
        events = [threading.Event() for _ in commands]
        for command, event in zip(commands, events, strict=True):
            command.done = event.set
            self.worker.submit(command)
        for event in events:
            assert event.wait(30)
        for command in commands:
            if command.error:
                raise command.error
        return [command.result for command in commands]

    def decide(self, id="d1", **options):
        return self(Decide(id, True, DecisionRequest(**{"context": dict(ROW), **options})))[0]

    def reward(self, *pairs):
        return [one["status"] for one in self(Reward(list(pairs)))[0]]

    def digest(self):
        return self(Query(lambda replica: replica.digest()))[0]

    def counts(self):
        return self(Query(lambda replica: dict(replica.tally.counts)))[0]


@pytest.fixture
def service(tmp_path):
    running = Service(tmp_path / "events.db")
    yield running
    running.worker.stop()
    running.store.close()


def test_a_decision_is_made_once_under_one_id(service):
    first, repeated = service.decide()
    again, found = service.decide()
    assert (repeated, found) == (False, True)
    assert again == first
    with pytest.raises(RefusedError, match="another context"):
        service.decide(context={"age": 31.0})
    assert service.counts()["decisions"] == 1


def test_a_reward_counts_once(service):
    service.decide()
    assert service.reward(("d1", 1.0)) == ["learned"]
    assert service.reward(("d1", 1.0), ("d1", 0.0)) == ["repeated", "conflict"]
    assert service.reward(("d2", 1.0)) == ["unknown"]
    service.decide("d3")
    assert service.reward(("d3", 0.0), ("d3", 0.0), ("d3", 1.0)) == ["learned", "repeated", "conflict"]
    assert service.counts()["rewards"] == 2


def test_a_deferred_decision_is_learned_once_it_is_activated(service):
    service.decide(deferred=True)
    assert service.reward(("d1", 1.0)) == ["held"]
    assert service.reward(("d1", 1.0), ("d1", 2.0)) == ["repeated", "conflict"]
    assert service.counts()["rewards"] == 0
    assert service(Activate("d1"))[0]["status"] == "activated"
    assert service.counts()["rewards"] == 1
    assert service(Activate("d1"))[0]["status"] == "repeated"
    assert service.reward(("d1", 1.0)) == ["repeated"]


def test_a_reward_after_the_expiry_is_kept_and_not_learned(service):
    service.decide()
    assert service(Expire("d1"))[0]["status"] == "expired"
    assert service(Expire("d1"))[0]["status"] == "repeated"
    assert service.reward(("d1", 1.0), ("d1", 1.0), ("d1", 0.5)) == ["late", "late", "conflict"]
    assert service.counts() | {"decisions": 1} == service.counts()
    assert (service.counts()["rewards"], service.counts()["late"], service.counts()["expired"]) == (0, 1, 1)
    assert service(Expire("d9"), Activate("d9"))[0]["status"] == "unknown"


def test_a_whole_life_in_one_batch(service):
    # requests that wait together have no order: those of one kind are taken together, decisions first
    results = service(
        Decide("a", True, DecisionRequest(ROW, deferred=True)),
        Reward([("a", 1.0)]),
        Activate("a"),
        Decide("b", True, DecisionRequest(ROW)),
        Expire("b"),
        Reward([("b", 1.0), ("b", 1.0)]),
    )
    statuses = [one["status"] for one in (*results[1], results[2], results[4], *results[5])]
    assert statuses == ["learned", "activated", "late", "learned", "repeated"]
    assert service.digest() == replay(service.settings, service.store).digest()


def test_a_silent_decision_gets_its_reward(tmp_path):
    text = LOOP.replace("after = 3600", "after = 0.05, reward = 0.25")
    service = Service(tmp_path / "events.db", text)
    service.decide()
    service.decide("deferred", deferred=True)
    for _ in range(6000):
        if service.counts()["silent"] and service.counts()["expired"]:
            break
        threading.Event().wait(0.01)
    assert service.counts() | {"silent": 1, "expired": 1, "rewards": 0} == service.counts()
    assert service.store.find("offers", ["d1"])["d1"]["reward"].body == {"reward": 0.25, "source": "silence"}
    assert service.reward(("d1", 1.0)) == ["late"]
    service.worker.stop()


def test_bad_input_changes_nothing(service):
    before = service.digest()
    for context in ({"age": "x"}, {}, {"age": 1.0, "b": 2.0}):
        with pytest.raises(InputError):
            service.decide(context=context)
    with pytest.raises(InputError, match="played"):
        service.decide(played="red")
    with pytest.raises(InputError, match="excluded"):
        service.decide(excluded=["red", "blue"])
    assert service.digest() == before
    assert service.store.read("offers") == []


def test_the_number_of_pending_decisions_is_limited(tmp_path):
    service = Service(tmp_path / "events.db", limits=Limits(pending=2))
    service.decide("a")
    service.decide("b")
    with pytest.raises(RefusedError, match="await their reward"):
        service.decide("c")
    assert service.reward(("a", 1.0)) == ["learned"]
    service.decide("c")
    service.worker.stop()


def test_an_apprentice_learns_what_was_played(tmp_path):
    service = Service(tmp_path / "events.db", LOOP.replace("exploration_floor", "apprentice = true\nexploration_floor"))
    event, _ = service.decide(played="blue")
    assert event.body["played"] == "blue"
    assert event.body["action"] in ("red", "blue")
    with pytest.raises(InputError, match="only watches"):
        service.decide("d2")
    service.reward(("d1", 1.0))
    plays = service(Query(lambda replica: {one["arm"]: one["plays"] for one in replica.seen().report()["arms"]}))[0]
    assert plays == {"blue": 1}
    service.worker.stop()


def test_two_processes_share_one_log(tmp_path):
    first, second = Service(tmp_path / "events.db"), Service(tmp_path / "events.db")
    for number in range(40):
        one, other = (first, second) if number % 2 else (second, first)
        one.decide(f"d{number}", context={"age": float(number)})
        assert other.reward((f"d{number}", float(number % 3 == 0))) == ["learned"]
        assert one.decide(f"d{number}", context={"age": float(number)})[1]
    first.reward(("d0", 1.0))
    second.reward(("d0", 1.0))
    assert first.digest() == second.digest() == replay(first.settings, first.store).digest()
    first.worker.stop()
    second.worker.stop()


def test_a_stopped_service_goes_on(tmp_path):
    for start in (0, 10, 20):
        service = Service(tmp_path / "events.db", snapshot_events=7)
        for number in range(start, start + 10):
            service.decide(f"d{number}", context={"age": float(number)})
            service.reward((f"d{number}", 1.0))
        digest = service.digest()
        assert digest == replay(service.settings, service.store).digest()
        service.worker.stop()
    assert service.store.latest_snapshot("offers", service.settings.fingerprint).number == 60


@pytest.mark.parametrize("anticipates", ["true", "false"])
def test_a_crowd_is_learned_in_blocks_that_a_replay_finds_again(tmp_path, monkeypatch, anticipates):
    service = Service(
        tmp_path / "events.db", LOOP.replace("[loops.offers]", f"[loops.offers]\nanticipates = {anticipates}")
    )
    other = Service(
        tmp_path / "events.db", LOOP.replace("[loops.offers]", f"[loops.offers]\nanticipates = {anticipates}")
    )
    for crowd in range(4):
        ids = [f"d{crowd}-{number}" for number in range(100)]
        service(
            *(
                Decide(id, False, DecisionRequest({"age": float(place)}, deferred=place % 9 == 0))
                for place, id in enumerate(ids)
            )
        )
        # one transaction of many blocks
        (other if crowd % 2 else service)(Reward([(id, float(len(id) % 2)) for id in ids]), *map(Activate, ids[::9]))
        service(Expire(ids[1]), Decide(f"e{crowd}", True, DecisionRequest(ROW)), Expire(f"e{crowd}"))
    monkeypatch.setattr(store_module, "READ_AT_ONCE", 300)
    # a response comes before its events are learned, and the other may be a lag behind
    digest = service.digest()
    while other.worker.applied < service.worker.applied:
        time.sleep(0.01)
    assert digest == other.digest() == replay(service.settings, service.store).digest()
    assert service.counts() | {"rewards": 400, "unlearned": 0, "expired": 4} == service.counts()
    for one in (service, other):
        one.worker.stop()


def test_a_bad_row_in_a_crowd_is_refused_alone(service):
    rows = [{"age": float(place)} if place % 4 else {"age": "old"} for place in range(20)]
    commands = [Decide(f"d{place}", True, DecisionRequest(row)) for place, row in enumerate(rows)]
    with pytest.raises(InputError, match="age"):
        service(*commands)
    assert [command.error is None for command in commands] == [place % 4 > 0 for place in range(20)]
    assert service.counts()["decisions"] == 15


def test_an_append_that_fails_leaves_the_state_of_the_log(service, monkeypatch):
    for number in range(10):
        service.decide(f"d{number}", context={"age": 10.0 * number})
    append, calls = Log.append, []

    def fail_twice(log, events):
        append(log, events)
        calls.append(events)
        if len(calls) <= 2:
            raise sql.exc.OperationalError("COMMIT", {}, Exception("the connection was lost"))

    monkeypatch.setattr(Log, "append", fail_twice)
    refused = [Decide("e0", True, DecisionRequest(ROW)), Reward([("d1", 1.0)])]
    for command in refused:
        with pytest.raises(RefusedError, match="connection was lost"):
            service(command)
        assert command.result is None
    assert not service.decide("e0")[1]
    assert service.reward(("d1", 1.0)) == ["learned"]
    assert service.reward(("e0", 0.5), ("d2", 0.5)) == ["learned", "learned"]
    assert service.digest() == replay(service.settings, service.store).digest()
    assert service.counts()["decisions"] == 11
    assert service.counts()["rewards"] == 3


def test_a_commit_whose_response_is_lost_is_found_in_the_log(service, monkeypatch):
    service.decide("d1")
    append, calls = Store.append, []

    @contextmanager
    def lose(store, loop):
        with append(store, loop) as log:
            yield log
        calls.append(loop)
        if len(calls) <= 2:
            raise StoreError("the connection was lost.")

    monkeypatch.setattr(Store, "append", lose)
    for command in (Decide("e0", True, DecisionRequest(ROW)), Reward([("d1", 1.0)])):
        with pytest.raises(RefusedError, match="connection was lost"):
            service(command)
    assert service.decide("e0")[1]
    assert service.reward(("d1", 1.0)) == ["repeated"]
    assert service.digest() == replay(service.settings, service.store).digest()
    assert (service.counts()["decisions"], service.counts()["rewards"]) == (2, 1)


def test_what_is_acknowledged_is_kept_if_the_model_fails_to_learn_it(service, monkeypatch):
    service.decide("a")
    apply, failures = Replica.apply, []

    def fail_once(replica, events):
        if events and not failures:
            failures.append(events)
            raise ArithmeticError("the model fails")
        apply(replica, events)

    monkeypatch.setattr(worker_module, "PAUSE", 0.0)
    monkeypatch.setattr(Replica, "apply", fail_once)
    assert service.reward(("a", 1.0)) == ["learned"]
    assert service.reward(("a", 1.0)) == ["repeated"]
    assert len(failures) == 1
    assert service.counts()["rewards"] == 1
    assert service.digest() == replay(service.settings, service.store).digest()


def test_whoever_is_told_of_a_batch_finds_it_counted(service):
    for number in range(20):
        service.decide(f"d{number}")
        assert service.counts()["decisions"] == number + 1


def test_a_bulk_of_all_kinds_of_ids_is_settled_one_by_one(service):
    for id in ("open", "expired", "rewarded", "twice"):
        service.decide(id)
    service.decide("deferred", deferred=True)
    service(Expire("expired"))
    service.reward(("rewarded", 1.0))
    bulk = [
        ("twice", 1.0),
        ("open", 0.5),
        ("unknown", 1.0),
        ("expired", 1.0),
        ("rewarded", 1.0),
        ("rewarded", 0.0),
        ("twice", 1.0),
        ("deferred", 1.0),
        ("twice", 0.0),
        ("deferred", 1.0),
    ]
    first = [
        "learned",
        "learned",
        "unknown",
        "late",
        "repeated",
        "conflict",
        "repeated",
        "held",
        "conflict",
        "repeated",
    ]
    assert service.reward(*bulk) == first
    again = ["repeated", "repeated", "unknown", "late", "repeated", "conflict", "repeated", "repeated", "conflict"]
    assert service.reward(*bulk) == [*again, "repeated"]
    assert (service.counts()["rewards"], service.counts()["late"]) == (3, 1)
    assert service.digest() == replay(service.settings, service.store).digest()


@pytest.mark.parametrize("anticipates", ["true", "false"])
def test_two_processes_that_send_the_same_bulk_count_it_once(tmp_path, anticipates):
    text = LOOP.replace("[loops.offers]", f"[loops.offers]\nanticipates = {anticipates}")
    services = [Service(tmp_path / "events.db", text) for _ in range(2)]
    ids = [f"d{number}" for number in range(1500)]
    for start in range(0, len(ids), 250):
        some = enumerate(ids[start : start + 250])
        services[start // 250 % 2](
            *(Decide(id, True, DecisionRequest({"age": float(place % 90)})) for place, id in some)
        )
    found = [[], []]

    def send(number):
        for start in range(0, len(ids), 300):
            pairs = [(id, float(len(id) % 2)) for id in ids[start : start + 300]]
            found[number] += services[number].reward(*pairs)

    threads = [threading.Thread(target=send, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all({one, other} == {"learned", "repeated"} for one, other in zip(*found, strict=True))
    # an empty transaction takes in what the other appended last
    for one in services:
        one.reward(("d0", 1.0))
    assert services[0].counts()["rewards"] == 1500
    digests = {one.digest() for one in services}
    assert digests == {replay(services[0].settings, services[0].store).digest()}
    for one in services:
        one.worker.stop()


def test_a_refusing_database_loses_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(store_module, "BUSY_SECONDS", 0.1)
    service = Service(tmp_path / "events.db")
    service.decide("a")
    with service.store.append("offers"), pytest.raises(RefusedError, match="locked"):
        service.decide("b")
    service.decide("b")
    assert service.counts()["decisions"] == 2
    assert service.digest() == replay(service.settings, service.store).digest()
    service.worker.stop()


@pytest.fixture
def idle(tmp_path):
    """A worker that does not run, and a function that hands it some of its commands."""
    settings = parse_settings(LOOP)
    store = Store(str(tmp_path / "events.db"))
    worker = Worker(settings.loops["offers"], settings.service, store, store.leadership(), lambda _: None)
    commands = [Decide(f"d{number}", True, DecisionRequest(dict(ROW))) for number in range(700)]

    def submit(count):
        for command in commands[:count]:
            worker.submit(command)

    yield worker, commands, submit
    store.close()


def test_a_batch_has_a_limit(idle):
    worker, commands, submit = idle
    submit(700)
    assert worker._next_commands() == (commands[: worker_module.BATCH], False)


def test_a_challenger_that_earns_more_is_promoted_step_by_step(tmp_path, monkeypatch):
    monkeypatch.setattr(worker_module, "PROMOTION", 0.0)
    text = LOOP.replace("exploration_floor = 0.2", 'policy = "uniform"').partition("options")
    challenger = 'challenger = { policy = "lin_ucb", exploration_floor = 0.2, automatic = true }\n'
    service = Service(tmp_path / "events.db", text[0] + challenger + text[2].partition("\n")[2])
    for part in range(40):
        made = service(*(Decide(f"{part}-{i}", False, DecisionRequest(dict(ROW))) for i in range(50)))
        service.reward(*((event.decision, float(event.body["arm"] == "blue")) for event, _ in made))
        if service(Query(lambda replica: replica.share))[0] >= 0.25:
            break
    changes = [event.body for event in service.store.read("offers", limit=10_000) if event.kind == "change"]
    assert changes == [{"share": 0.1, "by": "evidence"}, {"share": 0.25, "by": "evidence"}]
    assert service.digest() == replay(service.settings, service.store).digest()
    service.worker.stop()
    service.store.close()


def test_a_snapshot_that_fails_is_not_tried_after_every_batch(tmp_path, monkeypatch, caplog):
    service = Service(tmp_path / "events.db", snapshot_events=10)
    tried = []

    def fail(_, snapshot):
        tried.append(snapshot.number)
        raise StoreError("the database refused; nothing was stored.")

    monkeypatch.setattr(service.store, "write_snapshot", fail)
    for number in range(40):
        service.decide(f"d{number}")
        service.reward((f"d{number}", 1.0))
        time.sleep(0.02)
    service.worker.stop()
    # one for ten events, and the last one
    assert 2 <= len(tried) <= 9
    assert "no snapshot" in caplog.text
    service.store.close()
