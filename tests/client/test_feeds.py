"""`onoff setup`: URLs from what feed readers export. What is wrong is named by its place, and left out."""

from __future__ import annotations

import io
import json
import sys
from types import SimpleNamespace

import pytest

from clikit import call
from onoff import HttpTransport
from onoff.client import feeds
from onoff.client.feeds import plain_name
from recordingserver import RecordingServer, Reply, reply

OPML = """<?xml version="1.0" encoding="UTF-8"?>
<opml version="2.0"><head><title>mine</title><dateCreated>Mon, 16 Nov 2026 10:00:00 GMT</dateCreated></head><body>
<outline text="Folder"><outline text="ignored" title="Weather &amp; Climate" type="rss" xmlUrl="{0}/weather"/>
<outline text="Zürich: News!" xmlUrl="{0}/zurich?a=1&amp;b=2"/></outline>
<outline text="no feed" type="link" url="{0}/page"/>
<outline text="Arts" xmlURL="{0}/arts"/></body></opml>
"""

NOWHERE = ("http://a..b/", "http://.a/", "http://a../", f"http://{'x' * 64}/", "http://127.0.0.1:0/")


@pytest.fixture
def site():
    """A web server at which `pages` are redirected (a text) or answered (a status); everything else is there."""
    found = SimpleNamespace(pages={})

    def respond(request):
        page = found.pages.get(request.path.split("?")[0], 200)
        if isinstance(page, Reply):
            return page
        return reply(b"moved", 302, [f"Location: {page}"]) if isinstance(page, str) else reply(b"feed", page)

    with RecordingServer(respond) as server:
        found.server, found.url = server, server.url
        yield found


def made(text, directory, *options):
    """What the command says about a list, and the URLs that it has written."""
    (directory / "feeds").write_bytes(text if isinstance(text, bytes) else text.encode())
    done = call("setup", directory / "feeds", "--directory", directory / "made", *options)
    written = directory / "made" / "urls.json"
    return done, json.loads(written.read_text()) if written.exists() else None


def refused(text, directory, *words, lines=1):
    """Check what is said of a list that is not set up."""
    done, _ = made(text, directory)
    assert not (directory / "made").exists()
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == lines, done.stderr
    for word in words:
        assert word in done.stderr


def left_out(text, directory, *words):
    """Check what is said of the only URL of a list of two that is left out."""
    refused(text, directory, *words, "fewer than 2 sources are left", lines=2)


def test_outlines_with_a_url_become_sources_sorted_by_plain_names(site, tmp_path):
    done, urls = made(OPML.format(site.url), tmp_path)
    assert done.returncode == 0, done.stderr
    assert list(urls.items()) == [
        ("arts", f"{site.url}/arts"),
        ("weather-climate", f"{site.url}/weather"),
        ("zürich-news", f"{site.url}/zurich?a=1&b=2"),
    ]
    assert HttpTransport.load(tmp_path / "made" / "urls.json").names == tuple(urls)
    assert [request.path for request in site.server.requests] == ["/arts", "/weather", "/zurich?a=1&b=2"]
    heads = {request.raw.split(b"\r\n", 1)[1] for request in site.server.requests}
    assert len(heads) == 1  # all alike


def test_a_plain_list_has_names_after_its_urls_or_else_from_them(site, tmp_path, monkeypatch):
    text = f"# mine\n\n{site.url}/one The First\n  {site.url}/two/feed.xml\n"
    _, urls = made(text, tmp_path)
    place = site.url.removeprefix("http://").replace(":", "-").replace(".", "-")
    assert urls == {f"{place}-two-feed-xml": f"{site.url}/two/feed.xml", "the-first": f"{site.url}/one"}
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    done = call("setup", "-", "--directory", tmp_path / "again")
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "again" / "urls.json").read_text()) == urls


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("BBC News – World", "bbc-news-world"),
        ("日本 ニュース", "日本-ニュース"),
        ("x" * 300, "x" * 60),
        ("\x1b[31mred\u202e,;/..", "31mred"),
        ("!?", "example-org-feed"),
        ("", "example-org-feed"),
    ],
)
def test_a_title_becomes_a_plain_name(title, name):
    assert plain_name(title, "https://www.example.org/feed") == name


