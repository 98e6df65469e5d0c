"""The referee's readers: plan files, the client's journal and record of laws, the server's log.

They share no code with whoever wrote the files. What cannot be read is one sentence that names the file and the line or
row, and nothing on disk is changed. What can be read may still be false: that is for the other modules.
"""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from reprlib import repr as short
from sys import float_info
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from onoff.audit.law import MOST_UNITS, Finding, Law, check_law
from onoff.errors import OnoffError
from onoff.files import read_regular, reading
from onoff.types import Query, Units, is_number, is_whole

if TYPE_CHECKING:
    from onoff.model.chain import Chain

PLAN_VERSION, JOURNAL_VERSION, RECORD_VERSION = 2, "5", 2
MOST_LAG = 10**6
KNOWN_FIELDS = {"step", "sources", "client", "time", "damaged", "unread", "stream", "held"}  # of a line of the log
COLUMNS = (
    "step, private, asked_private, lag, plan, query, request, next, cost, numbers, law, received, cache, attempts, "
    "bytes IS NOT NULL"
)


class Damaged(OnoffError):
    """The file is not a plan for the chain. `finding` says why, as an audit of the plan reports it."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(message)
        self.finding = Finding(rule, message)


@dataclass(frozen=True)
class PlanFile:
    """What a plan file says: well-formed, and for the chain at hand.

    A table has a `law` and the certificate of its lower bound: `kind`, `cuts` and `weights`. A race has neither, but an
    estimated `cost` with its `interval`.
    """

    scheme: str
    lag: int
    bound: float
    law: Law | None = None
    kind: str = ""
    cuts: tuple[Query, ...] = ()
    weights: tuple[int, ...] = ()
    cost: float = 0.0
    interval: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True)
class Step:
    """One step as the journal has it. The lag is 0 for a full set; `query` is sorted.

    `numbers` are the (bound, number) pairs of the draw and `digest` is that of its law. `received` has (source,
    version, bytes) of the members that arrived whole, held within `cache` bytes. `request` and `numbers` are None where
    they were erased, `received` also while the step is pending.
    """

    step: int
    private: bool
    asked_private: bool
    lag: int
    plan: str
    query: Query
    request: int | None
    next: int | None
    cost: float
    numbers: tuple[tuple[int, int], ...] | None
    digest: str | None
    received: tuple[tuple[int, str | None, int], ...] | None
    cache: int | None
    attempts: int
    finished: bool


@dataclass(frozen=True)
class Journal:
    """A client's journal: the name of its stream, its promise ("both" or "past"), sensitive sources and all steps."""

    stream: str
    promise: str
    sensitive: tuple[int, ...]
    steps: tuple[Step, ...]


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
    time: float = 0.0
    damaged: bool | None = None
    unread: bool = False
    number: int = field(default=0, compare=False)  # of the line in its file


@dataclass(frozen=True)
class Log:
    """The queries in a server's log, oldest first; `damaged` names lines that hold no whole record.

    `ignored` are fields that no check knows: what they tell, nobody has looked at. `order` is the server's order of the
    sources, in which queries list them.
    """

    lines: tuple[Line, ...]
    damaged: tuple[str, ...]
    ignored: tuple[str, ...]
    order: tuple[int, ...]


@dataclass(frozen=True)
class LawLine:
    """The law of one OFF step of the promise `past`, with its encoders as (requests, positions, units) by context.

    A reader who was in context c at the step before and asked for nothing hidden is in place[c] now; one whose hidden
    request was x is in joined[x]. `others` counts earlier lines of this step that state something else.
    """

    step: int
    law: Law
    encoders: Mapping[int, tuple[Units, Units, Units]]
    place: tuple[int, ...]
    joined: tuple[int, ...]
    others: int = 0


