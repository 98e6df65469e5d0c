"""The laws of a stream made again from public things: the chain, the sensitive sources, lengths, and the queries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from onoff.audit.everyday.record import Law, Seen, law_of, same_law
from onoff.audit.transcript.everyday.laws import Laws
from onoff.audit.transcript.everyday.weighing import Gaps
from onoff.types import Query

if TYPE_CHECKING:
    from onoff.audit.transcript.reading import Notes
    from onoff.audit.transcript.rules import Due

SLACK = 2  # by which factor a stated rounding may exceed that of the law made again: machines differ in last digits


def remade_laws(start: Any, dues: Sequence[Due], seen: Mapping[int, Query], notes: Notes, n: int) -> Laws:
    """The laws that the installed version makes for the OFF steps of a log, for a journal without a record.

    Of lengths that a journal no longer uses it keeps a digest, so laws of those steps cannot be made; nor can they
    after a set that is missing, or not one of its law, before the next ON step.
    """
    state, gaps = None, Gaps(n)
    found: dict[int, Law] = {}
    for t, owed in enumerate(dues):
        query, stated = seen.get(t), notes.weights if t >= notes.since else None
        if owed.lag == 0:
            state = start
        elif state is not None and (t >= notes.since or not notes.before):
            weights = None if stated is None else gaps.at(stated, t)
            ready = state.prepare(weights)
            found[t] = law_of(ready.as_dict(), state.place, state.joined, state.charge, stated)
            state = state.advance(ready, query) if query in ready.sets else None
        else:
            state = None
        gaps.asked(tuple(range(n)) if owed.lag == 0 else query or (), t)
    return Laws(found, made=True)


def compared(start: Any, seen: Sequence[Seen], n: int, advance: Callable[[], None]) -> tuple[int, list[str]]:
    """How many laws are those of the engine, and the steps at which another one, or more rounding, was recorded.

    Where weights are stated the engine gets them, computed from the queries before. What follows another law cannot be
    compared before the next ON step.
    """
    state, same, unlike, gaps = None, 0, [], Gaps(n)
    for t, step in enumerate(seen):
        advance()
        weights = gaps.weights(step.law, t)
        gaps.asked(step.query, t)
        if step.private:
            state = start
        elif state is not None:
            ready = state.prepare(weights)
            made = law_of(ready.as_dict(), state.place, state.joined, state.charge)
            if step.law is None:
                state = None
            elif not same_law(made, step.law):
                unlike.append(
                    f"step {t}: the installed version makes another law there; if the client had the same version, "
                    "its law may have been chosen by the request"
                )
                state = None
            else:
                same += 1
                if step.law.rounding > SLACK * made.rounding:
                    unlike.append(
                        f"step {t}: states a rounding of {step.law.rounding:.1e}, and the law has {made.rounding:.1e}: "
                        "what is stated is what the attack allows"
                    )
                state = state.advance(ready, step.query) if step.query in ready.sets else None
    return same, unlike
