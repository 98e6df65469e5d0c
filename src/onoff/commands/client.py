"""`onoff get`, `play`, `status` and `measure`: the client for people and scripts."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shlex
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onoff.errors import Announced, OnoffError, PendingRequest, Unavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from onoff.chain import Chain
    from onoff.client import Client, Message
    from onoff.journal import Totals
    from onoff.transport import Transport

TOKEN = "ONOFF_TOKEN"
RESUME = "`onoff resume` finishes it"
SINCE = "lengths since"  # the note of the step from which on costs are in the unit of the lengths

JournalFile = Annotated[
    Path | None, typer.Option("--journal", metavar="FILE", help="The client's state; made if it is not there.")
]
ChainFile = Annotated[Path | None, typer.Option("--chain", metavar="FILE", help="Needed once; then it is remembered.")]
Server = Annotated[str | None, typer.Option(metavar="URL", help="An onoff server; remembered.")]
Urls = Annotated[Path | None, typer.Option(metavar="FILE", help="JSON {name: URL} at any web server; remembered.")]
Plans = Annotated[Path | None, typer.Option(metavar="DIR", help="Where plans are kept.")]
Lengths = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Plan with these lengths (see `measure`); remembered.")
]
Delay = Annotated[
    float, typer.Option(min=0.0, metavar="SECONDS", help="From call to send, the same for every request.")
]


def register(app: typer.Typer) -> None:
    app.command(
        epilog="Example: onoff get politics --next sports --off --server http://127.0.0.1:8700 --chain chain.json"
    )(get)
    app.command(epilog="Example: onoff resume --journal reader.journal")(resume)
    app.command(epilog="Example: onoff play requests.txt --server http://127.0.0.1:8700 --chain chain.json")(play)
    app.command(epilog="Example: onoff status --journal reader.journal")(status)
    app.command(epilog="Example: onoff measure urls.json --out lengths.json")(measure)


def get(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="What to fetch.")],
    next: Annotated[
        str | None,
        typer.Option(metavar="SOURCE", help="The request that will follow; after an OFF request you are bound to it."),
    ] = None,
    private: Annotated[bool, typer.Option("--on/--off", help="Whether privacy is ON for this request.")] = True,
    journal: JournalFile = None,
    chain: ChainFile = None,
    server: Server = None,
    urls: Urls = None,
    plans: Plans = None,
    lengths: Lengths = None,
    delay: Delay = 0.05,
) -> None:
    """Fetch the latest message of SOURCE and write it to stdout."""
    asyncio.run(_get(source, next, private, _settings(journal, chain, server, urls, lengths), plans, delay))


async def _get(
    source: str, next: str | None, private: bool, settings: dict[str, Any], plans: Path | None, delay: float
) -> None:
    with _explained(settings, RESUME):
        async with _client(settings, plans, delay) as client:
            _remember(client, settings)
            message = await client.get(source, next, private)
            _tell(client, message)
    sys.stdout.buffer.write(message.body)


def resume(
    journal: JournalFile = None,
    chain: ChainFile = None,
    server: Server = None,
    urls: Urls = None,
    plans: Plans = None,
) -> None:
    """Finish a pending request, with the query it already had; write its message, or the last one again."""

    settings = _settings(journal, chain, server, urls, None)

    async def finish() -> bytes:
        async with _client(settings, plans, 0.0) as client:
            pending = client.journal.state.pending
            message = await client.resume()
            if message is None:
                raise OnoffError("nothing is pending, and no message has arrived yet")
            if pending is None:
                _note("nothing was pending; this is the last message again")
            _tell(client, message)
            return message.body

    with _explained(settings, RESUME):
        body = asyncio.run(finish())
    sys.stdout.buffer.write(body)


def _tell(client: Client, message: Message) -> None:
    """What is worth knowing about a message that has arrived."""
    if message.round == 0:
        _note_unpublished(message.source)
    if message.made_private:
        step = next(client.journal.steps(since=message.step))
        without = "no --next was given, and the query must hide the next request"
        early = "it is at the start of the journal, before one had counted as ON"
        _note(f"this request was made ON: {without if step['next'] is None else early}")


def _note_unpublished(source: str) -> None:
    _note(f"{source}: nothing has been published yet")


def play(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="One request in a line: `on SOURCE` or `off SOURCE`.")],
    journal: JournalFile = None,
    chain: ChainFile = None,
    server: Server = None,
    urls: Urls = None,
    plans: Plans = None,
    lengths: Lengths = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Write each message to a file here.")] = None,
    restart: Annotated[
        bool, typer.Option("--restart", help="Begin FILE anew; give up a file that was not played to its end.")
    ] = False,
    delay: Delay = 0.05,
) -> None:
    """Make all requests of FILE in turn. Stopped, or killed, it goes on where it was when called again."""
    from onoff import report

    settings = _settings(journal, chain, server, urls, lengths)
    items = read_items(file, settings["chain"].names)
    with _explained(settings, "run the same command again"):
        totals, since = asyncio.run(_play(file.absolute(), items, settings, plans, out, restart, delay))
    report.print_totals(totals, settings["chain"], settings["lengths"], since)


async def _play(
    file: Path,
    items: list[tuple[str, bool]],
    settings: dict[str, Any],
    plans: Path | None,
    out: Path | None,
    restart: bool,
    delay: float,
) -> tuple[Totals, int]:
    """The requests of a file; the journal's totals at the end, and the step from which on they were counted."""
    from onoff import report

    digest = hashlib.sha256(json.dumps(items).encode()).hexdigest()
    async with _client(settings, plans, delay) as client:
        begun = 0 if restart else _begun(client, file, items, digest)
        if begun == 0:
            _check_free_to_begin(client, file, items[0][0])
            if client.journal.recall(f"played {digest}") is not None:
                _note(f"{file} was played to its end before; playing it again")
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
        _remember(client, settings)
        delivery = Delivery(out)
        if begun:
            # Finish what is pending; a message that had arrived may not have been written before the end.
            await delivery.take(client.resume())
        first = client.journal.state.step - begun
        progress = {"digest": digest, "first": first, "file": str(file), "count": len(items)}
        client.journal.note("play", json.dumps(progress))
        left = items[begun:]
        with report.progress("requests")(len(items)) as advance:
            for _ in range(begun):
                advance()
            for i, (source, private) in enumerate(left):
                following = left[i + 1][0] if i + 1 < len(left) else None
                await delivery.take(client.get(source, following, private))
                advance()
        _note_made_on(client, first)
        client.journal.note(f"played {digest}", "")
        client.journal.note("play", "{}")
        since = int(client.journal.recall(SINCE) or 0)
        return client.journal.totals(settings["lengths"], since), since


