"""The last step of each stream in Redis, for server processes on any number of machines."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256

from onoff.server.store.redis import connect, errors_of
from onoff.server.store.streams import STREAMS

# `streams` has for each stream its last step and the SHA-256 of its query; `recent` orders the streams by last use.
_KEYS = ("{onoff}:streams", "{onoff}:recent")
_ADMIT = """
local now = redis.call('TIME')
local score, admitted = now[1] * 1000000 + now[2], {}
for i = 2, #ARGV, 3 do
  local stream, step, digest = ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2]
  local last = redis.call('HGET', KEYS[1], stream)
  local last_step = last and tonumber(string.match(last, '^%d+'))
  if last and (step < last_step or (step == last_step and last ~= ARGV[i + 1] .. ' ' .. digest)) then
    admitted[#admitted + 1] = 0
  else
    redis.call('HSET', KEYS[1], stream, ARGV[i + 1] .. ' ' .. digest)
    redis.call('ZADD', KEYS[2], score, stream)
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

_Asked = tuple[bytes, int, bytes]


class RedisStreams:
    """`Streams` in Redis. Queries that arrive while Redis is being asked are asked about together in the next call:
    a round trip for each would cost more than all the rest of a query."""

    def __init__(self, url: str, limit: int = STREAMS) -> None:
        self._redis, self._name = connect(url)
        self._limit = limit
        self._script = self._redis.register_script(_ADMIT)
        self._waiting: list[tuple[_Asked, asyncio.Future[bool]]] = []
        self._task: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, "onoff-streams")

    async def admit(self, stream: str, step: int, query: bytes) -> bool:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[bool] = loop.create_future()
        self._waiting.append(((bytes.fromhex(stream), step, sha256(query).digest()), answer))
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._ask_until_none_waits())
        return await answer

    def close(self) -> None:
        self._thread.shutdown()
        self._redis.close()

    async def _ask_until_none_waits(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            together, self._waiting = self._waiting, []
            try:
                admitted = await loop.run_in_executor(self._thread, self._ask, [asked for asked, _ in together])
            except Exception as error:
                for _, answer in together:
                    if not answer.done():  # its reader may have hung up
                        answer.set_exception(error)
                continue
            for (_, answer), admit in zip(together, admitted, strict=True):
                if not answer.done():
                    answer.set_result(admit)

    def _ask(self, together: list[_Asked]) -> list[bool]:
        arguments: list[bytes | int] = [self._limit]
        for asked in together:
            arguments += asked
        with errors_of(self._name):
            return [bool(admit) for admit in self._script(keys=_KEYS, args=arguments)]
