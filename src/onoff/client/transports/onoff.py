"""Our own server: one round trip, a frame for each source, each with its checksum.

The version of a message is its round and the tag of its frame: "ROUND TAG".
"""

from __future__ import annotations

import logging

from onoff.client.transports import Answer, Content
from onoff.client.transports.freshness import freshness
from onoff.client.transports.http import (
    ANSWER_LIMIT,
    DEADLINE,
    Connections,
    check_seconds,
    check_server,
    check_token,
    within,
)
from onoff.errors import AFRESH, AnswerError, CatalogueError, RefusedByServer, SessionError, StaleStep, Unavailable
from onoff.text import refusal
from onoff.wire import UNCHANGED_LENGTH, Catalogue, Frame, QueryMessage, Unchanged, decode_answer

CATALOGUE_LIMIT = 16 * 2**20
PROBLEM_LIMIT = 64 * 2**10  # of an answer that says why there are no frames
RATE = 2**20  # bytes a second: what the full set needs at this rate is added to the deadline
NONE = (0, b"")  # the version of what is not held
log = logging.getLogger("onoff.client")
STALE = b'"urn:onoff:problem:stale-step"'


class OnoffTransport:
    """A server started by `onoff serve`, at `url`. The token, if readers need one, is sent with every request.

    `timeout` is for one read. `deadline` is for a whole answer, the same for every set (by default 120 seconds and
    what the full set needs at 1 MiB a second).
    """

    notes = ""

    def __init__(
        self, url: str, token: str | None = None, timeout: float = 10.0, deadline: float | None = None
    ) -> None:
        self.url = check_server(url)
        headers = None if token is None else {"Authorization": f"Bearer {check_token(token)}"}
        self._http = Connections(timeout, headers)
        self._catalogue: Catalogue | None = None
        self._given_deadline = None if deadline is None else check_seconds(deadline)

    @property
    def catalogue(self) -> Catalogue:
        if self._catalogue is None:
            raise SessionError("the transport knows nothing of its server yet: a client connects it when it is opened")
        return self._catalogue

    @property
    def names(self) -> tuple[str, ...]:
        return self.catalogue.names

    @property
    def fingerprint(self) -> str:
        return self.catalogue.fingerprint

    async def connect(self) -> None:
        """Fetch the catalogue, and refuse it if its full set could not be asked for."""
        async with within(DEADLINE if self._given_deadline is None else self._given_deadline):
            status, body, _ = await self._http.read("GET", f"{self.url}/v1/catalogue", CATALOGUE_LIMIT)
        if status != 200:
            if status == 404:
                raise RefusedByServer(
                    f"{self.url} is not an onoff server: give a file with the URLs of its sources instead"
                )
            raise _refusal(status, body, "the catalogue")
        try:
            catalogue = Catalogue.parse(body)
        except CatalogueError as error:
            raise RefusedByServer(f"{self.url} does not serve a catalogue: {error}") from None
        everything = catalogue.frame_length * catalogue.n
        if everything > ANSWER_LIMIT:
            raise RefusedByServer(
                f"all messages of {self.url} together have {everything} bytes; a client takes at most {ANSWER_LIMIT}: "
                "serve fewer sources, or shorter messages"
            )
        self._deadline = DEADLINE + everything / RATE if self._given_deadline is None else self._given_deadline
        self._catalogue = catalogue

    async def fetch(
        self, stream: str, step: int, sources: tuple[int, ...], held: tuple[str | None, ...] = ()
    ) -> Answer:
        """Ask for the set; every frame is checked before any is given out."""
        catalogue = self.catalogue
        versions = [_version(text) for text in held] or [NONE] * len(sources)
        rounds = tuple(number for number, _ in versions)
        body = QueryMessage(catalogue.fingerprint, stream, step, sources, rounds).encode()
        kind = {"Content-Type": "application/json"}
        limit = max(catalogue.frame_length * len(sources), PROBLEM_LIMIT)
        async with within(self._deadline):
            status, answer, headers = await self._http.read("POST", f"{self.url}/v1/query", limit, body, kind)
        if status == 409 and STALE in answer:
            raise StaleStep(
                f"{self.url} has answered another query for step {step} of this stream: the journal was restored from "
                f"a backup, or copied; {AFRESH}"
            )
        if status != 200:
            raise _refusal(status, answer, "the query")
        try:
            frames = decode_answer(catalogue, sources, answer, rounds)
        except AnswerError as error:
            raise Unavailable(f"{self.url}: {error}") from None
        if any(frame.round < held for frame, held in zip(frames, rounds, strict=True)):  # of any member, wanted or not
            log.warning("%s has older messages than it sent before: its store was emptied or restored", self.url)
        fresh = freshness(headers) or 0.0  # no-store is for caches on the way: a client holds messages in any case
        contents = (_content(frame, version, catalogue, fresh) for frame, version in zip(frames, versions, strict=True))
        return Answer(tuple(contents), len(answer))

    async def close(self) -> None:
        await self._http.close()


def _content(frame: Frame | Unchanged, held: tuple[int, bytes], catalogue: Catalogue, fresh: float) -> Content:
    """What a frame says. One that calls something unchanged which is not what is held is the failure of its source."""
    if isinstance(frame, Frame):
        version = f"{frame.round} {frame.tag.hex()}" if frame.round else None
        return Content(200, frame.message, frame.round, version=version, size=catalogue.frame_length, fresh=fresh)
    if (frame.round, frame.tag) != held:
        return Content(304, b"", frame.round, size=UNCHANGED_LENGTH, fresh=None)
    return Content(200, b"", frame.round, unchanged=True, size=UNCHANGED_LENGTH, fresh=fresh)


def _version(text: str | None) -> tuple[int, bytes]:
    """The round and the tag of what is held."""
    if text is None:
        return NONE
    number, _, tag = text.partition(" ")
    return int(number), bytes.fromhex(tag)


def _refusal(status: int, body: bytes, what: str) -> Unavailable | RefusedByServer:
    """The error for a refusal. Server errors and overload are temporary; anything else is not."""
    message = f"the server answered {status} to {what}: {refusal(body)}"
    return Unavailable(message) if status >= 500 or status in (408, 429) else RefusedByServer(message)
