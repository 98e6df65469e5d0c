"""The protocol of the promise `both` as a pure state machine: no network, no disk, no clock.

    begin : (state, request, next, private, plan, randbelow) -> (state with a pending query, that query)
    finish: state with a pending query -> state after the step

A query is drawn once, in `begin`; whatever happens to it later, it is sent again unchanged until `finish`. The
promise `past` has a `begin` of its own (`onoff.client.past`) and the same states.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from typing import Any

from onoff.errors import Announced, ContextError, NothingPending, PendingRequest, PlanError
from onoff.model.chain import Chain
from onoff.model.bounds import sum_up
from onoff.plans.plan import Plan
from onoff.types import RandBelow


@dataclass(frozen=True)
class Pending:
    """A step whose query was drawn: what is wanted, what was announced, and the set to send, always the same.

    `held` are the versions that are sent with it, one for each source of the set, None where nothing is held. They are
    a part of the query: every retry has the same.
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

    def __post_init__(self) -> None:
        if not self.held:
            object.__setattr__(self, "held", (None,) * len(self.query))


class Numbers:
    """Random numbers for one draw. Every (bound, number) is noted in its order, so that an auditor can draw again."""

    def __init__(self, randbelow: RandBelow) -> None:
        self._randbelow = randbelow
        self.noted: list[tuple[int, int]] = []

    def __call__(self, bound: int) -> int:
        number = self._randbelow(bound)
        self.noted.append((bound, number))
        return number


@dataclass(frozen=True)
class State:
    """What the client must remember between steps, and nothing else.

    `unsettled` counts the full-set steps still to make before one counts as ON. A stream that may have a forgotten
    past starts with 1: its first request may repeat one whose query already went out, so only the second counts.
    `context` is for the promise `past` alone: where the reader is among the rows after the newest query.
    """

    step: int = 0
    last: int | None = None
    lag: int = 0
    previous: int | None = None
    announced: int | None = None
    unsettled: int = 1
    rounding: float = 0.0
    pending: Pending | None = None
    context: int | None = None

    @property
    def answered(self) -> State:
        """The state after what is pending, if anything is: the one in which the next request will be made."""
        return self if self.pending is None else finish(self)

    def as_dict(self) -> dict[str, Any]:
        pending = self.pending
        return {**vars(self), "pending": None if pending is None else dict(vars(pending))}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> State:
        pending = data["pending"]
        if pending is not None:
            pending = Pending(**{**pending, "query": tuple(pending["query"]), "held": tuple(pending["held"])})
        return cls(**{**data, "pending": pending})


def next_lag(state: State, next: int | None, private: bool) -> int:
    """The lag at which the next step will be made: 0 means the full set.

    Everything is asked for while ON, without a known next request, and until a request has counted as ON.
    """
    return 0 if private or next is None or state.last is None else state.lag + 1


def begin(
    state: State,
    chain: Chain,
    request: int,
    next: int | None,
    private: bool,
    plan: Plan | None,
    randbelow: RandBelow = secrets.randbelow,
) -> tuple[State, Pending]:
    """Draw the query of a step. `plan` is needed, for at most the lag of the step, unless that is 0."""
    check_request(state, chain, request)
    if next is not None:
        _check_source(chain, next)
    if state.announced is not None and request != state.announced:
        raise Announced(
            f"{chain.names[state.announced]!r} was announced as the next request and the last query depends on it: "
            f"ask for it before {chain.names[request]!r}",
            announced=state.announced,
        )
    if next is not None and chain.P[request, next] == 0:
        raise _impossible(chain, request, next)
    lag = next_lag(state, next, private)
    if lag == 0:
        query, name, rounding = tuple(range(chain.n)), "everything", 0.0
    else:
        assert next is not None
        assert state.last is not None
        if plan is None or plan.chain != chain:
            raise PlanError(f"a plan of this chain for lag {lag} or less is needed")
        query = plan.draw(request, state.last, next, lag, randbelow)
        name, rounding = plan.name, plan.rounding_at(lag)
    pending = Pending(request, next, lag == 0, private, lag, query, name, rounding)
    return replace(state, pending=pending), pending


def finish(state: State) -> State:
    """The state after the pending step was answered."""
    done = state.pending
    if done is None:
        raise NothingPending("nothing is pending: there is no step to finish", step=state.step)
    settled = done.private and state.unsettled == 0
    return State(
        step=state.step + 1,
        last=done.request if settled else state.last,
        lag=done.lag,
        previous=done.request,
        announced=None if done.private else done.next,
        unsettled=max(0, state.unsettled - 1) if done.private else state.unsettled,
        rounding=sum_up(state.rounding, done.rounding) if done.rounding else state.rounding,
        context=state.context,
    )


def check_request(state: State, chain: Chain, request: int) -> None:
    """Raise an error unless nothing is pending and the chain can get from the request before to this one."""
    if state.pending is not None:
        raise PendingRequest(
            f"step {state.step}, for {chain.names[state.pending.request]!r}, is still pending: finish it "
            "(`onoff resume`, Client.resume) before asking for anything else",
            step=state.step,
        )
    _check_source(chain, request)
    if state.previous is not None and state.announced is None and chain.P[state.previous, request] == 0:
        raise _impossible(chain, state.previous, request)


def _check_source(chain: Chain, source: int) -> None:
    if not 0 <= source < chain.n:
        raise ContextError(f"there is no source {source}: they are 0 to {chain.n - 1}", last=source, next=source)


def _impossible(chain: Chain, before: int, after: int) -> ContextError:
    return ContextError(
        f"the chain calls it impossible to ask for {chain.names[after]!r} right after {chain.names[before]!r}: "
        "smooth the chain if it can happen",
        last=before,
        next=after,
    )
