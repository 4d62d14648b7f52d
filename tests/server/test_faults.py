"""A full or read-only disk, a jumping clock, a damaged snapshot: a clear error, and the service goes on."""

import time

import pytest
import sqlalchemy as sql
from kernel_bandits_server.planning import Query, RefusedError
from kernel_bandits_server.store import SNAPSHOTS
from kernel_bandits_server.worker import Clock, replay
from test_worker import LOOP, Service


def every_connection(service, statement):
    """Run a statement on all connections of the worker."""

    def run(_):
        with service.store._engine.connect() as connection:
            driver = connection.connection.driver_connection
            driver.rollback()
            driver.execute(statement)
        return True

    service(Query(run))


@pytest.mark.parametrize(
    ("fault", "remedy", "words"),
    [
        ("PRAGMA max_page_count=1", "PRAGMA max_page_count=1000000", "full"),
        ("PRAGMA query_only=1", "PRAGMA query_only=0", "readonly"),
    ],
    ids=["full disk", "read-only"],
)
def test_the_service_resumes_after_a_fault_of_the_disk(tmp_path, fault, remedy, words):
    service = Service(tmp_path / "events.db")
    service.decide("before")
    every_connection(service, fault)
    refusals = []
    for number in range(60):
        try:
            service.decide(f"during{number}", context={"age": float(number)})
        except RefusedError as error:
            refusals.append(error)
    refused = len(refusals)
    assert refused
    assert {error.status for error in refusals} == {503}
    assert all(words in str(error) for error in refusals)
    every_connection(service, remedy)
    service.decide("after")
    assert service.reward(("before", 1.0), ("after", 0.0)) == ["learned", "learned"]
    kept = [event.decision for event in service.store.read("offers") if event.kind == "decision"]
    assert kept[0] == "before"
    assert kept[-1] == "after"
    assert len(kept) == 62 - refused
    assert service.digest() == replay(service.settings, service.store).digest()
    service.worker.stop()


def test_the_clock_of_a_running_service_does_not_jump(monkeypatch):
    clock = Clock()
    before = clock()
    monkeypatch.setattr(time, "time", lambda: 4e9)
    assert before <= clock() < before + 60


def test_time_does_not_run_backwards_over_a_restart(tmp_path, monkeypatch):
    service = Service(tmp_path / "events.db")
    service.decide("a")
    service.worker.stop()
    monkeypatch.setattr("kernel_bandits_server.worker.time.time", lambda: 1000.0)
    service = Service(tmp_path / "events.db")
    service.decide("b")
    times = [event.time for event in service.store.read("offers")]
    assert times == sorted(times)
    assert times[0] > 1e9
    service.worker.stop()


def test_a_damaged_snapshot_is_left_aside(tmp_path):
    service = Service(tmp_path / "events.db")
    for number in range(5):
        service.decide(f"d{number}")
        service.reward((f"d{number}", 1.0))
    digest = service.digest()
    service.worker.stop()
    with service.store._engine.begin() as connection:
        connection.execute(sql.update(SNAPSHOTS).values(policy=b"damaged"))
    service = Service(tmp_path / "events.db")
    assert service.digest() == digest
    service.worker.stop()


def test_changed_settings_replay_the_whole_log(tmp_path):
    service = Service(tmp_path / "events.db")
    for number in range(5):
        service.decide(f"d{number}")
        service.reward((f"d{number}", 1.0))
    service.worker.stop()
    service = Service(tmp_path / "events.db", LOOP.replace("lengthscale = 0.5", "lengthscale = 0.1"))
    assert service.digest() == replay(service.settings, service.store).digest()
    assert service.counts()["rewards"] == 5
    service.worker.stop()


@pytest.mark.parametrize("anticipates", ["true", "false"])
def test_events_that_do_not_fit_changed_columns_are_reported_and_kept(tmp_path, caplog, anticipates):
    text = LOOP.replace("silence", f"anticipates = {anticipates}\nsilence")
    service = Service(tmp_path / "events.db", text)
    for number in range(5):
        service.decide(f"d{number}")
        service.reward((f"d{number}", 1.0))
    digest = service.digest()
    service.worker.stop()
    assert not [record for record in caplog.records if hasattr(record, "unlearned")]

    service = Service(tmp_path / "events.db", text.replace("age =", "height ="))
    counts = service.counts()
    assert (counts["rewards"], counts["unlearned"]) == (5, 5)
    service.worker.stop()
    (warned,) = [record for record in caplog.records if hasattr(record, "unlearned")]
    assert (warned.levelname, warned.loop, warned.unlearned) == ("WARNING", "offers", 5)
    assert warned.getMessage().startswith("5 decisions of the log were not learned")

    service = Service(tmp_path / "events.db", text)
    assert service.digest() == digest
    service.worker.stop()
