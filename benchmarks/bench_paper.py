"""The paper's scheme: ours against a literal transcription of Steps 1 to 5, from n = 10 to n = 100."""

from __future__ import annotations

import sys
from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from common import dirichlet, peak_gigabytes, show, timed
from onoff import bounds
from onoff.schemes.paper import paper

LITERAL_LIMIT = 40  # the text stores up to n^6 positions
Position = tuple[tuple[int, ...], int, int]


def literal(rows: NDArray[np.float64]) -> dict[Position, float]:
    """Steps 1 to 5 as they are written: every position (z, x, u) of F and its value g."""
    m, n = rows.shape
    order = np.argsort(rows, axis=0, kind="stable")
    lam = np.vstack([np.zeros(n), np.sort(rows, axis=0)])
    M = np.maximum(rows - lam[n - 1], 0)
    g: dict[Position, float] = defaultdict(float)
    for level in range(1, n):
        for x in range(n):
            mass = lam[level, x] - lam[level - 1, x]
            lower, upper = order[: level - 1, x], order[level - 1 :, x]
            queues: list[list[list[float]]] = []
            for u in lower:  # Step 2
                need, queue = mass, []
                for e in range(n):
                    value = min(need, M[u, e])
                    if value > 0:
                        queue.append([e, value])
                        M[u, e] -= value
                        need -= value
                queues.append(queue)
            left = mass
            while left > 1e-15:  # Step 3: push out the smallest front
                fronts = [queue[0] for queue in queues if queue]
                nu = min([left] + [front[1] for front in fronts])
                zeta = [int(front[0]) for front in fronts]
                z = tuple(sorted([*zeta, x]))
                for u in upper:  # Step 4
                    g[z, x, int(u)] += nu
                for u, e in zip(lower, zeta, strict=False):
                    g[z, e, int(u)] += nu
                for queue in queues:
                    if queue:
                        queue[0][1] -= nu
                        if queue[0][1] <= 1e-16:
                            queue.pop(0)
                left -= nu
    full = tuple(range(n))
    for u in range(m):
        for x in range(n):
            if M[u, x] > 0:
                g[full, x, u] = float(M[u, x])
    return g


def main() -> None:
    table = []
    paper(dirichlet(5, 5).posterior(1))  # the first call pays for what NumPy loads
    for n in (10, 20, 30, 40, 60, 80, 100):
        posterior = dirichlet(n, 5).posterior(1)
        scheme, seconds = timed(lambda posterior=posterior: paper(posterior))  # type: ignore[misc]
        stored = sum(len(atom.others) for atom in scheme.atoms)
        row: list[object] = [n, seconds, len(scheme.atoms), stored, float(scheme.cost), float(bounds(posterior).outer)]
        if n <= LITERAL_LIMIT:
            rows = posterior.rows
            g, slow = timed(lambda rows=rows: literal(rows))  # type: ignore[misc]
            cost = sum(len(set(z)) * mass for (z, _, u), mass in g.items() if u == 0)
            assert abs(cost - scheme.cost) < 1e-9, "the two disagree"
            row += [slow, len(g), f"{slow / seconds:.0f}x"]
        else:
            row += ["-", "-", "-"]
        table.append(row)
    show(
        "The paper's scheme, Dirichlet(5) rows, lag 1 (target: n=100 in 5 s)",
        ["n", "seconds", "atoms", "numbers kept", "cost", "outer bound", "literal: seconds", "positions", "ours"],
        table,
    )
    print(f"peak memory {peak_gigabytes():.2f} GB; n^6 at n=100 would be 10^12 positions", file=sys.stderr)


if __name__ == "__main__":
    main()
