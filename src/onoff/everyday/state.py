"""The state between two steps: which contexts there may be, and what public things tell in each of them.

All of it is public. The reader's side of a step, with what is secret, is `onoff.client.protocol`.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from math import ceil, fsum, isfinite
from typing import Any, Self

import numpy as np

from onoff.errors import ChainError, PlanError
from onoff.everyday import filter as filters
from onoff.everyday.encoding import encoders
from onoff.everyday.laws import law_for
from onoff.everyday.merging import merged
from onoff.everyday.sharing import shared
from onoff.everyday.step import Step
from onoff.model.bounds import outer_bound
from onoff.model.chain import Chain
from onoff.model.powers import one_thread
from onoff.model.rounding import sum_up
from onoff.model.rows import RowTable
from onoff.schemes.law import DENOMINATOR
from onoff.types import Floats, Lengths, Mask, Query, is_whole

PRICE = 5e-4  # share of the least cost that may be spent on sharing flows
TOO_MUCH = 1e-6  # a rounding of this size means that a law does not fit its rows


@dataclass(frozen=True, eq=False)
class Everyday:
    """Context c has the row h_c = rows[c], the law of the next request given c and all queries, and its support.

    A context is the last thing that is hidden: a request made ON, or a sensitive one. `place[c]` is where the context
    c of the state before has gone, or -1; `joined[s]` is the context of readers whose request at the last step was s,
    if that is hidden, or -1. `spreads` bound the errors of rows (`onoff.everyday.filter`); `charge` is what merging
    contexts has cost at the last step, in total variation.
    """

    chain: Chain
    sensitive: tuple[int, ...]
    rows: Floats
    possible: Mask
    spreads: Floats
    place: tuple[int, ...]
    joined: tuple[int, ...]
    charge: float

    def __post_init__(self) -> None:
        for array in (self.rows, self.possible, self.spreads):
            array.setflags(write=False)

    @classmethod
    def start(cls, chain: Chain, sensitive: Iterable[int | str] = ()) -> Self:
        """The state after a step that was made ON: a context for every source, with its row of the chain."""
        found = merged(chain.P, chain.P > 0, np.zeros(chain.n))
        joined = tuple(map(int, found.place))
        hidden = sensitive_sources(chain, sensitive)
        return cls(chain, hidden, found.rows, found.possible, found.spreads, (), joined, found.charge)

    @property
    def contexts(self) -> range:
        """All contexts."""
        return range(len(self.rows))

    @cached_property
    def open_sources(self) -> Mask:
        """N: the sources that are not sensitive."""
        mask = np.ones(self.chain.n, dtype=bool)
        mask[list(self.sensitive)] = False
        return mask

    @cached_property
    def live(self) -> tuple[int, ...]:
        """The contexts in which an open request is possible; the others end at this step."""
        return tuple(map(int, np.flatnonzero(self.possible[:, self.open_sources].any(axis=1))))

    @cached_property
    def open_rows(self) -> Floats:
        """r_c for every live context, over the open sources."""
        return filters.restricted(self.rows[list(self.live)], self.open_sources)

    def context(self, request: int, context: int | None, private: bool) -> int:
        """The reader's context now: after `request`, made ON (`private`) or OFF in `context` of the state before."""
        if not (is_whole(request) and request < self.chain.n):
            raise PlanError(f"the request is {request!r}: the sources are 0 to {self.chain.n - 1}")
        if private and self.place:
            raise PlanError("this state does not follow a step that was made ON: take Everyday.start")
        if private or request in self.sensitive:
            found = self.joined[request]
        elif context is not None and is_whole(context) and context < len(self.place):
            found = self.place[context]
        else:
            found = -1
        if found < 0:
            raise PlanError(f"no reader in the context {context!r} can have asked for {request!r} at the last step")
        return found

    def prepare(self, weights: Lengths = None) -> Step:
        """The next step if it is made OFF: law and encoders, a function of this state and the weights alone.

        The law is a cheap one for the `weights` of all sources, which must be a function of public things. Without them
        messages are counted.
        """
        hidden, n = self.sensitive, int(self.open_sources.sum())
        prices = checked_weights(weights, self.chain.n)
        always = fsum(1.0 if prices is None else prices[source] for source in hidden)
        if not self.live:
            everyone = tuple(range(self.chain.n)) if n == 0 else hidden
            return Step(self, (), (everyone,), (DENOMINATOR,), DENOMINATOR, always, self.charge, None, prices)
        inside = None if prices is None else tuple(prices[x] for x in np.flatnonzero(self.open_sources))
        rows, possible = self.open_rows, self.possible[list(self.live)][:, self.open_sources]
        error = filters.error_of(float(self.spreads[list(self.live)].max()), n)
        outer = outer_bound(RowTable(self.live, rows, possible, error))
        sharing = shared(rows, PRICE * outer / n)
        held = ceil(sharing.e * DENOMINATOR)
        # A row of a group is at least 1 - e of one of a context: its bounds hold for contexts with that much less.
        groups = RowTable(tuple(range(len(sharing.rows))), sharing.rows, sharing.rows > 0, error + sharing.e)
        with one_thread():
            law, bound = law_for(groups, held, inside)
        found = encoders(law, rows, possible, sharing, held)
        rounding = sum_up(found.off_by(rows), error, self.charge)
        if rounding > TOO_MUCH and rounding > 2 * self.charge:
            raise ArithmeticError(f"the encoders of a step are off by {rounding}")
        member = np.ones((len(law.member), self.chain.n), dtype=bool)
        member[:, self.open_sources] = law.member
        sets = tuple(tuple(np.flatnonzero(row).tolist()) for row in member)
        least = outer if inside is None else outer_bound(RowTable(self.live, rows, possible, error), inside)
        # The sum of weights is rounded, the number of messages is not.
        lower = (always + max(least, bound)) * (1.0 if prices is None else 1 - 2.0**-50)
        masses = tuple(map(int, law.mass))
        return Step(self, self.live, sets, masses, law.total, lower, rounding, found, prices)

    def advance(self, step: Step, query: Query) -> Everyday:
        """The state after `query` was asked: rows move on, contexts of sensitive requests join, equal ones merge."""
        if not self.same(step.state):
            raise PlanError("the step was prepared for another state")
        index, n = step.index(query), self.chain.n
        edges = self.chain.P > 0
        rows, possible, spreads = np.empty((0, n)), np.empty((0, n), dtype=bool), np.empty(0)
        floor = 0.0
        if step.encoders is not None:
            units = step.encoders.column(index)
            beliefs = filters.conditioned(self.open_rows, units, np.maximum(step.encoders.totals, 1))
            known = np.count_nonzero(units, axis=1) == 1  # then the row is one of the chain's, whatever it was
            spreads = self.spreads[list(self.live)] + filters.spread_of_a_move(n)
            spreads[known] = filters.spread_of_a_move(n)
            possible = filters.reached(units > 0, edges[self.open_sources])
            with one_thread():
                rows, floor = filters.raised(filters.moved(beliefs, self.chain.P[self.open_sources]), possible)
        joining = [s for s in self.sensitive if self.possible[:, s].any()]
        found = merged(
            np.concatenate([rows, self.chain.P[joining]]),
            np.concatenate([possible, edges[joining]]),
            np.concatenate([spreads, np.zeros(len(joining))]),
        )
        place, joined = np.full(len(self.rows), -1), np.full(n, -1)
        place[list(self.live)] = found.place[: len(self.live)]
        joined[joining] = found.place[len(self.live) :]
        charge = sum_up(found.charge, floor) if floor else found.charge
        return type(self)(
            self.chain, self.sensitive, found.rows, found.possible, found.spreads,
            tuple(map(int, place)), tuple(map(int, joined)), charge,
        )  # fmt: skip

    def same(self, other: Everyday) -> bool:
        """Whether both states have the same rows, to the bit, for the same chain and sensitive sources."""
        return self is other or (
            self.chain == other.chain
            and self.sensitive == other.sensitive
            and np.array_equal(self.rows, other.rows)
            and np.array_equal(self.possible, other.possible)
            and np.array_equal(self.spreads, other.spreads)
            and self.charge == other.charge
        )

    def as_dict(self) -> dict[str, Any]:
        """The state for a journal, exact to the bit. It holds nothing secret."""
        return {
            "chain": self.chain.fingerprint,
            "sensitive": list(self.sensitive),
            "rows": _text(self.rows.astype("<f8").tobytes()),
            "possible": _text(np.packbits(self.possible).tobytes()),
            "spreads": _text(self.spreads.astype("<f8").tobytes()),
            "place": list(self.place),
            "joined": list(self.joined),
            "charge": self.charge.hex(),
        }

    @classmethod
    def from_dict(cls, chain: Chain, data: dict[str, Any]) -> Self:
        """The state that `as_dict` wrote. Raises `PlanError` if it is for another chain or is damaged."""
        if data.get("chain") != chain.fingerprint:
            raise PlanError("the state is for another chain")
        try:
            rows = np.frombuffer(b64decode(data["rows"]), "<f8").reshape(-1, chain.n)
            bits = np.unpackbits(np.frombuffer(b64decode(data["possible"]), np.uint8), count=rows.size)
            spreads = np.frombuffer(b64decode(data["spreads"]), "<f8")
            place, joined = tuple(map(int, data["place"])), tuple(map(int, data["joined"]))
            sensitive, charge = sensitive_sources(chain, data["sensitive"]), float.fromhex(data["charge"])
            fits = len(spreads) == len(rows) and len(joined) == chain.n
            if not fits or max(place + joined) >= len(rows) or min(place + joined) < -1:
                raise ValueError("its parts do not fit together")
        except (KeyError, TypeError, ValueError) as error:
            raise PlanError(f"the state is damaged: {error}") from None
        possible = bits.astype(bool).reshape(rows.shape)
        return cls(chain, sensitive, rows, possible, spreads, place, joined, charge)


def checked_weights(weights: Lengths, n: int) -> Lengths:
    """Weights of all sources. Raises `PlanError` if they are not positive numbers, one for each."""
    if weights is not None and (len(weights) != n or not all(isfinite(weight) and weight > 0 for weight in weights)):
        raise PlanError(f"weights are needed for {n} sources, all of them positive numbers")
    return weights


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
