"""Any HTTP servers: a catalogue of n URLs; a set is fetched URL by URL, over one connection to each origin.

An origin is a scheme, a host and a port. Each sees the part of a set that it serves, and all together see the set: the
promise holds even if they share what they saw. URLs are asked for one after the other in the order of the catalogue,
whichever origin they are at. A URL whose answer is broken is asked for once more; if that answer is broken, too, or if
it is too long, this is the failure of its source. If a server cannot be reached, the attempt ends, and the next one
begins anew. So what any origin sees is a function of the set and of what all of them did before.

The version of a body is a text: `etag "..."`, or else `modified DATE` (RFC 9110, 13.1). It is kept only in forms that
can be sent back as they came, whatever a server sends.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import zlib
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from reprlib import repr as short

import httpx

from onoff.client.transports import Answer, Content
from onoff.client.transports.http import (
    ANSWER_LIMIT,
    DEADLINE,
    BrokenAnswer,
    Connections,
    MixedAnswers,
    Reply,
    TooLong,
    checked_seconds,
    checked_url,
    masked,
    request_of,
    within,
)
from onoff.errors import CatalogueError, OnoffError
from onoff.files import path_of, told
from onoff.text import plain
from onoff.types import is_whole

BODY_LIMIT = 64 * 2**20
SOURCE_SECONDS = 1.0  # what every source of the catalogue adds to the deadline
BROKEN = 502  # the status of a source whose server sends no answer that can be read
ETAG = re.compile(r'(?:W/)?"[\x21\x23-\x7e]{0,256}"')
DATE = re.compile(r"[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2} GMT")
TYPE = re.compile(r"[\x20-\x7e]{1,200}")
FIELDS = {"etag": "if-none-match", "modified": "if-modified-since"}


class HttpTransport:
    """The sources of a JSON file {name: URL}. A status other than 200 is that source's message, not an error.

    `timeout` is for one read. `deadline` is for a whole answer of all origins, the same for every set (by default 120
    seconds and one more for each source of the catalogue). A body has at most `body_limit` bytes and an answer
    `answer_limit`: a longer one is the failure of its source.
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
        for limit in (body_limit, answer_limit):
            if not is_whole(limit, 1):
                raise OnoffError(f"a limit is a whole number of bytes above 0, not {limit!r}")
        self._limit, self._answer_limit = body_limit, answer_limit
        longest = DEADLINE + SOURCE_SECONDS * len(self._sources)
        self._deadline = longest if deadline is None else checked_seconds(deadline)
        self._http = Connections(timeout)

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
    def urls(self) -> Mapping[str, str]:
        return self._sources

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
        """GET every URL of the set in its order, each body to its end, whatever the statuses are.

        If an origin mixes answers up, the set is fetched anew: from then on with a connection for each of its URLs.
        """
        async with within(self._deadline):
            with suppress(MixedAnswers):  # of an earlier set, which is over
                await self._http.check()
            while True:
                with suppress(MixedAnswers):
                    contents = await self._contents(sources, held or (None,) * len(sources))
                    await self._http.settle()
                    return Answer(contents, sum(content.size for content in contents))

    async def close(self) -> None:
        await self._http.close()

    async def _contents(self, sources: tuple[int, ...], held: tuple[str | None, ...]) -> tuple[Content, ...]:
        urls, contents, room = list(self._sources.values()), [], self._answer_limit
        for source, version in zip(sources, held, strict=True):
            contents.append(await self._content(urls[source], min(self._limit, room), version))
            room -= len(contents[-1].body)
        return tuple(contents)

    async def _content(self, url: str, limit: int, held: str | None) -> Content:
        """What a server has for one URL. "Not modified" is a message like any other status, unless it was asked for."""
        try:
            reply = await self._ask(url, limit, held)
            body = await _decoded(reply, limit)
        except BrokenAnswer as error:
            return Content(BROKEN, f"{error}\n".encode(), content_type="text/plain")
        if reply.status == 304 and held is not None:
            return Content(200, b"", unchanged=True)
        version = version_of(reply.headers) if reply.status == 200 else None
        return Content(reply.status, body, None, type_of(reply.headers), version, size=len(reply.body))

    async def _ask(self, url: str, limit: int, held: str | None) -> Reply:
        try:
            return await self._http.read("GET", url, limit, headers=condition(held))
        except TooLong:
            raise
        except BrokenAnswer:  # perhaps the server had ended the connection before it was asked
            return await self._http.read("GET", url, limit, headers=condition(held))