@contextmanager
def _explained(settings: dict[str, Any], advice: str) -> Iterator[None]:
    """If the server does not answer while a request is pending, whoever left it so, say what to do about it."""
    from onoff.journal import snapshot

    try:
        yield
    except Unavailable as error:
        pending = snapshot(settings["path"]).state.pending if settings["path"].exists() else None
        if pending is None:
            raise
        wanted = settings["chain"].names[pending.request]
        raise Unavailable(f"{error} The request for {wanted!r} stays pending: {advice}.") from None


class Delivery:
    """Writes messages to the files of a directory, if there is one."""

    def __init__(self, out: Path | None) -> None:
        self._out = out
        self._unpublished: set[str] = set()  # noted once each

    async def take(self, asked: Awaitable[Message | None]) -> None:
        """Wait for a message and write it; that a source has none is worth a note, not the end."""
        from onoff.errors import SourceError

        try:
            message = await asked
        except SourceError as error:
            _note(str(error))
            return
        if message is None:
            return
        if message.round == 0 and message.source not in self._unpublished:
            self._unpublished.add(message.source)
            _note_unpublished(message.source)
        if self._out is not None:
            (self._out / f"{message.step:06d}").write_bytes(message.body)


def _note_made_on(client: Client, first: int) -> None:
    """Which requests of a file, begun at step `first`, were asked OFF but made ON."""
    made_on = [s for s in client.journal.steps(since=first) if s["private"] and not s["asked_private"]]
    early = sum(step["next"] is not None for step in made_on)
    reasons = [f"{early} at the start of the journal, before one had counted as ON"] if early else []
    reasons += ["the last of the file, since nothing is known to follow it"] if len(made_on) > early else []
    if reasons:
        _note(f"asked OFF but made ON: {', and '.join(reasons)}")


