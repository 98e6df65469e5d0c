"""What the command line shows: tables, progress bars, and numbers as people read them."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bars
from rich.table import Table

from onoff.apps.ticking import ticking
from onoff.apps.tone import Tone, tone
from onoff.foreign import plain
from onoff.model.bounds import bounds
from onoff.model.chain import Chain
from onoff.plans.making import plan
from onoff.schemes import SCHEMES
from onoff.schemes.paper import LIMIT as PAPER_LIMIT
from onoff.schemes.paper import paper
from onoff.types import Advance, Bar

if TYPE_CHECKING:
    from onoff.plans.base import Plan

LEAST = 1e-6  # the gap up to which a cost counts as the least possible
BOUND_LIMIT = 300  # beyond it the outer bound takes longer than a status may


@dataclass(frozen=True)
class Rate:
    """Costs in messages per request at one lag; `paper` is None where only its bound `inner` was computed.

    `optimum` is the cost of the plan found by `scheme`. If that is a table, no scheme is cheaper by more than `gap`.
    """

    lag: int
    everything: int
    paper: float | None
    inner: float
    optimum: float
    gap: float
    scheme: str
    outer: float


def console_of(stream: TextIO) -> Console:
    """A console with colours and bars on a terminal only, whatever FORCE_COLOR says: escape codes in a file help
    nobody.
    """
    return Console(file=stream, force_terminal=None if stream.isatty() else False)


def watched(console: Console) -> bool:
    """Whether somebody looks at the progress, and wants to."""
    return console.is_terminal and tone() is not Tone.quiet


def print_table(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table on stdout, with its title as a line above; numbers stand to the right, the first column to the left."""
    console = console_of(sys.stdout)
    console.print(escape(title), style="italic", soft_wrap=True, highlight=False)  # rich breaks it at the table's width
    table = Table()
    for i, heading in enumerate(headings):
        table.add_column(heading, justify="right" if i else "left")
    for row in rows:
        table.add_row(*(escape(plain(cell)) for cell in row))  # a name in brackets is no markup
    console.print(table)


def progress(title: str) -> Bar:
    """A progress bar on stderr, gone when the work is done; where that is no terminal, a line every few seconds."""

    @contextmanager
    def bar(total: int | None) -> Iterator[Advance]:
        console = console_of(sys.stderr)
        if not console.is_terminal:
            done: list[None] = []
            with ticking(title, lambda: _so_far(len(done), total)):
                yield lambda: done.append(None)
            return
        time = TimeElapsedColumn() if total is None else TimeRemainingColumn()
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), time)
        with Bars(*columns, console=console, transient=True, disable=not watched(console)) as shown:
            task = shown.add_task(title, total=total)
            yield lambda: shown.advance(task)

    return bar


def _so_far(done: int, total: int | None) -> str:
    """How much is done, if that can be counted."""
    if total is not None:
        return f"{done} of {total}"
    return f"{done}" if done else "at work"


def rates(chain: Chain, lags: Sequence[int], bar: Bar, time_limit: float | None = None) -> list[Rate]:
    """The costs at each lag, with at most `time_limit` seconds for each optimum. Ctrl-C shows what is finished."""
    rows: list[Rate] = []
    try:
        with bar(len(lags)) as advance:
            for lag in lags:
                posterior = chain.posterior(lag)
                both = bounds(posterior)
                cost = float(paper(posterior).cost) if chain.n <= PAPER_LIMIT else None
                best = plan(chain, lag, time_limit=time_limit)
                found = best.cost, best.gap, best.scheme
                rows.append(Rate(lag, chain.n, cost, float(both.inner), *found, float(both.outer)))
                advance()
    except KeyboardInterrupt:
        if rows:
            print_rates(rows, sys.stderr)  # not on stdout, where a program may expect all lags, or JSON
        raise
    return rows


def print_rates(rows: Sequence[Rate], stream: TextIO | None = None) -> None:
    """A table, on stdout if no stream is given. A cost that is not proved to be the least names its scheme."""
    table = Table(title="messages per request", title_justify="left")
    for heading in ("lag", "everything", "paper's scheme", "optimum", "proved gap", "outer bound"):
        table.add_column(heading, justify="right")
    for row in rows:
        cost = f"<= {row.inner:.4f}" if row.paper is None else f"{row.paper:.4f}"
        best = f"{row.optimum:.4f}" if SCHEMES[row.scheme].table else f"~ {row.optimum:.2f}"
        best += "" if SCHEMES[row.scheme].table and row.gap <= LEAST else f" ({row.scheme})"
        table.add_row(str(row.lag), str(row.everything), cost, best, percent(row.gap), f"{row.outer:.4f}")
    console_of(stream or sys.stdout).print(table)


def percent(gap: float) -> str:
    """A gap for people, always in per cent; a small one with a power of ten."""
    return f"{100 * gap:.0e} %" if 0 < gap < 1e-4 else f"{100 * gap:.2f} %"


def unit(lengths: Sequence[float] | None) -> str:
    """What costs are counted in."""
    return "messages" if lengths is None else "bytes"


def size(number: float) -> str:
    """A number of bytes for people: with separators, and with a larger unit where there are many."""
    exact = f"{number:,.0f} bytes" if number != 1 else "1 byte"
    for power, name in ((9, "GB"), (6, "MB")):
        if number >= 10**power:
            return f"{exact} ({number / 10**power:,.1f} {name})"
    return exact


def amount(cost: float, lengths: Sequence[float] | None, digits: int = 3) -> str:
    """A cost for people, without its unit: messages with digits, bytes with separators."""
    return f"{cost:.{digits}f}" if lengths is None else f"{cost:,.{0 if cost >= 100 else 1}f}"


def print_plans(plans: Sequence[Plan]) -> None:
    table = Table(title=f"plans, cost in {unit(plans[0].lengths)} per request", title_justify="left")
    for heading in ("lag", "scheme", "cost", "lower bound", "proved gap", "rounding per step"):
        table.add_column(heading, justify="right")
    for made in plans:
        rounding = f"2^{math.log2(made.rounding):.1f}"
        cost, bound = (amount(value, made.lengths, 4) for value in (made.cost, made.lower_bound))
        table.add_row(str(made.lag), made.scheme, cost, bound, percent(made.gap), rounding)
    console_of(sys.stdout).print(table)
    if (found := _farthest(plans)) is not None:
        made, lag = found
        print(f"lags in between are served by the plan before them, at most {percent(made.excess_at(lag))} above the "
              f"outer bound of the lag (at lag {lag})")  # fmt: skip


def _farthest(plans: Sequence[Plan]) -> tuple[Plan, int] | None:
    """Between which two plans a lag is served at the largest excess: that just before the second one's."""
    if plans[0].n > BOUND_LIMIT:
        return None
    between = [(made, after.lag - 1) for made, after in pairwise(plans) if after.lag > made.lag + 1]
    return max(between, key=lambda pair: pair[0].excess_at(pair[1]), default=None)


def counted(number: int, what: str, many: str | None = None) -> str:
    """A number with its noun: "1 request", "2 requests"."""
    return f"{number:,} {what if number == 1 else many or what + 's'}"
