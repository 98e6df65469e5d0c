"""Any HTTP servers: a catalogue of n URLs; a set is fetched URL by URL, over one connection to each origin.

An origin is a scheme, a host and a port. Each sees the part of a set that it serves, and all together see the set: the
promise holds even if they share what they saw. URLs are asked for one after the other in the order of the catalogue,
whichever origin they are at. An attempt ends at the first URL that cannot be read to its end, and the next attempt
begins anew. So what any origin sees is a function of the set and of what all of them did before.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from reprlib import repr as short

import httpx

from onoff.client.transport import Answer, Content
from onoff.client.transport.address import checked_url, masked, origin_of, request_of
from onoff.client.transport.connection import (
    ANSWER_LIMIT,
    DEADLINE,
    Connections,
    checked_deadline,
    checked_limit,
    within,
)
from onoff.client.transport.validators import condition, type_of, version_of
from onoff.errors import CatalogueError
from onoff.files import path_of, told
from onoff.foreign import plain

BODY_LIMIT = 64 * 2**20
SOURCE_SECONDS = 1.0  # what every source of the catalogue adds to the deadline


class HttpTransport:
    """The sources of a JSON file {name: URL}. A status other than 200 is that source's message, not an error.

    `timeout` is for one read. `deadline` is for a whole answer of all origins, the same for every set (by default 120
    seconds and one more for each source of the catalogue). A body has at most `body_limit` bytes and an answer
    `answer_limit`. If one origin does not answer, the attempt has failed for the whole set.
    """

    def __init__(
        self,
        sources: dict[str, str],
        timeout: float = 30.0,
        body_limit: int = BODY_LIMIT,
        deadline: float | None = None,
        answer_limit: int = ANSWER_LIMIT,
    ) -> None:
        self._sources = _checked(sources)
        self._limit, self._answer_limit = checked_limit(body_limit), checked_limit(answer_limit)
        self._deadline = (
            DEADLINE + SOURCE_SECONDS * len(self._sources) if deadline is None else checked_deadline(deadline)
        )
        self._http = Connections(_origins(self._sources), timeout)

    @classmethod
    def load(cls, file: str | Path, deadline: float | None = None) -> HttpTransport:
        """Read the catalogue from a file."""
        try:
            data = json.loads(path_of(file, "the file of URLs", CatalogueError).read_text(encoding="utf-8"))
        except OSError as error:
            raise CatalogueError(told(error)) from None
        except (ValueError, RecursionError) as error:
            raise CatalogueError(f"{file}: cannot be read as JSON ({plain(str(error))})") from None
        if not isinstance(data, dict) or not all(isinstance(url, str) for url in data.values()):
            raise CatalogueError(f"{file}: an object with a URL for each name is needed")
        return cls(data, deadline=deadline)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._sources)

    @property
    def urls(self) -> dict[str, str]:
        """{name: URL}."""
        return dict(self._sources)

    @property
    def fingerprint(self) -> str:
        """A hash of names, URLs and their order."""
        return hashlib.sha256(json.dumps(["onoff-urls", 1, list(self._sources.items())]).encode()).hexdigest()

    async def connect(self) -> None:
        """Do nothing: the catalogue is the client's own."""

    async def fetch(
        self,
        stream: str,  # noqa: ARG002 (the protocol's)
        step: int,  # noqa: ARG002
        sources: tuple[int, ...],
        held: tuple[str | None, ...] = (),
    ) -> Answer:
        """GET every URL of the set in its order, each body to its end, whatever the statuses are."""
        urls = list(self._sources.values())
        contents, size = [], 0
        async with within(self._deadline):
            for source, version in zip(sources, held or (None,) * len(sources), strict=True):
                limit = min(self._limit, self._answer_limit - size)
                status, body, headers = await self._http.read("GET", urls[source], limit, headers=condition(version))
                contents.append(_content(status, body, headers, version))
                size += len(body)
        return Answer(tuple(contents), size)

    async def close(self) -> None:
        await self._http.close()


def _content(status: int, body: bytes, headers: httpx.Headers, held: str | None) -> Content:
    """What a server has for one URL. "Not modified" is a message like any other status, unless it was asked for."""
    if status == 304 and held is not None:
        return Content(200, b"", unchanged=True)
    version = version_of(headers) if status == 200 else None
    return Content(status, body, None, type_of(headers), version, size=len(body))


def _checked(sources: object) -> dict[str, str]:
    """{name: URL}, as far as types go."""
    if not isinstance(sources, Mapping) or not all(isinstance(name, str) for name in sources):
        raise CatalogueError(f"the sources are {short(sources)}: a URL for each name is needed")
    return dict(sources)


def _origins(sources: dict[str, str]) -> list[str]:
    """All origins, in the order of the URLs. Raises `CatalogueError` if a URL is there twice or cannot be asked for."""
    if len(sources) < 2:
        raise CatalogueError("at least 2 sources are needed")
    names: dict[str, str] = {}
    for name, url in sources.items():
        try:
            parts = checked_url(url)
        except CatalogueError as error:
            raise CatalogueError(f"the URL of {plain(name, 60)!r}: {error}") from None
        if parts.fragment:
            raise CatalogueError(f"the URL of {plain(name, 60)!r} is {masked(url)}: http(s)://host/path is needed")
        other = names.setdefault(request_of(url), name)
        if other != name:
            raise CatalogueError(
                f"{plain(other, 60)!r} and {plain(name, 60)!r} have the same URL: leave one of them out"
            )
    return list(dict.fromkeys(map(origin_of, sources.values())))