def read_plan(file: Path, chain: Chain) -> PlanFile:
    """Read a plan file. Raises `Damaged` if it is not one, is altered, or is for another chain."""
    data = _document(file)
    if data.get("chain") != chain.fingerprint:
        _reject("chain", f"the plan is for the chain {short(data.get('chain'))}, the chain is {chain.fingerprint}")
    beside = file.with_name(f"{chain.fingerprint}.chain")
    try:
        same = read_regular(beside, len(chain.content)) == chain.content
    except OnoffError as error:
        _reject("chain", f"the chain of the plan is not beside it: {error}")
    if not same:
        _reject("chain", f"{beside.name} is not the chain that its name says")
    lag = _whole(data.get("lag"), "the lag", 0, MOST_LAG)
    named = re.fullmatch(r"lag-([0-9]+)\.plan\.json", file.name)
    if named and int(named[1]) != lag:
        _reject("file", f"the name of the file says lag {named[1]}, its contents lag {lag}")
    scheme = data.get("scheme")
    if not (isinstance(scheme, str) and scheme.isprintable() and scheme.strip()):
        _reject("file", f"there is no scheme {short(scheme)}")
    if scheme == "race":
        bound, cost = _number(data.get("lower_bound"), "the lower bound"), _number(data.get("cost"), "the cost")
        ends = [_number(end, "an end of the interval") for end in _list(data.get("interval"), "the interval")]
        if len(ends) != 2 or not 0 < ends[0] <= cost <= ends[1] or lag < 1:
            _reject("file", f"a race of lag {lag} with the cost {cost} in the interval {short(ends)}")
        return PlanFile(scheme, lag, bound, cost=cost, interval=(ends[0], ends[1]))
    proof = data.get("certificate")
    if not isinstance(proof, dict) or proof.get("kind") not in ("outer", "cuts", "sizes"):
        _reject("file", "the certificate of the lower bound is of no known kind")
    cuts = tuple(_query(cut, chain.n, "bound") for cut in _list(proof.get("cuts"), "cuts"))
    weights = tuple(_whole(one, "a multiplier", 0, 2**62, "bound") for one in _list(proof.get("weights"), "weights"))
    if len(weights) != {"outer": 0, "cuts": len(cuts), "sizes": chain.n}[proof["kind"]]:
        _reject("bound", f"a certificate {proof['kind']!r} with {len(cuts)} cuts and {len(weights)} weights")
    bound = _number(proof.get("bound"), "the lower bound")
    return PlanFile(scheme, lag, bound, _table(data, chain.n), proof["kind"], cuts, weights)


def _document(file: Path) -> dict[str, Any]:
    """The JSON object in a plan file, with its format, version and checksum verified."""
    try:
        with reading(file):
            data = json.loads(file.read_bytes().decode("utf-8"), object_pairs_hook=_object, parse_constant=_constant)
    except (ValueError, RecursionError) as error:
        _reject("file", f"not a JSON document: {error}")
    if not isinstance(data, dict) or data.get("format") != "onoff-plan":
        _reject("file", 'not a plan file: "format" must be "onoff-plan"')
    if type(data.get("version")) is not int or data["version"] != PLAN_VERSION:
        _reject("file", f"version {short(data.get('version'))} of plan files is not read: make the plan anew")
    stated = data.pop("checksum", None)
    canonical = json.dumps(data, sort_keys=True, separators=(",", ":"))
    if stated != hashlib.sha256(canonical.encode()).hexdigest():
        _reject("checksum", "the checksum does not match the contents: damaged or altered")
    return data


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) != len(pairs):
        raise ValueError("a key stands there twice")
    return data


def _constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number")


def _table(data: dict[str, Any], n: int) -> Law:
    masses = tuple(_whole(mass, "a mass", 1, MOST_UNITS, "law") for mass in _list(data.get("masses"), "masses"))
    sets = tuple(_query(query, n, "law") for query in _list(data.get("sets"), "sets"))
    if len(sets) != len(masses):
        _reject("law", f"{len(sets)} sets have {len(masses)} masses")
    law = Law(sets, masses)
    found = check_law(law, n)
    if found is not None:
        _reject(found.rule, found.message)
    if law.denominator != data.get("denominator"):
        _reject("law", f"the masses sum to {law.denominator}, not to {short(data.get('denominator'))}")
    if sets[-1] != tuple(range(n)) or masses[-1] < n:
        _reject("law", f"the last set must be the full one, with at least {n} units")
    return law


