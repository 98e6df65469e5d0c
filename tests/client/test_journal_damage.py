"""Damage to a journal: whatever bytes change, nothing that anybody reads of it is another, and nobody hangs."""

from __future__ import annotations

from collections import Counter

import pytest

from clientkit import answer_of
from onoff import Chain
from onoff.audit.files import read_journal as read_as_referee
from onoff.client.journal import Journal
from onoff.client.memory import Progress
from onoff.client.protocol import begin_both, finish
from onoff.client.status import account
from onoff.errors import JOURNAL, USAGE, OnoffError
from onoff.logs.journals import read_journal as read_as_log
from sampling import LONG

CHAIN = Chain.symmetric(3, 0.2, ["news", "sports", "weather"])


def made(path, learns):
    """A journal of five steps, one pending, with notes; small, so that every byte of it can be flipped."""
    journal = Journal(path, CHAIN.fingerprint, "catalogue", promise="past" if learns else "both")
    if learns:
        journal.remember(learning=CHAIN.names)
    else:
        journal.remember(chain=CHAIN.as_dict(), play=Progress("0" * 64, 1, "requests", 4), keep="1000")
    journal.deliver_all()
    for request in (1, 2, 0, 1, 2):
        begun = begin_both(journal.state, CHAIN, request, None, request != 0, None)
        journal.begin(begun, 3.0)
        journal.finish(
            finish(journal.state), begun.pending.query, answer_of([b"%d, %d" % (x, request) for x in range(3)])
        )
        journal.unwritten = 3
    journal.begin(begin_both(journal.state, CHAIN, 0, None, True, None), 3.0)
    journal.close()
    return path.read_bytes()


def as_client(path):
    """All that a client reads of it, with the messages that `resume(last=True)` and `play --out` take from it."""
    journal = Journal(path, CHAIN.fingerprint, "catalogue")
    try:
        public = journal.public_state(CHAIN).as_dict()
        found = journal.state, journal.memory, public, journal.stream, journal.promise, journal.sensitive
        return *found, list(journal.steps()), list(journal.messages())
    finally:
        journal.close()


READERS = {
    "client": as_client,
    "status": account,
    "referee": lambda path: read_as_referee(path, CHAIN),
    "fit": read_as_log,
}


def look(read, path):
    """What a reader finds, or its error."""
    try:
        return read(path)
    except OnoffError as error:
        return error


def outcomes(path, damages):
    """How often each reader refused damage, and how often it was taken; nobody may find anything else than before."""
    right = {name: read(path) for name, read in READERS.items()}
    count = Counter()
    for damaged in damages:
        for name, read in READERS.items():
            with path.open("r+b") as stream:  # the same inode
                stream.truncate(0)
                stream.write(damaged)
            for log in ("journal-wal", "journal-shm"):
                path.with_name(log).unlink(missing_ok=True)
            found = look(read, path)
            if isinstance(found, OnoffError):
                assert "\n" not in str(found)
                assert found.exit_code in (JOURNAL, USAGE)
                count[name] += 1
            else:
                assert found == right[name], name
                count["taken"] += 1
    return count


def flips(content, places):
    for place in places:
        for bit in (0, 6):
            yield content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :]


@pytest.mark.parametrize("learns", [False, True])
def test_no_flipped_bit_changes_what_is_read_of_a_journal(tmp_path, learns):
    """Every used byte of the file is flipped with the long tests, one in 37 else."""
    path = tmp_path / "journal"
    content = made(path, learns)
    used = [place for place, byte in enumerate(content) if byte or place < 100]
    count = outcomes(path, flips(content, used[:: 1 if LONG else 37]))
    assert min(count[name] for name in READERS) > 50, count


@pytest.mark.parametrize("planted", ["client", "referee", "fit"])
def test_a_reader_that_does_not_look_at_the_checksums_is_found(tmp_path, monkeypatch, planted):
    module = {"client": "client.journal", "referee": "audit.files", "fit": "logs.journals"}[planted]

    def believing(database, table, where="", *arguments):
        cursor = database.execute(f"SELECT * FROM {table} {where} ORDER BY 1", arguments)
        names = [column[0] for column in cursor.description[:-1]]
        return iter([dict(zip(names, row, strict=False)) for row in cursor])

    monkeypatch.setattr(f"onoff.{module}.read_rows", believing)
    path = tmp_path / "journal"
    content = made(path, False)
    used = [place for place, byte in enumerate(content) if byte]
    with pytest.raises((AssertionError, ValueError, LookupError, TypeError)):  # another content, or a traceback
        outcomes(path, flips(content, used[::23]))
