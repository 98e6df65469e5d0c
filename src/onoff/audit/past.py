"""The OFF steps of the promise `past`: laws of public states, and draws from them.

Chain and last sets are the public state of a step. They say which states may be the reader's
(`onoff.audit.rows.Candidates`), and a law is right if it has an encoder for each of these. The public state must also
determine the law: if the request chose between two right laws, the query would tell of it. One maker (the same versions
on the same processor) makes one law of a public state. So a public state has one law of a maker throughout a journal,
and if the installed code makes some laws of its own mark to the last digit, it makes all of them. Laws of other makers
are *not checked* if it makes others: machines differ in the last digits. If the installed code makes none, a law is
accepted only near the cheapest, where there is little to choose.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from onoff.audit.law import UNCHECKED, Finding, LawLine, check_draw, check_encoder, check_law, is_proved
from onoff.audit.races import OFF, check_race
from onoff.audit.rows import Candidates
from onoff.audit.rules import ERASED

if TYPE_CHECKING:
    from onoff.audit.files import Step
    from onoff.audit.habits import Recorded
    from onoff.audit.law import Drawn

NONE = np.zeros((0, 0), dtype=np.int64)  # in the place of an encoder that is missing
MISSING = Finding(UNCHECKED, "the law that the journal notes is not on record, and the installed code does not make it")
UNLIKE = Finding(UNCHECKED, "the installed code makes another law there: the request may have chosen the noted one")
UNPROVED = Finding(
    UNCHECKED, "its law may cost 2 % more than needed, and nobody made it again: the request may have chosen it"
)
CHOSEN = Finding("law by request", "the chain and the last sets give another law than the one that is noted")
CHANGED = Finding("law by request", "another law is noted than at an earlier step of the same public state")


class PastDraws:
    """The draws of a journal with these sensitive sources.

    `laws` are an exhibit: `recorded(maker, chain, states, digest)` and `remade(chain, states)` give laws, or None, and
    `maker` is the mark of the installed code. `line` is the law of the newest step, if it is at hand, and `drawn` what
    was drawn, if that was right. `count` steps were drawn again; their laws are within `rounding` of right ones.
    """

    line: LawLine | None
    drawn: Drawn

    def __init__(self, sensitive: Sequence[int], laws: Any) -> None:
        self._sensitive, self._laws = sensitive, laws
        self._candidates = lru_cache(1024)(lambda chain, sets: Candidates(chain, sensitive, sets))
        self._digests: dict[Any, str | None] = {}  # by maker and public state
        self._checked: dict[Any, tuple[list[Finding], Fraction | None]] = {}
        self._remade: list[tuple[Step, bool]] = []  # with whether the law was the same
        self.count, self.rounding = 0, 0.0

    def check(self, step: Step, chain: Recorded, before: Sequence[Step]) -> Iterator[Finding | None]:
        """Check an OFF step after the steps `before`, as many as the chain that serves it remembers."""
        candidates = self._candidates(chain, tuple(one.query for one in before))
        if candidates.is_race:
            self.rounding += chain.P.shape[1] * OFF
        else:
            yield from self._check_law(step, candidates)
            if self.line is None:
                return
        hidden = step.request in self._sensitive
        state = None if hidden else chain.known_state([one.request for one in before])
        if step.request is None or step.numbers is None or (state is None and not hidden):
            yield ERASED
            return
        self.count += 1
        if self.line is None:
            yield check_race(candidates, step.query, step.numbers, step.request, state)
            return
        row = self.line.law.units
        if state is not None:
            row = self.line.encoders[state][step.request] if state in self.line.encoders else 0 * row
        off = check_draw(step.query, step.numbers, row, self.line.law)
        self.drawn = None if off else (row, self.line.law)
        yield off

    def _check_law(self, step: Step, candidates: Candidates) -> Iterator[Finding | None]:
        """Find the law of a step, and check it, once for all steps of its public state."""
        public = step.maker, candidates.chain, candidates.states
        made = self._laws.remade(*public[1:])
        same = made is not None and made.digest == step.digest
        own = same and step.maker == self._laws.maker  # other makers may have other encoders for the same law
        self.line = made if own else self._laws.recorded(*public, step.digest)
        if made is not None:
            self._remade.append((step, same))
        yield CHANGED if self._digests.setdefault(public, step.digest) != step.digest else None
        if self.line is None:
            yield MISSING if same or made is None else None
            return
        known = (*public, step.digest)
        if known not in self._checked:
            self._checked[known] = check_states(self.line, candidates, self._sensitive, made is None)
        wrong, off = self._checked[known]
        yield from wrong
        self.rounding += float(off or 0)
        self.line = None if off is None else self.line

    def end(self) -> Iterator[Finding]:
        """Find the laws that the installed code makes otherwise."""
        own = self._laws.maker
        is_alike = any(same and step.maker == own for step, same in self._remade)
        for step, same in self._remade:
            if not same:
                yield replace(CHOSEN if is_alike and step.maker == own else UNLIKE, step=step.step)


def check_states(
    line: LawLine, candidates: Candidates, sensitive: Sequence[int], alone: bool
) -> tuple[list[Finding], Fraction | None]:
    """What is wrong with a law in any state, and its rounding; None if nothing can be drawn from it.

    `alone`: the installed code says nothing about it.
    """
    fault = check_law(line.law, len(candidates.is_open), sensitive)
    if fault is not None:
        return [fault], None
    every = [
        check_encoder(line.law, line.encoders.get(state, NONE), weights, Fraction(0), (state,))
        for state, weights in candidates.weights.items()
    ]
    wrong = [one for one in every if isinstance(one, Finding)]
    if alone and not is_proved(line, candidates.rows, len(sensitive)):
        wrong.append(UNPROVED)
    return wrong, max((one for one in every if isinstance(one, Fraction)), default=Fraction(0))
