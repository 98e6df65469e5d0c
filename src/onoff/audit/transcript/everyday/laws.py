"""The record of laws that a client of the everyday mode kept, and where its reader was at every step."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from onoff.audit.everyday.record import Law, recorded, same_law
from onoff.audit.everyday.weights import Weights
from onoff.audit.transcript.reading import Step, text_lines
from onoff.audit.transcript.rules import Due
from onoff.errors import LogError
from onoff.types import Floats

if TYPE_CHECKING:
    from onoff.model.chain import Chain

NOWHERE = -1  # the context of a reader for whom the record has none
UNKNOWN = -2  # that of a reader after a step whose law is missing, until something hidden is asked for


@dataclass(frozen=True)
class Laws:
    """The laws of one stream by their steps.

    `findings` name steps for which different laws were recorded. Where the lines of a step state other lengths, too,
    `replaced` has the earlier ones. `damaged` names lines that hold no whole law: what they recorded must be in another
    line, or their step has no law. `made` means that there is no record, and these laws were made from public things.
    """

    by_step: Mapping[int, Law]
    findings: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()
    replaced: tuple[tuple[int, Weights | None], ...] = ()
    made: bool = False


def read_laws(file: Path, stream: str | None) -> Laws:
    """The laws of a stream in a record, one JSON line for each OFF step; the last one of a step counts.

    A record may hold several streams. A client that was killed may have recorded a law twice, and then it is the same.
    """
    laws: dict[int, Law] = {}
    findings, damaged, replaced = [], [], []
    for number, text in text_lines(file, "replace"):
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            damaged.append(f"line {number} of the record is damaged")
            continue
        if isinstance(data, dict) and data.get("stream") not in (None, stream):
            continue
        try:
            line = recorded(data if isinstance(data, dict) else {})
        except LogError as error:
            raise LogError(f"{file}: line {number}: {error}") from None
        before = laws.get(line.step, line.law)
        stated = [(law.denominator, law.rounding, law.charge) for law in (before, line.law)]
        if before.weights != line.law.weights:
            replaced.append((line.step, before.weights))
        elif stated[0] != stated[1] or not same_law(before, line.law):
            findings.append(f"step {line.step}: different laws were recorded for it, the last in line {number}")
        laws[line.step] = line.law
    return Laws(laws, tuple(findings), tuple(damaged), tuple(replaced))


def contexts_of(
    steps: Sequence[Step], dues: Sequence[Due], laws: Mapping[int, Law], sensitive: Sequence[int]
) -> list[int]:
    """The context of the reader at every step, as the recorded moves of contexts say; NOWHERE while ON, or lost.

    After a step whose law is missing it is UNKNOWN, until something hidden is asked for.
    """
    return _followed(steps, dues, laws, frozenset(sensitive))


def unjoined_contexts(steps: Sequence[Step], dues: Sequence[Due], laws: Mapping[int, Law]) -> list[int]:
    """The contexts of a reader who forgets that sensitive requests make a new one."""
    return _followed(steps, dues, laws, frozenset())


def unmoved_contexts(
    steps: Sequence[Step], dues: Sequence[Due], laws: Mapping[int, Law], sensitive: Sequence[int]
) -> list[int]:
    """The contexts of a reader who does not follow how contexts are renumbered."""
    right = contexts_of(steps, dues, laws, sensitive)
    return [NOWHERE, *right[:-1]]


def request_laws(
    chain: Chain, steps: Sequence[Step], dues: Sequence[Due], laws: Mapping[int, Law], sensitive: Sequence[int]
) -> dict[int, Floats]:
    """The law of every request given those before it and the queries up to it, where law and context are on record."""
    found, hidden = {}, list(sensitive)
    contexts = contexts_of(steps, dues, laws, sensitive)
    for before, step, owed, context in zip(steps, steps[1:], dues[1:], contexts[1:], strict=False):
        sent = np.ones(chain.n)
        if owed.lag:
            law = laws.get(step.step)
            column = None if law is None else law.index(step.query)
            if law is None or column is None or context < 0:
                continue
            table = law.tables.get(context)  # None where no open request is possible
            sent = np.zeros(chain.n) if table is None else table.chances(chain.n, len(law.sets))[:, column]
            sent[hidden] = law.masses[column] / law.denominator
        weights = chain.P[before.request] * sent
        if weights.any():
            found[step.step] = weights / weights.sum()
    return found


def _followed(steps: Sequence[Step], dues: Sequence[Due], laws: Mapping[int, Law], hidden: frozenset[int]) -> list[int]:
    found, context, before = [], NOWHERE, None
    for step, owed in zip(steps, dues, strict=True):
        law = laws.get(step.step)
        if owed.lag == 0 or before is None:
            context = NOWHERE
        elif law is None:
            context = UNKNOWN
        elif before[1] or before[0] in hidden:
            context = law.joined[before[0]] if before[0] < len(law.joined) else NOWHERE
        elif context != UNKNOWN:
            context = law.place[context] if 0 <= context < len(law.place) else NOWHERE
        found.append(context)
        before = step.request, owed.lag == 0
    return found
