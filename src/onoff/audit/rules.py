"""What the rules of the client ask of every step, recomputed from requests and asked statuses alone.

A step asks for everything if it was asked ON, if it must announce the next request and has none (promise `both`), or
while no step has counted as ON. A new journal may repeat a request whose query already went out, so its first step does
not count, unless nothing was ever asked of the server before. The lag counts the steps since the last full set, and
`last` is the newest request that counted as ON: the context of the promise `both` is (last, next). A query names the
versions that are held of its members: they follow from earlier queries and answers alone. The server must have seen
just that, in every sending, and nothing besides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

from onoff.audit.files import Line, Log, Step
from onoff.audit.law import Finding, Law, shown
from onoff.types import PlanName, Query

if TYPE_CHECKING:
    from onoff.model.chain import Chain


class Due(NamedTuple):
    """What the rules ask of a step."""

    lag: int  # 0 for a full set
    last: int | None  # the newest request before it that counted as ON
    counts: bool  # whether this step counts as ON


def due_steps(steps: Sequence[Step], announced: bool, full_sets: int) -> list[Due]:
    """Work out what was due at each step of a journal whose stream had to begin with this many full sets.

    With `announced` (promise `both`) a step without a next request asks for everything. A stream that begins with two
    full sets where one is enough is within the rules, and then its first one does not count.
    """
    begin = 2 if len(steps) < 2 or steps[1].private else full_sets
    found: list[Due] = []
    lag, last = 0, None
    for number, step in enumerate(steps):
        full = step.asked_private or (announced and step.next is None) or number < begin
        lag = 0 if full else lag + 1
        counts = full and number >= begin - 1
        found.append(Due(lag, last, counts))
        last = step.request if counts else last
    return found


def check_step(chain: Chain, step: Step, due: Due, before: Step | None, sensitive: Sequence[int]) -> Iterator[Finding]:
    """Find the rules that a step breaks whatever it was drawn from; `before` is the step before it."""
    names = chain.names
    if step.lag != due.lag or step.private != (due.lag == 0):
        made, must = ("with the full set" if lag == 0 else f"at lag {lag}" for lag in (step.lag, due.lag))
        yield Finding("status", f"made {made}; by the statuses it must be made {must}")
    if due.lag == 0 and len(step.query) < chain.n:
        yield Finding("full set", "must ask for everything", query=step.query)
    if due.lag == 0 and (step.numbers or step.digest is not None):
        yield Finding("draw", "a full set is not drawn, and takes no random numbers")
    if set(sensitive) - set(step.query):
        yield Finding("sensitive", "the set lacks a sensitive source", query=step.query)
    if step.request is not None and step.request not in step.query:
        yield Finding("wanted", f"wanted {names[step.request]!r}, which is not in the set", query=step.query)
    if before is not None and not before.finished:
        yield Finding("pending", f"drawn while step {before.step} was pending: what was drawn must be finished")
    if before is None or before.request is None or step.request is None:
        return
    if before.lag and before.next is not None and before.next != step.request:
        yield Finding("next", f"asked for {names[step.request]!r}; {names[before.next]!r} was announced before")
    if chain.P[before.request, step.request] == 0:
        pair = f"{names[step.request]!r} after {names[before.request]!r}"
        yield Finding("chain", f"asked for {pair}, which the chain calls impossible")


class PlanRule:
    """At a lag the plan only ever changes to a cheaper one: what is at hand gets better, whatever is asked.

    The cost of a table is that of its law. The cost of a race is what the journal notes, and races count with more than
    that, so no plan is called dearer than a race.
    """

    def __init__(self) -> None:
        self._used: dict[str, tuple[int, float, int]] = {}  # lag, cost, first step
        self._at: dict[int, list[str]] = {}  # the plans of a lag, in the order of their first use

    def check(self, step: Step, lag: int, law: Law | None) -> Finding | None:
        """Find what is wrong with the plan that an OFF step names, if anything."""
        name = PlanName.parse(step.plan)
        if name is None or not 0 < name.lag <= lag:
            return Finding("plan", f"used {step.plan!r} at lag {lag}, which it does not serve")
        plans = self._at.setdefault(lag, [])
        if step.plan in plans[:-1]:
            return Finding("plan", f"went back to {step.plan!r} at lag {lag}; {plans[-1]!r} had taken its place")
        if step.plan not in plans:
            plans.append(step.plan)
        cost = step.cost if law is None else float(law.cost)
        for other, (its_lag, its_cost, first) in self._used.items():
            if its_lag <= lag and its_cost < cost * (1 - 1e-9) and other != step.plan:
                better = f"step {first} used {other!r}, which serves this lag and costs {its_cost:.6g}"
                why = "were plans deleted or moved? If not, the plan may have been chosen by the request"
                return Finding("dearer", f"used {step.plan!r}, which costs {cost:.6g}; {better}; {why}")
        if law is not None:
            self._used.setdefault(step.plan, (name.lag, cost, step.step))
        return None


class Held:
    """What the client holds of earlier answers, worked out from `received`: by source the version and its size.

    Every member that arrived whole replaces what was held of its source. Then, in the order of size and of equal ones
    in that of their numbers, members stay held while the limit has room.
    """

    def __init__(self) -> None:
        self._held: dict[int, tuple[str, int]] = {}

    def rounds(self, query: Query) -> tuple[int, ...]:
        """The rounds that a query must name, 0 for none."""
        return tuple(_round(self._held[x][0]) if x in self._held else 0 for x in query)

    def answer(self, step: Step) -> None:
        """Take in the answer of a step, if it has come."""
        if step.received is None or step.cache is None:
            return
        known = {**self._held, **{source: (version, size) for source, version, size in step.received}}
        whole = {x: (version, size) for x, (version, size) in known.items() if version is not None}
        sizes = sorted((size + len(version), x) for x, (version, size) in whole.items())
        totals = accumulate(size for size, _ in sizes)
        self._held = {x: whole[x] for (_, x), total in zip(sizes, totals, strict=True) if total <= step.cache}


def _round(version: str) -> int:
    """The round in a version "ROUND TAG" of our server. That of another server is no number, and no query names it."""
    number = version.partition(" ")[0]
    return int(number) if number.isdecimal() else -1


class Seen:
    """The lines of one stream in the server's log, against its journal."""

    def __init__(self, log: Log, stream: str, part: bool) -> None:
        self._place = {source: i for i, source in enumerate(log.order)}
        self._own = own = [line for line in log.lines if line.stream == stream]
        self._client = [line for line in log.lines if line.client == own[0].client]
        self._back = [after for before, after in pairwise(own) if after.step < before.step]
        self._lines: dict[int, list[Line]] = {}
        for line in own:
            self._lines.setdefault(line.step, []).append(line)
        self._steps = range(min(self._lines), max(self._lines) + 1) if part else None  # those that must be there
        # With how many the stream must begin: with two if something was asked before.
        self.full_sets = 1 if self._client[0] is own[0] else 2

    def check(self, step: Step, held: Held) -> Iterator[Finding]:
        """One step: every sending has the set in the server's order and the versions that are held, and is counted."""
        lines = self._lines.get(step.step, [])
        if not lines and step.finished and (self._steps is None or step.step in self._steps):
            yield Finding("log", "the step is in the journal and not in the log")
        order = tuple(sorted(step.query, key=self._place.__getitem__))
        due = held.rounds(order)
        for line in lines:
            if line.sources != order:
                what = "another order" if sorted(line.sources) == list(step.query) else shown(line.sources)
                yield Finding("log", f"the server saw {what} (line {line.number}); the journal has {shown(order)}")
            elif line.held != due:
                yield Finding("versions", f"names the rounds {line.held} (line {line.number}); {due} are held")
        if len(lines) > step.attempts:
            yield Finding("log", f"came {len(lines)} times; the journal counts {step.attempts}")

    def extra(self, steps: int) -> Iterator[Finding]:
        """What no step of the journal explains."""
        for line in self._back:
            yield Finding("log", f"came again after a later step (line {line.number})", line.step)
        for step, lines in self._lines.items():
            if step >= steps:
                yield Finding("log", f"was sent (line {lines[0].number}) and is not in the journal", step)

    def others(self, known: set[str], n: int, sensitive: Sequence[int]) -> Iterator[Finding]:
        """Streams that no honest journal can have sent, beside those whose journals are `known`.

        Other readers may ask the server. But from the address of this stream, once that has begun, only a new journal
        is in order: it begins at step 0 with two full sets, goes on step by step with one set for each, does not take
        turns with this stream, and always asks for the sensitive sources.
        """
        streams: dict[str, list[Line]] = {}
        for line in self._client:
            streams.setdefault(line.stream, []).append(line)
        for stream, lines in streams.items():
            fault = None if stream in known else _fault(lines, self._own, n, set(sensitive))
            if fault is not None and lines[-1].number > self._own[0].number:
                where = f"queries of another stream from this address, up to line {lines[-1].number}"
                yield Finding("other stream", f"{where}: {fault}")


def _fault(other: Sequence[Line], stream: Sequence[Line], n: int, sensitive: set[int]) -> str | None:
    """Why no new journal can have sent a stream."""
    if other[0].step or any(len(line.sources) < n for line in other if line.step < 2):
        return "a new journal begins at step 0 with two full sets"
    for before, line in pairwise(other):
        repeated = line.step == before.step and (line.sources, line.held) == (before.sources, before.held)
        if not repeated and line.step != before.step + 1:
            return f"step {line.step} does not follow step {before.step} so"
    if any(other[0].number < line.number < other[-1].number for line in stream):
        return "they take turns with this stream"
    return "they lack sensitive sources" if any(sensitive - set(line.sources) for line in other) else None
