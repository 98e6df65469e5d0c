"""Separation: which cuts Pr[Q meets C] >= pi(C) a law violates, looking first where that is likely."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from onoff.model.powers import counts, times, whole_times
from onoff.schemes.law import Law, Member
from onoff.schemes.realisation.repair import Repair
from onoff.types import Floats

TABLE_LIMIT = 10  # sources up to which all 2^n cuts are tabulated


@dataclass(frozen=True)
class Scan:
    """What a scan found: short contexts (indices of rows) and by how much in all, new cuts, whether it was complete."""

    short: list[int]
    total: float
    cuts: Member
    complete: bool


class Separator:
    """Scans the contexts of one table of rows, round after round."""

    def __init__(self, rows: Floats) -> None:
        self.rows = rows
        self.n = rows.shape[1]
        self.most = max(20, 2 * self.n)  # cuts returned by a scan
        self._single = rows.astype(np.float32)
        self._seen_fit = np.zeros(len(rows))  # the round in which a context was last seen realisable
        self._round = 0
        if self.n <= TABLE_LIMIT:
            self._every = ((np.arange(1 << self.n)[:, None] >> np.arange(self.n)) & 1).astype(bool)
            self._reached = times(rows, self._every.T).max(axis=0)

    def table(self, law: Law, cuts: Member, tolerance: float) -> Member:
        """The most violated of all 2^n cuts (small n)."""
        inside = np.zeros(1 << self.n)
        np.add.at(inside, whole_times(law.member, 1 << np.arange(self.n)), law.mass / law.total)
        for x in range(self.n):
            halves = inside.reshape(-1, 2, 1 << x)
            halves[:, 1] += halves[:, 0]
        lack = self._reached - 1 + inside[::-1]  # a cut is missed by the sets in its complement: the reversed index
        deep = np.argsort(-lack)[: self.most]
        return novel(self._every[deep[lack[deep] > tolerance]], cuts)

    def scan(self, repair: Repair, cuts: Member, budget: float, deadline: float) -> Scan:
        """Flows through the contexts, those nearest to a known cut first, then those checked longest ago.

        It ends early when it has found enough cuts, or none for a while; but not while the total shortfall is so
        small that repairing it costs less than `budget`.
        """
        law = repair.law
        met = times(counts(cuts, law.member.T) > 0, law.mass / law.total)
        room = (met.astype(np.float32) - times(self._single, cuts.T.astype(np.float32))).min(axis=1)
        order = self._seen_fit + 1e-3 * room
        near = np.argsort(room)[: 2 * self.n]
        order[near] = -1 + room[near]
        self._round += 1
        known, found = set(keys(cuts)), []
        short: list[int] = []
        total, quiet, complete = 0.0, 0, True
        for step, u in enumerate(np.argsort(order)):
            missing = repair.shortfall(self.rows[u])
            quiet += 1
            self._seen_fit[u] = 0 if missing else self._round
            if missing:
                short.append(int(u))
                total += missing / law.total
                for cut in repair.cuts():
                    key = np.packbits(cut).tobytes()
                    if key not in known:
                        known.add(key)
                        found.append((missing, cut))
                        quiet = 0
            enough = len(found) >= 2 * self.most or quiet > 2 * self.n
            if (total > budget and found and enough) or (step % 64 == 63 and time.monotonic() > deadline):
                complete = False
                break
        found.sort(key=lambda entry: -entry[0])
        deepest = np.array([cut for _, cut in found[: self.most]], dtype=bool).reshape(-1, self.n)
        return Scan(short, total, deepest, complete)


def keys(member: Member) -> list[bytes]:
    """Hashable keys of the rows of a boolean matrix."""
    return [row.tobytes() for row in np.packbits(member, axis=1)]


def novel(new: Member, old: Member) -> Member:
    """The distinct rows of `new` that are not rows of `old`, in their order."""
    seen = set(keys(old))
    keep = []
    for i, key in enumerate(keys(new)):
        if key not in seen:
            seen.add(key)
            keep.append(i)
    return new[keep]
