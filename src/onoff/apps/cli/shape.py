"""The shape of the command line: groups of commands in `--help`, whole sentences, and the options of every command.

A command says its group as `rich_help_panel`, which is Typer's word for it. Every command that is registered has
`-q` and `-v`, and `-h` as well as `--help`.
"""

from __future__ import annotations

import inspect
import re
import time
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from onoff.apps.tone import Tone, detail, speaking, tone

READ, PLAN, SERVE, STUDY, AUDIT = "Read", "Plan", "Serve", "Study", "Audit"
GROUPS = (READ, PLAN, SERVE, STUDY, AUDIT)

Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Say nothing on stderr but errors.")]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Say on stderr what was done, and how long it took.")]


class Commands(TyperGroup):
    """A group whose help lists all commands with their whole first sentence, those of each topic together."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        found = [(name, command) for name, command in self.commands.items() if not command.hidden]
        topics = {getattr(command, "rich_help_panel", None) or "Commands": None for _, command in found}
        for topic in sorted(topics, key=lambda name: GROUPS.index(name) if name in GROUPS else len(GROUPS)):
            rows = [
                row
                for name, command in found
                if (getattr(command, "rich_help_panel", None) or "Commands") == topic
                for row in _rows(name, command)
            ]
            with formatter.section(topic):
                formatter.write_dl(rows)
        del ctx


def _rows(name: str, command: Any) -> Iterator[tuple[str, str]]:
    """A line for a command; for a group one for each of its commands, since the group alone does nothing."""
    if isinstance(command, TyperGroup):
        for inner, part in command.commands.items():
            yield from _rows(f"{name} {inner}", part)
    else:
        yield name, first_sentence(command.help or "")


def first_sentence(text: str) -> str:
    """The first sentence of a docstring on one line."""
    words = " ".join(text.split("\n\n", maxsplit=1)[0].split())
    return re.split(r"(?<=\.)\s", words)[0]


class App(typer.Typer):
    """A Typer whose commands can be told to be quiet or verbose."""

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Any], Any]:
        registered = super().command(name, **settings)

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            registered(_with_tone(function))
            return function

        return register


def _with_tone(function: Callable[..., Any]) -> Callable[..., Any]:
    """The command with the options `-q` and `-v` after its own."""

    @wraps(function)
    def command(*words: Any, quiet: bool, verbose: bool, **options: Any) -> Any:
        with speaking(chosen_tone(quiet, verbose)):
            began = time.monotonic()
            try:
                return function(*words, **options)
            except Exception as error:
                _trace(error)
                raise
            finally:
                detail(f"took {time.monotonic() - began:.2f} s")

    signature = inspect.signature(function, eval_str=True)
    kind = inspect.Parameter.KEYWORD_ONLY
    more = [
        inspect.Parameter(name, kind, default=False, annotation=annotation)
        for name, annotation in (("quiet", Quiet), ("verbose", Verbose))
    ]
    command.__signature__ = signature.replace(parameters=[*signature.parameters.values(), *more])  # type: ignore[attr-defined]
    return command


def chosen_tone(quiet: bool, verbose: bool) -> Tone:
    """The tone of these options; where none was given, the tone of the program."""
    if quiet and verbose:
        raise typer.BadParameter("-q and -v contradict each other: give one of them")
    if quiet or verbose:
        return Tone.quiet if quiet else Tone.verbose
    return tone()


def _trace(error: Exception) -> None:
    """Say where an error came from, if the command is verbose: the place in our code, and what it stands for."""
    if isinstance(error, typer.Exit | typer.Abort):
        return
    import traceback

    place = traceback.extract_tb(error.__traceback__)[-1]
    cause = f", after {type(error.__cause__).__name__}" if error.__cause__ is not None else ""
    detail(f"{type(error).__name__} from {place.name} (line {place.lineno}){cause}")
