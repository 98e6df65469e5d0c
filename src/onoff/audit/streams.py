"""Whole streams: what all queries of a client tell about what must stay hidden, at every step t.

Promise `both`, hidden are the requests made ON up to t and all requests after t, X_B. Shown is I(X_B; Q_1..Q_t); by the
Markov property the future counts only through X_{t+1}. Promise `past`, hidden up to t are G_t: requests made ON, and of
each OFF step which sensitive source was asked for, or none. Shown is I(G_t; Q_t | Q_1..Q_{t-1}), and beside it what
nobody promises: the bits that the queries *before* a hidden request tell about it.

Enumeration. All streams of a client are walked through in its own state machine, as Pr[queries, hidden, context,
request] in integers, units of 2^-512. Every operation rounds down, so what is missing from the sum 1 is the whole error.

Bound. Where streams are too many: if in every context of every step s the law of the query is within d_s of one fixed
law (total variation, on average over `next`), the stream is within d = d_1 + ... + d_t of one whose queries are
independent of what is hidden, and tells h(d) + d log2 |hidden| bits at most, for d <= 1/2. With the promise `both`, d_s
is computed from all encoders of the lag; with `past`, from the laws of sampled streams and the referee's own rows.

Estimate. A client that promises nothing, where streams are too many: log2 p(queries | hidden) / p(queries) of sampled
streams, both probabilities by the server's filter; its mean has no bias.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache, partial
from math import log, log1p, log2
from operator import mul
from typing import TYPE_CHECKING, Any

import numpy as np

from onoff.audit.bayes import NOTHING, Requests, View, divergence, hidden_part, lags_of, predict, start_law
from onoff.audit.clients import Announced, Client, Past, Step, TooLarge
from onoff.audit.law import COARSE, Finding
from onoff.audit.measures import Joint, Measures, information, measures, total_variation
from onoff.audit.replay import check_past_law
from onoff.audit.rows import NOWHERE, Pasts
from onoff.errors import OnoffError
from onoff.model.misfit import aligned, check, misfit
from onoff.model.powers import times
from onoff.model.rounding import up
from onoff.types import Floats, Progress, Query, RandBelow, silent

if TYPE_CHECKING:
    from onoff.model.chain import Chain

BITS = 512
ONE = 1 << BITS
MISSING = 2.0**-300  # of the probability 1, at most: what rounding down to units may lose
CELLS = 2_000_000  # (queries, hidden, context, request) at one step: what is enumerated
STATES = 4_000  # public states at one step, each of which prepares a law
DRAWS = 2_000  # random numbers that `draw` is tried with
SAMPLED = 100  # streams of an engine, each of which prepares all its steps
Hidden = tuple[int | None, ...]
Labels = list[tuple[Hidden, int]]  # what is hidden so far, and the context
EXACT, BOUND, STATED, ESTIMATE = "exact", "bound", "bound as stated, not checked", "estimate"


@dataclass(frozen=True)
class Told:
    """One step of all streams; steps count from 1.

    `bits` is what the module says, within +- `margin` (95 %) where it is estimated. `before` is what the queries before
    this step tell about its own hidden part; None where it has none, or for the promise `both`. `messages` is the mean
    size of the query. `distance` is a total variation: of (X_B, Q_1..Q_t) from independence (`both`), or the largest,
    over pasts, between the law of the query and the stated one (`past`), of which `average` is the mean. `stated` is
    the mean sum of the client's stated roundings, of the stream or (`past`) since the last ON step, `stated_most` the
    largest; 2 `stated` is the most that `average` may be.
    """

    step: int
    private: bool
    bits: float
    margin: float = 0.0
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

    `whole` measures X_B at the end, and `single` each private request by its step, and the one after the end (promise
    `both`, enumerated). `misfit` bounds what is found if requests follow another chain. Of a user who switches because
    of the request there are `switched` and, of one who goes ON as often by chance, `by_chance` instead of `steps`.
    """

    client: str
    promise: str
    statuses: tuple[bool, ...]
    method: str
    steps: tuple[Told, ...]
    holds: bool | None
    findings: tuple[Finding, ...] = ()
    whole: Measures | None = None
    single: dict[int, Measures] = field(default_factory=dict)
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
    streams: int = 2000,
    seed: int = 1,
    progress: Progress = silent,
) -> StreamAudit:
    """Audit what all queries of a client tell about what must stay hidden, on streams of `chain`.

    Streams begin with the stationary law, or anywhere if `uniform`. With the chain `true` requests follow that one, and
    the client, made for `chain`, is held against the misfit bound. With `on_for`, privacy is not switched as `statuses`
    say, but after the first step ON exactly for these sources. Where streams are too many, `streams` are sampled.
    """
    private, hidden = check_statuses(statuses), tuple(sorted(set(sensitive)))
    if promise not in ("both", "past"):
        raise OnoffError(f"there is no promise {promise!r}: choose both or past")
    if any(not 0 <= source < chain.n for source in (*hidden, *on_for)):
        raise OnoffError(f"a source is no number from 0 to {chain.n - 1}: {[*hidden, *on_for]}")
    for plan in getattr(client, "plans", ()):
        if plan.chain != chain:
            raise OnoffError(f"the plan {plan.name!r} is for another chain: give plans for the chain that is audited")
    follows = chain
    if true is not None:
        follows = aligned(true, chain)
        check(follows, chain)
    setting = _Setting(follows, private, client, promise, hidden, start_law(follows, uniform))
    if on_for:
        return _switching(setting, set(on_for))
    found = _strongest(setting, streams, seed, progress)
    if true is None:
        return found
    bounds = _misfit(setting, chain, found)
    return replace(found, misfit=bounds, holds=_within(found, bounds) if client.promises else None)


