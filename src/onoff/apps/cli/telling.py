"""What the commands of the client say beside their results: advice, and notes on stderr."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from onoff.apps.cli.output import note
from onoff.errors import Announced, JournalError, OnoffError, PendingRequest, RefusedByServer, StaleStep, TransportError
from onoff.files import told

if TYPE_CHECKING:
    from onoff.client.client import Client

RESUME = "`onoff resume` finishes it"
COMMANDS = re.compile("`onoff (resume( --last)?|get [^`]+)`")  # those that an error may advise


@contextmanager
def explained(client: Client, advice: str) -> Iterator[None]:
    """Add to an error that a request is pending, if one is, and what to do about it, with the journal's name.

    The server may have given no answer, or refused; or what it gave could not be kept.
    """
    import sqlite3

    from onoff.client.snapshot import snapshot

    try:
        yield
    except PendingRequest as error:
        raise PendingRequest(with_journal(str(error), client.path), step=error.step) from None
    except Announced as error:
        raise Announced(with_journal(str(error), client.path), announced=error.announced) from None
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
        if isinstance(error, TransportError):
            words = error.happened  # what follows is for Python
        kind = OnoffError if isinstance(error, OSError) else type(error)
        advice = with_journal(advice, client.path)
        if isinstance(error, RefusedByServer):
            advice = f"once the server takes it, {advice}"
        wanted = client.chain.names[pending.request]
        raise kind(f"{_sentence(words)} The request for {wanted!r} stays pending: {advice}.") from None


def with_journal(text: str, journal: Path) -> str:
    """The words with the commands that finish or make a request as they must be typed for this journal."""
    from onoff.client.settings import default_journal

    if journal == default_journal():
        return text
    return COMMANDS.sub(lambda found: f"{found[0][:-1]} --journal {shlex.quote(str(journal))}`", text)


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
