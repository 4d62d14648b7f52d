import json
import socket
import time
import urllib.request
from urllib.parse import quote

import pytest
from kernel_bandits_server.worker import replay
from serving import LOOP, ROW, Local

from kernel_bandits.logs import read


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    running = Local(tmp_path_factory.mktemp("api") / "events.db")
    yield running
    running.stop()


def decide(server, **body):
    return server("POST", "/v1/loops/offers/decisions", {"context": ROW, **body})


def reward_some(server):
    for reward in (0.0, 1.0, 0.5):
        _, made = decide(server)
        server("POST", f"/v1/loops/offers/decisions/{made['id']}/reward", {"reward": reward})


def same_as_replay(server):
    settings = server.runtime.workers["offers"].settings
    found = server("GET", "/v1/loops/offers/digest")[1]["digest"]
    return found == replay(settings, server.runtime.store).digest()


def test_a_decision_and_its_reward(server):
    status, made = decide(server, details=True)
    assert status == 201
    assert made["action"] in ("red", "blue", "green")
    assert 0 < made["probability"] <= 1
    assert sum(made["probabilities"]) == pytest.approx(1)
    assert made["probability"] == made["probabilities"][["red", "blue", "green"].index(made["action"])]
    assert made["std"] > 0
    path = f"/v1/loops/offers/decisions/{made['id']}"
    assert server("POST", f"{path}/reward", {"reward": 1}) == (200, {"id": made["id"], "status": "learned"})
    assert server("POST", f"{path}/reward", {"reward": 1})[1]["status"] == "repeated"
    status, refused = server("POST", f"{path}/reward", {"reward": 0})
    assert (status, refused["error"]["code"]) == (409, "conflict")
    status, found = server("GET", path)
    assert (status, found["reward"], found["action"]) == (200, 1.0, made["action"])
    status, why = server("GET", f"{path}/explanation")
    assert status == 200
    parts = sum(one["contribution"] for one in why["rounds"]) + why["rest"] + why["now"]["prior_mean"]
    assert parts == pytest.approx(why["now"]["mean"])


def test_a_repeated_request_is_one_decision(server):
    first = decide(server, id="order-7")
    second = decide(server, id="order-7")
    assert (first[0], second[0]) == (201, 200)
    assert second[1] == {**first[1], "repeated": True}
    assert server("POST", "/v1/loops/offers/decisions", {"id": "order-7", "context": {**ROW, "age": 1}})[0] == 409


def test_a_repeat_returns_the_first_decision_whatever_else_it_says(server):
    first = decide(server, id="order-8", actions=["red"])[1]
    status, again = decide(server, id="order-8", actions=["blue", "green"], deferred=True)
    assert (status, again) == (200, {**first, "repeated": True})
    assert decide(server, id="order-8", actions=[])[0] == 422


def test_a_late_reward_is_in_the_database_and_not_in_the_export(server):
    id = decide(server)[1]["id"]
    path = f"/v1/loops/offers/decisions/{id}"
    server("POST", f"{path}/expire")
    assert server("POST", f"{path}/reward", {"reward": 1})[1]["status"] == "late"
    assert server.runtime.store.find("offers", [id])[id]["late"].body == {"reward": 1.0}
    with urllib.request.urlopen(f"{server.address}/v1/loops/offers/log") as response:
        (row,) = [one for one in map(json.loads, response) if one["id"] == id]
    assert row["reward"] is None


def test_rewards_in_bulk_are_taken_one_by_one(server):
    ids = [decide(server)[1]["id"] for _ in range(3)]
    pairs = [{"id": id, "reward": 0.5} for id in (*ids, ids[0], "never-made")]
    status, result = server("POST", "/v1/loops/offers/rewards", {"rewards": pairs})
    assert (status, result["counts"]) == (200, {"learned": 3, "repeated": 1, "unknown": 1})


def test_deferred_decisions(server):
    _, made = decide(server, deferred=True)
    path = f"/v1/loops/offers/decisions/{made['id']}"
    assert server("POST", f"{path}/reward", {"reward": 1})[1]["status"] == "held"
    assert server("POST", f"{path}/activate")[1]["status"] == "activated"
    assert server("POST", f"{path}/expire")[1]["status"] == "late"


def test_offers_and_exclusions(server):
    for _ in range(20):
        assert decide(server, actions=["red", "blue"], excluded=["red"])[1]["action"] == "blue"
    _, made = decide(server, actions=["new"])
    assert (made["action"], made["arm"], made["probability"]) == ("new", "new", 1.0)


