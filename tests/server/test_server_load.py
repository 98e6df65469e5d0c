"""Strangers who open many connections, or do not read: the server still answers, and what they hold is bounded."""

from __future__ import annotations

import asyncio
import http.client
import os
import resource
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path

import httpx
import pytest

from clikit import ONOFF
from onoff.server import limits
from onoff.server.app import Application, Settings
from onoff.server.limits import send_answer
from onoff.server.run import UNREAD_MILLISECONDS, reserve
from onoff.server.store import open_store
from onoff.wire import Catalogue, QueryMessage
from ports import free_port
from serverprocess import ServerProcess
from waiting import within

IDLE, UNREAD, LONG = 3000, 200, 2**21
EXAMPLES = Path(__file__).parents[2] / "examples"
HAPROXY = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")
needs_haproxy = pytest.mark.skipif(HAPROXY is None, reason="haproxy is not installed")


@pytest.fixture(autouse=True)
def _files():
    """Enough open files for all these connections."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(20_000, before[1]), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@contextmanager
def idle(port, count):
    """So many connections that never send anything."""
    with ExitStack() as stack:
        for _ in range(count):
            with suppress(ConnectionResetError):  # of a proxy that has enough of us
                stack.enter_context(connected(port))
        yield


def connected(port, address="127.0.0.1"):
    return socket.create_connection(("127.0.0.1", port), timeout=120, source_address=(address, 0))


def healthy(url, address="127.0.0.1", timeout=60):
    """Whether a health check over a new connection is answered; on a quiet machine that takes milliseconds."""
    with httpx.Client(transport=httpx.HTTPTransport(local_address=address), timeout=timeout) as http:
        try:
            return http.get(url + "/health").status_code == 200
        except httpx.TransportError:
            return False


@pytest.mark.parametrize("workers", [pytest.param("1", marks=pytest.mark.long), "4"])
def test_three_thousand_idle_connections_do_not_keep_anybody_out(tmp_path, workers):
    with ServerProcess(tmp_path, "--workers", workers) as server, idle(server.port, IDLE):
        assert [healthy(server.url) for _ in range(13)] == [True] * 13


def megabytes(pids):
    """The memory of processes."""
    lines = [line for pid in pids for line in Path(f"/proc/{pid}/status").read_text().splitlines()]
    return sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024


@contextmanager
def unread(server, port, count, addresses=("127.0.0.1",)):
    """So many queries for everything whose answers nobody reads."""
    sources = tuple(range(server.catalogue.n))
    head = b"POST /v1/query HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    with ExitStack() as stack:
        for number in range(count):
            connection = stack.enter_context(connected(port, addresses[number % len(addresses)]))
            body = QueryMessage(server.catalogue.fingerprint, secrets.token_hex(16), 0, sources).encode()
            connection.sendall(head % len(body) + body)
        yield


def settled(server):
    """Wait until all queries have been seen and some time has passed."""
    within(60, lambda: len(server.transcript()) >= UNREAD)
    time.sleep(1)


def test_answers_that_nobody_reads_hold_little(tmp_path):
    with ServerProcess(tmp_path, length=LONG) as server:
        server.publish({name: secrets.token_bytes(LONG) for name in server.catalogue.names})
        before = megabytes(server.workers())
        with unread(server, server.port, UNREAD):  # of 8 MB each
            settled(server)
            assert megabytes(server.workers()) - before < 150
            assert healthy(server.url)
            assert len(server.ask([0, 1, 2, 3])) == 4
        assert "Traceback" not in server.stderr_file.read_text()


def test_the_system_ends_connections_whose_other_side_does_not_read():
    """Set on the socket that listens, and inherited: the connection bears it too."""
    with (
        reserve("127.0.0.1", 0) as listening,
        socket.create_connection(listening.getsockname()),
        listening.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == UNREAD_MILLISECONDS


@contextmanager
def proxied(server, directory):
    """HAProxy in front of a server, as the example has it; its process and port."""
    port = free_port()
    text = (EXAMPLES / "haproxy.cfg").read_text()
    for theirs, ours in ((":8701", f":{port}"), (":8700", f":{server.port}")):
        assert theirs in text
        text = text.replace(theirs, ours)
    (directory / "haproxy.cfg").write_text(text)
    process = subprocess.Popen([HAPROXY, "-db", "-f", directory / "haproxy.cfg"], stderr=subprocess.PIPE)
    try:
        deadline = time.monotonic() + 60
        while not healthy(f"http://127.0.0.1:{port}"):
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < deadline
        yield process, port
    finally:
        process.terminate()
        process.wait(120)
        process.stderr.close()


@needs_haproxy
def test_behind_the_proxy_an_address_has_few_connections_and_others_do_not_notice(tmp_path):
    with ServerProcess(tmp_path) as server, proxied(server, tmp_path) as (_, port), idle(port, IDLE):
        url = f"http://127.0.0.1:{port}"
        assert not healthy(url)  # from the address that has too many
        assert {status_of(port, path) for path in ("/metrics", "/%6detrics", "/metric%73?a=b")} == {404}
        assert [healthy(url, "127.0.0.2") for _ in range(13)] == [True] * 13
        assert len(server.workers()) == 1


def status_of(port, path):
    """The status of a path as it is written: httpx would rewrite it."""
    http_from = partial(http.client.HTTPConnection, source_address=("127.0.0.3", 0))
    with closing(http_from("127.0.0.1", port, timeout=60)) as connection:
        connection.request("GET", path)
        return connection.getresponse().status


def test_an_answer_that_is_not_read_in_time_is_broken_off(monkeypatch):
    monkeypatch.setattr(limits, "SECONDS", 0.1)
    monkeypatch.setattr(limits, "BYTES_PER_SECOND", 1e9)
    sent, frames = [], (bytes(limits.WHOLE),) * 3

    async def send(event):
        sent.append(event)
        if len(sent) == 3:
            await asyncio.Event().wait()  # as uvicorn does while the connection has no room

    async def run():
        await asyncio.wait_for(send_answer(send, frames, b"", b""), 60)

    asyncio.run(run())
    assert len(sent) == 3
    assert sent[-1]["more_body"]


def test_a_long_catalogue_is_sent_in_parts_too(tmp_path):
    """Of many sources it has megabytes. 200 connections that did not read it would hold all of it, 200 times."""
    catalogue = Catalogue(tuple(f"{i:0200}" for i in range(1000)), 8)
    open_store(str(tmp_path / "m.db"), catalogue).close()
    app = Application(Settings(str(tmp_path / "m.db"), catalogue))
    sent = []

    async def send(event):
        sent.append(event)

    scope = {"type": "http", "method": "GET", "path": "/v1/catalogue", "headers": [], "query_string": b""}
    asyncio.run(app(scope, None, send))
    bodies = [event["body"] for event in sent[1:]]
    assert max(map(len, bodies)) <= limits.PART
    assert dict(sent[0]["headers"])[b"content-length"] == b"%d" % sum(map(len, bodies))
    assert b"".join(bodies) == catalogue.document


def test_a_server_that_may_open_few_files_closes_idle_connections_for_those_who_ask(tmp_path):
    port = free_port()
    command = ["prlimit", "--nofile=256:256", ONOFF, "serve", "--port", str(port), "--store", tmp_path / "m.db"]
    with subprocess.Popen(
        [*command, "--source", "a", "--source", "b"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline()
        url = f"http://127.0.0.1:{port}"
        with idle(port, 1000):
            assert [healthy(url) for _ in range(13)] == [True] * 13
            spent = busy(process.pid)
            time.sleep(1)
            assert busy(process.pid) - spent < 0.5, "the server spins"
        process.terminate()
        assert "connections are open" in process.stderr.read()


ALONE = """
import asyncio
from onoff.server.limits import connection_limit
from onoff.server.run import reserve, serve_requests, stop_event, url_of
from starlette.responses import Response

