"""Weights by which a client says that its laws are cheap, computed again from what is public.

A client states lengths l_x and chances c_x that a source changes from one step to the next. A source that the queries
so far asked for g steps ago then weighs l_x max(1/100, 1 - (1 - c_x)^g), or l_x if no chances are stated. Any weights
make a law that is as private, unless they depend on what is requested. So what is stated must be what the journal
remembers for that step, and it may change only where the journal says that it did.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

LEAST = 0.01


@dataclass(frozen=True)
class Weights:
    """What a client states: the length of each source, and the chance that it changes; None if all count whole."""

    lengths: tuple[float, ...]
    chances: tuple[float, ...] | None

    def at(self, gaps: Sequence[int]) -> tuple[float, ...]:
        """The weight of each source that was asked for so many steps ago, to the bit."""
        if self.chances is None:
            return self.lengths
        return tuple(
            length * max(LEAST, 1.0 - _stays(chance, gap))
            for length, chance, gap in zip(self.lengths, self.chances, gaps, strict=True)
        )


def weights_of(stated: Any) -> Weights | None:
    """The weights in a line of a record or a note of a journal. Raises `ValueError` if they are none."""
    if stated is None:
        return None
    if isinstance(stated, list):
        stated = {"lengths": stated, "chances": None}
    if not isinstance(stated, Mapping) or set(stated) != {"lengths", "chances"}:
        raise ValueError("weights have lengths and chances")
    lengths, chances = stated["lengths"], stated["chances"]
    if not _numbers(lengths) or not all(0 < length < math.inf for length in lengths):
        raise ValueError("lengths are positive numbers")
    if chances is not None and not (_numbers(chances) and len(chances) == len(lengths)):
        raise ValueError("there is a chance for every length")
    if chances is not None and not all(0 <= chance <= 1 for chance in chances):
        raise ValueError("chances are from 0 to 1")
    return Weights(tuple(map(float, lengths)), None if chances is None else tuple(map(float, chances)))


def weights_digest(weights: Weights | None) -> str:
    """What a journal keeps of earlier lengths: SHA-256 of the note that they were."""
    text = "null"
    if weights is not None:
        lengths, chances = list(weights.lengths), weights.chances
        text = json.dumps(lengths if chances is None else {"lengths": lengths, "chances": list(chances)})
    return hashlib.sha256(text.encode()).hexdigest()


def changes(stated: Mapping[int, Weights | None]) -> list[int]:
    """The steps at which other lengths or chances are stated than at the recorded step before."""
    steps = sorted(stated)
    return [step for before, step in pairwise(steps) if stated[before] != stated[step]]


def _numbers(found: Any) -> bool:
    return isinstance(found, list) and all(type(number) in (int, float) for number in found)


def _stays(chance: float, gap: int) -> float:
    """(1 - chance)^gap by squaring, from the lowest bit of the gap on: the order decides how it is rounded."""
    square, product = 1.0 - chance, 1.0
    for bit in reversed(f"{gap:b}"):
        product = product * square if bit == "1" else product
        square *= square
    return product
