"""The page in a real browser: Debian's Chromium, driven by Playwright. Conditions are waited for, never times."""

from __future__ import annotations

import re
import shutil
import signal
import time

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect, sync_playwright

from onoff import Chain
from onoff.apps.demo.reader import CHANNELS
from pageprocess import PageProcess

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
expect.set_options(timeout=120_000)
# Names that are looked up outside are not found: the page must work without a network.
ARGUMENTS = ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with PageProcess(directory=tmp_path_factory.mktemp("page")) as running:
        yield running


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def window(running, browser):
    """Opens the page, whatever its chain. In the end, nothing was loaded from elsewhere and no error was logged.

    Steps of earlier tests are still shown. Nothing is waiting, but for one announced request.
    """
    errors, elsewhere, contexts = [], [], []

    def open_page(path="", **options):
        context = browser.new_context(**{"reduced_motion": "reduce", **options})
        contexts.append(context)
        page = context.new_page()
        page.on(
            "console", lambda message: errors.append(message.text) if message.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", lambda one: None if one.url.startswith("http://127.0.0.1:") else elsewhere.append(one.url))
        page.goto(f"{running.url}/{path}")
        expect(page.locator(".card").first).to_be_visible()
        settled(running)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert elsewhere == []
    assert [
        error for error in errors if "400 (Bad Request)" not in error
    ] == []  # refused clicks are logged by Chromium


def switch(page, private):
    """Put the switch in its place."""
    if (page.locator("#privacy").get_attribute("aria-checked") == "true") != private:
        page.click("#privacy")
    expect(page.locator("#privacy")).to_have_attribute("aria-checked", "true" if private else "false")


def click(page, *wishes):
    """Requests as (source, private), each clicked with the switch in its place."""
    for source, private in wishes:
        switch(page, private)
        page.click(f".card[title={source}]")


def rows(page):
    """The steps that have been made, the latest first."""
    return page.locator("#steps tr:not(.pending)")


def made(page, step):
    """Wait until this is the last step that was made."""
    expect(page.locator("#steps tr:not(.pending) td").first).to_have_text(str(step))


def last(page):
    """The number of the last step that was made; -1 if there is none."""
    text = page.evaluate("document.querySelector('#steps tr:not(.pending) td')?.textContent ?? '-1'")
    return int(text)


def settled(running):
    """Wait until nothing more is being made, but for one announced request, and all steps have been thought about."""
    deadline = time.monotonic() + 120
    while True:
        state = running.state()
        past, both = state["past"], state["both"] or {"queue": []}
        thought = (past["knowledge"] or {"steps": 0})["steps"]
        steps = past["steps"][-1]["step"] + 1 if past["steps"] else 0
        if not past["queue"] and len(both["queue"]) < 2 and thought == steps:
            return
        assert time.monotonic() < deadline, state
        time.sleep(0.1)


def only_the_naive_client_told(page, step):
    """Check that the server learned nothing of a step from ours, and something from the naive client; both sides."""
    sides = page.locator(f".belief[data-step='{step}'] .side")
    expect(sides.nth(1)).to_be_visible()
    expect(sides.nth(1)).not_to_have_attribute("data-bits", "0.000000")
    ours, naive = (float(sides.nth(i).get_attribute("data-bits")) for i in (0, 1))
    assert ours < 1e-6
    assert naive > 0.01
    return sides


def until(page, condition):
    """Playwright's own wait evaluates text within the page, which the page's content security policy forbids."""
    deadline = time.monotonic() + 120
    while not page.evaluate(condition):
        assert time.monotonic() < deadline, condition
        page.wait_for_timeout(20)


def layout(page):
    """Where every section and heading stands."""
    boxes = [element.bounding_box() for element in page.locator("section:visible, h2:visible").all()]
    return [{key: round(value) for key, value in box.items()} for box in boxes]


def look_at(page, selector, script, which=0):
    """What a script finds out about an element. In one call: what is drawn with each state is replaced between two."""
    page.locator(selector).first.wait_for(state="attached")
    return page.evaluate(f"selector => ({script})([...document.querySelectorAll(selector)].at({which}))", selector)


def cut_off(page, selector):
    """The texts that are not shown whole: beyond the edge of their chart, or longer than their box."""
    return page.locator(selector).evaluate_all("""elements => elements.filter((element) => {
        const svg = element.closest("svg");
        if (!svg) return element.scrollWidth > element.clientWidth || element.scrollHeight > element.clientHeight;
        const inner = element.getBoundingClientRect(), outer = svg.getBoundingClientRect();
        return inner.left < outer.left - 1 || inner.right > outer.right + 1 || inner.top < outer.top - 1
            || inner.bottom > outer.bottom + 1;
    }).map((element) => element.textContent)""")


def test_it_opens_with_a_stream_and_a_click_is_a_request_that_leaves_beliefs_flat_but_those_about_a_naive_client(
    window,
):
    page = window()
    expect(page.locator("#cost .point.both")).to_have_count(8)
    until(page, "document.querySelectorAll('.belief').length === 3")
    before, first = layout(page), last(page)
    assert first >= 12  # there is something to look at
    assert "locked" in page.locator("#sensitive-words").inner_text().lower()
    click(page, ("politics", True))
    made(page, first + 1)  # nothing was announced
    click(page, ("politics", False), ("business", False))
    made(page, first + 3)
    side = only_the_naive_client_told(page, first + 1)
    told = side.nth(0).locator("b").inner_text().split(" → ")
    assert len(told) == 4
    assert len(set(told[1:])) == 1  # before, at and after: flat
    for kind, is_flat in (("onoff", True), ("naive", False)):
        line = look_at(page, f".belief[data-step='{first + 1}'] .moments.{kind} .truth polyline", HEIGHTS)
        assert (max(line[1:]) - min(line[1:]) < 0.2) == is_flat, kind
    assert [rows(page).nth(i).locator(".status").inner_text() for i in range(3)] == ["OFF", "OFF", "ON"]
    assert rows(page).nth(0).locator(".want").inner_text() == "business"
    seen = rows(page).nth(0).locator(".squares")
    assert "business" in seen.get_attribute("aria-label")
    assert 1 <= seen.locator(".in").count() < len(CHANNELS)
    assert rows(page).nth(2).locator(".squares .in").count() == len(CHANNELS)
    expect(page.locator("#count")).to_contain_text("the latest of business")
    assert layout(page) == before  # nothing has jumped
    # every square stands under the visible name of its source
    assert page.locator("#saw-names span").all_inner_texts() == list(CHANNELS)
    names, squares = (page.locator(part).evaluate_all(CENTRES) for part in NAMES_AND_SQUARES)
    assert squares == pytest.approx(names, abs=2)


HEIGHTS = "line => [...line.points].map((point) => point.y)"
NAMES_AND_SQUARES = "#saw-names span", "tr:first-child .square"
CENTRES = "all => all.map((one) => one.getBoundingClientRect()).map((box) => box.x + box.width / 2)"


@pytest.mark.long
def test_a_lock_begins_a_new_stream_says_so_keeps_the_history_and_hides_whether_something_sensitive_was_read(window):
    page = window()
    for source, on in (("culture", "true"), ("health", "false"), ("health", "true")):
        page.click(f".slot:has([title={source}]) .lock")
        expect(page.locator(f".slot:has([title={source}]) .lock")).to_have_attribute("aria-pressed", on)
    words = "This is a new stream with health, culture locked, and its first two requests ask for everything."
    expect(page.locator("#stream")).to_have_text(words)
    expect(page.locator("#sensitive-words")).to_contain_text("Make a request in this stream")
    first = last(page) + 1
    assert first > 12  # the steps before are still there
    click(page, ("world", False), ("health", False), ("health", False), ("health", False), ("world", False))
    made(page, first + 4)
    assert [rows(page).nth(i).locator("td").nth(1).inner_text() for i in (2, 3, 4)] == ["OFF", "ON*", "ON*"]
    expect(page.locator("#stream")).to_have_text("This is a new stream with health, culture locked.")
    expect(page.locator(f".belief[data-step='{first + 3}']")).to_contain_text("OFF: you wanted health, which is locked")
    expect(page.locator(".overtime .up")).to_have_count(6)  # three reads, beside each other
    ours, naive = (look_at(page, chart, DOTS) for chart in ("#some-ours", "#some-naive"))
    assert all(abs(line - dot) < 0.5 for line, dot in ours)
    assert max(abs(line - dot) for line, dot in naive) > 30
    only_the_naive_client_told(page, first + 3)
    assert {"health", "culture"} <= set(rows(page).nth(1).locator(".squares").get_attribute("aria-label").split(", "))


DOTS = """chart => [...chart.querySelectorAll("g")].map((group) => [
    group.querySelector(".prior").y1.baseVal.value, group.querySelector(".dot").cy.baseVal.value])"""


def test_the_promise_both_is_the_second_tab_and_makes_a_request_when_the_next_is_known(window, running):
    page = window()
    page.click("#tab-both")
    expect(page.locator(".moments.onoff").first).to_be_visible()  # it does not open empty, either
    expect(page.locator("#cost .curve.past")).to_be_visible()  # costs of both promises are on both tabs
    expect(page.locator("#queue")).to_contain_text("waits for the next")
    expect(page.locator("#now")).to_be_enabled()
    settled(running)
    first = last(page)
    click(page, ("world", True), ("politics", True), ("politics", False), ("business", False))
    made(page, first + 4)
    only_the_naive_client_told(page, first + 3)
    assert [rows(page).nth(i).locator(".status").inner_text() for i in range(3)] == ["OFF", "ON", "ON"]
    page.click("#now")  # without a next request
    made(page, first + 5)
    expect(rows(page).first.locator("td").nth(1)).to_have_text("ON*")
    assert rows(page).first.locator(".squares .in").count() == len(CHANNELS)
    expect(page.locator("#queue")).to_contain_text("empty")
    expect(page.locator("#now")).to_be_disabled()
    assert page.locator(".lock:visible").count() == 0
    page.reload()
    expect(page.locator("#queue")).to_be_visible()  # the tab is still chosen
    page.click("#tab-past")
    expect(page.locator("#sensitive")).to_be_visible()


@pytest.mark.long
def test_a_stopped_server_leaves_a_request_pending(window):
    page = window()
    first = last(page)
    page.click("#stop")
    expect(page.locator("#server")).to_have_text("server stopped")
    click(page, ("health", False))
    expect(page.locator("#notice")).to_contain_text(f"Step {first + 1} has no answer yet")
    expect(page.locator("#steps tr.pending")).to_have_count(1)
    expect(page.locator("#stop")).to_have_text("Start the server")
    page.click("#stop")
    made(page, first + 1)
    expect(page.locator("#notice")).to_be_hidden()
    expect(page.locator("#server")).to_have_text("server running")


@pytest.mark.long
def test_clicks_arrive_in_their_order_and_the_switch_stays_where_it_was_put(window, running):
    page, held = window(), []
    hold = lambda route: held.append(route)  # noqa: E731, PLW0108  the number of arguments counts

    def wait_for(count):
        while len(held) < count:
            page.wait_for_timeout(20)

    page.route("**/ask", hold)
    first = last(page)
    page.click(".card[title=world]")
    page.click(".card[title=health]")
    wait_for(1)
    page.wait_for_timeout(100)
    assert len(held) == 1, "the second click would overtake the first"
    held[0].continue_()
    wait_for(2)
    held[1].continue_()
    made(page, first + 2)
    assert [rows(page).nth(i).locator(".want").get_attribute("title") for i in (1, 0)] == ["world", "health"]
    held.clear()
    toggle, was_on = page.locator("#privacy"), page.locator("#privacy").get_attribute("aria-checked") == "true"
    page.route("**/switch", hold)
    page.click("#privacy")
    wait_for(1)
    assert running.post("/past/ask", source="world", private=was_on).status_code == 200
    made(page, first + 3)  # a state in which the switch is not turned
    expect(toggle).to_have_attribute("aria-checked", str(not was_on).lower())
    held[0].fulfill(status=400, json={"error": "not now"})
    expect(page.locator("#notice")).to_contain_text("not now")
    expect(toggle).to_have_attribute("aria-checked", str(was_on).lower())


def test_it_can_be_used_by_keyboard_alone(window):
    page = window()
    was_on, first = page.locator("#privacy").get_attribute("aria-checked") == "true", last(page)

    def tab_to(selector):
        for _ in range(60):
            page.keyboard.press("Tab")
            if page.locator(f"{selector}:focus").count():
                outline = look_at(page, selector, "element => getComputedStyle(element).outlineStyle")
                assert outline == "solid", f"the focus on {selector} is not visible"
                return
        raise AssertionError(f"{selector} cannot be reached")

    tab_to("#privacy")
    page.keyboard.press("Space")
    expect(page.locator("#privacy")).to_have_attribute("aria-checked", "false" if was_on else "true")
    tab_to(".slot:has([title=sports]) .lock")
    page.keyboard.press("Enter")
    expect(page.locator(".slot:has([title=sports]) .lock")).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".slot:has([title=sports]) .lock")).to_be_focused()
    tab_to(".card[title=science]")
    page.keyboard.press("Enter")
    made(page, first + 1)
    page.keyboard.press("Enter")  # the focus is still there
    made(page, first + 2)
    tab_to(".scroll")
    tab_to("#play")
    page.keyboard.press("Enter")
    expect(page.locator("#play")).to_have_attribute("aria-pressed", "true")
    made(page, first + 3)
    page.keyboard.press("Enter")
    tab_to("#tab-past")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#tab-both")).to_be_focused()
    expect(page.locator(".moments").first).to_be_visible()


