"""`onoff setup` and `onoff proxy`: from a list of feeds to a private door for any program of this machine."""

from __future__ import annotations

import errno
import json
import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onoff.apps.cli import options
from onoff.apps.cli.output import amount, note, note_new, print_json
from onoff.errors import CatalogueError, JournalLocked, OnoffError
from onoff.files import make_directory, write_atomically

if TYPE_CHECKING:
    from onoff.apps.setup import Setup
    from onoff.client.feeds import Entry, FoundUrls, Source
    from onoff.client.queue import RequestQueue

# Of the lines that shut a service in, those that the systemd of a user can do without the rights of the system.
SERVICE = """[Unit]
Description=onoff proxy, a private door for feed readers

[Service]
ExecStart={command}
UMask=0077
# A step that is under way has five seconds to finish. If it does not, it is finished after the next start.
TimeoutStopSec=30
Restart=on-failure
RestartSec=5
NoNewPrivileges=yes
LockPersonality=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native

[Install]
WantedBy=default.target
"""


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel=options.READ, epilog="Example: onoff setup feeds.opml")(setup)
    app.command(rich_help_panel=options.READ, epilog="Example: onoff proxy")(proxy)


def setup(
    feeds: Annotated[
        str | None,
        typer.Argument(
            metavar="LIST",
            help="OPML, a list with one URL in a line and after it a name (- is stdin), or an onoff server.",
        ),
    ] = None,
    add: Annotated[
        list[str] | None, typer.Option(metavar="URL", help='Add a source: a URL, or "URL NAME"; several times.')
    ] = None,
    remove: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Remove a source; several times.")] = None,
    chain: Annotated[Path | None, typer.Option(metavar="FILE", help="Your habits; learned if not given.")] = None,
    sensitive: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            help="Sources that are hidden at all times, whether the switch is ON or OFF. Without --chain everything is "
            "asked for.",
        ),
    ] = None,
    promise: Annotated[
        str | None, typer.Option(metavar="past|all", help="all asks for everything, always (default: past).")
    ] = None,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="The port of the proxy (8800).")] = None,
    directory: options.Directory = None,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse a list with a URL that cannot be used.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Begin anew, and delete what was set up.")] = False,
    service: Annotated[bool, typer.Option("--service", help="Write a systemd unit that starts the proxy.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Set up `onoff proxy` for a list of feeds or pages: ask for each URL once, and write all it needs.

    A URL that does not answer is left out, and you are told why. Without LIST the options change what is set up, while
    no proxy runs. The first requests after that ask for everything. A chain that the proxy has used stays. The old
    journal, with its requests, is deleted.
    """
    import asyncio

    from onoff.apps.setup import Setup, default_directory, lock_journals
    from onoff.client.feeds import FoundUrls
    from onoff.client.status import chain_of

    place, token = directory or default_directory(), os.environ.get(options.TOKEN)
    if feeds is None and not (add or remove or chain or sensitive or promise):  # no other list: the journal stays
        made = Setup.load(place)
        if port is not None:
            made = replace(made, port=port)
            made.write()
        _print(made, FoundUrls({}, {}, ()), service, as_json)
        return
    if feeds is not None and (add or remove):
        raise OnoffError("--add and --remove change the list that is set up: leave LIST out")
    given = None if chain is None else chain_of(chain)
    with lock_journals(place):
        if feeds is None:
            old, found = _change(place, add or [], remove or [])
        else:
            learns = given is None and promise != "all" and not sensitive
            old, found = _new(place, feeds, strict, force, token, learns)
        made, noted = old.change(found.sources, remove or (), given, promise, options.parse_sources(sensitive))
        made = replace(made, port=port or made.port)
        asyncio.run(made.begin(noted, token))
    if feeds is None:
        kept = "begins without a chain" if made.chain is None else "has the chain that was given, or shown by queries"
        note(f"a new journal {kept}; the old one is deleted, with its requests")
    _print(made, found, service, as_json)


def _change(place: Path, add: list[str], remove: list[str]) -> tuple[Setup, FoundUrls]:
    """Load the set-up, and look at the URLs to add."""
    from onoff.apps.setup import Setup
    from onoff.client.feeds import entry_of

    old = Setup.load(place)
    if old.server is not None and (add or remove):
        raise OnoffError(f"{place}: the list is that of {old.server}: set it up with --force to follow it")
    return old, _ask([entry_of(line, "--add") for line in add], old.sources, strict=True)


def _new(
    place: Path, feeds: str, strict: bool, force: bool, token: str | None, learns: bool
) -> tuple[Setup, FoundUrls]:
    """Make a set-up of a list, and look at its URLs."""
    from onoff.apps.setup import Setup, has_setup, next_number
    from onoff.client.feeds import FoundUrls, list_feeds
    from onoff.client.habits import check_learning

    if has_setup(place) and not force:
        raise OnoffError(
            f"{place}: is set up already: without LIST, --add URL and --remove NAME change its list; --force begins "
            "anew, and deletes its journal"
        )
    if feeds.startswith(("http://", "https://")):
        return Setup(place, _names(feeds, token), feeds, number=next_number(place)), FoundUrls({}, {}, ())
    entries = list_feeds(feeds)
    if learns:
        check_learning(len(entries))  # before each is asked for
    found = _ask(entries, {}, strict)
    return Setup(place, found.sources, number=next_number(place)), found


def _ask(entries: Sequence[Entry], known: Mapping[str, Source], strict: bool) -> FoundUrls:
    """Ask each URL. Raises `CatalogueError` if one fails and none may (`strict`), or if too few are left."""
    import asyncio

    from onoff.apps.terminal import progress
    from onoff.client.feeds import find_urls

    found = asyncio.run(find_urls(entries, known, bar=progress("asking")))
    for problem in found.left_out:
        note(f"left out: {problem}")
    if found.left_out and strict:
        raise CatalogueError(f"{amount(len(found.left_out), 'URL')} cannot be used. Nothing was written")
    if len(known) + len(found.sources) < 2:
        raise CatalogueError("fewer than 2 sources are left, and nothing can be hidden among them. Nothing was written")
    return found


def _names(server: str, token: str | None) -> dict[str, Source]:
    """Ask an onoff server for its sources."""
    import asyncio

    from onoff.client.feeds import Source
    from onoff.client.transports.onoff import OnoffTransport

    async def ask() -> tuple[str, ...]:
        transport = OnoffTransport(server, token)
        try:
            await transport.connect()
            return transport.names
        finally:
            await transport.close()

    return {name: Source(name) for name in sorted(asyncio.run(ask()))}


def _print(made: Setup, found: FoundUrls, service: bool, as_json: bool) -> None:
    """Print how to start, and what to import."""
    from onoff.apps.setup import default_directory

    place = ["--directory", str(made.directory.absolute())]
    commands = [shlex.join(["onoff", "proxy", *(place if made.directory != default_directory() else [])])]
    if service:
        _write_service(place)
        commands = ["systemctl --user daemon-reload", "systemctl --user enable --now onoff-proxy"]
    if as_json:
        print_json(found)
        return
    for name, url in found.redirected.items():
        note(f"{name}: {url} leads to {made.sources[name].url}")
    said = f"{amount(len(made.sources), 'source')}."
    if made.sensitive and made.promise == "all":
        said += (
            f" Everything is asked for, which hides {', '.join(made.sensitive)}, too, until `onoff setup --chain FILE`."
        )
    print(f"{said} Start the proxy:", *commands, sep="\n    " if service else " ")
    print(f"Let your reader import: {made.feeds}")


def _write_service(arguments: list[str]) -> None:
    """Write a unit for the systemd of the user."""
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    file = home / "systemd" / "user" / "onoff-proxy.service"
    make_directory(file.parent)
    program = shutil.which(sys.argv[0]) or shutil.which("onoff") or sys.argv[0]  # the second for `python -m onoff`
    words = [os.path.abspath(program), "proxy", *arguments]
    write_atomically(file, SERVICE.format(command=" ".join(map(_quote, words))).encode())
    note(f"{file}: written")


def _quote(word: str) -> str:
    """Quote a word for systemd: marks are doubled, or come after a backslash."""
    word = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{word}"'


def proxy(
    *,
    directory: options.Directory = None,
    relearn: options.Relearn = False,
    switch_on: Annotated[
        bool, typer.Option("--on", help="Start with privacy ON; without --on and --off the switch is as it was left.")
    ] = False,
    switch_off: Annotated[bool, typer.Option("--off", help="Start with privacy OFF.")] = False,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Another port than was set up; 0 takes a free one.")
    ] = None,
    record: options.Record = None,
    cache: options.Cache = None,
    keep: options.Keep = None,
    user_agent: options.UserAgent = None,
    delay: options.Delay = 0.05,
    deadline: options.Deadline = None,
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

    private = options.parse_switch(switch_on, switch_off)
    logging.basicConfig(format="onoff: %(message)s", level=logging.WARNING)
    made = Setup.load(directory or default_directory())
    client = made.client(
        record=record, cache=cache, keep=keep, token=os.environ.get(options.TOKEN), delay=delay, deadline=deadline,
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
