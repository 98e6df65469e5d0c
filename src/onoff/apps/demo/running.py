"""All clients make the same requests, step by step, while the server's messages change; then its log is attacked."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from onoff.apps.demo.comparing import Row, Stream, both_stream, guessed_alone, past_stream, rival_stream
from onoff.apps.demo.habits import CHANNELS, DELAY, SENSITIVE, news, reader, requests
from onoff.apps.demo.killing import Killed, killed, play_and_kill
from onoff.apps.demo.rivals import Rival, rivals
from onoff.audit.files import read_log
from onoff.client.client import Client
from onoff.client.connect import connect
from onoff.client.transport.own import OnoffTransport
from onoff.plans.plan import plan
from onoff.plans.store import PlanStore
from onoff.server.local import LocalServer
from onoff.types import Advance, Bar, quiet

CHANGES = 0.5  # how often a channel has something new from one step to the next
LENGTH = 4096  # bytes of the longest message
LAGS = (1, 2, 3, 5)  # planned; the plan of a lag serves the larger ones
KILLED = 30  # requests of the client that is killed, at most

OURS = ("past", "sensitive", "both")  # our clients, by the names of their journals
SWITCHED = ("open", "naive", "decoys", "past", "both", "mirror", "everything")  # clients, in the order of the tables
MARKED = ("open", "marked", "decoys", "sensitive", "mirror", "everything")


@dataclass(frozen=True)
class Demonstration:
    """What happened. `private` and `sensitive` count requests.

    The rows of `switched` are about the requests made ON, those of `marked` about requests for sensitive sources.
    `by_habits` is the share of requests that is guessed without any query, `by_decoys` that of private requests which a
    set with decoys gives away by itself. `delivered` of `wanted` messages arrived and were the latest. `findings` are
    what speaks against our clients, and must be none.
    """

    seed: int
    steps: int
    private: int
    sensitive: int
    by_habits: float
    by_decoys: float
    switched: tuple[Row, ...]
    marked: tuple[Row, ...]
    wanted: int
    delivered: int
    killed: Killed
    findings: tuple[str, ...]


def demonstrate(steps: int, seed: int, bar: Bar = quiet) -> Demonstration:
    """Serve, publish, plan, read, kill, and attack the log. Nothing is left behind."""
    items = requests(steps, seed)
    hidden = tuple(map(reader().index, SENSITIVE))
    others = rivals(len(CHANNELS), hidden, np.random.default_rng([seed, 1]))
    with (
        bar(steps + 1 + len(others) + len(OURS)) as advance,
        tempfile.TemporaryDirectory(prefix="onoff-demo-", ignore_cleanup_errors=True) as name,
    ):
        directory = Path(name)
        _prepare(directory)
        with LocalServer(directory, {name: news(name) for name in CHANNELS}, LENGTH) as server:
            run = _Run(server, directory, items, np.random.default_rng([seed, 2]))
            asyncio.run(run.read(list(others.values()), advance))
            at = play_and_kill(directory, server.url, items[:KILLED])
            advance()
        return _attacked(directory, seed, items, run, others, at, advance)


def _prepare(directory: Path) -> None:
    """Save the chain, and make the plans of the announced mode."""
    chain = reader()
    chain.save(directory / "chain.json")
    store = PlanStore(chain, directory / "plans")
    for lag in LAGS:
        store.save(plan(chain, lag))


def _attacked(
    directory: Path,
    seed: int,
    items: list[tuple[str, bool]],
    run: _Run,
    others: dict[str, Rival],
    at: tuple[int, bool],
    advance: Advance,
) -> Demonstration:
    """What the server makes of its log."""
    chain, statuses = reader(), [on for _, on in items]
    hidden = tuple(map(chain.index, SENSITIVE))
    log = read_log(directory / "transcript", chain)
    found: dict[str, Stream] = {}
    for key, rival in others.items():
        found[key] = rival_stream(chain, rival, log, statuses)
        advance()
    for key, name in (("past", "onoff, everyday"), ("sensitive", "onoff, sensitive")):
        found[key] = past_stream(chain, name, directory / "transcript", directory / key, directory / f"{key}.laws")
        advance()
    found["both"] = both_stream(
        chain, "onoff, announced", directory / "transcript", directory / "both", directory / "plans"
    )
    advance()
    truth = [chain.index(source) for source, _ in items]
    private = [t for t, on in enumerate(statuses) if on]
    marked = [t for t, x in enumerate(truth) if x in hidden]
    gone = killed(directory, items[:KILLED], run.issues, log, at)
    wanted = len(items) * len(OURS)
    findings = [finding for key in OURS for finding in found[key].findings]
    if run.delivered < wanted:
        findings.append(f"{wanted - run.delivered} of {wanted} messages did not arrive, or were old")
    if gone.delivered < gone.steps:
        findings.append(f"the killed client got {gone.delivered} of {gone.steps} messages")
    if gone.sets != 1:
        findings.append(f"the killed client sent {gone.sets} different sets at one step")
    return Demonstration(
        seed=seed,
        steps=len(items),
        private=len(private),
        sensitive=len(marked),
        by_habits=float(chain.stationary().max()),
        by_decoys=guessed_alone(chain, others["decoys"], log, truth, private),
        switched=tuple(found[key].row(truth, private) for key in SWITCHED),
        marked=tuple(found[key].row(truth, marked, hidden) for key in MARKED),
        wanted=wanted,
        delivered=run.delivered,
        killed=gone,
        findings=tuple(findings),
    )


class _Run:
    """The server's messages change before every step. Then all clients make it, ours at the same time."""

    def __init__(
        self, server: LocalServer, directory: Path, items: Sequence[tuple[str, bool]], rng: np.random.Generator
    ) -> None:
        self._server, self._directory, self._items, self._rng = server, directory, items, rng
        self.issues = dict.fromkeys(CHANNELS, 0)
        self.delivered = 0

    async def read(self, others: Sequence[Rival], advance: Advance) -> None:
        async with AsyncExitStack() as stack:
            transport = OnoffTransport(self._server.url)
            stack.push_async_callback(transport.close)
            await transport.connect()
            past, sensitive, both = [await stack.enter_async_context(client) for client in self._ours()]
            following = [source for source, _ in self._items[1:]]
            for step, ((source, private), after) in enumerate(zip(self._items, [*following, None], strict=True)):
                self._publish()
                messages = await asyncio.gather(
                    past.get(source, private=private), sensitive.get(source), both.get(source, after, private)
                )
                self.delivered += sum(message.body == news(source, self.issues[source]) for message in messages)
                x = CHANNELS.index(source)
                await asyncio.gather(*(rival.get(transport, step, x, private) for rival in others))
                advance()

    def _ours(self) -> tuple[Client, Client, Client]:
        """Our clients, one for each promise."""
        make = partial(connect, reader(), server=self._server.url, delay=DELAY)
        past, sensitive, both = (self._directory / name for name in OURS)
        return (
            make(journal=past, promise="past", record=past.with_suffix(".laws")),
            make(journal=sensitive, promise="past", sensitive=SENSITIVE, record=sensitive.with_suffix(".laws")),
            make(journal=both, promise="both", plans=self._directory / "plans", background=False),
        )

    def _publish(self) -> None:
        """Publish what is new; that does not depend on any request."""
        fresh = [name for name in CHANNELS if self._rng.random() < CHANGES]
        for name in fresh:
            self.issues[name] += 1
        if fresh:
            self._server.publish({name: news(name, self.issues[name]) for name in fresh})
