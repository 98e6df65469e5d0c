"""The front door of `onoff audit log`: a server's log replayed against the client's journal, and attacked.

The replay says whether every query was drawn as the rules say, the first wrong step if not, and what could not be
checked. Beside it stands the attack: what a server that knows the client's rules makes of the log, with or without a
journal, and of the log of a naive client with the same requests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onoff.audit import attack as bayesian
from onoff.audit.attack import Attack, SeenStep, recorded_view
from onoff.audit.bayes import View
from onoff.audit.clients import Announced
from onoff.audit.exhibits import PastLaws, PlanLaws
from onoff.audit.files import Journal, Line, Log, Step, read_journal, read_log
from onoff.audit.law import UNCHECKED, Drawn, Finding, LawLine
from onoff.audit.numbers import Bets, Repeats
from onoff.audit.replay import replay
from onoff.errors import OnoffError
from onoff.model.powers import one_thread
from onoff.types import Progress, Query, silent

if TYPE_CHECKING:
    from onoff.model.chain import Chain


NO_JOURNAL = "without the journal nobody knows what it was drawn for"
UNPLANNED = "contexts in which nothing was asked (`onoff audit plan` checks all of a plan)"
UNREMADE = "whether the request chose among right laws (--remake)"
REPEATED = "why queries were sent again ({} in all), which the journal counts and does not explain"
UNREAD = "whether answers were read to their end, which the log does not tell"
BESIDE = "what queries of other streams in the log ({} in all) were drawn for"
UNATTACKED = "what the server believes: the attack takes long here (--attack)"
CHANGING = "what the server believes: the attack knows one chain, and this client has used several or none"
BETRAYED, REFUTED = "the attack betrays private requests", "the requests do not follow the chain"
RIGHT = "every query was drawn as the rules say"
MOST_WORK = 2 * 10**7  # an attack of more than so many products is made only if it is asked for
BELIEVED = (
    "the journal's requests and numbers: a client that forges both alike is not found",
    "what the journal notes as received, until when that is fresh, and the limits of its cache: queries follow from it",
    "how often a person has told the client to learn habits anew, and the transitions that a stated chain rests on",
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
            more = len(self.findings) - 1
            words[0] += f": {first.words()}" + (f" (and {more} more)" if more else "")
        if self.gaps:
            words.append("NOT CHECKED: " + "; ".join(self.gaps))
        return "; ".join(words)


@dataclass(frozen=True)
class LogAudit:
    """What a log says: the `verdict` of the replay, and the server's `attack`, beside one on a `naive` client.

    Without a journal no step is certified, and the attack says what the queries tell. Without the requests there is no
    naive client to compare with. `refuted` says that a test has found that they do not follow the chain.
    """

    verdict: Verdict
    attack: Attack | None
    naive: Attack | None
    refuted: bool = False

    @property
    def why(self) -> list[str]:
        """What speaks against the log though no step is wrong."""
        betrayed = self.attack is not None and self.attack.conclusive and self.attack.succeeded
        return [BETRAYED] * betrayed + [REFUTED] * self.refuted

    @property
    def word(self) -> str:
        """PASSED, FAILED (a wrong step, or an attack that succeeds), or NO VERDICT."""
        if self.verdict.findings or BETRAYED in self.why:
            return "FAILED"
        return "NO VERDICT" if self.why else self.verdict.word

    def __str__(self) -> str:
        """One line with one verdict: why, what is right nevertheless, and what was not checked."""
        if self.verdict.findings or not self.why:
            return str(self.verdict)
        why = self.why + [RIGHT] * (self.verdict.word == "PASSED")
        rest = str(self.verdict).removeprefix(f"AUDIT {self.verdict.word}")
        return f"AUDIT {self.word}: {'; '.join(why)}{rest}"

    @property
    def passed(self) -> bool:
        return self.word == "PASSED"


@dataclass(frozen=True)
class Exhibits:
    """What the client drew from, as the auditor has it: nothing of it is believed.

    `plans` are objects by their names (promise `both`). For `past`, `record` is the client's file of laws, and
    `engine(chain, sensitive, states)` its code, which makes laws again; `maker` is the mark that this code puts into
    journals.
    """

    plans: Mapping[str, Any]
    record: Path | None = None
    engine: Any = None
    maker: str | None = None


def audit_log(
    chain: Chain,
    log: Path,
    exhibits: Exhibits,
    journal: Path | None = None,
    *,
    statuses: Sequence[bool] = (),
    truth: Sequence[int] | None = None,
    others: Sequence[Path] = (),
    attacked: bool | None = None,
    progress: Progress = silent,
) -> LogAudit:
    """Replay the steps of a journal, compare them with the server's log, and attack that.

    `others` are journals of the same client: their numbers must not come again, and their streams may be in the log.
    Without a journal the `statuses` of all steps, and the true requests if they are known, serve the attack. With
    `attacked` None a long attack is left out.
    """
    seen = read_log(log, chain)
    if journal is None:
        return _attack_alone(chain, seen, exhibits, statuses, truth)
    noted, known = read_journal(journal, chain), [read_journal(file, None) for file in others]
    for file, other in zip(others, known, strict=True):
        if other.stream == noted.stream:
            raise OnoffError(f"{file}: is the journal that is audited; others have streams of their own")
    stream = [line for line in seen if line.stream == noted.stream]
    if not stream:
        raise OnoffError(f"{log}: the journal's stream {noted.stream} is not in this log")
    wide = noted.promise != "both"
    work = len(noted.steps) * len(chain.states) ** 2 * (1 if wide else chain.n)
    attacked = work <= MOST_WORK if attacked is None else attacked
    one_chain = noted.promise == "both" or (noted.promise == "past" and len(noted.chains) < 2 and not noted.learns)
    attacked = attacked and one_chain
    sets = _sets_of(noted.steps, stream) if attacked else {}
    if wide:
        laws: Any = PastLaws(chain, noted, exhibits.record, exhibits.engine, exhibits.maker)
    else:
        laws = PlanLaws(chain, exhibits.plans)
    rules: dict[int, View] = {}
    view = lru_cache(1024)(lambda line, query: recorded_view(chain, line, query, noted.sensitive))
    streams = {other.stream for other in known}
    beside = Beside(seen, noted, streams, chain.n)
    repeats, bets, further = Repeats(known), Bets(), list(beside.findings())
    with one_thread(), progress("replaying")(len(noted.steps)) as advance:  # as clients make laws, to the last digit

        def watch(step: Step, line: LawLine | None, drawn: Drawn) -> None:
            following = noted.steps[step.step + 1 : step.step + 2]
            further.extend(repeats.check(step))
            further.extend(bets.check(step, drawn, following[0].request if following else None))
            if wide and line is not None and step.step in sets:
                rules[step.step] = view(line, sets[step.step])
            advance()

        found = replay(chain, noted, stream, laws, beside.begun, watch)
    again = len(stream) - len({line.step for line in stream})
    unknown = sum(line.stream not in {noted.stream, *streams} for line in seen)
    gaps = {
        UNPLANNED: not wide,
        UNREMADE: wide and exhibits.engine is None,
        REPEATED.format(again): again,
        BESIDE.format(unknown): unknown,
        UNATTACKED: one_chain and not attacked,
        CHANGING: not one_chain,
    }
    ordered = sorted([*found.findings, *further], key=lambda one: -1 if one.step is None else one.step)
    verdict = Verdict(
        steps=len(noted.steps),
        off=sum(step.lag > 0 for step in noted.steps),
        drawn=found.drawn,
        rounding=found.rounding,
        findings=tuple(one for one in ordered if one.rule != UNCHECKED),
        unchecked=tuple(dict.fromkeys((one.step, one.message) for one in ordered if one.rule == UNCHECKED)),
        ignored=(*(text for text, left_out in gaps.items() if left_out), UNREAD),
    )
    requests = [step.request for step in noted.steps]
    true = None if None in requests else [request for request in requests if request is not None]
    steps = _as_seen(chain, noted, sets, exhibits, rules) if attacked else []
    made = _attack_both(chain, noted.promise, steps, noted.sensitive, found.rounding, true, progress)
    return LogAudit(verdict, *made)


def _sets(lines: Sequence[Line]) -> dict[int, Query]:
    """The set of every step that the server saw; of those of one step the first."""
    return {line.step: line.query for line in reversed(lines)}


def _sets_of(steps: Sequence[Step], lines: Sequence[Line]) -> dict[int, Query]:
    """The same by the steps of a journal. The server is told of silent ones, too."""
    seen = _sets(lines)
    return {step.step: seen.get(step.sent, ()) for step in steps if not step.query or step.sent in seen}


def _as_seen(
    chain: Chain, journal: Journal, sets: Mapping[int, Query], exhibits: Exhibits, rules: Mapping[int, View]
) -> list[SeenStep]:
    """The steps up to the last one in the log, as the server knows them; `rules` are views of steps of `past`."""
    both = journal.promise == "both"
    client = Announced(chain.n, [plan for plan in exhibits.plans.values() if plan.kind == "table"])

    def rule(step: Step, lag: int) -> Any:
        if lag == 0:
            return client.on()
        plan = exhibits.plans.get(step.plan)
        served = plan is not None and plan.lag <= lag
        return (client.step(lag, plan) if served else None) if both else rules.get(step.step)

    last = max(sets) + 1
    return [SeenStep(step.lag == 0, sets.get(step.step), rule(step, step.lag)) for step in journal.steps[:last]]


def _attack_both(
    chain: Chain, promise: str, steps: Sequence[SeenStep], sensitive: Sequence[int], rounding: float,
    truth: Sequence[int] | None, progress: Progress = silent,
) -> tuple[Attack | None, Attack | None]:  # fmt: skip
    """Attack a log and, if the requests are known, that of a naive client."""
    if not steps:
        return None, None
    true = None if truth is None else truth[: len(steps)]
    bar = progress("attacking")
    found = bayesian.attack(chain, promise, steps, sensitive, rounding, true, bar=bar)
    if true is None:
        return found, None
    openly = bayesian.naive_steps(chain.n, [step.private for step in steps], true)
    return found, bayesian.attack(chain, promise, openly, sensitive, 0.0, true)


def _attack_alone(
    chain: Chain, log: Log, exhibits: Exhibits, statuses: Sequence[bool], truth: Sequence[int] | None
) -> LogAudit:
    """Attack a log of the promise `both` without a journal: the cheapest plan that serves a lag is taken for its."""
    chain.without_memory("the promise `both`")
    streams = dict.fromkeys(line.stream for line in log)
    if len(streams) > 1:
        raise OnoffError(f"there are {len(streams)} streams in this log: give the journal of the one that is meant")
    sets = _sets(log)
    if len(statuses) <= max(sets):
        raise OnoffError(f"there are {len(statuses)} statuses, but the log has a step {max(sets)}: give all of them")
    client = Announced(chain.n, list(exhibits.plans.values()))
    steps: list[SeenStep] = []
    step = client.on()
    for t, private in enumerate(statuses[: max(sets) + 1]):
        step = client.on() if private or not steps else client.off(step, ())
        steps.append(SeenStep(step.lag == 0, sets.get(t), step))
    rounding = sum(seen.rule.rounding for seen in steps if isinstance(seen.rule, type(step)))
    made = _attack_both(chain, "both", steps, (), rounding, truth)
    unchecked = tuple((t, NO_JOURNAL) for t in range(len(steps)))
    off = sum(not seen.private for seen in steps)
    return LogAudit(Verdict(len(steps), off, 0, rounding, (), unchecked), *made)


class Beside:
    """The log's other streams from the address of the audited one; `known` are those whose journals are given.

    A new journal of the same client sent them, another reader, or nobody honest. A verdict on the audited stream does
    not rest on this. What another stream was drawn for only its own journal tells (`--other`).
    """

    def __init__(self, log: Log, journal: Journal, known: Collection[str], n: int) -> None:
        self._journal, self._known, self._n = journal, known, n
        self._own = [line for line in log if line.stream == journal.stream]
        self._others: dict[str, list[Line]] = {}
        for line in log:
            if line.client == self._own[0].client and line.stream != journal.stream:
                self._others.setdefault(line.stream, []).append(line)
        self._before = {name for name, lines in self._others.items() if lines[0].number < self._own[0].number}

    @property
    def begun(self) -> bool:
        """True if another stream of this client came before: with `both` one full set more was due then."""
        return bool(self._before & set(self._known))

    def findings(self) -> Iterator[Finding]:
        """What nobody honest can have sent, and what may be this client's."""
        both, names = self._journal.promise == "both", self._before - set(self._known)
        if both and names and any(step.lag for step in self._journal.steps[1:2]):
            message = "others asked from this address before: if they are this client's, one full set more is due"
            yield Finding(UNCHECKED, message, 1)
        for stream, lines in self._others.items():
            if stream not in self._known and lines[-1].number > self._own[0].number:
                yield from self._explain(lines)

    def _explain(self, other: Sequence[Line]) -> Iterator[Finding]:
        where, sensitive = f"another stream from this address (line {other[-1].number})", set(self._journal.sensitive)
        due = 2 if self._journal.promise == "both" else 1
        begin = [len(line.query) == self._n for line in other if line.step < due]
        turns = any(other[0].number < line.number < other[-1].number for line in self._own)
        if other[0].step or not begin[0]:
            yield Finding("other stream", f"{where} does not begin at step 0 with a full set")
        elif not all(_follows(*pair) for pair in pairwise(other)):
            yield Finding("other stream", f"{where} leaves steps out or changes a query")
        elif turns or not all(begin) or any(sensitive - set(line.query) for line in other):
            message = "must be another reader's; if it is this client's, give its journal (--other)"
            yield Finding(UNCHECKED, f"{where} {message}")


def _follows(before: Line, line: Line) -> bool:
    """True if a query can come after another one of its stream: the next step, or the same query again."""
    again = line.step == before.step and (line.query, line.held) == (before.query, before.held)
    return again or line.step == before.step + 1
