"""The server over real HTTP: what it answers, what it refuses, and that a refusal changes nothing."""

from __future__ import annotations

import asyncio
import hashlib
import json
import socket
import sqlite3
import stat
import time
from contextlib import asynccontextmanager

import httpx
import pytest
from starlette.routing import Route

from onoff.errors import OnoffError
from onoff.server.app import Application, Settings
from onoff.server.store import open_store
from onoff.server.tokens import append_hash, hash_line, matches, new_token, read_hashes
from onoff.wire import Catalogue, Frame, QueryMessage, encode_publication
from serverprocess import ServerProcess

JSON = {"Content-Type": "application/json"}
OTHER = Catalogue(("a", "b"), 8)
NAMES = ("news", "sports", "science", "wetter süd")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with ServerProcess(tmp_path_factory.mktemp("server"), names=NAMES) as process:
        yield process


def query_body(server, **changes):
    data = {"catalogue": server.catalogue.fingerprint, "sources": [0, 2], "step": 5, "stream": "0" * 32, **changes}
    data.setdefault("held", [0] * len(data["sources"]))
    return json.dumps(data, sort_keys=True, separators=(",", ":")).encode()


def assert_problem(response, status, reason):
    assert (response.status_code, response.headers["content-type"]) == (status, "application/problem+json")
    document = response.json()
    assert document["type"] == f"urn:onoff:problem:{reason}"
    assert document["status"] == status
    assert document["title"]
    assert document["detail"]


def test_the_catalogue_hashes_to_its_fingerprint(server):
    response = server.http.get("/v1/catalogue")
    assert Catalogue.parse(response.content) == server.catalogue
    assert hashlib.sha256(response.content).hexdigest() == server.catalogue.fingerprint


def test_an_answer_has_the_latest_message_of_each_source_of_the_set(server):
    number = server.publish({"news": b"one", "sports": b"two", "science": b"", "wetter süd": b"x" * 64})
    assert server.ask([0, 1, 2, 3]) == (
        Frame(0, number, b"one"),
        Frame(1, number, b"two"),
        Frame(2, number, b""),
        Frame(3, number, b"x" * 64),
    )
    put = server.http.put("/v1/messages/wetter%20s%C3%BCd", content=b"rain", headers=server.authorization)
    assert put.json() == {"round": number + 1}
    assert server.ask([1, 3]) == (Frame(1, number, b"two"), Frame(3, number + 1, b"rain"))
    assert server.http.get("/health").json() == {"status": "ok", "round": number + 1}


def test_answers_to_sets_of_equal_size_differ_in_nothing_but_their_frames(server):
    server.publish({"news": b"", "sports": b"x" * 64})
    one, other = server.query([0, 2]), server.query([1, 3])
    shape = [[(k, v) for k, v in response.headers.items() if k != "date"] for response in (one, other)]
    assert shape[0] == shape[1]
    assert len(one.content) == len(other.content) == 2 * server.catalogue.frame_length


REFUSED_QUERIES = [  # `test_parse.py` has all that is wrong with bodies
    (b"{", 422, "not-canonical"),
    ({"sources": [2, 0]}, 422, "wrong-sources"),
    ({"catalogue": OTHER.fingerprint}, 409, "other-catalogue"),
    ({"sources": [0] * 1000}, 413, "body-too-large"),
    (b" " * 9_000_000, 413, "body-too-large"),
]


@pytest.mark.parametrize(("body", "status", "reason"), REFUSED_QUERIES)
def test_a_bad_query_is_refused_and_leaves_no_trace(server, body, status, reason):
    before = server.transcript_file.read_bytes(), server.http.get("/health").json()
    body = body if isinstance(body, bytes) else query_body(server, **body)
    try:
        response = server.http.post("/v1/query", content=body, headers=JSON)
    except httpx.TransportError:
        # Far beyond the limit the server may hang up while the sender is still sending.
        assert len(body) > 4 * 2**20
    else:
        assert_problem(response, status, reason)
    assert (server.transcript_file.read_bytes(), server.http.get("/health").json()) == before


def test_a_body_that_grows_beyond_the_limit_without_announcing_it_is_refused(server):
    response = server.http.post("/v1/query", content=(b" " * 1000 for _ in range(50)), headers=JSON)
    assert_problem(response, 413, "body-too-large")


