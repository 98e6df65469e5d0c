"""`onoff audit streams`: what whole streams of queries tell about hidden requests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import ROUND_CEILING, Context
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onoff.apps.cli.options import AUDIT, AsJson, parse_sources
from onoff.apps.cli.output import note, print_json, print_table
from onoff.errors import FOUND, OnoffError
from onoff.schemes import SCHEMES, list_names

if TYPE_CHECKING:
    from onoff.audit.clients import Client
    from onoff.audit.streams import StreamAudit, Told
    from onoff.model.chain import Chain
    from onoff.plans.plan import Plan

LEAKY = ("naive", "decoys")
DEFAULT = ("everything", "paper", "optimal", *LEAKY)
ABOUT = {
    "both": "bits that the queries up to t tell about requests made ON and after t",
    "past": "bits that the query at t tells about earlier requests, and its own if hidden, given earlier queries",
}


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel=AUDIT, epilog="Example: onoff audit streams chain.csv --statuses 1001100")(streams)


def streams(
    chain: Annotated[Path, typer.Argument(metavar="CHAIN", help="A chain file, .json or .csv.")],
    statuses: Annotated[str, typer.Option(help="1 where privacy is ON, 0 where it is OFF; the first is 1.")],
    promise: Annotated[str, typer.Option(metavar="both|past", help="Which promise the client makes.")] = "both",
    scheme: Annotated[list[str] | None, typer.Option(help=f"{list_names(*SCHEMES, *LEAKY)}; repeatable.")] = None,
    plan: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="Use this plan instead of making one; repeatable.")
    ] = None,
    sensitive: Annotated[
        str | None, typer.Option(metavar="A,B", help="With --promise past: sources that are always hidden.")
    ] = None,
    decoys: Annotated[int | None, typer.Option(metavar="K", min=1, help="Random others beside the wanted one.")] = None,
    true_chain: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What if requests follow this chain, and not CHAIN?")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compute what all queries of a client tell about what must stay hidden, at every step, for each scheme.

    With the promise `both`, requests made ON and all future ones must stay hidden. With `past`, a query must tell
    nothing about earlier requests, nor about its own if that was made ON, nor which sensitive source it was, if any.
    Exit code 1 if a client that promises tells more than it states.
    """
    from onoff.apps.terminal import progress
    from onoff.audit.clients import TooLarge
    from onoff.audit.streams import audit_streams, parse_statuses
    from onoff.model.chain import Chain
    from onoff.model.requests import lags_of
    from onoff.past.state import sensitive_sources
    from onoff.plans.plan import Plan

    parsed = parse_statuses(statuses)
    if promise == "past" and (scheme or plan):
        raise OnoffError("--promise past makes no plans: leave out --scheme and --plan")
    if promise == "both" and sensitive is not None:
        raise OnoffError("--sensitive needs --promise past: the promise both hides no sources")
    loaded, true = Chain.load(chain), None if true_chain is None else Chain.load(true_chain)
    hidden = sensitive_sources(loaded, parse_sources(sensitive))
    if promise == "past":
        clients = _past_clients(loaded, hidden, decoys)
    else:
        loaded.without_memory("the promise `both`")
        given = [Plan.load(file) for file in plan or []]
        lags = sorted(set(lags_of(parsed)) - {0})
        clients = [_client(name, loaded, lags, given, decoys) for name in _choose_schemes(scheme, given)]
    found = []
    for client in clients:
        try:
            found.append(audit_streams(loaded, parsed, client, promise, hidden, true=true, progress=progress))
        except TooLarge as error:
            if client.promises:
                raise
            note(f"the comparison leaves {client.name} out ({error})")
    if not found:
        raise OnoffError("there is nothing to show: take fewer steps, or a smaller chain")
    (print_json if as_json else _print_told)(found)
    if any(one.holds is False for one in found):
        raise typer.Exit(FOUND)


def _past_clients(chain: Chain, hidden: Sequence[int], decoys: int | None) -> list[Client]:
    from onoff.audit.clients import Decoys, Naive, Past
    from onoff.past import PastState

    ours = Past(PastState.start(chain, hidden), chain.n, hidden)
    return [ours, Naive(chain.n, hidden), Decoys(chain.n, _few(chain.n, decoys))]


