import http.server
import json
import shutil
import threading
import urllib.request

import pytest
from kernel_bandits_server.access import read_keys
from serving import LOOP, ROW, Local

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
SCRIPT = "<img src=x onerror=alert(1)>"
SECRET = "secret-of-reader-0123"


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as engine:
        chromium = engine.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def server(tmp_path):
    keys = read_keys(environment={"KERNEL_BANDITS_KEYS": f"all:administer:{SECRET}"})
    running = Local(tmp_path / "events.db", LOOP.replace("green", SCRIPT), keys)
    running.headers = {"authorization": f"Bearer {SECRET}"}
    yield running
    running.stop()


def feed(server, count):
    for number in range(count):
        _, made = server("POST", "/v1/loops/offers/decisions", {"context": ROW}, headers=server.headers)
        reward = {"reward": float(number % 3 == 0)}
        server("POST", f"/v1/loops/offers/decisions/{made['id']}/reward", reward, headers=server.headers)


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")], ids=["desktop", "phone"])
def test_the_page_shows_the_log_live_and_runs_no_script_of_others(browser, server, width, scheme):
    feed(server, 30)
    context = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme)
    page = context.new_page()
    dialogs, errors, addresses = [], [], []
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: addresses.append(request.url))
    page.goto(server.address)
    page.fill("#key", "wrong")
    page.click("#door button")
    playwright.expect(page.locator("#refusal")).to_contain_text("not known")
    page.fill("#key", SECRET)
    page.click("#door button")
    playwright.expect(page.locator("#decisions dd").first).to_have_text("30")

    request = urllib.request.Request(f"{server.address}/v1/loops/offers/log", headers=server.headers)
    with urllib.request.urlopen(request) as response:
        rows = [json.loads(line) for line in response]
    mean = sum(row["reward"] for row in rows) / len(rows)
    shown = page.locator("[data-name=reward] b").inner_text().split("±")[0]
    assert float(shown) == pytest.approx(mean, abs=0.005)
    plays = {row["arm"]: sum(other["arm"] == row["arm"] for other in rows) for row in rows}
    cells = page.locator("#arms tbody tr").evaluate_all(
        "rows => rows.map(row => [row.cells[0].textContent, Number(row.cells[2].textContent)])"
    )
    assert dict(cells) == plays
    assert SCRIPT in dict(cells)

    feed(server, 1)
    playwright.expect(page.locator("#decisions dd").first).to_have_text("31")
    playwright.expect(page.locator("#response-chart svg")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert page.locator("main img").count() == 0
    assert (dialogs, errors) == ([], [])
    assert all(address.startswith((server.address, "data:")) for address in addresses)
    context.close()


def test_without_keys_the_page_is_served_and_that_of_another_is_not(browser, tmp_path, caplog):
    server = Local(tmp_path / "events.db")
    post = """address => fetch(`${address}/v1/loops/offers/decisions`, {
      method: "POST", mode: "no-cors", body: JSON.stringify({ context: { age: 30, country: "FR" } })
    }).then((response) => response.status)"""
    page = browser.new_page()
    page.goto(server.address)
    playwright.expect(page.locator("#decisions dd").first).to_have_text("0")
    assert page.evaluate(post, server.address) == 201
    playwright.expect(page.locator("#decisions dd").first).to_have_text("1")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        page.goto(f"http://127.0.0.1:{other.server_port}/none")
        page.evaluate(post, server.address)
        other.shutdown()
    assert server.events() == 1
    assert [record.code for record in caplog.records if hasattr(record, "code")] == ["foreign_origin"]
    page.close()
    server.stop()
