"""`onoff serve` and `onoff token`. The server is imported inside the command, so that `--help` answers at once."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import parse_qs, urlsplit

import typer

from onoff.apps.cli.options import SERVE
from onoff.apps.cli.output import note
from onoff.durations import parse_fresh
from onoff.errors import OnoffError, StoreUnavailable
from onoff.files import check_file, read_text
from onoff.wire import Catalogue

if TYPE_CHECKING:
    from onoff.server.store import Store

PUBLISHERS, READERS, STORE = "ONOFF_PUBLISHERS", "ONOFF_READERS", "ONOFF_STORE"
FILE = "onoff.db"
LENGTH = 4096


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel=SERVE, epilog="Example: onoff serve --watch feeds --store messages.db --port 8700")(
        serve
    )
    app.command(rich_help_panel=SERVE, epilog="Example: onoff token publishers.txt")(token)


def serve(
    *,
    store: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|URL", help=f"SQLite file, or redis://HOST:PORT/DB (or in ${STORE}); {FILE} if none."
        ),
    ] = None,
    source: Annotated[list[str] | None, typer.Option(metavar="NAME", help="A source; repeat for each.")] = None,
    sources: Annotated[Path | None, typer.Option(metavar="FILE", help="The sources, one name in a line.")] = None,
    watch: Annotated[Path | None, typer.Option(metavar="DIR", help="Publish its files: one file, one source.")] = None,
    length: Annotated[int | None, typer.Option(help=f"Bytes of the longest message (new store: {LENGTH}).")] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 8700,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Server processes.")] = 1,
    publishers: Annotated[
        Path | None, typer.Option(metavar="FILE", help=f"Hashes of publishers' tokens (or in ${PUBLISHERS}).")
    ] = None,
    readers: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help=f"Hashes of readers' tokens (or in ${READERS}); without them all may read."),
    ] = None,
    transcript: Annotated[Path | None, typer.Option(metavar="FILE", help="Append each query as a JSON line.")] = None,
    fresh: Annotated[
        str, typer.Option(metavar="TIME", help="For how long an answer counts as the newest: 30s, 5m; at most 1h.")
    ] = "0",
    request_timeout: Annotated[float, typer.Option(min=0.1, help="Seconds in which a request must arrive.")] = 10.0,
) -> None:
    """Serve the latest message of each source; stop with Ctrl-C or SIGTERM.

    Without sources, those of the store are served. A line of JSON on stdout says when and where requests are answered.
    """
    from onoff.server.app import Settings
    from onoff.server.run import reserve
    from onoff.server.run import serve as run
    from onoff.server.store.streams import open_streams
    from onoff.server.transcript import Transcript

    seconds_fresh = parse_fresh(fresh)
    target = _target(store)
    if transcript is not None:  # a path that cannot be written is the operator's error, not the workers'
        Transcript(transcript)
    names = _names(source, sources, watch)
    # First of all: a port that is taken must not leave a new store with these sources behind.
    with reserve(host, port) as listening, closing(_open(target, names, length)) as opened:
        if transcript is not None:
            Transcript(transcript).begin(opened.catalogue.names)
        if store is None and target == FILE:
            note(f"messages and the last queries are kept in {Path(FILE).absolute()}*; --store names another place")
        open_streams(target).close()  # what is wrong with it is said here, and not by workers that die of it
        settings = Settings(
            store=target,
            catalogue=opened.catalogue,
            publishers=_hashes(publishers, PUBLISHERS),
            readers=_hashes(readers, READERS),
            transcript=transcript.absolute() if transcript is not None else None,
            fresh=seconds_fresh,
        )
        if not settings.publishers and watch is None:
            note("there are no publishers' tokens and no directory to watch: nothing can be published")
        run(settings, opened, listening=listening, workers=workers, watch=watch, seconds=request_timeout)


def token(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Hashes of tokens; the new one is added.")],
) -> None:
    """Make a token: print it, once, and add its hash to a file for `onoff serve`."""
    from onoff.server.tokens import append_hash, new_token

    made = new_token()
    append_hash(file, made)
    print(made)


def _open(target: str, names: tuple[str, ...] | None, length: int | None) -> Store:
    """Open the store and check it. If it is down, the server starts and waits for it."""
    from onoff.server.store import open_store

    if names is None and length is not None:
        raise OnoffError("--length needs the sources: --source, --sources or --watch")
    opened = open_store(target, None if names is None else Catalogue(names, LENGTH if length is None else length))
    try:
        opened.changes()
        caveat = opened.caveat()
        if caveat is not None:
            note(caveat)
    except StoreUnavailable as error:
        note(f"{error}; readers get 503 until it is back")
    return opened


def _names(source: list[str] | None, sources: Path | None, watch: Path | None) -> tuple[str, ...] | None:
    if source and sources is not None:
        raise OnoffError("give the sources by --source or by --sources, not by both")
    if source:
        return tuple(source)
    if sources is not None:
        return tuple(line.strip() for line in read_text(sources).splitlines() if line.strip())
    if watch is not None:
        from onoff.server.watch import source_names

        return source_names(watch)
    return None


def _target(given: str | None) -> str:
    """Find the store; a password is taken from the environment, since all users see command lines."""
    from onoff.server.store import REDIS

    target = given if given is not None else os.environ.get(STORE) or FILE
    if "://" not in target:
        check_file(Path(target))
        return target
    where = "--store" if given is not None else f"${STORE}"
    try:
        parts = urlsplit(target)
    except ValueError as error:
        raise OnoffError(f"{where}: not the URL of a Redis database ({error})") from None
    if given is not None and (parts.password or any("password" in key.lower() for key in parse_qs(parts.query))):
        raise OnoffError(
            f"--store has a password, which everybody on this machine can see (ps): set {STORE} to the URL instead"
        )
    if not target.startswith(REDIS):  # it is not shown: it may have a password
        raise OnoffError(f"{where}: name a file, or a URL that begins with redis://, rediss:// or unix://")
    return target


def _hashes(file: Path | None, variable: str) -> tuple[bytes, ...]:
    from onoff.server.tokens import read_hashes

    if file is not None:
        return read_hashes(read_text(file), str(file))
    if variable in os.environ:
        return read_hashes(os.environ[variable], f"${variable}")
    return ()
