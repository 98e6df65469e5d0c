"""`onoff check`: how soon it finds readers who do not follow the chain, how often it is wrong, and how long it takes.

The rival is what one would try first: a G-test of the transition counts against the chain, looked at after every tenth
request, as `status` is. Each of its looks has 1 % false alarms; all of them together have more.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import numpy as np
from scipy.stats import chi2

from common import dirichlet, show, timed
from onoff import Chain, follows

N, READERS, LENGTH = 8, 300, 300


def g_test(chain: Chain, path: np.ndarray) -> int | None:
    """After how many requests the rival raises its first alarm."""
    counts = np.zeros((chain.n, chain.n))
    for t, (last, x) in enumerate(pairwise(path), 2):
        counts[last, x] += 1
        if t % 10 == 0:
            seen = counts > 0
            expected = chain.P * counts.sum(axis=1, keepdims=True)
            g = 2 * (counts[seen] * np.log(counts[seen] / expected[seen])).sum()
            if g > chi2.ppf(0.99, (counts.sum(axis=1) > 0).sum() * (chain.n - 1)):
                return t
    return None


def cycle(rng: np.random.Generator) -> np.ndarray:
    return np.tile(rng.permutation(N)[:4], LENGTH)[:LENGTH]


def slipping(rng: np.random.Generator) -> np.ndarray:
    return np.where(rng.random(LENGTH) < 0.3, rng.integers(N, size=LENGTH), cycle(rng))


def shuffled(rng: np.random.Generator) -> np.ndarray:
    return np.concatenate([rng.permutation(N) for _ in range(LENGTH)])[:LENGTH]


def main() -> None:
    rng = np.random.default_rng(1)
    readers = {
        "follows the chain (false alarms)": None,
        "a, b, c, d in turn": cycle,
        "the same, 30 % of them anything": slipping,
        "all sources, shuffled, in rounds": shuffled,
    }
    rows = []
    for name, walk in readers.items():
        found: dict[str, list[float]] = {"ours": [], "rival": []}
        for _ in range(READERS):
            chain = Chain(rng.dirichlet(np.full(N, 20.0), N))
            path = chain.simulate(LENGTH, rng) if walk is None else walk(rng)
            found["ours"] += filter(None, [follows(chain, path).found_at])
            found["rival"] += filter(None, [g_test(chain, path)])
        cells: list[object] = [name]
        for places in found.values():
            cells += [f"{len(places) / READERS:.1%}", *np.percentile(places or [np.nan], [50, 99]).tolist()]
        rows.append(cells)
    headings = ["reader", "check: found", "median", "99 %", "G-test: found", "median", "99 %"]
    show(
        f"{READERS} readers of {N} sources, Dirichlet(20): found within {LENGTH} requests, after how many",
        headings,
        rows,
    )
    chain, sizes = dirichlet(17, 5.0), (1_000, 10_000, 100_000)
    seconds = [timed(partial(follows, chain, chain.simulate(size, rng)))[1] for size in sizes]
    show("seconds, 17 sources", ["requests", *map(str, sizes)], [["check", *seconds]])


if __name__ == "__main__":
    main()
