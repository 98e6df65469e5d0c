"""Is this plan what it says? The front door of `onoff audit plan`.

The file is read by the referee's own reader. Then, in integers and from scratch: the law and the encoder of every
context (privacy: `law` and `rows`), what `draw` does with given random numbers, and the cost and the lower bound
(`optimality`). The plan object is an exhibit: it is asked for encoders, roundings and draws, and believed in nothing.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import accumulate, product
from math import isfinite
from pathlib import Path
from reprlib import repr as short
from typing import TYPE_CHECKING, Any

from onoff.audit import optimality
from onoff.audit.exhibits import always, drawn, sets_with_masses
from onoff.audit.files import readable, source_set, whole
from onoff.audit.law import COARSE, Finding, Law, Pairs, check_encoder, check_law
from onoff.audit.optimality import LagRows, Proof, RaceCost
from onoff.audit.races import Race
from onoff.audit.replay import check_draw
from onoff.errors import ContextError, OnoffError
from onoff.files import read_regular, reading
from onoff.model.bounds import up
from onoff.types import Bar, Query, RandBelow, Units, quiet

if TYPE_CHECKING:
    from onoff.model.chain import Chain

PLAN_VERSION = 3
MOST_LAG = 10**6
FIELD = "a field is missing or is not what it should be"
DRAWS = 20_000
TRIED = 4  # numbers for one request in one context
REPLAYED = 4 * 10**9  # products: so many that the clocks of races are run again for seconds


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
class LagCheck:
    """All contexts of one lag: the largest total variation between an encoder's rows and the posterior, exactly.

    `kept` of the `contexts` have an encoder that keeps its promise. A race has no encoders: both are 0, and only the
    rounding that it states is known.
    """

    lag: int
    kept: int
    contexts: int
    largest: Fraction | None
    at: tuple[int, int] | None
    stated: float


@dataclass(frozen=True)
class PlanAudit:
    """What was verified of one plan file. `findings` is empty iff everything holds; there is one of each rule.

    `said` is what the file says. `cost` is exact, or None for a race, whose `estimate` is made from fresh draws.
    """

    file: str
    findings: tuple[Finding, ...]
    said: PlanFile | None = None
    checks: tuple[LagCheck, ...] = ()
    cost: Fraction | None = None
    estimate: RaceCost | None = None
    proof: Proof | None = None

    @property
    def valid(self) -> bool:
        return not self.findings


def audit_plan(
    chain: Chain,
    file: Path,
    load: Callable[[Path], Any],
    lags: Iterable[int] = (),
    *,
    draws: int = DRAWS,
    seconds: float = 60.0,
    randbelow: RandBelow = secrets.randbelow,
    bar: Bar = quiet,
) -> PlanAudit:
    """Verify the plan in `file` for `chain` at its own lag and those of `lags` that are larger.

    `load` gives the plan object: the exhibit. It is asked for `draws` queries at most; `seconds` bounds a proof by
    CP-SAT. A race is what a new client uses at every lag: it is always drawn at the next one, too.
    """
    try:
        said = read_plan(file, chain)
    except Damaged as damage:
        return PlanAudit(str(file), (damage.finding,))
    further = {lag for lag in lags if lag > said.lag} | ({said.lag + 1} if said.law is None else set())
    try:
        rows = [LagRows(chain, lag) for lag in sorted({said.lag, *further})]
    except OnoffError as error:  # a lag beyond exact integers: of this plan, not of the others
        return PlanAudit(str(file), (Finding("unchecked", str(error)),), said)
    proof = optimality.prove(said, rows[0], seconds)
    cost = None if said.law is None else said.law.cost
    findings = [*optimality.check_statements(said, proof)]
    if said.law is not None and (units := Fraction(4 * chain.n, said.law.denominator)) > COARSE:  # rounding moves 4 n
        findings.append(
            Finding("coarse", f"of {said.law.denominator} units 4 n are too large a share", amount=float(units))
        )
    checks: list[LagCheck] = []
    estimate = None
    try:
        plan = load(file)
        findings += _check_exhibit(plan, said, chain, cost)
        if not any(found.rule == "exhibit" for found in findings):
            if said.law is None:
                checks = [LagCheck(one.lag, 0, 0, None, None, float(plan.rounding_at(one.lag))) for one in rows]
                estimate = _check_race(plan, said, proof, rows, draws, randbelow, bar, findings)
            else:
                each = draws // len(rows)
                checks = [_check_lag(plan, said.law, one, each, randbelow, bar, findings) for one in rows]
            findings += [
                Finding("coarse", f"a rounding of {check.stated!r} per step is stated at lag {check.lag}: too much")
                for check in checks
                if not 0 <= check.stated <= COARSE
            ]
    except OnoffError as error:
        findings.append(Finding("refused", f"the plan cannot be used: {error}"))
    first = {found.rule: found for found in reversed(findings)}  # one witness of each rule is enough
    return PlanAudit(str(file), tuple(reversed(first.values())), said, tuple(checks), cost, estimate, proof)


def _check_exhibit(plan: Any, said: PlanFile, chain: Chain, cost: Fraction | None) -> Iterator[Finding]:
    """Compare the plan object with the file."""
    due: dict[str, object] = {"chain": chain, "scheme": said.scheme, "lag": said.lag}
    if said.law is None:
        due |= {"cost": said.cost, "interval": said.interval, "lower_bound": said.bound}
    else:
        due |= {"sets": said.law.sets, "masses": said.law.masses, "denominator": said.law.denominator}
    other = [name for name, value in due.items() if getattr(plan, name, None) != value]
    if other:
        yield Finding("exhibit", f"the plan object differs from the file in: {', '.join(other)}")
    if cost is not None and plan.cost != up(cost):
        message = f"the plan states the cost {plan.cost!r}, its law costs {up(cost)!r}"
        yield Finding("cost", message, amount=float(abs(Fraction(plan.cost) - cost)))


def _check_lag(
    plan: Any, law: Law, rows: LagRows, draws: int, randbelow: RandBelow, bar: Bar, findings: list[Finding]
) -> LagCheck:
    """Check every context of one lag: its encoder, the rounding that is stated, and some draws.

    Of the `draws` every context gets its share: all its requests, or some at random.
    """
    n, stated = rows.n, float(plan.rounding_at(rows.lag))
    largest, at, kept, contexts = Fraction(-1), (0, 0), 0, 0
    share = TRIED * n * n
    with bar(n * n) as advance:
        for last, next in product(range(n), repeat=2):
            contexts += rows.possible(last, next)
            found = _check_context(plan, law, rows, last, next)
            if isinstance(found, Finding):
                findings.append(found)
            elif found is not None:
                units, distance = found
                kept += 1
                if distance > largest:
                    largest, at = distance, (last, next)
                requests = draws // share + (randbelow(share) < draws % share)
                findings += _check_draws(plan, law, units, (rows.lag, last, next), requests, randbelow)
            advance()
    if largest > Fraction(stated):
        message = f"rows are {up(largest):.3e} from the posterior, {stated:.3e} is stated (total variation)"
        findings.append(Finding("rounding", message, None, (rows.lag, *at), None, up(largest - Fraction(stated))))
    return LagCheck(rows.lag, kept, contexts, largest if kept else None, at if kept else None, stated)


def _check_context(plan: Any, law: Law, rows: LagRows, last: int, next: int) -> tuple[Units, Fraction] | Finding | None:
    """Return the encoder of a context and its total variation, exactly, or what is wrong; None if it is impossible."""
    context = rows.lag, last, next
    possible = rows.possible(last, next)
    try:
        units = plan.encoder(last, next, rows.lag).toarray()
    except ContextError as error:
        message = f"a possible context is called impossible: {error}"
        return Finding("contexts", message, context=context) if possible else None
    except OnoffError as error:
        return Finding("encoder", f"there is no encoder: {error}", context=context)
    if not possible:
        return Finding("contexts", "an impossible context has an encoder", context=context)
    found = check_encoder(law, units, rows.weights(last, next), rows.error, context)
    return found if isinstance(found, Finding) else (units, found)


def _check_draws(
    plan: Any, law: Law, units: Units, context: tuple[int, int, int], requests: int, randbelow: RandBelow
) -> Iterator[Finding]:
    """Find what `draw` does that does not follow the encoder, for so many requests of one context.

    Tried are the ends of a part, where mistakes of one show, 0 and a random number; if `draw` is monotone, the ends of
    all parts of a row prove it for that row.
    """
    members = [x for x, row in enumerate(units) if row.any()]
    chosen = members if requests >= len(members) else [members[randbelow(len(members))] for _ in range(requests)]
    for request in chosen:
        row = units[request]
        parts, ends = row.nonzero()[0].tolist(), row.cumsum().tolist()
        part = parts[randbelow(len(parts))]
        for number in (ends[part] - 1, ends[part] - int(row[part]), 0, randbelow(ends[-1])):
            query, numbers = _drawn(plan, request, context, always(number))
            for found in check_draw(query, numbers, row, law):
                yield replace(found, message=f"for the request {request} {found.message}", context=context)


def _check_race(
    plan: Any, said: PlanFile, proof: Proof, rows: Sequence[LagRows], draws: int, randbelow: RandBelow, bar: Bar,
    findings: list[Finding],
) -> RaceCost:  # fmt: skip
    """Draw from a race, run its clocks again from the same random numbers, and test the cost that it states.

    The last request is drawn uniformly, the request and the next one by the chain: given the context, the request then
    follows the posterior. To run clocks again takes n^3 products: with many sources only the first draws are replayed.
    """
    n = rows[0].n
    referee, sizes = Race(rows[0].chain.P, said.lag), []
    with bar(draws) as advance:
        for t in range(draws):
            one, last = rows[t % len(rows)], randbelow(n)
            request = _pick(one.vector(last), randbelow)
            context = one.lag, last, _pick(one.successors(request), randbelow)
            query, numbers = _drawn(plan, request, context, randbelow)
            sizes.append(len(query))
            wrong = referee.check(query, numbers, request, context) if t * n**3 < REPLAYED else None
            if wrong is not None and wrong.rule == "draw":
                findings.append(replace(wrong, message=f"for the request {request} {wrong.message}"))
            advance()
    estimate = optimality.estimate_cost(sizes, n)
    findings += optimality.check_race_cost(estimate, said.cost, said.interval, proof.value)
    return estimate


def _drawn(plan: Any, request: int, context: tuple[int, int, int], randbelow: RandBelow) -> tuple[Query, Pairs]:
    lag, last, next = context
    return drawn(partial(plan.draw, request, last, next, lag), randbelow)


def _pick(weights: Sequence[int], randbelow: RandBelow) -> int:
    return bisect_right(list(accumulate(weights)), randbelow(sum(weights)))


# The file


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
