"""What to do after an error of a client, in words of the command line and with the journal's name."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from onoff import errors
from onoff.apps.cli.output import command_for
from onoff.files import told

if TYPE_CHECKING:
    from onoff.client.client import Client


@contextmanager
def advise(client: Client, advice: str | None = None) -> Iterator[None]:
    """Give an error the advice for the command line, with the journal's name.

    `advice` says how what is pending is finished, if not by `onoff resume`.
    """
    resume = f"{command_for('onoff resume', client.path)} finishes it"
    try:
        yield
    except errors.PendingRequest as error:
        error.advice = f"{resume}."
        raise
    except errors.Announced as error:
        error.advice = f"{command_for(f'onoff get {shlex.quote(error.source)}', client.path)} makes it."
        raise
    except (errors.TransportError, errors.JournalError, OSError) as error:
        wanted = _find_pending(client, error)
        if wanted is None:
            raise
        found = error if isinstance(error, errors.OnoffError) else errors.OnoffError(told(error))
        later = "once the server takes it, " if isinstance(error, errors.RefusedByServer) else ""
        found.advice = f"The request for {wanted!r} stays pending: {later}{advice or resume}."
        raise found from None


def _find_pending(client: Client, error: Exception) -> str | None:
    """Find the source of a request that is pending and can be finished after this error; None if there is none.

    The server may have given no answer, or refused; or the disk did not take what it gave.
    """
    import sqlite3

    from onoff.client.status import snapshot

    by_disk = isinstance(error.__cause__, OSError | sqlite3.OperationalError)
    if isinstance(error, errors.StaleStep) or (isinstance(error, errors.JournalError) and not by_disk):
        return None
    try:
        found = snapshot(client.path)
    except (errors.OnoffError, OSError):
        return None  # there is no journal, or it cannot be read: that is what the error says
    if found.state.pending is None or found.chain != client.chain.fingerprint:
        return None
    return client.chain.names[found.state.pending.request]
