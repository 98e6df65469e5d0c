"""The states of habits with memory: a suffix tree.

A state is the sequence of the last requests, oldest first, as far as they matter. The reader's state is the longest
suffix of all requests so far that is a state. The set of states is closed under dropping the first request of a state
and under dropping the last: then the state after the request x is the longest suffix of (state, x) that is a state, and
nothing older is needed. A Markov chain is the case in which every state is one request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onoff.errors import ChainError

State = tuple[int, ...]
MOST = 2000  # states of habits with memory


def check_states(states: Iterable[Sequence[int]], names: Sequence[str]) -> list[State]:
    """Check that the states are closed and hold all single sources."""
    n = len(names)
    found = [tuple(map(int, state)) for state in states]
    if len(found) > max(n, MOST):
        raise ChainError(f"there are {len(found)} contexts: at most {MOST} can be served", value=len(found))
    known = set(found)
    for row, state in enumerate(found):
        if not state or not all(0 <= x < n for x in state):
            raise ChainError(f"context {row} is {state}: at least one source is needed, from 0 to {n - 1}", row=row)
        for shorter in (state[1:], state[:-1]):
            if shorter and shorter not in known:
                after, before = describe_state(state, names), describe_state(shorter, names)
                raise ChainError(f"there is a row after {after}, but none after {before}", row=row)
    if len(known) < len(found):
        twice = next(state for row, state in enumerate(found) if state in found[:row])
        raise ChainError(f"there are two rows after {describe_state(twice, names)}", row=found.index(twice))
    for x in range(n):
        if (x,) not in known:
            raise ChainError(f"there is no row after {describe_state((x,), names)}")
    return found


def describe_state(state: Iterable[int], names: Sequence[str]) -> str:
    """Describe a state."""
    return " -> ".join(repr(names[x]) if 0 <= x < len(names) else f"source {x}" for x in state)


def in_order(states: Sequence[State]) -> list[int]:
    """Order states as a chain keeps them: single sources first, then by length."""
    return sorted(range(len(states)), key=lambda row: (len(states[row]), states[row]))


def longest_suffix(places: Mapping[State, int], history: State) -> int:
    """Find the place of a history's longest suffix that is a state."""
    return next(places[history[start:]] for start in range(len(history)) if history[start:] in places)


def steps(states: Sequence[State], n: int) -> NDArray[np.intp]:
    """[z, x]: the state after the request x in state z."""
    if len(states) == n:
        return np.broadcast_to(np.arange(n), (n, n))
    places = {state: z for z, state in enumerate(states)}
    found = [longest_suffix(places, (*state, x)) for state, x in product(states, range(n))]
    return np.array(found, dtype=np.intp).reshape(len(states), n)


def parse_contexts(contexts: Any, names: Sequence[str]) -> tuple[list[State], list[Any]]:
    """Parse a file's `contexts`: [{"after": [oldest, ..., last], "row": [...]}, ...]."""
    places = {name: x for x, name in enumerate(names) if isinstance(name, str)}
    states, rows = [], []
    if not isinstance(contexts, list):
        raise ChainError('"contexts" must be a list of rows, each with what it comes "after"')
    for number, context in enumerate(contexts):
        after, row = (context.get("after"), context.get("row")) if isinstance(context, dict) else (None, None)
        if not (isinstance(after, list) and isinstance(row, list)):
            words = f'context {number} needs "after", a list of sources, and "row", a list of numbers'
            raise ChainError(words, row=number)
        for name in after:
            if not (isinstance(name, str) and name in places):
                raise ChainError(f"context {number} comes after {name!r}, and no source is called so", row=number)
        if len(row) != len(names):
            words = f"the row after {' -> '.join(map(repr, after))} has {len(row)} numbers for {len(names)} sources"
            raise ChainError(words, row=number, value=len(row))
        states.append(tuple(places[name] for name in after))
        rows.append(row)
    return states, rows
