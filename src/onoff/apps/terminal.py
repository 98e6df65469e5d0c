"""What the command line shows: tables and progress bars."""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bars
from rich.table import Table
from rich.text import Text

from onoff.apps.ticking import ticking
from onoff.apps.tone import Tone, tone
from onoff.foreign import plain
from onoff.model.bounds import bounds, outer_bound
from onoff.model.chain import Chain
from onoff.plans.making import plan
from onoff.schemes import SCHEMES
from onoff.schemes.paper import LIMIT as PAPER_LIMIT
from onoff.schemes.paper import paper
from onoff.types import Advance, Bar

if TYPE_CHECKING:
    from onoff.client.standing import Standing
    from onoff.client.stored import Totals
    from onoff.client.traffic import Traffic
    from onoff.logs.following import Following
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


def _console(stream: TextIO) -> Console:
    """A console with colours and bars on a terminal only, whatever FORCE_COLOR says: escape codes in a file help
    nobody.
    """
    return Console(file=stream, force_terminal=None if stream.isatty() else False)


def _watched(console: Console) -> bool:
    """Whether somebody looks at the progress, and wants to."""
    return console.is_terminal and tone() is not Tone.quiet


def print_table(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table on stdout; numbers stand to the right, the first column to the left."""
    table = Table(title=title, title_justify="left")
    for i, heading in enumerate(headings):
        table.add_column(heading, justify="right" if i else "left")
    for row in rows:
        table.add_row(*(escape(plain(cell)) for cell in row))  # a name in brackets is no markup
    _console(sys.stdout).print(table)


def progress(title: str) -> Bar:
    """A progress bar on stderr, gone when the work is done; where that is no terminal, a line every few seconds."""

    @contextmanager
    def bar(total: int | None) -> Iterator[Advance]:
        console = _console(sys.stderr)
        if not console.is_terminal:
            done: list[None] = []
            with ticking(title, lambda: f"{len(done)}" if total is None else f"{len(done)} of {total}"):
                yield lambda: done.append(None)
            return
        time = TimeElapsedColumn() if total is None else TimeRemainingColumn()
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), time)
        with Bars(*columns, console=console, transient=True, disable=not _watched(console)) as shown:
            task = shown.add_task(title, total=total)
            yield lambda: shown.advance(task)

    return bar


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
    _console(stream or sys.stdout).print(table)


def percent(gap: float) -> str:
    """A gap for people, always in per cent; a small one with a power of ten."""
    return f"{100 * gap:.0e} %" if 0 < gap < 1e-4 else f"{100 * gap:.2f} %"


class PlanProgress:
    """A bar of finished plans, with what is in work beside it.

    Plans are made in other processes: each may note its cost and bound in a file of the directory `notes`, which is
    read whenever the bar is drawn, or a line printed. On a cluster nothing is noted.
    """

    def __init__(self, bars: Bars, lags: Sequence[int], notes: Path) -> None:
        self.notes = notes
        self._bars, self._lags = bars, len(lags)
        self._finished, self._last = 0, ""
        self._task = bars.add_task("plans", total=len(lags))

    def done(self, lag: int, plan: Plan) -> None:
        self._finished, self._last = self._finished + 1, f"lag {lag} gap {percent(plan.gap)}"
        self._bars.update(self._task, advance=1, refresh=True)

    def line(self) -> str:
        """How many are finished, and `state`."""
        return f"{self._finished} of {self._lags} ({self.state()})"

    def state(self) -> str:
        """The plan finished last with its gap, and those in work as far as they are known."""
        now = []
        for file in sorted(self.notes.iterdir(), key=lambda file: int(file.name)):
            with suppress(OSError, ValueError):  # finished, or being written
                found = [float(word) for word in file.read_text().split()]
                now.append(f"lag {file.name}" + (f" gap {percent(found[0] / found[1] - 1)}" if found else ""))
        return f"done: {self._last or 'none'}; now: {', '.join(now) or 'unknown'}"


class _State(ProgressColumn):
    """What `PlanProgress.state` says, beside the bar."""

    told: PlanProgress | None = None

    def render(self, task: Task) -> Text:  # noqa: ARG002
        return Text("" if self.told is None else self.told.state())


@contextmanager
def plan_progress(lags: Sequence[int]) -> Iterator[PlanProgress]:
    """Bars on stderr while plans are made; where that is no terminal, a line every few seconds."""
    console = _console(sys.stderr)
    with TemporaryDirectory(ignore_cleanup_errors=True) as directory:  # a process may still be noting
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        state = _State()
        with Bars(*columns, state, console=console, transient=True, disable=not _watched(console)) as bars:
            shown = state.told = PlanProgress(bars, lags, Path(directory))
            with nullcontext() if console.is_terminal else ticking("plans", shown.line):
                yield shown


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
    _console(sys.stdout).print(table)
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


def print_totals(
    totals: Totals, chain: Chain, lengths: Sequence[float] | None, since: int, promise: str = "both"
) -> None:
    """What a journal's finished steps, from step `since` on, asked for, against the alternatives for the same lags."""
    steps = totals.steps
    rows = [("the plans used, expected", totals.cost), ("asked for", totals.downloaded)]
    if promise == "both":
        least = sum(count * outer_bound(chain.posterior(lag), lengths) for lag, count in totals.lags.items())
        rows.append(("outer bound: no scheme needs less on average", least))
    else:
        rows[0] = ("the laws used, expected", totals.cost)
    which = " since --lengths changed" if since else ""
    title = f"{counted(steps, 'request')}{which}, privacy ON for {totals.private}: {unit(lengths)} asked for"
    table = Table(title=title, title_justify="left")
    for heading in ("", "in all", "per request"):
        table.add_column(heading, justify="right" if heading else "left")
    everything = steps * _everything(chain, lengths)
    decimals = 1 if everything < 10_000 else 0
    for name, number in (("downloading everything", everything), *rows):
        table.add_row(name, f"{number:,.{decimals}f}", amount(number / max(1, steps), lengths))
    _console(sys.stdout).print(table)
    print(f"{size(totals.bytes)} received, {counted(totals.attempts - steps, 'retry', 'retries')}")


def counted(number: int, what: str, many: str | None = None) -> str:
    """A number with its noun: "1 request", "2 requests"."""
    return f"{number:,} {what if number == 1 else many or what + 's'}"


def _everything(chain: Chain, lengths: Sequence[float] | None) -> float:
    """What the full set costs."""
    return chain.n if lengths is None else math.fsum(lengths)


def print_status(found: Standing, following: Following | None = None, journal: Path | None = None) -> None:
    """Print how a client stands, and at the end whether its requests follow the chain; at the top, too, if they do not.

    `journal` is named in what there is to do, if it is not the usual one.
    """
    if following is not None and following.refuted:
        print("WARNING: the requests of this journal DO NOT FOLLOW its chain. All that is promised is relative to it.")
        print("A server may learn more than is said below: see the last line, and docs/how-to/check.md.")
    state, chain, plan, lengths = found.journal.state, found.chain, found.plan, found.lengths
    names = chain.names
    print_promise(found.journal.promise, [names[source] for source in found.journal.sensitive], chain.n)
    print(f"steps finished: {state.step}")
    after = state.answered  # the next request is made in this state
    if state.pending is not None:
        held = counted(len(state.pending.query), "source")
        print(f"PENDING: {names[state.pending.request]!r} was asked for, in a set of {held}, and is not answered yet")
        resume = "onoff resume" if journal is None else f"onoff resume --journal {shlex.quote(str(journal))}"
        print(f"`{resume}` sends the same set again. Lag and costs below count it as answered, the totals do not")
    if after.last is None:
        left = counted(after.unsettled + 1, "request")
        print(f"the first requests of a journal ask for everything, whatever is said: {left} to go")
    else:
        print(f"steps since privacy was last ON: {after.lag}")
    if after.announced is not None:
        print(f"announced: the next request must be {names[after.announced]!r}")
    if plan is not None:
        lag = after.lag + 1
        cost = (
            f"about {plan.cost:.3g} ({plan.scheme})"
            if plan.estimated and lengths is None
            else f"{'about ' * plan.estimated}{amount(plan.cost, lengths)} ({plan.scheme}, lag {plan.lag})"
        )
        print(f"cost of the next request in {unit(lengths)}: ON {_everything(chain, lengths):,g}, OFF {cost}")
        if chain.n <= BOUND_LIMIT:
            above = f"the plan is {'about ' * plan.estimated}{percent(plan.excess_at(lag))} above that"
            least = outer_bound(chain.posterior(lag), lengths)
            print(f"no scheme needs less than {amount(least, lengths)} on average at lag {lag}: {above}")
    if found.step is not None:
        off = f"OFF {found.step.cost_in(lengths):.3f}"
        print(f"cost of the next request in {unit(lengths)}: ON {_everything(chain, lengths):g}, {off}")
        if found.step.weights == lengths:  # else the bound counts chances of changes, too
            print(f"no law of this promise needs less than {found.step.lower_bound:.3f} at that step")
    print(f"rounding so far: {state.rounding:.2e} (total variation)")
    print_totals(found.journal.totals, chain, lengths, found.since, found.journal.promise)
    if found.journal.traffic is not None:
        print_traffic(found.journal.traffic)
    if following is not None:
        print(following.words())


def print_traffic(traffic: Traffic) -> None:
    """Print the bytes that were downloaded, and about how many other ways of reading would have downloaded."""
    rows = [
        ("downloaded", traffic.downloaded),
        ("of which changed", traffic.changed),
        ("about: asking openly for what was wanted, if changed", traffic.openly),
        ("about: mirroring everything, changed only", traffic.mirrored),
        ("about: downloading everything", traffic.everything),
    ]
    print_table("bytes", ("", "in all"), [(name, f"{amount:.0f}") for name, amount in rows])


def print_promise(promise: str, sensitive: Sequence[str], n: int) -> None:
    """Print which promise is kept, in a sentence, and for which sensitive sources."""
    from onoff.client.promises import PROMISES, SENSITIVE

    print(f"promise {promise}: {PROMISES[promise]}")
    if sensitive:
        print(f"sensitive sources: {', '.join(plain(name, 60) for name in sensitive)}: {SENSITIVE}")
    if len(sensitive) == n:
        print("all sources are sensitive: every request asks for everything")
