"""What a caller gives: a request, a stream of them, and the sources they are for. Checked before any draw."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain as chained
from itertools import pairwise

from onoff.errors import ChainError, OnoffError
from onoff.model.chain import Chain
from onoff.text import plain
from onoff.types import is_flag


def check_call(source: str, next: str | None, private: bool | None) -> None:
    """Refuse what cannot be a request, before anything is drawn or written. Which source it is stays unlooked at."""
    if not isinstance(source, str):
        raise ChainError(f"the source is {source!r}: its name is needed", value=source)
    if not isinstance(next, str | None):
        raise ChainError(f"the next source is {next!r}: its name is needed, or None", value=next)
    if private is not None and not is_flag(private):
        raise OnoffError(f"private is {private!r}: True or False is needed, or None")


def look_one_ahead(items: Iterable[tuple[str, bool]], promise: str) -> Iterator[tuple[str, str | None, bool]]:
    """The requests (source, next, private) of a stream. For the promise "both" each but the last announces the next."""
    if not isinstance(items, Iterable) or isinstance(items, str | bytes):
        raise OnoffError(f"the requests are {items!r}: (source, private) for each is needed")

    def checked(item: tuple[str, bool]) -> tuple[str, bool]:
        if not (isinstance(item, tuple | list) and len(item) == 2):
            raise OnoffError(f"a request is {item!r}: (source, private) is needed")
        check_call(item[0], None, item[1])
        return item

    ends: Iterator[tuple[str, bool] | None] = chained(map(checked, items), [None])
    for current, following in pairwise(ends):
        assert current is not None
        announced = following[0] if following is not None and promise == "both" else None
        yield current[0], announced, current[1]


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
