"""Ways to draw a query, and the one place where a scheme is plugged in: `SCHEMES`.

A scheme is a module with a function `propose(task: Task) -> Proposal`, and an entry here. `onoff.plan`, the command
line, plan files and audits take the names of schemes from the entries. A scheme imports heavy libraries only when it is
used, and never talks to a network.
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
    """A chain at a lag of at least 1, for which a law is wanted.

    The scheme may stop at a cost of at most 1 + `gap` times the proved bound, and must stop at `deadline` (monotonic).
    It may call `tell(cost, lower_bound)` as they improve.
    """

    posterior: Posterior
    gap: float
    deadline: float
    tell: Tell


@dataclass(frozen=True)
class Proposal:
    """A law and the proof of a lower bound. `law` is None for a race, which draws without a table.

    `scheme` names the scheme that made the law: another one than was asked for, if time was short.
    """

    scheme: str
    law: Law | None
    certificate: Certificate


@dataclass(frozen=True)
class Scheme:
    """An entry: the module of `propose`, a few words for help texts, and what plans draw from (`onoff.Plan.kind`)."""

    module: str
    about: str
    kind: str = "table"

    def propose(self, task: Task) -> Proposal:
        """Import the module and let it propose a law."""
        found: Proposal = import_module(self.module).propose(task)
        return found


def propose(task: Task) -> Proposal:
    """Propose the full set, whatever is asked for: private for every chain, without any computation."""
    from onoff.schemes.certificate import outer_certificate
    from onoff.schemes.law import everything

    return Proposal("everything", everything(task.posterior.n), outer_certificate(task.posterior))


SCHEMES = {
    "everything": Scheme("onoff.schemes", "always the full set"),
    "paper": Scheme("onoff.schemes.paper", "the paper's scheme"),
    "comb": Scheme("onoff.schemes.comb", "near the bound at once"),
    "optimal": Scheme("onoff.schemes.optimum", "proved to be within the gap of the least possible"),
    "race": Scheme("onoff.schemes.race", "no table, for any number of sources", kind="race"),
}
AUTO = "auto"  # not a scheme but a choice among them, by the number of sources: `onoff.plans.plan`


def tables() -> tuple[str, ...]:
    """Name the schemes whose plans are tables."""
    return tuple(name for name, scheme in SCHEMES.items() if scheme.kind == "table")


def list_names(*names: str) -> str:
    """Join names for help and errors: "a, b or c"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