@dataclass(frozen=True)
class _Setting:
    """A client with these statuses, on streams of the chain that start with this law."""

    chain: Chain
    statuses: tuple[bool, ...]
    client: Client
    promise: str
    sensitive: tuple[int, ...]
    start: Floats

    def found(self, method: str, steps: Sequence[Told], holds: bool, **more: Any) -> StreamAudit:
        findings = tuple(dict.fromkeys((*getattr(self.client, "findings", ()), *more.pop("findings", ()))))
        kept = (holds and not findings) if self.client.promises else None
        name = self.client.name
        return StreamAudit(name, self.promise, self.statuses, method, tuple(steps), kept, findings, **more)

    def values(self) -> list[float]:
        """log2 of how many values there are of what is hidden, after every step (`past`: since the last ON step)."""
        n, found, now = self.chain.n, [], log2(self.chain.n)
        for private in self.statuses:
            if self.promise == "both":
                now += log2(n) * private
            else:
                now = log2(n) if private else now + log2(len(self.sensitive) + 1)
            found.append(now)
        return found


def _strongest(setting: _Setting, streams: int, seed: int, progress: Progress) -> StreamAudit:
    """The audit by the strongest method that fits."""
    client = setting.client
    if isinstance(client, Announced) and any(not step.sets for step in _steps(setting)):
        return _as_stated(setting)
    try:
        return _by_enumeration(setting)
    except TooLarge:
        pass
    if client.promises and setting.promise == "both":
        with progress(f"checking {client.name}")(len(set(lags_of(setting.statuses)))) as advance:
            return _by_bound(setting, advance)
    if isinstance(client, Past) and setting.promise == "past":
        with progress(f"sampling {client.name}")(min(streams, SAMPLED)) as advance:
            return _by_laws(setting, min(streams, SAMPLED), seed, advance)
    with progress(f"sampling {client.name}")(streams) as advance:
        return _by_sampling(setting, streams, seed, advance)


# Enumeration


@dataclass(frozen=True, eq=False)
class _Node:
    """mass[view, label, x] = Pr[queries, label, X_t = x] of the views that lead to one public step, in units.

    `stated` is the sum of roundings, and `charged` of charges, that the client has stated since the last ON step.
    """

    step: Step
    labels: Labels
    mass: Joint
    stated: float = 0.0
    charged: float = 0.0


@dataclass(frozen=True, eq=False)
class _Part:
    """mass[view, label, y] = Pr[queries, label, X_{t+1} = y] of the views of a node that ask this query next."""

    query: Query
    following: Step | None
    labels: Labels
    mass: Joint


