"""Messages that did not change, and servers that lie about versions: wire and disk are the same whatever was wanted.

The streams of a comparison have the same sets and want other members of them. A planted mistake must be seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import replace

import pytest

from clientkit import (
    ASKED,
    BODIES,
    FULL,
    NAMES,
    ON,
    SETS,
    STREAMS,
    TRANSPORTS,
    cut_off,
    faulty,
    planted,
    public_rows,
    scene,
)  # fmt: skip
from onoff.client.client import Client
from onoff.client.journal import Journal
from onoff.errors import JournalError, SourceError, Unavailable
from onoff.wire import Frame, Unchanged, parse_query
from recordingserver import Reply, VersionedOrigin, reply
from sampling import in_turn

VICTIM = 2
ROOM = 50  # bytes: for some of the members only


@pytest.fixture
def web(web):
    web.origin = web.server.respond = VersionedOrigin(BODIES)
    return web


@pytest.fixture(params=[*TRANSPORTS, "dated"])
def world(request, tmp_path):
    """A server that knows versions: our own, or a web server with entity tags or with dates."""
    with scene("own" if request.param == "own" else "any", tmp_path) as found:
        if request.param != "own":
            found.origin = found.server.respond = VersionedOrigin(BODIES, dated=request.param == "dated")
        yield found


def looks(world, number, name, stream=None, **options):
    """The wire and the disk of a stream, without what tells the request by itself: its number, the reader's state."""
    world.server.reset()
    journal = f"{name}-{number}"
    with contextlib.suppress(Unavailable):
        world.play(STREAMS[number] if stream is None else stream, SETS, journal=journal, **options)
    return world.server.recording(), public_rows(world.directory / journal)


def alike(world, name, **options):
    return looks(world, 0, name, **options) == looks(world, 1, name, **options)


# Honest servers.


def unchanged_in(world, number, **options):
    messages = world.play(STREAMS[number], SETS, journal=f"m-{number}", **options)
    assert [message.body for message in messages] == [BODIES[source] for source, _ in STREAMS[number]]
    return [message.unchanged for message in messages]


def test_what_did_not_change_is_returned_from_the_cache_and_marked_so(world):
    assert unchanged_in(world, 0) == unchanged_in(world, 1) == [False] + [True] * 5


@pytest.mark.parametrize("cache", [2**20, ROOM, 0])
def test_wire_and_disk_do_not_depend_on_what_was_wanted(world, cache):
    assert alike(world, "j", cache=cache)


def test_a_newer_message_replaces_what_is_held_and_the_type_comes_with_it(web):
    async def run(client):
        first = await client.get("news")
        again = await client.get("news")
        web.origin.bodies = {**BODIES, "news": b"newer"}
        return first, again, await client.get("news"), await client.get("news"), await client.resume(last=True)

    first, again, newer, last, delivered = web.use(run)
    assert [(m.body, m.unchanged) for m in (first, again)] == [(BODIES["news"], False), (BODIES["news"], True)]
    assert [(m.body, m.unchanged) for m in (newer, last)] == [(b"newer", False), (b"newer", True)]
    assert (delivered, delivered.age > 0) == (replace(last, age=delivered.age), True)
    assert {(m.status, m.content_type) for m in (first, again, newer, last)} == {(200, "text/plain")}


def test_an_answer_other_than_200_takes_the_place_of_what_was_held(web):
    async def run(client):
        await client.get("news")
        web.server.respond = faulty(
            web.origin, lambda r, _: reply(b"gone", 404, ['ETag: "x"', "Content-Type: text/html"])
            if r.path == "/news" else None
        )  # fmt: skip
        with pytest.raises(SourceError) as caught:
            await client.get("news")
        web.server.respond = web.origin
        return caught.value, await client.get("news")

    error, message = web.use(run)
    assert (error.status, error.body, error.content_type) == (404, b"gone", "text/html")
    assert (message.body, message.unchanged) == (BODIES["news"], False)
    conditions = [b"if-none-match" in request.raw.lower() for request in web.server.requests if request.path == "/news"]
    assert conditions == [False, True, False]


def test_a_server_whose_rounds_go_back_is_named_in_the_log(own, caplog):
    async def run(client):
        await client.get("news")
        assert "older messages" not in caplog.text
        own.origin.rounds = {**dict.fromkeys(NAMES, 3), "sports": 2}
        await client.get("news")

    own.origin.rounds = dict.fromkeys(NAMES, 3)
    own.use(run)
    assert "older messages than it sent before" in caplog.text


# The pending query.


def broken_off(world, journal):
    """A journal that holds everything, and whose second query was not answered."""

    async def run(client):
        await client.get("news")
        await cut_off(world, client, "sports")

    world.use(run, journal=journal, attempts=1)
    world.server.respond = world.origin


