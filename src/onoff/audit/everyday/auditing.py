"""The front door of `onoff audit joint --promise past`: the everyday client beside two that leak.

The engine is given as an object, as plans are. What it prepares is read, what it draws is checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from onoff.audit.everyday.clients import Client, Decoys, Exhibit, Naive
from onoff.audit.everyday.misfit import Misfit, bounds
from onoff.audit.everyday.streams import Streams, audit
from onoff.audit.joint.auditing import USUAL, Effort, true_chain
from onoff.audit.setting import start_law
from onoff.errors import OnoffError
from onoff.types import Progress, silent

if TYPE_CHECKING:
    from onoff.model.chain import Chain

OF_THE_CHAIN = (
    "rows: ",
    "merge: ",
    "context: context ",
)  # faults that mean nothing where requests follow another chain
SAMPLED = 100  # streams of the exhibit, each of which prepares all its steps


@dataclass(frozen=True)
class Compared:
    """What the streams of each client tell; the first is the everyday client."""

    statuses: tuple[bool, ...]
    sensitive: tuple[str, ...]
    clients: tuple[Streams, ...]

    @property
    def everyday(self) -> Streams:
        """The client under audit."""
        return self.clients[0]

    @property
    def holds(self) -> bool:
        """Whether it keeps its promise."""
        return bool(self.everyday.holds)


def audit_everyday(
    chain: Chain,
    statuses: Sequence[bool],
    engine: Any,
    sensitive: Sequence[int] = (),
    *,
    uniform: bool = False,
    decoys: int | None = None,
    effort: Effort = USUAL,
    progress: Progress = silent,
) -> Compared:
    """What the queries of the everyday client tell about what is hidden, beside a naive one and one with decoys.

    `engine` is its state after an ON step (`Everyday.start(chain, sensitive)`). Streams begin with the stationary law,
    or anywhere if `uniform`. Where they are too many, `effort.streams` are sampled, of the engine 100 at most.
    """
    hidden = _checked(chain, sensitive)
    few = max(1, min(3, chain.n - 2)) if decoys is None else decoys
    leaky = Naive(chain.n, hidden), Decoys(chain.n, hidden, count=few)
    clients: tuple[Client, ...] = Exhibit(engine, chain.n, hidden), *leaky
    found = [_audited(chain, statuses, client, hidden, uniform, effort, progress) for client in clients]
    return Compared(tuple(statuses), tuple(chain.names[s] for s in hidden), tuple(found))


def audit_everyday_mistaken(
    chain: Chain,
    true: Chain,
    statuses: Sequence[bool],
    engine: Any,
    sensitive: Sequence[int] = (),
    *,
    uniform: bool = False,
    effort: Effort = USUAL,
    progress: Progress = silent,
) -> Misfit:
    """What an everyday client that uses `chain` tells if its requests follow the chain `true`: a bound, and the value.

    Sources may stand in another order in `true`.
    """
    true, hidden = true_chain(chain, true), _checked(chain, sensitive)
    found = _audited(true, statuses, Exhibit(engine, chain.n, hidden), hidden, uniform, effort, progress)
    own = [fault for fault in found.faults if not fault.startswith(OF_THE_CHAIN)]
    return bounds(true, chain, statuses, hidden, start_law(true, uniform), replace(found, faults=tuple(own)))


def _checked(chain: Chain, sensitive: Sequence[int]) -> tuple[int, ...]:
    if any(not 0 <= source < chain.n for source in sensitive):
        raise OnoffError(f"the sensitive sources are {list(sensitive)}: they are numbers from 0 to {chain.n - 1}")
    return tuple(sorted(set(sensitive)))


def _audited(
    chain: Chain,
    statuses: Sequence[bool],
    client: Client,
    sensitive: tuple[int, ...],
    uniform: bool,
    effort: Effort,
    progress: Progress,
) -> Streams:
    streams = min(effort.streams, SAMPLED) if isinstance(client, Exhibit) else effort.streams
    start = start_law(chain, uniform)
    with progress(f"sampling {client.name}")(streams) as advance:
        return audit(chain, statuses, client, sensitive, start, streams=streams, seed=effort.seed, advance=advance)
