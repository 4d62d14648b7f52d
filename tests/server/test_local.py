"""A service without keys is for this machine alone, and not for the web pages that a browser shows on it."""

import http.client
import json

import pytest
from kernel_bandits_server.access import read_keys
from serving import ROW, Local

FOREIGN_HOSTS = [
    "evil.example",
    "evil.example:8080",
    "localhost.evil.example",
    "notlocalhost",
    "127.0.0.1.evil.example",
    "127.0.0.1@evil.example",
    "192.0.2.1",
    "0.0.0.0",
    "[::2]:8080",
    "[127.0.0.1]",
    "::1",
    "",
    ":8080",
    "evil.example/.localhost",
    "evil" * 10_000,
]
LOCAL_HOSTS = [
    "localhost",
    "localhost.:8080",
    "LOCALHOST:9000",
    "shop.localhost:8080",
    "127.0.0.1",
    "127.1.2.3:1",
    "[::1]",
    "[::1]:8080",
]
SECRET = "secret-of-shop-0123456"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    running = Local(tmp_path_factory.mktemp("local") / "events.db")
    yield running
    running.stop()


def ask(server, method, path, headers, body=None, version=11):
    """Status, JSON and headers of a request that is sent as it stands here."""
    connection = http.client.HTTPConnection(server.address.removeprefix("http://"), timeout=30)
    connection._http_vsn, connection._http_vsn_str = version, f"HTTP/1.{version - 10}"
    content = None if body is None else json.dumps(body).encode()
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    for name, value in headers:
        connection.putheader(name, value)
    connection.putheader("content-length", str(len(content or b"")))
    connection.endheaders(content)
    response = connection.getresponse()
    text = response.read()
    connection.close()
    return response.status, json.loads(text) if text.startswith(b"{") else text, response.headers


@pytest.mark.parametrize("host", FOREIGN_HOSTS)
def test_another_host_is_refused(server, host):
    status, content, _ = ask(server, "GET", "/v1/loops/offers/log", [("host", host)])
    if status == 400:
        # no name of a host at all
        assert content["error"]["message"] == "Invalid host header"
        return
    assert (status, content["error"]["code"]) == (403, "foreign_host")
    assert "API keys" in content["error"]["message"]


@pytest.mark.parametrize("host", LOCAL_HOSTS)
def test_names_of_this_machine_are_served(server, host):
    assert ask(server, "GET", "/v1/loops", [("host", host)])[0] == 200
    own = [("host", host), ("origin", f"http://{host}".lower())]
    assert ask(server, "POST", "/v1/loops/offers/decisions", own, {"context": ROW})[0] == 201


@pytest.mark.parametrize("path", ["/", "/page.js", "/openapi.json", "/metrics", "/healthz", "/readyz", "/v1/loops"])
def test_no_path_is_left_out_and_no_redirect_is_sent(server, path):
    status, _, headers = ask(server, "GET", path, [("host", "evil.example")])
    assert (status, headers["location"]) == (403, None)


def test_two_hosts_have_to_be_local_both(server):
    assert ask(server, "GET", "/v1/loops", [("host", "localhost"), ("host", "evil.example")])[0] in (400, 403)


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "https://evil.example:8080",
        "null",
        "",
        "http://localhost",
        "http://localhost:9000",
        "http://127.0.0.1:8080",
        "http://localhost:8080.evil.example",
        "file://",
        "localhost:8080",
    ],
)
def test_a_page_of_another_can_neither_decide_nor_reward(server, origin, caplog):
    before = server.events()
    # what a page may send without asking first
    headers = [("host", "localhost:8080"), ("origin", origin), ("content-type", "text/plain")]
    status, content, _ = ask(server, "POST", "/v1/loops/offers/decisions", headers, {"context": ROW})
    assert (status, content["error"]["code"]) == (403, "foreign_origin")
    assert server.events() == before
    assert caplog.records[-1].code == "foreign_origin"


def test_an_origin_may_name_the_port_that_its_scheme_has_anyway(server):
    for host, origin in (("localhost:80", "http://localhost"), ("localhost", "https://localhost:443")):
        assert ask(server, "GET", "/v1/loops", [("host", host), ("origin", origin)])[0] == 200


def test_with_keys_the_host_is_of_no_importance(tmp_path):
    keys = read_keys(environment={"KERNEL_BANDITS_KEYS": f"shop:administer:{SECRET}"})
    running = Local(tmp_path / "events.db", keys=keys)
    headers = [("host", "shop.example"), ("origin", "https://elsewhere.example"), ("authorization", f"Bearer {SECRET}")]
    assert ask(running, "POST", "/v1/loops/offers/decisions", headers, {"context": ROW})[0] == 201
    running.stop()