def test_redirects_are_followed_at_set_up(site, tmp_path):
    with RecordingServer(lambda request: reply(b"feed")) as elsewhere:
        site.pages = {"/a": "/b", "/b": f"{elsewhere.url}/c#top", "/d": "e?x"}
        done, urls = made(f"{site.url}/a A\n{site.url}/d D\n", tmp_path)
        assert done.returncode == 0, done.stderr
        assert urls == {"a": f"{elsewhere.url}/c", "d": f"{site.url}/e?x"}
        assert f"a: {site.url}/a leads to {elsewhere.url}/c\n" in done.stderr
        assert [request.path for request in site.server.requests] == ["/a", "/b", "/d", "/e?x"]


@pytest.mark.parametrize("near", [
    "127.0.0.1", "10.0.0.1", "localhost:81", "[::1]", "router", "127.1", "0x7f.0.0.1", "localhost.", "router.lan",
    "[::ffff:10.0.0.1]",
])  # fmt: skip
def test_a_redirect_may_not_lead_into_the_network_of_the_reader(near):
    with pytest.raises(feeds.CatalogueError, match="in your own network"):
        feeds.target("http://example.org/a", "http://example.org/b", f"http://{near}/")
    assert feeds.target("http://127.0.0.1:8000/a", "http://127.0.0.1/a", f"http://{near}/") == f"http://{near}/"


def test_a_redirect_may_not_lead_away_from_https_nor_to_nowhere():
    safe = "https://example.org/a"
    with pytest.raises(feeds.CatalogueError, match="on the way"):
        feeds.target(safe, safe, "http://example.org/a")
    assert feeds.target("http://example.org/a", "http://example.org/a", safe) == safe
    for nowhere in ("ftp://x/y", "http://[", "http://u:p@127.0.0.1/", "http://a:x/", "http://a b/", *NOWHERE):
        with pytest.raises(feeds.CatalogueError, match="not a URL"):
            feeds.target(safe, safe, nowhere)


def test_a_url_that_no_host_can_have_is_left_out_wherever_it_stands(site, tmp_path):
    site.pages = {f"/{i}": url for i, url in enumerate(NOWHERE)}
    for i, url in enumerate(NOWHERE):
        left_out(f"{site.url}/a\n{site.url}/{i}\n", tmp_path, "which is not a URL that can be asked for")
        left_out(f"{site.url}/a\n{url}\n", tmp_path, "line 2: ", "is not an address (")


def test_the_parts_of_a_host_may_have_63_letters_and_a_dot_at_the_end():
    for host in ("x" * 63, f"{'x' * 63}.org.", "[::1]", "127.0.0.1"):
        assert feeds.check_url(f"http://{host}:1/").port == 1


def test_dead_urls_are_left_out_and_named_and_a_strict_setup_refuses_them(site, tmp_path):
    site.pages = {"/a": 404, "/c": Reply([], close=True), "/d": 304}
    text = "".join(f"{site.url}/{name} {name}\n" for name in "abcde")
    done, urls = made(text, tmp_path, "--strict")
    assert (done.returncode, urls, (tmp_path / "made").exists()) == (2, None, False)
    assert "3 URLs cannot be used. Nothing was written" in done.stderr
    assert len(site.server.requests) == 5
    done, urls = made(text, tmp_path)
    assert (done.returncode, list(urls)) == (0, ["b", "e"])
    told = ("line 1 ('a')", "answers with 404", "line 3 ('c')", "does not answer", "line 4 ('d')", "answers with 304")
    for word in told:
        assert word in done.stderr
    assert done.stderr.count("left out: ") == 3


