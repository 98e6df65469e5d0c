"""For how long a chain that was learned lasts: when does `onoff check` refute it although habits stay as they are?

A chain fitted to N requests differs from the true one, and with enough requests any difference is found. So no number
is enough for ever. Each reader makes N requests, a chain is fitted to them as `onoff fit` does, and the requests that
follow, of the same habits, are tested.
"""

from __future__ import annotations

import numpy as np

from common import dirichlet, show
from onoff import Chain, follows
from onoff.logs.fit import estimate
from onoff.model.misfit import FEW, requests_until_refit

READERS = 100
LATER = (0.5, 1, 2, 4)  # requests that are tested, as multiples of those that the chain is said to last


def onward(n: int, rng: np.random.Generator) -> Chain:  # noqa: ARG001
    """Often the same source again, or the next one of the catalogue."""
    return Chain(0.3 * np.eye(n) + 0.35 * np.roll(np.eye(n), 1, axis=1) + 0.35 / n)


HABITS = {
    "strong (rows of Dirichlet(.5))": lambda n, rng: dirichlet(n, 0.5, int(rng.integers(2**32))),
    "weak (Dirichlet(5))": lambda n, rng: dirichlet(n, 5.0, int(rng.integers(2**32))),
    "the same again, or the next one": onward,
}


def refuted_at(true: Chain, learned: int, tested: int, rng: np.random.Generator) -> float:
    """After how many requests of the same habits the fitted chain is refuted; infinity if it is not."""
    path = true.simulate(learned + 1 + tested, rng)
    counts, starts = np.zeros((true.n, true.n), np.int64), np.zeros(true.n, np.int64)
    np.add.at(counts, (path[:learned], path[1 : learned + 1]), 1)
    starts[path[0]] = 1
    return follows(estimate(counts, starts, list(true.names), 1.0), path[learned + 1 :]).found_at or np.inf


def main() -> None:
    rows = []
    for n in (4, 6, 10, 17, 40):
        for name, habits in HABITS.items():
            for each in (FEW, 75):
                rng, said = np.random.default_rng(1), requests_until_refit(each * n, n)
                most = int(max(LATER) * said)
                found = np.array([refuted_at(habits(n, rng), each * n, most, rng) for _ in range(READERS)])
                shares = [f"{(found <= part * said).mean():.0%}" for part in LATER]
                rows.append([n, name, f"{each * n:,}", f"{said:,}", *shares])
    title = "share of readers whose chain is refuted after so many times the requests that it is said to last"
    show(title, ["n", "habits", "learned from", "said to last", *(f"{part:g}" for part in LATER)], rows)


if __name__ == "__main__":
    main()
