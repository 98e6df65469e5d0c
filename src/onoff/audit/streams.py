"""Whole streams: what all queries of a client tell about what must stay hidden, at every step t.

Promise `both`, hidden are the requests made ON up to t and all requests after t, X_B. Shown is I(X_B; Q_1..Q_t); by the
Markov property the future counts only through X_{t+1}. Promise `past`, hidden up to t are G_t: requests made ON, and of
each OFF step which sensitive source was asked for, or none. Shown is I(G_t; Q_t | Q_1..Q_{t-1}), and beside it what
nobody promises: the bits that the queries *before* a hidden request tell about it.

Enumeration. All streams are walked through in integers (`onoff.audit.enumeration`).

Bound. Where streams are too many: if in every context of every step s the law of the query is within d_s of one fixed
law (total variation, on average over `next`), the stream is within d = d_1 + ... + d_t of one whose queries are
independent of what is hidden, and tells h(d) + d log2 |hidden| bits at most, for d <= 1/2. With the promise `both`, d_s
is computed from all encoders of the lag; with `past`, from the laws of sampled streams and the referee's own rows. A
client that promises nothing has no bound.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import log, log1p, log2
from typing import TYPE_CHECKING, Any

import numpy as np

from onoff.audit.bayes import lags_of, start_law
from onoff.audit.clients import Client, Past, Step, TooLarge, has_table
from onoff.audit.enumeration import BITS, MISSING, ONE, Hidden, Next, Node, Part, Walk, in_units, kernel
from onoff.audit.law import COARSE, Finding, Law
from onoff.audit.measures import Joint, Measures, information, measures, total_variation
from onoff.audit.rows import NOWHERE, Pasts
from onoff.errors import OnoffError
from onoff.model.bounds import up
from onoff.model.misfit import aligned, check, misfit
from onoff.model.powers import times
from onoff.types import Floats, Progress, Query, Units, silent

if TYPE_CHECKING:
    from onoff.model.chain import Chain

SAMPLED = 100  # streams of an engine, each of which prepares all its steps
EXACT, BOUND, STATED = "exact", "bound", "bound as stated, not checked"


@dataclass(frozen=True)
class Told:
    """One step of all streams; steps count from 1.

    `bits` is what the module says. `before` is what the queries before this step tell about its own hidden part; None
    where it has none, is not enumerated, or for the promise `both`. `messages` is the mean size of the query.
    `distance` is a total variation: of (X_B, Q_1..Q_t) from independence (`both`), or the largest, over pasts, between
    the law of the query and the stated one (`past`), of which `average` is the mean. `stated` is the mean sum of the
    client's stated roundings, of the stream or (`past`) since the last ON step, `stated_most` the largest; 2 `stated`
    is the most that `average` may be.
    """

    step: int
    private: bool
    bits: float
    before: float | None = None
    messages: float | None = None
    distance: float | None = None
    average: float | None = None
    stated: float | None = None
    stated_most: float | None = None


@dataclass(frozen=True)
class Misfit:
    """Bounds after every step for a client whose requests follow another chain than its own.

    `distances` is d_t, the total variation between the law of what is hidden and asked (`past`: since the last ON step)
    and one that keeps the promise, for streams that start as said; `anywhere` is d_t wherever they start. `allowed` is
    the most that the `average` of a step may be, and `bits` the most that it may tell. `guess` is the most that queries
    made at or after a hidden request add to the chance of guessing it.
    """

    distances: tuple[float, ...]
    anywhere: tuple[float, ...]
    allowed: tuple[float, ...]
    bits: tuple[float, ...]
    guess: float


@dataclass(frozen=True)
class Switched:
    """What statuses and queries tell about the request of `step`, if it was made ON, which has the chance `frequency`.

    `bits`, to 12 decimals, is the mean divergence of the server's belief from the law of the request; `guess` the
    chance to guess the request, `prior_guess` without statuses and queries.
    """

    step: int
    frequency: float
    bits: float
    prior_guess: float
    guess: float


@dataclass(frozen=True)
class StreamAudit:
    """What the streams of a client tell, by `method`; `holds` is None for a client that promises nothing.

    `whole` measures X_B at the end (promise `both`, enumerated). `misfit` bounds what is found if requests follow
    another chain. Of a user who switches because of the request there are `switched` and, of one who goes ON as often
    by chance, `by_chance` instead of `steps`.
    """

    client: str
    promise: str
    statuses: tuple[bool, ...]
    method: str
    steps: tuple[Told, ...]
    holds: bool | None
    findings: tuple[Finding, ...] = ()
    whole: Measures | None = None
    misfit: Misfit | None = None
    switched: tuple[Switched, ...] = ()
    by_chance: tuple[Switched, ...] = ()


def parse_statuses(text: str) -> tuple[bool, ...]:
    """`1001100`: 1 where privacy is ON."""
    if not text or set(text) - {"0", "1"}:
        raise OnoffError(f"the statuses are {text!r}: write 1 for ON and 0 for OFF, such as 1001100")
    return check_statuses([status == "1" for status in text])


def check_statuses(statuses: Sequence[bool]) -> tuple[bool, ...]:
    """Statuses of a client, whose first request is made ON."""
    if not len(statuses) or not statuses[0]:
        raise OnoffError("a client makes its first request ON: statuses start with ON (1), and are not empty")
    return tuple(map(bool, statuses))


def audit_streams(
    chain: Chain,
    statuses: Sequence[bool],
    client: Client,
    promise: str = "both",
    sensitive: Sequence[int] = (),
    *,
    true: Chain | None = None,
    on_for: Collection[int] = (),
    uniform: bool = False,
    streams: int = SAMPLED,
    seed: int = 1,
    progress: Progress = silent,
) -> StreamAudit:
    """Audit what all queries of a client tell about what must stay hidden, on streams of `chain`.

    Streams begin with the stationary law, or anywhere if `uniform`. With the chain `true` requests follow that one, and
    the client, made for `chain`, is held against the misfit bound. With `on_for`, privacy is not switched as `statuses`
    say, but after the first step ON exactly for these sources. Where streams of the promise `past` are too many,
    `streams` are sampled and the laws of all their steps checked. Raises `TooLarge` where nothing exact fits.
    """
    private, hidden = check_statuses(statuses), tuple(sorted(set(sensitive)))
    if promise not in ("both", "past"):
        raise OnoffError(f"there is no promise {promise!r}: choose both or past")
    if any(not 0 <= source < chain.n for source in (*hidden, *on_for)):
        raise OnoffError(f"a source is no number from 0 to {chain.n - 1}: {[*hidden, *on_for]}")
    for plan in getattr(client, "plans", ()):
        if plan.chain != chain:
            raise OnoffError(f"the plan {plan.name!r} is for another chain: give plans for the chain that is audited")
        if true is not None and not has_table(plan):
            raise OnoffError(
                "a race has no table that could be enumerated: choose another scheme; its bound is the same"
            )
    follows = chain
    if true is not None:
        follows = aligned(true, chain)
        check(follows, chain)
    setting = _Setting(follows, private, client, promise, hidden, start_law(follows, uniform), true is None)
    if on_for:
        return _switching(setting, set(on_for))
    found = _strongest(setting, streams, seed, progress)
    if true is None:
        return found
    bounds = _misfit(setting, chain, found)
    inside = _within(found, bounds)
    if promise == "both" and client.promises:  # what the encoders do at each step is within the bound, too
        inside &= (_by_bound(setting, lambda: None).steps[-1].distance or 0.0) <= bounds.anywhere[-1] + MISSING
    return replace(found, misfit=bounds, holds=inside if client.promises else None)


@dataclass(frozen=True)
class _Setting:
    """A client with these statuses, on streams of the chain that start with this law."""

    chain: Chain
    statuses: tuple[bool, ...]
    client: Client
    promise: str
    sensitive: tuple[int, ...]
    start: Floats
    is_own: bool  # the chain is the client's own

    def found(self, method: str, steps: Sequence[Told], holds: bool, findings: Sequence[Finding] = ()) -> StreamAudit:
        findings = tuple(dict.fromkeys((*getattr(self.client, "findings", ()), *findings)))
        kept = (holds and not findings) if self.client.promises else None
        return StreamAudit(self.client.name, self.promise, self.statuses, method, tuple(steps), kept, findings)

    def values(self) -> list[float]:
        """log2 of how many values there are of what is hidden, after every step (`past`: since the last ON step)."""
        one, found = log2(self.chain.n), [log2(self.chain.n)]
        for private in self.statuses:
            if self.promise == "both":
                found.append(found[-1] + one * private)
            else:
                found.append(one if private else found[-1] + log2(len(self.sensitive) + 1))
        return found[1:]

    def hides(self, t: int) -> bool:
        """True if something is hidden of step t itself."""
        return self.statuses[t] or bool(self.sensitive)


def _strongest(setting: _Setting, streams: int, seed: int, progress: Progress) -> StreamAudit:
    """The audit by the strongest method that fits."""
    client, by_plan = setting.client, setting.client.promises and setting.promise == "both"
    try:
        if not by_plan or all(step.sets for step in _steps(setting)):
            return _by_enumeration(setting)
    except TooLarge:
        if not client.promises or not (by_plan or setting.is_own):
            raise
    if by_plan:
        with progress(f"checking {client.name}")(len(set(lags_of(setting.statuses)))) as advance:
            return _by_bound(setting, advance)
    with progress(f"sampling {client.name}")(streams) as advance:
        return _by_sampling(setting, streams, seed, advance)


def _by_enumeration(setting: _Setting) -> StreamAudit:
    """Every step exactly. Raises `TooLarge` if there are too many streams."""
    both, last = setting.promise == "both", len(setting.statuses) - 1
    tell = _BothSteps(setting) if both else _PastSteps(setting)
    steps: list[Told] = []

    def keep(hidden: Hidden, request: int, private: bool, t: int) -> Hidden:  # noqa: ARG001
        if both:
            return (*hidden, request) if private else hidden
        return (request,) if private else (*hidden, request if request in setting.sensitive else None)

    def after(step: Step, query: Query) -> Next:
        if len(steps) == last:
            return [(None, None)]
        return [(setting.client.on() if setting.statuses[len(steps) + 1] else setting.client.off(step, query), None)]

    walk = Walk(setting.chain, setting.client, setting.start, keep)
    nodes = walk.first
    for t, private in enumerate(setting.statuses):
        parts = walk.ask(nodes, t, after)
        if float(1 - sum(map(_share, parts))) > MISSING:
            tell.findings.append(Finding("query", "a request that happens is given no query, or leads to no context"))
        messages = float(sum(len(part.query) * _share(part) for part in parts))
        steps.append(tell.step(Told(t + 1, private, 0.0, messages=messages), nodes, parts))
        nodes = walk.gather(parts) if t < last else []
    found = setting.found(EXACT, steps, tell.holds, tell.findings)
    return replace(found, whole=measures(tell.joint)) if isinstance(tell, _BothSteps) else found


def _share(part: Part) -> Fraction:
    return Fraction(int(part.mass.sum()), ONE)


class _BothSteps:
    """Steps of the promise `both`, from joint[queries; X_B]: a row for each stream of queries."""

    def __init__(self, setting: _Setting) -> None:
        self._setting, self._values, self._stated = setting, setting.values(), _Stated(setting)
        self.joint: Joint = np.zeros((0, 0))
        self.holds, self.findings = True, list[Finding]()

    def step(self, told: Told, nodes: Sequence[Node], parts: Sequence[Part]) -> Told:
        n, hidden = self._setting.chain.n, sum(self._setting.statuses[: told.step])
        blocks = [np.zeros((len(part.mass), *[n] * (hidden + 1)), dtype=object) for part in parts]
        for block, part in zip(blocks, parts, strict=True):
            for label, (requests, _) in enumerate(part.labels):
                block[:, *requests] += part.mass[:, label]
        self.joint = np.concatenate(blocks).reshape(-1, n ** (hidden + 1))
        bits, distance = information(self.joint), Fraction(total_variation(self.joint))
        told = replace(told, bits=bits, distance=float(distance), average=float(distance))
        if not self._setting.client.promises:
            return told
        most = self._stated.add(nodes[0].step)
        self.holds &= bits <= information_bound(most, self._values[told.step - 1]) + MISSING
        self.holds &= distance <= 2 * most + Fraction(MISSING)
        return replace(told, stated=float(most), stated_most=float(most))


class _PastSteps:
    """Steps of the promise `past`: after every past, the law of the query given what is hidden."""

    def __init__(self, setting: _Setting) -> None:
        self._setting, self._slack = setting, _slack(setting.chain)
        self.holds, self.findings = True, list[Finding]()

    def step(self, told: Told, nodes: Sequence[Node], parts: Sequence[Part]) -> Told:
        laws: dict[tuple[int, int], dict[Hidden, dict[Query, int]]] = {}  # by node and view
        for part in parts:
            for view, masses in enumerate(part.mass.sum(axis=2).tolist()):
                here = laws.setdefault((id(part.node), view), {})
                for (hidden, _), mass in zip(part.labels, masses, strict=True):
                    law = here.setdefault(hidden, {})
                    law[part.query] = law.get(part.query, 0) + mass
        bits = sum(_share_of(law) * information(_table(law)) for law in laws.values())
        told = replace(told, bits=float(bits))
        if self._setting.hides(told.step - 1):
            rows = [self._by_value(row, told.private) for node in nodes for row in node.mass.sum(axis=1)]
            told = replace(told, before=information(np.array(rows, dtype=object)))
        return told if nodes[0].step.law is None else self._compared(told, nodes, laws)

    def _compared(self, told: Told, nodes: Sequence[Node], laws: dict[tuple[int, int], Any]) -> Told:
        """With the distances of the laws of the query from the stated ones."""
        by_id = {id(node): node for node in nodes}
        distance = average = stated = most = weight = 0.0
        for (node_id, _), here in laws.items():
            node, share = by_id[node_id], _share_of(here)
            step, so_far = node.step, node.stated + node.step.rounding
            apart = [(sum(law.values()), _apart(law, step.law)) for law in here.values() if any(law.values())]
            furthest = max(far for _, far in apart)
            if step.rounding > COARSE:
                self.findings.append(_coarse(step))
            if node.charged + step.charge == 0:
                self.holds &= furthest <= Fraction(step.rounding) + self._slack * step.lag + Fraction(MISSING)
            distance, most, weight = max(distance, float(furthest)), max(most, so_far), weight + share
            average += share * float(sum(own * far for own, far in apart) / sum(own for own, _ in apart))
            stated += share * so_far
        self.holds &= average <= 2 * stated + 2.0**-50
        return replace(told, distance=distance, average=average / weight, stated=stated / weight, stated_most=most)

    def _by_value(self, row: Joint, private: bool) -> list[int]:
        """The units of every value of what is hidden of a step, from those of its request."""
        closed = list(self._setting.sensitive)
        return list(row) if private else [*row[closed], np.delete(row, closed).sum()]


def _table(laws: dict[Hidden, dict[Query, int]]) -> Joint:
    queries = {query for law in laws.values() for query in law}
    return np.array([[law.get(query, 0) for law in laws.values()] for query in queries], dtype=object)


def _share_of(laws: dict[Hidden, dict[Query, int]]) -> float:
    return float(Fraction(sum(sum(law.values()) for law in laws.values()), ONE))


def _apart(law: dict[Query, int], stated: Law | None) -> Fraction:
    """The total variation between a law in units and the stated one."""
    assert stated is not None
    total, due = sum(law.values()), dict(zip(stated.sets, stated.masses, strict=True))
    both = sum(abs(law.get(q, 0) * stated.denominator - due.get(q, 0) * total) for q in {*law, *due})
    return Fraction(both, 2 * total * stated.denominator)


def _coarse(step: Step) -> Finding:
    message = f"a rounding of {step.rounding:.1e} is stated: too much for one step"
    return Finding("coarse", message, amount=step.rounding)


# The certified bound


def information_bound(distance: Fraction, values: float) -> float:
    """h(d) + d log2 |hidden| bits, rounded up: the most that a stream within d of an independent one tells.

    `values` is log2 |hidden|.
    """
    if distance == 0:
        return 0.0
    if distance > Fraction(1, 2):
        return values
    d = up(distance)
    bits = d * log2(1 / d) - (1 - d) * log1p(-d) / log(2) + d * values  # no term is negative: nothing cancels
    return min(values, bits * (1 + 2.0**-48))  # more than a dozen roundings lose


def _slack(chain: Chain) -> Fraction:
    """How far a row of floats is from the sum 1, at most."""
    return max(abs(1 - sum(map(Fraction, row), Fraction(0))) for row in chain.P.tolist())


class _Stated:
    """The sum of the roundings that a client states along a stream, for the chain as its floats say.

    Here every row is divided by its exact sum, 1 up to s: a walk of `lag` steps changes its weight by a factor within
    ((1 - s) / (1 + s))^lag, and a row by half of that at most.
    """

    def __init__(self, setting: _Setting) -> None:
        self._slack, self._total = _slack(setting.chain), Fraction(0)

    def add(self, step: Step) -> Fraction:
        factor = ((1 + self._slack) / (1 - self._slack)) ** step.lag
        self._total += Fraction(step.rounding) + (factor - 1) / 2
        return self._total


def _steps(setting: _Setting) -> list[Step]:
    """The steps of a client whose public state does not depend on queries."""
    steps: list[Step] = []
    for private in setting.statuses:
        steps.append(setting.client.on() if private else setting.client.off(steps[-1], ()))
    return steps


def _by_bound(setting: _Setting, advance: Callable[[], None]) -> StreamAudit:
    """A certified upper bound at every t, from the encoders of every context of the lags that occur.

    A race has no table: of a stream with races only what is stated bounds what is told.
    """
    steps, stated, told, holds = _steps(setting), _Stated(setting), [], True
    found: dict[int, Fraction] = {}
    checked, distance = all(step.sets for step in steps), Fraction(0)
    for t, (step, values) in enumerate(zip(steps, setting.values(), strict=True), 1):
        if checked and step.lag not in found:
            found[step.lag] = step_distance(setting.chain, step)
            advance()
        most = stated.add(step)
        distance = distance + found[step.lag] if checked else most
        holds &= distance <= most + Fraction(MISSING)
        one = Told(t, step.lag == 0, information_bound(distance, values), stated=float(most), stated_most=float(most))
        told.append(replace(one, distance=float(distance), average=float(distance)) if checked else one)
    return setting.found(BOUND if checked else STATED, told, holds)


def step_distance(chain: Chain, step: Step) -> Fraction:
    """The most, over `last`, of the total variation between the laws of (next, query) and of (next) x (one fixed law).

    The fixed law is what the encoder of some context sums to: a plan's own law, if the plan is one. All probabilities
    are rounded down, so what is missing from their sums bounds their error; it is added.
    """
    n, P = chain.n, in_units(chain.P)
    some = next(units for y in range(n) if (units := step.encoder(0, y)) is not None)
    sums = (some if step.lag else some[:1]).sum(axis=0).astype(object)
    fixed, worst = sums * ONE // sums.sum(), 0
    for last in range(n):
        walk = (np.arange(n) == last).astype(int).astype(object) * ONE
        for _ in range(step.lag):
            walk = (walk[:, None] * P).sum(axis=0) >> BITS
        joint = (walk[:, None] * kernel(P, step, last if step.contexts > 1 else 0)).sum(axis=1) >> BITS
        ideal = fixed[:, None] * ((walk[:, None] * P).sum(axis=0) >> BITS) >> BITS
        worst = max(worst, abs(joint - ideal).sum() + 2 * ONE - joint.sum() - ideal.sum())
    return Fraction(int(worst), 2 * ONE)


# Sampled streams


@dataclass(frozen=True, eq=False)
class _Stream:
    """Requests, one more than there are steps, and what a client made of them."""

    path: list[int]
    steps: list[Step]
    queries: list[Query]
    contexts: list[int]


def _draw(setting: _Setting, rng: np.random.Generator) -> _Stream:
    client, P = setting.client, setting.chain.P / setting.chain.P.sum(axis=1, keepdims=True)
    found = _Stream([int(rng.choice(len(P), p=setting.start))], [], [], [])
    for t, private in enumerate(setting.statuses):
        step = client.on() if private else client.off(found.steps[-1], found.queries[-1])
        context = 0 if step.comes is None else int(step.comes[found.contexts[-1], found.path[t - 1]])
        found.path.append(int(rng.choice(len(P), p=P[found.path[-1]])))
        found.steps.append(step)
        found.contexts.append(context)
        found.queries.append(step.draw(context, found.path[t], found.path[t + 1], rng))
    return found


def _by_sampling(setting: _Setting, streams: int, seed: int, advance: Callable[[], None]) -> StreamAudit:
    """A bound after the pasts of sampled streams of the promise `past`, every law of which is checked."""
    rng, shape = np.random.default_rng(seed), (streams, len(setting.statuses))
    sizes, far, stated = (np.zeros(shape) for _ in range(3))
    findings: list[Finding] = []
    for number in range(streams):
        stream = _draw(setting, rng)
        sizes[number] = [len(query) for query in stream.queries]
        _check_laws(setting, stream, far[number], stated[number], findings)
        advance()
    told = []
    for t, (private, values) in enumerate(zip(setting.statuses, setting.values(), strict=True)):
        most, size = float(far[:, t].max()), float(sizes[:, t].mean())
        one = Told(t + 1, private, information_bound(Fraction(most), values), None, size, most, float(far[:, t].mean()))
        told.append(replace(one, stated=float(stated[:, t].mean()), stated_most=float(stated[:, t].max())))
    return setting.found(BOUND, told, True, findings)


def _check_laws(setting: _Setting, stream: _Stream, far: Floats, stated: Floats, findings: list[Finding]) -> None:
    """Check the laws of a stream of the promise `past` against the rows of every hidden past."""
    assert isinstance(setting.client, Past)
    for t, step in enumerate(stream.steps):
        if step.law is None:
            pasts = Pasts(setting.chain, setting.sensitive)
            continue
        setting.client.check_draw(step, stream.contexts[t], stream.path[t])
        state, at = step.exhibit[0], step.law.index[stream.queries[t]]
        homes = pasts.homes(state.place, state.joined)
        tables = {c: _open_rows(step, c, setting.sensitive) for c in {home for _, home in homes} - {NOWHERE}}
        wrong, far[t] = pasts.check(step.law, tables, homes)
        stated[t] = step.rounding + (stated[t - 1] if step.lag > 1 else 0.0)
        findings += [*wrong, *([_coarse(step)] if step.rounding > COARSE else [])]
        if wrong:
            return
        pasts.move(at, tables, homes)


def _open_rows(step: Step, context: int, sensitive: Sequence[int]) -> Units:
    """The encoder of a context without the rows of sensitive requests, which draw from the law itself."""
    units = step.encoder(context, 0)
    assert units is not None
    open_ones = units.copy()
    open_ones[list(sensitive)] = 0
    return open_ones


# Requests that follow another chain


def _misfit(setting: _Setting, used: Chain, found: StreamAudit) -> Misfit:
    """The bounds for requests that follow the setting's chain, of a client made for the chain `used`.

    Promise `both`: D_s of a step (`onoff.model.misfit`), after the last private request, adds up over the stream with
    the stated roundings: d_t = sum of (D_s + r_s). Promise `past`: with eps(x) the total variation of the rows of x in
    both chains, d_t = sum of E eps(X_{s-1}) over the OFF steps since the last ON step, up to t, and the most that the
    r_s sum to. What is hidden and asked *before* t is within e_t of exactly private: d_t if there are sensitive
    sources, else d_{t-1} (and 0 with the promise `both`). A query then is off by d_t + e_t on average, and tells
    h(d_t) + h(e_t) + (d_t + e_t) log2 |hidden| bits at most. docs/explanation/misfit.md has the proofs.
    """
    true, both = setting.chain, setting.promise == "both"
    law = last = setting.start
    mean = worst = now = Fraction(0)
    columns: list[tuple[float, float, float, float]] = []
    steps = zip(setting.statuses, lags_of(setting.statuses), found.steps, setting.values(), strict=True)
    for private, lag, told, values in steps:
        last = law if both and private else last
        if private and not both:
            mean = worst = Fraction(0)
        apart = misfit(true, used, lag) if both else row_misfit(true, used) * (not private)
        mean += Fraction(float(times(last, apart)) * (1 + 2.0**-40))  # more than the roundings of the mean lose
        worst += Fraction(float(apart.max()))
        rounding, earlier = Fraction(told.stated_most or 0.0), Fraction(0) if both or private else now
        now = mean + rounding
        earlier = now if setting.sensitive else earlier
        bits = min(values, information_bound(now, values) + information_bound(earlier, values))
        columns.append((up(now), up(worst + rounding), up(2 * now if both else now + earlier), bits))
        last, law = last if both else law, times(law, true.P)
    distances, anywhere, allowed, most = (tuple(one + 0.0 for one in column) for column in zip(*columns, strict=True))
    ends = [t for t in range(len(anywhere)) if t + 1 == len(anywhere) or setting.statuses[t + 1]]
    guess = anywhere[-1] if both else 2 * sum(anywhere[t] for t in ends)
    return Misfit(distances, anywhere, allowed, most, min(1.0, guess))


def row_misfit(true: Chain, used: Chain) -> Floats:
    """eps(x), rounded up."""
    apart: Floats = np.abs(true.P - used.P).sum(axis=1) / 2
    return apart * (1 + 2.0**-40) + np.where(apart > 0, true.n * 2.0**-52, 0.0)


def _within(found: StreamAudit, bounds: Misfit) -> bool:
    """True if what was found exactly is within the bounds, and nothing else is wrong."""
    inside = all(
        told.bits <= bits + MISSING and (told.average or 0.0) <= most + MISSING
        for told, bits, most in zip(found.steps, bounds.bits, bounds.allowed, strict=True)
    )
    return not found.findings and (inside or found.method != EXACT)


# Privacy that is switched because of the request


def _switching(setting: _Setting, sources: set[int]) -> StreamAudit:
    """The promise needs statuses that do not depend on the requests: what a user tells who goes ON for some sources.

    Beside it, what one tells who goes ON as often by chance, whom the promise covers.
    """
    n, targets = setting.chain.n, range(2, len(setting.statuses) + 1)
    if len(sources) == n:
        raise OnoffError(f"all {n} sources are asked for ON: name some, and not all")
    wanted = np.isin(np.arange(n), list(sources)).astype(np.float64)
    chance = np.full(n, float(times(setting.start, wanted)))
    switched, by_chance = (tuple(_told_of(setting, chances, t) for t in targets) for chances in (wanted, chance))
    return replace(setting.found(EXACT, (), True), holds=None, switched=switched, by_chance=by_chance)


def _told_of(setting: _Setting, chances: Floats, target: int) -> Switched:
    """What all statuses and queries tell about the request of step `target`, if it was ON; chances[x] of going ON."""
    client, n, steps = setting.client, setting.chain.n, len(setting.statuses)
    on = np.array([int(ONE * Fraction(p)) for p in chances.tolist()], dtype=object)

    def keep(hidden: Hidden, request: int, private: bool, t: int) -> Hidden | None:
        if t + 1 != target:
            return hidden
        return (request,) if private else None

    def after(step: Step, query: Query) -> Next:
        return [(client.on(), on), (client.off(step, query), ONE - on)]

    walk = Walk(setting.chain, setting.client, setting.start, keep)
    nodes, prior = walk.first, setting.start
    for t in range(steps - 1):
        nodes = walk.gather(walk.ask(nodes, t, after))
        prior = times(prior, setting.chain.P) if t + 1 < target else prior
    parts = walk.ask(nodes, steps - 1, lambda step, query: [(None, None)])
    told = np.concatenate([part.with_labels([((x,), 0) for x in range(n)]) for part in parts]).sum(axis=2)
    law = told.astype(np.float64) / float(ONE)  # [view, request], with the request made ON
    frequency, guess = float(law.sum()), float(prior.max())
    if not frequency:
        return Switched(target, 0.0, 0.0, guess, guess)
    used, independent = law > 0, law.sum(axis=1, keepdims=True) * prior
    gained = float((law[used] * np.log2(law[used] / independent[used])).sum()) / frequency
    most = min(1.0, float(law.max(axis=1).sum()) / frequency)
    return Switched(target, frequency, max(0.0, round(gained, 12)), guess, most)
