"""Any HTTP server: a catalogue of n URLs at one origin; a set is fetched URL by URL, over one connection."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import httpx

from onoff.client.transport import Answer, Content
from onoff.client.transport.address import checked_url, masked
from onoff.client.transport.connection import ANSWER_LIMIT, DEADLINE, checked_deadline, open_connection, read, within
from onoff.errors import CatalogueError, SourceError
from onoff.files import told
from onoff.foreign import plain

BODY_LIMIT = 64 * 2**20
SOURCE_SECONDS = 1.0  # what every source of the catalogue adds to the deadline


class HttpTransport:
    """The sources of a JSON file {name: URL}. A status other than 200 is that source's message, not an error.

    `timeout` is for one read. `deadline` is for a whole answer, the same for every set (by default 120 seconds and
    one more for each source of the catalogue). A body has at most `body_limit` bytes and an answer `answer_limit`.
    """

    def __init__(
        self,
        sources: dict[str, str],
        timeout: float = 30.0,
        body_limit: int = BODY_LIMIT,
        deadline: float | None = None,
        answer_limit: int = ANSWER_LIMIT,
    ) -> None:
        self._sources = dict(sources)
        self._limit, self._answer_limit = body_limit, answer_limit
        self._deadline = (
            DEADLINE + SOURCE_SECONDS * len(self._sources) if deadline is None else checked_deadline(deadline)
        )
        origin = _common_origin(self._sources)
        self._http: httpx.AsyncClient = open_connection(origin, timeout)

    @classmethod
    def load(cls, file: str | Path, deadline: float | None = None) -> HttpTransport:
        """Read the catalogue from a file."""
        try:
            data = json.loads(Path(file).read_text(encoding="utf-8"))
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

    async def fetch(self, stream: str, step: int, sources: tuple[int, ...]) -> Answer:  # noqa: ARG002 (the protocol's)
        """GET every URL of the set in its order, each body to its end, whatever the statuses are."""
        urls = list(self._sources.values())
        contents, size = [], 0
        async with within(self._deadline):
            for source in sources:
                limit = min(self._limit, self._answer_limit - size)
                status, body = await read(self._http, self._http.build_request("GET", urls[source]), limit)
                contents.append(Content(status, body))
                size += len(body)
        return Answer(tuple(contents), size)

    async def measure(self) -> dict[str, int]:
        """The length of every body, by fetching all of them: it can serve as the cost of a source in planning."""
        answer = await self.fetch("", 0, tuple(range(len(self.names))))
        for (name, url), content in zip(self._sources.items(), answer.contents, strict=True):
            if content.status != 200:
                raise SourceError(
                    f"the server answered {content.status} for {name!r} ({url}): its length cannot be measured",
                    status=content.status,
                    body=content.body,
                )
        return {name: max(1, len(content.body)) for name, content in zip(self.names, answer.contents, strict=True)}

    async def close(self) -> None:
        await self._http.aclose()


def _common_origin(sources: dict[str, str]) -> str:
    if len(sources) < 2:
        raise CatalogueError("at least 2 sources are needed")
    if len(set(sources.values())) != len(sources):
        raise CatalogueError("two sources have the same URL")
    origins = set()
    for name, url in sources.items():
        try:
            parts = checked_url(url)
        except CatalogueError as error:
            raise CatalogueError(f"the URL of {plain(name, 60)!r}: {error}") from None
        if parts.fragment:
            raise CatalogueError(f"the URL of {plain(name, 60)!r} is {masked(url)}: http(s)://host/path is needed")
        origins.add((parts.scheme, parts.netloc))
    if len(origins) > 1:
        shown = " and ".join(f"{scheme}://{place}" for scheme, place in sorted(origins)[:2])
        raise CatalogueError(f"all URLs must be at one origin: here are {shown}")
    scheme, place = origins.pop()
    return f"{scheme}://{place}"
