"""The page in a real browser: Debian's Chromium, driven by Playwright. Conditions are waited for, never times."""

from __future__ import annotations

import os
import re
import shutil
import signal
import time

import pytest
from playwright.sync_api import expect, sync_playwright

from onoff import Chain
from onoff.apps.demo import CHANNELS, reader
from pageprocess import PageProcess, processes_of, until_gone

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
def view(running, window, tmp_path):
    """Opens the page of the reader of eight channels. (A new chain is a new server: only where it is needed.)"""
    file = tmp_path / "reader.csv"
    if running.state()["names"] != list(CHANNELS):
        reader().save(file)
        assert running.load(file.name, file.read_bytes()).status_code == 200
    return window


@pytest.fixture
def window(running, browser):
    """Opens the page, whatever its chain. In the end, nothing was loaded from elsewhere and no error was logged.

    Steps of earlier tests are still shown; nothing is waiting in the queue.
    """
    errors, elsewhere, contexts = [], [], []
    while running.state()["queue"]:
        running.post("/now")  # refused while the request before is being made

    def open_page(**options):
        context = browser.new_context(reduced_motion="reduce", **options)
        contexts.append(context)
        page = context.new_page()
        page.on(
            "console", lambda message: errors.append(message.text) if message.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on(
            "request", lambda request: None if request.url.startswith(running.url) else elsewhere.append(request.url)
        )
        page.goto(running.url)
        expect(page.locator(".card").first).to_be_visible()
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert elsewhere == []
    assert [
        error for error in errors if "400 (Bad Request)" not in error
    ] == []  # refused clicks are logged by Chromium


def click(page, *wishes):
    """Requests as (source, private), each clicked with the switch in its place."""
    for source, private in wishes:
        if (page.locator("#privacy").get_attribute("aria-checked") == "true") != private:
            page.click("#privacy")
        expect(page.locator("#privacy")).to_have_attribute("aria-checked", "true" if private else "false")
        page.click(f".card[title={source}]")


def rows(page):
    """The steps that have been made, the latest first."""
    return page.locator("#steps tr:not(.pending)")


def steps(page):
    """How many there are: the number of the next one."""
    return rows(page).count()


def bits(page, step):
    """How far the server's belief about a step has moved: with onoff, and with a naive client."""
    belief = page.locator(f".belief[data-step='{step}'] .side")
    return [float(belief.nth(i).get_attribute("data-bits")) for i in (0, 1)]


def until(page, condition):
    """Playwright's own wait evaluates text within the page, which the page's content security policy forbids."""
    deadline = time.monotonic() + 120
    while not page.evaluate(condition):
        assert time.monotonic() < deadline, condition
        page.wait_for_timeout(20)


APART = """[...document.querySelector(".bars").querySelectorAll("g text")].map((text) => text.getBoundingClientRect().x)
    .every((x, i, all) => !i || x - all[i - 1] >= 9)"""


def layout(page):
    """Where every section and heading stands."""
    boxes = [element.bounding_box() for element in page.locator("section, h2").all()]
    return [{key: round(value) for key, value in box.items()} for box in boxes]


def look_at(page, selector, script, which=0):
    """What a script finds out about an element. In one call: what is drawn with each state is replaced between two."""
    page.locator(selector).first.wait_for(state="attached")
    return page.evaluate(f"selector => ({script})([...document.querySelectorAll(selector)].at({which}))", selector)


def box(page, selector):
    """Where the last such element stands."""
    return look_at(page, selector, "element => element.getBoundingClientRect().toJSON()", which=-1)


def cut_off(page, selector):
    """The texts that are not shown whole: beyond the edge of their chart, or longer than their box."""
    return page.locator(selector).evaluate_all("""elements => elements.filter((element) => {
        const svg = element.closest("svg");
        if (!svg) return element.scrollWidth > element.clientWidth || element.scrollHeight > element.clientHeight;
        const inner = element.getBoundingClientRect(), outer = svg.getBoundingClientRect();
        return inner.left < outer.left - 1 || inner.right > outer.right + 1 || inner.top < outer.top - 1
            || inner.bottom > outer.bottom + 1;
    }).map((element) => element.textContent)""")


def test_the_belief_stays_flat_for_ours_and_moves_for_naive(view):
    page = view()
    expect(page.locator("#cost .curve.optimum")).to_be_visible()
    expect(page.locator("#over-lag .curve.optimum")).to_be_visible()
    before, first = layout(page), steps(page)
    click(page, ("world", True))
    expect(page.locator("#queue")).to_contain_text("waits for the next")
    assert steps(page) == first
    click(page, ("politics", True))
    expect(rows(page)).to_have_count(first + 1)
    click(page, ("politics", False), ("business", False), ("science", True))
    expect(rows(page)).to_have_count(first + 4)
    last = page.locator(f".belief[data-step='{first + 1}'] .side")
    expect(last.nth(1)).to_be_visible()
    expect(last.nth(1)).not_to_have_attribute("data-bits", "0.000000")
    ours, naive = bits(page, first + 1)
    assert ours < 1e-6
    assert naive > 0.01
    status = [rows(page).nth(i).locator(".status").inner_text() for i in range(4)]
    assert status == ["OFF", "OFF", "ON", "ON"]
    assert page.locator("#steps tr").nth(0).locator(".want").inner_text() == "business"
    seen = page.locator("#steps tr").nth(0).locator(".dots")
    assert "business" in seen.get_attribute("aria-label")
    assert 1 <= seen.locator(".in").count() < len(CHANNELS)
    assert page.locator("#steps tr").nth(3).locator(".dots .in").count() == len(CHANNELS)
    expect(page.locator("#count")).to_contain_text("the latest of business")
    assert layout(page) == before  # nothing has jumped


def test_made_now_asks_for_everything(view):
    page = view()
    first = steps(page)
    click(page, ("sports", False))
    page.click("#now")
    expect(rows(page)).to_have_count(first + 1)
    assert rows(page).first.locator(".dots .in").count() == len(CHANNELS)
    expect(rows(page).first.locator("td").nth(1)).to_have_text("ON*")
    expect(page.locator("#queue")).to_contain_text("empty")
    expect(page.locator("#now")).to_be_disabled()


def test_a_stopped_server_leaves_a_request_pending_and_a_killed_one_is_started_again(view):
    page = view()
    first = steps(page)
    click(page, ("world", True), ("world", True))
    expect(rows(page)).to_have_count(first + 1)
    page.click("#stop")
    expect(page.locator("#server")).to_have_text("server stopped")
    click(page, ("health", False))
    expect(page.locator("#notice")).to_contain_text(f"Step {first + 1} has no answer yet")
    expect(page.locator("#steps tr.pending")).to_have_count(1)
    expect(page.locator("#stop")).to_have_text("Start the server")
    page.click("#stop")
    expect(rows(page)).to_have_count(first + 2)
    expect(page.locator("#notice")).to_be_hidden()
    expect(page.locator("#server")).to_have_attribute("title", re.compile(r"process \d+"))
    pid = int(page.locator("#server").get_attribute("title").rpartition(" ")[2])
    page.evaluate("""() => {  // it is back within a second: every text is noted, looking now and then would miss one
        const notice = document.querySelector("#notice");
        window.notices = [];
        new MutationObserver(() => window.notices.push(notice.textContent))
            .observe(notice, {childList: true, subtree: true, characterData: true, attributes: true});
    }""")
    os.kill(pid, signal.SIGKILL)
    until(page, "window.notices.some((text) => text.includes('The server has died and is started again'))")
    expect(page.locator("#notice")).to_be_hidden()
    expect(page.locator("#server")).not_to_have_attribute("title", re.compile(rf"process {pid}$"))
    click(page, ("sports", True))
    expect(rows(page)).to_have_count(first + 3)


def test_clicks_arrive_in_their_order(view):
    page, held = view(), []
    page.route("**/ask", lambda route: held.append(route))  # noqa: PLW0108  the number of arguments counts
    first = steps(page)
    page.click(".card[title=world]")
    page.click(".card[title=health]")
    while not held:
        page.wait_for_timeout(20)
    page.wait_for_timeout(100)
    assert len(held) == 1, "the second click would overtake the first"
    held[0].continue_()
    until(page, "document.querySelector('#queue').textContent.includes('world')")
    while len(held) < 2:
        page.wait_for_timeout(20)
    held[1].continue_()
    expect(rows(page)).to_have_count(first + 1)
    expect(page.locator("#queue")).to_contain_text("health")


def test_the_switch_stays_where_it_was_put_though_an_older_state_arrives(view, running):
    page, held = view(), []
    switch, was_on = page.locator("#privacy"), page.locator("#privacy").get_attribute("aria-checked") == "true"
    before, after = str(was_on).lower(), str(not was_on).lower()
    page.route("**/switch", lambda route: held.append(route))  # noqa: PLW0108  the number of arguments counts
    page.click("#privacy")
    expect(switch).to_have_attribute("aria-checked", after)
    while not held:
        page.wait_for_timeout(20)
    assert running.post("/ask", source="world", private=was_on).status_code == 200
    expect(page.locator("#queue")).to_contain_text("world")  # a state in which the switch is not turned
    expect(switch).to_have_attribute("aria-checked", after)
    held.pop().continue_()
    while running.state()["private"] == was_on:
        page.wait_for_timeout(20)
    expect(switch).to_have_attribute("aria-checked", after)
    assert running.post("/switch", private=was_on).status_code == 200  # in another window
    expect(switch).to_have_attribute("aria-checked", before)
    page.click("#privacy")
    while not held:
        page.wait_for_timeout(20)
    held.pop().fulfill(status=400, json={"error": "not now"})
    expect(page.locator("#notice")).to_contain_text("not now")
    expect(switch).to_have_attribute("aria-checked", before)


def test_it_can_be_used_by_keyboard_alone(view):
    page = view()
    first, was_on = steps(page), page.locator("#privacy").get_attribute("aria-checked") == "true"

    def tab_to(selector):
        for _ in range(40):
            page.keyboard.press("Tab")
            if page.locator(f"{selector}:focus").count():
                outline = look_at(page, selector, "element => getComputedStyle(element).outlineStyle")
                assert outline == "solid", f"the focus on {selector} is not visible"
                return
        raise AssertionError(f"{selector} cannot be reached")

    tab_to("#privacy")
    page.keyboard.press("Space")
    expect(page.locator("#privacy")).to_have_attribute("aria-checked", "false" if was_on else "true")
    tab_to(".card[title=science]")
    page.keyboard.press("Enter")
    expect(page.locator("#queue")).to_contain_text("science")
    page.keyboard.press("Enter")  # the focus is still there
    expect(rows(page)).to_have_count(first + 1)
    tab_to("#now")
    page.keyboard.press("Enter")
    expect(rows(page)).to_have_count(first + 2)
    for selector in (".scroll", "#n", "#alpha", "#use"):
        tab_to(selector)
    page.keyboard.press("Tab")  # the input of the file is invisible itself: its label shows the focus
    assert page.locator("#file:focus").count()
    assert look_at(page, "label.file", "element => getComputedStyle(element).outlineStyle") == "solid"
    tab_to("#play")
    page.keyboard.press("Enter")
    expect(page.locator("#play")).to_have_attribute("aria-pressed", "true")
    expect(rows(page).nth(first + 3)).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.locator("#play")).to_have_attribute("aria-pressed", "false")


