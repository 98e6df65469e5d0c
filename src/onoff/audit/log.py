"""The front door of `onoff audit log`: a server's log replayed against the client's journal, and attacked.

The replay says whether every query was drawn as the rules say, the first wrong step if not, and what could not be
checked. The attack says what a server that knows the client's rules makes of the log, with or without a journal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onoff.audit.files import Journal, LawLine, Line, law_line, read_journal, read_laws, read_log
from onoff.audit.law import Finding
from onoff.audit.replay import replay
from onoff.audit.rules import due_steps
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
    found = replay(
        *(chain, noted, seen, plans or {}, compared or laws),
        remade=record is None, part=part, others=known,
    )  # fmt: skip
    stream = [line for line in seen.lines if line.stream == noted.stream]
    if not stream:
        raise OnoffError(f"{log}: the journal's stream {noted.stream} is not in this log")
    findings = [Finding("log", text) for text in seen.damaged]
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
        findings=(*findings, *found.findings),
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
            law = ready.as_dict()
            yield law_line(step.step, ready.sets, ready.masses, law["encoders"], state.place, state.joined, chain.n)
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


def other_findings(
    lines: Sequence[Line], stream: Sequence[Line], n: int, sensitive: Sequence[int]
) -> Iterator[Finding]:
    """Find streams that no honest journal can have sent, among those whose journals were not given.

    Other readers may ask the server. But from the address of the audited stream, once that has begun, only a new journal
    is in order: it begins at step 0 with two full sets, goes on step by step with one set for each, does not take turns
    with the audited stream, and always asks for the sensitive sources.
    """
    by_stream: dict[str, list[Line]] = {}
    for line in lines:
        by_stream.setdefault(line.stream, []).append(line)
    for other in by_stream.values():
        late = [line for line in other if line.number > stream[0].number]
        if late and other[0].client == stream[0].client:
            why = _fault(other, stream, n, set(sensitive))
            if why:
                where = f"{len(late)} queries of another stream from this address, from line {late[0].number} on"
                yield Finding("other stream", f"{where}: {why}")


def _fault(other: Sequence[Line], stream: Sequence[Line], n: int, sensitive: set[int]) -> str | None:
    """Why no new journal can have sent a stream."""
    if other[0].step or any(len(line.sources) < n for line in other if line.step < 2):
        return "a new journal begins at step 0 with two full sets"
    for before, line in pairwise(other):
        repeated = line.step == before.step and (line.sources, line.held) == (before.sources, before.held)
        if not repeated and line.step != before.step + 1:
            return f"step {line.step} does not follow step {before.step} so"
    if any(other[0].number < line.number < other[-1].number for line in stream):
        return "they take turns with this stream"
    if any(sensitive - set(line.sources) for line in other):
        return "they lack sensitive sources"
    return None
