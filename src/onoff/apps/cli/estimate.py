"""`onoff estimate`: what a day costs, before anything is asked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onoff.apps.cli.options import AsJson, parse_sources
from onoff.apps.cli.printing import print_json
from onoff.apps.cli.shape import PLAN
from onoff.apps.tone import note
from onoff.errors import OnoffError

if TYPE_CHECKING:
    from onoff.apps.estimating import Estimate, Habits, Way
    from onoff.model.chain import Chain

NAMES = {
    "openly": "asking openly",
    "past": "past (switching)",
    "sensitive": "past (sensitive)",
    "both": "both (announced)",
    "on": "ON all the time",
    "mirror": "mirroring",
}


def register(app: typer.Typer) -> None:
    app.command(
        rich_help_panel=PLAN,
        epilog="Example: onoff estimate examples/reader.csv --requests 50 --lengths 20000 --changes 0.1",
    )(estimate)


def estimate(
    file: Annotated[Path, typer.Argument(metavar="CHAIN|LOG", help="A chain file, or a log with --log.")],
    log: Annotated[
        bool, typer.Option("--log", help="The file is a log as for `fit`; a chain is fitted to it.")
    ] = False,
    requests: Annotated[int, typer.Option(min=1, max=10**6, metavar="N", help="Requests a day.")] = 100,
    private: Annotated[float, typer.Option(metavar="SHARE", help="The share that is private, 0.01 to 0.99.")] = 0.2,
    run: Annotated[float, typer.Option(min=1, help="How many private requests come in a row, on average.")] = 3.0,
    sensitive: Annotated[
        str | None, typer.Option(metavar="A,B", help="Also hide these sources all the time, without switching.")
    ] = None,
    lengths: Annotated[
        str | None, typer.Option(metavar="FILE|BYTES", help="Bytes of each source (see `measure`), or of every one.")
    ] = None,
    changes: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|P", help="JSON {name: chance to change between two requests}, or one chance for all sources."
        ),
    ] = None,
    mirrored: Annotated[
        int, typer.Option("--mirror", min=1, metavar="N", help="How often a day a mirror fetches all.")
    ] = 24,
    streams: Annotated[int, typer.Option(min=2, help="How many streams are simulated for each way.")] = 12,
    time_limit: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="Time to make the plans of `both`.")
    ] = 10.0,
    as_json: AsJson = False,
) -> None:
    """Say what a day of requests costs by each way of asking, and for whom each way is right."""
    from onoff.apps import estimating
    from onoff.apps.terminal import progress

    chain = _chain(file, log)
    habits = estimating.Habits(requests, private, run, mirrored)
    sizes, chances = _weighing(lengths, changes, chain)
    found = estimating.estimate(
        chain,
        habits,
        lengths=sizes,
        changes=chances,
        sensitive=parse_sources(sensitive),
        streams=streams,
        time_limit=time_limit,
        bar=progress("simulating"),
    )
    if changes is not None and lengths is None:
        note("--changes tells bytes, which need --lengths")
    if as_json:
        print_json(found)
    else:
        _print(found)


def _chain(file: Path, log: bool) -> Chain:
    """The chain of a file, or one fitted to a log with the usual options."""
    from onoff.model.chain import Chain

    if not log:
        return Chain.load(file)
    from onoff.logs.fit import fit

    made = fit(file, replicates=0)
    for words in made.report.notes:
        note(words)
    return made.chain


def _weighing(
    lengths: str | None, changes: str | None, chain: Chain
) -> tuple[tuple[float, ...] | None, tuple[float, ...] | None]:
    """Lengths and chances to change, from numbers or files. What `onoff measure` writes has both."""
    from onoff.files import read_json
    from onoff.plans.lengths import lengths_of, read_weighing

    sizes = chances = None
    if lengths is not None:
        sizes = _number(lengths, chain, "length", 0.001, 1e15)
        if sizes is None:
            found = read_weighing(Path(lengths), chain.names)
            sizes, chances = found.lengths, found.chances
    if changes is not None:
        chances = _number(changes, chain, "chance to change", 0.0, 1.0)
        if chances is None:
            chances = lengths_of(read_json(Path(changes)), chain.names, f"{changes}: ")
    return sizes, chances


def _number(given: str, chain: Chain, what: str, least: float, most: float) -> tuple[float, ...] | None:
    """One number for all sources, between `least` and `most`; None if it is the name of a file."""
    try:
        number = float(given)
    except ValueError:
        return None
    if not least <= number <= most:
        raise OnoffError(f"the {what} is {number:g}: it lies between {least:g} and {most:g}")
    return (number,) * chain.n


def _print(found: Estimate) -> None:
    """The costs as a table, what was taken for granted, and for whom each way is right."""
    from onoff.apps.terminal import print_table

    habits = found.habits
    whole, fresh = found.everything is not None, found.ways[0].changed is not None
    headings = ["a day", "messages", *["bytes"] * whole, *["changed only"] * fresh]
    print_table(
        f"{habits.requests:,} requests a day for {found.sources} sources, {habits.private:.0%} of them private",
        headings,
        [[_named(way, habits), *_cells(way, whole, fresh)] for way in found.ways],
    )
    for way in found.ways:
        print(f"{NAMES[way.name]}: right if {way.right_for}")
    for words in _cheaper(found):
        print(words)
    print(
        f"Taken for granted: requests follow the chain; private ones come in runs of {habits.run:g}. "
        f"Not counted: headers, and that a new journal asks for all twice. "
        f"± is 95 % over {found.streams} simulated streams."
    )
    if not found.sensitive:
        print("--sensitive A,B adds what it costs to hide these sources all the time.")


def _named(way: Way, habits: Habits) -> str:
    """The name of a way in the table; a mirror is not as fresh as the others, and says so there."""
    if way.name != "mirror":
        return NAMES[way.name]
    return f"{NAMES[way.name]}: {habits.mirrored:,} a day, {_age(habits)} old"


def _age(habits: Habits) -> str:
    """How old a message of the mirror may be."""
    number, what = (24.0, "hour") if habits.mirrored <= 24 else (1440.0, "minute")
    turn = f"{number / habits.mirrored:.2g}"
    return f"up to {turn} {what}{'s' * (turn != '1')}"


def _cells(way: Way, whole: bool, fresh: bool) -> list[str]:
    cells: list[tuple[Any, Any]] = [(way.messages, way.messages_margin)]
    cells += [(way.bytes, way.bytes_margin)] * whole + [(way.changed, way.changed_margin)] * fresh
    return [_around(value, margin) for value, margin in cells]


def _around(value: float, margin: float) -> str:
    """A number with its margin, if that is not far below its last digit."""
    digits = 1 if value < 1000 else 0
    shown = f"{value:,.{digits}f}"
    return f"{shown} ± {margin:,.{digits}f}" if margin >= 0.05 * 10.0 ** (1 - digits) else shown


def _cheaper(found: Estimate) -> list[str]:
    """Where a simpler way that hides more costs no more, say so.

    A mirror that fetched everything at every request would be as fresh as the other ways. It would cost what ON costs.
    """
    ways = {way.name: way for way in found.ways}

    def cost(way: Way) -> float:
        return next(value for value in (way.changed, way.bytes, way.messages) if value is not None)

    words = []
    for simple in ("on", "mirror"):
        beaten = [
            NAMES[name]
            for name in ("past", "sensitive", "both")
            if name in ways and cost(ways[simple]) <= cost(ways[name])
        ]
        if not beaten:
            continue
        said = f"{NAMES[simple]} hides more and costs no more here than {', '.join(beaten)}"
        if simple == "mirror":
            said += f", but what you read is {_age(found.habits)} old. A mirror that is as fresh costs what ON costs"
        words.append(said)
    return words
