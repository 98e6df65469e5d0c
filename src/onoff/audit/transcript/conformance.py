"""Whether a log of the server and the client's journal follow the rules of the client: checks that leave no doubt.

What the journal derived (status made, lag) is recomputed from what was asked; the plan is taken by its name, and
whether the sets were drawn from it is tested in `onoff.audit.transcript.draws`. When a query was sent is not looked at
here: a log does not tell when the client was called.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from onoff.audit.models import Model, Planned
from onoff.audit.transcript.reading import Line, Step
from onoff.audit.transcript.rules import Due, due
from onoff.errors import ContextError, PlanError
from onoff.types import PlanName, Query

if TYPE_CHECKING:
    from onoff.model.chain import Chain

RULES = {
    "one query": "all queries of a step are the same",
    "versions": "a query names versions of what was asked for before, and every try of it the same ones",
    "order": "sources are sent in one fixed order",
    "steps": "steps follow one another; none is left out, none comes back",
    "retry": "a damaged answer is asked for again, whichever frame was damaged",
    "again": "a whole answer is not asked for again",
    "unread": "every answer is read to its end",
    "journal": "what was sent is what the journal says",
    "wanted": "the wanted source is in the set",
    "full set": "everything is asked for while ON, without a next request and at the start of a stream",
    "lag": "the lag is the number of steps since the last one that was ON",
    "plan": "a plan serves its own lag and larger ones",
    "at hand": "the plan is at hand, or can be made here, as a race: else nothing can be said of its sets",
    "law": "the set is one that the plan can draw",
    "dearer": "a plan is not dearer than one that was in use before and serves its lag",
    "cost": "the cost that the journal notes is that of the plan",
    "next": "the request after an OFF step is the announced one",
    "chain": "the chain calls every request possible",
}


@dataclass(frozen=True)
class Breach:
    """A rule of `RULES` that was broken, at which step and how."""

    rule: str
    step: int
    message: str


def conformance(
    chain: Chain,
    found: Sequence[Sequence[Line]],
    steps: Sequence[Step],
    models: Mapping[str, Model],
    since: int = 0,
    races: Collection[str] | None = None,
) -> tuple[Breach, ...]:
    """Every breach of the rules in the streams of one client and the journal of the last; `models` are its plans.

    Costs are compared from the step `since` on, where the messages got the lengths that they have.

    Earlier streams, whose journals were lost, are checked as far as the log goes; the later ones must begin with two
    full sets. A race has no law to compare its sets with, but must be one of `races` (by default any that is called as
    races are): its sets are tested elsewhere. Any other plan must be among the models. A client that was killed may ask
    again for a whole answer: where answers were watched, that is a finding, too.
    """
    lines = (line for stream in found for line in stream)
    order = next((line.sources for line in lines if len(line.sources) == chain.n), tuple(range(chain.n)))
    findings: list[Breach] = []
    for number, stream in enumerate(found):
        findings += on_wire(chain, stream, order)
        findings += start_on_wire(chain, stream, 2 if number else 1)
    if found:
        findings += as_noted(chain, found[-1], steps)
    dues = due(steps, full_sets=2 if len(found) > 1 else 1)
    findings += _made(chain, steps, dues, models, races)
    findings += _priced(steps[since:], dues[since:], models)
    return tuple(findings)


def on_wire(chain: Chain, stream: Sequence[Line], order: Query) -> Iterator[Breach]:
    """What shows in a stream by itself."""
    for before, line in pairwise(stream):
        if line.step not in (before.step, before.step + 1):
            yield Breach("steps", line.step, f"step {line.step} comes after step {before.step}")
        if line.step == before.step:
            if line.sources != before.sources:
                both = f"{named(chain, before.sources)} and {named(chain, line.sources)}"
                yield Breach("one query", line.step, f"step {line.step} has two queries: {both}")
            elif line.held != before.held:
                yield Breach("versions", line.step, f"step {line.step} has two queries: the versions differ")
            if before.damaged is False:
                yield Breach("again", line.step, f"the answer of step {line.step} was whole and is asked for again")
        elif before.damaged:
            yield Breach("retry", before.step, f"the answer of step {before.step} was damaged and is not asked again")
    place = {source: i for i, source in enumerate(order)}
    # When each source was first asked for; of a log that begins late nobody knows.
    first = {} if stream and stream[0].step == 0 else dict.fromkeys(range(chain.n), -1)
    for line in stream:
        known = (0,) * len(line.sources) if line.held is None else line.held
        strange = [
            s
            for s, version in zip(line.sources, known, strict=True)
            if version and first.get(s, line.step) >= line.step
        ]
        if strange:
            words = f"step {line.step} names a version of {named(chain, tuple(strange))}, never asked for before"
            yield Breach("versions", line.step, words)
        first = {**dict.fromkeys(line.sources, line.step), **first}
        if list(line.sources) != sorted(line.sources, key=lambda source: place[source]):
            shown = f"{named(chain, line.sources)}, others in that of {named(chain, order)}"
            yield Breach("order", line.step, f"step {line.step} has the order {shown}")
        if line.unread:
            yield Breach("unread", line.step, f"the answer of step {line.step} was not read to its end")


def start_on_wire(chain: Chain, stream: Sequence[Line], full_sets: int) -> Iterator[Breach]:
    """The journal of this stream may be lost, but how it began is in the log."""
    for line in stream:
        if line.step < full_sets and len(line.sources) < chain.n:
            begin = "the first two steps of a stream" if full_sets > 1 else "the first step"
            sent = named(chain, line.sources)
            yield Breach("full set", line.step, f"{begin} must ask for everything; step {line.step} sent {sent}")


def as_noted(chain: Chain, stream: Iterable[Line], steps: Sequence[Step]) -> Iterator[Breach]:
    """The log against the journal."""
    for line in stream:
        if line.step >= len(steps):
            yield Breach("journal", line.step, f"step {line.step} was sent and is not in the journal")
        elif set(line.sources) != set(steps[line.step].query):
            noted = named(chain, steps[line.step].query)
            yield Breach("journal", line.step, f"step {line.step} sent {named(chain, line.sources)}, noted {noted}")


def _made(
    chain: Chain,
    steps: Sequence[Step],
    dues: Sequence[Due],
    models: Mapping[str, Model],
    races: Collection[str] | None,
) -> Iterator[Breach]:
    """The journal against the rules."""
    laws = _Laws(models)
    names = chain.names
    unknown: dict[str, list[int]] = {}
    for step, owed, following in zip(steps, dues, [*steps[1:], None], strict=True):
        number, sent = step.step, named(chain, step.query)
        if step.request not in step.query:
            yield Breach("wanted", number, f"step {number} wanted {names[step.request]} and sent {sent}")
        if step.lag != owed.lag:
            yield Breach("lag", number, f"step {number} was made at lag {step.lag}; its lag is {owed.lag}")
        if following is not None and chain.P[step.request, following.request] == 0:
            pair = f"{names[following.request]} after {names[step.request]}"
            yield Breach("chain", number + 1, f"step {number + 1} asked for {pair}, which the chain calls impossible")
        if owed.lag == 0:
            if len(step.query) < chain.n:
                yield Breach("full set", number, f"step {number} is ON and must ask for everything; it sent {sent}")
            continue
        lag = plan_lag(step.plan)
        if lag is None or lag > owed.lag:
            yield Breach("plan", number, f"step {number} at lag {owed.lag} used the plan {step.plan!r}")
        elif step.plan not in models and not (step.plan == f"race, lag {lag}" if races is None else step.plan in races):
            unknown.setdefault(step.plan, []).append(number)
        elif not laws.allow(step, owed):
            yield Breach("law", number, f"step {number} sent {sent}, which is not in the law of {step.plan!r}")
        if following is not None and following.request != step.next:
            announced = "nothing" if step.next is None else names[step.next]
            asked = f"step {number + 1} asked for {names[following.request]}"
            yield Breach("next", number + 1, f"{asked}; step {number} had announced {announced}")
    for plan, numbers in unknown.items():
        yield Breach(
            "at hand",
            numbers[0],
            f"{len(numbers)} OFF steps, from step {numbers[0]} on, used the plan {plan!r}, which is not at hand: "
            "they cannot be checked; give the client's directory of plans; if a better plan has taken its place there, "
            "give a copy from before",
        )


def _priced(steps: Sequence[Step], dues: Sequence[Due], models: Mapping[str, Model]) -> Iterator[Breach]:
    """The plans against those that were in use before: what is at hand only gets better.

    The cost of a table is computed by the plan itself, that of a race is what the journal notes. Races are not compared
    with later plans: they count with more than they are estimated to cost.
    """
    exact = {name: float(model.plan.cost) for name, model in models.items() if isinstance(model, Planned)}
    tables: dict[str, tuple[int, float, int]] = {}  # lag, cost, first used
    accused: set[tuple[str, str]] = set()
    for step, owed in zip(steps, dues, strict=True):
        lag, cost = plan_lag(step.plan), exact.get(step.plan, step.cost)
        if owed.lag == 0 or lag is None or cost is None:
            continue
        if step.cost is not None and step.cost != cost and (step.plan, "") not in accused:
            accused.add((step.plan, ""))
            noted = f"step {step.step} notes the cost {step.cost!r} of the plan {step.plan!r}"
            yield Breach("cost", step.step, f"{noted}, which costs {cost!r}")
        for name, (its_lag, its_cost, first) in tables.items():
            if its_lag <= owed.lag and its_cost < cost and (step.plan, name) not in accused:
                accused.add((step.plan, name))
                used = f"step {step.step} at lag {owed.lag} used the plan {step.plan!r}, which costs {cost:.6g}"
                before = f"step {first} had used {name!r}, which serves this lag and costs {its_cost:.6g}"
                why = "explain it: were plans deleted or moved? If not, the plan may have been chosen by the request"
                yield Breach("dearer", step.step, f"{used}; {before}; {why}")
        made = PlanName.parse(step.plan)
        if made is None or made.has_table:
            tables.setdefault(step.plan, (lag, cost, step.step))


class _Laws:
    """The sets of each plan, the same in all of its contexts."""

    def __init__(self, models: Mapping[str, Model]) -> None:
        self._models = models
        self._sets: dict[str, frozenset[Query]] = {}

    def allow(self, step: Step, owed: Due) -> bool:
        """Whether the plan has this set. Races and contexts that never happen allow every set."""
        if step.plan not in self._sets:
            if step.plan not in self._models or step.next is None:
                return True
            try:
                encoder = self._models[step.plan].encoder(owed.last, step.next, owed.lag)
            except (ContextError, PlanError):
                return True  # a finding of its own
            self._sets[step.plan] = frozenset(encoder.sets)
        return step.query in self._sets[step.plan]


def plan_lag(name: str) -> int | None:
    """The lag of the plan with this name; None if it is not that of a plan."""
    found = PlanName.parse(name)
    return None if found is None else found.lag


def named(chain: Chain, sources: Iterable[int]) -> str:
    return "{" + ", ".join(chain.names[source] for source in sources) + "}"
