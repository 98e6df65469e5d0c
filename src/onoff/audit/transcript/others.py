"""What else is in the log: streams beside the audited one, and whether other journals can have sent them.

A journal knows one stream. Other lines may be those of other readers, or of the same client in a way that its journal
does not tell: redrawn, drawn again after a backup, asked openly on the side. From the address of the audited stream,
once that has begun, only a stream of a new journal is in order: it begins at step 0 with two full sets, goes on step by
step with one set for each, does not take turns with the audited stream, and its sets are such as the plans draw. In the
everyday mode they hold its sensitive sources; its laws follow one another and are not compared with those sets. From
other addresses any stream is, unless it has steps that the audited one lacks and is not whole in itself. A stream that
has a name and two queries for one step is never in order: its journal was restored, copied or drew again.

What is said of the sets is tested by a bet, as in `draws`. While OFF a plan draws from one law whatever the
requests are; among sets that are not full, q has the probability p(q) at most, over all plans. A gambler whose capital
is multiplied by r(q) / p(q), r being the frequencies so far, does not expect to gain: it ever has 1 / a with
probability at most a.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, log

from onoff.audit.models import Planned
from onoff.audit.transcript.reading import Line, agrees
from onoff.types import Query

FALSE_ALARM = 1e-4


@dataclass(frozen=True)
class Others:
    """How many queries of the log are not in the audited stream; `findings` are what no other journal can have sent."""

    lines: int
    findings: tuple[str, ...]


def others(
    found: Iterable[Sequence[Line]],
    stream: Sequence[Line],
    steps: int,
    n: int,
    models: Iterable[Planned] = (),
    journals: Sequence[Sequence[Query]] = (),
    sensitive: Sequence[int] = (),
) -> Others:
    """Look at the streams of a log other than `stream`, whose journal has `steps` steps. `models` are its plans.

    A stream that equals one of the other `journals`, query by query, is known to be that one. A client with `sensitive`
    sources asks for them in every query.
    """
    chances = likeliest(models)
    present = {line.step for line in stream}
    lines, findings = 0, []
    for other in found:
        if other is stream:
            continue
        lines += len(other)
        findings += [f"another stream, {name}" for name in asked_twice(other)]
        if any(all(agrees(line, noted) for line in other) for noted in journals):
            continue
        if other[0].client == stream[0].client:
            suspect = [line for line in other if line.number > stream[0].number]
            where, fault = "this address", _fault(other, stream, n, chances, set(sensitive)) if suspect else None
        else:
            suspect = [line for line in other if line.step < steps and line.step not in present]
            where, fault = "another address, with steps that the stream lacks", _broken(other, n, 1)
        if suspect and fault:
            findings.append(f"{len(suspect)} queries from {where}, from line {suspect[0].number} on: {fault}")
    return Others(lines, tuple(findings))


def asked_twice(stream: Sequence[Line]) -> list[str]:
    """The steps of a named stream that were asked with different bytes."""
    first: dict[int, Line] = {}
    found = []
    for line in stream:
        before = first.setdefault(line.step, line)
        if line.stream is not None and line.sources != before.sources:
            both = f"lines {before.number} and {line.number}"
            found.append(f"{line.stream}: step {line.step} was asked twice with different bytes ({both})")
    return found


def likeliest(models: Iterable[Planned]) -> dict[Query, float]:
    """The largest probability of every set that is not full, among such sets, over all plans."""
    chances: dict[Query, float] = {}
    for model in models:
        law = dict(zip(model.plan.sets, model.plan.masses, strict=True))
        partial = {query: mass for query, mass in law.items() if len(query) < model.plan.n}
        total = sum(partial.values())
        for query, mass in partial.items():
            chances[query] = max(chances.get(query, 0.0), mass / total)
    return chances


def _fault(
    other: Sequence[Line], stream: Sequence[Line], n: int, chances: Mapping[Query, float], sensitive: set[int]
) -> str | None:
    """Why no new journal can have sent what came after the stream began."""
    if other[0].number < stream[0].number:
        return "they go on with a stream that began before this one"
    broken = _broken(other, n, 2)
    if broken:
        return broken
    if any(other[0].number < line.number < other[-1].number for line in stream):
        return "they take turns with this stream"
    if any(sensitive - set(line.sources) for line in other):
        return "they lack sensitive sources of this journal"
    if chances and _evidence(other, n, chances) >= -log(FALSE_ALARM):
        return f"these plans do not draw such sets (false alarms at most {100 * FALSE_ALARM:g} %)"
    return None


def _broken(other: Sequence[Line], n: int, full_sets: int) -> str | None:
    """Why a stream is not whole in itself."""
    if other[0].step or any(len(line.sources) < n for line in other if line.step < full_sets):
        return "a new journal begins at step 0 with full sets"
    for before, line in pairwise(other):
        if line.step not in (before.step, before.step + 1) or (
            line.step == before.step and set(line.sources) != set(before.sources)
        ):
            return f"in one stream step {line.step} does not follow step {before.step} so"
    return None


def _evidence(other: Sequence[Line], n: int, chances: Mapping[Query, float]) -> float:
    """The logarithm of the most that the gambler had."""
    most, capital, seen = 0.0, 0.0, Counter[Query]()
    for query in {line.step: tuple(sorted(line.sources)) for line in other}.values():
        if len(query) == n:
            continue
        if query not in chances:
            return inf
        capital += log((seen[query] + 1) / (seen.total() + len(chances))) - log(chances[query])
        most = max(most, capital)
        seen[query] += 1
    return most
