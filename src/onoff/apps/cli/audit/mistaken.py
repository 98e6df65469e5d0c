"""`onoff audit joint --true-chain`: what a client tells whose chain is not the true one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from onoff.errors import OnoffError

if TYPE_CHECKING:
    from onoff.apps.cli.audit.joint import Setting
    from onoff.audit.joint.mistaken import Mistaken
    from onoff.audit.setting import Leakage
    from onoff.model.chain import Chain

OPENLY = ("everything", "naive", "decoys")


def audit_mistaken(setting: Setting, true: Chain, wanted: Sequence[str], uniform: bool, as_json: bool) -> bool:
    """Print bound and exact value for each scheme with plans, beside clients without; whether the bounds hold."""
    from onoff.apps.cli.audit.joint import first_request
    from onoff.audit.setting import start_law
    from onoff.model.misfit import aligned, check

    true = aligned(true, setting.chain)
    check(true, setting.chain)
    planned = [name for name in wanted if name not in OPENLY]
    if "race" in planned:
        raise OnoffError("a race has no table that could be enumerated: choose another --scheme; its bound is the same")
    here = replace(setting, start=start_law(true, uniform))
    found = [_planned(name, here, true) for name in planned]
    others = [_openly(name, here, true) for name in wanted if name in OPENLY]
    if as_json:
        parts = [asdict(one) | {"holds": one.holds} for one in found] + [asdict(one) for one in others]
        print(json.dumps(parts, indent=2))
    else:
        _print(setting.statuses, found, others)
        print(first_request(true, uniform))
    return all(one.holds for one in found)


def _planned(name: str, setting: Setting, true: Chain) -> Mistaken:
    from onoff.apps.cli.audit.joint import plans_for
    from onoff.audit.joint.mistaken import mistaken
    from onoff.audit.models import Planned
    from onoff.audit.setting import Plans, lags_of
    from onoff.plans.table import TablePlan

    used = setting.chain
    lags = sorted(set(lags_of(setting.statuses)) - {0})
    plans = plans_for(name, used, lags, setting.given)
    tables = Plans(name, used.n, [Planned(plan) for plan in plans if isinstance(plan, TablePlan)])
    return mistaken(true, used, setting.statuses, tables, setting.start, tables.rounding_at)


def _openly(name: str, setting: Setting, true: Chain) -> Leakage:
    from onoff.audit.joint.strongest import audit
    from onoff.audit.models import Decoys, Everything, Model, Naive

    n = true.n
    model: Model = Everything(n) if name == "everything" else Naive(n) if name == "naive" else Decoys(n, setting.decoys)
    return audit(true, setting.statuses, model, setting.start, streams=setting.streams, seed=setting.seed)


def _print(statuses: Sequence[bool], found: Sequence[Mistaken], others: Sequence[Leakage]) -> None:
    from onoff.apps.cli.audit.joint import at_most, bits
    from onoff.apps.terminal import print_table

    columns = [*(one.scheme for one in found), *(one.scheme for one in others)]
    rows = []
    for t, private in enumerate(statuses):
        cells = [("<= " if one.found.method == "bound" else "") + bits(one.found.bits[t]) for one in found]
        most = [at_most(max(one.bits[t] for one in found))] if found else []
        rows.append([str(t + 1), "ON" if private else "OFF", *most, *cells, *(bits(one.bits[t]) for one in others)])
    title = "bits that the queries up to t tell about requests made ON and after t, if they follow the true chain"
    print_table(title, ["t", "status", *(["bound"] if found else []), *columns], rows)
    for one in found:
        exact = one.found.method != "bound"
        what = (
            f"total variation from independence {one.found.distance:.2e}, "
            if exact
            else "too many streams to enumerate; "
        )
        limits = f"at most {2 * one.distances[-1]:.2e}; " if exact else ""
        verdict = "within the bound" if one.holds else "MORE THAN THE BOUND"
        steps = f"its encoders make {one.encoders:.2e} of {one.anywhere[-1]:.2e}"
        print(f"{one.scheme}: {what}{limits}{steps}: {verdict}")
    if found:
        here, anywhere = (max(getattr(one, name)[-1] for one in found) for name in ("distances", "anywhere"))
        print(
            "a guess at what is hidden is right more often than without the queries by "
            f"{at_most(min(here, 1.0))} at most, and by {at_most(min(anywhere, 1.0))} wherever the stream starts"
        )
