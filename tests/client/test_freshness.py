"""For how long an answer counts as the newest: what headers say, and what the transports make of it."""

from __future__ import annotations

import asyncio
import subprocess
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clikit import ONOFF
from onoff import HttpTransport, OnoffTransport
from onoff.client.transports.freshness import freshness
from onoff.errors import USAGE
from onoff.wire import Unchanged
from recordingserver import OnoffOrigin, RecordingServer, Reply, reply
from serverprocess import ServerProcess

HOUR = 3600
NEVER = None
BEGIN = datetime(2026, 10, 3, 8, tzinfo=UTC)
DATE, LATER = format_datetime(BEGIN, usegmt=True), format_datetime(BEGIN + timedelta(seconds=90), usegmt=True)


def said(*fields, **more):
    """What these headers say: texts for Cache-Control, and others by name."""
    headers = [("Cache-Control", field) for field in fields] + [(name.title(), text) for name, text in more.items()]
    return freshness(httpx.Headers(headers, encoding="utf-8"))


# The parser beside an oracle that knows what was meant, and not how it was written.

HARMLESS = [
    "public", "private", 'private="set-cookie, x"', "s-maxage=7", "must-revalidate", "proxy-revalidate", "immutable",
    "stale-while-revalidate=9", 'ext="max-age=7, no-cache"', r'ext="a\", max-age=7"', "maxage=8", "x-max-age=8", "",
]  # fmt: skip
NO_CACHE = ["no-cache", "No-Cache", 'no-cache="set-cookie, x"']
NO_NUMBERS = ["", "-1", "+5", "1.5", "1e300", "1" + "0" * 300, "x", "٣", "5 5", "0x10", '5"', "5;6"]
NUMBERS = st.one_of(*(st.integers(0, most).map(str) for most in (600, HOUR, 2 * HOUR, 10**10 - 1)))
TEXTS = st.integers(0, 7).flatmap(lambda one: NUMBERS if one else st.sampled_from(NO_NUMBERS))
MOMENTS = st.integers(-3 * HOUR, 3 * HOUR).map(lambda s: BEGIN + timedelta(seconds=s)) | st.datetimes(
    datetime(1900, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC)
).map(lambda moment: moment.replace(microsecond=0))
NO_MOMENTS = ["", "0", "-1", "now", "2026-10-03T08:00:00Z", "Sat, 99 Oct 2026 08:00:00 GMT", f"{DATE}, {DATE}"]


@st.composite
def answers(draw):
    """Headers, and for how long they say that the answer is fresh."""
    words = draw(st.lists(st.sampled_from(HARMLESS), max_size=3))
    ages = [draw(TEXTS) for _ in range(draw(st.sampled_from([0, 0, 1, 1, 1, 2])))]
    name, mark = draw(st.sampled_from(["max-age", "Max-Age"])), draw(st.sampled_from(["", '"']))
    words += [f"{name}={mark}{age}{mark}" for age in ages]
    no_store, no_cache = draw(st.sampled_from([(False, False)] * 9 + [(False, True), (True, False), (True, True)]))
    words += ["No-Store"] * no_store + [draw(st.sampled_from(NO_CACHE))] * no_cache
    words = draw(st.permutations(words))
    cut = draw(st.integers(0, len(words)))
    blank = draw(st.sampled_from([",", ", ", "\t, "]))
    headers = [("Cache-Control", blank.join(part)) for part in (words[:cut], words[cut:]) if part]
    expires, date = draw(st.none() | MOMENTS), draw(st.none() | MOMENTS)
    for field, moment in (("Expires", expires), ("Date", date)):
        headers += [(field, format_datetime(moment, usegmt=True))] if moment else []
    if expires is None and draw(st.booleans()):
        headers.append(("Expires", draw(st.sampled_from(NO_MOMENTS))))
    age = draw(st.sampled_from([None, None, "7", draw(TEXTS)]))
    headers += [] if age is None else [("Age", age)]
    star = draw(st.sampled_from([False] * 9 + [True]))
    headers += [("Vary", draw(st.sampled_from(["*", "Accept, *"]) if star else st.just("Accept-Encoding, Cookie")))]
    headers.append(("Pragma", "no-cache"))

    def number(text):
        return None if text in NO_NUMBERS else int(text)

    if no_store:
        return headers, NEVER
    if ages:
        lifetime = number(ages[0]) if len(set(ages)) == 1 else None
    else:
        lifetime = (expires - date).total_seconds() if expires and date else None
    old = 0 if age is None else number(age)
    if no_cache or star or lifetime is None or old is None:
        return headers, 0
    return headers, sorted((0, lifetime - old, HOUR))[1]


