"""The certificate of `onoff.schemes.sinkhorn`, compiled: three to six times as fast, with the extra `fast`.

Some contexts are scaled side by side, each in a *lane* of its own. A lane whose context is certified or given up takes
the next one. So lanes hardly ever wait for each other, and all their numbers stay in the processor's cache.

Along a comb each set differs from the one before by two sources, however large it is. So sums run along neighbouring
sets, and begin anew every few sets, so that no sum meets many roundings.

Every array ends with the lanes. The innermost loops run over them, and the compiler does several lanes at once.

What a compiler may do to NaN must not certify anything: every test of a certificate is one that NaN fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from onoff.model.powers import gamma, times
from onoff.schemes.law import Law
from onoff.schemes.sinkhorn import KEPT, Screen, chebyshev
from onoff.types import Floats, Mask

if TYPE_CHECKING:
    from collections.abc import Callable

LANES = 32
ANEW = 64  # sets after which the running sums begin anew


class _Sets(NamedTuple):
    """A law, each set by what it changes of the one before: `source[first[q] : first[q + 1]]`, with a `sign` each.

    At a set that begins `anew` sums are 0 before it. `entries` counts the changes of each source, and `error` bounds
    the relative error of a sum.
    """

    mass: Floats
    first: NDArray[np.uint64]  # unsigned: the compiler need not think of negative indices
    source: NDArray[np.uint64]
    sign: Floats
    anew: Mask
    entries: Floats
    error: float


class _Lanes(NamedTuple):
    """The numbers of all lanes: of each source (p, v, those `before`, a and T), of each set (b), and of each lane."""

    p: Floats
    v: Floats
    before: Floats
    a: Floats
    T: Floats
    b: Floats
    least: Floats  # the smallest sum of a over the members of a set
    total: Floats  # the sum of b
    row: NDArray[np.int64]  # -1 if the lane has no work
    step: NDArray[np.int64]
    rho: Floats


class CompiledScreen(Screen):
    """Certifies rows for one law, as `onoff.schemes.sinkhorn.NumpyScreen` does. `slack` is s there."""

    def __init__(self, law: Law, slack: float) -> None:
        self._sets, self._slack = _changes(law.member, law.mass / law.total), slack
        super().__init__(times(self._sets.mass, law.member))

    def scale(self, rows: Floats, start: Floats, rounds: int) -> tuple[Mask, Floats]:
        passed, factors = np.zeros(len(rows), dtype=np.bool_), np.zeros(rows.shape)
        _scale(self._sets, np.ascontiguousarray(rows), start, self._slack, LANES, rounds, passed, factors)
        return passed, factors


def _changes(member: Mask, mass: Floats) -> _Sets:
    """Find what each set adds to the previous one, and removes.

    Where changes outnumber members, and every few sets, sums begin anew: a set adds all its members.
    """
    n = member.shape[1]
    before = np.zeros(n, dtype=bool)
    first, sources, signs = [0], [], []
    anew = np.zeros(len(member), dtype=np.bool_)
    since = ANEW
    for q, row in enumerate(member):
        changed = np.flatnonzero(row != before)
        if since >= ANEW or len(changed) >= np.count_nonzero(row):
            anew[q], since, changed = True, 0, np.flatnonzero(row)
        since += 1
        sources.append(changed)
        signs.append(np.where(row[changed], 1.0, -1.0))
        first.append(first[-1] + len(changed))
        before = row
    ends, source = np.array(first), np.concatenate(sources)
    entries = np.bincount(source, minlength=n).astype(np.float64)
    # Of members, a sum meets the changes since it began; of sets, those, and the changes of its source.
    longest = np.diff(ends[np.append(np.flatnonzero(anew), len(member))]).max() + entries.max()
    error = gamma(float(longest) + ANEW + 8)
    return _Sets(mass, ends.astype(np.uint64), source.astype(np.uint64), np.concatenate(signs), anew, entries, error)


def _compile(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile the function into its callers: only there the compiler sees that no two arrays overlap."""
    try:
        made = njit(function, cache=True, error_model="numpy", inline="always")
    except RuntimeError:  # there is no place to keep it for the next process
        made = njit(function, error_model="numpy", inline="always")
    result: Callable[..., Any] = made
    return result


@_compile
def _scale(sets, rows, start, slack, width, rounds, passed, factors):  # type: ignore[no-untyped-def]
    """Scale all rows in `width` lanes. Fill `passed` and `factors`.

    The width is a variable, since loops over lanes whose number the compiler knows take twice as long.
    """
    count, n = rows.shape
    of_sources, of_sets = (n, width), (len(sets.mass), width)
    lanes = _Lanes(
        p=np.zeros(of_sources),
        v=np.zeros(of_sources),
        before=np.zeros(of_sources),
        a=np.empty(of_sources),
        T=np.empty(of_sources),
        b=np.empty(of_sets),
        least=np.empty(width),
        total=np.empty(width),
        row=np.full(width, -1),
        step=np.zeros(width, np.int64),
        rho=np.ones(width),
    )
    following = done = 0
    while done < count:
        for w in range(width):
            if lanes.row[w] < 0 and following < count:
                _begin(lanes, w, following, rows, start)
                following += 1
        _fill_sets(sets, lanes)
        _fill_sources(sets, lanes)
        most = _most_sent(lanes)
        for w in range(width):
            index = lanes.row[w]
            if index < 0:
                continue
            sure = most[w] * (1 - 0.9 * slack) <= 1 and _certify(sets, lanes, w, slack)
            if sure or lanes.step[w] >= rounds:
                passed[index], lanes.row[w] = sure, -1
                factors[index] = lanes.v[:, w]
                done += 1
        _move(lanes)


