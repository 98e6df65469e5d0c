"""All clients make the same requests, step by step, while the server's messages change; then its log is attacked."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from onoff.apps.demo.comparing import Row, Stream, both_stream, past_stream, rival_stream
from onoff.apps.demo.habits import CHANNELS, DELAY, SENSITIVE, news, reader, requests
from onoff.apps.demo.killing import Killed, killed, play_and_kill
from onoff.apps.demo.rivals import Rival, rivals
from onoff.audit.transcript.reading import read_transcript
from onoff.client.connecting import connect
from onoff.client.transport.own import OnoffTransport
from onoff.plans.making import plan
from onoff.plans.store import PlanStore
from onoff.server.local import LocalServer

CHANGES = 0.5  # how often a channel has something new from one step to the next
LENGTH = 4096  # bytes of the longest message
LAGS = (1, 2, 3, 5)  # planned; the plan of a lag serves the larger ones
KILLED = 30  # requests of the client that is killed, at most

OURS = {  # how each of our clients is made, beside server, chain and journal
    "past": {"promise": "past", "record": "past.laws"},
    "marked": {"promise": "past", "record": "marked.laws", "sensitive": SENSITIVE},
    "both": {"promise": "both", "plans": "plans", "background": False},
}


@dataclass(frozen=True)
class Demonstration:
    """What happened. `private` and `sensitive` count requests.

    The rows of `switched` are about the requests made ON, those of `marked` about requests for sensitive sources.
    `delivered` of `wanted` messages arrived and were the latest. `findings` are what the audits of our clients found,
    and must be none.
    """

    seed: int
    steps: int
    private: int
    sensitive: int
    by_chance: float
    switched: tuple[Row, ...]
    marked: tuple[Row, ...]
    wanted: int
    delivered: int
    killed: Killed
    findings: tuple[str, ...]

    @property
    def clean(self) -> bool:
        """Whether everything is as promised."""
        whole = self.delivered == self.wanted and self.killed.delivered == self.killed.steps
        return whole and self.killed.sets == 1 and not self.findings


def demonstrate(steps: int, seed: int, advance: Callable[[], None] = lambda: None) -> Demonstration:
    """Serve, publish, plan, read, kill, and attack the log. Nothing is left behind."""
    chain, items = reader(), requests(steps, seed)
    with tempfile.TemporaryDirectory(prefix="onoff-demo-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        chain.save(directory / "chain.json")
        store = PlanStore(chain, directory / "plans")
        for lag in LAGS:
            store.save(plan(chain, lag))
        hidden = tuple(map(chain.index, SENSITIVE))
        others = rivals(chain.n, hidden, np.random.default_rng([seed, 1]))
        few = items[:KILLED]
        with LocalServer(directory, {name: news(name) for name in CHANNELS}, LENGTH) as server:
            run = _Run(server, directory, items, np.random.default_rng([seed, 2]))
            asyncio.run(run.read(list(others.values()), advance))
            at = play_and_kill(directory, server.url, few)
        log = read_transcript(directory / "transcript", chain)
        streams = {key: rival_stream(chain, rival, log, [on for _, on in items]) for key, rival in others.items()}
        past = partial(past_stream, chain, log=directory / "transcript")
        ours = {
            "past": past("onoff, everyday", journal=directory / "past", record=directory / "past.laws"),
            "sensitive": past("onoff, sensitive", journal=directory / "marked", record=directory / "marked.laws"),
            "both": both_stream(chain, "onoff, announced", log, directory / "both", directory / "plans"),
        }
        truth = [chain.index(source) for source, _ in items]
        private = [t for t, (_, on) in enumerate(items) if on]
        marked = [t for t, x in enumerate(truth) if x in hidden]
        switched = ("open", "naive", "decoys", "past", "both", "mirror", "everything")
        sensitive = ("open", "marked", "decoys", "sensitive", "mirror", "everything")
        found: dict[str, Stream] = {**streams, **ours}
        return Demonstration(
            seed=seed,
            steps=steps,
            private=len(private),
            sensitive=len(marked),
            by_chance=float(chain.stationary().max()),
            switched=tuple(found[key].row(truth, private) for key in switched),
            marked=tuple(found[key].row(truth, marked, hidden) for key in sensitive),
            wanted=steps * len(OURS),
            delivered=run.delivered,
            killed=killed(directory, few, run.issues, log, at),
            findings=tuple(finding for stream in ours.values() for finding in stream.findings),
        )


class _Run:
    """The server's messages change before every step. Then all clients make it, ours at the same time."""

    def __init__(
        self, server: LocalServer, directory: Path, items: Sequence[tuple[str, bool]], rng: np.random.Generator
    ) -> None:
        self._server, self._directory, self._items, self._rng = server, directory, items, rng
        self.issues = dict.fromkeys(CHANNELS, 0)
        self.delivered = 0

    async def read(self, others: Sequence[Rival], advance: Callable[[], None]) -> None:
        async with AsyncExitStack() as stack:
            transport = OnoffTransport(self._server.url)
            stack.push_async_callback(transport.close)
            await transport.connect()
            clients = {}
            for key, given in OURS.items():
                inside = {k: self._directory / v if k in ("record", "plans") else v for k, v in given.items()}
                client = connect(
                    reader(), server=self._server.url, journal=self._directory / key, delay=DELAY, **inside
                )
                clients[key] = await stack.enter_async_context(client)
            following = [source for source, _ in self._items[1:]]
            for step, ((source, private), after) in enumerate(zip(self._items, [*following, None], strict=True)):
                self._publish()
                messages = await asyncio.gather(
                    clients["past"].get(source, private=private),
                    clients["marked"].get(source),
                    clients["both"].get(source, after, private),
                )
                self.delivered += sum(message.body == news(source, self.issues[source]) for message in messages)
                x = CHANNELS.index(source)
                await asyncio.gather(*(rival.get(transport, step, x, private) for rival in others))
                advance()

    def _publish(self) -> None:
        """Publish what is new; that does not depend on any request."""
        fresh = [name for name in CHANNELS if self._rng.random() < CHANGES]
        for name in fresh:
            self.issues[name] += 1
        if fresh:
            self._server.publish({name: news(name, self.issues[name]) for name in fresh})
