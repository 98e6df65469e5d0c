"""Poisoned answers: what a hostile or careless server may say at one URL, or to one query. Tables of name -> answer.

A poisoned web answer is a function of the honest body; `WEB` has one for each way. A poisoned answer of an onoff server
is a function of the honest frames and the place of one of them; `OWN` has those.
"""

from __future__ import annotations

import gzip
import zlib

from onoff.wire import Frame, Unchanged
from recordingserver import Reply, reply

LIMIT = 2**21  # of a body, as the clients of these tests have it


def raw(*lines: str, body: bytes = b"", close: bool = False) -> Reply:
    """An answer of these lines, word for word, and a body after them, which leave together."""
    return Reply(["\r\n".join([*lines, "", ""]).encode("latin-1") + body], close)


def at_once(*parts: bytes) -> Reply:
    """Bytes that leave together: whether a part that comes later is seen in time would be chance."""
    return Reply([b"".join(parts)])


def said(*headers: str, status: int = 200):
    """The honest body with these headers."""
    return lambda body: reply(body, status, headers)


def framed(*headers: str, close: bool = False, change=lambda body: body):
    """The body with a framing of its own: the headers say how long it is, or nothing does."""
    return lambda body: raw("HTTP/1.1 200 OK", *headers, body=change(body), close=close)


def chunk(body: bytes, extension: bytes = b"") -> bytes:
    return b"%x%s\r\n%s\r\n" % (len(body), extension, body)


