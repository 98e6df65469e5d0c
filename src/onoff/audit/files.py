"""The referee's readers: the client's journal and record of laws, and the server's log. Nothing is changed on disk.

They share no code with whoever wrote the files. What cannot be read is one sentence that names the file and the line or
step. What can be read may still be false.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from reprlib import repr as short
from typing import TYPE_CHECKING, Any

import numpy as np

from onoff.audit.law import Law, Pairs
from onoff.errors import OnoffError
from onoff.files import read_rows, reading
from onoff.types import Query, Units

if TYPE_CHECKING:
    from onoff.model.chain import Chain

JOURNAL_VERSION, RECORD_VERSION = "7", 2
COLUMNS = (
    "step", "asked_private", "lag", "plan", "query", "request", "next", "cost", "numbers", "law", "received", "cache",
    "attempts",
)  # fmt: skip


@dataclass(frozen=True)
class Step:
    """One step as the journal has it. The lag is 0 for a full set; `query` is sorted.

    `numbers` are the (bound, number) pairs of the draw and `digest` is that of its law. `received` has (source,
    version, bytes) of the members that arrived whole, held within `cache` bytes; both are None while it is pending.
    `request`, `next` and `numbers` are None where they were erased.
    """

    step: int
    asked_private: bool
    lag: int
    plan: str
    query: Query
    request: int | None
    next: int | None
    cost: float
    numbers: Pairs | None
    digest: str | None
    received: tuple[tuple[int, str | None, int], ...] | None
    cache: int | None
    attempts: int


@dataclass(frozen=True)
class Journal:
    """A client's journal: the name of its stream, its promise ("both" or "past"), sensitive sources and all steps."""

    stream: str
    promise: str
    sensitive: tuple[int, ...]
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Line:
    """One query as the server saw it: sources in the order in which they were sent, and the rounds it names of them."""

    stream: str
    step: int
    sources: tuple[int, ...]
    held: tuple[int, ...]
    client: str | None
    number: int


@dataclass(frozen=True)
class Log:
    """The queries in a server's log, oldest first, the server's order of sources, and numbers of lines half written."""

    lines: tuple[Line, ...]
    order: tuple[int, ...]
    damaged: tuple[int, ...]


@dataclass(frozen=True)
class LawLine:
    """The law of one OFF step of the promise `past`, with its encoders by context: tables of units, request by set.

    A reader who was in context c at the step before and asked for nothing hidden is in place[c] now; one whose hidden
    request was x is in joined[x]. `unlike`: an earlier line of this step states something else.
    """

    step: int
    law: Law
    encoders: Mapping[int, Units]
    place: tuple[int, ...]
    joined: tuple[int, ...]
    unlike: bool = False


@contextmanager
def readable(complaint: str, error: Callable[[str], OnoffError] = OnoffError) -> Iterator[None]:
    """Whatever is not what it should be is one sentence: the complaint, and why."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as found:
        raise error(f"{complaint}: {found}") from None


def read_journal(file: Path, chain: Chain | None) -> Journal:
    """Read a client's journal, which is neither locked nor changed. Without a chain it may be that of any chain."""
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as database:
            version = database.execute("SELECT value FROM meta WHERE key = 'version'").fetchone()
            if version != (JOURNAL_VERSION,):
                raise OnoffError(f"{file}: is a journal of version {short(version and version[0])}: make a new one")
            if database.execute("PRAGMA integrity_check").fetchone() != ("ok",):
                raise ValueError("it fails SQLite's check")
            meta = {row["key"]: row["value"] for row in read_rows(database, "meta")}
            rows = [tuple(map(row.get, COLUMNS)) for row in read_rows(database, "steps")]
    except (sqlite3.Error, ValueError) as error:  # SQLite quotes what is damaged, and that may be no text
        raise OnoffError(f"{file}: cannot be read as a journal ({' '.join(str(error).split())})") from None
    if chain is not None and meta.get("chain") != chain.fingerprint:
        raise OnoffError(f"{file}: is the journal of another chain")
    if not rows or [row[0] for row in rows] != list(range(len(rows))):
        raise OnoffError(f"{file}: there are no steps in this journal, or some are missing")
    steps, n = [], 2**31 if chain is None else chain.n
    for row in rows:
        with readable(f"{file}: step {row[0]} is damaged"):
            steps.append(_step(row, n))
    with readable(f"{file}: the promise of this journal cannot be read"):
        sensitive = tuple(sorted(whole(source, n) for source in json.loads(meta["sensitive"])))
        return Journal(meta["identity"], {"past": "past", "both": "both"}[meta["promise"]], sensitive, tuple(steps))


def _step(row: Sequence[Any], n: int) -> Step:
    step, asked, lag, plan, query, request, following, cost, noted, digest, answer, cache, attempts = row
    numbers = None if noted is None else tuple((_long(bound), _long(one)) for bound, one in json.loads(noted))
    received = None if answer is None else tuple((whole(x, n), v, whole(size)) for x, v, size in json.loads(answer))
    if any(not isinstance(version, str | None) for _, version, _ in received or ()):
        raise ValueError("a version is no text")
    if (received is None) != (cache is None):
        raise ValueError("what was received is not noted together with the limit of the cache")
    made = step, bool(whole(asked, 2)), whole(lag), str(plan), source_set(json.loads(query), n)
    wanted = whole(request, n, True), whole(following, n, True), float(cost)
    return Step(*made, *wanted, numbers, digest, received, cache, whole(attempts))


