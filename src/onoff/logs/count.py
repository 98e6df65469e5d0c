"""From a log to counts, by two statements of standard SQL that DuckDB and Spark run as they stand.

Users fall into 64 buckets by a hash of their name. Transitions are counted for each bucket, so that users can be held
out (`onoff.logs.quality`). Events of one user alone fall into 64 blocks of time instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from onoff.logs.engines import Engine
from onoff.types import Units

BUCKETS = 64
MOST_FOR_TRIPLES = 200  # beyond it there are too many triples of sources to say anything about the second order
NO_GAP = 1e308  # seconds: times are below 1e300, so no pause is longer

# 0..63 from the MD5 of the user's name: the same number in every engine, on every machine.
BUCKET = """
    CAST((POSITION(SUBSTR(MD5(CAST(user AS STRING)), 1, 1) IN '0123456789abcdef') * 16 - 16
        + POSITION(SUBSTR(MD5(CAST(user AS STRING)), 2, 1) IN '0123456789abcdef') - 1) % 64 AS SMALLINT)"""

BLOCK = "CAST(NTILE(64) OVER of_user - 1 AS SMALLINT)"

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

# How often `code` came right after `last`, and that right after `before`, in each bucket of users. Rows of a user are
# sorted by time and, where times are equal, by their order in the file. A pause longer than the gap starts a new
# sequence, and so does a row whose source is not in the chain (code -1): nothing is counted across it. `last` is -1 at
# the start of a sequence, `before` also at its second event. Table `known`: the sources of the chain with their codes.
TRANSITIONS = """
WITH event AS (
    SELECT log.user, log.time, log.row,
        CASE WHEN log.source IS NULL THEN -1 ELSE COALESCE(known.code, {other}) END AS code
    FROM {log} AS log LEFT JOIN known ON log.source = known.source
    WHERE log.user IS NOT NULL AND log.time IS NOT NULL
), neighbour AS (
    SELECT *, {bucket} AS bucket,
        LAG(code, 1) OVER of_user AS last_code,
        LAG(code, 2) OVER of_user AS before_code,
        LAG(time, 1) OVER of_user AS last_time,
        LAG(time, 2) OVER of_user AS before_time
    FROM event
    WINDOW of_user AS (PARTITION BY user ORDER BY time, row)
), link AS (
    SELECT *,
        COALESCE(code >= 0 AND last_code >= 0 AND time - last_time <= {gap}, FALSE) AS linked,
        COALESCE(before_code >= 0 AND last_time - before_time <= {gap}, FALSE) AS linked_before
    FROM neighbour
), step AS (
    SELECT *,
        CASE WHEN {triples} AND linked AND linked_before THEN before_code ELSE -1 END AS before,
        CASE WHEN linked THEN last_code ELSE -1 END AS last
    FROM link
)
SELECT bucket, before, last, code,
    COUNT(*) AS number,
    COUNT(*) FILTER (WHERE last_time IS NULL) AS users
FROM step
GROUP BY bucket, before, last, code
"""


@dataclass(frozen=True)
class Sources:
    """Which sources the log has, from all its rows. `kept` are those of the chain, in its order.

    `merged_sources` become one. Those in `left_out` are there and the caller does not want them. `dropped_rows` have no
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
class Transitions:
    """Counts for each bucket of users: `pairs[b, i, j]` of j right after i, `starts[b, j]` of sequences that j begins.

    `breaks` are rows without a source of the chain. The columns of `triples`, which is None for too many sources, are a
    bucket, a flat index (i n + j) n + k and a count; one that was counted in parts has several columns.
    """

    pairs: Units
    starts: Units
    triples: Units | None
    users: int
    breaks: int


def count_sources(engine: Engine, top: int, without: Sequence[str] = ()) -> Sources:
    """Count how often each source was asked for. The `top` most frequent are kept; of equal ones, the first by name."""
    engine.define_codes(dict.fromkeys(without, -1))
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
    one_user: bool = False,
    parts: Sequence[str] = ("log",),
    advance: Callable[[], None] = lambda: None,
) -> Transitions:
    """Run `TRANSITIONS` on every part of a log (a user is in one of them) and put its numbers into arrays.

    `codes` of sources are below n, or -1 for one that ends a sequence; `other` is the code of all that are not there. A
    bucket is one of users, or of `one_user` a block of time.
    """
    engine.define_codes(codes)
    wanted = n <= MOST_FOR_TRIPLES
    pairs, starts = np.zeros((BUCKETS, n, n), np.int64), np.zeros((BUCKETS, n), np.int64)
    users = breaks = 0
    triples = [np.zeros((3, 0), np.int64)]
    told = {
        "bucket": BLOCK if one_user else BUCKET,
        "other": -1 if other is None else other,
        "gap": repr(NO_GAP if gap is None else gap),
        "triples": str(wanted).upper(),
    }
    for part in parts:
        for column in engine.arrays(TRANSITIONS.format(log=part, **told)):
            names = ("bucket", "before", "last", "code", "number", "users")
            where, before, last, code, number, new = (column[name].astype(np.int64) for name in names)
            users += int(new.sum())
            breaks += int(number[code < 0].sum())
            linked, begins = last >= 0, (last < 0) & (code >= 0)
            np.add.at(pairs, (where[linked], last[linked], code[linked]), number[linked])
            np.add.at(starts, (where[begins], code[begins]), number[begins])
            triples.append(np.array([where, (before * n + last) * n + code, number])[:, before >= 0])
        advance()
    return Transitions(pairs, starts, np.concatenate(triples, axis=1) if wanted else None, users, breaks)
