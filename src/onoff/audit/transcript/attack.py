"""The audit of one stream: what the server's log shows against what the client noted, attacked, and judged.

The same requests with the same statuses are also given to a naive client, and its queries attacked in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from onoff.audit.models import Everything, Model, Naive, Planned, planned
from onoff.audit.transcript.belief import Asked, Beliefs, attack
from onoff.audit.transcript.conformance import named
from onoff.audit.transcript.reading import Line, Step
from onoff.audit.transcript.rules import due
from onoff.audit.transcript.verdict import Verdict, judge
from onoff.errors import OnoffError
from onoff.model.chain import Chain
from onoff.types import Bar, Query, quiet

if TYPE_CHECKING:
    from onoff.plans.base import Plan


@dataclass(frozen=True)
class Attack:
    """A stream as the server saw it, what it believes, and what that is worth."""

    asked: tuple[Asked, ...]
    beliefs: Beliefs
    verdict: Verdict

    @property
    def missed(self) -> int:
        """How many OFF steps of the log could not be attacked: their chances are not known."""
        return sum(step.model is None for step in self._off)

    @property
    def blind(self) -> bool:
        """Whether that is all of them."""
        return 0 < self.missed == len(self._off)

    @property
    def _off(self) -> list[Asked]:
        return [step for step in self.asked if step.lag and step.query is not None]


@dataclass(frozen=True)
class Audit:
    """`naive` is what a naive client would have betrayed on the same requests; it needs the truth.

    `findings` are what is wrong whatever the requests were: other queries than the client noted, or than its rules
    allow.
    """

    log: Attack
    naive: Attack | None
    truth: tuple[int, ...] | None
    findings: tuple[str, ...]

    @property
    def clean(self) -> bool:
        return not self.findings and self.log.verdict.conclusive and not self.log.verdict.succeeded


def noted(chain: Chain, steps: Sequence[Step], plans: Iterable[Plan]) -> list[Asked]:
    """The steps of a journal, each with the model of its plan if that is among `plans` and serves the lag.

    Lags are recomputed: those of a client that breaks its rules are a matter of `onoff.audit.transcript.conformance`.
    """
    models = planned(plans)

    def model(plan: str, lag: int) -> Model | None:
        if lag == 0:
            return Everything(chain.n)
        found = models.get(plan)
        return found if found is not None and found.plan.lag <= lag else None

    return [
        Asked(owed.lag, step.query, model(step.plan, owed.lag)) for step, owed in zip(steps, due(steps), strict=True)
    ]


def pick(found: Sequence[Sequence[Line]], expected: Sequence[Asked], name: str | None = None) -> Sequence[Line]:
    """The stream of this name; else the one that agrees best with what the client noted, the newest of them.

    If it noted nothing, its length decides.
    """

    def agreement(stream: Sequence[Line]) -> tuple[int, int]:
        same = sum(
            line.step < len(expected) and expected[line.step].query in (None, tuple(sorted(line.sources)))
            for line in stream
        )
        return same, -abs(len({line.step for line in stream}) - len(expected))

    if not found:
        raise OnoffError("there is no such client in this log")
    named = [stream for stream in found if name is not None and stream[0].stream == name]
    return named[0] if named else max(reversed(found), key=agreement)


def audit_stream(
    chain: Chain,
    stream: Sequence[Line],
    expected: Sequence[Asked],
    truth: Sequence[int] | None = None,
    false_alarms: float = 0.01,
    bar: Bar = quiet,
    seed: int = 1,
) -> Audit:
    """Audit the queries of a log. `expected` says the lag and the model of every step and, if known, its query.

    `seed` is of the strangers with whom the true requests are compared.
    """
    seen, findings = _seen(chain, stream)
    findings += [f"step {step} is in the log, but not known to the client" for step in seen if step >= len(expected)]
    steps = min(len(expected), max(seen) + 1)  # a query that was noted but not yet sent is no part of the log
    asked = tuple(replace(step, query=seen.get(t)) for t, step in enumerate(expected[:steps]))
    for t, (step, noted) in enumerate(zip(asked, expected, strict=False)):
        if noted.query is not None and step.query not in (None, noted.query):
            sets = (named(chain, one) for one in (step.query or (), noted.query))
            findings.append("step {}: the server saw {}, the client noted {}".format(t, *sets))
    if truth is not None:
        if len(truth) < steps:
            raise OnoffError(f"the truth has {len(truth)} requests, the stream {steps}")
        truth = tuple(truth[:steps])
    with bar(2 * steps * (1 if truth is None else 2)) as advance:

        def attacked(asked: tuple[Asked, ...]) -> Attack:
            beliefs = attack(chain, asked, advance=advance)
            rng = np.random.default_rng(seed)
            return Attack(asked, beliefs, judge(chain, asked, beliefs, truth, _rounding(asked), false_alarms, rng=rng))

        log = attacked(asked)
        naive = attacked(_naive(chain.n, asked, truth)) if truth is not None else None
    findings += [
        f"step {t}: no client of this kind sends {named(chain, asked[t].query or ())} there"
        for t in log.beliefs.impossible
    ]
    findings += [
        f"step {t}: with these queries {chain.names[x]!r} cannot have been asked for"
        for t, x in enumerate(truth or ())
        if log.beliefs.posterior[t, x] == 0
    ]
    return Audit(log, naive, truth, tuple(findings))


def _seen(chain: Chain, stream: Sequence[Line]) -> tuple[dict[int, Query], list[str]]:
    """The set of every step in the log; a step that was asked with two sets is a finding."""
    seen: dict[int, Query] = {}
    findings = []
    for line in stream:
        query = tuple(sorted(line.sources))
        if seen.setdefault(line.step, query) != query:
            both = f"for {named(chain, seen[line.step])} and for {named(chain, query)}"
            findings.append(f"step {line.step} was asked twice, {both}")
    return seen, findings


def _naive(n: int, asked: Sequence[Asked], truth: Sequence[int]) -> tuple[Asked, ...]:
    full = tuple(range(n))
    return tuple(
        Asked(step.lag, (int(x),) if step.lag else full, Naive(n)) for step, x in zip(asked, truth, strict=True)
    )


def _rounding(asked: Sequence[Asked]) -> float:
    """The sum of what the plans state for their steps."""
    stated: dict[tuple[str, int], float] = {}
    total = 0.0
    for step in asked:
        if step.lag and isinstance(step.model, Planned):
            key = step.model.name, step.lag
            if key not in stated:
                stated[key] = step.model.plan.rounding_at(step.lag)
            total += stated[key]
    return total
