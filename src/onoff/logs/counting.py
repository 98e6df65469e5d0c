"""Transitions counted in one Ibis expression, the same for every engine.

Users fall into 64 buckets by a hash of their name. Everything is counted for each bucket, so that one pass over the log
is enough for the split into training and held-out users and for intervals over users (`onoff.logs.resampling`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

BUCKETS = 64
MOST_FOR_TRIPLES = 200  # beyond it there are too many triples of sources to say anything about the second order
HEX = "0123456789abcdef"
Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Sources:
    """Which sources the log has, from all its rows. `kept` are those of the chain, in its order.

    `merged` sources were seen by training users and become one; `unseen` ones were seen by held-out users only.
    `one_user`: all rows that count are one user's.
    """

    kept: tuple[str, ...]
    rows: int
    missing_user: int
    missing_time: int
    missing_source: int
    dropped: int
    distinct: int
    merged: int
    merged_events: int
    unseen: int
    unseen_events: int
    one_user: bool = False


@dataclass(frozen=True, eq=False)
class Transitions:
    """Counts for each bucket of users: `pairs[b, i, j]` of j right after i, `starts[b, j]` of sequences that j begins.

    `breaks` are rows without a source of the chain. `triples` holds, if there are not too many sources, buckets, flat
    indices (i n + j) n + k and counts.
    """

    pairs: Counts
    starts: Counts
    triples: tuple[Counts, Counts, Counts] | None
    users: Counts
    breaks: int
    lone_users: int
    lone_sequences: int
    equal_times: int
    out_of_order: int


def bucket(user: Any) -> Any:
    """0..63 from the MD5 of the user's name: the same number in every engine, on every machine."""
    import ibis

    digest = user.cast("string").hexdigest("md5")
    return (ibis.literal(HEX).find(digest.substr(0, 1)) * 16 + ibis.literal(HEX).find(digest.substr(1, 1))) % BUCKETS


def count_sources(log: Any, held: Collection[int], top: int, least: int) -> Sources:
    """One pass: how often training users (buckets that are not in `held`) asked for each source.

    The `top` most frequent that were asked for at least `least` times are kept; of equal ones, the first by name.
    """
    import pyarrow as pa

    placed = log.user.notnull() & log.time.notnull()
    is_held = bucket(log.user).isin(sorted(held)) if held else log.user.isnull()
    expression = log.group_by("source").agg(
        rows=log.count(),
        missing_user=log.user.isnull().sum(),
        missing_time=log.time.isnull().sum(),
        dropped=(~placed).sum(),
        train=(placed & ~is_held).fill_null(False).sum(),
        held=(placed & is_held).fill_null(False).sum(),
        first_user=log.user.min(where=placed),
        last_user=log.user.max(where=placed),
    )
    tally = _SourceTally(top, least)
    for batch in expression.to_pyarrow_batches():
        tally.add(pa.Table.from_batches([batch]).to_pydict())
    return tally.sources()


class _SourceTally:
    """Adds up what a log has of each source, batch by batch. Of all sources only the best so far are kept by name."""

    def __init__(self, top: int, least: int) -> None:
        self._top, self._least = top, max(1, least)
        self._total = dict.fromkeys(("rows", "missing_user", "missing_time", "dropped"), 0)
        self._missing_source = self._seen = self._seen_events = self._unseen = self._unseen_events = 0
        self._best: list[tuple[int, str]] = []
        self._users: set[object] = set()

    def add(self, table: dict[str, list[Any]]) -> None:
        for key in ("missing_user", "missing_time", "dropped", "train", "held"):
            table[key] = [int(value) for value in table[key]]  # sums of DuckDB have 128 bits and come as decimals
        for key in self._total:
            self._total[key] += sum(table[key])
        if len(self._users) < 2:
            self._users |= {user for name in ("first_user", "last_user") for user in table[name] if user is not None}
        columns = (table[key] for key in ("source", "rows", "train", "held"))
        for source, rows, train, held in zip(*columns, strict=True):
            if source is None:
                self._missing_source += rows
            elif train:
                self._seen, self._seen_events = self._seen + 1, self._seen_events + train
                if train >= self._least:
                    self._best.append((-train, source))
            elif held:
                self._unseen, self._unseen_events = self._unseen + 1, self._unseen_events + held
        self._best = sorted(self._best)[: self._top]

    def sources(self) -> Sources:
        """What was found, with the sources that are kept in the order of their names."""
        return Sources(
            kept=tuple(sorted((source for _, source in self._best), key=_natural)),
            missing_source=self._missing_source,
            distinct=self._seen + self._unseen,
            merged=self._seen - len(self._best),
            merged_events=self._seen_events + sum(train for train, _ in self._best),
            unseen=self._unseen,
            unseen_events=self._unseen_events,
            one_user=len(self._users) == 1,
            **self._total,
        )


def _natural(name: str) -> tuple[int, int, str]:
    """Numbers by their value and before all other names."""
    return (0, int(name), name) if name.isascii() and name.isdigit() and len(name) < 19 else (1, 0, name)


