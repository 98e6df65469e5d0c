"""Plan files as the referee reads them, by code that plans do not share: every field checked, none believed."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from functools import partial
from math import isfinite
from pathlib import Path
from reprlib import repr as short
from typing import TYPE_CHECKING, Any

from onoff.audit.files import readable, sets_with_masses, source_set, whole
from onoff.audit.law import Finding, Law, check_law
from onoff.errors import OnoffError
from onoff.files import read_regular, reading
from onoff.types import Query

if TYPE_CHECKING:
    from onoff.model.chain import Chain

PLAN_VERSION = 3
MOST_LAG = 10**6
FIELD = "a field is missing or is not what it should be"


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
        raise Damaged("chain", f"the plan is for the chain {short(data.get('chain'))}, not for {chain.fingerprint}")
    beside = file.with_name(f"{chain.fingerprint}.chain")
    try:
        same = read_regular(beside, len(chain.content)) == chain.content
    except OnoffError as error:
        raise Damaged("chain", f"the chain of the plan is not beside it: {error}") from None
    if not same:
        raise Damaged("chain", f"{beside.name} is not the chain that its name says")
    with readable(FIELD, partial(Damaged, "file")):
        lag, scheme = whole(data["lag"], MOST_LAG + 1), data["scheme"]
        named = re.fullmatch(r"lag-([0-9]+)\.plan\.json", file.name)
        if named and int(named[1]) != lag:
            raise Damaged("file", f"the name of the file says lag {named[1]}, its contents lag {lag}")
        if not scheme.isprintable() or not scheme.strip():
            raise ValueError(f"there is no scheme {short(scheme)}")
        if scheme == "race":
            cost, (low, high) = _number(data["cost"]), map(_number, data["interval"])
            if not 0 < low <= cost <= high or lag < 1:
                raise ValueError(f"a race of lag {lag} with the cost {cost} in the interval from {low} to {high}")
            return PlanFile(scheme, lag, _number(data["lower_bound"]), cost=cost, interval=(low, high))
        proof = data["certificate"]
        kind, bound, sizes = proof["kind"], _number(proof["bound"]), {"outer": 0, "cuts": None, "sizes": chain.n}
        number = sizes[kind]
    with readable(FIELD, partial(Damaged, "bound")):
        cuts = tuple(source_set(cut, chain.n) for cut in proof["cuts"])
        weights = tuple(whole(weight, 2**62 + 1) for weight in proof["weights"])
        if len(weights) != (len(cuts) if number is None else number):
            raise ValueError(f"a certificate {kind!r} with {len(cuts)} cuts and {len(weights)} weights")
    with readable(FIELD, partial(Damaged, "law")):
        return PlanFile(scheme, lag, bound, _table(data, chain.n), kind, cuts, weights)


def _document(file: Path) -> dict[str, Any]:
    """The JSON object in a plan file, with its format, version and checksum verified."""
    try:
        with reading(file):
            data = json.loads(file.read_bytes().decode("utf-8"), object_pairs_hook=_object)
    except (OnoffError, ValueError, RecursionError) as error:
        raise Damaged("file", f"not a JSON document: {error}") from None
    if not isinstance(data, dict) or data.get("format") != "onoff-plan":
        raise Damaged("file", 'not a plan file: "format" must be "onoff-plan"')
    if type(data.get("version")) is not int or data["version"] != PLAN_VERSION:
        raise Damaged("file", f"version {short(data.get('version'))} of plan files is not read: make the plan anew")
    stated = data.pop("checksum", None)
    canonical = json.dumps(data, sort_keys=True, separators=(",", ":"))
    if stated != hashlib.sha256(canonical.encode()).hexdigest():
        raise Damaged("checksum", "the checksum does not match the contents: damaged or altered")
    return data


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) != len(pairs):
        raise ValueError("a key stands there twice")
    return data


def _table(data: dict[str, Any], n: int) -> Law:
    law = sets_with_masses(data, n)
    if (found := check_law(law, n)) is not None:
        raise ValueError(found.message)
    if law.denominator != data["denominator"]:
        raise ValueError(f"the masses sum to {law.denominator}, not to {short(data['denominator'])}")
    if law.sets[-1] != tuple(range(n)) or law.masses[-1] < n:
        raise ValueError(f"the last set must be the full one, with at least {n} units")
    return law


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not isfinite(value):
        raise ValueError(f"{short(value)} is not a finite number")
    return float(value)
