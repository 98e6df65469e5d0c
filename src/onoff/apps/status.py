"""How a client stands, as one frozen result for programs. `onoff.apps.cli.showstatus.print_status` has it in words."""

from __future__ import annotations

import math
from dataclasses import dataclass

from onoff.client.standing import Standing
from onoff.client.stored import Totals
from onoff.logs.follow import Following
from onoff.model.bounds import outer_bound

BOUND_LIMIT = 300  # sources: beyond it the outer bound takes longer than a status may


@dataclass(frozen=True)
class PendingStep:
    """A request that was drawn and is not answered yet, with the sources that its query holds."""

    source: str
    query: tuple[str, ...]


@dataclass(frozen=True)
class NextRequest:
    """What the next request costs, in `unit`: ON, and OFF if that is possible; no law needs less than `lower_bound`."""

    unit: str
    on: float
    off: float | None
    lower_bound: float | None


@dataclass(frozen=True)
class Status:
    """What `onoff status --json` prints.

    `lag` counts steps since privacy was last ON, None before a request has counted as ON; `full` requests more ask for
    everything, whatever is said. Sums in `totals` count from step `since`. `refuted` says that the requests do not
    follow the chain, `following` why.
    """

    promise: str
    sensitive: tuple[str, ...]
    steps: int
    lag: int | None
    full: int
    pending: PendingStep | None
    announced: str | None
    next: NextRequest
    rounding: float
    since: int
    totals: Totals
    refuted: bool
    following: Following


def status_of(found: Standing, following: Following) -> Status:
    """How a client stands, from its journal and from what its requests say of the chain."""
    state, names = found.journal.state, found.chain.names
    after, pending = state.answered, state.pending
    started = after.last is not None or found.step is not None
    return Status(
        promise=found.journal.promise,
        sensitive=tuple(names[source] for source in found.journal.sensitive),
        steps=state.step,
        lag=after.lag if started else None,
        full=0 if started else after.unsettled + 1,
        pending=None if pending is None else PendingStep(names[pending.request], _named(names, pending.query)),
        announced=None if after.announced is None else names[after.announced],
        next=_next(found),
        rounding=state.rounding,
        since=found.since,
        totals=found.journal.totals,
        refuted=following.refuted,
        following=following,
    )


def _named(names: tuple[str, ...], query: tuple[int, ...]) -> tuple[str, ...]:
    return tuple(names[source] for source in query)


def _next(found: Standing) -> NextRequest:
    """What the next request costs."""
    chain, lengths = found.chain, found.lengths
    everything = float(chain.n) if lengths is None else math.fsum(lengths)
    unit = "messages" if lengths is None else "bytes"
    off = least = None
    if found.plan is not None:
        off = found.plan.cost
        lag = found.journal.state.answered.lag + 1
        least = outer_bound(chain.posterior(lag), lengths) if chain.n <= BOUND_LIMIT else None
    elif found.step is not None:
        off, least = found.step.cost_in(lengths), found.step.lower_bound if found.step.weights == lengths else None
    return NextRequest(unit, everything, off, least)
