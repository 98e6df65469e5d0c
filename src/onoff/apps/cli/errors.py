"""Advice for the command line: which command finishes a request that an error leaves pending."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from onoff.errors import Announced, JournalError, OnoffError, PendingRequest, RefusedByServer, StaleStep, TransportError
from onoff.files import told

if TYPE_CHECKING:
    from onoff.client.client import Client

RESUME = "onoff resume"  # the command that finishes a request


@contextmanager
def advise(client: Client, advice: str | None = None) -> Iterator[None]:
    """Give an error the advice for the command line, with the journal's name.

    `advice` says how what is pending is finished, if not by `onoff resume`.
    """
    finish = advice or f"{command_for(RESUME, client.path)} finishes it"
    try:
        yield
    except PendingRequest as error:
        error.advice = f"{command_for(RESUME, client.path)} finishes it."
        raise
    except Announced as error:
        error.advice = f"{command_for(f'onoff get {shlex.quote(error.source)}', client.path)} makes it."
        raise
    except (TransportError, JournalError, OSError) as error:
        wanted = _pending(client, error)
        if wanted is None:
            raise
        found = error if isinstance(error, OnoffError) else OnoffError(told(error))
        again = f"once the server takes it, {finish}" if isinstance(error, RefusedByServer) else finish
        found.advice = f"The request for {wanted!r} stays pending: {again}."
        raise found from None


def _pending(client: Client, error: Exception) -> str | None:
    """Find the source of a request that is pending and can be finished after this error; None if there is none.

    The server may have given no answer, or refused; or what it gave could not be kept.
    """
    import sqlite3

    from onoff.client.journalfile import snapshot

    if isinstance(error, StaleStep):
        return None
    if isinstance(error, JournalError) and not isinstance(error.__cause__, OSError | sqlite3.OperationalError):
        return None  # not the disk's fault: what is pending cannot be finished with this journal as it is
    try:
        found = snapshot(client.path) if client.path.exists() else None
    except OnoffError:
        return None  # the journal cannot be read: that is what the error says
    if found is None or found.state.pending is None or found.chain != client.chain.fingerprint:
        return None
    return client.chain.names[found.state.pending.request]


def command_for(command: str, journal: Path) -> str:
    """Write a command as it must be typed for this journal."""
    from onoff.client.connect import default_journal

    return f"`{command}`" if journal == default_journal() else f"`{command} --journal {shlex.quote(str(journal))}`"
