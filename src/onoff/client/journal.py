"""The client's state on disk: one SQLite file, one transaction before a query is sent and one when it is answered.

What was written survives `kill -9` and power loss (WAL, synchronous=FULL). The file holds the user's secrets: mode
0600, deleted messages are overwritten. How much is written in a step is a function of the sets and the whole answer,
never of the wanted source. After a crash `Client.resume` finishes the pending request with the same query.

Opening a journal makes these checks, each for a fault that no other check finds:

    checksum of each row     a digit that has changed inside a row
    SQLite's own check       rows that are missing, pages that were torn or swapped
    `onoff.client.rollback`  a journal that was copied, or is older than it was
"""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from onoff.client import cache
from onoff.client.cache import CACHE, Copy, Member
from onoff.client.disk import (
    SCHEMA,
    DamagedError,
    Step,
    check_is_for,
    check_is_journal,
    check_promise,
    connect,
    explain_errors,
    last_on_wire,
    newest_chain,
    read_meta,
    write_row,
)
from onoff.client.habits import chain_row, forgotten_row, new_state, read_public
from onoff.client.laws import numbers_text
from onoff.client.lawstore import laws_beside
from onoff.client.memory import Memory, parse_keep
from onoff.client.message import is_failing, newest_failure
from onoff.client.protocol import Begun, State
from onoff.client.rollback import RollbackGuard, lock_beside
from onoff.client.transports import FAILURE_SECONDS, Answer
from onoff.errors import JournalError, SessionError
from onoff.files import JOURNAL_VERSION, read_rows, sync_directory
from onoff.model.chain import Chain, UnknownChain
from onoff.past import Habits, PublicState

ERASE = 256  # steps after which a client that stays open erases again


