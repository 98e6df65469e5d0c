"""Every step of a journal made again: law, rules, draw, log, numbers. No check here has an error rate but the last.

    law      the encoder in the context of the step keeps the promise (`onoff.audit.law`) for the referee's own rows
    rules    status, lag, context, announced request, plan and versions are what requests and asked statuses make them
    draw     the number lies below the bound, the bound is the total of the request's row, and the set is the one in
             whose part of the row the number lies
    log      the server saw this set, in its order, with these versions, in every sending, and no step besides
    numbers  no list of numbers comes twice, and they look uniform (a test with a stated rate of false alarms)

What is believed: the journal's requests and numbers. A client that forges both alike, so that they explain its queries,
is not found; whoever can forge numbers can forge requests, which every audit believes. A step that could not be made
again, because its law, its plan, its numbers or its request are missing, is *not checked*, which is not a finding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import exp, log
from typing import TYPE_CHECKING, Any

import numpy as np

from onoff.audit.files import Journal, LawLine, Line, Log, Step
from onoff.audit.law import COARSE, Finding, Law, check_columns, check_encoder, check_law, distance, encoder_table
from onoff.audit.law import law_digest as digest_of
from onoff.audit.races import COMPARED, Race
from onoff.audit.rows import NOWHERE, Pasts, Walk
from onoff.audit.rules import Due, Held, PlanRule, check_step, due_steps
from onoff.errors import OnoffError
from onoff.types import Mask, PlanName, Query, Units

if TYPE_CHECKING:
    from onoff.model.chain import Chain

FALSE_ALARM = 1e-4  # of the one test that has any: whether the numbers are uniform
LONG = 2**40  # lists with a bound of this or more never come twice
FINE_BOUND, FINE = 2**46, 2**44  # numbers below bounds of this or more do not agree to 44 digits, whatever the bounds


@dataclass
class Replay:
    """What the replay of a journal found; `unchecked` are steps with the reason why they could not be made again."""

    findings: list[Finding] = field(default_factory=list)
    unchecked: dict[int, str] = field(default_factory=dict)
    drawn: int = 0  # OFF steps whose law and draw were checked
    rounding: float = 0.0  # the sum of the total variations of all laws: a bound for the whole stream


def replay(
    chain: Chain,
    journal: Journal,
    log: Log | None,
    plans: Mapping[str, Any],
    laws: Iterable[LawLine] | None,
    *,
    remade: bool = False,
    part: bool = False,
    others: Sequence[Journal] = (),
) -> Replay:
    """Make every step of a journal again.

    `plans` are the client's by their names, with `sets`, `masses` and `encoder(last, next, lag).toarray()`. `laws` are
    those of the OFF steps of the promise `past`, in their order: recorded by the client or, if `remade`, made again by
    its code. In a `part` of a log steps before its first and after its last are not missed. Numbers of `others`, the
    same client's journals, must not come again.
    """
    found = Replay()
    before_us = log is not None and _asked_before(log, journal.stream)
    dues = due_steps(journal.steps, journal.promise == "both", 2 if before_us else 1)
    draws = (
        _Both(chain, plans, found)
        if journal.promise == "both"
        else _Past(chain, journal.sensitive, laws, remade, found)
    )
    numbers, held, previous = Numbers(others), Held(), None
    seen = None if log is None else _Seen(log, journal, part)
    for step, due in zip(journal.steps, dues, strict=True):
        found.findings += check_step(chain, step, due, previous, journal.sensitive)
        draws.check(step, due)
        if seen is not None:
            found.findings += seen.check(step, held.rounds(step.query))
        if step.finished:
            held.answer(step)
        found.findings += numbers.check(step)
        previous = step
    if seen is not None:
        found.findings += seen.extra(len(journal.steps))
    found.findings.sort(key=lambda finding: -1 if finding.step is None else finding.step)
    return found


def _asked_before(log: Log, stream: str) -> bool:
    """Whether the client asked the server anything before its stream began."""
    first = next((line for line in log.lines if line.stream == stream), None)
    if first is None:
        return False
    return any(line.client == first.client and line.number < first.number for line in log.lines)


def check_draw(step: Step, row: Units, law: Law) -> Finding | None:
    """Draw again: row[i] are the units of the request on sets[i], and the number says in whose part it lies."""
    numbers = step.numbers or ()
    total = int(row.sum())
    if len(numbers) != 1:
        return Finding("draw", f"a draw takes one random number below {total}; {len(numbers)} are noted", step.step)
    bound, number = numbers[0]
    if bound != total or not 0 <= number < bound:
        message = f"the number {number} below {bound} was drawn; one below {total} was due"
        return Finding("draw", message, step.step)
    due = law.sets[int(np.searchsorted(np.cumsum(row), number, side="right"))]
    if due != step.query:
        message = (
            f"the number {number} of {total} lies in the part of {_shown(due)}; {_shown(step.query)} was asked for"
        )
        return Finding("draw", message, step.step, query=due)
    return None


def _shown(query: Query) -> str:
    return "{" + ", ".join(map(str, query)) + "}"


class _Both:
    """Draws of the promise `both`: from plans, in the context (last, next)."""

    def __init__(self, chain: Chain, plans: Mapping[str, Any], found: Replay) -> None:
        self._chain, self._plans, self._found = chain, plans, found
        self._laws: dict[str, Law] = {}
        self._races: dict[int, Race] = {}
        self._walk, self._rule = Walk(chain), PlanRule()

    def check(self, step: Step, due: Due) -> None:
        if due.lag == 0:
            self._found.findings += _undrawn(step)
            return
        name, plan = PlanName.parse(step.plan), self._plans.get(step.plan)
        raced = name is not None and name.scheme == "race"
        law = None if plan is None or raced else self._laws.setdefault(step.plan, Law(plan.sets, plan.masses))
        wrong = self._rule.check(step, due.lag, law)
        if wrong is not None:
            self._found.findings.append(wrong)
        if wrong is not None and wrong.rule == "plan":
            return
        if law is None and not raced:
            self._found.unchecked[step.step] = f"the plan {step.plan!r} is not at hand"
        elif step.request is None or step.next is None or due.last is None or step.numbers is None:
            self._found.unchecked[step.step] = "its requests or numbers were erased"
        elif law is None:
            self._raced(step, due.lag, due.last, step.next, step.request)
        else:
            self._drawn(step, due.lag, due.last, step.next, plan, law)

    def _drawn(self, step: Step, lag: int, last: int, next: int, plan: Any, law: Law) -> None:
        found, context = self._found, (lag, last, next)
        try:
            units = np.asarray(plan.encoder(last, next, lag).toarray()).astype(np.int64, casting="safe")
        except (OnoffError, TypeError) as error:
            found.findings.append(Finding("law", f"the plan has no encoder here: {error}", step.step, context))
            return
        if digest_of(law, {last * self._chain.n + next: units}) != step.digest:
            found.unchecked[step.step] = "its law, made again by the installed code, is not the one the journal notes"
            return
        weights = self._walk.weights(last, next, lag)
        off = check_law(law, self._chain.n) or check_encoder(law, units, weights, context=context)
        if isinstance(off, Finding):
            found.findings.append(Finding(**{**vars(off), "step": step.step}))
            return
        off += self._walk.error(lag)
        if off > COARSE:
            message = f"its law is off by {float(off):.1e} in total variation; {float(COARSE):.1e} is allowed"
            found.findings.append(Finding("rounding", message, step.step, context, amount=float(off)))
        found.rounding += float(off)
        found.drawn += 1
        wrong = check_draw(step, units[step.request], law)
        found.findings += [wrong] if wrong else []

    def _raced(self, step: Step, lag: int, last: int, next: int, request: int) -> None:
        found, name = self._found, PlanName.parse(step.plan)
        assert name is not None
        race = self._races.setdefault(name.lag, Race(self._chain, name.lag))
        due = race.expected(request, last, next, lag, step.numbers or ())
        if isinstance(due, str):
            found.findings.append(Finding("draw", due, step.step))
            return
        must, may = due
        if set(must) <= set(step.query) and not set(step.query) <= set(may) and self._chain.n > COMPARED:
            found.unchecked[step.step] = "a race of many sources may include some that it had no time to compare"
            return
        found.drawn += 1
        if not set(must) <= set(step.query) <= set(may):
            message = f"the clocks give {_shown(must)}; {_shown(step.query)} was asked for"
            found.findings.append(Finding("draw", message, step.step, query=must))


class _Past:
    """Draws of the promise `past`: from the law of each step, in the context of the last hidden request."""

    def __init__(
        self, chain: Chain, sensitive: tuple[int, ...], laws: Iterable[LawLine] | None, remade: bool, found: Replay
    ) -> None:
        self._chain, self._sensitive, self._remade, self._found = chain, sensitive, remade, found
        self._laws = iter(laws or ())
        self._line: LawLine | None = None
        self._pasts: Pasts | None = None  # None: not known, before a step has counted as ON or after a missing law
        self._context: int | None = None  # of the reader, where `_hidden` is None
        self._hidden: int | None = None  # the request at the step before, if that is hidden

    def check(self, step: Step, due: Due) -> None:
        if due.lag == 0:
            self._found.findings += _undrawn(step)
            self._pasts = Pasts.after_on(self._chain, self._sensitive) if due.counts else None
            self._hidden, self._context = step.request, None
            return
        line = self._law_of(step)
        reason = "its law is not on record" if line is None else self._law(step, line)
        if line is None or reason is not None:
            self._found.unchecked[step.step] = str(reason)
            self._pasts, self._context = None, None
        else:
            self._draw(step, line)
        self._hidden = step.request if step.request in self._sensitive else None

    def _law_of(self, step: Step) -> LawLine | None:
        while self._line is None or self._line.step < step.step:
            self._line = next(self._laws, None)
            if self._line is None:
                return None
        return self._line if self._line.step == step.step else None

    def _tables(self, line: LawLine) -> Iterator[tuple[int, Units]]:
        for context, parts in line.encoders.items():
            yield context, encoder_table(self._chain.n, len(line.law.sets), *parts)

    def _law(self, step: Step, line: LawLine) -> str | None:
        """Check the law of a step against every hidden past, and move these on; why it cannot be, if it cannot."""
        t, law, found = step.step, line.law, self._found
        tables = dict(self._tables(line))
        if digest_of(law, tables) != step.digest:
            if self._remade:
                return "its law, made again by the installed code, is not the one the journal notes"
            found.findings.append(Finding("record", "the law on record is not the one that the journal notes", t))
        if line.others:
            found.findings.append(Finding("record", "different laws were recorded for it", t))
        wrong = check_law(law, self._chain.n, self._sensitive)
        if wrong is not None:
            found.findings.append(Finding(**{**vars(wrong), "step": t}))
            return "its law is wrong"
        self._context = self._reader(line)
        if self._pasts is None:
            return "what may have been asked before it is not known, because an earlier law is missing"
        pasts, homes = self._pasts, self._pasts.homes(line.place, line.joined)
        faults, fits, largest = check_past_law(pasts, homes, law, tables)
        found.findings += [Finding(**{**vars(fault), "step": t}) for fault in faults]
        found.rounding += largest
        position = law.index.get(step.query)
        if position is None:
            found.findings.append(Finding("draw", "the set is not one of the law", t, query=step.query))
        if position is None or any(int(home) not in tables for home in homes[pasts.live]):
            self._pasts = None
            return None
        drawn = {context: (units[:, position], units.sum(axis=1)) for context, units in tables.items()}
        self._pasts = pasts.after_off(homes, drawn, fits)
        return None

    def _reader(self, line: LawLine) -> int | None:
        """The context of the reader at this step; None if it is not known."""
        if self._hidden is not None:
            return line.joined[self._hidden] if self._hidden < len(line.joined) else NOWHERE
        if self._context is None:
            return None
        return line.place[self._context] if 0 <= self._context < len(line.place) else NOWHERE

    def _draw(self, step: Step, line: LawLine) -> None:
        found, law = self._found, line.law
        if step.request is None or step.numbers is None:
            found.unchecked[step.step] = "its request or its numbers were erased"
            return
        if step.request in self._sensitive:
            row = law.units
        elif self._context is None or self._context not in line.encoders:
            found.findings.append(Finding("context", f"the reader's context {self._context} has no encoder", step.step))
            return
        else:
            row = encoder_table(self._chain.n, len(law.sets), *line.encoders[self._context])[step.request]
        found.drawn += 1
        wrong = check_draw(step, row, law)
        found.findings += [wrong] if wrong else []


def check_past_law(
    pasts: Pasts, homes: np.ndarray[Any, np.dtype[np.int64]], law: Law, tables: Mapping[int, Units]
) -> tuple[list[Finding], Mask, float]:
    """Check the encoders of all contexts against the rows of all readers who may be in them.

    Rows that come to share a context must be near each other, and the encoder must fit one that it has always fitted.
    Readers of the other rows then count as readers of that one: it changes the joint law of all that is hidden and all
    queries by no more than their distance. Returns what is wrong, which rows are fitted, and the largest distance.
    """
    found, fits, largest = [], pasts.fits.copy(), 0.0
    live, possible = np.flatnonzero(pasts.live), pasts.possible & pasts.open_sources
    for home in sorted(set(homes[live].tolist())):
        here = [int(k) for k in live if homes[k] == home]
        if home not in tables:
            who = pasts.chain.names[pasts.sources[here[0]]]
            found.append(Finding("context", f"a reader whose last hidden request is {who!r} has no encoder"))
            continue
        fault = check_columns(law, tables[home], np.asarray(possible[here].any(axis=0)), (home,))
        if fault is not None:
            found.append(fault)
            continue
        sums = tables[home].sum(axis=1).tolist()
        apart = {k: distance(sums, pasts.weights(k)) + pasts.error(k) for k in here}
        for k in here:
            fits[k] &= apart[k] <= COARSE
        if not any(fits[k] for k in here):
            off = float(min(apart.values()))
            message = (
                f"the encoder is off by {off:.1e} (total variation) for all readers; {float(COARSE):.1e} is allowed"
            )
            found.append(Finding("rows", message, context=(home,), amount=off))
        first = here[0]
        met = [k for k in here[1:] if (pasts.contexts[k], pasts.sources[k]) != (pasts.contexts[first], pasts.sources[first])
               and (pasts.contexts[k] == NOWHERE or pasts.contexts[k] != pasts.contexts[first])]  # fmt: skip
        widest = max((distance(pasts.weights(first), pasts.weights(k)) for k in met), default=0)
        if widest > COARSE:
            message = f"the context stands for rows that are {float(widest):.1e} apart"
            found.append(Finding("merge", message, context=(home,), amount=float(widest)))
        largest = max(largest, float(min(apart.values())) + float(widest))
    return found, fits, largest


def _undrawn(step: Step) -> Iterator[Finding]:
    if step.numbers or step.digest is not None:
        yield Finding("draw", "a full set is not drawn, and takes no random numbers", step.step)


class _Seen:
    """The lines of one stream in the server's log, against its journal."""

    def __init__(self, log: Log, journal: Journal, part: bool) -> None:
        self._place = {source: i for i, source in enumerate(log.order)}
        self._lines: dict[int, list[Line]] = {}
        stream = [line for line in log.lines if line.stream == journal.stream]
        self._jumps = [b for a, b in pairwise(stream) if b.step < a.step]
        for line in stream:
            self._lines.setdefault(line.step, []).append(line)
        self._part, self._first, self._last = part, min(self._lines, default=0), max(self._lines, default=-1)

    def check(self, step: Step, rounds: tuple[int, ...] | None) -> Iterator[Finding]:
        """One step: every sending has the set in the server's order and the versions that are held, and is counted."""
        t, lines = step.step, self._lines.get(step.step, [])
        if not lines:
            if step.finished and not (self._part and not self._first <= t <= self._last):
                yield Finding("log", "the step is in the journal and not in the log", t)
            return
        order = tuple(sorted(step.query, key=lambda source: self._place[source]))
        other = next((line for line in lines if line.sources != order), None)
        if other is not None:
            what = "another order" if sorted(other.sources) == list(step.query) else _shown(other.sources)
            yield Finding("log", f"the server saw {what} (line {other.number}); the journal has {_shown(order)}", t)
        if rounds is not None:
            held = dict(zip(step.query, rounds, strict=True))
            wrong = next(
                (line for line in lines if line.held != tuple(held[x] for x in line.sources if x in held)), None
            )
            if wrong is not None and other is None:
                shown = tuple(held[x] for x in order)
                yield Finding("versions", f"names the rounds {wrong.held} (line {wrong.number}); {shown} are held", t)
        if len(lines) > step.attempts:
            yield Finding("log", f"came {len(lines)} times; the journal counts {step.attempts}", t)
        for line in lines:
            if line.unread:
                yield Finding("unread", f"the answer was not read to its end (line {line.number})", t)
        if any(line.damaged is False for line in lines[:-1]):
            yield Finding("again", "a whole answer was asked for again", t)
        if lines[-1].damaged and t < self._last:
            yield Finding("retry", "a damaged answer was not asked for again", t)

    def extra(self, steps: int) -> Iterator[Finding]:
        """What no step of the journal explains."""
        for line in self._jumps:
            yield Finding("log", f"the step came again after a later one (line {line.number})", line.step)
        for step, lines in self._lines.items():
            if step >= steps:
                yield Finding("log", f"was sent (line {lines[0].number}) and is not in the journal", step)