@pytest.mark.parametrize("id", [".", ".."])
def test_an_id_that_no_address_can_hold_is_refused(server, id):
    before = server.events()
    status, refused = decide(server, id=id)
    assert (status, refused["error"]["code"]) == (422, "invalid")
    assert "neither . nor .. alone" in refused["error"]["message"]
    # an older service may have made it
    _, answer = server("POST", "/v1/loops/offers/rewards", {"rewards": [{"id": id, "reward": 1}]})
    assert answer["counts"] == {"unknown": 1}
    assert server.events() == before


@pytest.mark.parametrize("id", ["...", ".a", "a..", "Az09._~:@=+-"])
def test_every_other_id_can_be_addressed(server, id):
    assert decide(server, id=id)[0] == 201
    status, found = server("GET", f"/v1/loops/offers/decisions/{quote(id)}")
    assert (status, found["id"]) == (200, id)


@pytest.mark.parametrize(
    ("actions", "repeated"),
    [
        (["red", "red"], "'red'"),
        (["red", "blue", "red"], "'red'"),
        ([1, "1", 1.0], "1.0"),
        (["red", {"arm": "red"}], "{'arm': 'red'}"),
        (["red", {"arm": "red", "size": 1}], "{'arm': 'red', 'size': 1}"),
        ([{"a": 1, "b": 2}, {"b": 2.0, "a": 1}], "{'b': 2.0, 'a': 1}"),
        ([{"a": [1, 2]}, {"a": [1, 3]}, {"a": [1, 2]}], "{'a': [1, 2]}"),
    ],
)
def test_an_action_that_is_offered_twice_is_refused(server, actions, repeated):
    status, refused = decide(server, actions=actions)
    assert status == 422
    assert refused["error"]["message"].startswith(f"actions: expected each action once, got {repeated} again")


def test_names_that_look_alike_are_different_arms(server):
    status, made = decide(server, actions=["1", 1, "red", {"arm": "blue"}])
    assert (status, len(made["probabilities"])) == (201, 4)


REFUSED = {
    "no JSON": (b"{", 400),
    "not UTF-8": (b'{"context": {"a": "\xff"}}', 400),
    "NaN": (b'{"context": {"age": NaN, "country": "FR"}}', 400),
    "a number beyond floats": (b'{"context": {"age": 1e999, "country": "FR"}}', 400),
    "half a character": (b'{"context": {"age": 1, "country": "\\ud800"}}', 400),
    "nested deeply": (b"[" * 100_000, 422),
    "nested deeply inside": (b'{"context": ' + b'{"a":' * 5_000 + b"1" + b"}" * 5_001, 400),
    "nested too deeply": (b'{"context": ' + b"[" * 60 + b"]" * 60 + b"}", 422),
    "no object": (b"[]", 422),
    "no context": (b"{}", 422),
    "an unknown key": (b'{"context": {}, "contxt": 1}', 422),
    "an unknown column": (b'{"context": {"age": 1, "contry": "FR"}}', 422),
    "text for a number": (b'{"context": {"age": "x", "country": "FR"}}', 422),
    "no action": (b'{"context": {"age": 1, "country": "FR"}, "actions": []}', 422),
    "an action that is none": (b'{"context": {"age": 1, "country": "FR"}, "actions": [[]]}', 422),
    "too many actions": (json.dumps({"context": ROW, "actions": ["a"] * 1001}).encode(), 413),
    "a bad id": (json.dumps({"context": ROW, "id": "../x"}).encode(), 422),
    "too long": (b'"' + b"x" * 1_000_001 + b'"', 413),
    "a huge whole number": (b'{"context": {"age": ' + b"9" * 5000 + b', "country": "FR"}}', 400),
    "a whole number beyond floats": (b'{"context": {"age": ' + b"9" * 400 + b', "country": "FR"}}', 422),
    "an action beyond floats": (json.dumps({"context": ROW, "actions": [{"a": 10**400}]}).encode(), 422),
}


@pytest.mark.parametrize(("raw", "status"), REFUSED.values(), ids=REFUSED)
def test_a_bad_request_is_refused_and_changes_nothing(server, raw, status):
    before = server.events()
    try:
        found, content = server("POST", "/v1/loops/offers/decisions", raw=raw)
    except OSError:
        # the service does not read a body that is too long to its end
        assert status == 413
        return
    assert found == status
    assert set(content["error"]) == {"code", "message"}
    assert "Traceback" not in content["error"]["message"]
    assert server.events() == before


