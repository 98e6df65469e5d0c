"""How clients choose their queries, as the server may know it: p(q | request, last, next) at every lag.

Two of them leak on purpose and live here only: `Naive`, which the paper calls time-sharing, and `Decoys`, which is
what people do today.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations
from math import comb
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

import numpy as np
from numpy.typing import NDArray

from onoff.errors import ContextError, OnoffError, PlanError
from onoff.types import Query

if TYPE_CHECKING:
    from scipy.sparse import csc_array

    from onoff.model.chain import Chain
    from onoff.plans.plan import Plan
    from onoff.plans.table import TablePlan

MEMORY = 2**28  # bytes of encoders that are kept
CELLS = 10**7  # sources times sets: the largest encoder of decoys that is written down


class TooLarge(OnoffError):
    """There is too much to write down or to enumerate."""


@dataclass(frozen=True)
class Encoder:
    """One context: given the request x, sets[i] is sent with probability weights[x, i] / weights[x].sum()."""

    sets: tuple[Query, ...]
    weights: NDArray[np.int64]


class Model(Protocol):
    """The rules of a client, as somebody who knows them sees it. A lag of 0 means that privacy is ON."""

    @property
    def name(self) -> str: ...
    def encoder(self, last: int, next: int, lag: int) -> Encoder:
        """The exact probabilities in one context; an error if the context is impossible."""
        ...

    def likelihood(self, query: Query, lag: int) -> NDArray[np.float64]:
        """p(query | last, request, next) as an array with these three axes; axes that do not matter have length 1."""
        ...


@dataclass(frozen=True)
class Everything:
    """Asks for the full set, always."""

    n: int
    name: str = "everything"

    def encoder(self, last: int, next: int, lag: int) -> Encoder:  # noqa: ARG002
        return Encoder((tuple(range(self.n)),), np.ones((self.n, 1), dtype=np.int64))

    def likelihood(self, query: Query, lag: int) -> NDArray[np.float64]:  # noqa: ARG002
        return np.full((1, 1, 1), float(len(query) == self.n))


@dataclass(frozen=True)
class Naive:
    """Asks for everything while ON and openly while OFF: the paper's time-sharing."""

    n: int
    name: str = "naive"

    def encoder(self, last: int, next: int, lag: int) -> Encoder:
        if lag == 0:
            return Everything(self.n).encoder(last, next, lag)
        return Encoder(tuple((x,) for x in range(self.n)), np.eye(self.n, dtype=np.int64))

    def likelihood(self, query: Query, lag: int) -> NDArray[np.float64]:
        if lag == 0:
            return Everything(self.n).likelihood(query, lag)
        likelihood = np.zeros((1, self.n, 1))
        if len(query) == 1:
            likelihood[0, query[0], 0] = 1.0
        return likelihood


@dataclass(frozen=True)
class Decoys:
    """Asks for the wanted source and `count` others, drawn uniformly and afresh at every step, ON or OFF."""

    n: int
    count: int
    name: str = "decoys"

    def __post_init__(self) -> None:
        if not 0 < self.count < self.n:
            raise OnoffError(f"{self.count} decoys among {self.n} sources: at least 1 and fewer than the sources")

    def encoder(self, last: int, next: int, lag: int) -> Encoder:  # noqa: ARG002
        if self.n * comb(self.n, self.count + 1) > CELLS:
            raise TooLarge(f"{self.count} decoys among {self.n} sources: too many sets to write them down")
        sets = tuple(combinations(range(self.n), self.count + 1))
        weights = np.zeros((self.n, len(sets)), dtype=np.int64)
        for i, query in enumerate(sets):
            weights[list(query), i] = 1
        return Encoder(sets, weights)

    def likelihood(self, query: Query, lag: int) -> NDArray[np.float64]:  # noqa: ARG002
        likelihood = np.zeros((1, self.n, 1))
        if len(query) == self.count + 1:
            likelihood[0, list(query), 0] = 1 / comb(self.n - 1, self.count)
        return likelihood

    def draw(self, request: int, rng: np.random.Generator) -> Query:
        """A set as `encoder` says, however many there are."""
        others = rng.choice(self.n - 1, self.count, replace=False)
        return tuple(sorted([request, *(int(x) + (x >= request) for x in others)]))


@dataclass(frozen=True)
class Planned:
    """Draws from a plan with a table while OFF; the plan serves its own lag and every larger one."""

    plan: TablePlan
    _columns: Callable[[int], csc_array] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        n, sets = self.plan.n, len(self.plan.sets)
        one_lag = 16 * n**2 * (2 * n + sets)  # a flow uses about one edge for each set and source
        object.__setattr__(self, "_columns", lru_cache(maxsize=max(1, MEMORY // one_lag))(self._table))

    @property
    def name(self) -> str:
        return self.plan.name

    @property
    def chain(self) -> Chain:
        return self.plan.chain

    def encoder(self, last: int, next: int, lag: int) -> Encoder:
        if lag == 0:
            return Everything(self.plan.n).encoder(last, next, lag)
        return Encoder(self.plan.sets, self.plan.encoder(last, next, lag).toarray())

    def likelihood(self, query: Query, lag: int) -> NDArray[np.float64]:
        n = self.plan.n
        if lag == 0:
            return Everything(n).likelihood(query, lag)
        try:
            column = self.plan.sets.index(query)
        except ValueError:
            return np.zeros((1, 1, 1))
        cube: NDArray[np.float64] = self._columns(lag)[:, [column]].toarray().reshape(n, n, n)
        return cube.transpose(0, 2, 1)

    def _table(self, lag: int) -> Any:
        """All encoders of a lag below each other, as probabilities: row (last, next, request), column the set.

        A context for which the plan has no encoder sends nothing: what was sent there cannot come from the plan.
        """
        from scipy.sparse import csr_array, vstack

        n = self.plan.n
        if lag < self.plan.lag:
            raise PlanError(f"a plan for lag {self.plan.lag} does not serve lag {lag}")
        blocks = []
        for last in range(n):
            for following in range(n):
                try:
                    joint = self.plan.encoder(last, following, lag).astype(np.float64)
                except (ContextError, PlanError):  # the chain calls it impossible, or the law is not realisable there
                    blocks.append(csr_array((n, len(self.plan.sets))))
                    continue
                joint.eliminate_zeros()  # most edges carry nothing: keeping them would take gigabytes at 60 sources
                total = joint.sum(axis=1)
                joint.data /= np.repeat(np.where(total > 0, total, 1.0), np.diff(joint.indptr))
                blocks.append(joint)
        return vstack(blocks, format="csc")


def has_table(plan: Plan) -> TypeGuard[TablePlan]:
    """Whether the plan has encoders, by what it offers: one without, such as a race, can only be drawn from."""
    return callable(getattr(plan, "encoder", None))


def planned(plans: Iterable[Plan]) -> dict[str, Planned]:
    """The models of a client with these plans, by the names that its journal gives them; of those with a table."""
    return {plan.name: Planned(plan) for plan in plans if has_table(plan)}
