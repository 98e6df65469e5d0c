"""Whether a log has every step that its client noted: an audit of a log is about the log, and not about the journal.

A log that was cut looks as private as what is left of it. So a step that the journal has and the log lacks is a
finding, unless the auditor says that the log is only a part. Then the verdict is about that part. The last step of a
journal may be pending: noted, and not yet sent.
"""

from __future__ import annotations

from collections.abc import Sequence

from onoff.audit.transcript.reading import Line, Step
from onoff.audit.transcript.repeats import Repeats
from onoff.types import Query


def sets_seen(stream: Sequence[Line]) -> dict[int, Query]:
    """The set of every step in the log, the first one if there are several."""
    seen: dict[int, Query] = {}
    for line in stream:
        seen.setdefault(line.step, tuple(sorted(line.sources)))
    return seen


def missing_steps(stream: Sequence[Line], steps: Sequence[Step]) -> tuple[int, ...]:
    """The steps that the client made and the log lacks."""
    there = {line.step for line in stream}
    pending = {steps[-1].step} if steps and steps[-1].attempts is None else set()
    return tuple(step.step for step in steps if step.step not in there | pending)


def unread(stream: Sequence[Line], ignored: Sequence[str], again: Repeats) -> list[str]:
    """What a log tells that nobody can look at: fields that no check knows, and what it lacks or its journal does."""
    found = [f"what the field {name} of the log tells" for name in ignored]
    if any(line.held is None for line in stream):
        found.append("the versions that queries name, which the log lacks")
    if again.uncounted:
        found.append(f"whether {again.uncounted} queries had to come again, which an older journal does not count")
    return found


def missing_findings(missing: Sequence[int], steps: int, part: bool, source: str = "the journal") -> list[str]:
    """A finding if steps are missing. In a `part` only those that are missing in its middle are, by another rule."""
    if not missing or part:
        return []
    where = f"step {missing[0]}" if len(missing) == 1 else f"steps {missing[0]} to {missing[-1]}"
    scattered = "" if missing[-1] - missing[0] + 1 == len(missing) else ", not all of them"
    verb = "is" if len(missing) == 1 else "are"
    return [
        f"{len(missing)} of the {steps} steps of {source} {verb} not in the log ({where}{scattered}): "
        "what was sent there is not known; if the log is only a part of what the server saw, say so with --part"
    ]
