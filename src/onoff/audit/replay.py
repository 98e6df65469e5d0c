"""Replay of every step of a journal: law, rules, draw, log.

    law      the encoder in the context of the step keeps the promise (`law`) for the referee's own rows (`rows`)
    rules    status, lag, context, announced request, plan and versions follow from requests and statuses (`rules`)
    draw     the number lies below the bound, the bound is the total of the request's row, and the set is the one in
             whose part of the row the number lies; the clocks of a race are run again (`races`)
    log      the server saw this set, in its order, with these versions, in every sending, and no step besides (`rules`)

The journal's requests and numbers are believed. A client that forges both alike, so that they explain its queries, is
not found; whoever can forge numbers can forge requests, which every audit believes. That numbers are random is
believed, too (`numbers` looks for signs that they are not). A step without its law, plan, numbers or request cannot be
made again: it is *not checked*, which is not a finding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache, lru_cache
from typing import TYPE_CHECKING

import numpy as np

from onoff.audit.files import Journal, Line, Step
from onoff.audit.habits import Recorded, Served, serve
from onoff.audit.law import COARSE, UNCHECKED, Finding, Law, LawLine, Pairs, check_encoder, check_law
from onoff.audit.races import Race
from onoff.audit.rows import Pasts, Walk, home
from onoff.audit.rules import ANEW, ERASED, Due, Held, PlanRule, Seen, check_step, due_steps
from onoff.types import PlanName, Query, Units

if TYPE_CHECKING:
    from onoff.model.chain import Chain

MISSING = Finding(UNCHECKED, "its law is not on record, nor made again by the installed code as the journal notes")
EARLIER = Finding(UNCHECKED, "what may have been asked before is not known: an earlier law is missing")
Drawn = tuple[Units, Law] | None  # the units of the request on the sets of a law; None if it is not known


@dataclass
class Replay:
    """What a replay found; findings of the rule UNCHECKED say what could not be made again, and why.

    `drawn` OFF steps were made again; `rounding` is the sum of the total variations of their laws.
    """

    findings: list[Finding] = field(default_factory=list)
    drawn: int = 0
    rounding: float = 0.0


def replay(
    chain: Chain,
    journal: Journal,
    lines: Sequence[Line],
    laws: Iterable[LawLine],
    begun: bool = False,
    watch: Callable[[Step, Drawn], None] = lambda step, drawn: None,
) -> Replay:
    """Make every step of a journal again, and compare it with the lines of its stream in the server's log.

    `laws` are the laws of the OFF steps, in order. If the client had `begun` another stream before, this one had to
    begin with one full set more. `replay` calls `watch` after each step, with its law if the draw was right.
    """
    found, steps, held, seen = Replay(), journal.steps, Held(), Seen(lines)
    served, found.findings = serve(chain, journal)
    draws = _Draws(chain, journal, iter(laws), found)
    dues = due_steps(steps, journal.promise == "both", chain.depth + begun, served)
    for t, (step, due, now, then) in enumerate(zip(steps, dues, served, served[1:], strict=False)):
        wrong = [
            *check_step(now.chain, chain.names, step, due, steps[max(0, t - now.chain.depth) : t]),
            *seen.check(step, held),
            *draws.check(step, due, then),
        ]
        found.findings += [replace(finding, step=step.step) for finding in wrong]
        held.answer(step)
        watch(step, draws.drawn)
    found.findings += seen.extra(len(steps))
    return found


def check_draw(query: Query, numbers: Pairs, row: Units, law: Law) -> Iterator[Finding]:
    """Draw again: row[i] are the units of the request on sets[i], and the number says in whose part it lies."""
    total = int(row.sum())
    bound, number = numbers[0] if len(numbers) == 1 else (0, 0)
    if bound != total or not 0 <= number < bound:
        yield Finding("draw", f"a draw takes one random number below {total}, and another list of numbers is noted")
    elif (due := law.sets[int(np.searchsorted(np.cumsum(row), number, side="right"))]) != query:
        message = f"the number {number} of {total} lies in the part of this set, and another one was asked for"
        yield Finding("draw", message, query=due)


class _Draws:
    """The draws of all OFF steps; `laws` are what they were drawn from, in the order of the steps."""

    def __init__(self, chain: Chain, journal: Journal, laws: Iterator[LawLine], found: Replay) -> None:
        self._chain, self._sensitive, self._both = chain, journal.sensitive, journal.promise == "both"
        self._laws, self._line, self._found = laws, next(laws, None), found
        self._walk, self._rule, self._race = Walk(chain.P), PlanRule(), cache(lambda lag: Race(chain.P, lag))
        self._fault = lru_cache(64)(lambda law: check_law(law, chain.n, journal.sensitive))
        self._pasts: Pasts | None = None  # None: not known, before a step has counted as ON or after a missing law
        self._full_sets = 0  # since readers were not known
        self._requests: list[int | None] = []
        self._origin: int | None = None  # of the reader, as in `rows.Pasts`; None: not known
        self.drawn: Drawn = None

    def check(self, step: Step, due: Due, then: Served) -> Iterator[Finding]:
        """Check what an OFF step was drawn from, and the draw. `then` is what serves the step after it."""
        self.drawn = None
        while self._line is not None and self._line.step < step.step:
            self._line = next(self._laws, None)
        line = self._line if self._line is not None and self._line.step == step.step else None
        if step.plan == ANEW:
            self._pasts, self._full_sets, self._requests = None, 0, []
        self._requests = [*self._requests, step.request][-then.chain.depth :]
        if due.lag == 0:
            self._ask_for_all(due, then)
        elif self._both:
            yield from self._check_both(step, due, line)
        else:
            pasts, self._pasts, self._full_sets = self._pasts, None, 0
            yield from [MISSING] if line is None else self._check_past(step, line, pasts, then.chain)
            if then.changed and self._pasts is not None:
                self._pasts.chain = then.chain

    def _ask_for_all(self, due: Due, then: Served) -> None:
        """Move readers by any request; after as many full sets as the memory is deep, requests tell the state."""
        chain, pasts, self._pasts, self._full_sets = then.chain, self._pasts, None, self._full_sets + 1
        states = np.arange(len(chain.P)) if pasts is None else pasts.states
        for _ in range(chain.depth if pasts is None else 1):
            states = np.unique(chain.step[states])
        if due.counts and not then.due and (pasts is not None or self._full_sets >= chain.depth):
            self._pasts = Pasts(chain, self._sensitive, states)
        self._origin = self._hidden(chain)

    def _hidden(self, chain: Recorded) -> int | None:
        """The origin of the reader after a request that is hidden."""
        state = chain.known_state(self._requests)
        return None if state is None else -1 - state

    def _check_both(self, step: Step, due: Due, line: LawLine | None) -> Iterator[Finding]:
        """Check a step of `both`, drawn from a plan in the context (last, next)."""
        name, last, next = PlanName.parse(step.plan), due.last, step.next
        if name is None or not 0 < name.lag <= due.lag:
            yield Finding("plan", f"used {step.plan!r} at lag {due.lag}, which it does not serve")
            return
        yield from self._rule.check(step, name, due.lag, None if line is None else line.law)
        if step.request is None or next is None or last is None or step.numbers is None:
            yield ERASED
        elif name.scheme == "race":
            off = self._race(name.lag).check(step.query, step.numbers, step.request, (due.lag, last, next))
            self._found.drawn += off is None or off.rule == "draw"
            yield from filter(None, [off])
        elif line is None:
            yield Finding(UNCHECKED, f"the plan {step.plan!r} is not at hand")
        else:
            weights, context = self._walk.weights(last, next, due.lag), last * self._chain.n + next
            if context in line.encoders:
                rows = self._check_context(line, weights, (due.lag, last, next))
                yield from self._check_line(step, line, context, rows)
                return
            # Another machine may round otherwise, but the total of the request's row is D p(x | u) up to the rounding.
            share = Fraction(weights[step.request], sum(weights))
            near = [bound for bound, _ in step.numbers if abs(Fraction(bound, line.law.denominator) - share) <= COARSE]
            other = f"the number has another bound; the request's share of units is {float(share):.6g}"
            yield MISSING if near else Finding("draw", other)

    def _check_context(self, line: LawLine, weights: list[int], context: tuple[int, int, int]) -> Iterator[Finding]:
        """Compare the one encoder of a line with the posterior row."""
        for units in line.encoders.values():
            off = check_encoder(line.law, units, weights, self._walk.error(context[0]), context)
            yield from [off] if isinstance(off, Finding) else []
            self._found.rounding += 0.0 if isinstance(off, Finding) else float(off)

    def _check_past(self, step: Step, line: LawLine, pasts: Pasts | None, chain: Recorded) -> Iterator[Finding]:
        """Check a step of `past`: its law, and, if the reader's context is known, the draw."""
        context = None if self._origin is None else home(self._origin, line.place, line.joined)
        yield from self._check_line(step, line, context, self._check_readers(step, line, pasts))
        if step.request is None and self._sensitive:
            context = None
        self._origin = self._hidden(chain) if step.request in self._sensitive else context

    def _check_readers(self, step: Step, line: LawLine, pasts: Pasts | None) -> Iterator[Finding]:
        """Compare the encoders of all contexts with the rows of all readers, and move these on by the set of the step.

        If a law cannot be checked, neither can those up to the next ON step.
        """
        if pasts is None:
            yield EARLIER
            return
        faults, rounding = pasts.check(line.law, line.encoders, line.place, line.joined)
        yield from faults
        self._found.rounding += float(rounding)
        if step.query not in line.law.index:
            yield Finding("draw", "this set is not one of the law", query=step.query)
        elif not any(fault.rule == "context" for fault in faults):
            pasts.move(line.law.index[step.query], line.encoders)
            self._pasts = pasts

    def _check_line(self, step: Step, line: LawLine, context: int | None, rows: Iterator[Finding]) -> Iterator[Finding]:
        """Check a law and its encoders, and make the draw of a step again; `rows` compares encoders with rows."""
        law, tables = line.law, line.encoders
        wrong = list(rows) if (fault := self._fault(law)) is None else [fault]
        yield from wrong
        if fault is not None or EARLIER in wrong:
            return
        if step.request is None or step.numbers is None or context is None:
            yield ERASED
        elif step.request not in self._sensitive and context not in tables:
            yield Finding("context", f"the reader's context {context} has no encoder")
        else:
            row = law.units if step.request in self._sensitive else tables[context][step.request]
            self._found.drawn += 1
            wrong = list(check_draw(step.query, step.numbers, row, law))
            yield from wrong
            self.drawn = None if wrong else (row, law)