CHUNKED = "Transfer-Encoding: chunked"
LAST = b"0\r\n\r\n"
STATUSES = (
    201, 203, 205, 206, 226, 300, 301, 303, 305, 307, 308, 400, 401, 402, 403, 404, 405, 406, 407, 408, 409, 410, 412,
    413, 416, 418, 421, 425, 429, 451, 500, 501, 502, 503, 504, 505, 507, 511, 599, 600, 999,
)  # fmt: skip
HEADERS = {
    "a place elsewhere": ["Location: /elsewhere"],
    "a wait": ["Retry-After: 1"],
    "a cookie": ["Set-Cookie: id=1; Path=/"],
    "another protocol": ['Alt-Svc: h3=":443"', "Upgrade: h2c"],
    "a page to load": ["Link: </other>; rel=preload", "Refresh: 0; url=/other"],
    "the end of the connection": ["Connection: close"],
    "a short life": ["Connection: keep-alive", "Keep-Alive: timeout=0, max=1"],
    "a weak tag": ['ETag: W/"weak"'],
    "a long tag": [f'ETag: "{"x" * 5000}"'],
    "an empty tag": ["ETag: "],
    "a tag without quotes": ["ETag: naked"],
    "two tags": ['ETag: "one"', 'ETag: "two"'],
    "a date that is none": ["Last-Modified: yesterday"],
    "a date to come": ["Last-Modified: Tue, 01 Jan 2999 00:00:00 GMT"],
    "letters of no code": ['ETag: "caf\xe9"', "Content-Type: text/\xff"],
    "a long type": [f"Content-Type: {'x' * 3000}"],
    "a hundred headers": [f"X-{i}: {i}" for i in range(90)],
    "a long header": [f"X-Long: {'x' * 60_000}"],
    "zipped, it says": ["Content-Encoding: gzip"],
    "two codings": ["Content-Encoding: gzip, br"],
    "a range": ["Content-Range: bytes 0-3/10", "Accept-Ranges: bytes"],
}
FRAMINGS = {
    "no length": framed(close=True),
    "a short length": lambda body: reply(body[:-1], length=len(body)),
    "a long body": lambda body: at_once(*reply(body).parts, b"more than was said"),
    "two answers": lambda body: at_once(*reply(body).parts, *reply(b"stale").parts),
    "an answer before": lambda body: at_once(*reply(b"stale").parts, *reply(body).parts),
    "a negative length": framed("Content-Length: -1", close=True),
    "a length of words": framed("Content-Length: many", close=True),
    "a length beyond numbers": framed(f"Content-Length: {10**30}", close=True),
    "one length twice": lambda body: reply(body, 200, [f"Content-Length: {len(body)}"]),
    "two lengths": lambda body: reply(body, 200, ["Content-Length: 1"]),
    "length and chunks": framed(CHUNKED, "Content-Length: 3", change=lambda body: chunk(body) + LAST),
    "chunks": framed(CHUNKED, change=lambda body: chunk(body[:3]) + chunk(body[3:]) + LAST),
    "a trailer of garbage": framed(CHUNKED, change=lambda body: chunk(body) + b"0\r\n\x00garbage\r\n\r\n", close=True),
    "trailers": framed(CHUNKED, change=lambda body: chunk(body) + b"0\r\nX-Late: 1\r\n\r\n"),
    "garbage after chunks": framed(CHUNKED, change=lambda body: chunk(body) + LAST + b"garbage"),
    "a chunk of words": framed(CHUNKED, change=lambda body: b"zz\r\n" + body, close=True),
    "long extensions": framed(CHUNKED, change=lambda body: chunk(body, b";" + b"x" * 9000) + LAST),
    "no last chunk": framed(CHUNKED, change=chunk, close=True),
    "unknown coding": framed("Transfer-Encoding: sparkling", close=True),
    "HTTP/1.0": lambda body: raw("HTTP/1.0 200 OK", body=body, close=True),
    "HTTP/1.0 kept": lambda body: raw(
        "HTTP/1.0 200 OK", "Connection: keep-alive", f"Content-Length: {len(body)}", body=body
    ),
    "HTTP/0.9": lambda body: Reply([body], close=True),
    "HTTP/2": lambda body: Reply([b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", body], close=True),
    "no words": lambda body: raw("HTTP/1.1 200", f"Content-Length: {len(body)}", body=body),
    "bare line feeds": lambda body: Reply([b"HTTP/1.1 200 OK\nContent-Length: %d\n\n" % len(body), body]),
    "folded": lambda body: reply(body, 200, ["X-Folded: one", " two"]),
    "no colon": lambda body: reply(body, 200, ["nothing here"]),
    "a space before the colon": lambda body: reply(body, 200, ["X-Space : 1"]),
    "a NUL": lambda body: reply(body, 200, ["X-Nul: \x00"]),
    "204 with a body": lambda body: raw("HTTP/1.1 204 No Content", f"Content-Length: {len(body)}", body=body),
    "304 with a body": lambda body: raw("HTTP/1.1 304 Not Modified", f"Content-Length: {len(body)}", body=body),
    "304 to no question": lambda body: raw("HTTP/1.1 304 Not Modified", 'ETag: "x"'),
    "101": lambda body: raw("HTTP/1.1 101 Switching Protocols", "Upgrade: h2c", body=body, close=True),
    "103 before": lambda body: Reply([b"HTTP/1.1 103 Early Hints\r\n\r\n" * 5, *reply(body).parts]),
    "100 before": lambda body: at_once(b"HTTP/1.1 100 Continue\r\n\r\n", *reply(body).parts),
    "103 without end": lambda body: at_once(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 2000),
    "h2c": lambda body: raw("HTTP/1.1 101 Switching Protocols", "Connection: Upgrade", "Upgrade: h2c"),
    "status 1000": lambda body: raw("HTTP/1.1 1000 Much", "Content-Length: 0"),
    "a long head": lambda body: reply(body, 200, [f"X-Long: {'x' * 200_000}"]),
    "status 0": lambda body: raw("HTTP/1.1 000 Nothing", "Content-Length: 0", close=True),
    "status 99": lambda body: raw("HTTP/1.1 99 Low", "Content-Length: 0", close=True),
    "no HTTP": lambda body: Reply([b"this is not HTTP\r\n\r\n"], close=True),
    "nothing": lambda body: Reply([], close=True),
    "half a head": lambda body: Reply([b"HTTP/1.1 200 OK\r\nContent-Le"], close=True),
}
CONTENTS = {
    "empty": lambda body: reply(b""),
    "zeros": lambda body: reply(bytes(1000)),
    "at the limit": lambda body: reply(b"x" * LIMIT),
    "above the limit": lambda body: reply(b"x" * (LIMIT + 1)),
    "really zipped": lambda body: reply(gzip.compress(body, mtime=0), 200, ["Content-Encoding: gzip"]),
    "zipped in part": lambda body: reply(gzip.compress(body, mtime=0)[:-5], 200, ["Content-Encoding: gzip"]),
    "zipped, and more": lambda body: reply(gzip.compress(body, mtime=0) + b"x", 200, ["Content-Encoding: gzip"]),
    "deflated": lambda body: reply(zlib.compress(body), 200, ["Content-Encoding: deflate"]),
    "a bomb": lambda body: reply(zlib.compress(bytes(2 * LIMIT)), 200, ["Content-Encoding: deflate"]),
    "a pause": lambda body: Reply([b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body), 0.05, body]),
    "in drops": lambda body: Reply(
        [b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body), *(body[i : i + 1] for i in range(len(body)))]
    ),
}
WEB = {
    **{f"{status}": lambda body, status=status: reply(b"not what you want", status) for status in STATUSES},
    **{name: said(*headers) for name, headers in HEADERS.items()},
    **FRAMINGS,
    **CONTENTS,
}


