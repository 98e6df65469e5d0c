"""What the rules of the client ask of every step, recomputed from requests and asked statuses alone.

A step asks for everything if it was asked ON, if it must announce the next request and has none (promise `both`), or
while no step has counted as ON. A new journal may repeat a request whose query already went out, so its first step does
not count, unless nothing was ever asked of the server before. The lag counts the steps since the last full set, and
`last` is the newest request that counted as ON: the context of the promise `both` is (last, next). A query names the
versions that are held of its members: they follow from earlier queries and answers alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from onoff.audit.files import Step
from onoff.audit.law import Finding, Law
from onoff.types import PlanName, Query

if TYPE_CHECKING:
    from onoff.model.chain import Chain


@dataclass(frozen=True)
class Due:
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
    if set(sensitive) - set(step.query):
        yield Finding("sensitive", "the set lacks a sensitive source", query=step.query)
    if step.request is not None and step.request not in step.query:
        yield Finding("wanted", f"wanted {names[step.request]!r}, which is not in the set", query=step.query)
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

    def check(self, step: Step, lag: int, law: Law | None) -> Finding | None:
        """Find what is wrong with the plan that an OFF step names, if anything."""
        name = PlanName.parse(step.plan)
        if name is None or not 0 < name.lag <= lag:
            return Finding("plan", f"used {step.plan!r} at lag {lag}, which it does not serve")
        cost = step.cost if law is None else law.cost
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
        self._held: dict[int, tuple[str, int]] | None = {}

    def rounds(self, query: Query) -> tuple[int, ...] | None:
        """The rounds that a query must name, 0 for none; None if an answer before it is not on record."""
        if self._held is None:
            return None
        return tuple(int(self._held[x][0].split()[0]) if x in self._held else 0 for x in query)

    def answer(self, step: Step) -> None:
        """Take in the answer of a step, if it has come."""
        if not step.finished:
            return
        if self._held is None or step.received is None or step.cache is None:
            self._held = None
            return
        known = {**self._held, **{source: (version, size) for source, version, size in step.received}}
        whole = {x: (version, size) for x, (version, size) in known.items() if version is not None}
        sizes = sorted((size + len(version), x) for x, (version, size) in whole.items())
        totals = accumulate(size for size, _ in sizes)
        self._held = {x: whole[x] for (_, x), total in zip(sizes, totals, strict=True) if total <= step.cache}
