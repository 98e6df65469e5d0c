"""`onoff audit switching`: what leaks if privacy is switched because of the request."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: onoff audit switching chain.csv --sensitive health,politics")(switching)


def switching(
    chain: Annotated[Path, typer.Argument(metavar="CHAIN", help="A chain file, .json or .csv.")],
    sensitive: Annotated[str, typer.Option(metavar="NAMES", help="The sources for which privacy is ON: a,b,c.")],
    steps: Annotated[int, typer.Option(min=2, max=20, help="Requests of a stream; all streams are enumerated.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """What the server learns of each private request of a user who goes ON exactly for sensitive sources.

    Beside it: a user who goes ON as often, but by chance. The client is ours; the promise covers the second user only.
    """
    from onoff.apps.cli.audit.joint import bits, first_request, plans_for
    from onoff.apps.terminal import print_table
    from onoff.audit.joint.switching import chance_user, sensitive_user
    from onoff.audit.joint.switching import switching as measure
    from onoff.audit.models import Everything, Model, Planned
    from onoff.audit.setting import Plans, start_law
    from onoff.model.chain import Chain
    from onoff.plans.table import TablePlan

    loaded = Chain.load(chain)
    sources = [loaded.index(name.strip()) for name in sensitive.split(",")]
    start = start_law(loaded)
    plans = plans_for("optimal", loaded, range(1, steps))
    tables = Plans("optimal", loaded.n, [Planned(plan) for plan in plans if isinstance(plan, TablePlan)])
    views: list[tuple[str, Model]] = [("statuses", Everything(loaded.n)), ("and queries", tables)]
    users = {
        "if sensitive": sensitive_user(loaded, sources),
        "by chance": chance_user(loaded, sources, start),
    }
    found = [
        (user, seen, measure(loaded, model, chances, start, steps))
        for user, chances in users.items()
        for seen, model in views
    ]
    if as_json:
        data = [{"user": user, "seen": seen, "steps": [asdict(s) for s in measured]} for user, seen, measured in found]
        print(json.dumps(data, indent=2))
        return
    print_table(
        "what the server learns about a request that was made ON",
        ["goes ON", "server sees", "step", "how often", "bits", "prior guess", "guess"],
        [
            [user, seen, str(s.step), f"{s.frequency:.3f}", bits(s.bits), f"{s.prior_guess:.3f}", f"{s.guess:.3f}"]
            for user, seen, measured in found
            for s in measured
        ],
    )
    print(first_request(loaded))