def _query(value: Any, n: int, rule: str) -> Query:
    query = tuple(_whole(x, "a source", 0, n - 1, rule) for x in _list(value, "a set"))
    if not query or list(query) != sorted(set(query)):
        _reject(rule, f"{query} is not a sorted set of sources")
    return query


def _whole(value: Any, what: str, least: int, most: int, rule: str = "file") -> int:
    if type(value) is not int or not least <= value <= most:
        shown = f"of {value.bit_length()} bits" if isinstance(value, int) and abs(value) > 2**80 else short(value)
        _reject(rule, f"{what} is {shown}: a whole number from {least} to {most} is needed")
    return value


def _number(value: Any, what: str) -> float:
    if type(value) not in (int, float) or not abs(value) <= float_info.max:
        _reject("file", f"{what} is {short(value)}: a finite number is needed")
    return float(value)


def _list(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        _reject("file", f"{what} must be a list, not {short(value)}")
    return value


def _reject(rule: str, message: str) -> NoReturn:
    raise Damaged(rule, message)


def read_journal(file: Path, chain: Chain) -> Journal:
    """Read a client's journal, which is neither locked nor changed."""
    if not file.exists():
        raise OnoffError(f"{file}: there is no journal")
    try:
        database = sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)
        try:
            meta = dict(database.execute("SELECT key, value FROM meta").fetchall())
            if meta.get("version") != JOURNAL_VERSION:
                raise OnoffError(f"{file}: is a journal of version {short(meta.get('version'))}: make a new one")
            if meta.get("chain") != chain.fingerprint:
                raise OnoffError(f"{file}: is the journal of another chain")
            steps = tuple(_step(row, chain.n, file) for row in database.execute(f"SELECT {COLUMNS} FROM steps"))
        finally:
            database.close()
    except (sqlite3.Error, UnicodeDecodeError) as error:  # SQLite quotes what is damaged, and that may be no text
        raise OnoffError(f"{file}: cannot be read as a journal ({error})") from None
    if not steps:
        raise OnoffError(f"{file}: there are no steps in this journal: make requests with it first")
    if [step.step for step in steps] != list(range(len(steps))):
        raise OnoffError(f"{file}: steps are missing in this journal")
    promise, sensitive = meta.get("promise"), _parsed(meta.get("sensitive"))
    if promise not in ("past", "both") or not _whole_numbers(sensitive, chain.n):
        raise OnoffError(f"{file}: the promise of this journal cannot be read: {short(promise)}, {short(sensitive)}")
    return Journal(str(meta.get("identity")), promise, tuple(sorted(sensitive)), steps)


def _step(row: Sequence[Any], n: int, file: Path) -> Step:
    step, private, asked, lag, plan, text, request, following, cost, noted, digest, answer, cache, attempts, done = row
    query, numbers, received = _parsed(text), _parsed(noted), _parsed(answer)
    fits = {
        "step": is_whole(step),
        "status": private in (0, 1) and asked in (0, 1),
        "lag": is_whole(lag),
        "plan": isinstance(plan, str) and isinstance(cost, float) and isfinite(cost),
        "query": _whole_numbers(query, n) and query == sorted(set(query)) != [],
        "request": all(one is None or (is_whole(one) and one < n) for one in (request, following)),
        "numbers": noted is None or (isinstance(numbers, list) and None not in map(_pair, numbers)),
        "law": digest is None or isinstance(digest, str),
        "received": answer is None or (isinstance(received, list) and all(_is_member(one, n) for one in received)),
        "attempts": is_whole(attempts, 1) and (cache is None or is_whole(cache)),
    }
    wrong = [name for name, fitting in fits.items() if not fitting]
    if wrong:
        raise OnoffError(f"{file}: step {step} is damaged: {', '.join(wrong)} cannot be what a client noted")
    pairs = None if noted is None else tuple(pair for pair in map(_pair, numbers) if pair)
    members = None if answer is None else tuple((source, version, size) for source, version, size in received)
    return Step(
        *(step, bool(private), bool(asked), lag, plan, tuple(query), request, following, cost),
        *(pairs, digest, members, cache, attempts, bool(done)),
    )


