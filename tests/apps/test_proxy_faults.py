"""A real `onoff proxy` in trouble: programs that ask again, ends, silent origins, programs that do not read."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from onoff import Chain
from onoff.client.status import snapshot
from ports import free_port
from proxykit import ProxyProcess
from recordingserver import Origin, RecordingServer, Reply, reply

NAMES = ("a", "b")
STATUSES = (408, 425, 429, *range(500, 512))


@pytest.fixture
def origin():
    with RecordingServer(Origin({name: name.encode() for name in NAMES})) as server:
        yield server


def proxied(directory, origin, *options, names=NAMES):
    chain = Chain([[1 / len(names)] * len(names)] * len(names), names)
    return ProxyProcess(directory, {name: f"{origin.url}/{name}" for name in names}, chain, *options)


def made(proxy):
    state = snapshot(proxy.journal).state
    return state.step + (state.pending is not None)


def request(proxy, *lines):
    connection = socket.create_connection(("127.0.0.1", proxy.port), timeout=60)
    connection.sendall("\r\n".join([*lines, "Host: 127.0.0.1", "", ""]).encode())
    return connection


REQUESTS = f"""
import sys, requests, urllib3
again = urllib3.Retry(3, backoff_factor=0, status_forcelist={STATUSES}, raise_on_status=False)
with requests.Session() as session:
    session.mount("http://", requests.adapters.HTTPAdapter(max_retries=again))
    session.get(sys.argv[1])
"""
PROGRAMS = {  # each asks again by itself after some statuses, and may say that it got nothing
    "wget": ("wget", "-nv", "-O-", "--tries=3", "--waitretry=1"),
    "curl": ("curl", "-sS", "--retry", "3", "--retry-delay", "1", "--fail"),
    "newsboat": ("sh", "-c", 'echo "$0" > urls; : > config; HOME=. newsboat -u urls -c db -C config -x reload'),
    "requests": (sys.executable, "-c", REQUESTS),
}


def asked_by(program, directory, server):
    """How often a program asks one URL of the server."""
    if program != "requests" and shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    server.reset()
    command = [*PROGRAMS[program], f"{server.url}/feed"]
    subprocess.run(command, capture_output=True, check=False, timeout=120, cwd=directory)
    return len(server.requests)


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_status_of_an_origin_makes_a_program_ask_again(origin, tmp_path, program):
    """A relay between the program and the proxy counts its requests. Without the proxy the program asks again."""
    names = [f"s{status}" for status in STATUSES]
    said, true = ["Retry-After: 1", "Location: /b", "WWW-Authenticate: Basic realm=a"], []
    # One that asks for a rest, by 429 or 503, gets it: its other sources would fail unasked.
    origin.respond = lambda r: reply(b"?", int(r.path[2:]), said[r.path in ("/s429", "/s503") :])
    with proxied(tmp_path, origin, names=names) as proxy:
        for name in names:

            def relayed(_, name=name):
                answer = httpx.get(f"{proxy.url}/{name}")
                true.append(answer.headers.get("onoff-true-status"))
                return reply(answer.content, answer.status_code)

            with RecordingServer(relayed) as relay:
                assert asked_by(program, tmp_path, relay) == 1, name
        assert made(proxy) == len(names)
        assert true == [str(status) for status in STATUSES]
    if program != "newsboat":  # it leaves what failed to its next reload
        with RecordingServer(lambda _: reply(b"?", 504, ["Retry-After: 1"])) as server:
            assert asked_by(program, tmp_path, server) > 1


def test_all_who_wait_behind_a_silent_origin_are_told_after_one_deadline_and_for_how_long(origin, tmp_path):
    with proxied(tmp_path, origin, "--deadline", "0.7") as proxy, ThreadPoolExecutor(4) as pool:
        origin.respond = lambda _: Reply([60.0])
        began = time.monotonic()
        answers = list(pool.map(lambda name: httpx.get(f"{proxy.url}/{name}", timeout=60), "aaaa"))
        assert time.monotonic() - began < 4
        assert {answer.headers["onoff-true-status"] for answer in answers} == {"504"}
        assert all("who asks for it again gets this answer. " in answer.text for answer in answers)
        assert made(proxy) == 1  # for the first, and none for who asked again
        origin.respond = Origin({name: name.encode() for name in NAMES})
        assert "and no other was made now. Until " in httpx.get(f"{proxy.url}/a").text


def test_the_queue_does_not_wait_behind_a_dead_origin(origin, tmp_path):
    urls = {"a": f"{origin.url}/a", "b": f"http://127.0.0.1:{free_port()}/b"}
    with ProxyProcess(tmp_path, urls, Chain([[0.5] * 2] * 2, NAMES)) as proxy:
        answers = [httpx.get(f"{proxy.url}/{name}", timeout=60) for name in "abbab"]
        assert [answer.status_code for answer in answers] == [200, 424, 424, 200, 424]
        assert snapshot(proxy.journal).state.pending is None
        assert made(proxy) == 4  # whoever asks again at once makes none


def test_a_program_that_half_closes_gets_its_answer_and_the_next_request_is_on(origin, tmp_path):
    with proxied(tmp_path, origin, "--off") as proxy:
        for name in "aba":
            httpx.get(f"{proxy.url}/{name}")
        with request(proxy, "GET /b HTTP/1.1", "Connection: close") as connection:
            connection.shutdown(socket.SHUT_WR)
            answer = b"".join(iter(lambda: connection.recv(2**16), b""))
        assert answer.endswith(b"\r\n\r\nb")
        assert [httpx.get(f"{proxy.url}/a").headers["onoff-status"] for _ in range(2)] == ["on", "off"]


@pytest.mark.parametrize("size", [100_000, 20 * 2**20])
def test_after_a_program_that_left_in_the_middle_of_a_body_the_next_request_is_on(origin, tmp_path, size):
    """However much of the body the system has taken: whether a step is ON must not depend on the body's length."""
    with proxied(tmp_path, origin, "--off", "--cache", "0") as proxy:
        origin.respond = lambda r: reply(bytes(size) if r.path == "/a" else b"b")
        for name in "bbba":
            httpx.get(f"{proxy.url}/{name}")
        with request(proxy, "GET /a HTTP/1.1") as connection:
            connection.recv(1000)
        time.sleep(0.5)
        assert [httpx.get(f"{proxy.url}/a").headers["onoff-status"] for _ in range(2)] == ["on", "off"]


def test_programs_that_do_not_read_hold_a_bounded_memory(origin, tmp_path):
    long = bytes(40 * 2**20)
    with proxied(tmp_path, origin, "--cache", "0") as proxy, contextlib.ExitStack() as stack:
        origin.respond = lambda r: reply(long if r.path == "/a" else b"b")
        for number in range(10):
            connection = stack.enter_context(request(proxy, "GET /a HTTP/1.1"))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            while made(proxy) < number + 1 or snapshot(proxy.journal).state.pending is not None:
                time.sleep(0.05)
        time.sleep(0.5)
        status = Path(f"/proc/{proxy.process.pid}/status").read_text()
        resident = int(status.partition("VmRSS:")[2].split()[0]) / 2**10
        assert resident < 128 + 3 * 40 + 250  # the bound, an answer that is being fetched, and the program itself
        answer = httpx.get(f"{proxy.url}/b", timeout=60)
        assert answer.content == b"b"
        httpx.put(f"{proxy.url}/onoff/privacy", content="off")
        assert httpx.get(f"{proxy.url}/a", timeout=60).headers["onoff-status"] == "on"  # whoever was cut off asks again
