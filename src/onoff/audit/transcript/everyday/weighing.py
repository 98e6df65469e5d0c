"""Whether the weights that a client recorded are those that its journal remembers: no request may have chosen them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from onoff.audit.everyday.record import Law
from onoff.audit.everyday.weights import Weights, changes
from onoff.types import Query

if TYPE_CHECKING:
    from onoff.audit.transcript.reading import Notes


def weighing_findings(laws: Mapping[int, Law], notes: Notes, n: int) -> tuple[list[str], list[str]]:
    """What speaks against the weights of the recorded laws, and what is worth knowing about them."""
    stated = {step: law.weights for step, law in laws.items()}
    findings = []
    for step, weights in sorted(stated.items()):
        if weights is not None and len(weights.lengths) != n:
            findings.append(f"step {step}: weighs {len(weights.lengths)} sources, and there are {n}")
        elif step >= notes.since and weights != notes.weights:
            findings.append(
                f"step {step}: its law was made with other lengths than the journal remembers, which may have been "
                "chosen by the request"
            )
    changed = changes(stated)
    known = [step for step in changed if _explained(step, stated, notes)]
    for step in changed:
        if step not in known:
            findings.append(f"step {step}: lengths changed there, and the journal does not say so")
    words = [
        f"step {step}: lengths changed there; that tells nothing unless it was because of a request" for step in known
    ]
    return findings, words


class Gaps:
    """How many steps ago each of n sources was asked for, followed from query to query."""

    def __init__(self, n: int) -> None:
        self._last = [-1] * n

    def weights(self, law: Law | None, step: int) -> tuple[float, ...] | None:
        """The weights of a step, from what its law states and from the queries before it."""
        stated = None if law is None else law.weights
        if stated is None or len(stated.lengths) != len(self._last):
            return None
        return stated.at([step - last for last in self._last])

    def asked(self, query: Query, step: int) -> None:
        """Go on after a query."""
        for source in query:
            self._last[source] = step


def _explained(step: int, stated: Mapping[int, Weights | None], notes: Notes) -> bool:
    """Whether this is the first recorded step since the journal's lengths changed last."""
    before = max(other for other in stated if other < step)
    return before < notes.since <= step