@_compile
def _begin(lanes, w, row, rows, start):  # type: ignore[no-untyped-def]
    """Start a lane with a row. Clear all of the previous row, which may have ended as NaN."""
    lanes.row[w], lanes.step[w] = row, 0
    lanes.p[:, w] = rows[row]
    lanes.v[:, w] = start
    lanes.before[:, w] = start


@_compile
def _fill_sets(sets, lanes):  # type: ignore[no-untyped-def]
    """Set a_x = p_x v_x and b_q = mass(q) / sum_{x in q} a_x, and keep the least of these sums."""
    width = len(lanes.rho)
    mass, first, source, sign, anew = sets.mass, sets.first, sets.source, sets.sign, sets.anew
    a, b, least, run = lanes.a, lanes.b, lanes.least, np.zeros(width)
    p, v = lanes.p, lanes.v
    for x in range(len(p)):
        for w in range(width):
            a[x, w] = p[x, w] * v[x, w]
    least[:] = np.inf
    for q in range(len(mass)):
        if anew[q]:
            run[:] = 0.0
        for e in range(first[q], first[q + 1]):
            x, s = source[e], sign[e]
            for w in range(width):
                run[w] += s * a[x, w]
        m = mass[q]
        for w in range(width):
            b[q, w] = m / run[w]
            least[w] = min(least[w], run[w])


@_compile
def _fill_sources(sets, lanes):  # type: ignore[no-untyped-def]
    """Set T_x = sum_{q : x in q} b_q and the total of b, which is not finite if any b_q is not."""
    width = len(lanes.rho)
    first, source, sign, anew = sets.first, sets.source, sets.sign, sets.anew
    b, T, total, run = lanes.b, lanes.T, lanes.total, np.zeros(width)
    T[:] = 0.0
    total[:] = 0.0
    for q in range(len(b) - 1, -1, -1):
        for w in range(width):
            run[w] += b[q, w]
            total[w] += b[q, w]
        for e in range(first[q], first[q + 1]):
            x, s = source[e], sign[e]
            for w in range(width):
                T[x, w] += s * run[w]
        if anew[q]:
            run[:] = 0.0


@_compile
def _most_sent(lanes):  # type: ignore[no-untyped-def]
    """Find the largest share of its supply that a source sends, by lane."""
    width = len(lanes.rho)
    p, v, T, most = lanes.p, lanes.v, lanes.T, np.zeros(width)
    for x in range(len(p)):
        for w in range(width):
            most[w] = max(most[w], v[x, w] * T[x, w] if p[x, w] > 0 else 0.0)
    return most


@_compile
def _certify(sets, lanes, w, slack):  # type: ignore[no-untyped-def]
    """True if a lane's certificate holds with all errors: sets may get less, sources may send more."""
    least, total, entries = lanes.least[w], lanes.total[w], sets.entries
    if not (least > 0 and total < np.inf):
        return False
    weight = 0.0
    for x in range(len(entries)):
        weight += entries[x] * lanes.a[x, w]
    less = 1 - sets.error * weight / least
    if not less > 0:
        return False
    for x in range(len(entries)):
        sent = lanes.v[x, w] * (lanes.T[x, w] + sets.error * entries[x] * total)
        if lanes.p[x, w] != 0 and not (1 - 0.95 * slack) * sent <= less:
            return False
    return True


_chebyshev = _compile(chebyshev)


@_compile
def _move(lanes):  # type: ignore[no-untyped-def]
    """Take a step of Chebyshev's semi-iteration in every lane that has work: first of theta FAST, later of SLOW."""
    width = len(lanes.rho)
    v, before, T, rho = lanes.v, lanes.before, lanes.T, lanes.rho
    plain, now, then = np.zeros(width), np.ones(width), np.zeros(width)
    for w in range(width):
        if lanes.row[w] >= 0:
            rho[w], plain[w], now[w], then[w] = _chebyshev(lanes.step[w], rho[w])
            lanes.step[w] += 1
    for x in range(len(v)):
        for w in range(width):
            moved = now[w] * v[x, w] + then[w] * before[x, w]
            if plain[w] > 0:
                moved = max(moved + plain[w] / T[x, w], KEPT * v[x, w])
            before[x, w] = v[x, w]
            v[x, w] = moved
