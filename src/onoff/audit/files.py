"""The referee's readers: the client's journal and the server's log. Nothing is changed on disk.

They share no code with whoever wrote the files. What cannot be read is one sentence that names the file and the line or
step. What can be read may still be false.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as short
from typing import TYPE_CHECKING, Any

from onoff.audit.habits import Recorded, read_chain
from onoff.audit.law import Pairs
from onoff.errors import OnoffError
from onoff.files import check_version, explain_reading, read_rows
from onoff.types import Query

if TYPE_CHECKING:
    from onoff.model.chain import Chain


@dataclass(frozen=True)
class Step:
    """One step as the journal has it. The lag is 0 for a full set; `query` is sorted.

    Servers know a step by how many before it have `sent` something. When it `began`, in seconds since 1970, the
    `spared` sources were fresh, and were left out of the query. Sources of the query are fresh `until` then.

    `numbers` are the (bound, number) pairs of the draw, `digest` is that of its law, and `maker` says which versions
    and which processor made it. `received` has (source, version, bytes) of the members that arrived whole, held within
    `cache` bytes, `ended` is when that was, in seconds since 1970, and all are None while it is pending. A member of it
    has `failed`. `request`, `next` and `numbers` are None where they were erased.
    """

    step: int
    sent: int
    began: float
    spared: Query
    until: tuple[float, ...]
    asked_private: bool
    lag: int
    plan: str
    query: Query
    request: int | None
    next: int | None
    cost: float
    numbers: Pairs | None
    digest: str | None
    maker: str | None
    received: tuple[tuple[int, str | None, int], ...] | None
    cache: int | None
    attempts: int
    ended: float | None
    failed: bool


@dataclass(frozen=True)
class Journal:
    """A client's journal: the name of its stream, its promise ("all", "past" or "both"), sensitive sources, all steps.

    `chains` are the chains that were used, by the first step that each may serve; None where habits are learned anew.
    `learns` says that the client began without a chain.
    """

    stream: str
    promise: str
    sensitive: tuple[int, ...]
    steps: tuple[Step, ...]
    chains: Mapping[int, Recorded | None]
    learns: bool


@dataclass(frozen=True)
class Line:
    """One query as the server saw it: its set, the rounds it names, and if it came in the order of the catalogue."""

    stream: str
    step: int
    query: Query
    held: tuple[int, ...]
    ordered: bool
    client: str | None
    number: int


Log = tuple[Line, ...]  # oldest first


@contextmanager
def readable(complaint: str) -> Iterator[None]:
    """Whatever is not what it should be is one sentence: the complaint, and why."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as found:
        raise OnoffError(f"{complaint}: {found}") from None


def read_journal(file: Path, chain: Chain | None) -> Journal:
    """Read a client's journal, which is neither locked nor changed. Without a chain it may be that of any chain."""
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as database:
            check_version(database, file)
            if database.execute("PRAGMA integrity_check").fetchone() != ("ok",):
                raise ValueError("it fails SQLite's check")
            meta = {row["key"]: row["value"] for row in read_rows(database, "meta")}
            rows = list(read_rows(database, "steps"))
            noted = list(read_rows(database, "chains"))
    except (sqlite3.Error, ValueError) as error:  # SQLite quotes what is damaged, and that may be no text
        raise OnoffError(f"{file}: cannot be read as a journal ({' '.join(str(error).split())})") from None
    if chain is not None and meta.get("chain") != chain.fingerprint:
        raise OnoffError(f"{file}: is the journal of another chain")
    if not rows or [row["step"] for row in rows] != list(range(len(rows))):
        raise OnoffError(f"{file}: there are no steps in this journal, or some are missing")
    steps, sent, n = list[Step](), 0, 2**31 if chain is None else chain.n
    for row in rows:
        with readable(f"{file}: step {row['step']} is damaged"):
            steps.append(_step(row, sent, n))
            sent += bool(steps[-1].query)
    with readable(f"{file}: the promise of this journal cannot be read"):
        sensitive = tuple(sorted(natural(source, n) for source in json.loads(meta["sensitive"])))
        promise, learns = ("all", "past", "both").index(meta["promise"]), "note learning" in meta
        chains = {row["step"]: read_chain(row, chain) for row in noted} if chain is not None else {}
        return Journal(meta["identity"], ("all", "past", "both")[promise], sensitive, tuple(steps), chains, learns)


