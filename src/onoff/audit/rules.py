"""The duties of every step by the rules of the client, from requests and asked statuses alone.

A step asks for everything if it was asked ON, because of the habits (`onoff.audit.habits`), for five minutes after a
step with a failed member, and at the beginning of a journal. With `past` as many requests as the habits remember
determine the reader's state: so many full sets are due at the beginning, and wherever a request may be missing (the
plan `ANEW`). With `both` a step that has no next request to announce asks for everything, too. There a new journal may
repeat a request whose query already went out, so its first step does not count as ON, unless nothing was ever asked of
the server before. The lag counts the steps since the last full set, and `last` is the newest request that counted as
ON: the context of the promise `both` is (last, next). A query names the versions that are held of its members: they
follow from earlier queries and answers alone. The server must have seen just that, in every sending, and nothing
besides.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

from onoff.audit.files import Line, Step
from onoff.audit.habits import ANEW
from onoff.audit.law import UNCHECKED, Finding, Law
from onoff.types import PlanName, Query

if TYPE_CHECKING:
    from onoff.audit.habits import Recorded, Served

FAILING = 300.0  # seconds after the newest step with a failed member, for which every step asks for everything
ERASED = Finding(UNCHECKED, "its request or its numbers were erased")
OUTSIDE = Finding(UNCHECKED, "the log begins after it or ends before it")


class Due(NamedTuple):
    """The duties of one step."""

    lag: int  # 0 for a full set
    last: int | None  # the newest request before it that counted as ON


def due_steps(steps: Sequence[Step], both: bool, served: Sequence[Served], begun: bool = False) -> list[Due]:
    """Work out what was due at each step of a journal, of the promise `both` or another one.

    `served` says what serves each step. If the client had `begun` another stream before, one of `both` has to begin
    with one full set more. It may do so in any case, and then its first step does not count. If a step was
    erased, we assume that it announced a next request.
    """
    begin = 1 + begun if both else served[0].chain.depth
    begin += both and all(not step.lag for step in steps[: begin + 1])
    found: list[Due] = []
    lag, last, failure, before = 0, None, -math.inf, 0.0
    for number, (step, now) in enumerate(zip(steps, served, strict=True)):
        begin = number + now.chain.depth if step.plan == ANEW else begin
        without_next = both and step.next is None and (step.request is not None or not step.lag)
        due = now.due or number < begin or _failing(failure, before, step)
        full = step.asked_private or without_next or due
        lag = 0 if full else lag + 1
        found.append(Due(lag, last))
        last = step.request if full and number >= begin - 1 else last
        before = step.ended or before
        failure = before if step.failed else failure
    return found


def _failing(failure: float, begun: float, step: Step) -> bool:
    """Whether a step drawn after `begun` is near a failure. If the times leave that open, we believe the step."""
    ended, early, late = step.ended or math.inf, failure - FAILING, failure + FAILING
    possible = early < max(begun, ended) and min(begun, ended) < late  # a clock may be set back
    return early < begun <= ended < late or (possible and not step.lag)


def check_step(
    chain: Recorded, names: Sequence[str], step: Step, due: Due, before: Sequence[Step]
) -> Iterator[Finding]:
    """Find the rules that a step breaks whatever it was drawn from; `before` are the last steps before it."""
    if step.lag != due.lag:
        made, must = ("with the full set" if lag == 0 else f"at lag {lag}" for lag in (step.lag, due.lag))
        yield Finding("status", f"made {made}; by the statuses it must be made {must}")
    if due.lag == 0 and len({*step.query, *step.spared}) < len(names):
        yield Finding("full set", "asks for this set, and must ask for everything that is not fresh", query=step.query)
    if before and before[-1].received is None:
        yield Finding("pending", f"drawn while step {before[-1].step} was pending: what was drawn must be finished")
    if step.request is None and not step.asked_private:
        yield ERASED
    if step.request is None or not before:
        return
    if before[-1].lag and before[-1].next not in (None, step.request):
        announced = names[before[-1].next]
        yield Finding("next", f"asked for {names[step.request]!r}; {announced!r} was announced before")
    state = chain.known_state([one.request for one in before])
    if due.lag and state is not None and not chain.P[state, step.request]:
        told = " -> ".join(repr(names[one.request]) for one in before[-chain.depth :] if one.request is not None)
        yield Finding("chain", f"asked for {names[step.request]!r} after {told}, which the chain calls impossible")


class PlanRule:
    """At a lag the plan only ever changes to a cheaper one: plans get better, whatever is asked.

    The cost of a table is that of its law. The cost of a race is what the journal notes, and races count with more than
    that, so no plan is called dearer than a race.
    """

    def __init__(self) -> None:
        self._costs: dict[PlanName, float] = {}  # of tables
        self._at: dict[int, list[str]] = {}  # the plans of a lag, in the order of their first use

    def check(self, step: Step, name: PlanName, lag: int, law: Law | None) -> Iterator[Finding]:
        """Find what is wrong with the choice of the plan that an OFF step names."""
        plans = self._at.setdefault(lag, [])
        if step.plan in plans[:-1]:
            yield Finding("plan", f"went back to {step.plan!r} at lag {lag}; {plans[-1]!r} had taken its place")
        plans += [step.plan] if step.plan not in plans else []
        cost = step.cost if law is None else float(law.cost)
        for other, its_cost in self._costs.items():
            if other.lag <= lag and its_cost < cost * (1 - 1e-9):
                yield Finding("dearer", f"used {step.plan!r}; '{other}' was at hand, and costs {its_cost:.6g}")
        self._costs |= {} if law is None else {name: cost}


class Held:
    """The messages that the client holds, worked out from `received`: sizes and versions, and when they are fresh."""

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}
        self._versions: dict[int, str] = {}
        self._fresh: dict[int, tuple[float, float]] = {}

    def rounds(self, query: Query) -> tuple[int, ...]:
        """The rounds that a query must name, 0 for none. A version of our server is "ROUND TAG"; none has others."""
        versions = [self._versions.get(x, "0").partition(" ")[0] for x in query]
        return tuple(int(version) if version.isdecimal() else -1 for version in versions)

    def fresh(self, moment: float) -> Query:
        """The sources whose messages count as the newest at this moment."""
        return tuple(sorted(x for x, (begin, end) in self._fresh.items() if begin <= moment < end))

    def check(self, step: Step, spares: bool) -> Iterator[Finding]:
        """Check that a step has left out what was fresh when it began; nothing, if it does not spare that."""
        fresh = self.fresh(step.began) if spares else ()
        if step.spared != fresh or not set(fresh).isdisjoint(step.query):
            yield Finding("fresh", f"left out the sources {step.spared}; {fresh} were fresh", query=step.query)

    def answer(self, step: Step) -> None:
        """Take in the answer of a step: members that arrived replace what was held of them.

        Then members with a version, or that are fresh, stay while the limit has room: the smallest first, of equal ones
        the first number. What does not stay is not fresh either, should the clock be set back.
        """
        for source, version, size in step.received or ():
            self._sizes[source] = size + len(version or "")
            self._versions.pop(source, None)
            self._versions |= {} if version is None else {source: version}
        self._fresh |= {source: (step.began, until) for source, until in zip(step.query, step.until, strict=False)}
        now_fresh = self.fresh(step.ended or step.began)
        sizes = sorted((self._sizes.get(x, 0), x) for x in {*self._versions, *now_fresh})
        totals = accumulate(size for size, _ in sizes)
        stay = {x for (_, x), total in zip(sizes, totals, strict=True) if step.cache is None or total <= step.cache}
        self._versions = {x: version for x, version in self._versions.items() if x in stay}
        self._fresh = {x: times for x, times in self._fresh.items() if x in stay}


class Seen:
    """The lines of one stream in the server's log, against its journal."""

    def __init__(self, own: Sequence[Line]) -> None:
        self._own, self._lines = own, dict[int, list[Line]]()
        for line in own:
            self._lines.setdefault(line.step, []).append(line)

    def check(self, step: Step, held: Held) -> Iterator[Finding]:
        """Check one step: every sending is counted, and has the set in the server's order and the held versions."""
        if not step.query:  # it was silent
            return
        lines, due = self._lines.get(step.sent, []), held.rounds(step.query)
        if not lines and step.received is not None:
            inside = min(self._lines) < step.sent < max(self._lines)
            yield Finding("log", "the step is in the journal and not in the log") if inside else OUTSIDE
        for line in lines:
            if line.query != step.query or not line.ordered:
                what = "it in another order" if line.query == step.query else "another one"
                message = f"the journal has this set, and the server saw {what} (line {line.number})"
                yield Finding("log", message, query=step.query)
            elif line.held != due:
                yield Finding("versions", f"names the rounds {line.held} (line {line.number}); {due} are held")
        if len(lines) > step.attempts:
            yield Finding("log", f"came {len(lines)} times; the journal counts {step.attempts}")

    def extra(self, steps: int) -> Iterator[Finding]:
        """What the journal, which has sent so many steps, does not explain."""
        for before, line in pairwise(self._own):
            if line.step < before.step:
                yield Finding("log", f"came again after a later step (line {line.number})", line.step)
        for step, lines in self._lines.items():
            if step >= steps:
                yield Finding("log", f"was sent (line {lines[0].number}) and is not in the journal", step)
