"""`onoff audit joint`: what a whole stream of queries tells about what must stay hidden."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from decimal import ROUND_CEILING, Context
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onoff.errors import OnoffError
from onoff.schemes import SCHEMES, listed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from onoff.audit.measures import Measures
    from onoff.audit.setting import Leakage
    from onoff.model.chain import Chain
    from onoff.plans.base import Plan

LEAKY = ("naive", "decoys")
DEFAULT = ("everything", "paper", "optimal", "naive", "decoys")


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: onoff audit joint chain.csv --statuses 1001100")(joint)


@dataclass(frozen=True)
class Setting:
    """What all schemes of one run share."""

    chain: Chain
    statuses: tuple[bool, ...]
    start: NDArray[np.float64]
    given: Sequence[Plan]
    decoys: int
    draws: int
    tried: int
    streams: int
    seed: int


def joint(
    chain: Annotated[Path, typer.Argument(metavar="CHAIN", help="A chain file, .json or .csv.")],
    statuses: Annotated[str, typer.Option(help="1 where privacy is ON, 0 where it is OFF; the first is 1.")],
    scheme: Annotated[list[str] | None, typer.Option(help=f"{listed(*SCHEMES, *LEAKY)}; repeatable.")] = None,
    plan: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="Use this plan instead of making one; repeatable.")
    ] = None,
    decoys: Annotated[int | None, typer.Option(metavar="K", min=1, help="Random others beside the wanted one.")] = None,
    uniform: Annotated[bool, typer.Option("--uniform", help="Start anywhere, not in the stationary law.")] = False,
    draws: Annotated[int, typer.Option(min=100, help="Of the race, in every context.")] = 400,
    tried: Annotated[int, typer.Option(min=100, help="Draws of plans, beside their encoders.")] = 20_000,
    streams: Annotated[int, typer.Option(min=10, help="Sampled where nothing exact fits.")] = 2000,
    seed: Annotated[int, typer.Option(min=0, help="Of the samples.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the bits: .png, .svg or .pdf.")] = None,
    true_chain: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What if requests follow this chain, and not CHAIN?")
    ] = None,
) -> None:
    """The information between the hidden requests and all queries so far, at every step, for each scheme.

    Hidden are the requests made while ON and all future ones. Exit code 1 if a scheme tells more than it states.
    """
    from onoff.apps.plots import check_picture
    from onoff.audit.setting import parse_statuses, start_law
    from onoff.model.chain import Chain

    parsed = parse_statuses(statuses)
    if plot is not None:
        check_picture(plot)
    loaded = Chain.load(chain)
    given = [read_plan(file, loaded) for file in plan or []]
    default = ("everything", *(found.scheme for found in given), "naive", "decoys") if given else DEFAULT
    wanted = tuple(dict.fromkeys(scheme or default))
    for name in wanted:
        if name not in (*SCHEMES, *LEAKY):
            raise OnoffError(f"there is no scheme {name!r}: choose from {', '.join((*SCHEMES, *LEAKY))}")
    for found in given:
        if found.scheme not in wanted:
            raise OnoffError(f"a plan of the scheme {found.scheme!r} is given, which is not audited: add --scheme")
    count = max(1, min(3, loaded.n - 2)) if decoys is None else decoys
    setting = Setting(loaded, parsed, start_law(loaded, uniform), given, count, draws, tried, streams, seed)
    if true_chain is not None:
        from onoff.apps.cli.audit.mistaken import audit_mistaken

        if plot is not None:
            raise OnoffError("--plot draws streams of the chain itself: leave it out, or --true-chain")
        if not audit_mistaken(setting, Chain.load(true_chain), wanted, uniform, as_json):
            raise typer.Exit(1)
        return
    findings = [_audited(name, setting) for name in wanted]
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        _print(parsed, findings)
        print(first_request(loaded, uniform))
    if plot is not None:
        _plot(parsed, findings, plot)
        print(f"drawn: {plot}", file=sys.stderr)
    if not all(finding.holds for finding in findings):
        raise typer.Exit(1)


def first_request(chain: Chain, uniform: bool = False) -> str:
    """In words, where the streams start."""
    from onoff.audit.setting import stationary_start

    if uniform:
        return "the first request may be anything, all alike"
    if stationary_start(chain):
        return "the first request follows the stationary law"
    return "the first request may be anything, all alike: the stationary law excludes sources, or there are several"


def read_plan(file: Path, chain: Chain) -> Plan:
    """A plan for this chain."""
    from onoff.plans.base import Plan

    found = Plan.load(file)
    if found.chain != chain:
        raise OnoffError(f"{file}: the plan is for another chain")
    return found


def plans_for(name: str, chain: Chain, lags: Sequence[int], given: Sequence[Plan] = ()) -> list[Plan]:
    """The given plans of a scheme, or else one made for each lag."""
    from onoff.apps.terminal import progress
    from onoff.plans.making import plan

    chosen = [found for found in given if found.scheme == name]
    if chosen:
        return chosen
    with progress(f"plans: {name}")(len(lags)) as advance:
        for lag in lags:
            chosen.append(plan(chain, lag, name))
            advance()
    return chosen


def _audited(name: str, setting: Setting) -> Leakage:
    """One scheme. Plans are made here; the audit sees only how queries are chosen."""
    from onoff.apps.terminal import progress
    from onoff.audit.joint.strongest import audit
    from onoff.audit.models import Decoys, Everything, Naive, Planned
    from onoff.audit.setting import Plans, lags_of
    from onoff.plans.table import TablePlan

    chain, statuses, start = setting.chain, setting.statuses, setting.start
    lags = sorted(set(lags_of(statuses)) - {0})
    if name == "everything":
        return audit(chain, statuses, Everything(chain.n), start, lambda lag: 0.0)
    if name in LEAKY:
        model = Naive(chain.n) if name == "naive" else Decoys(chain.n, setting.decoys)
        with progress(f"sampling {name}")(setting.streams) as advance:
            return audit(chain, statuses, model, start, streams=setting.streams, seed=setting.seed, advance=advance)
    if not SCHEMES[name].table:  # one for lag 1 serves all lags, as with a new client
        return _raced(plans_for(name, chain, lags[:1], setting.given), lags, setting)
    plans = plans_for(name, chain, lags, setting.given)
    tables = Plans(name, chain.n, [Planned(plan) for plan in plans if isinstance(plan, TablePlan)])
    with progress(f"checking {name}")(len(lags) + 1) as advance:
        found = audit(chain, statuses, tables, start, tables.rounding_at, advance=advance)
    return _drawn(found, plans, lags, setting) if found.holds else found


def _drawn(found: Leakage, plans: Sequence[Plan], lags: Sequence[int], setting: Setting) -> Leakage:
    """What was found of a scheme's encoders, and whether `draw` follows them at the lags that occur."""
    from random import Random

    from onoff.apps.terminal import progress
    from onoff.audit.plan.drawing import check, most
    from onoff.audit.plan.rows import ExactRows
    from onoff.audit.setting import required

    served: dict[int, list[int]] = {}
    for lag in lags:
        served.setdefault(plans.index(required(plans, lag)), []).append(lag)
    for index, its in served.items():
        rows, draws = [ExactRows(setting.chain, lag) for lag in its], setting.tried // len(served)
        below = Random(setting.seed).randrange
        with progress(f"drawing {found.scheme}")(min(draws, most(rows))) as advance:
            fault = check(plans[index], rows, setting.chain.names, draws, below, advance)
        if fault is not None:
            return replace(found, holds=False, fault=fault.message)
    return found


