"""A plan file as the auditor reads it: every field checked here, by code that plans do not share.

A file of version 1 has the matrix of its chain in it. One of version 2 has the fingerprint, and the chain is a file
beside it, whose bytes must be those of the auditor's own chain.
"""

from __future__ import annotations

import hashlib
import json
import re
import reprlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from onoff.errors import OnoffError, PlanError
from onoff.files import read_regular
from onoff.types import Query

if TYPE_CHECKING:
    from onoff.model.chain import Chain

PATTERN = "*.plan.json"
MOST_UNITS = 2**52  # a larger denominator would not be exact in the arithmetic of plans
MOST_LAG = 10**6
VERSIONS = (1, 2)


@dataclass(frozen=True)
class Finding:
    """A check that failed, with a witness where there is one: the context (lag, last, next), the set, by how much."""

    rule: str
    message: str
    context: tuple[int, int, int] | None = None
    set: Query | None = None
    amount: float | None = None


class Damaged(Exception):
    """The file is not a plan for the chain."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.message)
        self.finding = finding


@dataclass(frozen=True)
class Table:
    """The law of the query, and what is said to prove the lower bound."""

    sets: tuple[Query, ...]
    masses: tuple[int, ...]
    denominator: int
    kind: str
    cuts: tuple[Query, ...]
    weights: tuple[int, ...]


@dataclass(frozen=True)
class Estimate:
    """What a race says of its cost."""

    cost: float
    interval: tuple[float, float]


@dataclass(frozen=True)
class Record:
    """What a plan file says, well-formed and for the chain at hand; whether it is true is another matter."""

    scheme: str
    lag: int
    lengths: tuple[float, ...] | None
    bound: float
    body: Table | Estimate


@dataclass(frozen=True)
class PlanFiles:
    """The plan files that a path stands for; `foreign` are the stores in it whose every plan is for another chain."""

    files: tuple[Path, ...]
    foreign: tuple[Path, ...] = ()


def plan_files(path: Path, chain: Chain) -> PlanFiles:
    """A plan file, or those of a directory and of the stores in it.

    What a store says of itself is not signed by anybody: only the plans tell which chain they are for.
    """
    if path.is_file():
        return PlanFiles((path,))
    if not path.is_dir():
        raise PlanError(f"{path}: there is no such plan file or directory")
    found = sorted(path.glob(PATTERN), key=_by_lag)
    foreign = []
    for store in sorted(path.iterdir()):
        files = sorted(store.glob(PATTERN), key=_by_lag)
        if files and all(_is_foreign(file, chain) for file in files):
            foreign.append(store)
        else:
            found += files
    if not found:
        raise PlanError(f"{path}: there is no plan for this chain in this directory")
    return PlanFiles(tuple(found), tuple(foreign))


def _is_foreign(file: Path, chain: Chain) -> bool:
    """Whether the file says that it is for another chain; one that cannot be read may be anything."""
    try:
        data = json.loads(file.read_bytes())
        if data["version"] != 1:
            return bool(data["chain"] != chain.fingerprint)
        return bool((data["names"], data["matrix"]) != (list(chain.names), chain.P.tolist()))
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return False


def _by_lag(file: Path) -> tuple[int, str]:
    return len(file.name), file.name


def read(file: Path, chain: Chain) -> Record:
    """The record in a file; `Damaged` if it is not one, or is for another chain. `OSError` if it cannot be read."""
    data = _document(file.read_bytes())
    if data["version"] == 1:
        _check_chain(data, chain)
    else:
        _check_kept(data, file, chain)
    lag = _whole(data.get("lag"), "the lag", 0, MOST_LAG)
    named = re.fullmatch(r"lag-([0-9]+)\.plan\.json", file.name)
    if named and int(named[1]) != lag:
        _reject("file", f"the name of the file says lag {named[1]}, its contents lag {lag}")
    lengths = data.get("lengths")
    if lengths is not None:
        lengths = tuple(_number(length, "a length") for length in _list(lengths, "lengths"))
        if len(lengths) != chain.n or not all(1e-300 < length < 1e300 for length in lengths):  # costs stay floats
            _reject("file", f"lengths must be {chain.n} positive numbers")
    scheme = data.get("scheme")
    body: Table | Estimate
    if scheme == "race":
        interval = [_number(end, "an end of the interval") for end in _list(data.get("interval"), "interval")]
        body = Estimate(_number(data.get("cost"), "the cost"), _interval(interval))
        if not 0 < body.interval[0] <= body.cost <= body.interval[1] or lag < 1:
            _reject("file", f"a race of lag {lag} with the cost {body.cost} in the interval {body.interval}")
        bound = _number(data.get("lower_bound"), "the lower bound")
    elif isinstance(scheme, str) and scheme.isprintable() and scheme.strip():  # a law is checked, whatever its name
        body = _table(data, chain.n)
        bound = _number(data["certificate"].get("bound"), "the lower bound")
    else:
        _reject("file", f"there is no scheme {scheme!r}")
    return Record(str(scheme), lag, lengths, bound, body)


def _document(content: bytes) -> dict[str, Any]:
    """The JSON object in the file, with its format, version and checksum verified."""
    try:
        data = json.loads(content.decode("utf-8"), object_pairs_hook=_object, parse_constant=_constant)
    except (ValueError, RecursionError) as error:
        _reject("file", f"not a JSON document: {error}")
    if not isinstance(data, dict) or data.get("format") != "onoff-plan":
        _reject("file", 'not a plan file: "format" must be "onoff-plan"')
    if type(data.get("version")) is not int or data["version"] not in VERSIONS:
        _reject("file", f"version {data.get('version')!r} of the format is not known")
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


def _check_kept(data: dict[str, Any], file: Path, chain: Chain) -> None:
    """The plan names our chain, and the file of that name holds it to the bit: whoever has the directory has all."""
    if data.get("chain") != chain.fingerprint:
        _reject("chain", f"the plan is for the chain {_short(data.get('chain'))}, the chain is {chain.fingerprint}")
    beside, wanted = file.with_name(f"{chain.fingerprint}.chain"), chain.content
    try:
        found = read_regular(beside, len(wanted))
    except OnoffError as error:
        _reject("chain", f"the chain of the plan is not beside it: {error}")
    if found != wanted:
        at = next((i for i, (a, b) in enumerate(zip(found, wanted, strict=False)) if a != b), len(found))
        _reject("chain", f"{beside.name} is not the chain that its name says: byte {at} differs")


def _check_chain(data: dict[str, Any], chain: Chain) -> None:
    if data.get("names") != list(chain.names):
        _reject("chain", "the plan is for other sources than the chain: the names differ")
    matrix = [[_number(p, "a probability") for p in _list(row, "a row of the matrix")]
              for row in _list(data.get("matrix"), "matrix")]  # fmt: skip
    if [len(row) for row in matrix] != [chain.n] * chain.n:
        _reject("chain", f"the matrix in the plan is not one of {chain.n} sources")
    for i, (row, known) in enumerate(zip(matrix, chain.P.tolist(), strict=True)):
        for j, (p, q) in enumerate(zip(row, known, strict=True)):
            if p != q:
                names = f"{chain.names[i]!r} to {chain.names[j]!r}"
                _reject("chain", f"the plan is for another chain: from {names} it has {p!r}, the chain {q!r}")


def _table(data: dict[str, Any], n: int) -> Table:
    masses = tuple(_whole(mass, "a mass", 1, MOST_UNITS, "law") for mass in _list(data.get("masses"), "masses"))
    sets = tuple(_query(query, n, "law") for query in _list(data.get("sets"), "sets"))
    denominator = _whole(data.get("denominator"), "the denominator", 1, MOST_UNITS, "law")
    if len(sets) != len(masses):
        _reject("law", f"{len(sets)} sets have {len(masses)} masses")
    seen: set[Query] = set()
    for query in sets:
        if query in seen:
            _reject("law", f"the set {query} stands there twice")
        seen.add(query)
    if sum(masses) != denominator:
        _reject("law", f"the masses sum to {sum(masses)}, not to the denominator {denominator}")
    if not sets or sets[-1] != tuple(range(n)) or masses[-1] < n:
        _reject("law", f"the last set must be the full one, with at least {n} units")
    proof = data.get("certificate")
    if not isinstance(proof, dict) or proof.get("kind") not in ("outer", "cuts", "sizes"):
        _reject("file", "the certificate of the lower bound is of no known kind")
    cuts = tuple(_query(cut, n, "bound") for cut in _list(proof.get("cuts"), "cuts"))
    weights = [_whole(weight, "a multiplier", 0, 2**62, "bound") for weight in _list(proof.get("weights"), "weights")]
    if len(weights) != {"outer": 0, "cuts": len(cuts), "sizes": n}[proof["kind"]]:
        _reject(
            "bound", f"a certificate of the kind {proof['kind']!r} with {len(cuts)} cuts and {len(weights)} weights"
        )
    return Table(sets, masses, denominator, proof["kind"], cuts, tuple(weights))


def _query(value: Any, n: int, rule: str) -> Query:
    query = tuple(_whole(x, "a source", 0, n - 1, rule) for x in _list(value, "a set"))
    if not query or list(query) != sorted(set(query)):
        _reject(rule, f"{query} is not a sorted set of sources")
    return query


def _whole(value: Any, what: str, least: int, most: int, rule: str = "file") -> int:
    if type(value) is not int or not least <= value <= most:
        _reject(rule, f"{what} is {_short(value)}: a whole number from {least} to {most} is needed")
    return value


def _number(value: Any, what: str) -> float:
    if type(value) not in (int, float) or not abs(value) <= sys.float_info.max:
        _reject("file", f"{what} is {_short(value)}: a finite number is needed")
    return float(value)


def _list(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        _reject("file", f"{what} must be a list, not {_short(value)}")
    return value


def _interval(ends: list[float]) -> tuple[float, float]:
    if len(ends) != 2:
        _reject("file", f"an interval has 2 ends, not {len(ends)}")
    return ends[0], ends[1]


def _short(value: Any) -> str:
    """A value for a message; Python does not print integers of thousands of digits."""
    huge = isinstance(value, int) and abs(value) > 2**80
    return f"an integer of {value.bit_length()} bits" if huge else reprlib.repr(value)


def _reject(rule: str, message: str) -> NoReturn:
    raise Damaged(Finding(rule, message))
