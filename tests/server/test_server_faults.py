"""Faults, with real processes: servers and Redis are killed and come back, and readers race with publishers."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import httpx
import pytest

from clikit import ONOFF, call
from onoff.wire import QueryMessage, decode_answer
from redisprocess import RedisProcess, needs_redis
from serverprocess import ServerProcess
from waiting import within

ALL = [0, 1, 2, 3]


@pytest.fixture(params=["sqlite", pytest.param("redis", marks=[needs_redis, pytest.mark.long])])
def store(request, tmp_path):
    if request.param == "sqlite":
        yield str(tmp_path / "messages.db")
    else:
        with RedisProcess(tmp_path / "redis") as process:
            yield process.url


def test_a_server_killed_and_started_again_has_every_acknowledged_message(tmp_path, store):
    server = ServerProcess(tmp_path, store=store)
    acknowledged = []

    def publish():
        with httpx.Client(base_url=server.url, headers=server.authorization) as http:
            for number in range(10_000):
                try:
                    answer = http.put("/v1/messages/news", content=b"%d" % number)
                except httpx.TransportError:
                    return
                acknowledged.append((answer.json()["round"], number))

    thread = threading.Thread(target=publish)
    thread.start()
    within(60, lambda: len(acknowledged) > 20)
    server.kill()
    thread.join()
    server.start()
    [frame] = server.ask([0])
    last_round, last_number = acknowledged[-1]
    # The last one may have been kept without having been acknowledged.
    assert (frame.round, frame.message) in {
        (last_round, b"%d" % last_number),
        (last_round + 1, b"%d" % (last_number + 1)),
    }
    assert server.stop() == 0


def test_a_machine_without_uvloop_and_posix_fallocate_serves_all_the_same(tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\nsys.modules['uvloop'] = None\ndel os.posix_fallocate\nopen(__file__ + '.ran', 'a').close()\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    with ServerProcess(tmp_path, "--workers", "2") as server:
        server.publish({"news": b"hello"})
        assert server.ask([0])[0].message == b"hello"
        assert server.stop() == 0
    assert (tmp_path / "sitecustomize.py.ran").exists()
    found = (tmp_path / "messages.db-streams").stat()
    assert found.st_blocks * 512 >= found.st_size > 2**24  # the room is taken, not promised


def test_a_killed_worker_is_replaced(tmp_path):
    with ServerProcess(tmp_path) as server:
        server.publish({"news": b"kept"})
        server.kill_worker()

        def answers():
            try:
                return httpx.get(server.url + "/health").status_code == 200
            except httpx.TransportError:
                return False

        within(60, answers)
        assert server.ask([0])[0].message == b"kept"


def trouble(server, kind):
    """Make it hard for a server to stop; what must stay alive meanwhile."""
    head = b"POST /v1/query HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n"
    if kind in ("half a head", "half a body"):
        stuck = socket.create_connection(("127.0.0.1", server.port), timeout=60)
        stuck.sendall(head[:20] if kind == "half a head" else head + b"{")
        time.sleep(0.2)
        return stuck
    number = signal.SIGKILL if kind == "a killed process" else signal.SIGSTOP
    os.kill(server.workers()[0], number)
    return None


KINDS = ["half a head", "half a body", "a killed process", pytest.param("a frozen process", marks=pytest.mark.long)]


@pytest.mark.parametrize("kind", KINDS)
def test_four_processes_stop_within_their_time(tmp_path, kind):
    """A frozen one is killed after its ten seconds."""
    server = ServerProcess(tmp_path, "--workers", "4")
    workers, stuck = server.workers(), trouble(server, kind)
    start = time.monotonic()
    assert server.stop() == 0
    assert time.monotonic() - start < (4 if kind.startswith("half") else 14)
    assert not any(os.path.exists(f"/proc/{pid}") for pid in workers)
    assert "Traceback" not in server.stderr_file.read_text()
    if stuck is not None:
        stuck.close()


def test_a_server_that_is_told_to_stop_while_it_starts_does(tmp_path):
    """Sent as a terminal does, to all its processes, as soon as they are being started."""
    command = [ONOFF, "serve", "--port", "0", "--store", tmp_path / "m.db", "--workers", "3"]
    command += ["--source", "a", "--source", "b"]
    for pause in (0, 0.3):
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        ) as process:
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
            within(60, lambda children=children: len(children.read_text().split()) > 1)  # one is Python's own helper
            time.sleep(pause)
            os.killpg(process.pid, signal.SIGINT)
            _, said = process.communicate(timeout=20)
        assert "Traceback" not in said
        assert process.returncode == 0, said


def test_an_ignored_hangup_stays_ignored(tmp_path):
    """As `nohup onoff serve &` has it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        server = ServerProcess(tmp_path, "--workers", "2")
    finally:
        signal.signal(signal.SIGHUP, before)
    with server:
        workers = server.workers()
        for pid in (server.process.pid, *workers):
            os.kill(pid, signal.SIGHUP)
        time.sleep(0.5)
        assert server.workers() == workers
        assert len(server.ask(ALL)) == 4


