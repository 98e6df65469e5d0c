"""Which plan files were verified: their digests, remembered in the user's cache.

Not in the directory of the plans, which a stranger may have handed over. What cannot be remembered on disk is
remembered by this process.
"""

from __future__ import annotations

from contextlib import suppress

from onoff.files import cache_directory

_here: set[str] = set()


def known(digest: str) -> bool:
    """Whether the file with this digest (SHA-256 of its bytes, in hexadecimal) was verified."""
    if digest in _here:
        return True
    with suppress(OSError, RuntimeError):
        return (cache_directory("verified") / digest).exists()
    return False


def remember(digest: str) -> None:
    """Note that the file with this digest was verified."""
    _here.add(digest)
    with suppress(OSError, RuntimeError):
        place = cache_directory("verified")
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        (place / digest).touch(mode=0o600)
