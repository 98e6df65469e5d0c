"""What a plan says about costs. Nothing here is privacy, and nothing of a verdict on privacy rests on it.

The lower bound of a table rests on multipliers in its file: the planner's own code says what they prove
(`onoff.schemes.certificate`). The cost of a race is an estimate, and is tested.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from onoff.audit.files import readable, source_set, whole
from onoff.audit.law import Finding, Law
from onoff.files import reading
from onoff.model.bounds import up

NEAR = 1e-12  # a share of a lower bound: floats may differ in last digits
RATE = 1e-6  # how often a true statement about a race's cost is called false
LIMIT = 4.8917  # a normal variable lies beyond +-LIMIT with probability RATE
FEW = 300  # draws behind a stated cost
WIDE = 3  # times the width that FEW draws give: no interval is as wide


def read_certificate(file: Path, n: int) -> dict[str, Any]:
    """Read what a plan file states of all schemes. Its loader believes it only if the plan has the user's seal."""
    with reading(file), readable(f"{file}: what it states of all schemes cannot be read"):
        data = json.loads(file.read_bytes())
        found = data.get("certificate") or {"kind": "outer", "bound": data["lower_bound"], "cuts": [], "weights": []}
        cuts = [source_set(cut, n) for cut in found["cuts"]]
        weights = [whole(weight, 2**62 + 1) for weight in found["weights"]]
        number = {"outer": 0, "cuts": len(cuts), "sizes": n}[found["kind"]]
        if len(weights) != number or not math.isfinite(found["bound"]):
            raise ValueError(f"{len(weights)} weights prove a bound of {found['bound']!r} by {found['kind']}")
        return {**found, "cuts": cuts, "weights": weights}


def check_bound(stated: float, proved: float, law: Law | None) -> Iterator[Finding]:
    """Compare the stated lower bound with what is proved, and the cost of a table with the bound.

    Rounding may move 4 n units of a law, so it may cost less than the bound by that share.
    """
    if not 0 < stated <= proved * (1 + NEAR):
        yield Finding("bound", f"a lower bound of {stated!r} is stated, {proved!r} is proved", amount=stated - proved)
    if law is not None:
        short, n = Fraction(stated) - law.cost, len(law.sets[-1])
        if short > Fraction(stated) * 4 * n / law.denominator:
            message = f"the law costs {up(law.cost)!r}, less than the lower bound {stated!r} for all schemes"
            yield Finding("cost", message, amount=up(short))


@dataclass(frozen=True)
class RaceCost:
    """The mean size of fresh draws of a race, its standard error, and the error of a mean of FEW draws (`behind`)."""

    mean: float
    error: float
    behind: float


def estimate_cost(sizes: Sequence[int], n: int) -> RaceCost:
    """Estimate the cost of a race from the sizes of its queries.

    `behind` says how far a statement from FEW draws may lie off, so nothing that is stated enters it. Large queries
    that are too rare to be seen here, all of a chance below ln(1 / RATE) / (number of draws), may have been seen there:
    they are allowed for.
    """
    mean, deviation, count = float(np.mean(sizes)), float(np.std(sizes, ddof=1)), len(sizes)
    unseen = (n - 1) * math.sqrt(-math.log(RATE) / count)
    return RaceCost(mean, deviation / math.sqrt(count), math.hypot(deviation, unseen) / math.sqrt(FEW))


def check_race_cost(found: RaceCost, cost: float, interval: tuple[float, float], proved: float) -> Iterator[Finding]:
    """Find what speaks against the stated cost and interval, at the error rate RATE."""
    fresh = f"fresh draws have the mean {found.mean:.4f} ± {found.error:.4f} (error rate {RATE:g})"
    half, fair = max(interval[1] - cost, cost - interval[0]), 1.96 * found.behind
    if abs(found.mean - cost) > LIMIT * math.hypot(found.error, found.behind):
        yield Finding("race cost", f"the cost {cost:.4f} is stated; {fresh}", amount=abs(cost - found.mean))
    if half > WIDE * fair:
        yield Finding("race interval", f"the cost is stated ± {half:.4f}; {FEW} draws give ± {fair:.4f}")
    if cost + LIMIT * found.behind < proved:
        yield Finding("race bound", f"the cost {cost:.4f} is stated, less than {proved!r}, proved for all")