def transitions(log: Any, names: Sequence[str], other: int | None, gap: float | None, triples: bool) -> Any:
    """The expression: how often `code` came after `last` and that after `before`, in each bucket of users.

    Rows of a user are sorted by time and, where times are equal, by their order in the file. A pause longer than
    `gap` seconds starts a new sequence, and so does a row whose source is unknown (code -1): nothing is counted
    across it. `last` is -1 at the start of a sequence, `before` also at its second event.
    """
    import ibis
    import pyarrow as pa

    known = pa.table({"source": pa.array(names, pa.string()), "code": pa.array(range(len(names)), pa.int32())})
    codes = ibis.memtable(known)
    log = log.filter(log.user.notnull() & log.time.notnull()).left_join(codes, "source")
    if other is not None:
        merged = ibis.ifelse(log.source.notnull(), ibis.literal(other, "int32"), ibis.null("int32"))
        log = log.mutate(code=log.code.coalesce(merged))
    of_user = ibis.window(group_by="user", order_by=["time", "row"])
    event = log.select(
        user=log.user,
        code=log.code.fill_null(-1),
        last=log.code.lag(1).over(of_user).fill_null(-1),
        before=log.code.lag(2).over(of_user).fill_null(-1),
        following=log.code.lead(1).over(of_user).fill_null(-1),
        pause=log.time - log.time.lag(1).over(of_user),
        pause_before=log.time.lag(1).over(of_user) - log.time.lag(2).over(of_user),
        pause_after=log.time.lead(1).over(of_user) - log.time,
        back=(log.row < log.row.lag(1).over(of_user)).fill_null(False),
    )

    def near(pause: Any) -> Any:
        return pause.notnull() if gap is None else pause <= gap

    linked = ((event.code >= 0) & (event.last >= 0) & near(event.pause)).fill_null(False)
    chained = (linked & (event.before >= 0) & near(event.pause_before)).fill_null(False)
    goes_on = ((event.following >= 0) & near(event.pause_after)).fill_null(False)
    first = event.pause.isnull()
    return (
        event.select(
            bucket=bucket(event.user).cast("int32"),
            before=ibis.ifelse(chained, event.before, -1) if triples else ibis.literal(-1, "int32"),
            last=ibis.ifelse(linked, event.last, -1),
            code=event.code,
            first=first,
            lone_user=first & event.pause_after.isnull(),
            lone_sequence=(event.code >= 0) & ~linked & ~goes_on,
            equal=(event.pause == 0).fill_null(False),
            back=event.back,
        )
        .group_by(["bucket", "before", "last", "code"])
        .agg(
            count=ibis._.count(),
            users=ibis._.first.sum(),
            lone_users=ibis._.lone_user.sum(),
            lone_sequences=ibis._.lone_sequence.sum(),
            equal_times=ibis._.equal.sum(),
            out_of_order=ibis._.back.sum(),
        )
    )


def count_transitions(
    parts: Sequence[Any],
    names: Sequence[str],
    other: int | None,
    gap: float | None,
    advance: Callable[[], None] = lambda: None,
) -> Transitions:
    """Run the expression on every part of a log (a user is in one of them) and put its numbers into arrays."""
    n = len(names) + (other is not None)
    wanted = n <= MOST_FOR_TRIPLES
    pairs, starts = np.zeros((BUCKETS, n, n), np.int64), np.zeros((BUCKETS, n), np.int64)
    users = np.zeros(BUCKETS, np.int64)
    breaks = 0
    totals = dict.fromkeys(("lone_users", "lone_sequences", "equal_times", "out_of_order"), 0)
    triples = (np.zeros(0, np.int64),) * 3 if wanted else None
    for log in parts:
        found: list[tuple[Counts, Counts, Counts]] = []
        for batch in transitions(log, names, other, gap, wanted).to_pyarrow_batches():
            column: Mapping[str, Counts] = {
                name: np.asarray(batch.column(name)).astype(np.int64) for name in batch.schema.names
            }
            where, before, last, code, count = (column[k] for k in ("bucket", "before", "last", "code", "count"))
            np.add.at(users, where, column["users"])
            for key in totals:
                totals[key] += int(column[key].sum())
            breaks += int(count[code < 0].sum())
            linked, begins, chained = last >= 0, (last < 0) & (code >= 0), before >= 0
            np.add.at(pairs, (where[linked], last[linked], code[linked]), count[linked])
            np.add.at(starts, (where[begins], code[begins]), count[begins])
            flat = (before * n + last) * n + code
            found.append((where[chained], flat[chained], count[chained]))
        if triples is not None:
            triples = _merged([triples, *found])
        advance()
    return Transitions(pairs, starts, triples, users, breaks, **totals)


def _merged(found: Sequence[tuple[Counts, Counts, Counts]]) -> tuple[Counts, Counts, Counts]:
    """Counts of equal buckets and triples added up, in a fixed order.

    Engines give rows in any order, and sums of floats would differ.
    """
    where, flat, count = (np.concatenate(part) for part in zip(*found, strict=True))
    order = np.lexsort((flat, where))
    where, flat, count = where[order], flat[order], count[order]
    new = np.ones(len(where), bool)
    new[1:] = (where[1:] != where[:-1]) | (flat[1:] != flat[:-1])
    first = new.nonzero()[0]
    return where[first], flat[first], np.add.reduceat(count, first) if len(first) else count