def test_many_tabs_can_be_open_and_a_click_that_finds_no_connection_says_so(view):
    def look(tab, hidden):  # with Playwright, every tab is visible
        tab.evaluate(
            """hidden => {
            Object.defineProperty(document, "hidden", {value: hidden, configurable: true});
            document.dispatchEvent(new Event("visibilitychange"));
        }""",
            hidden,
        )

    tabs = [view()]
    first = steps(tabs[0])
    while len(tabs) < 7:  # Chromium has six connections to one address
        look(tabs[-1], hidden=True)
        tabs.append(tabs[0].context.new_page())
        tabs[-1].goto(tabs[0].url)
        expect(tabs[-1].locator(".card").first).to_be_visible()
    page, *others = reversed(tabs)
    click(page, ("world", True))
    expect(page.locator("#queue")).to_contain_text("world")
    for tab in others[:5]:
        with tab.expect_response("**/events"):
            look(tab, hidden=False)
        expect(tab.locator("#queue")).to_contain_text("world")  # what happened meanwhile is shown
    page.evaluate("window.wait = AbortSignal.timeout; AbortSignal.timeout = (ms) => wait.call(AbortSignal, ms / 50)")
    page.click(".card[title=world]")
    expect(page.locator("#notice")).to_contain_text("No answer in 10 seconds")
    page.evaluate("AbortSignal.timeout = window.wait")
    look(others[0], hidden=True)
    page.click(".card[title=world]")
    expect(rows(page)).to_have_count(first + 1)
    expect(page.locator("#notice")).to_be_hidden()


