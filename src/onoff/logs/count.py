"""From a log to counts, by two statements of standard SQL that DuckDB and Spark run as they stand.

Users fall into 8 folds by a hash of their name. Transitions are counted for each fold, so that users can be held out
(`onoff.logs.memory`). Events of one user alone fall into 8 blocks of time instead.

A *context* is a run of requests, one right after the other. What came after contexts of three requests is counted in a
second run of the same statement, which names the contexts that are frequent enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from onoff.logs.engines import Engine
from onoff.types import Units

FOLDS = 8
MOST_WITH_MEMORY = 101  # sources, 100 and `other`, of which contexts longer than one request are counted
MOST_CELLS = 2**20  # contexts of three requests times sources: of rarer contexts nothing is counted
NO_GAP = 1e308  # seconds: times are below 1e300, so no pause is longer

# 0..7 from the MD5 of the user's name: the same number in every engine, on every machine.
FOLD = "CAST((POSITION(SUBSTR(MD5(CAST(user AS STRING)), 1, 1) IN '0123456789abcdef') - 1) % 8 AS SMALLINT)"
BLOCK = "CAST(NTILE(8) OVER of_user - 1 AS SMALLINT)"

# How often each source was asked for. Sources that the chain does not keep are added up. Table `known`: the sources
# that are left out.
SOURCES = """
WITH placed AS (
    SELECT *, CASE WHEN time IS NOT NULL THEN user END AS placed_user FROM log
), each_source AS (
    SELECT source,
        COUNT(*) AS all_rows,
        COUNT(*) FILTER (WHERE user IS NULL) AS missing_user,
        COUNT(*) FILTER (WHERE time IS NULL) AS missing_time,
        COUNT(placed_user) AS asked,
        MIN(placed_user) AS first_user,
        MAX(placed_user) AS last_user
    FROM placed
    GROUP BY source
), ranked AS (
    SELECT each_source.*, known.code IS NOT NULL AS left_out,
        ROW_NUMBER() OVER (
            PARTITION BY each_source.source IS NULL OR known.code IS NOT NULL ORDER BY asked DESC, each_source.source
        ) AS place
    FROM each_source LEFT JOIN known ON each_source.source = known.source
), classes AS (
    SELECT *, CASE
        WHEN source IS NULL THEN 'missing'
        WHEN left_out THEN 'left out'
        WHEN asked = 0 THEN 'dropped'
        WHEN place <= {top} THEN 'kept'
        ELSE 'merged' END AS class
    FROM ranked
), named AS (
    SELECT *, CASE WHEN class IN ('kept', 'left out') THEN source END AS name FROM classes
)
SELECT class, name, COUNT(*), SUM(all_rows), SUM(missing_user), SUM(missing_time), SUM(asked),
    MIN(first_user), MAX(last_user)
FROM named
GROUP BY class, name
"""

# How often `code` came right after each context, in each fold of users. Rows of a user are sorted by time and, where
# times are equal, by their order in the file. A pause longer than the gap starts a new sequence, and so does a row
# whose source is not in the chain (code -1): no context reaches across it. A context is a number whose digits, in base
# n + 1, are the codes of its requests plus 1, the last request in the lowest place; it is 0 at the start of a sequence.
# Table `known`: the sources of the chain with their codes. Table `wanted`: the contexts that are counted, if not all.
TRANSITIONS = """
WITH event AS (
    SELECT log.user, log.time, log.row,
        CASE WHEN log.source IS NULL THEN -1 ELSE COALESCE(known.code, {other}) END AS code
    FROM {log} AS log LEFT JOIN known ON log.source = known.source
    WHERE log.user IS NOT NULL AND log.time IS NOT NULL
), neighbour AS (
    SELECT code AS code_0, time AS time_0, {fold} AS fold, {earlier}
    FROM event
    WINDOW of_user AS (PARTITION BY user ORDER BY time, row)
), step AS (
    SELECT fold, code_0 AS code, time_1, CASE WHEN code_0 >= 0 THEN {context} ELSE 0 END AS context
    FROM neighbour
)
SELECT fold, context, code,
    COUNT(*) AS number,
    COUNT(*) FILTER (WHERE time_1 IS NULL) AS users