def whole(value: Any, below: int = 2**63, missing: bool = False) -> Any:
    """The value, if it is a whole number below this one, or None where it may be missing."""
    if not (type(value) is int and 0 <= value < below) and not (missing and value is None):
        raise ValueError(f"{short(value)} is not a whole number below {below}")
    return value


def source_set(value: Any, n: int) -> Query:
    """The value, if it is a sorted set of sources."""
    query = tuple(whole(source, n) for source in value)
    if not query or list(query) != sorted(set(query)):
        raise ValueError(f"{short(value)} is not a sorted set of sources")
    return query


def _long(value: Any) -> int:
    """A bound or a number of a draw: a JSON number or, if it is long, "0x..." in base 16 or "2^k"."""
    if isinstance(value, str) and re.fullmatch(r"2\^[0-9]{1,8}", value):
        return 1 << int(value[2:])
    return int(value, 16) if isinstance(value, str) else int(whole(value))


def _json_lines(file: Path) -> Iterator[tuple[int, Any]]:
    """Numbers and contents of lines; None for half a line, two lines in one, or bytes that were never written."""
    with reading(file), file.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            try:
                yield from [(number, json.loads(line))] if line.strip() else []
            except (ValueError, RecursionError):
                yield number, None


def read_log(file: Path, chain: Chain) -> Log:
    """Read a server's log. A line {"catalogue": [names]} gives the numbers of the sources in the lines below it.

    A line that is not JSON is damage. A line that is JSON but no query is an error: the file is something else.
    """
    order: tuple[int, ...] = ()
    lines, damaged = [], []
    for number, data in _json_lines(file):
        with readable(f"{file}: line {number} is not one of a server's log"):
            if data is None:
                damaged.append(number)
            elif "catalogue" not in data:
                lines.append(_line(data, order, number))
            elif sorted(map(str, data["catalogue"])) == sorted(chain.names):
                order = tuple(map(chain.index, data["catalogue"]))
            else:
                raise ValueError("the sources of this catalogue are not those of the chain")
    if not lines:
        raise OnoffError(f"{file}: there are no queries in it: name the transcript of an onoff server")
    return Log(tuple(lines), order, tuple(damaged))


def _line(data: Any, order: Sequence[int], number: int) -> Line:
    stream, client, held = data["stream"], data.get("client"), tuple(map(whole, data["held"]))
    if not order:
        raise ValueError('line 1 should be {"catalogue": [...]}, or nobody knows which sources the numbers mean')
    sources = tuple(order[whole(source, len(order))] for source in data["sources"])
    if not sources or len(set(sources)) != len(sources) or len(held) != len(sources):
        raise ValueError("it asks for a source twice or for none, or has other versions than sources")
    if not re.fullmatch("[0-9a-f]{32}", stream) or not isinstance(client, str | None):
        raise ValueError(f"its stream is {short(stream)} and its client {short(client)}")
    return Line(stream, whole(data["step"]), sources, held, client, number)


def read_laws(file: Path, stream: str, n: int) -> Iterator[LawLine]:
    """Read the laws of one stream from a record, step by step and without keeping them; the last of a step counts.

    A client that was killed before it began a step records its law again. Half a line, which a crash has left, is
    passed over: what it recorded must be in another line.
    """
    kept, before = None, None
    for number, data in _json_lines(file):
        if data is None or (isinstance(data, dict) and data.get("stream") not in (None, stream)):
            continue
        with readable(f"{file}: line {number} is not one of a record of laws"):
            if (data["format"], data["version"]) != ("onoff-law", RECORD_VERSION):
                raise ValueError(f"it does not say 'onoff-law', version {RECORD_VERSION}")
            found = law_line(whole(data["step"]), data["law"], data["place"], data["joined"], n)
            if kept is not None and found.step < kept.step:
                raise ValueError(f"step {found.step} comes after step {kept.step}")
        if kept is not None and found.step == kept.step:
            found = replace(found, unlike=kept.unlike or data != before)
        elif kept is not None:
            yield kept
        kept, before = found, data
    if kept is not None:
        yield kept


def law_line(step: int, law: Mapping[str, Any], place: Sequence[int], joined: Sequence[int], n: int) -> LawLine:
    """Make a law of its dictionary as recorded. Raises `ValueError` if its parts do not fit together."""
    stated, encoders = sets_with_masses(law, n), {}
    for context, parts in law["encoders"].items():
        requests, positions, units = map(_array, parts)
        same = len(requests) == len(positions) == len(units) > 0 and min(requests.min(), positions.min()) >= 0
        if not same or requests.max() >= n or positions.max() >= len(stated.sets):
            raise ValueError(f"the encoder of context {context} has parts that do not fit together")
        table = encoders[whole(int(context))] = np.zeros((n, len(stated.sets)), dtype=np.int64)
        table[requests, positions] = units
    return LawLine(step, stated, encoders, tuple(_array(place).tolist()), tuple(_array(joined).tolist()))


def sets_with_masses(data: Mapping[str, Any], n: int) -> Law:
    """The law of a record or of a plan file."""
    law = Law(tuple(source_set(query, n) for query in data["sets"]), tuple(map(whole, data["masses"])))
    if not law.denominator or len(law.sets) != len(law.masses):
        raise ValueError(f"{len(law.sets)} sets have {len(law.masses)} masses, which sum to {law.denominator}")
    return law


def _array(numbers: Any) -> Units:
    """Whole numbers of 64 bits."""
    found = np.array(numbers, dtype=None if numbers else np.int64)
    if found.ndim != 1 or found.dtype != np.int64:
        raise ValueError("a list of whole numbers is needed")
    return found
