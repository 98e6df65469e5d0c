"""Other streams in a server's log that came from the address of the audited one: who can have sent them?

A new journal of the same client, another reader, or nobody honest. A verdict on the audited stream does not rest on
this. What such a stream was drawn for only its own journal tells (`--other`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise

from onoff.audit.files import Journal, Line, Log
from onoff.audit.law import UNCHECKED, Finding


class Beside:
    """The streams beside that of a journal; `known` are those whose journals are given."""

    def __init__(self, log: Log, journal: Journal, known: Collection[str]) -> None:
        self._journal, self._known = journal, known
        self._own = [line for line in log if line.stream == journal.stream]
        self._others: dict[str, list[Line]] = {}
        for line in log:
            if line.client == self._own[0].client and line.stream != journal.stream:
                self._others.setdefault(line.stream, []).append(line)
        self._before = {name for name, lines in self._others.items() if lines[0].number < self._own[0].number}

    @property
    def full_sets(self) -> int:
        """With how many full sets the stream had to begin: with two after another stream of this client."""
        return 2 if self._before & set(self._known) else 1

    def findings(self, n: int) -> Iterator[Finding]:
        """What nobody honest can have sent, and what may be this client's; `n` sources are a full set."""
        if any(step.step == 1 and step.lag for step in self._journal.steps) and self._before - set(self._known):
            message = "others asked from this address before: if they are this client's, two full sets are due"
            yield Finding(UNCHECKED, message, 1)
        for stream, lines in self._others.items():
            if stream not in self._known and lines[-1].number > self._own[0].number:
                yield from self._explain(lines, n)

    def _explain(self, other: Sequence[Line], n: int) -> Iterator[Finding]:
        where, sensitive = f"another stream from this address (line {other[-1].number})", set(self._journal.sensitive)
        begin = [len(line.query) == n for line in other if line.step < 2]
        turns = any(other[0].number < line.number < other[-1].number for line in self._own)
        if other[0].step or not begin[0]:
            yield Finding("other stream", f"{where} does not begin at step 0 with a full set")
        elif not all(_follows(*pair) for pair in pairwise(other)):
            yield Finding("other stream", f"{where} leaves steps out or changes a query")
        elif turns or not all(begin) or any(sensitive - set(line.query) for line in other):
            message = "must be another reader's; if it is this client's, give its journal (--other)"
            yield Finding(UNCHECKED, f"{where} {message}")


def _follows(before: Line, line: Line) -> bool:
    """True if a query can come after another one of its stream: the next step, or the same query again."""
    again = line.step == before.step and (line.query, line.held) == (before.query, before.held)
    return again or line.step == before.step + 1
