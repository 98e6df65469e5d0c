"""The front door for transcripts of the everyday mode: log, journal and record of laws, attacked and checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from onoff.audit.everyday.beliefs import Beliefs, attack
from onoff.audit.everyday.record import Law, Seen
from onoff.audit.everyday.walk import walk
from onoff.audit.models import Naive
from onoff.audit.transcript import belief
from onoff.audit.transcript.attack import pick
from onoff.audit.transcript.auditing import SEED, Rules, renamed, until
from onoff.audit.transcript.belief import Asked
from onoff.audit.transcript.choices import choices
from onoff.audit.transcript.everyday.draws import everyday_draws
from onoff.audit.transcript.everyday.laws import Laws, request_laws
from onoff.audit.transcript.everyday.remaking import compared, remade_laws
from onoff.audit.transcript.everyday.rules import conformance
from onoff.audit.transcript.everyday.verdict import Verdict, judge
from onoff.audit.transcript.everyday.weighing import stated_weights, weighing_choices, weighing_findings
from onoff.audit.transcript.evidence import Evidence
from onoff.audit.transcript.naming import naming_findings
from onoff.audit.transcript.others import Others, others
from onoff.audit.transcript.outcome import Outcome, concluded, counted
from onoff.audit.transcript.reading import Step
from onoff.audit.transcript.repeats import NO_REPEATS, Repeats, repeats
from onoff.audit.transcript.rules import Due, due
from onoff.audit.transcript.whole import missing_findings, missing_steps, sets_seen, unread
from onoff.errors import OnoffError
from onoff.types import Progress, Query, silent

if TYPE_CHECKING:
    from onoff.logs.follow import Following
    from onoff.model.chain import Chain

Engine = Callable[["Chain", Sequence[int]], Any]  # makes laws, as an exhibit: `onoff.everyday.Everyday.start`


@dataclass(frozen=True)
class EverydayAudit:
    """What a log of the everyday mode betrays, and what speaks against its client.

    `naive` is what a client would have betrayed that asks for the full set while ON, and openly otherwise. `findings`
    are what is wrong whatever the requests were. `remade` says how many laws are to the unit those that the installed
    version makes; None if no engine was given, or there is no record to compare (`recorded` is False). `steps` and
    `off` are those of the log, and `unseen` ones are in the journal and not in the log. Of the OFF steps in the log
    `silent` ones could not be attacked, and nor could the `excused` ones at the beginning of a part, whose ON step is
    not in it. `repeats` are queries that came again. `unread` is what else nobody could look at.
    """

    sensitive: tuple[int, ...]
    steps: int
    off: int
    verdict: Verdict
    naive: Verdict
    rules: Rules
    findings: tuple[str, ...]
    notes: tuple[str, ...]
    remade: int | None
    unseen: int
    beside: Others
    following: Following | None
    recorded: bool = True
    silent: tuple[int, ...] = ()
    excused: tuple[int, ...] = ()
    repeats: Repeats = NO_REPEATS
    unread: tuple[str, ...] = ()

    @property
    def _unjudged(self) -> bool:
        return bool(self.excused) and len(self.excused) == self.off

    @property
    def _why_silent(self) -> str:
        if self.recorded:
            return "laws are missing, or exclude their sets"
        return "their laws cannot be made again; give the client's record as --record"

    @property
    def outcome(self) -> Outcome:
        """Whether the log was attacked in vain and nothing else is wrong. A chain that was refuted says nothing."""
        verdict = self.verdict
        failed = [
            "the attack betrays private requests" if verdict.succeeded and verdict.conclusive else None,
            counted(len(self.findings), "finding"),
            *self.rules.reasons,
            "the sets are not drawn as the laws say" if self.rules.drawn.rejected else None,
        ]
        refuted, silent = self.following is not None and self.following.refuted, len(self.silent)
        questions = [
            "the requests do not follow the chain" if refuted else None,
            None if verdict.conclusive else "an allowance of 1 or more would let any leak pass",
            f"{silent} OFF steps could not be attacked: {self._why_silent}" if silent else None,
            "no OFF step could be attacked: none comes after an ON step of the part" if self._unjudged else None,
        ]
        untested = [f"{counted(self.unseen, 'step')} that the log lacks"] if self.unseen else []
        untested += self.unread
        untested += [f"{len(self.excused)} steps that come after them"] if self.excused else []
        return concluded(failed, questions, untested)

    @property
    def passed(self) -> bool:
        """Whether the outcome is that the audit passed."""
        return self.outcome.passed


def audit_everyday_transcript(
    evidence: Evidence,
    laws: Laws | None,
    *,
    engine: Engine | None = None,
    other_journals: Sequence[tuple[Sequence[Step], Mapping[int, Law]]] = (),
    following: Following | None = None,
    false_alarms: float = 0.01,
    part: bool = False,
    seed: int = SEED,
    progress: Progress = silent,
) -> EverydayAudit:
    """Attack a log of the everyday mode with the laws that its client recorded, and check all of them.

    The filter is the audit's own. With an `engine` every law is made again from public things: a law that is another
    one may have been chosen by the request. Without a record those laws are used. `other_journals` of the same client
    come with their laws. In a `part` of a log the steps before and after it are not missed, nor are they judged.
    `seed` is of the audit's own random numbers.
    """
    chain, sensitive, steps = evidence.chain, evidence.notes.sensitive, evidence.steps
    if evidence.notes.promise != "past" or not evidence.noted:
        raise OnoffError("this is not a journal of the everyday mode: it has no record of laws")
    if sensitive and sensitive[-1] >= chain.n:
        raise OnoffError(f"the journal's sensitive sources are {sensitive}: the chain has {chain.n} sources")
    found = evidence.streams
    stream = pick(found, [Asked(step.lag, step.query, None) for step in steps], evidence.notes.stream)
    past = until(found, stream)
    dues = due(steps, full_sets=2 if len(past) > 1 else 1, announced=False)
    sets, missing = sets_seen(stream), missing_steps(stream, steps)
    count = min(len(steps), max(sets) + 1)
    if laws is None:
        if engine is None:
            raise OnoffError("there is no record of laws: give an engine that makes them again")
        laws = remade_laws(engine(chain, sensitive), dues[:count], sets, evidence.notes, chain.n)
    seen = seen_steps(sets, dues[:count], laws.by_step, chain.n)
    with progress("checking laws")(len(seen)) as advance:
        walked = walk(chain, sensitive, seen, advance=advance)
    with progress("attacking")(2 * len(seen)) as advance:
        beliefs = attack(chain, sensitive, seen, advance=advance)
    truth = None if evidence.requests is None else evidence.requests[: len(seen)]
    verdict = judge(beliefs, walked.stated, truth, false_alarms, sets)
    unmade = [t for t in range(count) if laws.made and dues[t].lag and t not in laws.by_step]  # not by the client
    breaches = conformance(chain, past, steps, dues, sensitive, walked, {*missing, *unmade})
    drawn = everyday_draws(steps, dues, laws.by_step, chain.n, sensitive, other_journals, seen=sets)
    chosen = weighing_choices(stated_weights(laws.by_step), dues, chain.n)
    rules = Rules(breaches, drawn, choices(steps, seed, announced=False, more=chosen))
    known_sets = [[step.query for step in one] for one, _ in other_journals]
    beside = others(found, stream, len(steps), chain.n, (), known_sets, sensitive)
    remade: int | None = None
    unlike: list[str] = []
    if engine is not None and not laws.made:
        with progress("making laws again")(len(seen)) as advance:
            remade, unlike = compared(engine(chain, sensitive), seen, chain.n, advance)
    wrong, known = weighing_findings(laws, evidence.notes, chain.n)
    requests = request_laws(chain, steps, dues, laws.by_step, sensitive)
    again = repeats(stream, steps, requests, evidence.notes.counted)
    wrong += [*naming_findings(stream, steps, requests, chain.n), *again.findings]
    wrong += missing_findings(missing, len(steps), part)
    findings = (*evidence.log.damaged, *renamed(evidence, stream), *laws.findings, *unlike, *wrong, *beside.findings)
    there = sorted(t for t in sets if t < count)
    excused = _cut_off(there, dues) if part else ()
    return EverydayAudit(
        sensitive=sensitive,
        steps=len(there),
        off=sum(dues[t].lag > 0 for t in there),
        verdict=verdict,
        naive=judge(_naive(chain, sensitive, seen, steps), 0.0, truth, false_alarms, sets),
        rules=rules,
        findings=findings,
        notes=(*laws.damaged, *known),
        remade=remade,
        unseen=len(missing),
        beside=beside,
        following=following,
        recorded=not laws.made,
        silent=tuple(t for t in verdict.silent if t in sets and t not in excused),
        excused=excused,
        repeats=again,
        unread=tuple(unread(stream, evidence.log.ignored, again)),
    )


def seen_steps(sets: Mapping[int, Query], dues: Sequence[Due], laws: Mapping[int, Law], n: int) -> list[Seen]:
    """The steps up to the last one in the log, as the server saw them.

    Of one that the log lacks only the status is known: one that was ON tells nothing, and one that was OFF has no law,
    so that nothing is said of it, nor of those after it before the next ON step.
    """
    full = tuple(range(n))
    return [
        Seen(owed.lag == 0, sets.get(t, () if owed.lag else full), laws.get(t) if owed.lag and t in sets else None)
        for t, owed in enumerate(dues)
    ]


def _cut_off(there: Sequence[int], dues: Sequence[Due]) -> tuple[int, ...]:
    """The steps of a part before its first ON step: what they were drawn from is known only from those before it."""
    begin = next((t for t in there if dues[t].lag == 0), there[-1] + 1)
    return tuple(t for t in there if t < begin)


def _naive(chain: Chain, sensitive: tuple[int, ...], seen: Sequence[Seen], steps: Sequence[Step]) -> Beliefs:
    """What a server believes of a client that asks openly while OFF, for the same requests."""
    full = tuple(range(chain.n))
    asked = [
        Asked(0 if step.private else 1, full if step.private else (noted.request,), Naive(chain.n))
        for step, noted in zip(seen, steps, strict=False)
    ]
    found = belief.attack(chain, asked)
    closed = list(sensitive)
    private = np.array([step.private for step in seen])
    at = np.where(private[:, None], found.predicted, np.eye(chain.n)[[step.request for step in steps[: len(seen)]]])
    # "sensitive at this step" stands in for "at this step or before": enough to see that its own query tells it
    some = [rows[:, closed].sum(axis=1) for rows in (found.prior, found.predicted, at)]
    return Beliefs(
        sensitive=sensitive,
        private=tuple(private.tolist()),
        prior=found.prior,
        before=found.predicted,
        at=at,
        after=found.posterior,
        some_prior=some[0],
        some_before=some[1],
        some_at=some[2],
        silent=(),
    )
