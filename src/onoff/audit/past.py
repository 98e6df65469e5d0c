"""The OFF steps of the promise `past`: laws of public states, and draws from them.

The sets of the last steps say which states may be the reader's (`onoff.audit.rows.Candidates`). A law is right if it has
an encoder for each of them. It must also follow from them alone: if the request had a say in which of two right laws is
used, the query would tell of it. Those who made it, the same versions on the same processor, make the same law of the
same states. So a public state has one law throughout a journal. Where the installed code makes some laws to the last
digit, it makes all that have its own mark. Laws of other makers are *not checked* if it makes others: machines differ in
the last digits. Without the installed code a law is certain only near the cheapest, where there is little to choose.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from onoff.audit.law import UNCHECKED, Finding, LawLine, check_draw, check_encoder, check_law, is_proved
from onoff.audit.races import OFF, check_race
from onoff.audit.rows import Candidates
from onoff.audit.rules import ERASED

if TYPE_CHECKING:
    from onoff.audit.files import Step
    from onoff.audit.habits import Recorded
    from onoff.audit.law import Drawn

MISSING = Finding(UNCHECKED, "its law is not on record, nor made again by the installed code as the journal notes")
UNLIKE = Finding(UNCHECKED, "the installed code makes another law there: it may have been chosen by the request")
UNPROVED = Finding(UNCHECKED, "its law may be dear, and nobody made it again: it may have been chosen by the request")
CHOSEN = Finding("law by request", "public things give another law than the one that is noted")
CHANGED = Finding("law by request", "another law is noted than at an earlier step of the same public state")


class PastDraws:
    """The draws of a journal with these sensitive sources.

    `laws` are an exhibit: `recorded(maker, chain, states, digest)` and `remade(chain, states)` give laws, or None, and
    `maker` is the mark of the installed code. `line` and `drawn` tell of the newest step, as far as its law is at hand and its draw right.
    `count` steps were drawn again, and their laws are within `rounding` of right ones.
    """

    def __init__(self, sensitive: Sequence[int], laws: Any) -> None:
        self._sensitive, self._laws = sensitive, laws
        self._candidates = lru_cache(1024)(lambda chain, sets: Candidates(chain, sensitive, sets))
        self._digests: dict[Any, str | None] = {}  # by maker and public state
        self._checked: dict[Any, tuple[list[Finding], Fraction]] = {}
        self._remade: list[tuple[Step, bool]] = []  # with whether the law was the same
        self.line: LawLine | None = None
        self.drawn: Drawn = None
        self.count, self.rounding = 0, 0.0

    def check(self, step: Step, chain: Recorded, before: Sequence[Step]) -> Iterator[Finding]:
        """Check an OFF step after the steps `before`, as many as the chain that serves it remembers."""
        candidates = self._candidates(chain, tuple(one.query for one in before))
        state = chain.known_state([one.request for one in before])
        self.line, self.drawn = None, None
        if candidates.is_race:
            self.rounding += chain.P.shape[1] * OFF
            return self._check_race(step, candidates, state)
        return self._check_table(step, candidates, state)

    def _check_race(self, step: Step, candidates: Candidates, state: int | None) -> Iterator[Finding]:
        hidden = step.request in self._sensitive
        if step.request is None or step.numbers is None or (state is None and not hidden):
            yield ERASED
            return
        self.count += 1
        off = check_race(candidates, step.query, step.numbers, step.request, None if hidden else state)
        yield from filter(None, [off])

    def _check_table(self, step: Step, candidates: Candidates, state: int | None) -> Iterator[Finding]:
        public = step.maker, candidates.chain, candidates.states
        if self._digests.setdefault(public, step.digest) != step.digest:
            yield CHANGED
        made = self._laws.remade(candidates.chain, candidates.states)
        same = made is not None and made.digest == step.digest
        recorded = self._laws.recorded(*public, step.digest)
        line = self.line = recorded or (made if same and step.maker == self._laws.maker else None)
        if made is not None:
            self._remade.append((step, same))
        if line is None:
            yield from [MISSING] if same or made is None else []
            return
        known = (*public, step.digest)
        if known not in self._checked:
            self._checked[known] = self._check_law(line, candidates, made is None)
        wrong, off = self._checked[known]
        yield from wrong
        self.rounding += float(off)
        yield from self._check_draw(step, line, state)

    def _check_law(self, line: LawLine, candidates: Candidates, alone: bool) -> tuple[list[Finding], Fraction]:
        """What is wrong with a law, and its rounding. `alone`: the installed code says nothing about it."""
        fault = check_law(line.law, len(candidates.is_open), self._sensitive)
        if fault is not None:
            return [fault], Fraction(0)
        found, off = [UNPROVED] * (alone and not is_proved(line, candidates.rows, len(self._sensitive))), Fraction(0)
        for state, weights in candidates.weights.items():
            units = line.encoders.get(state)
            if units is None:
                found.append(Finding("encoder", f"there is none for the state {state}, which may be the reader's"))
                continue
            one = check_encoder(line.law, units, weights, Fraction(0), (state,))
            if isinstance(one, Finding):
                found.append(one)
            else:
                off = max(off, one)
        return found, off

    def _check_draw(self, step: Step, line: LawLine, state: int | None) -> Iterator[Finding]:
        hidden = step.request in self._sensitive
        if step.request is None or step.numbers is None or (state is None and not hidden):
            yield ERASED
            return
        units = None if hidden or state is None else line.encoders.get(state)
        if units is None and not hidden:
            yield Finding("encoder", f"there is none for the reader's state {state}")
            return
        row = line.law.units if units is None else units[step.request]
        self.count += 1
        off = check_draw(step.query, step.numbers, row, line.law)
        yield from filter(None, [off])
        self.drawn = None if off else (row, line.law)

    def end(self) -> Iterator[Finding]:
        """Find the laws that the installed code makes otherwise."""
        own = self._laws.maker
        is_alike = any(same and step.maker == own for step, same in self._remade)
        for step, same in self._remade:
            if not same:
                yield replace(CHOSEN if is_alike and step.maker == own else UNLIKE, step=step.step)
