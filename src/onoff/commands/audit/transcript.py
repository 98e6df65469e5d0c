"""`onoff audit transcript`: what a Bayesian server makes of its log, and whether the client kept to its rules."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from enum import StrEnum
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onoff.errors import OnoffError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onoff.audit.belief import Asked
    from onoff.audit.conformance import Breach
    from onoff.audit.draws import DrawTest
    from onoff.audit.models import Model
    from onoff.audit.stream import Audit
    from onoff.audit.transcripts import Line, Step
    from onoff.audit.verdict import Gain, Verdict
    from onoff.chain import Chain
    from onoff.plans import Plan


class Scheme(StrEnum):
    """Whose log it is."""

    onoff = "onoff"
    naive = "naive"
    decoys = "decoys"


def register(app: typer.Typer) -> None:
    app.command(
        epilog="Example: onoff audit transcript seen.jsonl --chain chain.json --journal reader.journal --plans plans"
    )(transcript)


def transcript(
    log: Annotated[Path, typer.Argument(metavar="LOG", help="What `onoff serve --transcript` wrote.")],
    chain: Annotated[Path, typer.Option(metavar="FILE", help="The chain of the requests.")],
    journal: Annotated[Path | None, typer.Option(metavar="FILE", help="The client's, for statuses and plans.")] = None,
    plans: Annotated[Path | None, typer.Option(metavar="DIR", help="Where the client's plans are kept.")] = None,
    statuses: Annotated[
        str | None, typer.Option(metavar="1001..|FILE", help="Without a journal: 1 for each step made ON.")
    ] = None,
    truth: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The requests, one name in a line; else the journal's.")
    ] = None,
    scheme: Annotated[Scheme, typer.Option(help="How the client chooses its queries.")] = Scheme.onoff,
    client: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Only this client's queries.")] = None,
    false_alarms: Annotated[
        float, typer.Option(min=0.002, max=0.5, metavar="RATE", help="How often a private log may be called leaky.")
    ] = 0.01,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw beliefs over time: .png, .svg, .pdf.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Attack a server's log: what do all queries together say about every request?

    With a journal the rules of the client are checked too, and whether its sets were drawn as the plans say. Exit code
    1 if the attack succeeds on private requests, or if the log is not what such a client sends.
    """
    from onoff import report
    from onoff.audit.conformance import conformance
    from onoff.audit.draws import draws
    from onoff.audit.stream import audit_stream, pick, planned
    from onoff.audit.transcripts import read_journal, read_log, read_statuses, read_truth, streams
    from onoff.chain import Chain

    if plot is not None:
        report.check_picture(plot)
    if (journal is None) == (statuses is None):
        raise OnoffError("give --journal, or --statuses if there is none: the server knows when privacy was ON")
    loaded = Chain.load(chain)
    lines = read_log(log, loaded)
    steps = read_journal(journal, loaded) if journal is not None else _from_statuses(read_statuses(statuses or ""))
    ours = scheme is Scheme.onoff
    known = _known(loaded, journal, plans) if ours else []
    found = streams(lines, client, [step.query for step in steps] if journal is not None else ())
    its_lines = [line for one in found for line in one] or lines
    expected = _ours(loaded, steps, journal, known) if ours else _leaky(loaded, steps, its_lines, scheme)
    requests = read_truth(truth, loaded) if truth is not None else None
    if requests is None and journal is not None:
        requests = tuple(step.request for step in steps)
    if plot is not None and requests is None:
        raise OnoffError("--plot shows beliefs about the true requests: give --truth or --journal")
    stream = pick(found, expected)
    if ours and not known and any(step.lag for step in expected):
        raise OnoffError("there are no plans for this chain: give the client's directory of plans as --plans")
    if journal is None and len(steps) <= (highest := max(line.step for line in stream)):
        raise OnoffError(f"there are {len(steps)} statuses, but the log has a step {highest}: give one for each step")
    audit = audit_stream(loaded, stream, expected, requests, false_alarms, report.progress("attacking"))
    breaches: tuple[Breach, ...] = ()
    drawn = None
    if ours and journal is not None:
        models = planned(known)
        breaches, drawn = conformance(loaded, _until(found, stream), steps, models), draws(steps, models)
    if as_json:
        counted = {"not_in_log": len(steps) - len(audit.log.asked)}
        print(json.dumps({**_as_dict(audit), **counted, **_rules_as_dict(breaches, drawn)}, indent=2))
    else:
        print_audit(audit)
        if missing := len(steps) - len(audit.log.asked):
            print(f"{missing} steps more are in the journal and not in this log: they were not looked at")
        if drawn is not None:
            print_rules(breaches, drawn)
    if plot is not None:
        from onoff.audit.picture import draw

        draw(audit, loaded, plot)
        print(f"drawn: {plot}", file=sys.stderr)
    if not audit.clean or breaches or (drawn is not None and drawn.rejected):
        raise typer.Exit(1)


