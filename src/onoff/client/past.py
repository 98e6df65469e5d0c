"""The promise `past` as a pure state machine: no network, no disk, no clock.

    begin : (state, rows, request, private, prepared step, randbelow) -> (state with a pending query, rows after it)
    finish: as for the other promise (`onoff.client.session`)

`rows` are public: what the queries so far tell in every context (`onoff.everyday`). Of the reader's own state only the
last request and the context are secret. Both rows and context are those after the newest drawn query, and are kept
together with it. So nothing that is computed again after a crash decides anything.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace

from onoff.client.session import Pending, State, check_request
from onoff.errors import PlanError
from onoff.everyday import Everyday, Step
from onoff.types import RandBelow

NAME = "past"  # what the journal calls the law of an OFF step


@dataclass(frozen=True)
class Begun:
    """A step whose query was drawn, and the rows after it; None until a request has counted as ON."""

    state: State
    pending: Pending
    rows: Everyday | None


def is_full(rows: Everyday | None, private: bool) -> bool:
    """Whether the next step asks for everything: while ON, and until a request has counted as ON."""
    return private or rows is None


def begin(
    state: State,
    start: Everyday,
    rows: Everyday | None,
    request: int,
    private: bool,
    prepared: Step | None,
    randbelow: RandBelow = secrets.randbelow,
) -> Begun:
    """Draw the query of a step. `start` are the rows after an ON step. An OFF step needs `prepared`, made of `rows`."""
    check_request(state, start.chain, request)
    after: Everyday | None
    if rows is None or private:
        settled = state.unsettled == 0  # a new journal's first step may repeat a request whose query already went out
        after = start if settled else None
        query, name, rounding, lag = tuple(range(start.chain.n)), "everything", 0.0, 0
        context = start.context(request, None, private=True) if settled else None
    else:
        if prepared is None or not prepared.state.same(rows) or state.context is None:
            raise PlanError("a step that was prepared for the present rows is needed")
        query = prepared.draw(request, state.context, randbelow)
        after = rows.advance(prepared, query)
        context = after.context(request, state.context, private=False)
        name, rounding, lag = NAME, prepared.rounding, state.lag + 1
    pending = Pending(request, None, is_full(rows, private), private, lag, query, name, rounding)
    return Begun(replace(state, pending=pending, context=context), pending, after)