FROM step
WHERE {wanted}
GROUP BY fold, context, code
"""
EARLIER = "LAG(code, {k}) OVER of_user AS code_{k}, LAG(time, {k}) OVER of_user AS time_{k}"
CONTEXT = """
    CASE WHEN code_{k} >= 0 AND time_{later} - time_{k} <= {gap} THEN code_{k} + 1 + {base} * {older} ELSE 0 END"""


@dataclass(frozen=True)
class Sources:
    """The sources in the log, from all its rows. `kept` are those of the chain, in its order.

    `merged_sources` become one. Those in `left_out` occur but are not wanted. `dropped_rows` have no
    user or no time; `requests` are rows with both, and with a source that is wanted. `one_user`: they are one user's.
    """

    kept: tuple[str, ...]
    left_out: tuple[str, ...]
    rows: int
    missing_user: int
    missing_time: int
    dropped_rows: int
    requests: int
    sources: int
    merged_sources: int
    one_user: bool


@dataclass(frozen=True, eq=False)
class Level:
    """Successors of contexts of one length: counts[fold, c, j] of source j right after the requests contexts[c]."""

    contexts: Units
    counts: Units

    @classmethod
    def of(cls, contexts: Units, n: int) -> Level:
        """Make a level of 0 counts."""
        return cls(contexts, np.zeros((FOLDS, len(contexts), n), np.int64))


@dataclass(frozen=True, eq=False)
class Transitions:
    """The `levels` of contexts of one request, of two and so on, as far as they were counted; all are in order.

    starts[j] sequences begin with source j. `breaks` are rows without a source of the chain.
    """

    levels: tuple[Level, ...]
    starts: Units
    users: int
    breaks: int


def count_sources(engine: Engine, top: int, without: Sequence[str] = ()) -> Sources:
    """Count how often each source was asked for. The `top` most frequent are kept; of equal ones, the first by name."""
    engine.define("known", {"source": "STRING", "code": "INT"}, [(name, -1) for name in without])
    found = engine.rows(SOURCES.format(top=top))
    users = {user for row in found for user in row[-2:] if user is not None}

    def add(place: int, *classes: str) -> int:
        return sum(int(row[place]) for row in found if not classes or row[0] in classes)

    return Sources(
        kept=tuple(sorted((row[1] for row in found if row[0] == "kept"), key=_natural)),
        left_out=tuple(row[1] for row in found if row[0] == "left out"),
        rows=add(3),
        missing_user=add(4),
        missing_time=add(5),
        dropped_rows=add(3) - add(6),
        requests=add(6, "kept", "merged"),
        sources=add(2, "kept", "merged"),
        merged_sources=add(2, "merged"),
        one_user=len(users) == 1,
    )


def _natural(name: str) -> tuple[int, int, str]:
    """Sort numbers by their value and before all other names."""
    return (0, int(name), name) if name.isascii() and name.isdigit() and len(name) < 19 else (1, 0, name)


def count_transitions(
    engine: Engine,
    codes: Mapping[str, int],
    n: int,
    other: int | None,
    gap: float | None,
    depth: int,
    one_user: bool = False,
    parts: Sequence[str] = ("log",),
    advance: Callable[[], None] = lambda: None,
) -> Transitions:
    """Run `TRANSITIONS` on every part of a log (a user is in one of them) and put its numbers into arrays.

    `codes` of sources are below n, or -1 for one that ends a sequence; `other` is the code of all that are not there.
    Contexts have up to `depth` requests. A fold is one of users, or of `one_user` a block of time.
    """
    engine.define("known", {"source": "STRING", "code": "INT"}, list(codes.items()))
    told = {"other": -1 if other is None else other, "fold": BLOCK if one_user else FOLD}
    base, pause = n + 1, repr(NO_GAP if gap is None else gap)

    def counted(length: int, wanted: str) -> Iterator[tuple[Units, ...]]:
        """Yield folds, contexts, codes, their numbers and the users who begin there, in blocks."""
        statement = _statement(length, base, pause)
        for part in parts:
            for column in engine.arrays(statement.format(log=part, wanted=wanted, **told)):
                yield tuple(column[name].astype(np.int64) for name in ("fold", "context", "code", "number", "users"))
            advance()

    starts, users, breaks = np.zeros(n, np.int64), 0, 0
    levels = [Level.of(np.array(list(product(range(n), repeat=length))), n) for length in (1, 2)[:depth]]
    for fold, context, code, number, new in counted(len(levels), "TRUE"):
        users += int(new.sum())
        breaks += int(number[code < 0].sum())
        begins = (context == 0) & (code >= 0)
        np.add.at(starts, code[begins], number[begins])
        for level in levels:
            _add(level, base, fold, context, code, number)
    if depth > 2:
        levels.append(Level.of(_frequent(levels[-1]), n))
        engine.define("wanted", {"context": "INT"}, [(key,) for key in _keys(levels[-1], base).tolist()])
        for block in counted(depth, "context IN (SELECT context FROM wanted)"):
            _add(levels[-1], base, *block[:4])
    return Transitions(tuple(levels), starts, users, breaks)


def _statement(length: int, base: int, gap: str) -> str:
    """Write `TRANSITIONS` for contexts of up to so many requests."""
    context = "0"
    for k in range(length, 0, -1):
        context = CONTEXT.format(k=k, later=k - 1, gap=gap, base=base, older=context)
    earlier = ", ".join(EARLIER.format(k=k) for k in range(1, length + 1))
    return TRANSITIONS.replace("{context}", context).replace("{earlier}", earlier)


def _keys(level: Level, base: int) -> NDArray[np.int64]:
    """Number the contexts; the numbers keep their order."""
    places = base ** np.arange(level.contexts.shape[1])[::-1]
    found: NDArray[np.int64] = ((level.contexts + 1) * places).sum(axis=1)
    return found


def _add(level: Level, base: int, fold: Units, context: Units, code: Units, number: Units) -> None:
    """Add the rows whose context ends with one of the level."""
    length = level.contexts.shape[1]
    long = context >= base ** (length - 1)
    place = np.searchsorted(_keys(level, base), context[long] % base**length)
    np.add.at(level.counts, (fold[long], place, code[long]), number[long])


def _frequent(level: Level) -> Units:
    """List contexts one request longer that came most often, as many as counted, in order."""
    came = level.counts.sum(axis=0)
    most = MOST_CELLS // came.shape[1]
    order = np.argsort(-came, axis=None, kind="stable")[: min(most, np.count_nonzero(came))]
    place, last = np.divmod(np.sort(order), came.shape[1])
    return np.column_stack([level.contexts[place], last])
