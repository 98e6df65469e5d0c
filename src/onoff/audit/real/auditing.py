"""The front door of `onoff audit real`: what servers learn about real people from our client and from an open one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from onoff.audit.models import Model, Naive, Planned, has_table
from onoff.audit.real.people import Split
from onoff.audit.real.replay import Case, Leak, Rules, Score, leaks, replay
from onoff.audit.setting import required
from onoff.errors import OnoffError
from onoff.types import Progress, silent

if TYPE_CHECKING:
    from onoff.model.chain import Chain
    from onoff.plans.base import Plan

TABLES_BYTES = 2**29
CLIENTS = ("onoff", "naive")


@dataclass(frozen=True)
class RealAudit:
    """What each server learned from each client.

    `bits_to_predict` says how many bits each server needs to know the next request, had it seen all before. `attacked`
    people of the `wanted` were reached: fewer if somebody stopped it.
    """

    leaks: tuple[Leak, ...]
    bits_to_predict: dict[str, float]
    attacked: int
    wanted: int

    @property
    def stopped(self) -> bool:
        return self.attacked < self.wanted


def audit_real(
    split: Split, plans: Sequence[Plan], *, switch: float = 0.3, seed: int = 1, progress: Progress = silent
) -> RealAudit:
    """Replay real sequences with random ON and OFF periods, and let servers attack that know more than the chain.

    `plans` are those of our client; every lag is served by the cheapest that fits. Privacy is switched before a step
    with probability `switch`. After Ctrl-C the result is that of the people reached so far.
    """
    clients, people = clients_of(split.chain, plans), split.attacked
    scores: list[dict[Case, Score]] = []
    try:
        with progress("people attacked")(len(people)) as advance:
            for score in replay(people, clients, split.servers, switch, seed):
                scores.append(score)
                advance()
    except KeyboardInterrupt:
        if not scores:
            raise
    reached = people[: len(scores)]
    steps = sum(len(path) - 1 for path in reached)
    code = {name: sum(map(server.code_length, reached)) / steps for name, server in split.servers.items()}
    return RealAudit(tuple(leaks(scores, seed)), code, len(scores), len(people))


def clients_of(chain: Chain, plans: Sequence[Plan]) -> list[Rules]:
    """Ours with its plans, and the naive one. Every lag has a model of its own, which keeps that lag's encoders."""
    tables = [plan for plan in plans if has_table(plan)]
    if len(tables) < len(plans):
        raise OnoffError("a plan has no table to attack: give plans with tables")
    if not tables:
        raise OnoffError("our client has no plans: give one for lag 1, and for others where they pay")
    table = 16 * chain.n**2 * (chain.n + max(len(plan.sets) for plan in tables))  # bytes of the encoders of one lag

    @lru_cache(maxsize=max(4, TABLES_BYTES // table))
    def at(lag: int) -> Model:
        return Planned(required(tables, max(lag, 1)))

    return [Rules(CLIENTS[0], chain.n, at), Rules(CLIENTS[1], chain.n, lambda lag: Naive(chain.n))]