def _known(chain: Chain, journal: Path | None, plans: Path | None) -> list[Plan]:
    """The plans that are kept for the chain, with the lengths that the journal's client had."""
    from onoff.journal import snapshot
    from onoff.planstore import PlanStore

    if plans is not None and not plans.is_dir():  # an audit makes nothing
        raise OnoffError(f"{plans}: there is no such directory of plans")
    lengths = None if journal is None else json.loads(snapshot(journal).notes.get("lengths", "null"))
    store = PlanStore(chain, plans, None if lengths is None else tuple(lengths))
    return [store.load(lag) for lag in sorted(store.lags())]


def _until(found: Sequence[Sequence[Line]], stream: Sequence[Line]) -> list[Line]:
    """The lines of a stream's client up to the end of that stream: what it had asked before counts."""
    place = next(i for i, one in enumerate(found) if one is stream)
    return [line for one in found[: place + 1] if one[0].client == stream[0].client for line in one]


def _ours(chain: Chain, steps: Sequence[Step], journal: Path | None, known: Sequence[Plan]) -> list[Asked]:
    """The steps of our client: the journal names the plan of each; without one the cheapest that fits is taken."""
    from onoff.audit.belief import Asked
    from onoff.audit.models import Everything
    from onoff.audit.stream import noted, planned

    if journal is not None:
        return noted(chain, steps, known)
    tables = sorted(planned(known).values(), key=lambda model: model.plan.cost)

    def model(lag: int) -> Model | None:
        return next((table for table in tables if table.plan.lag <= lag), None) if lag else Everything(chain.n)

    return [Asked(step.lag, None, model(step.lag)) for step in steps]


def _leaky(chain: Chain, steps: Sequence[Step], lines: Sequence[Line], scheme: Scheme) -> list[Asked]:
    from onoff.audit.belief import Asked
    from onoff.audit.models import Decoys, Naive

    model = Naive(chain.n) if scheme is Scheme.naive else Decoys(chain.n, len(lines[0].sources) - 1)
    return [Asked(step.lag, step.query or None, model) for step in steps]


def _from_statuses(statuses: Sequence[bool]) -> tuple[Step, ...]:
    """Steps of which only the statuses are known."""
    from onoff.audit.setting import lags_of
    from onoff.audit.transcripts import Step

    return tuple(
        Step(t, private, private, lag, "", (), 0, None)
        for t, (private, lag) in enumerate(zip(statuses, lags_of(statuses), strict=True))
    )


