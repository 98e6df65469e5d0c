"""Ways to draw a query, and the one place where a scheme is plugged in: `SCHEMES`.

A scheme is a module with a function `propose(task: Task) -> Proposal`, and an entry here. `onoff.plan`, the help and
checks of the command line, sweeps, plan files and audits derive their names from the entries. Nothing heavy is
imported before a scheme is used, and none of them talks to a network.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onoff.model.posterior import Posterior
    from onoff.schemes.certificate import Certificate
    from onoff.schemes.law import Law

Tell = Callable[[float, float], None]  # a cost and a lower bound, as they improve


@dataclass(frozen=True)
class Task:
    """What is to be planned for: a chain at a lag of at least 1.

    A cost at most `gap` above the proved bound is near enough. `deadline` (monotonic) is when time is up. `tell(cost,
    lower_bound)` may be called as they improve.
    """

    posterior: Posterior
    gap: float
    deadline: float
    tell: Tell


@dataclass(frozen=True)
class Proposal:
    """A law and the proof of a lower bound. `law` is None for a race, which draws without a table.

    `scheme` is the scheme that made it. If time was short, that may not be the one that was asked for.
    """

    scheme: str
    law: Law | None
    certificate: Certificate


@dataclass(frozen=True)
class Scheme:
    """An entry: the module of `propose`, what it is in a few words, and what others must know about its plans.

    `kind`: what its plans draw from, "table" or "race" (`onoff.Plan.kind`).
    """

    module: str
    about: str
    kind: str = "table"

    def propose(self, task: Task) -> Proposal:
        """What the scheme makes of the task."""
        found: Proposal = import_module(self.module).propose(task)
        return found


SCHEMES = {
    "everything": Scheme("onoff.schemes.everything", "always the full set"),
    "paper": Scheme("onoff.schemes.paper", "the paper's scheme"),
    "comb": Scheme("onoff.schemes.comb", "near the bound at once"),
    "optimal": Scheme("onoff.schemes.optimum", "proved to be within the gap of the least possible"),
    "race": Scheme("onoff.schemes.race", "no table, for any number of sources", kind="race"),
}
AUTO = "auto"  # not a scheme but a choice among them, by the number of sources: `onoff.plans.plan`


def tables() -> tuple[str, ...]:
    """The schemes whose plans are tables."""
    return tuple(name for name, scheme in SCHEMES.items() if scheme.kind == "table")


def listed(*names: str) -> str:
    """Names in words, for help and errors: "a, b or c"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
