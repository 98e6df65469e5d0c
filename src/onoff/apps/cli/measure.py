"""`onoff measure`: how long the messages are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from onoff.apps.cli.options import AsJson, Deadline
from onoff.apps.cli.printing import print_json
from onoff.apps.cli.shape import READ


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel=READ, epilog="Example: onoff measure urls.json --out lengths.json")(measure)


def measure(
    urls: Annotated[Path, typer.Argument(metavar="URLS", help="JSON {name: URL}.")],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="JSON {name: bytes}, for --lengths.")],
    deadline: Deadline = None,
    as_json: AsJson = False,
) -> None:
    """Fetch every URL once and write down how long each body is, to plan with real lengths."""
    import asyncio

    from onoff.apps.terminal import size
    from onoff.client.transport.web import HttpTransport
    from onoff.files import check_file, write_atomically

    async def fetch() -> dict[str, int]:
        transport = HttpTransport.load(urls, deadline)
        try:
            return await transport.measure()
        finally:
            await transport.close()

    check_file(out)
    lengths = asyncio.run(fetch())
    write_atomically(out, json.dumps(lengths, indent=2).encode() + b"\n")
    if as_json:
        print_json({"file": out, "bytes": sum(lengths.values()), "lengths": lengths})
    else:
        print(f"{len(lengths)} sources, {size(sum(lengths.values()))} in all")
