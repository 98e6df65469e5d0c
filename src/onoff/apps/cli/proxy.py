"""`onoff proxy`: a private door for any program of this machine. `onoff setup`: its file of URLs, from feeds."""

from __future__ import annotations

import errno
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onoff.apps.cli.options import (
    READ,
    TOKEN,
    AsJson,
    Cache,
    Deadline,
    Delay,
    Keep,
    Record,
    Relearn,
    Sensitive,
    Server,
    Urls,
    UserAgent,
    parse_sources,
    parse_switch,
)
from onoff.apps.cli.output import note, print_json
from onoff.apps.cli.read import note_new
from onoff.errors import CatalogueError, JournalLocked, OnoffError
from onoff.text import LONG, plain

if TYPE_CHECKING:
    from onoff.client.queue import RequestQueue


def register(app: typer.Typer) -> None:
    app.command(
        rich_help_panel=READ,
        epilog="Example: onoff proxy --urls urls.json --chain habits.json --sensitive health,politics",
    )(proxy)
    app.command(rich_help_panel=READ, epilog="Example: onoff setup feeds.opml -o urls.json")(setup)


def proxy(
    *,
    urls: Urls = None,
    server: Server = None,
    chain: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Your habits; remembered. Without it they are learned.")
    ] = None,
    promise: Annotated[
        str | None, typer.Option(metavar="past|all", help="For a new journal; all asks for everything, always.")
    ] = None,
    sensitive: Sensitive = None,
    journal: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The state; made if it is not there. Not that of `onoff get`.")
    ] = None,
    relearn: Relearn = False,
    switch_on: Annotated[
        bool, typer.Option("--on", help="Start with privacy ON; without --on and --off the switch is as it was left.")
    ] = False,
    switch_off: Annotated[bool, typer.Option("--off", help="Start with privacy OFF.")] = False,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 8800,
    record: Record = None,
    cache: Cache = None,
    keep: Keep = None,
    user_agent: UserAgent = None,
    delay: Delay = 0.05,
    deadline: Deadline = None,
) -> None:
    """Serve every program on this machine privately: GET /NAME is one request for the source NAME.

    GET / is a page with the sources, the privacy switch and what was downloaded. Stop with Ctrl-C or SIGTERM; a step
    that is under way is finished, or stays pending and is finished at the next start. A line of JSON on stdout says
    when and where requests are answered.
    """
    import asyncio
    import logging

    from onoff.apps.proxy.app import is_loopback, run
    from onoff.client.connect import connect, default_journal

    private = parse_switch(switch_on, switch_off)
    logging.basicConfig(format="onoff: %(message)s", level=logging.WARNING)
    path = journal or default_journal().with_name("proxy")
    _refuse_announced(path)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    client = connect(
        chain, server=server, urls=urls, journal=path, promise=promise, sensitive=parse_sources(sensitive),
        record=record, cache=cache, keep=keep, token=os.environ.get(TOKEN), delay=delay, deadline=deadline,
        relearn=relearn, user_agent=user_agent,
    )  # fmt: skip
    if not is_loopback(host):
        note(
            f"{host} can be reached by others: whoever does asks in your name and reads what you can. Browsers do not "
            "say there which page a request comes from, so pages of others can make steps, too"
        )

    def opened(queue: RequestQueue) -> None:
        note_new(client)
        if private is not None:
            queue.switch(private)
        habits = client.habits
        if habits is not None and habits.stage != "known" and not client.journal.created:  # a new one has said so
            note(habits.words(path))
        if client.journal.state.pending is not None:
            note("a request is pending since the last time: it is finished before the next one")
        if queue.full_sets_due:
            note(
                "the proxy was killed, or a program got no message. Requests to come that are made ON for that: "
                f"{queue.full_sets_due}"
            )

    def ready(url: str) -> None:
        print(json.dumps({"event": "ready", "url": url, "pid": os.getpid()}), flush=True)

    try:
        asyncio.run(run(client, host, port, opened=opened, ready=ready))
    except OnoffError as error:
        if not isinstance(error, JournalLocked) and getattr(error.__cause__, "errno", None) != errno.EADDRINUSE:
            raise
        advice = "A proxy that runs is switched by `curl -X PUT -d off http://HOST:PORT/onoff/privacy`"
        raise type(error)(f"{error}. {advice}") from None


def _refuse_announced(path: Path) -> None:
    """Raise an error if a journal is for requests that announce the next one: no program does."""
    from onoff.client.status import snapshot

    if path.exists() and snapshot(path).promise == "both":
        raise OnoffError(
            f"{path}: was made for the promise 'both', which needs the next request, and other programs cannot "
            "announce it: name another journal"
        )


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