def test_an_answer_never_mixes_two_rounds(tmp_path, store):
    with ServerProcess(tmp_path, "--workers", "2", store=store) as server:
        stop, mixed, rounds = threading.Event(), [], set()

        def read():
            body = QueryMessage(server.catalogue.fingerprint, secrets.token_hex(16), 1, tuple(ALL)).encode()
            with httpx.Client(base_url=server.url, headers={"Content-Type": "application/json"}, timeout=60) as http:
                while not stop.is_set():
                    frames = decode_answer(server.catalogue, ALL, http.post("/v1/query", content=body).content)
                    rounds.add(frames[0].round)
                    if len({(frame.round, frame.message) for frame in frames}) != 1:
                        mixed.append(frames)

        readers = [threading.Thread(target=read) for _ in range(3)]
        for reader in readers:
            reader.start()
        start = time.monotonic()
        number = 0
        while (time.monotonic() - start < 1 or len(rounds) < 4) and time.monotonic() - start < 60:
            number = server.publish(dict.fromkeys(server.catalogue.names, b"%d" % number))
        stop.set()
        for reader in readers:
            reader.join()
        assert mixed == []
        assert len(rounds) > 3, "readers and publisher did not run side by side"


@needs_redis
def test_while_redis_is_away_readers_get_503_and_then_the_right_answer(tmp_path):
    with RedisProcess(tmp_path / "redis") as redis, ServerProcess(tmp_path, store=redis.url) as server:
        number = server.publish({"news": b"kept", "sports": b"too"})
        assert server.ask([0, 1])[0].message == b"kept"
        redis.kill()
        within(60, lambda: server.http.get("/health").status_code == 503)
        for response in (
            server.query([0]),
            server.http.get("/health"),
            server.http.put("/v1/messages/news", content=b"lost", headers=server.authorization),
        ):
            assert response.status_code == 503
            assert response.headers["content-type"] == "application/problem+json"
            assert response.json()["type"] == "urn:onoff:problem:store-unavailable"
            assert int(response.headers["retry-after"]) >= 1
            assert str(redis.port) not in response.text
        assert server.http.get("/v1/catalogue").status_code == 200
        redis.start()
        frames = server.ask([0, 1])
        assert [(frame.round, frame.message) for frame in frames] == [(number, b"kept"), (number, b"too")]
        assert server.publish({"news": b"on"}) == number + 1
        # One that hangs is no better than one that is gone.
        redis.freeze()
        start = time.monotonic()
        within(60, lambda: server.http.get("/health").status_code == 503)
        assert server.query([0]).status_code == 503
        assert time.monotonic() - start < 60
        redis.thaw()
        within(60, lambda: server.query([0]).status_code == 200)
        assert server.ask([0])[0].message == b"on"


def test_a_server_that_cannot_start_says_why_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr("onoff.server.run.serve", lambda *_, **__: pytest.fail("it did start"))
    (tmp_path / "text").write_text("not a token")
    (tmp_path / "latin").write_bytes(b"\xe9\n")
    (tmp_path / "odd.db-streams").write_text("a file of others")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "a").symlink_to(tmp_path / "text")
    store = ["--store", tmp_path / "messages.db"]
    two = [*store, "--source", "a", "--source", "b"]
    with ServerProcess(tmp_path, names=["a", "b", "c"]) as server:
        for arguments, words in [
            (["--store", tmp_path / "new.db"], "say which sources"),
            ([*store, "--length", "5"], "--length needs the sources"),
            (two, "holds the catalogue"),
            ([*store, "--source", "a"], "2 to"),
            ([*two, "--sources", tmp_path / "text"], "not by both"),
            ([*store, "--sources", tmp_path / "latin"], "not UTF-8"),
            ([*store, "--publishers", tmp_path / "none"], "cannot be read (No such file"),
            ([*store, "--watch", tmp_path / "links"], "symbolic link"),
            (["--store", "redis://:secret@127.0.0.1/0", *two[2:]], "everybody on this machine can see"),
            (["--store", "unix:///x?password=secret", *two[2:]], "ONOFF_STORE"),
            (["--store", tmp_path / "none" / "new.db", *two[2:]], "there is no directory"),
            (["--store", tmp_path, *two[2:]], "is not a file; name a file"),
            (["--store", "http://127.0.0.1/secret", *two[2:]], "--store: name a file, or a URL that begins with redis"),
            (["--store", "redis://[::1", *two[2:]], "not the URL of a Redis database"),
            (["--store", tmp_path / "odd.db", *two[2:]], "is not a table of streams"),
            ([*store, "--publishers", tmp_path / "text"], "onoff token"),
            ([*store, "--host", "no.such.host.invalid"], "not an address"),
            ([*store, "--transcript", tmp_path / "text"], "another kind of file"),
            ([*store, "--transcript", tmp_path], f"transcript cannot be written: {tmp_path}: is a directory: name"),
            ([*store, "--transcript", tmp_path / "none" / "transcript"], "transcript: no such file or directory: is"),
            (["--store", tmp_path / "new.db", *two[2:], "--port", server.port], "already in use"),
        ]:
            done = call("serve", "--port", 0, *arguments, cwd=tmp_path)
            assert not (tmp_path / "new.db").exists()
            assert (done.returncode, done.stdout) == (2, "")
            [line] = [line for line in done.stderr.splitlines() if not line.startswith("onoff: note:")]
            assert line.startswith("onoff: error: ")
            assert words in line
            assert "secret" not in line
        assert server.ask([0])[0].round == 0
