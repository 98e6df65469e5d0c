"""The two promises that a client can keep: how each makes a query ready, draws it and puts it on disk.

What is done in `ready` depends on public things only, and is done before the source is looked at.

The next OFF step of the promise `past` is prepared in a thread between requests. Its law depends on chain,
sensitive sources and last queries. When the thread begins, and how long it takes, depends on these, the machine, and
the moments at which queries left and answers came. A request that comes earlier waits for the thread *before its source
is looked at*. It counts as made when that wait ends: its query leaves a whole delay later at the earliest, so the draw
does not show.

What a caller does with a message may slow the thread down, and that could show. So a message is held back until the
next step is prepared, but for no longer than `HELD` seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from onoff.client.habits import say_change
from onoff.client.journal import Journal
from onoff.client.laws import PlanDigests, law_digest, law_line, maker, record
from onoff.client.lawstore import LawStore
from onoff.client.protocol import Pending, begin_both, begin_past, next_lag
from onoff.errors import OnoffError, SessionError
from onoff.model.chain import Chain
from onoff.model.powers import one_thread
from onoff.past import Candidates, Habits, RaceStep, StepLaw
from onoff.past.state import sensitive_sources
from onoff.plans.planner import Planner
from onoff.schemes import list_names
from onoff.types import Query, RandBelow

HELD = 0.5  # seconds: most chains of a hundred sources take less
PROMISES = {
    "all": "every request asks for everything that is not fresh, which hides all of them and needs no habits",
    "past": "what a request's own query and the queries before it tell is all that will ever be told about it; the "
    "query of a private request tells nothing",
    "both": "no query tells anything about requests made while ON or to come; an OFF request needs the next one",
}
SENSITIVE = "the server learns neither which of the sensitive sources is read nor whether any is"


class Now(NamedTuple):
    """When a step begins, in seconds since 1970, and which copies are fresh then: the sources that it spares."""

    at: float
    spared: Query


class Drawing:
    """What a client needs of a promise. Where the next step needs no preparation, nothing is done between requests."""

    habits: Habits | None = None  # what is known of habits now; None for a promise whose chain is stated and stays

    spares = False  # whether fresh copies are left out of queries

    def status(self, private: bool | None, gap: bool) -> bool:
        """Whether a request is ON; None if the caller has not said. `gap`: one before it may have been lost."""
        return private is None or private or gap

    async def ready(self, private: bool) -> None:
        """Wait until a query can be drawn at once."""

    def begin(
        self, now: Now, source: str, next: str | None, private: bool, gap: bool = False, full: bool = False
    ) -> Pending:
        """Draw the query of a step that begins now, and put it on disk. `full`: it is made ON, whatever was asked."""
        raise NotImplementedError

    def look_ahead(self) -> None:
        """Begin to prepare the step after the newest one."""

    async def hold(self) -> None:
        """Wait, for a while, for what is being prepared."""

    def close(self) -> None:
        """Let everything go."""


class Both(Drawing):
    """Past and future are hidden; an OFF request needs the next one. Queries are drawn from plans."""

    def __init__(self, chain: Chain, journal: Journal, planner: Planner, randbelow: RandBelow) -> None:
        self._chain, self._journal, self._planner, self._randbelow = chain, journal, planner, randbelow
        self._digests = PlanDigests()

    def begin(
        self,
        now: Now,
        source: str,
        next: str | None,
        private: bool,
        gap: bool = False,  # noqa: ARG002
        full: bool = False,
    ) -> Pending:
        request = self._chain.index(source)
        following = None if next is None else self._chain.index(next)
        before = self._journal.state
        lag = next_lag(before, following, private or full)
        plan = self._planner.best(lag) if lag else None
        begun = begin_both(before, self._chain, request, following, private, plan, self._randbelow, full)
        begun = self._journal.name_versions(begun, now.at)
        cost, law = float(self._chain.n), None
        if plan is not None:
            assert before.last is not None
            assert following is not None
            cost, law = plan.cost, self._digests.of(plan, before.last, following, lag)
        self._journal.begin(begun, cost, law)
        return begun.pending


class Past(Drawing):
    """The side of the client that keeps the promises `past` and `all`. Nothing is announced.

    The last queries determine the law of an OFF query. Steps ask for everything while habits are learned, and once
    the fuse has blown. With `ahead` the next law is made while the answer is on its way, without it when an OFF request
    is made, which suits a client for a single one.
    """

    def __init__(
        self,
        chain: Chain,
        journal: Journal,
        randbelow: RandBelow,
        ahead: bool = True,
        record: Path | None = None,
    ) -> None:
        self._chain, self._journal, self._randbelow, self._record = chain, journal, randbelow, record
        self._public = journal.public_state(chain)
        self._laws = LawStore(journal.path)
        self._recorded: set[tuple[Candidates, str]] = set()  # with the digest of the law that is on record
        self._ahead, self._looks_ahead = Ahead(self._prepare), ahead
        self._ready: Prepared | None = None
        self._limits = ExitStack()
        # To switch to one thread and back in every step would wake the others, and they wait awake.
        self._limits.enter_context(one_thread())

    @property
    def habits(self) -> Habits:  # type: ignore[override]
        return self._public.habits

    def status(self, private: bool | None, gap: bool) -> bool:
        """A request is ON unless told otherwise; while learning, and with sensitive sources, it is OFF.

        A private request would end the learning, so there a gap leaves the status as it is.
        """
        stage = self._public.habits.stage
        is_open = stage in ("learning", "complete") or bool(self._journal.sensitive)
        asked = not is_open if private is None else private
        return asked or (gap and stage == "known")

    @property
    def spares(self) -> bool:  # type: ignore[override]
        """Where everything is asked for to the end, no query depends on a request: what is fresh can be left out."""
        return self._public.habits.stage == "all"

    async def ready(self, private: bool) -> None:
        self._ready = None
        if self._journal.state.pending is None and self._is_drawn(private):
            self._ready = await self._ahead.take_prepared(self._public.state.candidates)

    def _is_drawn(self, private: bool) -> bool:
        """Whether the step after the newest one is drawn from a law."""
        return not (self._journal.state.answered.owed or self._public.asks_for_all(private))

    def begin(
        self, now: Now, source: str, next: str | None, private: bool, gap: bool = False, full: bool = False
    ) -> Pending:
        if next is not None:
            raise SessionError(
                f"{self._journal.path}: was made for the promise {self._journal.promise!r}, which needs no next "
                "request: leave the next request out, or make another journal for the promise 'both'"
            )
        ready = self._ready
        if ready is not None and self._record is not None and ready.digest is not None:
            # Before the source is looked at, but after the call counts as made: the disk's time would otherwise be
            # added to the caller's, and carry what took less than a delay across a point of the clock.
            known = ready.step.candidates, ready.digest
            if known not in self._recorded:
                record(self._record, ready.line)
            self._recorded.add(known)
        step = None if ready is None else ready.step
        request = self._chain.index(source)
        anew = gap and self._public.habits.stage in ("complete", "known")
        begun = begin_past(
            self._journal.state,
            self._public,
            request,
            private,
            step,
            self._randbelow,
            anew=anew,
            full=full,
            spared=now.spared,
        )
        begun = self._journal.name_versions(begun, now.at)
        is_full = begun.pending.private
        cost, law = (float(self._chain.n), None) if ready is None or is_full else (ready.cost, ready.digest)
        before = self._public.habits
        try:
            self._journal.begin(begun, cost, law, None if law is None else maker())
        finally:
            # The query counts once it is on disk, even if the seal of the journal then fails: the next one is drawn
            # from the state after it.
            if self._journal.state is begun.state:
                assert begun.public is not None
                self._public, self._ready = begun.public, None
        say_change(before, self._public.habits, self._journal.path)
        return begun.pending

    def look_ahead(self) -> None:
        if self._looks_ahead and self._is_drawn(private=False):
            self._ahead.begin(self._public.state.candidates)

    async def hold(self) -> None:
        if self._looks_ahead:
            await self._ahead.hold()

    def close(self) -> None:
        self._ahead.close()
        self._limits.close()

    def _prepare(self, candidates: Candidates) -> Prepared:
        """Take or make the law. A line of the record has all states' encoders: the reader's alone would name it."""
        step = self._laws.step(candidates)
        if step.law is None:
            return Prepared(step, step.cost, None)
        digest = law_digest(step.law)
        if self._record is None or (candidates, digest) in self._recorded:
            return Prepared(step, step.cost, digest)
        assert isinstance(step, StepLaw)
        return Prepared(step, step.cost, digest, law_line(self._journal.stream, step))


@dataclass(frozen=True)
class Prepared:
    """A step, its expected cost, the digest of its law, None for a race, and the law's line for the record, if any.

    What takes long for many sources is done here, not between a call and its query.
    """

    step: StepLaw | RaceStep
    cost: float
    digest: str | None
    line: bytes = b""


class Ahead:
    """One step ahead. `prepare` makes it from its candidates."""

    def __init__(self, prepare: Callable[[Candidates], Prepared]) -> None:
        self._prepare = prepare
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="onoff-prepare")
        self._candidates: Candidates | None = None
        self._made: asyncio.Future[Prepared] | None = None

    def begin(self, candidates: Candidates) -> asyncio.Future[Prepared]:
        """Begin to prepare a step, unless that was begun before. What failed is tried again."""
        if self._made is None or self._candidates != candidates or _failed(self._made):
            self._forget()
            self._candidates = candidates
            self._made = asyncio.get_running_loop().run_in_executor(self._worker, self._prepare, candidates)
        return self._made

    async def take_prepared(self, candidates: Candidates) -> Prepared:
        """What was prepared for these candidates. A caller that gives up waiting does not stop the thread."""
        return await asyncio.shield(self.begin(candidates))

    async def hold(self) -> None:
        """Wait until what was begun is prepared, but not for long."""
        if self._made is not None:
            await asyncio.wait({self._made}, timeout=HELD)

    def close(self) -> None:
        """Begin nothing more. What runs in the thread ends by itself, and nobody is told."""
        self._forget()
        self._worker.shutdown(wait=False, cancel_futures=True)

    def _forget(self) -> None:
        """Let go of what was begun: the loop may be closed when the thread is done, and an error is for nobody."""
        if self._made is not None and not self._made.cancel() and not self._made.cancelled():
            self._made.exception()
        self._made = None


def _failed(made: asyncio.Future[Prepared]) -> bool:
    return made.done() and (made.cancelled() or made.exception() is not None)


def parse_promise(
    chain: Chain | None, promise: str | None, sensitive: Sequence[int | str], kept: str | None = None
) -> tuple[str, tuple[int, ...]]:
    """The promise and the sensitive sources, as indices. Raises an error if they make no sense.

    A promise that is not given is the one that a journal has `kept`, or "past".
    """
    hidden = () if chain is None else sensitive_sources(chain, sensitive)
    given = bool(hidden) or (chain is None and not (isinstance(sensitive, Sequence) and len(sensitive) == 0))
    if promise is None and kept is not None:
        return kept, hidden
    promise = "past" if promise is None else promise
    if not (isinstance(promise, str) and promise in PROMISES):
        raise OnoffError(f"the promise is {promise!r}: choose {list_names(*PROMISES)}")
    if promise == "all" and (chain is not None or given):
        raise OnoffError("the promise 'all' hides everything: leave the chain and the sensitive sources out")
    if chain is None and (given or promise == "both"):
        what = "sensitive sources need" if given else "the promise 'both' needs"
        raise OnoffError(f"{what} a chain: give --chain (chain=...); until you have one, the promise 'all' hides all")
    if promise == "both":
        assert chain is not None
        chain.without_memory()
    if given and promise == "both":
        raise OnoffError(
            "the promise 'both' knows no sensitive sources: leave them out and switch privacy ON and OFF, or take the "
            "promise 'past' (in a new journal), which hides them without switching"
        )
    return promise, hidden
