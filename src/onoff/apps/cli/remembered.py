"""What the commands of the client share: options, the settings that a journal remembers, and the client they make."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onoff.apps.cli.notes import SINCE, chain_from, chain_text, lengths_from
from onoff.errors import JournalError, OnoffError, RefusedByServer, StaleStep, TransportError
from onoff.files import told
from onoff.foreign import LONG, plain, plain_text

if TYPE_CHECKING:
    from onoff.client.client import Client
    from onoff.client.transport import Transport
    from onoff.model.chain import Chain
    from onoff.plans.planner import Planner

TOKEN = "ONOFF_TOKEN"
RESUME = "`onoff resume` finishes it"

JournalFile = Annotated[
    Path | None, typer.Option("--journal", metavar="FILE", help="The client's state; made if it is not there.")
]
ChainFile = Annotated[Path | None, typer.Option("--chain", metavar="FILE", help="Needed once; then it is remembered.")]
Server = Annotated[str | None, typer.Option(metavar="URL", help="An onoff server; remembered.")]
Urls = Annotated[Path | None, typer.Option(metavar="FILE", help="JSON {name: URL} at any web server; remembered.")]
Plans = Annotated[Path | None, typer.Option(metavar="DIR", help="Where plans are kept.")]
Lengths = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Plan with these lengths (see `measure`); remembered.")
]
Background = Annotated[
    bool, typer.Option("--background/--no-background", help="Whether a process may compute cheaper plans for later.")
]
Delay = Annotated[
    float, typer.Option(min=0.0, metavar="SECONDS", help="Of the grid on which queries leave; 0: at once.")
]
Deadline = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", help="For a whole answer, the same for every query; 120 or more if none."),
]


@contextmanager
def explained(settings: dict[str, Any], advice: str) -> Iterator[None]:
    """If an error leaves a request pending, or met one that was, say so and what to do about it.

    The server may have given no answer, or refused; or what it gave could not be kept.
    """
    import sqlite3

    from onoff.client.journal import snapshot

    try:
        yield
    except (TransportError, JournalError, OSError) as error:
        if isinstance(error, StaleStep):
            raise
        if isinstance(error, JournalError) and not isinstance(error.__cause__, OSError | sqlite3.OperationalError):
            raise  # not the disk's fault: what is pending cannot be finished with this journal as it is
        try:
            found = snapshot(settings["path"]) if settings["path"].exists() else None
        except OnoffError:
            raise error from None  # the journal cannot be read: that is what the error says
        pending = None if found is None else found.state.pending
        if found is None or pending is None or found.chain != settings["chain"].fingerprint:
            raise
        words = told(error) if isinstance(error, OSError) else str(error)
        kind = OnoffError if isinstance(error, OSError) else type(error)
        if isinstance(error, RefusedByServer):
            advice = f"once the server takes it, {advice}"
        wanted = settings["chain"].names[pending.request]
        raise kind(f"{_sentence(words)} The request for {wanted!r} stays pending: {advice}.") from None


def _sentence(words: str) -> str:
    return words if words.endswith((".", "?", "!")) else words + "."


def default_journal() -> Path:
    """Where the journal is unless told otherwise: with the user's state."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "onoff" / "journal"


def settings_of(
    journal: Path | None, chain: Path | None, server: str | None, urls: Path | None, lengths: Path | None
) -> dict[str, Any]:
    """What was given, completed by what the journal remembers."""
    from onoff.apps.cli.plan import read_lengths
    from onoff.client.journal import snapshot
    from onoff.model.chain import Chain

    path = journal or default_journal()
    if journal is None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    notes = snapshot(path).notes if path.exists() else {}
    if server is not None and urls is not None:
        raise OnoffError("give --server or --urls, not both")
    if not _is_text(str(urls)):  # it is noted in the journal
        raise OnoffError(f"the name of the file {plain(str(urls))} is not UTF-8: rename it")
    known = "chain" in notes
    if chain is None and not known:
        raise OnoffError(f"{path} is a new journal: --chain is needed the first time, then it is remembered")
    if server is None and urls is None and not known:
        raise OnoffError(f"{path} is a new journal: --server or --urls is needed the first time, then it is remembered")
    loaded: Chain = Chain.load(chain) if chain is not None else chain_from(notes["chain"])
    if server is None and urls is None:
        server, urls_text = notes.get("server"), notes.get("urls")
        urls = Path(urls_text) if urls_text else None
    return {
        "path": path,
        "chain": loaded,
        "server": server,
        "urls": None if urls is None else urls.absolute(),
        "lengths": lengths_from(notes) if lengths is None else read_lengths(lengths, loaded.names),
    }


def _is_text(words: str) -> bool:
    """Whether it can be written as UTF-8: bytes on a command line need not be."""
    try:
        words.encode()
    except UnicodeEncodeError:
        return False
    return True


def client_of(
    settings: dict[str, Any], plans: Path | None, delay: float, background: bool, deadline: float | None = None
) -> Client:
    from onoff.client.client import Client
    from onoff.client.transport.own import OnoffTransport
    from onoff.client.transport.web import HttpTransport
    from onoff.plans.planner import Planner

    transport: Transport
    if settings["urls"] is not None:
        transport = HttpTransport.load(settings["urls"], deadline)
    else:
        transport = OnoffTransport(settings["server"], os.environ.get(TOKEN), deadline=deadline)
    # The planner's process goes on after this command: the next one finds the plan.
    planner = Planner(settings["chain"], plans, settings["lengths"], background=background)
    return Client(settings["chain"], transport, settings["path"], planner, delay=delay)


def remember(client: Client, settings: dict[str, Any]) -> None:
    """Note the settings once they have worked."""
    if client.journal.created:
        note("a new journal: its first two requests ask for everything")
    wanted = {
        "server": settings["server"] or "",
        "urls": str(settings["urls"] or ""),
        "lengths": json.dumps(settings["lengths"]),
        "chain": chain_text(settings["chain"]),  # the last: where it is noted, all are
    }
    known = client.journal.recall("lengths")
    if known not in (None, wanted["lengths"]):  # costs so far, that of a pending step too, are in another unit
        state = client.journal.state
        client.journal.note(SINCE, str(state.step + (state.pending is not None)))
    for key, value in wanted.items():
        if client.journal.recall(key) != value:
            client.journal.note(key, value)


def note_planner(planner: Planner) -> None:
    """Say what the planner could not do, and what it goes on doing after this command."""
    from onoff.plans.planner import LIMIT

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
    print(f"onoff: {plain(text, LONG)}", file=sys.stderr)


def show(body: bytes) -> None:
    """Write a message to stdout: as it came, but to a terminal without the characters that could steer it."""
    if sys.stdout.isatty():
        print(plain_text(body))
    else:
        sys.stdout.buffer.write(body)
