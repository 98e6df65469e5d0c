"""The query endpoint under load, against the same server sending a ready-made body of the same size; then a soak.

Before that, health checks over new connections, with and without thousands of connections that never send anything.

n = 100, L = 4 KiB, random sets of 10, 64 connections, one server process. Needs wrk (apt-get install wrk).
`--soak 120` for the two minutes of full load; the default is shorter.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import re
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from common import show
from onoff.server.app import Application, Settings
from onoff.server.run import reserve, serve
from onoff.server.store import open_store
from onoff.wire import Catalogue, QueryMessage

SOURCES, LENGTH, SET, CONNECTIONS = 100, 4096, 10, 64
CHECKS = 13
CATALOGUE = Catalogue(tuple(f"source {i}" for i in range(SOURCES)), LENGTH)
READY = bytes(SET * CATALOGUE.frame_length)

SCRIPT = """
local bodies = {}
for line in io.lines("%s") do bodies[#bodies + 1] = line end
local headers = {["Content-Type"] = "application/json"}
local at = 0
request = function()
  at = at %% #bodies + 1
  return wrk.format("POST", nil, headers, bodies[at])
end
"""


async def ready(request: Request) -> Response:
    """The same request answered by a ready-made body."""
    await request.body()
    return Response(READY, media_type="application/octet-stream")


async def ready_unasked(_: Request) -> Response:
    """The least a server can do: no body is read either."""
    return Response(READY, media_type="application/octet-stream")


def application(settings: Settings) -> Starlette:
    """The server, with ready-made bodies beside the query."""
    app = Application(settings)
    app.router.routes += [Route("/ready", ready, methods=["POST"]), Route("/unasked", ready_unasked)]
    return app


def run_server(directory: Path) -> None:
    settings = Settings(str(directory / "messages.db"), CATALOGUE)
    store = open_store(settings.store, CATALOGUE)
    store.publish({i: random.randbytes(LENGTH) for i in range(SOURCES)})
    with reserve("127.0.0.1", 0) as listening:
        serve(settings, store, listening=listening, application=application)


class Load:
    """wrk at full speed against one path; the requests per second and the errors."""

    def __init__(self, url: str, script: Path) -> None:
        self._url, self._script = url, script

    def __call__(self, path: str, seconds: float) -> tuple[float, int]:
        command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds:g}s"]
        command += [] if path == "/unasked" else ["-s", str(self._script)]
        done = subprocess.run([*command, self._url + path], check=True, capture_output=True, text=True)
        errors = [int(number) for number in re.findall(r"(?:responses:|connect|read|write|timeout) (\d+)", done.stdout)]
        [rate] = re.findall(r"Requests/sec:\s+([\d.]+)", done.stdout)
        return float(rate), sum(errors)


def strangers(url: str, count: int) -> None:
    """13 health checks, each over a new connection, while so many others are open and idle; the same without them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, count + 200)), hard))
    host, _, port = url.removeprefix("http://").rpartition(":")
    rows: list[list[object]] = []
    for idle in (0, count):
        with ExitStack() as stack:
            for _ in range(idle):
                stack.enter_context(socket.create_connection((host, int(port)), timeout=30))
            found = [_check(host, int(port)) for _ in range(CHECKS)]
        answered = [seconds for seconds in found if seconds is not None]
        times = [f"{1000 * of(answered):.1f}" if answered else "-" for of in (statistics.median, max)]
        rows.append([idle, f"{len(answered)} of {CHECKS}", *times])
    show(
        f"Health checks beside idle connections, one process (target: {CHECKS} of {CHECKS} within 1000 ms)",
        ["idle connections", "answered", "median, ms", "slowest, ms"],
        rows,
    )


def _check(host: str, port: int) -> float | None:
    """The seconds that a health check takes; None if it is not answered in a minute."""
    began = time.perf_counter()
    connection = http.client.HTTPConnection(host, port, timeout=60)
    try:
        connection.request("GET", "/health")
        connection.getresponse().read()
    except OSError:
        return None
    finally:
        connection.close()
    return time.perf_counter() - began


def throughput(load: Load, rounds: int, seconds: float) -> None:
    """Turn by turn, so that a busy moment of the machine hits all three."""
    paths = {
        "/v1/query": "query: sets of 10",
        "/ready": "the same requests, a ready-made body",
        "/unasked": "GET, nothing read, a ready-made body",
    }
    rates: dict[str, list[float]] = {path: [] for path in paths}
    errors = dict.fromkeys(paths, 0)
    for path in paths:
        load(path, 1)
    for _ in range(rounds):
        for path in paths:
            rate, failed = load(path, seconds)
            rates[path].append(rate)
            errors[path] += failed
    query = rates["/v1/query"]
    show(
        f"Answers of {len(READY)} bytes, {CONNECTIONS} connections, one process (target: 70 % of ready-made)",
        ["what", "requests/s, median", "query against it", "errors"],
        [
            [
                name,
                round(statistics.median(rates[path])),
                f"{100 * statistics.median(a / b for a, b in zip(query, rates[path], strict=True)):.0f} %",
                errors[path],
            ]
            for path, name in paths.items()
        ],
    )


def soak(load: Load, directory: Path, worker: int, seconds: float) -> None:
    """Full load while rounds are published ten times a second; memory of the worker before and after."""
    store = open_store(str(directory / "messages.db"), CATALOGUE)
    stop = threading.Event()

    def publish() -> None:
        while not stop.wait(0.1):
            store.publish({i: random.randbytes(LENGTH) for i in range(SOURCES)})

    publisher = threading.Thread(target=publish)
    publisher.start()
    load("/v1/query", min(10, seconds))
    rows: list[list[object]] = []
    for part in range(4):
        rate, errors = load("/v1/query", seconds / 4)
        rows.append([f"{seconds * (part + 1) / 4:g} s", round(rate), _megabytes(worker), errors])
    stop.set()
    publisher.join()
    store.close()
    show(
        f"Soak of {seconds:g} s, a round of all sources published 10 times a second (target: flat, no errors)",
        ["until", "requests/s", "worker's memory, MB", "errors"],
        rows,
    )


def _megabytes(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--soak", type=float, default=12)
    parser.add_argument("--idle", type=int, default=3000)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.serve:
        run_server(chosen.serve)
        return
    if shutil.which("wrk") is None:
        sys.exit("this benchmark needs wrk: apt-get install wrk")
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        draw = random.Random(1)
        queries = [
            QueryMessage(
                CATALOGUE.fingerprint, draw.randbytes(16).hex(), 0, tuple(sorted(draw.sample(range(SOURCES), SET)))
            )
            for _ in range(1000)
        ]
        (directory / "queries").write_bytes(b"\n".join(query.encode() for query in queries))
        (directory / "query.lua").write_text(SCRIPT % (directory / "queries"))
        command = [sys.executable, __file__, "--serve", str(directory)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            try:
                url = json.loads(server.stdout.readline())["url"]
                children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
                worker = next(int(pid) for pid in children if "spawn_main" in Path(f"/proc/{pid}/cmdline").read_text())
                load = Load(url, directory / "query.lua")
                strangers(url, chosen.idle)
                throughput(load, chosen.rounds, chosen.seconds)
                soak(load, directory, worker, chosen.soak)
            finally:
                server.terminate()


if __name__ == "__main__":
    main()
