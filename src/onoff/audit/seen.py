"""What the server saw: its log, and whether it is what the journal says was sent.

The log has one JSON line for each query, {"stream": ..., "step": ..., "sources": [...], "held": [...]}, with sources in
the server's order, which a line {"catalogue": [names]} gives. Every sending of a step must have the set of the journal,
in that order, and name the versions that the client holds, whatever is wanted: what it holds follows from earlier
queries and answers alone. No step is missing, none is there besides, and no other stream of this address is one that an
honest journal cannot have sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path
from reprlib import repr as short
from typing import TYPE_CHECKING, Any

from onoff.audit.files import UNREADABLE, Step, parsed, text_lines, whole
from onoff.audit.law import Finding
from onoff.errors import OnoffError
from onoff.types import Query

if TYPE_CHECKING:
    from onoff.model.chain import Chain

KNOWN_FIELDS = {"step", "sources", "client", "time", "damaged", "unread", "stream", "held"}  # of a line of the log


@dataclass(frozen=True)
class Line:
    """One query as the server saw it; `sources` are indices of the chain, in the order in which they were sent.

    `held` are the rounds that it names, 0 for none. An observer of the wire may add whether the answer was `damaged` on
    its way (None: nobody looked), and whether the client left it `unread`.
    """

    stream: str
    step: int
    sources: tuple[int, ...]
    held: tuple[int, ...]
    client: str | None = None
    damaged: bool | None = None
    unread: bool = False
    number: int = field(default=0, compare=False)  # of the line in its file


@dataclass(frozen=True)
class Log:
    """The queries in a server's log, oldest first, and the order in which the server lists sources.

    `damaged` names lines that hold no whole record; `ignored` are fields that no check knows.
    """

    lines: tuple[Line, ...]
    order: tuple[int, ...]
    damaged: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()


def read_log(file: Path, chain: Chain) -> Log:
    """Read a server's log: a line {"catalogue": [names]} gives the numbers of the sources in the lines below it.

    A line that is not JSON is damage, named with its number. A line that is JSON but no query is an error: the file is
    something else.
    """
    order: tuple[int, ...] = ()
    lines, damaged, ignored = [], [], set()
    for number, text in text_lines(file, "replace"):
        where, data = f"{file}: line {number}", parsed(text)
        if data is None:
            damaged.append(f"line {number} of the log is damaged, and what it recorded is not known")
        elif isinstance(data, dict) and "catalogue" in data:
            names = data["catalogue"]
            if not isinstance(names, list) or sorted(map(str, names)) != sorted(chain.names):
                raise OnoffError(f"{where}: the sources of this catalogue are not those of the chain")
            order = tuple(map(chain.index, names))
        elif not order and isinstance(data, dict) and "sources" in data:
            raise OnoffError(
                f'{where}: a query comes before the catalogue. Line 1 should be {{"catalogue": [...]}}: without it '
                "nobody knows which sources the numbers mean; take the server's whole file, or put its first line there"
            )
        else:
            try:
                lines.append(_line(data, order, number))
            except UNREADABLE as error:
                raise OnoffError(f"{where} is not a query as servers write it: {error}") from None
            ignored |= data.keys() - KNOWN_FIELDS
    if not lines:
        raise OnoffError(f"{file}: there are no queries in it: name the transcript of an onoff server")
    return Log(tuple(lines), order, tuple(damaged), tuple(sorted(map(short, ignored))))


def _line(data: Any, order: Sequence[int], number: int) -> Line:
    stream, client, damaged = data["stream"], data.get("client"), data.get("damaged")
    sources = tuple(order[whole(source, len(order))] for source in data["sources"])
    held = tuple(whole(version) for version in data["held"])
    if not sources or len(set(sources)) != len(sources) or len(held) != len(sources):
        raise ValueError("it asks for a source twice or for none, or has other versions than sources")
    if not re.fullmatch("[0-9a-f]{32}", stream) or not isinstance(client, str | None):
        raise ValueError(f"its stream is {short(stream)} and its client {short(client)}")
    if damaged not in (None, True, False):
        raise ValueError("`damaged` is true or false")
    return Line(stream, whole(data["step"]), sources, held, client, damaged, bool(data.get("unread")), number)


class Held:
    """What the client holds of earlier answers, worked out from `received`: by source the version and its size.

    Every member that arrived whole replaces what was held of its source. Then, in the order of size and of equal ones
    in that of their numbers, members stay held while the limit has room.
    """

    def __init__(self) -> None:
        self._held: dict[int, tuple[str, int]] | None = {}

    def rounds(self, query: Query) -> tuple[int, ...] | None:
        """The rounds that a query must name, 0 for none; None if an answer before it is not on record."""
        if self._held is None:
            return None
        return tuple(int(self._held[x][0].split()[0]) if x in self._held else 0 for x in query)

    def answer(self, step: Step) -> None:
        """Take in the answer of a step, if it has come."""
        if not step.finished:
            return
        if self._held is None or step.received is None or step.cache is None:
            self._held = None
            return
        new = {source: (version, size) for source, version, size in step.received}
        known = {**self._held, **new}
        sizes = sorted((size + len(version), x) for x, (version, size) in known.items() if version is not None)
        totals = accumulate(size for size, _ in sizes)
        stay = {x for (_, x), total in zip(sizes, totals, strict=True) if total <= step.cache}
        self._held = {x: (version, size) for x, (version, size) in known.items() if x in stay and version is not None}


class Seen:
    """The lines of one stream in the server's log, against its journal."""

    def __init__(self, log: Log, stream: str, part: bool) -> None:
        self._place = {source: i for i, source in enumerate(log.order)}
        own = [line for line in log.lines if line.stream == stream]
        self._back = [after for before, after in pairwise(own) if after.step < before.step]
        self._lines: dict[int, list[Line]] = {}
        for line in own:
            self._lines.setdefault(line.step, []).append(line)
        self._part, self._first, self._last = part, min(self._lines, default=0), max(self._lines, default=-1)
        earlier = own and any(line.client == own[0].client and line.number < own[0].number for line in log.lines)
        self.full_sets = 2 if earlier else 1  # with which the stream must begin: something was asked before

    def check(self, step: Step, rounds: tuple[int, ...] | None) -> Iterator[Finding]:
        """One step: every sending has the set in the server's order and the versions that are held, and is counted."""
        lines = self._lines.get(step.step, [])
        if not lines:
            if step.finished and not (self._part and not self._first <= step.step <= self._last):
                yield Finding("log", "the step is in the journal and not in the log")
            return
        order = tuple(sorted(step.query, key=lambda source: self._place[source]))
        held = None if rounds is None else dict(zip(step.query, rounds, strict=True))
        for line in lines:
            if line.sources != order:
                what = "another order" if sorted(line.sources) == list(step.query) else shown(line.sources)
                yield Finding("log", f"the server saw {what} (line {line.number}); the journal has {shown(order)}")
            elif held is not None and line.held != (due := tuple(held[source] for source in order)):
                yield Finding("versions", f"names the rounds {line.held} (line {line.number}); {due} are held")
            if line.unread:
                yield Finding("unread", f"the answer was not read to its end (line {line.number})")
        if len(lines) > step.attempts:
            yield Finding("log", f"came {len(lines)} times; the journal counts {step.attempts}")
        if any(line.damaged is False for line in lines[:-1]):
            yield Finding("again", "a whole answer was asked for again")
        if lines[-1].damaged and step.step < self._last:
            yield Finding("retry", "a damaged answer was not asked for again")

    def extra(self, steps: int) -> Iterator[Finding]:
        """What no step of the journal explains."""
        for line in self._back:
            yield Finding("log", f"came again after a later step (line {line.number})", line.step)
        for step, lines in self._lines.items():
            if step >= steps:
                yield Finding("log", f"was sent (line {lines[0].number}) and is not in the journal", step)


def shown(query: Query) -> str:
    """A set for a message."""
    return "{" + ", ".join(map(str, query)) + "}"


def other_findings(
    lines: Sequence[Line], stream: Sequence[Line], n: int, sensitive: Sequence[int]
) -> Iterator[Finding]:
    """Find streams that no honest journal can have sent, among those whose journals were not given.

    Other readers may ask the server. But from the address of the audited stream, once that has begun, only a new
    journal is in order: it begins at step 0 with two full sets, goes on step by step with one set for each, does not
    take turns with the audited stream, and always asks for the sensitive sources.
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
