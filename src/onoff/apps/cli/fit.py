"""`onoff fit` and `onoff check`: a chain from a log of requests, and whether other requests follow it.

`fit` reports what the chain is worth. Given a chain file, it normalises it.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onoff.apps.cli.options import PLAN, AsJson, LogFormat, OneUser, SourceColumn, TimeColumn, TimeFormat, UserColumn
from onoff.apps.cli.output import note, plain_data, print_json, print_table
from onoff.apps.terminal import interrupt_on_signals, progress
from onoff.durations import parse_duration
from onoff.errors import FOUND, ChainError, LogError, OnoffError
from onoff.text import plain

if TYPE_CHECKING:
    from onoff.logs.fit import Report
    from onoff.model.chain import Chain

HEAD = 4096  # bytes, in which a chain file says what it is
ROUNDED = 0.01  # the sum of a row of rounded digits is not further from 1


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel=PLAN, epilog="Example: onoff fit clicks.csv --gap 30m")(interrupt_on_signals()(fit))
    app.command(rich_help_panel=PLAN, epilog="Example: onoff check reader.journal")(check)


def fit(
    log: Annotated[
        list[Path],
        typer.Argument(
            metavar="LOG...",
            help="CSV, JSON lines, Parquet, text, web access log, also .gz or .zip; journals; or a chain to normalise.",
        ),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="The chain, .json or .csv.")] = Path(
        "habits.json"
    ),
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
        float | None, typer.Option(min=0.0, help="Added to every count; if not given, the log chooses.")
    ] = None,
    memory: Annotated[
        str, typer.Option(metavar="auto|1|2|3", help="Remember up to so many requests; auto: as many as pay.")
    ] = "1",
    spark: Annotated[
        str | None, typer.Option(metavar="MASTER", help="Count with Spark there: local[*], spark://HOST:7077.")
    ] = None,
    ram: Annotated[str, typer.Option(help="What DuckDB may use; the rest goes to a temporary directory.")] = "2GB",
    as_json: AsJson = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite --out if it is there.")] = False,
) -> None:
    """Fit a chain to a log of requests, and say what it is worth and what privacy will cost.

    Each row of a chain file, whose digits may have been rounded, is divided by its sum. With --without a source is
    taken out first, as if the chain had been fitted without its requests. Use the new file everywhere from then on: a
    journal belongs to one chain, to the last digit.
    """
    from onoff.logs.fit import fit as fit_log

    pause = None if gap is None else parse_duration(gap)
    _check_out(out, force, memory)
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
        memory=int(memory) if memory.isdecimal() else memory,
        spark=spark,
        ram=ram,
        progress=progress,
    )
    for words in result.report.notes:
        note(words)
    result.chain.save(out)
    if as_json:
        print_json(result.report)
    else:
        _print_report(result.report, out)


def _check_out(out: Path, force: bool, memory: str) -> None:
    """Refuse a file that cannot be written before the log is read."""
    from onoff.files import check_file

    if memory != "1" and out.suffix.lower() == ".csv":
        raise LogError(f"{out}: a CSV holds no habits with memory: end the name in .json, or use --memory 1")
    if out.suffix.lower() not in (".json", ".csv"):
        raise LogError(f"{out}: give the chain a name that ends in .json or .csv")
    check_file(out)
    if out.exists() and not force:
        raise LogError(f"{out}: exists already: give another name, or --force to overwrite it")


def _read_chain(file: Path) -> dict[str, Any] | None:
    """Read names and matrix of a chain file, whatever its rows sum to; None if the file is a log."""
    from onoff.files import explain_reading
    from onoff.model.chainfile import FORMAT, read

    suffix = file.suffix.lower()
    with explain_reading(file, LogError), file.open("rb") as stream:
        if suffix in (".json", ".chain") and f'"{FORMAT}"'.encode() in stream.read(HEAD):
            return read(file)
        columns = stream.readline().count(b",") + 1
        if suffix == ".csv" and len(list(islice(stream, 2 * columns))) < 2 * columns:  # logs are longer
            with suppress(ChainError):
                return read(file)
    return None


def normalise(file: Path, data: dict[str, Any], without: Sequence[str] = ()) -> Chain:
    """Divide each row of a chain by its sum, after taking out the sources `without`.

    P(y | x) stays proportional to what it was. A sum that rounded digits do not explain is an error.
    """
    import numpy as np

    from onoff.model.chain import Chain
    from onoff.model.tree import parse_contexts

    names = data["names"]
    if "contexts" in data:
        states, found = parse_contexts(data["contexts"], names)
    else:
        states, found = [(x,) for x in range(len(names))], data["matrix"]
    said = [" -> ".join(repr(names[x]) for x in state) for state in states]
    try:
        rows = np.array(found, dtype=np.float64)
    except (TypeError, ValueError):
        raise ChainError(f"{file}: rows of numbers are needed") from None
    sums = rows.sum(axis=1)
    for number in np.flatnonzero(~(abs(sums - 1) <= ROUNDED)):
        which = f"row {number} ({said[number]}) sums to {float(sums[number])!r}"
        raise ChainError(f"{file}: {which}, which rounded digits do not explain: mend the row", row=int(number))
    for name in set(without).difference(names):
        raise ChainError(f"{file}: has no source {name!r}, which --without names: it has {', '.join(names)}")
    kept = [x for x, name in enumerate(names) if name not in without]
    stay = [z for z, state in enumerate(states) if set(state) <= set(kept)]
    left = rows[np.ix_(stay, kept)]
    for place, row in zip(stay, left, strict=True):
        if not row.any():
            raise ChainError(f"{file}: after {said[place]} only sources come that are taken out: take it out, too")
    total, weight = left.sum(axis=1), data.get("weight")
    rests_on = None if weight is None else np.array(weight, dtype=np.float64)[stay] * total
    again = [[kept.index(x) for x in states[z]] for z in stay]
    return Chain(left / total[:, None], [names[x] for x in kept], rests_on, again)


def _print_report(report: Report, chain: Path) -> None:
    """Print what was counted, then what the chain, in the file `chain`, is worth, then what privacy costs."""
    from onoff.model.misfit import is_too_small, requests_until_refit

    rows = {
        "rows": report.rows,
        "events": report.events,
        "users": report.users,
        "sequences": report.sequences,
        "transitions": report.transitions,
        "different sources": report.sources,
        "sources that became one": report.merged_sources,
        "rows without a user": report.missing_user,
        "rows without a time that can be read": report.missing_time,
        "rows left out for that": report.dropped_rows,
        "rows that end a sequence: theirs is no source of the chain": report.breaks,
    }
    print_table("the log", ("", "number"), [(name, f"{number:,}") for name, number in rows.items() if number])
    _print_worth(report, chain)
    _print_depths(report)
    print(report.verdict)
    if is_too_small(report.transitions, report.n):
        return
    print(f"`onoff costs {shlex.quote(str(chain))}` says how many.")
    if report.users == 1:
        states = report.depths[report.memory - 1].states
        lasting = requests_until_refit(report.transitions, report.n, states)
        print(f"This chain lasts for about {lasting:,} requests. Then `onoff check` may call it wrong: fit again.")


def _print_worth(report: Report, chain: Path) -> None:
    share = f"nobody made {report.unseen_cells:.2%} of the {report.n}² possible transitions"
    unseen = share if report.unseen_cells else "every transition was seen"
    print(f"{chain}: {report.n} sources, smoothing {report.smoothing:g}; {unseen}")
    if report.dead_ends:
        print(f"never followed by anything, so a new sequence starts after them: {', '.join(report.dead_ends)}")
    bits = "some of their transitions are called impossible; use --smoothing"
    if report.bits is not None:
        bits = f"{report.bits:.3f} bits a request ({report.marginal_bits:.3f} if the last request told nothing)"
    print(f"readers who were held out in turn: {bits}")


def _print_depths(report: Report) -> None:
    """Print what it costs to remember more, and what a server that remembers more sees otherwise."""
    if len(report.depths) == 1:
        print("what longer memory would change is not known for so many sources (--top)")
        return
    title = f"habits that remember up to so many requests (this chain: --memory {report.memory})"
    headings = ("requests", "states", "bits a request", "least messages", "a server sees otherwise")
    rows = [
        (str(one.memory), str(one.states), "–" if one.bits is None else f"{one.bits:.3f}", f"{one.first_cost:.2f}",
         "not counted" if one.distance is None else f"{one.distance:.1%}")
        for one in report.depths
    ]  # fmt: skip
    print_table(title, headings, rows)
    print(f"least messages: of {report.n}, at the first OFF step after ON, by the promise past")
    print("the last column: how far a server that remembers one request more expects otherwise than these habits (mean")
    print("total variation); an OFF step tells it at most so much of earlier requests")


def check(
    requests: Annotated[Path | None, typer.Argument(metavar="FILE", help="A journal, or a log as for `fit`.")] = None,
    chain: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The chain; a journal of the command line remembers it.")
    ] = None,
    user: UserColumn = None,
    time: TimeColumn = None,
    source: SourceColumn = None,
    one_user: OneUser = False,
    time_format: TimeFormat = None,
    kind: LogFormat = None,
    as_json: AsJson = False,
) -> None:
    """Test whether requests follow the chain: what is promised holds only as far as they do.

    Without a file it is the journal that `onoff get` uses. Exit code 1 if the requests do not follow the chain.
    """
    from onoff.client.connect import default_journal
    from onoff.client.status import snapshot
    from onoff.logs.follow import follows, read_journal_requests, read_log_requests
    from onoff.logs.journals import is_journal, read_journal
    from onoff.logs.read import ReadOptions
    from onoff.model.chain import Chain
    from onoff.model.misfit import requests_until_refit

    requests = requests or default_journal()
    if is_journal(requests):
        if read_journal(requests).chain is None:
            if chain is None:
                raise OnoffError(f"{requests}: learned and has no chain: give the one to test, --chain FILE")
            note("if the chain was fitted to this journal, this is no test: it knows these requests. Test later ones")
        known = Chain.load(chain) if chain is not None else snapshot(requests).memory.known_chain(requests)
        found = read_journal_requests(requests, known)
    elif chain is None:
        raise OnoffError(f"{requests}: is not a journal, so the chain is needed: --chain FILE")
    else:
        known = Chain.load(chain)
        with progress("reading")(None):
            found = read_log_requests(requests, known, ReadOptions(user, time, source, one_user, time_format, kind))
    for words in found.notes:
        note(words)
    if found.unknown:
        such = plain(found.unknown[0], 60)
        note(f"requests for no source of the chain, such as {such}, which were not tested: {len(found.unknown)}")
    with progress("testing")(None):
        result = follows(known, found.indices, begins=found.begins)
    if as_json:
        print_json({**plain_data(result), "refuted": result.refuted, "unknown": len(found.unknown)})
    else:
        print(result.words())
        if result.refuted:
            slight = "The chain is nearly right: fit it again, to open requests like these, too."
            wrong = "Do not rely on this chain: `onoff fit --memory auto` on open requests, or ask for everything."
            print(slight if result.is_slight else wrong)
            if known.weight is not None:
                rests_on = int(known.weight[: known.n].sum())
                lasting = requests_until_refit(rests_on, known.n, len(known.states))
                print(f"This chain rests on about {rests_on:,} requests, and lasts for about {lasting:,} at best.")
    if result.refuted:
        raise typer.Exit(FOUND)