def _parsed(text: Any) -> Any:
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return None


def _pair(value: Any) -> tuple[int, int] | None:
    """A bound and a number: small ones are JSON numbers, others "0x..." in base 16 or "2^k"."""
    if not isinstance(value, list) or len(value) != 2:
        return None
    found = []
    for one in value:
        if isinstance(one, str) and re.fullmatch("2\\^[0-9]{1,8}", one):
            found.append(1 << int(one[2:]))
        elif isinstance(one, str) and re.fullmatch("0x[0-9a-f]+", one):
            found.append(int(one, 16))
        else:
            found.append(one)
    return (found[0], found[1]) if all(map(is_whole, found)) else None


def _is_member(value: Any, n: int) -> bool:
    known = isinstance(value, list) and len(value) == 3 and is_whole(value[0]) and value[0] < n and is_whole(value[2])
    return known and (value[1] is None or isinstance(value[1], str))


def _whole_numbers(value: Any, below: int) -> bool:
    return isinstance(value, list) and all(is_whole(one) and one < below for one in value)


def text_lines(file: Path, errors: str = "strict") -> Iterator[tuple[int, str]]:
    """The lines of a text file that are not empty, stripped, with their numbers."""
    with reading(file), file.open(encoding="utf-8", errors=errors) as stream:
        for number, line in enumerate(stream, 1):
            if line.strip():
                yield number, line.strip()


def read_log(file: Path, chain: Chain) -> Log:
    """Read a server's log: a line {"catalogue": [names]} gives the numbers of the sources in the lines below it.

    A line that is not JSON (half a line, two lines in one, bytes that were never written) is damage, named with its
    number. A line that is JSON but no query is an error: the file is something else.
    """
    order: tuple[int, ...] = ()
    lines, damaged = [], []
    ignored: set[str] = set()
    for number, text in text_lines(file, "replace"):
        where, data = f"{file}: line {number}", _parsed(text)
        if data is None:
            damaged.append(f"line {number} of the log is damaged, and what it recorded is not known")
        elif isinstance(data, dict) and "catalogue" in data:
            names = data["catalogue"]
            if not isinstance(names, list) or sorted(map(str, names)) != sorted(chain.names):
                raise OnoffError(f"{where}: the sources of this catalogue are not those of the chain")
            order = tuple(chain.index(name) for name in names)
        elif not order and isinstance(data, dict) and "sources" in data:
            raise OnoffError(
                f'{where}: a query comes before the catalogue. Line 1 should be {{"catalogue": [...]}}: without it '
                "nobody knows which sources the numbers mean; take the server's whole file, or put its first line there"
            )
        else:
            lines.append(_line(data, order, number, where))
            ignored |= data.keys() - KNOWN_FIELDS
    if not lines:
        raise OnoffError(f"{file}: there are no queries in it: name the transcript of an onoff server")
    return Log(tuple(lines), tuple(damaged), tuple(sorted(map(short, ignored))), order)


