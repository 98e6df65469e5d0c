"""The server attacks its log, for every client alike: what does it believe about what is hidden, before and after?

The filters are the audit's: `onoff.audit.transcript.belief` where every step is drawn by a rule,
`onoff.audit.everyday.beliefs` where laws were recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from onoff.apps.demo.rivals import Rival
from onoff.audit.everyday import beliefs as everyday
from onoff.audit.everyday.beliefs import divergence
from onoff.audit.everyday.record import Seen
from onoff.audit.setting import lags_of
from onoff.audit.transcript import belief
from onoff.audit.transcript.attack import audit_stream, noted
from onoff.audit.transcript.belief import Asked
from onoff.audit.transcript.everyday import audit_everyday_transcript, read_laws
from onoff.audit.transcript.evidence import read_evidence
from onoff.audit.transcript.reading import Line, Log, read_journal, read_notes
from onoff.client.status import account
from onoff.everyday import Everyday
from onoff.model.chain import Chain
from onoff.plans.store import PlanStore
from onoff.types import Floats

Whole = NDArray[np.intp]
TIE = 1e-9  # beliefs that differ by less are equal: what is between them is rounding


@dataclass(frozen=True)
class Beliefs:
    """p(x_t) by habits alone, given the queries before step t, and given all queries; one row for each step."""

    prior: Floats
    before: Floats
    after: Floats

    def about(self, sensitive: Sequence[int]) -> Beliefs:
        """The same about which of the sensitive sources was asked for; the last column is none of them."""

        def folded(rows: Floats) -> Floats:
            return np.column_stack([rows[:, list(sensitive)], np.delete(rows, list(sensitive), axis=1).sum(axis=1)])

        return Beliefs(folded(self.prior), folded(self.before), folded(self.after))


@dataclass(frozen=True)
class Row:
    """What a client costs per request, and what its queries betray of some requests.

    `guessed_before` and `guessed` are the shares of requests that the server guesses right before their query, and
    after all queries. `bits_before` is what earlier queries told about them on average, `bits` what their own and all
    later ones told, `most` the same of the worst. `promise` is that of our clients.
    """

    client: str
    promise: str | None
    messages: float
    bytes: float
    guessed_before: float
    guessed: float
    bits_before: float
    bits: float
    most: float


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
        """What it betrays of the requests of these steps; with `sensitive`, of which of them each is."""
        beliefs = self.beliefs if sensitive is None else self.beliefs.about(sensitive)
        steps, wanted = list(which), [truth[t] for t in which]
        x = np.array(wanted if sensitive is None else list(map(list(sensitive).index, wanted)), dtype=np.intp)
        prior, before, after = (rows[steps] for rows in (beliefs.prior, beliefs.before, beliefs.after))
        first = [divergence(*pair) for pair in zip(before, prior, strict=True)]
        then = [divergence(*pair) for pair in zip(after, before, strict=True)]
        return Row(
            client=self.client,
            promise=self.promise,
            messages=self.messages / len(truth),
            bytes=self.bytes / len(truth),
            guessed_before=_guessed(before, x),
            guessed=_guessed(after, x),
            bits_before=_mean(first),
            bits=_mean(then),
            most=max(then, default=0.0),
        )


def _guessed(beliefs: Floats, x: Whole) -> float:
    """The share of requests that the likeliest source guesses right; of k equally likely ones each counts 1/k."""
    likeliest = beliefs >= beliefs.max(axis=1, keepdims=True) - TIE
    return _mean(likeliest[np.arange(len(x)), x] / likeliest.sum(axis=1))


def _mean(values: Floats | Sequence[float]) -> float:
    """The mean; 0 if there are none."""
    return float(np.mean(values)) if len(values) else 0.0


def rival_stream(chain: Chain, rival: Rival, log: Log, statuses: Sequence[bool]) -> Stream:
    """The stream of a client that is not ours, as the server's log has it."""
    lines = of_stream(log, rival.stream)
    lags = lags_of(statuses) if rival.switches else [1] * len(statuses)
    asked = [Asked(lag, tuple(sorted(line.sources)), rival.model) for lag, line in zip(lags, lines, strict=True)]
    found = belief.attack(chain, asked)
    beliefs = Beliefs(found.prior, found.predicted, found.posterior)
    return Stream(rival.name, None, rival.messages, rival.bytes, beliefs)


def guessed_alone(chain: Chain, rival: Rival, log: Log, truth: Sequence[int], which: Sequence[int]) -> float:
    """The share of the requests of these steps that is guessed right from the set of each step alone."""
    sets = {line.step: tuple(sorted(line.sources)) for line in of_stream(log, rival.stream)}
    found = [belief.attack(chain, [Asked(1, sets[t], rival.model)]).posterior[0] for t in which]
    return _guessed(np.array(found), np.array([truth[t] for t in which]))


def past_stream(chain: Chain, name: str, log: Path, journal: Path, record: Path) -> Stream:
    """The stream of a client with the everyday promise: audited as a whole, then attacked for its beliefs."""
    evidence = read_evidence(chain, log, journal=journal)
    lines = of_stream(evidence.log, evidence.notes.stream)
    evidence = replace(evidence, log=Log(lines, evidence.log.damaged))
    laws = read_laws(record, evidence.notes.stream)
    audit = audit_everyday_transcript(evidence, laws, engine=Everyday.start)
    asked = {line.step: tuple(sorted(line.sources)) for line in lines}
    seen = [Seen(step.private, asked[step.step], laws.by_step.get(step.step)) for step in evidence.steps]
    found = everyday.attack(chain, audit.sensitive, seen)
    words = [*audit.findings, *(breach.message for breach in audit.rules.breaches)]
    if not (audit.passed or words):
        words.append("the server learned more than it may")
    return _ours(name, "past", journal, Beliefs(found.prior, found.before, found.after), words)


def both_stream(chain: Chain, name: str, log: Log, journal: Path, plans: Path) -> Stream:
    """The stream of a client that announces its requests, attacked with its plans."""
    store = PlanStore(chain, plans)
    steps = read_journal(journal, chain)
    lines = of_stream(log, read_notes(journal).stream)
    expected = noted(chain, steps, [store.load(lag) for lag in store.lags()])
    audit = audit_stream(chain, lines, expected, [step.request for step in steps])
    found = audit.log.beliefs
    words = list(audit.findings)
    if not (audit.clean or words):
        words.append("the server learned more than it may")
    return _ours(name, "both", journal, Beliefs(found.prior, found.predicted, found.posterior), words)


def of_stream(log: Log, name: str | None) -> tuple[Line, ...]:
    """The lines of one stream."""
    return tuple(line for line in log.lines if line.stream == name)


def _ours(name: str, promise: str, journal: Path, beliefs: Beliefs, findings: Sequence[str]) -> Stream:
    totals = account(journal).totals
    return Stream(
        name, promise, totals.downloaded, totals.bytes, beliefs, tuple(f"{name}: {word}" for word in findings)
    )
