"""140,000 mutated requests: the server stays up, refuses in words, and records exactly what it answered."""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import socket

import pytest

from onoff.errors import WireError
from onoff.wire import Catalogue, decode_answer, encode_publication, parse_query
from serverprocess import ServerProcess
from stresskit import mutated, portion, query_body

pytestmark = pytest.mark.stress
NAMES = ("news", "sports", "science", "wetter süd")
CATALOGUE = Catalogue(NAMES, 64)
REFUSALS = {400, 401, 404, 405, 408, 409, 411, 413, 414, 415, 422, 431}
JSON = {"Content-Type": "application/json"}


class Wire:
    """One kept-alive connection, opened again when the server has closed it."""

    def __init__(self, server):
        self._server = server
        self._http = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)

    def ask(self, method, path, body, headers):
        """Status, headers and body."""
        for attempt in (1, 2):
            try:
                self._http.request(method, path, body, headers)
                response = self._http.getresponse()
                return response.status, response.headers, response.read()
            except (http.client.BadStatusLine, ConnectionError, BrokenPipeError):
                self._http.close()  # a kept connection may be closed by the server at any time
                if attempt == 2:
                    raise
        raise AssertionError("two attempts are made")

    def close(self):
        self._http.close()


def any_query(rng):
    sources = sorted(rng.sample(range(len(NAMES)), rng.randint(1, len(NAMES))))
    return query_body(CATALOGUE, rng, rng.choice((0, 1, 7, 2**40)), tuple(sources))


def odd_bytes(rng):
    """A query with some bytes changed; every tenth is left as it is."""
    return mutated(any_query(rng), rng) if rng.random() < 0.9 else any_query(rng)


def odd_json(rng):
    """A query of the right shape with wrong values."""
    data = json.loads(any_query(rng))
    odd = (None, True, -1, 2**53, 2**70, 1.5, "", "x" * 300, [], [0, 0], [3, 1], [99], [-1], {}, [[1]], "\ud800")
    data[rng.choice([*data, "more"])] = rng.choice(odd)
    if rng.random() < 0.2:
        del data[rng.choice(sorted(data))]
    return json.dumps(data, separators=rng.choice(((",", ":"), None)), sort_keys=rng.random() < 0.8).encode()


def request(rng, server):
    """One of them: what kind it is, method, path, body and headers."""
    kind = rng.choices(("bytes", "values", "publication", "envelope"), (60, 15, 10, 15))[0]
    if kind == "bytes":
        return kind, "POST", "/v1/query", odd_bytes(rng), JSON
    if kind == "values":
        return kind, "POST", "/v1/query", odd_json(rng), JSON
    if kind == "publication":
        body = encode_publication(CATALOGUE, {rng.choice(NAMES): rng.randbytes(rng.randint(0, 64))})
        token = server.authorization if rng.random() < 0.8 else {"Authorization": "Bearer " + rng.randbytes(9).hex()}
        return kind, "POST", "/v1/rounds", mutated(body, rng), {**JSON, **token}
    paths = ("/v1/query", "/v1/catalogue", "/v1/messages/news", "/v1/rounds", "/health", "/")
    path = rng.choice(paths) + rng.choice(("", "", "?", "?a=" + "b" * 500, "/..", "%00", "%ff", "//", "/x" * 40))
    headers = {"Content-Type": rng.choice(("text/plain", "application/json; charset=x", "", "application/jsonx"))}
    if rng.random() < 0.3:
        headers["Authorization"] = rng.choice(("Bearer", "Bearer ", "Basic eDp5", "Bearer " + "x" * 4000))
    if rng.random() < 0.2:
        headers["X-Odd"] = "y" * rng.choice((1, 1000, 6000))
    method = rng.choice(("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE", "QUERY"))
    return kind, method, path, any_query(rng) if rng.random() < 0.5 else b"", headers


def check(kind, path, body, answer):
    """Frames for a valid query, or a problem in words; nothing is the server's own mistake."""
    status, headers, content = answer
    assert status < 500, (kind, path, body, content)
    if path == "/v1/query" and kind in ("bytes", "values"):
        if status == 200:
            query = parse_query(body, CATALOGUE)
            assert len(decode_answer(CATALOGUE, query.sources, content)) == len(query.sources)
        else:
            with contextlib.suppress(WireError):
                parse_query(body, CATALOGUE)
                assert status == 409, "a valid query was refused"
    if status >= 400:
        assert status in REFUSALS, (kind, status)
        if content:
            assert headers.get_content_type() == "application/problem+json", (kind, path, status, content)
            assert json.loads(content)["detail"]


def shout(rng, server):
    """Bytes that are hardly HTTP, on a connection of their own."""
    head = b"POST /v1/query HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 120\r\n\r\n"
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", server.port), timeout=60) as raw:
        raw.sendall(mutated(head + any_query(rng), rng))
        raw.shutdown(socket.SHUT_WR)
        while raw.recv(65536):
            pass


@pytest.mark.parametrize("part", [1, 2])
def test_mutated_requests_are_refused_in_words(part, tmp_path, campaign):
    with ServerProcess(tmp_path, names=NAMES, length=CATALOGUE.length) as server:
        server.publish(dict.fromkeys(NAMES, b"hello"))
        wire, answered, name = Wire(server), 0, f"requests {part}"
        total = portion(70_000)
        with campaign.seed(name) as rng:
            for number in range(total):
                if rng.random() < 0.02:
                    shout(rng, server)
                    campaign.count("nearly HTTP")
                else:
                    kind, method, path, body, headers = request(rng, server)
                    answer = wire.ask(method, path, body, headers)
                    check(kind, path, body, answer)
                    campaign.count(f"{kind}: {answer[0]}")
                    # A shout may be a valid query, too: those are told apart by what they are part of.
                    answered += answer[0] == 200 and path.partition("?")[0] == "/v1/query" and method == "POST"
                campaign.count("runs")
                campaign.progress(f"{number + 1} of {total}")
        wire.close()
        assert server.process.poll() is None
        assert server.http.get("/health").status_code == 200
        recorded = len(server.transcript())  # every line is whole
        assert answered <= recorded <= answered + campaign.counts["nearly HTTP"]
        campaign.count("queries answered and recorded", answered)
        assert server.ask([0, 2])[1].message is not None
        assert "Traceback" not in server.stderr_file.read_text()


def test_the_mutations_reach_both_sides_of_the_border():
    """Some mutated queries are still valid, most are not; otherwise the campaign would show little."""
    rng, valid = random.Random(1), 0
    for _ in range(2000):
        with contextlib.suppress(WireError):
            parse_query(odd_bytes(rng), CATALOGUE)
            valid += 1
    assert 100 < valid < 1000