def _step(row: Mapping[str, Any], sent: int, n: int) -> Step:
    numbers, answer = (None if row[name] is None else json.loads(row[name]) for name in ("numbers", "received"))
    received = None if answer is None else tuple((natural(x, n), v, natural(size)) for x, v, size, *_ in answer)
    if any(not isinstance(version, str | None) for _, version, _ in received or ()):
        raise ValueError("a version is no text")
    if (received is None) != (row["cache"] is None):
        raise ValueError("what was received is not noted together with the limit of the cache")
    spared = source_set(json.loads(row["spared"]), n)
    query = source_set(json.loads(row["query"]), n)
    until = tuple(map(float, json.loads(row["until"] or "[]")))
    if not (query or spared) or (received is not None and len(until) != len(query)):
        raise ValueError("it asked for nothing, or does not say until when all of it is fresh")
    return Step(
        step=row["step"],
        sent=sent,
        began=float(row["began"]),
        spared=spared,
        until=until,
        asked_private=bool(natural(row["asked_private"], 2)),
        lag=natural(row["lag"]),
        plan=str(row["plan"]),
        query=query,
        request=natural(row["request"], n, True),
        next=natural(row["next"], n, True),
        cost=float(row["cost"]),
        numbers=None if numbers is None else tuple((_long(bound), _long(number)) for bound, number in numbers),
        digest=row["law"],
        maker=row["maker"],
        received=received,
        cache=row["cache"],
        attempts=natural(row["attempts"]),
        ended=None if row["ended"] is None else float(row["ended"]),
        failed=any(status for _, _, _, *status in answer or ()),
    )


def natural(value: Any, below: int = 2**63, missing: bool = False) -> Any:
    """The value, if it is a natural number below this one, or None where it may be missing."""
    if not (type(value) is int and 0 <= value < below) and not (missing and value is None):
        raise ValueError(f"{short(value)} is not a whole number below {below}")
    return value


def source_set(value: Any, n: int) -> Query:
    """The value, if it is a sorted set of sources."""
    query = tuple(natural(source, n) for source in value)
    if list(query) != sorted(set(query)):
        raise ValueError(f"{short(value)} is not a sorted set of sources")
    return query


def _long(value: Any) -> int:
    """A bound or a number of a draw: a JSON number or, if it is long, "0x..." in base 16 or "2^k"."""
    if isinstance(value, str) and re.fullmatch(r"2\^[0-9]{1,8}", value):
        return 1 << int(value[2:])
    return int(value, 16) if isinstance(value, str) else int(natural(value))


def json_lines(file: Path) -> Iterator[tuple[int, int, Any]]:
    """Numbers of lines, where each begins, and contents.

    None is the content of half a line, two lines in one, or bytes that were never written.
    """
    with explain_reading(file), file.open("rb") as lines:
        place = 0
        for number, line in enumerate(lines, 1):
            try:
                yield from [(number, place, json.loads(line))] if line.strip() else []
            except (ValueError, RecursionError):
                yield number, place, None
            place += len(line)


def read_log(file: Path, chain: Chain) -> Log:
    """Read a server's log. A line {"catalogue": [names]} gives the numbers of the sources in the lines below it."""
    order: tuple[int, ...] = ()
    found = []
    for number, _, data in json_lines(file):
        with readable(f"{file}: line {number} is not one of a server's log"):
            if data is None:
                raise ValueError("it is damaged. Remove it: if its query came only once, the audit will miss that step")
            if "catalogue" not in data:
                found.append(_line(data, order, number))
            elif sorted(map(str, data["catalogue"])) == sorted(chain.names):
                order = tuple(map(chain.index, data["catalogue"]))
            else:
                raise ValueError("the sources of this catalogue are not those of the chain")
    if not found:
        raise OnoffError(f"{file}: there are no queries in it: name the transcript of an onoff server")
    return tuple(found)


def _line(data: Any, order: Sequence[int], number: int) -> Line:
    stream, client, sent, held = data["stream"], data.get("client"), data["sources"], tuple(map(natural, data["held"]))
    if not order:
        raise ValueError('line 1 should be {"catalogue": [...]}, or nobody knows which sources the numbers mean')
    rounds = dict(zip((order[natural(source, len(order))] for source in sent), held, strict=False))
    if not sent or not len(rounds) == len(sent) == len(held):
        raise ValueError("it asks for a source twice or for none, or has other versions than sources")
    if not re.fullmatch("[0-9a-f]{32}", stream) or not isinstance(client, str | None):
        raise ValueError(f"its stream is {short(stream)} and its client {short(client)}")
    query, ordered = tuple(sorted(rounds)), list(sent) == sorted(sent)
    return Line(stream, natural(data["step"]), query, tuple(rounds[x] for x in query), ordered, client, number)
