"""`onoff proxy`: a private door for any program of this machine. It runs what `onoff setup` has set up."""

from __future__ import annotations

import errno
import json
import os
from typing import TYPE_CHECKING, Annotated

import typer

from onoff.apps.cli.options import (
    READ,
    TOKEN,
    Cache,
    Deadline,
    Delay,
    Directory,
    Keep,
    Record,
    Relearn,
    UserAgent,
    parse_switch,
)
from onoff.apps.cli.output import note
from onoff.apps.cli.read import note_new
from onoff.errors import JournalLocked, OnoffError

if TYPE_CHECKING:
    from onoff.client.queue import RequestQueue


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel=READ, epilog="Example: onoff proxy")(proxy)


def proxy(
    *,
    directory: Directory = None,
    relearn: Relearn = False,
    switch_on: Annotated[
        bool, typer.Option("--on", help="Start with privacy ON; without --on and --off the switch is as it was left.")
    ] = False,
    switch_off: Annotated[bool, typer.Option("--off", help="Start with privacy OFF.")] = False,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Another port than was set up; 0 takes a free one.")
    ] = None,
    record: Record = None,
    cache: Cache = None,
    keep: Keep = None,
    user_agent: UserAgent = None,
    delay: Delay = 0.05,
    deadline: Deadline = None,
) -> None:
    """Serve every program on this machine privately what is set up: GET /NAME is one request for the source NAME.

    GET / is a page with the sources, the privacy switch and what was downloaded. Stop with Ctrl-C or SIGTERM; a step
    that is under way is finished, or stays pending and is finished at the next start. A line of JSON on stdout says
    when and where requests are answered.
    """
    import asyncio
    import logging

    from onoff.apps.proxy.app import is_loopback, run
    from onoff.apps.setup import Setup, default_directory

    private = parse_switch(switch_on, switch_off)
    logging.basicConfig(format="onoff: %(message)s", level=logging.WARNING)
    made = Setup.load(directory or default_directory())
    client = made.client(
        record=record, cache=cache, keep=keep, token=os.environ.get(TOKEN), delay=delay, deadline=deadline,
        relearn=relearn, user_agent=user_agent,
    )  # fmt: skip
    if not is_loopback(host):
        note(
            f"{host} can be reached by others: whoever does asks in your name and reads what you can. Browsers do not "
            "say there which page a request comes from, so pages of others can make steps, too"
        )

    def opened(queue: RequestQueue) -> None:
        made.settle()
        note_new(client)
        if private is not None:
            queue.switch(private)
        habits = client.habits
        if habits is not None and habits.stage != "known" and not client.journal.created:  # a new one has said so
            note(habits.words(made.journal))
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
        asyncio.run(run(client, host, made.port if port is None else port, opened=opened, ready=ready))
    except OnoffError as error:
        if not isinstance(error, JournalLocked) and getattr(error.__cause__, "errno", None) != errno.EADDRINUSE:
            raise
        advice = "A proxy that runs is switched by `curl -X PUT -d off http://HOST:PORT/onoff/privacy`"
        raise type(error)(f"{error}. {advice}") from None
