"""What a client has downloaded, how much of it had changed, and what other ways of reading would have downloaded.

The journal counts for each source how often it was seen (`visits`, but for the first time), over how many steps
(`gaps`), and how often it had changed (`changes`). If a source changes with the same chance c at every step, it has
changed after a gap g with chance 1 - (1-c)^g. From v visits over mean gaps g the estimate of c is
1 - (1 - changes/v)^(1/g), which is the most likely one if all gaps are alike. All of it is about earlier queries and
answers, and depends on no request.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum

from onoff.client.held import Entries
from onoff.client.stored import Stored


@dataclass(frozen=True)
class Sighting:
    """What was seen of a source so far; `step` is when it was seen last, `size` how many bytes it has on the wire."""

    source: int
    step: int
    size: int
    digest: bytes
    visits: int = 0
    gaps: int = 0
    changes: int = 0

    @property
    def chance(self) -> float:
        """The chance that it changes from one step to the next; 1 if it was never seen twice."""
        if self.visits == 0:
            return 1.0
        return 1.0 - float((1.0 - self.changes / self.visits) ** (self.visits / self.gaps))

    def changed_after(self, gap: int) -> float:
        """The chance that it has changed after so many steps."""
        return 1.0 - (1.0 - self.chance) ** gap

    def again(self, step: int, size: int, digest: bytes) -> Sighting:
        """What was seen of it, once it was seen at this step too."""
        changes = self.changes + (digest != self.digest)
        return Sighting(self.source, step, size, digest, self.visits + 1, self.gaps + step - self.step, changes)


Sightings = dict[int, Sighting]  # by source


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


def read_sightings(database: sqlite3.Connection) -> Sightings:
    """All sightings."""
    rows = database.execute("SELECT source, step, size, digest, visits, gaps, changes FROM sightings")
    return {sighting.source: sighting for sighting in (Sighting(*row) for row in rows)}


def see(
    database: sqlite3.Connection, before: Sightings, members: Sequence[Stored], entries: Entries
) -> tuple[Sightings, int]:
    """Note what an answer shows; return all sightings, and how many bytes of the answer had changed."""
    seen: Sightings = {}
    changed = 0
    for member in members:
        old, digest = before.get(member.source), bytes.fromhex(entries[member.source].digest)
        if old is None:
            seen[member.source] = Sighting(member.source, member.step, member.size, digest)
        else:
            seen[member.source] = old.again(member.step, old.size if member.unchanged else member.size, digest)
        if not member.unchanged and (old is None or old.digest != digest):
            changed += member.size
    rows = [tuple(vars(sighting).values()) for sighting in seen.values()]
    database.executemany("INSERT OR REPLACE INTO sightings VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
    return {**before, **seen}, changed


def traffic_of(database: sqlite3.Connection) -> Traffic | None:
    """The traffic of all finished steps that were counted; None if none were."""
    steps = database.execute("SELECT step, request, bytes, changed FROM steps WHERE changed IS NOT NULL ORDER BY step")
    made = steps.fetchall()
    if not made:
        return None
    sightings = read_sightings(database)
    requests = [(step, request) for step, request, _, _ in made]
    return Traffic(
        sum(size for _, _, size, _ in made),
        sum(changed for _, _, _, changed in made),
        _openly(requests, sightings),
        fsum(s.size * (1 + s.chance * (len(made) - 1)) for s in sightings.values()),
        len(made) * fsum(s.size for s in sightings.values()),
    )


def _openly(requests: Iterable[tuple[int, int]], sightings: Mapping[int, Sighting]) -> float:
    """What a reader would have downloaded who asks for each request alone, if it has changed since it was last read."""
    last: dict[int, int] = {}
    found = []
    for step, request in requests:
        seen = sightings[request]
        chance = seen.changed_after(step - last[request]) if request in last else 1.0
        found.append(seen.size * chance)
        last[request] = step
    return fsum(found)
