"""The user's cache directory: what is lost with it is made again, and backups as a rule leave it out."""

from __future__ import annotations

import os
from pathlib import Path


def cache_directory(name: str) -> Path:
    """The directory of this name for onoff, made or not. `RuntimeError` if the user has no home."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "onoff" / name
