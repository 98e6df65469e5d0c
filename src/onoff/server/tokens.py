"""Tokens: secrets that publishers (and readers, if they must) show. The server has only their hashes.

A token is 32 random bytes, so a plain SHA-256 is enough: there is nothing to guess, and no password to stretch.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Iterable
from pathlib import Path

from onoff.errors import OnoffError
from onoff.files import reason, write_atomically

_LINE = re.compile(r"sha256:([0-9a-f]{64})")


def new_token() -> str:
    return secrets.token_urlsafe(32)


def hash_line(token: str) -> str:
    """Write a token as the server stores it."""
    return "sha256:" + hashlib.sha256(token.encode()).hexdigest()


def append_hash(file: Path, token: str) -> None:
    """Add the token's hash to a file, made readable to its owner only. The file is replaced by a whole new one."""
    try:
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        write_atomically(file, file.read_bytes() + f"{hash_line(token)}\n".encode())
    except OSError as error:
        raise OnoffError(
            f"{file}: the hash of the token cannot be written ({reason(error)}); no token was made"
        ) from error


def read_hashes(text: str, where: str) -> tuple[bytes, ...]:
    """Read the hashes from `sha256:…` words; `#` starts a comment."""
    words = [word for line in text.splitlines() for word in line.partition("#")[0].split()]
    found = [_LINE.fullmatch(word) for word in words]
    if not words or not all(found):
        raise OnoffError(f"{where}: lines of sha256: and 64 hexadecimal digits are needed; `onoff token` writes them")
    return tuple(bytes.fromhex(match[1]) for match in found if match)


def matches(authorization: str | None, hashes: Iterable[bytes]) -> bool:
    """True if an Authorization header has one of the tokens. Takes equally long for each wrong token."""
    scheme, _, token = (authorization or "").partition(" ")
    shown = hashlib.sha256(token.strip().encode("utf-8", "surrogateescape")).digest()
    equal = [hmac.compare_digest(shown, known) for known in hashes]
    return scheme.lower() == "bearer" and any(equal)