def _raced(plans: Sequence[Plan], lags: Sequence[int], setting: Setting) -> Leakage:
    """The race has no table: it is drawn from. Where its streams are too many, what it states is all there is."""
    from onoff.apps.terminal import progress
    from onoff.audit.joint.continuity import stated
    from onoff.audit.joint.sampled import by_draws
    from onoff.audit.models import TooLarge
    from onoff.audit.setting import required

    def rounding_at(lag: int) -> float:
        return required(plans, lag).rounding_at(lag) if lag else 0.0

    chain, statuses = setting.chain, setting.statuses
    with progress("drawing races")(len(lags)) as advance:
        try:
            found = by_draws(
                "race",
                chain,
                statuses,
                lambda request, last, following, lag, below: required(plans, lag).draw(
                    request, last, following, lag, below
                ),
                setting.start,
                rounding_at,
                setting.draws,
                setting.seed,
                advance,
            )
        except TooLarge:
            found = stated("race", chain, statuses, rounding_at)
    return _one_law(found, plans, lags, setting) if lags and found.holds else found


def _one_law(found: Leakage, plans: Sequence[Plan], lags: Sequence[int], setting: Setting) -> Leakage:
    """Whether the race draws from one law in all contexts: of its own lag, of the next, and of the largest that occurs.

    An estimate of what streams tell needs many more draws to notice a small mistake, and fits few sources only.
    """
    from random import Random

    from onoff.apps.terminal import progress
    from onoff.audit.plan.races import RATE, draws, same_law
    from onoff.audit.plan.rows import ExactRows
    from onoff.audit.setting import required

    chain, below = setting.chain, Random(setting.seed).randrange
    for plan in plans:
        its = [lag for lag in lags if required(plans, lag) is plan]
        if not its:
            continue
        rows = [ExactRows(chain, lag) for lag in sorted({plan.lag, plan.lag + 1, its[-1]})]
        with progress("drawing races")(setting.tried) as advance:
            sample = draws(plan, rows, setting.tried, below, advance)
        if sample.undecodable is not None:
            return replace(found, holds=False, fault="a request was sent in a set without it")
        uneven = same_law(sample)
        if uneven is not None:
            shares = f"{uneven.here:.3f} of the draws at lag {uneven.place.lag}, {uneven.overall:.3f} of all"
            return replace(found, holds=False, fault=f"{uneven.event} in {shares} (error rate {RATE:g})")
    return replace(found, tested=f"one law in all contexts, by {setting.tried} draws (error rate {RATE:g})")