def test_unknown_loops_paths_and_methods(server):
    assert server("POST", "/v1/loops/other/decisions", {"context": ROW})[1]["error"]["code"] == "unknown_loop"
    assert server("POST", "/v1/loops/offers/decisions/none/reward", {"reward": 1})[0] == 404
    assert server("GET", "/v1/loops/../../etc/passwd")[0] == 404
    assert server("GET", "/page.js%2f..%2f..%2fapp.py")[0] == 404
    assert server("DELETE", "/v1/loops/offers/decisions")[0] == 405


def test_raw_nonsense_on_the_socket_does_no_harm(server):
    host, port = server.address.removeprefix("http://").split(":")
    for payload in (
        b"\0" * 100,
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1/loops/offers/decisions HTTP/1.1\r\nhost: localhost\r\ncontent-length: -5\r\n\r\n",
        b"POST /v1/loops/offers/decisions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99999999999999999999\r\n\r\n",
        b"POST /v1/loops/offers/decisions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 50\r\n\r\n{",
        b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: a\rb\r\n\r\n",
    ):
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(payload)
            connection.shutdown(socket.SHUT_WR)
            connection.recv(1000)
    assert server("GET", "/healthz")[0] == 200


def test_the_state_of_a_loop_is_that_of_its_log(tmp_path):
    # a loop of its own: a decision that awaits its reward holds back the averages of later ones
    server = Local(tmp_path / "events.db")
    reward_some(server)
    server("POST", f"/v1/loops/offers/decisions/{decide(server)[1]['id']}/expire")
    waits = decide(server)[1]["id"]
    reward_some(server)
    maturity = server("GET", "/v1/loops/offers/verdict")[1]["maturity"]
    assert (maturity["counted"], maturity["decisions"]) == (4, 8)
    server("POST", f"/v1/loops/offers/decisions/{waits}/reward", {"reward": 0.25})
    with urllib.request.urlopen(f"{server.address}/v1/loops/offers/log") as response:
        rows = [json.loads(line) for line in response]
    _, state = server("GET", "/v1/loops/offers")
    rewarded = [row for row in rows if row["reward"] is not None and row["active"]]
    assert state["counts"]["decisions"] == len(rows) == 8
    assert state["reward"]["count"] == len(rewarded) == 7
    assert state["reward"]["mean"] == pytest.approx(sum(row["reward"] for row in rewarded) / len(rewarded))
    weights = [1 / (row["offered"] * row["propensity"]) for row in rewarded]
    value = sum(w * row["reward"] for w, row in zip(weights, rewarded, strict=True)) / sum(weights)
    assert state["uniform"]["mean"] == pytest.approx(value)
    assert sum(arm["plays"] for arm in state["arms"]) == sum(row["active"] for row in rows)
    assert state["model"]["observations"] == state["reward"]["count"]
    assert {*state["model"]["relevance"], *state["model"]["left_out"]} == {"age", "country", "arm"}
    assert same_as_replay(server)
    server.stop()


def test_the_exported_log_gives_the_estimates_of_the_page(tmp_path):
    # a loop of its own: others have learned of arms that look alike
    server = Local(tmp_path / "events.db")
    reward_some(server)
    for offered in ("blue", {"arm": "blue"}):
        _, made = decide(server, actions=[offered])
        server("POST", f"/v1/loops/offers/decisions/{made['id']}/reward", {"reward": 1.0})
    with urllib.request.urlopen(f"{server.address}/v1/loops/offers/log") as response:
        (tmp_path / "log.jsonl").write_bytes(response.read())
    log = read(tmp_path / "log.jsonl")
    _, state = server("GET", "/v1/loops/offers")
    assert log.rewards.mean() == pytest.approx(state["reward"]["mean"])
    for arm in state["arms"]:
        if arm["mean"] is not None:
            weights = (log.played == log.names.index(arm["arm"])) / log.propensities
            assert arm["mean"] == pytest.approx((weights * log.rewards).sum() / weights.sum())
    server.stop()


def test_responses_over_a_variable(server):
    reward_some(server)
    _, found = server("GET", "/v1/loops/offers/response?variable=country")
    assert found["values"] == ["FR"]
    assert {line["arm"] for line in found["arms"]} >= {"red", "blue", "green"}
    assert server("GET", "/v1/loops/offers/response?variable=x")[0] == 422


