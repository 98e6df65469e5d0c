"""Plans verified from scratch: the law, every encoder, the cost, the lower bound and the rounding, in integers.

`record` reads the file, `bounds` proves the lower bound again, `encoders` checks each context and `races` tests
what has no table. The plan object is an exhibit: its encoders and its rounding are asked for, and believed in nothing.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onoff.audit.plan import bounds, drawing, encoders, races
from onoff.audit.plan.record import Damaged, Estimate, Finding, Record, Table, read
from onoff.audit.plan.rows import ExactRows
from onoff.errors import OnoffError
from onoff.model.rounding import down, up
from onoff.types import Bar, Query, quiet

if TYPE_CHECKING:
    from onoff.model.chain import Chain
    from onoff.plans.base import Plan

COARSE = 2.0**-30  # a plan that states more than this per step is not what was promised
DRAWS = 20_000  # a tenth of them misses a race whose past is drawn without the request


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
class Verdict:
    """What was verified of one plan file. `findings` is empty iff everything holds.

    `cost` is exact, or None for a race, whose `estimate` is a fresh one with its standard error.
    """

    file: str
    findings: tuple[Finding, ...]
    record: Record | None = None
    checks: tuple[LagCheck, ...] = ()
    cost: Fraction | None = None
    estimate: tuple[float, float] | None = None
    proof: bounds.Proof | None = None

    @property
    def valid(self) -> bool:
        return not self.findings


def audit_plan(
    chain: Chain,
    file: Path,
    load: Callable[[Path], Plan],
    lags: Iterable[int] = (),
    *,
    draws: int = DRAWS,
    seconds: float = 60.0,
    randbelow: Callable[[int], int] = secrets.randbelow,
    bar: Bar = quiet,
) -> Verdict:
    """Verify the plan in `file` for `chain` at its own lag and those of `lags` that are larger.

    `load` gives the plan object: the exhibit. `draws` are made of a plan, at most, of a race just as many; `seconds`
    bounds a proof by CP-SAT. A race is what a new client uses at every lag: it is always drawn at the next one, too.
    """
    try:
        record = read(file, chain)
    except Damaged as damage:
        return Verdict(str(file), (damage.finding,))
    further = {lag for lag in lags if lag > record.lag}
    if isinstance(record.body, Estimate):
        further.add(record.lag + 1)
    try:
        audit = _Audit(chain, record, [record.lag, *sorted(further)])
    except OnoffError as error:  # a lag beyond exact integers: of this plan, not of the others
        return Verdict(str(file), (Finding("unchecked", str(error)),), record)
    audit.bound(seconds)
    if isinstance(record.body, Table):
        audit.price(record.body)
        audit.fine(record.body)
    try:
        plan = load(file)
        if audit.is_of_the_file(plan):
            if isinstance(record.body, Table):
                audit.encoders(plan, record.body, bar)
                audit.drawn(plan, draws, randbelow, bar)
            else:
                audit.race(plan, record.body, draws, randbelow, bar)
    except OnoffError as error:
        audit.find("refused", f"the plan cannot be used: {error}")
        if isinstance(record.body, Table):
            audit.realisable(record.body)
    return Verdict(
        str(file), tuple(audit.findings), record, tuple(audit.checks), audit.cost, audit.estimate, audit.proof
    )


@dataclass
class _Audit:
    """The parts of the verdict as they are found."""

    chain: Chain
    record: Record
    lags: list[int]
    findings: list[Finding] = field(default_factory=list)
    checks: list[LagCheck] = field(default_factory=list)
    cost: Fraction | None = None
    estimate: tuple[float, float] | None = None
    proof: bounds.Proof | None = None

    def __post_init__(self) -> None:
        self.rows = [ExactRows(self.chain, lag) for lag in self.lags]

    def find(
        self,
        rule: str,
        message: str,
        context: tuple[int, int, int] | None = None,
        query: Query | None = None,
        amount: float | None = None,
    ) -> None:
        self.add(Finding(rule, message, context, query, amount))

    def add(self, finding: Finding) -> None:
        """One witness of each rule is enough."""
        if finding.rule not in {known.rule for known in self.findings}:
            self.findings.append(finding)

    def bound(self, seconds: float) -> None:
        """The stated lower bound is at most what is proved here."""
        record, rows = self.record, self.rows[0]
        if isinstance(record.body, Table):
            proof = bounds.prove(record.body, record.bound, rows, record.lengths, seconds)
        else:
            proof = bounds.outer(rows, record.lengths)
        self.proof = proof
        excess = Fraction(record.bound) - proof.value
        if excess > 0:
            message = f"a lower bound of {record.bound!r} is stated, {down(proof.value)!r} is proved ({proof.method})"
            self.find("bound", message, None, proof.limiting, up(excess))
        elif record.bound <= 0:
            self.find("bound", f"the stated lower bound is {record.bound!r}: a positive number is needed")

    def price(self, table: Table) -> None:
        """The cost from the law, exactly."""
        prices = [Fraction(c) for c in self.record.lengths or [1.0] * self.chain.n]
        units = [0] * self.chain.n
        for query, mass in zip(table.sets, table.masses, strict=True):
            for x in query:
                units[x] += mass
        self.cost = sum((c * u for c, u in zip(prices, units, strict=True)), Fraction(0)) / table.denominator
        short = Fraction(self.record.bound) - self.cost
        if short > Fraction(self.record.bound) * 4 * self.chain.n / table.denominator:  # more than rounding can save
            message = (
                f"the law costs {up(self.cost)!r}, less than the lower bound {self.record.bound!r} for all schemes"
            )
            self.find("cost", message, None, None, up(short))

    def fine(self, table: Table) -> None:
        """The units of the law are small enough, whatever the plan states: 4 n of them are what rounding may move."""
        units = Fraction(4 * self.chain.n, table.denominator)
        if units > Fraction(COARSE):
            message = f"4 n / {table.denominator} is {float(units):.1e}, more than {COARSE:.1e}: rounding would tell"
            self.find("coarse", message, None, None, float(units))

    def is_of_the_file(self, plan: Plan) -> bool:
        """Whether the object says what the file says."""
        record, body = self.record, self.record.body
        said: dict[str, object] = {"chain": self.chain, "scheme": record.scheme, "lag": record.lag}
        said |= {"lengths": record.lengths, "lower_bound": record.bound}
        if isinstance(body, Table):
            said |= {"sets": body.sets, "masses": body.masses, "denominator": body.denominator}
        else:
            said |= {"cost": body.cost, "interval": body.interval}
        other = [name for name, value in said.items() if getattr(plan, name, None) != value]
        if other:
            self.find("exhibit", f"the plan object differs from the file in: {', '.join(other)}")
        if self.cost is not None and plan.cost != up(self.cost):
            message = f"the plan states the cost {plan.cost!r}, its law costs {up(self.cost)!r}"
            self.find("cost", message, None, None, float(abs(Fraction(plan.cost) - self.cost)))
        return not other

    def realisable(self, table: Table) -> None:
        """Without a plan object: whether the law could have encoders at all. The first witness that it cannot."""
        rows = self.rows[0]
        for last, next in product(range(self.chain.n), repeat=2):
            if rows.support(last, next):
                cut, short = encoders.shortfall(table, rows.weights(last, next))
                if cut is not None:
                    message = "no encoder exists: queries must meet this set more often"
                    self.find("encoder", message, (rows.lag, last, next), cut, short)
                    return

    def encoders(self, plan: Any, table: Table, bar: Bar) -> None:
        """Every context of every lag."""
        n = self.chain.n
        law = encoders.Law(table, self.chain.names)
        with bar(n * n * len(self.rows)) as advance:
            for rows in self.rows:
                stated = self._stated(plan, rows.lag)
                largest, at, kept, contexts = Fraction(-1), (0, 0), 0, 0
                for last, next in product(range(n), repeat=2):
                    found = encoders.check(plan, law, rows, last, next)
                    advance()
                    contexts += rows.support(last, next) > 0
                    if isinstance(found, Finding):
                        self.add(found)
                    elif found is not None:
                        kept += 1
                        if found > largest:
                            largest, at = found, (last, next)
                if kept:
                    self.checks.append(LagCheck(rows.lag, kept, contexts, largest, at, stated))
                if largest > Fraction(stated):
                    message = f"rows are {up(largest):.3e} from the posterior, {stated:.3e} is stated (total variation)"
                    self.find("rounding", message, (rows.lag, *at), None, up(largest - Fraction(stated)))

    def drawn(self, plan: Any, draws: int, randbelow: Callable[[int], int], bar: Bar) -> None:
        """What `draw` itself gives for chosen random numbers, in every context if there are draws enough."""
        if self.findings:
            return  # its encoders are not to be relied on
        with bar(min(draws, drawing.most(self.rows))) as advance:
            fault = drawing.check(plan, self.rows, self.chain.names, draws, randbelow, advance)
        if fault is not None:
            self.add(fault)

    def _stated(self, plan: Plan, lag: int) -> float:
        """The rounding that the plan states, if it is small enough to mean anything."""
        stated = float(plan.rounding_at(lag))
        if not 0 <= stated <= COARSE:
            self.find("coarse", f"a rounding of {stated!r} per step is stated at lag {lag}: more than {COARSE:g}")
        return stated

    def race(self, plan: Plan, said: Estimate, draws: int, randbelow: Callable[[int], int], bar: Bar) -> None:
        """Each draw holds its request; the stated cost, and one law in all contexts, are not rejected."""
        for lag in self.lags:
            self.checks.append(LagCheck(lag, 0, 0, None, None, self._stated(plan, lag)))
        with bar(draws) as advance:
            sample = races.draws(plan, self.rows, draws, randbelow, advance)
        if sample.undecodable is not None:
            place, request, query = sample.undecodable
            message = f"the request {self.chain.names[request]!r} is sent in a set without it"
            self.find("decoding", message, (place.lag, place.last, place.next), query)
        self._raced_cost(sample, said)
        uneven = races.same_law(sample)
        if uneven is not None:
            here = f"at lag {uneven.place.lag}" if uneven.whole else "here"
            place, shares = uneven.place, f"{uneven.here:.3f} of the draws {here}, {uneven.overall:.3f} of all"
            message = f"{uneven.event} in {shares} (error rate {races.RATE:g})"
            context = place.lag, place.last, place.next
            self.find("race law", message, context, uneven.cut, abs(uneven.here - uneven.overall))

    def _raced_cost(self, sample: races.Sample, said: Estimate) -> None:
        """The stated cost and interval against fresh draws and the proved bound."""
        mean, error, behind = races.cost_test(sample, self.record.lengths)
        self.estimate = mean, error
        rate = f"(error rate {races.RATE:g})"
        if abs(mean - said.cost) > races.LIMIT * math.hypot(error, behind):
            message = f"the cost {said.cost:.4f} is stated, fresh draws have the mean {mean:.4f} ± {error:.4f} {rate}"
            self.find("race cost", message, None, None, abs(said.cost - mean))
        half = max(said.interval[1] - said.cost, said.cost - said.interval[0])
        if half > races.WIDE * 1.96 * behind:
            message = f"the cost is stated ± {half:.4f}, {races.FEW} draws give ± {1.96 * behind:.4f}"
            self.find("race interval", message, None, None, half - 1.96 * behind)
        if self.proof is not None and said.cost + races.LIMIT * behind < self.proof.value:
            message = (
                f"the cost {said.cost:.4f} is stated, less than {down(self.proof.value)!r}, proved for all schemes"
            )
            self.find("race bound", f"{message} {rate}", None, None, up(self.proof.value) - said.cost)
