"""`onoff plan`: make plans for many lags and keep each as soon as it is finished."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onoff.apps.cli.options import PLAN, AsJson, Dask, Jobs, parse_lags
from onoff.apps.cli.output import note, percent, print_json, print_table
from onoff.apps.terminal import interrupt_on_signals, progress
from onoff.errors import ClusterError, PlanError
from onoff.extras import need
from onoff.schemes import AUTO, SCHEMES, list_names

if TYPE_CHECKING:
    from onoff.model.chain import Chain
    from onoff.plans.plan import Plan
    from onoff.plans.store import PlanStore


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel=PLAN, epilog="Example: onoff plan chain.csv --lags 1-50")(interrupt_on_signals()(plan))


def plan(
    chain: Annotated[Path, typer.Argument(metavar="CHAIN", help="A chain file, .json or .csv.")],
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where plans are kept (~/.cache/onoff, as for clients).")
    ] = None,
    lags: Annotated[str, typer.Option(help="Steps since privacy was last ON: 3, or 1-50, or 1,2,5.")] = "1-10",
    scheme: Annotated[str, typer.Option(help=f"{list_names(AUTO, *SCHEMES)}.")] = AUTO,
    gap: Annotated[float, typer.Option(help="How far above the proved bound is near enough.")] = 1e-6,
    time_limit: Annotated[float | None, typer.Option(metavar="SECONDS", help="Time for each lag.")] = None,
    jobs: Jobs = None,
    dask: Dask = None,
    as_json: AsJson = False,
) -> None:
    """Make plans, one for each lag. Finished plans are kept when you stop with Ctrl-C, and not made again."""
    from onoff.apps.parallel import compute, use_workers
    from onoff.model.chain import Chain
    from onoff.plans.store import PlanStore

    if dask is not None:
        need("dask", "a Dask cluster")  # before anything is written
    wanted = parse_lags(lags)
    loaded = Chain.load(chain)
    store = PlanStore(loaded, out)
    plans = {lag: found for lag in wanted if (found := _load(store, lag, gap, scheme)) is not None}
    missing = [lag for lag in wanted if lag not in plans]
    failed: dict[int, str] = {}
    calls = [(loaded, lag, scheme, gap, time_limit) for lag in missing]
    try:
        with use_workers(jobs, dask), progress("plans")(len(missing)) as advance:
            for index, made in compute(_make, calls):
                advance()
                if isinstance(made, str):
                    failed[missing[index]] = made
                    continue
                if not store.save(made):
                    note(f"lag {made.lag}: a plan that costs no more was there already, and is kept")
                plans[missing[index]] = made
    except (KeyboardInterrupt, ClusterError):
        note(f"stopped: {len(plans)} of {len(wanted)} plans are in {store.directory}")
        raise
    result = Plans(store.directory, tuple(PlanSummary.of(plans[lag]) for lag in wanted if lag in plans), failed)
    if as_json:
        print_json(result)
    elif result.plans:
        _print(result)
    if failed:
        errors = {error: [str(lag) for lag in sorted(failed) if failed[lag] == error] for error in failed.values()}
        words = (f"lag{'s' * (len(lags) > 1)} {', '.join(lags)}: {error}" for error, lags in errors.items())
        raise PlanError("; ".join(words))


@dataclass(frozen=True)
class PlanSummary:
    """Summary of a plan: its cost beside the least cost of any scheme, and its rounding per step.

    The cost of a plan without a table is `estimated`.
    """

    lag: int
    scheme: str
    cost: float
    lower_bound: float
    gap: float
    rounding: float
    estimated: bool

    @classmethod
    def of(cls, plan: Plan) -> PlanSummary:
        return cls(plan.lag, plan.scheme, plan.cost, plan.lower_bound, plan.gap, plan.rounding, plan.kind == "race")


@dataclass(frozen=True)
class Plans:
    """Plans of the requested lags, their directory, and the error of each lag without a plan."""

    directory: Path
    plans: tuple[PlanSummary, ...]
    failed: Mapping[int, str]


def _make(chain: Chain, lag: int, scheme: str, gap: float, time_limit: float | None) -> Plan | str:
    """Make one plan in any process; else say why not."""
    from onoff.plans.plan import plan as make

    try:
        return make(chain, lag, scheme, gap=gap, time_limit=time_limit)
    except PlanError as error:
        return str(error)


def _print(found: Plans) -> None:
    """Print the plans, and where they are."""
    rows = []
    for made in found.plans:
        costs = f"{made.cost:.4f}", f"{made.lower_bound:.4f}", percent(made.gap)
        rows.append((str(made.lag), made.scheme, *costs, f"2^{math.log2(made.rounding):.1f}"))
    headings = ("lag", "scheme", "cost", "lower bound", "proved gap", "rounding per step")
    print_table("plans, cost in messages per request", headings, rows)
    print(found.directory)


def _load(store: PlanStore, lag: int, gap: float, scheme: str) -> Plan | None:
    """Load a plan that is as good as requested."""
    from onoff.plans.plan import OPTIMAL_LIMIT
    from onoff.plans.planner import is_final

    try:
        found = store.load(lag)
    except PlanError:
        return None
    if scheme not in ("auto", "optimal"):
        return found if found.scheme == scheme else None
    beyond = scheme == "auto" and found.chain.n > OPTIMAL_LIMIT and is_final(found)
    near = found.kind == "table" and found.gap <= gap  # an estimate may come out too small
    return found if near or beyond else None
