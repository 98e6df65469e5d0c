"""Steps of a stream: as the client's journal has them, beside what the server's transcript has of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onoff.client.journal import Journal
from onoff.model.chain import Chain


@dataclass(frozen=True)
class PageStep:
    """One step: what was wanted, what the server saw, and how often it was asked. Without `bytes` it is pending.

    `step` counts the steps of all streams of a tab. `sensitive` are the sensitive sources of the stream.
    """

    step: int
    private: bool
    made_private: bool
    lag: int
    plan: str
    wanted: int
    saw: tuple[int, ...]
    times: int
    bytes: int
    sensitive: tuple[int, ...] = ()

    def naive(self, n: int) -> tuple[int, ...]:
        """What a naive client asks for: everything while ON and for sensitive sources, else the wanted one alone."""
        return tuple(range(n)) if self.private or self.wanted in self.sensitive else (self.wanted,)


class Steps:
    """Steps of a journal, of which the first has the number `first`.

    Each line of the transcript is read once, and finished steps are not read again.
    """

    def __init__(
        self, journal: Journal, transcript: Path, chain: Chain, sensitive: tuple[int, ...] = (), first: int = 0
    ) -> None:
        self._journal, self._transcript, self._chain, self._offset = journal, transcript, chain, 0
        self._sensitive, self._first = sensitive, first
        self._order: list[int] = []  # of the server's sources, as indices of the chain
        self._seen: dict[int, list[tuple[int, ...]]] = {}
        self._steps: list[PageStep] = []

    def read(self) -> list[PageStep]:
        """Read all steps that there are by now."""
        lines, self._offset = read_on(self._transcript, self._offset)
        for line in lines:
            if "catalogue" in line:
                self._order = [self._chain.index(name) for name in line["catalogue"]]
            elif line["stream"] == self._journal.stream:
                query = tuple(sorted(self._order[source] for source in line["sources"]))
                self._seen.setdefault(line["step"], []).append(query)
        self._steps = [step for step in self._steps if step.bytes]
        for row in self._journal.steps(since=len(self._steps)):
            seen = self._seen.get(row.step, [])
            assert row.request is not None, "the page erases nothing"
            saw = seen[-1] if seen else ()
            asked = row.private, row.made_private, row.lag, row.plan, row.request
            found = PageStep(self._first + row.step, *asked, saw, len(seen), row.bytes or 0, self._sensitive)
            self._steps.append(found)
        return list(self._steps)


def read_on(file: Path, offset: int) -> tuple[list[dict[str, Any]], int]:
    """Read the whole lines of JSON beyond this many bytes of a file; return them, and how many bytes are read now."""
    if not file.exists():
        return [], offset
    with file.open("rb") as stream:
        stream.seek(offset)
        text = stream.read()
    whole = text[: text.rfind(b"\n") + 1]
    return [json.loads(line) for line in whole.splitlines()], offset + len(whole)
