"""The demonstration: all clients make the same requests while the server's messages change; then its log is attacked.

`introduce` and `narrate` say it in words: 80 columns of plain letters, so that any terminal can show it.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from onoff.apps.demo.compare import Row, Stream, our_stream, rival_stream, rivals
from onoff.apps.demo.reader import CHANNELS, DELAY, SENSITIVE, news, reader, requests
from onoff.audit.files import read_log
from onoff.client.client import Client
from onoff.client.connect import connect
from onoff.client.transports.onoff import OnoffTransport
from onoff.plans.plan import plan
from onoff.plans.store import PlanStore
from onoff.server.run import LocalServer
from onoff.types import Advance, Bar, quiet

CHANGES = 0.5  # how often a channel has something new from one step to the next
LENGTH = 4096  # bytes of the longest message
LAGS = (1, 2, 3, 5)  # planned; the plan of a lag serves the larger ones
NONE = 0.0005  # bits below it are shown as 0

OURS = ("past", "sensitive", "both")  # our clients, by the names of their journals
SWITCHED = ("open", "naive", "decoys", "past", "both", "mirror", "everything")  # clients, in the order of the tables
MARKED = ("open", "marked", "decoys", "sensitive", "mirror", "everything")


@dataclass(frozen=True)
class Demonstration:
    """Result of the attack. `private` and `sensitive` count requests.

    The rows of `switched` are about the requests made ON, those of `marked` about requests for sensitive sources.
    `by_habits` is the share of requests guessed without any query. `findings` are evidence
    against our clients, and must be empty.
    """

    seed: int
    steps: int
    private: int
    sensitive: int
    by_habits: float
    switched: tuple[Row, ...]
    marked: tuple[Row, ...]
    findings: tuple[str, ...]


def demonstrate(steps: int, seed: int, bar: Bar = quiet) -> Demonstration:
    """Serve, publish, plan, read, and attack the log. Leave nothing behind."""
    with (
        bar(steps + len({*SWITCHED, *MARKED})) as advance,
        tempfile.TemporaryDirectory(prefix="onoff-demo-", ignore_cleanup_errors=True) as name,
        LocalServer(Path(name), {name: news(name) for name in CHANNELS}, LENGTH) as server,
    ):
        run = _Run(server, Path(name), steps, seed, advance)
        asyncio.run(run.read())
        server.stop()
        return run.attack()


class _Run:
    """The server's messages change before every step. Then all clients make it, ours at the same time."""

    def __init__(self, server: LocalServer, directory: Path, steps: int, seed: int, advance: Advance) -> None:
        self._server, self._directory, self._seed, self._advance = server, directory, seed, advance
        self._chain, self._items = reader(), requests(steps, seed)
        self._hidden = tuple(map(self._chain.index, SENSITIVE))
        self._rivals = rivals(len(CHANNELS), self._hidden, np.random.default_rng([seed, 1]))
        self._rng = np.random.default_rng([seed, 2])  # of what is published
        self._issues, self._delivered = dict.fromkeys(CHANNELS, 0), 0
        store = PlanStore(self._chain, directory / "plans")
        for lag in LAGS:
            store.save(plan(self._chain, lag))

    async def read(self) -> None:
        """Make all requests by all clients."""
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
                self._delivered += sum(message.body == news(source, self._issues[source]) for message in messages)
                x = CHANNELS.index(source)
                for rival in self._rivals.values():  # they share one connection
                    await rival.get(transport, step, x, private)
                self._advance()

    def _ours(self) -> tuple[Client, Client, Client]:
        """Make our clients, one for each promise."""
        make = partial(connect, self._chain, server=self._server.url, delay=DELAY)
        past, sensitive, both = (self._directory / name for name in OURS)
        return (
            make(journal=past, promise="past", record=past.with_suffix(".laws")),
            make(journal=sensitive, promise="past", sensitive=SENSITIVE, record=sensitive.with_suffix(".laws")),
            make(journal=both, promise="both", plans=self._directory / "plans", background=False),
        )

    def _publish(self) -> None:
        """Publish new messages, independently of all requests."""
        fresh = [name for name in CHANNELS if self._rng.random() < CHANGES]
        for name in fresh:
            self._issues[name] += 1
        if fresh:
            self._server.publish({name: news(name, self._issues[name]) for name in fresh})

    def attack(self) -> Demonstration:
        """Attack every client by the server's log."""
        chain, log = self._chain, read_log(self._server.transcript, self._chain)
        truth, statuses = [chain.index(source) for source, _ in self._items], [on for _, on in self._items]
        found: dict[str, Stream] = {}
        for key, rival in self._rivals.items():
            found[key] = rival_stream(chain, rival, log, statuses)
            self._advance()
        for key in OURS:
            found[key] = our_stream(chain, f"onoff, {key}", self._server.transcript, self._directory / key)
            self._advance()
        private = [t for t, on in enumerate(statuses) if on]
        marked = [t for t, x in enumerate(truth) if x in self._hidden]
        wanted = len(truth) * len(OURS)
        findings = [finding for key in OURS for finding in found[key].findings]
        if self._delivered < wanted:
            findings.append(f"{wanted - self._delivered} of {wanted} messages did not arrive, or were old")
        return Demonstration(
            seed=self._seed,
            steps=len(truth),
            private=len(private),
            sensitive=len(marked),
            by_habits=float(chain.stationary().max()),
            switched=tuple(found[key].row(truth, private) for key in SWITCHED),
            marked=tuple(found[key].row(truth, marked, self._hidden) for key in MARKED),
            findings=tuple(findings),
        )


