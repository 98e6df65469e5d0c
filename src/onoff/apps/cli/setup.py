"""`onoff setup`: the file of URLs from the feeds of a feed reader."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from onoff.apps.cli.options import READ, AsJson
from onoff.apps.cli.output import print_json
from onoff.errors import CatalogueError, OnoffError
from onoff.text import LONG, plain


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel=READ, epilog="Example: onoff setup feeds.opml -o urls.json")(setup)


def setup(
    feeds: Annotated[
        str,
        typer.Argument(metavar="FEEDS", help="OPML, or one URL in a line and after it a name if you like; - is stdin."),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="JSON {name: URL}, for --urls.")],
    force: Annotated[bool, typer.Option("--force", help="Overwrite --out if it is there.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make the file of URLs from an OPML file or a list: ask for every URL once and follow its redirects.

    Names are the titles in small letters, with hyphens for spaces. A URL without a name takes its host and path. The
    file is sorted by names. Nothing is written if anything is wrong.
    """
    import asyncio

    from onoff.apps.progress import progress
    from onoff.client.feeds import find_urls
    from onoff.files import check_file, write_atomically

    check_file(out)
    if out.exists() and not force:
        raise OnoffError(f"{out}: exists already: give another name, or --force to overwrite it")
    try:
        found = asyncio.run(find_urls(feeds, bar=progress("asking")))
    except CatalogueError as error:
        if len(error.problems) < 2:
            raise
        for problem in error.problems:
            print(plain(problem, LONG), file=sys.stderr)
        advice = "correct them, or leave them out. Nothing was written"
        raise CatalogueError(f"{len(error.problems)} URLs cannot be used: {advice}") from None
    write_atomically(out, json.dumps(dict(found.urls), indent=2, ensure_ascii=False).encode() + b"\n")
    if as_json:
        print_json(found)
        return
    for name, url in found.redirected.items():
        print(f"{name}: {url} leads to {found.urls[name]}")
    print(f"{len(found.urls)} sources at {found.origins} web server{'s' if found.origins > 1 else ''}")