def test_a_retry_after_a_restart_names_the_same_versions_although_others_are_the_latest_now(world):
    broken_off(world, "j")
    if world.kind == "own":
        world.origin.rounds = dict.fromkeys(NAMES, 9)
    else:
        world.origin.bodies = {name: b"newer %s" % name.encode() for name in NAMES}
        world.origin.LATEST = world.origin.LATEST.replace("2026", "2027")
    [*_, pending] = world.queries()[0][: 2 if world.kind == "own" else 6]
    world.server.reset()

    # The limit of the cache holds from the end of the step on.
    assert not world.use(lambda client: client.resume(), journal="j", cache=0).unchanged
    assert world.queries()[0][0] == pending
    assert all(row[5] is None for row in public_rows(world.directory / "j")[0])


@pytest.mark.parametrize("damage", ["body = x'00'", "version = '1 00'", "status = 404", "body = NULL", None])
def test_damage_to_what_is_held_is_refused_before_anything_is_sent_whatever_was_wanted(own, damage):
    """Also if the process has the journal open: every member of the set is read before the query leaves."""
    for wanted in ("news", NAMES[VICTIM]):
        own.server.reset()

        async def run(wanted=wanted):
            async with own.client(journal=f"j-{wanted}") as client:
                await client.get("news")
                change = "DELETE FROM members" if damage is None else f"UPDATE members SET {damage}"
                client.journal._database.execute(f"{change} WHERE source = {VICTIM}")
                with pytest.raises(JournalError, match="is damaged"):
                    await client.get(wanted)

        asyncio.run(run())
        assert len(own.queries()[0]) == 1
        with contextlib.suppress(JournalError):  # when it is opened, or when all that is held is read
            assert own.outcome(lambda client: client.resume(), journal=f"j-{wanted}")[0] is JournalError
        assert len(own.queries()[0]) == 1


