"""What the audit reads: the server's log and the client's journal.

The log is what the server saw, one JSON line for each query:

    {"time": 1.5, "stream": "5f2c...", "step": 3, "sources": [0, 4], "client": "127.0.0.1"}

with `sources` in the server's order of the catalogue, which a line {"catalogue": [names]} gives for all lines below
it. The first line is one: without it nobody knows which sources the numbers mean. `stream` is the random name of the
journal that asked; older files lack it. An observer of the wire may add `"damaged"`, whether the answer to this query
was damaged on the way, and `"unread"`, whether the client hung up before its last byte.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import isfinite
from pathlib import Path
from sys import float_info
from typing import TYPE_CHECKING, Any

from onoff.audit.everyday.weights import Weights, weights_of
from onoff.errors import OnoffError
from onoff.files import reading
from onoff.types import is_whole

if TYPE_CHECKING:
    from onoff.model.chain import Chain

PROMISES = ("past", "both")
FIELDS = {"step", "sources", "client", "time", "damaged", "unread", "stream", "held"}  # of a query
STEP_COLUMNS = (
    "step, private, asked_private, lag, plan, query, request, next, cost, "
    "CASE WHEN bytes IS NULL THEN NULL ELSE attempts END"  # a pending step may be sent again
)


@dataclass(frozen=True)
class Line:
    """One query as the server saw it; `sources` are indices of the chain, in the order in which they were sent."""

    step: int
    sources: tuple[int, ...]
    client: str | None = None
    time: float = 0.0
    damaged: bool | None = None  # None: nobody observed it
    unread: bool = False
    number: int = field(default=0, compare=False)  # of the line in its file
    stream: str | None = field(default=None, kw_only=True)
    held: tuple[int, ...] | None = field(default=None, kw_only=True)  # the versions that it names, 0 for none


@dataclass(frozen=True)
class Step:
    """One step as the client noted it. The lag is 0 while ON; `query` is sorted; `plan` and `cost` are the plan's.

    `attempts` says how often the query was sent before it was answered; None while the step is pending, or not noted.
    """

    step: int
    private: bool
    asked_private: bool
    lag: int
    plan: str
    query: tuple[int, ...]
    request: int
    next: int | None
    cost: float | None = None
    attempts: int | None = None


@dataclass(frozen=True)
class Log:
    """All queries in a server's log, oldest first; `damaged` names the lines that hold no whole record.

    `ignored` are fields that no check here knows: what they tell, nobody has looked at.
    """

    lines: tuple[Line, ...]
    damaged: tuple[str, ...]
    ignored: tuple[str, ...] = ()


def read_log(file: Path, chain: Chain) -> tuple[Line, ...]:
    """All queries in the server's log, oldest first; an error if a line is damaged."""
    log = read_transcript(file, chain)
    if log.damaged:
        raise OnoffError(f"{file}: {log.damaged[0]}")
    return log.lines


def read_transcript(file: Path, chain: Chain) -> Log:
    """The server's log as far as it is whole.

    A line that is not JSON (half a line, two lines glued together, bytes that were never written) is damage, named with
    its number. A line that is JSON but no query is an error: the file is something else.
    """
    order: list[int] = []
    lines, damaged = [], []
    ignored: set[str] = set()
    for number, text in text_lines(file, "replace"):
        where = f"{file}: line {number}"
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            damaged.append(f"line {number} is damaged, and what it recorded is not known: {_short(text)}")
            continue
        if isinstance(data, dict) and "catalogue" in data:
            order = _order(data["catalogue"], chain, where)
        elif not order and isinstance(data, dict) and "sources" in data:
            raise OnoffError(
                f'{where}: a query comes before the catalogue. Line 1 should be {{"catalogue": [...]}}: without it '
                "nobody knows which sources the numbers mean; take the server's whole file, or put its first line there"
            )
        else:
            lines.append(_line(data, order, number, where))
            ignored |= data.keys() - FIELDS
    if not (lines or order) and damaged:
        raise OnoffError(f"{file}: no line of it is JSON: name the transcript of an onoff server")
    if not lines:
        why = damaged[0] if damaged else "there are no queries in it"
        raise OnoffError(f"{file}: {why}")
    return Log(tuple(lines), tuple(damaged), tuple(sorted(map(_short, ignored))))


