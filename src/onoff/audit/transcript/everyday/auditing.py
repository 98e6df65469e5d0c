"""The front door for transcripts of the everyday mode: log, journal and record of laws, attacked and checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from onoff.audit.everyday.beliefs import Beliefs, attack
from onoff.audit.everyday.record import Law, Seen, law_of, same_law
from onoff.audit.everyday.walk import walk
from onoff.audit.models import Naive
from onoff.audit.transcript import belief
from onoff.audit.transcript.attack import pick
from onoff.audit.transcript.auditing import Rules, renamed, until
from onoff.audit.transcript.belief import Asked
from onoff.audit.transcript.choices import choices
from onoff.audit.transcript.everyday.draws import everyday_draws
from onoff.audit.transcript.everyday.laws import Laws, request_laws
from onoff.audit.transcript.everyday.rules import conformance
from onoff.audit.transcript.everyday.verdict import Verdict, judge
from onoff.audit.transcript.everyday.weighing import Gaps, stated_weights, weighing_choices, weighing_findings
from onoff.audit.transcript.evidence import Evidence
from onoff.audit.transcript.naming import naming_findings
from onoff.audit.transcript.others import Others, others
from onoff.audit.transcript.reading import Line, Step
from onoff.audit.transcript.rules import Due, due
from onoff.errors import OnoffError
from onoff.types import Progress, Query, silent

if TYPE_CHECKING:
    from onoff.logs.following import Following
    from onoff.model.chain import Chain

Engine = Callable[["Chain", Sequence[int]], Any]  # makes laws, as an exhibit: `onoff.everyday.Everyday.start`

SLACK = 2  # by which factor a stated rounding may exceed that of the law made again: machines differ in last digits


@dataclass(frozen=True)
class EverydayAudit:
    """What a log of the everyday mode betrays, and what speaks against its client.

    `naive` is what a client would have betrayed that asks for the full set while ON, and openly otherwise. `findings`
    are what is wrong whatever the requests were. `remade` says how many laws are to the unit those that the installed
    version makes; None if no engine was given. `unseen` steps are in the journal and not in the stream.
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

    @property
    def passed(self) -> bool:
        """Whether the log was attacked in vain and nothing else is wrong. A chain that was refuted says nothing."""
        refuted = self.following is not None and self.following.refuted
        attacked = self.verdict.conclusive and not self.verdict.succeeded and not self.verdict.silent
        return attacked and not self.findings and self.rules.kept and not refuted


def audit_everyday_transcript(
    evidence: Evidence,
    laws: Laws,
    *,
    engine: Engine | None = None,
    other_journals: Sequence[tuple[Sequence[Step], Mapping[int, Law]]] = (),
    following: Following | None = None,
    false_alarms: float = 0.01,
    progress: Progress = silent,
) -> EverydayAudit:
    """Attack a log of the everyday mode with the laws that its client recorded, and check all of them.

    The filter is the audit's own. With an `engine` every law is made again from public things: a law that is another
    one may have been chosen by the request. `other_journals` of the same client come with their laws.
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
    seen = seen_steps(stream, steps, dues, laws.by_step)
    with progress("checking laws")(len(seen)) as advance:
        walked = walk(chain, sensitive, seen, advance=advance)
    with progress("attacking")(2 * len(seen)) as advance:
        beliefs = attack(chain, sensitive, seen, advance=advance)
    truth = None if evidence.requests is None else evidence.requests[: len(seen)]
    verdict = judge(beliefs, walked.stated, truth, false_alarms)
    breaches = conformance(chain, past, steps, dues, sensitive, walked)
    drawn = everyday_draws(steps, dues, laws.by_step, chain.n, sensitive, other_journals)
    chosen = weighing_choices(stated_weights(laws.by_step), dues, chain.n)
    rules = Rules(breaches, drawn, choices(steps, announced=False, more=chosen))
    known_sets = [[step.query for step in one] for one, _ in other_journals]
    beside = others(found, stream, len(steps), chain.n, (), known_sets, sensitive)
    remade: int | None = None
    unlike: list[str] = []
    if engine is not None:
        with progress("making laws again")(len(seen)) as advance:
            remade, unlike = _remade(engine(chain, sensitive), seen, chain.n, advance)
    wrong, known = weighing_findings(laws, evidence.notes, chain.n)
    wrong += naming_findings(stream, steps, request_laws(chain, steps, dues, laws.by_step, sensitive), chain.n)
    findings = (*evidence.log.damaged, *renamed(evidence, stream), *laws.findings, *unlike, *wrong, *beside.findings)
    return EverydayAudit(
        sensitive=sensitive,
        steps=len(seen),
        off=sum(not step.private for step in seen),
        verdict=verdict,
        naive=judge(_naive(chain, sensitive, seen, steps), 0.0, truth, false_alarms),
        rules=rules,
        findings=findings,
        notes=(*laws.damaged, *known),
        remade=remade,
        unseen=len(steps) - len(seen),
        beside=beside,
        following=following,
    )


def seen_steps(
    stream: Sequence[Line], steps: Sequence[Step], dues: Sequence[Due], laws: Mapping[int, Law]
) -> list[Seen]:
    """The steps up to the last one in the log, as the server saw them; one that it lacks, as the journal has it."""
    asked: dict[int, Query] = {}
    for line in stream:
        asked.setdefault(line.step, tuple(sorted(line.sources)))
    count = min(len(steps), max(asked) + 1)
    return [
        Seen(owed.lag == 0, asked.get(step.step, step.query), laws.get(step.step) if owed.lag else None)
        for step, owed in zip(steps[:count], dues[:count], strict=True)
    ]


def _remade(start: Any, seen: Sequence[Seen], n: int, advance: Callable[[], None]) -> tuple[int, list[str]]:
    """How many laws are those of the engine, and the steps at which another one, or more rounding, was recorded.

    Where weights are stated the engine gets them, computed from the queries before. What follows another law cannot be
    compared before the next ON step.
    """
    state, same, unlike, gaps = None, 0, [], Gaps(n)
    for t, step in enumerate(seen):
        advance()
        weights = gaps.weights(step.law, t)
        gaps.asked(step.query, t)
        if step.private:
            state = start
        elif state is not None:
            ready = state.prepare(weights)
            made = law_of(ready.as_dict(), state.place, state.joined, state.charge)
            if step.law is None:
                state = None
            elif not same_law(made, step.law):
                unlike.append(
                    f"step {t}: the installed version makes another law there; if the client had the same version, "
                    "its law may have been chosen by the request"
                )
                state = None
            else:
                same += 1
                if step.law.rounding > SLACK * made.rounding:
                    unlike.append(
                        f"step {t}: states a rounding of {step.law.rounding:.1e}, and the law has {made.rounding:.1e}: "
                        "what is stated is what the attack allows"
                    )
                state = state.advance(ready, step.query) if step.query in ready.sets else None
    return same, unlike


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