def print_audit(audit: Audit) -> None:
    """What the server gained, ours beside naive, and the verdict in words."""
    from onoff.report import print_table

    log, verdict = audit.log, audit.log.verdict
    columns = {"this log": verdict} | ({} if audit.naive is None else {"naive client": audit.naive.verdict})
    for kind, gains in (
        ("private", [found.private for found in columns.values()]),
        ("open", [found.open for found in columns.values()]),
    ):
        rows = [("bits gained on a request, mean", *(f"{gain.mean_bits:.3g}" for gain in gains))]
        rows.append(("bits gained on a request, most", *(f"{gain.max_bits:.3g}" for gain in gains)))
        if audit.truth is not None:
            rows.append(("best guess right before the log", *(_percent(gain.guessed_before) for gain in gains)))
            rows.append(("best guess right after the log", *(_percent(gain.guessed) for gain in gains)))
            rows.append(("bits of truth learned, mean", *(_signed(gain.score) for gain in gains)))
        print_table(f"{gains[0].requests} {kind} requests", ("", *columns), rows)
    print(f"{len(log.asked)} steps: {verdict.attacked} attacked, {verdict.unattacked} not")
    if verdict.unattacked:
        print(
            "not attacked: not in the log, or drawn by a race (no table) or by a plan that is not in --plans or not fit"
        )
    for finding in audit.findings[:10]:
        print(f"finding: {finding}")
    if len(audit.findings) > 10:
        print(f"and {len(audit.findings) - 10} findings more")
    off = [step for step in log.asked if step.lag]
    blind = off and not any(step.query is not None and step.model is not None for step in off)
    for name, found in columns.items():
        words = "no OFF step could be attacked: this says nothing" if blind and found is verdict else _words(found)
        print(f"{name}: {words}")


def print_rules(breaches: Sequence[Breach], drawn: DrawTest) -> None:
    """What the client did against its rules, and whether its sets are those of its plans."""
    for breach in breaches[:10]:
        print(f"rule broken ({breach.rule}): {breach.message}")
    if len(breaches) > 10:
        print(f"and {len(breaches) - 10} breaches more")
    if not breaches:
        print("the rules of the client: kept")
    rest = f", {drawn.untested} not tested" if drawn.untested else ""
    if not drawn.tested:
        print(f"0 sets tested against plans{rest}")
        return
    outcome = f"NOT drawn as the plans say: look at {drawn.hint}" if drawn.rejected else "drawn as the plans say"
    print(
        f"{drawn.tested} sets: {outcome} (p = {drawn.p_value:.2g}, "
        f"false alarms at most {100 * drawn.false_alarm:g} %){rest}"
    )


def _rules_as_dict(breaches: Sequence[Breach], drawn: DrawTest | None) -> dict[str, Any]:
    if drawn is None:
        return {}
    return {
        "breaches": [asdict(breach) for breach in breaches],
        "draws": {**asdict(drawn), "rejected": drawn.rejected},
    }


def _words(verdict: Verdict) -> str:
    """The verdict of one column."""
    tests = f"beliefs changed by {verdict.variation:.1e} on average, {verdict.allowed:.1e} is allowed"
    if verdict.p_value is not None:
        tests += f"; strangers score as well with p = {verdict.p_value:.3f}"
    outcome = "BETRAYS private requests" if verdict.succeeded else "tells nothing about private requests"
    return f"{outcome} ({tests}; false alarms at most {100 * verdict.false_alarms:g} %)"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f} %"


def _signed(bits: float | None) -> str:
    return "" if bits is None else f"{bits:+.3g}"


def _as_dict(audit: Audit) -> dict[str, Any]:
    def gained(gain: Gain) -> dict[str, Any]:
        return {**asdict(gain), "score": None if gain.score == -inf else gain.score}  # JSON has no infinity

    def shown(verdict: Verdict) -> dict[str, Any]:
        gains = {"private": gained(verdict.private), "open": gained(verdict.open)}
        return {**asdict(verdict), **gains, "succeeded": verdict.succeeded}

    return {
        "steps": len(audit.log.asked),
        "clean": audit.clean,
        "findings": audit.findings,
        "log": shown(audit.log.verdict),
        "naive": None if audit.naive is None else shown(audit.naive.verdict),
    }
