"""The fuse (`onoff.past.habits`): how often it blows for honest readers, and how soon for reloads in a fixed order.

Every query has one source here, so the servers know each request and the one before it: then bets are made. Honest
readers follow ten feeds with Dirichlet(1) habits. Their chain is exact, learned by the client, or fitted with a weight
of 400 transitions. "Sharp" habits are Dirichlet(.1): hardly ever more than two or three successors. Reloads begin after
a chain was learned from honest requests, or after that and a thousand further honest requests.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np
from joblib import Parallel, delayed

from common import show
from onoff import Chain
from onoff.model.powers import one_thread
from onoff.past.habits import Habits

FEEDS, REQUESTS, FITTED, LATER = 10, 2000, 400, 1000
HONEST = ("exact", "learned", "fitted", "learned from sharp habits")
RELOADS = ("in the order of the list", "in any order", "in any order, later")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=20, help="of each kind")
    parser.add_argument("--requests", type=int, default=REQUESTS, help="of each honest stream")
    told = parser.parse_args()
    work = [(kind, seed) for seed in range(told.streams) for kind in (*HONEST, *RELOADS)]
    ends = Parallel(n_jobs=-1)(delayed(blown_at)(kind, seed, told.requests) for kind, seed in work)
    found = {kind: [end for (each, _), end in zip(work, ends, strict=True) if each == kind] for kind in dict(work)}
    rows = [[f"honest, the chain is {kind}", told.streams, blown(found[kind]), "", ""] for kind in HONEST]
    for kind in RELOADS:
        numbers = [np.inf if end is None else end for end in found[kind]]
        rows.append([f"reloads {kind}", told.streams, blown(found[kind]), np.median(numbers), max(numbers)])
    title = f"Streams over {FEEDS} feeds, honest ones of {told.requests} requests; requests until the fuse blows"
    show(title, ["stream", "streams", "blown", "median", "most"], rows)


def blown(ends: list[int | None]) -> int:
    return sum(end is not None for end in ends)


def blown_at(kind: str, seed: int, requests: int) -> int | None:
    """The number of the request at which the fuse of one stream blows; None if it does not."""
    rng = np.random.default_rng(seed)
    P = rng.dirichlet(np.full(FEEDS, 0.1 if "sharp" in kind else 1.0), FEEDS)
    with one_thread():
        if kind in RELOADS:
            order, habits, last = (
                np.arange(FEEDS) if kind == RELOADS[0] else rng.permutation(FEEDS),
                learned(P, rng),
                None,
            )
            for source in Chain(P).simulate(LATER, rng).tolist() if kind == RELOADS[2] else ():
                habits, last = habits.after_query(last, (source,)), source
            return followed(habits, last, [int(order[t % FEEDS]) for t in range(10 * FEEDS)])
        path = Chain(P).simulate(requests, rng).tolist()
        return followed({"exact": exact, "fitted": fitted}.get(kind, learned)(P, rng), None, path)


def followed(habits: Habits, last: int | None, path: list[int]) -> int | None:
    for number, source in enumerate(path, 1):
        before, habits, last = habits, habits.after_query(last, (source,)), source
        if habits.stage == "all" or (before.chain.weight is None and habits.chain.weight is not None):
            return number  # or the stated chain gives way to one of the counts
    return None


def exact(P: np.ndarray, rng: np.random.Generator) -> Habits:  # noqa: ARG001
    return Habits(Chain(P), "known")


def learned(P: np.ndarray, rng: np.random.Generator) -> Habits:
    habits, last = Habits(Chain(np.full(P.shape, 1 / FEEDS)), "learning"), None
    for source in Chain(P).simulate(REQUESTS, rng).tolist():
        if habits.stage != "learning":
            break
        habits, last = habits.after_learning(last, source, private=False), source
    return replace(habits, stage="known")


def fitted(P: np.ndarray, rng: np.random.Generator) -> Habits:
    """As `onoff fit` makes it: counts with a smoothing of 0.5."""
    path = Chain(P).simulate(FITTED + 1, rng)
    counts = np.full(P.shape, 0.5)
    np.add.at(counts, (path[:-1], path[1:]), 1)
    return Habits(Chain(counts / counts.sum(axis=1, keepdims=True), weight=counts.sum(axis=1)), "known")


if __name__ == "__main__":
    main()
