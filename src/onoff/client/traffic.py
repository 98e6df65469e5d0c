"""What a client has downloaded, how much of it had changed, and what other ways of reading would have downloaded.

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

from onoff.client.held import Entries
from onoff.client.stored import Stored

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


def read_seen(database: sqlite3.Connection) -> Seen:
    """What was last seen of each source."""
    return {source: (size, check) for source, size, check in database.execute("SELECT source, size, sum FROM seen")}


def see(
    database: sqlite3.Connection, before: Seen, members: Sequence[Stored], entries: Entries
) -> tuple[Seen, list[int], int]:
    """Note what an answer shows; return what is now seen, which members had changed, and how many bytes they have."""
    received = {m.source: (m.size, entries[m.source].sum) for m in members if not m.unchanged}
    changed = sorted(
        source for source, (_, check) in received.items() if source not in before or before[source][1] != check
    )
    different = [(source, *seen) for source, seen in received.items() if before.get(source) != seen]
    database.executemany("INSERT OR REPLACE INTO seen VALUES (?, ?, ?)", different)
    return {**before, **received}, changed, sum(received[source][0] for source in changed)


def traffic_of(database: sqlite3.Connection) -> Traffic | None:
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
