"""`onoff audit switching`: what leaks if privacy is switched because of the request."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onoff.apps.cli.options import AUDIT, AsJson
from onoff.apps.cli.output import print_json


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel=AUDIT, epilog="Example: onoff audit switching chain.csv --sensitive health,politics")(
        switching
    )


def switching(
    chain: Annotated[Path, typer.Argument(metavar="CHAIN", help="A chain file, .json or .csv.")],
    sensitive: Annotated[str, typer.Option(metavar="NAMES", help="The sources for which privacy is ON: a,b,c.")],
    steps: Annotated[int, typer.Option(min=2, max=20, help="Requests of a stream; all streams are enumerated.")] = 3,
    as_json: AsJson = False,
) -> None:
    """Compute what the server learns about a user who goes ON exactly for sensitive sources.

    Beside it: a user who goes ON as often, but by chance. The client is ours; the promise covers the second user only.
    """
    from onoff.apps.cli.audit.joint import plans_for
    from onoff.apps.cli.audit.showjoint import bits, first_request
    from onoff.apps.cli.output import print_table
    from onoff.audit.joint import audit_switching
    from onoff.model.chain import Chain

    loaded = Chain.load(chain)
    sources = [loaded.index(name.strip()) for name in sensitive.split(",")]
    plans = plans_for("optimal", loaded, [True, *[False] * (steps - 1)])
    found = audit_switching(loaded, sources, plans, steps)
    if as_json:
        print_json(found)
        return
    print_table(
        "what the server learns about a request that was made ON",
        ["goes ON", "server sees", "t", "how often", "bits", "prior guess", "guess"],
        [
            [
                one.user,
                one.seen,
                str(s.step),
                f"{s.frequency:.3f}",
                bits(s.bits),
                f"{s.prior_guess:.3f}",
                f"{s.guess:.3f}",
            ]
            for one in found
            for s in one.steps
        ],
    )
    print(first_request(loaded))