def streams(
    lines: Iterable[Line], client: str | None = None, noted: Sequence[tuple[int, ...]] = ()
) -> tuple[tuple[Line, ...], ...]:
    """The log taken apart into streams, in the order in which they began; of all clients, or just one.

    Lines that name their stream are told apart by that name alone, the others by their address. Several streams of one
    address may take turns (two readers behind it, or two journals). The *newest* is the one that had the last line. A
    line that repeats the last query of the newest stream belongs to it. Another line at step 0 begins a stream, unless
    the newest is itself at step 0. Any other line goes to a stream whose next step it is. If there is none, the line
    breaks a rule and is left to the newest. If there are several, the queries in `noted` (from a journal) decide.
    """
    of_client: dict[str | None, list[list[Line]]] = {}
    of_stream: dict[str, list[Line]] = {}
    found: list[list[Line]] = []
    for line in lines:
        if client is not None and line.client != client:
            continue
        if line.stream is not None:
            if line.stream not in of_stream:
                found.append(of_stream.setdefault(line.stream, []))
            of_stream[line.stream].append(line)
            continue
        known = of_client.setdefault(line.client, [])
        stream = _continued(known, line, noted)
        if stream is None:
            stream = []
            found.append(stream)
        known[:] = [stream, *(other for other in known if other is not stream)]  # the newest first
        stream.append(line)
    return tuple(map(tuple, found))


def _continued(known: list[list[Line]], line: Line, noted: Sequence[tuple[int, ...]]) -> list[Line] | None:
    """The stream that a line goes on with, of those of its client; None if it begins one."""
    if known and known[0][-1].step == line.step and known[0][-1].sources == line.sources:
        return known[0]
    if line.step == 0:
        return known[0] if known and known[0][-1].step == 0 else None
    following = [stream for stream in known if stream[-1].step + 1 == line.step]
    alike = [stream for stream in following if agrees(stream[-1], noted) == agrees(line, noted)]
    return next(iter([*alike, *following, *known]), None)


def agrees(line: Line, noted: Sequence[tuple[int, ...]]) -> bool:
    """Whether a journal noted this query for this step."""
    return line.step < len(noted) and tuple(sorted(line.sources)) == noted[line.step]


@dataclass(frozen=True)
class Notes:
    """What a journal says beside its steps: the name of its stream, and the lengths of messages since a step.

    `before` are earlier lengths: the step from which on each was used, and a digest. Of older steps the journal says
    nothing. `promise` is "both" (past and future, announced) or "past" (the everyday mode), with its `sensitive`
    sources. `counted` is the step from which on every sending is counted, None if nobody counts.
    """

    stream: str | None
    weights: Weights | None
    since: int
    promise: str = "both"
    sensitive: tuple[int, ...] = ()
    before: tuple[tuple[int, str], ...] = ()
    counted: int | None = 0

    @property
    def lengths(self) -> tuple[float, ...] | None:
        """The lengths of messages."""
        return None if self.weights is None else self.weights.lengths


def read_notes(file: Path) -> Notes:
    """The notes of a client's journal."""
    [meta] = _rows(file, "SELECT key, value FROM meta")
    notes = dict(meta)
    try:
        weights = weights_of(json.loads(notes.get("note lengths", "null")))
        since = int(notes.get("note lengths since", 0))
        before = _before(json.loads(notes.get("note lengths before", "[]")), since)
    except (TypeError, ValueError, RecursionError):
        noted = _short(notes.get("note lengths"))
        raise OnoffError(f"{file}: the lengths noted in this journal cannot be read: {noted}") from None
    text = notes.get("note sendings since")
    if not (text is None or re.fullmatch("[0-9]{1,16}", text)):
        raise OnoffError(f"{file}: the step from which on sendings are counted cannot be read: {_short(text)}")
    counted = None if text is None else int(text)
    return Notes(notes.get("identity"), weights, since, *_promise(file, notes), before, counted)


def _before(noted: Any, since: int) -> tuple[tuple[int, str], ...]:
    """Earlier lengths, in the order of their first steps. Raises `ValueError` if this is not what a client noted."""
    eras = tuple((first, digest) for first, digest in noted)
    firsts = [*(first for first, _ in eras), since]
    known = all(isinstance(digest, str) and re.fullmatch("[0-9a-f]{64}", digest) for _, digest in eras)
    if not (known and all(map(is_whole, firsts)) and all(one < other for one, other in pairwise(firsts))):
        raise ValueError("earlier lengths have steps that rise, and digests")
    return eras


def _promise(file: Path, notes: dict[str, str]) -> tuple[str, tuple[int, ...]]:
    """Which promise the journal was made for, and its sensitive sources."""
    promise, text = notes.get("promise", "both"), notes.get("sensitive", "[]")
    try:
        sensitive = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        sensitive = None
    if promise not in PROMISES or not isinstance(sensitive, list) or not all(map(is_whole, sensitive)):
        raise OnoffError(f"{file}: the promise of this journal cannot be read: {_short(promise)}, {_short(text)}")
    return promise, tuple(sorted(sensitive))


def _rows(file: Path, *queries: str) -> list[list[Any]]:
    """What these queries find in a journal, which is neither locked nor changed."""
    if not file.exists():
        raise OnoffError(f"{file}: there is no journal")
    try:
        database = sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)
        try:
            return [database.execute(query).fetchall() for query in queries]
        finally:
            database.close()
    except (sqlite3.Error, UnicodeDecodeError) as error:  # SQLite quotes what is damaged, and that may be no text
        raise OnoffError(f"{file}: cannot be read as a journal ({error})") from None


