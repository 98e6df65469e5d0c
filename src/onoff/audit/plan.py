"""Is this plan what it says? The front door of `onoff audit plan`.

The file is read by the referee's own reader. Then, in integers and from scratch: the law and the encoder of every
context (privacy: `law` and `rows`), what `draw` does with given random numbers, and the cost and the lower bound
(`optimality`). The plan object is an exhibit: it is asked for encoders, roundings and draws, and believed in nothing.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onoff.audit import optimality
from onoff.audit.files import Damaged, PlanFile, read_plan
from onoff.audit.law import COARSE, Finding, Law, check_encoder
from onoff.audit.optimality import Proof, RaceCost
from onoff.audit.rows import ExactRows
from onoff.errors import ContextError, OnoffError, PlanError
from onoff.model.rounding import down, up
from onoff.types import Bar, Query, RandBelow, quiet

if TYPE_CHECKING:
    from onoff.model.chain import Chain

PATTERN = "*.plan.json"
DRAWS = 20_000
TRIED = 4  # numbers for one request in one context


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


def find_plans(path: Path, chain: Chain) -> tuple[list[Path], list[Path]]:
    """List the plan files that a path stands for, and the directories in it whose every plan is for another chain.

    What a directory says of itself is not signed by anybody: only the plans tell which chain they are for.
    """
    if path.is_file():
        return [path], []
    if not path.is_dir():
        raise PlanError(f"{path}: there is no such plan file or directory")
    found, foreign = [], []
    for directory in [path, *sorted(path.iterdir())]:
        files = sorted(directory.glob(PATTERN), key=lambda file: (len(file.name), file.name))
        if files and directory != path and all(_is_foreign(file, chain) for file in files):
            foreign.append(directory)
        else:
            found += files
    if not found:
        raise PlanError(f"{path}: there is no plan for this chain in this directory")
    return found, foreign


def _is_foreign(file: Path, chain: Chain) -> bool:
    """True if the file says that it is for another chain. One that cannot be read may be anything."""
    try:
        return bool(json.loads(file.read_bytes())["chain"] != chain.fingerprint)
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return False


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
    except OnoffError as error:
        return PlanAudit(str(file), (Finding("file", str(error)),))
    further = {lag for lag in lags if lag > said.lag} | ({said.lag + 1} if said.law is None else set())
    try:
        rows = [ExactRows(chain, lag) for lag in sorted({said.lag, *further})]
    except OnoffError as error:  # a lag beyond exact integers: of this plan, not of the others
        return PlanAudit(str(file), (Finding("unchecked", str(error)),), said)
    proof = _prove(said, rows[0], seconds)
    cost = None if said.law is None else _cost(said.law)
    findings = [*_check_statements(said, proof, cost, chain.n)]
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
                checks = [_check_lag(plan, said.law, one, bar, findings) for one in rows]
                if not findings:  # else its encoders are not to be relied on
                    findings += _check_draws(plan, said.law, rows, draws, randbelow, bar)
            findings += [
                Finding("coarse", f"a rounding of {check.stated!r} per step is stated at lag {check.lag}: too much")
                for check in checks
                if not 0 <= check.stated <= COARSE
            ]
    except OnoffError as error:
        findings.append(Finding("refused", f"the plan cannot be used: {error}"))
        if said.law is not None:
            findings += _find_impossible(said.law, rows[0])
    first = {found.rule: found for found in reversed(findings)}  # one witness of each rule is enough
    return PlanAudit(str(file), tuple(reversed(first.values())), said, tuple(checks), cost, estimate, proof)


def _prove(said: PlanFile, rows: ExactRows, seconds: float) -> Proof:
    if said.kind == "cuts":
        return optimality.prove_cuts(rows, said.cuts, said.weights, said.bound, seconds)
    return optimality.prove_sizes(rows, said.weights) if said.kind == "sizes" else optimality.prove_outer(rows)


def _cost(law: Law) -> Fraction:
    return Fraction(sum(len(q) * mass for q, mass in zip(law.sets, law.masses, strict=True)), law.denominator)


def _check_statements(said: PlanFile, proof: Proof, cost: Fraction | None, n: int) -> Iterator[Finding]:
    """Compare the stated lower bound with the proof, and the law with both; its units must be fine enough.

    Rounding may move 4 n units of a law.
    """
    excess = Fraction(said.bound) - proof.value
    if excess > 0:
        message = f"a lower bound of {said.bound!r} is stated, {down(proof.value)!r} is proved ({proof.method})"
        yield Finding("bound", message, query=proof.limiting, amount=up(excess))
    elif said.bound <= 0:
        yield Finding("bound", f"the stated lower bound is {said.bound!r}: a positive number is needed")
    if said.law is None or cost is None:
        return
    units, short = Fraction(4 * n, said.law.denominator), Fraction(said.bound) - cost
    if short > Fraction(said.bound) * units:
        message = f"the law costs {up(cost)!r}, less than the lower bound {said.bound!r} for all schemes"
        yield Finding("cost", message, amount=up(short))
    if units > COARSE:
        message = (
            f"4 n / {said.law.denominator} is {float(units):.1e}, more than {float(COARSE):.1e}: rounding would tell"
        )
        yield Finding("coarse", message, amount=float(units))


def _check_exhibit(plan: Any, said: PlanFile, chain: Chain, cost: Fraction | None) -> Iterator[Finding]:
    """Compare the plan object with the file."""
    due: dict[str, object] = {"chain": chain, "scheme": said.scheme, "lag": said.lag, "lower_bound": said.bound}
    if said.law is None:
        due |= {"cost": said.cost, "interval": said.interval}
    else:
        due |= {"sets": said.law.sets, "masses": said.law.masses, "denominator": said.law.denominator}
    other = [name for name, value in due.items() if getattr(plan, name, None) != value]
    if other:
        yield Finding("exhibit", f"the plan object differs from the file in: {', '.join(other)}")
    if cost is not None and plan.cost != up(cost):
        message = f"the plan states the cost {plan.cost!r}, its law costs {up(cost)!r}"
        yield Finding("cost", message, amount=float(abs(Fraction(plan.cost) - cost)))


def _check_lag(plan: Any, law: Law, rows: ExactRows, bar: Bar, findings: list[Finding]) -> LagCheck:
    """Check the encoder of every context of one lag, and the rounding that the plan states for it."""
    n, stated = rows.n, float(plan.rounding_at(rows.lag))
    largest, at, kept, contexts = Fraction(-1), (0, 0), 0, 0
    with bar(n * n) as advance:
        for last, next in product(range(n), repeat=2):
            found = _check_context(plan, law, rows, last, next)
            contexts += rows.support(last, next) > 0
            if isinstance(found, Finding):
                findings.append(found)
            elif found is not None:
                kept += 1
                if found > largest:
                    largest, at = found, (last, next)
            advance()
    if kept and largest > Fraction(stated):
        message = f"rows are {up(largest):.3e} from the posterior, {stated:.3e} is stated (total variation)"
        findings.append(Finding("rounding", message, None, (rows.lag, *at), None, up(largest - Fraction(stated))))
    return LagCheck(rows.lag, kept, contexts, largest if kept else None, at if kept else None, stated)


def _check_context(plan: Any, law: Law, rows: ExactRows, last: int, next: int) -> Fraction | Finding | None:
    """Return the total variation in a context, exactly, or what is wrong with its encoder; None if impossible."""
    context = rows.lag, last, next
    possible = bool(rows.support(last, next))
    try:
        units = plan.encoder(last, next, rows.lag).toarray()
    except ContextError as error:
        return (
            Finding("contexts", f"a possible context is called impossible: {error}", None, context)
            if possible
            else None
        )
    except OnoffError as error:
        cut, short = optimality.find_shortfall(law, rows.weights(last, next)) if possible else (None, None)
        return Finding("encoder", f"there is no encoder: {error}", None, context, cut, short)
    if not possible:
        return Finding("contexts", "an impossible context has an encoder", context=context)
    return check_encoder(law, units, rows.weights(last, next), context=context)


def _find_impossible(law: Law, rows: ExactRows) -> Iterator[Finding]:
    """Without a plan object: find the first context for which the law can have no encoder."""
    for last, next in product(range(rows.n), repeat=2):
        cut, short = (None, None)
        if rows.support(last, next):
            cut, short = optimality.find_shortfall(law, rows.weights(last, next))
        if cut is not None:
            message = "no encoder exists: queries must meet this set more often"
            yield Finding("encoder", message, None, (rows.lag, last, next), cut, short)
            return


def _places(rows: list[ExactRows], most: int, randbelow: RandBelow) -> Iterator[tuple[ExactRows, int, int, int]]:
    """Possible requests in their contexts: all of them if no more than `most` can be, else as many at random."""
    n = rows[0].n
    if len(rows) * n**3 <= most:
        for one, last, next, request in product(rows, range(n), range(n), range(n)):
            if one.support(last, next) >> request & 1:
                yield one, last, next, request
        return
    for _ in range(most):
        one, last = rows[randbelow(len(rows))], randbelow(n)
        possible = [k for k in range(n) if one.support(last, k)]
        next = possible[randbelow(len(possible))]
        members = [x for x in range(n) if one.support(last, next) >> x & 1]
        yield one, last, next, members[randbelow(len(members))]


def _check_draws(
    plan: Any, law: Law, rows: list[ExactRows], draws: int, randbelow: RandBelow, bar: Bar
) -> Iterator[Finding]:
    """Find a request for which `draw` does not follow the encoder, which was verified.

    It must ask for one random number below the sum of the request's row, and give the set in whose part of the range
    the number lies, the sets in their order. Tried are the ends of a part, where mistakes of one show, 0 and a random
    number; if `draw` is monotone, the ends of all parts of a row prove it for that row.
    """
    encoder = lru_cache(maxsize=1)(lambda lag, last, next: plan.encoder(last, next, lag).toarray())
    with bar(min(draws // TRIED, len(rows) * rows[0].n ** 3)) as advance:
        for one, last, next, request in _places(rows, max(1, draws // TRIED), randbelow):
            units = encoder(one.lag, last, next)[request]
            ends = np.cumsum(units)
            part = int(randbelow(int(np.count_nonzero(units))))
            chosen = int(np.flatnonzero(units)[part])
            for number in (int(ends[chosen]) - 1, int(ends[chosen] - units[chosen]), 0, randbelow(int(ends[-1]))):
                due = law.sets[int(np.searchsorted(ends, number, side="right"))]
                wrong = _misdraw(plan, (request, last, next, one.lag), number, int(ends[-1]), due)
                if wrong is not None:
                    message = f"for the request {plan.chain.names[request]!r} {wrong}"
                    yield Finding("draw", message, context=(one.lag, last, next))
                    return
            advance()


def _misdraw(plan: Any, place: tuple[int, int, int, int], number: int, total: int, due: Query) -> str | None:
    """Call `draw` with this random number and say what it did wrong, if anything."""
    bounds: list[int] = []

    def inject(bound: int) -> int:
        bounds.append(bound)
        return min(number, bound - 1)

    try:
        query = tuple(plan.draw(*place, inject))
    except OnoffError as error:
        return f"`draw` fails: {error}"
    if bounds != [total]:
        return f"`draw` must ask for one random number below {total}; it asked for numbers below {bounds[:3]}"
    return None if query == due else f"`draw` gives {query} for the number {number} of {total}, which is {due}'s"


def _check_race(
    plan: Any,
    said: PlanFile,
    proof: Proof,
    rows: list[ExactRows],
    draws: int,
    randbelow: RandBelow,
    bar: Bar,
    findings: list[Finding],
) -> RaceCost:
    """Draw from a race in random contexts, run its clocks again from the same random numbers, and test its cost.

    Running clocks again takes n^3 products: with many sources only the first draws are replayed.
    """
    referee, sizes = Race(rows[0].chain, said.lag), []
    replayed = REPLAYED // rows[0].n ** 3
    with bar(draws) as advance:
        for one, last, next, _ in _places(rows, draws, randbelow, all_if_few=False):
            request = _pick(one.weights(last, next), randbelow)
            numbers: list[tuple[int, int]] = []

            def record(bound: int) -> int:
                numbers.append((bound, randbelow(bound)))
                return numbers[-1][1]

            query = tuple(plan.draw(request, last, next, one.lag, record))
            sizes.append(len(query))
            if len(sizes) <= replayed:
                due = referee.expected(request, last, next, one.lag, tuple(numbers))
                if isinstance(due, str):
                    findings.append(Finding("draw", due, context=(one.lag, last, next)))
                elif not set(due[0]) <= set(query) <= set(due[1]):
                    message = f"for the request {request} the clocks give {due[0]}, and `draw` gives {query}"
                    findings.append(Finding("draw", message, None, (one.lag, last, next), query))
            advance()
    estimate = optimality.estimate_cost(sizes, rows[0].n)
    doubts = optimality.doubt_cost(estimate, said.cost, said.interval, proof.value)
    findings += [Finding(rule, message, amount=amount) for rule, (message, amount) in doubts.items()]
    return estimate


def _pick(weights: Sequence[int], randbelow: RandBelow) -> int:
    return bisect_right(list(accumulate(weights)), randbelow(sum(weights)))
