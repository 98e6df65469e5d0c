"""What the client puts on the wire, byte for byte: it must not depend on what was wanted, only on the drawn sets."""

from __future__ import annotations

import json

import pytest

from clientkit import ASKED, NAMES, SETS, STREAMS, TRANSPORTS, faulty, scene
from recordingserver import Reply

TEMPTING = [
    "Set-Cookie: who=you; Path=/",
    'ETag: "tag"',
    "Last-Modified: Sat, 03 Oct 2026 08:00:00 GMT",
    "Cache-Control: max-age=3600",
    "Link: </style.css>; rel=preload",
    "Refresh: 0; url=/refreshed",
    "Accept-CH: Width",
    "Alt-Svc: h2=':1'",
    "Strict-Transport-Security: max-age=100",
]


@pytest.fixture(params=TRANSPORTS)
def world(request, tmp_path, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")  # must not be used
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    bodies = {name: name.encode() * (60_000 if request.param == "any" else 6) for name in NAMES}
    with scene(request.param, tmp_path, bodies) as found:
        yield found


def tempting(request, answer):  # noqa: ARG001
    head, body = answer.parts
    return Reply([head[:-2] + "\r\n".join([*TEMPTING, "", ""]).encode(), body])


def record(world, stream, number):
    world.server.reset()
    messages = world.play(stream, SETS, journal=f"journal-{number}")
    assert [message.body for message in messages] == [world.origin.bodies[source] for source, _ in stream]
    return world.server.recording()


def expected_headers(world, body, held):
    headers = [("Host", f"127.0.0.1:{world.server.port}"), ("Accept", "*/*"), ("Accept-Encoding", "identity")]
    headers += [("Connection", "keep-alive"), ("User-Agent", "onoff")]
    headers += [("If-None-Match", '"tag"')] if held else []
    if body is not None:
        headers += [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
    return sorted((name.lower(), value) for name, value in headers)


def test_exactly_these_requests_in_this_order(world):
    """No cookies, no compression, nothing that the server asked for; conditions for what is held; canonical order."""
    world.server.respond = faulty(world.origin, tempting)
    record(world, STREAMS[0], 0)
    requests = world.server.requests
    if world.kind == "own":
        assert (requests[0].method, requests[0].path, requests[0].body) == ("GET", "/v1/catalogue", b"")
        assert all((request.method, request.path) == ("POST", "/v1/query") for request in requests[1:])
        bodies = [json.loads(request.body) for request in requests[1:]]
        assert [(body["step"], tuple(body["sources"])) for body in bodies] == list(enumerate(ASKED))
        assert {body["catalogue"] for body in bodies} == {world.origin.catalogue.fingerprint}
    else:
        assert [request.path for request in requests] == [f"/{NAMES[i]}" for query in ASKED for i in query]
        assert {(request.method, request.body) for request in requests} == {("GET", b"")}
    orders, seen = set(), set()
    for request in requests:
        body = request.body if request.method == "POST" else None
        held = world.kind == "any" and request.path in seen
        seen.add(request.path)
        headers = expected_headers(world, body, held)
        assert sorted((name.lower(), value) for name, value in request.headers) == headers
        orders.add((request.method, held, tuple(name for name, _ in request.headers)))
    assert len(orders) == 2
