"""Options that several commands share, and how they are read."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand
from typer.main import get_command

from onoff.apps.cli.output import LOG
from onoff.errors import OnoffError

READ, PLAN, SERVE, STUDY, AUDIT = "Read", "Plan", "Serve", "Study", "Audit"  # panels of `onoff --help`
MOST = 100_000
TOKEN = "ONOFF_TOKEN"  # the variable of the environment that has a reader's token


def _level(level: int) -> Callable[[bool], None]:
    """Set the level of the logger if an option is given."""
    return lambda given: LOG.setLevel(level) if given else None


Quiet = Annotated[
    bool,
    typer.Option(
        "-q", "--quiet", callback=_level(logging.ERROR), expose_value=False, help="Say nothing on stderr but errors."
    ),
]
Verbose = Annotated[
    bool,
    typer.Option(
        "-v",
        "--verbose",
        callback=_level(logging.DEBUG),
        expose_value=False,
        help="Say on stderr what was done, and how long it took.",
    ),
]


def _volume_options() -> list[Any]:
    """List `-q` and `-v`, for every command."""
    both = typer.Typer(add_completion=False)

    @both.command()
    def options(quiet: Quiet = False, verbose: Verbose = False) -> None:
        pass

    return get_command(both).params


class Command(TyperCommand):
    """A command with `-q` and `-v` after its own options."""

    def __init__(self, *words: Any, params: list[Any] | None = None, **settings: Any) -> None:
        super().__init__(*words, params=[*(params or []), *_volume_options()], **settings)


class App(typer.Typer):
    """Commands that can be told to be quiet or verbose."""

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Any], Any]:
        return super().command(name, cls=Command, **settings)


Jobs = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="How many processes compute here; all cores by default.")
]
Dask = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Compute on the Dask cluster of this scheduler: tcp://HOST:8786."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON, and nothing else on stdout.")]
# What the commands of the client share.
JournalFile = Annotated[
    Path | None,
    typer.Option(
        "--journal", metavar="FILE", help="The client's memory; made if it is not there (~/.local/state/onoff/journal)."
    ),
]
ChainFile = Annotated[
    Path | None,
    typer.Option("--chain", metavar="FILE", help="The habits, .json or .csv; remembered. Without it they are learned."),
]
Server = Annotated[str | None, typer.Option(metavar="URL", help="An onoff server; remembered.")]
Urls = Annotated[Path | None, typer.Option(metavar="FILE", help="JSON {name: URL} at any web servers; remembered.")]
Directory = Annotated[
    Path | None,
    typer.Option("--directory", metavar="DIR", help="What is set up (~/.local/state/onoff/proxy by default)."),
]
Plans = Annotated[Path | None, typer.Option(metavar="DIR", help="Where plans are kept (~/.cache/onoff by default).")]
Promise = Annotated[
    str | None,
    typer.Option(
        metavar="all|past|both",
        help="For a new journal, which keeps it. all: every request asks for everything that is not fresh. "
        "past: what a request's own query and the queries before it tell is all that will ever be told about it; the "
        "query of a private request tells nothing. both: no query tells anything about requests made while ON or to "
        "come; an OFF request needs the next one (`get --next`; `play` has it in its file). By default both for "
        "`get --next`, else past.",
    ),
]
Relearn = Annotated[
    bool, typer.Option("--relearn", help="Forget the habits and learn them anew; everything is asked for meanwhile.")
]
Sensitive = Annotated[
    str | None,
    typer.Option(
        metavar="A,B",
        help="For a new journal, which keeps them: sources of which the server learns neither which is read nor "
        "whether any is, without any switching.",
    ),
]
Record = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Note the laws of OFF steps (promise past) here, for auditors; no secret."),
]
Background = Annotated[
    bool, typer.Option("--background/--no-background", help="Whether a process may compute cheaper plans for later.")
]
Delay = Annotated[
    float,
    typer.Option(
        min=0.0,
        metavar="SECONDS",
        help="Queries leave at multiples of this time after the last answer; 0 sends them at once.",
    ),
]
Cache = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE",
        help="Room for messages that are kept, and downloaded again only if newer (default 64MiB; 0 keeps none).",
    ),
]
Fresh = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="How long messages count as the newest, at least, in a new journal (promise all): 30s, 5m; at most 1h.",
    ),
]
Keep = Annotated[
    str | None,
    typer.Option(
        metavar="STEPS|DAYSd", help="Erase what was asked for, and how, after so many steps (1000) or days (30d)."
    ),
]
UserAgent = Annotated[
    str | None, typer.Option(metavar="TEXT", help="What web servers are told of this program (onoff); remembered.")
]
Deadline = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        help="How long a whole answer may take, the same for every query (default 120, and more for many sources).",
    ),
]

# What the commands share that read a log.
UserColumn = Annotated[str | None, typer.Option(metavar="COLUMN", help="Who asked; guessed if not given.")]
TimeColumn = Annotated[str | None, typer.Option(metavar="COLUMN", help="When: dates, ISO 8601 or seconds.")]
SourceColumn = Annotated[str | None, typer.Option(metavar="COLUMN", help="What was asked for.")]
OneUser = Annotated[bool, typer.Option("--one-user", help="All rows are one user's.")]
TimeFormat = Annotated[
    str | None, typer.Option(metavar="FORMAT", help="How times are written, as for strptime: '%m/%d/%Y %H:%M'.")
]
LogFormat = Annotated[
    str | None, typer.Option("--format", help="csv, json, parquet, text or access, if the name does not say.")
]


def parse_switch(on: bool, off: bool) -> bool | None:
    """Read the privacy switch; None if neither is given. Both are an error: neither may win."""
    if on and off:
        raise OnoffError("privacy is ON or OFF: give --on or --off, not both")
    return on if on or off else None


def parse_sources(text: str | None) -> tuple[str, ...]:
    """Split `a,b` into names."""
    return () if text is None else tuple(name.strip() for name in text.split(",") if name.strip())


def parse_lags(text: str, least: int = 0) -> list[int]:
    """Read `3`, `1-10` or `1,2,5-8`: sorted, without repetitions, none below `least`."""
    lags: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,6})(?:-([0-9]{1,6}))?\s*", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not least <= first <= last <= MOST:
            raise typer.BadParameter(f"{text!r} is not a list of lags: write 3, or 1-10, or 1,2,5 ({least} to {MOST})")
        lags.update(range(first, last + 1))
    return sorted(lags)
