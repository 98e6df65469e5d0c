"""`onoff measure`: how long the messages are, and how often they change."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onoff.apps.cli.options import READ, AsJson, Deadline
from onoff.apps.cli.output import print_json


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel=READ, epilog="Example: onoff measure urls.json --out lengths.json")(measure)


def measure(
    urls: Annotated[Path, typer.Argument(metavar="URLS", help="JSON {name: URL}.")],
    out: Annotated[
        Path,
        typer.Option("-o", "--out", metavar="FILE", help="For --lengths; if it is there, one more visit is noted."),
    ],
    deadline: Deadline = None,
    as_json: AsJson = False,
) -> None:
    """Fetch every URL once and note how long each body is and, over repeated visits, how often it changes.

    Clients and plans then count bytes (--lengths). A source that was visited once counts as changing every time.
    """
    import asyncio

    from onoff.apps.cli.output import counted, size
    from onoff.client.measuring import Measured, measured_before
    from onoff.client.measuring import measure as visit
    from onoff.client.transport.web import HttpTransport
    from onoff.files import check_file

    async def measured() -> Measured:
        transport = HttpTransport.load(urls, deadline)
        try:
            return await visit(transport, measured_before(out, transport.names))
        finally:
            await transport.close()

    check_file(out)
    found = asyncio.run(measured())
    found.save(out)
    if as_json:
        print_json({"file": out, "bytes": found.bytes, "visits": found.visits, "sources": found.sources})
    else:
        print(f"{len(found.sources)} sources, {size(found.bytes)} in all, {counted(found.visits, 'visit')}")