def contrast(page, selector):
    """The ratio of WCAG between the colour of the text and what is behind it; 4.5 is enough for small text."""
    script = """element => {
        const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
        const linear = (v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
        const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
        let behind = element;
        while (rgb(getComputedStyle(behind).backgroundColor)[3] === 0) behind = behind.parentElement;
        const [a, b] = [getComputedStyle(element).color, getComputedStyle(behind).backgroundColor].map(rgb).map(light);
        return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    }"""
    return look_at(page, selector, script)


def test_light_and_dark_follow_the_system_and_the_button(view):
    def brightness(page):
        colour = look_at(page, "body", "element => getComputedStyle(element).backgroundColor")
        return sum(map(int, re.findall(r"\d+", colour)[:3])) / 3

    def check(page, dark):
        assert (brightness(page) < 60) == dark
        for selector in (
            ".lead p",
            ".note",
            ".card b",
            ".card small",
            ".status.on",
            ".status.off",
            "td",
            ".open",
            "#use",
        ):
            assert contrast(page, selector) >= 4.5, f"{selector}, dark: {dark}"

    page = view(color_scheme="dark")
    click(page, ("world", True), ("world", False))
    expect(rows(page).first).to_be_visible()
    check(page, dark=True)
    page.emulate_media(color_scheme="light")
    check(page, dark=False)
    expect(page.locator("#theme")).to_have_text("Dark")
    page.click("#theme")
    check(page, dark=True)
    page.reload()  # the choice is remembered, whatever the system prefers
    expect(page.locator("#theme")).to_have_text("Light")
    expect(rows(page).first).to_be_visible()
    check(page, dark=True)


