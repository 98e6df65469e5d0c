"""`onoff fit`: a chain from a log of requests, with a report of what it is worth; or from a chain file, normalised."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onoff.apps.cli.options import (
    PLAN,
    AsJson,
    LogFormat,
    OneUser,
    SourceColumn,
    TimeColumn,
    TimeFormat,
    UserColumn,
    parse_lags,
)
from onoff.apps.cli.output import note, print_json
from onoff.apps.signals import interrupt_on_signals
from onoff.errors import ChainError, LogError

if TYPE_CHECKING:
    from onoff.model.chain import Chain

LARGE = 2**26  # bytes: chain files are smaller
ROUNDED = 0.01  # the sum of a row of rounded digits is not further from 1
UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def register(app: typer.Typer) -> None:
    app.command(
        rich_help_panel=PLAN,
        epilog="Example: onoff fit clicks.csv -o chain.json --user reader --time time --source channel --gap 30m",
    )(interrupt_on_signals()(fit))


def fit(
    log: Annotated[
        list[Path],
        typer.Argument(
            metavar="LOG...",
            help="CSV, JSON lines, Parquet, text, web access log, also .gz or .zip; journals; or a chain to normalise.",
        ),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="The chain with its counts, .json.")],
    user: UserColumn = None,
    time: TimeColumn = None,
    source: SourceColumn = None,
    one_user: OneUser = False,
    time_format: TimeFormat = None,
    kind: LogFormat = None,
    open_only: Annotated[
        bool, typer.Option("--open-only", help="Of a journal: use requests that were asked OFF alone.")
    ] = False,
    without: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Leave this source out of the chain; may be given several times."),
    ] = None,
    gap: Annotated[str | None, typer.Option(help="A longer pause starts a new sequence: 30m, 2h, 90.")] = None,
    top: Annotated[int, typer.Option(min=1, max=1000, help="Keep so many sources; the others become `other`.")] = 100,
    smoothing: Annotated[float, typer.Option(min=0.0, help="Added to every count.")] = 1.0,
    held_out: Annotated[float, typer.Option(help="Share of users that test the chain and do not shape it.")] = 0.2,
    seed: Annotated[int, typer.Option(min=0, help="Chooses the held-out users and the bootstrap samples.")] = 1,
    lags: Annotated[str, typer.Option(help="Show the cost at these lags: 3, or 1-10, or 1,2,5.")] = "1-10",
    bootstrap: Annotated[int | None, typer.Option(min=0, help="Samples for intervals of the cost; 0 for none.")] = None,
    spark: Annotated[
        str | None, typer.Option(metavar="MASTER", help="Count with Spark there: local[*], spark://HOST:7077.")
    ] = None,
    memory: Annotated[str, typer.Option(help="What DuckDB may use; the rest goes to a temporary directory.")] = "2GB",
    as_json: AsJson = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite --out if it is there.")] = False,
) -> None:
    """Fit a chain to a log of requests, and say what it is worth and what privacy will cost.

    Each row of a chain file, whose digits may have been rounded, is divided by its sum. With --without a source is
    taken out first, as if the chain had been fitted without its requests. Use the new file everywhere from then on: a
    journal belongs to one chain, to the last digit.
    """
    from onoff.apps.cli.showfit import print_fit
    from onoff.apps.progress import progress
    from onoff.logs.fit import fit as fit_log

    wanted, pause = parse_lags(lags, least=1), None if gap is None else parse_gap(gap)
    _check_files(log, out, force)
    if len(log) == 1 and is_chain(log[0]):
        chain = normalise(log[0], without or [])
        chain.save(out)
        print(f"{out}: {chain.n} sources; each row of {log[0]} is divided by its sum")
        return
    result = fit_log(
        *log,
        user=user,
        time=time,
        source=source,
        one_user=one_user,
        time_format=time_format,
        kind=kind,
        open_only=open_only,
        without=without or (),
        gap=pause,
        top=top,
        smoothing=smoothing,
        held_out=held_out,
        seed=seed,
        lags=wanted,
        replicates=bootstrap,
        spark=spark,
        memory=memory,
        progress=progress,
    )
    for words in result.report.notes:
        note(words)
    result.save(out)
    if as_json:
        print_json(result.report)
    else:
        print_fit(result.report, out)


def _check_files(logs: list[Path], out: Path, force: bool) -> None:
    """Refuse a file that cannot be written, or that would overwrite a log, before the log is read."""
    from onoff.files import check_file

    if out.suffix.lower() != ".json":
        raise LogError(f"{out}: a chain with its counts is written as JSON; give a name that ends in .json")
    check_file(out)
    if out.exists() and not force:
        raise LogError(f"{out}: exists already: give another name, or --force to overwrite it")
    files = [os.path.realpath(file) for file in (*logs, out)]
    if len(set(files)) < len(files):
        raise LogError("the same file twice: LOG and --out are different files")


def parse_gap(text: str) -> float:
    """`90`, `90s`, `30m`, `2h` or `1d` in seconds."""
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([smhd]?)\s*", text)
    if match is None or float(match[1]) == 0:
        raise typer.BadParameter(f"{text!r} is not a length of time: write 30m, 2h, 1d or a number of seconds")
    return float(match[1]) * UNITS[match[2]]


def is_chain(file: Path) -> bool:
    """Say whether a file has the form of a chain, a square of numbers with names, whatever its rows sum to."""
    from onoff.model.chainfile import read

    try:
        if file.suffix.lower() == ".csv":
            with file.open(encoding="utf-8") as lines:
                columns = next(lines, "").count(",") + 1
                if len(list(islice(lines, 2 * columns))) == 2 * columns:  # a log, and perhaps a long one
                    return False
        elif file.stat().st_size > LARGE:
            return False
        read(file)
    except (ChainError, OSError, UnicodeDecodeError):
        return False
    return True


def normalise(file: Path, without: Sequence[str] = ()) -> Chain:
    """Divide each row of a chain by its sum, after taking out the sources `without`.

    P(y | x) stays proportional to what it was. A sum that rounded digits do not explain is an error.
    """
    import numpy as np

    from onoff.model.chain import Chain
    from onoff.model.chainfile import read

    data = read(file)
    names, rows = data["names"], np.array(data["matrix"], dtype=np.float64)
    sums = rows.sum(axis=1)
    for number in np.flatnonzero(~(abs(sums - 1) <= ROUNDED)):
        which = f"row {number} ({names[number]!r}) sums to {float(sums[number])!r}"
        raise ChainError(f"{file}: {which}, which rounded digits do not explain: mend the row", row=int(number))
    for name in without:
        if name not in names:
            raise ChainError(f"{file}: has no source {name!r}, which --without names: it has {', '.join(names)}")
    kept = [i for i, name in enumerate(names) if name not in without]
    left = rows[np.ix_(kept, kept)]
    for place, row in zip(kept, left, strict=True):
        if not row.any():
            raise ChainError(f"{file}: after {names[place]!r} only sources come that are taken out: take it out, too")
    return Chain(left / left.sum(axis=1, keepdims=True), [names[i] for i in kept])