def _client(name: str, chain: Chain, lags: Sequence[int], given: Sequence[Plan], decoys: int | None) -> Client:
    from onoff.apps.terminal import progress
    from onoff.audit.clients import Announced, Decoys, Everything, Naive
    from onoff.plans.plan import plan

    if name == "decoys":
        return Decoys(chain.n, _few(chain.n, decoys))
    if name in ("everything", "naive"):
        return Everything(chain.n) if name == "everything" else Naive(chain.n)
    plans = [found for found in given if found.scheme == name]
    if not plans:
        with progress(f"plans: {name}")(len(lags)) as advance:
            for lag in lags:
                plans.append(plan(chain, lag, name))
                advance()
    return Announced(chain.n, plans, name)


def _few(n: int, decoys: int | None) -> int:
    """Choose the number of decoys: three by default, one where sets of four are too many to list."""
    return max(1, min(3 if n <= 40 else 1, n - 2)) if decoys is None else decoys


def _choose_schemes(schemes: Sequence[str] | None, given: Sequence[Plan]) -> tuple[str, ...]:
    """Choose the schemes to audit: those named, else those of the given plans, else the usual."""
    default = ("everything", *(found.scheme for found in given), *LEAKY) if given else DEFAULT
    wanted = tuple(dict.fromkeys(schemes or default))
    for name in wanted:
        if name not in (*SCHEMES, *LEAKY):
            raise OnoffError(f"there is no scheme {name!r}: choose from {', '.join((*SCHEMES, *LEAKY))}")
    for found in given:
        if found.scheme not in wanted:
            raise OnoffError(f"a plan of the scheme {found.scheme!r} is given, which is not audited: add --scheme")
    return wanted


# Tables and words


def bits(value: float) -> str:
    """Write bits for people: small ones as a power of ten; 0 below the units of the audit."""
    if abs(value) < 1e-80:
        return "0"
    return f"{value:.4f}" if abs(value) >= 1e-4 else f"{value:.0e}"


def at_most(value: float) -> str:
    """As `bits`, but never rounded down: a bound must stay one."""
    if value >= 1e-4:
        return bits(ceil(value * 10_000) / 10_000)
    return bits(float(Context(prec=1, rounding=ROUND_CEILING).create_decimal(value)))


def _print_told(found: Sequence[StreamAudit]) -> None:
    """Print bits by step and client, and verdicts."""
    misfit = [one.misfit for one in found if one.misfit is not None and one.holds is not None]
    title = ABOUT[found[0].promise] + (", if they follow the true chain" if misfit else "")
    rows = []
    for t, private in enumerate(found[0].statuses):
        most = [at_most(max(one.bits[t] for one in misfit))] if misfit else []
        rows.append([str(t + 1), "ON" if private else "OFF", *most, *(_cell(one, one.steps[t]) for one in found)])
    print_table(title, ["t", "status", *(["bound"] if misfit else []), *(one.client for one in found)], rows)
    for one in found:
        print(f"{one.client}: {'; '.join(_verdict(one))}")


def _cell(found: StreamAudit, told: Told) -> str:
    return f"<= {at_most(told.bits)}" if found.method == "bound" else bits(told.bits)


def _verdict(found: StreamAudit) -> Iterator[str]:
    """State method and verdict of the promise."""
    yield found.method
    if found.holds is None:
        yield "promises nothing"
    elif found.misfit is not None:
        yield "within the bound" if found.holds else "MORE THAN THE BOUND"
        yield f"a guess at something hidden is right more often by {at_most(found.misfit.guess)} at most"
    else:
        yield "0 within rounding" if found.holds else "MORE THAN STATED"
    worst = max(found.steps, key=lambda told: told.distance or 0.0)
    if found.misfit is not None and found.holds is not None:
        most = found.misfit.allowed[worst.step - 1]
        yield f"total variation {worst.distance or 0.0:.1e} at t = {worst.step}, of {most:.1e}"
    elif found.holds is not None and worst.distance is not None and worst.stated is not None:
        yield f"total variation {worst.distance:.1e} at t = {worst.step}, {worst.stated:.1e} is stated"
    for finding in found.findings[:5]:
        yield f"FAULT {finding.rule}: {finding.message}"
