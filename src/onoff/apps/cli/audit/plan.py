"""`onoff audit plan`: verify plans from scratch, print a certificate for each, exit 1 with a witness if one is off."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onoff.apps.cli.options import AUDIT, AsJson, parse_lags
from onoff.apps.cli.output import note, print_json
from onoff.errors import FOUND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onoff.audit.plan.record import Finding
    from onoff.audit.plan.verify import LagCheck, Verdict
    from onoff.model.chain import Chain

SHOWN = 12  # sources of a set that are named


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel=AUDIT, epilog="Example: onoff audit plan chain.csv plans --at 5,10")(plan)


def plan(
    chain: Annotated[Path, typer.Argument(metavar="CHAIN", help="A chain file, .json or .csv.")],
    plans: Annotated[
        list[Path], typer.Argument(metavar="PLAN...", help="Plan files, or directories that `onoff plan` made.")
    ],
    at: Annotated[str | None, typer.Option(metavar="LAGS", help="Also verify at these larger lags: 5, 2-10.")] = None,
    draws: Annotated[int, typer.Option(min=100, help="Queries drawn to test a race, or `draw` of a table.")] = 20_000,
    time_limit: Annotated[float, typer.Option(min=1, metavar="SECONDS", help="For a proof by CP-SAT.")] = 60.0,
    as_json: AsJson = False,
) -> None:
    """Verify plans from scratch in integers: law, every encoder, cost, lower bound, rounding. Exit 1 if one is off."""
    from onoff.apps.progress import progress
    from onoff.audit.plan import audit_plan, plan_files
    from onoff.model.chain import Chain
    from onoff.plans.plan import Plan

    lags = parse_lags(at) if at is not None else []
    loaded = Chain.load(chain)
    found = [plan_files(path, loaded) for path in plans]
    for store in (store for one in found for store in one.foreign):
        note(f"{store} holds plans for another chain: not audited")
    verdicts = []
    for file in (file for one in found for file in one.files):
        bar = progress(f"auditing {file.name}")
        verdict = audit_plan(loaded, file, Plan.load, lags, draws=draws, seconds=time_limit, bar=bar)
        verdicts.append(verdict)
        if not as_json:
            print("\n".join(certificate(verdict, loaded)))
    if as_json:
        print_json([as_dict(verdict, loaded) for verdict in verdicts])
    if not all(verdict.valid for verdict in verdicts):
        raise typer.Exit(FOUND)


def certificate(verdict: Verdict, chain: Chain) -> Iterator[str]:
    """The verdict in words, line by line."""
    from fractions import Fraction

    from onoff.apps.cli.output import percent
    from onoff.audit.plan import races
    from onoff.audit.plan.record import Estimate, Table
    from onoff.model.rounding import down, up

    record, proof = verdict.record, verdict.proof
    yield f"{verdict.file}: {'verified' if verdict.valid else 'NOT VALID'}"
    if record is not None and proof is not None:
        sets = f", {len(record.body.sets)} sets" if isinstance(record.body, Table) else ""
        lengths = "" if record.lengths is None else ", messages of different length"
        yield f"  scheme {record.scheme}, lag {record.lag}, {chain.n} sources{sets}{lengths}"
        for check in verdict.checks:
            yield from _checked(check, chain)
        low = down(proof.value)
        yield f"  lower bound: {low!r} proved by {proof.method}; stated {record.bound!r}"
        if verdict.cost is not None:
            yield f"  cost: {up(verdict.cost)!r}, from the law exactly, rounded up"
            if low > 0:
                yield f"  gap: {percent(max(0.0, up(verdict.cost / Fraction(low) - 1)))}"
        if verdict.estimate is not None and isinstance(record.body, Estimate):
            mean, error = verdict.estimate
            stated = f"{record.body.cost:.4f}, from {record.body.interval[0]:.4f} to {record.body.interval[1]:.4f}"
            yield f"  cost: {mean:.4f} ± {1.96 * error:.4f} (95 %) estimated from fresh draws; stated {stated}"
            if verdict.valid:
                yield "  every draw held its request; the cost, and one law in random contexts, are tested, not proved"
                yield f"  (each test rejects a true statement with probability {races.RATE:g})"
    for finding in verdict.findings:
        yield f"  {_witness(finding, chain)}"


def _checked(check: LagCheck, chain: Chain) -> Iterator[str]:
    from onoff.model.rounding import up

    if check.largest is None or check.at is None:
        yield f"  lag {check.lag}: rounding of {check.stated:.3e} stated, not verified: a race has no table"
        return
    last, following = (chain.names[source] for source in check.at)
    count = f"{check.kept} of {check.contexts} contexts"
    yield f"  lag {check.lag}: {count} keep the law to the unit and every request in its set"
    largest = f"{up(check.largest):.3e} at most (last {last!r}, next {following!r})"
    yield f"    total variation: {largest}; stated {check.stated:.3e}"


def _witness(finding: Finding, chain: Chain) -> str:
    parts = [f"{finding.rule}: {finding.message}"]
    if finding.context is not None:
        lag, last, following = finding.context
        parts.append(f"context: last {chain.names[last]!r}, next {chain.names[following]!r} at lag {lag}")
    if finding.set is not None:
        more = ", ..." if len(finding.set) > SHOWN else ""
        parts.append(f"set: {{{', '.join(chain.names[x] for x in finding.set[:SHOWN])}{more}}}")
    if finding.amount is not None:
        parts.append(f"by {finding.amount:.3e}")
    return "; ".join(parts)


def as_dict(verdict: Verdict, chain: Chain) -> dict[str, Any]:
    """The verdict for programs: sources by name, exact numbers rounded in the safe direction."""
    from onoff.model.rounding import down, up

    def named(sources: tuple[int, ...] | None) -> list[str] | None:
        return None if sources is None else [chain.names[x] for x in sources]

    record, proof = verdict.record, verdict.proof
    return {
        "file": verdict.file,
        "valid": verdict.valid,
        "scheme": record and record.scheme,
        "lag": record and record.lag,
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
            for check in verdict.checks
        ],
        "cost": None if verdict.cost is None else up(verdict.cost),
        "estimate": verdict.estimate,
        "lower_bound": proof
        and {"proved": down(proof.value), "method": proof.method, "stated": record and record.bound},
        "findings": [
            {
                "rule": finding.rule,
                "message": finding.message,
                "lag": finding.context and finding.context[0],
                "context": named(finding.context and finding.context[1:]),
                "set": named(finding.set),
                "amount": finding.amount,
            }
            for finding in verdict.findings
        ],
    }
