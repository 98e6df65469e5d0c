"""A real `onoff proxy` in trouble: programs that ask again, ends, silent origins, programs that do not read."""

from __future__ import annotations

import contextlib
import http.client
import shutil
import signal
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from onoff import Chain
from onoff.client.status import snapshot
from proxykit import ProxyProcess
from recordingserver import Origin, RecordingServer, Reply, reply

NAMES = ("a", "b")
CHAIN = Chain([[0.5] * 2] * 2, NAMES)
STATUSES = (408, 425, 429, 500, 502, 503, 504)


@pytest.fixture
def origin():
    with RecordingServer(Origin({name: name.encode() for name in NAMES})) as server:
        yield server


def proxied(directory, origin, *options):
    return ProxyProcess(directory, {name: f"{origin.url}/{name}" for name in NAMES}, CHAIN, *options)


def made(proxy):
    state = snapshot(proxy.journal).state
    return state.step + (state.pending is not None)


def request(proxy, *lines):
    connection = socket.create_connection(("127.0.0.1", proxy.port), timeout=60)
    connection.sendall("\r\n".join([*lines, "Host: 127.0.0.1", "", ""]).encode())
    return connection


def ask_with_requests(url, _):
    session = requests.Session()
    again = Retry(total=3, backoff_factor=0, status_forcelist=(408, 425, 429, *range(500, 600)), raise_on_status=False)
    session.mount("http://", HTTPAdapter(max_retries=again))
    with session, session.get(url):
        pass


def ask_with_newsboat(url, directory):
    (directory / "urls").write_text(f"{url}\n")
    ask_with("newsboat", "-u", directory / "urls", "-c", directory / "db", "-x", "reload")(None, directory)


def ask_with(*command):
    def ask(url, directory):
        home = {"HOME": str(directory), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
        words = [*command, *([] if url is None else [url])]
        subprocess.run(words, capture_output=True, check=False, timeout=120, env=home)

    return ask


PROGRAMS = {
    "wget": ask_with("wget", "-qO-", "--tries=5", "--waitretry=1"),
    "curl": ask_with("curl", "-sS", "--retry", "3", "--retry-delay", "1", "--fail"),
    "newsboat": ask_with_newsboat,
    "requests": ask_with_requests,
}


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize(
    "statuses", [STATUSES, pytest.param((*range(200, 600), 600, 999), marks=pytest.mark.long)], ids=["often", "every"]
)
def test_no_status_of_an_origin_makes_a_program_ask_again(origin, tmp_path, program, statuses):
    if program != "requests" and shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    with proxied(tmp_path, origin) as proxy:
        for number, status in enumerate(statuses):
            said = ["Retry-After: 1", "Location: /b", "WWW-Authenticate: Basic realm=a"]
            origin.respond = lambda _, status=status, said=said: reply(
                b"" if status in (204, 304) else b"?", status, said
            )
            PROGRAMS[program](f"{proxy.url}/a", tmp_path)
            assert made(proxy) == number + 1, status


def test_all_who_wait_behind_a_silent_origin_are_told_when_it_was_silent_twice(origin, tmp_path):
    with proxied(tmp_path, origin, "--deadline", "1.5") as proxy, ThreadPoolExecutor(4) as pool:
        origin.respond = lambda _: Reply([60.0])
        began = time.monotonic()
        answers = list(pool.map(lambda name: httpx.get(f"{proxy.url}/{name}", timeout=60), "abab"))
        assert time.monotonic() - began < 5.5
        assert {answer.headers["onoff-true-status"] for answer in answers} == {"504"}


def test_more_signals_while_the_proxy_ends_change_nothing(origin, tmp_path):
    with proxied(tmp_path, origin) as proxy:
        while proxy.process.poll() is None:
            proxy.process.send_signal(signal.SIGTERM)
            time.sleep(0.001)
        assert proxy.stop() == 0


def test_an_ignored_signal_stays_ignored(origin, tmp_path):
    for number in (signal.SIGHUP, signal.SIGINT):
        before = signal.signal(number, signal.SIG_IGN)
        try:
            proxy = proxied(tmp_path, origin)
        finally:
            signal.signal(number, before)
        with proxy:
            proxy.process.send_signal(number)
            time.sleep(0.3)
            assert httpx.get(f"{proxy.url}/a").content == b"a"


def test_a_program_that_half_closes_gets_its_answer_and_the_next_request_is_on(origin, tmp_path):
    with proxied(tmp_path, origin, "--off") as proxy:
        for name in "aba":
            httpx.get(f"{proxy.url}/{name}")
        with request(proxy, "GET /b HTTP/1.1", "Connection: close") as connection:
            connection.shutdown(socket.SHUT_WR)
            answer = b"".join(iter(lambda: connection.recv(2**16), b""))
        assert answer.endswith(b"\r\n\r\nb")
        assert [httpx.get(f"{proxy.url}/a").headers["onoff-status"] for _ in range(2)] == ["on", "off"]


@pytest.mark.parametrize("half", [("GET /a HTTP/1.1",), ("PUT /onoff/privacy HTTP/1.1", "Content-Length: 9")])
def test_half_a_request_does_not_delay_the_end(origin, tmp_path, half):
    with proxied(tmp_path, origin) as proxy, contextlib.ExitStack() as stack:
        connection = stack.enter_context(socket.create_connection(("127.0.0.1", proxy.port)))
        end = ["Host: 127.0.0.1", ""] + [""] * (len(half) > 1)
        connection.sendall("\r\n".join([*half, *end]).encode())
        time.sleep(0.3)
        began = time.monotonic()
        assert proxy.stop() == 0
        assert time.monotonic() - began < 6


@pytest.mark.parametrize("parts", [[60.0], [b"HTTP/1.1 100 Continue\r\n\r\n", 60.0]], ids=["silent", "100"])
def test_the_deadline_is_the_time_that_a_person_waits(origin, tmp_path, parts):
    with proxied(tmp_path, origin, "--deadline", "1") as proxy:
        origin.respond = lambda _: Reply(parts)
        began = time.monotonic()
        answer = httpx.get(f"{proxy.url}/a", timeout=60)
        assert time.monotonic() - began < 4
        assert answer.headers["onoff-true-status"] == "504"


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


def test_more_connections_than_files_do_not_stop_the_proxy(origin, tmp_path):
    """A limit of 64 files is refused in a sentence; with 200 the connections that ask for nothing make room."""
    with proxied(tmp_path, origin) as proxy:
        proxy.stop()
    limited = ["prlimit", "--nofile=64:64", *proxy.command]
    refused = subprocess.run(limited, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "ulimit -n" in refused.stderr
    proxy.command = ["prlimit", "--nofile=200:200", *proxy.command]
    proxy.start()
    with proxy, contextlib.ExitStack() as stack:
        for _ in range(300):
            stack.enter_context(socket.create_connection(("127.0.0.1", proxy.port)))
        ticks = Path(f"/proc/{proxy.process.pid}/stat")
        before = int(ticks.read_text().split()[13])
        time.sleep(1)
        assert int(ticks.read_text().split()[13]) - before < 50  # hundredths of a second
        fresh = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=60)
        fresh.request("GET", "/a")
        assert fresh.getresponse().read() == b"a"
        fresh.close()
    assert "Traceback" not in proxy.stderr_file.read_text()
