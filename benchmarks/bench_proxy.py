"""What `onoff proxy` adds to a request of the client, in milliseconds, beside the bare client in the same run.

    .venv/bin/python benchmarks/bench_proxy.py [--requests 100]

Both read eight sources from `python -m http.server`, in blocks that alternate. A local program asks the proxy over a
connection of its own for each request, as curl does. The time is that until the last byte of the message.
"""

from __future__ import annotations

import argparse
import http.client
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

import numpy as np

from common import dirichlet, show
from onoff import Chain, connect_sync

BLOCK = 10
ONOFF = Path(sys.executable).with_name("onoff")


@contextmanager
def origin(directory: Path) -> Iterator[str]:
    """A plain web server over a directory; its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1", "--directory", str(directory)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.02)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


@contextmanager
def proxy(directory: Path, delay: float) -> Iterator[tuple[str, int]]:
    """A real proxy; host and port."""
    where = ["--directory", str(directory / "proxy")]
    given = [str(directory / "list.txt"), "--chain", str(directory / "chain.json"), *where, "--force"]
    subprocess.run([str(ONOFF), "setup", *given], check=True, stdout=subprocess.DEVNULL)
    command = [str(ONOFF), "proxy", *where, "--delay", str(delay), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        host, _, port = json.loads(process.stdout.readline())["url"].removeprefix("http://").partition(":")
        yield host, int(port)
    finally:
        process.terminate()
        process.communicate()


def ask(place: tuple[str, int], path: str, method: str = "GET", body: str | None = None) -> bytes:
    connection = http.client.HTTPConnection(*place)
    try:
        connection.request(method, path, body)
        return connection.getresponse().read()
    finally:
        connection.close()


def timed(get: Callable[[str], object], names: list[str]) -> list[float]:
    """Milliseconds of each request."""
    times = []
    for name in names:
        start = time.perf_counter()
        get(name)
        times.append(1e3 * (time.perf_counter() - start))
    return times


def compared(chain: Chain, directory: Path, delay: float, private: bool, requests: int) -> list[object]:
    """A row: medians of the client and of the proxy, and their difference."""
    path = [chain.names[x] for x in chain.simulate(requests + BLOCK, np.random.default_rng(1))]
    with ExitStack() as stack:
        options = {"urls": directory / "urls.json", "journal": directory / f"client-{delay}-{private}", "delay": delay}
        client = stack.enter_context(connect_sync(chain, **options))  # type: ignore[arg-type]
        place = stack.enter_context(proxy(directory, delay))
        ask(place, "/onoff/privacy", "PUT", "on" if private else "off")
        bare: list[float] = []
        through: list[float] = []
        for start in range(0, requests + BLOCK, BLOCK):
            block = path[start : start + BLOCK]
            first = timed(lambda name: client.get(name, private=private), block)
            second = timed(lambda name: ask(place, f"/{name}"), block)
            if start:  # the first block has the two requests that ask for everything
                bare += first
                through += second
    spread = f"{np.quantile(through, 0.05):.1f}-{np.quantile(through, 0.95):.1f}"
    status = "ON" if private else "OFF"
    return [status, 1e3 * delay, median(bare), median(through), spread, median(through) - median(bare)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--requests", type=int, default=100)
    options = parser.parse_args()
    chain, rows = dirichlet(8, 1), []
    for length in (2**12, 2**20):
        with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory() as files:
            for source in chain.names:
                (Path(files) / source).write_bytes(source.encode()[:1] * length)
            with origin(Path(files)) as url:
                urls = {each: f"{url}/{each}" for each in chain.names}
                (Path(name) / "urls.json").write_text(json.dumps(urls))
                (Path(name) / "list.txt").write_text("".join(f"{at} {each}\n" for each, at in urls.items()))
                chain.save(Path(name) / "chain.json")
                for delay in (0.0, 0.05):
                    for private in (True, False):
                        found = compared(chain, Path(name), delay, private, options.requests)
                        rows.append([f"{length // 1024} KiB", *found])
    headings = ["messages of", "status", "delay, ms", "client, ms", "proxy, ms", "5-95 %", "the proxy adds, ms"]
    show("A request, until its last byte: median", headings, rows)


if __name__ == "__main__":
    main()
