"""The front door for readers: `connect`, and `Settings`, which are all its parameters."""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from onoff.client.cache import CACHE, cache_size
from onoff.client.client import DELAY, Client
from onoff.client.disk import check_promise
from onoff.client.journal import Journal
from onoff.client.memory import Memory, parse_keep
from onoff.client.promises import parse_promise
from onoff.client.status import chain_of, snapshot
from onoff.client.transports.http import check_agent
from onoff.client.transports.onoff import OnoffTransport
from onoff.client.transports.web import HttpTransport
from onoff.durations import parse_fresh
from onoff.errors import JournalError, OnoffError, PlanError
from onoff.files import path_of
from onoff.model.chain import Chain
from onoff.types import RandBelow, is_flag, is_number, is_whole

if TYPE_CHECKING:
    from onoff.client.transports import Transport
    from onoff.plans.planner import Planner

Parameters = ParamSpec("Parameters")
Made = TypeVar("Made")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The parameters of `connect` and `connect_sync`, which their commands also use.

    `chain` is a `Chain` or its file. Without a chain the client learns one: it asks for everything, and notes open
    requests until they make a chain. Meanwhile requests are OFF by default; a private request before the chain is used
    ends the learning, and the client asks for everything to the end. `relearn` begins anew. `server` is the address of
    an onoff server, and `token` the reader's token there. `urls` is {name: URL} at any other web servers, or a JSON
    file of it. A `transport` of your own replaces both. `journal` is the client's memory, by default in the user's
    state. It is made if it is missing. It remembers the parameters, and later calls may leave them out (of URLs it
    remembers the file).

    A journal is made for one `promise`, and keeps it:

    - "past", unless told otherwise: what a request's own query and the queries before it tell is all that will ever be
    told about it; the query of a private request tells nothing. With `sensitive` sources, given by name, the server
    learns neither which of them is read nor whether any is. They are fixed with the journal.
    - "all": every request asks for everything that is not fresh. It needs no chain, and hides everything.
    - "both": no query tells anything about requests made while ON or about requests to come. An OFF request needs
    the next one (`get(..., next=...)`). Without it the request is made ON, and `Message.made_private` says so.

    For "past": `record` is a file to which the client writes each law and its encoders, for auditors. It holds no
    secret. `ahead` prepares the next step between requests; a client for one request does without. While a client
    of "past" is open, the linear algebra of the process has one thread.

    For "both": `plans` is the directory of plans, by default in the user's cache, or a `Planner`, which the caller then
    closes. Without `background` no process computes cheaper plans. That process ends with the client. If it is
    `lasting`, it goes on for at most 10 minutes.

    The client holds messages on disk, with the journal's other secrets, and asks for a source again only if it is
    newer. `cache` limits their bytes, such as "64MiB", which is the default; 0 switches the cache off.

    A message is *fresh* for as long as its server says, and for `fresh` at least, such as "5m": a constant of the
    journal, at most an hour, by default 0. Where everything is asked for, as with the promise "all", what is fresh is
    left out, whatever is wanted. While everything is fresh, a request makes no step, and nobody sees it.

    `keep` is for how many steps (1000) or days ("30d") the journal keeps requests and the random numbers of draws;
    older ones are erased when a client is opened, and every 256 steps. Without `keep` they stay for ever.

    `deadline` bounds the seconds that a whole answer may take, the same for every query. A query is sent at most
    `attempts` times, always the same bytes, with pauses that double from `backoff` seconds on. A web server that does
    not answer by then has failed. `user_agent` is the User-Agent for web servers ("onoff"). Queries leave at
    points in time that are `delay` seconds apart. A new journal of "past" makes as many requests ON as its habits
    remember. One of "both" makes two, since the first may repeat one whose query went out before; with `first_ever` it
    makes one. Say that only if this reader has never asked for these sources with another journal. `randbelow` is where
    random numbers come from.
    """

    chain: Chain | str | Path | None = field(default=None, kw_only=False)
    server: str | None = None
    urls: Mapping[str, str] | str | Path | None = None
    transport: Transport | None = None
    journal: str | Path | None = None
    plans: Planner | str | Path | None = None
    promise: str | None = None
    sensitive: Sequence[int | str] = ()
    record: str | Path | None = None
    cache: int | str | None = None
    fresh: str | float | None = None
    keep: int | str | None = None
    user_agent: str | None = None
    token: str | None = None
    delay: float = DELAY
    deadline: float | None = None
    attempts: int = 5
    backoff: float = 0.2
    background: bool = True
    lasting: bool = False
    ahead: bool = True
    first_ever: bool = False
    relearn: bool = False
    randbelow: RandBelow = secrets.randbelow
    # Of the sources, if a journal without a chain knows.
    names: tuple[str, ...] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        """Refuse what cannot be meant, before anything is read, written or sent."""
        for name in ("background", "lasting", "ahead", "first_ever", "relearn"):
            if not is_flag(getattr(self, name)):  # the word "no" would count as True
                raise OnoffError(f"{name} is {getattr(self, name)!r}: True or False is needed")
        for name in ("delay", "backoff"):
            if not (is_number(getattr(self, name)) and 0 <= getattr(self, name) < math.inf):
                raise OnoffError(f"{name} is {getattr(self, name)!r}: seconds from 0 on are needed")
        if not is_whole(self.attempts, 1):
            raise OnoffError(f"attempts is {self.attempts!r}: a whole number from 1 on is needed")
        if self.server is not None and self.urls is not None:
            raise OnoffError("give a server or URLs (--server or --urls), not both")
        if self.plans is not None and not hasattr(self.plans, "best"):  # not a planner
            path_of(self.plans, "the directory of plans", PlanError)
        for name, what in (("journal", "the journal"), ("record", "the record")):
            if getattr(self, name) is not None:
                path_of(getattr(self, name), what)
        if self.cache is not None:
            cache_size(self.cache)
        if self.fresh is not None:
            parse_fresh(self.fresh)
        if self.keep is not None:
            parse_keep(self.keep)
        check_agent(self.user_agent)

    def complete(self) -> Settings:
        """What was given, completed by what the journal remembers. A new one is for the promise "past" by default."""
        path = default_journal() if self.journal is None else Path(self.journal)
        if self.journal is None:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        found = snapshot(path) if path.exists() else None
        memory = Memory() if found is None else found.memory
        server, urls = self.server, self.urls
        if server is None and urls is None and self.transport is None:
            server, urls = memory.server, memory.urls
        limit = self.cache if self.cache is not None else CACHE if memory.cache is None else memory.cache
        keep = memory.keep if self.keep is None else str(self.keep).strip()
        agent = memory.user_agent if self.user_agent is None else self.user_agent
        known = replace(
            self, journal=path, server=server, urls=_absolute(urls), cache=cache_size(limit), keep=keep,
            user_agent=agent,
        )  # fmt: skip
        has_place = server is not None or urls is not None or self.transport is not None
        if not has_place:
            state = "this journal knows no server yet" if path.exists() else "there is no such journal yet"
            raise OnoffError(f"{path}: {state}: give --server or --urls (server=... or urls=...)")
        chain = None if self.chain is None else chain_of(self.chain)
        if chain is not None and memory.learning is not None:
            raise JournalError(
                f"{path}: was made without a chain: leave the chain out, or name another journal for it (--journal)"
            )
        if chain is None and memory.chain is not None:
            chain = Chain.from_dict(memory.chain)
        if chain is None and found is not None and found.promise != "all" and memory.learning is None:
            raise OnoffError(f"{path}: was made with a chain and does not remember it: give --chain (chain=...)")
        promise, sensitive = parse_promise(
            chain, self.promise, self.sensitive, None if found is None else found.promise
        )
        if found is not None:
            check_promise(path, (found.promise, found.sensitive), self.promise, sensitive)
            sensitive = found.sensitive
        if self.relearn and (promise != "past" or sensitive):
            raise OnoffError("habits are learned for the promise 'past' without sensitive sources: leave --relearn out")
        if self.record is not None and promise == "both":
            raise OnoffError(
                "laws are recorded for the promise 'past' alone: leave --record out, plans have those of 'both'"
            )
        complete = replace(known, chain=chain, promise=promise, sensitive=sensitive)
        object.__setattr__(complete, "names", memory.learning)
        return complete

    def open_transport(self) -> Transport:
        """The way to the server, or to the web servers of the URLs, of complete settings."""
        if self.transport is not None:
            return self.transport
        if self.urls is None:
            assert self.server is not None, "complete settings have a server or URLs"
            return OnoffTransport(self.server, self.token, deadline=self.deadline)
        assert not isinstance(self.urls, str), "complete settings have a file or a mapping"
        given: dict[str, Any] = {"attempts": self.attempts, "backoff": self.backoff, "agent": self.user_agent}
        if isinstance(self.urls, Path):
            return HttpTransport.load(self.urls, self.deadline, **given)
        return HttpTransport(dict(self.urls), deadline=self.deadline, **given)

    def remember(self, journal: Journal) -> None:
        """Have the journal remember what has worked. What was given as an object is not remembered, but the chain."""
        place: dict[str, object] = {}
        if self.transport is None:
            urls = str(self.urls) if isinstance(self.urls, Path) else None
            chain = self.chain.as_dict() if isinstance(self.chain, Chain) else None
            place = {"server": self.server, "urls": urls, "cache": self.cache, "chain": chain}
        journal.remember(keep=self.keep, user_agent=self.user_agent, **place)


def with_settings(
    settings: Callable[Parameters, Settings],
) -> Callable[[Callable[[Settings], Made]], Callable[Parameters, Made]]:
    """Give a function of `Settings` their parameters, which only `Settings` spells."""

    def decorate(function: Callable[[Settings], Made]) -> Callable[Parameters, Made]:
        @wraps(function)
        def call(*args: Parameters.args, **options: Parameters.kwargs) -> Made:
            return function(settings(*args, **options))

        made = function.__annotations__["return"]
        call.__signature__ = signature(settings).replace(return_annotation=made)  # type: ignore[attr-defined]
        return call

    return decorate


@with_settings(Settings)
def connect(settings: Settings) -> Client:
    """Make a client for the habits in `chain`. Use it as `async with connect(...) as client`.

    Before `async with` it asks, starts and writes nothing. `Settings` has the parameters. Be ready for these errors of
    `onoff.errors`:

    - `TransportError`: the server could not be asked. If its `pending` is True, the request is kept, and
    `Client.resume` finishes it. If it is False, nothing was asked.
    - `SourceError`: the server has no message for the source. The step is finished.
    - `SessionError`: a request is pending (`PendingRequest`), another one was announced (`Announced`), or there was
    nothing to finish (`NothingPending`).
    - `ContextError`: the chain calls the request impossible. Nothing was asked.
    - `JournalError`: the journal cannot be used. Its words say whether to keep it or to begin anew.
    - `ChainError` and `PlanError`: what was given does not fit together.
    """
    return Client(settings.complete())


def default_journal() -> Path:
    """Where the journal is unless told otherwise: with the user's state."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "onoff" / "journal"


def _absolute(urls: Mapping[str, str] | str | Path | None) -> Path | Mapping[str, str] | None:
    """Make a file's name absolute: the journal notes it, and the directory may change."""
    if urls is None or isinstance(urls, Mapping):
        return urls
    return path_of(urls, "the file of URLs").absolute()