@given(answers())
def test_headers_say_what_they_mean(answer):
    headers, expected = answer
    assert freshness(httpx.Headers(headers, encoding="utf-8")) == expected


FOREIGN = st.text(st.characters(min_codepoint=32, max_codepoint=255), max_size=40) | st.sampled_from([DATE, LATER])


@given(st.lists(st.tuples(st.sampled_from(["Cache-Control", "Expires", "Date", "Age", "Vary"]), FOREIGN), max_size=6))
@example([("Cache-Control", "max-age=" + "9" * 50_000)])
@example([("Cache-Control", '"' + r"\"" * 50_000)])  # each quote might begin a text that does not end
@example([("Cache-Control", "max-age=60"), ("Age", "-" + "9" * 400)])
@example([("Expires", "Fri, 31 Dec 9999 23:59:59 GMT"), ("Date", "Mon, 01 Jan 0001 00:00:00 GMT")])
@example([("Expires", "Fri, 31 Dec 9999 23:59:60 GMT"), ("Date", DATE)])
def test_whatever_a_server_says_a_message_is_fresh_for_at_most_an_hour(headers):
    found = freshness(httpx.Headers(headers, encoding="latin-1"))
    assert found is NEVER or 0 <= found <= HOUR


@pytest.mark.parametrize(("fields", "more", "expected"), [
    ([], {}, 0), (["public"], {}, 0), (["max-age=60"], {}, 60), (["max-age=60", "private"], {"age": "20"}, 40),
    (["max-age=60"], {"age": "61"}, 0), (["max-age=31536000"], {}, HOUR), (["max-age=31536000"], {"age": "99"}, HOUR),
    (["max-age=60"], {"expires": "0"}, 60), (["max-age=x"], {"expires": LATER, "date": DATE}, 0),
    (["max-age"], {}, 0), (["max-age = 60"], {}, 0), (["max-age=60; public"], {}, 0),
    (["max-age=60, max-age=60"], {}, 60), (["max-age=60", "max-age=61"], {}, 0),
    (["s-maxage=60"], {}, 0), (["max-age=60, must-revalidate"], {}, 60),
    (["max-age=60, no-cache"], {}, 0), (["no-store"], {}, NEVER), (["private no-store"], {}, NEVER),
    (["max-age=60"], {"vary": "Accept-Encoding"}, 60), (["max-age=60"], {"vary": "*"}, 0),
    (["max-age=60"], {"vary": "Accept, *"}, 0), (['max-age=60, ext="a, max-age=7, no-cache"'], {}, 60),
    (['max-age="60"'], {}, 60), (['max-age="60'], {}, 0), (["max-age=1" + "0" * 300], {}, 0),
    (["max-age=60"], {"pragma": "no-cache"}, 60), (["max-age=60"], {"age": "5, 7"}, 0),
    ([], {"expires": LATER, "date": DATE}, 90), ([], {"expires": LATER, "date": DATE, "age": "30"}, 60),
    ([], {"expires": DATE, "date": LATER}, 0), ([], {"expires": LATER}, 0), ([], {"expires": LATER, "date": "x"}, 0),
    (["public"], {"expires": "Thu, 01 Jan 1970 00:01:00 GMT", "date": "Thu, 01 Jan 1970 00:00:00 GMT"}, 60),
])  # fmt: skip
def test_max_age_or_else_the_date_of_expiry_less_the_age(fields, more, expected):
    assert said(*fields, **more) == expected


# Web servers.

MINUTE = "Cache-Control: max-age=60"
ANSWERS = {
    "whole": (lambda _: reply(b"x", headers=[MINUTE, "Age: 10"]), 200, 50),
    "silent on it": (lambda _: reply(b"x"), 200, 0),
    "moved": (lambda _: reply(b"x", 301, [MINUTE]), 301, 60),
    "missing": (lambda _: reply(b"x", 404, [MINUTE]), 404, 60),
    "gone": (lambda _: reply(b"x", 410, [MINUTE]), 410, 60),
    "secret": (lambda _: reply(b"x", headers=["Cache-Control: no-store"]), 200, NEVER),
    "not modified": (lambda _: Reply([f"HTTP/1.1 304 Whatever\r\n{MINUTE}\r\n\r\n".encode()]), 304, NEVER),
    "too many": (lambda _: reply(b"x", 429, [MINUTE]), 429, NEVER),
    "broken": (lambda _: reply(b"x", 500, [MINUTE]), 500, NEVER),
    "cut": (lambda _: reply(b"x", headers=[MINUTE], length=9), 502, NEVER),
}


