"""The auditor's evidence of a draw: its random numbers and the digest of its law in the journal, and the record of
laws.

A digest is the hex SHA-256 of these numbers as 64-bit integers, the low byte first: how many sets there are; for each
set its length and its members; the masses; then for every context, ascending, its number, how many entries its encoder
has, and these entries sorted by request and set: all requests, all positions of sets, all units.

The promise `past` has one digest for all contexts of a step, which is public. A table of the promise `both` has one for
the context (last, next) alone, with the number last * n + next.

The record (`--record FILE`) has the law and the encoders of every OFF step of the promise `past`, noted before the step
is begun: one JSON object a line, without any secret (no request, no context, no query).

    {"format": "onoff-law", "version": 3, "stream": hex, "step": t, "place": [...], "joined": [...], "law": {...}}

`place` and `joined` are those of the state in which the step was prepared (`onoff.past.PastState`), and `law` is
`StepLaw.as_dict`. A step that was recorded but not begun, because the client was killed, is recorded again: the last
line of a step counts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onoff.errors import OnoffError
from onoff.files import append_line, error_sentence
from onoff.types import Query, Units

if TYPE_CHECKING:
    from onoff.past import StepLaw
    from onoff.plans.plan import Plan

Entries = tuple[int, Units, Units, Units]  # a context with the requests, the positions of sets and the units


HEAD = b'{"format": "onoff-law", '  # how every line of a record begins


def law_line(stream: str, number: int, step: StepLaw) -> bytes:
    """The line of a prepared step."""
    state = step.state
    line = {
        "format": "onoff-law",
        "version": 3,
        "stream": stream,
        "step": number,
        "place": list(state.place),
        "joined": list(state.joined),
        "law": step.as_dict(),
    }
    return json.dumps(line).encode() + b"\n"


def record(file: Path, line: bytes) -> None:
    """Append a line to the record. Raises `OnoffError` if that fails; then nothing was asked."""
    try:
        append_line(file, line, head=HEAD)
    except (OSError, OnoffError) as error:
        why = error_sentence(error) if isinstance(error, OSError) else error
        raise OnoffError(f"the law of a step cannot be recorded, and nothing was asked: {why}") from None


def step_digest(step: StepLaw) -> str:
    """The digest of a prepared step of the promise `past`: its law and the encoders of all contexts."""
    return _digest(_hash_law(step.sets, step.masses), ((context, *step.entries(context)) for context in step.contexts))


class PlanDigests:
    """Digests of plans in one context. Sets and masses of the newest plan are hashed once."""

    def __init__(self) -> None:
        self._plan: Plan | None = None

    def of(self, plan: Plan, last: int, next: int, lag: int) -> str | None:
        """The digest of a plan's table in one context; None for a race, which has none."""
        if plan.kind != "table":
            return None
        if plan is not self._plan:
            self._plan, self._law = plan, _hash_law(plan.law.sets, plan.law.masses)
        entries = plan.entries(last, next, lag)  # type: ignore[attr-defined]
        return _digest(self._law.copy(), [(last * plan.n + next, *entries)])


def numbers_text(numbers: Sequence[tuple[int, int]]) -> str:
    """The random numbers of a draw as JSON, [[bound, number], ...], equally long whatever the numbers are.

    Races have larger bounds than JSON's readers take. The bounds of clocks are written as 2^k, where k is above 256 and
    follows from the chain. Those for an earlier request have at most 256 bits and are padded to 256, since they, and
    whether one is a power of two, may depend on the request.
    """
    return "[" + ",".join(map(_pair, numbers)) + "]"


def _pair(pair: tuple[int, int]) -> str:
    bound, number = pair
    if bound < 1 << 63:
        return json.dumps(pair).ljust(len("[, ]") + 2 * 19)
    bits = bound.bit_length() - 1
    if bits > 256:
        return f'["2^{bits}", "0x{number:0{-(-bits // 4)}x}"]'
    return f'["0x{bound:x}", "0x{number:x}"]'.ljust(len('["0x", "0x"]') + 2 * 65)


def _hash_law(sets: Sequence[Query], masses: Sequence[int]) -> Any:
    """Begin the hash of a law; add contexts to it."""
    flat = [len(sets)]
    for query in sets:
        flat += [len(query), *query]
    return hashlib.sha256(np.array([*flat, *masses], dtype="<i8").data)


def _digest(law: Any, contexts: Iterable[Entries]) -> str:
    for number, *parts in contexts:
        law.update(np.concatenate([[number, len(parts[0])], *parts], dtype="<i8").data)
    return str(law.hexdigest())
