"""Whether the sets of a client of the everyday mode were drawn from the encoders that it recorded.

The bets are those of `onoff.audit.transcript.draws`. Laws differ from step to step, so gamblers who learn look at
sizes, sources and random numbers, and those who know a mistake bet on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from onoff.audit.everyday.record import Law
from onoff.audit.transcript.draws import FALSE_ALARM, Bets, DrawTest, as_seen, wager
from onoff.audit.transcript.everyday.laws import NOWHERE, UNKNOWN, contexts_of, unjoined_contexts, unmoved_contexts
from onoff.audit.transcript.gambling import Drawn, Gambler, Leaning
from onoff.audit.transcript.mistakes import (
    Memory,
    Number,
    Shunned,
    Suspicion,
    drawn_again,
    full,
    generators,
    larger_of_two,
    repeated,
    smaller_of_two,
    unlikely,
    without_previous,
    without_request,
)
from onoff.audit.transcript.reading import Step
from onoff.audit.transcript.rules import Due, due
from onoff.types import Floats, Query

Contexts = Mapping[int, int]  # by step


def everyday_draws(
    steps: Sequence[Step],
    dues: Sequence[Due],
    laws: Mapping[int, Law],
    n: int,
    sensitive: Sequence[int],
    others: Sequence[tuple[Sequence[Step], Mapping[int, Law]]] = (),
    false_alarm: float = FALSE_ALARM,
    seen: Mapping[int, Query] | None = None,
) -> DrawTest:
    """Test the sets of a journal against the recorded laws. `others` are other journals with their laws.

    With `seen`, the sets of a log by their steps, those are tested and no others: not what the log lacks.

    A set that the encoder never draws for its request is proof by itself, and so is a reader who has no context.
    """
    hidden = tuple(sorted(sensitive))
    beside = [
        {
            drawn.step.step: drawn
            for drawn in drawn_sets(its, due(its, announced=False), known, n, hidden)
            if isinstance(drawn, Drawn)
        }
        for its, known in others
    ]
    astray = {
        "a reader who forgets sensitive requests": unjoined_contexts(steps, dues, laws),
        "a reader who stays in the context of the step before": unmoved_contexts(steps, dues, laws, hidden),
    }
    by_step = {name: {step.step: at for step, at in zip(steps, its, strict=True)} for name, its in astray.items()}
    groups: list[Sequence[Bets]] = [
        everyday_gamblers(hidden),
        [*everyday_mistakes(hidden, by_step), *repeated(beside)],
        generators(),
    ]
    return wager(drawn_sets(steps, dues, laws, n, hidden, seen), groups, false_alarm)


def drawn_sets(
    steps: Sequence[Step],
    dues: Sequence[Due],
    laws: Mapping[int, Law],
    n: int,
    sensitive: Sequence[int],
    seen: Mapping[int, Query] | None = None,
) -> Iterator[Drawn | int | None]:
    """The draw of every OFF step, or of those that were `seen`.

    It is None where law or context is not on record, and the number of the step where nobody can draw its set. The
    next request is not announced here, but a client may know it. So it is filled in.
    """
    before, previous = 0, -1
    contexts, upcoming = contexts_of(steps, dues, laws, sensitive), [*(step.request for step in steps[1:]), None]
    for noted, owed, context, following in zip(steps, dues, contexts, upcoming, strict=True):
        step = as_seen(replace(noted, next=following), seen)
        if owed.lag and step is not None:
            drawn = _drawn(step, owed, context, laws.get(step.step), n, sensitive, before, previous)
            if isinstance(drawn, Drawn):
                before = drawn.place
            yield drawn
        previous = noted.request


def _drawn(
    step: Step,
    owed: Due,
    context: int,
    law: Law | None,
    n: int,
    sensitive: Sequence[int],
    before: int,
    previous: int,
) -> Drawn | int | None:
    if law is None or (context == UNKNOWN and step.request not in sensitive):
        return None  # a missing law is a broken rule; what follows from it is not held against the draws
    sets = law.sets

    def row(context: int) -> NDArray[np.int64] | None:
        table = law.tables.get(context)
        return None if table is None else table.of(step.request, len(law.sets))

    masses = np.array(law.masses, dtype=np.int64)
    weights = masses if step.request in sensitive else row(context)
    if context == NOWHERE or weights is None or not weights.any():
        return step.step
    index, sizes = law.index(step.query), np.array([len(query) for query in sets])
    if index is None:  # a set outside the law: one more, of weight 0
        weights, index, sizes = np.append(weights, 0), len(weights), np.append(sizes, len(step.query))
        sets = (*sets, step.query)
    table = law.tables.get(context)
    whole = masses[None] if table is None else table.dense(n, len(masses))
    return Drawn(
        *(step, context, owed.lag, sizes, weights, index, before, sets, n, whole),
        lambda context, following, lag: row(context),
        None,
        previous,
    )


def everyday_gamblers(sensitive: Sequence[int]) -> list[Gambler | Leaning]:
    """One for each kind of mistake that shows at many steps, whatever their laws are."""
    hidden = frozenset(sensitive)
    return [
        Gambler("the sizes of the sets", lambda drawn: None, lambda drawn: drawn.by_size),
        Gambler("the sizes of the sets by request", lambda d: d.step.request, lambda drawn: drawn.by_size),
        Gambler("the sizes of sets of sensitive requests", lambda d: d.step.request in hidden, lambda d: d.by_size),
        Leaning("the sources in the sets", lambda drawn: None),
        Leaning("the sources in the sets by request", lambda drawn: drawn.step.request),
        Leaning("the sources in sets of sensitive requests", lambda drawn: drawn.step.request in hidden),
        Leaning("the sources in the sets by next request", lambda drawn: drawn.step.next),
        Gambler("the random numbers", lambda drawn: None, lambda drawn: drawn.parts),
        Gambler("the random numbers by the one before", lambda drawn: drawn.before, lambda drawn: drawn.parts),
        Gambler("the random numbers by request", lambda drawn: drawn.step.request, lambda drawn: drawn.parts),
        Gambler("the random numbers of sensitive requests", lambda d: d.step.request in hidden, lambda d: d.parts),
    ]


def everyday_mistakes(sensitive: Sequence[int], astray: Mapping[str, Contexts]) -> list[Suspicion]:
    """Those that have a name. `astray` are wrong contexts that a reader may take itself to be in, by step."""
    hidden = tuple(sorted(sensitive))

    def openly(drawn: Drawn) -> Floats | None:
        return drawn.surely(tuple(sorted({*hidden, drawn.step.request})))

    def of_sensitive(chances: Floats | None, drawn: Drawn) -> Floats | None:
        return chances if drawn.step.request in hidden else None

    def smallest(drawn: Drawn) -> Query:
        return min((len(query), query) for query in drawn.sets)[1]

    found = [
        Suspicion("steps asked openly", openly),
        Suspicion("full sets in place of drawn ones", full),
        Suspicion("full sets for unlikely requests", lambda drawn: full(drawn) if unlikely(drawn) else None),
        Suspicion("full sets for sensitive requests", lambda drawn: of_sensitive(full(drawn), drawn)),
        Suspicion("the smallest sets for sensitive requests", lambda d: of_sensitive(d.surely(smallest(d)), d)),
        Suspicion("sets all alike for sensitive requests", lambda d: of_sensitive(_uniform(d), d)),
        Suspicion("sets of the likeliest open request for sensitive ones", lambda d: of_sensitive(_likeliest(d), d)),
        Suspicion("sets drawn without the request", without_request),
        Suspicion("the smaller of two draws", smaller_of_two),
        Suspicion("the smaller of two draws for sensitive requests", lambda d: of_sensitive(smaller_of_two(d), d)),
        Suspicion("the larger of two draws for sensitive requests", lambda d: of_sensitive(larger_of_two(d), d)),
        Suspicion("the smallest sets drawn again", _smallest_redrawn),
        Suspicion("sets with the request before drawn again", without_previous),
        Shunned("sets that came the step before drawn again"),
        Suspicion("sets that hold the next request", _with_next),
        Suspicion("sets drawn in the context before in the list", lambda drawn: _in_context(drawn, drawn.last - 1)),
        Suspicion("sets drawn in the context after in the list", lambda drawn: _in_context(drawn, drawn.last + 1)),
        Memory("the set of the step before", lambda drawn: None),
        Memory("a draw remembered for its request", lambda drawn: drawn.step.request),
        Memory("a draw remembered for its request and context", lambda drawn: (drawn.step.request, drawn.last)),
        Number("the random number of the draw before", lambda drawn: None),
        Number("the random number of the request's last draw", lambda drawn: drawn.step.request),
    ]
    for name, contexts in astray.items():
        found.append(Suspicion(name, _Astray(contexts)))
    return found


class _Astray:
    """The chances in the context that a reader wrongly takes itself to be in."""

    def __init__(self, contexts: Contexts) -> None:
        self._contexts = contexts

    def __call__(self, drawn: Drawn) -> Floats | None:
        return _in_context(drawn, self._contexts.get(drawn.step.step, NOWHERE))


def _in_context(drawn: Drawn, context: int) -> Floats | None:
    """The chances in another context of the same law; None where that is the same, or cannot be."""
    if context == drawn.last:
        return None
    units = drawn.other(context, -1, drawn.lag)
    if units is None or not units.any():
        return None
    chances: Floats = np.pad(units / units.sum(), (0, len(drawn.weights) - len(units)))
    return chances


def _likeliest(drawn: Drawn) -> Floats | None:
    """The chances of the open request that is likeliest in this context."""
    assert drawn.table is not None
    units = drawn.table[drawn.table.sum(axis=1).argmax()]
    chances: Floats = np.pad(units / units.sum(), (0, len(drawn.weights) - len(units)))
    return chances


def _with_next(drawn: Drawn) -> Floats | None:
    """A set is drawn again until it holds the next request; None where every set does, or none."""
    if drawn.step.next is None:
        return None
    held: Floats = drawn.p * drawn.member[:, drawn.step.next]
    return held / held.sum() if 0 < held.sum() < 1 else None


def _uniform(drawn: Drawn) -> Floats:
    chances: Floats = np.full(len(drawn.weights), 1 / len(drawn.weights))
    return chances


def _smallest_redrawn(drawn: Drawn) -> Floats:
    return drawn_again(drawn, drawn.sizes == drawn.sizes[drawn.p > 0].min())
