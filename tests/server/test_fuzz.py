import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from kernel_bandits_server.worker import replay
from serving import LOOP, ROW, Local

# The long tests may be run in parts, each with a seed of its own.
SEED = os.environ.get("KERNEL_BANDITS_SEED", "1")


@pytest.fixture
def server(tmp_path):
    running = Local(tmp_path / "events.db", LOOP.replace("lag = 0.05", "lag = 0.05\nlimits = { pending = 1000000 }"))
    yield running
    running.stop()


@pytest.mark.slow
def test_schemathesis_finds_no_server_error(server, tmp_path):
    pytest.importorskip("schemathesis")
    examples = os.environ.get("KERNEL_BANDITS_EXAMPLES", "450")
    # a loop of a random name would be unknown, and nothing behind it tried
    config = tmp_path / "schemathesis.toml"
    config.write_text('[parameters]\n"path.loop" = "offers"\n')
    command = [str(Path(sys.executable).with_name("st")), "--config-file", str(config)]
    command += ["run", f"{server.address}/openapi.json"]
    command += ["--checks", "not_a_server_error,content_type_conformance,response_schema_conformance"]
    command += [
        "--max-examples",
        examples,
        "--phases",
        "examples,coverage,fuzzing",
        "--seed",
        SEED,
        "--continue-on-failure",
    ]
    command += ["--request-timeout", "30", "--no-color"]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    print(finished.stdout[-3000:])
    assert finished.returncode == 0, finished.stdout[-6000:]
    assert server("GET", "/readyz")[0] == 200


def body(chance):
    """A body that is damaged at random."""
    good = {"context": ROW, "actions": ["red", "blue"], "excluded": ["red"], "id": "x", "details": True}
    kind = chance.randrange(5)
    if kind == 0:
        return bytes(chance.randrange(256) for _ in range(chance.randrange(200)))
    if kind == 1:
        text = bytearray(json.dumps(good).encode())
        for _ in range(chance.randrange(1, 6)):
            text[chance.randrange(len(text))] = chance.randrange(256)
        return bytes(text)
    if kind == 2:
        text = json.dumps(good).encode()
        return text[: chance.randrange(len(text))]
    if kind == 3:
        return json.dumps({**good, chance.choice([*good, "y"]): value(chance, 3)}).encode()
    return json.dumps(value(chance, 4)).encode()


def value(chance, depth):
    simple = [None, True, 0, -1, 1e308, 10**400, "", "red", "\0", "\ud800", "x" * 300, 0.1, -1e-320]
    kind = chance.randrange(4) if depth else 0
    if kind < 2:
        return chance.choice(simple)
    items = [value(chance, depth - 1) for _ in range(chance.randrange(4))]
    if kind == 2:
        return items
    return {chance.choice(["age", "country", "arm", "context", "reward", "id", ""]): item for item in items}


def fuzz(server, count, seed):
    """Send damaged bodies; every refusal leaves the log as it was."""
    chance, worker, last = random.Random(seed), server.runtime.workers["offers"], 0

    def require_replayed():
        found = server("GET", "/v1/loops/offers/digest")[1]["digest"]
        assert found == replay(worker.settings, server.runtime.store).digest()

    paths = ["/decisions", "/rewards", "/decisions/x/reward", "/decisions/x/activate", "/import"]
    for number in range(count):
        status, _ = server("POST", f"/v1/loops/offers{chance.choice(paths)}", raw=body(chance))
        assert status < 500
        events = server.runtime.store.read("offers", last)
        assert not events or status < 300
        last = events[-1].number if events else last
        if number % 1000 == 999:
            require_replayed()
    require_replayed()


def test_damaged_bodies_do_no_harm(server):
    fuzz(server, 300, 0)


@pytest.mark.slow
def test_a_hundred_thousand_damaged_bodies_do_no_harm(server):
    fuzz(server, int(os.environ.get("KERNEL_BANDITS_BODIES", "100000")), int(SEED))


def test_an_error_says_nothing_of_the_inside(server, caplog, monkeypatch):
    def fail(*_):
        raise ZeroDivisionError("a secret path")

    monkeypatch.setattr("kernel_bandits_server.insight.verdicts", fail)
    status, content = server("GET", "/v1/loops/offers/verdict")
    assert (status, content["error"]["code"]) == (500, "internal")
    assert "secret" not in json.dumps(content)
    assert "a secret path" in caplog.text
