"""The plan with a table: sets, integer masses, and an exact encoder for every context, computed when it is needed."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from onoff.errors import PlanError
from onoff.model.chain import Chain
from onoff.model.posterior import Posterior
from onoff.model.rounding import sum_up, up
from onoff.model.walks import WalkedPosterior, Walks
from onoff.plans.base import Plan
from onoff.schemes import tables
from onoff.schemes.certificate import Certificate
from onoff.schemes.law import DENOMINATOR, Law
from onoff.schemes.realisation.network import Network, supplies
from onoff.types import Floats, Lengths, PlanName, Query, RandBelow, Units

if TYPE_CHECKING:
    from scipy.sparse import csr_array


@dataclass(frozen=True)
class TablePlan(Plan):
    """The query is sets[i] with probability masses[i] / denominator, in every context exactly.

    The last set is the full one and has at least n units. `certificate` proves `lower_bound`.
    """

    kind: ClassVar[str] = "table"
    scheme: str
    chain: Chain
    lag: int
    sets: tuple[Query, ...]
    masses: tuple[int, ...]
    denominator: int
    certificate: Certificate
    lengths: Lengths = None
    _lock: Lock = field(default_factory=Lock, init=False, repr=False, compare=False)  # one flow at a time
    _realisable: bool = field(default=False, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.check()
        if self.scheme not in tables():
            raise PlanError(f"{self.scheme!r} is not a scheme with a table: {', '.join(tables())} are")
        n = self.n
        if len(self.sets) != len(self.masses) or len(set(self.sets)) != len(self.sets):
            raise PlanError("there must be one mass for each set, and no set twice")
        for query, mass in zip(self.sets, self.masses, strict=True):
            if not query or list(query) != sorted({x for x in query if type(x) is int and 0 <= x < n}):
                raise PlanError(f"{query!r} is not a sorted set of sources 0 to {n - 1}")
            if type(mass) is not int or mass <= 0:
                raise PlanError(f"the mass of {query} is {mass!r}: a positive integer is needed")
        if self.sets[-1] != tuple(range(n)) or self.masses[-1] < n:
            raise PlanError(f"the last set must be the full one, with at least {n} units")
        if sum(self.masses) != self.denominator or self.denominator > DENOMINATOR:
            raise PlanError(f"the masses sum to {sum(self.masses)}, not to the denominator {self.denominator}")
        if self.cost < self.lower_bound * (1 - 1e-9):
            raise PlanError(f"the cost {self.cost} is below its own lower bound {self.lower_bound}")

    def __reduce__(self) -> tuple[Any, ...]:
        return (*super().__reduce__(), {"_realisable": self._realisable})

    @property
    def known_realisable(self) -> bool:
        """Whether its maker, or `verify`, has looked at every context. A plan read from a file is not known to be."""
        return self._realisable

    def verify(self) -> None:
        """Look at every context; `PlanError` if one cannot be drawn from."""
        from onoff.plans.realisable import check

        check(self)
        self.vouch()

    def vouch(self) -> None:
        """Note that every context has been looked at: by `verify`, or by whoever made the law."""
        object.__setattr__(self, "_realisable", True)

    @cached_property
    def identity(self) -> PlanName:
        """Scheme, lag and the beginning of a hash of the table."""
        digest = hashlib.sha256(json.dumps([self.sets, self.masses]).encode()).hexdigest()
        return PlanName(self.scheme, self.lag, digest[:12])

    @cached_property
    def law(self) -> Law:
        """The sets as a boolean matrix with their masses."""
        return Law.of_sets(self.sets, self.masses, self.n)

    @cached_property
    def cost(self) -> float:
        """The expected download, rounded up."""
        return up(self.law.cost(self.lengths))

    @property
    def lower_bound(self) -> float:
        """What no scheme can go below, as the certificate proves."""
        return self.certificate.bound

    def rounding_at(self, lag: int) -> float:
        """A proved bound on the total variation between the rows of an encoder and the exact posterior.

        Of the mass of the law n units are held out, and at most n are lost by rounding supplies down. Where a row mixes
        rounded rows, or slack was used, n more are lost, and another n because a row of floats does not quite sum to 1.
        Beyond that, only the errors of the rows count.
        """
        own = self._posterior(self.lag)
        lag = self.served_lag(lag)
        units = 4 * self.n / self.denominator
        if lag == self.lag:
            return sum_up(units, own.total_variation)
        there = self._posterior(lag)
        return sum_up(units, own.relative_error, there.relative_error, there.total_variation)

    def encoder(self, last: int, next: int, lag: int | None = None) -> csr_array:
        """The joint integer weights of request (row) and set (column) in a context, at this lag or a larger one.

        Column i sums to masses[i] exactly, row x is within `rounding_at(lag)` of denominator * p(x | last, next), and
        every possible request has a positive row. Given the request x, set i is drawn with probability entry / row sum.
        """
        from scipy.sparse import csr_array

        units = self._units(last, next, self.served_lag(lag))
        shape = (self.n, len(self.sets))
        return csr_array((units, (self._network.source_of, self._network.set_of)), shape=shape)

    def draw(
        self, request: int, last: int, next: int, lag: int | None = None, randbelow: RandBelow = secrets.randbelow
    ) -> Query:
        """The query for `request` in the context (last, next), at the lag of the plan or a larger one."""
        lag = self.served_lag(lag)
        self._posterior(lag).check(request, last, next)
        edges = np.flatnonzero(self._network.source_of == request)
        ends = np.cumsum(self._units(last, next, lag)[edges])
        chosen = np.searchsorted(ends, randbelow(int(ends[-1])), side="right")
        return self.sets[self._network.set_of[edges[chosen]]]

    @property
    def posterior(self) -> Posterior:
        """What the request may be, at the lag of the plan."""
        return self._posterior(self.lag)

    def left_over(self, row: Floats) -> int:
        """How many units a flow of this posterior row, at the lag of the plan, leaves over."""
        with self._lock:
            self._network.ship(supplies(row, self.denominator - self.n))
            return int((self._flowing - self._network.filled()).sum())

    @cached_property
    def _posterior(self) -> Callable[[int], Posterior]:
        walks = Walks(self.chain)

        def posterior(lag: int) -> Posterior:
            return Posterior(self.chain, lag) if lag == self.lag else WalkedPosterior(self.chain, lag, walks)

        return lru_cache(maxsize=4)(posterior)

    @cached_property
    def _flowing(self) -> Units:
        """The masses without the n units of the full set that are held out for the requests, however unlikely."""
        flowing = self.law.mass.copy()
        flowing[-1] -= self.n
        return flowing

    @cached_property
    def _network(self) -> Network:
        return Network(self.law.member, self._flowing)

    @cached_property
    def _first_edge(self) -> NDArray[np.intp]:
        """Where the edges of each set begin; the full set, being the last, has the last n."""
        return np.concatenate([[0], np.cumsum([len(query) for query in self.sets])])

    def _units(self, last: int, next: int, lag: int) -> Units:
        """The units on every edge of the network: the encoder of a context (docs/explanation/theory.md, "Integers")."""
        posterior, network = self._posterior(lag), self._network
        possible = posterior.possible(last, next)
        with self._lock:  # a flow and its reading belong together
            network.ship(supplies(posterior.row(last, next), self.denominator - self.n))
            units = network.edges()
            left = self._flowing - network.filled()
        self._check_left(int(left.sum()), posterior)
        for i in np.flatnonzero(left):  # a few units of a few sets: to a possible member
            members = slice(self._first_edge[i], self._first_edge[i + 1])
            candidates = np.flatnonzero(possible[network.source_of[members]])
            if not len(candidates):
                raise PlanError(f"the set {self.sets[i]} holds no possible request in the context ({last}, {next})")
            units[members.start + candidates[0]] += left[i]
        held = possible.astype(np.int64)
        held[np.argmax(possible)] += self.n - int(held.sum())
        units[-self.n :] += held
        return units

    def _check_left(self, left: int, posterior: Posterior) -> None:
        """No more may be left than `rounding_at` accounts for: else the law does not fit this chain."""
        error = 0.0
        if posterior.lag > self.lag:
            error = self._posterior(self.lag).relative_error + posterior.relative_error
        if left > 3 * self.n + error * self.denominator:
            raise PlanError(
                f"the law of this plan is not realisable at lag {posterior.lag}: {left} of {self.denominator} units "
                "are left over; make the plan anew"
            )
