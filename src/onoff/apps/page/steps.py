"""The steps of a stream: as the client's journal has them, beside what the server's transcript has of them."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from onoff.audit.transcript.reading import read_log
from onoff.client.journal import Journal
from onoff.errors import OnoffError
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


def made_steps(journal: Journal, transcript: Path, chain: Chain, known: Sequence[Made]) -> list[Made]:
    """All steps of a journal. Of those that are `known` as finished, nothing is read again."""
    seen: dict[int, list[tuple[int, ...]]] = {}
    with contextlib.suppress(OnoffError):  # nothing was asked yet
        for line in read_log(transcript, chain):
            if line.stream == journal.stream:
                seen.setdefault(line.step, []).append(line.sources)
    made = [step for step in known if step.bytes]
    for row in journal.steps(since=len(made)):
        found = seen.get(row.step, [()])
        made.append(
            Made(
                step=row.step,
                private=row.private,
                made_private=row.made_private,
                lag=row.lag,
                plan=row.plan,
                wanted=row.request,
                saw=found[-1],
                times=len(seen.get(row.step, [])),
                bytes=row.bytes or 0,
            )
        )
    return made
