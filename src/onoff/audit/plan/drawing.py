"""What a table's `draw` itself does, with random numbers that the audit chooses.

An encoder may be right and `draw` may not follow it. For the request x in a context the row of the encoder gives set i
the weight e_i. `draw` must ask for one random number below the sum of the row, and give the set in whose part of the
range the number lies, the sets in their order. Numbers at the ends of parts are tried, where mistakes of one show, and
random ones; if `draw` is monotone, all ends of a row prove it for that row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

from onoff.audit.plan.record import Finding
from onoff.audit.plan.rows import ExactRows
from onoff.errors import OnoffError
from onoff.types import RandBelow

TRIED = 4  # numbers for one request in one context


class _Injected:
    """A generator that gives one number and remembers what it was asked for."""

    def __init__(self, number: int) -> None:
        self._number = number
        self.bounds: list[int] = []

    def __call__(self, bound: int) -> int:
        self.bounds.append(bound)
        return min(self._number, bound - 1)


def most(rows: Sequence[ExactRows]) -> int:
    """The draws in all contexts, for all requests."""
    return TRIED * sum(rows[0].n ** 3 for _ in rows)


def check(
    plan: Any,
    rows: Sequence[ExactRows],
    names: Sequence[str],
    draws: int,
    randbelow: RandBelow,
    advance: Callable[[], None] = lambda: None,
) -> Finding | None:
    """What is wrong with `plan.draw`, a plan whose encoders were verified at these lags; None if nothing was found.

    All requests in all contexts if `draws` are enough, else as many as can be, at random.
    """
    for lag, last, following, request, row in _places(plan, rows, max(1, draws // TRIED), randbelow):
        found = _wrong(plan, lag, last, following, request, row, randbelow)
        if found is not None:
            return Finding("draw", f"for the request {names[request]!r} {found}", (lag, last, following))
        for _ in range(TRIED):
            advance()
    return None


def _places(
    plan: Any, rows: Sequence[ExactRows], places: int, randbelow: RandBelow
) -> Iterator[tuple[int, int, int, int, Any]]:
    """Contexts with a request that is possible there, and its row."""
    n = rows[0].n
    if len(rows) * n**3 <= places:
        for exact, last, following in product(rows, range(n), range(n)):
            support = exact.support(last, following)
            if not support:
                continue
            table = plan.encoder(last, following, exact.lag).toarray()
            for request in range(n):
                if support >> request & 1:
                    yield exact.lag, last, following, request, table[request]
        return
    for _ in range(places):
        exact, last = rows[randbelow(len(rows))], randbelow(n)
        possible = [k for k in range(n) if exact.support(last, k)]
        following = possible[randbelow(len(possible))]
        members = [x for x in range(n) if exact.support(last, following) >> x & 1]
        request = members[randbelow(len(members))]
        yield exact.lag, last, following, request, plan.encoder(last, following, exact.lag).toarray()[request]


def _wrong(plan: Any, lag: int, last: int, following: int, request: int, row: Any, randbelow: RandBelow) -> str | None:
    """In words, what a draw did that it must not."""
    ends = np.cumsum(row)
    total = int(ends[-1])
    used = np.flatnonzero(row)
    chosen = int(used[randbelow(len(used))])
    for number in (int(ends[chosen]) - 1, int(ends[chosen] - row[chosen]), 0, randbelow(total))[:TRIED]:
        injected = _Injected(number)
        try:
            query = tuple(plan.draw(request, last, following, lag, injected))
        except OnoffError as error:
            return f"`draw` fails: {error}"
        if injected.bounds != [total]:
            asked = ", ".join(f"below 2^{math.log2(bound):.4g}" for bound in injected.bounds[:3]) or "none"
            return f"`draw` must ask for one random number below {total}; it asked for {asked}"
        due = tuple(plan.sets[int(np.searchsorted(ends, number, side="right"))])
        if query != due:
            return f"`draw` gives {query} for the random number {number} of {total}, which is in the part of {due}"
    return None