@pytest.mark.parametrize(
    ("method", "path", "status", "reason"),
    [
        ("GET", "/", 404, "no-such-path"),
        ("POST", "/v2/query", 404, "no-such-path"),
        ("GET", "/v1/query", 405, "wrong-method"),
        ("POST", "/v1/messages/news", 405, "wrong-method"),
    ],
)
def test_a_wrong_path_or_method_is_a_problem(server, method, path, status, reason):
    response = server.http.request(method, path)
    assert_problem(response, status, reason)
    assert ("allow" in response.headers) == (status == 405)


def test_a_query_in_another_media_type_is_refused(server):
    for headers in ({}, {"Content-Type": "text/plain"}):
        response = server.http.post("/v1/query", content=query_body(server), headers=headers)
        assert_problem(response, 415, "wrong-media-type")
    charset = {"Content-Type": "Application/JSON; charset=utf-8"}
    assert server.http.post("/v1/query", content=query_body(server), headers=charset).status_code == 200


def round_body(**messages):
    return json.dumps({"catalogue": Catalogue(NAMES, 64).fingerprint, "messages": messages}).encode()


@pytest.mark.parametrize(
    ("method", "path", "content", "status", "reason"),
    [
        ("POST", "/v1/rounds", b"{", 400, "broken-json"),
        ("POST", "/v1/rounds", round_body(news="YQ==", sports="?"), 422, "wrong-type"),
        ("POST", "/v1/rounds", round_body(news="YQ==", sports="YWFh" * 22), 413, "message-too-long"),
        ("POST", "/v1/rounds", round_body(news="YQ==", sports="YWFh" * 1000), 413, "body-too-large"),
        ("POST", "/v1/rounds", encode_publication(OTHER, {"a": b"x"}), 409, "other-catalogue"),
        ("PUT", "/v1/messages/nobody", b"x", 404, "unknown-source"),
        ("PUT", "/v1/messages/news", b"x" * 65, 413, "body-too-large"),
    ],
)
def test_a_bad_publication_is_refused_whole(server, method, path, content, status, reason):
    before = server.ask([0, 1, 2, 3])
    response = server.http.request(method, path, content=content, headers={**JSON, **server.authorization})
    assert_problem(response, status, reason)
    assert server.ask([0, 1, 2, 3]) == before


@pytest.mark.parametrize("authorization", [None, "", "Bearer", "Bearer wrong", "Basic TOKEN", "TOKEN", "Bearer TOKENx"])
def test_publishing_needs_the_token(server, authorization):
    before = server.ask([0, 1, 2, 3])
    headers = {**JSON, "Authorization": authorization.replace("TOKEN", server.token)} if authorization else JSON
    for response in (
        server.http.put("/v1/messages/news", content=b"forged", headers=headers),
        server.http.post("/v1/rounds", content=b"{}", headers=headers),
    ):
        assert_problem(response, 401, "wrong-token")
        assert response.headers["www-authenticate"] == "Bearer"
    assert server.ask([0, 1, 2, 3]) == before


def test_a_sender_that_hangs_up_changes_nothing_and_the_server_goes_on(server):
    before = server.ask([0, 1, 2, 3])
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
            head = f"PUT /v1/messages/news HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.token}\r\n"
            connection.sendall(head.encode() + b"Content-Length: 10\r\n\r\nhalf")
    assert server.ask([0, 1, 2, 3]) == before
    assert "Traceback" not in server.stderr_file.read_text()


def test_the_transcript_has_each_query_as_the_adversary_sees_it(tmp_path):
    with ServerProcess(tmp_path) as server:
        start = time.time()
        one, other = "1" * 32, "f" * 32
        for stream, step, sources in [(one, 7, [0, 3]), (one, 7, [0, 3]), (one, 8, [1]), (other, 8, [2])]:
            server.ask(sources, step, stream)
        lines = server.transcript()
        assert [(line["stream"], line["step"], line["sources"], line["client"]) for line in lines] == [
            (one, 7, [0, 3], "127.0.0.1"),
            (one, 7, [0, 3], "127.0.0.1"),
            (one, 8, [1], "127.0.0.1"),
            (other, 8, [2], "127.0.0.1"),
        ]
        assert all(set(line) == {"time", "stream", "step", "sources", "held", "client"} for line in lines)
        assert start <= lines[0]["time"] <= lines[3]["time"] <= time.time()
        first = json.loads(server.transcript_file.read_text().splitlines()[0])
        assert first == {"catalogue": list(server.catalogue.names)}
        assert stat.S_IMODE(server.transcript_file.stat().st_mode) == 0o600
        counted = server.http.get("/metrics").text
    assert "onoff_frames_total 6.0" in counted
    assert "onoff_query_seconds_count 4.0" in counted


