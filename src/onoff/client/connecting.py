"""The front door for readers: `connect`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from onoff.client.checking import check_flags
from onoff.client.client import DELAY, Client
from onoff.client.settings import Settings
from onoff.client.transport.own import OnoffTransport
from onoff.client.transport.web import HttpTransport
from onoff.errors import PlanError
from onoff.files import path_of
from onoff.model.chain import Chain
from onoff.plans.planner import Planner

if TYPE_CHECKING:
    from onoff.client.transport import Transport


def connect(
    chain: Chain | str | Path | None = None,
    *,
    server: str | None = None,
    urls: Mapping[str, str] | str | Path | None = None,
    journal: str | Path | None = None,
    plans: Planner | str | Path | None = None,
    promise: str | None = None,
    sensitive: Sequence[int | str] = (),
    record: str | Path | None = None,
    lengths: Mapping[str, float] | Sequence[float] | str | Path | None = None,
    cache: int | str | None = None,
    token: str | None = None,
    delay: float = DELAY,
    deadline: float | None = None,
    attempts: int = 5,
    background: bool = True,
    lasting: bool = False,
    ahead: bool = True,
    first_ever: bool = False,
    learn: bool = False,
) -> Client:
    """A client of a server, for the habits in `chain`. Use it as `async with connect(...) as client`.

    Nothing is asked, started or written before that.

    `server` is the address of an onoff server, and `token` what it asks readers for. `urls` is {name: URL} at any other
    web server, or a JSON file of that. `chain` is a `Chain` or its file. `journal` is the client's memory, by
    default in the user's state. It is made if it is not there. It remembers what was given, and later calls may leave
    that out (URLs are remembered if they are in a file).

    A journal is made for one `promise`, and keeps it:

    - "past", unless told otherwise: nothing that is asked at or after a private request changes what the server
    believes about it. With `sensitive` sources, given by name, the server learns neither which of them is read nor
    whether any is. They are fixed with the journal.
    - "both": no query tells anything about requests made while ON or about requests to come. An OFF request needs
    the next one (`get(..., next=...)`). Without it the request is made ON, and `Message.made_private` says so.

    For "past": with `record`, law and encoders of every OFF step are noted in this file, for auditors. It holds no
    secret. A client that makes one request only does without `ahead`.

    For "both": `plans` is the directory of plans, by default in the user's cache, or a `Planner`, which the caller then
    closes. Without `background` no process computes cheaper plans. That process ends with the client. If it is
    `lasting`, it goes on for at most 10 minutes. `lengths` are the lengths of messages to plan with.

    All members of answers are held on disk, beside the journal's other secrets, and asked for again only if they are
    newer. `cache` is how many bytes they may have, such as "64MiB", which is the default; 0 switches it off.

    With `learn` no chain is needed. Every request asks for everything, and the journal notes it, until there is enough
    to fit a chain to (`Client.learned` says so, and so does a line of the log). Then fit one and begin another journal.

    `deadline` bounds the seconds that a whole answer may take, the same for every query. A query is sent at most
    `attempts` times, always the same bytes, and leaves at points in time that are `delay` seconds apart. A new journal
    makes its first two requests ON, since the first may repeat one whose query went out before. Say `first_ever` only
    if this reader has never asked for these sources with another journal: then one is enough.

    A caller must be ready for these errors of `onoff.errors`:

    - `TransportError`: the server could not be asked. If its `pending` is True, the request is kept, and
    `Client.resume` finishes it. If it is False, nothing was asked.
    - `SourceError`: the server has no message for the source. The step is finished.
    - `SessionError`: a request is pending (`PendingRequest`), another one was announced (`Announced`), or there was
    nothing to finish (`NothingPending`).
    - `ContextError`: the chain calls the request impossible. Nothing was asked.
    - `JournalError`: the journal cannot be used. Its words say whether to keep it or to begin anew.
    - `ChainError` and `PlanError`: what was given does not fit together.
    """
    check_flags(background=background, lasting=lasting, learn=learn)
    settings = Settings.of(journal, chain, server, urls, lengths, promise, sensitive, cache, learn)
    if not isinstance(plans, Planner | None):
        path_of(plans, "the directory of plans", PlanError)
    planner: Planner | Callable[[], Planner] | None = None
    if settings.promise == "both":
        planner = plans if isinstance(plans, Planner) else partial(_planner, settings, plans, background)
    mine = not isinstance(plans, Planner)
    return Client(
        settings.chain, _transport(settings, token, deadline), settings.journal, planner,
        promise=settings.promise, sensitive=settings.sensitive, record=record, ahead=ahead, delay=delay,
        cache=settings.cache, weighing=settings.weighing if settings.promise == "past" else None,
        attempts=attempts, first_ever=first_ever, settings=settings,
        ends_planner=mine and not lasting,
    )  # fmt: skip


def _transport(settings: Settings, token: str | None, deadline: float | None) -> Transport:
    """The way to the server of the settings, or to the web servers of their URLs."""
    if settings.urls is None:
        assert settings.server is not None, "settings have a server or URLs"
        return OnoffTransport(settings.server, token, deadline=deadline)
    if isinstance(settings.urls, Path):
        return HttpTransport.load(settings.urls, deadline)
    return HttpTransport(dict(settings.urls), deadline=deadline)


def _planner(settings: Settings, plans: str | Path | None, background: bool) -> Planner:
    assert settings.chain is not None, "a planner is for a chain"
    return Planner(settings.chain, plans, settings.lengths, background=background)
