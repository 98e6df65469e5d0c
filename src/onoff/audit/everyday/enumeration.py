"""All streams of a client, exactly.

After every past (the queries so far) the audit has Pr[past, hidden, memory, request] for every value of them, as an
integer in units of 2^-512. Every operation rounds down, so what is missing from the sum 1 is the whole error.

Of what is hidden only the part from the last ON step on is kept: the request of that step is known in it, and neither
later requests nor the client's memory depend on anything earlier once it is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from onoff.audit.everyday.checks import COARSE
from onoff.audit.everyday.clients import Client, Exhibit
from onoff.audit.everyday.record import Law
from onoff.audit.everyday.streams import Streams, Told
from onoff.audit.measures import information
from onoff.audit.models import TooLarge
from onoff.audit.setting import BITS, MISSING, ONE, fixed_matrix
from onoff.types import Query

if TYPE_CHECKING:
    from onoff.model.chain import Chain

Key = TypeVar("Key")
MOST = 150_000  # entries (past, hidden, memory, request) at one step
Past = tuple[Query, ...]
Readers = dict[tuple[tuple[Any, ...], Any, int], int]
Laws = dict[tuple[Any, ...], dict[Query, int]]


@dataclass(frozen=True, eq=False)
class _Node:
    """After a past: public things, and how likely each reader is. `since` are the queries after the last ON step."""

    since: Past
    public: Any
    readers: Readers
    stated: float = 0.0  # the sum of roundings since the last ON step
    charged: float = 0.0


class _Tree:
    """Public states by the queries since the last ON step: each is prepared once."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._states: dict[Past, Any] = {(): client.started()}

    def state(self, since: Past, before: Any, query: Query) -> Any:
        key = (*since, query)
        if key not in self._states:
            self._states[key] = self._client.after(before, self._client.ready(before), query)
        return self._states[key]

    @property
    def start(self) -> Any:
        return self._states[()]


def by_enumeration(
    chain: Chain,
    statuses: Sequence[bool],
    client: Client,
    sensitive: tuple[int, ...],
    start: NDArray[np.float64],
) -> Streams:
    """Every step exactly. Raises `TooLarge` if there are more than MOST entries."""
    walk = _Walk(chain, client, sensitive)
    total = sum(map(Fraction, start.tolist()))
    first = {((), None, x): int(ONE * Fraction(p) / total) for x, p in enumerate(start.tolist()) if p}
    now: dict[Past, _Node] = {(): _Node((), None, first)}
    steps, holds, faults = [], True, []
    slack = max(float(abs(1 - sum(map(Fraction, row), Fraction(0)))) for row in chain.P.tolist())
    for t, private in enumerate(statuses):
        found = _Found(sensitive, private, chain.n)
        after: dict[Past, _Node] = {}
        entries = 0
        for past, node in now.items():
            ready = None if private else client.ready(node.public)
            asked = walk.ask(node, ready, private)
            found.add(node, asked.laws, None if ready is None else ready.law, slack * (len(node.since) + 1))
            if t + 1 == len(statuses):
                continue
            for query, readers in asked.readers.items():
                child = walk.move(node, ready, private, query, readers)
                entries += len(child.readers)
                if entries > MOST:
                    raise TooLarge(f"{client.name}: more than {MOST} entries")
                after[(*past, query)] = child
        steps.append(found.told(t))
        holds &= found.holds
        faults += [fault for fault in found.faults if fault not in faults]
        now = after
    if not isinstance(client, Exhibit):
        return Streams(client.name, "exact (enumeration)", tuple(steps), None, tuple(faults))
    faults = [f"{fault.rule}: {fault.message}" for fault in client.faults] + faults
    return Streams(client.name, "exact (enumeration)", tuple(steps), holds and not faults, tuple(faults))


class _Asked(NamedTuple):
    """What is asked for after a past: the law of the query given what is hidden, and the readers behind each query."""

    laws: Laws
    readers: dict[Query, Readers]


