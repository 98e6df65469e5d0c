"""Plans that a stream used, verified as `onoff audit plan` does: what follows from a plan holds only if it is one."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from onoff.audit.models import has_table
from onoff.audit.plan import audit_plan
from onoff.audit.transcript.reading import Step
from onoff.audit.transcript.rules import due
from onoff.types import Bar, RandBelow, quiet

if TYPE_CHECKING:
    from onoff.model.chain import Chain
    from onoff.plans.base import Plan

LAGS = 5  # at which one plan is verified besides its own
TRIED = 2000  # draws of a table at most: how its client drew is tested from the journal


@dataclass(frozen=True)
class Exhibits:
    """The plans of a client as objects, `load`, which reads one from a file, and the files of those that have one.

    `findings` say which plans could not be read.
    """

    plans: Sequence[Plan]
    load: Callable[[Path], Plan]
    files: Mapping[str, Path] = field(default_factory=dict)
    findings: tuple[str, ...] = ()


def uses(steps: Sequence[Step]) -> dict[str, set[int]]:
    """The plans of the OFF steps of a journal, each with the lags that it served."""
    found: dict[str, set[int]] = {}
    for step, owed in zip(steps, due(steps), strict=True):
        if owed.lag:
            found.setdefault(step.plan, set()).add(owed.lag)
    return found


def uncertified(
    chain: Chain,
    exhibits: Exhibits,
    used: Mapping[str, Iterable[int]],
    draws: int,
    bar: Bar = quiet,
    randbelow: RandBelow = secrets.randbelow,
) -> list[str]:
    """What is wrong with the `used` plans, by their names, at the lags that they served.

    Of more than LAGS lags the smallest and largest and some between are looked at.
    """
    findings = []
    with TemporaryDirectory() as directory:
        for i, plan in enumerate(plan for plan in exhibits.plans if plan.name in used):
            file = exhibits.files.get(plan.name, Path(directory) / f"{i}.json")
            if plan.name not in exhibits.files:
                plan.save(file)
            tried = min(draws, TRIED) if has_table(plan) else draws
            lags = _some(sorted(used[plan.name]))
            verdict = audit_plan(chain, file, exhibits.load, lags, draws=tried, randbelow=randbelow, bar=bar)
            findings += [
                f"the plan {plan.name!r} is not certified: {finding.rule}: {finding.message}"
                for finding in verdict.findings
            ]
    return findings


def _some(lags: Sequence[int]) -> list[int]:
    if len(lags) <= LAGS:
        return list(lags)
    return [lags[i * (len(lags) - 1) // (LAGS - 1)] for i in range(LAGS)]
