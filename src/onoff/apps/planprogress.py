"""How far the making of plans has come: a bar, and what is in work beside it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.text import Text

from onoff.apps.terminal import console_of, percent, watched
from onoff.apps.ticking import ticking

if TYPE_CHECKING:
    from onoff.plans.base import Plan


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
    console = console_of(sys.stderr)
    with TemporaryDirectory(ignore_cleanup_errors=True) as directory:  # a process may still be noting
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        state = _State()
        with Bars(*columns, state, console=console, transient=True, disable=not watched(console)) as bars:
            shown = state.told = PlanProgress(bars, lags, Path(directory))
            with nullcontext() if console.is_terminal else ticking("plans", shown.line):
                yield shown
