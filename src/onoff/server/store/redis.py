"""Messages and streams in Redis: several server processes, on one machine or many, share them."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from hashlib import sha256
from typing import Any, cast

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from onoff.errors import CatalogueError, StoreError, StoreUnavailable
from onoff.server.store import MARKS, NEW, START, Changes, Message, Point
from onoff.server.store.streams import STREAMS
from onoff.wire import Catalogue

_CONNECT_SECONDS = 1.0
_ANSWER_SECONDS = 2.0

# One hash tag, so that a cluster keeps the keys together. `state` has the catalogue and the round, `messages` the
# latest message of each source, `rounds` orders the sources by the round of their latest message, and `marks` has the
# marks of the last rounds, the latest first.
_KEYS = ("{onoff}:state", "{onoff}:messages", "{onoff}:rounds", "{onoff}:marks")

# Redis runs a script as one step: no reader is served in the middle of it. Every script checks the catalogue first,
# so that a server that was given another one cannot write here, and writes it into an empty database.
_BIND = """
local catalogue = redis.call('HGET', KEYS[1], 'catalogue')
if not catalogue then redis.call('HSET', KEYS[1], 'catalogue', ARGV[1])
elseif catalogue ~= ARGV[1] then return false end
"""
_PUBLISH = """
local round = redis.call('HINCRBY', KEYS[1], 'round', 1)
redis.call('LPUSH', KEYS[4], ARGV[2])
redis.call('LTRIM', KEYS[4], 0, tonumber(ARGV[3]) - 1)
for i = 4, #ARGV, 2 do
  redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1])
  redis.call('ZADD', KEYS[3], round, ARGV[i])