async def fetched(transport, *helds):
    """The answers to queries for everything, with what is held at each."""
    try:
        await transport.connect()
        everything = tuple(range(len(transport.names)))
        found = []
        for step, held in enumerate(helds):
            versions = tuple(content.version for content in found[0]) if held else (None,) * len(everything)
            found.append((await transport.fetch("0" * 32, step, everything, versions)).contents)
        return found
    finally:
        await transport.close()


def test_messages_may_be_fresh_and_failures_never_are():
    with RecordingServer(lambda request: ANSWERS[request.path[1:].replace("%20", " ")][0](request)) as server:
        urls = {name: f"{server.url}/{name.replace(' ', '%20')}" for name in ANSWERS}
        [contents] = asyncio.run(fetched(HttpTransport(urls, attempts=1), False))
    found = {name: (content.status, content.fresh) for name, content in zip(ANSWERS, contents, strict=True)}
    assert found == {name: (status, fresh) for name, (_, status, fresh) in ANSWERS.items()}


def test_a_server_without_an_answer_is_a_failure_that_is_never_fresh():
    with RecordingServer(lambda _: Reply([])) as server:
        urls = {"a": f"{server.url}/a", "b": f"{server.url}/b"}
    [contents] = asyncio.run(fetched(HttpTransport(urls, attempts=1), False))
    assert [content.fresh for content in contents] == [NEVER, NEVER]


def test_an_unchanged_message_is_fresh_by_the_headers_that_came_last():
    def respond(request):
        held = dict(request.headers).get("if-none-match")
        if held is None:
            return reply(b"x", headers=['ETag: "1"', "Cache-Control: max-age=60"])
        own = {"/longer": "Cache-Control: max-age=600\r\n", "/silent": "", "/never": "Cache-Control: no-store\r\n"}
        return Reply([f'HTTP/1.1 304 Whatever\r\nETag: "1"\r\n{own[request.path]}\r\n'.encode()])

    with RecordingServer(respond) as server:
        urls = {name: f"{server.url}/{name}" for name in ("longer", "silent", "never")}
        whole, again = asyncio.run(fetched(HttpTransport(urls), False, True))
    assert [content.fresh for content in whole] == [60, 60, 60]
    assert [(content.unchanged, content.fresh) for content in again] == [(True, 600), (True, 0), (True, NEVER)]


# Our own server.

NAMES = ("news", "sports", "science")


def told(directory, *options):
    """The Cache-Control of answers to several queries, and the freshness of whole and of unchanged messages."""
    directory.mkdir()
    with ServerProcess(directory, *options, names=NAMES) as server:
        queries = [server.query([0]), server.query([0, 1, 2], step=5)]
        number = server.publish({"news": b"one", "sports": b"two"})
        queries += [server.query([1]), server.query([1, 2]), server.query([0, 1], held=[number, number])]
        contents = [each for answer in asyncio.run(fetched(OnoffTransport(server.url), False, True)) for each in answer]
        assert [content.unchanged for content in contents] == [False, False, False, True, True, False]
        kept = {name: server.http.get(f"/{name}").headers["cache-control"] for name in ("v1/catalogue", "health")}
    assert set(kept.values()) == {"no-store"}
    return {response.headers["cache-control"] for response in queries}, {content.fresh for content in contents}


def test_an_onoff_server_tells_every_reader_the_same_time_with_every_answer(tmp_path):
    assert told(tmp_path / "none") == ({"no-store"}, {0})
    assert told(tmp_path / "some", "--fresh", "30s") == ({"private, max-age=30"}, {30})
    assert told(tmp_path / "most", "--fresh", "1h", "--workers", "2") == ({"private, max-age=3600"}, {HOUR})


def test_what_our_server_calls_unchanged_though_nobody_holds_it_is_never_fresh():
    origin = OnoffOrigin({"news": b"one", "sports": b"two"})

    def respond(request):
        if request.path == "/v1/catalogue":
            return origin(request)
        frames = [origin.frame(0, 0), Unchanged.of(origin.frame(1, 0)).encode()]
        return reply(b"".join(frames), headers=[MINUTE])

    with RecordingServer(respond) as server:
        [contents] = asyncio.run(fetched(OnoffTransport(server.url), False))
    assert [(content.status, content.fresh) for content in contents] == [(200, 60), (304, NEVER)]


@pytest.mark.parametrize("given", ["5 parsecs", "-30s", "2h", "1e300"])
def test_a_time_that_a_server_cannot_keep_is_refused_before_anything_is_made(tmp_path, given):
    command = [ONOFF, "serve", "--port", "0", "--source", "a", "--source", "b", "--fresh", given]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == USAGE
    assert done.stderr.count("\n") == 1
    assert "length of time" in done.stderr or "at most an hour" in done.stderr
    assert list(tmp_path.iterdir()) == []
