"""`onoff audit transcript`: what a Bayesian server makes of its log, and whether the client kept to its rules."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from onoff.errors import OnoffError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onoff.apps.cli.audit.showing import Rules
    from onoff.audit.models import Model
    from onoff.audit.transcript.belief import Asked
    from onoff.audit.transcript.draws import Raced
    from onoff.audit.transcript.reading import Line, Notes, Step
    from onoff.model.chain import Chain
    from onoff.plans.base import Plan

MOST_LAG = 10_000  # of a race that is made here, because its client kept none


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
    draws: Annotated[int, typer.Option(min=100, help="Queries drawn to test a race that was used.")] = 20_000,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw beliefs over time: .png, .svg, .pdf.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Attack a server's log: what do all queries together say about every request?

    With a journal the rules of the client are checked too, whether its sets were drawn as the plans say, whether its
    choices follow the requests, and whether the plans are certified. Exit code 1 if the attack succeeds on private
    requests, if it can tell nothing, if the log is not what such a client sends, or if the requests do not follow the
    chain, which the attack takes for granted.
    """
    from onoff.apps import terminal as report
    from onoff.apps.cli.audit.showing import audit_as_dict, print_audit, print_rules, rules_as_dict
    from onoff.apps.plots import check_picture
    from onoff.audit.transcript.attack import audit_stream, planned
    from onoff.audit.transcript.others import others
    from onoff.audit.transcript.reading import read_journal
    from onoff.logs.following import follows

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
    journals = [read_journal(file, case.chain) for file in other or []]
    rules = _rules(case, journals) if scheme is Scheme.onoff and journal is not None else None
    sets = [[step.query for step in steps] for steps in journals]
    beside = others(case.found, case.stream, len(case.steps), case.chain.n, planned(case.known).values(), sets)
    if scheme is Scheme.onoff:
        audit = replace(audit, findings=case.findings + audit.findings + beside.findings + _certified(case, draws))
    missing = len(case.steps) - len(audit.log.asked)
    if as_json:
        unseen = {"not_in_stream": missing, "other_lines": beside.lines}
        habits = {} if following is None else {"following": {**asdict(following), "refuted": following.refuted}}
        print(json.dumps({**audit_as_dict(audit), **unseen, **rules_as_dict(rules), **habits}, indent=2))
    else:
        print_audit(audit, following)
        if missing:
            print(f"{missing} steps more are in the journal and not in this stream: they were not looked at")
        if beside.lines:
            advice = "; if other journals have sent them, name those with --other" if beside.findings else ""
            print(f"{beside.lines} queries of other streams are in the log: they were not attacked{advice}")
        if rules is not None:
            print_rules(rules, audit.findings)
    if plot is not None:
        from onoff.audit.transcript.picture import draw

        draw(audit, case.chain, plot)
        print(f"drawn: {plot}", file=sys.stderr)
    refuted = following is not None and following.refuted
    off = [step for step in audit.log.asked if step.lag]
    # Of races only a journal's draws are tested.
    blind = rules is None and bool(off) and all(step.query is None or step.model is None for step in off)
    if not audit.clean or blind or refuted or (rules is not None and not rules.kept):
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
    files: Mapping[str, Path]
    since: int
    findings: tuple[str, ...]


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
    from onoff.audit.transcript.attack import pick
    from onoff.audit.transcript.reading import (
        Notes,
        read_journal,
        read_notes,
        read_statuses,
        read_transcript,
        read_truth,
        streams,
    )
    from onoff.model.chain import Chain

    chain = Chain.load(chain_file)
    seen = read_transcript(log, chain)
    steps = read_journal(journal, chain) if journal is not None else _from_statuses(read_statuses(statuses or ""))
    notes = read_notes(journal) if journal is not None else Notes(None, None, 0)
    ours = scheme is Scheme.onoff
    known, files, findings = _known(chain, plans, notes, steps) if ours else ([], {}, [])
    found = streams(seen.lines, client, [step.query for step in steps] if journal is not None else ())
    its_lines = [line for one in found for line in one] or seen.lines
    expected = _ours(chain, steps, journal, known) if ours else _leaky(chain, steps, its_lines, scheme)
    requests = read_truth(truth, chain) if truth is not None else None
    if requests is None and journal is not None:
        requests = tuple(step.request for step in steps)
    stream = pick(found, expected, notes.stream)
    if journal is not None and stream[0].stream not in (None, notes.stream):
        findings.append(f"the journal's stream {notes.stream} is not in the log; {stream[0].stream} is most like it")
    if ours and not known and not findings and any(step.lag for step in expected):
        raise OnoffError("there are no plans for this chain: give the client's directory of plans as --plans")
    if journal is None and len(steps) <= (highest := max(line.step for line in stream)):
        raise OnoffError(f"there are {len(steps)} statuses, but the log has a step {highest}: give one for each step")
    findings = [*seen.damaged, *findings]
    return Case(chain, found, stream, steps, expected, requests, known, files, notes.since, tuple(findings))


