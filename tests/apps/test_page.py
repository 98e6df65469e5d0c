"""The page in a real browser: Debian's Chromium, driven by Playwright. Conditions are waited for, never times."""

from __future__ import annotations

import shutil
import time

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect, sync_playwright

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
    return page.locator("#steps tr")


def made(page, step):
    """Wait until this is the last step that was made."""
    expect(page.locator("#steps tr td").first).to_have_text(str(step))


def last(page):
    """The number of the last step that was made; -1 if there is none."""
    text = page.evaluate("document.querySelector('#steps tr td')?.textContent ?? '-1'")
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


def test_it_can_be_used_by_keyboard_alone(window):
    page = window()
    was_on, first = page.locator("#privacy").get_attribute("aria-checked") == "true", last(page)

    def press(selector, key):
        """Tab to an element, whose focus must be visible, and press a key there."""
        for _ in range(60):
            page.keyboard.press("Tab")
            if page.locator(f"{selector}:focus").count():
                assert look_at(page, selector, "element => getComputedStyle(element).outlineStyle") == "solid"
                return page.keyboard.press(key)
        raise AssertionError(f"{selector} cannot be reached")

    press("#privacy", "Space")
    expect(page.locator("#privacy")).to_have_attribute("aria-checked", "false" if was_on else "true")
    press(".slot:has([title=sports]) .lock", "Enter")
    expect(page.locator(".slot:has([title=sports]) .lock")).to_have_attribute("aria-pressed", "true")
    press(".card[title=science]", "Enter")
    made(page, first + 1)
    page.keyboard.press("Enter")  # the focus is still there
    made(page, first + 2)
    press("#tab-past", "ArrowRight")
    expect(page.locator("#tab-both")).to_be_focused()
    expect(page.locator(".moments").first).to_be_visible()


def violations(page):
    """What axe-core finds: rules of WCAG, and those of good practice."""
    found = Axe().run(page).response["violations"]
    return [(rule["id"], [node["html"] for node in rule["nodes"]]) for rule in found]


def test_axe_finds_nothing_to_object_to_in_light_and_dark_and_the_choice_is_remembered(window):
    page = window(color_scheme="dark")
    dark = look_at(page, "body", COLOUR)
    assert violations(page) == []
    page.emulate_media(color_scheme="light")
    light = look_at(page, "body", COLOUR)
    assert light != dark
    assert violations(page) == []
    page.click("#theme")
    page.click("#tab-both")
    expect(page.locator(".moments.onoff").first).to_be_visible()
    assert violations(page) == []
    page.reload()  # whatever the system prefers
    expect(page.locator(".moments.onoff").first).to_be_visible()
    assert look_at(page, "body", COLOUR) == dark


COLOUR = "element => getComputedStyle(element).backgroundColor"
