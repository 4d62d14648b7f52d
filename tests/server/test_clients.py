"""The clients and files of the guide work as they stand there."""

import importlib.util
import re
import subprocess
import threading
import time
from pathlib import Path

import pytest
from kernel_bandits_server.settings import Service, parse_settings, read_settings
from serving import Local

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = ROOT / "examples" / "service"
GUIDE = (ROOT / "docs" / "service.md").read_text()
ROW = {"age": 34, "country": "FR", "hour": 9.5}


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)


def load_client():
    spec = importlib.util.spec_from_file_location("service_client", EXAMPLES / "client.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Client


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    running = Local(tmp_path_factory.mktemp("clients") / "events.db", (EXAMPLES / "loop.toml").read_text())
    yield running
    running.stop()


def test_the_guide_shows_files_that_work():
    assert blocks("toml")[0] == (EXAMPLES / "loop.toml").read_text()
    read_settings(EXAMPLES / "loop.toml")
    challenger, service = (
        next(text for text in blocks("toml") if name in text) for name in ("challenger]", "[service]")
    )
    settings = parse_settings(f"{blocks('toml')[0]}\n{challenger}\n{service}")
    # what the guide shows as limits are the defaults
    assert settings.service == Service()
    assert settings.loops["offers"].challenger.policy == "lin_ucb"


def test_the_python_client(server):
    client = load_client()(server.address)
    made = client.decide(ROW, id="python-1")
    assert client.decide(ROW, id="python-1")["action"] == made["action"]
    assert client.reward("python-1", 1)["status"] == "learned"
    ids = [client.decide(ROW, ["red", "blue"])["id"] for _ in range(3)]
    assert client.rewards([(id, 0.5) for id in ids])["counts"] == {"learned": 3}
    with pytest.raises(ValueError, match=r"422 invalid: .*column 'age'"):
        client.decide({**ROW, "age": "x"})
    assert client.state()["counts"]["rewards"] >= 4
    client.connection.close()


def test_many_callers_at_once(server):
    before = server("GET", "/v1/loops/offers")[1]["counts"]

    def feed(number):
        client = load_client()(server.address)
        for turn in range(10):
            made = client.decide({**ROW, "age": 20 + turn}, id=f"caller-{number}-{turn}")
            client.reward(made["id"], float(made["action"] == "red"))
        client.connection.close()

    threads = [threading.Thread(target=feed, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    time.sleep(0.6)  # a summary may be half a second old
    after = server("GET", "/v1/loops/offers")[1]["counts"]
    assert after["decisions"] - before["decisions"] == after["rewards"] - before["rewards"] == 80


def test_the_javascript_client(server, tmp_path):
    driver = pytest.importorskip("playwright._impl._driver")
    script = tmp_path / "try.mjs"
    script.write_text(
        f"""
        import {{ Client }} from {(EXAMPLES / "client.js").as_uri()!r};
        const client = new Client("{server.address}");
        const made = await client.decide({{ age: 34, country: "FR", hour: 9.5 }}, {{ id: "javascript-1" }});
        const again = await client.decide({{ age: 34, country: "FR", hour: 9.5 }}, {{ id: "javascript-1" }});
        const done = await client.reward("javascript-1", 1);
        const many = await client.rewards([["javascript-1", 1], ["never", 0]]);
        const refused = await client.decide({{}}).catch((error) => error.message);
        console.log(made.action === again.action, done.status, JSON.stringify(many.counts), refused.slice(0, 12));
        """
    )
    node = driver.compute_driver_executable()[0]
    finished = subprocess.run([node, script], capture_output=True, text=True, check=False, timeout=60)
    assert finished.stdout.strip() == 'true learned {"repeated":1,"unknown":1} 422 invalid:', finished.stderr
