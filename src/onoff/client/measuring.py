"""How long messages are and how often they change, noted in a file over repeated visits.

    {"format": "onoff-measured", "version": 1,
     "sources": {name: {"length": bytes, "visits": number, "changes": number, "digest": SHA-256 of the body}}}

Every visit fetches all sources, all alike. The file says nothing of when that was. It has one entry for each source,
however often they are visited.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from onoff.client.transport.web import HttpTransport
from onoff.errors import OnoffError
from onoff.files import read_json, write_atomically
from onoff.plans.lengths import MEASURED
from onoff.types import is_whole

VERSION = 1
MOST_VISITS = 2**53  # whole numbers that every JSON reader keeps exact


@dataclass(frozen=True)
class Source:
    """What was measured of one source: the newest length, the visits, and how many found another body than before."""

    length: int
    visits: int
    changes: int
    digest: str

    def again(self, seen: Source) -> Source:
        """What is known after one more visit."""
        changed = self.digest != seen.digest
        return Source(seen.length, self.visits + 1, self.changes + changed, seen.digest)


@dataclass(frozen=True)
class Measured:
    """All sources, by their names. `bytes` is what they have together."""

    sources: Mapping[str, Source]

    @property
    def bytes(self) -> int:
        return sum(source.length for source in self.sources.values())

    @property
    def visits(self) -> int:
        """How often they were visited."""
        return max((source.visits for source in self.sources.values()), default=0)

    def save(self, file: Path) -> None:
        """Write it whole, or not at all."""
        sources = {name: asdict(source) for name, source in self.sources.items()}
        data = {"format": MEASURED, "version": VERSION, "sources": sources}
        write_atomically(file, json.dumps(data, indent=2, ensure_ascii=False).encode() + b"\n")


async def measure(transport: HttpTransport, before: Measured | None = None) -> Measured:
    """Visit every source once; with `before`, go on from there. Raises `SourceError` if one has no message."""
    bodies = await transport.bodies()
    seen = {name: Source(max(1, len(body)), 1, 0, hashlib.sha256(body).hexdigest()) for name, body in bodies.items()}
    if before is None:
        return Measured(seen)
    return Measured({name: before.sources[name].again(found) for name, found in seen.items()})


def measured_before(file: Path, names: tuple[str, ...]) -> Measured | None:
    """What the file says; None if there is none, or a device.

    Raises `OnoffError` if it is another file, or for other sources.
    """
    if not file.is_file():
        return None
    data = read_json(file)
    if not isinstance(data, dict) or data.get("format") != MEASURED or data.get("version") != VERSION:
        raise OnoffError(f"{file}: exists already, and `onoff measure` has not written it: give another name")
    found = data.get("sources")
    if not isinstance(found, dict) or set(found) != set(names):
        raise OnoffError(f"{file}: was measured for other sources: give another name")
    return Measured({name: _source(file, found[name]) for name in names})


def _source(file: Path, data: Any) -> Source:
    try:
        source = Source(**data)
    except TypeError:
        source = None
    if (
        source is None
        or not is_whole(source.length, 1)
        or not (is_whole(source.visits, 1) and source.visits < MOST_VISITS)
        or not (is_whole(source.changes) and source.changes < source.visits)
        or not (isinstance(source.digest, str) and re.fullmatch("[0-9a-f]{64}", source.digest))
    ):
        raise OnoffError(f"{file}: is damaged: delete it and measure again")
    return source
