"""The server attacks its log, for every client alike: what does it believe about what is hidden, before and after?

The reasoning is the audit's (`onoff.audit.bayes`); our own clients are audited as a whole (`onoff.audit.log`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from onoff.apps.demo.rivals import Rival
from onoff.audit.bayes import Beliefs, Requests, divergence, hidden_part, infer
from onoff.audit.files import Line, Log, read_journal
from onoff.audit.log import Exhibits, audit_log
from onoff.client.status import account
from onoff.everyday import Everyday
from onoff.model.chain import Chain
from onoff.plans.store import PlanStore
from onoff.types import Floats

Whole = NDArray[np.intp]
TIE = 1e-9  # beliefs that differ by less are equal: what is between them is rounding


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
    sets = [tuple(sorted(line.sources)) for line in of_stream(log, rival.stream)]
    views = [rival.view(query, private) for query, private in zip(sets, statuses, strict=True)]
    beliefs = infer(Requests.of_chain(chain), statuses, views.__getitem__)
    return Stream(rival.name, None, rival.messages, rival.bytes, beliefs)


def guessed_alone(chain: Chain, rival: Rival, log: Log, truth: Sequence[int], which: Sequence[int]) -> float:
    """The share of the requests of these steps that is guessed right from the set of each step alone."""
    sets = {line.step: tuple(sorted(line.sources)) for line in of_stream(log, rival.stream)}
    views = [rival.view(sets[t], False) for t in which]
    found = [infer(Requests.of_chain(chain), [True], [view].__getitem__).after[0] for view in views]
    return _guessed(np.array(found), np.array([truth[t] for t in which]))


def our_stream(chain: Chain, name: str, log: Path, journal: Path, exhibits: Exhibits) -> Stream:
    """The stream of a client of ours: replayed, and attacked for its beliefs."""
    noted = read_journal(journal, chain)
    own = journal.with_name(f"{journal.name}.log")  # the other clients here are no clients of this reader
    lines = [
        line for line in log.read_text().splitlines() if json.loads(line).get("stream", noted.stream) == noted.stream
    ]
    own.write_text("".join(f"{line}\n" for line in lines))
    audit = audit_log(chain, own, exhibits, journal, attacked=True)
    assert audit.attack is not None
    words = [finding.message for finding in audit.verdict.findings]
    if not (audit.passed or words):
        words.append("the server learned more than it may, or steps could not be checked")
    totals = account(journal).totals
    findings = tuple(f"{name}: {word}" for word in words)
    return Stream(name, noted.promise, totals.downloaded, totals.bytes, audit.attack.beliefs, findings)


def past_stream(chain: Chain, name: str, log: Path, journal: Path, record: Path) -> Stream:
    """The stream of a client with the promise `past`."""
    sensitive = read_journal(journal, chain).sensitive
    return our_stream(chain, name, log, journal, Exhibits({}, record, Everyday.start(chain, sensitive)))


def both_stream(chain: Chain, name: str, log: Path, journal: Path, plans: Path) -> Stream:
    """The stream of a client that announces its requests, with its plans."""
    store = PlanStore(chain, plans)
    found = [store.load(lag) for lag in store.lags()]
    return our_stream(chain, name, log, journal, Exhibits({plan.name: plan for plan in found}))


def of_stream(log: Log, name: str | None) -> tuple[Line, ...]:
    """The lines of one stream."""
    return tuple(line for line in log.lines if line.stream == name)
