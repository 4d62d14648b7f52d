"""The life of offers, over HTTP: arms that come and go, an old log for a start, and the log for others to read."""

import json
import urllib.request

import pytest
from kernel_bandits_server.serve import import_log
from kernel_bandits_server.settings import parse_settings
from kernel_bandits_server.worker import replay
from serving import LOOP, ROW, Local

import kernel_bandits as kb
from kernel_bandits.errors import InputError
from kernel_bandits.logs import read

STRICT = LOOP.replace('"green"]', '"green"]\nstrict = true')
PATH = "/v1/loops/offers"


@pytest.fixture
def server(tmp_path):
    running = Local(tmp_path / "events.db", STRICT)
    yield running
    running.stop()


def decide(server, **body):
    return server("POST", f"{PATH}/decisions", {"context": ROW, **body})


def digest(server):
    return server("GET", f"{PATH}/digest")[1]["digest"]


def replayed(server):
    worker = server.runtime.workers["offers"]
    return replay(worker.settings, server.runtime.store).digest()


def test_strict_arms_refuse_a_misspelt_name(server):
    status, refused = decide(server, actions=["red", "bleu"])
    assert status == 422
    assert "unknown arm 'bleu'; did you mean 'blue'?" in refused["error"]["message"]
    assert decide(server, actions=["red", "blue"])[0] == 201


def test_an_arm_is_added_retired_and_brought_back(server):
    assert server("PUT", f"{PATH}/arms/gold", {})[0] == 200
    assert len(decide(server)[1]["probabilities"]) == 4
    waiting = [decide(server, actions=["gold"])[1]["id"] for _ in range(2)]
    status, gone = server("DELETE", f"{PATH}/arms/gold")
    assert (status, gone["pending"]) == (200, "keep")
    assert gone["decisions"] >= 2
    assert len(decide(server)[1]["probabilities"]) == 3
    assert "is retired" in decide(server, actions=["gold"])[1]["error"]["message"]
    # what was decided before is learned
    reward = {"reward": 1.0}
    assert server("POST", f"{PATH}/decisions/{waiting[0]}/reward", reward)[1]["status"] == "learned"
    assert server("GET", PATH)[1]["retired"] == ["gold"]
    assert server("PUT", f"{PATH}/arms/gold", {})[0] == 200
    assert len(decide(server)[1]["probabilities"]) == 4
    assert server("DELETE", f"{PATH}/arms/gold?pending=expire")[0] == 200
    assert server("POST", f"{PATH}/decisions/{waiting[1]}/reward", reward)[1]["status"] == "late"
    assert server("DELETE", f"{PATH}/arms/silver")[0] == 404
    assert server("DELETE", f"{PATH}/arms/red?pending=x")[0] == 422
    assert digest(server) == replayed(server)


def test_arms_with_features_are_described_by_a_request(tmp_path):
    text = LOOP.replace('["red", "blue", "green"]', "[]\ncolumns = { price = { kind = 'Numeric', range = [0, 10] } }")
    server = Local(tmp_path / "events.db", text)
    assert server("PUT", f"{PATH}/arms/a", {})[0] == 422
    assert server("PUT", f"{PATH}/arms/a", {"features": {"price": "x"}})[0] == 422
    for name, price in (("a", 1), ("b", 2)):
        assert server("PUT", f"{PATH}/arms/{name}", {"features": {"price": price}})[0] == 200
    for _ in range(4):
        made = decide(server)[1]
        assert made["action"] == {"arm": made["arm"], "price": {"a": 1, "b": 2}[made["arm"]]}
        server("POST", f"{PATH}/decisions/{made['id']}/reward", {"reward": 1.0})
    server("PUT", f"{PATH}/arms/a", {"features": {"price": 5}})
    assert decide(server, actions=["a"])[1]["action"] == {"arm": "a", "price": 5}
    assert digest(server) == replayed(server)
    server.stop()


def old_log(tmp_path, count=60):
    rows = [
        {
            "context": {"age": 20.0 + number % 50, "country": "FR" if number % 2 else None},
            "action": ["red", "blue"][number % 3 == 0],
            "reward": float(number % 3 == 0),
            "propensity": 0.5,
        }
        for number in range(count)
    ]
    file = tmp_path / "old.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {**rows[0], "reward": None}]))
    return file, rows


GAPS = STRICT.replace('country = { kind = "Categorical" }', 'country = { kind = "Categorical", missing = true }')


