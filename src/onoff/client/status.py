"""How a client stands, read off its journal without opening it for use: what it has done, and what comes next.

Every step notes which members of its answer differ from what was last seen of their sources. Say that a source was seen
v times after the first, over mean gaps of g steps, and had changed k times. If it changes with the same chance c at
every step, it has changed after g steps with chance 1 - (1-c)^g. So c is estimated as 1 - (1 - k/v)^(1/g), the most
likely one if all gaps are alike. What is noted is about queries and answers, and depends on no request.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from pathlib import Path

from onoff.client.journalfile import Snapshot, Totals, chain_of, explained, read_totals, reading
from onoff.errors import OnoffError
from onoff.everyday import Everyday, Step
from onoff.model.chain import Chain
from onoff.plans.plan import Plan
from onoff.plans.planner import Planner

Seen = dict[int, tuple[int, int]]  # by source: how many bytes its last whole body had on the wire, and its sum


@dataclass(frozen=True)
class Traffic:
    """Bytes: what was downloaded, how much of that had changed since it was last seen, and what else could have been.

    The last three are estimates, from the present sizes and from how often sources were seen to change: to ask openly
    for what was wanted, if it changed; to have a copy of all sources, of which every step downloads what changed; and
    to download everything at every step.
    """

    downloaded: int
    changed: int
    openly: float
    mirrored: float
    everything: float


@dataclass(frozen=True)
class Account(Snapshot):
    """What a journal says, with sums over all its steps; `traffic` is None if no step was finished."""

    totals: Totals
    traffic: Traffic | None


@dataclass(frozen=True)
class Status:
    """How a client stands. While OFF, the next request would be drawn from a `plan`, or from a `law` of "past".

    Both are None until a request has counted as ON.
    """

    journal: Account
    chain: Chain
    plan: Plan | None = None
    law: Step | None = None


def account(path: str | Path) -> Account:
    """Read a journal with its sums, without locking or changing it."""
    with reading(path) as (database, meta):
        found = Snapshot.of(database, meta)
        return Account(**vars(found), totals=read_totals(database), traffic=read_traffic(database))


def status(path: Path, chain: Chain | str | Path | None = None, plans: str | Path | None = None) -> Status:
    """How the client of a journal stands. The chain is the remembered one unless it is given."""
    found = account(path)
    known = found.memory.known_chain(path) if chain is None else chain_of(chain)
    if known.fingerprint != found.chain:
        raise OnoffError(f"{path}: is the journal of another chain; give the one that it was made with (--chain)")
    if found.rows is not None:
        with explained(path):
            rows = Everyday.from_dict(known, found.rows)
        return Status(found, known, law=rows.prepare())
    after = found.state.answered
    if after.last is None:
        return Status(found, known)
    return Status(found, known, Planner(known, plans, background=False).best(after.lag + 1))


def read_seen(database: sqlite3.Connection) -> Seen:
    """What was last seen of each source."""
    return {source: (size, check) for source, size, check in database.execute("SELECT source, size, sum FROM seen")}


def note_seen(database: sqlite3.Connection, before: Seen, received: Seen) -> list[int]:
    """Note what an answer shows; return the members that had changed since they were last seen."""
    different = [(source, *seen) for source, seen in received.items() if before.get(source) != seen]
    database.executemany("INSERT OR REPLACE INTO seen VALUES (?, ?, ?)", different)
    return sorted(
        source for source, (_, check) in received.items() if source not in before or before[source][1] != check
    )


def read_traffic(database: sqlite3.Connection) -> Traffic | None:
    """The traffic of all finished steps of which it was noted; None if there are none."""
    steps = database.execute(
        "SELECT step, request, query, bytes, changed, changed_bytes FROM steps WHERE changed IS NOT NULL ORDER BY step"
    ).fetchall()
    if not steps:
        return None
    sizes = {source: size for source, (size, _) in read_seen(database).items()}
    chances = change_chances((step, json.loads(query), json.loads(changed)) for step, _, query, _, changed, _ in steps)
    return Traffic(
        sum(size for *_, size, _, _ in steps),
        sum(size for *_, size in steps),
        _openly(((step, request) for step, request, *_ in steps), sizes, chances),
        fsum(size * (1 + chances[source] * (len(steps) - 1)) for source, size in sizes.items()),
        len(steps) * fsum(sizes.values()),
    )


def change_chances(steps: Iterable[tuple[int, Sequence[int], Sequence[int]]]) -> dict[int, float]:
    """For each source the chance that it changes from one step to the next; 1 if it was never seen twice.

    `steps` are (number, set, those of the set that had changed).
    """
    last: dict[int, int] = {}
    visits: dict[int, list[int]] = {}  # how often it was seen again, over how many steps, how often it had changed
    for step, query, changed in steps:
        for source in query:
            count = visits.setdefault(source, [0, 0, 0])
            if source in last:
                count[0] += 1
                count[1] += step - last[source]
                count[2] += source in changed
            last[source] = step
    return {source: _chance(*count) for source, count in visits.items()}


def _chance(visits: int, gaps: int, changes: int) -> float:
    return 1.0 if visits == 0 else 1.0 - float((1.0 - changes / visits) ** (visits / gaps))


def _openly(requests: Iterable[tuple[int, int]], sizes: Mapping[int, int], chances: Mapping[int, float]) -> float:
    """What a reader would have downloaded who asks for each request alone, if it has changed since it was last read."""
    last: dict[int, int] = {}
    found = []
    for step, request in requests:
        chance = 1.0 - (1.0 - chances[request]) ** (step - last[request]) if request in last else 1.0
        found.append(sizes[request] * chance)
        last[request] = step
    return fsum(found)