class _Walk:
    """All streams of a client. `keep(hidden, request, private, t)` adds a step to what is hidden, or leaves it out."""

    def __init__(self, setting: _Setting, keep: Callable[[Hidden, int, bool, int], Hidden | None]) -> None:
        self._setting, self._keep, self._n = setting, keep, setting.chain.n
        rows = [[Fraction(p) for p in row] for row in setting.chain.P.tolist()]
        self._P = [[int(ONE * p / sum(row)) for p in row] for row in rows]  # each row is divided by its exact sum
        self._kernels: dict[tuple[int, int], tuple[Step, Joint]] = {}
        self._draws = _Draws(setting.client)

    def first(self) -> list[_Node]:
        start = [Fraction(p) for p in self._setting.start.tolist()]
        units = np.array([int(ONE * p / sum(start)) for p in start], dtype=object)
        return [_Node(self._setting.client.on(), [((), 0)], units.reshape(1, 1, -1))]

    def ask(self, node: _Node, t: int, after: Callable[[Query], list[tuple[Step | None, Joint | None]]]) -> list[_Part]:
        """Let everybody ask. `after` says which steps may follow a query, each with the chance of its status."""
        step, views = node.step, len(node.mass)
        if node.mass.size * self._n * len(step.sets) > self._n * CELLS:
            raise TooLarge("too many views: take fewer steps, or a smaller chain")
        alive = [(label, x) for label, x in np.argwhere(node.mass.astype(bool).any(axis=0)).tolist()]
        rows = [self._kernel(step, node.labels[label][1])[:, x] for label, x in alive]
        for label, x in alive:
            self._draws.check(step, node.labels[label][1], x)
        parts = []
        for i, query in enumerate(step.sets):
            asking = [(label, x, row[i]) for (label, x), row in zip(alive, rows, strict=True) if row[i].any()]
            if not asking:
                continue
            for following, chance in after(query):
                index: dict[tuple[Hidden, int], int] = {}
                mass = np.zeros((views, len(asking), self._n), dtype=object)
                for label, x, row in asking:
                    hidden, context = node.labels[label]
                    kept = self._keep(hidden, x, step.lag == 0, t)
                    moved = 0 if following is None or following.comes is None else int(following.comes[context, x])
                    if kept is not None and moved != NOWHERE:
                        at = index.setdefault((kept, moved), len(index))
                        mass[:, at] += node.mass[:, label, x, None] * row >> BITS
                mass = mass[:, : len(index)]
                parts.append(_Part(query, following, list(index), mass if chance is None else mass * chance >> BITS))
        return parts

    def gather(self, asked: Sequence[tuple[_Node, _Part]]) -> list[_Node]:
        """The nodes of the next step: views that lead to the same public step go on together."""
        groups: dict[int, list[tuple[_Node, _Part]]] = {}
        for node, part in asked:
            groups.setdefault(id(part.following), []).append((node, part))
        nodes = []
        for group in groups.values():
            before, following = group[0][0], group[0][1].following
            assert following is not None
            labels = list(dict.fromkeys(label for _, part in group for label in part.labels))
            mass = np.concatenate([_with_labels(part, labels) for _, part in group])
            mass = mass[mass.astype(bool).any(axis=(1, 2))]
            since = (before.stated + before.step.rounding, before.charged + before.step.charge)
            nodes.append(_Node(following, labels, mass, *(since if following.lag > 1 else (0.0, 0.0))))
        if sum(node.mass.size for node in nodes) > CELLS or len(nodes) > STATES:
            raise TooLarge("too many streams: take fewer steps, or a smaller chain")
        return [node for node in nodes if len(node.mass)]

    def findings(self) -> list[Finding]:
        return self._draws.findings

    def _kernel(self, step: Step, context: int) -> Joint:
        """[set, request, next] = P[request, next] p(set | context, request, next), in units."""
        key = id(step), context
        if key not in self._kernels:
            n = self._n
            if len(step.sets) * n**2 > CELLS:
                raise TooLarge("too many sets: take a smaller chain")
            kernel = np.zeros((len(step.sets), n, n), dtype=object)
            tables = [step.encoder(context, y) for y in (range(n) if step.announced else [0])]
            for x in range(n):
                for y in range(n):
                    units = tables[y if step.announced else 0]
                    row = [] if units is None else units[x].tolist()
                    for i, weight in enumerate(row):
                        if weight:
                            kernel[i, x, y] = self._P[x][y] * weight // sum(row)
            self._kernels[key] = step, kernel
        return self._kernels[key][1]


def _with_labels(part: _Part, labels: Labels) -> Joint:
    mass = np.zeros((len(part.mass), len(labels), part.mass.shape[2]), dtype=object)
    mass[:, [labels.index(label) for label in part.labels]] = part.mass
    return mass