def test_an_old_log_is_learned_once_and_only_by_the_model(tmp_path):
    server = Local(tmp_path / "events.db", GAPS)
    file, rows = old_log(tmp_path)
    assert import_log(file, server.address, "offers", None).startswith("60 of 61 rounds learned")
    assert import_log(file, server.address, "offers", None).startswith("0 of 61 rounds learned")
    state = server("GET", PATH)[1]
    assert (state["counts"]["imported"], state["counts"]["decisions"], state["reward"]["count"]) == (60, 0, 0)
    assert state["model"]["observations"] == 60
    settings = parse_settings(GAPS).loops["offers"]
    policy = settings.new_policies()[0]
    policy.update_many(
        [row["context"] for row in rows], [row["action"] for row in rows], [row["reward"] for row in rows]
    )
    row = {"age": 30.0, "country": "FR"}
    learned = server("POST", f"{PATH}/decisions", {"context": row, "actions": ["blue"], "details": True})[1]
    assert learned["mean"] == pytest.approx(float(policy.predict(row, ["blue"]).mean[0]), abs=1e-9)
    assert digest(server) == replayed(server)
    bad = {"rows": [{"id": "x", "context": {"age": "old", "country": "FR"}, "action": "red", "reward": 1.0}]}
    status, refused = server("POST", f"{PATH}/import", bad)
    assert (status, refused["error"]["message"].startswith("row x: ")) == (422, True)
    with pytest.raises(InputError, match="no loop of this name"):
        import_log(file, server.address, "nothing", None)
    server.stop()


def test_the_export_is_read_by_evaluation_and_by_another_policy(tmp_path):
    server = Local(tmp_path / "events.db", GAPS)
    import_log(old_log(tmp_path)[0], server.address, "offers", None)
    bare = {"id": "bare", "context": {"age": 30.0, "country": "FR"}, "action": "red", "reward": 0.0}
    assert server("POST", f"{PATH}/import", {"rows": [bare]})[1] == {"imported": 1, "repeated": 0}
    for number in range(40):
        context = {"age": 20.0 + number, "country": "FR" if number % 2 else None}
        made = server("POST", f"{PATH}/decisions", {"context": context, "visitor": f"v{number % 7}"})[1]
        if number % 4:
            body = {"reward": float(made["action"] == "blue")}
            server("POST", f"{PATH}/decisions/{made['id']}/reward", body)
    with urllib.request.urlopen(f"{server.address}{PATH}/log") as response:
        (tmp_path / "log.jsonl").write_bytes(response.read())
    server.stop()
    rows = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert len(rows) == 101
    assert {row["visitor"] for row in rows} == {None, *(f"v{number}" for number in range(7))}
    assert {row["country"] for row in (row["context"] for row in rows)} == {"FR", None}
    known = [row for row in rows if row["reward"] is not None]
    policy = parse_settings(GAPS).loops["offers"].new_policies()[0]
    policy.update_many(
        [row["context"] for row in known], [row["action"] for row in known], [row["reward"] for row in known]
    )
    assert policy.round_index == len(known) == 91
    log = read(tmp_path / "log.jsonl")
    assert (len(log.rewards), log.left_out) == (90, 10)
    assert list(log.rewards) == [row["reward"] for row in known if row["propensity"]]
    # only blue earns anything: 1 each time
    assert kb.offpolicy.evaluate(log, "blue").estimates["self-normalised"].value == pytest.approx(1.0)


def test_the_control_group_may_follow_another_loop(tmp_path):
    other = LOOP.partition("[service]")[0].replace("offers", "today").replace('["red", "blue", "green"]', '["red"]')
    text = LOOP.replace("silence", 'control = { share = 0.5, rule = "loop", loop = "today" }\nsilence', 1) + other
    server = Local(tmp_path / "events.db", text)
    made = [decide(server)[1] for _ in range(40)]
    groups = {group: {one["action"] for one in made if one["group"] == group} for group in ("control", "policy")}
    assert groups["control"] == {"red"}
    assert len(groups["policy"]) > 1
    verdict = server("GET", f"{PATH}/verdict")[1]
    assert (verdict["verdict"], verdict["rule"]) == ("keep going", "loop")
    server.stop()


def test_rewards_beyond_their_range_are_refused_where_groups_are_compared(tmp_path):
    text = LOOP.replace("silence", 'control = { share = 0.5, rule = "uniform" }\nsilence', 1)
    server = Local(tmp_path / "events.db", text)
    id = decide(server)[1]["id"]
    status, refused = server("POST", f"{PATH}/decisions/{id}/reward", {"reward": 12.5})
    assert status == 422
    assert "expected 0 to 1, got 12.5; say rewards = [low, high]" in refused["error"]["message"]
    bulk = {"rewards": [{"id": id, "reward": 1.0}, {"id": id, "reward": 2.0}]}
    assert "rewards[1].reward" in server("POST", f"{PATH}/rewards", bulk)[1]["error"]["message"]
    assert server("GET", f"{PATH}/decisions/{id}")[1]["reward"] is None
    server.stop()


def test_a_challenger_is_promoted_by_hand(tmp_path):
    text = LOOP.replace("silence", 'challenger = { policy = "uniform" }\nsilence', 1)
    server = Local(tmp_path / "events.db", text)
    assert server("PUT", f"{PATH}/challenger", {"share": 1.5})[0] == 422
    assert server("PUT", f"{PATH}/challenger", {"share": 1.0})[1] == {"share": 1.0, "by": "hand"}
    assert {decide(server)[1]["group"] for _ in range(10)} == {"challenger"}
    server("PUT", f"{PATH}/challenger", {"share": 0.0})
    assert {decide(server)[1]["group"] for _ in range(10)} == {"policy"}
    server.stop()
    alone = Local(tmp_path / "alone.db")
    assert "has none" in alone("PUT", f"{PATH}/challenger", {"share": 1.0})[1]["error"]["message"]
    alone.stop()
