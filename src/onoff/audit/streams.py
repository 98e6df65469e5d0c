"""Whole streams: what all queries of a client tell about what must stay hidden, at every step t.

Promise `both` hides X_B, the requests made ON up to t and all requests after t. The audit computes I(X_B; Q_1..Q_t); by
the Markov property the future counts only through X_{t+1}.

Promise `past` hides all requests before t, and K_t: the request X_t if it was made ON or is sensitive, else "open". The
audit computes I(X_1..X_{t-1}, K_t; Q_t | Q_1..Q_{t-1}). It looks at the state before step t only: given that state and
the queries before, neither X_t nor Q_t depends on earlier requests, so these tell no more. Nobody promises that the
queries *before* a hidden request tell nothing about it (`onoff.audit.people` measures that).

Enumeration. All streams are run in integers (`onoff.audit.enumeration`).

Bound. If streams are too many: if in every context of every step s the law of the query is within d_s of one fixed
law (total variation), the stream is within d = d_1 + ... + d_t of one whose queries are
independent of what is hidden, and tells h(d) + d log2 |hidden| bits at most, for d <= 1/2. With the promise `both`, d_s
is computed from all encoders of the lag. A client of `past` makes other laws after other queries, which are too many
then: `onoff audit log` checks those of a stream that it made. A client that promises nothing has no bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, cached_property, partial
from itertools import accumulate, product
from math import log2
from typing import TYPE_CHECKING

import numpy as np

from onoff.audit.clients import Client, ClientStep, TooLarge
from onoff.audit.enumeration import MISSING, ONE, After, Hidden, History, Keep, Label, Part, joint_law, walk
from onoff.audit.law import Finding, Law, check_encoder
from onoff.audit.rows import Walk
from onoff.errors import OnoffError
from onoff.model.bounds import up
from onoff.model.measures import information, total_variation
from onoff.model.misfit import Misfit, align, check, information_bound, refine, stream_misfit
from onoff.model.requests import start_law
from onoff.types import Floats, Progress, Query, silent

if TYPE_CHECKING:
    from onoff.model.chain import Chain

RARE = ONE >> 150  # of what is rarer the law is not looked at: units blur it
EXACT, BOUND = "exact", "bound"
MADE = "too many streams: take fewer steps or a smaller chain, or audit one that was made with `onoff audit log`"
LOST = Finding("query", "a request that happens is given no query")


@dataclass(frozen=True)
class Told:
    """One step of all streams; steps count from 1.

    `bits` is what the module says. Promise `both`: `distance` is the total variation of (X_B, Q_1..Q_t) from
    independence, `stated` the sum of the roundings that the client states up to t; 2 `stated` is the most that
    `distance` may be. Promise `past`: `distance` is the largest total variation between the law of Q_t given what is
    hidden and the queries before, and the law that is stated; the most that it may be is `stated`, the rounding of
    this step.
    """

    step: int
    private: bool
    bits: float
    distance: float | None = None
    stated: float | None = None


@dataclass(frozen=True)
class StreamAudit:
    """What the streams of a client tell, by `method`; `holds` is None for a client that promises nothing.

    `misfit` bounds the result if requests follow another chain.
    """

    client: str
    promise: str
    statuses: tuple[bool, ...]
    method: str
    steps: tuple[Told, ...]
    holds: bool | None
    findings: tuple[Finding, ...] = ()
    misfit: Misfit | None = None


def parse_statuses(text: str) -> tuple[bool, ...]:
    """`1001100`: 1 where privacy is ON."""
    if not text or set(text) - {"0", "1"}:
        raise OnoffError(f"the statuses are {text!r}: write 1 for ON and 0 for OFF, such as 1001100")
    return check_statuses([status == "1" for status in text])


def check_statuses(statuses: Sequence[bool], depth: int = 1) -> tuple[bool, ...]:
    """Statuses of a client, whose first requests are made ON, as many as its habits remember."""
    if len(statuses) < depth or not all(statuses[:depth]):
        first = "first request" if depth == 1 else f"first {depth} requests"
        raise OnoffError(f"a client makes its {first} ON: statuses start with {'1' * depth}, and are not empty")
    return tuple(map(bool, statuses))


def audit_streams(
    chain: Chain,
    statuses: Sequence[bool],
    client: Client,
    promise: str = "both",
    sensitive: Sequence[int] = (),
    *,
    true: Chain | None = None,
    progress: Progress = silent,
) -> StreamAudit:
    """Audit what all queries of a client tell about what must stay hidden, on streams of `chain`.

    Streams begin with the stationary law. With the chain `true` requests follow that one, and the client, made for
    `chain`, is held against the misfit bound. Raises `TooLarge` where nothing exact fits.
    """
    private, hidden = check_statuses(statuses, chain.depth), tuple(sorted(set(sensitive)))
    if promise not in ("both", "past"):
        raise OnoffError(f"there is no promise {promise!r}: choose both or past")
    if any(not 0 <= source < chain.n for source in hidden):
        raise OnoffError(f"a source is no number from 0 to {chain.n - 1}: {list(hidden)}")
    for plan in getattr(client, "plans", ()):
        if plan.chain != chain:
            raise OnoffError(f"the plan {plan.name!r} is for another chain: give plans for the chain that is audited")
        if plan.kind != "table":
            raise OnoffError("a race has no table to enumerate: choose another scheme; `onoff audit plan` draws races")
    follows = chain if true is None else align(true, chain)
    check(follows, chain)
    for each in (follows, chain) if promise == "both" else ():
        each.without_memory("the promise `both`")
    setting = _Setting(follows, chain, private, client, promise, hidden, start_law(follows))
    try:
        return _by_enumeration(setting)
    except TooLarge as error:
        if not client.promises or promise == "past":
            raise TooLarge(MADE if client.promises else str(error)) from None
    with progress(f"checking {client.name}")(len(private)) as advance:
        return _by_bound(setting, advance)


@dataclass(frozen=True)
class _Setting:
    """A client that is made for the chain `used`, with these statuses, on streams of `follows` that start like this."""

    follows: Chain
    used: Chain
    statuses: tuple[bool, ...]
    client: Client
    promise: str
    sensitive: tuple[int, ...]
    start: Floats

    @property
    def values(self) -> list[float]:
        """log2 of how many values there are of what is hidden, at every step; ON, `past` tells nothing of it."""
        if self.promise == "both":
            return [log2(self.used.n) * (1 + count) for count in accumulate(self.statuses)]
        return [log2(len(self.chain.states) * (len(self.sensitive) + 1))] * len(self.statuses)

    @cached_property
    def chain(self) -> Chain:
        """What requests follow, with the states of the client's chain beside its own."""
        return refine(self.follows, self.used)[0]

    @cached_property
    def known(self) -> list[int]:
        """The state of the client's chain in each state of `chain`."""
        return [self.used.state_of(state) for state in self.chain.states]

    def walk(self, keep: Keep, after: After) -> Iterator[list[Part]]:
        """All streams, step by step. They begin with one request."""
        start = np.pad(self.start, (0, len(self.chain.states) - len(self.start)))
        return walk(self.chain, self.known, self.client, start, len(self.statuses), keep, after)

    def steps(self) -> list[ClientStep]:
        """The steps of a client whose public state does not depend on queries."""
        steps: list[ClientStep] = []
        for private in self.statuses:
            steps.append(self.client.on() if private else self.client.off(steps[-1], ()))
        return steps

    def roundings(self) -> Iterator[float]:
        """The sum of the roundings that such a client states along a stream, for the chain as its floats say.

        Here every row is divided by its exact sum, 1 up to s: a walk of `lag` steps changes its weight by a factor
        within ((1 - s) / (1 + s))^lag, and a row by half of that at most.
        """
        slack = max(abs(1 - sum(map(Fraction, row), Fraction(0))) for row in self.chain.P.tolist())
        total = Fraction(0)
        for step in self.steps():
            total += Fraction(step.rounding) + (((1 + slack) / (1 - slack)) ** step.lag - 1) / 2
            yield up(total)