def _rules(case: Case, journals: Sequence[Sequence[Step]]) -> Rules:
    """Whether the client kept to its rules, whether its sets are those of its plans, and what its choices follow."""
    from onoff.apps.cli.audit.showing import Rules
    from onoff.audit.transcript.attack import planned
    from onoff.audit.transcript.choices import choices
    from onoff.audit.transcript.conformance import conformance
    from onoff.audit.transcript.draws import draws

    models = planned(case.known)
    races = {plan.name: cast("Raced", plan) for plan in case.known if plan.scheme == "race"}
    breaches = conformance(case.chain, _until(case.found, case.stream), case.steps, models, case.since, races)
    return Rules(breaches, draws(case.steps, models, races=races, others=journals), choices(case.steps))


def _certified(case: Case, draws: int) -> tuple[str, ...]:
    """What `onoff audit plan` would find in the plans that were used."""
    import tempfile

    from onoff.apps.terminal import progress
    from onoff.audit.transcript.certifying import uncertified, uses
    from onoff.plans.base import Plan

    used = uses(case.steps)
    assumed = {step.model.name for step in case.expected if step.model is not None}  # without a journal
    with tempfile.TemporaryDirectory() as directory:
        files = {}
        for i, plan in enumerate(plan for plan in case.known if plan.name in used or plan.name in assumed):
            if plan.name not in case.files:
                plan.save(Path(directory) / f"{i}.json")
            files[plan.name] = case.files.get(plan.name, Path(directory) / f"{i}.json")
        return tuple(uncertified(case.chain, files, used, Plan.load, draws, progress("certifying plans")))


def _known(
    chain: Chain, directory: Path | None, notes: Notes, steps: Sequence[Step]
) -> tuple[list[Plan], dict[str, Path], list[str]]:
    """The plans kept for the chain, with the lengths that the journal's client had; their files; what cannot be used.

    A race has no file of its own where a client had no other plan: it is what the chain and its lag make it.
    """
    from onoff.audit.transcript.conformance import plan_lag
    from onoff.errors import PlanError
    from onoff.plans.race import race_plan
    from onoff.plans.store import PlanStore

    if directory is not None and not directory.is_dir():
        raise OnoffError(f"{directory}: there is no such directory of plans")
    store = PlanStore(chain, directory, notes.lengths, make=False)
    known: list[Plan] = []
    files, findings = {}, []
    for lag in sorted(store.lags()):
        try:
            known.append(store.load(lag))
            files[known[-1].name] = store.path(lag)
        except PlanError as error:
            findings.append(f"a plan cannot be used: {error}")
    for name in sorted({step.plan for step in steps if step.plan.startswith("race, ")} - files.keys()):
        raced = plan_lag(name)
        if raced is not None and 0 < raced <= MOST_LAG:
            known.append(race_plan(chain, raced, store.lengths))
    return known, files, findings


def _until(found: Sequence[Sequence[Line]], stream: Sequence[Line]) -> list[Sequence[Line]]:
    """The streams of the stream's client up to that one: what it had asked before counts."""
    place = next(i for i, one in enumerate(found) if one is stream)
    return [one for one in found[: place + 1] if one[0].client == stream[0].client]


def _ours(chain: Chain, steps: Sequence[Step], journal: Path | None, known: Sequence[Plan]) -> list[Asked]:
    """The steps of our client: the journal names the plan of each; without one the cheapest that fits is taken."""
    from onoff.audit.models import Everything
    from onoff.audit.setting import serving
    from onoff.audit.transcript.attack import noted, planned
    from onoff.audit.transcript.belief import Asked

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
    from onoff.audit.models import Decoys, Naive
    from onoff.audit.transcript.belief import Asked

    model = Naive(chain.n) if scheme is Scheme.naive else Decoys(chain.n, len(lines[0].sources) - 1)
    return [Asked(step.lag, step.query or None, model) for step in steps]


def _from_statuses(statuses: Sequence[bool]) -> tuple[Step, ...]:
    """Steps of which only the statuses are known."""
    from onoff.audit.setting import lags_of
    from onoff.audit.transcript.reading import Step

    return tuple(
        Step(t, private, private, lag, "", (), 0, None)
        for t, (private, lag) in enumerate(zip(statuses, lags_of(statuses), strict=True))
    )
