"""The laws of the client's draws, as exhibits: recorded laws, laws that its code makes again, and plans.

The audit believes none of them: `replay` checks that each law keeps the promise, that the request did not choose it,
and that the draw follows it. The journal keeps the digest of every law.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onoff.audit.files import Journal, Step, json_lines, natural, readable, source_set
from onoff.audit.law import Law, LawLine
from onoff.errors import OnoffError
from onoff.model.chain import Chain
from onoff.types import Query, Units

if TYPE_CHECKING:
    from onoff.audit.habits import Recorded
    from onoff.audit.rules import Due

KEPT = 64  # laws of `past` in memory: large ones have megabytes


class PlanLaws:
    """The laws of the promise `both`, from plans by their names."""

    def __init__(self, chain: Chain, plans: Mapping[str, Any]) -> None:
        self._n, self._plans = chain.n, plans
        self._law = cache(lambda name: Law(plans[name].sets, plans[name].masses))

    def line(self, step: Step, due: Due) -> LawLine | None:
        """The law of a step with the encoder of its context; without that if the journal has another digest."""
        plan, last, next = self._plans.get(step.plan), due.last, step.next
        if plan is None or plan.kind != "table" or last is None or next is None:
            return None
        law, encoders = self._law(step.plan), {}
        with suppress(OnoffError, TypeError):
            units = np.asarray(plan.encoder(last, next, due.lag).toarray())
            encoders = {last * self._n + next: units.astype(np.int64, casting="safe")}
        return LawLine(law, encoders if law_digest(law, encoders) == step.digest else {})


class PastLaws:
    """The laws of a journal of the promise `past`: those that are recorded in a file, and those that are made again.

    `engine(chain, sensitive, states)` makes the law of a public state with the installed code, whose mark is `maker`.
    Half a line, left by a crash, is passed over: its law must be in another line.
    """

    def __init__(self, chain: Chain, journal: Journal, record: Path | None, engine: Any, maker: str | None) -> None:
        self._chain, self._sensitive, self._record = chain, journal.sensitive, record
        self._engine, self.maker = engine, maker
        self._places: dict[tuple[Any, ...], int] = {}
        for number, place, data in () if record is None else json_lines(record):
            if data is None or (isinstance(data, dict) and data.get("stream") not in (None, journal.stream)):
                continue
            with readable(f"{record}: line {number} is not one of a record of laws"):
                if (data["format"], data["version"]) != ("onoff-law", 4):
                    raise ValueError("it does not say 'onoff-law', version 4: record another stream")
                states = tuple(map(natural, data["states"]))
                known = data["maker"], data["chain"], states, law_line(data["law"], chain.n).digest
                self._places.setdefault(known, place)
        self._known = cache(self._as_chain)
        self.recorded: Callable[..., LawLine | None] = lru_cache(KEPT)(self._read)
        self.remade: Callable[[Recorded, Query], LawLine | None] = lru_cache(KEPT)(self._remake)

    def _read(self, maker: str, chain: Recorded, states: Query, digest: str) -> LawLine | None:
        place = self._places.get((maker, self._known(chain).fingerprint, states, digest))
        if self._record is None or place is None:
            return None
        with self._record.open("rb") as lines:
            lines.seek(place)
            return law_line(json.loads(lines.readline())["law"], self._chain.n)

    def _remake(self, chain: Recorded, states: Query) -> LawLine | None:
        if self._engine is None:
            return None
        return law_line(self._engine(self._known(chain), self._sensitive, states).as_dict(), self._chain.n)

    def _as_chain(self, recorded: Recorded) -> Chain:
        """A chain of other rows for the same states, or a Markov chain that was learned."""
        own = self._chain
        states = own.states if len(recorded.P) == len(own.states) else None
        return own if recorded.P is own.P else Chain(recorded.P, own.names, states=states)


def law_line(law: Mapping[str, Any], n: int) -> LawLine:
    """Make a law of its dictionary as recorded. Raises `ValueError` if its parts do not fit together."""
    stated = Law(tuple(source_set(query, n) for query in law["sets"]), tuple(map(natural, law["masses"])))
    if not stated.denominator or len(stated.sets) != len(stated.masses):
        raise ValueError(f"{len(stated.sets)} sets have {len(stated.masses)} masses, which sum to {stated.denominator}")
    encoders = {}
    for context, parts in law["encoders"].items():
        requests, positions, units = map(_array, parts)
        same = len(requests) == len(positions) == len(units) > 0 and min(requests.min(), positions.min()) >= 0
        if not same or requests.max() >= n or positions.max() >= len(stated.sets):
            raise ValueError(f"the encoder of context {context} has parts that do not fit together")
        encoders[natural(int(context))] = requests, positions, units
    proof = law["certificate"]
    cuts = tuple(
        (source_set(cut, n), natural(weight)) for cut, weight in zip(proof["cuts"], proof["weights"], strict=True)
    )
    return LawLine(stated, Tables((n, len(stated.sets)), encoders), cuts, law_digest(stated))


class Tables(Mapping[int, Units]):
    """Encoders by context, kept as their entries: requests, positions and units."""

    def __init__(self, shape: tuple[int, int], entries: Mapping[int, tuple[Units, Units, Units]]) -> None:
        self._shape, self._entries = shape, entries

    def __getitem__(self, context: int) -> Units:
        requests, positions, units = self._entries[context]
        table = np.zeros(self._shape, dtype=np.int64)
        table[requests, positions] = units
        return table

    def __iter__(self) -> Iterator[int]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def _array(numbers: Any) -> Units:
    """Whole numbers of 64 bits."""
    found = np.array(numbers, dtype=None if numbers else np.int64)
    if found.ndim != 1 or found.dtype != np.int64:
        raise ValueError("a list of whole numbers is needed")
    return found


def law_digest(law: Law, encoders: Mapping[int, Units] | None = None) -> str:
    """The SHA-256 of these integers of 64 bits, the low byte first, as journals note it.

    The number of sets; the length of each; the members of all; the masses. For the promise `both` also, of each
    context, its number, the number of its entries above 0, and these as three runs: requests, positions, units.
    """
    found = _hash(law).copy()
    for context, units in sorted((encoders or {}).items()):
        requests, positions = np.nonzero(units)
        entries = units[requests, positions]
        found.update(np.concatenate([[context, len(entries)], requests, positions, entries]).astype("<i8").tobytes())
    return str(found.hexdigest())


@lru_cache(8)
def _hash(law: Law) -> Any:
    """The hash of sets and masses, with which every digest of this law begins."""
    members = [x for query in law.sets for x in query]
    return hashlib.sha256(np.array([len(law.sets), *map(len, law.sets), *members, *law.masses], dtype="<i8").tobytes())
