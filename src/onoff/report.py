"""What the command line shows: tables, progress bars and the plot of costs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from onoff.chain import Chain
from onoff.errors import OnoffError
from onoff.limits import bounds
from onoff.schemes.paper import paper

if TYPE_CHECKING:
    from onoff.demo import Simulation

PAPER_LIMIT = 200  # beyond it the scheme's table takes gigabytes; its inner bound stands in
PICTURES = (".png", ".svg", ".pdf")
Advance = Callable[[], None]
Bar = Callable[[int], AbstractContextManager[Advance]]


@dataclass(frozen=True)
class Rate:
    """Costs in messages per request at one lag; `paper` is None where only its bound `inner` was computed."""

    lag: int
    everything: int
    paper: float | None
    inner: float
    outer: float


def _console(stream: TextIO) -> Console:
    """Colours and bars on a terminal only, whatever FORCE_COLOR says: a file with escape codes helps nobody."""
    return Console(file=stream, force_terminal=None if stream.isatty() else False)


def progress(title: str) -> Bar:
    """A progress bar on stderr, shown only on a terminal and gone when the work is done."""

    @contextmanager
    def bar(total: int) -> Iterator[Advance]:
        console = _console(sys.stderr)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as shown:
            task = shown.add_task(title, total=total)
            yield lambda: shown.advance(task)

    return bar


def rates(chain: Chain, lags: Sequence[int], bar: Bar) -> list[Rate]:
    """The costs at each lag."""
    rows = []
    with bar(len(lags)) as advance:
        for lag in lags:
            posterior = chain.posterior(lag)
            both = bounds(posterior)
            cost = float(paper(posterior).cost) if chain.n <= PAPER_LIMIT else None
            rows.append(Rate(lag, chain.n, cost, float(both.inner), float(both.outer)))
            advance()
    return rows


def print_rates(rows: Sequence[Rate]) -> None:
    table = Table(title="messages per request", title_justify="left")
    for heading in ("lag", "everything", "paper's scheme", "outer bound"):
        table.add_column(heading, justify="right")
    for row in rows:
        cost = f"<= {row.inner:.4f}" if row.paper is None else f"{row.paper:.4f}"
        table.add_row(str(row.lag), str(row.everything), cost, f"{row.outer:.4f}")
    _console(sys.stdout).print(table)


def check_picture(file: Path) -> None:
    """Complain about the name before the work, not after it."""
    if file.suffix.lower() not in PICTURES:
        raise OnoffError(f"{file}: a picture ends in {', '.join(PICTURES)}")
    if file.is_dir():
        raise OnoffError(f"{file}: is a directory; name a file")
    if not file.parent.is_dir():
        raise OnoffError(f"{file}: there is no directory {file.parent}")


def plot_rates(rows: Sequence[Rate], file: Path) -> None:
    """Cost over lag for everything, the paper's scheme (or its bound) and the outer bound."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    lags = [row.lag for row in rows]
    axes.plot(lags, [row.everything for row in rows], color="gray", linestyle=":", label="everything")
    scheme = [row.inner if row.paper is None else row.paper for row in rows]
    label = "paper's scheme" if rows[0].paper is not None else "paper's inner bound"
    axes.plot(lags, scheme, color="#0072bd", marker="o", markersize=4, label=label)
    axes.plot(lags, [row.outer for row in rows], color="#d62728", linewidth=4, alpha=0.4, label="outer bound")
    axes.set_xlabel("lag (steps since privacy was last ON)")
    axes.set_ylabel("cost (messages per request)")
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(file, dpi=200)


def print_demo(result: Simulation) -> None:
    table = Table(title=f"{result.steps} requests, privacy ON for {result.private_steps}", title_justify="left")
    for heading in ("", "messages", "per request"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, messages in (
        ("downloading everything", result.everything),
        ("the paper's scheme, this run", result.downloaded),
        ("the paper's scheme, expected", result.expected),
        ("inner bound: the paper's scheme at most", result.inner),
        ("outer bound: no scheme needs less", result.outer),
    ):
        table.add_row(name, f"{messages:.0f}", f"{messages / result.steps:.3f}")
    _console(sys.stdout).print(table)
    print(f"every wanted message arrived: {'yes' if result.all_delivered else 'NO'}")
