"""What the audit reads: the server's log, the client's journal, and a file with the truth.

The log is what the server saw, one JSON line for each query:

    {"time": 1.5, "step": 3, "sources": [0, 4], "client": "127.0.0.1"}

with `sources` in the server's order of the catalogue, which a line {"catalogue": [names]} gives for all lines below
it; without one it is the order of the chain. An observer of the wire may add `"damaged"`, whether the
answer to this query was damaged on the way, and `"unread"`, whether the client hung up before its last byte.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from sys import float_info
from typing import TYPE_CHECKING, Any

from onoff.errors import OnoffError, is_whole

if TYPE_CHECKING:
    from onoff.chain import Chain

STEP_COLUMNS = "step, private, asked_private, lag, plan, query, request, next"


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


@dataclass(frozen=True)
class Step:
    """One step as the client noted it. The lag is 0 while ON; `query` is sorted; `plan` is its name."""

    step: int
    private: bool
    asked_private: bool
    lag: int
    plan: str
    query: tuple[int, ...]
    request: int
    next: int | None


def read_log(file: Path, chain: Chain) -> tuple[Line, ...]:
    """All queries in the server's log, oldest first."""
    order = list(range(chain.n))
    lines = []
    for number, text in _lines(file):
        where = f"{file}: line {number}"
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            raise OnoffError(f"{where} is not JSON: {_short(text)}") from None
        if isinstance(data, dict) and "catalogue" in data:
            order = _order(data["catalogue"], chain, where)
        else:
            lines.append(_line(data, order, number, where))
    if not lines:
        raise OnoffError(f"{file}: there are no queries in it")
    return tuple(lines)


def streams(
    lines: Iterable[Line], client: str | None = None, noted: Sequence[tuple[int, ...]] = ()
) -> tuple[tuple[Line, ...], ...]:
    """The log taken apart into streams, in the order in which they began; of all clients, or just one.

    A stream begins at step 0. Several streams of one address may take turns (two readers behind it, or two journals):
    a line belongs to the newest one whose last query it repeats, else to one whose next step it is; if there is none
    it breaks a rule, and is left to the newest. Of several whose next step it is, what a journal `noted` decides.
    """
    of_client: dict[str | None, list[list[Line]]] = {}
    found: list[list[Line]] = []
    for line in lines:
        if client is not None and line.client != client:
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


def read_journal(file: Path, chain: Chain) -> tuple[Step, ...]:
    """All steps of a client's journal, finished or pending, read without locking or changing it."""
    if not file.exists():
        raise OnoffError(f"{file}: there is no journal")
    try:
        database = sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)
        try:
            owner = database.execute("SELECT value FROM meta WHERE key = 'chain'").fetchone()
            rows = database.execute(f"SELECT {STEP_COLUMNS} FROM steps ORDER BY step").fetchall()
        finally:
            database.close()
    except sqlite3.Error as error:
        raise OnoffError(f"{file}: cannot be read as a journal ({error})") from None
    if owner is None or owner[0] != chain.fingerprint:
        raise OnoffError(f"{file}: is the journal of another chain")
    if not rows:
        raise OnoffError(f"{file}: there are no steps in this journal: make requests with it first")
    steps = tuple(_step(row, chain.n, f"{file}: row {number}") for number, row in enumerate(rows, 1))
    if [step.step for step in steps] != list(range(len(steps))):
        raise OnoffError(f"{file}: steps are missing in this journal")
    return steps


def _step(row: Sequence[Any], n: int, where: str) -> Step:
    step, private, asked, lag, plan, text, request, following = row
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
    }
    wrong = [name for name, fitting in fits.items() if not fitting]
    if wrong:
        raise OnoffError(f"{where}: the journal is damaged: {', '.join(wrong)} cannot be what a client noted")
    return Step(step, bool(private), bool(asked), lag, plan, tuple(query), request, following)


def read_truth(file: Path, chain: Chain) -> tuple[int, ...]:
    """The requests that were made, one name in a line; `on NAME` and `off NAME`, as `onoff play` reads, will do too."""
    truth = []
    for number, text in _lines(file):
        if text.startswith("#"):
            continue
        word, _, rest = text.partition(" ")
        name = rest.strip() if text not in chain.names and word in ("on", "off") else text
        if name not in chain.names:
            raise OnoffError(f"{file}: line {number}: no source is called {name!r}")
        truth.append(chain.index(name))
    if not truth:
        raise OnoffError(f"{file}: there are no requests in it")
    return tuple(truth)


def read_statuses(text: str) -> tuple[bool, ...]:
    """Statuses as `1001100`, 1 for ON, in a string or in the file of that name."""
    if not text or set(text) - set("01"):
        text = "".join(line for _, line in _lines(Path(text)))
    if not text or set(text) - set("01"):
        raise OnoffError("statuses are written as 1001100: 1 for ON, 0 for OFF, one for each step")
    return tuple(letter == "1" for letter in text)


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    """The lines of a text file that are not empty, stripped, with their numbers."""
    try:
        with file.open(encoding="utf-8") as stream:
            for number, line in enumerate(stream, 1):
                if line.strip():
                    yield number, line.strip()
    except OSError as error:
        raise OnoffError(f"{file}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise OnoffError(f"{file}: is not UTF-8") from None


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
    if not isinstance(damaged, bool | None) or not isinstance(unread, bool):
        raise OnoffError(f"{where}: `damaged` and `unread` are true or false")
    return Line(step, tuple(order[source] for source in sources), client, float(time), damaged, unread, number)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
