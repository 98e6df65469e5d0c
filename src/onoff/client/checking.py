"""What a client is given, refused before anything is drawn, written or sent if it cannot be meant."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from reprlib import repr as short
from typing import TYPE_CHECKING

from onoff.errors import ChainError, NothingPending, OnoffError, PlanError
from onoff.foreign import plain
from onoff.plans.lengths import Weighing
from onoff.types import is_flag, is_number

if TYPE_CHECKING:
    from onoff.client.message import Message
    from onoff.model.chain import Chain


def nothing_pending(step: int, last: Message | None) -> NothingPending:
    """The error of `resume`, with what there is instead."""
    words = "nothing is pending: ask for what you want"
    if last is not None:
        words += (
            f". The last message, for {last.source!r} in step {last.step}, comes again with resume(last=True) "
            "(`onoff resume --last`)"
        )
    return NothingPending(words, step=step)


def check_seconds(**seconds: float) -> None:
    """Raise `OnoffError` unless all of these are seconds from 0 on."""
    for name, value in seconds.items():
        if not (is_number(value) and 0 <= value < math.inf):
            raise OnoffError(f"{name} is {value!r}: seconds from 0 on are needed")


def check_flags(**flags: bool) -> None:
    """Raise `OnoffError` unless all of these are True or False: the word "no" would count as True."""
    for name, value in flags.items():
        if not is_flag(value):
            raise OnoffError(f"{name} is {value!r}: True or False is needed")


def check_request(source: str, next: str | None, private: bool | None) -> None:
    """Refuse what cannot be a request, before anything is drawn or written. Which source it is stays unlooked at."""
    if not isinstance(source, str):
        raise ChainError(f"the source is {source!r}: its name is needed", value=source)
    if not isinstance(next, str | None):
        raise ChainError(f"the next source is {next!r}: its name is needed, or None", value=next)
    if private is not None and not is_flag(private):
        raise OnoffError(f"private is {private!r}: True or False is needed, or None")


def check_parts(transport: object, planner: object, weighing: object) -> None:
    """Refuse what cannot be the parts of a `Client`."""
    if not all(callable(getattr(transport, name, None)) for name in ("connect", "fetch", "close")):
        raise OnoffError(f"the transport is {short(transport)}: an OnoffTransport or an HttpTransport is needed")
    if planner is not None and not callable(planner) and not hasattr(planner, "store"):
        raise PlanError(f"the planner is {short(planner)}: a Planner is needed, or a function that makes one")
    if not isinstance(weighing, Weighing | None):
        raise PlanError(f"the weighing is {short(weighing)}: an `onoff.plans.lengths.Weighing` is needed")


def iterated(items: Iterable[tuple[str, bool]]) -> Iterator[tuple[str, bool]]:
    """The requests of `Client.play` in turn."""
    if not isinstance(items, Iterable) or isinstance(items, str | bytes):
        raise OnoffError(f"the requests are {items!r}: (source, private) for each is needed")
    return iter(items)


def check_item(item: tuple[str, bool]) -> None:
    """Refuse what cannot be a request of `Client.play`."""
    if not (isinstance(item, tuple | list) and len(item) == 2):
        raise OnoffError(f"a request is {item!r}: (source, private) is needed")
    check_request(item[0], None, item[1])


def places_on_wire(chain: Chain, names: tuple[str, ...]) -> list[int]:
    """Where each source of the chain stands in the server's order. Raises `ChainError` if the sources are others."""
    if sorted(names) != sorted(chain.names):
        theirs, ours = sorted(set(names) - set(chain.names)), sorted(set(chain.names) - set(names))
        raise ChainError(
            f"the sources that can be fetched are not those of the chain. {_missing(theirs, 'The chain')}"
            f"{_missing(ours, 'The file of URLs, or the server,')}A chain is for one list of sources: fit another "
            "one, or change the list"
        )
    places = {name: i for i, name in enumerate(names)}
    return [places[name] for name in chain.names]


def _missing(names: list[str], where: str) -> str:
    """Which names a list lacks, in a sentence; nothing if it lacks none."""
    if not names:
        return ""
    return f"{where} lacks {', '.join(plain(name, 60) for name in names[:5])}{', ...' if len(names) > 5 else ''}. "
