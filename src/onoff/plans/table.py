"""The plan with a table: a law, and an exact encoder for every context, computed when it is needed."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from onoff.errors import PlanError
from onoff.model.bounds import sum_up, up
from onoff.model.chain import Chain
from onoff.model.posterior import Posterior, WalkedPosterior, Walks
from onoff.plans.plan import Plan
from onoff.schemes import tables
from onoff.schemes.certificate import Certificate
from onoff.schemes.encoder import Encoder, Entries, LawEncoder
from onoff.schemes.law import DENOMINATOR, Drawn, Law
from onoff.schemes.realise import SCREEN_FROM, misses_a_context
from onoff.schemes.sinkhorn import screen_of, unsure
from onoff.types import Floats, PlanName, Query, RandBelow

if TYPE_CHECKING:
    from scipy.sparse import csr_array


@dataclass(frozen=True)
class TablePlan(Drawn, Plan):
    """The query is sets[i] with probability masses[i] / denominator, in every context exactly.

    The last set is the full one and has at least n units. `certificate` proves `lower_bound`. It is `verified` once
    every context was checked, by `verify` or by the maker of the law.
    """

    kind: ClassVar[str] = "table"
    scheme: str
    chain: Chain
    lag: int
    law: Law
    certificate: Certificate
    verified: bool = field(default=False, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.check()
        if self.scheme not in tables():
            raise PlanError(f"{self.scheme!r} is not a scheme with a table: {', '.join(tables())} are")
        if len(set(self.sets)) != len(self.sets):
            raise PlanError("no set may come twice")
        if self.sets[-1] != tuple(range(self.n)) or self.masses[-1] < self.n:
            raise PlanError(f"the last set must be the full one, with at least {self.n} units")
        if self.denominator > DENOMINATOR:
            raise PlanError(f"the masses sum to {self.denominator}, and at most {DENOMINATOR} is taken")
        if self.cost < self.lower_bound * (1 - 1e-9):
            raise PlanError(f"the cost {self.cost} is below its own lower bound {self.lower_bound}")

    def __reduce__(self) -> tuple[Any, ...]:
        return (*super().__reduce__(), {"verified": self.verified})

    @cached_property
    def identity(self) -> PlanName:
        """Scheme, lag and the beginning of a hash of the table."""
        digest = hashlib.sha256(json.dumps([self.sets, self.masses]).encode()).hexdigest()
        return PlanName(self.scheme, self.lag, digest[:12])

    @cached_property
    def cost(self) -> float:
        """Expected number of messages, rounded up."""
        return up(self.law.cost())

    @property
    def lower_bound(self) -> float:
        """Lower bound on every cost, proved by `certificate`."""
        return self.certificate.bound

    @property
    def posterior(self) -> Posterior:
        """Law of the request in every context, at the lag of the plan."""
        return self._posterior(self.lag)

    def rounding_at(self, lag: int) -> float:
        """Bound the total variation between the rows of an encoder and the exact posterior.

        Of the mass of the law n units are held out, and at most n are lost by rounding supplies down. Where a row mixes
        rounded rows, or slack was used, n more are lost, and another n because a row of floats does not quite sum to 1.
        Beyond that, only the errors of the rows count.
        """
        lag = self.served_lag(lag)
        return sum_up(4 * self.n / self.denominator, self._mixing(lag), self._posterior(lag).total_variation)

    def encoder(self, last: int, next: int, lag: int | None = None) -> csr_array:
        """Compute the integer weights of request (row) and set (column) in a context, at this lag or a larger.

        Column i sums to masses[i] exactly, row x is within `rounding_at(lag)` of denominator * p(x | last, next), and
        every possible request has a positive row. Given the request x, set i is drawn with probability entry / row sum.
        """
        from scipy.sparse import csr_array

        requests, sets, units = self.entries(last, next, lag)
        return csr_array((units, (requests, sets)), shape=(self.n, len(self.sets)))

    def entries(self, last: int, next: int, lag: int | None = None) -> Entries:
        """List the entries of `encoder` above 0, by request and set."""
        return self._encoded(last, next, self.served_lag(lag)).entries

    def draw(
        self, request: int, last: int, next: int, lag: int | None = None, randbelow: RandBelow = secrets.randbelow
    ) -> Query:
        """Draw the query for `request` in the context (last, next), at the plan's lag or a larger one."""
        lag = self.served_lag(lag)
        self._posterior(lag).check(request, last, next)
        return self.sets[self._encoded(last, next, lag).draw(request, randbelow)]

    def vouch(self) -> None:
        """Note that every context was checked."""
        object.__setattr__(self, "verified", True)

    def verify(self) -> None:
        """Check every context, unless already done. Raises `PlanError` if the law is not realisable in one.

            in every possible context at the lag of the plan, of the D - n flowing units at most 2n are left over,
            and no set but the full one misses all possible requests of a context

        Then no draw at this lag or a larger one can fail, for any request. A row at a larger lag mixes rows at
        this lag, which leaves no more units over. Rounding the row leaves at most n more.
        """
        if self.verified:
            return
        missing = np.flatnonzero(misses_a_context(self.posterior, self.law.member[:-1]))
        if len(missing):
            raise PlanError(f"the set {self.sets[missing[0]]} holds no possible request in some context")
        for following, row in self._uncertain():
            left = self._law_encoder.left_over(row)
            if left > 2 * self.n:
                raise PlanError(
                    f"the law of this plan is not realisable before {self.chain.names[following]!r}: {left} of "
                    f"{self.denominator} units are left over; make the plan anew"
                )
        self.vouch()

    def _uncertain(self) -> Iterator[tuple[int, Floats]]:
        """Yield each `next` and its rows that need a flow: no scaling certifies them with the full set's help."""
        slack = (self.masses[-1] - self.n) / (self.denominator - self.n)
        screen = None
        if self.n > SCREEN_FROM and 0 < slack < 1:
            screen = screen_of(Law(self.law.member[:-1], self.law.mass[:-1]), slack)
        for following in range(self.n):
            rows = self.posterior.group(following)
            if len(rows) and screen is not None:
                rows = rows[unsure(screen, rows)]
            yield from ((following, row) for row in rows)

    @cached_property
    def _posterior(self) -> Callable[[int], Posterior]:
        walks = Walks(self.chain)

        def posterior(lag: int) -> Posterior:
            return Posterior(self.chain, lag) if lag == self.lag else WalkedPosterior(self.chain, lag, walks)

        return lru_cache(maxsize=4)(posterior)

    @cached_property
    def _law_encoder(self) -> LawEncoder:
        return LawEncoder(self.law)

    @cached_property
    def _encoded(self) -> Callable[[int, int, int], Encoder]:
        """`_encode`, which remembers the newest context: a client draws from it and then notes its digest."""
        return lru_cache(maxsize=1)(self._encode)

    def _encode(self, last: int, next: int, lag: int) -> Encoder:
        """Encode a context. `PlanError` if the rows are off by more than `rounding_at` allows."""
        posterior = self._posterior(lag)
        possible, row = posterior.possible(last, next), posterior.row(last, next)
        found = self._law_encoder.encode(row, possible)
        if found.off_by(row) > (4 * self.n + 1) / self.denominator + self._mixing(lag):
            raise PlanError(
                f"the law of this plan is not realisable at lag {lag}: an encoder is off by {found.off_by(row):.3g}; "
                "make the plan anew"
            )
        return found

    def _mixing(self, lag: int) -> float:
        """Bound what row errors leave over at a larger lag, whose exact rows mix those of the plan's lag."""
        return 0.0 if lag == self.lag else self.posterior.relative_error + self._posterior(lag).relative_error
