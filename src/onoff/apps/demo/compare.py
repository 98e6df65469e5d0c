"""Clients that people use today, and what a server concludes from the log of every client, ours or not.

The other clients are real as far as the server can tell: same queries on the wire, same changed-only answers, a line
each in its log. Their rules are the audit's (`onoff.audit.clients`), so that the attack on them is right. The
reasoning is the audit's, too (`onoff.audit.bayes`); our own clients are audited as a whole (`onoff.audit.log`).
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from onoff.audit.bayes import Beliefs, View, hidden_part, infer
from onoff.audit.clients import Client, ClientStep, Decoys, Everything, Naive
from onoff.audit.files import Log, read_journal
from onoff.audit.log import Exhibits, audit_log
from onoff.client.laws import maker
from onoff.client.status import account
from onoff.client.transports.onoff import OnoffTransport
from onoff.model.chain import Chain
from onoff.model.measures import accuracy, divergence
from onoff.past import Candidates
from onoff.past.step import prepare
from onoff.plans.store import PlanStore
from onoff.types import Floats, Query

DECOYS = 3  # others that a client with decoys asks for


@dataclass
class Rival:
    """A client with a rule for its sets, and what it has cost so far.

    `rules` says how its sets are drawn, as the server knows. Without `keeps` it downloads everything anew; with it,
    only what has changed.
    """

    name: str
    rules: Client
    rng: np.random.Generator
    keeps: bool = True
    switches: bool = False  # whether it asks differently while ON
    messages: int = 0
    bytes: int = 0
    stream: str = field(default_factory=lambda: secrets.token_hex(16))
    held: dict[int, str] = field(default_factory=dict)

    def view(self, query: Query, private: bool) -> View:
        """Interpret a query as a server that knows these rules."""
        return self._step(private).view(query)

    def _step(self, private: bool) -> ClientStep:
        on = self.rules.on()
        return on if private and self.switches else self.rules.off(on, ())

    async def get(self, transport: OnoffTransport, step: int, request: int, private: bool) -> None:
        """Ask for a set, and note which versions of its members came."""
        query = self._step(private).draw(0, request, 0, self.rng)
        answer = await transport.fetch(self.stream, step, query, tuple(map(self.held.get, query)))
        for source, content in zip(query, answer.contents, strict=True):
            if self.keeps and content.version is not None:
                self.held[source] = content.version
        self.messages += len(query)
        self.bytes += answer.size


def rivals(n: int, sensitive: Sequence[int], rng: np.random.Generator) -> dict[str, Rival]:
    """Make all rivals, by name."""
    other = np.random.default_rng()  # the rules of the others leave nothing to chance
    return {
        "open": Rival("asks openly, always", Naive(n), other),
        "naive": Rival("asks openly while OFF", Naive(n), other, switches=True),
        "marked": Rival("all if it is sensitive", Naive(n, sensitive), other),
        "decoys": Rival(f"adds {DECOYS} random decoys", Decoys(n, DECOYS), rng),
        "mirror": Rival("mirrors all that changed", Everything(n), other),
        "everything": Rival("downloads everything", Everything(n), other, keeps=False),
    }


@dataclass(frozen=True)
class Row:
    """A client's cost per request, and what its queries betray of some requests.

    `guessed_before` and `guessed` are the shares of requests that the server guesses right before their query, and
    after all queries. `bits_before` is what earlier queries told about them on average, `bits` what their own and all
    later ones told. `promise` is that of our clients.
    """

    client: str
    promise: str | None
    messages: float
    bytes: float
    guessed_before: float
    guessed: float
    bits_before: float
    bits: float


@dataclass(frozen=True)
class Stream:
    """One client's stream: what it cost, what the server believes, and whether its audit found anything."""

    client: str
    promise: str | None
    messages: float
    bytes: float
    beliefs: Beliefs
    findings: tuple[str, ...] = ()

    def row(self, truth: Sequence[int], which: Sequence[int], sensitive: Sequence[int] | None = None) -> Row:
        """Measure what it betrays of these steps' requests; with `sensitive`, which of them each is."""
        steps, wanted = list(which), [truth[t] for t in which]
        x = np.array(wanted if sensitive is None else list(map(list(sensitive).index, wanted)), dtype=np.intp)
        prior, before, after = (rows[steps] for rows in (self.beliefs.prior, self.beliefs.before, self.beliefs.after))
        if sensitive is not None:
            prior, before, after = (
                np.array([hidden_part(row, False, sensitive) for row in rows]).reshape(-1, len(sensitive) + 1)
                for rows in (prior, before, after)
            )
        first = [divergence(*pair) for pair in zip(before, prior, strict=True)]
        then = [divergence(*pair) for pair in zip(after, before, strict=True)]
        return Row(
            client=self.client,
            promise=self.promise,
            messages=self.messages / len(truth),
            bytes=self.bytes / len(truth),
            guessed_before=accuracy(before, x),
            guessed=accuracy(after, x),
            bits_before=_mean(first),
            bits=_mean(then),
        )


def _mean(values: Floats | Sequence[float]) -> float:
    """Mean; 0 if there are none."""
    return float(np.mean(values)) if len(values) else 0.0


def rival_stream(chain: Chain, rival: Rival, log: Log, statuses: Sequence[bool]) -> Stream:
    """Rebuild a foreign client's stream from the server's log."""
    sets = [line.query for line in log if line.stream == rival.stream]
    views = [rival.view(query, private) for query, private in zip(sets, statuses, strict=True)]
    beliefs = infer(chain, len(views), views.__getitem__)
    return Stream(rival.name, None, rival.messages, rival.bytes, beliefs)


def our_stream(chain: Chain, name: str, log: Path, journal: Path) -> Stream:
    """Rebuild our client's stream: replay it, and attack it for beliefs.

    Beside its journal lie the laws that it recorded, or its plans.
    """
    noted = read_journal(journal, chain)
    if noted.promise == "past":
        engine = lambda *public: prepare(Candidates(*public))  # noqa: E731
        exhibits = Exhibits({}, journal.with_suffix(".laws"), engine, maker())
    else:
        store = PlanStore(chain, journal.with_name("plans"))
        exhibits = Exhibits({plan.name: plan for plan in map(store.load, store.lags())})
    own = journal.with_name(f"{journal.name}.log")  # the other clients here are no clients of this reader
    lines = log.read_text().splitlines(keepends=True)
    own.write_text("".join(line for line in lines if json.loads(line).get("stream", noted.stream) == noted.stream))
    audit = audit_log(chain, own, exhibits, journal, attacked=True)
    assert audit.attack is not None
    words = [finding.message for finding in audit.verdict.findings]
    if not (audit.passed or words):
        words.append("the server learned more than it may, or steps could not be checked")
    totals = account(journal).totals
    findings = tuple(f"{name}: {word}" for word in words)
    return Stream(name, noted.promise, totals.downloaded, totals.bytes, audit.attack.beliefs, findings)
