"""The state between two steps of the promise `past`, and the step that is prepared from it.

A state holds the possible contexts, with a belief in each. A step is the law of the next query with its encoders. All
of it is public but `StepLaw.draw`. Secrets (the reader's state and context) are in `onoff.client.protocol`.
"""

from __future__ import annotations

import secrets
from base64 import b64decode, b64encode
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil, inf
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from onoff.errors import ChainError, ContextError, PlanError
from onoff.model.bounds import outer_bound, sum_up, up
from onoff.model.chain import Chain
from onoff.model.posterior import RowTable
from onoff.model.powers import counts, one_thread, times
from onoff.past import contexts as filters
from onoff.past.contexts import Contexts, merge_equal, share_flows
from onoff.past.laws import law_for
from onoff.schemes.encoder import Encoders, Entries, LawEncoder, draw_index
from onoff.schemes.law import DENOMINATOR, Drawn, Law, as_matrix
from onoff.types import Floats, Mask, Query, RandBelow, is_whole

if TYPE_CHECKING:
    from scipy.sparse import csr_array

PRICE = 5e-4  # share of the least cost that may be spent on sharing flows
TOO_MUCH = 1e-6  # a rounding of this size means that a law does not fit its rows


@dataclass(frozen=True, eq=False)
class PastState:
    """beliefs[c] is the law of the reader's state given context c and all queries; possible[c] is its support.

    A context is the state after the last request that is hidden: one made ON, or a sensitive one. `place[c]` is the new
    index of context c of the previous state; -1 if it ended. `joined[z]` is the context of readers whose last request
    is hidden and led to the state z; -1 if there are none. `spreads` bound the errors of beliefs
    (`onoff.past.contexts`).
    """

    chain: Chain
    sensitive: tuple[int, ...]
    beliefs: Floats
    possible: Mask
    spreads: Floats
    place: tuple[int, ...]
    joined: tuple[int, ...]

    def __post_init__(self) -> None:
        for array in (self.beliefs, self.possible, self.spreads):
            array.setflags(write=False)

    @classmethod
    def start(cls, chain: Chain, sensitive: Iterable[int | str] = ()) -> Self:
        """The state after `chain.depth` steps made ON: a context for every state that they may lead to."""
        states = np.arange(len(chain.P))
        for _ in range(chain.depth):
            states = np.unique(chain.step[states])
        return cls._of_points(chain, sensitive_sources(chain, sensitive), states)

    @classmethod
    def _of_points(cls, chain: Chain, sensitive: tuple[int, ...], states: NDArray[np.intp]) -> Self:
        """A context for each of these states, after a step that was made ON."""
        beliefs, joined = np.eye(len(chain.P))[states], np.full(len(chain.P), -1)
        joined[states] = np.arange(len(states))
        return cls(chain, sensitive, beliefs, beliefs > 0, np.zeros(len(states)), (), tuple(map(int, joined)))

    def after_full_set(self) -> PastState:
        """The state after one more step that was made ON. Its request may be any, whatever the chain says."""
        states = np.unique(self.chain.step[self.possible.any(axis=0)])
        return self._of_points(self.chain, self.sensitive, states)

    @property
    def contexts(self) -> range:
        """All contexts."""
        return range(len(self.beliefs))

    @cached_property
    def open_sources(self) -> Mask:
        """N: the sources that are not sensitive."""
        mask = np.ones(self.chain.n, dtype=bool)
        mask[list(self.sensitive)] = False
        return mask

    @cached_property
    def _ways(self) -> NDArray[np.float32]:
        """[c, x]: how many states of context c allow the request x, by the graph: floats may underflow."""
        return counts(self.possible, self.chain.P > 0)

    @cached_property
    def requests(self) -> Mask:
        """[c, x]: True if the request x can be next."""
        return self._ways > 0

    @cached_property
    def rows(self) -> Floats:
        """h_c: the law of the next request in every context."""
        with one_thread():
            return filters.raise_to_floor(times(self.beliefs, self.chain.P), self.requests)

    @cached_property
    def live(self) -> tuple[int, ...]:
        """The contexts in which an open request is possible; the others end at this step."""
        return tuple(map(int, np.flatnonzero(self.requests[:, self.open_sources].any(axis=1))))

    @cached_property
    def open_rows(self) -> Floats:
        """r_c for every live context, over the open sources."""
        return filters.restrict(self.rows[list(self.live)], self.open_sources)

    def context(self, state: int, context: int | None, private: bool) -> int:
        """The reader's context now, after a request that led to `state`, made ON (`private`) or OFF in `context`."""
        if not (is_whole(state) and state < len(self.joined)):
            raise PlanError(f"the reader's state is {state!r}: the states are 0 to {len(self.joined) - 1}")
        if private and self.place:
            raise PlanError("this state does not follow a step that was made ON: take PastState.after_full_set")
        if private or self.chain.last[state] in self.sensitive:
            found = self.joined[state]
        elif context is not None and is_whole(context) and context < len(self.place):
            found = self.place[context]
        else:
            found = -1
        if found < 0:
            raise PlanError(f"no reader in the context {context!r} can have come to the state {state!r}")
        return found

    def prepare(self, deadline: float = inf, drawn: bool = True) -> StepLaw:
        """Compute law and encoders of the next OFF step from this state alone; past a deadline raise `TimeoutError`.

        If no query is `drawn` from the step, since only the law is wanted, it has no encoders.
        """
        n = int(self.open_sources.sum())
        if not self.live:
            query = self.sensitive if n else tuple(range(self.chain.n))
            law = Law(as_matrix([query], self.chain.n), np.array([DENOMINATOR]))
            return StepLaw(self, (), law, float(len(self.sensitive)), 0.0, None)
        rows, possible = self.open_rows, self.requests[list(self.live)][:, self.open_sources]
        spread = float(self.spreads[list(self.live)].max()) + filters.spread_of_a_row(int(self._ways.max()))
        error = filters.error_of(spread, n)
        outer = outer_bound(RowTable(rows, possible, error))
        sharing = share_flows(rows, PRICE * outer / n)
        held = ceil(sharing.e * DENOMINATOR)
        # A row of a group is at least 1 - e of one of a context: its bounds hold for contexts with that much less.
        groups = RowTable(sharing.rows, sharing.rows > 0, error + sharing.e)
        with one_thread():
            inner, bound = law_for(groups, held, deadline)
        encoder = LawEncoder(inner, held, deadline)
        found = encoder.encode(rows, possible, sharing.rows, sharing.group) if drawn else None
        off_by = 0.0 if found is None else found.off_by(rows)
        if off_by > TOO_MUCH:
            raise ArithmeticError(f"the encoders of a step are off by {off_by}")
        member = np.ones((len(inner.member), self.chain.n), dtype=bool)
        member[:, self.open_sources] = inner.member
        lower = len(self.sensitive) + max(outer, bound)
        return StepLaw(self, self.live, Law(member, inner.mass), lower, sum_up(off_by, error), found)

    def advance(self, step: StepLaw, query: Query) -> PastState:
        """The state after `query`: update beliefs, add contexts of sensitive requests, merge nearly equal contexts."""
        if not self.same(step.state) or (step.contexts and step.encoders is None):
            raise PlanError("the step was prepared for another state, or without encoders")
        moved = self._move(step, step.index(query))
        can_come = (self.chain.moves[self.possible.any(axis=0)] > 0).any(axis=0)
        joining = np.flatnonzero(can_come & ~self.open_sources[self.chain.last])
        points = np.eye(len(self.chain.P))[joining]
        found = merge_equal(
            np.concatenate([moved.beliefs, points]),
            np.concatenate([moved.possible, points > 0]),
            np.concatenate([moved.spreads, np.zeros(len(joining))]),
        )
        place, joined = np.full(len(self.beliefs), -1), np.full(len(self.chain.P), -1)
        place[moved.place] = found.place[: len(moved.place)]
        joined[joining] = found.place[len(moved.place) :]
        return type(self)(
            self.chain, self.sensitive, found.beliefs, found.possible, found.spreads,
            tuple(map(int, place)), tuple(map(int, joined)),
        )  # fmt: skip

    def _move(self, step: StepLaw, index: int) -> Contexts:
        """The beliefs after the set `index` of the law if the request was open; `place` has the live contexts."""
        live, size = list(self.live), len(self.chain.P)
        beliefs, possible, spreads = np.zeros((len(live), size)), np.zeros((len(live), size), bool), np.empty(0)
        if step.encoders is not None:
            units = np.zeros((len(live), self.chain.n), dtype=np.int64)
            totals = np.ones_like(units)
            units[:, self.open_sources] = step.encoders.column(index)
            totals[:, self.open_sources] = np.maximum(step.encoders.totals, 1)
            states = np.flatnonzero(np.any(units, axis=0)[self.chain.last])  # to which the query may lead
            moves, request = self.chain.moves[:, states], self.chain.last[states]
            ways = counts(self.possible[live], moves > 0)
            reached: Mask = ways > 0
            with one_thread():
                laws = filters.raise_to_floor(times(self.beliefs[live], moves), reached)
            beliefs[:, states] = filters.condition(laws, units[:, request], totals[:, request])
            possible[:, states] = reached & (units[:, request] > 0)
            spreads = self.spreads[live] + filters.spread_of_a_move(int(ways.max()))
            spreads[possible.sum(axis=1) == 1] = 0.0  # the state is known, whatever was believed
        return Contexts(beliefs, possible, spreads, np.array(live, dtype=np.intp))

    def same(self, other: PastState) -> bool:
        """True if both states are equal to the bit."""
        return self is other or self.as_dict() == other.as_dict()

    def as_dict(self) -> dict[str, Any]:
        """The state for a journal, exact to the bit. It holds nothing secret."""
        return {
            "chain": self.chain.fingerprint,
            "sensitive": list(self.sensitive),
            "beliefs": _text(self.beliefs[self.possible].astype("<f8").tobytes()),
            "possible": _text(np.packbits(self.possible).tobytes()),
            "spreads": _text(self.spreads.astype("<f8").tobytes()),
            "place": list(self.place),
            "joined": list(self.joined),
        }

    @classmethod
    def from_dict(cls, chain: Chain, data: dict[str, Any]) -> Self:
        """Read what `as_dict` wrote. Raises `PlanError` if it is for another chain or is damaged."""
        if data.get("chain") != chain.fingerprint:
            raise PlanError("the state is for another chain")
        try:
            spreads = np.frombuffer(b64decode(data["spreads"]), "<f8")
            shape = len(spreads), len(chain.P)
            bits = np.frombuffer(b64decode(data["possible"]), np.uint8)
            possible = np.unpackbits(bits, count=shape[0] * shape[1]).astype(bool).reshape(shape)
            beliefs = np.zeros(shape)
            beliefs[possible] = np.frombuffer(b64decode(data["beliefs"]), "<f8")
            place, joined = tuple(map(int, data["place"])), tuple(map(int, data["joined"]))
            sensitive = sensitive_sources(chain, data["sensitive"])
            if len(joined) != len(chain.P) or max(place + joined) >= len(spreads) or min(place + joined) < -1:
                raise ValueError("its parts do not fit together")
        except (KeyError, TypeError, ValueError) as error:
            raise PlanError(f"the state is damaged: {error}") from None
        return cls(chain, sensitive, beliefs, possible, spreads, place, joined)


