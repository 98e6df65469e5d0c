"""The proxy's page: its words and figures over a real client, and its looks in Debian's Chromium."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from types import SimpleNamespace
from urllib.parse import quote

import httpx
import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright

from clientkit import CHAIN, NAMES, OFF, ON, client_with, planted
from onoff import Chain
from onoff.apps.proxy import status_page
from onoff.client import journal
from onoff.client.status import account
from proxykit import ProxyProcess, proxied
from recordingserver import RecordingServer, reply

CHROMIUM = shutil.which("chromium")
ROW = (0.4, 0.4, 0.1, 0.05, 0.05)
STRONG = Chain([[ROW[(y - x) % 5] for y in range(5)] for x in range(5)], NAMES)  # one or two sources come next
LONG = "a-name-that-is-never-broken-" + "x" * 60
FEEDS = ("health", "world & <b>more</b>", LONG, "..", "sports", "culture")
FULL = [("news", ON), ("sports", ON), ("news", ON)]


def page_of(web, requests, place="journal", chain=CHAIN, **options):
    """The page after requests (source, private)."""
    settings = {"promise": "past", "first_ever": True, **options}

    async def play():
        async with proxied(client_with(chain, web.transport(), web.directory / place, delay=0.001, **settings)) as (
            http,
            queue,
        ):
            for source, private in requests:
                queue.switch(private)
                assert (await http.get(f"/{source}")).status_code == 200
            return (await http.get("/")).text

    return asyncio.run(play())


def page_after(web, requests, place="journal", chain=CHAIN, **options):
    """The page without its token, the directory of its journal, and the commas in its figures."""
    page = page_of(web, requests, place, chain, **options)
    return re.sub(r'value="[\w-]{43}"', "", page).replace(",", "").replace(f"{web.directory}/{place}", "journal")


def queries(web):
    """The queries that the journal has, each as (its sources, whether it was made ON)."""
    with closing(sqlite3.connect(web.directory / "journal")) as database:
        found = database.execute("SELECT query, private FROM steps ORDER BY step").fetchall()
    return [(json.loads(query), bool(private)) for query, private in found]


def test_the_words_about_what_servers_learned_and_what_it_costs_are_those_of_what_they_saw(web):
    walk = STRONG.simulate(90, np.random.default_rng(1))
    page = page_after(web, [(NAMES[source], i % 3 == 0) for i, source in enumerate(walk)], chain=STRONG)
    sent, asked = queries(web), len(web.server.requests)
    assert sum(len(query) for query, _ in sent) == asked
    sizes = [len(query) for query, private in sent if not private]
    full, partly = len(sent) - len(sizes), [size for size in sizes if size > 1]
    assert len(sizes) > len(partly) > 0, "the test needs sets of one source and of some"
    assert 2 in partly
    assert f"Of {full} requests no more than that" in page
    assert f"{len(sizes) - len(partly)} requests: each asked for one source alone" in page
    assert f"{len(partly)} requests in part: each was for one of {sum(partly) / len(partly):.1f} sources" in page
    assert f"{len(sent)} requests {full} of them for everything: {asked} messages" in page
    assert f"To mirror everything takes {5 * len(sent)} messages to ask openly {len(sent)}." in page


def test_today_is_the_local_day(web):
    midnight = time.mktime((*time.localtime()[:3], 0, 0, 0, 0, 0, -1))
    for moment, number in ((midnight - 90_000, 1), (midnight - 1, 2), (midnight, 3)):
        with planted((journal, "time", SimpleNamespace(time=lambda moment=moment: moment))):
            page_after(web, [("news", ON)] * number)
    found = account(web.directory / "journal")
    assert (found.totals.steps, found.today.steps) == (6, 3)
    page = page_after(web, [])
    assert re.search("<h3>Today</h3><p>3 requests 3 .*<h3>Since the beginning</h3><p>6 requests 6 ", page)


def test_the_page_shows_nothing_of_what_is_hidden(web):
    """The same statuses and sets, and other requests: the page is the same, but for its token."""
    other = [(NAMES[4 - NAMES.index(name)], private) for name, private in FULL]
    assert page_after(web, FULL, "here") == page_after(web, other, "there")

    def promise(found, _):
        return f"<p>You read {NAMES[found.state.last]} last</p>"

    with planted((status_page, "_promise", promise)):
        assert page_after(web, FULL, "this") != page_after(web, other, "that")


def test_the_page_names_the_promise_the_sensitive_sources_and_the_state_of_the_fuse(web):
    hidden = page_after(web, FULL, sensitive=("sports", "news"))
    assert "Sensitive sources (news sports): the servers learn neither which" in hidden
    assert "sports</a> (sensitive)" in hidden
    assert "except the sensitive ones" in page_after(web, [("news", OFF)], sensitive=("sports", "news"))
    assert "and the fuse is whole: a better model gains 0.00 bits a request" in hidden
    walk = [(NAMES[i * i % 5], OFF) for i in range(51)] + [(NAMES[i % 5], OFF) for i in range(60)]
    blown = page_after(web, walk, "learned", None, promise=None)
    assert re.search(r'class="loud">Your requests DO NOT FOLLOW the chain \(a better model gains [1-9]\.', blown)
    assert "Every request asks for everything that is not fresh" in page_after(web, FULL, "all", None, promise="all")


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM)
        yield browser
        browser.close()


@pytest.fixture
def proxy(tmp_path):
    """A proxy of feeds with difficult names, OFF, one of them sensitive. Some were read."""
    matrix = [[0.75 if y == (x + 1) % 6 else 0.05 for y in range(6)] for x in range(6)]
    with RecordingServer(lambda _: reply(b"x" * 1000)) as server:
        urls = {name: f"{server.url}/{number}" for number, name in enumerate(FEEDS)}
        chain = Chain(matrix, FEEDS)
        with ProxyProcess(tmp_path, urls, chain, "--off", sensitive=("sports",)) as running:
            for name in ("health", "culture", "health", FEEDS[1], LONG, "sports", "culture"):
                assert httpx.get(f"{running.url}/{quote(name, safe='')}", timeout=60).status_code == 200
            yield running


def look(browser, url, **options):
    """A page that loads nothing from elsewhere and logs no error; axe-core finds nothing, and nothing is too wide."""
    page, errors, asked = browser.new_context(**options).new_page(), [], []
    page.on("console", lambda message: errors.append(message.text))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(url)
    results = Axe().run(page).response
    assert len(results["passes"]) > 10
    assert [(rule["id"], [node["html"] for node in rule["nodes"]]) for rule in results["violations"]] == []
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert (errors, [other for other in asked if not other.startswith((url, "data:"))]) == ([], [])
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 320])
def test_axe_finds_nothing_and_nothing_is_wider_than_a_phone(browser, proxy, scheme, width):
    shape = {"color_scheme": scheme, "viewport": {"width": width, "height": 640}}
    page = look(browser, proxy.url, **shape)
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", colour))) > 384) == (scheme == "light"), "the style sheet has an effect"
    look(browser, f"{proxy.url}/health", **shape)  # it was led there, and gets a link


def test_no_word_is_wider_than_a_phone(browser, web):
    page = browser.new_context(viewport={"width": 320, "height": 640}).new_page()
    with ThreadPoolExecutor(1) as beside:  # Playwright has a loop in this thread
        page.set_content(beside.submit(page_of, web, [], "j" * 100, None, promise="all").result())
    assert page.get_by_text("j" * 100).is_visible()
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def test_the_page_is_used_by_keyboard_alone(browser, proxy):
    page = look(browser, proxy.url)
    reached = []
    while True:
        page.keyboard.press("Tab")
        focus = page.evaluate(
            "(e => e === document.body ? null : [e.innerText, parseFloat(getComputedStyle(e).outlineWidth)])"
            "(document.activeElement)"
        )
        if focus is None:
            break
        assert focus[1] >= 2, "the focus is seen"
        reached.append(focus[0])
    assert reached == ["Switch ON", *(name for name in FEEDS if name != "..")]
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Privacy is ON").wait_for()
    assert page.evaluate("scrollTo(0, 0) || document.activeElement === document.body")
