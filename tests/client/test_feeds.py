"""`onoff setup`: a file of URLs from what feed readers export. What is wrong is named by its place."""

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
    """What the command says about a list, and what it has written."""
    (directory / "feeds").write_bytes(text if isinstance(text, bytes) else text.encode())
    done = call("setup", directory / "feeds", "-o", directory / "urls.json", *options)
    written = directory / "urls.json"
    return done, json.loads(written.read_text()) if written.exists() else None


def refused(text, directory, *words, lines=1):
    done, written = made(text, directory)
    assert written is None
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == lines
    for word in words:
        assert word in done.stderr


def test_outlines_with_a_url_become_sources_sorted_by_plain_names(site, tmp_path):
    done, urls = made(OPML.format(site.url), tmp_path)
    assert done.returncode == 0, done.stderr
    assert list(urls.items()) == [
        ("arts", f"{site.url}/arts"),
        ("weather-climate", f"{site.url}/weather"),
        ("zürich-news", f"{site.url}/zurich?a=1&b=2"),
    ]
    assert done.stdout == "3 sources at 1 web server\n"
    assert HttpTransport.load(tmp_path / "urls.json").names == tuple(urls)
    assert [request.path for request in site.server.requests] == ["/arts", "/weather", "/zurich?a=1&b=2"]
    heads = {request.raw.split(b"\r\n", 1)[1] for request in site.server.requests}
    assert len(heads) == 1  # all alike


def test_a_plain_list_has_names_after_its_urls_or_else_from_them(site, tmp_path, monkeypatch):
    text = f"# mine\n\n{site.url}/one The First\n  {site.url}/two/feed.xml\n"
    _, urls = made(text, tmp_path)
    place = site.url.removeprefix("http://").replace(":", "-").replace(".", "-")
    assert urls == {f"{place}-two-feed-xml": f"{site.url}/two/feed.xml", "the-first": f"{site.url}/one"}
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    done = call("setup", "-", "-o", tmp_path / "again.json")
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "again.json").read_text()) == urls


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
        assert f"a: {site.url}/a leads to {elsewhere.url}/c\n" in done.stdout
        assert "2 sources at 2 web servers" in done.stdout
        assert [request.path for request in site.server.requests] == ["/a", "/b", "/d", "/e?x"]


@pytest.mark.parametrize(
    ("location", "words"),
    [
        ("ftp://x/y", "not a URL"),
        ("http://[", "not a URL"),
        ("http://u:p@127.0.0.1/", "not a URL"),
        ("http://a:x/", "not a URL"),
        ("http://a b/", "not a URL"),
        ("", "redirects more than"),
    ],
)
def test_a_redirect_to_nowhere_is_an_error_that_names_the_line(site, tmp_path, location, words):
    site.pages = {"/a": location}
    refused(f"# mine\n{site.url}/a A\n{site.url}/b B\n", tmp_path, "feeds: line 2 ('A')", words)


@pytest.mark.parametrize("near", [
    "127.0.0.1", "10.0.0.1", "localhost:81", "[::1]", "router", "127.1", "0x7f.0.0.1", "localhost.", "router.lan",
    "[::ffff:10.0.0.1]",
])  # fmt: skip
def test_a_redirect_may_not_lead_into_the_network_of_the_reader(near):
    with pytest.raises(feeds.CatalogueError, match="in your own network"):
        feeds.target("http://example.org/a", "http://example.org/b", f"http://{near}/")
    assert feeds.target("http://127.0.0.1:8000/a", "http://127.0.0.1/a", f"http://{near}/") == f"http://{near}/"


def test_a_redirect_may_not_lead_away_from_https():
    safe = "https://example.org/a"
    with pytest.raises(feeds.CatalogueError, match="on the way"):
        feeds.target(safe, safe, "http://example.org/a")
    assert feeds.target("http://example.org/a", "http://example.org/a", safe) == safe


def test_dead_urls_are_all_named_one_in_a_line_and_all_were_asked(site, tmp_path):
    site.pages = {"/a": 404, "/c": Reply([], close=True), "/d": 304}
    text = "".join(f"{site.url}/{name} {name}\n" for name in "abcd")
    told = ("line 1 ('a')", "answers with 404", "line 3 ('c')", "does not answer", "line 4 ('d')", "answers with 304")
    refused(text, tmp_path, *told, "3 URLs cannot be used: correct them, or leave them out", lines=4)
    assert len(site.server.requests) == 4


def test_two_urls_that_lead_to_the_same_place_are_both_named(site, tmp_path):
    site.pages = {"/a": "/c"}
    refused(f"{site.url}/a A\n{site.url}/c C\n", tmp_path, "line 1 ('A') and", "line 2 ('C') lead to the same URL")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("http://h/a X\nhttp://h/b x!\n", ["line 1 ('X') and", "line 2 ('x!') are both called 'x'"]),
        ("http://h:80/a X\n\nHTTP://H/a Y\n", ["line 1 ('X') and", "line 3 ('Y') have the same URL"]),
        ("", ["0 URLs"]),
        ("http://127.0.0.1:9/a X\nfeed://x/y Y\n", ["line 2 ('Y')", "http(s)://"]),
        ("http://127.0.0.1:9/a X\nhttp://u:p@x/y Y\n", ["line 2 ('Y')", "password"]),
        ("http://127.0.0.1:9/a X\nhttp://x/y#z Y\n", ["line 2 ('Y')", "after #"]),
        (b"http://127.0.0.1:9/a \xff\n", ["byte 21 is not UTF-8"]),
        ("<html><body/></html>", ["<html>"]),
        ("<opml><body><outline></body></opml>", ["line 1 is not XML (mismatched tag)"]),
        ('<?xml version="1.0" encoding="no-such"?><opml/>', ["feeds"]),
        ('<opml><outline title="T" xmlUrl="javascript:x"/>\n<outline xmlUrl="http://x/"/></opml>', ["line 1 ('T')"]),
    ],
)
def test_a_list_that_cannot_be_used_is_refused_by_its_place_and_nothing_is_asked(tmp_path, text, words):
    refused(text, tmp_path, *words)


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
    refused(two, tmp_path, "line 1 ('A')", "longer than 1000 bytes")
    site.pages = {"/a": Reply([b"HTTP/1.1 200 OK\r\n\r\n", *[0.05, b"x"] * 40], close=True)}
    refused(two, tmp_path, "line 1 ('A')", "not whole after 0.2 seconds")


def test_a_file_that_is_there_is_overwritten_only_by_force(site, tmp_path):
    (tmp_path / "urls.json").write_text("{}")
    text = f"{site.url}/a A\n{site.url}/b B\n"
    done, written = made(text, tmp_path)
    assert (done.returncode, written) == (2, {})
    assert "urls.json: exists already" in done.stderr
    assert site.server.requests == []
    assert made(text, tmp_path, "--force")[1] == {"a": f"{site.url}/a", "b": f"{site.url}/b"}
