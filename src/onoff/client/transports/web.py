"""Any HTTP servers: a catalogue of n URLs; a set is fetched URL by URL, over one connection to each origin.

An origin is a scheme, a host and a port. Each sees the part of a set that it serves, and all together see the set: the
promise holds even if they share what they saw. The client asks for a set in rounds, with pauses between them. A round
asks for all URLs without an answer, one after the other in the order of the catalogue, whichever origin they are at. A
round leaves out an origin that cannot be reached, is silent, or has used up its share of the time. A source without an
answer after the last round, or at the deadline, has failed: the step ends in any case. A URL with a broken answer is
asked for once more; if that answer is broken, too, or is too long, the source has failed as well. So what any origin
sees is a function of the set and of what all of them did before.

The most careful programs use one connection to an origin, with a pause between requests. Several would be faster, but
then the order of requests, which origins see, would be left to chance.

The version of a body is a text: `etag "..."`, or else `modified DATE` (RFC 9110, 13.1). It is kept only in forms that
can be sent back as they came, whatever a server sends.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import zlib
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from reprlib import repr as short
from typing import Any

import httpx

from onoff.client.transports import Answer, Content, fails
from onoff.client.transports.freshness import freshness, is_storable
from onoff.client.transports.http import (
    ANSWER_LIMIT,
    DEADLINE,
    BrokenAnswer,
    Connections,
    MixedAnswers,
    Reply,
    TooLong,
    check_agent,
    check_seconds,
    check_url,
    mask,
    origin_of,
    request_of,
)
from onoff.client.transports.origins import Origins, moment
from onoff.errors import CatalogueError, OnoffError, Unavailable
from onoff.files import path_of, read_json
from onoff.text import plain
from onoff.types import is_whole

BODY_LIMIT = 64 * 2**20
SOURCE_SECONDS = 1.0  # what every source of the catalogue adds to the deadline
PAUSE = 0.01  # seconds between two requests to one origin
BROKEN = 502  # the status of a source whose server sends no answer that can be read
SILENT = 504  # the status of a source whose server does not answer
ETAG = re.compile(r'(?:W/)?"[\x21\x23-\x7e]{0,256}"')
TYPE = re.compile(r"[\x20-\x7e]{1,200}")
FIELDS = {"etag": "if-none-match", "modified": "if-modified-since"}


class HttpTransport:
    """The sources of a JSON file {name: URL}. A status other than 200 is that source's message, not an error.

    `timeout` is for one read. `deadline` is for a whole answer of all origins, the same for every set (by default 120
    seconds and one more for each source of the catalogue). A body has at most `body_limit` bytes and an answer
    `answer_limit`: a longer one is the failure of its source. A set is asked for in at most `attempts` rounds, with
    pauses that double from `backoff` seconds on. `agent` is the User-Agent.
    """

    def __init__(
        self,
        sources: dict[str, str],
        timeout: float = 30.0,
        body_limit: int = BODY_LIMIT,
        deadline: float | None = None,
        answer_limit: int = ANSWER_LIMIT,
        attempts: int = 5,
        backoff: float = 0.2,
        agent: str | None = None,
    ) -> None:
        self.urls = _check_urls(sources)
        for limit in (body_limit, answer_limit):
            if not is_whole(limit, 1):
                raise OnoffError(f"a limit is a whole number of bytes above 0, not {limit!r}")
        self._limit, self._answer_limit = body_limit, answer_limit
        longest = DEADLINE + SOURCE_SECONDS * len(self.urls)
        self._deadline = longest if deadline is None else check_seconds(deadline)
        self._attempts, self._backoff = attempts, backoff
        self._in_order = list(self.urls.values())
        self._places = [origin_of(url) for url in self._in_order]
        self._origins = Origins()
        self._http = Connections(timeout, check_agent(agent))

    @classmethod
    def load(cls, file: str | Path, deadline: float | None = None, **options: Any) -> HttpTransport:
        """Read the catalogue from a file."""
        data = read_json(path_of(file, "the file of URLs", CatalogueError), CatalogueError)
        if not isinstance(data, dict) or not all(isinstance(url, str) for url in data.values()):
            raise CatalogueError(f"{file}: an object with a URL for each name is needed")
        return cls(data, deadline=deadline, **options)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.urls)

    @property
    def fingerprint(self) -> str:
        """A hash of names, URLs and their order."""
        return hashlib.sha256(json.dumps(["onoff-urls", 1, list(self.urls.items())]).encode()).hexdigest()

    @property
    def notes(self) -> str:
        return json.dumps([self._origins.silent, self._origins.resting])

    @notes.setter
    def notes(self, text: str) -> None:
        if text:
            self._origins.silent, self._origins.resting = json.loads(text)

    async def connect(self) -> None:
        """Do nothing: the catalogue is the client's own."""

    async def fetch(
        self,
        stream: str,  # noqa: ARG002 (the protocol's)
        step: int,
        sources: tuple[int, ...],
        held: tuple[str | None, ...] = (),
    ) -> Answer:
        """GET every URL of the set in its order, each body to its end, whatever the statuses are.

        If an origin mixes answers up, the set is fetched anew: from then on with a connection for each of its URLs.
        """
        with suppress(MixedAnswers):  # of an earlier set, which is over
            await self._http.check()
        versions = dict(zip(sources, held or (None,) * len(sources), strict=True))
        ends = asyncio.get_running_loop().time() + self._deadline
        while True:
            with suppress(MixedAnswers):
                contents = await self._contents(step, versions, ends)
                await self._http.settle()
                return Answer(contents, sum(content.size for content in contents), self.notes)

    async def close(self) -> None:
        await self._http.close()

    async def _contents(self, step: int, held: dict[int, str | None], ends: float) -> tuple[Content, ...]:
        """Ask in rounds. Origins that are asked only once are left out after the first."""
        found: dict[int, Content] = {}
        silent: dict[str, str] = {}
        loop, sources = asyncio.get_running_loop(), list(held)
        for attempt in range(self._attempts):
            pause = self._backoff * 2 ** (attempt - 1) if attempt else 0.0
            if not sources or loop.time() + pause >= ends:
                break
            await asyncio.sleep(pause)
            silent |= await self._round(step, sources, held, found, ends - loop.time())
            sources = [s for s in held if s not in found and not self._origins.is_short(self._places[s], step)]
        unanswered = {self._places[source] for source in held.keys() - found.keys()}
        for origin in {self._places[source] for source in held}:
            self._origins.note(origin, step, origin not in unanswered)
        return tuple(
            found.get(source) or _failure(SILENT, silent.get(self._places[source], "there was no time left"))
            for source in held
        )

    async def _round(
        self, step: int, sources: list[int], held: dict[int, str | None], found: dict[int, Content], seconds: float
    ) -> dict[str, str]:
        """Ask for sources, and put what is `found` there. Each origin has a share of the time, by its sources.

        Returns why origins did not answer.
        """
        origins = Counter(self._places[source] for source in sources)
        shares = {origin: seconds * count / len(sources) for origin, count in origins.items()}
        silent: dict[str, str] = {}
        loop, spoken = asyncio.get_running_loop(), set()
        for source in sources:
            origin = self._places[source]
            if origin in silent:
                continue
            began, room = loop.time(), self._answer_limit - sum(len(content.body) for content in found.values())
            try:
                async with asyncio.timeout(self._origins.seconds(origin, step, shares[origin])):
                    await asyncio.sleep(PAUSE if origin in spoken else 0.0)
                    found[source] = await self._content(source, min(self._limit, room), held[source])
            except TimeoutError:
                silent[origin] = f"{origin} did not answer in time (--deadline)"
            except Unavailable as error:
                silent[origin] = str(error)
            spoken.add(origin)
            shares[origin] -= loop.time() - began
        return silent

    async def _content(self, source: int, limit: int, held: str | None) -> Content:
        """Ask for one URL. "Not modified" is a message like any other status, unless it was asked for."""
        origin = self._places[source]
        resting = self._origins.rest(origin)
        if resting is not None:
            return _failure(resting, f"{origin} wants to be left alone for a while")
        try:
            reply = await self._ask(self._in_order[source], limit, held)
            body = await _decode(reply, limit)
        except BrokenAnswer as error:
            return _failure(BROKEN, str(error))
        self._origins.note_rest(origin, reply.status, reply.headers)
        if reply.status == 304 and held is not None:
            return Content(200, b"", unchanged=True, fresh=freshness(reply.headers))
        version = version_of(reply.headers) if reply.status == 200 else None
        fresh = None if fails(reply.status) else freshness(reply.headers)
        return Content(reply.status, body, None, type_of(reply.headers), version, size=len(reply.body), fresh=fresh)

    async def _ask(self, url: str, limit: int, held: str | None) -> Reply:
        try:
            return await self._http.read("GET", url, limit, headers=condition(held))
        except TooLong:
            raise
        except BrokenAnswer:  # perhaps the server had ended the connection before it was asked
            return await self._http.read("GET", url, limit, headers=condition(held))


