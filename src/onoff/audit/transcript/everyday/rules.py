"""Whether a log, a journal and a record of the everyday mode follow the rules of the client."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from onoff.audit.transcript.conformance import Breach, as_noted, named, on_wire, start_on_wire
from onoff.audit.transcript.reading import Line, Step
from onoff.audit.transcript.rules import Due

if TYPE_CHECKING:
    from onoff.audit.everyday.walk import Walk
    from onoff.model.chain import Chain

RULES = {
    "status": "a step is made ON if it was asked ON or is among the first of its stream, and not otherwise",
    "full set": "everything is asked for while ON and at the start of a stream",
    "sensitive": "every query holds every sensitive source",
    "wanted": "the wanted source is in the set",
    "chain": "the chain calls every request possible",
}  # beside those of the wire and the journal (`onoff.audit.transcript.conformance`) and the checks of every law


def conformance(
    chain: Chain,
    found: Sequence[Sequence[Line]],
    steps: Sequence[Step],
    dues: Sequence[Due],
    sensitive: Sequence[int],
    walked: Walk,
    missing: Collection[int] = (),
) -> tuple[Breach, ...]:
    """Every breach of a rule in one client's streams, in the journal of the last one, or in the laws that it recorded.

    `steps` are the journal of the last stream, and `walked` has checked its laws. Earlier streams, whose journals were
    lost, are checked as far as the log goes. Of the laws of steps that are `missing` nothing is said here.
    """
    lines = (line for stream in found for line in stream)
    order = next((line.sources for line in lines if len(line.sources) == chain.n), tuple(range(chain.n)))
    findings: list[Breach] = []
    for number, stream in enumerate(found):
        findings += on_wire(chain, stream, order)
        findings += start_on_wire(chain, stream, 2 if number else 1)
    if found:
        findings += as_noted(chain, found[-1], steps)
    findings += _made(chain, steps, dues, sensitive)
    findings += [Breach(fault.rule, t, f"step {t}: {fault.message}") for t, fault in walked.faults if t not in missing]
    return tuple(findings)


def _made(chain: Chain, steps: Sequence[Step], dues: Sequence[Due], sensitive: Sequence[int]) -> Iterator[Breach]:
    """The journal against the rules."""
    hidden, names = set(sensitive), chain.names
    for step, owed, following in zip(steps, dues, [*steps[1:], None], strict=True):
        number, sent = step.step, named(chain, step.query)
        if step.private != (owed.lag == 0):
            made, must = ("ON", "OFF") if step.private else ("OFF", "ON")
            yield Breach("status", number, f"step {number} was made {made}; it must be {must}")
        if owed.lag == 0 and len(step.query) < chain.n:
            yield Breach("full set", number, f"step {number} is ON and must ask for everything; it sent {sent}")
        if hidden - set(step.query):
            lacking = named(chain, sorted(hidden - set(step.query)))
            yield Breach("sensitive", number, f"step {number} sent {sent}, which lacks the sensitive {lacking}")
        if step.request not in step.query:
            yield Breach("wanted", number, f"step {number} wanted {names[step.request]} and sent {sent}")
        if following is not None and chain.P[step.request, following.request] == 0:
            pair = f"{names[following.request]} after {names[step.request]}"
            yield Breach("chain", number + 1, f"step {number + 1} asked for {pair}, which the chain calls impossible")