class _Draws:
    """Whether `draw` of an exhibit follows its encoders: it is called at both ends of every part, with one number."""

    def __init__(self, client: Client) -> None:
        self._draw = getattr(client, "draw_with", None)
        self._left = DRAWS
        self._done: dict[tuple[int, int, int], Step] = {}  # with the step, so that its id stays
        self.findings: list[Finding] = []

    def check(self, step: Step, context: int, request: int) -> None:
        key = id(step), context, request
        if self._draw is None or step.lag == 0 or key in self._done:
            return
        self._done[key] = step
        for following in range(step.contexts if step.announced else 1):
            units = step.encoder(context, following)
            if units is not None and units[request].any() and self._left > 0 and not self.findings:
                self._try(step, context, request, following, units[request].tolist())

    def _try(self, step: Step, context: int, request: int, following: int, row: list[int]) -> None:
        total, end = sum(row), 0
        for query, mass in zip(step.sets, row, strict=True):
            for number in {end, end + mass - 1} if mass else ():
                bounds: list[int] = []
                self._left -= 1
                try:
                    found = self._draw(step, context, request, following, _gives(number, bounds))
                except OnoffError as error:
                    self.findings.append(Finding("draw", f"`draw` fails: {error}"))
                    return
                if bounds != [total] or tuple(found) != query:
                    due = f"one number below {total} and, for {number}, the set {query}"
                    message = f"`draw` must ask for {due}; it asked below {bounds[:3]} and gave {found}"
                    self.findings.append(Finding("draw", message, context=(context,), query=query))
                    return
            end += mass


def _gives(number: int, bounds: list[int]) -> RandBelow:
    def below(bound: int) -> int:
        bounds.append(bound)
        return min(number, bound - 1)

    return below


def _by_enumeration(setting: _Setting) -> StreamAudit:
    """Every step exactly. Raises `TooLarge` if there are too many streams."""
    both = setting.promise == "both"

    def keep(hidden: Hidden, request: int, private: bool, t: int) -> Hidden:  # noqa: ARG001
        if both:
            return (*hidden, request) if private else hidden
        return (request,) if private else (*hidden, request if request in setting.sensitive else None)

    walk = _Walk(setting, keep)
    tell = _Both(setting) if both else _Past(setting)
    nodes, steps = walk.first(), []
    for t in range(len(setting.statuses)):
        asked = [(node, walk.ask(node, t, partial(_follow, setting, node.step, t))) for node in nodes]
        if float(1 - _mass(part.mass for _, parts in asked for part in parts)) > MISSING:
            tell.findings.append(Finding("query", "a request that happens is given no query, or leads to no context"))
        steps.append(tell.step(t, asked))
        if t + 1 < len(setting.statuses):
            nodes = walk.gather([(node, part) for node, parts in asked for part in parts])
    findings = [*walk.findings(), *tell.findings]
    return setting.found(EXACT, steps, tell.holds, findings=findings, **tell.at_the_end())


def _follow(setting: _Setting, step: Step, t: int, query: Query) -> list[tuple[Step | None, None]]:
    """The one step that follows, by the statuses; None after the last."""
    if t + 1 == len(setting.statuses):
        return [(None, None)]
    return [(setting.client.on() if setting.statuses[t + 1] else setting.client.off(step, query), None)]


def _mass(parts: Iterable[Joint]) -> Fraction:
    return Fraction(sum(int(part.sum()) for part in parts), ONE)


def _messages(asked: Sequence[tuple[_Node, list[_Part]]]) -> float:
    return float(sum(len(part.query) * _mass([part.mass]) for _, parts in asked for part in parts))


class _Both:
    """Steps of the promise `both`, from Pr[queries so far; X_B]: a row for each stream of queries."""

    def __init__(self, setting: _Setting) -> None:
        self._setting, self._stated = setting, Fraction(0)
        self._values, self._slack = setting.values(), _slack(setting.chain)
        self.holds, self.findings = True, list[Finding]()

    def step(self, t: int, asked: Sequence[tuple[_Node, list[_Part]]]) -> Told:
        n, hidden = self._setting.chain.n, sum(self._setting.statuses[: t + 1])
        blocks = []
        for _, parts in asked:
            for part in parts:
                block = np.zeros((len(part.mass), n**hidden, n), dtype=object)
                for label, (requests, _) in enumerate(part.labels):
                    block[:, sum(x * n**k for k, x in enumerate(reversed(requests)) if x)] += part.mass[:, label]
                blocks.append(block)
        self._joint = joint = np.concatenate(blocks).reshape(-1, n ** (hidden + 1))
        step = asked[0][0].step
        self._stated += Fraction(step.rounding) + _walk_slack(self._slack, step.lag)
        bits, distance = information(joint), Fraction(total_variation(joint))
        told = Told(t + 1, self._setting.statuses[t], bits, messages=_messages(asked))
        if not self._setting.client.promises:
            return replace(told, distance=float(distance), average=float(distance))
        self.holds &= bits <= information_bound(self._stated, self._values[t]) + MISSING
        self.holds &= distance <= 2 * self._stated + Fraction(MISSING)
        found, stated = float(distance), float(self._stated)
        return replace(told, distance=found, average=found, stated=stated, stated_most=stated)

    def at_the_end(self) -> dict[str, Any]:
        """Measures of all that is hidden, and of each request alone."""
        n, steps = self._setting.chain.n, [t for t, private in enumerate(self._setting.statuses, 1) if private]
        steps.append(len(self._setting.statuses) + 1)
        cube = self._joint.reshape(len(self._joint), *[n] * len(steps))
        others = {step: tuple(i + 1 for i in range(len(steps)) if i != at) for at, step in enumerate(steps)}
        single = {step: measures(cube.sum(axis=axes)) for step, axes in others.items()}
        return {"whole": measures(self._joint), "single": single}


