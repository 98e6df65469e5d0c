"""`onoff plan`: make plans for many lags and keep each as soon as it is finished."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onoff.apps.cli.options import AsJson, Dask, Jobs, parse_lags
from onoff.apps.cli.printing import print_json
from onoff.apps.cli.shape import PLAN
from onoff.apps.ending import ended_in_order
from onoff.apps.tone import aside
from onoff.errors import ClusterError, PlanError
from onoff.schemes import AUTO, SCHEMES, listed

if TYPE_CHECKING:
    from onoff.model.chain import Chain
    from onoff.plans.base import Plan
    from onoff.plans.store import PlanStore
    from onoff.schemes.realisation.looking import Spread

DIVIDE_FROM = 200  # sources from which the flows of one plan keep the workers of a cluster busy


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel=PLAN, epilog="Example: onoff plan chain.csv --lags 1-50 --out plans")(
        ended_in_order()(plan)
    )


def plan(
    chain: Annotated[Path, typer.Argument(metavar="CHAIN", help="A chain file, .json or .csv.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where plans are kept, under the chain's fingerprint.")],
    lags: Annotated[str, typer.Option(help="Steps since privacy was last ON: 3, or 1-50, or 1,2,5.")] = "1-10",
    scheme: Annotated[str, typer.Option(help=f"{listed(AUTO, *SCHEMES)}.")] = AUTO,
    gap: Annotated[float, typer.Option(help="How far above the proved bound is near enough.")] = 1e-6,
    time_limit: Annotated[float | None, typer.Option(metavar="SECONDS", help="Time for each lag.")] = None,
    lengths: Annotated[
        Path | None, typer.Option(metavar="FILE", help="JSON: the length of each message, by name; the unit of cost.")
    ] = None,
    jobs: Jobs = None,
    dask: Dask = None,
    as_json: AsJson = False,
) -> None:
    """Make plans, one for each lag. Finished plans are kept when you stop with Ctrl-C, and not made again."""
    from contextlib import closing

    from onoff.apps.planprogress import plan_progress
    from onoff.apps.terminal import print_plans
    from onoff.apps.workers import Failed, compute
    from onoff.model.chain import Chain
    from onoff.plans.lengths import read_lengths
    from onoff.plans.store import PlanStore

    wanted = parse_lags(lags)
    loaded = Chain.load(chain)
    store = PlanStore(loaded, out, None if lengths is None else read_lengths(lengths, loaded.names))
    plans: dict[int, Plan] = {}
    failed: dict[int, str] = {}
    try:
        with plan_progress(wanted) as shown:
            for lag in wanted:
                if (found := _kept(store, lag, gap, scheme)) is not None:
                    plans[lag] = found
                    shown.done(lag, found)
            large = loaded.n >= DIVIDE_FROM
            notes = shown.notes if dask is None or large else None
            cells = {
                lag: (loaded, lag, scheme, store.lengths, gap, time_limit, notes) for lag in wanted if lag not in plans
            }
            with closing(compute(_make, cells, jobs, dask, divide=large)) as results:
                for lag, made in results:
                    if isinstance(made, Failed):
                        failed[lag] = made.error
                        continue
                    if not store.save(made):
                        aside(f"lag {lag}: a plan that costs no more was there already, and is kept")
                    plans[lag] = made
                    shown.done(lag, made)
    except (KeyboardInterrupt, ClusterError):
        aside(f"stopped: {len(plans)} of {len(wanted)} plans are in {store.directory}")
        raise
    made_plans = [plans[lag] for lag in wanted if lag in plans]
    if as_json:
        print_json({"directory": store.directory, "plans": [told_plan(one) for one in made_plans], "failed": failed})
    elif made_plans:
        print_plans(made_plans)
        print(store.directory)
    if failed:
        raise PlanError("; ".join(_failures(failed)))


def _failures(failed: Mapping[int, str]) -> Iterator[str]:
    """Each error once, with the lags at which it came."""
    for error in dict.fromkeys(failed[lag] for lag in sorted(failed)):
        lags = [str(lag) for lag in sorted(failed) if failed[lag] == error]
        yield f"lag{'s' * (len(lags) > 1)} {', '.join(lags)}: {error}"


@dataclass(frozen=True)
class ToldPlan:
    """What a plan states of itself: its cost beside what any scheme costs at least, and its rounding per step."""

    lag: int
    scheme: str
    cost: float
    lower_bound: float
    gap: float
    rounding: float
    estimated: bool


def told_plan(plan: Plan) -> ToldPlan:
    """A plan without its law."""
    bounds = plan.cost, plan.lower_bound, plan.gap
    return ToldPlan(plan.lag, plan.scheme, *bounds, plan.rounding, plan.estimated)


def _make(
    chain: Chain,
    lag: int,
    scheme: str,
    lengths: tuple[float, ...] | None,
    gap: float,
    time_limit: float | None,
    notes: Path | None,
    spread: Spread | None = None,
) -> Plan:
    """One plan, made in any process. Its progress is noted in a file that the progress bar reads."""
    from onoff.plans.making import plan as make

    note = None if notes is None else notes / str(lag)
    tell = None if note is None else lambda cost, bound: _noted(note, f"{cost} {bound}")
    try:
        if note is not None:
            _noted(note, "")
        return make(chain, lag, scheme, lengths=lengths, gap=gap, time_limit=time_limit, progress=tell, spread=spread)
    finally:
        if note is not None:
            note.unlink(missing_ok=True)


def _noted(note: Path, words: str) -> None:
    with suppress(OSError):  # the bar is gone; that is no reason to stop
        note.write_text(words)


def _kept(store: PlanStore, lag: int, gap: float, scheme: str) -> Plan | None:
    """A plan on disk that is as good as what is asked for."""
    from onoff.plans.making import OPTIMAL_LIMIT
    from onoff.plans.planner import is_final

    try:
        found = store.load(lag)
    except PlanError:
        return None
    if scheme not in ("auto", "optimal"):
        return found if found.scheme == scheme else None
    beyond = scheme == "auto" and found.chain.n > OPTIMAL_LIMIT and is_final(found)
    near = not found.estimated and found.gap <= gap  # an estimate may come out too small
    return found if near or beyond else None
