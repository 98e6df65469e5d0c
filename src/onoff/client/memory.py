"""The journal's notes for its owner, beside the steps: settings, and the progress of a proxy or a played file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from onoff.errors import OnoffError
from onoff.model.chain import Chain, UnknownChain


class Progress(NamedTuple):
    """A file that is played: a hash of its requests, the step of the first, its name, and how many there are."""

    digest: str
    first: int
    file: str
    requests: int


@dataclass(frozen=True)
class Memory:
    """The journal's notes for its owner, beside the steps. On disk every field is JSON under the key `note FIELD`.

    `server` or `urls` (a file) says where the sources are. `user_agent` is the User-Agent for web servers, `chain` the
    result of `Chain.as_dict`, `cache` the limit in bytes. `keep` says for how many steps ("1000") or days ("30d")
    requests stay; None is for ever. `learning` has the names of the sources of a journal without a chain.

    `gap`: a request before the next one may have been lost, so the next ones must be ON. A proxy sets `gap` while it
    runs; it also keeps the switch (`privacy`) and how many of the next requests are ON (`owed`).

    `play` is the file that was played last.
    """

    server: str | None = None
    urls: str | None = None
    chain: dict[str, Any] | None = None
    cache: int | None = None
    keep: str | None = None
    user_agent: str | None = None
    learning: tuple[str, ...] | None = None
    gap: bool = False
    privacy: bool | None = None
    owed: int = 0
    play: Progress | None = None

    @classmethod
    def of(cls, meta: Mapping[str, str]) -> Memory:
        """Read the notes of a journal."""
        found = {each.name: json.loads(meta[key]) for each in fields(cls) if (key := f"note {each.name}") in meta}
        if found.get("play") is not None:
            found["play"] = Progress(*found["play"])
        if found.get("learning") is not None:
            found["learning"] = tuple(found["learning"])
        return cls(**found)

    def known_chain(self, path: Path) -> Chain:
        """The chain that the journal at `path` was made with. Raises an error if it remembers none."""
        if self.learning is not None:
            return UnknownChain(self.learning)
        if self.chain is None:
            raise OnoffError(f"{path}: no command has noted its chain here: give --chain, which `onoff get` notes")
        return Chain.from_dict(self.chain)

    def changes(self, other: Memory) -> dict[str, str]:
        """The rows of `meta` in which the other memory differs."""
        return {
            f"note {each.name}": json.dumps(new)
            for each in fields(self)
            if (new := getattr(other, each.name)) != getattr(self, each.name)
        }


def parse_keep(given: int | str) -> tuple[int, bool]:
    """Parse how long requests are kept: a number of steps, or of days ("30d", True)."""
    found = re.fullmatch("([0-9]{1,9})(d?)", str(given).strip())
    if found is None or isinstance(given, bool):
        raise OnoffError(f"keep is {str(given)!r}: a number of steps is needed, as 1000, or of days, as 30d")
    return int(found[1]), found[2] == "d"