class _Past:
    """Steps of the promise `past`: after every past, the law of the query given what is hidden."""

    def __init__(self, setting: _Setting) -> None:
        self._setting, self._slack = setting, float(_slack(setting.chain))
        self.holds, self.findings = True, list[Finding]()

    def step(self, t: int, asked: Sequence[tuple[_Node, list[_Part]]]) -> Told:
        private, sensitive = self._setting.statuses[t], self._setting.sensitive
        bits = average = stated = most = weight = 0.0
        distance, before = None, []
        for node, parts in asked:
            sums = [part.mass.sum(axis=2) for part in parts]
            before += [_by_value(row, private, sensitive) for row in node.mass.sum(axis=1)]
            for view in range(len(node.mass)):
                laws: dict[Hidden, dict[Query, int]] = {}
                for part, masses in zip(parts, sums, strict=True):
                    for (hidden, _), mass in zip(part.labels, masses[view].tolist(), strict=True):
                        here = laws.setdefault(hidden, {})
                        here[part.query] = here.get(part.query, 0) + mass
                queries = sorted({query for here in laws.values() for query in here})
                joint = np.array([[here.get(query, 0) for here in laws.values()] for query in queries], dtype=object)
                share = float(Fraction(int(joint.sum()), ONE)) if queries else 0.0
                bits += share * information(joint) if share else 0.0
                if node.step.law is not None and share:
                    furthest, mean = self._compare(node, laws)
                    so_far = node.stated + node.step.rounding
                    distance, most = max(distance or 0.0, furthest), max(most, so_far)
                    average, stated, weight = average + share * mean, stated + share * so_far, weight + share
        told = Told(t + 1, private, bits, messages=_messages(asked))
        if private or sensitive:
            told = replace(told, before=information(np.array(before, dtype=object)))
        if distance is None:
            return told
        self.holds &= average <= 2 * stated + 2.0**-50
        return replace(told, distance=distance, average=average / weight, stated=stated / weight, stated_most=most)

    def _compare(self, node: _Node, laws: dict[Hidden, dict[Query, int]]) -> tuple[float, float]:
        """The largest distance of a law of the query from the stated one, and the mean."""
        law, step = node.step.law, node.step
        assert law is not None
        asked = sum(sum(here.values()) for here in laws.values())
        furthest = mean = Fraction(0)
        for here in laws.values():
            own = sum(here.values())
            if own:
                both = {*here, *law.sets}
                stated = dict(zip(law.sets, law.masses, strict=True))
                apart = sum(abs(here.get(q, 0) * law.denominator - stated.get(q, 0) * own) for q in both)
                far = Fraction(apart, 2 * own * law.denominator)
                furthest, mean = max(furthest, far), mean + far * Fraction(own, asked)
        if step.rounding > COARSE:
            self.findings.append(_coarse(step))
        if node.charged + step.charge == 0:
            self.holds &= furthest <= Fraction(step.rounding) + Fraction(self._slack * step.lag) + Fraction(MISSING)
        return float(furthest), float(mean)

    def at_the_end(self) -> dict[str, Any]:
        return {}


def _coarse(step: Step) -> Finding:
    message = f"a rounding of {step.rounding:.1e} is stated: too much for one step"
    return Finding("coarse", message, amount=step.rounding)


def _by_value(row: Joint, private: bool, sensitive: Sequence[int]) -> list[int]:
    """The units of every value of what is hidden of a step, from those of its request."""
    if private:
        return list(row.tolist())
    return [*(row[source] for source in sensitive), sum(row[x] for x in range(len(row)) if x not in sensitive)]


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
    """How far a row of floats is from the sum 1, at most. Roundings are stated for the chain as its floats say."""
    return max(abs(1 - sum(map(Fraction, row), Fraction(0))) for row in chain.P.tolist())


def _walk_slack(slack: Fraction, lag: int) -> Fraction:
    """What dividing rows by their sums adds: the weight of a walk changes by a factor within ((1 - s) / (1 + s))^lag."""
    return (((1 + slack) / (1 - slack)) ** lag - 1) / 2