def _line(data: Any, order: Sequence[int], number: int, where: str) -> Line:
    if not isinstance(data, dict) or not {"stream", "step", "sources", "held"} <= data.keys():
        needed = '{"stream": ..., "step": ..., "sources": [...], "held": [...]}'
        raise OnoffError(f"{where} is not a query: {needed} is needed, not {short(data)}")
    stream, step, sources, held = data["stream"], data["step"], data["sources"], data["held"]
    client, time = data.get("client"), data.get("time", 0.0)
    damaged, unread = data.get("damaged"), data.get("unread", False)
    named = _whole_numbers(sources, len(order)) and len(set(sources)) == len(sources) > 0
    fits = {
        "stream": isinstance(stream, str) and re.fullmatch("[0-9a-f]{32}", stream),
        "step": is_whole(step),
        "sources": named,
        "held": named and isinstance(held, list) and len(held) == len(sources) and all(map(is_whole, held)),
        "client": client is None or isinstance(client, str),
        "time": is_number(time) and abs(time) <= float_info.max,
        "damaged": damaged in (None, True, False) and unread in (True, False),
    }
    wrong = next((name for name, fitting in fits.items() if not fitting), None)
    if wrong is not None:
        raise OnoffError(f"{where}: {wrong} is {short(data.get(wrong))}, which is not what a server writes")
    query = tuple(order[source] for source in sources)
    return Line(stream, step, query, tuple(held), client, float(time), damaged, unread, number)


def read_laws(file: Path, stream: str, n: int) -> Iterator[LawLine]:
    """Read the laws of one stream from a record, step by step and without keeping them; the last of a step counts.

    A client that was killed before it began a step records its law again. Half a line, which a crash has left, is
    passed over: what it recorded must be in another line.
    """
    kept: LawLine | None = None
    text_before = ""
    for number, text in text_lines(file, "replace"):
        data = _parsed(text)
        if data is None or (isinstance(data, dict) and data.get("stream") not in (None, stream)):
            continue
        try:
            found = _law_line(data, n)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise OnoffError(f"{file}: line {number} is not one of a record of laws ({error})") from None
        if kept is not None and found.step < kept.step:
            raise OnoffError(f"{file}: line {number}: step {found.step} comes after step {kept.step}")
        if kept is not None and found.step == kept.step:
            found = LawLine(**{**vars(found), "others": kept.others + (text != text_before)})
        elif kept is not None:
            yield kept
        kept, text_before = found, text
    if kept is not None:
        yield kept


def _law_line(data: Any, n: int) -> LawLine:
    if not isinstance(data, dict) or data.get("format") != "onoff-law" or data.get("version") != RECORD_VERSION:
        raise ValueError(f"it does not say 'onoff-law', version {RECORD_VERSION}")
    law, step = data["law"], data["step"]
    if not is_whole(step):
        raise ValueError("a step is needed")
    return law_line(step, law["sets"], law["masses"], law["encoders"], data["place"], data["joined"], n)


def law_line(
    step: int, sets: Any, masses: Any, encoders: Mapping[Any, Any], place: Any, joined: Any, n: int
) -> LawLine:
    """A law from its parts, read without trust. Raises `ValueError` if they do not fit together."""
    law = Law(tuple(tuple(_array(query).tolist()) for query in sets), tuple(_array(masses).tolist()))
    if not law.sets or len(law.sets) != len(law.masses):
        raise ValueError(f"{len(law.sets)} sets have {len(law.masses)} masses")
    tables = {}
    for context, parts in encoders.items():
        requests, positions, units = map(_array, parts)
        if not (len(requests) == len(positions) == len(units)) or min(map(np.min, (requests, positions, units))) < 0:
            raise ValueError(f"the encoder of context {context} has parts that do not fit together")
        if requests.max() >= n or positions.max() >= len(law.sets):
            raise ValueError(f"the encoder of context {context} names a source or a set that is none")
        tables[int(context)] = requests, positions, units
    return LawLine(step, law, tables, tuple(_array(place).tolist()), tuple(_array(joined).tolist()))


def _array(numbers: Any) -> Units:
    """Whole numbers of 64 bits."""
    found = np.array(numbers)
    if found.ndim != 1 or (found.size and found.dtype != np.int64):
        raise ValueError("a list of whole numbers is needed")
    return found.astype(np.int64)