def _failure(status: int, words: str) -> Content:
    """A failure: its status, and what was wrong in words."""
    return Content(status, f"{words}\n".encode(), content_type="text/plain", fresh=None)


async def _decode(reply: Reply, limit: int) -> bytes:
    """The body. Some servers compress it although they are asked not to."""
    coding = reply.headers.get("content-encoding", "identity").strip().lower()
    if coding in ("identity", "") or not reply.body:
        return reply.body
    if coding not in ("gzip", "x-gzip", "deflate"):
        raise BrokenAnswer(f"the server sent a body with the coding {plain(coding, 40)!r}, which was not asked for")
    return await asyncio.to_thread(_unzip, reply.body, limit)


def _unzip(body: bytes, limit: int) -> bytes:
    """Decompress gzip or zlib. Raises `BrokenAnswer` if the data is not whole."""
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
    if not is_storable(headers):
        return None
    tag = headers.get("etag", "")
    if ETAG.fullmatch(tag):
        return f"etag {tag}"
    changed, sent = moment(headers.get("last-modified", "")), moment(headers.get("date", ""))
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


def _check_urls(sources: object) -> dict[str, str]:
    """{name: URL}. Raises `CatalogueError` if a URL is there twice or cannot be asked for."""
    if not isinstance(sources, Mapping) or not all(isinstance(name, str) for name in sources):
        raise CatalogueError(f"the sources are {short(sources)}: a URL for each name is needed")
    if len(sources) < 2:
        raise CatalogueError("at least 2 sources are needed")
    names: dict[str, str] = {}
    for name, url in sources.items():
        called = repr(plain(name, 60))
        try:
            parts = check_url(url)
        except CatalogueError as error:
            raise CatalogueError(f"the URL of {called}: {error}") from None
        if parts.fragment:
            raise CatalogueError(f"the URL of {called} is {mask(url)}: http(s)://host/path is needed")
        other = names.setdefault(request_of(url), name)
        if other != name:
            raise CatalogueError(f"{plain(other, 60)!r} and {called} have the same URL: leave one of them out")
    return dict(sources)