def _judge(setting: _Setting, method: str, steps: Sequence[Told], findings: Sequence[Finding] = ()) -> StreamAudit:
    """Compare the result with the client's statement, or with the misfit if requests follow another chain."""
    client, both, bounds = setting.client, setting.promise == "both", None
    if setting.follows is setting.used:
        factor = 2 if both and method == EXACT else 1
        limits = [(told.distance, factor * told.stated) for told in steps if told.stated is not None]
    else:
        known = setting.statuses, setting.start, [told.stated or 0.0 for told in steps], setting.values
        bounds = stream_misfit(setting.follows, setting.used, both, setting.sensitive, *known)
        limits = [(told.bits, most) for told, most in zip(steps, bounds.bits, strict=True) if method == EXACT]
        limits += [(told.distance, most) for told, most in zip(steps, bounds.allowed, strict=True) if method == EXACT]
        if method != EXACT:
            steps = [replace(told, bits=most) for told, most in zip(steps, bounds.bits, strict=True)]
    findings = tuple(dict.fromkeys((*getattr(client, "findings", ()), *findings)))
    holds = not findings and all(found is None or found <= most + MISSING for found, most in limits)
    found = StreamAudit(client.name, setting.promise, setting.statuses, method, tuple(steps), None, findings, bounds)
    return replace(found, holds=holds) if client.promises else found


