"""One prepared OFF step: the law of the query and its encoders, made of public things only."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from onoff.errors import ContextError, PlanError
from onoff.model.rounding import up
from onoff.types import Lengths, Query, RandBelow, is_whole

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from onoff.everyday.encoding import Encoders
    from onoff.everyday.state import Everyday


@dataclass(frozen=True, eq=False)
class Step:
    """The query is sets[i] with probability masses[i] / denominator, whatever is hidden.

    Every set holds all sensitive sources. `contexts` are those in which an open request is possible; each has an
    encoder. `lower_bound` is proved for every law that serves them. Costs are in messages, or sums of the `weights` of
    the sources in a set.

    `rounding` is the units that encoders are off by, the accumulated error of rows, and what merging contexts has cost
    just before this step. The sum over all steps of a stream bounds the total variation between the joint law of all
    that is hidden and all queries, and that of a process for which the promise holds exactly. Where nothing unequal was
    merged, it also bounds the law of this query given what is hidden and any past.
    """

    state: Everyday
    contexts: tuple[int, ...]
    sets: tuple[Query, ...]
    masses: tuple[int, ...]
    denominator: int
    lower_bound: float
    rounding: float
    encoders: Encoders | None = field(repr=False)
    weights: Lengths = None

    @property
    def cost(self) -> float:
        """The expected cost of the query, rounded up."""
        return self.cost_in(self.weights)

    def cost_in(self, lengths: Lengths) -> float:
        """The expected number of messages, or sum of their lengths, rounded up."""
        held = [0] * self.state.chain.n
        for query, mass in zip(self.sets, self.masses, strict=True):
            for source in query:
                held[source] += mass
        prices = [Fraction(1)] * len(held) if lengths is None else [Fraction(length) for length in lengths]
        total = sum((price * mass for price, mass in zip(prices, held, strict=True)), Fraction(0))
        return up(total / self.denominator)

    def encoder(self, context: int) -> csr_array:
        """The joint integer weights of an open request (row) and the query (column) in a context.

        Column i sums to masses[i] exactly. Given the open request x, query i is drawn with probability entry / row sum.
        Rows of sensitive requests are empty: they draw from `masses` in every context.
        """
        from scipy.sparse import csr_array

        if self.encoders is None or context not in self.contexts:
            raise PlanError(f"there is no encoder for the context {context!r}: the step has {list(self.contexts)}")
        table = self.encoders.table(self.contexts.index(context)).tocoo()
        sources = np.flatnonzero(self.state.open_sources)
        return csr_array((table.data, (sources[table.row], table.col)), shape=(self.state.chain.n, len(self.sets)))

    def draw(self, request: int, context: int, randbelow: RandBelow = secrets.randbelow) -> Query:
        """The query for `request` in `context`. The one secret act."""
        self.check(request, context)
        if request in self.state.sensitive:
            units = np.array(self.masses, dtype=np.int64)
        else:
            assert self.encoders is not None
            column = int(np.count_nonzero(self.state.open_sources[:request]))
            units = self.encoders.row(self.contexts.index(context), column)
        ends = np.cumsum(units)
        return self.sets[int(np.searchsorted(ends, randbelow(int(ends[-1])), side="right"))]

    def check(self, request: int, context: int) -> None:
        """Raise `ContextError` unless the request can happen in the context."""
        possible = self.state.possible
        if not (is_whole(context) and context < len(possible)):
            raise PlanError(f"there is no context {context!r}: the state has 0 to {len(possible) - 1}")
        if not (is_whole(request) and request < self.state.chain.n and possible[context, request]):
            known = is_whole(request) and request < self.state.chain.n
            name = self.state.chain.names[request] if known else request
            raise ContextError(
                f"the request {name!r} is impossible now: the chain never gets there from what was asked before; "
                "smooth the chain if it can happen",
                last=context,
                next=-1,
                request=request,
            )

    def index(self, query: Query) -> int:
        """Which of the sets the query is."""
        try:
            return self.sets.index(tuple(query))
        except ValueError:
            raise PlanError(f"{query!r} is not a query of this step") from None

    def as_dict(self) -> dict[str, Any]:
        """Law and encoders for the record, exactly. They hold no secret."""
        tables = {context: self.encoder(context).tocoo() for context in self.contexts}
        return {
            "sets": [list(query) for query in self.sets],
            "masses": list(self.masses),
            "denominator": self.denominator,
            "lower_bound": self.lower_bound,
            "rounding": self.rounding,
            "encoders": {
                str(context): [table.row.tolist(), table.col.tolist(), table.data.tolist()]
                for context, table in tables.items()
            },
        }
