"""Without a chain: every request asks for everything, which hides it whatever the habits are, and is noted.

The journal is the record. When it has enough requests, a chain can be fitted to it (`onoff fit JOURNAL`), and a new
journal is begun with that chain. A journal that was made while learning has no chain, so it is never used with one.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from onoff.client.journal import Journal
from onoff.client.promises import NothingAhead
from onoff.client.protocol import FULL_SET, Begun, Pending, check_request
from onoff.errors import JournalError, OnoffError, SessionError
from onoff.model.chain import Chain
from onoff.model.misfit import FEW, LASTING, lasting, too_few

LONG = 300  # requests: a chain that lasts for as many need not be fitted again soon
LEAVE = "give no chain, promise or sensitive sources while learning: there is no chain that they could be for"

log = logging.getLogger("onoff.client")


@dataclass(frozen=True)
class Learned:
    """How many requests a journal has noted, for n sources, and how many of them were asked OFF.

    A chain is fitted to pairs of neighbouring requests. `open_pairs` are those of which both were asked OFF. `enough`
    means enough for a first, rough chain. How long that one lasts says `onoff.model.misfit.lasting`.
    """

    n: int
    requests: int
    open: int
    open_pairs: int

    @classmethod
    def of(cls, n: int, private: Sequence[bool]) -> Learned:
        """What requests say that were asked with these statuses, in their order."""
        pairs = sum(not (before or after) for before, after in pairwise(private))
        return cls(n, len(private), sum(not asked for asked in private), pairs)

    @property
    def needed_pairs(self) -> int:
        """The pairs of neighbouring requests from which on a rough chain can be fitted."""
        return FEW * self.n

    @property
    def needed(self) -> int:
        """The requests that have so many pairs."""
        return self.needed_pairs + 1

    @property
    def enough(self) -> bool:
        return not too_few(self.requests - 1, self.n)

    @property
    def enough_open(self) -> bool:
        """Whether those that were asked OFF are enough by themselves."""
        return not too_few(self.open_pairs, self.n)

    @property
    def lasts(self) -> int:
        """For about how many requests a chain of all requests lasts."""
        return lasting(max(0, self.requests - 1), self.n)

    @property
    def lasts_open(self) -> int:
        """For about how many requests a chain of those that were asked OFF lasts."""
        return lasting(self.open_pairs, self.n)

    @property
    def levels(self) -> tuple[bool, bool, bool, bool]:
        """What is said once when it is reached: enough, and enough for long, of all and of those asked OFF."""
        return self.enough, self.enough_open, self.lasts >= LONG, self.lasts_open >= LONG

    def words(self, journal: str | Path) -> str:
        """How far it has come and what to do with this journal, in a few sentences without the last full stop."""
        noted = f"learning: {self.requests} requests are noted, {self.open} of them asked OFF"
        if not self.enough:
            return f"{noted}. A first, rough chain of {self.n} sources takes {self.needed}"
        fit = f"`onoff fit {shlex.quote(str(journal))} -o habits.json"
        public = (
            f"{fit}` uses requests that were asked ON, too: such a chain becomes public with the first query, and "
            "tells of them"
        )
        if self.enough_open:
            given = _given("The ones asked OFF", self.lasts_open, self.n)
            return f"{noted}. {given}. To fit it now: {fit} --open-only`. {public}"
        return (
            f"{noted}. {_given('All together', self.lasts, self.n)}. For a chain of those asked OFF, "
            f"{self.needed_pairs} must come right after another one asked OFF, and {self.open_pairs} do. "
            f"Switch OFF for what need not be hidden until there are enough: {fit} --open-only`. {public}"
        )


def _given(which: str, lasts: int, n: int) -> str:
    """What such requests give, and how long it lasts."""
    if lasts >= LONG:
        return f"{which} give A CHAIN that lasts for about {lasts:,} requests"
    return (
        f"{which} give A FIRST, ROUGH CHAIN. After about {lasts} requests `onoff check` may call it wrong although "
        f"your habits are the same. With {LONG * n // LASTING + 1:,} requests learned it is one that lasts for {LONG}"
    )


class Learning(NothingAhead):
    """The side of the client that asks for everything and keeps what was wanted. See `onoff.client.promises.Drawing`.

    `chain` has the names of the sources. Its probabilities are nobody's habits and decide nothing.
    """

    def __init__(self, chain: Chain, journal: Journal) -> None:
        self._chain, self._journal = chain, journal
        self._learned: Learned | None = None  # counted at the first request
        self._was_open = False  # whether the request before was asked OFF

    def status(self, private: bool | None) -> bool:
        return private is None or private

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
        before, is_open = self._learned, not private
        if before is None:
            *earlier, _ = _statuses(self._journal)
            before, self._was_open = Learned.of(self._chain.n, earlier), not all(earlier[-1:])
        found = replace(
            before,
            requests=before.requests + 1,
            open=before.open + is_open,
            open_pairs=before.open_pairs + (is_open and self._was_open),
        )
        self._learned, self._was_open = found, is_open
        if found.levels != before.levels:
            log.warning("%s", found.words(self._journal.path))


def unknown_habits(names: Sequence[str]) -> Chain:
    """A chain that bears the names while nothing is known of habits."""
    n = len(names)
    if n < 2:
        raise OnoffError("at least 2 sources are needed")
    return Chain(np.full((n, n), 1 / n), names)


def learned(journal: Journal) -> Learned:
    """What a journal that is open has noted."""
    return Learned.of(len(journal.memory.learning or ()), _statuses(journal))


def _statuses(journal: Journal) -> list[bool]:
    """Whether each request was asked ON, a pending one too."""
    return [step.asked_private for step in journal.steps()]


def check_learning(journal: Journal, learns: bool, names: Sequence[str]) -> None:
    """Refuse to learn with a journal that has a chain, and to use one without a chain for anything else."""
    if not learns:
        journal.memory.refuse_learning(journal.path)
    elif journal.memory.learning is None:
        state = journal.state
        if state.step or state.pending is not None:
            raise JournalError(f"{journal.path}: was made with a chain: name another journal to learn with")
        journal.remember(learning=tuple(names))
