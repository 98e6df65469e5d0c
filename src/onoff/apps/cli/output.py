"""Print results for people (tables, numbers with units) and for programs (JSON), and say the rest on stderr.

What a command says beside its result goes to the logger `onoff`: notes at level INFO, which `-q` silences, and details
at level DEBUG, which `-v` shows. Errors are always printed (`onoff.apps.cli.app`).
"""

from __future__ import annotations

import json
import logging
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass
from fractions import Fraction
from pathlib import Path, PurePath
from typing import Any

from onoff.text import LONG, plain

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
    """Say on stderr what is worth knowing, unless the command is quiet."""
    LOG.info("%s", text)


def detail(text: str) -> None:
    """Say on stderr what was done, if the command is verbose."""
    LOG.debug("%s", text)


def print_json(result: object) -> None:
    """Print a result, a frozen dataclass, as one JSON document on stdout."""
    print(json.dumps(plain_data(result), indent=2, allow_nan=False))


def plain_data(value: Any) -> Any:
    """A result as JSON has it: types as objects with their fields, and null for a number that is not finite."""
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
        table.add_column(heading, justify="right" if i else "left")
    for row in rows:
        table.add_row(*(escape(plain(cell)) for cell in row))  # a name in brackets is no markup
    console.print(table)


def percent(gap: float) -> str:
    """A gap for people, always in per cent; a small one with a power of ten."""
    return f"{100 * gap:.0e} %" if 0 < gap < 1e-4 else f"{100 * gap:.2f} %"


def size(number: float) -> str:
    """A number of bytes for people: with separators, and with a larger unit where there are many."""
    exact = f"{number:,.0f} bytes" if number != 1 else "1 byte"
    for power, name in ((9, "GB"), (6, "MB")):
        if number >= 10**power:
            return f"{exact} ({number / 10**power:,.1f} {name})"
    return exact


def counted(number: int, what: str, many: str | None = None) -> str:
    """A number with its noun: "1 request", "2 requests"."""
    return f"{number:,} {what if number == 1 else many or what + 's'}"


def command_for(command: str, journal: Path) -> str:
    """Write a command as it must be typed for this journal."""
    import shlex

    from onoff.client.connect import default_journal

    return f"`{command}`" if journal == default_journal() else f"`{command} --journal {shlex.quote(str(journal))}`"
