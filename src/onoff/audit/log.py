"""The front door of `onoff audit log`: a server's log replayed against the client's journal, and attacked.

The replay says whether every query was drawn as the rules say, the first wrong step if not, and what could not be
checked. The attack says what a server that knows the client's rules makes of the log, with or without a journal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onoff.audit.files import Journal, LawLine, law_line, read_journal, read_laws
from onoff.audit.law import Finding
from onoff.audit.numbers import Numbers
from onoff.audit.replay import replay
from onoff.audit.rules import due_steps
from onoff.audit.seen import other_findings, read_log
from onoff.audit.verdict import Verdict
from onoff.errors import OnoffError

if TYPE_CHECKING:
    from onoff.model.chain import Chain

UNPLANNED = "contexts in which nothing was asked (`onoff audit plan` checks all of a plan)"
UNREMADE = "whether each law is the one that public things give, which may have been chosen by the request (--remake)"
REPEATED = "why {} queries were sent again, which the journal counts and does not explain"


@dataclass(frozen=True)
class LogAudit:
    """What a log says: the `verdict` of the replay, and how many queries of other streams it holds."""

    verdict: Verdict
    other_streams: int
    other_queries: int
    remade: int | None = None

    @property
    def passed(self) -> bool:
        return self.verdict.passed


def audit_log(
    chain: Chain,
    log: Path,
    *,
    journal: Path,
    plans: Mapping[str, Any] | None = None,
    record: Path | None = None,
    engine: Any = None,
    others: Sequence[Path] = (),
    part: bool = False,
) -> LogAudit:
    """Replay the steps of a journal and compare them with the server's log.

    `plans` are the client's plans by their names. `record` is the client's record of laws (promise `past`); without it
    an `engine`, the client's code in its state after an ON step, makes them again: then that code is believed to be the
    client's wherever the digests agree, and where they do not the step is not checked. With both, recorded laws are
    compared with those made again. `others` are journals of the same client, whose numbers must not come again.
    """
    noted, seen = read_journal(journal, chain), read_log(log, chain)
    known = [read_journal(file, chain) for file in others]
    ignored = [f"what the field {name} of the log tells" for name in seen.ignored]
    laws: Iterable[LawLine] | None = None
    if noted.promise == "past":
        if record is None and engine is None:
            ignored.append("any law: give the client's record, or its code")
        laws = read_laws(record, noted.stream, chain.n) if record is not None else remade_laws(chain, noted, engine)
        if record is not None and engine is None:
            ignored.append(UNREMADE)
    else:
        ignored.append(UNPLANNED)
    compared = _Compared(laws, remade_laws(chain, noted, engine)) if record is not None and engine is not None else None
    found = replay(chain, noted, seen, plans or {}, compared or laws or (), remade=record is None, part=part)
    stream = [line for line in seen.lines if line.stream == noted.stream]
    if not stream:
        raise OnoffError(f"{log}: the journal's stream {noted.stream} is not in this log")
    findings = [Finding("log", text) for text in seen.damaged]
    numbers = Numbers(known)
    drawn = [finding for step in noted.steps for finding in numbers.check(step)]
    beside = [line for line in seen.lines if line.stream not in {noted.stream, *(other.stream for other in known)}]
    findings += other_findings(beside, stream, chain.n, noted.sensitive)
    again = len(stream) - len({line.step for line in stream})
    if again and any(line.damaged is None for line in stream):
        ignored.append(REPEATED.format(again))
    unchecked = {**(compared.unlike if compared else {}), **found.unchecked}
    verdict = Verdict(
        steps=len(noted.steps),
        off=sum(step.lag > 0 for step in noted.steps),
        drawn=found.drawn,
        rounding=found.rounding,
        findings=(*findings, *sorted([*found.findings, *drawn], key=lambda finding: finding.step or 0)),
        unchecked=tuple(sorted(unchecked.items())),
        ignored=tuple(ignored),
    )
    return LogAudit(verdict, len({line.stream for line in beside}), len(beside))


def remade_laws(chain: Chain, journal: Journal, engine: Any) -> Iterator[LawLine]:
    """Make the laws of a journal's OFF steps again, from public things: the chain, sensitive sources and the queries.

    After a set that is not one of its law none can be made before the next ON step.
    """
    state = None
    for step, due in zip(journal.steps, due_steps(journal.steps, False, 1), strict=True):
        if due.lag == 0:
            state = engine if due.counts else None
        elif state is not None and engine is not None:
            ready = state.prepare()
            yield law_line(step.step, ready.as_dict(), state.place, state.joined, chain.n)
            state = state.advance(ready, step.query) if step.query in ready.sets else None


class _Compared:
    """Recorded laws in their order; `unlike` are steps for which the installed code makes another law."""

    def __init__(self, recorded: Iterable[LawLine] | None, made: Iterator[LawLine]) -> None:
        self._recorded, self._made = recorded or (), made
        self.unlike: dict[int, str] = {}

    def __iter__(self) -> Iterator[LawLine]:
        made = next(self._made, None)
        for line in self._recorded:
            while made is not None and made.step < line.step:
                made = next(self._made, None)
            if made is not None and made.step == line.step and _content(made) != _content(line):
                self.unlike[line.step] = "the installed code makes another law there than is on record"
            yield line


def _content(line: LawLine) -> Any:
    """What two lines of the same law have in common, whatever the order of their entries."""
    tables = {
        context: sorted(zip(*(part.tolist() for part in parts), strict=True))
        for context, parts in line.encoders.items()
    }
    return line.law, tables, line.place, line.joined