def test_a_pending_decision_grows_older_while_nothing_happens(tmp_path):
    server = Local(tmp_path / "events.db")
    assert server("GET", "/v1/loops/offers")[1]["oldest_pending"] is None
    id = decide(server)[1]["id"]
    # a state is kept for half a second
    time.sleep(0.6)
    worker = server.runtime.workers["offers"]
    digest = server("GET", "/v1/loops/offers/digest")[1]["digest"]
    clock = worker.clock
    for later in (1000, 2000):
        worker.clock = lambda by=later: clock() + by
        assert later <= server("GET", "/v1/loops/offers")[1]["oldest_pending"] < later + 1000
    assert server("GET", "/v1/loops/offers/digest")[1]["digest"] == digest
    server("POST", f"/v1/loops/offers/decisions/{id}/expire")
    time.sleep(0.6)
    assert server("GET", "/v1/loops/offers")[1]["oldest_pending"] is None
    server.stop()


def test_health_metrics_and_document(server):
    assert server("GET", "/readyz") == (200, {"status": "ready"})
    text = server("GET", "/metrics")[1].decode()
    assert (
        'kernel_bandits_requests_total{app_name="kernel_bandits",method="POST",path="/v1/loops/{loop}/decisions",status_code="201"}'
        in text
    )
    assert 'kernel_bandits_ready{loop="offers"} 1.0' in text
    paths = server("GET", "/openapi.json")[1]["paths"]
    assert "/v1/loops/{loop}/decisions" in paths


def test_continuous_actions(tmp_path):
    text = LOOP.partition("[loops.offers.arms]")[0].replace("exploration_floor = 0.2\n", "")
    text += '[loops.offers.actions]\nprice = { kind = "Numeric", range = [0, 10] }\n'
    server = Local(tmp_path / "events.db", text)
    status, made = decide(server, box={"price": [1, 9]})
    assert status == 201
    assert 1 <= made["action"]["price"] <= 9
    assert server("POST", f"/v1/loops/offers/decisions/{made['id']}/reward", {"reward": 1})[0] == 200
    assert decide(server, box={"prise": [1, 9]})[0] == 422
    assert decide(server, box={"price": [1, "9"]})[0] == 422
    assert decide(server)[0] == 422
    # a column that has the name of arms elsewhere does not make one action of two
    status, refused = decide(server, actions=[{"price": 1, "arm": "a"}, {"price": 2, "arm": "a"}])
    assert (status, "again" in refused["error"]["message"]) == (422, False)
    assert same_as_replay(server)
    server.stop()


def test_a_box_of_the_file_is_on_offer_in_every_round(tmp_path):
    text = LOOP.partition("[loops.offers.arms]")[0].replace("exploration_floor = 0.2\n", "")
    text += """[loops.offers.box.settings]
price = { low = 1, high = 9 }
colour = { levels = ["red", "blue"] }
"""
    server = Local(tmp_path / "events.db", text)
    for box in (None, {}, {"price": [2, 3], "colour": ["red"]}):
        status, made = decide(server, box=box)
        assert status == 201, made
        assert 1 <= made["action"]["price"] <= 9
        assert made["action"]["colour"] in ("red", "blue")
        assert (
            server("POST", f"/v1/loops/offers/decisions/{made['id']}/reward", {"reward": 1})[1]["status"] == "learned"
        )
    assert (made["action"]["price"] <= 3, made["action"]["colour"]) == (True, "red")
    assert same_as_replay(server)
    server.stop()


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ({"id": "x"}, "rewards[1]: expected 'reward'; it is missing"),
        ({"id": "x", "reward": 1.0, "more": 1}, "rewards[1]: unknown key 'more'"),
        ({"id": "x", "reward": True}, "rewards[1].reward: expected a number"),
        ({"id": "x", "reward": None}, "rewards[1].reward: expected a number"),
        ({"id": "x", "reward": 1e200}, "rewards[1].reward: expected a number"),
        ({"id": "bad id", "reward": 1.0}, "rewards[1].id: expected 1 to 256 letters"),
        ({"id": 3, "reward": 1.0}, "rewards[1].id: expected text"),
        (["id", "reward"], "rewards[1]: expected an object"),
        ("id", "rewards[1]: expected an object"),
    ],
)
def test_one_bad_reward_refuses_the_request_and_is_named(server, item, words):
    _, made = decide(server)
    status, refused = server("POST", "/v1/loops/offers/rewards", {"rewards": [{"id": made["id"], "reward": 1}, item]})
    assert (status, refused["error"]["code"]) == (422, "invalid")
    assert refused["error"]["message"].startswith(words)
    path = f"/v1/loops/offers/decisions/{made['id']}"
    assert server("GET", path)[1]["reward"] is None
    rewards = [{"id": made["id"], "reward": 1}, {"id": "nobody", "reward": 0.5}]
    status, outcome = server("POST", "/v1/loops/offers/rewards", {"rewards": rewards})
    assert (status, outcome["counts"]) == (200, {"learned": 1, "unknown": 1})
