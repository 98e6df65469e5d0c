"""The front door of `onoff audit log`: a server's log replayed against the client's journal, and attacked.

The replay says whether every query was drawn as the rules say, the first wrong step if not, and what could not be
checked. Beside it stands the attack: what a server that knows the client's rules makes of the log, with or without a
journal, and of the log of a naive client with the same requests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onoff.audit import attack as bayesian
from onoff.audit.attack import Attack, Seen, recorded_view
from onoff.audit.bayes import View
from onoff.audit.clients import Announced, has_table
from onoff.audit.files import Journal, LawLine, Line, Log, Step, law_line, read_journal, read_laws, read_log
from onoff.audit.law import UNCHECKED, Finding, Law, law_digest
from onoff.audit.replay import replay
from onoff.audit.rules import due_steps
from onoff.errors import OnoffError
from onoff.model.powers import one_thread
from onoff.types import Progress, Query, silent

if TYPE_CHECKING:
    from onoff.model.chain import Chain

NO_JOURNAL = "without the journal nobody knows what it was drawn for"
UNPLANNED = "contexts in which nothing was asked (`onoff audit plan` checks all of a plan)"
UNREMADE = "whether each law is the one that public things give, or was chosen by the request (--remake)"
REPEATED = "why {} queries were sent again, which the journal counts and does not explain"
UNREAD = "whether answers were read to their end, which the log does not tell"
UNLIKE = "the installed code makes another law there than is on record"
BESIDE = "what {} queries of other streams in the log were drawn for"
UNATTACKED = "what the server believes: the attack takes long here (--attack)"
MOST_WORK = 2 * 10**7  # an attack of more than so many products is made only if it is asked for
BELIEVED = (
    "the journal's requests and numbers: a client that forges both alike is not found",
    "what the journal notes as received, and the limits of its cache: queries name versions by them",
    "that statuses, announcements and the moments of requests do not depend on what is asked for",
)


@dataclass(frozen=True)
class Verdict:
    """The verdict on one stream.

    `findings` are in the order of their steps. `unchecked` has the steps that could not be made again, with the reason;
    they are neither right nor wrong, and without them all nothing is certified. `believed` is what every audit of this
    kind takes for granted, and `ignored` what nobody has looked at. Of `off` OFF steps `drawn` were made again, and
    their laws are within `rounding` of a perfectly private stream, all together.
    """

    steps: int
    off: int
    drawn: int
    rounding: float
    findings: tuple[Finding, ...]
    unchecked: tuple[tuple[int | None, str], ...]
    ignored: tuple[str, ...] = ()
    believed: tuple[str, ...] = BELIEVED

    @property
    def first(self) -> Finding | None:
        """The finding at the first wrong step; one without a step only if there is no other."""
        stepped = [finding for finding in self.findings if finding.step is not None]
        return next(iter([*stepped, *self.findings]), None)

    @property
    def word(self) -> str:
        """PASSED, FAILED, or NO VERDICT where nothing is wrong but not every step was checked."""
        if self.findings:
            return "FAILED"
        return "NO VERDICT" if self.unchecked else "PASSED"

    @property
    def gaps(self) -> tuple[str, ...]:
        """What was not checked, in words: steps by their reason, then what was not looked at."""
        reasons = Counter(reason for _, reason in self.unchecked)
        first = {reason: step for step, reason in reversed(self.unchecked)}
        steps = (
            reason
            if first[reason] is None
            else f"{count} step{'s' * (count > 1)}, from step {first[reason]} on: {reason}"
            for reason, count in reasons.items()
        )
        return *steps, *self.ignored

    def __str__(self) -> str:
        """One line: the word, the first wrong step, and what was not checked."""
        first = self.first
        words = [f"AUDIT {self.word}"]
        if first is not None:
            where = "" if first.step is None else f"step {first.step}: "
            more = len(self.findings) - 1
            words[0] += f": {where}{first.rule}: {first.message}" + (f" (and {more} more)" if more else "")
        if self.gaps:
            words.append("NOT CHECKED: " + "; ".join(self.gaps))
        return "; ".join(words)


@dataclass(frozen=True)
class LogAudit:
    """What a log says: the `verdict` of the replay, and the server's `attack`, beside one on a `naive` client.

    Without a journal no step is certified, and the attack says what the queries tell. Without the requests there is no
    naive client to compare with.
    """

    verdict: Verdict
    attack: Attack | None
    naive: Attack | None

    @property
    def word(self) -> str:
        """PASSED, FAILED (a wrong step, or an attack that succeeds), or NO VERDICT."""
        betrayed = self.attack is not None and self.attack.conclusive and self.attack.succeeded
        return "FAILED" if betrayed else self.verdict.word

    @property
    def passed(self) -> bool:
        return self.word == "PASSED"


@dataclass(frozen=True)
class Exhibits:
    """What the client drew from, as the auditor has it: nothing of it is believed.

    `plans` are objects by their names, `record` is the client's file of laws (promise `past`), and `engine` its code in
    the state after an ON step. Without a record the engine makes the laws again, and a law with another digest than the
    journal's is not checked. With both, recorded laws are compared with those that the engine makes.
    """

    plans: Mapping[str, Any]
    record: Path | None = None
    engine: Any = None


def audit_log(
    chain: Chain,
    log: Path,
    exhibits: Exhibits,
    journal: Path | None = None,
    *,
    statuses: Sequence[bool] = (),
    truth: Sequence[int] | None = None,
    others: Sequence[Path] = (),
    part: bool = False,
    attacked: bool | None = None,
    false_alarms: float = 0.01,
    progress: Progress = silent,
) -> LogAudit:
    """Replay the steps of a journal, compare them with the server's log, and attack that.

    `others` are journals of the same client: their numbers must not come again, and their streams may be in the log.
    In a `part` of a log the steps before and after it are not missed. Without a journal the `statuses` of all steps,
    and the true requests if they are known, serve the attack. With `attacked` None a long attack is left out.
    """
    seen = read_log(log, chain)
    if journal is None:
        return _attack_alone(chain, seen, exhibits, statuses, truth, false_alarms)
    noted, known = read_journal(journal, chain), [read_journal(file, None) for file in others]
    for file, other in zip(others, known, strict=True):
        if other.stream == noted.stream:
            raise OnoffError(f"{file}: is the journal that is audited; others have streams of their own")
    stream = [line for line in seen.lines if line.stream == noted.stream]
    if not stream:
        raise OnoffError(f"{log}: the journal's stream {noted.stream} is not in this log")
    wide = noted.promise == "past"
    work = len(noted.steps) * chain.n**2 * (1 if wide else chain.n)
    attacked = work <= MOST_WORK if attacked is None else attacked
    laws = _Laws(chain, noted, exhibits, _sets(stream) if attacked else {})
    with one_thread(), progress("replaying")(len(noted.steps)) as advance:  # as clients make laws, to the last digit
        found = replay(chain, noted, seen, laws, known, remade=laws.remade, part=part, advance=advance)
    again = len(stream) - len({line.step for line in stream})
    streams = {noted.stream, *(other.stream for other in known)}
    beside = sum(line.stream not in streams for line in seen.lines)
    gaps = {
        UNPLANNED: not wide,
        UNREMADE: wide and laws.unmade,
        REPEATED.format(again): again,
        BESIDE.format(beside): beside,
        UNATTACKED: not attacked,
    }
    unlike = [Finding(UNCHECKED, UNLIKE, step) for step in laws.unlike]
    ordered = sorted([*unlike, *found.findings], key=lambda one: -1 if one.step is None else one.step)
    verdict = Verdict(
        steps=len(noted.steps),
        off=sum(step.lag > 0 for step in noted.steps),
        drawn=found.drawn,
        rounding=found.rounding,
        findings=(*_damage(seen), *(one for one in ordered if one.rule != UNCHECKED)),
        unchecked=tuple(dict.fromkeys((one.step, one.message) for one in ordered if one.rule == UNCHECKED)),
        ignored=(*(text for text, left_out in gaps.items() if left_out), UNREAD),
    )
    requests = [step.request for step in noted.steps]
    true = None if None in requests else [request for request in requests if request is not None]
    steps = _as_seen(chain, noted, stream, exhibits, laws) if attacked else []
    made = _attacked(chain, noted.promise, steps, noted.sensitive, found.rounding, true, false_alarms, progress)
    return LogAudit(verdict, *made)


def _damage(log: Log) -> Iterator[Finding]:
    for number in log.damaged:
        yield Finding("log", f"line {number} of the log is damaged, and what it recorded is not known")


class _Laws:
    """The laws of a journal's OFF steps in their order, recorded or made again; what the attack needs of them is kept.

    `unlike` are steps for which the installed code makes another law than is on record.
    """

    def __init__(self, chain: Chain, journal: Journal, exhibits: Exhibits, attacked: Mapping[int, Query]) -> None:
        self._chain, self._journal, self._exhibits, self._attacked = chain, journal, exhibits, attacked
        self.remade = exhibits.record is None
        self.unmade = not self.remade and exhibits.engine is None
        self.unlike: list[int] = []
        self.rules: dict[int, View] = {}

    def __iter__(self) -> Iterator[LawLine]:
        if self._journal.promise == "both":
            yield from plan_laws(self._chain, self._journal, self._exhibits.plans)
            return
        made = remade_laws(self._chain, self._journal, self._exhibits.engine)
        for line in made if self._exhibits.record is None else self._recorded(self._exhibits.record, made):
            query = self._attacked.get(line.step)
            if query is not None:
                before = self.rules.get(line.step - 1)
                self.rules[line.step] = recorded_view(line, query, before, self._journal.sensitive)
            yield line

    def _recorded(self, record: Path, made: Iterator[LawLine]) -> Iterator[LawLine]:
        other = next(made, None)
        for line in read_laws(record, self._journal.stream, self._chain.n):
            while other is not None and other.step < line.step:
                other = next(made, None)
            if other is not None and other.step == line.step and _content(other) != _content(line):
                self.unlike.append(line.step)
            yield line


def plan_laws(chain: Chain, journal: Journal, plans: Mapping[str, Any]) -> Iterator[LawLine]:
    """Ask plans for the encoders in the contexts of a journal's OFF steps; one that a plan refuses is left out."""
    law = cache(lambda name: Law(plans[name].sets, plans[name].masses))
    for step, due in zip(journal.steps, due_steps(journal.steps, True), strict=True):
        plan, last, next = plans.get(step.plan), due.last, step.next
        if due.lag and plan is not None and has_table(plan) and last is not None and next is not None:
            encoders = {}
            with suppress(OnoffError, TypeError):
                units = np.asarray(plan.encoder(last, next, due.lag).toarray())
                encoders = {last * chain.n + next: units.astype(np.int64, casting="safe")}
            yield LawLine(step.step, law(step.plan), encoders, (), ())


