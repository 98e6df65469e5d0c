"""The auditor's evidence of a draw: in the journal its random numbers, its law's digest and maker; and the record.

A digest is the hex SHA-256 of these numbers as 64-bit integers, the low byte first: how many sets there are, the length
of each, the members of all, and the masses. A table of the promise `both` adds the context (last, next) of its step, as
the number last * n + next, how many entries the encoder there has, and these entries sorted by request and set: all
requests, all positions of sets, all units. With the promise `past` a law and a row of the chain determine an encoder.

The record (`--record FILE`) has every law of the promise `past` with the encoders of all states that may be the
reader's. The client writes a law before it first draws from it: one JSON object a line, without any secret (no request,
no state of the reader, no query).

    {"format": "onoff-law", "version": 4, "stream": hex, "maker": hex, "chain": hex, "states": [0, ...], "law": {...}}

`law` is `StepLaw.as_dict`, `chain` the fingerprint of the chain, and `states` are those that may be the reader's. An
auditor finds the law of a step by these, the digest and the maker.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onoff.errors import OnoffError
from onoff.files import append_line, error_sentence
from onoff.model.powers import blas_pools

if TYPE_CHECKING:
    from onoff.past import StepLaw
    from onoff.plans.plan import Plan
    from onoff.schemes.law import Law

HEAD = b'{"format": "onoff-law", '  # how every line of a record begins


def law_line(stream: str, step: StepLaw) -> bytes:
    """The line of a law."""
    public = {"chain": step.candidates.chain.fingerprint, "states": list(step.candidates.states)}
    line = {"format": "onoff-law", "version": 4, "stream": stream, "maker": maker(), **public, "law": step.as_dict()}
    return json.dumps(line).encode() + b"\n"


def record(file: Path, line: bytes) -> None:
    """Append a line to the record. Raises `OnoffError` if that fails; then nothing was asked."""
    try:
        append_line(file, line, head=HEAD)
    except (OSError, OnoffError) as error:
        why = error_sentence(error) if isinstance(error, OSError) else error
        raise OnoffError(f"the law of a step cannot be recorded, and nothing was asked: {why}") from None


@cache
def maker() -> str:
    """Who makes laws here: a short hash of the versions and the processor, which determine their last digits."""
    pools = sorted(str(pool.get("architecture")) for pool in blas_pools())
    versions = [version(name) for name in ("onoff-privacy", "numpy", "scipy", "ortools")]
    return hashlib.sha256(json.dumps([versions, platform.machine(), pools]).encode()).hexdigest()[:16]


def law_digest(law: Law) -> str:
    """The digest of a law."""
    return str(_hash_law(law).hexdigest())


class PlanDigests:
    """Digests of plans in one context. Sets and masses of the newest plan are hashed once."""

    def __init__(self) -> None:
        self._plan: Plan | None = None

    def of(self, plan: Plan, last: int, next: int, lag: int) -> str | None:
        """The digest of a plan's table in one context; None for a race, which has none."""
        if plan.kind != "table":
            return None
        if plan is not self._plan:
            self._plan, self._law = plan, _hash_law(plan.law)
        entries = plan.entries(last, next, lag)  # type: ignore[attr-defined]
        requests, sets, units = entries
        digest = self._law.copy()
        head = [last * plan.n + next, len(units)]
        digest.update(np.concatenate([head, requests, sets, units], dtype="<i8").data)
        return str(digest.hexdigest())


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


def _hash_law(law: Law) -> Any:
    """Begin a hash with a law."""
    sets, members = np.nonzero(law.member)
    lengths = np.bincount(sets, minlength=len(law.mass))
    return hashlib.sha256(np.concatenate([[len(law.mass)], lengths, members, law.mass], dtype="<i8").data)
