"""People and the server that learned from others like them: sequences of requests, in two halves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from onoff.audit.real.replay import halves
from onoff.audit.real.secondorder import Path, SecondOrder, counted
from onoff.errors import OnoffError
from onoff.model.chain import Chain

MOST_SOURCES = 60  # the server's beliefs are tables of n^3 numbers, its work is n^4 for every request
SERVERS = ("second order", "the chain")


@dataclass(frozen=True)
class People:
    """The sequences as indices of names; `unknown` and `impossible` count those cut at a source or at a step."""

    names: tuple[str, ...]
    paths: list[Path]
    unknown: int
    impossible: int


@dataclass(frozen=True)
class Split:
    """People to be attacked, and two `servers` that learned from `training` others; `chain` is the client's."""

    chain: Chain
    attacked: list[Path]
    training: int
    servers: dict[str, SecondOrder]
    unknown: int
    impossible: int


def people(
    sequences: Iterable[Sequence[str]], chain: Chain | None = None, min_length: int = 6, max_length: int = 200
) -> People:
    """The sequences of a fitting length. One with a source or step that the chain does not have ends before it."""
    index = {} if chain is None else {name: i for i, name in enumerate(chain.names)}
    paths, unknown, impossible = [], 0, 0
    for words in sequences:
        if not min_length <= len(words) <= max_length:
            continue
        if chain is None:
            path = [index.setdefault(word, len(index)) for word in words]
        else:
            path = [index.get(word, -1) for word in words]
            cut = next((t for t, x in enumerate(path) if x < 0), len(path))
            unknown += cut < len(path)
            path = path[:cut]
            allowed = chain.P[path[:-1], path[1:]] > 0
            if not allowed.all():
                impossible += 1
                path = path[: int(np.argmin(allowed)) + 1]
        if len(path) >= min_length:
            paths.append(np.array(path, dtype=np.intp))
    if len(paths) < 4:
        raise OnoffError(
            f"{len(paths)} sequences of {min_length} to {max_length} requests are left, after {unknown} were "
            f"cut at sources and {impossible} at steps that the chain does not have; give more sequences, other limits "
            "or another chain"
        )
    if len(index) > MOST_SOURCES:
        raise OnoffError(
            f"{len(index)} sources: the attack keeps n^3 numbers and takes up to {MOST_SOURCES}; merge some"
        )
    return People(tuple(index), paths, unknown, impossible)


def split(found: People, chain: Chain | None = None, users: int = 2000, seed: int = 1) -> Split:
    """One half of the people, at random, for the servers to learn from, and up to `users` of the other half.

    Without a chain the client has the one that is counted in the first half.
    """
    training, attacked = halves(found.paths, np.random.default_rng(seed))
    used = chain or Chain.from_counts(counted(training, len(found.names), 2), found.names)
    fitted = SecondOrder.fit(training, used.P > 0)
    servers = dict(zip(SERVERS, (fitted, SecondOrder.of_chain(used, fitted.start)), strict=True))
    return Split(used, attacked[:users], len(training), servers, found.unknown, found.impossible)