def remade_laws(chain: Chain, journal: Journal, engine: Any) -> Iterator[LawLine]:
    """Make the laws of a journal's OFF steps again, from public things: the chain, sensitive sources and the queries.

    After a set that is not one of its law none can be made before the next ON step.
    """
    state = None
    for step, due in zip(journal.steps, due_steps(journal.steps, False), strict=True):
        if due.lag == 0:
            state = engine if due.counts else None
        elif state is not None:
            ready = state.prepare()
            yield law_line(step.step, ready.as_dict(), state.place, state.joined, chain.n)
            state = state.advance(ready, step.query) if step.query in ready.sets else None


def _content(line: LawLine) -> Any:
    """What two lines of the same law have in common."""
    place = {context: home for context, home in enumerate(line.place) if home >= 0}
    return law_digest(line.law, line.encoders), place, line.joined


def _sets(lines: Sequence[Line]) -> dict[int, Query]:
    """The set of every step that the server saw; of those of one step the first."""
    return {line.step: tuple(sorted(line.sources)) for line in reversed(lines)}


def _as_seen(chain: Chain, journal: Journal, stream: Sequence[Line], exhibits: Exhibits, laws: _Laws) -> list[Seen]:
    """The steps up to the last one in the log, as the server knows them."""
    sets = _sets(stream)
    both = journal.promise == "both"
    client = Announced(chain.n, [plan for plan in exhibits.plans.values() if has_table(plan)])

    def rule(step: Step, lag: int) -> Any:
        if lag == 0:
            return client.on()
        plan = exhibits.plans.get(step.plan)
        served = plan is not None and plan.lag <= lag
        return (client.step(lag, plan) if served else None) if both else laws.rules.get(step.step)

    dues = due_steps(journal.steps, both)
    steps = list(zip(journal.steps, dues, strict=True))[: max(sets) + 1]
    return [Seen(due.lag == 0, sets.get(step.step), rule(step, due.lag)) for step, due in steps]


