"""Is this plan what it says? The front door of `onoff audit plan`.

The plan object is an exhibit: it is asked for sets, masses, encoders, roundings and draws, and believed in nothing. In
integers and from scratch are checked the law and the encoder of every context (privacy: `law` and `rows`), what `draw`
does with given random numbers, and the cost.

What the file says of all schemes is no privacy. The lower bound of a table rests on multipliers in its file: the
planner's own code says what they prove (`onoff.schemes.certificate`). The cost of a race is an estimate, and is tested.
"""

from __future__ import annotations

import json
import math
import secrets
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, partial
from itertools import accumulate, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onoff.audit.files import natural, readable, source_set
from onoff.audit.law import COARSE, Finding, Law, Pairs, check_draw, check_encoder, check_law
from onoff.audit.races import Race
from onoff.audit.rows import Walk
from onoff.errors import ContextError, OnoffError
from onoff.files import explain_reading
from onoff.model.bounds import up
from onoff.types import Bar, Query, RandBelow, Units, quiet

if TYPE_CHECKING:
    from onoff.model.chain import Chain

DRAWS = 20_000
MOST_WORK = 2**29  # products of integers for the walks of a lag: a minute or two
TRIED = 4  # numbers for one request in one context
REPLAYED = 4 * 10**9  # products: so many that the clocks of races are run again for seconds
NEAR = 1e-12  # a share of a lower bound: floats may differ in last digits
RATE = 1e-6  # how often a true statement about a race's cost is called false
LIMIT = 4.8917  # a normal variable lies beyond +-LIMIT with probability RATE
FEW = 300  # draws behind a stated cost
WIDE = 3  # times the width that FEW draws give: no interval is as wide


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
    """What was verified of one plan. `findings` is empty iff everything holds; there is one of each rule.

    `plan` is the exhibit, and `stated` the lower bound of all schemes in its file, of which `proved` was proved. `cost`
    is exact, or None for a race, whose `estimate` is made from fresh draws.
    """

    file: str
    findings: tuple[Finding, ...]
    plan: Any = None
    stated: float = 0.0
    proved: float = 0.0
    checks: tuple[LagCheck, ...] = ()
    cost: Fraction | None = None
    estimate: RaceCost | None = None

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

    `load` gives the plan object: the exhibit. It is asked for `draws` queries at most, and `seconds` bounds its proof
    of the lower bound. A race is what a new client uses at every lag: it is always drawn at the next one, too.
    """
    try:
        plan, certificate = load(file), read_certificate(file, chain.n)
        if plan.chain != chain:
            raise OnoffError(f"it is for the chain {plan.chain.fingerprint}, not for {chain.fingerprint}")
        law = Law(plan.sets, plan.masses) if plan.kind == "table" else None
        further = {lag for lag in lags if lag > plan.lag} | ({plan.lag + 1} if law is None else set())
        checked, walk = sorted({plan.lag, *further}), Walk(chain.P)
        if chain.n**3 * checked[-1] > MOST_WORK:
            raise OnoffError(f"lag {checked[-1]} is too large for an audit in exact integers of {chain.n} sources")
    except OnoffError as error:
        return PlanAudit(str(file), (Finding("refused", f"the plan cannot be used: {error}"),))
    if law is not None and (fault := check_law(law, chain.n)) is not None:
        return PlanAudit(str(file), (fault,), plan)
    stated, proved = certificate["bound"], plan.prove(certificate, seconds)
    findings = [*check_bound(stated, proved, law)]
    checks: list[LagCheck] = []
    cost = estimate = None
    try:
        if law is None:
            checks = [LagCheck(lag, 0, 0, None, None, float(plan.rounding_at(lag))) for lag in checked]
            estimate = _check_race(plan, proved, walk, checked, draws, randbelow, bar, findings)
        else:
            cost = law.cost
            findings += _check_cost(plan, law)
            each = draws // len(checked)
            checks = [_check_lag(plan, law, walk, lag, each, randbelow, bar, findings) for lag in checked]
        findings += [
            Finding("coarse", f"a rounding of {check.stated!r} per step is stated at lag {check.lag}: too much")
            for check in checks
            if not 0 <= check.stated <= COARSE
        ]
    except OnoffError as error:
        findings.append(Finding("refused", f"the plan cannot be used: {error}"))
    first = {found.rule: found for found in reversed(findings)}  # one witness of each rule is enough
    found = tuple(reversed(first.values()))
    return PlanAudit(str(file), found, plan, stated, proved, tuple(checks), cost, estimate)


def _check_cost(plan: Any, law: Law) -> Iterator[Finding]:
    """Compare the cost that a table states with that of its law, and see that rounding can move few units of it."""
    if plan.cost != up(law.cost):
        message = f"the plan states the cost {plan.cost!r}, its law costs {up(law.cost)!r}"
        yield Finding("cost", message, amount=float(abs(Fraction(plan.cost) - law.cost)))
    share = Fraction(4 * len(law.sets[-1]), law.denominator)  # rounding moves 4 n units
    if share > COARSE:
        yield Finding("coarse", f"of {law.denominator} units 4 n are too large a share", amount=float(share))


def _check_lag(
    plan: Any, law: Law, walk: Walk, lag: int, draws: int, randbelow: RandBelow, bar: Bar, findings: list[Finding]
) -> LagCheck:
    """Check every context of one lag: its encoder, the rounding that is stated, and some draws.

    Of the `draws` every context gets its share: all its requests, or some at random.
    """
    n, stated = len(walk.rows), float(plan.rounding_at(lag))
    largest, at, kept, contexts = Fraction(-1), (0, 0), 0, 0
    share = TRIED * n * n
    with bar(n * n) as advance:
        for last, next in product(range(n), repeat=2):
            weights = walk.weights(last, next, lag)
            contexts += any(weights)
            found = _check_context(plan, law, weights, (lag, last, next))
            if isinstance(found, Finding):
                findings.append(found)
            elif found is not None:
                units, distance = found
                kept += 1
                if distance > largest:
                    largest, at = distance, (last, next)
                requests = draws // share + (randbelow(share) < draws % share)
                findings += _check_draws(plan, law, units, (lag, last, next), requests, randbelow)
            advance()
    if largest > Fraction(stated):
        message = f"rows are {up(largest):.3e} from the posterior, {stated:.3e} is stated (total variation)"
        findings.append(Finding("rounding", message, None, (lag, *at), None, up(largest - Fraction(stated))))
    return LagCheck(lag, kept, contexts, largest if kept else None, at if kept else None, stated)


def _check_context(
    plan: Any, law: Law, weights: list[int], context: tuple[int, int, int]
) -> tuple[Units, Fraction] | Finding | None:
    """Return the encoder of a context and its total variation, exactly, or what is wrong; None if it is impossible."""
    lag, last, next = context
    possible = any(weights)
    try:
        units = plan.encoder(last, next, lag).toarray()
    except ContextError as error:
        message = f"a possible context is called impossible: {error}"
        return Finding("contexts", message, context=context) if possible else None
    except OnoffError as error:
        return Finding("encoder", f"there is no encoder: {error}", context=context)
    if not possible:
        return Finding("contexts", "an impossible context has an encoder", context=context)
    found = check_encoder(law, units, weights, Walk.error(lag), context)
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
            query, numbers = _draw(plan, request, context, partial(min, number))
            found = check_draw(query, numbers, row, law)
            if found is not None:
                yield replace(found, message=f"for the request {request} {found.message}", context=context)


def _check_race(
    plan: Any, proved: float, walk: Walk, lags: Sequence[int], draws: int, randbelow: RandBelow, bar: Bar,
    findings: list[Finding],
) -> RaceCost:  # fmt: skip
    """Draw from a race, run its clocks again from the same random numbers, and test the cost that it states.

    The last request is drawn uniformly, the request and the next one by the chain: given the context, the request then
    follows the posterior. To run clocks again takes n^3 products: with many sources only the first draws are replayed.
    """
    n, vector = len(walk.rows), cache(walk.vector)
    referee, sizes = Race(plan.chain.P, plan.lag), list[int]()
    with bar(draws) as advance:
        for t in range(draws):
            lag, last = lags[t % len(lags)], randbelow(n)
            request = _pick(vector(last, lag), randbelow)
            context = lag, last, _pick(walk.rows[request], randbelow)
            query, numbers = _draw(plan, request, context, randbelow)
            sizes.append(len(query))
            wrong = referee.check(query, numbers, request, context) if t * n**3 < REPLAYED else None
            if wrong is not None and wrong.rule == "draw":
                findings.append(replace(wrong, message=f"for the request {request} {wrong.message}"))
            advance()
    estimate = estimate_cost(sizes, n)
    findings += check_race_cost(estimate, plan.cost, plan.interval, proved)
    return estimate


def _draw(plan: Any, request: int, context: tuple[int, int, int], randbelow: RandBelow) -> tuple[Query, Pairs]:
    """Draw from a plan: the set, and the numbers that it asked for."""
    lag, last, next = context
    numbers: list[tuple[int, int]] = []

    def noted(bound: int) -> int:
        numbers.append((bound, min(randbelow(bound), bound - 1)))
        return numbers[-1][1]

    return tuple(plan.draw(request, last, next, lag, noted)), tuple(numbers)


def _pick(weights: Sequence[int], randbelow: RandBelow) -> int:
    return bisect_right(list(accumulate(weights)), randbelow(sum(weights)))


# What a plan says about costs: nothing of a verdict on privacy rests on it


def read_certificate(file: Path, n: int) -> dict[str, Any]:
    """Read what a plan file states of all schemes. Its loader believes it only if the plan has the user's seal."""
    with explain_reading(file), readable(f"{file}: what it states of all schemes cannot be read"):
        data = json.loads(file.read_bytes())
        found = data.get("certificate") or {"kind": "outer", "bound": data["lower_bound"], "cuts": [], "weights": []}
        cuts = [source_set(cut, n) for cut in found["cuts"]]
        weights = [natural(weight, 2**62 + 1) for weight in found["weights"]]
        number = {"outer": 0, "cuts": len(cuts), "sizes": n}[found["kind"]]
        if len(weights) != number or not math.isfinite(found["bound"]):
            raise ValueError(f"{len(weights)} weights prove a bound of {found['bound']!r} by {found['kind']}")
        return {**found, "cuts": cuts, "weights": weights}


