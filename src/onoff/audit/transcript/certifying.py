"""Plans that a stream used, verified as `onoff audit plan` does: what follows from a plan holds only if it is one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from onoff.audit.plan.verify import verify
from onoff.audit.transcript.reading import Step
from onoff.audit.transcript.rules import due

if TYPE_CHECKING:
    from onoff.model.chain import Chain
    from onoff.plans.base import Plan

LAGS = 5  # at which one plan is verified besides its own
TRIED = 2000  # draws of a table at most: how its client drew is tested from the journal
Bar = Callable[[int], AbstractContextManager[Callable[[], None]]]


def uses(steps: Sequence[Step]) -> dict[str, set[int]]:
    """The plans of the OFF steps of a journal, each with the lags that it served."""
    found: dict[str, set[int]] = {}
    for step, owed in zip(steps, due(steps), strict=True):
        if owed.lag:
            found.setdefault(step.plan, set()).add(owed.lag)
    return found


def uncertified(
    chain: Chain,
    files: Mapping[str, Path],
    used: Mapping[str, Iterable[int]],
    load: Callable[[Path], Plan],
    draws: int,
    bar: Bar = lambda total: nullcontext(lambda: None),
) -> list[str]:
    """What is wrong with the plans in these files, by their names, at the lags that they served.

    Of more than LAGS lags the smallest and largest and some between are looked at.
    """
    findings = []
    for name, file in files.items():
        tried = draws if name.startswith("race, ") else min(draws, TRIED)
        verdict = verify(chain, file, load, _some(sorted(used.get(name, ()))), draws=tried, bar=bar)
        findings += [
            f"the plan {name!r} is not certified: {finding.rule}: {finding.message}" for finding in verdict.findings
        ]
    return findings


def _some(lags: Sequence[int]) -> list[int]:
    if len(lags) <= LAGS:
        return list(lags)
    return [lags[i * (len(lags) - 1) // (LAGS - 1)] for i in range(LAGS)]
