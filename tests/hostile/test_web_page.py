"""Web pages and bodies in a real browser, Chromium, beside the proxy: what they try makes no step and switches nothing.

`WAYS` has what a page of others may try, `BODIES` what an origin may send to who opens its source at the proxy.
"""

from __future__ import annotations

import codecs
import shutil
import urllib.request
from contextlib import suppress
from types import SimpleNamespace

import pytest
from playwright.sync_api import Error, sync_playwright

from onoff import Chain
from onoff.client.status import snapshot
from proxykit import ProxyProcess
from recordingserver import RecordingServer, reply

CHROMIUM = shutil.which("chromium")
pytestmark = [pytest.mark.long, pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")]
NAMES = ("page", "other")
# %S is a source at the place that is asked, and %P the switch there.
TAGS = {
    "style sheet": '<link rel="stylesheet" href="%S">',
    "prefetch": '<link rel="prefetch" href="%S">',
    "preload": '<link rel="preload" as="image" href="%S">',
    "preload of a script": '<link rel="preload" as="script" href="%S">',
    "speculation": '<script type="speculationrules">{"prefetch": [{"urls": ["%S"]}]}</script>',
    "page in advance": '<script type="speculationrules">{"prerender": [{"urls": ["%S"]}]}</script>',
    "module preload": '<link rel="modulepreload" href="%S">',
    "refresh": '<meta http-equiv="refresh" content="0;url=%S">',
    "image": '<img src="%S">',
    "image set": '<img srcset="%S 1x, %S 2x">',
    "picture": '<picture><source srcset="%S"><img></picture>',
    "button image": '<input type="image" src="%S">',
    "background": '<body background="%S">',
    "frame": '<iframe src="%S"></iframe>',
    "sandboxed frame": '<iframe sandbox src="%S"></iframe>',
    "frame without a name": '<iframe srcdoc="<img src=%S>"></iframe>',
    "frame of data": '<iframe src="data:text/html,<img src=%S>"></iframe>',
    "frame that is led here": '<iframe src="/led"></iframe>',
    "image that is led here": '<img src="/led">',
    "frame set": "<frameset><frame src=%S></frameset>",
    "object": '<object data="%S"></object>',
    "embed": '<embed src="%S">',
    "video": '<video src="%S"></video>',
    "poster": '<video poster="%S"></video>',
    "audio": '<audio preload="auto" src="%S"></audio>',
    "subtitles": '<video crossorigin src="%S"><track default src="%S"></video>',
    "script": '<script src="%S"></script>',
    "module": '<script type="module" src="%S"></script>',
    "background in CSS": '<style>body { background: url("%S") }</style>',
    "import in CSS": '<style>@import "%S";</style>',
    "list in CSS": '<ul style="list-style-image: url(%S)"><li>a</ul>',
    "cursor in CSS": '<style>html { border: 9px solid; border-image: url("%S") 1 }</style>',
    "font": '<style>@font-face { font-family: f; src: url("%S") } body { font-family: f }</style>a',
    "picture in SVG": '<svg><image href="%S"/></svg>',
}
FORM = '<form id="f" method="{0}" action="{1}" {2}><input name="privacy" value="off"></form><iframe name="t"></iframe>'
FORMS = {
    "form": FORM.format("get", "%S", ""),
    "form of the switch": FORM.format("post", "%P", ""),
    "form in plain text": FORM.format("post", "%P", 'enctype="text/plain"'),
    "form of parts": FORM.format("post", "%P", 'enctype="multipart/form-data"'),
    "form into a frame": FORM.format("post", "%P", 'target="t"'),
    "form to a source": FORM.format("post", "%S", ""),
}
SCRIPTS = {
    "fetch": 'fetch("%S").catch(() => 0)',
    "fetch without CORS": 'fetch("%S", {mode: "no-cors"}).catch(() => 0)',
    "fetch with cookies": 'fetch("%S", {mode: "no-cors", credentials: "include"}).catch(() => 0)',
    "fetch that lasts": 'fetch("%S", {mode: "no-cors", keepalive: true}).catch(() => 0)',
    "fetch of a range": 'fetch("%S", {headers: {Range: "bytes=0-3"}}).catch(() => 0)',
    "HEAD": 'fetch("%S", {mode: "no-cors", method: "HEAD"}).catch(() => 0)',
    "PUT": 'fetch("%P", {method: "PUT", body: "off"}).catch(() => 0)',
    "POST": 'fetch("%P", {mode: "no-cors", method: "POST", body: "privacy=off"}).catch(() => 0)',
    "request of old": 'const x = new XMLHttpRequest(); x.open("GET", "%S"); x.send()',
    "request of old, PUT": 'const x = new XMLHttpRequest(); x.open("PUT", "%P"); x.send("off")',
    "beacon": 'navigator.sendBeacon("%P", "privacy=off")',
    "events": 'new EventSource("%S")',
    "events with cookies": 'new EventSource("%S", {withCredentials: true})',
    "web socket": 'new WebSocket("%S".replace("http", "ws"))',
    "new image": 'new Image().src = "%S"',
    "new audio": 'new Audio("%S").load()',
    "import": 'import("%S").catch(() => 0)',
    "worker": "new Worker(URL.createObjectURL(new Blob(['importScripts(\"%S\")'])))",
    "worker that fetches": 'new Worker(URL.createObjectURL(new Blob([\'fetch("%S", {mode: "no-cors"})\'])))',
    "worklet": 'CSS.paintWorklet.addModule("%S").catch(() => 0)',
    "font by script": 'new FontFace("f", "url(%S)").load().catch(() => 0)',
    "another place": 'location.href = "%S"',
    "another place instead": 'location.replace("%S")',
    "a click": 'const a = document.createElement("a"); a.href = "%S"; a.click()',
    "a ping": 'const a = document.createElement("a"); a.href = "#x"; a.ping = "%S"; document.body.append(a); a.click()',
    "led here": 'location.href = "/led"',
    "another window": 'open("%S")',
}
WAYS = {
    **TAGS,
    **{name: f'{form}<script>document.getElementById("f").submit()</script>' for name, form in FORMS.items()},
    **{name: f"<body><script>{script}</script>" for name, script in SCRIPTS.items()},
}
PLACES = ("127.0.0.1", "localhost", "0.0.0.0", "[::ffff:127.0.0.1]")

EVIL = (
    '<script>document.title = "it ran"; new Image().src = "@/script"</script><img src="@/image" onerror="new '
    "Image().src = '@/event'\"><link rel='stylesheet' href='@/style'><iframe src='@/frame'></iframe>"
    "<meta http-equiv='refresh' content='0;url=@/refresh'><form id='f' action='@/form'></form>"
)
PAGE = f"<!doctype html><html><body>{EVIL}</body></html>"
SVG = '<svg xmlns="http://www.w3.org/2000/svg"><script>location="@/svg"</script><image href="@/image"/></svg>'
XHTML = (
    '<html xmlns="http://www.w3.org/1999/xhtml"><script>location="@/xhtml"</script>'
    '<body><img src="@/image"/></body></html>'
)
RSS = f"<rss><channel><item><description><![CDATA[{EVIL}]]></description></item></channel></rss>"
BODIES = {
    "page": ("text/html", PAGE),
    "page in capitals": ("TEXT/HTML", PAGE),
    "page with parameters": ("text/html; charset=utf-8; x=y", PAGE),
    "page in UTF-7": ("text/html; charset=utf-7", PAGE.replace("<", "+ADw-").replace(">", "+AD4-")),
    "page in UTF-16": ("text/html", codecs.BOM_UTF16_LE + PAGE.encode("utf-16-le")),
    "page as plain text": ("text/plain", PAGE),
    "page as nothing": (None, PAGE),
    "page as an unknown type": ("x/y", PAGE),
    "page as a picture": ("image/png", PAGE),
    "page as bytes": ("application/octet-stream", PAGE),
    "page as JSON": ("application/json", PAGE),
    "page as a form": ("multipart/form-data", PAGE),
    "page with a policy": ("text/html", f'<meta http-equiv="Content-Security-Policy" content="default-src *">{PAGE}'),
    "page with a base": ("text/html", f'<base href="@/base/">{PAGE}<img src="relative">'),
    "page in a frame": ("text/html", f"<iframe srcdoc='{EVIL.replace(chr(39), '&apos;')}'></iframe>"),
    "pages in turn": (
        "multipart/x-mixed-replace; boundary=b",
        f"--b\r\nContent-Type: text/html\r\n\r\n{PAGE}\r\n--b--",
    ),
    "archive": ("multipart/related; boundary=b", f"--b\r\nContent-Type: text/html\r\n\r\n{PAGE}\r\n--b--"),
    "letter": ("message/rfc822", f"Subject: a\r\nContent-Type: text/html\r\n\r\n{PAGE}"),
    "XHTML": ("application/xhtml+xml", XHTML),
    "SVG": ("image/svg+xml", SVG),
    "XML": ("application/xml", XHTML),
    "XML with a style": ("text/xml", f'<?xml-stylesheet type="text/xsl" href="@/style"?>{XHTML}'),
    "XML with a document type": ("text/xml", f'<!DOCTYPE html SYSTEM "@/dtd" [<!ENTITY e SYSTEM "@/e">]>{XHTML}'),
    "RSS": ("application/rss+xml", RSS),
    "Atom": ("application/atom+xml", f'<feed xmlns="http://www.w3.org/2005/Atom"><content>{XHTML}</content></feed>'),
    "style": ("text/css", '@import "@/style"; * { background: url("@/image") }'),
    "script": ("text/javascript", 'location = "@/script"'),
    "events": ("text/event-stream", f"data: {PAGE}\n\n"),
    "PDF": ("application/pdf", "%PDF-1.4\n1 0 obj<</OpenAction<</S/URI/URI(@/pdf)>>>>endobj\ntrailer<</Root 1 0 R>>"),
}


@pytest.fixture(scope="module")
def browser():
    rules = "--host-resolver-rules=MAP evil.example 127.0.0.1"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=[rules])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def tab(browser):
    return browser.new_page()


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A proxy, an origin whose page is `world.body`, a site of others whose page is `world.page`, and a tally."""
    found = SimpleNamespace(body=b"", kind=None, page="", target="", journal=None)

    def origin(request):
        kind = [] if found.kind is None else [f"Content-Type: {found.kind}"]
        return reply(found.body, headers=kind) if request.path == "/page" else reply(b"something else")

    def site(request):
        if request.path == "/led":
            return reply(b"", 302, [f"Location: {found.target}/other"])
        return reply(found.page.encode(), headers=["Content-Type: text/html"])

    with (
        RecordingServer(origin) as sources,
        RecordingServer(site) as found.site,
        RecordingServer(lambda _: reply(b"", headers=["Cache-Control: no-store"])) as found.tally,
        ProxyProcess(
            tmp_path_factory.mktemp("proxy"), {name: f"{sources.url}/{name}" for name in NAMES},
            Chain([[0.5] * 2] * 2, NAMES),
        ) as found.proxy,
    ):  # fmt: skip
        yield found


def steps(world):
    state = snapshot(world.proxy.journal).state
    return state.step + (state.pending is not None)


def is_private(world):
    with urllib.request.urlopen(f"http://127.0.0.1:{world.proxy.port}/onoff/privacy") as answer:
        return answer.read() == b"on\n"


def visit(page, world, way, target):
    """Open the page of the site that tries this way at a target."""
    world.target = target
    world.page = WAYS[way].replace("%S", f"{target}/other").replace("%P", f"{target}/onoff/privacy")
    while True:
        with suppress(Error):  # what the page before began may be under way
            page.goto(f"{world.site.url}/", wait_until="commit")
            break
    page.wait_for_timeout(100)


@pytest.mark.parametrize("way", WAYS)
def test_a_page_of_others_makes_no_step_and_switches_nothing(tab, world, way):
    world.tally.reset()
    visit(tab, world, way, world.tally.url)
    for _ in range(50):
        if not world.tally.requests:
            tab.wait_for_timeout(100)
    assert world.tally.requests, "the browser does not do that"
    before = steps(world)
    for place in PLACES:
        visit(tab, world, way, f"http://{place}:{world.proxy.port}")
        assert (steps(world), is_private(world)) == (before, True), place


def test_a_name_that_others_make_point_to_this_machine_is_refused(browser, world):
    before, page = steps(world), browser.new_page()
    for path in ("", "other", "onoff/privacy"):
        assert page.goto(f"http://evil.example:{world.proxy.port}/{path}").status == 403
    assert steps(world) == before
    page.close()


@pytest.mark.parametrize("kind", BODIES)
def test_a_body_runs_nothing_loads_nothing_and_makes_no_step_but_its_own(browser, world, kind):
    world.kind, body = BODIES[kind]
    if isinstance(body, bytes):
        body = body.decode("utf-16").replace("@", world.tally.url).encode("utf-16")
    else:
        body = body.replace("@", world.tally.url).encode()
    world.body = body
    world.tally.reset()
    before, page = steps(world), browser.new_page()
    page.goto(world.proxy.url)
    page.get_by_role("link", name="page", exact=True).click()
    page.wait_for_timeout(300)
    title = page.title()
    page.close()
    assert title != "it ran"
    assert world.tally.requests == []
    assert (steps(world), is_private(world)) == (before + 1, True)
    if kind == "page":  # the same body where nobody guards it
        world.page = body.decode()
        page = browser.new_page()
        page.goto(f"{world.site.url}/", wait_until="commit")
        page.wait_for_timeout(300)
        page.close()
        assert len({request.path for request in world.tally.requests}) > 2


def test_the_user_decides_and_switches(browser, world):
    """A browser that was led to a source gets a link; what its user clicks at the proxy's own page works."""
    world.kind, world.body = "text/plain", b"what was wanted"
    before, page = steps(world), browser.new_page()
    page.goto(f"{world.proxy.url}/page")
    assert (page.title(), steps(world)) == ("onoff proxy", before)
    page.get_by_role("link", name="page").click()
    page.get_by_text("what was wanted").wait_for()
    assert steps(world) == before + 1
    page.goto(world.proxy.url)
    for word in ("OFF", "ON"):
        page.get_by_role("button", name=f"Switch {word}").click()
        page.get_by_role("heading", name=f"Privacy is {word}").wait_for()
        assert is_private(world) is (word == "ON")
    page.close()
