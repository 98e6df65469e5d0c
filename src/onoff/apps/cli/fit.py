"""`onoff fit`: a chain from a log of requests, with a report of what it is worth; or from a chain file, normalised."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from itertools import islice
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
from onoff.apps.cli.output import counted, note, print_json, print_table
from onoff.apps.signals import interrupt_on_signals
from onoff.errors import ChainError, LogError

if TYPE_CHECKING:
    from onoff.logs.fit import Report
    from onoff.model.chain import Chain

LARGE = 2**26  # bytes: chain files are smaller
ROUNDED = 0.01  # the sum of a row of rounded digits is not further from 1
UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
WIDTH = 40  # of a bar


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
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="The chain, .json or .csv.")],
    user: UserColumn = None,
    time: TimeColumn = None,
    source: SourceColumn = None,
    one_user: OneUser = False,
    time_format: TimeFormat = None,
    kind: LogFormat = None,
    without: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Leave this source out of the chain; may be given several times."),
    ] = None,
    gap: Annotated[str | None, typer.Option(help="A longer pause starts a new sequence: 30m, 2h, 90.")] = None,
    top: Annotated[int, typer.Option(min=1, max=1000, help="Keep so many sources; the others become `other`.")] = 100,
    smoothing: Annotated[
        float | None, typer.Option(min=0.0, help="Added to every count; if not given, the log itself chooses.")
    ] = None,
    held_out: Annotated[float, typer.Option(help="Share of users that test the chain and do not shape it.")] = 0.2,
    seed: Annotated[int, typer.Option(min=0, help="Chooses the held-out users.")] = 1,
    lags: Annotated[str, typer.Option(help="Show the cost at these lags: 3, or 1-10, or 1,2,5.")] = "1-10",
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
    from onoff.apps.progress import progress
    from onoff.logs.fit import fit as fit_log

    wanted, pause = parse_lags(lags, least=1), None if gap is None else parse_gap(gap)
    _check_files(log, out, force)
    given = _read_chain(log[0]) if len(log) == 1 else None
    if given is not None:
        chain = normalise(log[0], given, without or [])
        chain.save(out)
        print(f"{out}: {chain.n} sources; {log[0]} is a chain, and each of its rows is divided by its sum")
        return
    result = fit_log(
        *log,
        user=user,
        time=time,
        source=source,
        one_user=one_user,
        time_format=time_format,
        kind=kind,
        without=without or (),
        gap=pause,
        top=top,
        smoothing=smoothing,
        held_out=held_out,
        seed=seed,
        lags=wanted,
        spark=spark,
        memory=memory,
        progress=progress,
    )
    for words in result.report.notes:
        note(words)
    result.chain.save(out)
    if as_json:
        print_json(result.report)
    else:
        _print_report(result.report, out, chosen=smoothing is None)


def _check_files(logs: list[Path], out: Path, force: bool) -> None:
    """Refuse a file that cannot be written, or that would overwrite a log, before the log is read."""
    from onoff.files import check_file

    if out.suffix.lower() not in (".json", ".csv"):
        raise LogError(f"{out}: give the chain a name that ends in .json or .csv")
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


def _read_chain(file: Path) -> dict[str, Any] | None:
    """Read names and matrix of a chain file, whatever its rows sum to; None if the file has another form."""
    from onoff.model.chainfile import read

    try:
        if file.suffix.lower() == ".csv":
            with file.open(encoding="utf-8") as lines:
                columns = next(lines, "").count(",") + 1
                if len(list(islice(lines, 2 * columns))) == 2 * columns:  # a log, and perhaps a long one
                    return None
        elif file.stat().st_size > LARGE:
            return None
        return read(file)
    except (ChainError, OSError, UnicodeDecodeError):
        return None


def normalise(file: Path, data: dict[str, Any], without: Sequence[str] = ()) -> Chain:
    """Divide each row of a chain by its sum, after taking out the sources `without`.

    P(y | x) stays proportional to what it was. A sum that rounded digits do not explain is an error.
    """
    import numpy as np

    from onoff.model.chain import Chain

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


def _print_report(report: Report, chain: Path, chosen: bool) -> None:
    """Print what was counted, then what the chain, in the file `chain`, is worth, then what privacy costs."""
    from onoff.model.misfit import is_too_small, requests_until_refit

    _print_counts(report)
    _print_worth(report, chosen)
    _print_misfit(report)
    print(f"\nleast cost of a request (outer bound, promise both), of {report.n} messages, by steps since ON")
    for row in report.costs:
        bar = "█" * max(1, round(WIDTH * row.outer / report.n))
        print(f"{row.lag:>5} {bar:<{WIDTH}}│ {row.outer:.3f}")
    print(report.verdict)
    if is_too_small(report.transitions, report.n):
        return
    rates = f"`onoff costs {shlex.quote(str(chain))} --promise past`"
    print(f"The promise past usually costs less: {rates} says how much.")
    if report.users == 1:
        requests = requests_until_refit(report.transitions, report.n)
        print(
            f"A chain of so many transitions lasts for about {requests:,} requests: after that "
            "`onoff check` may call it wrong although habits are the same. Then fit again, to these requests too."
        )


def _print_counts(report: Report) -> None:
    always = {
        "rows": report.rows,
        "events": report.events,
        "users": report.users,
        "sequences": report.sequences,
        "transitions": report.transitions,
        "different sources": report.sources,
    }
    if_any = {
        "rows without a user": report.missing_user,
        "rows without a time that can be read": report.missing_time,
        "rows left out for that": report.dropped_rows,
        "rows that name no source, or one that is left out": report.missing_source,
        "rows that end a sequence: theirs is no source of the chain": report.breaks,
        "sources of training users that became one": report.merged_sources,
        "their events": report.merged_events,
        "sources of held-out users only": report.unseen_sources,
    }
    rows = {**always, **{name: number for name, number in if_any.items() if number}}
    print_table("the log", ("", "number"), [(name, f"{number:,}") for name, number in rows.items()])


def _print_worth(report: Report, chosen: bool) -> None:
    how = " (chosen by users, or blocks of one user, held out in turn)" if chosen else ""
    print(
        f"chain: {report.n} sources from {report.training_transitions:,} transitions of "
        f"{counted(report.training_users, 'training user')}, smoothing {report.smoothing:g}{how}"
    )
    print(f"transitions never seen in training: {report.unseen_cells:.2%} of the {report.n}² possible ones")
    if report.dead_ends:
        print(f"never followed by anything, so a new sequence starts after them: {', '.join(report.dead_ends)}")
    tested = report.held_out
    if tested is None:
        print("no held-out transitions: how well the chain predicts is not known")
    else:
        print(f"held-out users: {tested.transitions:,} transitions, {tested.unseen:.3%} of them never seen in training")
        likelihood = "the chain calls some of them impossible: their likelihood is 0; use --smoothing"
        if tested.bits is not None:
            alone = f"({tested.marginal_bits:.3f} if the last request told nothing)"
            likelihood = f"likelihood: {tested.bits:.3f} bits per transition {alone}"
        print(likelihood)
    gain = report.second_order_gain
    if gain is None:
        print("distance from first order: not known: it takes many users (--held-out) and at most 200 sources (--top)")
    else:
        bits, low, high = (round(value, 4) + 0.0 for value in (gain.estimate, gain.low, gain.high))  # no minus zero
        more = f"{bits:.4f} bits per transition more than one ({low:.4f} to {high:.4f})"
        print(f"distance from first order: two requests back tell {more}")


def _print_misfit(report: Report) -> None:
    if report.misfit:
        print("how much an OFF step tells if the true habits differ from this chain as far as the log allows")
        print("(total variation: 0 is private, 1 tells everything; a bound at level 95 %, and an estimate)")
    for row in report.misfit:
        for step, bound, estimate in (
            (f"past, OFF step {row.lag} after ON", row.past, row.past_estimate),
            (f"both, OFF step at lag {row.lag}", row.both, row.both_estimate),
        ):
            # A bound is never rounded down.
            proved = f"at most {ceil(1000 * bound) / 1000:.3f}" if bound < 1 else "nothing is proved"
            print(f"  promise {step}: {proved}" + ("" if estimate is None else f"; about {estimate:.3f}"))
    if any(max(row.both, row.past) >= 1 for row in report.misfit):
        few = counted(report.training_transitions, "transition")
        print(f"  Where nothing is proved, {few} are too few: OFF steps keep their promise for this chain, and")
        print("  what they tell if your habits differ from it is only estimated. More transitions help.")
