"""Servers that misbehave and watch, and journals that cannot be trusted: the same for every wanted source, or no query.

"own" is an onoff server and "any" a web server; both are played by RecordingServer, which keeps every byte.
"""

from __future__ import annotations

import asyncio

import pytest

import onoff.client.journal
from clientkit import NAMES, OFF, faulty
from hostilekit import OWN_FAULTS, REFUSALS, SET, VICTIM, check_resumed, settle, watch_alike
from onoff.errors import ChainError, JournalError, RefusedByServer, SourceError, Unavailable
from onoff.wire import Catalogue
from recordingserver import Reply, reply
from sampling import in_turn


def faulty_from_the_first_query(own, fault, always=True):
    """Honest catalogues; every query is answered with a fault, or the first one only."""

    def respond(request, _):
        return fault(own.origin.frames(request)) if request.number == 1 or (always and request.number) else None

    return faulty(own.origin, respond)


@pytest.mark.parametrize(("fault", "how"), in_turn(OWN_FAULTS, [(1, True), (2, False), (2, True), (1, False)]))
def test_a_broken_answer_is_asked_for_again_alike_whatever_was_wanted(own, fault, how):
    latest, always = how
    settle(own, "j")
    own.origin.rounds = dict.fromkeys(NAMES, latest)  # 1 is held, and its frames are short
    own.server.respond = faulty_from_the_first_query(own, OWN_FAULTS[fault], always)
    outcome, seen = watch_alike(own, "j")
    assert outcome[0] == (Unavailable if always else "message")
    queries = [raw for raw in seen if b"POST /v1/query" in raw]
    assert queries == queries[:1] * (3 if always else 2)
    if always:
        check_resumed(own, "j", queries[:1])


@pytest.mark.parametrize("fault", REFUSALS)
def test_a_refusal_is_not_asked_again_whatever_was_wanted(own, fault):
    settle(own, "j")
    own.server.respond = faulty_from_the_first_query(own, REFUSALS[fault])
    outcome, seen = watch_alike(own, "j")
    assert outcome[0] is RefusedByServer
    queries = [raw for raw in seen if b"POST /v1/query" in raw]
    assert len(queries) == 1
    check_resumed(own, "j", queries)


@pytest.mark.parametrize("wanted", SET)
def test_nothing_is_raised_or_returned_before_the_last_byte_of_the_last_body(web, wanted):
    """The last body comes in two parts with a pause between; the error of an earlier status waits for the second."""
    settle(web, "j")
    last = []

    def respond(request, answer):
        if request.path == f"/{NAMES[VICTIM]}":
            return reply(b"gone", 404)
        if request.path == f"/{NAMES[SET[-1]]}":
            head, body = answer.parts
            last.append(Reply([head, body[:-1], 0.1, body[-1:]]))
            return last[-1]
        return None

    web.server.respond = faulty(web.origin, respond)

    async def get(client):
        try:
            return await client.get(NAMES[wanted], "news", OFF)
        finally:
            assert [answer.complete for answer in last] == [True]

    expected = (SourceError, 404, b"gone") if wanted == VICTIM else ("message",)
    assert web.outcome(get, [SET], f"j-{wanted}") == expected


# Catalogues.


async def ask_once(client):
    async with client:
        await client.get("news", "sports", OFF)


def attempt(world, error, client=None, match=None):
    """The client refuses, and asks for no message."""
    world.server.reset()
    with pytest.raises(error, match=match) as caught:
        asyncio.run(ask_once(client or world.client([SET])))
    assert world.queries() == []
    return caught.value


CATALOGUES = {
    "another name": (Catalogue(("news", "sports", "science", "weather", "x"), 64), ChainError),
    "one more": (Catalogue((*NAMES, "x"), 64), ChainError),
    "another length": (Catalogue(NAMES, 65), JournalError),
    "another order": (Catalogue(NAMES[::-1], 64), JournalError),
}


@pytest.mark.parametrize("pending", [False, True])
@pytest.mark.parametrize("change", CATALOGUES)
def test_a_changed_catalogue_gets_an_error_and_never_a_query(own, change, pending):
    settled = own.outcome(lambda client: client.get("news"))
    assert settled == ("message",)
    if pending:
        own.server.respond = no_answer(own)
        assert own.outcome(lambda client: client.get("sports", "news", OFF), [SET])[0] is Unavailable
    catalogue, error = CATALOGUES[change]
    own.server.respond = lambda request: reply(catalogue.document)
    attempt(own, error)
    assert [request.path for request in own.server.requests] == ["/v1/catalogue"]


@pytest.mark.parametrize("document", [b"", b"{}", b"[1]", b"\xff", b'{"format":"onoff-catalogue"}', b"[" * 100_000])
def test_what_is_not_a_catalogue_gets_an_error_and_never_a_query(own, document):
    own.server.respond = lambda request: reply(document)
    attempt(own, RefusedByServer)


# Journals.


def no_answer(world):
    """Catalogues are given out, messages are not."""
    return faulty(world.origin, lambda request, _: None if request.path == "/v1/catalogue" else Reply([], close=True))


def test_a_backup_from_before_a_query_that_was_sent_after_a_kill(world, monkeypatch):
    """Killed between the commit and the seal, the query goes out later: a backup from before is still too old."""
    assert world.outcome(lambda client: client.get("news")) == ("message",)
    path = world.directory / "journal"
    backup = path.read_bytes()

    class KilledError(BaseException):
        pass

    def killed(*_):
        raise KilledError

    async def get(client):
        with monkeypatch.context() as patch:
            patch.setattr(onoff.client.journal.os, "pwrite", killed)
            with pytest.raises(KilledError):
                await client.get("sports", "news", OFF)

    world.server.reset()
    world.outcome(get, [SET])
    assert world.queries() == []
    world.server.respond = no_answer(world)
    assert world.outcome(lambda client: client.resume())[0] is (Unavailable if world.kind == "own" else SourceError)
    path.write_bytes(backup)
    attempt(world, JournalError, match="older")
