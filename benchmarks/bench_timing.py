"""Can a server tell by time which of two sources was wanted? The gap from the last byte of an answer to what follows.

    play  gap until the next query leaves, while the caller writes each message to a file
    past  the same, of a client of the promise `past` that is never ON: a thread prepares the law of the next step
    out   the same, of `onoff play --out`
    get   gap until the connection is closed; a client is opened for every request
    file  gap until the next connection, of `onoff get -o` in a script: a process for every request

A raw server looks at its clock when the last byte of an answer has left its (small) buffer, and when the next byte, or
the end of the connection, arrives. All requests are ON (in `past` both sources are sensitive, and so in every set):
both sources are always fetched. Which one is wanted changes in random order. The AUC is the chance that a gap after the
first source is longer than one after the second: 0.5 if time tells nothing. Beside the client runs a rival with its old
habits: it stores the wanted body alone, counts its delay from the call and closes at once. That the rival is caught
shows that the method can see what it looks for.

With 300 samples of each source an AUC has a standard error of 0.024, so one of thirty honest rows would leave 0.45 to
0.55. So a row that is outside 0.47 to 0.53 after the first samples goes on to `--most`; with 1500 of each the error is
0.011, and one of 100,000 honest rows fails. The whole takes more than an hour on a quiet machine (busy ones show
themselves in both columns); `--sizes`, `--transports`, `--modes` and `--samples` run a part.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy.stats import rankdata

from common import dirichlet, show
from onoff import Chain, Client, HttpTransport, OnoffTransport
from onoff.client.clock import SendClock
from onoff.client.connect import Settings
from onoff.client.play import Delivery, play_file
from onoff.client.protocol import State
from onoff.client.transports import Answer
from onoff.types import quiet
from onoff.wire import MAX_LENGTH, Catalogue, Frame

NAMES = ("first", "second")
CHAIN = Chain([[0.5, 0.5], [0.5, 0.5]], NAMES)
HABITS = Chain(dirichlet(8, 1).P, (*"abcdef", *NAMES))  # of the mode `past`
PLANNER: Any = SimpleNamespace(store=SimpleNamespace(chain=CHAIN), best=None)  # never asked: all requests are ON
SIZES = {
    "16": 16,
    "4K": 2**12,
    "64K": 2**16,
    "1M": 2**20,
    "4M": 2**22,
    "16M": 2**24,
    "64M": 2**26 - 2**12,
}  # the last is more than our own server takes
SMALL = 16
INSIDE = (0.45, 0.55)
HASTY = """
from onoff.apps.cli.app import main
from onoff.client.client import Client
Client.wait_to_exit = lambda client: None
main()
"""
SURE = 0.03  # within this of a half, the first samples are enough


def serve(listener: socket.socket, replies: dict[str, bytes | Callable[[bytes], bytes]], last: str) -> None:
    """Answer requests, one connection after the other; gaps after answers to the path `last` are given at /gaps."""
    gaps: list[float] = []
    nexts: list[float] = []
    end: float | None = None
    while True:
        connection, _ = listener.accept()
        if end is not None:
            nexts.append(time.perf_counter() - end)
            end = None
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        buffer, sent = b"", None
        while True:
            data = connection.recv(65536)
            moment = time.perf_counter()
            if sent is not None:
                gaps.append(moment - sent)
                sent = None
            if not data:
                break
            buffer += data
            while (request := whole_request(buffer)) is not None:
                buffer = buffer[len(request) :]
                path = request.split(b" ", 2)[1].decode()
                if path in ("/gaps", "/nexts"):
                    connection.sendall(http(json.dumps(gaps if path == "/gaps" else nexts).encode()))
                    gaps.clear()
                    nexts.clear()
                else:
                    reply = replies[path]
                    connection.sendall(reply(request) if callable(reply) else reply)
                if path == last:
                    sent = end = time.perf_counter()
        connection.close()


def whole_request(buffer: bytes) -> bytes | None:
    head, found, rest = buffer.partition(b"\r\n\r\n")
    if not found:
        return None
    lengths = [int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")]
    length = lengths[0] if lengths else 0
    return None if len(rest) < length else buffer[: len(head) + 4 + length]


def http(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body


class Server:
    """The raw server in a process of its own: it must not wait for the client's interpreter."""

    def __init__(self, transport: str, names: tuple[str, ...], bodies: list[bytes]) -> None:
        self.kind, self.names = transport, names
        if transport == "own":
            catalogue = Catalogue(names, max(map(len, bodies)))
            frames = [Frame(i, 1, body).encode(catalogue.length) for i, body in enumerate(bodies)]

            def answer(request: bytes) -> bytes:
                query = json.loads(request.partition(b"\r\n\r\n")[2])
                return http(b"".join(frames[i] for i in query["sources"]))

            self._replies = {"/v1/catalogue": http(catalogue.document), "/v1/query": answer}
            self._last = "/v1/query"
        else:
            self._replies = {f"/{name}": http(body) for name, body in zip(names, bodies, strict=True)}
            self._last = f"/{names[-1]}"

    def __enter__(self) -> Server:
        listener = socket.create_server(("127.0.0.1", 0))
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**16)  # what was sent has all but arrived
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        self._process = get_context("fork").Process(
            target=serve, args=(listener, self._replies, self._last), daemon=True
        )
        self._process.start()
        listener.close()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.join()

    def transport(self) -> OnoffTransport | HttpTransport:
        if self.kind == "own":
            return OnoffTransport(self.url)
        return HttpTransport({name: f"{self.url}/{name}" for name in self.names})

    def gaps(self, path: str = "/gaps") -> list[float]:
        """The gaps since the last call; of /nexts those until the next connection."""
        with socket.create_connection(("127.0.0.1", int(self.url.rpartition(":")[2]))) as connection:
            connection.sendall(b"GET %s HTTP/1.1\r\n\r\n" % path.encode())
            answer = b""
            while b"]" not in answer:
                answer += connection.recv(65536)
        found: list[float] = json.loads(answer.partition(b"\r\n\r\n")[2])
        return found