def test_a_smaller_limit_holds_from_the_next_answer_on(world):
    own = world.kind == "own"
    world.play([("news", ON)], journal="j")
    world.server.reset()
    messages = world.play([("sports", ON), ("news", ON)], journal="j", cache=ROOM)
    assert [message.body for message in messages] == [BODIES["sports"], BODIES["news"]]
    rows = public_rows(world.directory / "j")[0]
    assert [row[0] for row in rows] == list(FULL)
    assert sum(len(row[7]) + len(row[5]) for row in rows if row[5] is not None) <= ROOM
    world.server.reset()
    assert world.play([("news", ON), ("news", ON)], journal="j", cache=0)[1].body == BODIES["news"]
    asked = world.queries()[0]
    for raw in asked[len(asked) // 2 :]:  # the second query
        assert b'"held":[0,0,0,0,0]' in raw if own else b"\r\nif-" not in raw.lower()


# Servers that lie. What each answers is a function of what was on the wire.


def not_modified(request, headers=()):  # noqa: ARG001
    return Reply(["\r\n".join(["HTTP/1.1 304 Not Modified", *headers, "", ""]).encode()])


def tagged(body, tag):
    return reply(body, headers=[f"ETag: {tag}"])


def asked(request):
    return b"\r\nif-" in request.raw.lower()


WEB_LIES = {
    "304 unasked": lambda r: not_modified(r) if r.path == "/science" else tagged(r.path.encode(), '"1"'),
    "304 to everything": not_modified,
    "304 later": lambda r: not_modified(r) if r.number > 5 else tagged(r.path.encode(), '"1"'),
    "304 and a body": lambda r: Reply([b"HTTP/1.1 304 X\r\n\r\nabc"]) if r.number == 7 else tagged(b"x", '"1"'),
    "another tag in a 304": lambda r: not_modified(r, [f'ETag: "{r.number}"']) if asked(r) else tagged(b"x", '"1"'),
    "a mark in every tag": lambda r: tagged(r.path.encode() * 3, f'"mark {r.number}"'.replace(" ", "-")),
    "two versions of one tag": lambda r: tagged(b"x" * (r.number % 7), '"1"'),
    "tags that come and go": lambda r: tagged(b"y" * 30, f'"{r.number}"') if r.number % 3 else reply(b"z"),
    "tags that are none": lambda r: tagged(b"x", ['"a b"', "bare", f'"{"x" * 9999}"', "*", '"\t"'][r.number % 5]),
    "long and short in turns": lambda r: tagged(b"x" * (200 * (r.number % 2)), f'"{r.number}"'),
    "dates and tags in turns": lambda r: tagged(b"x", f'"{r.number}"') if r.number % 2 else reply(
        b"y", headers=[VersionedOrigin.LATEST, VersionedOrigin.SENT, "ETag: bare"]
    ),
    "no-store in turns": lambda r: reply(b"x", headers=['ETag: "1"', *["Cache-Control: no-store"] * (r.number % 2)]),
}  # fmt: skip


@pytest.mark.parametrize(("lie", "cache"), in_turn(WEB_LIES, [2**20, ROOM]))
def test_a_web_server_that_lies_about_versions_learns_nothing(web, lie, cache):
    web.server.respond = WEB_LIES[lie]
    assert alike(web, "j", cache=cache)
    paths = [request.path for request in web.server.requests]
    fails = lie in ("304 unasked", "304 to everything")  # a source of each set: then all are asked for
    once = [f"/{NAMES[source]}" for query in ASKED for source in (FULL if fails else query)]
    # Bytes behind a 304 break the answer to the request after it: then the whole set goes out again. Who holds little
    # calls a later 304 a failure: then all are asked for.
    is_more = lie == "304 and a body" or (lie == "304 later" and cache == ROOM)
    assert paths == once if not is_more else len(paths) > len(once)


def test_a_304_that_was_not_asked_for_is_the_failure_of_its_source(web):
    web.server.respond = WEB_LIES["304 unasked"]
    messages = web.play([("science", ON), ("news", ON), ("science", ON)])
    assert [message.status for message in messages] == [304, 200, 304]
    assert [message.unchanged for message in messages] == [False, False, False]
    assert "ask again" not in str(messages[0].error)  # a server that lies for one source would see who does


def lying(own, lie):
    """Frames of a lie instead of those of an answer: `lie` is given the source, the round held, and the step."""

    def respond(request, _):
        if request.method != "POST":
            return None
        query = parse_query(request.body, own.origin.catalogue)
        frames = [lie(own, s, number, query.step) for s, number in zip(query.sources, query.held, strict=True)]
        return reply(b"".join(frames))

    return faulty(own.origin, respond)


def whole(source, number, body=b"x"):
    return Frame(source, number, body).encode(64)


OWN_LIES = {
    "unchanged, of what is not held": lambda own, s, held, step: Unchanged(s, 7, bytes(16)).encode(),
    "unchanged, of another round": lambda own, s, held, step: (
        Unchanged(s, held + 1, b"x" * 16).encode() if step else whole(s, 3)
    ),
    "unchanged, of another message": lambda own, s, held, step: (
        Unchanged(s, held, b"x" * 16).encode() if held else whole(s, 3)
    ),
    "unchanged, always": lambda own, s, held, step: Unchanged.of(whole(s, 3)).encode() if held == 3 else whole(s, 3),
    "a mark in every round": lambda own, s, held, step: whole(s, 2**40 + 1000 * step + s, b"m" * (step % 60)),
    "rounds that go down": lambda own, s, held, step: whole(s, 100 - step),
    "a round for some, none for others": lambda own, s, held, step: whole(s, step + 1) if s % 2 else whole(s, 0, b""),
    "two versions of one round": lambda own, s, held, step: whole(s, 3, b"%d" % step),
}


@pytest.mark.parametrize(("lie", "cache"), in_turn(OWN_LIES, [2**20, ROOM]))
def test_an_onoff_server_that_lies_about_versions_learns_nothing(own, lie, cache):
    own.server.respond = lying(own, OWN_LIES[lie])
    assert alike(own, "j", cache=cache)
    steps = [json.loads(request.body)["step"] for request in own.server.requests if request.method == "POST"]
    repeated = lie == "two versions of one round"  # that is no answer at all, and asked for again, as it was
    assert (len(set(steps)) < len(steps)) == repeated


def test_unchanged_of_another_message_is_the_failure_of_its_source_and_the_next_request_gets_it(own):
    """A store that was emptied counts its rounds anew, and may come to the one that is held."""
    own.server.respond = lying(own, OWN_LIES["unchanged, of another message"])
    messages = own.play([("news", ON), ("sports", ON), ("sports", ON)])
    assert [(message.status, message.body) for message in messages] == [(200, b"x"), (304, b""), (200, b"x")]


# Planted mistakes.


def validators_for_the_wanted_alone(self, begun, began, honest=Journal.name_versions):
    begun = honest(self, begun, began)
    pending = begun.pending
    versions = tuple(v if s == pending.request else None for s, v in zip(pending.query, pending.held, strict=True))
    pending = replace(pending, held=versions)
    return replace(begun, pending=pending, state=replace(begun.state, pending=pending))


def test_validators_for_the_wanted_one_alone_are_seen(world):
    with planted((Journal, "name_versions", validators_for_the_wanted_alone)):
        assert not alike(world, "j")


def test_to_ask_again_because_the_wanted_one_was_called_unchanged_is_seen(web):
    complete = Client._complete

    async def asked_again(self, pending, *rest, **options):
        message = await complete(self, pending, *rest, **options)
        if message.status == 304:
            await self.transport.fetch(self.journal.stream, 0, (self._on_wire[pending.request],), (None,))
        return message

    web.server.respond = WEB_LIES["304 unasked"]
    with planted((Client, "_complete", asked_again)):
        assert not alike(web, "j")
