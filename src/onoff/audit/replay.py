"""Every step of a journal made again: law, rules, draw, log, numbers.

    law      the encoder in the context of the step keeps the promise (`law`) for the referee's own rows (`rows`)
    rules    status, lag, context, announced request, plan and versions follow from requests and statuses (`rules`)
    draw     the number lies below the bound, the bound is the total of the request's row, and the set is the one in
             whose part of the row the number lies; the clocks of a race are run again (`races`)
    log      the server saw this set, in its order, with these versions, in every sending, and no step besides (`rules`)
    numbers  no number comes twice, here or in another journal, and they look uniform: the only check with an error rate

The journal's requests and numbers are believed. A client that forges both alike, so that they explain its queries, is
not found; whoever can forge numbers can forge requests, which every audit believes. A step that cannot be made again,
because its law, its plan, its numbers or its request are missing, is *not checked*, which is not a finding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache
from math import exp
from math import log as ln
from typing import TYPE_CHECKING, Any

import numpy as np

from onoff.audit.files import Journal, LawLine, Log, Step
from onoff.audit.law import COARSE, UNCHECKED, Finding, Law, check_encoder, check_law, law_digest, shown
from onoff.audit.races import Pairs, Race
from onoff.audit.rows import Pasts, Walk, home
from onoff.audit.rules import Due, Held, PlanRule, Seen, check_step, due_steps
from onoff.errors import OnoffError
from onoff.types import Advance, PlanName, Query, Units

if TYPE_CHECKING:
    from onoff.model.chain import Chain

REMADE = Finding(UNCHECKED, "its law, made again by the installed code, is not the one that the journal notes")
FALSE_ALARM = 1e-4  # of the one test here that has any: whether the numbers are uniform
LONG = 2**40  # numbers below bounds of this or more never come twice
FINE = 2**44  # nor do their leading digits, whatever the bounds, where these are 2^46 or more
ERASED = Finding(UNCHECKED, "its requests or its numbers were erased")


@dataclass
class Replay:
    """What a replay found. `unchecked` has the steps that could not be made again, with the reason.

    `drawn` OFF steps were made again; `rounding` is the sum of the total variations of their laws.
    """

    findings: list[Finding] = field(default_factory=list)
    unchecked: list[tuple[int, str]] = field(default_factory=list)
    drawn: int = 0
    rounding: float = 0.0


def replay(
    chain: Chain,
    journal: Journal,
    log: Log,
    plans: Mapping[str, Any],
    laws: Iterable[LawLine],
    others: Sequence[Journal] = (),
    *,
    remade: bool = False,
    part: bool = False,
    advance: Advance = lambda: None,
) -> Replay:
    """Make every step of a journal again, and compare it with the server's log.

    `plans` are the client's by their names, with `sets`, `masses` and `encoder(last, next, lag).toarray()`. `laws` are
    those of the OFF steps of the promise `past`, in their order: recorded by the client or, if `remade`, made again by
    its code. `others` are journals of the same client. In a `part` of a log steps before its first and after its last
    are not missed.
    """
    found, held, before = Replay(), Held(), None
    seen, numbers = Seen(log, journal.stream, part), Numbers(others)
    both = journal.promise == "both"
    draws = _Both(chain, plans, found) if both else _Past(chain, journal.sensitive, iter(laws), remade, found)
    for step, due in zip(journal.steps, due_steps(journal.steps, both, seen.full_sets), strict=True):
        wrong = [*check_step(chain, step, due, before, journal.sensitive), *draws.check(step, due)]
        wrong += [*seen.check(step, held), *numbers.check(step)]
        found.findings += [replace(finding, step=step.step) for finding in wrong if finding.rule != UNCHECKED]
        found.unchecked += [(step.step, finding.message) for finding in wrong if finding.rule == UNCHECKED]
        held.answer(step)
        before = step
        advance()
    known = {one.stream for one in (journal, *others)}
    found.findings += [*seen.extra(len(journal.steps)), *seen.others(known, chain.n, journal.sensitive)]
    return found


def check_draw(query: Query, numbers: Pairs, row: Units, law: Law) -> Iterator[Finding]:
    """Draw again: row[i] are the units of the request on sets[i], and the number says in whose part it lies."""
    total = int(row.sum())
    bound, number = numbers[0] if len(numbers) == 1 else (0, 0)
    if bound != total or not 0 <= number < bound:
        drawn = ", ".join(f"{number} below {bound}" if bound < 2**63 else "a long one" for bound, number in numbers[:3])
        yield Finding("draw", f"a draw takes one random number below {total}; there are: {drawn or 'none'}")
    elif (due := law.sets[int(np.searchsorted(np.cumsum(row), number, side="right"))]) != query:
        message = f"the number {number} of {total} lies in the part of {shown(due)}; {shown(query)} was asked for"
        yield Finding("draw", message, query=due)


class _Both:
    """Draws of the promise `both`: from plans, in the context (last, next)."""

    def __init__(self, chain: Chain, plans: Mapping[str, Any], found: Replay) -> None:
        self._chain, self._plans, self._found = chain, plans, found
        self._law = cache(lambda name: Law(plans[name].sets, plans[name].masses))
        self._race = cache(lambda lag: Race(chain, lag))
        self._fault = cache(lambda name: check_law(self._law(name), chain.n))
        self._walk, self._rule = Walk(chain), PlanRule()

    def check(self, step: Step, due: Due) -> Iterator[Finding]:
        if due.lag == 0:
            return
        name = PlanName.parse(step.plan)
        raced = name is not None and name.scheme == "race"
        law = self._law(step.plan) if step.plan in self._plans and not raced else None
        wrong = self._rule.check(step, due.lag, law)
        if wrong is not None:
            yield wrong
        if name is None or (wrong is not None and wrong.rule == "plan"):
            return
        if step.request is None or step.next is None or due.last is None or step.numbers is None:
            yield ERASED
            return
        context = due.lag, due.last, step.next
        if raced:
            off = self._race(name.lag).check(step.query, step.numbers, step.request, context)
            self._found.drawn += off is None or off.rule == "draw"
            yield from [] if off is None else [off]
        elif law is None:
            yield Finding(UNCHECKED, f"the plan {step.plan!r} is not at hand")
        else:
            yield from self._check_table(step, step.request, step.numbers, context, law)

    def _check_table(
        self, step: Step, request: int, numbers: Pairs, context: tuple[int, int, int], law: Law
    ) -> Iterator[Finding]:
        lag, last, next = context
        try:
            encoder = self._plans[step.plan].encoder(last, next, lag)
            units = np.asarray(encoder.toarray()).astype(np.int64, casting="safe")
        except (OnoffError, TypeError) as error:
            yield Finding("law", f"the plan has no encoder here: {error}", context=context)
            return
        weights = self._walk.weights(last, next, lag)
        if law_digest(law, {last * self._chain.n + next: units}) != step.digest:
            # Another machine may round otherwise, but the total of the request's row is D p(x | u) up to the rounding.
            bound, share = (numbers or ((0, 0),))[0][0], Fraction(weights[request], sum(weights))
            due = f"{float(share):.6g} of {law.denominator} units are the request's in this context"
            near = abs(Fraction(bound, law.denominator) - share) <= COARSE
            yield REMADE if near else Finding("draw", f"the number has another bound; {due}", context=context)
            return
        off = self._fault(step.plan) or check_encoder(law, units, weights, context)
        if isinstance(off, Finding):
            yield off
            return
        off += self._walk.error(lag)
        if off > COARSE:
            message = f"the law is off by {float(off):.1e} in total variation; {float(COARSE):.1e} is allowed"
            yield Finding("rows", message, context=context, amount=float(off))
        self._found.rounding += float(off)
        self._found.drawn += 1
        yield from check_draw(step.query, numbers, units[request], law)


class _Past:
    """Draws of the promise `past`: from the law of each step, in the context of the last hidden request."""

    def __init__(self, chain: Chain, sensitive: Query, laws: Iterator[LawLine], remade: bool, found: Replay) -> None:
        self._chain, self._sensitive, self._laws, self._remade, self._found = chain, sensitive, laws, remade, found
        self._line = LawLine(-1, Law((), ()), {}, (), ())
        self._pasts: Pasts | None = None  # None: not known, before a step has counted as ON or after a missing law
        self._origin: int | None = None  # of the reader, as in `rows.Past`; None: not known

    def check(self, step: Step, due: Due) -> Iterator[Finding]:
        if due.lag == 0:
            self._pasts = Pasts(self._chain, self._sensitive) if due.counts else None
            self._origin = None if step.request is None else -1 - step.request
            return
        while self._line.step < step.step:
            self._line = next(self._laws, replace(self._line, step=2**63))
        line = self._line
        if line.step > step.step:
            self._pasts = None
            yield Finding(UNCHECKED, "its law is not on record")
            return
        context = None if self._origin is None else home(self._origin, line.place, line.joined)
        wrong = list(self._check_law(step, line))
        yield from wrong
        if not any(finding.rule == UNCHECKED for finding in wrong):
            yield from self._check_draw(step, context, line)
        if step.request in self._sensitive:
            context = -1 - step.request
        self._origin = None if step.request is None and self._sensitive else context

    def _check_law(self, step: Step, line: LawLine) -> Iterator[Finding]:
        """Check the law of a step for all readers, and move their rows on by its set.

        If it cannot be checked, neither can those up to the next ON step.
        """
        law, tables, pasts = line.law, line.encoders, self._pasts
        self._pasts = None
        if law_digest(law, tables) != step.digest:
            yield (
                REMADE if self._remade else Finding("record", "the law on record is not the one that the journal notes")
            )
            if self._remade:
                return
        if line.unlike:
            yield Finding("record", "different laws were recorded for it")
        if (wrong := check_law(law, self._chain.n, self._sensitive)) is not None:
            yield wrong
            yield Finding(UNCHECKED, "its law is wrong")
            return
        if pasts is None:
            yield Finding(UNCHECKED, "what may have been asked before is not known: an earlier law is missing")
            return
        homes = pasts.homes(line.place, line.joined)
        faults, rounding = pasts.check(law, tables, homes)
        yield from faults
        self._found.rounding += float(rounding)
        if step.query not in law.index:
            yield Finding("draw", "the set is not one of the law", query=step.query)
        elif {context for _, context in homes} <= tables.keys():
            pasts.move(law.index[step.query], tables, homes)
            self._pasts = pasts

    def _check_draw(self, step: Step, context: int | None, line: LawLine) -> Iterator[Finding]:
        if step.request is None or step.numbers is None or context is None:
            yield ERASED
        elif step.request not in self._sensitive and context not in line.encoders:
            yield Finding("context", f"the reader's context {context} has no encoder")
        else:
            row = line.law.units if step.request in self._sensitive else line.encoders[context][step.request]
            self._found.drawn += 1
            yield from check_draw(step.query, step.numbers, row, line.law)


class Numbers:
    """The random numbers of all draws: none comes twice, and number / bound is uniform.

    The test is a bet. A gambler states chances r of the part of the range in which the next number lies, from those so
    far, and its capital is multiplied by r / p, where p is the exact probability of the part. Whatever it states, the
    expected factor is 1: the mean capital of all gamblers ever exceeds 1 / a with probability a at most (Ville).
    """

    def __init__(self, others: Sequence[Journal] = ()) -> None:
        self._known: dict[Any, str] = {}
        for i, journal in enumerate(others, 1):
            keys = ((key, step.step) for step in journal.steps for key in _keys(step))
            self._known |= {key: f"step {step} of the other journal {i}" for key, step in keys}
        self._gamblers = [_Gambler(parts, after) for parts, after in ((2, 1), (4, 1), (16, 1), (4, 4))]
        self._rejected = False

    def check(self, step: Step) -> Iterator[Finding]:
        keys = list(_keys(step))
        for before in [self._known[key] for key in keys if key in self._known][:1]:
            yield Finding("numbers", f"its random numbers are those of {before}")
        self._known |= dict.fromkeys(keys, f"step {step.step}")
        for bound, number in step.numbers or ():
            for gambler in self._gamblers:
                gambler.bet(bound, number)
        capital = sum(exp(gambler.capital) for gambler in self._gamblers) / len(self._gamblers)
        if capital >= 1 / FALSE_ALARM and not self._rejected:
            self._rejected = True
            message = f"the random numbers up to here are not uniform (false alarms: {FALSE_ALARM:g})"
            yield Finding("numbers", message, amount=1 / capital)


def _keys(step: Step) -> Iterator[Any]:
    """What no other step may have: its long numbers or, if they are very long, their leading digits."""
    for bound, number in step.numbers or ():
        if bound >= LONG:
            yield number * FINE // bound if bound >= 4 * FINE else (bound, number)


class _Gambler:
    """Bets on in which of so many equal parts of its range a number lies, after which part the one before was in."""

    def __init__(self, parts: int, after: int) -> None:
        self.capital = 0.0  # its logarithm
        self._parts, self._after, self._before = parts, after, 0
        self._counts = np.full((after, parts), 0.5)

    def bet(self, bound: int, number: int) -> None:
        if bound < self._parts or not 0 <= number < bound:
            return
        part, counts = number * self._parts // bound, self._counts[self._before]
        first, end = -(-part * bound // self._parts), -(-(part + 1) * bound // self._parts)
        self.capital += ln(counts[part] / counts.sum()) - ln((end - first) / bound)
        self.capital = min(self.capital, 600.0)  # as large as a float can show
        counts[part] += 1
        self._before = number * self._after // bound
