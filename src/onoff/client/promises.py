"""The two promises that a client can keep: how each makes a query ready, draws it and puts it on disk.

What is done in `ready` depends on public things only, and is done before the source is looked at.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from onoff.client import past, session
from onoff.client.ahead import Ahead, NothingAhead, Prepared
from onoff.client.journal import Journal
from onoff.client.journalfile import DamagedError, explained
from onoff.client.laws import plan_digest, step_digest
from onoff.client.record import append, law_line
from onoff.client.session import Numbers, Pending
from onoff.errors import OnoffError, SessionError
from onoff.everyday import Everyday
from onoff.everyday.state import sensitive_sources
from onoff.model.chain import Chain
from onoff.model.powers import one_thread
from onoff.plans.lengths import Weighing
from onoff.plans.planner import Planner
from onoff.types import RandBelow

PROMISES = {
    "past": "nothing that is asked at or after a private request changes what the server believes about it",
    "both": "no query tells anything about requests made while ON or to come; an OFF request needs the next one",
}
SENSITIVE = "the server learns neither which of the sensitive sources is read nor whether any is"


class Drawing(Protocol):
    """What a client needs of a promise."""

    def status(self, private: bool | None) -> bool:
        """Whether a request is ON; None if the caller has not said."""

    async def ready(self, private: bool) -> None:
        """Wait until a query can be drawn at once."""

    def begin(self, source: str, next: str | None, private: bool) -> Pending:
        """Draw the query of a step and put it on disk."""

    def look_ahead(self) -> None:
        """Begin to prepare the step after the newest one."""

    async def hold(self) -> None:
        """Wait, for a while, for what is being prepared."""

    def close(self) -> None:
        """Let everything go."""


class Both(NothingAhead):
    """Past and future are hidden; an OFF request needs the next one. Queries are drawn from plans."""

    def __init__(self, chain: Chain, journal: Journal, planner: Planner, randbelow: RandBelow) -> None:
        self._chain, self._journal, self._planner, self._randbelow = chain, journal, planner, randbelow

    def status(self, private: bool | None) -> bool:
        return private is None or private

    async def ready(self, private: bool) -> None:  # noqa: ARG002
        return

    def begin(self, source: str, next: str | None, private: bool) -> Pending:
        request = self._chain.index(source)
        following = None if next is None else self._chain.index(next)
        before = self._journal.state
        lag = session.next_lag(before, following, private)
        plan = self._planner.best(lag) if lag else None
        numbers, law = Numbers(self._randbelow), None
        drawn, _ = session.begin(before, self._chain, request, following, private, plan, numbers)
        if plan is not None:
            assert before.last is not None
            assert following is not None
            law = plan_digest(plan, before.last, following, lag)
        state = self._journal.asking(drawn)
        assert state.pending is not None
        cost = self._everything() if plan is None else plan.cost
        self._journal.begin(state, state.pending, cost, numbers.noted, law)
        return state.pending

    def _everything(self) -> float:
        """What the full set costs, in the unit of the plans."""
        lengths = self._planner.store.lengths
        return float(self._chain.n) if lengths is None else math.fsum(lengths)


class Past:
    """The side of the client that keeps the promise `past`. Each step has a law of its own, and nothing is announced.

    It hides earlier private and sensitive requests. With `ahead` the next step is prepared while the answer is on its
    way. Without `ahead` it is prepared when an OFF request is made, which suits a client that makes only one.
    """

    def __init__(
        self,
        chain: Chain,
        journal: Journal,
        randbelow: RandBelow,
        ahead: bool = True,
        record: Path | None = None,
        weighing: Weighing | None = None,
    ) -> None:
        self._chain, self._journal, self._randbelow, self._record = chain, journal, randbelow, record
        self._start = Everyday.start(chain, journal.sensitive)
        with explained(journal.path):  # rows that no client can have written are damage
            self._rows = None if journal.rows is None else Everyday.from_dict(chain, journal.rows)
            _check_rows(self._rows, journal)
        self._ahead, self._looks_ahead = Ahead(self._prepared), ahead
        self._ready: Prepared | None = None
        self._weighing = weighing
        self._asked = journal.last_asked() if weighing is not None else {}  # when each source was asked for last

    def status(self, private: bool | None) -> bool:
        """Without sensitive sources a request is ON unless told otherwise. With some, these are hidden all the time."""
        return not self._journal.sensitive if private is None else private

    async def ready(self, private: bool) -> None:
        state = self._journal.state
        self._ready = None
        if self._rows is None or past.is_full(self._rows, private) or state.pending is not None:
            return
        self._ready = await self._ahead.prepared(self._rows, state.step)

    def begin(self, source: str, next: str | None, private: bool) -> Pending:
        if next is not None:
            raise SessionError(
                f"{self._journal.path}: was made for the promise 'past', which needs no next request and does not hide "
                "it: leave the next request out, or make another journal for the promise 'both'"
            )
        if self._ready is not None and self._ready.line is not None and self._record is not None:
            # Before the source is looked at, but after the call counts as made: the disk's time would otherwise be
            # added to the caller's, and carry what took less than a delay across a point of the grid.
            append(self._record, self._ready.line)
        step = None if self._ready is None else self._ready.step
        request = self._chain.index(source)
        numbers, law = Numbers(self._randbelow), None if self._ready is None else self._ready.law
        made = past.begin(self._journal.state, self._start, self._rows, request, private, step, numbers)
        state = self._journal.asking(made.state)
        assert state.pending is not None
        lengths = None if self._weighing is None else self._weighing.lengths
        everything = float(self._chain.n) if lengths is None else math.fsum(lengths)
        cost = everything if step is None else step.cost_in(lengths)
        try:
            rows = None if made.rows is None else made.rows.as_dict()
            self._journal.begin(state, state.pending, cost, numbers.noted, law, rows)
        finally:
            # The query counts once it is on disk, even if the seal of the journal then fails: to draw the next one from
            # rows that are older than the context would tell something about the context.
            if self._journal.state is state:
                self._rows, self._ready = made.rows, None
                if self._weighing is not None:
                    self._asked = {**self._asked, **dict.fromkeys(made.pending.query, made.state.step)}
        return state.pending

    def look_ahead(self) -> None:
        state = self._journal.state
        if self._looks_ahead and self._rows is not None:
            self._ahead.begin(self._rows, state.step + (state.pending is not None))

    async def hold(self) -> None:
        if self._looks_ahead:
            await self._ahead.hold()

    def close(self) -> None:
        self._ahead.close()

    def _prepared(self, rows: Everyday, number: int) -> Prepared:
        weights = None if self._weighing is None else self._weighing.after(gaps(self._asked, number, self._chain.n))
        with one_thread():  # a second thread of the linear algebra would only wait, awake
            step = rows.prepare(weights)
        line = None if self._record is None else law_line(self._journal.stream, number, step)
        return Prepared(step, step_digest(step), line)


def gaps(asked: Mapping[int, int], number: int, n: int) -> list[int]:
    """How many steps before step `number` each source was asked for; all steps before it, if never."""
    return [number - asked.get(source, -1) for source in range(n)]


def _check_rows(rows: Everyday | None, journal: Journal) -> None:
    """Raise an error unless the reader's context has a row."""
    context = journal.state.context
    if rows is None or context is None:
        fits = rows is None and context is None
    else:
        fits = context in rows.contexts and rows.sensitive == journal.sensitive
    if not fits:
        raise DamagedError("its rows do not fit its state")


def checked_promise(
    chain: Chain, promise: str | None, sensitive: Sequence[int | str]
) -> tuple[str | None, tuple[int, ...]]:
    """The promise and the sensitive sources (as indices) that a caller gave. Raises an error if they make no sense."""
    if promise is not None and not (isinstance(promise, str) and promise in PROMISES):
        raise OnoffError(f"the promise is {promise!r}: choose {' or '.join(map(repr, PROMISES))}")
    found = sensitive_sources(chain, sensitive)
    if found and promise == "both":
        raise OnoffError(
            "the promise 'both' knows no sensitive sources: leave them out and switch privacy ON and OFF, or take the "
            "promise 'past' (in a new journal), which hides them without switching"
        )
    return promise, found
