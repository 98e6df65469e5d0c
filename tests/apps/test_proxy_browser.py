"""The proxy and a real browser: what hostile pages and feeds try makes no step, and what its user does makes one."""

from __future__ import annotations

import shutil

import httpx
import pytest
from playwright.sync_api import sync_playwright

from onoff import Chain
from onoff.client.status import snapshot
from proxykit import PlainOrigin, ProxyProcess

CHROMIUM = shutil.which("chromium")
pytestmark = [pytest.mark.long, pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")]
NAMES = ("evil.html", "other.txt")
# All that a page can try. @ is where the proxy is, or nothing: then it is the page's own origin.
TRIES = """<!doctype html><title>a feed</title>
<link rel="stylesheet" href="@/other.txt"><link rel="prefetch" href="@/other.txt">
<link rel="preload" as="image" href="@/other.txt">
<meta http-equiv="refresh" content="0;url=@/other.txt">
<img src="@/other.txt"><iframe src="@/other.txt"></iframe><object data="@/other.txt"></object>
<video src="@/other.txt"></video>
<form id="switch" method="post" action="@/onoff/privacy"><input name="privacy" value="off"></form>
<script src="@/other.txt"></script>
<script>
fetch("@/other.txt", {mode: "no-cors"}).catch(() => 0)
fetch("@/onoff/privacy", {method: "PUT", body: "off"}).catch(() => 0)
navigator.sendBeacon("@/onoff/privacy", "privacy=off")
new EventSource("@/other.txt")
document.title = "its script ran"
document.getElementById("switch").submit()
</script>"""


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM)
        yield browser
        browser.close()


@pytest.fixture
def origin(tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "evil.html").write_text(TRIES.replace("@", ""))
    (tmp_path / "site" / "other.txt").write_text("something else")
    with PlainOrigin(tmp_path / "site") as running:
        yield running


def test_hostile_pages_make_no_step_and_the_user_does(browser, origin, tmp_path):
    urls = {name: f"{origin.url}/{name}" for name in NAMES}
    with ProxyProcess(tmp_path, urls, Chain([[0.5] * 2] * 2, NAMES)) as proxy:
        page = browser.new_page()

        def steps():
            state = snapshot(proxy.journal).state
            return state.step + (state.pending is not None)

        refused = []
        page.on("response", lambda answer: refused.append(answer.url) if answer.status == 403 else None)

        # A feed of a hostile origin, which the user opens: one step, and nothing of what it tries.
        page.goto(f"{proxy.url}/evil.html", wait_until="networkidle")
        assert (page.title(), steps()) == ("onoff proxy", 0)  # whoever led the browser there: the user decides
        page.get_by_role("link", name="evil.html").click()
        page.wait_for_load_state("networkidle")
        assert page.title() == "a feed"
        assert (steps(), httpx.get(f"{proxy.url}/onoff/privacy").text) == (1, "on\n")
        # A page of another origin, at which scripts run.
        (tmp_path / "site" / "page.html").write_text(TRIES.replace("@", proxy.url))
        refused.clear()
        page.goto(f"{origin.url}/page.html", wait_until="networkidle")
        page.wait_for_timeout(200)
        assert {f"{proxy.url}/other.txt", f"{proxy.url}/onoff/privacy"} <= set(refused)
        assert (steps(), httpx.get(f"{proxy.url}/onoff/privacy").text) == (1, "on\n")
        # The same at other addresses of this machine, at which a browser does not say that a page asks.
        for host in ("0.0.0.0", "[::ffff:127.0.0.1]"):
            (tmp_path / "site" / "page.html").write_text(TRIES.replace("@", f"http://{host}:{proxy.port}"))
            page.goto(f"{origin.url}/page.html", wait_until="networkidle")
            page.wait_for_timeout(200)
            assert (steps(), httpx.get(f"{proxy.url}/onoff/privacy").text) == (1, "on\n")
        # What the user does at the proxy's own page works.
        page.goto(proxy.url)
        page.get_by_role("button", name="Switch OFF").click()
        page.get_by_role("heading", name="Privacy is OFF").wait_for()
        page.get_by_role("link", name="other.txt").click()
        page.get_by_text("something else").wait_for()
        assert (steps(), httpx.get(f"{proxy.url}/onoff/privacy").text) == (2, "off\n")
        page.close()
