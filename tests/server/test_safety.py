import json

import pytest
from kernel_bandits_server.access import Keys, read_keys
from kernel_bandits_server.planning import RefusedError
from kernel_bandits_server.serve import JsonLines, check, main
from serving import LOOP, ROW, Local

from kernel_bandits.errors import InputError

SECRETS = {role: f"secret-of-{role}-0123" for role in ("decide", "reward", "read", "administer")}
OPERATIONS = {
    ("POST", "/v1/loops/offers/decisions"): "decide",
    ("POST", "/v1/loops/offers/decisions/d1/activate"): "decide",
    ("POST", "/v1/loops/offers/decisions/d1/reward"): "reward",
    ("POST", "/v1/loops/offers/rewards"): "reward",
    ("POST", "/v1/loops/offers/decisions/d1/expire"): "reward",
    ("GET", "/v1/loops"): "read",
    ("GET", "/v1/loops/offers"): "read",
    ("GET", "/v1/loops/offers/decisions/d1"): "read",
    ("GET", "/v1/loops/offers/log"): "read",
    ("GET", "/metrics"): "read",
    ("GET", "/v1/loops/offers/verdict"): "read",
    ("POST", "/v1/loops/offers/import"): "administer",
    ("PUT", "/v1/loops/offers/arms/red"): "administer",
    ("DELETE", "/v1/loops/offers/arms/red"): "administer",
    ("PUT", "/v1/loops/offers/challenger"): "administer",
    ("GET", "/v1/loops/offers/digest"): "administer",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    text = ",".join(f"{role}:{role}:{secret}" for role, secret in SECRETS.items())
    keys = read_keys(environment={"KERNEL_BANDITS_KEYS": text})
    running = Local(tmp_path_factory.mktemp("safety") / "events.db", keys=keys)
    yield running
    running.stop()


@pytest.mark.parametrize(("operation", "role"), OPERATIONS.items(), ids=str)
def test_only_the_right_role_gets_in(server, operation, role):
    method, path = operation
    body = {} if method in ("POST", "PUT") and "arms" not in path else None
    before = server.events()

    def status(**headers):
        return server(method, path, body, headers=headers)[0]

    assert status() == 401
    assert status(authorization="Bearer wrong") == 401
    assert status(authorization=f"Basic {SECRETS[role]}") == 401
    assert status(authorization=f"Bearer {SECRETS[role]}x") == 401
    for other, secret in SECRETS.items():
        if other not in (role, "administer"):
            assert status(authorization=f"Bearer {secret}") == 403
    if method != "DELETE":
        assert status(authorization=f"Bearer {SECRETS[role]}") not in (401, 403)
        assert status(**{"x-api-key": SECRETS["administer"]}) not in (401, 403)
    assert server.events() == before


def test_the_page_and_health_need_no_key(server):
    for path in ("/", "/page.js", "/page.css", "/healthz", "/readyz", "/openapi.json"):
        assert server("GET", path)[0] == 200


def test_keys_of_a_file(tmp_path):
    file = tmp_path / "keys.toml"
    file.write_text('[keys.shop]\nroles = ["decide", "reward"]\nkey = "0123456789abcdef"\n')
    keys = read_keys(file)
    assert keys.name_of({"authorization": "Bearer 0123456789abcdef"}) == "shop"
    keys.require("decide", {"authorization": "Bearer 0123456789abcdef"})
    with pytest.raises(RefusedError, match="lacks the role"):
        keys.require("read", {"authorization": "bearer 0123456789abcdef"})
    digest = "sha256:9f9f5111f7b27a781f1f1ddde5ebc2dd2b796bfc7365c9c28b548e564176929f"
    file.write_text(f'[keys.shop]\nroles = ["decide"]\nkey = "{digest}"\n')
    assert read_keys(file).name_of({"x-api-key": "0123456789abcdef"}) == "shop"
    assert read_keys(file).name_of({"x-api-key": digest}) == ""
    for text in (
        "",
        "[keys]",
        '[keys.a]\nroles = ["boss"]\nkey = "0123456789abcdef"',
        '[keys.a]\nroles = ["read"]\nkey = "a"',
    ):
        file.write_text(text)
        with pytest.raises(InputError, match="keys"):
            read_keys(file)
    assert not Keys()


def test_an_open_door_is_refused(tmp_path, monkeypatch):
    monkeypatch.delenv("KERNEL_BANDITS_KEYS", raising=False)
    file = tmp_path / "loop.toml"
    file.write_text(LOOP)
    for host in ("0.0.0.0", "192.0.2.1", "::", "example.org"):
        with pytest.raises(SystemExit, match="no API keys"):
            main([str(file), "--host", host])
    assert list(tmp_path.iterdir()) == [file]
    assert check(file).startswith("offers: ek_ucb over age, country, arm")


def test_the_rate_of_each_key_is_limited(tmp_path):
    text = LOOP + "limits = { requests_per_second = 3 }\n"
    keys = read_keys(environment={"KERNEL_BANDITS_KEYS": f"a:read:{SECRETS['read']},b:read:{SECRETS['read']}-b"})
    server = Local(tmp_path / "events.db", text, keys)
    of_a, of_b = ({"authorization": f"Bearer {SECRETS['read']}{end}"} for end in ("", "-b"))
    statuses = [server("GET", "/v1/loops", headers=of_a)[0] for _ in range(12)]
    assert statuses[0] == 200
    assert 429 in statuses
    assert server("GET", "/v1/loops", headers=of_b)[0] == 200
    assert server("GET", "/healthz")[0] == 200
    server.stop()


def test_the_log_is_json_without_contexts(server, caplog):
    headers = {"authorization": f"Bearer {SECRETS['decide']}"}
    row = {**ROW, "country": "secretland", "age": "x"}
    assert server("POST", "/v1/loops/offers/decisions", {"context": row}, headers=headers)[0] == 422
    lines = [JsonLines().format(record) for record in caplog.records]
    found = [json.loads(line) for line in lines]
    assert {"path": "/v1/loops/offers/decisions", "status": 422, "key": "decide", "code": "invalid"}.items() <= found[
        -1
    ].items()
    assert not any("secretland" in line or SECRETS["decide"] in line for line in lines)
