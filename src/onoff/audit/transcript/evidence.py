"""What an audit of a transcript has to go by, read from files: the log, and the journal or what stands in for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from onoff.audit.setting import lags_of
from onoff.audit.transcript.reading import (
    Line,
    Log,
    Notes,
    Step,
    read_journal,
    read_notes,
    read_transcript,
    streams,
    text_lines,
)
from onoff.errors import OnoffError

if TYPE_CHECKING:
    from onoff.model.chain import Chain


@dataclass(frozen=True)
class Evidence:
    """The server's log, the steps of one client, and the requests if they are known.

    Without a journal (`noted` is False) only the statuses of the steps are known. `client` is the only address whose
    lines count, if it is not None.
    """

    chain: Chain
    log: Log
    steps: tuple[Step, ...]
    notes: Notes
    requests: tuple[int, ...] | None
    noted: bool
    client: str | None = None

    @property
    def streams(self) -> tuple[tuple[Line, ...], ...]:
        """The log taken apart into streams."""
        return streams(self.log.lines, self.client, [step.query for step in self.steps] if self.noted else ())


def read_evidence(
    chain: Chain,
    log: Path,
    *,
    journal: Path | None = None,
    statuses: Sequence[bool] | None = None,
    truth: Path | None = None,
    client: str | None = None,
) -> Evidence:
    """Read a log of the server and what is known of the client: its journal, or when it was ON.

    `truth` is a file of the requests, if they are known otherwise.
    """
    if (journal is None) == (statuses is None):
        raise OnoffError("give the journal, or the statuses if there is none: the server knows when privacy was ON")
    seen = read_transcript(log, chain)
    requests = None if truth is None else read_truth(truth, chain)
    if journal is None:
        assert statuses is not None
        return Evidence(chain, seen, _from_statuses(statuses), Notes(None, None, 0), requests, False, client)
    steps = read_journal(journal, chain)
    if requests is None:
        requests = tuple(step.request for step in steps)
    return Evidence(chain, seen, steps, read_notes(journal), requests, True, client)


def read_truth(file: Path, chain: Chain) -> tuple[int, ...]:
    """The requests that were made, one name in a line; `on NAME` and `off NAME`, as `onoff play` reads, will do too."""
    truth = []
    for number, text in text_lines(file):
        if text.startswith("#"):
            continue
        word, _, rest = text.partition(" ")
        name = rest.strip() if text not in chain.names and word in ("on", "off") else text
        if name not in chain.names:
            raise OnoffError(f"{file}: line {number}: no source is called {name!r}")
        truth.append(chain.index(name))
    if not truth:
        raise OnoffError(f"{file}: there are no requests in it")
    return tuple(truth)


def read_statuses(text: str) -> tuple[bool, ...]:
    """Statuses as `1001100`, 1 for ON, in a string or in the file of that name."""
    if not text or set(text) - set("01"):
        text = "".join(line for _, line in text_lines(Path(text)))
    if not text or set(text) - set("01"):
        raise OnoffError("statuses are written as 1001100: 1 for ON, 0 for OFF, one for each step")
    return tuple(letter == "1" for letter in text)


def _from_statuses(statuses: Sequence[bool]) -> tuple[Step, ...]:
    """Steps of which only the statuses are known."""
    return tuple(
        Step(t, private, private, lag, "", (), 0, None)
        for t, (private, lag) in enumerate(zip(statuses, lags_of(statuses), strict=True))
    )
