"""`onoff audit plan`: verify plans from scratch, print a certificate for each, exit 1 with a witness if one is off."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onoff.apps.cli.options import AsJson, parse_lags
from onoff.apps.cli.output import note, percent, print_json
from onoff.errors import FOUND, PlanError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onoff.audit.law import Finding
    from onoff.audit.plan import LagCheck, PlanAudit
    from onoff.model.chain import Chain

SHOWN = 12  # sources of a set that are named


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: onoff audit plan chain.csv plans --at 5,10")(plan)


def plan(
    chain: Annotated[Path, typer.Argument(metavar="CHAIN", help="A chain file, .json or .csv.")],
    plans: Annotated[
        list[Path], typer.Argument(metavar="PLAN...", help="Plan files, or directories that `onoff plan` made.")
    ],
    at: Annotated[str | None, typer.Option(metavar="LAGS", help="Also verify at these larger lags: 5, 2-10.")] = None,
    draws: Annotated[int, typer.Option(min=100, help="Queries drawn from a race, or from a table.")] = 20_000,
    time_limit: Annotated[float, typer.Option(min=1, metavar="SECONDS", help="For a proof by CP-SAT.")] = 60.0,
    as_json: AsJson = False,
) -> None:
    """Verify plans from scratch in integers: law, every encoder, draws, cost, rounding. Exit 1 if one is off."""
    from onoff import Chain, Plan
    from onoff.apps.terminal import progress
    from onoff.audit.plan import audit_plan

    lags = parse_lags(at) if at is not None else []
    loaded = Chain.load(chain)
    audits = []
    for file in [file for path in plans for file in _plan_files(path, loaded)]:
        bar = progress(f"auditing {file.name}")
        audits.append(audit_plan(loaded, file, Plan.load, lags, draws=draws, seconds=time_limit, bar=bar))
        if not as_json:
            print("\n".join(_certificate(audits[-1], loaded)))
    if as_json:
        print_json([_as_dict(audit, loaded) for audit in audits])
    if not all(audit.valid for audit in audits):
        raise typer.Exit(FOUND)


def _plan_files(path: Path, chain: Chain) -> list[Path]:
    """List the plan files that a path stands for, without those of directories whose every plan is for another chain.

    Nobody signs a directory's own words: only the plans tell which chain they are for.
    """
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise PlanError(f"{path}: there is no such plan file or directory")
    found: list[Path] = []
    for directory in [path, *sorted(path.iterdir())]:
        files = sorted(directory.glob("*.plan.json"), key=lambda file: (len(file.name), file.name))
        if files and directory != path and all(_is_foreign(file, chain) for file in files):
            note(f"{directory} holds plans for another chain: not audited")
        else:
            found += files
    if not found:
        raise PlanError(f"{path}: there is no plan for this chain in this directory")
    return found


def _is_foreign(file: Path, chain: Chain) -> bool:
    """True if the file names another chain. An unreadable file may be anything."""
    try:
        return bool(json.loads(file.read_bytes())["chain"] != chain.fingerprint)
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return False


def _certificate(audit: PlanAudit, chain: Chain) -> Iterator[str]:
    """Say in words, line by line, what was verified and what is wrong."""
    from onoff.audit.plan import RATE
    from onoff.model.bounds import up

    plan, low = audit.plan, audit.proved
    yield f"{audit.file}: {'verified' if audit.valid else 'NOT VALID'}"
    if low:
        sets = "" if audit.cost is None else f", {len(plan.sets)} sets"
        yield f"  scheme {plan.scheme}, lag {plan.lag}, {chain.n} sources{sets}"
        for check in audit.checks:
            yield from _check_in_words(check, chain)
        yield f"  lower bound: {low!r} proved by the planner's own code; stated {audit.stated!r}"
        if audit.cost is not None:
            yield f"  cost: {up(audit.cost)!r}, from the law exactly, rounded up"
            yield f"  gap: {percent(max(0.0, up(audit.cost / Fraction(low) - 1)))}"
        if audit.estimate is not None:
            half, ends = 1.96 * audit.estimate.error, plan.interval
            words = f"stated {plan.cost:.4f}, from {ends[0]:.4f} to {ends[1]:.4f}"
            yield f"  cost: {audit.estimate.mean:.4f} ± {half:.4f} (95 %) estimated from fresh draws; {words}"
            if audit.valid:
                yield "  draws are those of the referee's own race from the same random numbers; the cost is tested"
                yield f"  (the test rejects a true statement with probability {RATE:g})"
    for finding in audit.findings:
        yield f"  {_finding_in_words(finding, chain)}"


def _check_in_words(check: LagCheck, chain: Chain) -> Iterator[str]:
    from onoff.model.bounds import up

    if check.largest is None or check.at is None:
        yield f"  lag {check.lag}: rounding of {check.stated:.3e} stated, not verified: there are no encoders"
        return
    last, following = (chain.names[source] for source in check.at)
    count = f"{check.kept} of {check.contexts} contexts"
    yield f"  lag {check.lag}: {count} keep the law to the unit and every request in its set"
    largest = f"{up(check.largest):.3e} at most (last {last!r}, next {following!r})"
    yield f"    total variation: {largest}; stated {check.stated:.3e}"


def _finding_in_words(finding: Finding, chain: Chain) -> str:
    parts = [f"{finding.rule}: {finding.message}"]
    if finding.context is not None:
        lag, last, following = finding.context
        parts.append(f"context: last {chain.names[last]!r}, next {chain.names[following]!r} at lag {lag}")
    if finding.query is not None:
        more = ", ..." if len(finding.query) > SHOWN else ""
        parts.append(f"set: {{{', '.join(chain.names[x] for x in finding.query[:SHOWN])}{more}}}")
    if finding.amount is not None:
        parts.append(f"by {finding.amount:.3e}")
    return "; ".join(parts)


def _as_dict(audit: PlanAudit, chain: Chain) -> dict[str, Any]:
    """List all results for programs: sources by name, exact numbers rounded safely."""
    from onoff.model.bounds import up

    def named(sources: tuple[int, ...] | None) -> list[str] | None:
        return None if sources is None else [chain.names[x] for x in sources]

    plan = audit.plan
    return {
        "file": audit.file,
        "valid": audit.valid,
        "scheme": plan and plan.scheme,
        "lag": plan and plan.lag,
        "sources": chain.n,
        "lags": [
            {
                "lag": check.lag,
                "contexts": check.contexts,
                "kept": check.kept,
                "total_variation": None if check.largest is None else up(check.largest),
                "context": named(check.at),
                "stated": check.stated,
            }
            for check in audit.checks
        ],
        "cost": None if audit.cost is None else up(audit.cost),
        "estimate": audit.estimate,
        "lower_bound": {"proved": audit.proved, "stated": audit.stated},
        "findings": [
            {
                "rule": finding.rule,
                "message": finding.message,
                "lag": finding.context and finding.context[0],
                "context": named(finding.context and finding.context[1:]),
                "set": named(finding.query),
                "amount": finding.amount,
            }
            for finding in audit.findings
        ],
    }
