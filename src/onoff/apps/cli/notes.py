"""What commands have noted in a journal, read as what it must be: where it is not, an error says how to go on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from onoff.errors import OnoffError, is_whole

if TYPE_CHECKING:
    from onoff.model.chain import Chain

SINCE = "lengths since"  # the note of the step from which on costs are in the unit of the lengths
MOST = 2**53  # steps: a number beyond is no number of steps


@dataclass(frozen=True)
class Progress:
    """The file that was played last: a hash of its requests, the step of the first, its name, and how many it has."""

    digest: str
    first: int
    file: str
    count: int

    def text(self) -> str:
        return json.dumps(asdict(self))


def progress_from(text: str | None) -> Progress | None:
    """What `Progress.text` wrote; None if no file was played yet."""
    data = _parsed(text or "{}")
    if data == {}:
        return None
    try:
        found = Progress(**data)
    except TypeError:
        found = None
    if found is None or not _fits(found):
        raise OnoffError("how far the last file was played cannot be read in the journal: begin anew with --restart")
    return found


def _fits(found: Progress) -> bool:
    whole = is_whole(found.first) and is_whole(found.count, 1) and max(found.first, found.count) < MOST
    return whole and isinstance(found.digest, str) and isinstance(found.file, str)


def chain_text(chain: Chain) -> str:
    return json.dumps({"names": chain.names, "matrix": chain.P.tolist()})


def chain_from(text: str) -> Chain:
    from onoff.model.chain import Chain

    data = _parsed(text)
    try:
        return Chain(data["matrix"], data["names"])
    except (KeyError, TypeError, ValueError) as error:
        raise OnoffError("the chain that the journal remembers cannot be read: give --chain again") from error


def lengths_from(notes: Mapping[str, str]) -> tuple[float, ...] | None:
    found = _parsed(notes.get("lengths", "null"))
    if found is None:
        return None
    if not isinstance(found, list) or not all(type(length) in (int, float) for length in found):
        raise OnoffError("the lengths that the journal remembers cannot be read: give --lengths again")
    return tuple(map(float, found))


def since_from(text: str | None) -> int:
    """The step from which on all costs have one unit; all steps, where that cannot be read: only sums depend on it."""
    found = _parsed(text or "0")
    return int(found) if is_whole(found) and found < MOST else 0


def _parsed(text: str) -> Any:
    """The JSON in a note, or something that no note is."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return {"not JSON": True}