def _print(statuses: Sequence[bool], findings: Sequence[Leakage]) -> None:
    from onoff.apps.terminal import print_table

    rows = [
        [str(t), "ON" if private else "OFF", *(_cell(finding, t) for finding in findings)]
        for t, private in enumerate(statuses, 1)
    ]
    title = "bits that the queries up to t tell about requests made ON and after t"
    print_table(title, ["t", "status", *(finding.scheme for finding in findings)], rows)
    for finding in findings:
        print(f"{finding.scheme}: {_verdict(finding)}")
    measured = [(finding, about, found) for finding in findings for about, found in _measured(finding)]
    if measured:
        print_table(
            "at the end: bits, the chance of a best guess without and with the queries, leakages in bits",
            ["about", "scheme", "bits", "prior guess", "guess", "min-ent.", "maximal"],
            [
                [
                    about,
                    finding.scheme,
                    bits(found.information),
                    f"{found.prior_guess:.4f}",
                    f"{found.guess:.4f}",
                    bits(found.min_entropy_leakage),
                    bits(found.maximal_leakage),
                ]
                for finding, about, found in measured
            ],
        )


def bits(value: float) -> str:
    """Bits for people: small ones as a power of ten; below what the units of the audit can tell, 0."""
    if abs(value) < 1e-80:
        return "0"
    return f"{value:.4f}" if abs(value) >= 1e-4 else f"{value:.0e}"


def at_most(value: float) -> str:
    """As `bits`, but never rounded down: what is shown of a bound must be one."""
    if value >= 1e-4:
        return bits(ceil(value * 10_000) / 10_000)
    return bits(float(Context(prec=1, rounding=ROUND_CEILING).create_decimal(value)))


def _cell(finding: Leakage, t: int) -> str:
    value = finding.bits[t - 1]
    shown = f"<= {at_most(value)}" if finding.method.startswith("bound") else bits(value)
    return f"{shown} ± {bits(finding.margin[t - 1])}" if finding.margin else shown


def _verdict(finding: Leakage) -> str:
    """By which method, and whether the promise holds."""
    words = finding.method
    if finding.fault is not None:
        return f"{words}; NOT DRAWN AS STATED: {finding.fault}"
    if finding.bias:
        words += f" from draws; {bits(finding.bias[-1])} bits of bias by sampling were subtracted"
    elif finding.margin:
        words += " from sampled streams, 95 % interval"
    if finding.tested is not None:
        words += f"; tested: {finding.tested}"
    if finding.allowed is None and finding.distance is None:
        return words
    if not finding.holds:
        words += "; MORE THAN STATED"
    elif finding.distance is not None and finding.allowed is not None:
        words += "; 0 within rounding"
    if finding.distance is None or finding.allowed is None:
        return words
    return f"{words}: total variation {finding.distance:.1e}, allowed {finding.allowed:.1e}"


def _measured(finding: Leakage) -> list[tuple[str, Measures]]:
    """The hidden requests together, and the private or next one of which most is told."""
    if finding.whole is None:
        return []
    step = max(finding.single, key=lambda step: finding.single[step].information)
    return [("all hidden", finding.whole), (f"request {step}", finding.single[step])]


def _plot(statuses: Sequence[bool], findings: Sequence[Leakage], file: Path) -> None:
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    steps = range(1, len(statuses) + 1)
    for t, private in zip(steps, statuses, strict=True):
        if private:
            axes.axvspan(t - 0.5, t + 0.5, color="#0072bd", alpha=0.12, linewidth=0, label="ON" if t == 1 else None)
    for finding, marker in zip(findings, "os^vDPX", strict=False):
        axes.errorbar(steps, finding.bits, finding.margin or None, marker=marker, markersize=4, label=finding.scheme)
    axes.set_xlabel("step t")
    axes.set_ylabel("bits about the hidden requests")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(file, dpi=200)