def test_a_bad_chain_is_explained_and_a_good_one_is_shown(window, tmp_path):
    page = window()
    bad, good = tmp_path / "bad.csv", tmp_path / "mine.json"
    bad.write_text("a,b\n0.5,0.6\n0.5,0.5\n")
    Chain.symmetric(4, 0.7, ["tea", "milk", "rain", "snow"]).save(good)
    before = layout(page)
    page.set_input_files("#file", bad)
    expect(page.locator("#file-words")).to_have_text(re.compile(r"bad\.csv: row 0 \('a'\) sums to 1\.1, not to 1"))
    expect(page.locator("#notice")).to_contain_text("bad.csv")
    assert layout(page) == before
    page.set_input_files("#file", good)
    expect(page.locator(".card b")).to_have_text(["tea", "milk", "rain", "snow"])
    expect(page.locator("#notice")).to_be_hidden()
    expect(page.locator("#title")).to_have_text("mine.json")
    click(page, ("rain", True), ("rain", False))
    expect(rows(page)).to_have_count(1)


def test_a_button_that_does_nothing_now_keeps_the_focus_and_cards_say_how_likely_they_are(running, window, tmp_path):
    Chain.symmetric(4, 0, ["a", "b", "c", "d"]).save(tmp_path / "never-twice.json")
    assert running.load("never-twice.json", (tmp_path / "never-twice.json").read_bytes()).status_code == 200
    page = window()
    card, other, now = page.locator(".card[title=a]"), page.locator(".card[title=b]"), page.locator("#now")
    for button in (card, now):
        button.focus()
        page.keyboard.press("Enter")
        expect(button).to_be_disabled()
        expect(button).to_be_focused()
        page.keyboard.press("Enter")  # nothing: a request would be refused in words
    expect(card).to_have_attribute("aria-label", "ask for a, never next, privacy ON")
    expect(other).to_have_attribute("aria-label", "ask for b, 33 % next, privacy ON")
    expect(rows(page)).to_have_count(1)
    expect(page.locator("#notice")).to_be_hidden()
    for button, opacity in (".card[title=a]", "0.65"), ("#now", "0.65"), (".card[title=b]", "1"):
        assert look_at(page, button, "button => getComputedStyle(button).opacity") == opacity