def _steps(setting: _Setting) -> list[Step]:
    """The steps of a client whose public state does not depend on queries."""
    steps: list[Step] = []
    for private in setting.statuses:
        steps.append(setting.client.on() if private else setting.client.off(steps[-1], ()))
    return steps


def _as_stated(setting: _Setting) -> StreamAudit:
    """The bound that follows from what a client states. A race has no table: nothing is checked here."""
    slack, total, told = _slack(setting.chain), Fraction(0), []
    for t, (step, values) in enumerate(zip(_steps(setting), setting.values(), strict=True), 1):
        total += Fraction(step.rounding) + _walk_slack(slack, step.lag)
        stated = float(total)
        told.append(Told(t, step.lag == 0, information_bound(total, values), stated=stated, stated_most=stated))
    return setting.found(STATED, told, True)


def _by_bound(setting: _Setting, advance: Callable[[], None]) -> StreamAudit:
    """A certified upper bound at every t, from the encoders of every context of the lags that occur."""
    slack, told, holds = _slack(setting.chain), [], True
    found: dict[int, Fraction] = {}
    distance = stated = Fraction(0)
    for t, (step, values) in enumerate(zip(_steps(setting), setting.values(), strict=True), 1):
        if step.lag not in found:
            found[step.lag] = step_distance(setting.chain, step)
            advance()
        distance += found[step.lag]
        stated += Fraction(step.rounding) + _walk_slack(slack, step.lag)
        holds &= distance <= stated + Fraction(MISSING)
        numbers = float(distance), float(distance), float(stated), float(stated)
        told.append(Told(t, step.lag == 0, information_bound(distance, values), 0.0, None, None, *numbers))
    return setting.found(BOUND, told, holds)


