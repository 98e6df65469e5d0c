"""The file of URLs that a client reads from, made once from a list of feeds: its front door is `find_urls`.

    lists    what an OPML file or a plain list says: names and URLs, each with its place
    asking   every URL asked once, its redirects followed

What is written has neither dates nor the order of the list, which may say what its owner likes best: sources are sorted
by their names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onoff.client.urls.lists import listed
from onoff.types import Bar, quiet

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class FoundUrls:
    """The sources {name: URL}, sorted by name, the URLs that redirected ones had in the list, and how many servers."""

    urls: Mapping[str, str]
    redirected: Mapping[str, str]
    origins: int


async def find_urls(file: str | Path, timeout: float = 10.0, bar: Bar = quiet) -> FoundUrls:
    """The sources of an OPML file or of a plain list of URLs; "-" is stdin.

    Every URL is asked for once, all alike, sorted by name. Redirects are followed here, because a client follows none.
    Raises `CatalogueError` if the list cannot be read, if a name or a URL is there twice, or if a URL does not
    answer with 200. The error names the places in the list.
    """
    from onoff.client.urls.asking import asked

    return await asked(listed(file), timeout, bar)


__all__ = ["FoundUrls", "find_urls"]