async def main():
    with reserve("127.0.0.1", 0) as listening:
        async with serve_requests(Response("well"), listening, connection_limit()):
            stop = stop_event()
            print(url_of(listening), flush=True)
            await stop.wait()

asyncio.run(main())
"""


def test_connections_that_arrive_all_at_once_do_not_take_the_files_of_a_proxy_or_page():
    """They wait while the process is stopped. Its loop is that of asyncio, which would accept all before it counts."""
    command = ["prlimit", "--nofile=256:256", sys.executable, "-c", ALONE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        url = process.stdout.readline().strip()
        os.kill(process.pid, signal.SIGSTOP)
        with idle(int(url.rpartition(":")[2]), 1000):
            os.kill(process.pid, signal.SIGCONT)
            assert healthy(url)
            process.terminate()
            assert "out of system resource" not in process.stderr.read()


def test_a_limit_of_files_that_is_too_low_is_an_error(tmp_path):
    command = ["prlimit", "--nofile=100:100", ONOFF, "serve", "--port", "0", "--store", tmp_path / "m.db"]
    command += ["--source", "a", "--source", "b"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, "ulimit -n" in done.stderr) == (2, True)


def busy(pid):
    """Seconds of processor time that the children of a process have used."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    fields = [Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split() for child in children]
    return sum(int(one[11]) + int(one[12]) for one in fields) / 100
