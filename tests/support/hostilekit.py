"""Hostile servers, and what callers and wires show of a request for the same set, whichever source is wanted."""

from __future__ import annotations

from clientkit import BODIES, BODY_LIMIT, NAMES, OFF
from onoff.wire import Frame
from recordingserver import Reply, reply

SET = (1, 2, 4)
VICTIM = 2  # the source for which the server misbehaves


# What a hostile onoff server does with the frames of an answer.


def corrupted(frames):
    broken = bytearray(frames[1])
    broken[30] ^= 1
    return reply(b"".join([frames[0], bytes(broken), *frames[2:]]))


def last_padding_changed(frames):
    broken = bytearray(frames[1])
    broken[-33] ^= 2  # the last byte before the checksum of a whole frame
    return reply(b"".join([frames[0], bytes(broken), *frames[2:]]))


def giant_round(frames):
    """A frame in order but for its round, which is more than SQLite keeps."""
    source = int.from_bytes(frames[1][4:8], "big")
    return reply(b"".join([frames[0], Frame(source, 2**63, b"marked").encode(64), *frames[2:]]))


OWN_FAULTS = {
    "giant round": giant_round,
    "corrupted": corrupted,
    "padding": last_padding_changed,
    "reordered": lambda frames: reply(b"".join([frames[1], frames[0], *frames[2:]])),
    "repeated": lambda frames: reply(b"".join([frames[0], frames[0], *frames[2:]])),
    "one less": lambda frames: reply(b"".join(frames[:1] + frames[2:])),
    "one more": lambda frames: reply(b"".join([*frames, frames[1]])),
    "cut short": lambda frames: reply(b"".join(frames)[:-70], length=len(b"".join(frames))),
    "empty": lambda frames: reply(b""),
    "endless": lambda frames: reply(b"".join(frames) * 500),
    "no HTTP": lambda frames: Reply([b"this is not HTTP\r\n\r\n"], close=True),
    "closed": lambda frames: Reply([], close=True),
    "503": lambda frames: reply(b'{"title": "busy"}', 503),
    "429": lambda frames: reply(b"", 429),
    "page": lambda frames: reply(b"<html>welcome</html>"),
}
REFUSALS = {
    "404": lambda frames: reply(b"{}", 404),
    "409": lambda frames: reply(b'{"type": "other-catalogue"}', 409),
    "301": lambda frames: reply(b"moved", 301, ["Location: /v1/elsewhere"]),
}


def watch(world, journals, ask=None):
    """What the caller and the server see of a request for the same set, whichever of its sources is wanted."""
    outcomes, recordings = [], []
    for wanted in SET:
        world.server.reset()

        async def get(client, wanted=NAMES[wanted]):
            return await (client.get(wanted, "news", OFF) if ask is None else ask(client))

        journal = f"{journals}-{wanted}"
        outcomes.append(world.outcome(get, [SET], journal))
        recordings.append(world.server.recording())
    return outcomes, recordings


def watch_alike(world, journals):
    """What `watch` saw, which must be the same for every wanted source: one outcome, and the requests in order."""
    outcomes, recordings = watch(world, journals)
    assert outcomes == [outcomes[0]] * len(SET)
    assert recordings == [recordings[0]] * len(SET)
    return outcomes[0], [raw for connection in recordings[0] for raw in connection]


def settle(world, journals):
    """Journals that have had their first request, ON, so that the next may be OFF."""
    for wanted in SET:
        assert world.outcome(lambda client: client.get("news"), journal=f"{journals}-{wanted}") == ("message",)


def check_resumed(world, journals, query):
    """An honest server again: the pending query goes out once more, the same bytes, and the message is there."""
    world.server.respond = world.origin
    for wanted in SET:
        world.server.reset()
        bodies = []

        async def finish(client, bodies=bodies):
            bodies.append((await client.resume()).body)

        assert world.outcome(finish, journal=f"{journals}-{wanted}") == ("message",)
        assert bodies == [BODIES[NAMES[wanted]]]
        assert world.queries() == [query]


# What a hostile web server does at one URL.

ANY_FAULTS = {
    "cut short": lambda body: reply(body[:-1], length=len(body)),
    "oversized": lambda body: reply(b"x" * (BODY_LIMIT + 1)),
    "no HTTP": lambda body: Reply([b"this is not HTTP\r\n\r\n"], close=True),
    "closed": lambda body: Reply([], close=True),
    "bad chunks": lambda body: Reply([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"zz\r\n"], close=True),
    "bad length": lambda body: Reply([b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", body], close=True),
}