def introduce(steps: int) -> str:
    """Say what will happen."""
    return f"""\
One reader, eight news channels, {steps} requests. The server is not trusted: it
knows the reader's habits, keeps every query, and computes without limit. At
each step {_share(CHANGES)} of the channels have news. Clients download what has changed.
"""


def narrate(result: Demonstration) -> str:
    """Say what happened; what was seen; and what to try next, or what is wrong."""
    rows = {row.promise or row.client: row for row in result.switched}
    past, naive = rows["past"], rows["asks openly while OFF"]
    everything, mirror = rows["downloads everything"], rows["mirrors all that changed"]
    text = f"""\
1. PRIVATE REQUESTS. {result.private} of {result.steps} are made ON. What does the server learn?

{_table(result.switched)}

   before: from queries before the request. in all: from all queries. + after:
   the bits that its own query and all later ones add to those before.
   past: no query from a private request on tells anything about it. What was
   asked openly before already tells: the server guesses {_share(past.guessed_before)}, by habits alone
   {_share(result.by_habits)}. past promises only that nothing more is learned.
   both: hides that, too. No query tells anything. For that the reader announces
   each request.

2. SENSITIVE SOURCES. {result.sensitive} of {result.steps} requests are for {" or ".join(SENSITIVE)}.
   Nothing is switched. Does the server notice them, and which it was?

{_table(result.marked)}

   past, with sensitive sources: no query tells which was read, nor if any was.

"""
    if result.findings:
        return text + "\n".join(f"This is a bug: {finding}" for finding in result.findings)
    return f"""{text}\
You saw: asking openly while OFF gives away {_share(naive.guessed)} of the private requests.
With onoff no query at or after one told anything. With past it
downloaded {_share(1 - past.bytes / everything.bytes)} fewer bytes than downloading everything, and
{_share(1 - past.bytes / mirror.bytes)} fewer than mirroring all that changed.
Try next: onoff page, or what a day with your habits costs:
    onoff fit LOG -o habits.json && onoff costs habits.json --day"""


def _table(rows: Sequence[Row]) -> str:
    lines = ["                               per request     guessed right     bits learned"]
    lines += ["   client (promise)         messages   bytes   before  in all    before + after"]
    for row in rows:
        name = f"{row.client} ({row.promise})" if row.promise else row.client
        costs = f"{row.messages:7.1f}{row.bytes:9,.0f}  {_share(row.guessed_before):>7}  {_share(row.guessed):>6}"
        lines.append(f"   {name:25}{costs}  {_bits(row.bits_before)}{_bits(row.bits)}")
    return "\n".join(lines)


def _share(value: float) -> str:
    return f"{100 * value:.0f} %"


def _bits(bits: float) -> str:
    return f"{bits:8.2f}" if bits >= NONE else f"{'0':>8}"
