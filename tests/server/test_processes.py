"""The process of HTTP and that of the models: one dies, the other goes on or ends; frames on the channel between."""

import asyncio
import json
import os
import signal
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
from crashing import recovered
from kernel_bandits_server import api
from kernel_bandits_server.channel import Frames, read_reply, read_request, reply_frame, request_frame
from kernel_bandits_server.commands import RefusedError
from kernel_bandits_server.exchange import Call, Reply, error_reply
from kernel_bandits_server.link import Link, ModelError
from kernel_bandits_server.peer import Peer
from kernel_bandits_server.settings import parse_settings, read_settings
from kernel_bandits_server.store import Store
from kernel_bandits_server.worker import replay
from serving import LOOP, ROW, Local, Process, call, model_of, wait_until_ready

DECISIONS = "/v1/loops/offers/decisions"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "loop.toml"
    path.write_text(LOOP)
    return path


def is_gone(pid):
    """Whether a process has ended; one that nobody has asked for its status has ended as well."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def wait_for(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_what_a_killed_model_was_asked_is_refused_and_nothing_is_lost(file, tmp_path):
    server = Process(file)
    for number in range(20):
        assert call(server.address, "POST", DECISIONS, {"id": f"d{number}", "context": ROW})[0] == 201
    model = model_of(server)
    # what is asked now waits until it is killed
    os.kill(model, signal.SIGSTOP)
    with ThreadPoolExecutor(4) as pool:
        asked = [
            pool.submit(call, server.address, "POST", DECISIONS, {"id": f"e{number}", "context": ROW})
            for number in range(4)
        ]
        time.sleep(0.5)
        assert not any(one.done() for one in asked)
        os.kill(model, signal.SIGKILL)
        replies = [one.result() for one in asked]
    assert {(status, content["error"]["code"]) for status, content in replies} == {(503, "model_ended")}
    status, content = call(server.address, "GET", "/readyz")
    assert (status, content["error"]["code"]) == (503, "starting")
    assert call(server.address, "GET", "/healthz") == (200, {"status": "alive", "leads": False})
    assert b'kernel_bandits_ready{loop="offers"} 0.0' in call(server.address, "GET", "/metrics")[1]
    wait_until_ready(server.address)
    assert model_of(server) not in (None, model)
    for number in range(20):
        assert call(server.address, "POST", DECISIONS, {"id": f"d{number}", "context": ROW})[0] == 200
    assert call(server.address, "POST", DECISIONS, {"id": "e0", "context": ROW})[0] == 201
    found = call(server.address, "GET", "/v1/loops/offers/digest")[1]
    server.kill(signal.SIGTERM)
    store, settings = Store(str(tmp_path / "loop.db")), read_settings(file).loops["offers"]
    assert found == {"events": 21, "digest": replay(settings, store).digest()}
    assert recovered(settings, store).digest() == found["digest"]
    store.close()


def test_the_models_end_with_a_killed_parent_and_leave_the_database(file, tmp_path):
    server = Process(file)
    call(server.address, "POST", DECISIONS, {"id": "d1", "context": ROW})
    model = model_of(server)
    server.kill()
    wait_for(lambda: is_gone(model), 5)
    for name in ("loop.db", "loop.db.leader"):
        # its other threads may end a moment after the first one
        connection = sqlite3.connect(tmp_path / name, timeout=2.0, isolation_level=None)
        connection.execute("BEGIN EXCLUSIVE")
        connection.close()
    again = Process(file, port=server.port)
    assert call(again.address, "POST", DECISIONS, {"id": "d1", "context": ROW})[0] == 200
    again.kill(signal.SIGTERM)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_both_processes_without_a_trace(file, tmp_path, how):
    server = Process(file)
    call(server.address, "POST", DECISIONS, {"id": "d1", "context": ROW})
    model = model_of(server)
    # whoever sends it to all processes of a service, as some supervisors do, means the same
    os.kill(model, how)
    server.kill(how)
    assert is_gone(model)
    assert "Traceback" not in (tmp_path / f"loop.toml.{server.port}.log").read_text()
    store = Store(str(tmp_path / "loop.db"))
    assert store.latest_snapshot("offers", read_settings(file).loops["offers"].fingerprint).number == 1
    store.close()


def test_each_of_several_processes_has_models_of_its_own(file):
    server = Process(file, processes=2)
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: call(server.address, "POST", DECISIONS, {"context": ROW}), range(40)))
    assert {status for status, _ in made} == {201}
    assert len({content["id"] for _, content in made}) == 40
    server.kill(signal.SIGTERM)


def test_a_database_that_cannot_be_opened_is_named(tmp_path):
    link = Link(parse_settings(LOOP), str(tmp_path / "none" / "events.db"))
    with pytest.raises(ModelError, match="unable to open database file"):
        link.launch()


def test_bodies_as_large_as_the_limit_cross_the_channel(tmp_path):
    server = Local(tmp_path / "events.db", LOOP.replace("lag", "limits = { body_bytes = 5000000, batch = 50000 }\nlag"))
    pairs = [{"id": f"never-{number:020}", "reward": 1.0} for number in range(50_000)]
    status, result = server("POST", "/v1/loops/offers/rewards", {"rewards": pairs})
    assert (status, result["counts"]) == (200, {"unknown": 50_000})
    assert [one["id"] for one in result["results"]] == [one["id"] for one in pairs]
    server.stop()


def test_a_locked_database_is_not_ready(tmp_path, monkeypatch):
    monkeypatch.setattr("kernel_bandits_server.store.BUSY_SECONDS", 0.1)
    server = Local(tmp_path / "events.db")
    lock = sqlite3.connect(tmp_path / "events.db", isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    status, content = server("GET", "/readyz")
    assert (status, content["error"]["code"]) == (503, "database")
    assert "locked" in content["error"]["message"]
    assert server("GET", "/healthz")[0] == 200
    lock.close()
    assert server("GET", "/readyz")[0] == 200
    server.stop()


def test_many_frames_are_read_however_the_bytes_are_cut():
    calls = [Call({"loop": "offers", "id": str(n)}, {"after": "1"}, b"x" * (997 * n % 5000)) for n in range(50)]
    data = b"".join(request_frame(number, "decide", one) for number, one in enumerate(calls))
    cuts = [0, 1, 5, 14, 15, 40_000, len(data) - 1, len(data)]
    for pieces in ([data], [data[start:stop] for start, stop in pairwise(cuts)], [bytes([one]) for one in data]):
        frames = Frames()
        found = [frame for piece in pieces for frame in frames.take(piece)]
        assert [frame.number for frame in found] == list(range(50))
        assert [read_request(frame) for frame in found] == [("decide", one) for one in calls]


def test_replies_and_errors_cross_the_channel_as_they_are():
    replies = [
        Reply({"a": 1}, 201),
        Reply(None, 204),
        Reply(b"text", 200, b"application/x-ndjson", ((b"x-next", b"7"), (b"b", b"c"))),
        error_reply(RefusedError(503, "busy", "later.")),
    ]
    data = b"".join(reply_frame(number, reply) for number, reply in enumerate(replies))
    found = [read_reply(frame) for frame in Frames().take(data)]
    assert [one.status for one in found] == [201, 204, 200, 503]
    assert [one.content for one in found[:3]] == [b'{"a":1}', b"", b"text"]
    assert json.loads(found[3].content) == replies[3].content
    assert [(one.type, one.headers) for one in found] == [(one.type, one.headers) for one in replies]


def test_requests_that_arrive_together_are_one_message(tmp_path, monkeypatch):
    link = Link(parse_settings(LOOP), str(tmp_path / "events.db"), lambda: Peer(in_thread=True))
    link.launch()
    sizes, flush = [], Link._flush

    def count(link):
        sizes.append(len(link._outgoing))
        flush(link)

    async def ask():
        await link.attach()
        body = json.dumps({"context": ROW}).encode()
        replies = await asyncio.gather(*(link.ask("decide", Call({"loop": "offers"}, {}, body)) for _ in range(300)))
        found = sizes.copy()
        await link.stop()
        return found, replies

    monkeypatch.setattr(Link, "_flush", count)
    found, replies = asyncio.run(ask())
    assert found == [300]
    assert {reply.status for reply in replies} == {201}
    assert len({json.loads(reply.content)["id"] for reply in replies}) == 300


def test_a_model_that_ends_while_it_is_imported_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("kernel_bandits_server.peer._START", "import sys; sys.exit(7) # {path}")
    link = Link(parse_settings(LOOP), str(tmp_path / "events.db"))
    with pytest.raises(ModelError, match="ended with status 7"):
        link.launch()
    assert link._peer.channel.fileno() == -1


def test_what_lies_in_the_working_directory_is_not_imported(tmp_path, monkeypatch):
    (tmp_path / "queue.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)
    link = Link(parse_settings(LOOP), str(tmp_path / "events.db"))
    link.launch()

    async def stop():
        await link.attach()
        await link.stop()

    asyncio.run(stop())


def test_a_reply_that_cannot_be_encoded_is_an_error_of_its_own(tmp_path, monkeypatch):
    server = Local(tmp_path / "events.db")
    view = api.decision_view

    def unencodable(event, repeated, details):
        return {"id": object()} if event.decision == "bad" else view(event, repeated, details)

    monkeypatch.setattr(api, "decision_view", unencodable)
    with ThreadPoolExecutor(4) as pool:
        bodies = [{"id": id, "context": ROW} for id in ("a", "bad", "b", "c")]
        statuses = list(pool.map(lambda body: server("POST", DECISIONS, body)[0], bodies))
    assert statuses == [201, 500, 201, 201]
    server.stop()


def test_many_who_ask_whether_it_is_ready_share_one_look(tmp_path, monkeypatch):
    monkeypatch.setattr("kernel_bandits_server.store.BUSY_SECONDS", 1.0)
    server = Local(tmp_path / "events.db")
    assert server("POST", DECISIONS, {"id": "d1", "context": ROW})[0] == 201
    lock = sqlite3.connect(tmp_path / "events.db", isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    with ThreadPoolExecutor(24) as pool:
        probes = [pool.submit(server, "GET", "/readyz") for _ in range(24)]
        assert {one.result()[0] for one in probes} == {503}
        lock.close()
        assert server("GET", f"{DECISIONS}/d1")[0] == 200
    server.stop()
