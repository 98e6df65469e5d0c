"""The audit of a log: 10,000 steps of 17 and of 100 sources, with both promises; and what it finds.

    .venv/bin/python benchmarks/bench_audit.py [--sources 17 100] [--steps 10000] [--logs 12 | --no-power]

Streams are made by the client's own code, with lost answers, kills and restarts, without a network. Every audit runs in
a process of its own, so that its memory is its own. The second table counts logs with a planted mistake, and at which
wrong step the audit stops: 1 is the first.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from time import process_time
from typing import Any

from common import dirichlet, peak_gigabytes, show, timed
from onoff import Chain, Plan, plan
from onoff.audit.log import Exhibits, audit_log
from onoff.client.laws import maker
from onoff.past import Candidates
from onoff.past.step import prepare
from onoff.plans.table import TablePlan

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))
from replaykit import CheapestPlan, Life, drawing

LAGS = (1, 2, 3, 5, 8)
ATTACKED = 30  # sources up to which the attack is made: it takes n^3 products for a step
LIMIT = {17: "60 s", 100: "300 s"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sources", type=int, nargs="+", default=[17, 100])
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--logs", type=int, default=12)
    parser.add_argument("--no-power", action="store_true", help="only the table of times")
    options = parser.parse_args()
    rows = [measure(n, promise, options.steps) for n in options.sources for promise in ("both", "past")]
    headings = [
        "sources",
        "promise",
        "steps",
        "s to make",
        "s to replay",
        "peak GB",
        "s with attack",
        "peak GB",
        "to reach",
    ]
    show("The audit of a log", headings, rows)
    if not options.no_power:
        headings = ["mistake", "share of draws", "steps", "found", "at the first wrong step"]
        show("Logs of 8 sources with a planted mistake", headings, [power(*one, options.logs) for one in PLANTED])


def measure(n: int, promise: str, steps: int) -> list[object]:
    """Make a stream and audit it in a new process."""
    chain = dirichlet(n, 1)
    with tempfile.TemporaryDirectory() as directory:
        plans = [plan(chain, lag, *(("comb",) if n > 30 else ())) for lag in LAGS] if promise == "both" else []
        for made in plans:
            made.save(Path(directory) / f"lag-{made.lag}.plan.json")
        chain.save(Path(directory) / "chain.json")
        life = Life(Path(directory), promise, chain=chain, planner=CheapestPlan(*plans), cache=2**26)
        _, making = timed(lambda: life.live(steps))
        found: list[float] = []
        for attacked in (False, True) if n <= ATTACKED else (False,):
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as processes:
                found += processes.submit(audit, Path(directory), promise, attacked).result()
    return [n, promise, steps, making, *(*found, "", "")[:4], LIMIT.get(n, "")]


def audit(directory: Path, promise: str, attacked: bool) -> tuple[float, float]:
    """The seconds of processor and the memory of an audit, which must pass."""
    chain = Chain.load(directory / "chain.json")
    exhibits = Exhibits({}, None, lambda *public: prepare(Candidates(*public)), maker())
    if promise == "both":
        exhibits = Exhibits({made.name: made for made in map(Plan.load, directory.glob("*.plan.json"))})
    files = directory / "journal.log", exhibits, directory / "journal"
    start = process_time()
    found = audit_log(chain, *files, attacked=attacked)
    seconds = process_time() - start
    assert found.passed, str(found.verdict)
    return seconds, peak_gigabytes()


Draw = Callable[
    ..., tuple[int, ...]
]  # `draw` of a plan, or one that is called with the honest one before its arguments


def openly(share: float) -> Draw:
    """The wanted source alone, in some steps."""
    coin = random.Random(share)

    def draw(honest: Draw, made: TablePlan, request: int, *rest: Any) -> tuple[int, ...]:
        query = honest(made, request, *rest)
        return (request,) if coin.random() < share else query

    return draw


def everything(share: float) -> Draw:
    """The full set, in some steps."""
    coin = random.Random(share)

    def draw(honest: Draw, made: TablePlan, *rest: Any) -> tuple[int, ...]:
        query = honest(made, *rest)
        return tuple(range(made.n)) if coin.random() < share else query

    return draw


def redraw(share: float) -> Draw:
    """A set of one source is drawn again, once."""
    coin = random.Random(share)

    def draw(honest: Draw, made: TablePlan, *rest: Any) -> tuple[int, ...]:
        query = honest(made, *rest)
        return honest(made, *rest) if len(query) == 1 and coin.random() < share else query

    return draw


def remember(share: float) -> Draw:
    """Draws are kept for their context and sent again, in some steps."""
    coin = random.Random(share)
    kept: dict[object, tuple[int, ...]] = {}

    def draw(honest: Draw, made: TablePlan, *rest: Any) -> tuple[int, ...]:
        query = honest(made, *rest)
        again = kept.setdefault((made.lag, *rest[:-1]), query)
        return again if coin.random() < share else query

    return draw


PLANTED: list[tuple[str, Callable[[float], Draw], float, int]] = [
    ("none", openly, 0.0, 600),
    ("asked openly", openly, 0.01, 600),
    ("asked openly", openly, 0.003, 3000),
    ("full set instead", everything, 0.01, 600),
    ("set of one source drawn again", redraw, 1.0, 600),
    ("draw remembered for its context", remember, 0.1, 600),
]


def power(name: str, mistake: Callable[[float], Draw], share: float, steps: int, logs: int) -> list[object]:
    """Count the logs in which a mistake was found, and those in which it was at the first wrong step."""
    chain = dirichlet(8, 1)
    planner = CheapestPlan(*(plan(chain, lag) for lag in LAGS[:4]))
    wrong = found = first = 0
    for seed in range(logs):
        with tempfile.TemporaryDirectory() as directory:
            life = Life(Path(directory), "both", chain=chain, planner=planner, seed=seed)
            life.live(steps, [drawing(life, TablePlan, mistake(share))])
            verdict = life.audit()
        wrong += bool(life.wrong)
        found += bool(verdict.findings)
        first += bool(life.wrong and verdict.first is not None and verdict.first.step == life.wrong[0])
    return [name, f"{share:g}", steps, f"{found} of {logs}", f"{first} of {wrong}"]


if __name__ == "__main__":
    main()