async def _decoded(reply: Reply, limit: int) -> bytes:
    """The body. Some servers compress it although they are asked not to."""
    coding = reply.headers.get("content-encoding", "identity").strip().lower()
    if coding in ("identity", "") or not reply.body:
        return reply.body
    if coding not in ("gzip", "x-gzip", "deflate"):
        raise BrokenAnswer(f"the server sent a body with the coding {plain(coding, 40)!r}, which was not asked for")
    return await asyncio.to_thread(_unzipped, reply.body, limit)


def _unzipped(body: bytes, limit: int) -> bytes:
    """What gzip or zlib has compressed. Raises `BrokenAnswer` if it is not whole."""
    unzip = zlib.decompressobj(zlib.MAX_WBITS | 32)
    try:
        found = unzip.decompress(body, limit + 1)
    except zlib.error as error:
        raise BrokenAnswer(f"the server sent a body that cannot be unzipped ({error})") from None
    if len(found) > limit:
        raise TooLong(f"the server sent a body that is longer than {limit} bytes")
    if not unzip.eof or unzip.unused_data:
        raise BrokenAnswer("the server sent a body that cannot be unzipped (it ends too early, or too late)")
    return found


def version_of(headers: httpx.Headers) -> str | None:
    """The version of a body that came with these headers; None if it cannot be asked for by it.

    An entity tag is compared by the server alone, so a weak one does. A date names a whole second. It is kept only if
    the body was sent in a later one (RFC 9110, 8.8.2.2), or a change in the rest of that second would never be seen.
    What must not be stored (RFC 9111, 5.2.2.5) has no version.
    """
    directives = re.split(r"[,=\s]+", headers.get("cache-control", "").lower())
    if "no-store" in directives:
        return None
    tag = headers.get("etag", "")
    if ETAG.fullmatch(tag):
        return f"etag {tag}"
    changed, sent = _moment(headers.get("last-modified", "")), _moment(headers.get("date", ""))
    if changed is not None and sent is not None and changed < sent:
        return f"modified {headers['last-modified']}"
    return None


def condition(version: str | None) -> dict[str, str]:
    """The header that asks for what is newer than this version; none if nothing is held."""
    if version is None:
        return {}
    kind, _, value = version.partition(" ")
    return {FIELDS[kind]: value}


def type_of(headers: httpx.Headers) -> str | None:
    """What the server calls a body, if it does so in at most 200 plain characters."""
    found = headers.get("content-type", "")
    return found if TYPE.fullmatch(found) else None


def _moment(text: str) -> datetime | None:
    try:
        return parsedate_to_datetime(text) if DATE.fullmatch(text) else None
    except ValueError:
        return None


def _checked(sources: object) -> dict[str, str]:
    """{name: URL}. Raises `CatalogueError` if a URL is there twice or cannot be asked for."""
    if not isinstance(sources, Mapping) or not all(isinstance(name, str) for name in sources):
        raise CatalogueError(f"the sources are {short(sources)}: a URL for each name is needed")
    if len(sources) < 2:
        raise CatalogueError("at least 2 sources are needed")
    names: dict[str, str] = {}
    for name, url in sources.items():
        called = repr(plain(name, 60))
        try:
            parts = checked_url(url)
        except CatalogueError as error:
            raise CatalogueError(f"the URL of {called}: {error}") from None
        if parts.fragment:
            raise CatalogueError(f"the URL of {called} is {masked(url)}: http(s)://host/path is needed")
        other = names.setdefault(request_of(url), name)
        if other != name:
            raise CatalogueError(f"{plain(other, 60)!r} and {called} have the same URL: leave one of them out")
    return dict(sources)
