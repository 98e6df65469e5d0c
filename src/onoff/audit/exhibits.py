"""The laws of the client's draws, as exhibits: recorded laws, laws that its code makes again, and plans.

The audit believes none of them: `replay` checks that each law keeps the promise, and that the draw follows it. The
journal keeps the digest of every law. A recorded law with another digest is wrong. A remade law with another digest
comes from another machine or version, and is left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from onoff.audit.files import Journal, json_lines, natural, readable, source_set
from onoff.audit.habits import serve
from onoff.audit.law import Law, LawLine
from onoff.audit.rules import ANEW, due_steps
from onoff.errors import OnoffError
from onoff.model.chain import Chain
from onoff.types import Units


def plan_laws(chain: Chain, journal: Journal, plans: Mapping[str, Any]) -> Iterator[LawLine]:
    """Ask plans for the encoders in the contexts of a journal's OFF steps; left out are those of another digest."""
    law = cache(lambda name: Law(plans[name].sets, plans[name].masses))
    for step, due in zip(journal.steps, due_steps(journal.steps, True), strict=True):
        plan, last, next = plans.get(step.plan), due.last, step.next
        if due.lag and plan is not None and plan.kind == "table" and last is not None and next is not None:
            encoders = {}
            with suppress(OnoffError, TypeError):
                units = np.asarray(plans[step.plan].encoder(last, next, due.lag).toarray())
                encoders = {last * chain.n + next: units.astype(np.int64, casting="safe")}
            same = law_digest(law(step.plan), encoders) == step.digest
            yield LawLine(step.step, law(step.plan), encoders if same else {}, (), ())


def remade_laws(chain: Chain, journal: Journal, engine: Any) -> Iterator[LawLine]:
    """Make the laws of a journal's OFF steps again, from public things: chains, sensitive sources and the queries.

    `engine(chain)` is the client's state after an ON step; without it there are no laws. After a set that is not one of
    its law none can be made before the next ON step.
    """
    if engine is None:
        return
    served, _ = serve(chain, journal)
    dues = due_steps(journal.steps, False, chain.depth, served=served)
    state, known = None, chain
    for step, due, then in zip(journal.steps, dues, served[1:], strict=True):
        if then.changed:  # by other rows for the same states, or by a Markov chain that was learned
            P = then.chain.P
            known = Chain(P, chain.names, states=chain.states if len(P) == len(chain.P) else None)
        if step.plan == ANEW:
            state = None
        if due.lag == 0 and (then.due or not due.counts):
            state = None
        elif due.lag == 0:
            state = engine(known) if state is None else state.after_full_set()
        elif state is not None:
            ready = state.prepare()
            yield law_line(step.step, ready.as_dict(), state.place, state.joined, chain.n)
            state = state.advance(ready, step.query) if step.query in ready.sets else None
        state = replace(state, chain=known) if state is not None and then.changed else state


def read_laws(file: Path, stream: str, chain: Chain) -> Iterator[LawLine]:
    """Read the laws of one stream from a record, step by step and without keeping them; the last of a step counts.

    A client that was killed before it began a step records its law again. Half a line, left by a crash, is passed over:
    its law must be in another line.
    """
    kept = None
    for number, data in json_lines(file):
        if data is None or (isinstance(data, dict) and data.get("stream") not in (None, stream)):
            continue
        with readable(f"{file}: line {number} is not one of a record of laws"):
            if (data["format"], data["version"]) != ("onoff-law", 3):
                raise ValueError("it does not say 'onoff-law', version 3: record another stream")
            found = law_line(natural(data["step"]), data["law"], data["place"], data["joined"], chain.n)
            if len(found.joined) not in (chain.n, len(chain.states)):
                raise ValueError(f"{len(found.joined)} states are not those of the chain")
            if kept is not None and found.step < kept.step:
                raise ValueError(f"step {found.step} comes after step {kept.step}")
        if kept is not None and found.step > kept.step:
            yield kept
        kept = found
    if kept is not None:
        yield kept


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
        table = encoders[natural(int(context))] = np.zeros((n, len(stated.sets)), dtype=np.int64)
        table[requests, positions] = units
    return LawLine(stated, encoders, law["certificate"])


def _array(numbers: Any) -> Units:
    """Whole numbers of 64 bits."""
    found = np.array(numbers, dtype=None if numbers else np.int64)
    if found.ndim != 1 or found.dtype != np.int64:
        raise ValueError("a list of whole numbers is needed")
    return found


def law_digest(law: Law, encoders: Mapping[int, Units]) -> str:
    """The SHA-256 of a law with its encoders by context, as journals note it: little-endian integers of 64 bits.

    The number of sets; of each set its length and members; the masses; of each context, ascending, its number, the
    number of its entries above 0, and these as three runs (requests, positions, units) in the order of the table.
    """
    found = _hash(law).copy()
    for context in sorted(encoders):
        requests, positions = np.nonzero(encoders[context])
        entries = encoders[context][requests, positions]
        found.update(np.concatenate([[context, len(entries)], requests, positions, entries]).astype("<i8").tobytes())
    return str(found.hexdigest())


@lru_cache(8)
def _hash(law: Law) -> Any:
    """The hash of sets and masses, with which every digest of this law begins."""
    sets = [number for query in law.sets for number in (len(query), *query)]
    return hashlib.sha256(np.array([len(law.sets), *sets, *law.masses], dtype="<i8").tobytes())