# All streams, one by one


def _by_enumeration(setting: _Setting) -> StreamAudit:
    """Every step exactly. Raises `TooLarge` if there are too many streams."""
    both, statuses, client = setting.promise == "both", setting.statuses, setting.client
    steps: list[Told] = []
    findings: list[Finding] = []

    def keep(hidden: Hidden, state: int, private: bool) -> Hidden:
        """What is hidden from the next step on: X_B, or the state before it."""
        return ((*hidden, state) if private else hidden) if both else (state,)

    def after(step: ClientStep, query: Query, t: int) -> ClientStep:
        return client.on(step, query) if (*statuses, True)[t + 1] else client.off(step, query)

    stated = list(setting.roundings()) if both and client.promises else [None] * len(statuses)
    for t, parts in enumerate(setting.walk(keep, after)):
        if ONE - sum(sum(part.asked.values()) for part in parts) > MISSING * ONE:
            findings.append(LOST)
        told = Told(t + 1, statuses[t], 0.0, stated=stated[t])
        steps.append(_leak_by_stream(told, parts, keep) if both else _leak_by_query(told, parts, setting))
    return _judge(setting, EXACT, steps, findings)


def _leak_by_stream(told: Told, parts: Sequence[Part], keep: Keep) -> Told:
    """Promise `both`, from joint[queries; X_B]: a row for each stream of queries. The state is the request."""
    joint = joint_law(parts, lambda label, following: (keep(label[0], label[2], told.private), following))
    return replace(told, bits=information(joint), distance=float(total_variation(joint)))


def _leak_by_query(told: Told, parts: Sequence[Part], setting: _Setting) -> Told:
    """Promise `past`, from joint[query; hidden] after every past: the law of the query given what is hidden."""
    last = setting.chain.last.tolist()

    def secret(label: Label, following: int) -> object:  # noqa: ARG001
        """The state before the step, and K_t."""
        before, _, state = label
        return before, last[state] if told.private or last[state] in setting.sensitive else None

    bits, distance, by_past = 0.0, Fraction(0), dict[tuple[ClientStep, History], list[Part]]()
    for part in parts:
        by_past.setdefault((part.step, part.view), []).append(part)
    for (step, _), mine in by_past.items():
        joint = joint_law(mine, secret)
        shares = joint.sum(axis=0)
        bits += float(Fraction(shares.sum(), ONE)) * information(joint)
        if step.law is not None:
            masses, D = [step.law.masses[step.law.index[part.query]] for part in mine], step.law.denominator
            apart = np.abs(joint * D - np.array(masses, dtype=object)[:, None] * shares).sum(axis=0)
            apart += (D - sum(masses)) * shares  # of the sets that nobody asked for
            known = shares > RARE
            distance = max([distance, *map(Fraction, apart[known], 2 * D * shares[known])])
    if parts[0].step.law is None:
        return replace(told, bits=bits)
    return replace(told, bits=bits, distance=float(distance), stated=max(part.step.rounding for part in parts))


# The certified bound


def _by_bound(setting: _Setting, advance: Callable[[], None]) -> StreamAudit:
    """A certified upper bound at every t, from the encoders of every context of the lags that occur."""
    findings, total, told = list[Finding](), Fraction(0), []
    distance_of = cache(partial(_encoder_distance, setting.used))
    for t, (step, stated, values) in enumerate(zip(setting.steps(), setting.roundings(), setting.values, strict=True)):
        found = distance_of(step)
        findings += [found] if isinstance(found, Finding) else []
        total += 1 if isinstance(found, Finding) else found
        told.append(Told(t + 1, step.lag == 0, information_bound(total, values), float(total), stated))
        advance()
    return _judge(setting, BOUND, told, findings)


def _encoder_distance(chain: Chain, step: ClientStep) -> Fraction | Finding:
    """The most that the law of the query in a context is off from one law, or what is wrong with an encoder.

    The one law is what the first encoder sums to: a plan's own law, if the plan is one.
    """
    walk, worst, law = Walk(chain.P), Fraction(0), None
    for last, next in product(range(chain.n), repeat=2) if step.lag else ():
        weights = walk.weights(last, next, step.lag)
        if any(weights):
            units = step.encoder(last, next)
            if units is None:
                return LOST
            law = law or Law(step.sets, tuple(units.sum(axis=0).tolist()))
            found = check_encoder(law, units, weights, walk.error(step.lag), (step.lag, last, next))
            if isinstance(found, Finding):
                return found
            worst = max(worst, found)
    return worst
