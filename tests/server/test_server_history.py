"""Stores that go back under running servers: flushed, restored, crashed, deleted. Old and new are never mixed."""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager, suppress

import pytest

from onoff.wire import decode_answer
from redisprocess import RedisProcess, needs_redis
from serverprocess import ServerProcess

ALL = [0, 1, 2, 3]


class Flushed:
    """Redis, emptied by FLUSHALL."""

    before = b""  # what is left of the messages that were there at first

    def __init__(self, directory):
        self.redis = RedisProcess(directory / "redis", "--appendonly", "no")
        self.url = self.redis.url

    def save(self):
        pass

    def go_back(self):
        self.redis.clear()

    def close(self):
        self.redis.kill()


class Recopied(Flushed):
    """Redis in which a backup was put back while it ran: no restart tells of it."""

    before = b"old"

    def save(self):
        self.redis.command("COPY", "{onoff}:state", "state")
        for key in ("state", "messages", "rounds", "marks"):
            with suppress(Exception):  # there was no such key
                self.redis.command("COPY", "{onoff}:" + key, "backup:" + key, "REPLACE")

    def go_back(self):
        for key in ("state", "messages", "rounds", "marks"):
            with suppress(Exception):
                self.redis.command("COPY", "backup:" + key, "{onoff}:" + key, "REPLACE")


class RestoredFile:
    """An SQLite file into which a backup was restored, through SQLite."""

    before = b"old"

    def __init__(self, directory):
        self.url = str(directory / "messages.db")

    def save(self):
        self._copy(self.url, self.url + ".backup")

    def go_back(self):
        self._copy(self.url + ".backup", self.url)

    def _copy(self, origin, copy):
        with closing(sqlite3.connect(origin)) as one, closing(sqlite3.connect(copy)) as other:
            one.backup(other)

    def close(self):
        pass


KINDS = [*(pytest.param(kind, marks=needs_redis) for kind in (Flushed, Recopied)), RestoredFile]


@contextmanager
def server_of(store, directory):
    directory.mkdir()
    with ServerProcess(directory, store=store.url) as server:
        yield server


def served(server):
    return [frame.message for frame in server.ask(ALL)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_that_went_back_is_never_mixed_with_what_servers_remember(tmp_path, kind):
    """New rounds overtake the lost ones before the first server looks; another server is started later."""
    with closing(kind(tmp_path)) as store, server_of(store, tmp_path / "first") as first:
        first.publish(dict.fromkeys(first.catalogue.names, b"old"))
        store.save()
        first.publish({"news": b"lost"})
        lost = first.publish({"sports": b"lost"})
        assert served(first) == [b"lost", b"lost", b"old", b"old"]
        store.go_back()
        expected = [store.before, store.before, b"new", store.before]
        with server_of(store, tmp_path / "later") as later:
            while later.publish({"science": b"new"}) <= lost:
                pass
            assert served(later) == expected
            assert served(first) == expected
            assert "loaded anew" in first.stderr_file.read_text()
            # A reader is told by the round, which is lower than the one it holds, and never by a message alone.
            response = first.query(ALL, held=[lost - 1, lost, 1, 1])
            frames = decode_answer(first.catalogue, ALL, response.content, [lost - 1, lost, 1, 1])
            assert frames[0].round < lost - 1
            assert frames[1].round < lost


def test_a_reader_who_goes_from_server_to_server_never_gets_an_older_round(tmp_path):
    """What another server published a moment ago is looked for, if the reader holds it."""
    store = RestoredFile(tmp_path)
    with server_of(store, tmp_path / "one") as one, server_of(store, tmp_path / "other") as other:
        for _ in range(10):
            other.ask(ALL)  # it has just looked
            held = one.publish({"news": b"x"})
            [frame] = decode_answer(other.catalogue, [0], other.query([0], held=[held]).content, [held])
            assert frame.round == held
