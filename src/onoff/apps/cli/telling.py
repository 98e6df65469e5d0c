"""What the commands of the client say beside their results: advice, notes on stderr, and messages on stdout."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from onoff.errors import JournalError, OnoffError, RefusedByServer, StaleStep, TransportError
from onoff.files import told
from onoff.foreign import LONG, plain, plain_text

if TYPE_CHECKING:
    from onoff.client.client import Client

RESUME = "`onoff resume` finishes it"


@contextmanager
def explained(client: Client, advice: str) -> Iterator[None]:
    """Add to an error that a request is pending, if one is, and what to do about it.

    The server may have given no answer, or refused; or what it gave could not be kept.
    """
    import sqlite3

    from onoff.client.settings import default_journal
    from onoff.client.snapshot import snapshot

    try:
        yield
    except (TransportError, JournalError, OSError) as error:
        if isinstance(error, StaleStep):
            raise
        if isinstance(error, JournalError) and not isinstance(error.__cause__, OSError | sqlite3.OperationalError):
            raise  # not the disk's fault: what is pending cannot be finished with this journal as it is
        try:
            found = snapshot(client.path) if client.path.exists() else None
        except OnoffError:
            raise error from None  # the journal cannot be read: that is what the error says
        pending = None if found is None else found.state.pending
        if found is None or pending is None or found.chain != client.chain.fingerprint:
            raise
        words = told(error) if isinstance(error, OSError) else str(error)
        kind = OnoffError if isinstance(error, OSError) else type(error)
        if advice == RESUME and client.path != default_journal():
            advice += ". Give it the same --journal"
        if isinstance(error, RefusedByServer):
            advice = f"once the server takes it, {advice}"
        wanted = client.chain.names[pending.request]
        raise kind(f"{_sentence(words)} The request for {wanted!r} stays pending: {advice}.") from None


def _sentence(words: str) -> str:
    return words if words.endswith((".", "?", "!")) else words + "."


def note_new(client: Client) -> None:
    """Say that the journal is new."""
    if client.journal.created:
        note("a new journal: its first two requests ask for everything")
        if len(client.journal.sensitive) == client.chain.n:
            note("all sources are sensitive: every request asks for everything")


def note_planner(client: Client) -> None:
    """Say what the planner could not do, and what it goes on doing after this command."""
    from onoff.plans.planner import LIMIT

    planner = client.planner
    if planner is None:
        return
    if planner.trouble is not None:
        note(f"{planner.trouble}; going on without: requests while OFF may fetch more than they must")
    if planner.unverified and not planner.working:
        note(
            "plans that were made elsewhere are not used before they were verified, which a process in the background "
            "does: leave out --no-background once; until then requests while OFF may fetch more than they must"
        )
    if planner.working:
        minutes = f"at most {LIMIT // 60} minutes"
        note(f"a process in the background computes cheaper plans ({minutes}); --no-background does without it")


def note(text: str) -> None:
    """Say something on stderr."""
    print(f"onoff: {plain(text, LONG)}", file=sys.stderr)


def show(body: bytes) -> None:
    """Write a message to stdout as it came. On a terminal, characters that could steer it are replaced."""
    if sys.stdout.isatty():
        print(plain_text(body))
    else:
        sys.stdout.buffer.write(body)
