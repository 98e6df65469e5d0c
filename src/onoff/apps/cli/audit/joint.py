"""`onoff audit joint`: what a whole stream of queries tells about what must stay hidden."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onoff.apps.cli.options import AUDIT, AsJson, parse_sources
from onoff.apps.cli.output import note, plain_data, print_json
from onoff.errors import FOUND, OnoffError
from onoff.schemes import SCHEMES, listed

if TYPE_CHECKING:
    from onoff.audit.joint import Effort
    from onoff.model.chain import Chain
    from onoff.plans.plan import Plan

LEAKY = ("naive", "decoys")
DEFAULT = ("everything", "paper", "optimal", "naive", "decoys")


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel=AUDIT, epilog="Example: onoff audit joint chain.csv --statuses 1001100")(joint)


def joint(
    chain: Annotated[Path, typer.Argument(metavar="CHAIN", help="A chain file, .json or .csv.")],
    statuses: Annotated[str, typer.Option(help="1 where privacy is ON, 0 where it is OFF; the first is 1.")],
    scheme: Annotated[list[str] | None, typer.Option(help=f"{listed(*SCHEMES, *LEAKY)}; repeatable.")] = None,
    plan: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="Use this plan instead of making one; repeatable.")
    ] = None,
    decoys: Annotated[int | None, typer.Option(metavar="K", min=1, help="Random others beside the wanted one.")] = None,
    uniform: Annotated[bool, typer.Option("--uniform", help="Start anywhere, not in the stationary law.")] = False,
    draws: Annotated[int, typer.Option(min=100, help="Draws of a race, in every context.")] = 400,
    tried: Annotated[int, typer.Option(min=100, help="Draws of each plan, to test `draw` itself.")] = 20_000,
    streams: Annotated[int, typer.Option(min=10, help="Streams to sample where nothing exact fits.")] = 2000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the samples.")] = 1,
    as_json: AsJson = False,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the bits: .png, .svg or .pdf.")] = None,
    true_chain: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What if requests follow this chain, and not CHAIN?")
    ] = None,
    promise: Annotated[
        str, typer.Option(metavar="both|past", help="past: what an everyday query tells about requests up to it.")
    ] = "both",
    sensitive: Annotated[
        str | None, typer.Option(metavar="A,B", help="With --promise past: sources that are always hidden.")
    ] = None,
) -> None:
    """Compute the information between the hidden requests and all queries so far, at every step, for each scheme.

    Hidden are the requests made while ON and all future ones. Exit code 1 if a scheme tells more than it states. With
    --promise past: what each query of the everyday client tells about requests made ON, and about sensitive ones.
    """
    from onoff.apps.cli.audit.everyday import audit_past
    from onoff.audit.joint import Effort
    from onoff.audit.setting import parse_statuses
    from onoff.model.chain import Chain

    parsed = parse_statuses(statuses)
    _check_options(promise, bool(scheme or plan), sensitive, true_chain, plot)
    loaded, true = Chain.load(chain), None if true_chain is None else Chain.load(true_chain)
    effort = Effort(draws, tried, streams, seed)
    if promise == "past":
        names = parse_sources(sensitive)
        holds = audit_past(loaded, parsed, names, true, decoys, uniform, effort, as_json, plot)
    else:
        given = [read_plan(file, loaded) for file in plan or []]
        asked = _Asked(loaded, parsed, _wanted(scheme, given), given, decoys, uniform, effort)
        holds = _told(asked, as_json, plot) if true is None else _mistaken(asked, true, as_json)
    if not holds:
        raise typer.Exit(FOUND)


def _check_options(
    promise: str, has_plans: bool, sensitive: str | None, true_chain: Path | None, plot: Path | None
) -> None:
    """Refuse options that do not go together."""
    from onoff.apps.plots import check_picture

    if plot is not None:
        check_picture(plot)
        if true_chain is not None:
            raise OnoffError("--plot draws streams of the chain itself: leave it out, or --true-chain")
    if promise not in ("both", "past"):
        raise OnoffError(f"there is no promise {promise!r}: choose both or past")
    if promise == "past" and has_plans:
        raise OnoffError("--promise past makes no plans: leave out --scheme and --plan")
    if promise == "both" and sensitive is not None:
        raise OnoffError("--sensitive needs --promise past: the announced mode hides no sources")


@dataclass(frozen=True)
class _Asked:
    """What to audit: streams of a chain with these statuses, by the `wanted` schemes, with the plans that are given."""

    chain: Chain
    statuses: Sequence[bool]
    wanted: Sequence[str]
    given: Sequence[Plan]
    decoys: int | None
    uniform: bool
    effort: Effort

    def plans(self, scheme: str) -> list[Plan]:
        return plans_for(scheme, self.chain, self.statuses, self.given)


def _told(asked: _Asked, as_json: bool, plot: Path | None) -> bool:
    """Print and draw what streams of the chain tell, for each scheme; whether none tells more than it states."""
    from onoff.apps.cli.audit import showjoint
    from onoff.apps.progress import progress
    from onoff.audit.joint import audit_joint

    findings = [
        audit_joint(
            asked.chain, asked.statuses, name, asked.plans(name),
            uniform=asked.uniform, decoys=asked.decoys, effort=asked.effort, progress=progress,
        )
        for name in asked.wanted
    ]  # fmt: skip
    if as_json:
        print_json(findings)
    else:
        showjoint.print_joint(asked.statuses, findings)
        print(showjoint.first_request(asked.chain, asked.uniform))
    if plot is not None:
        showjoint.plot_joint(asked.statuses, findings, plot)
        note(f"drawn: {plot}")
    return all(finding.holds for finding in findings)


def _mistaken(asked: _Asked, true: Chain, as_json: bool) -> bool:
    """Print bound and exact value for each scheme with plans, beside clients without; whether the bounds hold."""
    from onoff.apps.cli.audit import showjoint
    from onoff.audit.joint import audit_joint, audit_mistaken
    from onoff.audit.joint.auditing import WITHOUT_PLANS, true_chain

    chain, statuses = asked.chain, asked.statuses
    true = true_chain(chain, true)
    found = [
        audit_mistaken(chain, true, statuses, name, asked.plans(name), uniform=asked.uniform)
        for name in asked.wanted
        if name not in WITHOUT_PLANS
    ]
    others = [
        audit_joint(true, statuses, name, uniform=asked.uniform, decoys=asked.decoys, effort=asked.effort)
        for name in asked.wanted
        if name in WITHOUT_PLANS
    ]
    if as_json:
        print_json([*({**plain_data(one), "holds": one.holds} for one in found), *others])
    else:
        showjoint.print_mistaken(statuses, found, others)
        print(showjoint.first_request(true, asked.uniform))
    return all(one.holds for one in found)


def _wanted(schemes: Sequence[str] | None, given: Sequence[Plan]) -> tuple[str, ...]:
    """The schemes to audit: those that are named, else those of the given plans, else the usual ones."""
    default = ("everything", *(found.scheme for found in given), "naive", "decoys") if given else DEFAULT
    wanted = tuple(dict.fromkeys(schemes or default))
    for name in wanted:
        if name not in (*SCHEMES, *LEAKY):
            raise OnoffError(f"there is no scheme {name!r}: choose from {', '.join((*SCHEMES, *LEAKY))}")
    for found in given:
        if found.scheme not in wanted:
            raise OnoffError(f"a plan of the scheme {found.scheme!r} is given, which is not audited: add --scheme")
    return wanted


def read_plan(file: Path, chain: Chain) -> Plan:
    """A plan for this chain."""
    from onoff.plans.plan import Plan

    found = Plan.load(file)
    if found.chain != chain:
        raise OnoffError(f"{file}: the plan is for another chain")
    return found


def plans_for(name: str, chain: Chain, statuses: Sequence[bool], given: Sequence[Plan] = ()) -> list[Plan]:
    """The given plans of a scheme, or else one made for each lag of these statuses; none if it needs none."""
    from onoff.apps.progress import progress
    from onoff.audit.joint.auditing import WITHOUT_PLANS, lags_needed
    from onoff.plans.plan import plan

    chosen = [found for found in given if found.scheme == name]
    if chosen or name in WITHOUT_PLANS:
        return chosen
    lags = lags_needed(statuses)
    if not SCHEMES[name].table:  # one for lag 1 serves all lags, as with a new client
        lags = lags[:1]
    with progress(f"plans: {name}")(len(lags)) as advance:
        for lag in lags:
            chosen.append(plan(chain, lag, name))
            advance()
    return chosen
