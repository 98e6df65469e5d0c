"""The steps of a stream: as the client's journal has them, beside what the server's transcript has of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onoff.client.journal import Journal
from onoff.model.chain import Chain


@dataclass(frozen=True)
class Made:
    """A step: what was wanted, what the server saw, and how often it was asked. Without `bytes` it is still pending."""

    step: int
    private: bool
    made_private: bool
    lag: int
    plan: str
    wanted: int
    saw: tuple[int, ...]
    times: int
    bytes: int

    def naive(self, n: int, sensitive: Sequence[int] = ()) -> tuple[int, ...]:
        """What a naive client asks for: everything while ON and for sensitive sources, else the wanted one alone."""
        return tuple(range(n)) if self.private or self.wanted in sensitive else (self.wanted,)


class Steps:
    """The steps of a journal. Each line of the transcript is read once, and finished steps are not read again."""

    def __init__(self, journal: Journal, transcript: Path, chain: Chain) -> None:
        self.journal = journal
        self._transcript, self._chain, self._offset = transcript, chain, 0
        self._order: list[int] = []  # of the server's sources, as indices of the chain
        self._seen: dict[int, list[tuple[int, ...]]] = {}
        self._made: list[Made] = []

    def read(self) -> list[Made]:
        """All steps that there are by now."""
        lines, self._offset = read_on(self._transcript, self._offset)
        for line in lines:
            if "catalogue" in line:
                self._order = [self._chain.index(name) for name in line["catalogue"]]
            elif line["stream"] == self.journal.stream:
                query = tuple(sorted(self._order[source] for source in line["sources"]))
                self._seen.setdefault(line["step"], []).append(query)
        self._made = [step for step in self._made if step.bytes]
        for row in self.journal.steps(since=len(self._made)):
            seen = self._seen.get(row.step, [])
            self._made.append(
                Made(
                    step=row.step,
                    private=row.private,
                    made_private=row.made_private,
                    lag=row.lag,
                    plan=row.plan,
                    wanted=row.request,
                    saw=seen[-1] if seen else (),
                    times=len(seen),
                    bytes=row.bytes or 0,
                )
            )
        return list(self._made)


def read_on(file: Path, offset: int) -> tuple[list[dict[str, Any]], int]:
    """The whole lines of JSON that a file has beyond this many bytes, and how many bytes have been read then."""
    if not file.exists():
        return [], offset
    with file.open("rb") as stream:
        stream.seek(offset)
        text = stream.read()
    whole = text[: text.rfind(b"\n") + 1]
    return [json.loads(line) for line in whole.splitlines()], offset + len(whole)
