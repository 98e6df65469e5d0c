"""Plan files as the referee reads them, by code that plans do not share: every field checked, none believed."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as short
from sys import float_info
from typing import TYPE_CHECKING, Any, NoReturn

from onoff.audit.law import MOST_UNITS, Finding, Law, check_law
from onoff.errors import OnoffError
from onoff.files import read_regular, reading
from onoff.types import Query

if TYPE_CHECKING:
    from onoff.model.chain import Chain

PLAN_VERSION = 3
MOST_LAG = 10**6


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
