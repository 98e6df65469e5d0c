"""Whether a recorded law is what the promise needs, against the rows of every hidden past."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from onoff.audit.everyday.pasts import LOST, Pasts
from onoff.audit.everyday.record import Fault, Law
from onoff.audit.measures import information
from onoff.model.powers import UNIT, times
from onoff.types import Floats, Mask

COARSE = 2.0**-30  # a step that states more is not certified, whatever it does
RARE = 1e6  # how much more a merge of contexts may cost in one past than on average: with probability 2 / RARE at most


@dataclass(frozen=True)
class Checked:
    """One law against the pasts that may have come before it.

    `distance` is the largest total variation, over hidden pasts, between the law of the query and the stated one, and
    `average` its mean over what the server believes. `bits` is what the query tells about all that is hidden, given the
    queries before it. `error` bounds what the floats of the audit add to `distance`.
    """

    faults: tuple[Fault, ...]
    distance: float
    average: float
    bits: float
    error: float


def check(pasts: Pasts, law: Law, charged: float = 0.0) -> Checked:
    """Check the law of this step; `charged` is the largest charge since the last full set, before this step.

    In a context the encoder is made for the row of one past, so given another one the query is off by the stated
    rounding and the distance of the two rows. Rows of pasts that came to share a context at this step must be as near
    as the charge says. Where the past of the encoder may have been forgotten, a distance may also come from an earlier
    merge: what that was charged with is an average, which one past exceeds RARE times with probability 2 / RARE.
    """
    n, sensitive = pasts.chain.n, pasts.sensitive
    faults = [*well_formed(law, n, sensitive), *served(law, n, sensitive), *_homes(pasts, law), *_merges(pasts, law)]
    if law.rounding > COARSE:
        message = f"a rounding of {law.rounding:.1e} is stated: too much for one step"
        faults.append(Fault("coarse", message, law.rounding))
    if law.rounding < law.charge:  # a charge excuses distances: it must be in the sum that is judged
        message = f"a rounding of {law.rounding:.1e} is stated, but merging alone is charged with {law.charge:.1e}"
        faults.append(Fault("charge", message, law.charge))
    laws, chances, used = query_laws(pasts, law)
    if not len(laws):
        return Checked(tuple(faults), 0.0, 0.0, 0.0, 0.0)
    apart = np.abs(laws - law.stated).sum(axis=1) / 2
    distance, average = float(apart.max()), float((apart * chances).sum() / chances.sum())
    error = float(pasts.errors.max()) + len(law.sets) * UNIT
    earlier = RARE * max(charged, law.charge) if pasts.forgotten else 0.0
    homes, inside = pasts.homes(law)[used], _normalised(np.where(pasts.open_sources, pasts.weight, 0.0)[used])
    for context in np.unique(homes):
        here = homes == context
        most, allowed = float(apart[here].max()), law.rounding + error + earlier + _width(inside[here])
        if most > allowed:
            message = (
                f"context {context}: given some past the query is {most:.1e} from the stated law, not {allowed:.1e}"
            )
            faults.append(Fault("rows", message, most))
    joint = np.concatenate([laws * chances[:, None], law.stated[None] * max(0.0, 1 - float(chances.sum()))])
    return Checked(tuple(faults), distance, average, information(joint[joint.sum(axis=1) > 0]), error)


def query_laws(pasts: Pasts, law: Law) -> tuple[Floats, Floats, Mask]:
    """For each thing after which an open request is possible: the law of the query then, how likely that is, and which.

    The law is sum_x r(x) w(. | x), r being the row of the thing over the open sources. After sensitive requests the law
    is the stated one.
    """
    n, sets, homes = pasts.chain.n, len(law.sets), pasts.homes(law)
    inside = np.where(pasts.open_sources, pasts.weight, 0.0)
    chances = inside.sum(axis=1)
    laws = np.zeros((len(chances), sets))
    for context in np.unique(homes):
        table = law.tables.get(int(context))
        if table is not None:
            here = homes == context
            rows = inside[here] / np.maximum(chances[here], np.finfo(float).tiny)[:, None]
            laws[here] = times(rows, table.chances(n, sets))
    used = chances > 0
    return laws[used], chances[used], used


def _normalised(weights: Floats) -> Floats:
    totals = weights.sum(axis=1, keepdims=True)
    result: Floats = weights / np.maximum(totals, np.finfo(float).tiny)
    return result


def _width(rows: Floats) -> float:
    """A bound on the largest total variation between two of the rows."""
    return float(np.abs(rows - rows[0]).sum(axis=1).max())


def _merges(pasts: Pasts, law: Law) -> Iterator[Fault]:
    """Contexts that came to be one at this step have rows as near to each other as the charge says."""
    homes, rows = pasts.homes(law), _normalised(pasts.weight)
    error = float(pasts.errors.max())
    for context in np.unique(homes[homes != LOST]):
        groups: dict[tuple[str, int], list[int]] = {}
        for k in np.flatnonzero(homes == context).tolist():
            new = pasts.made[k] == pasts.step - 1
            key = ("source", int(pasts.sources[k])) if new else ("context", int(pasts.contexts[k]))
            groups.setdefault(key, []).append(k)
        first, *others = groups.values()
        width = {id(group): _width(rows[group]) for group in (first, *others)}
        for group in others:
            apart = float(np.abs(rows[first[0]] - rows[group[0]]).sum() / 2)
            if apart > 2 * law.charge + width[id(first)] + width[id(group)] + 2 * error:
                message = f"context {context} stands for rows that are {apart:.1e} apart: {law.charge:.1e} is charged"
                yield Fault("merge", message, apart)


def well_formed(law: Law, n: int, sensitive: tuple[int, ...]) -> Iterator[Fault]:
    """Faults of sets and masses: every set holds every sensitive source."""
    hidden = set(sensitive)
    if sum(law.masses) != law.denominator:
        yield Fault("law", "the masses do not sum to the denominator", abs(sum(law.masses) / law.denominator - 1))
    if len(set(law.sets)) < len(law.sets):
        yield Fault("law", "a set occurs twice")
    for query in law.sets:
        if not query or list(query) != sorted(set(query)) or query[-1] >= n:
            yield Fault("law", f"{query} is not a set of sources")
        if hidden - set(query):
            yield Fault("sensitive", f"the set {query} lacks a sensitive source")


def served(law: Law, n: int, sensitive: tuple[int, ...]) -> Iterator[Fault]:
    """Faults of encoders: their columns are the masses to the unit, and every request is in its set."""
    hidden = set(sensitive)
    inside = np.zeros((n, len(law.sets)), dtype=bool)
    for column, query in enumerate(law.sets):
        inside[[x for x in query if x < n and x not in hidden], column] = True
    masses = np.array(law.masses, dtype=np.int64)
    for context, table in law.tables.items():
        if len(table.request) and table.request.max() >= n:
            yield Fault("encoder", f"context {context}: a request that is no source")
            continue
        if not inside[table.request, table.column][table.units > 0].all():
            yield Fault("encoder", f"context {context}: a request has units on a set without it")
        off = np.abs(table.columns(len(masses)) - masses)
        if off.any():
            message = f"context {context}: the column of {law.sets[int(off.argmax())]} does not sum to its mass"
            yield Fault("encoder", message, float(off.max()) / law.denominator)


def _homes(pasts: Pasts, law: Law) -> Iterator[Fault]:
    """Every thing after which an open request is possible has an encoder that serves it, and no other has one."""
    n, homes = pasts.chain.n, pasts.homes(law)
    open_ones = pasts.possible & pasts.open_sources
    live = np.asarray(open_ones.any(axis=1))
    for context in np.unique(homes[live]).tolist():
        here = np.flatnonzero(live & (homes == context))
        if context not in law.tables:
            source, made = pasts.chain.names[pasts.sources[here[0]]], int(pasts.made[here[0]])
            what = "has no context" if context == LOST else f"is in context {context}, which has no encoder"
            yield Fault("context", f"a reader who asked for {source!r} at step {made} {what}")
            continue
        unserved: Mask = open_ones[here].any(axis=0) & (law.tables[context].totals(n) == 0)
        if unserved.any():
            name = pasts.chain.names[int(unserved.argmax())]
            yield Fault("context", f"context {context} does not serve {name!r}, which is possible in it")
    if not (pasts.forgotten or pasts.spare):
        for context in set(law.tables) - set(homes[live].tolist()):
            yield Fault("context", f"context {context} has an encoder, but nobody can be in it")
