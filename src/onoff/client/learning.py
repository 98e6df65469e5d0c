"""Without a chain: every request asks for everything, which hides it whatever the habits are, and is noted.

The journal is the record. When it has enough requests, a chain can be fitted to it (`onoff fit JOURNAL`), and a new
journal is begun with that chain. A journal that was made while learning has no chain, so it is never used with one.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from onoff.client.journal import Journal
from onoff.client.session import Pending, check_request
from onoff.errors import JournalError, OnoffError, SessionError
from onoff.model.chain import Chain
from onoff.model.misfit import FEW

NOTE = "learning"  # the note that has the names of the sources
LEAVE = "give no chain, promise, sensitive sources or lengths while learning: there is no chain that they could be for"
OPEN_ONLY = "`onoff fit JOURNAL -o habits.json --open-only`"
PUBLIC = (
    "`onoff fit JOURNAL -o habits.json` uses requests that were asked ON, too: such a chain becomes public with the "
    "first query, and tells of them"
)

log = logging.getLogger("onoff.client")


@dataclass(frozen=True)
class Learned:
    """How many requests a journal has noted, for n sources, and how many of them were asked OFF."""

    n: int
    requests: int
    open: int

    @property
    def needed(self) -> int:
        """The requests from which a chain can be fitted: `FEW` transitions for each source."""
        return FEW * self.n + 1

    @property
    def enough(self) -> bool:
        return self.requests >= self.needed

    @property
    def enough_open(self) -> bool:
        """Whether those that were asked OFF are enough by themselves."""
        return self.open >= self.needed

    def words(self) -> str:
        """How far it has come, in a few sentences without the last full stop."""
        noted = f"learning: {self.requests} requests are noted, {self.open} of them asked OFF"
        if not self.enough:
            return f"{noted}; a chain of {self.n} sources needs {self.needed}"
        if self.enough_open:
            return f"{noted}. The ones asked OFF are ENOUGH for a chain: {OPEN_ONLY}. {PUBLIC}"
        return (
            f"{noted}. All together are ENOUGH for a chain; of those asked OFF {self.needed} are needed. "
            f"Switch OFF for what need not be hidden until there are enough: {OPEN_ONLY}. {PUBLIC}"
        )


class Learning:
    """The side of the client that asks for everything and keeps what was wanted. See `onoff.client.promises.Drawing`.

    `chain` has the names of the sources. Its probabilities are nobody's habits and decide nothing.
    """

    def __init__(self, chain: Chain, journal: Journal) -> None:
        self._chain, self._journal = chain, journal
        self._learned: Learned | None = None  # counted at the first request

    def status(self, private: bool | None) -> bool:
        return private is None or private

    async def ready(self, private: bool) -> None:  # noqa: ARG002
        return

    def begin(self, source: str, next: str | None, private: bool) -> Pending:
        if next is not None:
            raise SessionError("while learning nothing is announced: leave the next request out")
        state, request = self._journal.state, self._chain.index(source)
        check_request(state, self._chain, request)
        everything = tuple(range(self._chain.n))
        pending = Pending(request, None, True, private, 0, everything, "everything", 0.0)
        begun = self._journal.asking(replace(state, pending=pending))
        assert begun.pending is not None
        self._journal.begin(begun, begun.pending, float(self._chain.n))
        self._count(private)
        return begun.pending

    def _count(self, private: bool) -> None:
        """Count the request that was begun, and say it when there are enough of all, and of those asked OFF."""
        found = self._learned
        if found is None:
            found = learned(self._journal)
        else:
            found = replace(found, requests=found.requests + 1, open=found.open + (not private))
        self._learned = found
        if found.requests == found.needed or (not private and found.open == found.needed):
            log.warning("%s: %s", self._journal.path, found.words())

    def look_ahead(self) -> None:
        return

    async def hold(self) -> None:
        return

    def close(self) -> None:
        return


def unknown_habits(names: Sequence[str]) -> Chain:
    """A chain that bears the names while nothing is known of habits."""
    n = len(names)
    if n < 2:
        raise OnoffError("at least 2 sources are needed")
    return Chain(np.full((n, n), 1 / n), names)


def learned(journal: Journal) -> Learned:
    """What a journal that is open has noted."""
    steps = list(journal.steps())
    return Learned(len(names_in(journal.recall(NOTE))), len(steps), sum(not step.asked_private for step in steps))


def check_learning(journal: Journal, learns: bool, names: Sequence[str]) -> None:
    """Refuse to learn with a journal that has a chain, and to use one without a chain for anything else."""
    noted = journal.recall(NOTE)
    if learns and noted is None:
        state = journal.state
        if state.step or state.pending is not None:
            raise JournalError(f"{journal.path}: was made with a chain: name another journal to learn with")
        journal.note(NOTE, json.dumps(list(names)))
    elif not learns:
        refuse_learning(journal.path, {} if noted is None else {NOTE: noted})


def refuse_learning(path: Path, notes: Mapping[str, str]) -> None:
    """Raise an error if these notes are those of a journal that was made while learning."""
    if NOTE in notes:
        raise JournalError(
            f"{path}: was made while learning and has no chain. Go on with --learn (learn=True), or fit a chain to it "
            f"(`onoff fit {path} -o habits.json --open-only`) and give that with another journal"
        )


def names_in(note: str | None) -> list[str]:
    """The names in a note."""
    found = json.loads(note or "[]")
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise JournalError("the names that the journal remembers cannot be read")
    return found