def _begun(client: Client, file: Path, items: list[tuple[str, bool]], digest: str) -> int:
    """How many of these requests an earlier run has made or left pending. An unfinished file must not be forgotten."""
    known = json.loads(client.journal.recall("play") or "{}")
    made = [step["request"] for step in client.journal.steps(since=known["first"])] if known else []
    if not made:
        return 0
    if known["digest"] == digest:
        if [client.chain.names[request] for request in made] == [source for source, _ in items[: len(made)]]:
            return len(made)
        raise OnoffError(f"requests that are not in {file} were made since it was left: begin it anew with --restart")
    unfinished = f"{known['file']} was not played to its end"
    if len(made) <= known["count"]:
        unfinished += f" ({known['count'] - len(made)} of {known['count']} requests left)"
    if known["file"] == str(file):
        raise OnoffError(f"{unfinished} and has changed since: begin it anew with --restart")
    raise OnoffError(f"{unfinished}: play it again, or give it up with --restart")


def _check_free_to_begin(client: Client, file: Path, first: str) -> None:
    """A file can begin if nothing is pending, whose message would be lost, and nothing else is announced."""
    state, names = client.journal.state, client.chain.names
    if state.pending is not None:
        wanted = names[state.pending.request]
        raise PendingRequest(
            f"the request for {wanted!r} is pending: `onoff resume` finishes it and writes its message", step=state.step
        )
    if state.announced is not None and names[state.announced] != first:
        wanted = names[state.announced]
        raise Announced(
            f"{wanted!r} was announced as the next request, but {file} begins with {first!r}: "
            f"`onoff get {shlex.quote(wanted)}` makes it, then play the file",
            announced=state.announced,
        )


def status(
    journal: Annotated[Path | None, typer.Option("--journal", metavar="FILE", help="The client's state.")] = None,
    plans: Plans = None,
) -> None:
    """The lag, what is pending, what the next request costs, and what rounding has added up to."""
    from onoff import report
    from onoff.journal import snapshot
    from onoff.planner import cheapest
    from onoff.planstore import PlanStore

    path = journal or default_journal()
    notes = snapshot(path).notes
    if "chain" not in notes:
        raise OnoffError(f"{path}: no command has noted its chain here yet; `onoff get` or `play` does")
    chain, lengths, since = _chain_from(notes["chain"]), _lengths_from(notes), int(notes.get(SINCE, 0))
    found = snapshot(path, lengths, since)
    store = PlanStore(chain, plans, lengths)
    lag = found.state.answered.lag + 1
    ready = [store.load(known) for known in store.lags() if 1 <= known <= lag]
    report.print_status(found, chain, cheapest(ready) if ready else None, lengths, since)