def violations(page):
    """What axe-core finds: rules of WCAG, and those of good practice."""
    found = Axe().run(page).response["violations"]
    return [(rule["id"], [node["html"] for node in rule["nodes"]]) for rule in found]


def test_light_and_dark_and_both_modes_are_readable_and_axe_finds_nothing_to_object_to(window):
    def brightness(page):
        colour = look_at(page, "body", "element => getComputedStyle(element).backgroundColor")
        return sum(map(int, re.findall(r"\d+", colour)[:3])) / 3

    def check(page, dark):
        assert (brightness(page) < 60) == dark
        assert violations(page) == []

    page = window(color_scheme="dark", reduced_motion="no-preference")
    check(page, dark=True)
    assert look_at(page, ".knob", "knob => getComputedStyle(knob).transitionDuration") == "0.15s"
    page.emulate_media(color_scheme="light", reduced_motion="reduce")
    check(page, dark=False)
    moving = page.evaluate("""[...document.querySelectorAll("*")].map((element) => getComputedStyle(element))
        .filter((style) => style.transitionDuration !== "0s" || style.animationName !== "none").length""")
    assert moving == 0
    expect(page.locator("#theme")).to_have_text("Dark")
    page.click("#theme")
    page.click("#tab-both")
    expect(page.locator(".moments.onoff").first).to_be_visible()
    check(page, dark=True)
    page.reload()  # the choices are remembered, whatever the system prefers
    expect(page.locator("#theme")).to_have_text("Light")
    expect(page.locator(".moments.onoff").first).to_be_visible()
    assert brightness(page) < 60