class Numbers:
    """The random numbers of all draws: none comes twice, and number / bound is uniform.

    The test is a bet. A gambler states chances r of the part of the range in which the next number lies, from those so
    far, and its capital is multiplied by r / p, where p is the exact probability of the part. Whatever it states, the
    expected factor is 1: the mean capital of all gamblers ever exceeds 1 / a with probability a at most (Ville).
    """

    def __init__(self, others: Sequence[Journal] = ()) -> None:
        self._lists: dict[Any, str] = {}
        for i, journal in enumerate(others, 1):
            for step in journal.steps:
                for key in self._keys(step):
                    self._lists.setdefault(key, f"step {step.step} of the other journal {i}")
        self._gamblers = [_Gambler(parts, after) for parts, after in ((2, 1), (4, 1), (16, 1), (4, 4))]
        self._rejected = False

    def check(self, step: Step) -> Iterator[Finding]:
        for key in self._keys(step):
            before = self._lists.setdefault(key, f"step {step.step}")
            if before != f"step {step.step}":
                yield Finding("numbers", f"its random numbers are those of {before}", step.step)
                break
        for bound, number in step.numbers or ():
            for gambler in self._gamblers:
                gambler.bet(bound, number)
        capital = sum(exp(gambler.capital) for gambler in self._gamblers) / len(self._gamblers)
        if capital >= 1 / FALSE_ALARM and not self._rejected:
            self._rejected = True
            rate = f"false alarms: {FALSE_ALARM:g}"
            yield Finding(
                "numbers", f"the random numbers up to here are not uniform ({rate})", step.step, amount=1 / capital
            )

    @staticmethod
    def _keys(step: Step) -> Iterator[Any]:
        """What no other step may have: its list of numbers, and what a number is as a fraction of its bound."""
        numbers = step.numbers or ()
        if any(bound >= LONG for bound, _ in numbers):
            yield hash(numbers), len(numbers)
        for bound, number in numbers:
            if bound >= FINE_BOUND:
                yield number * FINE // bound


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
        self.capital += log(counts[part] / counts.sum()) - log((end - first) / bound)
        self.capital = min(self.capital, 600.0)  # as large as a float can show
        counts[part] += 1
        self._before = number * self._after // bound
