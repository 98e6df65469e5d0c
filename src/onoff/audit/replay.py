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

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache, lru_cache
from math import log as ln
from typing import TYPE_CHECKING, Any

import numpy as np

from onoff.audit.files import Journal, LawLine, Log, Step
from onoff.audit.law import COARSE, UNCHECKED, Finding, Law, Pairs, check_encoder, check_law, law_digest, shown
from onoff.audit.races import Race
from onoff.audit.rows import Pasts, Walk, home
from onoff.audit.rules import ERASED, Due, Held, PlanRule, Seen, check_step, due_steps
from onoff.types import Advance, Floats, PlanName, Query, Units

if TYPE_CHECKING:
    from onoff.model.chain import Chain

FALSE_ALARM = 1e-4  # of the one test here that has any: whether the numbers are uniform
LONG = 2**40  # numbers below bounds of this or more never come twice
SHARES = (1.0, 0.25)  # of the steps at which a client is thought to draw twice
FINE = 2**44  # nor do their leading digits, whatever the bounds, where these are 2^46 or more
REMADE = Finding(UNCHECKED, "its law, made again by the installed code, is not the one that the journal notes")
FIRST = Finding(UNCHECKED, "others asked from this address before: if they are this client, two full sets are due")
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
    log: Log,
    laws: Iterable[LawLine],
    others: Sequence[Journal] = (),
    *,
    remade: bool = False,
    part: bool = False,
    advance: Advance = lambda: None,
) -> Replay:
    """Make every step of a journal again, and compare it with the server's log.

    `laws` are what the OFF steps were drawn from, in their order: recorded by the client or, if `remade`, given by its
    plans or made again by its code. `others` are journals of the same client. In a `part` of a log steps before its
    first and after its last are not missed.
    """
    found, steps, held, numbers = Replay(), journal.steps, Held(), Numbers(others)
    seen, known = Seen(log, journal.stream, part), {other.stream for other in others}
    draws = _Draws(chain, journal, iter(laws), remade, found)
    dues = due_steps(steps, journal.promise == "both", 2 if seen.before & known else 1)
    for before, step, due, after in zip([None, *steps], steps, dues, [*steps[1:], None], strict=False):
        wrong = [*check_step(chain, step, due, before), *seen.check(step, held), *draws.check(step, due)]
        wrong += [FIRST] if step.step == 1 and step.lag and seen.before - known else []
        if not any(finding.rule == "draw" for finding in wrong):
            wrong += numbers.check(step, draws.drawn, None if after is None else after.request)
        found.findings += [replace(finding, step=step.step) for finding in wrong]
        held.answer(step)
        advance()
    found.findings += seen.extra(len(steps), known, journal.sensitive)
    return found


def check_draw(query: Query, numbers: Pairs, row: Units, law: Law) -> Iterator[Finding]:
    """Draw again: row[i] are the units of the request on sets[i], and the number says in whose part it lies."""
    total = int(row.sum())
    bound, number = numbers[0] if len(numbers) == 1 else (0, 0)
    if bound != total or not 0 <= number < bound:
        pairs = ", ".join(f"{number} below {bound}" if bound < 2**63 else "a long one" for bound, number in numbers[:3])
        yield Finding("draw", f"a draw takes one random number below {total}; there are: {pairs or 'none'}")
    elif (due := law.sets[int(np.searchsorted(np.cumsum(row), number, side="right"))]) != query:
        message = f"the number {number} of {total} lies in the part of {shown(due)}; {shown(query)} was asked for"
        yield Finding("draw", message, query=due)


