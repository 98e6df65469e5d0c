"""Plain web servers as they are installed: what their logs show of a client that holds messages."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from clientkit import CHAIN, NAMES, OFF, ON, Told, client_with
from onoff import HttpTransport
from ports import free_port

SET = (0, 1, 3, 4)
CHANGED = "weather"
LONG_AGO = 1_700_000_000
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
FRESH = {"python": 0, "nginx": 45}  # what they say with each answer
CONFIG = """
daemon off; master_process off; pid {home}/nginx.pid; error_log {home}/error.log;
events {{ worker_connections 64; }}
http {{
  log_format asked '"$request" $status';
  access_log {home}/log asked;
  client_body_temp_path {home}/a; proxy_temp_path {home}/b; fastcgi_temp_path {home}/c;
  uwsgi_temp_path {home}/d; scgi_temp_path {home}/e;
  server {{ listen 127.0.0.1:{port}; root {files}; expires 45s; }}
}}
"""


@contextmanager
def web_server(kind, home, files):
    """nginx, or Python's own, as a process: its address, and what reads its log once it has so many lines."""
    port, log = free_port(), home / "log"
    command = [sys.executable, "-u", "-m", "http.server", "--bind", "127.0.0.1", "--directory", files, port]
    if kind == "nginx":
        (home / "nginx.conf").write_text(CONFIG.format(home=home, files=files, port=port))
        command = [NGINX, "-p", home, "-e", home / "error.log", "-c", home / "nginx.conf"]

    def lines(least):
        deadline = time.monotonic() + 60
        while len(found := re.findall(r'"(\w+ \S+) HTTP/1\.[01]" (\d+)', log.read_text())) < least:
            assert time.monotonic() < deadline, f"{len(found)} of {least} requests are in the log"
            time.sleep(0.01)  # a server may write a line after its answer
        return [" ".join(line) for line in found]

    with log.open("ab") as stream, subprocess.Popen(list(map(str, command)), stdout=stream, stderr=stream) as process:
        try:
            with socket.socket() as probe:
                while probe.connect_ex(("127.0.0.1", port)):
                    assert process.poll() is None, "the server did not start"
                    time.sleep(0.02)
            yield f"http://127.0.0.1:{port}", lines
        finally:
            process.terminate()


def write(files, name, text, moment):
    (files / name).write_text(text)
    os.utime(files / name, (moment, moment))


NEEDS_NGINX = pytest.mark.skipif(NGINX is None, reason="nginx is not installed")


KINDS = pytest.mark.parametrize("kind", ["python", pytest.param("nginx", marks=NEEDS_NGINX)])


@KINDS
def test_logs_show_304_for_what_is_unchanged_and_the_same_requests_whichever_source_was_wanted(tmp_path, kind):
    files, found = tmp_path / "files", []
    files.mkdir()
    with web_server(kind, tmp_path, files) as (url, log):
        for number, wanted in enumerate([("news", "sports", "weather"), ("culture", "news", "sports")]):
            for name in NAMES:
                write(files, name, f"the latest about {name}", LONG_AGO)
            transport = HttpTransport({name: f"{url}/{name}" for name in NAMES})
            planner, options = Told(CHAIN, [SET, SET]), {"delay": 0.001, "first_ever": True}

            async def run(transport=transport, planner=planner, options=options, number=number, wanted=wanted):
                async with client_with(CHAIN, transport, tmp_path / f"journal-{number}", planner, **options) as client:
                    messages = [await client.get(wanted[0], private=ON), await client.get(wanted[1], wanted[2], OFF)]
                    write(files, CHANGED, "something new", LONG_AGO + 1000)
                    messages.append(await client.get(wanted[2], "news", OFF))
                    return [(message.body.decode(), message.unchanged) for message in messages]

            found.append(asyncio.run(run()))
    assert found == [
        [("the latest about news", False), ("the latest about sports", True), ("something new", False)],
        [("the latest about culture", False), ("the latest about news", True), ("the latest about sports", True)],
    ]
    expected = [f"GET /{name} 200" for name in NAMES]
    expected += [f"GET /{NAMES[i]} 304" for i in SET]
    expected += [f"GET /{NAMES[i]} {200 if NAMES[i] == CHANGED else 304}" for i in SET]
    assert log(2 * len(expected)) == expected * 2


@KINDS
def test_what_is_whole_and_what_is_unchanged_is_fresh_for_as_long_as_the_server_is_set_to_say(tmp_path, kind):
    files = tmp_path / "files"
    files.mkdir()
    for name in NAMES[1:]:
        write(files, name, f"the latest about {name}", LONG_AGO)

    async def run(url):
        transport, everything = HttpTransport({name: f"{url}/{name}" for name in NAMES}), tuple(range(len(NAMES)))
        try:
            first = (await transport.fetch("", 0, everything)).contents
            versions = tuple(content.version for content in first)
            return first, (await transport.fetch("", 1, everything, versions)).contents
        finally:
            await transport.close()

    with web_server(kind, tmp_path, files) as (url, _):
        first, again = asyncio.run(run(url))
    assert [content.unchanged for content in again] == [False] + [True] * (len(NAMES) - 1)
    for missing, *messages in (first, again):
        assert (missing.status, missing.fresh) == (404, 0)  # of which they say nothing
        assert [content.fresh for content in messages] == [FRESH[kind]] * len(messages)
