"""Replay of every step of a journal: law, rules, draw, log.

    law      the encoders keep the promise (`law`) for the referee's own rows (`rows`)
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

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from onoff.audit.files import Journal, Line, Step
from onoff.audit.habits import serve
from onoff.audit.law import COARSE, UNCHECKED, Drawn, Finding, LawLine, Pairs, check_draw, check_encoder, check_law
from onoff.audit.past import MISSING, PastDraws
from onoff.audit.races import Race
from onoff.audit.rows import Walk
from onoff.audit.rules import ERASED, Due, Held, PlanRule, Seen, check_step, due_steps
from onoff.types import PlanName, Query

if TYPE_CHECKING:
    from onoff.model.chain import Chain


@dataclass(frozen=True)
class Replay:
    """What a replay found; findings of the rule UNCHECKED say what could not be made again, and why.

    `drawn` OFF steps were made again; `rounding` is the sum of the total variations of their laws.
    """

    findings: list[Finding]
    drawn: int
    rounding: float


def replay(
    chain: Chain,
    journal: Journal,
    lines: Sequence[Line],
    laws: Any,
    begun: bool = False,
    watch: Callable[[Step, LawLine | None, Drawn], None] = lambda step, line, drawn: None,
) -> Replay:
    """Make every step of a journal again, and compare it with the lines of its stream in the server's log.

    `laws` are what the client drew from (`onoff.audit.exhibits`). If it had `begun` another stream before, one of the
    promise `both` had to begin with one full set more. After each step `replay` calls `watch` with its law, if that is
    known, and once more with what was drawn if the draw was right.
    """
    steps, held, seen, both = journal.steps, Held(), Seen(lines), journal.promise == "both"
    served, found = serve(chain, journal)
    draws: Any = BothDraws(chain, laws) if both else PastDraws(journal.sensitive, laws)
    for t, (step, due, now) in enumerate(zip(steps, due_steps(steps, both, served, begun), served, strict=True)):
        before = steps[max(0, t - now.chain.depth) : t]
        draws.line, draws.drawn = None, None
        wrong = [
            *check_step(now.chain, chain.names, step, due, before),
            *held.check(step, now.spares),
            *seen.check(step, held),
        ]
        if due.lag:
            wrong += filter(None, draws.check(step, due) if both else draws.check(step, now.chain, before))
        found += [replace(finding, step=step.step) for finding in wrong]
        held.answer(step)
        watch(step, draws.line, draws.drawn)
    return Replay(
        [*found, *draws.end(), *seen.extra(sum(bool(step.query) for step in steps))], draws.count, draws.rounding
    )


class BothDraws:
    """The draws of the promise `both`, as `PastDraws` has those of `past`. `laws.line` gives the law of a step."""

    line: LawLine | None
    drawn: Drawn

    def __init__(self, chain: Chain, laws: Any) -> None:
        self._n, self._laws = chain.n, laws
        self._walk, self._rule, self._race = Walk(chain.P), PlanRule(), cache(lambda lag: Race(chain.P, lag))
        self._fault = lru_cache(64)(lambda law: check_law(law, chain.n))
        self.count, self.rounding = 0, 0.0

    def check(self, step: Step, due: Due) -> Iterator[Finding | None]:
        """Check an OFF step, drawn from a plan in the context (last, next)."""
        name, last, next = PlanName.parse(step.plan), due.last, step.next
        line = self.line = self._laws.line(step, due)
        if name is None or not 0 < name.lag <= due.lag:
            yield Finding("plan", f"used {step.plan!r} at lag {due.lag}, which it does not serve")
            return
        yield from self._rule.check(step, name, due.lag, None if line is None else line.law)
        if step.request is None or next is None or last is None or step.numbers is None:
            yield ERASED
        elif name.scheme == "race":
            off = self._race(name.lag).check(step.query, step.numbers, step.request, (due.lag, last, next))
            self.count += off is None or off.rule == "draw"
            yield off
        elif line is None:
            yield Finding(UNCHECKED, f"the plan {step.plan!r} is not at hand")
        else:
            yield from self._check_table(line, step.query, step.numbers, step.request, (due.lag, last, next))

    def _check_table(
        self, line: LawLine, query: Query, numbers: Pairs, request: int, context: tuple[int, int, int]
    ) -> Iterator[Finding | None]:
        """Compare the encoder of a context with the posterior row, and draw again."""
        lag, last, next = context
        weights, units = self._walk.weights(last, next, lag), line.encoders.get(last * self._n + next)
        if units is None:
            # Another machine may round otherwise, but the total of the request's row is D p(x | u) up to the rounding.
            share = Fraction(weights[request], sum(weights))
            near = any(abs(Fraction(bound, line.law.denominator) - share) <= COARSE for bound, _ in numbers)
            other = f"the number has another bound; the request's share of units is {float(share):.6g}"
            yield MISSING if near else Finding("draw", other)
            return
        fault = self._fault(line.law)
        off = fault or check_encoder(line.law, units, weights, self._walk.error(lag), context)
        if isinstance(off, Finding):
            yield off
        else:
            self.rounding += float(off)
        if fault is None:
            self.count += 1
            wrong = check_draw(query, numbers, units[request], line.law)
            self.drawn = None if wrong else (units[request], line.law)
            yield wrong

    def end(self) -> Iterator[Finding]:
        """Nothing is left to be said."""
        return iter(())
