"""Print results for people (tables, numbers with units) and for programs (JSON), and say the rest on stderr.

What a command says beside its result goes to the logger `onoff`: notes at level INFO, which `-q` silences, and details
at level DEBUG, which `-v` shows. Errors are always printed (`onoff.apps.cli.app`).
`advise` gives errors of a client the words of the command line, with the journal's name.
"""

from __future__ import annotations

import json
import logging
import math
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from fractions import Fraction
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from onoff import errors
from onoff.files import error_sentence
from onoff.text import LONG, plain

if TYPE_CHECKING:
    from onoff.client.client import Client


LOG = logging.getLogger("onoff")


class _Stderr(logging.Handler):
    """Print a record as one line on the stderr of this moment."""

    def emit(self, record: logging.LogRecord) -> None:
        print(f"onoff: {plain(record.getMessage(), LONG)}", file=sys.stderr)


def start_log() -> None:
    """Let the logger speak on stderr, at the level of notes."""
    LOG.handlers, LOG.propagate = [_Stderr()], False
    LOG.setLevel(logging.INFO)


def note(text: str) -> None:
    """Say a note on stderr, unless the command is quiet."""
    LOG.info("%s", text)


def detail(text: str) -> None:
    """Say on stderr what was done, if the command is verbose."""
    LOG.debug("%s", text)


def print_json(result: object) -> None:
    """Print a result, a frozen dataclass, as one JSON document on stdout."""
    print(json.dumps(plain_data(result), indent=2, allow_nan=False))


def plain_data(value: Any) -> Any:
    """Convert a result for JSON: types become objects with their fields, non-finite numbers null."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain_data(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {str(key): plain_data(part) for key, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain_data(part) for part in value]
    if hasattr(value, "item"):  # NumPy's numbers and arrays
        return plain_data(value.tolist())
    if isinstance(value, float | Fraction):
        return float(value) if math.isfinite(value) else None
    return str(value) if isinstance(value, PurePath) else value


def print_table(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table on stdout below its title. The first column is aligned to the left, the others to the right."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(file=sys.stdout)
    console.print(escape(title), style="italic", soft_wrap=True, highlight=False)  # rich breaks it at the table's width
    table = Table()
    for i, heading in enumerate(headings):
        table.add_column(heading, justify="right" if i else "left", overflow="fold")  # cut names may be equal
    for row in rows:
        table.add_row(*(escape(plain(cell)) for cell in row))  # a name in brackets is no markup
    console.print(table)


def percent(gap: float) -> str:
    """Write a gap in per cent; a small one with a power of ten."""
    return f"{100 * gap:.0e} %" if 0 < gap < 1e-4 else f"{100 * gap:.2f} %"


def size(number: float) -> str:
    """Write bytes for people: with separators, and a larger unit for many."""
    exact = f"{number:,.0f} bytes" if number != 1 else "1 byte"
    for power, name in ((9, "GB"), (6, "MB")):
        if number >= 10**power:
            return f"{exact} ({number / 10**power:,.1f} {name})"
    return exact


def amount(number: int, what: str, many: str | None = None) -> str:
    """Write a number with its noun: "1 request"."""
    return f"{number:,} {what if number == 1 else many or what + 's'}"


def command_for(command: str, journal: Path) -> str:
    """Write a command as it must be typed for this journal."""
    from onoff.client.connect import default_journal

    return f"`{command}`" if journal == default_journal() else f"`{command} --journal {shlex.quote(str(journal))}`"


@contextmanager
def advise(client: Client, advice: str | None = None) -> Iterator[None]:
    """Give an error the advice for the command line, with the journal's name.

    `advice` says how to finish a pending request, if not by `onoff resume`.
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
        found = error if isinstance(error, errors.OnoffError) else errors.OnoffError(error_sentence(error))
        later = "once the server takes it, " if isinstance(error, errors.RefusedByServer) else ""
        found.advice = f"The request for {wanted!r} stays pending: {later}{advice or resume}."
        raise found from None


def _find_pending(client: Client, error: Exception) -> str | None:
    """Find the source of a pending request that can be finished after this error; None if there is none.

    The server may have given no answer, or refused; or the disk failed to store the answer.
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
    if found.state.pending is None or not client.knows_sources or found.chain != client.chain.fingerprint:
        return None
    return client.chain.names[found.state.pending.request]


def note_new(client: Client) -> None:
    """Say that the journal is new."""
    from onoff.client.promises import PROMISES

    if client.journal.created:
        habits = client.habits
        if habits is not None and habits.stage != "known":
            said = PROMISES["all"] if client.journal.promise == "all" else habits.words(client.path)
            note(f"a new journal: {said}")
        else:
            count = client.chain.depth + (client.journal.promise == "both")
            first = "request asks" if count == 1 else f"{count} requests ask"
            note(f"a new journal: its first {first} for everything")
        if len(client.journal.sensitive) == client.chain.n:
            note("all sources are sensitive: every request asks for everything")


def note_planner(client: Client) -> None:
    """Say what the planner could not do, and what it will do after this command."""
    from onoff.plans.planner import LIMIT

    planner = client.planner
    if planner is None:
        return
    if planner.trouble is not None:
        note(f"{planner.trouble}; going on without: requests while OFF may fetch more than they must")
    if planner.is_working:
        minutes = f"at most {LIMIT // 60} minutes"
        note(f"a process in the background computes cheaper plans ({minutes}); --no-background does without it")