class FromTheCall(SendClock):
    """The rival's clock: a delay after the call, and no wait at the end."""

    async def after_call(self, called: float, delay: float) -> None:
        self.start = called
        await super().next_point(delay)

    async def next_point(self, delay: float) -> None:
        pass


class StoresOnlyTheWanted(Client):
    """The rival: the client with its old habits."""

    async def __aenter__(self) -> StoresOnlyTheWanted:
        self._clock = FromTheCall()
        await super().__aenter__()
        journal, finish = self.journal, self.journal.finish

        def alone(state: State, query: tuple[int, ...], answer: Answer) -> None:
            assert journal.state.pending is not None
            wanted = journal.state.pending.request
            finish(state, (wanted,), Answer((answer.contents[query.index(wanted)],), answer.size))

        journal.finish = alone  # type: ignore[method-assign, assignment]
        return self


def sequence(samples: int) -> list[str]:
    wanted = list(NAMES) * samples
    random.shuffle(wanted)
    return wanted


def settings(server: Server, place: Path) -> Settings:
    past: dict[str, Any] = {"promise": "past", "sensitive": NAMES}
    how = past if server.names == HABITS.names else {"promise": "both", "plans": PLANNER}
    how |= {"first_ever": True, "cache": 0, "transport": server.transport()}  # all comes anew
    return Settings(HABITS if how["promise"] == "past" else CHAIN, journal=place / "journal", **how).complete()


async def played(server: Server, kind: type[Client], wanted: list[str], place: Path) -> list[float]:
    """The gap after each request of a stream; one more is made, or the last gap would be that of the end."""
    async with kind(settings(server, place)) as client:
        async for message in client.play([(source, True) for source in [*wanted, NAMES[0]]]):
            (place / "message").write_bytes(message.body)
    return server.gaps()[: len(wanted)]


async def played_past(server: Server, kind: type[Client], wanted: list[str], place: Path) -> list[float]:
    """The gaps of `played`, of a client that prepares the next step."""
    async with kind(settings(server, place)) as client:
        for source in [*wanted, NAMES[0]]:
            message = await client.get(source)
            (place / "message").write_bytes(message.body)
    return server.gaps()[: len(wanted)]


async def played_out(server: Server, kind: type[Client], wanted: list[str], place: Path) -> list[float]:
    """The gaps of `onoff play --out`."""
    delivery = Delivery(place / "out")
    items = [(source, True) for source in [*wanted, NAMES[0]]]
    async with kind(settings(server, place)) as client:
        await play_file(client, place / "requests", items, delivery, True, quiet)
    delivery.close()
    shutil.rmtree(place / "out")
    return server.gaps()[: len(wanted)]


async def got_files(server: Server, kind: type[Client], wanted: list[str], place: Path) -> list[float]:
    """The gaps of `onoff get -o` in a script; its rival ends as soon as its file is written."""
    CHAIN.save(place / "chain.json")
    (place / "urls.json").write_text(json.dumps({name: f"{server.url}/{name}" for name in NAMES}))
    where = ["--server", server.url] if server.kind == "own" else ["--urls", str(place / "urls.json")]
    for source in [*wanted, NAMES[0]]:
        command = ["get", source, "--on", "-q", "-o", str(place / "message"), "--journal", str(place / "journal")]
        command += ["--cache", "0"]
        chain = ["--chain", str(place / "chain.json")]
        program = ["-m", "onoff"] if kind is Client else ["-c", HASTY]
        subprocess.run([sys.executable, *program, *command, *chain, *where], check=True)
    return server.gaps("/nexts")[: len(wanted)]


