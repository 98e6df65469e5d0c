"""How much a command says on stderr beside its result: less with `-q`, more with `-v`. Errors are always said."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum

from onoff.foreign import LONG, plain


class Tone(Enum):
    """How much is said: errors alone, notes and progress as well, or also what was done."""

    quiet = 0
    usual = 1
    verbose = 2


_TONE = ContextVar("tone", default=Tone.usual)


def tone() -> Tone:
    """The tone of the command that runs."""
    return _TONE.get()


@contextmanager
def speaking(kind: Tone) -> Iterator[None]:
    """Say so much as long as this lasts."""
    before = _TONE.set(kind)
    try:
        yield
    finally:
        _TONE.reset(before)


def note(text: str) -> None:
    """Say something that is worth knowing on stderr, unless the command is quiet."""
    if tone() is not Tone.quiet:
        print(f"onoff: {plain(text, LONG)}", file=sys.stderr)


def aside(text: str) -> None:
    """As `note`, without the name of the program before it: what became of a file, how far the work has come."""
    if tone() is not Tone.quiet:
        print(plain(text, LONG), file=sys.stderr)


def detail(text: str) -> None:
    """Say on stderr what was done, if the command is verbose."""
    if tone() is Tone.verbose:
        print(f"onoff: {plain(text, LONG)}", file=sys.stderr)