class _Walk:
    """How readers ask and go on, from one past to those that follow it. Steps are ON if they are `private`."""

    def __init__(self, chain: Chain, client: Client, sensitive: tuple[int, ...]) -> None:
        self._client, self._sensitive, self._tree = client, sensitive, _Tree(client)
        self._moves = [[(y, int(p)) for y, p in enumerate(row) if p] for row in fixed_matrix(chain)]

    def ask(self, node: _Node, ready: Any, private: bool) -> _Asked:
        """Let all readers ask. `ready` is what the client has prepared if the step is OFF."""
        asked = _Asked({}, {})
        for (hidden, memory, x), p in node.readers.items():
            known = (x,) if private else (*hidden, x if x in self._sensitive else None)
            weights = self._client.on(x) if private else self._client.off(ready, x, memory)
            units = sum(weights.values())
            for query, weight in weights.items():
                mass = p * weight // units
                _add(asked.laws.setdefault(known, {}), query, mass)
                _add(asked.readers.setdefault(query, {}), (known, memory, x), mass)
        return asked

    def move(self, node: _Node, ready: Any, private: bool, query: Query, readers: Readers) -> _Node:
        """The node after a query of these readers: they remember it, and go on to their next requests."""
        public = self._tree.start if private else self._public(node, ready, query)
        moved: Readers = {}
        for (known, memory, x), p in readers.items():
            keeps = self._client.remembered(public, x, None if private else memory, private)
            for y, chance in self._moves[x]:
                _add(moved, (known, keeps, y), p * chance >> BITS)
        since = () if private else (*node.since, query)
        if ready is None:
            return _Node(since, public, moved)
        return _Node(since, public, moved, node.stated + ready.law.rounding, node.charged + ready.law.charge)

    def _public(self, node: _Node, ready: Any, query: Query) -> Any:
        """The next public state. A client that is wrong may send what its law does not have: it goes on, too."""
        law: Law | None = getattr(ready, "law", None)
        known = query if law is None or query in law.sets else law.sets[-1]
        return self._tree.state(node.since, node.public, known)


def _add(sums: dict[Key, int], key: Key, mass: int) -> None:
    sums[key] = sums.get(key, 0) + mass


class _Found:
    """What one step of all streams tells, gathered past by past."""

    def __init__(self, sensitive: tuple[int, ...], private: bool, n: int) -> None:
        self._sensitive, self._private = sensitive, private
        self._values = list(range(n)) if private else [*sensitive, None]
        self._bits = self._messages = self._average = self._stated = self._most = self._weight = 0.0
        self._distance: float | None = None
        self._before: list[list[int]] = []
        self.holds = True
        self.faults: list[str] = []

    def add(self, node: _Node, laws: Laws, law: Law | None, slack: float) -> None:
        """One past. `slack` is what rows of floats that do not quite sum to 1 may add to a distance."""
        total = sum(node.readers.values())
        asked = sum(sum(here.values()) for here in laws.values())
        if Fraction(total - asked, total) > MISSING:
            self._fault("query: a request that happens is given no query")
        by_request: dict[Any, int] = {}
        for (_, _, x), p in node.readers.items():
            value = x if self._private or x in self._sensitive else None
            by_request[value] = by_request.get(value, 0) + p
        self._before.append([by_request.get(value, 0) for value in self._values])
        if not asked:
            return
        queries = sorted({query for here in laws.values() for query in here})
        joint = np.array([[here.get(query, 0) for here in laws.values()] for query in queries], dtype=object)
        weight = float(Fraction(asked, ONE))
        self._weight += weight
        self._bits += weight * information(joint)
        sizes = sum(len(query) * int(row.sum()) for query, row in zip(queries, joint, strict=True))
        self._messages += float(Fraction(sizes, ONE))
        if law is not None:
            self._compare(node, laws, law, weight, slack)

    def _compare(self, node: _Node, laws: Laws, law: Law, weight: float, slack: float) -> None:
        stated = dict(zip(law.sets, law.masses, strict=True))
        asked = sum(sum(here.values()) for here in laws.values())
        furthest = mean = Fraction(0)
        for here in laws.values():
            own = sum(here.values())
            if own:
                apart = _apart(here, own, stated, law.denominator)
                furthest, mean = max(furthest, apart), mean + apart * Fraction(own, asked)
        self._distance = max(self._distance or 0.0, float(furthest))
        self._average += weight * float(mean)
        so_far = node.stated + law.rounding
        self._stated, self._most = self._stated + weight * so_far, max(self._most, so_far)
        if law.rounding > COARSE:
            self._fault(f"coarse: a rounding of {law.rounding:.1e} is stated: too much for one step")
        if node.charged + law.charge == 0 and furthest > Fraction(law.rounding) + Fraction(slack) + Fraction(MISSING):
            self.holds = False

    def _fault(self, message: str) -> None:
        if message not in self.faults:
            self.faults.append(message)

    def told(self, t: int) -> Told:
        """The step, gathered."""
        hidden = self._private or self._sensitive
        before = information(np.array(self._before, dtype=object)) if hidden else None
        if self._distance is None:
            return Told(t + 1, self._private, self._bits, before, self._messages)
        self.holds &= self._average <= 2 * self._stated + 2.0**-50
        numbers = self._distance, self._average / self._weight, self._stated / self._weight, self._most
        return Told(t + 1, self._private, self._bits, before, self._messages, *numbers)


def _apart(here: dict[Query, int], own: int, stated: dict[Query, int], denominator: int) -> Fraction:
    """The total variation between a law in units and the stated one."""
    both = sum(abs(here.get(query, 0) * denominator - stated.get(query, 0) * own) for query in {*here, *stated})
    return Fraction(both, 2 * own * denominator)