def test_charts_name_their_axes_and_units_and_the_sliders_redraw_figure_2(window):
    page = window()
    for chart, names in {
        "#cost": ["lag: steps since privacy was last ON", "messages per request: lower is better"],
        "#over-alpha": ["α, the probability to stay", "rate = wanted / downloaded: higher is better"],
        "#over-lag": ["steps since privacy was last ON", "rate = wanted / downloaded: higher is better"],
    }.items():
        expect(page.locator(f"{chart} text.name")).to_have_text(names)
        assert cut_off(page, f"{chart} text") == []
        assert page.locator(f"{chart} svg").get_attribute("aria-label")
    for legend in ("#cost-legend", "#figure-legend"):
        expect(page.locator(f"{legend} .outer")).to_contain_text("outer bound (not always reachable)")
        expect(page.locator(f"{legend} .optimum")).to_contain_text("optimum (proved)")
    curve = page.locator("#over-lag .curve.inner")
    expect(curve).to_be_visible()
    old = curve.get_attribute("points")
    page.fill("#alpha", "0.6")
    expect(page.locator("#alpha-out")).to_have_text("0.60")
    expect(curve).not_to_have_attribute("points", old)
    place, chart = look_at(
        page,
        "#over-alpha",
        """figure => ["svg .marker", "svg"].map(
        (part) => figure.querySelector(part).getBoundingClientRect().toJSON())""",
    )
    assert 0.55 < (place["x"] - chart["x"] - 46) / (chart["width"] - 56) < 0.65
    for chart in ("#over-alpha", "#over-lag"):
        for kind in ("inner", "outer", "optimum"):
            expect(page.locator(f"{chart} .curve.{kind}")).to_have_count(1)
    page.fill("#n", "5")
    page.click("#use")
    expect(page.locator(".card b")).to_have_text(list("01234"))
    expect(page.locator("#title")).to_have_text("the symmetric chain, n = 5, α = 0.6")


def test_24_sources_are_readable_on_a_phone_and_on_a_screen(window, tmp_path):
    names = "frontpage news tech local opinion on-air misc weather msn-news health living business".split()  # noqa: SIM905
    names += [f"a-source-with-quite-a-long-name-{i}" for i in range(24 - len(names))]
    Chain.symmetric(24, 0.3, names).save(tmp_path / "long.csv")
    page = window(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    page.set_input_files("#file", tmp_path / "long.csv")
    expect(page.locator(".card")).to_have_count(24)
    first = steps(page)
    click(page, *((page.locator(".card").nth(i).get_attribute("title"), on) for i, on in enumerate((1, 0, 1))))
    expect(rows(page)).to_have_count(first + 2)
    expect(page.locator(f".belief[data-step='{first}']")).to_be_visible()
    expect(page.locator("#cost .curve.inner")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    for part in ("#privacy", ".card", "#now", "#play", "#use", "label.file", ".dots", "td.lag", ".side svg"):
        assert box(page, part)["left"] >= 0, part
        assert box(page, part)["right"] <= 390, part
    for part in ("#privacy", ".card", "#now", "#play", "#use", "label.file"):
        assert box(page, part)["height"] >= 30, f"{part} is too small for a thumb"
    for width, wide in ((390, 300), (1280, 500)):
        page.set_viewport_size({"width": width, "height": 844})
        until(page, f"document.querySelector('.bars').clientWidth > {wide}")
        until(page, APART)  # drawn for this width, and no names overlap
        for selector in (".card b", "th", ".bars text"):
            assert not [text for text in cut_off(page, selector) if "long" not in text], (selector, width)
        labels = look_at(
            page,
            ".bars",
            """bars => [...bars.querySelectorAll("g")].map((group) =>
            [group.querySelector("text").textContent, group.querySelector("title").textContent])""",
        )
        assert [label for label, _ in labels] == [*names[:12], *["a-source…"] * 12]
        assert all(title.startswith(f"{name}: ") for name, (_, title) in zip(names, labels, strict=True))


def test_the_page_goes_on_by_itself_when_the_program_is_back(running, browser):
    context = browser.new_context()
    page = context.new_page()
    page.goto(running.url)
    expect(page.locator(".card").first).to_be_visible()
    family = processes_of(running.process.pid)
    assert len(family) >= 3  # the page, the server and its worker
    assert running.stop(signal.SIGKILL) == -signal.SIGKILL
    until_gone(family)
    expect(page.locator("#notice")).to_contain_text("The program behind this page is gone")
    running.start()
    expect(page.locator("#notice")).to_be_hidden()
    expect(rows(page)).to_have_count(0)
    click(page, ("world", True), ("world", True))
    expect(rows(page)).to_have_count(1)
    context.close()