def step_distance(chain: Chain, step: Step) -> Fraction:
    """The most, over `last`, of the total variation between the laws of (next, query) and of (next) x (one fixed law).

    The fixed law is what the encoder of some context sums to: a plan's own law, if the plan is one. All probabilities
    are rounded down, so what is missing from their sums bounds their error; it is added.
    """
    n, rows = chain.n, [[Fraction(p) for p in row] for row in chain.P.tolist()]
    P = np.array([[int(ONE * p / sum(row)) for p in row] for row in rows], dtype=object)
    power = np.eye(n, dtype=int).astype(object) * ONE
    for _ in range(step.lag):
        power = np.array([[sum(row * column) >> BITS for column in P.T] for row in power], dtype=object)
    common: list[int] | None = None
    worst = 0
    for last in range(n):
        apart = joint_mass = ideal_mass = 0
        for following in range(n):
            units = step.encoder(last if step.contexts > 1 else 0, following)
            if units is None:
                continue
            if common is None:
                sums = (units if step.lag else units[:1]).sum(axis=0).tolist()
                common = [mass * ONE // sum(sums) for mass in sums]
            law, reached = [0] * len(common), 0
            for request in range(n):
                path, total = int(power[last, request]) * int(P[request, following]) >> BITS, int(units[request].sum())
                for i in np.flatnonzero(units[request]).tolist():
                    law[i] += path * int(units[request, i]) // total
                reached += path
            ideal = [reached * mass >> BITS for mass in common]
            apart += sum(abs(one - other) for one, other in zip(law, ideal, strict=True))
            joint_mass, ideal_mass = joint_mass + sum(law), ideal_mass + sum(ideal)
        worst = max(worst, apart + (ONE - joint_mass) + (ONE - ideal_mass))
    return Fraction(worst, 2 * ONE)


# Sampled streams


@dataclass(frozen=True, eq=False)
class _Stream:
    """Requests, one more than there are steps, and what a client made of them."""

    path: list[int]
    steps: list[Step]
    queries: list[Query]
    contexts: list[int]


def _drawn(setting: _Setting, rng: np.random.Generator) -> _Stream:
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


def _by_laws(setting: _Setting, streams: int, seed: int, advance: Callable[[], None]) -> StreamAudit:
    """The promise `past`: on sampled streams every law is checked against the rows of every hidden past."""
    chain, rng, steps = setting.chain, np.random.default_rng(seed), len(setting.statuses)
    distance, stated, sizes, before = (np.zeros((streams, steps)) for _ in range(4))
    draws, findings, priors = _Draws(setting.client), list[Finding](), _priors(setting)
    for number in range(streams):
        stream = _drawn(setting, rng)
        before[number] = _foretold(setting, stream, priors)
        for t, step in enumerate(stream.steps):
            if step.law is None:
                pasts, sizes[number, t] = Pasts.after_on(chain, setting.sensitive), chain.n
                continue
            draws.check(step, stream.contexts[t], stream.path[t])
            state, law = step.exhibit[0], step.law
            homes, tables = pasts.homes(state.place, state.joined), {}
            for context in set(homes[pasts.live].tolist()) - {NOWHERE}:
                tables[context] = step.encoder(context, 0).copy()
                tables[context][list(setting.sensitive)] = 0
            wrong, fits, distance[number, t] = check_past_law(pasts, homes, law, tables)
            findings += wrong
            if step.rounding > COARSE:
                findings.append(_coarse(step))
            stated[number, t] = step.rounding + (stated[number, t - 1] if step.lag > 1 else 0.0)
            sizes[number, t] = sum(map(mul, map(len, law.sets), law.masses)) / law.denominator
            if wrong:
                break
            at = law.index[stream.queries[t]]
            pasts = pasts.after_off(homes, {c: (units[:, at], units.sum(axis=1)) for c, units in tables.items()}, fits)
        advance()
    told = []
    for t, (private, values) in enumerate(zip(setting.statuses, setting.values(), strict=True)):
        far = float(distance[:, t].max())
        one = Told(t + 1, private, information_bound(Fraction(far), values), messages=float(sizes[:, t].mean()))
        if private or setting.sensitive:
            one = replace(one, before=float(before[:, t].mean()))
        if not private:
            numbers = far, float(distance[:, t].mean()), float(stated[:, t].mean()), float(stated[:, t].max())
            one = replace(one, **dict(zip(("distance", "average", "stated", "stated_most"), numbers, strict=True)))
        told.append(one)
    return setting.found(BOUND, told, True, findings=[*draws.findings, *findings])


def _by_sampling(setting: _Setting, streams: int, seed: int, advance: Callable[[], None]) -> StreamAudit:
    """The mean of log2 p(queries | hidden) / p(queries), over sampled streams."""
    rng, steps = np.random.default_rng(seed), len(setting.statuses)
    bits, sizes, before = (np.zeros((streams, steps)) for _ in range(3))
    priors = _priors(setting)
    for number in range(streams):
        stream = _drawn(setting, rng)
        bits[number] = _ratios(setting, stream)
        sizes[number] = [len(query) for query in stream.queries]
        before[number] = _foretold(setting, stream, priors)
        advance()
    margin = 1.96 * bits.std(axis=0, ddof=1) / np.sqrt(streams)
    told = [
        Told(
            t + 1,
            private,
            max(0.0, float(bits[:, t].mean())),
            float(margin[t]),
            float(before[:, t].mean()) if setting.promise == "past" and (private or setting.sensitive) else None,
            float(sizes[:, t].mean()),
        )
        for t, private in enumerate(setting.statuses)
    ]
    return setting.found(ESTIMATE, told, True)


def _ratios(setting: _Setting, stream: _Stream) -> Floats:
    """What every step of one stream tells, in bits: the logarithm of a ratio of two probabilities of its queries."""
    n, steps, requests = setting.chain.n, len(stream.steps), Requests(setting.start, setting.chain.P)
    views = [*(step.view(query) for step, query in zip(stream.steps, stream.queries, strict=True)), NOTHING]
    masks = [np.ones(n) for _ in views]  # of the requests that what is hidden allows
    for t, private in enumerate(setting.statuses):
        if private or stream.path[t] in setting.sensitive:
            masks[t] = np.eye(n)[stream.path[t]]
        else:
            masks[t][list(setting.sensitive)] = 0.0

    def given_hidden(views: Sequence[View]) -> tuple[Floats, Floats]:
        seen = [View(v.chances * mask[:, None], v.contexts, v.comes) for v, mask in zip(views, masks, strict=True)]
        return predict(requests, steps + 1, seen.__getitem__)

    _, plain = predict(requests, steps + 1, views.__getitem__)
    before, given = given_hidden(views)
    if setting.promise == "past":
        own = np.log2([row @ mask for row, mask in zip(before, masks, strict=True)])
        return (np.diff(given, prepend=0.0) - own - np.diff(plain, prepend=0.0))[:-1]
    alone, without = given_hidden([NOTHING] * len(views))
    ends = [np.log2(rows[np.arange(1, steps + 1), stream.path[1:]]) for rows in (before, alone)]
    return given[:-1] + ends[0] - without[:-1] - ends[1] - plain[:-1]


def _priors(setting: _Setting) -> list[Floats]:
    laws = [setting.start]
    for _ in setting.statuses[1:]:
        laws.append(times(laws[-1], setting.chain.P))
    return laws


def _foretold(setting: _Setting, stream: _Stream, priors: Sequence[Floats]) -> list[float]:
    """Bits that the queries before each step tell about what is hidden of it."""
    views = [step.view(query) for step, query in zip(stream.steps, stream.queries, strict=True)]
    before, _ = predict(Requests(setting.start, setting.chain.P), len(views), views.__getitem__)
    return [
        divergence(*(hidden_part(row, private, setting.sensitive) for row in rows))
        for private, rows in zip(setting.statuses, zip(before, priors, strict=True), strict=True)
    ]


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
    true, both, sensitive = setting.chain, setting.promise == "both", bool(setting.sensitive)
    apart = cache(lambda lag: misfit(true, used, lag)) if both else _row_misfit(true, used)
    law = last = setting.start
    mean = worst = now = Fraction(0)
    distances, anywhere, allowed, bits = [], [], [], []
    steps = zip(setting.statuses, lags_of(setting.statuses), found.steps, setting.values(), strict=True)
    for private, lag, told, values in steps:
        if both:
            last = law if private else last
            here = apart(lag)
        else:
            mean, worst = (Fraction(0), Fraction(0)) if private else (mean, worst)
            here = np.zeros(true.n) if private else apart
        mean += Fraction(float(times(last, here)) * (1 + 2.0**-40))  # more than the roundings of the mean lose
        worst += Fraction(float(here.max()))
        rounding = Fraction(told.stated_most or 0.0)
        earlier = Fraction(0) if both or private else now
        now = mean + rounding
        earlier = now if sensitive else earlier
        distances.append(up(now) + 0.0)
        anywhere.append(up(worst + rounding) + 0.0)
        allowed.append(up(2 * now if both else now + earlier) + 0.0)
        bits.append(min(values, information_bound(now, values) + information_bound(earlier, values)))
        last, law = last if both else law, times(law, true.P)
    ends = [t for t in range(len(anywhere)) if t + 1 == len(anywhere) or setting.statuses[t + 1]]
    guess = anywhere[-1] if both else 2 * sum(anywhere[t] for t in ends)
    return Misfit(tuple(distances), tuple(anywhere), tuple(allowed), tuple(bits), min(1.0, guess))


def _row_misfit(true: Chain, used: Chain) -> Floats:
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
    n = setting.chain.n
    if len(sources) == n:
        raise OnoffError(f"all {n} sources are asked for ON: name some, and not all")
    wanted = np.isin(np.arange(n), list(sources)).astype(np.float64)
    chance = np.full(n, float(times(setting.start, wanted)))
    switched, by_chance = (
        tuple(_told_of(setting, chances, step) for step in range(2, len(setting.statuses) + 1))
        for chances in (wanted, chance)
    )
    return replace(setting.found(EXACT, (), True), holds=None, switched=switched, by_chance=by_chance)


def _told_of(setting: _Setting, chances: Floats, target: int) -> Switched:
    """What all statuses and queries tell about the request of step `target`, if it was ON; chances[x] of going ON."""
    client, steps = setting.client, len(setting.statuses)
    on = np.array([int(ONE * Fraction(p)) for p in chances.tolist()], dtype=object)

    def keep(hidden: Hidden, request: int, private: bool, t: int) -> Hidden | None:
        if t + 1 != target:
            return hidden
        return (request,) if private else None

    def after(step: Step, t: int, query: Query) -> list[tuple[Step | None, Joint | None]]:
        if t + 1 == steps:
            return [(None, None)]
        return [(client.on(), on), (client.off(step, query), ONE - on)]

    walk = _Walk(setting, keep)
    nodes, parts = walk.first(), list[_Part]()
    for t in range(steps):
        asked = [(node, part) for node in nodes for part in walk.ask(node, t, partial(after, node.step, t))]
        parts = [part for _, part in asked]
        nodes = walk.gather(asked) if t + 1 < steps else []
    told = np.concatenate([_with_labels(part, [((x,), 0) for x in range(setting.chain.n)]) for part in parts])
    joint = told.sum(axis=2)  # [view, request of the target]
    prior = _priors(setting)[target - 1]
    return _measured(target, joint[joint.astype(bool).any(axis=1)], prior)


def _measured(step: int, told: Joint, prior: Floats) -> Switched:
    """`told[view, request]`: the probability of both, with the request made ON."""
    guess = float(prior.max())
    if not len(told):
        return Switched(step, 0.0, 0.0, guess, guess)
    law = told.astype(np.float64) / float(ONE)
    frequency = float(law.sum())
    independent = law.sum(axis=1, keepdims=True) * prior
    used = law > 0
    gained = float((law[used] * np.log2(law[used] / independent[used])).sum()) / frequency
    most = min(1.0, float(law.max(axis=1).sum()) / frequency)
    return Switched(step, frequency, max(0.0, round(gained, 12)), guess, most)