class Journal:
    """The journal at `path` for a chain and a catalogue, given by their fingerprints. Made if it is not there.

    A journal is made for one promise ("all", "past" or "both") and one set of sensitive sources, and keeps them.
    The public state after the newest query (`onoff.past.PublicState`) is kept in `meta`; the promise "both" has none.
    Each chain that was ever used is a row of `chains`, with the first step that it may serve; an empty one says that
    habits are learned anew. `ended` is when the last step on the wire ended, in seconds since 1970.

    `unwritten` is the step of the oldest message that `play` has not written to a file yet; None without `play`. A
    replaced message stays on disk until it is written: after a kill the next process writes it.
    """

    unwritten: int | None = None

    def __init__(
        self,
        path: str | Path,
        chain: str,
        catalogue: str | None,
        first_ever: bool = False,
        *,
        promise: str | None = None,
        sensitive: Sequence[int] = (),
        cache: int = CACHE,
        names: Sequence[str] = (),
        depth: int = 1,
        fresh: float | None = None,
    ) -> None:
        """A new journal owes `depth` full sets: so many requests determine the reader's state.

        One of the promise `both` owes two, unless `first_ever` says that this reader never asked this server.

        `promise` and `sensitive`, if given, must be those of the journal. A new journal is for "both" by default, and
        has no chain if it gets the `names` of the sources. Members of answers are cached in at most `cache` bytes; a
        changed limit takes effect with the next answer. Copies count as the newest for `fresh` seconds at least, a
        constant of the journal. Without a catalogue the journal is opened to be read only: it
        must exist, and no server may be asked.
        """
        self.path, self._limit = Path(path), cache
        self._database: sqlite3.Connection | None = None
        self._guard: RollbackGuard | None = None
        if catalogue is None and not self.path.exists():
            raise JournalError(f"{self.path}: there is no journal; the first request makes one")
        with explain_errors(self.path):
            try:
                if self.path.exists() and not lock_beside(self.path).exists():
                    check_is_journal(self.path)  # a file of others gets no lock beside it
                self._guard = RollbackGuard(self.path)
                self.created = not self.path.exists()
                if self.created:
                    about = promise or "both", sensitive, names, depth, fresh or 0.0
                    self._create(chain, catalogue or "", first_ever, *about)
                check_is_journal(self.path)
                self._database = connect(self.path)
                self._meta = read_meta(self.path, self._database)
                check_is_for(self.path, self._meta, chain, catalogue)
                self.promise, self.sensitive = self._meta["promise"], tuple(json.loads(self._meta["sensitive"]))
                check_promise(self.path, (self.promise, self.sensitive), promise, sensitive)
                self._guard.check(self._meta)
                self.state, self.memory = State.from_dict(json.loads(self._meta["state"])), Memory.of(self._meta)
                self._newest_chain = newest_chain(self._database)
                self.stream = self._meta["identity"]  # the random name under which its queries go out
                self._members = {row["source"]: Member.of_row(row) for row in read_rows(self._database, "members")}
                self._copies = {row["source"]: Copy(**row) for row in read_rows(self._database, "copies")}
                self._fresh = float(self._meta["fresh"])
                if fresh not in (None, self._fresh):
                    words = f"copies are fresh for {self._fresh:g} seconds in this journal"
                    raise JournalError(f"{self.path}: {words}, and that stays so: make another journal to change it")
                self.ended = last_on_wire(self._database)
                late = read_rows(self._database, "steps", "WHERE ended > ?", time.time() - FAILURE_SECONDS)
                self._failed = newest_failure(map(Step.of_row, late))
            except BaseException:
                self.close()
                raise

    def name_versions(self, begun: Begun, began: float) -> Begun:
        """Add the versions of held messages to a drawn query, for all members alike, and when its step began."""
        held = cache.versions(self._members, begun.pending.query)
        pending = replace(begun.pending, held=held, began=began)
        return replace(begun, pending=pending, state=replace(begun.state, pending=pending))

    def begin(self, begun: Begun, cost: float, law: str | None = None, maker: str | None = None) -> None:
        """Put a drawn query on disk, before it is sent, with its random numbers and the public state after it.

        `cost` is the law's expected number of messages, `law` its digest, and `maker` who made it (`laws.maker`).
        """
        drawn, public = begun.pending, begun.public
        step = Step(
            step=begun.state.step,
            private=drawn.private,
            asked_private=drawn.asked_private,
            lag=drawn.lag,
            plan=drawn.plan,
            query=drawn.query,
            spared=drawn.spared,
            began=drawn.began,
            request=drawn.request,
            next=drawn.next,
            cost=float(cost),
            numbers=numbers_text(begun.numbers),
            law=law,
            maker=maker,
        )
        changes = {} if public is None else {"public": json.dumps(public.as_dict())}
        chain = None if public is None else self._new_chain(public.habits, 0 if step.step == 0 else step.step + 1)
        try:
            with self._transaction(begun.state, changes) as database:
                write_row(database, "steps", step.row)
                if chain is not None:
                    write_row(database, "chains", chain)
        finally:
            if self.state is begun.state and chain is not None:  # on disk
                self._newest_chain = chain

    def _new_chain(self, habits: Habits, step: int) -> dict[str, Any] | None:
        """The row for the chain that may serve from `step` on; None if there is none, or its row is the newest."""
        if habits.stage not in ("complete", "known"):
            return None
        row = chain_row(step, habits)
        is_noted = self._newest_chain is not None and {**self._newest_chain, "step": step} == row
        return None if is_noted else row

    def public_state(self, chain: Chain) -> PublicState:
        """The public state after the newest query. `chain` is that of the journal."""
        return read_public(self.path, chain, json.loads(self._meta["public"]), self._newest_chain)

    def relearn(self, chain: Chain) -> None:
        """Forget the habits, and begin to learn them from the next request on."""
        public = PublicState(Habits(UnknownChain(chain.names), "learning"))
        state = replace(self.state, reader=None)
        row = forgotten_row(state.step + (state.pending is not None))
        with self._transaction(state, {"public": json.dumps(public.as_dict())}) as database:
            write_row(database, "chains", row)
        self._newest_chain = row

    def fresh(self, moment: float) -> tuple[int, ...]:
        """The sources whose copies count as the newest at this moment."""
        return tuple(source for source, copy in sorted(self._copies.items()) if copy.is_fresh(moment))

    def fresh_until(self) -> float:
        """When the first of all copies ceases to be fresh."""
        return min(copy.until for copy in self._copies.values())

    def read_copy(self, source: int) -> tuple[Member, float, bytes]:
        """The newest message of a source that is fresh: its member, its age in seconds, and its body."""
        return self._members[source], self.age(source), self.read_body(source)

    def age(self, source: int) -> float:
        """For how many seconds the newest message of a source has been held."""
        return max(0.0, time.time() - self._copies[source].arrived)

    def check_is_for(self, chain: str, catalogue: str) -> None:
        """Refuse another chain or catalogue than the journal's."""
        check_is_for(self.path, self._meta, chain, catalogue)

    def count_sending(self) -> None:
        """Count one more sending of the pending query, before it leaves: an auditor compares with what servers saw."""
        with self._transaction(self.state) as database:
            [step] = self.steps(self.state.step)
            write_row(database, "steps", replace(step, attempts=step.attempts + 1).row)

    def read_held(self) -> dict[int, bytes]:
        """Read the bodies of which the pending query names versions, for all members alike, before it is sent."""
        with self._open() as database:
            sources = json.dumps(sorted(self._sources_with_versions()))
            rows = read_rows(database, "members", "WHERE source IN (SELECT value FROM json_each(?))", sources)
            found = {row["source"]: (Member.of_row(row), row["body"]) for row in rows}
            if {source: member for source, (member, body) in found.items() if body is not None} != {
                source: self._members.get(source) for source in self._sources_with_versions()
            }:
                raise DamagedError("what it holds of earlier answers is not what was written")
            return {source: body for source, (_, body) in found.items()}

    def finish(self, state: State, query: Sequence[int], answer: Answer) -> None:
        """Put the whole answer and the end of its step on disk, before the caller sees any of it.

        `query` has the sources in the order of the answer. All members are written in that order, except unchanged
        ones. Other held messages stay while there is room. Which member was wanted changes neither what is written nor
        whether it fits.
        """
        contents, named = dict(zip(query, answer.contents, strict=True)), self._sources_with_versions()
        whole = {source: content for source, content in contents.items() if not (content.unchanged and source in named)}
        before, ended = self._members, time.time()
        [step] = self.steps(self.state.step)
        arrived = {source: self._copy(source, step.began, content.fresh) for source, content in contents.items()}
        copies = self._copies | arrived
        fresh = {source for source, copy in copies.items() if copy.is_fresh(ended)}
        members, held = cache.store(before, self.state.step, whole, self._limit, fresh)
        copies = {source: copy if source in held else replace(copy, until=0.0) for source, copy in copies.items()}
        # What is replaced stays for a step longer than its message usually waits: how long files take does not show.
        oldest = self.state.step if self.unwritten is None else max(0, min(self.unwritten, self.state.step - 1))
        try:
            with self._transaction(state, {"unwritten": str(oldest), "servers": answer.notes}) as database:
                database.execute("DELETE FROM replaced WHERE until <= ?", (oldest,))
                for source in [s for s in before if s not in whole and members[s] != before[s]]:  # no longer held
                    write_row(database, "members", members[source].row(self.read_body(source)))
                for source, content in whole.items():
                    self._replace(members[source], content.body)
                unheld = database.execute("SELECT source FROM members WHERE version IS NULL AND body IS NOT NULL")
                for source in {source for (source,) in unheld} - {*contents, *step.spared, *(fresh & held)}:
                    self._replace(members[source], None)
                for source, copy in copies.items():
                    if copy != self._copies.get(source):
                        write_row(database, "copies", vars(copy))
                received = json.dumps([members[s].as_entry(cache.version_of(c)) for s, c in whole.items()])
                until = json.dumps([arrived[source].until for source in step.query])
                done = replace(step, ended=ended, bytes=answer.size, received=received, until=until, cache=self._limit)
                write_row(database, "steps", done.row)
        finally:
            if self.state is state:  # on disk, though what comes after that may have failed
                self._members, self._copies = members, copies
                self.ended = ended if query else self.ended
                self._failed = done if done.failures else self._failed
        if state.step % ERASE == 0:
            self.erase()

    def _copy(self, source: int, began: float, fresh: float | None) -> Copy:
        """A copy that has come; None: it is never fresh, whatever the owner says."""
        seconds = 0.0 if fresh is None else max(fresh, self._fresh)
        return Copy(source, began, began + seconds)

    def _replace(self, member: Member, body: bytes | None) -> None:
        """Replace the member of a source. Part of a transaction."""
        with self._open() as database:
            if self.unwritten is not None:
                for row in read_rows(database, "members", "WHERE source = ? AND body IS NOT NULL", member.source):
                    old = {"member": json.dumps(Member.of_row(row)), "body": row["body"]}
                    write_row(database, "replaced", {"until": self.state.step, "source": member.source, **old})
            write_row(database, "members", member.row(body))

    def erase(self) -> None:
        """Erase requests and random numbers of finished steps that are older than the owner wants to keep.

        Steps stay whose messages may be delivered again, such as the newest step. Later queries do not depend on the
        rest. Nothing of it is left in the file, in its log or on free pages. Which steps are erased, and when, depends
        on their numbers and ends alone.
        """
        if self.memory.keep is None:
            return
        amount, is_days = parse_keep(self.memory.keep)
        with self._open() as database:
            limit = "ended < ?" if is_days else "step < ?"
            oldest = time.time() - 86400 * amount if is_days else self.state.step - amount
            due = f"WHERE request IS NOT NULL AND step < {int(self._meta['unwritten'])} AND {limit}"
            steps = [*map(Step.of_row, read_rows(database, "steps", due, oldest))]
            if steps:
                with self._transaction(self.state):
                    for step in steps:
                        write_row(database, "steps", replace(step, request=None, next=None, numbers=None).row)
                database.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # its log has them still
                laws_beside(self.path).unlink(missing_ok=True)

    @property
    def notes(self) -> str:
        """The transport's notes on servers, from the last answer."""
        return self._meta.get("servers", "")

    def failure(self, source: int) -> tuple[Step, int] | None:
        """The newest step, with the status of this source, if that was wanted in it and failed; else None."""
        step, newest = self._failed, self.state.step - (self.state.pending is None)
        if step is None or step.step < newest or step.request != source or source not in step.failures:
            return None
        return step, step.failures[source]

    @property
    def failing(self) -> bool:
        """True for five minutes after a member of a set has failed: every request is made ON."""
        return is_failing(self._failed)

    def latest(self) -> tuple[Step, Member] | None:
        """The last finished step, and its wanted member; None if no step was finished."""
        step = next(self.steps(self.state.step - 1), None)
        if step is None or step.bytes is None:
            return None
        assert step.request is not None, "the newest step is not erased"
        return step, self._members[step.request]

    def messages(self, since: int = 0) -> Iterator[tuple[Step, Member, bytes]]:
        """As `cache.read_messages`."""
        with self._open() as database:
            yield from cache.read_messages(database, since)

    def deliver_all(self) -> None:
        """Keep messages until `unwritten` says that they are in files."""
        self.unwritten = int(self._meta["unwritten"])

    def steps(self, since: int = 0) -> Iterator[Step]:
        """The steps from `since` on, oldest first."""
        with self._open() as database:
            yield from map(Step.of_row, read_rows(database, "steps", "WHERE step >= ?", since))

    def remember(self, **changes: Any) -> None:
        """Change fields of the memory, all or none."""
        memory = replace(self.memory, **changes)
        rows = self.memory.changes(memory)
        if rows:
            with self._transaction(self.state, rows):
                pass
            self.memory = memory

    def close(self) -> None:
        """Unlock the journal."""
        if self._database is not None:
            self._database.close()
            self._database = None
        if self._guard is not None:
            self._guard.close()
            self._guard = None

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """The database, with its errors in our words."""
        if self._database is None:
            raise SessionError("the journal is closed: open a client with it again")
        with explain_errors(self.path):
            yield self._database

    @contextmanager
    def _transaction(self, state: State, changes: Mapping[str, str] | None = None) -> Iterator[sqlite3.Connection]:
        """A transaction that also writes the new state, and `changes` of `meta`.

        The state in memory changes only once the disk has it.
        """
        with self._open() as database:
            database.execute("BEGIN IMMEDIATE")
            try:
                yield database
                number = int(self._meta["transaction"]) + 1
                new = {**(changes or {}), "state": _state_text(state), "transaction": str(number)}
                for key, value in new.items():
                    write_row(database, "meta", {"key": key, "value": value})
                database.execute("COMMIT")
            except BaseException:
                if database.in_transaction:
                    database.execute("ROLLBACK")
                raise
            self.state = state
            self._meta.update(new)
            assert self._guard is not None
            self._guard.seal(number, self._meta["identity"])

    def _sources_with_versions(self) -> set[int]:
        """The sources of which the pending query names a version."""
        pending = self.state.pending
        assert pending is not None
        return {source for source, version in zip(pending.query, pending.held, strict=True) if version is not None}

    def read_body(self, source: int) -> bytes:
        """The newest body of a source whose body is on disk."""
        with self._open() as database:
            [row] = read_rows(database, "members", "WHERE source = ?", source)
            body: bytes = row["body"]
            return body

    def _create(
        self, chain: str, catalogue: str, first_ever: bool, promise: str, sensitive: Sequence[int],
        names: Sequence[str], depth: int, fresh: float,
    ) -> None:  # fmt: skip
        stage = "all" if promise == "all" else "learning" if names else "known"
        assert self._guard is not None
        start, _ = self._guard.read_seal()  # a journal was here before: count on, so that it stays refused
        state = State(owed=2 if promise == "both" and not (first_ever and start == 0) else depth)
        unfinished = self.path.with_name(self.path.name + ".new")
        # What processes that were killed have left, here or beside a journal that was moved away: SQLite would take the
        # log of another database for ours, and kept laws tell of past queries.
        logs = (self.path.with_name(self.path.name + end) for end in ("-wal", "-shm"))
        for stale in (unfinished, laws_beside(self.path), *logs):
            stale.unlink(missing_ok=True)
        os.close(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        meta = {
            "version": JOURNAL_VERSION,
            "chain": chain,
            "catalogue": catalogue,
            "identity": secrets.token_hex(16),
            "inode": str(unfinished.stat().st_ino),
            "transaction": str(start),
            "state": _state_text(state),
            "promise": promise,
            "sensitive": json.dumps(list(sensitive)),
            "public": json.dumps(new_state(stage, sensitive)),
            "unwritten": "0",
            "fresh": str(fresh),
        } | ({"note learning": json.dumps(list(names))} if names else {})
        with closing(connect(unfinished)) as database:  # at its end all is moved from the log into the file
            database.executescript(f"BEGIN;{SCHEMA}COMMIT;")
            for key, value in meta.items():
                write_row(database, "meta", {"key": key, "value": value})
        self._guard.seal_first(start, meta["identity"])
        os.rename(unfinished, self.path)
        sync_directory(self.path.parent)


def _state_text(state: State) -> str:
    """The state as JSON, equally long whichever sources it names: blanks make up for their digits."""
    pending = state.pending
    named = [state.last, state.reader, state.announced]
    named += [] if pending is None else [pending.request, pending.next]
    return json.dumps(state.as_dict()) + " " * sum(8 - len(json.dumps(source)) for source in named)