def check_bound(stated: float, proved: float, law: Law | None) -> Iterator[Finding]:
    """Compare the stated lower bound with what is proved, and the cost of a table with the bound.

    Rounding may move 4 n units of a law, so it may cost less than the bound by that share.
    """
    if not 0 < stated <= proved * (1 + NEAR):
        yield Finding("bound", f"a lower bound of {stated!r} is stated, {proved!r} is proved", amount=stated - proved)
    if law is not None:
        short, n = Fraction(stated) - law.cost, len(law.sets[-1])
        if short > Fraction(stated) * 4 * n / law.denominator:
            message = f"the law costs {up(law.cost)!r}, less than the lower bound {stated!r} for all schemes"
            yield Finding("cost", message, amount=up(short))


@dataclass(frozen=True)
class RaceCost:
    """The mean size of fresh draws of a race, its standard error, and the error of a mean of FEW draws (`behind`)."""

    mean: float
    error: float
    behind: float


def estimate_cost(sizes: Sequence[int], n: int) -> RaceCost:
    """Estimate the cost of a race from the sizes of its queries.

    `behind` says how far a statement from FEW draws may lie off, so nothing that is stated enters it. Large queries
    that are too rare to be seen here, all of a chance below ln(1 / RATE) / (number of draws), may have been seen there:
    they are allowed for.
    """
    mean, deviation, count = float(np.mean(sizes)), float(np.std(sizes, ddof=1)), len(sizes)
    unseen = (n - 1) * math.sqrt(-math.log(RATE) / count)
    return RaceCost(mean, deviation / math.sqrt(count), math.hypot(deviation, unseen) / math.sqrt(FEW))


def check_race_cost(found: RaceCost, cost: float, interval: tuple[float, float], proved: float) -> Iterator[Finding]:
    """Find what speaks against the stated cost and interval, at the error rate RATE."""
    fresh = f"fresh draws have the mean {found.mean:.4f} ± {found.error:.4f} (error rate {RATE:g})"
    half, fair = max(interval[1] - cost, cost - interval[0]), 1.96 * found.behind
    if abs(found.mean - cost) > LIMIT * math.hypot(found.error, found.behind):
        yield Finding("race cost", f"the cost {cost:.4f} is stated; {fresh}", amount=abs(cost - found.mean))
    if half > WIDE * fair:
        yield Finding("race interval", f"the cost is stated ± {half:.4f}; {FEW} draws give ± {fair:.4f}")
    if cost + LIMIT * found.behind < proved:
        yield Finding("race bound", f"the cost {cost:.4f} is stated, less than {proved!r}, proved for all")
