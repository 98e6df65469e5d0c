"""The front door of `onoff audit transcript`: a log attacked, and its client checked against all its rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, cast

from onoff.audit.models import Decoys, Everything, Model, Naive, has_table, planned
from onoff.audit.setting import serving
from onoff.audit.transcript.attack import Audit, audit_stream, noted, pick
from onoff.audit.transcript.belief import Asked
from onoff.audit.transcript.certifying import Exhibits, uncertified, uses
from onoff.audit.transcript.choices import ChoiceTest, choices
from onoff.audit.transcript.conformance import Breach, conformance
from onoff.audit.transcript.draws import DrawTest, Raced, draws
from onoff.audit.transcript.evidence import Evidence
from onoff.audit.transcript.naming import announced_requests, naming_findings
from onoff.audit.transcript.others import Others, others
from onoff.audit.transcript.outcome import Outcome, concluded, counted
from onoff.audit.transcript.publiclaw import LawTest, public_law
from onoff.audit.transcript.reading import Line, Step
from onoff.audit.transcript.repeats import NO_REPEATS, Repeats, repeats
from onoff.audit.transcript.rules import due
from onoff.audit.transcript.whole import missing_findings, missing_steps, sets_seen, unread
from onoff.errors import OnoffError
from onoff.types import Progress, silent

if TYPE_CHECKING:
    from onoff.logs.follow import Following
    from onoff.model.chain import Chain
    from onoff.plans.base import Plan

CLIENTS = ("onoff", "naive", "decoys")
DRAWS = 20_000
SEED = 1  # of the audit's own random numbers: the same files give the same figures
UNKNOWN_RULES = "the rules and choices of the client, its versions and repeats, which takes --journal"
FOREIGN_RULES = "the rules and choices of a client that is not onoff's, its versions and repeats, which nobody knows"
UNKNOWN_REQUESTS = "whether sets were drawn for their requests, and whether those follow the chain, which takes --truth"


@dataclass(frozen=True)
class Rules:
    """What is found against the rules of the client, its draws and its choices."""

    breaches: tuple[Breach, ...]
    drawn: DrawTest
    chosen: ChoiceTest

    @property
    def reasons(self) -> tuple[str | None, ...]:
        """What they speak against, except for draws."""
        return (
            counted(len(self.breaches), "broken rule"),
            "choices follow the requests" if self.chosen.rejected else None,
        )

    @property
    def kept(self) -> bool:
        return not (self.breaches or self.drawn.rejected or self.chosen.rejected)


@dataclass(frozen=True)
class TranscriptAudit:
    """What a log betrays, and what speaks against its client.

    `rules` is None without a journal, or if the client is not ours. Without a journal `law` has the sets of the log
    against the public law of the plans, and `drawn` against the requests, if those are known. `unseen` steps were made
    by the client and are not in the log, `beside` is what else is in it, and `repeats` are queries that came again.
    `unread` is what else nobody could look at.
    """

    audit: Audit
    rules: Rules | None
    unseen: int
    beside: Others
    following: Following | None
    law: LawTest | None = None
    drawn: DrawTest | None = None
    repeats: Repeats = NO_REPEATS
    unread: tuple[str, ...] = ()

    @property
    def steps(self) -> int:
        """How many steps the log has."""
        return self.audit.log.verdict.attacked + self.audit.log.verdict.unattacked

    @property
    def blind(self) -> bool:
        """Whether no OFF step could be attacked. (Of races only a journal's draws are tested.)"""
        return self.rules is None and self.audit.log.blind

    @property
    def outcome(self) -> Outcome:
        """Whether the log was attacked in vain and nothing else is wrong. A chain that was refuted says nothing."""
        verdict, law = self.audit.log.verdict, self.law
        drawn = self.drawn if self.rules is None else self.rules.drawn
        failed = [
            "the attack betrays private requests" if verdict.succeeded and verdict.conclusive else None,
            counted(len(self.audit.findings), "finding"),
            *(() if self.rules is None else self.rules.reasons),
            "the sets are not drawn as the plans say" if drawn is not None and drawn.rejected else None,
            "the sets are not such as these plans draw" if law is not None and law.rejected else None,
        ]
        refuted = self.following is not None and self.following.refuted
        untried = 0 if law is None else law.untested if drawn is None else drawn.untested
        questions = [
            "the requests do not follow the chain" if refuted else None,
            None if verdict.conclusive else "an allowance of 1 or more would let any leak pass",
            "no OFF step could be attacked" if self.blind else None,
            f"{untried} OFF steps cannot be tested without --journal: they are of a race" if untried else None,
        ]
        untested = [f"{counted(self.unseen, 'step')} that the log lacks"] if self.unseen else []
        untested += self.unread
        missed = self.audit.log.missed
        untested += [f"what {counted(missed, 'OFF step')} tell, which cannot be attacked"] if missed else []
        if law is not None:
            untested += [UNKNOWN_RULES, *([UNKNOWN_REQUESTS] if drawn is None else [])]
        elif self.rules is None:
            untested.append(FOREIGN_RULES)
        return concluded(failed, questions, untested)

    @property
    def passed(self) -> bool:
        """Whether the outcome is that the audit passed."""
        return self.outcome.passed


def audit_transcript(
    evidence: Evidence,
    exhibits: Exhibits,
    *,
    client: str = "onoff",
    other_journals: Sequence[Sequence[Step]] = (),
    following: Following | None = None,
    false_alarms: float = 0.01,
    tried: int = DRAWS,
    part: bool = False,
    seed: int = SEED,
    progress: Progress = silent,
) -> TranscriptAudit:
    """Attack a log: what do all queries together say about every request?

    `client` says how queries are chosen: with our plans (the `exhibits`), openly while OFF, or among decoys. With the
    journal of ours, the rules of the client are checked too, whether its sets were drawn as the plans say, whether its
    choices follow the requests, and whether the plans are certified (`tried` draws are made of a race).
    `other_journals` are those that the same client used beside. `following` is what `onoff.logs.follow.follows` says
    of the requests: everything here takes for granted that they follow the chain. In a `part` of a log the steps before
    and after it are not missed, nor are they judged. `seed` is of all random numbers: of strangers, orders and races.
    """
    if evidence.notes.promise != "both":
        raise OnoffError("the journal is one of the everyday mode: give the record of its laws as --record")
    if client not in CLIENTS:
        raise OnoffError(f"there is no client {client!r}: choose from {', '.join(CLIENTS)}")
    ours, chain, found = client == "onoff", evidence.chain, evidence.streams
    lines = [line for one in found for line in one] or evidence.log.lines
    expected = _ours(evidence, exhibits.plans) if ours else _leaky(chain, evidence.steps, lines, client)
    stream = pick(found, expected, evidence.notes.stream)
    findings = (*(exhibits.findings if ours else ()), *renamed(evidence, stream))
    if ours and not exhibits.plans and not findings and any(step.lag for step in expected):
        raise OnoffError("there are no plans for this chain: give the client's directory of plans as --plans")
    _check_length(evidence, stream)
    audit = audit_stream(chain, stream, expected, evidence.requests, false_alarms, progress("attacking"), seed)
    rules = _rules(evidence, exhibits, found, stream, other_journals, seed) if ours and evidence.noted else None
    missing = missing_steps(stream, evidence.steps)
    source = "the journal" if evidence.noted else "the statuses"
    findings += tuple(missing_findings(missing, len(evidence.steps), part, source))
    law = drawn = None
    if ours and not evidence.noted:
        law = public_law(audit.log.asked, planned(exhibits.plans).values())
        drawn = None if evidence.requests is None else _drawn(evidence, exhibits, expected, stream, seed)
    sets = [[step.query for step in steps] for steps in other_journals]
    models = planned(exhibits.plans).values()
    beside = others(found, stream, len(evidence.steps), chain.n, models, sets)
    requests = announced_requests(chain, evidence.steps, due(evidence.steps)) if ours and evidence.noted else None
    again = repeats(stream, evidence.steps, requests, evidence.notes.counted)
    if ours:  # of other clients nothing is known that other streams, versions or repeats could break
        used = uses(evidence.steps)
        for model in (step.model for step in expected if step.model is not None):  # without a journal
            used.setdefault(model.name, set())
        bad = uncertified(chain, exhibits, used, tried, progress("certifying plans"), Random(seed).randrange)
        named = () if requests is None else naming_findings(stream, evidence.steps, requests, chain.n)
        findings += (*named, *again.findings, *beside.findings, *bad)
    audit = replace(audit, findings=(*evidence.log.damaged, *findings, *audit.findings))
    untold = tuple(unread(stream, evidence.log.ignored, again))
    return TranscriptAudit(audit, rules, len(missing), beside, following, law, drawn, again, untold)


def renamed(evidence: Evidence, stream: Sequence[Line]) -> list[str]:
    """A finding if the journal's own stream is not in the log."""
    name = evidence.notes.stream
    if not evidence.noted or stream[0].stream in (None, name):
        return []
    return [f"the journal's stream {name} is not in the log; {stream[0].stream} is most like it"]


def _check_length(evidence: Evidence, stream: Sequence[Line]) -> None:
    steps, highest = len(evidence.steps), max(line.step for line in stream)
    if not evidence.noted and steps <= highest:
        raise OnoffError(f"there are {steps} statuses, but the log has a step {highest}: give one for each step")


def _rules(
    evidence: Evidence,
    exhibits: Exhibits,
    found: Sequence[Sequence[Line]],
    stream: Sequence[Line],
    journals: Sequence[Sequence[Step]],
    seed: int,
) -> Rules:
    """Whether the client kept to its rules, whether its sets are those of its plans, and what its choices follow."""
    models, steps = planned(exhibits.plans), evidence.steps
    races = _races(exhibits)
    breaches = conformance(evidence.chain, until(found, stream), steps, models, evidence.notes.since, races)
    below, seen = Random(seed).randrange, sets_seen(stream)
    drawn = draws(steps, models, races=races, others=journals, randbelow=below, seen=seen)
    return Rules(breaches, drawn, choices(steps, seed))


def _drawn(
    evidence: Evidence, exhibits: Exhibits, expected: Sequence[Asked], stream: Sequence[Line], seed: int
) -> DrawTest:
    """The draws of a log whose requests are known, though no journal is: by the plans that the attack assumes."""
    requests = evidence.requests or ()
    steps = [
        replace(step, request=request, next=following, plan="" if asked.model is None else asked.model.name)
        for step, asked, request, following in zip(
            evidence.steps, expected, requests, [*requests[1:], None], strict=False
        )
    ]
    if steps and steps[-1].lag and steps[-1].next is None:
        steps.pop()  # nobody knows what it was drawn for
    below, seen = Random(seed).randrange, sets_seen(stream)
    return draws(steps, planned(exhibits.plans), races=_races(exhibits), randbelow=below, seen=seen)


def _races(exhibits: Exhibits) -> dict[str, Raced]:
    return {plan.name: cast("Raced", plan) for plan in exhibits.plans if not has_table(plan)}


def until(found: Sequence[Sequence[Line]], stream: Sequence[Line]) -> list[Sequence[Line]]:
    """The streams of the stream's client up to that one: what it had asked before counts."""
    place = next(i for i, one in enumerate(found) if one is stream)
    return [one for one in found[: place + 1] if one[0].client == stream[0].client]


def _ours(evidence: Evidence, plans: Sequence[Plan]) -> list[Asked]:
    """The steps of our client: the journal names the plan of each; without one the cheapest that fits is taken."""
    if evidence.noted:
        return noted(evidence.chain, evidence.steps, plans)
    models, n = planned(plans), evidence.chain.n

    def model(lag: int) -> Model | None:
        if lag == 0:
            return Everything(n)
        plan = serving(plans, lag)
        return None if plan is None else models.get(plan.name)  # a race has no table

    return [Asked(step.lag, None, model(step.lag)) for step in evidence.steps]


def _leaky(chain: Chain, steps: Sequence[Step], lines: Sequence[Line], client: str) -> list[Asked]:
    model = Naive(chain.n) if client == "naive" else Decoys(chain.n, len(lines[0].sources) - 1)
    return [Asked(step.lag, step.query or None, model) for step in steps]
