"""The optimal law of symmetric chains: one value of P on a permutation, one elsewhere.

Then P^lag is of that kind too, and the posterior row of (i, k) is special at two sources, one given by i and one by
k, each bijectively: relabelling the sources permutes the rows. Averaging a law over all relabellings keeps its cost,
so some optimal law depends on the size of the set only: n unknowns, n rows. It is then thinned to a few orbits of the
rotation, and repaired like any other law.
"""

from __future__ import annotations

import math
from contextlib import suppress
from math import comb

import numpy as np

from onoff.model.bounds import is_symmetric
from onoff.model.posterior import Posterior
from onoff.model.powers import times
from onoff.schemes import Proposal, Task
from onoff.schemes.certificate import Certificate, outer_certificate, size_certificate, sizes_reached
from onoff.schemes.law import Law, Member, as_matrix
from onoff.schemes.realise import realise
from onoff.types import Floats, Query


def propose(task: Task) -> Proposal | None:
    """The optimum of a symmetric chain; None if it is another one, or time runs out."""
    if is_symmetric(task.posterior.chain):
        with suppress(TimeoutError):
            if (found := symmetric_law(task.posterior, task.gap, task.deadline)) is not None:
                return Proposal("optimal", *found)
    return None


def symmetric_law(posterior: Posterior, gap: float, deadline: float = math.inf) -> tuple[Law, Certificate] | None:
    """An optimal law of a symmetric chain, or None if no small table of sets comes within `gap`."""
    n = posterior.n
    reached = sizes_reached(posterior)
    masses, multipliers = size_law(reached)
    error = 2 * posterior.relative_error
    proof = max(outer_certificate(posterior), size_certificate(multipliers, reached, error), key=lambda c: c.bound)
    rng = np.random.default_rng(0)
    count = 2
    while count <= max(n, 64):
        sizes = [int(size) for size in np.flatnonzero(masses) + 1]
        parts = [_orbits(n, size, count, rng) for size in sizes]
        shares = [np.full(len(sets), masses[size - 1] / len(sets)) for sets, size in zip(parts, sizes, strict=True)]
        law = realise(posterior, np.concatenate(parts), np.concatenate(shares), deadline=deadline)
        if float(law.cost()) <= proof.bound * (1 + gap):
            return law, proof
        count *= 2
    return None


def size_law(reached: Floats) -> tuple[Floats, Floats]:
    """Masses of the sizes 1..n that minimise the mean size, and multipliers of `reached`, pi(C) by |C|.

    A set of k sources, uniform among those of its size, meets C with probability 1 - binom(n-c, k) / binom(n, k).
    """
    from scipy.optimize import linprog

    n = len(reached)
    sizes = np.arange(1, n + 1)
    meets = np.array([[1 - comb(n - c, k) / comb(n, k) for k in sizes.tolist()] for c in sizes.tolist()])
    full = (n * reached[0] - 1) / (n - 1)
    masses = np.zeros(n)
    masses[0], masses[-1] = 1 - full, full
    if (times(meets, masses) >= reached - 1e-14).all():  # singletons and the full set reach the outer bound
        return masses, np.eye(n)[0] * n
    solved = linprog(sizes, A_ub=-meets, b_ub=-reached, A_eq=np.ones((1, n)), b_eq=[1.0], method="highs")
    if solved.status != 0:
        raise ArithmeticError(f"the linear program of the sizes was not solved: {solved.message}")
    masses = np.where(solved.x > 1e-9, solved.x, 0.0)
    masses /= masses.sum()
    met = times(meets, masses)
    lack = np.maximum(reached - met, 0.0)[:-1] / np.maximum(1 - met[:-1], 1e-15)
    lift = min(1.0, float(lack.max()))  # what the solver's tolerance left is made up for by the full set
    masses *= 1 - lift
    masses[-1] += lift
    return masses, np.maximum(-solved.ineqlin.marginals, 0.0)


def _orbits(n: int, size: int, count: int, rng: np.random.Generator) -> Member:
    """The sets of this size in `count` random orbits of the rotation; for pairs there are only n / 2 orbits."""
    if size == n:
        return np.ones((1, n), dtype=bool)
    if size == 1:
        starts: list[Query] = [(0,)]
    elif size == 2:
        starts = [(0, step) for step in rng.permutation(np.arange(1, n // 2 + 1))[:count]]
    else:
        starts = [tuple(rng.choice(n, size, replace=False)) for _ in range(count)]
    member = as_matrix(starts, n)
    return np.unique(np.concatenate([np.roll(member, shift, axis=1) for shift in range(n)]), axis=0)
