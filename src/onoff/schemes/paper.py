"""The paper's polynomial-time scheme (Section VI, Steps 1 to 5), for any posterior.

Two things differ from a literal reading, none from the result. A row of the auxiliary matrix M is consumed from
left to right, so it is kept as a line of cumulated sums and a position on it: extracting a value is cutting the
next piece off. And an atom names only the contexts that yield something else than its owner: O(n) memory, not n^2.
With fewer than n (n-1) + 1 possible contexts lambda_{n-1} <= 1 can fail; then the last level is a partial one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from onoff.errors import PlanError
from onoff.model.posterior import Posterior
from onoff.schemes import Proposal, Task
from onoff.schemes.certificate import outer_certificate
from onoff.schemes.law import as_matrix
from onoff.schemes.realise import realise

Array = NDArray[Any]
LIMIT = 250  # sources: the table of all n^3 probabilities grows beyond memory


class Atom(NamedTuple):
    """A multiset Z of one mass, the same in every context (Step 4).

    It holds `owner` and the sources `others`. The context `excepted[i]` yields `others[i]`; every other context
    yields `owner`.
    """

    mass: Any
    owner: int
    others: NDArray[np.intp]
    excepted: NDArray[np.intp]

    @property
    def multiset(self) -> tuple[int, ...]:
        """Z = {zeta, x} of equation 44, sorted, with repetitions."""
        return tuple(sorted([self.owner, *map(int, self.others)]))


@dataclass(frozen=True, eq=False)
class PaperScheme:
    """The scheme's output: its atoms, and the mass that goes to the full set (equation 49).

    In floats a mass below 2^-52 may be lost in a sum, so that a request which is possible but that rare gets no
    set at all; ask for everything then. The integer plans of `TablePlan` give every possible request a set.
    """

    posterior: Posterior
    atoms: tuple[Atom, ...]
    full_mass: Any

    def law(self) -> dict[tuple[int, ...], Any]:
        """Compute the law of Q = Set(Z): sorted sets and their masses."""
        masses: dict[tuple[int, ...], Any] = {}
        for atom in self.atoms:
            key = tuple(sorted(set(atom.multiset)))
            masses[key] = masses.get(key, 0) + atom.mass
        if self.full_mass > 0:
            masses[tuple(range(self.posterior.n))] = self.full_mass
        return masses

    @property
    def cost(self) -> Any:
        """E|Q|, at most E|Z| = the inner bound."""
        return sum((len(query) * mass for query, mass in self.law().items()), start=self.full_mass * 0)


def propose(task: Task) -> Proposal:
    """Propose the paper's law in integers; its floats are repaired like any other law."""
    posterior = task.posterior
    if posterior.n > LIMIT:
        raise PlanError(
            f"the paper's scheme for {posterior.n} sources needs a table of all n^3 probabilities: up to "
            f"{LIMIT} are supported; take the scheme 'comb' or 'race'"
        )
    law = paper(posterior).law()
    masses = np.array([float(mass) for mass in law.values()])
    return Proposal("paper", realise(posterior, as_matrix(law, posterior.n), masses), outer_certificate(posterior))


def paper(posterior: Posterior) -> PaperScheme:
    """Build the scheme. Rows of fractions give fractions."""
    rows: Array = posterior.rows
    n = posterior.n
    order, thresholds = _thresholds(rows)
    levels = len(thresholds) - 1
    budget = np.maximum(rows - thresholds[-1], 0 * rows[0, 0])  # Step 1: the matrix M, equation 35
    line = budget.cumsum(axis=1)
    position = np.zeros_like(line[:, 0]) + 0 * rows[0, 0]
    # Rounding may carry a cut past the end of its line; it then belongs to the last source that has any budget.
    last_positive = n - 1 - np.argmax((budget > 0)[:, ::-1], axis=1)
    atoms: list[Atom] = []
    for level in range(1, levels + 1):
        for x in range(n):
            mass = thresholds[level, x] - thresholds[level - 1, x]
            if mass > 0:
                excepted = order[: level - 1, x]
                for value, others in _cut(line[excepted], position[excepted], mass, last_positive[excepted]):
                    atoms.append(Atom(value, x, others, excepted))
                position[excepted] += mass  # equation 39
    # Step 5: the mass that no atom has taken goes to the full set (equation 49).
    rest = 1 - thresholds[-1].sum()
    return PaperScheme(posterior, tuple(atoms), max(rest, 0 * rest))


def _thresholds(rows: Array) -> tuple[NDArray[np.intp], Array]:
    """u_{x,i} (context indices, column x) and the levels lambda_{x,0} = 0, lambda_{x,1}, ... used by the scheme.

    The paper uses lambda_{x,1..n-1}. Only the levels whose sum lambda_l is at most 1 can be used whole; if the
    sum passes 1 before level n-1, a last level is placed between two, where the sum is exactly 1.
    """
    n = rows.shape[1]
    order = np.argsort(rows, axis=0, kind="stable")[:n]
    values = np.take_along_axis(rows, order, axis=0)
    zero = 0 * rows[:1]
    thresholds = np.concatenate([zero, values])
    sums = thresholds.sum(axis=1)
    whole = int(np.searchsorted(sums[:n], 1, side="right")) - 1
    if whole == n - 1 or sums[whole] == 1:
        return order, thresholds[: whole + 1]
    share = (1 - sums[whole]) / (sums[whole + 1] - sums[whole])
    partial = thresholds[whole] + share * (thresholds[whole + 1] - thresholds[whole])
    return order, np.concatenate([thresholds[: whole + 1], partial[None]])


def _cut(lines: Array, starts: Array, mass: Any, final: NDArray[np.intp]) -> Iterator[tuple[Any, NDArray[np.intp]]]:
    """Steps 2 and 3: cut `mass` off every line at once, at each boundary met on any of them (Figure 3).

    Line i is a row of M laid out as adjacent blocks, block e ending at lines[i, e]. Yields the pieces: their
    length nu, and on every line the block (source) that the piece lies in, at most `final`.
    """
    ends = lines - starts[:, None]
    inner = ends[(ends > 0) & (ends < mass)]
    cuts = np.concatenate([[0 * mass], np.unique(inner), [mass]])
    for k in range(len(cuts) - 1):
        block = (ends <= cuts[k]).sum(axis=1).astype(np.intp)
        yield cuts[k + 1] - cuts[k], np.minimum(block, final)
