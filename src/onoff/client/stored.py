"""What the tables of a journal hold, as frozen types, and how they are read."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from onoff.client.journalfile import DamagedError

COLUMNS = "step, private, asked_private, lag, plan, query, request, next, cost, bytes, attempts"


@dataclass(frozen=True)
class Stored:
    """What an answer had for one source, as it lies on disk.

    `content_type` and `version` are those of `onoff.client.transport.Content`. `unchanged`: it was held already, and
    the server said that it is still the latest. `size` is how many bytes of the answer were for it.
    """

    step: int
    source: int
    status: int
    round: int | None
    body: bytes
    content_type: str | None = None
    version: str | None = None
    unchanged: bool = False
    size: int = field(default=0, compare=False)


@dataclass(frozen=True)
class StepRow:
    """One step as the journal has it; `bytes` is None until it is answered. `attempts` counts its sendings.

    A sending is counted before it leaves: a client that was killed may have counted one more than left.
    """

    step: int
    private: bool
    asked_private: bool
    lag: int
    plan: str
    query: tuple[int, ...]
    request: int
    next: int | None
    cost: float
    bytes: int | None
    attempts: int

    @property
    def made_private(self) -> bool:
        """Whether it was asked OFF but made ON."""
        return self.private and not self.asked_private


@dataclass(frozen=True)
class Totals:
    """Sums over the finished steps; `lags` is how many steps each lag had.

    `downloaded` is what their queries held and `cost` what their plans expected: messages, or the unit of the lengths.
    """

    steps: int
    private: int
    bytes: int
    downloaded: float
    cost: float
    attempts: int
    lags: dict[int, int]


def numbers_text(numbers: Sequence[tuple[int, int]]) -> str:
    """The random numbers of a draw as JSON, [[bound, number], ...], equally long whatever the numbers are.

    A bound of 2^63 or more, as races have them, and its number are strings: "0x..." in base 16, or "2^k" for a bound
    that is a power of two. Which of these a bound is follows from plan and lag, not from the request.
    """
    return "[" + ",".join(map(_pair, numbers)) + "]"


def _pair(pair: tuple[int, int]) -> str:
    bound, number = pair
    if bound < 1 << 63:
        return json.dumps(pair).ljust(len("[, ]") + 2 * 19)
    bits = bound.bit_length() - 1
    if bound == 1 << bits:
        return f'["2^{bits}", "0x{number:0{-(-bits // 4)}x}"]'
    return f'["0x{bound:x}", "0x{number:x}"]'.ljust(len('["0x", "0x"]') + 2 * 64)


def step_rows(database: sqlite3.Connection, since: int) -> Iterator[StepRow]:
    """The steps from `since` on, oldest first."""
    cursor = database.execute(f"SELECT {COLUMNS} FROM steps WHERE step >= ? ORDER BY step", (since,))
    for step, private, asked, lag, plan, query, request, *rest in cursor:
        checked = _checked_query(step, query, request)
        yield StepRow(step, bool(private), bool(asked), lag, plan, checked, request, *rest)


def _checked_query(step: int, text: str, request: int) -> tuple[int, ...]:
    """The set of a step; a row that no client can have written is damage."""
    query = json.loads(text)
    if not isinstance(query, list) or any(type(source) is not int for source in query) or sorted({*query}) != query:
        raise DamagedError(f"step {step} has no set")
    if request not in query or min(query) < 0:
        raise DamagedError(f"the set of step {step} does not hold its request")
    return tuple(query)


def last_asked(database: sqlite3.Connection) -> dict[int, int]:
    """The newest step whose query holds a source, for every source that was asked for; a pending one counts."""
    found = database.execute("SELECT value, MAX(step) FROM steps, json_each(query) GROUP BY value")
    return dict(found.fetchall())


def totals_of(database: sqlite3.Connection, lengths: Sequence[float] | None, since: int) -> Totals:
    """Sums over the finished steps from `since` on, all of which were planned with these lengths."""
    held = "json_array_length"
    if lengths is not None:
        held = "held"
        database.create_function(held, 1, lambda query: math.fsum(lengths[source] for source in json.loads(query)))
    finished = "FROM steps WHERE bytes IS NOT NULL AND step >= ?"
    row = database.execute(
        f"SELECT COUNT(*), SUM(private), SUM(bytes), SUM({held}(query)), SUM(cost), SUM(attempts) {finished}", (since,)
    ).fetchone()
    lags = database.execute(f"SELECT lag, COUNT(*) {finished} GROUP BY lag", (since,))
    steps, private, size, downloaded, cost, attempts = (value or 0 for value in row)
    return Totals(steps, private, size, downloaded, cost, attempts, dict(lags))
