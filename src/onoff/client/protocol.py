"""The protocol as a pure state machine: no network, no disk, no clock.

    begin_both: (state, request, next, private, plan, randbelow)         -> the state with a pending query
    begin_past: (state, public, request, private, prepared step, randbelow) -> the same, and the public state after it
    finish    : the state with a pending query                            -> the state after the step

A query is drawn once, in `begin_both` or `begin_past`. It is sent again unchanged until `finish`, whatever happens.
Every random number of the draw is noted, so that an auditor can draw again.

For the promises `past` and `all`, `PublicState` has the habits and the last queries (`onoff.past`), and only the
reader's state is secret. Both are stored with the newest drawn query.

Parameters are checked before any draw: a request (`check_call`), a stream of requests (`look_one_ahead`), and the
sources (`places_on_wire`).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import chain as chained
from itertools import pairwise
from typing import Any

from onoff.errors import Announced, ChainError, ContextError, NothingPending, OnoffError, PendingRequest, PlanError
from onoff.model.bounds import sum_up
from onoff.model.chain import Chain
from onoff.model.tree import describe_state
from onoff.past import PublicState, RaceStep, StepLaw
from onoff.plans.plan import Plan
from onoff.text import plain
from onoff.types import Query, RandBelow, is_flag

FULL_SET = "everything"  # what a journal calls the law of a step that asks for all sources
ANEW = "everything, anew"  # the same, if a request before it may be missing, or this one may repeat it


@dataclass(frozen=True)
class Pending:
    """A step whose query was drawn: the request, the announced next one, and the set, the same in every retry.

    `held` has the version that the client holds of each source of the set, or None. Versions are a part of the query:
    every retry has the same. All `spared` sources, whose copies were fresh, were left out of the set. The step
    `began` then, in seconds since 1970.
    """

    request: int
    next: int | None
    private: bool
    asked_private: bool
    lag: int
    query: tuple[int, ...]
    plan: str
    rounding: float
    held: tuple[str | None, ...] = ()
    spared: Query = ()
    began: float = 0.0

    def __post_init__(self) -> None:
        if not self.held:
            object.__setattr__(self, "held", (None,) * len(self.query))


@dataclass(frozen=True)
class State:
    """All that the client must remember between steps.

    `sent` of the steps so far have asked for something: servers number those alone. `owed` counts the next steps that
    ask for everything. A journal of `past` begins with as many as the chain remembers requests: they determine the
    reader's state. One of `both` begins with two, unless this reader never asked before: the first request may repeat
    one whose query already went out, so it does not count as ON. `reader` is the reader's state of the chain after the
    newest drawn request.
    """

    step: int = 0
    sent: int = 0
    last: int | None = None
    lag: int = 0
    reader: int | None = None
    announced: int | None = None
    owed: int = 1
    rounding: float = 0.0
    pending: Pending | None = None

    @property
    def is_asking(self) -> bool:
        """Whether a query that asks for something was drawn, and is not answered."""
        return self.pending is not None and bool(self.pending.query)

    @property
    def answered(self) -> State:
        """The state after the pending step, if there is one: the state of the next request."""
        return self if self.pending is None else finish(self)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> State:
        pending = data["pending"]
        if pending is not None:
            lists = {name: tuple(value) for name, value in pending.items() if isinstance(value, list)}
            pending = Pending(**{**pending, **lists})
        return cls(**{**data, "pending": pending})


@dataclass(frozen=True)
class Begun:
    """A step whose query was drawn, the (bound, number) pairs of its draw, and the public state after it.

    The promise `both` has no public state.
    """

    state: State
    pending: Pending
    numbers: tuple[tuple[int, int], ...] = ()
    public: PublicState | None = None


class _Numbers:
    """Random numbers for one draw. It notes every (bound, number) in order: an auditor can draw again."""

    def __init__(self, randbelow: RandBelow) -> None:
        self._randbelow = randbelow
        self.noted: list[tuple[int, int]] = []

    def __call__(self, bound: int) -> int:
        number = self._randbelow(bound)
        self.noted.append((bound, number))
        return number


def next_lag(state: State, next: int | None, private: bool) -> int:
    """The lag at which the next step will be made: 0 means the full set.

    A query is the full set while ON, without a next request, and while full sets are owed.
    """
    return 0 if private or next is None or state.owed else state.lag + 1


def begin_both(
    state: State,
    chain: Chain,
    request: int,
    next: int | None,
    private: bool,
    plan: Plan | None,
    randbelow: RandBelow = secrets.randbelow,
    full: bool = False,
) -> Begun:
    """Draw the query of a step of the promise `both`. `plan` serves the step's lag; a step at lag 0 needs none.

    `full`: it is made ON, whatever was asked.
    """
    check_request(state, chain, request)
    if next is not None:
        _check_source(chain, next)
    if state.announced is not None and request != state.announced:
        raise Announced(
            f"{chain.names[state.announced]!r} was announced as the next request and the last query depends on it: "
            f"it comes before {chain.names[request]!r}",
            announced=state.announced,
            source=chain.names[state.announced],
        )
    if next is not None and chain.P[request, next] == 0:
        raise _impossible(chain, request, next)
    lag = next_lag(state, next, private or full)
    numbers = _Numbers(randbelow)
    if lag == 0:
        query, name, rounding = tuple(range(chain.n)), FULL_SET, 0.0
    else:
        assert next is not None
        assert state.last is not None
        if plan is None or plan.chain != chain:
            raise PlanError(f"a plan of this chain for lag {lag} or less is needed")
        query = plan.draw(request, state.last, next, lag, numbers)
        name, rounding = plan.name, plan.rounding_at(lag)
    pending = Pending(request, next, lag == 0, private, lag, query, name, rounding)
    return Begun(replace(state, pending=pending, reader=request), pending, tuple(numbers.noted))


def begin_past(
    state: State,
    public: PublicState,
    request: int,
    private: bool,
    prepared: StepLaw | RaceStep | None,
    randbelow: RandBelow = secrets.randbelow,
    anew: bool = False,
    full: bool = False,
    spared: Query = (),
) -> Begun:
    """Draw the query of a step of the promise `past` or `all`. Unless it is the full set, it needs `prepared`.

    `anew`: a request before this one may be missing, or this one may repeat it. Then the reader's state is forgotten,
    and as many full sets are owed as in a new journal: one for each request that the chain remembers.
    `full`: the step is made ON, whatever was asked. The `spared` sources are left out of a full set.
    """
    chain = public.habits.chain
    if anew:
        state = replace(state, last=None, reader=None, owed=chain.depth)
    everything = state.owed > 0 or public.asks_for_all(private or full)
    check_request(state, chain, request, anything=everything or request in public.sensitive)
    reader = request if state.reader is None else int(chain.step[state.reader, request])
    if everything:
        name = ANEW if anew else FULL_SET
        query = tuple(source for source in range(chain.n) if source not in spared)
        pending = Pending(request, None, True, private, 0, query, name, 0.0, spared=spared)
        after = public.after_everything(state.reader, request, private)
        return Begun(replace(state, pending=pending, reader=reader), pending, (), after)
    if prepared is None or prepared.candidates != public.state.candidates or state.reader is None:
        raise PlanError("a step that was prepared for the last queries is needed")
    numbers = _Numbers(randbelow)
    query = prepared.draw(request, state.reader, numbers)
    pending = Pending(request, None, False, private, state.lag + 1, query, "past", prepared.rounding)
    return Begun(replace(state, pending=pending, reader=reader), pending, tuple(numbers.noted), public.after(query))


def finish(state: State) -> State:
    """The state after the pending step was answered."""
    done = state.pending
    if done is None:
        raise NothingPending("nothing is pending: there is no step to finish", step=state.step)
    counts = done.private and state.owed <= 1
    return State(
        step=state.step + 1,
        sent=state.sent + bool(done.query),
        last=done.request if counts else state.last,
        lag=done.lag,
        reader=state.reader,
        announced=None if done.private else done.next,
        owed=max(0, state.owed - 1) if done.private else state.owed,
        rounding=sum_up(state.rounding, done.rounding) if done.rounding else state.rounding,
    )


def check_request(state: State, chain: Chain, request: int, anything: bool = False) -> None:
    """Raise an error unless nothing is pending and the chain can get from the reader's state to this request.

    `anything`: the request is ON or sensitive (promise `past`), so the chain need not allow it.
    """
    if state.pending is not None:
        raise PendingRequest(
            f"step {state.step}, for {chain.names[state.pending.request]!r}, is still pending, and comes first",
            step=state.step,
            source=chain.names[state.pending.request],
        )
    _check_source(chain, request)
    reader = None if anything or state.announced is not None else state.reader
    if reader is not None and chain.P[reader, request] == 0:
        raise _impossible(chain, reader, request)


def _check_source(chain: Chain, source: int) -> None:
    if not 0 <= source < chain.n:
        raise ContextError(f"there is no source {source}: they are 0 to {chain.n - 1}", last=source, next=source)


def _impossible(chain: Chain, state: int, request: int) -> ContextError:
    before = describe_state(chain.states[state], chain.names)
    return ContextError(
        f"the chain calls it impossible to ask for {chain.names[request]!r} right after {before}: "
        "smooth the chain if it can happen",
        last=int(chain.last[state]),
        next=request,
    )


def check_call(source: str, next: str | None, private: bool | None) -> None:
    """Refuse what cannot be a request, before any draw or write, and without looking up which source it names."""
    if not isinstance(source, str):
        raise ChainError(f"the source is {source!r}: its name is needed", value=source)
    if not isinstance(next, str | None):
        raise ChainError(f"the next source is {next!r}: its name is needed, or None", value=next)
    if private is not None and not is_flag(private):
        raise OnoffError(f"private is {private!r}: True or False is needed, or None")


def look_one_ahead(items: Iterable[tuple[str, bool]], promise: str) -> Iterator[tuple[str, str | None, bool]]:
    """The requests (source, next, private) of a stream. For the promise "both" each but the last announces the next."""
    if not isinstance(items, Iterable) or isinstance(items, str | bytes):
        raise OnoffError(f"the requests are {items!r}: (source, private) for each is needed")

    def checked(item: tuple[str, bool]) -> tuple[str, bool]:
        if not (isinstance(item, tuple | list) and len(item) == 2):
            raise OnoffError(f"a request is {item!r}: (source, private) is needed")
        check_call(item[0], None, item[1])
        return item

    ends: Iterator[tuple[str, bool] | None] = chained(map(checked, items), [None])
    for current, following in pairwise(ends):
        assert current is not None
        announced = following[0] if following is not None and promise == "both" else None
        yield current[0], announced, current[1]


def places_on_wire(chain: Chain, names: tuple[str, ...]) -> list[int]:
    """Find each source of the chain in the server's order. Raises `ChainError` if the sources are others."""
    if sorted(names) != sorted(chain.names):
        theirs, ours = sorted(set(names) - set(chain.names)), sorted(set(chain.names) - set(names))
        raise ChainError(
            f"the sources that can be fetched are not those of the chain. {_name_missing(theirs, 'The chain')}"
            f"{_name_missing(ours, 'The file of URLs, or the server,')}A chain is for one list of sources: fit another "
            "one, or change the list"
        )
    places = {name: i for i, name in enumerate(names)}
    return [places[name] for name in chain.names]


def _name_missing(names: list[str], where: str) -> str:
    """Say which names a list lacks; nothing if it lacks none."""
    if not names:
        return ""
    return f"{where} lacks {', '.join(plain(name, 60) for name in names[:5])}{', ...' if len(names) > 5 else ''}. "