class _Draws:
    """The draws of all OFF steps; `laws` are what they were drawn from, in the order of the steps."""

    def __init__(self, chain: Chain, journal: Journal, laws: Iterator[LawLine], remade: bool, found: Replay) -> None:
        self._chain, self._sensitive, self._both = chain, journal.sensitive, journal.promise == "both"
        self._laws, self._line, self._remade, self._found = laws, next(laws, None), remade, found
        self._walk, self._rule, self._race = Walk(chain), PlanRule(), cache(lambda lag: Race(chain, lag))
        self._fault = lru_cache(64)(lambda law: check_law(law, chain.n, journal.sensitive))
        self._pasts: Pasts | None = None  # None: not known, before a step has counted as ON or after a missing law
        self._origin: int | None = None  # of the reader, as in `rows.Pasts`; None: not known
        self.drawn: Drawn = None

    def check(self, step: Step, due: Due) -> Iterator[Finding]:
        """Check what an OFF step was drawn from, and the draw."""
        self.drawn = None
        while self._line is not None and self._line.step < step.step:
            self._line = next(self._laws, None)
        line = self._line if self._line is not None and self._line.step == step.step else None
        if due.lag == 0:
            self._pasts = Pasts(self._chain, self._sensitive) if due.counts else None
            self._origin = None if step.request is None else -1 - step.request
        elif self._both:
            yield from self._check_both(step, due, line)
        elif line is None:
            self._pasts = None
            yield Finding(UNCHECKED, "its law is not on record")
        else:
            context = None if self._origin is None else home(self._origin, line.place, line.joined)
            pasts, self._pasts = self._pasts, None
            yield from self._check_line(step, line, context, self._check_readers(step, line, pasts), REMADE)
            if step.request is None:
                context = None if self._sensitive else context
            self._origin = -1 - step.request if step.request in self._sensitive else context

    def _check_both(self, step: Step, due: Due, line: LawLine | None) -> Iterator[Finding]:
        """A step of the promise `both`, drawn from a plan in the context (last, next)."""
        wrong = self._rule.check(step, due.lag, None if line is None else line.law)
        yield from [] if wrong is None else [wrong]
        name, last, next = PlanName.parse(step.plan), due.last, step.next
        if name is None or (wrong is not None and wrong.rule == "plan"):
            return
        if step.request is None or next is None or last is None or step.numbers is None:
            yield ERASED
        elif name.scheme == "race":
            off = self._race(name.lag).check(step.query, step.numbers, step.request, (due.lag, last, next))
            self._found.drawn += off is None or off.rule == "draw"
            yield from [] if off is None else [off]
        elif line is None:
            yield Finding(UNCHECKED, f"the plan {step.plan!r} is not at hand")
        else:
            weights = self._walk.weights(last, next, due.lag)
            # Another machine may round otherwise, but the total of the request's row is D p(x | u) up to the rounding.
            share = Fraction(weights[step.request], sum(weights))
            near = [bound for bound, _ in step.numbers if abs(Fraction(bound, line.law.denominator) - share) <= COARSE]
            other = Finding("draw", f"the number has another bound; the request's share of units is {float(share):.6g}")
            rows = self._check_context(line, weights, (due.lag, last, next))
            yield from self._check_line(step, line, last * self._chain.n + next, rows, REMADE if near else other)

    def _check_context(self, line: LawLine, weights: list[int], context: tuple[int, int, int]) -> Iterator[Finding]:
        """Compare the one encoder of a line with the posterior row."""
        for units in line.encoders.values():
            off = check_encoder(line.law, units, weights, self._walk.error(context[0]), context)
            yield from [off] if isinstance(off, Finding) else []
            self._found.rounding += 0.0 if isinstance(off, Finding) else float(off)

    def _check_readers(self, step: Step, line: LawLine, pasts: Pasts | None) -> Iterator[Finding]:
        """Compare the encoders of all contexts with the rows of all readers, and move these on by the set of the step.

        If a law cannot be checked, neither can those up to the next ON step.
        """
        if line.unlike:
            yield Finding("record", "different laws were recorded for it")
        if pasts is None:
            yield Finding(UNCHECKED, "what may have been asked before is not known: an earlier law is missing")
            return
        faults, rounding = pasts.check(line.law, line.encoders, line.place, line.joined)
        yield from faults
        self._found.rounding += float(rounding)
        if step.query not in line.law.index:
            yield Finding("draw", "the set is not one of the law", query=step.query)
        elif not any(fault.rule == "context" for fault in faults):
            pasts.move(line.law.index[step.query], line.encoders)
            self._pasts = pasts

    def _check_line(
        self, step: Step, line: LawLine, context: int | None, rows: Iterator[Finding], doubt: Finding
    ) -> Iterator[Finding]:
        """Check a law and its encoders, and make the draw of a step again; `rows` compares encoders with rows."""
        law, tables = line.law, line.encoders
        if law_digest(law, tables) != step.digest:
            yield doubt if self._remade else Finding("record", "the law on record is not the one of the journal")
            if self._remade:
                return
        wrong = list(rows) if (fault := self._fault(law)) is None else [fault]
        yield from wrong
        if fault is not None or any(finding.rule == UNCHECKED for finding in wrong):
            return
        if step.request is None or step.numbers is None or context is None:
            yield ERASED
        elif step.request not in self._sensitive and context not in tables:
            yield Finding("context", f"the reader's context {context} has no encoder")
        else:
            row = law.units if step.request in self._sensitive else tables[context][step.request]
            self._found.drawn += 1
            self.drawn = row, law
            yield from check_draw(step.query, step.numbers, row, law)


