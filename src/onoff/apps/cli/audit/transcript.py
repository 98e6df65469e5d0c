"""`onoff audit transcript`: what a Bayesian server makes of its log, and whether the client kept to its rules."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onoff.apps.cli.options import AsJson
from onoff.apps.cli.printing import print_json
from onoff.apps.cli.shape import AUDIT
from onoff.apps.tone import aside
from onoff.errors import FOUND, OnoffError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onoff.audit.everyday.record import Law
    from onoff.audit.transcript import Evidence, Exhibits
    from onoff.audit.transcript.reading import Step
    from onoff.model.chain import Chain

MOST_LAG = 10_000  # of a race that is made here, because its client kept none


class Scheme(StrEnum):
    """Whose log it is."""

    onoff = "onoff"
    naive = "naive"
    decoys = "decoys"


def register(app: typer.Typer) -> None:
    app.command(
        rich_help_panel=AUDIT,
        epilog="Example: onoff audit transcript seen.jsonl --chain chain.json --journal reader.journal --plans plans",
    )(transcript)


def transcript(
    log: Annotated[Path, typer.Argument(metavar="LOG", help="What `onoff serve --transcript` wrote.")],
    chain: Annotated[Path, typer.Option(metavar="FILE", help="The chain of the requests.")],
    journal: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The client's journal, for statuses and plans.")
    ] = None,
    plans: Annotated[Path | None, typer.Option(metavar="DIR", help="Where the client's plans are kept.")] = None,
    record: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The laws that a client of the everyday mode recorded.")
    ] = None,
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
    part: Annotated[
        bool, typer.Option("--part", help="LOG is cut from a longer one: say nothing of what came before and after.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the audit's own random numbers.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Attack a server's log: what do all queries together say about every request?

    For a journal of the promise `past` the laws of its client are made again from public things, and compared with its
    record if that is given. The audit's own filter then says what the log tells about private requests before them,
    which is not promised, and from each of them on.

    With a journal the rules of the client are checked too, whether its sets were drawn as the plans say, whether its
    choices follow the requests, and whether the plans are certified. The last line is the verdict. PASSED is exit code
    0. FAILED and NO VERDICT are 1: the attack succeeds on private requests or can tell nothing, the log is not what
    such a client sends or lacks some of it, or the requests do not follow the chain, which is taken for granted.
    """
    from onoff.apps.plots import check_picture
    from onoff.audit.transcript import read_evidence
    from onoff.audit.transcript.evidence import read_statuses
    from onoff.model.chain import Chain

    if plot is not None:
        check_picture(plot)
    if (journal is None) == (statuses is None):
        raise OnoffError("give --journal, or --statuses if there is none: the server knows when privacy was ON")
    if plot is not None and truth is None and journal is None:
        raise OnoffError("--plot shows beliefs about the true requests: give --truth or --journal")
    known = None if statuses is None else read_statuses(statuses)
    evidence = read_evidence(Chain.load(chain), log, journal=journal, statuses=known, truth=truth, client=client)
    if evidence.notes.promise == "past":
        if plot is not None:
            raise OnoffError("--plot shows the announced mode: leave it out for a journal of the everyday mode")
        passed = _everyday(evidence, record, other or [], false_alarms, part, seed, as_json)
    else:
        if record is not None:
            raise OnoffError("--record is for the everyday mode: this journal announces its requests and has plans")
        passed = _announced(evidence, plans, scheme, other or [], false_alarms, draws, plot, part, seed, as_json)
    if not passed:
        raise typer.Exit(FOUND)


