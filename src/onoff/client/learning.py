"""Without a chain: every request asks for everything, which hides it whatever the habits are, and is noted.

The journal is the record. When it has enough requests, all of them asked OFF, a chain can be fitted to it (`onoff fit
JOURNAL`), and a new journal is begun with that chain. A journal that was made while learning is never used with one.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from onoff.client.journal import Journal
from onoff.client.promises import Drawing
from onoff.client.protocol import FULL_SET, Begun, Pending, check_request
from onoff.errors import JournalError, OnoffError, SessionError
from onoff.model.chain import Chain
from onoff.model.misfit import FEW, LASTING, is_too_small, requests_until_refit

LONG = 300  # requests: a chain that lasts for as many need not be fitted again soon
LEAVE = "give no chain, promise or sensitive sources while learning: there is no chain that they could be for"

log = logging.getLogger("onoff.client")


@dataclass(frozen=True)
class Learned:
    """How many requests a journal has noted, for n sources, and how many of them are `private`: asked ON.

    A chain is fitted to a journal without private requests only: it becomes public, and would tell of them. `enough`
    means enough for a first, rough chain, and `lasts` for about how many requests it serves.
    """

    n: int
    requests: int
    private: int

    @property
    def needed(self) -> int:
        """The requests from which on a rough chain can be fitted."""
        return FEW * self.n + 1

    @property
    def enough(self) -> bool:
        return not is_too_small(self.requests - 1, self.n)

    @property
    def lasts(self) -> int:
        return requests_until_refit(max(0, self.requests - 1), self.n)

    @property
    def levels(self) -> tuple[bool, bool, bool]:
        """What is said once when it is reached: a private request, enough, and enough for long."""
        return self.private > 0, self.enough, self.lasts >= LONG

    def words(self, journal: str | Path) -> str:
        """How far it has come and what to do with this journal, in a few sentences without the last full stop."""
        noted = f"learning: {self.requests} requests are noted"
        if self.private:
            return (
                f"{noted}, {self.private} of them asked ON. NO CHAIN can be fitted to this journal: it would tell of "
                "those. To learn, begin a new journal and switch OFF first, for what need not be hidden"
            )
        if not self.enough:
            return f"{noted}, all asked OFF. A first, rough chain of {self.n} sources takes {self.needed}"
        given = f"A CHAIN that lasts for about {self.lasts:,} requests"
        if self.lasts < LONG:
            given = (
                f"A FIRST, ROUGH CHAIN. After about {self.lasts} requests `onoff check` may call it wrong although "
                f"your habits are the same. With {LONG * self.n // LASTING + 1:,} requests it lasts for {LONG}"
            )
        fit = f"`onoff fit {shlex.quote(str(journal))} -o habits.json`"
        return f"{noted}, all asked OFF. They give {given}. To fit it, before the first private request: {fit}"


class Learning(Drawing):
    """The side of the client that asks for everything and keeps what was wanted. See `onoff.client.promises.Drawing`.

    `chain` has the names of the sources. Its probabilities are nobody's habits and decide nothing.
    """

    def __init__(self, chain: Chain, journal: Journal) -> None:
        self._chain, self._journal = chain, journal
        self._learned = learned(journal)

    def begin(self, source: str, next: str | None, private: bool) -> Pending:
        if next is not None:
            raise SessionError("while learning nothing is announced: leave the next request out")
        state, request = self._journal.state, self._chain.index(source)
        check_request(state, self._chain, request)
        everything = tuple(range(self._chain.n))
        pending = Pending(request, None, True, private, 0, everything, FULL_SET, 0.0)
        begun = self._journal.naming_versions(Begun(replace(state, pending=pending), pending))
        self._journal.begin(begun, float(self._chain.n))
        self._count(private)
        return begun.pending

    def _count(self, private: bool) -> None:
        """Count the request that was begun, and say it when a level is reached."""
        before = self._learned
        self._learned = replace(before, requests=before.requests + 1, private=before.private + private)
        if self._learned.levels != before.levels:
            log.warning("%s", self._learned.words(self._journal.path))


def unknown_habits(names: Sequence[str]) -> Chain:
    """A chain that bears the names while nothing is known of habits."""
    n = len(names)
    if n < 2:
        raise OnoffError("at least 2 sources are needed")
    return Chain(np.full((n, n), 1 / n), names)


def learned(journal: Journal) -> Learned:
    """What a journal that is open has noted, with a request that is pending."""
    statuses = [step.asked_private for step in journal.steps()]
    return Learned(len(journal.memory.learning or ()), len(statuses), sum(statuses))


def check_learning(journal: Journal, learns: bool, names: Sequence[str]) -> None:
    """Refuse to learn with a journal that has a chain, and to use one without a chain for anything else."""
    if not learns:
        journal.memory.refuse_learning(journal.path)
    elif journal.memory.learning is None:
        state = journal.state
        if state.step or state.pending is not None:
            raise JournalError(f"{journal.path}: was made with a chain: name another journal to learn with")
        journal.remember(learning=tuple(names))