@pytest.mark.long
def test_24_sources_are_readable_on_a_phone_and_on_a_screen(window, tmp_path):
    names = "frontpage news tech local opinion on-air misc weather msn-news health living business".split()  # noqa: SIM905
    names += [f"a-source-with-quite-a-long-name-{i}" for i in range(24 - len(names))]
    Chain.symmetric(24, 0.3, names).save(tmp_path / "long.csv")
    page = window(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    with PageProcess("--chain", str(tmp_path / "long.csv"), directory=tmp_path) as long:
        page.goto(long.url)
        expect(page.locator(".card")).to_have_count(24)
        settled(long)
        expect(page.locator("#sensitive")).to_be_visible()
        expect(page.locator(".moments").first).to_be_visible()
        expect(page.locator("#cost .curve.past")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        for part in ("#privacy", ".card", ".lock", "#play", ".squares", "td.number", ".side svg", "#tab-both"):
            place = look_at(page, part, "element => element.getBoundingClientRect().toJSON()", which=-1)
            assert 0 <= place["left"] <= place["right"] <= 390, part
            assert place["height"] >= 30 or part in (".squares", "td.number"), f"{part} is too small for a thumb"
        assert violations(page) == []
        page.click("#tab-both")
        expect(page.locator(".moments").first).to_be_visible()
        for width, wide in ((390, 300), (1280, 500)):
            page.set_viewport_size({"width": width, "height": 844})
            until(page, f"document.querySelector('.moments').clientWidth > {wide}")
            for selector in (".card b", "th:not(.saw)", ".moments text"):
                assert not [text for text in cut_off(page, selector) if "long" not in text], (selector, width)
        page.goto("about:blank")  # before its server ends


@pytest.mark.long
def test_the_page_goes_on_by_itself_when_the_program_is_back_and_24_clicks_in_order_bring_a_warning(running, browser):
    context = browser.new_context()
    page = context.new_page()
    page.goto(running.url)
    expect(page.locator(".card").first).to_be_visible()
    server = running.state()["past"]["server"]["url"]
    assert running.stop(signal.SIGKILL) == -signal.SIGKILL
    with pytest.raises(httpx.ConnectError):  # the server has ended with the page
        httpx.get(server)
    expect(page.locator("#notice")).to_contain_text("The program behind this page is gone")
    running.start()
    expect(page.locator("#notice")).to_be_hidden()
    made(page, 13)
    click(page, ("world", True))
    made(page, 14)
    expect(page.locator("#warning")).to_have_text("")
    for i in range(24):
        assert running.post("/past/ask", source=CHANNELS[i % 8], private=False).status_code == 200
        settled(running)
    expect(page.locator("#warning")).to_contain_text("do not follow these habits")
    context.close()
