"""The one check of laws: sets with masses, and the integer encoder of a context.

At an OFF step the query must be sets[i] with probability masses[i] / D in *every* context, D being the sum of the
masses. The encoder of a context u is a matrix of integers e[x, i], request by set, and the client draws set i for the
request x with probability e[x, i] / sum_i e[x, i]. It keeps the promise if

    e >= 0,  e[x, i] > 0 only if x in sets[i],  sum_i e[x, i] > 0 iff p(x | u) > 0,  sum_x e[x, i] = masses[i] exactly.

Then every query holds its request, and its law in the context u is masses / D up to the total variation between row
sums / D and p(. | u). That is the rounding, and it must be at most COARSE at every step. Plans and past laws are
checked by the same functions; only the rows p(. | u) come from elsewhere (`onoff.audit.rows`).

If the request chose among right laws of the promise `past`, the law would tell of it. The dearer laws may be, the more
laws there are to choose from: so `is_proved` asks how far a law is from the cheapest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from onoff.types import Floats, Mask, Query, Units

COARSE = Fraction(1, 2**30)  # the largest rounding of one step that is accepted
MOST_UNITS = 2**52  # of a denominator: sums of units fit 64 bits, and floats hold them exactly
UNCHECKED = "not checked"  # the rule of a finding that says why something could not be checked: nothing is wrong
Pairs = tuple[tuple[int, int], ...]  # (bound, number) of a draw
Context = tuple[int, ...] | None  # (lag, last, next) or, for the promise `past`, (state,)
DEAR = 1.02  # the most that a law costs, as a multiple of what the cheapest one costs at least
FEW = 12  # sources up to which a bound is computed over all their sets
SHIFT = 40  # multipliers of cuts are integers in units of 2^-SHIFT


@dataclass(frozen=True)
class Finding:
    """A check that failed, with the step, the context, the set and the amount, where they are known."""

    rule: str
    message: str
    step: int | None = None
    context: Context = None
    query: tuple[Any, ...] | None = None  # of sources, or of their names
    amount: float | None = None

    def words(self) -> str:
        """Where it is, the rule, what is wrong, and the set that this is about."""
        where = "the log" if self.step is None else f"step {self.step}"
        members = "" if self.query is None else f": {{{', '.join(map(str, self.query))}}}"
        return f"{where}: {self.rule}: {self.message}{members}"


@dataclass(frozen=True, eq=False)
class Law:
    """The query is sets[i] with probability masses[i] / denominator. The order of the sets is the order of the draw."""

    sets: tuple[Query, ...]
    masses: tuple[int, ...]

    @cached_property
    def denominator(self) -> int:
        return sum(self.masses)

    @cached_property
    def cost(self) -> Fraction:
        """The expected number of messages."""
        total = sum(len(query) * mass for query, mass in zip(self.sets, self.masses, strict=True))
        return Fraction(total, self.denominator)

    @cached_property
    def index(self) -> dict[Query, int]:
        """The position of every set."""
        return {query: i for i, query in enumerate(self.sets)}

    @cached_property
    def units(self) -> Units:
        """The masses as an array."""
        return np.array(self.masses, dtype=np.int64)

    @cached_property
    def members(self) -> tuple[Units, Units]:
        """All places (source, position) of a table at which the set holds the source."""
        sources = np.array([x for query in self.sets for x in query], dtype=np.int64)
        return sources, np.repeat(np.arange(len(self.sets)), [len(query) for query in self.sets])


@dataclass(frozen=True, eq=False)
class LawLine:
    """A law with its encoders by context: tables of units, request by set. For the promise `past` these are states.

    The `certificate` of a law of `past` has cuts, sets of sources by their places among those that are not sensitive,
    each with its multiplier. `digest` is that of the law alone.
    """

    law: Law
    encoders: Mapping[int, Units]
    certificate: tuple[tuple[Query, int], ...] = ()
    digest: str = ""


Drawn = tuple[Units, Law] | None  # the units of the request on the sets of a law; None if it is not known


def check_law(law: Law, n: int, always: Iterable[int] = ()) -> Finding | None:
    """Find what is wrong with sets and masses, if anything. Every set must hold the sources `always`."""
    hidden = set(always)
    for query, mass in zip(law.sets, law.masses, strict=True):
        if not query or list(query) != sorted(set(query)) or not 0 <= query[0] <= query[-1] < n:
            return Finding("law", f"this is not a sorted set of sources 0 to {n - 1}", query=query)
        if mass <= 0:
            return Finding("law", f"the mass of this set is {mass}, not a positive number", query=query)
        if not hidden <= set(query):
            return Finding("sensitive", "this set lacks a sensitive source", query=query)
    if len(law.index) < len(law.sets) or not 0 < law.denominator <= MOST_UNITS:
        return Finding("law", f"a set stands there twice, or the masses sum to {law.denominator}, not to 1 to 2^52")
    return None


def check_columns(law: Law, units: Units, possible: Mask, context: Context = None) -> Finding | None:
    """Find a column, a request outside its set, or a request without a set, in the encoder of a context.

    `possible[x]` says whether the request x can happen there. Columns are compared to the unit: no entry exceeds D, so
    a sum of n of them fits 64 bits.
    """
    D = law.denominator
    if units.shape != (len(possible), len(law.sets)) or units.dtype != np.int64 or units.min(initial=0) < 0:
        return Finding("encoder", "not a table of non-negative integers, request by set, or none", context=context)
    if units.max(initial=0) > D:
        return Finding("columns", "one entry exceeds the denominator", context=context)
    excess = units.sum(axis=0) - law.units
    if excess.any():
        worst = int(abs(excess).argmax())
        off, way = abs(int(excess[worst])), "many" if excess[worst] > 0 else "few"
        message = f"this set has {off} of {D} units too {way}, and the query another law here"
        return Finding("columns", message, context=context, query=law.sets[worst], amount=off / D)
    outside = D - int(units[law.members].sum())
    if outside:
        message = f"{outside} units send a request in a set without it"
        return Finding("decoding", message, context=context, amount=outside / D)
    wrong = units.any(axis=1) != possible
    if wrong.any():
        x = int(wrong.argmax())
        what = "possible and has no set" if possible[x] else "impossible and has a set"
        return Finding("requests", f"the request {x} is {what}", context=context)
    return None


def distance(sums: Sequence[int], weights: Sequence[int]) -> Fraction:
    """Compute the total variation between sums / D and weights / W exactly, D and W being their totals."""
    D, W = sum(sums), sum(weights)
    return Fraction(sum(abs(units * W - D * weight) for units, weight in zip(sums, weights, strict=True)), 2 * D * W)


def check_encoder(
    law: Law, units: Units, weights: Sequence[int], error: Fraction, context: Context = None
) -> Fraction | Finding:
    """Check the encoder of a context whose posterior row is weights / sum(weights), up to `error`.

    Returns a bound on the total variation between its row sums / D and that row, or what is wrong.
    """
    possible = np.array([weight > 0 for weight in weights])
    if (fault := check_columns(law, units, possible, context)) is not None:
        return fault
    off = distance(units.sum(axis=1).tolist(), weights) + error
    if off > COARSE:
        message = f"the encoder is off by {float(off):.1e} in total variation; {float(COARSE):.1e} is allowed"
        return Finding("rows", message, context=context, amount=float(off))
    return off


def check_draw(query: Query, numbers: Pairs, row: Units, law: Law) -> Finding | None:
    """Draw again: row[i] are the units of the request on sets[i], and the number says in whose part it lies."""
    total = int(row.sum())
    bound, number = numbers[0] if len(numbers) == 1 else (0, 0)
    if bound != total or not 0 <= number < bound:
        return Finding("draw", f"a draw takes one random number below {total}, and another list of numbers is noted")
    due = law.sets[int(np.searchsorted(np.cumsum(row), number, side="right"))]
    if due == query:
        return None
    message = f"the number {number} of {total} lies in the part of this set, and another one was asked for"
    return Finding("draw", message, query=due)


def is_proved(line: LawLine, rows: Floats, always: int) -> bool:
    """Whether a law costs at most 2 % more than any law must that serves these rows.

    The rows are those of open requests, and `always` sources are in every set. Every law costs at least the outer
    bound and, for any multipliers mu_C of cuts C, with pi(C) = max_z r_z(C), at least

        sum of mu_C pi(C)  +  min over sets q of  |q| - (sum of mu_C over the C that q meets)

    where q is a set that holds a request of every row.
    """
    most = line.law.cost / Fraction(DEAR)
    if most <= always + float(rows.max(axis=0, initial=0.0).sum()):
        return True
    n = rows.shape[1]
    cuts = [(list(cut), multiplier) for cut, multiplier in line.certificate if max(cut, default=n) < n]
    if n > FEW or sum(multiplier for _, multiplier in cuts) >= 2**60:
        return False
    sets = np.arange(1 << n)[:, None] >> np.arange(n) & 1 > 0
    for row in rows:
        sets = sets[(sets & (row > 0)).any(axis=1)]
    value, reached = sets.sum(axis=1) << SHIFT, 0.0
    for cut, multiplier in cuts:
        value -= multiplier * sets[:, cut].any(axis=1)
        reached += multiplier * float(rows[:, cut].sum(axis=1).max())
    return bool(most <= always + (reached + int(value.min())) / 2**SHIFT)
