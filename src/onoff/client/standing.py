"""How a client stands, read off its journal without opening it for use: what it has done, and what comes next."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from onoff.client.journalfile import explained
from onoff.client.promises import gaps
from onoff.client.settings import SINCE, loaded, remembered_chain, since_from, weighing_from
from onoff.client.snapshot import Snapshot, snapshot
from onoff.errors import OnoffError
from onoff.everyday import Everyday, Step
from onoff.model.chain import Chain
from onoff.plans.plan import Plan
from onoff.plans.planner import Planner


@dataclass(frozen=True)
class Standing:
    """What the next request would use while OFF, if one has counted as ON: a `plan`, or a `step` of the promise "past".

    Sums count from step `since`.
    """

    journal: Snapshot
    chain: Chain
    lengths: tuple[float, ...] | None
    since: int
    plan: Plan | None = None
    step: Step | None = None


def standing(path: Path, chain: Chain | str | Path | None = None, plans: str | Path | None = None) -> Standing:
    """How the client of a journal stands. The chain is the remembered one unless it is given."""
    notes = snapshot(path).notes
    known = remembered_chain(notes, path) if chain is None else loaded(chain)
    weighing, since = weighing_from(notes), since_from(notes.get(SINCE))
    lengths = None if weighing is None else weighing.lengths
    found = snapshot(path, lengths, since)
    if known.fingerprint != found.chain:
        raise OnoffError(f"{path}: is the journal of another chain; give the one that it was made with (--chain)")
    plan = step = None
    after = found.state.answered
    if found.rows is not None:
        with explained(path):
            rows = Everyday.from_dict(known, found.rows)
        number = found.state.step + (found.state.pending is not None)
        step = rows.prepare(None if weighing is None else weighing.after(gaps(found.asked, number, known.n)))
    elif after.last is not None:
        plan = Planner(known, plans, lengths, background=False).best(after.lag + 1)
    return Standing(found, known, lengths, since, plan, step)
