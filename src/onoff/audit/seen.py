"""What the server saw, against the journal: sets, order, versions and sendings of every step, and other streams.

Every sending of a step must have the set of the journal, in the server's order, and name the versions that the client
holds, whatever is wanted. No step is missing, none is there besides, and no other stream of this address is one that an
honest journal cannot have sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise

from onoff.audit.files import Line, Log, Step
from onoff.audit.law import Finding
from onoff.types import Query


class Seen:
    """The lines of one stream in the server's log, against its journal."""

    def __init__(self, log: Log, stream: str, part: bool) -> None:
        self._place = {source: i for i, source in enumerate(log.order)}
        own = [line for line in log.lines if line.stream == stream]
        self._back = [after for before, after in pairwise(own) if after.step < before.step]
        self._lines: dict[int, list[Line]] = {}
        for line in own:
            self._lines.setdefault(line.step, []).append(line)
        self._steps = range(min(self._lines), max(self._lines) + 1) if part else None  # those that must be there
        earlier = any(line.client == own[0].client and line.number < own[0].number for line in log.lines)
        self.full_sets = 2 if earlier else 1  # with which the stream must begin: something was asked before

    def check(self, step: Step, rounds: tuple[int, ...] | None) -> Iterator[Finding]:
        """One step: every sending has the set in the server's order and the versions that are held, and is counted."""
        lines = self._lines.get(step.step, [])
        if not lines and step.finished and (self._steps is None or step.step in self._steps):
            yield Finding("log", "the step is in the journal and not in the log")
        order = tuple(sorted(step.query, key=lambda source: self._place[source]))
        held = None if rounds is None else dict(zip(step.query, rounds, strict=True))
        for line in lines:
            if line.sources != order:
                what = "another order" if sorted(line.sources) == list(step.query) else shown(line.sources)
                yield Finding("log", f"the server saw {what} (line {line.number}); the journal has {shown(order)}")
            elif held is not None and line.held != (due := tuple(held[source] for source in order)):
                yield Finding("versions", f"names the rounds {line.held} (line {line.number}); {due} are held")
        if len(lines) > step.attempts:
            yield Finding("log", f"came {len(lines)} times; the journal counts {step.attempts}")

    def extra(self, steps: int) -> Iterator[Finding]:
        """What no step of the journal explains."""
        for line in self._back:
            yield Finding("log", f"came again after a later step (line {line.number})", line.step)
        for step, lines in self._lines.items():
            if step >= steps:
                yield Finding("log", f"was sent (line {lines[0].number}) and is not in the journal", step)


def shown(query: Query) -> str:
    """A set for a message."""
    return "{" + ", ".join(map(str, query)) + "}"


def check_others(log: Log, own: str, known: set[str], n: int, sensitive: Sequence[int]) -> Iterator[Finding]:
    """Find streams that no honest journal can have sent, beside those whose journals are `known`.

    Other readers may ask the server. But from the address of the audited stream, once that has begun, only a new
    journal is in order: it begins at step 0 with two full sets, goes on step by step with one set for each, does not
    take turns with the audited stream, and always asks for the sensitive sources.
    """
    stream = [line for line in log.lines if line.stream == own]
    beside = [line for line in log.lines if line.client == stream[0].client and line.stream not in {own, *known}]
    for _, group in groupby(sorted(beside, key=lambda line: line.stream), key=lambda line: line.stream):
        lines = list(group)
        fault = _fault(lines, stream, n, set(sensitive))
        if fault is not None and lines[-1].number > stream[0].number:
            where = f"queries of another stream from this address, up to line {lines[-1].number}"
            yield Finding("other stream", f"{where}: {fault}")


def _fault(other: Sequence[Line], stream: Sequence[Line], n: int, sensitive: set[int]) -> str | None:
    """Why no new journal can have sent a stream."""
    if other[0].step or any(len(line.sources) < n for line in other if line.step < 2):
        return "a new journal begins at step 0 with two full sets"
    for before, line in pairwise(other):
        repeated = line.step == before.step and (line.sources, line.held) == (before.sources, before.held)
        if not repeated and line.step != before.step + 1:
            return f"step {line.step} does not follow step {before.step} so"
    if any(other[0].number < line.number < other[-1].number for line in stream):
        return "they take turns with this stream"
    return "they lack sensitive sources" if any(sensitive - set(line.sources) for line in other) else None