@dataclass(frozen=True, eq=False)
class StepLaw(Drawn):
    """The query is sets[i] with probability masses[i] / denominator, whatever is hidden.

    Every set holds all sensitive sources. `contexts` are those in which an open request is possible; each has an
    encoder. `lower_bound` is proved for every law that serves them.

    `rounding` sums the error of the encoders and the accumulated error of rows. It bounds the total variation between
    the stated law and that of this query, given what is hidden and any past. So its sum over a stream bounds the total
    variation between the joint law of what is hidden and all queries, and a law that keeps the promise exactly.
    """

    state: PastState
    contexts: tuple[int, ...]
    law: Law
    lower_bound: float
    rounding: float
    encoders: Encoders | None = field(repr=False)

    @cached_property
    def cost(self) -> float:
        """The expected number of messages, rounded up."""
        return up(self.law.cost())

    def encoder(self, context: int) -> csr_array:
        """Integer weights of each open request (row) and query (column) in a context.

        Column i sums to masses[i] exactly. Given the open request x, query i is drawn with probability entry / row sum.
        Rows of sensitive requests are empty: they draw from `masses` in every context.
        """
        from scipy.sparse import csr_array

        requests, sets, units = self.entries(context)
        return csr_array((units, (requests, sets)), shape=(self.state.chain.n, len(self.sets)))

    def entries(self, context: int) -> Entries:
        """The entries of `encoder` above 0, sorted by request and set."""
        if self.encoders is None or context not in self.contexts:
            raise PlanError(f"there is no encoder for the context {context!r}: the step has {list(self.contexts)}")
        requests, sets, units = self.encoders.entries(self.contexts.index(context))
        return np.flatnonzero(self.state.open_sources)[requests], sets, units

    def draw(self, request: int, context: int, randbelow: RandBelow = secrets.randbelow) -> Query:
        """Draw the query for `request` in `context`, the one secret act."""
        self.check(request, context)
        if request in self.state.sensitive:
            return self.sets[draw_index(self.law.mass, randbelow)]
        assert self.encoders is not None
        row = int(np.count_nonzero(self.state.open_sources[:request]))
        return self.sets[self.encoders.draw(self.contexts.index(context), row, randbelow)]

    def check(self, request: int, context: int) -> None:
        """Raise `ContextError` unless the request can happen in the context."""
        requests = self.state.requests
        if not (is_whole(context) and context < len(requests)):
            raise PlanError(f"there is no context {context!r}: the state has 0 to {len(requests) - 1}")
        if not (is_whole(request) and request < self.state.chain.n and requests[context, request]):
            known = is_whole(request) and request < self.state.chain.n
            name = self.state.chain.names[request] if known else request
            raise ContextError(
                f"the request {name!r} is impossible now: the chain never gets there from what was asked before; "
                "smooth the chain if it can happen",
                request=request,
            )

    def index(self, query: Query) -> int:
        """The query's position in `sets`."""
        try:
            return self.sets.index(tuple(query))
        except ValueError:
            raise PlanError(f"{query!r} is not a query of this step") from None

    def as_dict(self) -> dict[str, Any]:
        """Law and encoders for the record, exactly. They hold no secret."""
        return {
            "sets": [list(query) for query in self.sets],
            "masses": list(self.masses),
            "denominator": self.denominator,
            "lower_bound": self.lower_bound,
            "rounding": self.rounding,
            "encoders": {str(context): [part.tolist() for part in self.entries(context)] for context in self.contexts},
        }


def sensitive_sources(chain: Chain, sources: Iterable[int | str]) -> tuple[int, ...]:
    """Sources by index or by name, sorted. Raises `ChainError` for one that the chain does not have."""
    if isinstance(sources, str) or not isinstance(sources, Iterable):
        raise ChainError(f"the sensitive sources are {sources!r}: give a list of names", value=sources)
    found = set()
    for source in sources:
        index = chain.index(source) if isinstance(source, str) else source
        if not (is_whole(index) and index < chain.n):
            raise ChainError(
                f"the sensitive source {source!r} is unknown: give names, or 0 to {chain.n - 1}", value=source
            )
        found.add(int(index))
    return tuple(sorted(found))


def _text(data: bytes) -> str:
    return b64encode(data).decode("ascii")
