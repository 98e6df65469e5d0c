"""What an operator decides, in one value that can be handed to worker processes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from onoff.wire import Catalogue


@dataclass(frozen=True)
class Settings:
    """`publishers` and `readers` are hashes of tokens; no readers' token means that anyone may read."""

    store: str
    catalogue: Catalogue
    publishers: tuple[bytes, ...] = ()
    readers: tuple[bytes, ...] = ()
    transcript: Path | None = None
    body_seconds: float = 10.0
