"""`onoff audit transcript`: what a Bayesian server makes of its log, and whether the client kept to its rules."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onoff.errors import OnoffError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onoff.audit.belief import Asked
    from onoff.audit.conformance import Breach
    from onoff.audit.draws import DrawTest
    from onoff.audit.models import Model
    from onoff.audit.transcripts import Line, Step
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
    other: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="Another journal used at this address; repeatable.")
    ] = None,
    false_alarms: Annotated[
        float, typer.Option(min=0.002, max=0.5, metavar="RATE", help="How often a private log may be called leaky.")
    ] = 0.01,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw beliefs over time: .png, .svg, .pdf.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Attack a server's log: what do all queries together say about every request?

    With a journal the rules of the client are checked too, and whether its sets were drawn as the plans say. Exit code
    1 if the attack succeeds on private requests, if the log is not what such a client sends, or if the requests do not
    follow the chain, which the attack takes for granted.
    """
    from onoff import report
    from onoff.audit.others import others
    from onoff.audit.stream import audit_stream, planned
    from onoff.audit.transcripts import read_journal
    from onoff.commands.audit.showing import audit_as_dict, print_audit, print_rules, rules_as_dict
    from onoff.logs.following import follows
    from onoff.plots import check_picture

    if plot is not None:
        check_picture(plot)
    if (journal is None) == (statuses is None):
        raise OnoffError("give --journal, or --statuses if there is none: the server knows when privacy was ON")
    if plot is not None and truth is None and journal is None:
        raise OnoffError("--plot shows beliefs about the true requests: give --truth or --journal")
    case = _gather(log, chain, journal, plans, statuses, truth, scheme, client)
    audit = audit_stream(
        case.chain, case.stream, case.expected, case.requests, false_alarms, report.progress("attacking")
    )
    following = None if case.requests is None else follows(case.chain, case.requests)
    breaches, drawn = _rules(case) if scheme is Scheme.onoff and journal is not None else ((), None)
    journals = [[step.query for step in read_journal(file, case.chain)] for file in other or []]
    beside = others(case.found, case.stream, len(case.steps), case.chain.n, planned(case.known).values(), journals)
    if scheme is Scheme.onoff:
        audit = replace(audit, findings=audit.findings + beside.findings)
    missing = len(case.steps) - len(audit.log.asked)
    if as_json:
        unseen = {"not_in_stream": missing, "other_lines": beside.lines}
        habits = {} if following is None else {"following": {**asdict(following), "refuted": following.refuted}}
        print(json.dumps({**audit_as_dict(audit), **unseen, **rules_as_dict(breaches, drawn), **habits}, indent=2))
    else:
        print_audit(audit, following)
        if missing:
            print(f"{missing} steps more are in the journal and not in this stream: they were not looked at")
        if beside.lines:
            advice = "; if other journals have sent them, name those with --other" if beside.findings else ""
            print(f"{beside.lines} queries of other streams are in the log: they were not attacked{advice}")
        if drawn is not None:
            print_rules(breaches, drawn, audit.findings)
    if plot is not None:
        from onoff.audit.picture import draw

        draw(audit, case.chain, plot)
        print(f"drawn: {plot}", file=sys.stderr)
    refuted = following is not None and following.refuted
    if not audit.clean or refuted or breaches or (drawn is not None and drawn.rejected):
        raise typer.Exit(1)


@dataclass(frozen=True)
class Case:
    """What there is to go by: the log in streams, one of them to be attacked, and what is known of its client."""

    chain: Chain
    found: Sequence[Sequence[Line]]
    stream: Sequence[Line]
    steps: Sequence[Step]
    expected: Sequence[Asked]
    requests: tuple[int, ...] | None
    known: Sequence[Plan]


def _gather(
    log: Path,
    chain_file: Path,
    journal: Path | None,
    plans: Path | None,
    statuses: str | None,
    truth: Path | None,
    scheme: Scheme,
    client: str | None,
) -> Case:
    """Read all files, and find the stream of the client they speak of."""
    from onoff.audit.stream import pick
    from onoff.audit.transcripts import read_journal, read_log, read_statuses, read_truth, streams
    from onoff.chain import Chain

    chain = Chain.load(chain_file)
    lines = read_log(log, chain)
    steps = read_journal(journal, chain) if journal is not None else _from_statuses(read_statuses(statuses or ""))
    ours = scheme is Scheme.onoff
    known = _known(chain, journal, plans) if ours else []
    found = streams(lines, client, [step.query for step in steps] if journal is not None else ())
    its_lines = [line for one in found for line in one] or lines
    expected = _ours(chain, steps, journal, known) if ours else _leaky(chain, steps, its_lines, scheme)
    requests = read_truth(truth, chain) if truth is not None else None
    if requests is None and journal is not None:
        requests = tuple(step.request for step in steps)
    stream = pick(found, expected)
    if ours and not known and any(step.lag for step in expected):
        raise OnoffError("there are no plans for this chain: give the client's directory of plans as --plans")
    if journal is None and len(steps) <= (highest := max(line.step for line in stream)):
        raise OnoffError(f"there are {len(steps)} statuses, but the log has a step {highest}: give one for each step")
    return Case(chain, found, stream, steps, expected, requests, known)


def _rules(case: Case) -> tuple[tuple[Breach, ...], DrawTest]:
    """Whether the client kept to its rules, and whether its sets are those of its plans."""
    from onoff.audit.conformance import conformance
    from onoff.audit.draws import draws
    from onoff.audit.stream import planned

    models = planned(case.known)
    return conformance(case.chain, _until(case.found, case.stream), case.steps, models), draws(case.steps, models)


def _known(chain: Chain, journal: Path | None, plans: Path | None) -> list[Plan]:
    """The plans that are kept for the chain, with the lengths that the journal's client had."""
    from onoff.journal import snapshot
    from onoff.planstore import PlanStore

    if plans is not None and not plans.is_dir():
        raise OnoffError(f"{plans}: there is no such directory of plans")
    note = "null" if journal is None else snapshot(journal).notes.get("lengths", "null")
    try:
        lengths = None if note == "null" else tuple(json.loads(note))
    except (TypeError, ValueError, RecursionError):
        raise OnoffError(f"{journal}: the lengths noted in this journal cannot be read: {note[:40]!r}") from None
    store = PlanStore(chain, plans, lengths, make=False)
    return [store.load(lag) for lag in sorted(store.lags())]


def _until(found: Sequence[Sequence[Line]], stream: Sequence[Line]) -> list[Sequence[Line]]:
    """The streams of the stream's client up to that one: what it had asked before counts."""
    place = next(i for i, one in enumerate(found) if one is stream)
    return [one for one in found[: place + 1] if one[0].client == stream[0].client]


def _ours(chain: Chain, steps: Sequence[Step], journal: Path | None, known: Sequence[Plan]) -> list[Asked]:
    """The steps of our client: the journal names the plan of each; without one the cheapest that fits is taken."""
    from onoff.audit.belief import Asked
    from onoff.audit.models import Everything
    from onoff.audit.setting import serving
    from onoff.audit.stream import noted, planned

    if journal is not None:
        return noted(chain, steps, known)
    models = planned(known)

    def model(lag: int) -> Model | None:
        if lag == 0:
            return Everything(chain.n)
        plan = serving(known, lag)
        return None if plan is None else models.get(plan.name)  # a race has no table

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