def test_of_two_urls_that_lead_to_the_same_place_one_is_left_out_and_both_are_named(site, tmp_path):
    site.pages = {"/a": "/c"}
    left_out(f"{site.url}/a A\n{site.url}/c C\n", tmp_path, "line 2 ('C'): leads to the same URL as", "line 1 ('A')")
    left_out(f"{site.url}/a Z\n{site.url}/c C\n", tmp_path, "line 1 ('Z'): leads to the same URL as", "line 2 ('C')")
    site.server.reset()
    left_out(f"{site.url}/b A\n{site.url}/b A\n", tmp_path, "line 2 ('A'): leads to the same URL as", "line 1 ('A')")
    site.server.reset()
    left_out(f"{site.url}/b A\n{site.url}/b C\n", tmp_path, "line 2 ('C'): leads to the same URL as", "line 1 ('A')")
    assert len(site.server.requests) == 1


def test_feeds_with_the_same_title_get_numbers(site, tmp_path):
    text = f"{site.url}/a News\n{site.url}/b news!\n{site.url}/c News 2\n{site.url}/d News\n"
    _, urls = made(text, tmp_path)
    assert {name: url[-1] for name, url in urls.items()} == {"news": "a", "news-2": "b", "news-3": "d", "news-2-2": "c"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["fewer than 2"]),
        (b"http://127.0.0.1:9/a \xff\n", ["byte 21 is not UTF-8"]),
        ("<html><body/></html>", ["<html>"]),
        ("<opml><body><outline></body></opml>", ["line 1 is not XML (mismatched tag)"]),
        ('<?xml version="1.0" encoding="no-such"?><opml/>', ["feeds"]),
    ],
)
def test_a_list_that_cannot_be_read_is_refused_and_nothing_is_asked(tmp_path, text, words):
    refused(text, tmp_path, *words)


@pytest.mark.parametrize(
    ("url", "words"),
    [("feed://x/y", "http(s)://"), ("http://u:p@x/y", "password"), ("{0}/y#z", "after #"), ("javascript:x", "http(s)")],
)
def test_a_url_that_cannot_be_asked_for_is_left_out_by_its_place(site, tmp_path, url, words):
    left_out(f"{site.url}/a A\n{url.format(site.url)} Y\n", tmp_path, "line 2 ('Y')", words)
    assert [request.path for request in site.server.requests] == ["/a"]


BOMB = '<!ENTITY a "ha">' + "".join(
    f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    "declared",
    [
        f"<!DOCTYPE opml [{BOMB}]>",
        '<!DOCTYPE opml [<!ENTITY i SYSTEM "file:///etc/passwd">]>',
        '<!DOCTYPE opml SYSTEM "{url}/evil.dtd">',
        '<!DOCTYPE opml [<!ENTITY % p SYSTEM "{url}/evil.dtd"> %p;]>',
    ],
    ids=["bomb", "file", "dtd", "parameter"],
)
def test_entities_are_neither_expanded_nor_fetched(site, tmp_path, declared):
    text = f"{declared.replace('{url}', site.url)}<opml><outline text='&i;' xmlUrl='{site.url}/a'/></opml>"
    refused(text, tmp_path, "line 1 declares a document type or an entity")
    assert site.server.requests == []


def test_a_list_a_body_and_the_patience_are_bounded(site, tmp_path, monkeypatch):
    monkeypatch.setattr(feeds, "MOST_BYTES", 1000)
    monkeypatch.setattr(feeds, "BODY_LIMIT", 1000)
    monkeypatch.setattr(feeds, "SECONDS", 0.2)
    refused("#" * 1001, tmp_path, "longer than 1000 bytes")
    two = f"{site.url}/a A\n{site.url}/b B\n"
    site.pages = {"/a": reply(b"x" * 5000)}
    left_out(two, tmp_path, "line 1 ('A')", "longer than 1000 bytes")
    site.pages = {"/a": Reply([b"HTTP/1.1 200 OK\r\n\r\n", *[0.05, b"x"] * 40], close=True)}
    left_out(two, tmp_path, "line 1 ('A')", "not whole after 0.2 seconds")