async def got(server: Server, kind: type[Client], wanted: list[str], place: Path) -> list[float]:
    """The gap between the answer and the end of the connection, of a client for each request."""
    for source in wanted:
        async with kind(settings(server, place)) as client:
            await client.get(source)
    return server.gaps()


MODES = {"play": played, "past": played_past, "out": played_out, "get": got, "file": got_files}


def area(first: list[float], second: list[float]) -> float:
    """The chance that a gap of the first kind is longer than one of the second; ties count a half."""
    ranks = rankdata([*first, *second])[: len(first)]
    return float((ranks.sum() - len(first) * (len(first) + 1) / 2) / (len(first) * len(second)))


@contextmanager
def setting(transport: str, mode: str, sizes: tuple[int, int], parent: Path | None) -> Iterator[tuple[Server, Path]]:
    names = HABITS.names if mode == "past" else NAMES
    bodies = [random.randbytes(size) for size in (*[SMALL] * (len(names) - 2), *sizes)]
    with Server(transport, names, bodies) as server, tempfile.TemporaryDirectory(dir=parent) as name:
        yield server, Path(name)


def measure(
    transport: str, mode: str, sizes: tuple[int, int], kind: type[Client], samples: int, most: int, parent: Path | None
) -> tuple[list[float], list[float]]:
    """Gaps after each of the two sources; the first few requests, which warm everything up, are left out."""
    found: dict[str, list[float]] = {name: [] for name in NAMES}
    work = MODES[mode]
    with setting(transport, mode, sizes, parent) as (server, place):
        asyncio.run(work(server, kind, sequence(3), place))
        while True:
            more = samples if not found[NAMES[0]] else min(samples, most - len(found[NAMES[0]]))
            wanted = sequence(more)
            gaps = asyncio.run(work(server, kind, wanted, place))
            assert len(gaps) == len(wanted), "a gap is missing"
            for source, gap in zip(wanted, gaps, strict=True):
                found[source].append(gap)
            one, other = found.values()
            if len(one) >= most or abs(area(one, other) - 0.5) <= SURE:
                return one, other


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default=",".join(SIZES), help="of the larger body")
    parser.add_argument("--transports", default="own,web")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--pairs", default="large", help="large (and small), same, or both with a comma")
    parser.add_argument("--samples", type=int, default=300, help="of each source, at least")
    parser.add_argument("--most", type=int, default=1500, help="of each source, if the first leave a doubt")
    parser.add_argument("--rival", type=int, default=100, help="samples of the rival, 0 for none")
    parser.add_argument("--place", type=Path, help="where journals are kept; the disk of temporary files")
    given = parser.parse_args()
    rows: list[list[object]] = []
    outside = 0
    for size in given.sizes.split(","):
        for transport in given.transports.split(","):
            if SIZES[size] > MAX_LENGTH and transport == "own":
                continue
            for mode in given.modes.split(","):
                for pair in given.pairs.split(","):
                    sizes = (SIZES[size], SIZES[size] if pair == "same" else SMALL)
                    one, other = measure(
                        transport, mode, sizes, Client, given.samples, max(given.samples, given.most), given.place
                    )
                    auc = area(one, other)
                    inside = INSIDE[0] <= auc <= INSIDE[1]
                    outside += not inside
                    rival = "–"
                    if given.rival and pair == "large":
                        slow, quick = measure(
                            transport, mode, sizes, StoresOnlyTheWanted, given.rival, given.rival, given.place
                        )
                        rival = f"{area(slow, quick):.3f}"
                    middle = " / ".join(f"{1e3 * np.median(gaps):.1f}" for gaps in (one, other))
                    row = [f"{size} {pair}", transport, mode, len(one), middle, f"{auc:.3f}", inside, rival]
                    print(*row, file=sys.stderr, flush=True)
                    rows.append(row)
    show(
        "Which of two sources was wanted, by the gap after the answer (AUC; 0.45 to 0.55 must hold)",
        ["larger body, pair", "transport", "mode", "samples of each", "median gaps, ms", "AUC", "inside", "rival"],
        rows,
    )
    print("all rows lie inside" if not outside else f"{outside} of {len(rows)} rows lie outside")


if __name__ == "__main__":
    main()
