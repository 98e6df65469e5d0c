"""Whether the weights that a client recorded are those that its journal remembers: no request may have chosen them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, expm1, log, log1p
from typing import TYPE_CHECKING

from onoff.audit.everyday.record import Law
from onoff.audit.everyday.weights import Weights, changes, weights_digest
from onoff.audit.transcript.choices import Choice, Table, Telling, Value, last_private
from onoff.types import Query

if TYPE_CHECKING:
    from onoff.audit.transcript.everyday.laws import Laws
    from onoff.audit.transcript.reading import Notes
    from onoff.audit.transcript.rules import Due

TILTS = (-4.0, -2.0, -1.0, 1.0, 2.0, 4.0)  # of the odds that a requested source is among those that fall


def weighing_findings(recorded: Laws, notes: Notes, n: int) -> tuple[list[str], list[str]]:
    """What speaks against the weights of the recorded laws, and what is worth knowing about them.

    A law that was recorded for a step before its lengths changed, and was not used, is in order: the client was killed,
    or its disk was full.
    """
    stated = stated_weights(recorded.by_step)
    eras = [*notes.before, (notes.since, weights_digest(notes.weights))]
    firsts = [first for first, _ in eras]
    findings = []
    for step, weights in sorted(stated.items()):
        era = bisect_right(firsts, step)
        if weights is not None and len(weights.lengths) != n:
            findings.append(f"step {step}: weighs {len(weights.lengths)} sources, and there are {n}")
        elif era and weights_digest(weights) != eras[era - 1][1]:
            findings.append(
                f"step {step}: its law was made with other lengths than the journal remembers, which may have been "
                "chosen by the request"
            )
    for step, weights in recorded.replaced:
        era = bisect_left(firsts, step)
        if step not in firsts or (era and weights_digest(weights) != eras[era - 1][1]):
            findings.append(f"step {step}: laws with different lengths were recorded for it")
    known = []
    for step in changes(stated):
        before = max(other for other in stated if other < step)
        if any(before < first <= step for first in firsts):
            known.append(step)
        else:
            findings.append(f"step {step}: lengths changed there, and the journal does not say so")
    if not known:
        return findings, []
    times = "" if len(known) == 1 else f" and at {len(known) - 1} steps more"
    return findings, [
        f"step {known[0]}: lengths changed there{times}; that tells nothing unless it was because of a request"
    ]


def weighing_choices(stated: Mapping[int, Weights | None], dues: Sequence[Due], n: int) -> list[Telling]:
    """Lengths as choices, which no request may make: when they change, which ones return, and whose share falls.

    A journal that was made up afterwards explains every change of lengths. So a change that it explains is looked at
    like a status: by the requests. Lengths that never return are left to the other two, since habits may change with
    time, too.
    """
    stated = {step: weights for step, weights in stated.items() if step < len(dues)}
    changed = set(changes(stated))
    if not changed:
        return []
    lasts, steps = last_private(dues), sorted(stated)
    values: dict[str, Value] = {
        "the request": lambda path, t: path[t],
        "the request before": lambda path, t: path[t - 1],
        "the last private request": lambda path, t: path[lasts[t]],
    }
    kinds: dict[str, dict[int, Choice]] = {
        "a change of lengths": {step: (0, step in changed) for step in steps[1:]},
        "the lengths": _returning(stated),
    }
    found: list[Telling] = [
        Table(f"{kind} by {value}", chosen, look)
        for kind, chosen in kinds.items()
        for value, look in values.items()
        if len(set(chosen.values())) > 1
    ]
    fallen = {t: _fallen(stated[before], stated[t], n) for before, t in pairwise(steps) if t in changed}
    return [
        *found,
        *(Fallen(f"whose share of the lengths falls, by {value}", fallen, n, values[value]) for value in values),
    ]


@dataclass(frozen=True)
class Fallen:
    """Whether sources that are asked for are among those whose share of all lengths has just fallen, or rather not.

    Of n sources |F_t| fall at step t. If the value v_t has nothing to do with that, it is one of them with a chance
    p_t = |F_t| / n, or close to it. Against that stand odds that are e^s times as large, for some s.
    """

    hint: str
    fallen: Mapping[int, frozenset[int]]
    n: int
    value: Value

    def evidence(self, path: Sequence[int]) -> float:
        """The logarithm of the mean likelihood ratio."""
        found = []
        for tilt in TILTS:
            ratios = (
                tilt * (self.value(path, t) in fallen) - log1p(len(fallen) / self.n * expm1(tilt))
                for t, fallen in self.fallen.items()
            )
            found.append(sum(ratios))
        top = max(found)
        return top + log(sum(exp(one - top) for one in found) / len(found))


class Gaps:
    """How many steps ago each of n sources was asked for, followed from query to query."""

    def __init__(self, n: int) -> None:
        self._last = [-1] * n

    def weights(self, law: Law | None, step: int) -> tuple[float, ...] | None:
        """The weights of a step, from what its law states and from the queries before it."""
        stated = None if law is None else law.weights
        if stated is None or len(stated.lengths) != len(self._last):
            return None
        return self.at(stated, step)

    def at(self, stated: Weights, step: int) -> tuple[float, ...]:
        """What such weights come to at a step."""
        return stated.at([step - last for last in self._last])

    def asked(self, query: Query, step: int) -> None:
        """Go on after a query."""
        for source in query:
            self._last[source] = step


def stated_weights(laws: Mapping[int, Law]) -> dict[int, Weights | None]:
    """The lengths and chances of every recorded step."""
    return {step: law.weights for step, law in laws.items()}


def _returning(stated: Mapping[int, Weights | None]) -> dict[int, Choice]:
    """The lengths of the steps whose lengths were in use before and after others."""
    uses: dict[str, list[int]] = defaultdict(list)
    for step in sorted(stated):
        uses[weights_digest(stated[step])].append(step)
    spans = {digest: (steps[0], steps[-1]) for digest, steps in uses.items()}
    found: dict[int, Choice] = {}
    for digest, (first, last) in spans.items():
        if any(begin < last and first < end for other, (begin, end) in spans.items() if other != digest):
            found |= dict.fromkeys(uses[digest], (0, digest))
    return found


def _fallen(before: Weights | None, after: Weights | None, n: int) -> frozenset[int]:
    """The sources whose share of what all weigh, one step after they were asked for, is smaller than before."""
    old, new = _shares(before, n), _shares(after, n)
    return frozenset(source for source in range(n) if new[source] < old[source])


def _shares(weights: Weights | None, n: int) -> list[float]:
    each = [1.0] * n if weights is None or len(weights.lengths) != n else list(weights.at([1] * n))
    return [one / sum(each) for one in each]
