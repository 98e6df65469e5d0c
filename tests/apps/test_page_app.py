"""The application behind the page, without a browser: who may use it, what it refuses, and how it ends."""

from __future__ import annotations

import re
import threading
import time
from contextlib import suppress
from pathlib import Path

import httpx
import numpy as np
import pytest

from onoff import Chain
from onoff.apps.page.app import BODY_LIMIT
from pageprocess import PageProcess


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    file = tmp_path_factory.mktemp("chain") / "four.json"
    Chain.symmetric(4, 0.4, ["a", "b", "c", "d <b>"]).save(file)
    return file


@pytest.fixture
def hard():
    """Its plans take long."""
    return Chain(np.random.default_rng(1).dirichlet(np.full(18, 0.5), 18))


@pytest.fixture(scope="module")
def page(four):
    with PageProcess("--chain", str(four)) as page:
        yield page


def test_only_this_machine_and_only_this_page_may_ask(page):
    """What `guard` refuses, the tests of the proxy say."""
    port = page.url.rpartition(":")[2]
    foreign = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}  # as for a picture or a script
    for headers in ({"host": "evil.example"}, {"origin": "http://evil.example"}, foreign):
        assert httpx.post(f"{page.url}/past/switch", json={"private": True}, headers=headers).status_code == 403
        for path in ("/", "/events", "/static/page.js"):
            with httpx.stream("GET", f"{page.url}{path}", headers=headers) as answer:
                assert answer.status_code == 403, (headers, path)
    assert not page.state()["past"]["private"]
    own = {"origin": page.url, "sec-fetch-site": "same-origin"}
    assert httpx.post(f"{page.url}/past/switch", json={"private": False}, headers=own).status_code == 200
    listening = [
        line.split()[1]
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]
        if f":{int(port):04X} 00000000:0000 0A" in line
    ]
    assert listening == [f"0100007F:{int(port):04X}"]  # 127.0.0.1 and nothing else


def test_nothing_can_be_loaded_from_elsewhere(page):
    assert page.http.get("/").headers["content-security-policy"].startswith("default-src 'self'")
    static = Path(__import__("onoff").__file__).parent / "apps" / "page" / "static"
    for file in static.iterdir():
        foreign = re.findall(r"(?:https?:)?//[\w.-]+\.\w+", file.read_text())
        assert {found.split("//")[1] for found in foreign} <= {"www.w3.org"}, file.name  # the name of SVG


def test_requests_that_make_no_sense_are_refused_in_words(page):
    for path, body in (
        ("/past/ask", {"source": "a", "private": 1}),
        ("/past/ask", {"source": "nobody", "private": True}),
        ("/past/lock", {"source": "nobody", "on": True}),
        ("/past/switch", {}),
        ("/both/ask", {"source": "a", "private": True}),
        ("/both/make_now", {}),
    ):
        answer = page.post(path, **body)
        assert answer.status_code == 400, (path, body)
        assert answer.json()["error"]
    for path in ("/past/make_now", "/past/state", "/both/nonsense"):
        assert page.post(path).status_code in (400, 404), path
    answer = page.http.post("/past/ask", content=b" " * (BODY_LIMIT + 1))
    assert (answer.status_code, "At most" in answer.json()["error"]) == (413, True)


def test_ctrl_c_ends_all_of_it_even_while_plans_are_being_made_and_leaves_nothing(tmp_path, hard):
    hard.save(tmp_path / "hard.csv")
    page = PageProcess("--chain", str(tmp_path / "hard.csv"), directory=tmp_path)
    asking = threading.Thread(target=_start_planning, args=(page.url,))
    asking.start()
    while not page.state()["planning"]:
        time.sleep(0.02)
    assert len(list(tmp_path.iterdir())) > 1
    with httpx.stream("GET", f"{page.url}/events") as watching:  # a browser is looking on
        lines = watching.iter_lines()
        assert next(lines).startswith("retry")
        assert page.stop() == 0
    asking.join()
    assert [path.name for path in tmp_path.iterdir()] == ["hard.csv"]


def _start_planning(url):
    with suppress(httpx.HTTPError):  # the page may end before it answers
        httpx.post(f"{url}/both/open_both", json={}, timeout=180)