class Numbers:
    """The random numbers of all draws: none comes twice, number / bound is uniform, and no draw was made in secret.

    The tests are bets. A gambler states chances r of where the next number lies, and its capital is multiplied by
    r / p, where p is the exact probability of that. Whatever it states, the expected factor is 1: the mean capital of
    all gamblers ever exceeds 1 / a with probability a at most (Ville).

    Some learn in which parts of the range numbers lie. The others bet that the client drew twice, in `SHARES` of all
    steps, and kept the set it likes better: the smaller one, the larger one, not the set of the step before, or one
    that holds the next request. Such a client keeps a set with p (p[worse sets] + p[sets no better]).
    """

    def __init__(self, others: Sequence[Journal] = ()) -> None:
        self._known: dict[Any, str] = {}
        for i, journal in enumerate(others, 1):
            keys = ((key, step.step) for step in journal.steps for key in _keys(step))
            self._known |= {key: f"step {step} of the other journal {i}" for key, step in keys}
        self.gamblers = [_Gambler(parts, after) for parts, after in ((2, 1), (4, 1), (16, 1), (4, 4))]
        self.redraws = np.zeros((4, len(SHARES)))  # logarithms of capitals, by what is liked
        self._before: Query = ()
        self._rejected = False

    def check(self, step: Step, drawn: Drawn, next: int | None) -> Iterator[Finding]:
        """Check the numbers of a step before the request `next`."""
        keys = list(_keys(step))
        for before in [self._known[key] for key in keys if key in self._known][:1]:
            yield Finding("numbers", f"its random numbers are those of {before}")
        self._known |= dict.fromkeys(keys, f"step {step.step}")
        for bound, number in step.numbers or ():
            for gambler in self.gamblers:
                gambler.bet(bound, number)
        if drawn is not None:
            self.redraws += bet_on_redraws(*drawn, step.query, self._before, next)
        self._before = step.query
        capitals = np.exp(np.minimum([*(gambler.capital for gambler in self.gamblers), *self.redraws.flat], 600.0))
        if capitals.mean() >= 1 / FALSE_ALARM and not self._rejected:
            self._rejected = True
            message = f"the random numbers up to here are not uniform (false alarms: {FALSE_ALARM:g})"
            yield Finding("numbers", message, amount=1 / float(capitals.mean()))


def bet_on_redraws(row: Units, law: Law, query: Query, before: Query, next: int | None) -> Floats:
    """The logarithms of the factors of those who bet on draws in secret, when this set was drawn."""
    at, chances, sizes = law.index[query], row / row.sum(), np.array([len(one) for one in law.sets])
    again, without = np.array([one == before for one in law.sets]), np.array([next not in one for one in law.sets])
    dislikes = (sizes, -sizes, again, without)
    liked = [chances[dislike > dislike[at]].sum() + chances[dislike >= dislike[at]].sum() for dislike in dislikes]
    return np.asarray(np.log(1 + np.outer(np.array(liked) - 1, SHARES)))


def _keys(step: Step) -> Iterator[Any]:
    """What no other step may have: its long numbers and, if they are very long, their leading digits."""
    for bound, number in step.numbers or ():
        if bound >= LONG:
            yield from (("share", number * FINE // bound), number) if bound >= 4 * FINE else [(bound, number)]


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
        counts[part] += 1
        self._before = number * self._after // bound