def _announced(
    evidence: Evidence,
    plans: Path | None,
    scheme: Scheme,
    others: Sequence[Path],
    false_alarms: float,
    draws: int,
    plot: Path | None,
    part: bool,
    seed: int,
    as_json: bool,
) -> bool:
    """Audit a log of the announced mode, print and draw what was found; whether it passed."""
    from onoff.apps.cli.audit.showing import print_transcript, transcript_as_dict
    from onoff.apps.terminal import progress
    from onoff.audit.transcript import audit_transcript
    from onoff.audit.transcript.reading import read_journal
    from onoff.logs.follow import follows

    chain = evidence.chain
    found = audit_transcript(
        evidence,
        exhibits_of(evidence, plans, scheme is Scheme.onoff),
        client=scheme.value,
        other_journals=[read_journal(file, chain) for file in others],
        following=None if evidence.requests is None else follows(chain, evidence.requests),
        false_alarms=false_alarms,
        tried=draws,
        part=part,
        seed=seed,
        progress=progress,
    )
    if as_json:
        print_json(transcript_as_dict(found))
    else:
        print_transcript(found)
    if plot is not None:
        from onoff.audit.transcript.picture import draw

        draw(found.audit, chain, plot)
        aside(f"drawn: {plot}")
    return found.passed


def _everyday(
    evidence: Evidence,
    record: Path | None,
    others: Sequence[Path],
    false_alarms: float,
    part: bool,
    seed: int,
    as_json: bool,
) -> bool:
    """Audit a log of the everyday mode, and print what was found; whether it passed."""
    from onoff.apps.cli.audit.showeveryday import everyday_as_dict, print_everyday
    from onoff.apps.terminal import progress
    from onoff.audit.transcript.everyday import audit_everyday_transcript, read_laws
    from onoff.everyday import Everyday
    from onoff.logs.follow import follows

    chain = evidence.chain
    found = audit_everyday_transcript(
        evidence,
        None if record is None else read_laws(record, evidence.notes.stream),
        engine=Everyday.start,
        other_journals=[_other(chain, file, record) for file in others],
        following=None if evidence.requests is None else follows(chain, evidence.requests),
        false_alarms=false_alarms,
        part=part,
        seed=seed,
        progress=progress,
    )
    if as_json:
        print_json(everyday_as_dict(found, chain))
    else:
        print_everyday(found, chain)
    return found.passed


def _other(chain: Chain, file: Path, record: Path | None) -> tuple[Sequence[Step], Mapping[int, Law]]:
    """The steps of another journal with their laws, which are made again if there is no record."""
    from onoff.audit.transcript.everyday import read_laws
    from onoff.audit.transcript.everyday.remaking import remade_laws
    from onoff.audit.transcript.reading import read_journal, read_notes
    from onoff.audit.transcript.rules import due
    from onoff.everyday import Everyday

    steps, notes = read_journal(file, chain), read_notes(file)
    if record is not None:
        return steps, read_laws(record, notes.stream).by_step
    sets = {step.step: step.query for step in steps}
    start = Everyday.start(chain, notes.sensitive)
    return steps, remade_laws(start, due(steps, announced=False), sets, notes, chain.n).by_step


def exhibits_of(evidence: Evidence, directory: Path | None, ours: bool = True) -> Exhibits:
    """The plans kept for the chain, with the lengths that the journal's client had; none if the client is not ours.

    A race has no file of its own where a client had no other plan: it is what the chain and its lag make it.
    """
    from onoff.audit.transcript import Exhibits
    from onoff.errors import PlanError
    from onoff.plans.base import Plan
    from onoff.plans.race import RacePlan, race_plan
    from onoff.plans.store import PlanStore
    from onoff.types import PlanName

    if not ours:
        return Exhibits((), Plan.load)
    if directory is not None and not directory.is_dir():
        raise OnoffError(f"{directory}: there is no such directory of plans")
    store = PlanStore(evidence.chain, directory, evidence.notes.lengths, make=False)
    known: list[Plan] = []
    files, findings = {}, []
    for lag in sorted(store.lags()):
        try:
            known.append(store.load(lag))
            files[known[-1].name] = store.path(lag)
        except PlanError as error:
            findings.append(f"a plan cannot be used: {error}")
    used = {PlanName.parse(step.plan) for step in evidence.steps if step.plan not in files}
    raced = {name.lag for name in used if name is not None and name.scheme == RacePlan.scheme}
    known += [race_plan(evidence.chain, lag, store.lengths) for lag in sorted(raced) if 0 < lag <= MOST_LAG]
    return Exhibits(known, Plan.load, files, tuple(findings))
