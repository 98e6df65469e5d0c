"""Where the stores of these tests are: in a file, or in a Redis that all tests share."""

from __future__ import annotations

import pytest

from redisprocess import RedisProcess, needs_redis


@pytest.fixture(scope="session")
def redis(tmp_path_factory):
    with RedisProcess(tmp_path_factory.mktemp("redis")) as process:
        yield process


@pytest.fixture(params=["file", pytest.param("redis", marks=needs_redis)])
def target(request, tmp_path):
    """The address of a new, empty store."""
    if request.param == "file":
        return str(tmp_path / "messages.db")
    process = request.getfixturevalue("redis")
    process.clear()
    return process.url
