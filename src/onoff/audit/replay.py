"""Every step of a journal made again: law, rules, draw, log, numbers.

    law      the encoder in the context of the step keeps the promise (`law`) for the referee's own rows (`rows`)
    rules    status, lag, context, announced request, plan and versions follow from requests and statuses (`rules`)
    draw     the number lies below the bound, the bound is the total of the request's row, and the set is the one in
             whose part of the row the number lies; the clocks of a race are run again (`races`)
    log      the server saw this set, in its order, with these versions, in every sending, and no step besides (`seen`)
    numbers  no number comes twice, and they look uniform (`numbers`): the only check with an error rate

The journal's requests and numbers are believed. A client that forges both alike, so that they explain its queries, is
not found; whoever can forge numbers can forge requests, which every audit believes. A step that cannot be made again,
because its law, its plan, its numbers or its request are missing, is *not checked*, which is not a finding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from onoff.audit.files import Journal, LawLine, Log, Step
from onoff.audit.law import COARSE, Finding, Law, check_encoder, check_law, law_digest
from onoff.audit.races import COMPARED, Race
from onoff.audit.rows import Pasts, Walk, home
from onoff.audit.rules import Due, Held, PlanRule, check_step, due_steps
from onoff.audit.seen import Seen, shown
from onoff.errors import OnoffError
from onoff.types import Advance, PlanName, Query, Units

if TYPE_CHECKING:
    from onoff.model.chain import Chain

REMADE = "its law, made again by the installed code, is not the one that the journal notes"
ERASED = "its requests or its numbers were erased"


@dataclass
class Replay:
    """What a replay found."""

    findings: list[Finding] = field(default_factory=list)
    unchecked: dict[int, str] = field(default_factory=dict)  # steps that could not be made again, with the reason
    drawn: int = 0  # OFF steps that were made again
    rounding: float = 0.0  # the sum of the total variations of their laws

    def note(self, step: Step, *findings: Finding | None) -> None:
        """Add what is wrong at a step."""
        self.findings += [replace(finding, step=step.step) for finding in findings if finding is not None]


def replay(
    chain: Chain,
    journal: Journal,
    log: Log,
    plans: Mapping[str, Any],
    laws: Iterable[LawLine],
    *,
    remade: bool = False,
    part: bool = False,
    advance: Advance = lambda: None,
) -> Replay:
    """Make every step of a journal again, and compare it with the server's log.

    `plans` are the client's by their names, with `sets`, `masses` and `encoder(last, next, lag).toarray()`. `laws` are
    those of the OFF steps of the promise `past`, in their order: recorded by the client or, if `remade`, made again by
    its code. In a `part` of a log steps before its first and after its last are not missed.
    """
    found, held, before = Replay(), Held(), None
    seen = Seen(log, journal.stream, part)
    both = journal.promise == "both"
    draws = _Both(chain, plans, found) if both else _Past(chain, journal.sensitive, iter(laws), remade, found)
    for step, due in zip(journal.steps, due_steps(journal.steps, both, seen.full_sets), strict=True):
        found.note(step, *check_step(chain, step, due, before, journal.sensitive))
        if due.lag == 0 and (step.numbers or step.digest is not None):
            found.note(step, Finding("draw", "a full set is not drawn, and takes no random numbers"))
        draws.check(step, due)
        found.note(step, *seen.check(step, held.rounds(step.query)))
        held.answer(step)
        before = step
        advance()
    found.findings += seen.extra(len(journal.steps))
    return found


def check_draw(step: Step, row: Units, law: Law) -> Finding | None:
    """Draw again: row[i] are the units of the request on sets[i], and the number says in whose part it lies."""
    numbers, total = step.numbers or (), int(row.sum())
    if len(numbers) != 1:
        return Finding("draw", f"a draw takes one random number below {total}; {len(numbers)} are noted")
    bound, number = numbers[0]
    if bound != total or not 0 <= number < bound:
        return Finding("draw", f"the number {number} below {bound} was drawn; one below {total} was due")
    due = law.sets[int(np.searchsorted(np.cumsum(row), number, side="right"))]
    message = f"the number {number} of {total} lies in the part of {shown(due)}; {shown(step.query)} was asked for"
    return None if due == step.query else Finding("draw", message, query=due)


class _Both:
    """Draws of the promise `both`: from plans, in the context (last, next)."""

    def __init__(self, chain: Chain, plans: Mapping[str, Any], found: Replay) -> None:
        self._chain, self._plans, self._found = chain, plans, found
        self._law = cache(lambda name: Law(plans[name].sets, plans[name].masses))
        self._race = cache(lambda lag: Race(chain, lag))
        self._fault = cache(lambda name: check_law(self._law(name), chain.n))
        self._walk, self._rule = Walk(chain), PlanRule()

    def check(self, step: Step, due: Due) -> None:
        if due.lag == 0:
            return
        name, plan = PlanName.parse(step.plan), self._plans.get(step.plan)
        raced = name is not None and name.scheme == "race"
        law = None if plan is None or raced else self._law(step.plan)
        wrong = self._rule.check(step, due.lag, law)
        self._found.note(step, wrong)
        if name is None or (wrong is not None and wrong.rule == "plan"):
            return
        if step.request is None or step.next is None or due.last is None or step.numbers is None:
            self._found.unchecked[step.step] = ERASED
        elif raced:
            self._raced(step, self._race(name.lag).expected(step.request, due.last, step.next, due.lag, step.numbers))
        elif law is None:
            self._found.unchecked[step.step] = f"the plan {step.plan!r} is not at hand"
        else:
            self._drawn(step, step.request, (due.lag, due.last, step.next), plan, law)

    def _drawn(self, step: Step, request: int, context: tuple[int, int, int], plan: Any, law: Law) -> None:
        (lag, last, next), found = context, self._found
        try:
            units = np.asarray(plan.encoder(last, next, lag).toarray()).astype(np.int64, casting="safe")
        except (OnoffError, TypeError) as error:
            found.note(step, Finding("law", f"the plan has no encoder here: {error}", context=context))
            return
        weights = self._walk.weights(last, next, lag)
        if law_digest(law, {last * self._chain.n + next: units}) != step.digest:
            # Another machine may round otherwise, but the total of the request's row is D p(x | u) up to the rounding.
            bound, share = (step.numbers or ((0, 0),))[0][0], Fraction(weights[request], sum(weights))
            if abs(Fraction(bound, law.denominator) - share) <= COARSE:
                found.unchecked[step.step] = REMADE
            else:
                due = f"{float(share):.6g} of {law.denominator} units are the request's in this context"
                found.note(step, Finding("draw", f"a number below {bound} was drawn; {due}", context=context))
            return
        off = self._fault(step.plan) or check_encoder(law, units, weights, context)
        if isinstance(off, Finding):
            found.note(step, off)
            return
        off += self._walk.error(lag)
        if off > COARSE:
            message = f"the law is off by {float(off):.1e} in total variation; {float(COARSE):.1e} is allowed"
            found.note(step, Finding("rows", message, context=context, amount=float(off)))
        found.rounding += float(off)
        found.drawn += 1
        found.note(step, check_draw(step, units[request], law))

    def _raced(self, step: Step, due: str | tuple[Query, Query]) -> None:
        if isinstance(due, str):
            self._found.note(step, Finding("draw", due))
            return
        must, may, query = *map(set, due), set(step.query)
        if must <= query and not query <= may and self._chain.n > COMPARED:
            self._found.unchecked[step.step] = "a race of many sources may include some that it did not compare"
            return
        self._found.drawn += 1
        if not must <= query <= may:
            message = f"the clocks give {shown(due[0])}; {shown(step.query)} was asked for"
            self._found.note(step, Finding("draw", message, query=due[0]))


class _Past:
    """Draws of the promise `past`: from the law of each step, in the context of the last hidden request."""

    def __init__(self, chain: Chain, sensitive: Query, laws: Iterator[LawLine], remade: bool, found: Replay) -> None:
        self._chain, self._sensitive, self._laws, self._remade, self._found = chain, sensitive, laws, remade, found
        self._line = LawLine(-1, Law((), ()), {}, (), ())
        self._pasts: Pasts | None = None  # None: not known, before a step has counted as ON or after a missing law
        self._origin: int | None = None  # of the reader, as in `rows.Past`; None: not known

    def check(self, step: Step, due: Due) -> None:
        if due.lag == 0:
            self._pasts = Pasts(self._chain, self._sensitive) if due.counts else None
            self._origin = None if step.request is None else -1 - step.request
            return
        while self._line.step < step.step:
            self._line = next(self._laws, replace(self._line, step=2**63))
        line = self._line
        if line.step > step.step:
            self._lose(step, "its law is not on record")
            return
        context = None if self._origin is None else home(self._origin, line.place, line.joined)
        if self._check_law(step, line):
            self._check_draw(step, context, line)
        if step.request in self._sensitive:
            context = -1 - step.request
        self._origin = None if step.request is None and self._sensitive else context

    def _lose(self, step: Step, reason: str) -> bool:
        """Leave a step unchecked, and with it those up to the next ON step."""
        self._found.unchecked[step.step], self._pasts = reason, None
        return False

    def _check_law(self, step: Step, line: LawLine) -> bool:
        """Check the law of a step for all readers, and move their rows on by its set; whether the law is in order."""
        law, tables, found = line.law, line.encoders, self._found
        if law_digest(law, tables) != step.digest:
            if self._remade:
                return self._lose(step, REMADE)
            found.note(step, Finding("record", "the law on record is not the one that the journal notes"))
        if line.others:
            found.note(step, Finding("record", "different laws were recorded for it"))
        if (wrong := check_law(law, self._chain.n, self._sensitive)) is not None:
            found.note(step, wrong)
            return self._lose(step, "its law is wrong")
        if self._pasts is None:
            return self._lose(step, "what may have been asked before is not known: an earlier law is missing")
        homes = self._pasts.homes(line.place, line.joined)
        faults, rounding = self._pasts.check(law, tables, homes)
        found.note(step, *faults)
        found.rounding += float(rounding)
        if step.query not in law.index:
            found.note(step, Finding("draw", "the set is not one of the law", query=step.query))
        if step.query in law.index and {context for _, context in homes} <= tables.keys():
            self._pasts.move(law.index[step.query], tables, homes)
        else:
            self._pasts = None
        return True

    def _check_draw(self, step: Step, context: int | None, line: LawLine) -> None:
        if step.request is None or step.numbers is None or context is None:
            self._found.unchecked[step.step] = ERASED
        elif step.request not in self._sensitive and context not in line.encoders:
            self._found.note(step, Finding("context", f"the reader's context {context} has no encoder"))
        else:
            row = line.law.units if step.request in self._sensitive else line.encoders[context][step.request]
            self._found.drawn += 1
            self._found.note(step, check_draw(step, row, line.law))
