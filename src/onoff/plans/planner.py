"""The cheapest plan for any lag, at once; better ones are computed by a process in the background.

A plan serves every larger lag exactly, so a grid of lags is enough and nothing is approximated: `grid` chooses them so
that no lag would gain 1 % by a plan of its own. Until a plan is there the one of a smaller lag serves, and before the
first the race does: no query ever waits. A directory that cannot be used makes requests more expensive, never
impossible.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, partial
from itertools import takewhile
from pathlib import Path
from typing import Self

from onoff.errors import ChainError, OnoffError, PlanError
from onoff.files import path_of
from onoff.model.bounds import outer_bound
from onoff.model.chain import Chain
from onoff.model.posterior import Posterior
from onoff.plans.plan import MAX_LAG, OPTIMAL_LIMIT, Plan, best_scheme, cheapest, plan
from onoff.plans.race import FIRST_DRAWS, race_plan
from onoff.plans.store import PlanStore
from onoff.types import is_whole

POLISH_FROM = 40  # sources from which the comb is saved before the optimum is sought
POLISH_SECONDS = 300.0
COMB_SECONDS = 540.0  # where only a comb is made: it must be saved before the process ends
PAUSE = 5.0  # seconds before a background process that failed is started again
BUSY = 3  # its exit code when another process is computing for the store
LIMIT = 600  # seconds after which a process in the background ends; the next one goes on where it was
NICENESS = 10  # what is computed for later must not slow down what is asked for now
FAR = 4096  # the lag at which the rest of the decay is judged
EXCESS = 0.0099  # of the bound: what a lag without a plan of its own costs more at most; with a plan's gap, below 1 %
WORTH = 1e-3  # the last lag of the grid is the first whose bound is within this share of that at the far lag


class Planner:
    """Plans for one chain. `best(lag)` never waits; `close()` (or `with`) ends the process in the background.

    Which plan serves when depends on the clock, never on the requests. `trouble` says why plans cannot be kept, if so.
    Then the client uses the plans that can be read, and the race.
    """

    def __init__(
        self,
        chain: Chain,
        directory: str | Path | None = None,
        *,
        background: bool = True,
        limit: float = LIMIT,
        usable: Callable[[Plan], bool] = lambda plan: True,
    ) -> None:
        """With `background=False` start no process and write nothing; otherwise end it after `limit` seconds.

        Only `usable` plans are given out, if there are any.
        """
        place = None if directory is None else path_of(directory, "the directory of plans", PlanError)
        self.store = PlanStore(chain, place, make=False)
        self.trouble: str | None = None
        self._background, self._limit, self._usable = background, limit, usable
        if background:
            self._make_store()
        self._loaded: dict[int, Plan] = {}
        self._seen: dict[int, int] = {}  # when each file that was looked at was written
        self._worker: subprocess.Popen[bytes] | None = None
        self._reach = 0  # the lag up to which everything has been done
        self._asked = 0  # the lag up to which the background was asked to work
        self._started = 0.0
        self._first: Plan = race_plan(chain, 1, FIRST_DRAWS)
        self.best(1)

    def best(self, lag: int) -> Plan:
        """Find the cheapest available plan of at most this lag."""
        if not is_whole(lag, 1):
            raise PlanError(f"the lag is {lag!r}: plans are for lags of at least 1 (while ON, ask for everything)")
        self._refresh()
        self._compute(lag)
        fitting = [plan for plan in self._loaded.values() if plan.lag <= lag]
        return cheapest([plan for plan in (*fitting, self._first) if self._usable(plan)] or [self._first])

    @property
    def is_working(self) -> bool:
        """True if a process in the background is computing plans."""
        return self._worker is not None and self._worker.poll() is None

    def close(self) -> None:
        """End the background; finished plans stay on disk."""
        if self._worker is not None:
            self._worker.terminate()
            self._worker.wait()
        self._worker = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _refresh(self) -> None:
        """Load what the background, or another process, has written since. The first to open a file verifies it."""
        for lag, written in self.store.lags().items():
            if self._seen.get(lag) == written:
                continue
            self._seen[lag] = written
            self._loaded.pop(lag, None)
            with suppress(OnoffError, OSError):  # damaged or not realisable: the background makes it anew
                self._loaded[lag] = self.store.load(lag)

    def _all_at_hand(self, lag: int) -> bool:
        """True if a process in the background would find no work."""
        lags, reach = self.store.read_note()
        needed = [each for each in lags if each <= lag]
        return reach >= lag and all(each in self._loaded and is_final(self._loaded[each]) for each in needed)

    def _compute(self, lag: int) -> None:
        """Let the background make plans up to this lag, unless it has done or is doing that."""
        if not self._background or self.is_working or lag <= self._reach:
            return
        now = time.monotonic()
        if self._worker is not None and self._worker.returncode == 0:
            self._reach = max(self._reach, self._asked)
        elif self._worker is not None and now < self._started + PAUSE:
            return  # killed, or another process is computing: try again, but not at once
        if lag <= self._reach:
            return
        if self._all_at_hand(lag):
            self._reach = lag
            return
        if self._worker is not None and self._worker.returncode not in (0, BUSY):
            self._make_store()  # it failed: what describes the store may be damaged
        self._asked, self._started = lag, now
        what = map(str, (self.store.directory, lag, self._limit))
        command = [sys.executable, "-P", "-m", "onoff.plans.planner", *what]  # -P: here may be modules of any name
        try:
            with (self.store.directory / "log").open("ab") as log:
                self._worker = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log
                )
        except OSError as error:
            self._do_without(f"{self.store.directory}: plans cannot be computed here ({error.strerror})")

    def _make_store(self) -> None:
        try:
            self.store.make()
        except PlanError as error:
            self._do_without(str(error))

    def _do_without(self, trouble: str) -> None:
        """Stop computing plans, and use those that can be read."""
        self.trouble, self._background = trouble, False


def grid(bound: Callable[[int], float]) -> Iterator[int]:
    """Yield the lags worth a plan of their own; `bound(lag)` is the outer bound, never rising with the lag.

    After each comes the first lag whose bound is lower by the factor 1 + EXCESS: no lag in between would gain more by
    a plan of its own. The last one is within WORTH of the bound at the lag FAR. So there are at most
    2 + ln(n) / ln(1 + EXCESS) of them, and far fewer where the bound falls fast; to find each takes at most
    2 log2(FAR) bounds.
    """
    lag, floor = 1, bound(FAR) * (1 + WORTH)
    yield lag
    while bound(lag) > floor:
        aim = max(bound(lag) / (1 + EXCESS), floor)
        low, high = lag, lag + 1
        while bound(high) > aim:
            low, high = high, min(2 * high, FAR)
        while high > low + 1:
            middle = (low + high) // 2
            low, high = (middle, high) if bound(middle) > aim else (low, middle)
        lag = high
        yield lag


def coarse() -> Iterator[int]:
    """Yield 1, 2, 3, 5, 8, 13, ...: the lags to plan first."""
    a, b = 1, 2
    while True:
        yield a
        a, b = b, a + b


def compute(store: PlanStore, reach: int) -> None:
    """Make the plans of the grid up to `reach` and a little further: a few far apart first, then those between."""
    bound = cache(partial(_bound, store.chain))
    steps = list(takewhile(lambda lag: lag < reach, coarse()))
    steps.append(next(lag for lag in coarse() if lag >= reach))
    lags = []
    for lag in grid(bound):
        if lag > steps[-1]:
            break
        lags.append(lag)
    else:
        steps[-1] = MAX_LAG  # the last plan serves all lags
    lags = [lag for lag in lags if bound(lag)]
    first = [max(lag for lag in lags if lag <= step) for step in steps]
    for lag in dict.fromkeys([*first, *lags]):
        if not (lag in store.lags() and _is_finished(store, lag)):
            if POLISH_FROM <= store.chain.n <= OPTIMAL_LIMIT:
                store.save(plan(store.chain, lag, "comb"))
            seconds = POLISH_SECONDS if store.chain.n <= OPTIMAL_LIMIT else COMB_SECONDS
            store.save(plan(store.chain, lag, time_limit=seconds))
    store.note(lags, steps[-1])


def _bound(chain: Chain, lag: int) -> float:
    """Compute the outer bound; 0 at a lag whose walks are too unlikely."""
    try:
        return outer_bound(Posterior(chain, lag))
    except ChainError:
        return 0.0


def _is_finished(store: PlanStore, lag: int) -> bool:
    try:
        return is_final(store.load(lag))
    except PlanError:
        return False


def is_final(found: Plan) -> bool:
    """True if `plan` would make this plan: by the best scheme for so many sources."""
    near = found.kind == "table" and found.gap <= 1e-6
    return near or found.scheme in (best_scheme(found.chain.n), "optimal")


def main() -> None:
    """Compute plans: `python -m onoff.plans.planner DIRECTORY REACH SECONDS`. One process at a time for a store."""
    os.nice(NICENESS)
    signal.setitimer(signal.ITIMER_REAL, float(sys.argv[3]))  # ends the process, whatever it is doing
    store = PlanStore.open(Path(sys.argv[1]))
    with store.lock() as mine:
        if not mine:
            sys.exit(BUSY)
        compute(store, int(sys.argv[2]))


if __name__ == "__main__":
    main()
