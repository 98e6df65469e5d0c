"""The status of a client, from its journal, which is not opened for use: what it did, and what comes next."""

from __future__ import annotations

import json
import sqlite3
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from onoff.client.cache import Copy
from onoff.client.disk import (
    Step,
    check_is_journal,
    connect_to_read,
    explain_errors,
    last_on_wire,
    newest_chain,
    read_meta,
)
from onoff.client.habits import HabitsStatus, chain_of_row, read_public
from onoff.client.memory import Memory
from onoff.client.message import is_failing, newest_failure
from onoff.client.protocol import State
from onoff.errors import ChainError, JournalError, OnoffError
from onoff.files import path_of, read_rows
from onoff.model.chain import Chain
from onoff.past import RaceStep, StepLaw
from onoff.plans.plan import Plan
from onoff.plans.planner import Planner


@dataclass(frozen=True)
class Snapshot:
    """The content of a journal, not opened for use: another process may be writing to it.

    `chain` is the fingerprint of the chain that it was made with. `habits.read_public` reads the last two.
    """

    state: State
    memory: Memory
    chain: str
    promise: str
    sensitive: tuple[int, ...]
    public: dict[str, Any]
    newest_chain: dict[str, Any] | None


@dataclass(frozen=True)
class Totals:
    """Sums over the finished steps; `lags` counts the steps of each lag.

    `downloaded` counts the messages in their queries, `cost` those their laws expected, `single` the queries of one.
    """

    steps: int
    private: int
    bytes: int
    downloaded: int
    cost: float
    attempts: int
    lags: dict[int, int]
    single: int

    @classmethod
    def of(cls, rows: Iterable[Step]) -> Totals:
        done = [row for row in rows if row.bytes is not None]
        return cls(
            len(done),
            sum(row.private for row in done),
            sum(row.bytes or 0 for row in done),
            sum(len(row.query) for row in done),
            sum(row.cost for row in done),
            sum(row.attempts for row in done),
            dict(sorted(Counter(row.lag for row in done).items())),
            sum(len(row.query) == 1 for row in done),
        )


@dataclass(frozen=True)
class Account(Snapshot):
    """The content of a journal, with sums over all steps, and over those since midnight.

    `failing`: a member of a set has failed less than five minutes ago, and every request is made ON.
    """

    totals: Totals
    today: Totals
    failing: bool


@dataclass(frozen=True)
class Status:
    """The status of a client. The next OFF query would be drawn from a `plan`, or from a `law` of "past".

    Both are None until a request counts as ON, and while every query is the full set. `chain` is the chain in use, and
    `habits` says how it was made; None with "both". `stated` is the chain that the journal was made with, None if it
    was made without one. `private_until` is the end of a private window.
    """

    journal: Account
    chain: Chain
    stated: Chain | None
    habits: HabitsStatus | None = None
    plan: Plan | None = None
    law: StepLaw | RaceStep | None = None
    private_until: float | None = None


@contextmanager
def _open_snapshot(path: str | Path) -> Iterator[tuple[sqlite3.Connection, Snapshot]]:
    """One state of a journal that is not opened for use. Nothing is locked or changed."""
    file = Path(path)
    if not file.exists():
        raise JournalError(f"{file}: there is no journal; the first request makes one")
    with explain_errors(file):
        check_is_journal(file)
        with closing(connect_to_read(file)) as database:
            database.execute("BEGIN")  # one state, though another process may be writing
            meta = read_meta(file, database)
            about = meta["chain"], meta["promise"], tuple(json.loads(meta["sensitive"])), json.loads(meta["public"])
            state, memory = State.from_dict(json.loads(meta["state"])), Memory.of(meta)
            yield database, Snapshot(state, memory, *about, newest_chain(database))


def snapshot(path: str | Path) -> Snapshot:
    """Read a journal without locking or changing it."""
    with _open_snapshot(path) as (_, found):
        return found