@asynccontextmanager
async def talking(app, **options):
    """A client of the application in this process."""
    transport = httpx.ASGITransport(app, **options)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url="http://x") as http:
        yield http


def answers(app, *requests):
    """The application's answers in this process, one for each (method, path, options)."""

    async def run():
        async with talking(app, raise_app_exceptions=False) as http:
            return [await http.request(method, path, **options) for method, path, options in requests]

    return asyncio.run(run())


def make_app(tmp_path, **changes):
    settings = Settings(**{"store": str(tmp_path / "messages.db"), "catalogue": OTHER, **changes})
    open_store(settings.store, settings.catalogue).close()
    return Application(settings)


def test_readers_may_need_a_token_too(tmp_path):
    token, other = new_token(), new_token()
    hashes = read_hashes(f"{hash_line(other)}\n{hash_line(token)}", "here")
    query = QueryMessage(OTHER.fingerprint, "0" * 32, 1, (0,)).encode()
    shown = {"Authorization": f"Bearer {token}"}
    *refused, catalogue, metrics, answer = answers(
        make_app(tmp_path, readers=hashes),
        ("GET", "/v1/catalogue", {}),
        ("GET", "/metrics", {}),
        ("POST", "/v1/query", {"content": query, "headers": JSON}),
        ("PUT", "/v1/messages/a", {"content": b"x", "headers": shown}),
        ("GET", "/v1/catalogue", {"headers": shown}),
        ("GET", "/metrics", {"headers": shown}),
        ("POST", "/v1/query", {"content": query, "headers": JSON | shown}),
    )
    for response in refused:
        assert_problem(response, 401, "wrong-token")
        assert '"b"' not in response.text, "a name of a source"
    assert catalogue.status_code == metrics.status_code == answer.status_code == 200


def test_a_publisher_that_waits_for_the_store_does_not_hold_up_readers(tmp_path, monkeypatch):
    monkeypatch.setattr("onoff.server.store.sqlite._LOCK_SECONDS", 40.0)  # longer than a busy machine takes
    file, token = tmp_path / "messages.db", new_token()
    app = make_app(tmp_path, publishers=read_hashes(hash_line(token), "here"))
    other = sqlite3.connect(file, isolation_level=None)
    headers = {"Authorization": f"Bearer {token}"}

    async def run():
        async with talking(app) as http:
            other.execute("BEGIN IMMEDIATE")
            waiting = [asyncio.create_task(http.put("/v1/messages/a", content=b"x", headers=headers)) for _ in range(4)]
            await asyncio.sleep(0.3)
            start = time.monotonic()
            assert (await http.get("/health")).json()["round"] == 0
            assert time.monotonic() - start < 30
            assert not any(task.done() for task in waiting)
            other.execute("ROLLBACK")
            assert {(await task).status_code for task in waiting} == {200}
            assert (await http.get("/health")).json()["round"] == 4

    asyncio.run(run())
    other.close()


def test_a_mistake_of_the_server_is_a_problem_document_without_details(tmp_path):
    async def boom(_):
        raise RuntimeError("secret")

    app = make_app(tmp_path)
    app.router.routes.append(Route("/boom", boom))
    [response] = answers(app, ("GET", "/boom", {}))
    assert_problem(response, 500, "internal-error")
    assert "secret" not in response.text


def test_hashes_of_tokens_are_read_strictly(tmp_path):
    file = tmp_path / "publishers.txt"
    first, second = new_token(), new_token()
    append_hash(file, first)
    append_hash(file, second)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert first not in file.read_text()
    hashes = read_hashes("# ours\n" + file.read_text(), str(file))
    assert len(hashes) == 2
    assert matches(f"Bearer {second}", hashes)
    assert not matches(f"Bearer {second}", hashes[:1])
    assert not matches(f"Bearer {second}", ())
    for text in ("", "# nothing", first, "sha256:12", f"{hash_line(first)} {first}"):
        with pytest.raises(OnoffError, match="onoff token"):
            read_hashes(text, "here")