def measure(
    urls: Annotated[Path, typer.Argument(metavar="URLS", help="JSON {name: URL} at one web server.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="JSON {name: bytes}, for `onoff plan --lengths`.")],
) -> None:
    """Fetch every URL once and write down how long each body is, to plan with real lengths."""
    from onoff.chainfile import write_atomically
    from onoff.transport.http import HttpTransport

    async def fetch() -> dict[str, int]:
        transport = HttpTransport.load(urls)
        try:
            return await transport.measure()
        finally:
            await transport.close()

    lengths = asyncio.run(fetch())
    write_atomically(out, json.dumps(lengths, indent=2).encode() + b"\n")
    print(f"{len(lengths)} sources, {sum(lengths.values())} bytes in all")


def read_items(file: Path, names: Collection[str]) -> list[tuple[str, bool]]:
    """The requests in a file; empty lines and lines with # are passed over. Every source must be one of `names`."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise OnoffError(f"{file}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise OnoffError(f"{file}: is not UTF-8") from None
    items = []
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        word, _, source = line.strip().partition(" ")
        if word not in ("on", "off") or not source.strip():
            raise OnoffError(f"{file}: line {number} is {line!r}: write `on SOURCE` or `off SOURCE`")
        if source.strip() not in names:
            raise OnoffError(f"{file}: line {number}: no source is called {source.strip()!r}")
        items.append((source.strip(), word == "on"))
    if not items:
        raise OnoffError(f"{file}: there are no requests in it")
    return items


def default_journal() -> Path:
    """Where the journal is unless told otherwise: with the user's state."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "onoff" / "journal"


def _settings(
    journal: Path | None, chain: Path | None, server: str | None, urls: Path | None, lengths: Path | None
) -> dict[str, Any]:
    """What was given, completed by what the journal remembers."""
    from onoff.chain import Chain
    from onoff.commands.plan import read_lengths
    from onoff.journal import snapshot

    path = journal or default_journal()
    if journal is None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    notes = snapshot(path).notes if path.exists() else {}
    if server is not None and urls is not None:
        raise OnoffError("give --server or --urls, not both")
    known = "chain" in notes
    if chain is None and not known:
        raise OnoffError(f"{path} is a new journal: --chain is needed the first time, then it is remembered")
    if server is None and urls is None and not known:
        raise OnoffError(f"{path} is a new journal: --server or --urls is needed the first time, then it is remembered")
    loaded: Chain = Chain.load(chain) if chain is not None else _chain_from(notes["chain"])
    if server is None and urls is None:
        server, urls_text = notes.get("server"), notes.get("urls")
        urls = Path(urls_text) if urls_text else None
    return {
        "path": path,
        "chain": loaded,
        "server": server,
        "urls": None if urls is None else urls.absolute(),
        "lengths": _lengths_from(notes) if lengths is None else read_lengths(lengths, loaded.names),
    }


def _lengths_from(notes: dict[str, str]) -> tuple[float, ...] | None:
    remembered = json.loads(notes.get("lengths", "null"))
    return None if remembered is None else tuple(remembered)


def _client(settings: dict[str, Any], plans: Path | None, delay: float) -> Client:
    from onoff.client import Client
    from onoff.planner import Planner
    from onoff.transport.http import HttpTransport
    from onoff.transport.onoff import OnoffTransport

    transport: Transport
    if settings["urls"] is not None:
        transport = HttpTransport.load(settings["urls"])
    else:
        transport = OnoffTransport(settings["server"], os.environ.get(TOKEN))
    # The planner's process goes on after this command: the next one finds the plan.
    planner = Planner(settings["chain"], plans, settings["lengths"])
    return Client(settings["chain"], transport, settings["path"], planner, delay=delay)


def _remember(client: Client, settings: dict[str, Any]) -> None:
    """Note the settings once they have worked."""
    if client.journal.created:
        _note("a new journal: its first two requests ask for everything")
    wanted = {
        "server": settings["server"] or "",
        "urls": str(settings["urls"] or ""),
        "lengths": json.dumps(settings["lengths"]),
        "chain": _chain_text(settings["chain"]),  # the last: where it is noted, all are
    }
    known = client.journal.recall("lengths")
    if known not in (None, wanted["lengths"]):  # costs so far, that of a pending step too, are in another unit
        state = client.journal.state
        client.journal.note(SINCE, str(state.step + (state.pending is not None)))
    for key, value in wanted.items():
        if client.journal.recall(key) != value:
            client.journal.note(key, value)


def _chain_text(chain: Chain) -> str:
    return json.dumps({"names": chain.names, "matrix": chain.P.tolist()})


def _chain_from(text: str) -> Chain:
    from onoff.chain import Chain

    data = json.loads(text)
    return Chain(data["matrix"], data["names"])


def _note(text: str) -> None:
    print(f"onoff: {text}", file=sys.stderr)