def _attacked(
    chain: Chain,
    promise: str,
    steps: Sequence[Seen],
    sensitive: Sequence[int],
    rounding: float,
    truth: Sequence[int] | None,
    rate: float,
    progress: Progress = silent,
) -> tuple[Attack | None, Attack | None]:
    """Attack a log and, if the requests are known, that of a naive client."""
    if not steps:
        return None, None
    true = None if truth is None else truth[: len(steps)]
    bar = progress("attacking")
    found = bayesian.attack(chain, promise, steps, sensitive, rounding, true, false_alarms=rate, bar=bar)
    if true is None:
        return found, None
    openly = bayesian.naive_steps(chain.n, [step.private for step in steps], true)
    return found, bayesian.attack(chain, promise, openly, sensitive, 0.0, true, false_alarms=rate)


def _attack_alone(
    chain: Chain,
    log: Log,
    exhibits: Exhibits,
    statuses: Sequence[bool],
    truth: Sequence[int] | None,
    false_alarms: float,
) -> LogAudit:
    """Attack a log of the promise `both` without a journal: the cheapest plan that serves a lag is taken for its."""
    streams = dict.fromkeys(line.stream for line in log.lines)
    if len(streams) > 1:
        raise OnoffError(f"there are {len(streams)} streams in this log: give the journal of the one that is meant")
    sets = _sets(log.lines)
    if len(statuses) <= max(sets):
        raise OnoffError(f"there are {len(statuses)} statuses, but the log has a step {max(sets)}: give all of them")
    client = Announced(chain.n, list(exhibits.plans.values()))
    steps: list[Seen] = []
    step = client.on()
    for t, private in enumerate(statuses[: max(sets) + 1]):
        step = client.on() if private or not steps else client.off(step, ())
        steps.append(Seen(step.lag == 0, sets.get(t), step))
    rounding = sum(seen.rule.rounding for seen in steps if isinstance(seen.rule, type(step)))
    made = _attacked(chain, "both", steps, (), rounding, truth, false_alarms)
    unchecked = tuple((t, NO_JOURNAL) for t in range(len(steps)))
    off = sum(not seen.private for seen in steps)
    return LogAudit(Verdict(len(steps), off, 0, rounding, tuple(_damage(log)), unchecked), *made)