end
return round
"""
_CHANGES = """
local round, since = tonumber(redis.call('HGET', KEYS[1], 'round') or 0), tonumber(ARGV[2])
local anew = since == 0 or since > round or redis.call('LINDEX', KEYS[4], round - since) ~= ARGV[3]
if anew then since = 0 end
local found = {round, redis.call('LINDEX', KEYS[4], 0) or '', anew and 1 or 0}
local sources = redis.call('ZRANGE', KEYS[3], '(' .. since, '+inf', 'BYSCORE', 'WITHSCORES')
for i = 1, #sources, 2 do
  local message = redis.call('HGET', KEYS[2], sources[i])
  if not message then return redis.error_reply('a message is missing: was it deleted, or evicted (maxmemory)?') end
  found[#found + 1] = tonumber(sources[i])
  found[#found + 1] = tonumber(sources[i + 1])
  found[#found + 1] = message
end
return found
"""


class RedisStore:
    """A `Store` in a Redis database of its own. A round survives a crash of Redis if Redis appends every write to its
    file before it answers (`appendonly yes`, `appendfsync always`); `caveat` says so where it does not."""

    catalogue: Catalogue

    def __init__(self, url: str, catalogue: Catalogue | None = None) -> None:
        self._redis, self._name = connect(url)
        self._publish = self._redis.register_script(_BIND + _PUBLISH)
        self._changes = self._redis.register_script(_BIND + _CHANGES)
        self.catalogue = catalogue if catalogue is not None else self._stored_catalogue()

    def publish(self, messages: Mapping[int, bytes]) -> int:
        arguments: list[bytes | int] = [self.catalogue.document, secrets.token_bytes(16), MARKS]
        for source, data in messages.items():
            arguments += [source, data]
        with errors_of(self._name):
            return int(self._check(self._publish(keys=_KEYS, args=arguments)))

    def changes(self, since: Point = START) -> Changes:
        with errors_of(self._name):
            found = self._check(self._changes(keys=_KEYS, args=[self.catalogue.document, since.round, since.mark]))
        number, mark, anew, *rows = found
        messages = {rows[i]: Message(rows[i + 1], rows[i + 2]) for i in range(0, len(rows), 3)}
        return Changes(Point(number, mark), messages, bool(anew))

    def caveat(self) -> str | None:
        try:
            with errors_of(self._name):
                found = cast("dict[str, str]", self._redis.config_get("append*"))
        except StoreError:
            return f"{self._name}: could not be asked whether it keeps what it acknowledges (appendonly)"
        if found.get("appendonly") == "yes" and found.get("appendfsync") == "always":
            return None
        return (
            f"{self._name}: may lose the last rounds when it crashes; "
            "set appendonly yes and appendfsync always to keep all that was acknowledged"
        )

    def close(self) -> None:
        self._redis.close()

    def _stored_catalogue(self) -> Catalogue:
        with errors_of(self._name):
            document = cast("bytes | None", self._redis.hget(_KEYS[0], "catalogue"))
        if document is None:
            raise StoreError(f"{self._name}: {NEW}")
        try:
            return Catalogue.parse(document)
        except CatalogueError as error:
            raise StoreError(f"{self._name}: damaged: {error}") from error

    def _check(self, answer: Any) -> Any:
        if answer is None:
            raise StoreError(
                f"{self._name}: holds another catalogue than {self.catalogue.fingerprint[:12]}…; "
                "name another database, readers pin the catalogue"
            )
        return answer


def connect(url: str) -> tuple[redis.Redis, str]:
    """Connect to Redis at this URL; also name it by host and database: the URL may carry a password."""
    # A connection that Redis closed (a restart) is opened again at once; a Redis that does not answer is not
    # asked twice, since the reader waits.
    retry = Retry(NoBackoff(), 1, supported_errors=(redis.ConnectionError,))
    try:
        made = redis.Redis.from_url(
            url, socket_connect_timeout=_CONNECT_SECONDS, socket_timeout=_ANSWER_SECONDS, retry=retry
        )
        made.connection_pool.make_connection()  # which knows what a URL may say; nothing is sent yet
    except (ValueError, TypeError) as error:
        raise StoreError(f"not the URL of a Redis database: {error}") from error
    where = made.connection_pool.connection_kwargs
    return made, f"Redis at {where.get('path') or where.get('host')}, database {where.get('db', 0)}"


@contextmanager
def errors_of(name: str) -> Iterator[None]:
    """Turn errors of Redis into ours. Nearly all are temporary: down, starting, failing over, out of memory or disk."""
    try:
        yield
    except redis.RedisError as error:
        raise StoreUnavailable(f"{name}: {error}") from error


# `streams` has for each stream its last step and the SHA-256 of its query; `recent` orders the streams by last use,
# which is counted: a clock may be put back.
_STREAM_KEYS = ("{onoff}:streams", "{onoff}:recent")
_ADMIT = """
local newest = redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')
local use, admitted = tonumber(newest[2] or 0), {}
for i = 2, #ARGV, 3 do
  local stream, step, digest = ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2]
  local last = redis.call('HGET', KEYS[1], stream)
  local last_step = last and tonumber(string.match(last, '^%d+'))
  if last and (step < last_step or (step == last_step and last ~= ARGV[i + 1] .. ' ' .. digest)) then
    admitted[#admitted + 1] = 0
  else
    redis.call('HSET', KEYS[1], stream, ARGV[i + 1] .. ' ' .. digest)
    use = use + 1
    redis.call('ZADD', KEYS[2], use, stream)
    admitted[#admitted + 1] = 1
  end
end
local surplus = redis.call('ZCARD', KEYS[2]) - tonumber(ARGV[1])
if surplus > 0 then
  local forgotten = redis.call('ZPOPMIN', KEYS[2], surplus)
  for i = 1, #forgotten, 2 do redis.call('HDEL', KEYS[1], forgotten[i]) end
end
return admitted
"""


class RedisStreams:
    """`Streams` in Redis. Queries that arrive while Redis is being asked are asked about together in the next call:
    a round trip for each would cost more than all the rest of a query."""

    def __init__(self, url: str, limit: int = STREAMS) -> None:
        self._redis, self._name = connect(url)
        self._limit = limit
        self._script = self._redis.register_script(_ADMIT)
        self._batch: list[tuple[bytes, int, bytes]] = []
        self._lock, self._thread = asyncio.Lock(), ThreadPoolExecutor(1, "onoff-streams")

    async def admit(self, stream: str, step: int, query: bytes) -> bool:
        place = len(self._batch)
        self._batch.append((bytes.fromhex(stream), step, sha256(query).digest()))
        if place == 0:
            self._asking = asyncio.create_task(self._ask())
        # Shielded: others wait for the same call, and a reader that hangs up must not end it.
        admitted = await asyncio.shield(self._asking)
        if isinstance(admitted, StoreError):
            raise admitted
        return admitted[place]

    def close(self) -> None:
        self._thread.shutdown()
        self._redis.close()

    async def _ask(self) -> list[bool] | StoreError:
        """Ask about the batch, once Redis has answered the previous one. Return an error to all who wait."""
        async with self._lock:
            batch, self._batch = self._batch, []
            arguments = [self._limit, *(part for asked in batch for part in asked)]
            try:
                return await asyncio.get_running_loop().run_in_executor(self._thread, self._call, arguments)
            except StoreError as error:
                return error

    def _call(self, arguments: list[bytes | int]) -> list[bool]:
        with errors_of(self._name):
            return [bool(admit) for admit in self._script(keys=_STREAM_KEYS, args=arguments)]