# What a hostile onoff server does with the frames of an answer. `at` is the place of the victim's frame.


def with_frame(change):
    """The answer with another frame of the victim."""
    return lambda frames, at: reply(whole([*frames[:at], change(frames[at]), *frames[at + 1 :]]))


def whole(frames: list[bytes]) -> bytes:
    return b"".join(frames)


def flipped(place: int):
    def change(frame: bytes) -> bytes:
        broken = bytearray(frame)
        broken[place] ^= 2
        return bytes(broken)

    return with_frame(change)


def reframed(source: int | None = None, number: int = 1, body: bytes = b"marked"):
    """A frame in order, with a source, a round or a body of the server's choice."""

    def change(frame: bytes) -> bytes:
        own = int.from_bytes(frame[4:8], "big")
        return Frame(own if source is None else source, number, body).encode(64)

    return with_frame(change)


def unchanged(number: int):
    """Says that nothing changed since a round that the client may not hold."""

    def change(frame: bytes) -> bytes:
        return Unchanged.of(Frame(int.from_bytes(frame[4:8], "big"), number, b"never sent").encode(64)).encode()

    return with_frame(change)


def answered(make):
    """An answer made of all frames together."""
    return lambda frames, _: make(whole(frames))


OWN = {
    "a giant round": reframed(number=2**63),
    "a round to come": reframed(number=2**40),
    "an old round": reframed(number=0),
    "another body, the same round": reframed(number=1, body=b"another"),
    "an empty body": reframed(number=5, body=b""),
    "another source": reframed(source=0),
    "no source": reframed(source=2**31),
    "unchanged since never": unchanged(77),
    "unchanged, another body": unchanged(1),
    "corrupted": flipped(30),
    "corrupted head": flipped(1),
    "corrupted checksum": flipped(-1),
    "padding": flipped(-33),
    "one byte less": with_frame(lambda frame: frame[:-1]),
    "one byte more": with_frame(lambda frame: frame + b"x"),
    "first again": lambda frames, at: reply(whole([*frames[:at], frames[0], *frames[at + 1 :]])),
    "reversed": lambda frames, _: reply(whole(frames[::-1])),
    "one less": lambda frames, at: reply(whole(frames[:at] + frames[at + 1 :])),
    "one more": lambda frames, at: reply(whole([*frames, frames[at]])),
    "cut short": answered(lambda body: reply(body[:-70], length=len(body))),
    "empty": answered(lambda _: reply(b"")),
    "endless": answered(lambda body: reply(body * 500)),
    "two answers": answered(lambda body: at_once(*reply(body).parts, *reply(b"stale").parts)),
    "a long body": answered(lambda body: at_once(*reply(body).parts, b"more than was said")),
    "chunks": answered(lambda body: raw("HTTP/1.1 200 OK", CHUNKED, body=chunk(body) + LAST)),
    "zipped": answered(lambda body: reply(gzip.compress(body, mtime=0), 200, ["Content-Encoding: gzip"])),
    "no length": answered(lambda body: raw("HTTP/1.1 200 OK", body=body, close=True)),
    "HTTP/1.0": answered(lambda body: raw("HTTP/1.0 200 OK", body=body, close=True)),
    "a pause": answered(CONTENTS["a pause"]),
    "a cookie": answered(said("Set-Cookie: id=1")),
    "a page": answered(lambda _: reply(b"<html>welcome</html>")),
    "no HTTP": answered(FRAMINGS["no HTTP"]),
    "nothing": answered(FRAMINGS["nothing"]),
    **{
        f"{status}": answered(lambda _, status=status: reply(b'{"title": "no"}', status, ["Location: /v1/elsewhere"]))
        for status in (204, 301, 401, 404, 409, 413, 429, 500, 503, 504)
    },
}