def account(path: str | Path) -> Account:
    """Read a journal with its sums, without locking or changing it."""
    with _open_snapshot(path) as (database, found):
        rows = list(map(Step.of_row, read_rows(database, "steps")))
    midnight = datetime.now().replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
    today = (row for row in rows if row.ended is not None and row.ended >= midnight)
    failing = is_failing(newest_failure(rows))
    return Account(**vars(found), totals=Totals.of(rows), today=Totals.of(today), failing=failing)


def message_lengths(path: str | Path) -> dict[int, int]:
    """The bytes of the newest body of each source that was ever received whole, by its index in the chain."""
    with _open_snapshot(path) as (database, _):
        return {row["source"]: row["length"] for row in read_rows(database, "members")}


def used_chain(path: Path) -> Chain | None:
    """The newest chain from which an answered query was drawn, or a stated chain: servers may know it.

    None if there is no such chain, or only from before the habits were learned anew.
    """
    with _open_snapshot(path) as (database, found):
        rows = map(Step.of_row, read_rows(database, "steps"))
        drawn = [row.step for row in rows if row.plan == "past" and row.bytes is not None]
        newer = found.state.step + 1
        for row in reversed(list(read_rows(database, "chains"))):
            if not row["matrix"]:
                return None
            if any(row["step"] <= step < newer for step in drawn):
                return chain_of_row(row, found.memory.known_chain(path).names)
            newer = row["step"]
        return None if found.memory.chain is None else found.memory.known_chain(path)


def has_pending(path: Path, chain: str | None) -> bool | None:
    """True if a journal that is not open has a request for `resume`. None if it cannot be read.

    A journal of another chain, if the fingerprint of ours is known, is another client's.
    """
    try:
        found = snapshot(path) if path.exists() else None
    except (OnoffError, OSError):
        return None  # whoever opens it is told what is wrong
    if found is None or (chain is not None and found.chain != chain):
        return False
    return found.state.pending is not None


def private_until(path: Path, n: int) -> float | None:
    """Until when requests for n sources are no steps: everything is asked for, and every copy is fresh.

    In seconds since 1970; None if the next request is a step.
    """
    if not path.exists():
        return None
    with suppress(OnoffError, OSError), _open_snapshot(path) as (database, found):
        moment, copies = time.time(), [Copy(**row) for row in read_rows(database, "copies")]
        fresh = [copy.until for copy in copies if copy.is_fresh(moment)]
        if found.public["habits"]["stage"] == "all" and not found.state.is_asking and len(fresh) == n:
            return min(fresh)
    return None


def window_words(until: float) -> str:
    """Say what a private window is."""
    return f"everything that you read until {datetime.fromtimestamp(until):%H:%M:%S} is private and costs nothing"


def last_end(path: Path) -> float | None:
    """When a journal's last step on the wire ended, in seconds since 1970; None if that cannot be told."""
    if not path.exists():
        return None
    with suppress(sqlite3.Error, ValueError, LookupError), closing(connect_to_read(path)) as database:
        return last_on_wire(database)
    return None


def status(path: Path, chain: Chain | str | Path | None = None, plans: str | Path | None = None) -> Status:
    """How the client of a journal stands. The chain is the remembered one unless it is given."""
    found = account(path)
    known = found.memory.known_chain(path) if chain is None else chain_of(chain)
    if known.fingerprint != found.chain:
        raise OnoffError(f"{path}: is the journal of another chain; give the one that it was made with (--chain)")
    if found.promise != "both":
        public = read_public(path, known, found.public, found.newest_chain)
        after = found.state.answered
        law = None if after.owed or found.failing or public.asks_for_all(private=False) else public.state.prepare()
        stated = known if found.memory.learning is None else None
        about = HabitsStatus.of(public.habits)
        return Status(found, public.habits.chain, stated, about, law=law, private_until=private_until(path, known.n))
    after = found.state.answered
    if after.last is None or found.failing:
        return Status(found, known, known)
    return Status(found, known, known, plan=Planner(known, plans, background=False).best(after.lag + 1))


def chain_of(chain: Chain | str | Path) -> Chain:
    """The chain, read if it is a file."""
    return chain if isinstance(chain, Chain) else Chain.load(path_of(chain, "the chain", ChainError))
