"""Web servers that know nothing of us, as processes: Python's own and nginx. Their logs say what they were asked.

with plain_server(directory, files) as (url, log):       # or nginx(...)
    log(7)      # once it has at least 7: a line for each request, with method, path, status and perhaps conditions
"""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ports import free_port

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
needs_nginx = pytest.mark.skipif(NGINX is None, reason="nginx is not installed")
Log = Callable[[int], list[str]]

CONFIG = """
daemon off; master_process off; pid {home}/nginx.pid; error_log {home}/error.log;
events {{ worker_connections 64; }}
http {{
  log_format asked '$request_method $uri $status [$http_if_none_match] [$http_if_modified_since]';
  access_log {home}/access.log asked;
  client_body_temp_path {home}/a; proxy_temp_path {home}/b; fastcgi_temp_path {home}/c;
  uwsgi_temp_path {home}/d; scgi_temp_path {home}/e;
  server {{ listen 127.0.0.1:{port}; root {files}; }}
}}
"""


@contextmanager
def plain_server(home: Path, files: Path) -> Iterator[tuple[str, Log]]:
    """`python -m http.server`."""
    port, log = free_port(), home / "http.server.log"
    command = [sys.executable, "-u", "-m", "http.server", "--bind", "127.0.0.1", "--directory", str(files), str(port)]
    with log.open("wb") as stream, _running(command, port, stdout=stream, stderr=stream):

        def lines() -> list[str]:
            return [" ".join(found) for found in re.findall(r'"(\w+) (\S+) HTTP/1\.[01]" (\d+)', log.read_text())]

        yield f"http://127.0.0.1:{port}", lambda least: _at_least(least, lines)


@contextmanager
def nginx(home: Path, files: Path) -> Iterator[tuple[str, Log]]:
    """nginx as one process, of whoever runs the tests."""
    assert NGINX is not None
    port = free_port()
    (home / "nginx.conf").write_text(CONFIG.format(home=home, files=files, port=port))
    command = [NGINX, "-p", str(home), "-e", str(home / "error.log"), "-c", str(home / "nginx.conf")]
    with _running(command, port):
        lines = lambda: (home / "access.log").read_text().splitlines()  # noqa: E731
        yield f"http://127.0.0.1:{port}", lambda least: _at_least(least, lines)


def _at_least(least: int, lines: Callable[[], list[str]]) -> list[str]:
    """The lines, once there are so many: a server may write one after its answer."""
    deadline = time.monotonic() + 60
    while len(found := lines()) < least:
        assert time.monotonic() < deadline, f"{len(found)} of {least} requests are in the log"
        time.sleep(0.01)
    return found


@contextmanager
def _running(command: list[str], port: int, **streams: object) -> Iterator[None]:
    """A server, from when it listens until it has ended."""
    with subprocess.Popen(command, **streams) as process:
        try:
            deadline = time.monotonic() + 120
            while not _listens(port):
                assert process.poll() is None, "the server did not start"
                assert time.monotonic() < deadline
                time.sleep(0.02)
            yield
        finally:
            process.terminate()
            process.wait(60)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