def read_journal(file: Path, chain: Chain) -> tuple[Step, ...]:
    """All steps of a client's journal, finished or pending, read without locking or changing it."""
    [owners, rows] = _rows(
        file, "SELECT value FROM meta WHERE key = 'chain'", f"SELECT {STEP_COLUMNS} FROM steps ORDER BY step"
    )
    owner = next(iter(owners), None)
    if owner is None or owner[0] != chain.fingerprint:
        raise OnoffError(f"{file}: is the journal of another chain")
    if not rows:
        raise OnoffError(f"{file}: there are no steps in this journal: make requests with it first")
    steps = tuple(_step(row, chain.n, f"{file}: row {number}") for number, row in enumerate(rows, 1))
    if [step.step for step in steps] != list(range(len(steps))):
        raise OnoffError(f"{file}: steps are missing in this journal")
    return steps


def _step(row: Sequence[Any], n: int, where: str) -> Step:
    step, private, asked, lag, plan, text, request, following, cost, attempts = row
    try:
        query = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        query = None
    fits = {
        "step": is_whole(step),
        "private": private in (0, 1),
        "asked_private": asked in (0, 1),
        "lag": is_whole(lag),
        "plan": isinstance(plan, str),
        "query": isinstance(query, list)
        and all(map(is_whole, query))
        and query == sorted({*query} & {*range(n)}) != [],
        "request": is_whole(request) and request < n,
        "next": following is None or (is_whole(following) and following < n),
        "cost": isinstance(cost, float) and isfinite(cost),
        "attempts": attempts is None or is_whole(attempts, 1),
    }
    wrong = [name for name, fitting in fits.items() if not fitting]
    if wrong:
        raise OnoffError(f"{where}: the journal is damaged: {', '.join(wrong)} cannot be what a client noted")
    return Step(step, bool(private), bool(asked), lag, plan, tuple(query), request, following, cost, attempts)


def text_lines(file: Path, errors: str = "strict") -> Iterator[tuple[int, str]]:
    """The lines of a text file that are not empty, stripped, with their numbers."""
    with reading(file), file.open(encoding="utf-8", errors=errors) as stream:
        for number, line in enumerate(stream, 1):
            if line.strip():
                yield number, line.strip()


def _order(names: Any, chain: Chain, where: str) -> list[int]:
    """Where each source of a catalogue stands in the chain."""
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise OnoffError(f"{where}: the catalogue is not a list of names")
    if sorted(names) != sorted(chain.names):
        raise OnoffError(f"{where}: the sources of this catalogue are not those of the chain")
    return [chain.index(name) for name in names]


def _line(data: Any, order: Sequence[int], number: int, where: str) -> Line:
    if not isinstance(data, dict) or not {"step", "sources"} <= data.keys():
        raise OnoffError(f'{where} is not a query: {{"step": ..., "sources": [...]}} is needed, not {_short(data)}')
    step, sources, client = data["step"], data["sources"], data.get("client")
    time, damaged, unread = data.get("time", 0.0), data.get("damaged"), data.get("unread", False)
    if not is_whole(step):
        raise OnoffError(f"{where}: the step is {_short(step)}: a whole number is needed")
    known = isinstance(sources, list) and all(is_whole(source) and source < len(order) for source in sources)
    if not known or not sources or len(set(sources)) != len(sources):
        raise OnoffError(f"{where}: {_short(sources)} is not a set of sources from 0 to {len(order) - 1}")
    if not (client is None or isinstance(client, str)):
        raise OnoffError(f"{where}: the client is {_short(client)}: a text is needed")
    if isinstance(time, bool) or not isinstance(time, int | float) or not abs(time) <= float_info.max:
        raise OnoffError(f"{where}: the time is {_short(time)}: seconds are needed")
    name = data.get("stream")
    if not (name is None or (isinstance(name, str) and re.fullmatch("[0-9a-f]{32}", name))):
        raise OnoffError(f"{where}: the stream is {_short(name)}: 32 hexadecimal digits are needed")
    if not isinstance(damaged, bool | None) or not isinstance(unread, bool):
        raise OnoffError(f"{where}: `damaged` and `unread` are true or false")
    held = data.get("held")
    if not (held is None or (isinstance(held, list) and len(held) == len(sources) and all(map(is_whole, held)))):
        raise OnoffError(f"{where}: {_short(held)} are not the versions of {len(sources)} sources")
    query = tuple(order[source] for source in sources)
    named = None if held is None else tuple(held)
    return Line(step, query, client, float(time), damaged, unread, number, stream=name, held=named)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
