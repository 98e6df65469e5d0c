"""Streams of the real client without a network, as files that the referee reads: journal, log, record, plans.

The query of every step is drawn and written by the client's own code, which a test may patch while the stream is made.
Answers are made up: sources change now and then, some queries come twice because an answer was lost, the client is
killed between drawing and the answer, and it is opened again. With a `pace` the clock on the wall is the stream's own.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np

import onoff.client.journal
from onoff import plan
from onoff.audit.files import read_journal
from onoff.audit.log import Exhibits, audit_log
from onoff.client import protocol
from onoff.client.journal import Journal
from onoff.client.laws import maker
from onoff.client.promises import Both, Now, Past
from onoff.client.transports import Answer, Content
from onoff.model.chain import UnknownChain
from onoff.past import Candidates
from onoff.past.step import prepare
from onoff.plans.race import race_plan
from oracles import random_chain
from pastkit import habits

CHAIN = random_chain("dense", 4, 1)
PAST = random_chain("dense", 6, 3)
MEMORY = habits(4, 2, 1)  # some states of two requests, some requests impossible
SENSITIVE = (1, 4)


@cache
def plans(chain=CHAIN, lags=(1, 2)):
    return {lag: plan(chain, lag) for lag in lags}


@cache
def race(chain=CHAIN, lag=1):
    """The race that a new client uses at every lag."""
    return race_plan(chain, lag, draws=20, randbelow=random.Random(0).randrange)


class CheapestPlan:
    """A planner that has all plans from the start; tests choose otherwise."""

    def __init__(self, *known):
        self.known = known
        self.store = SimpleNamespace(lengths=None)

    def best(self, lag):
        return min((one for one in self.known if one.lag <= lag), key=lambda one: one.cost)


@dataclass
class Life:
    """One stream on disk, and all that a test may change about how it came to be."""

    directory: Path
    promise: str = "both"
    chain: object = None
    sensitive: tuple = ()
    seed: int = 1
    private: float = 0.2
    cache: int = 200  # bytes: some of what was received must go
    kills: float = 0.05
    losses: float = 0.1
    restarts: float = 0.1
    first_ever: bool = False
    planner: object = None
    randbelow: object = None
    name: str = "journal"
    learns: bool = False  # it begins without a chain, and requests follow `chain`
    pace: tuple = ()  # seconds, of which some go by before each request
    took: tuple = (0,)  # and until its answer
    fresh: float = 0.0  # the owner's constant
    versions: bool = True  # whether the server gives any
    lines: list = field(default_factory=list)
    client: str = "here"

    def __post_init__(self):
        self.chain = self.chain or (CHAIN if self.promise == "both" else PAST)
        self.planner = self.planner or (CheapestPlan(*plans(self.chain).values()) if self.promise == "both" else None)
        self.rng = np.random.default_rng(self.seed)
        self.randbelow = self.randbelow or random.Random(f"draws {self.seed}").randrange
        self.rounds = dict.fromkeys(range(self.chain.n), 1)
        self.journal_file, self.log_file = self.directory / self.name, self.directory / f"{self.name}.log"
        self.record_file = self.directory / f"{self.name}.record"
        self.path, self.statuses, self.t, self.wrong = [], [], 0, []

    def asked(self, t, request, private):  # noqa: ARG002
        """What the caller asks for: a test may replace it."""
        return private

    def gap(self, t):  # noqa: ARG002
        """Whether a request before step t may be missing: a test may replace it."""
        return False

    def fails(self, t, x):  # noqa: ARG002
        """Whether a source fails in the answer to step t: a test may replace it."""
        return False

    def lifetime(self, x):  # noqa: ARG002
        """For how long the server says that a source is fresh: a test may replace it."""
        return 0.0

    def live(self, count, patches=()):
        """Make a stream of `count` steps, the client's code patched as told; write the log."""
        with ExitStack() as stack:
            stack.enter_context(hasty())
            if self.pace:
                self.now = 1.8e9
                stack.enter_context(patch.object(time, "time", lambda: self.now))
            for one in patches:
                stack.enter_context(one)
            asyncio.run(self._live(count))
        write_lines(self.log_file, [{"catalogue": list(self.chain.names)}, *self.lines])
        return self

    async def _live(self, count):
        self.path = self.chain.simulate(count + 1, self.rng).tolist()
        self.statuses = (self.rng.random(count) < self.private).tolist()
        client = self._open()
        for t in range(count):
            self.t = self.journal.state.step
            self.now = self.now + int(self.rng.choice(self.pace)) if self.pace else time.time()
            now = Now(self.now, self.journal.fresh(self.now) if client.spares else ())
            if len(now.spared) == self.chain.n and self.rng.random() < 0.5:
                continue  # in a private window what was not decided on is no step
            gap = self.gap(t)
            private = client.status(self.asked(t, self.path[t], self.statuses[t]), gap)
            following = self.chain.names[self.path[t + 1]] if self.promise == "both" else None
            failing = self.journal.failing
            await client.ready(private or failing)
            client.begin(now, self.chain.names[self.path[t]], following, private, gap, failing)
            self.send()
            if self.rng.random() < self.kills:  # before the answer, or after it was on its way
                client = self._open(client)
                self.send(again=True)
            while self.rng.random() < self.losses:
                self.send(again=True)
            self.answer()
            if self.rng.random() < self.restarts:
                client = self._open(client)
        self.close(client)

    def _open(self, client=None):
        if client is not None:
            self.close(client)
        promise, sensitive = self.promise, self.sensitive
        self.journal = Journal(
            self.journal_file, self.stated.fingerprint, "catalogue", self.first_ever,
            promise=promise, sensitive=sensitive, cache=self.cache, names=self.chain.names if self.learns else (),
            depth=self.stated.depth, fresh=self.fresh,
        )  # fmt: skip
        if promise == "both":
            return Both(self.chain, self.journal, self.planner, self.randbelow)
        return Past(self.stated, self.journal, self.randbelow, ahead=False, record=self.record_file)

    @property
    def stated(self):
        """The chain that the client was told."""
        return UnknownChain(self.chain.names) if self.learns else self.chain

    def close(self, client):
        client.close()
        self.journal.close()

    def send(self, again=False, **change):
        """What the server sees of the pending query: nothing if it asks for nothing."""
        pending = self.journal.state.pending
        if not pending.query:
            return
        if again:
            self.journal.count_sending()
        held = [0 if text is None else int(text.split()[0]) for text in pending.held]
        line = {"time": len(self.lines), "stream": self.journal.stream, "step": self.journal.state.sent}
        self.lines.append({**line, "sources": list(pending.query), "held": held, "client": self.client, **change})

    def answer(self):
        state = self.journal.state
        if self.pace:
            self.now += int(self.rng.choice(self.took))
        members = []
        for x, version in zip(state.pending.query, state.pending.held, strict=True):
            self.rounds[x] += int(self.rng.random() < 0.3)
            latest, fresh = f"{self.rounds[x]} ab" if self.versions else None, self.lifetime(x)
            if self.fails(self.t, x):
                members.append(Content(503, b"no", size=2, fresh=None))
            elif version is not None and version == latest:
                members.append(Content(200, b"", self.rounds[x], None, latest, True, 8, fresh))
            else:
                body = b"m" * (10 + 7 * x)
                members.append(Content(200, body, self.rounds[x], None, latest, False, 64, fresh))
        answer = Answer(tuple(members), 64 * len(members))
        self.journal.finish(protocol.finish(state), state.pending.query, answer)

    def steps(self):
        """The steps as the referee reads them."""
        return read_journal(self.journal_file, self.stated).steps

    def chains(self):
        """The chains that were used, by the first step that each may serve."""
        return read_journal(self.journal_file, self.stated).chains

    def plans(self):
        return {one.name: one for one in getattr(self.planner, "known", ())}

    def audit(self, plans=None, engine=None, record=True, attacked=False, **options):
        """What the referee says of it; by default without the attack."""
        return self.audit_log(plans, engine, record, attacked=attacked, **options).verdict

    def audit_log(self, plans=None, engine=None, record=True, **options):
        file = None if self.promise == "both" or record is None else self.record_file if record is True else record
        exhibits = Exhibits(self.plans() if plans is None else plans, file, engine, maker())
        return audit_log(self.stated, self.log_file, exhibits, self.journal_file, **options)

    def engine(self):
        return lambda *public: prepare(Candidates(*public))

    def change_log(self, change):
        """Write the log again, with other lines: `change` maps the list of lines to another one."""
        write_lines(self.log_file, [{"catalogue": list(self.chain.names)}, *change(list(self.lines))])
        return self


def life(directory, promise="both", **options):
    """A stream of a promise, or of "memory": that of `past` with habits that remember more than one request."""
    if promise == "memory":
        promise, options = "past", {"chain": MEMORY, "sensitive": (1,), **options}
    if promise == "past":
        options.setdefault("sensitive", SENSITIVE)
    return Life(directory, promise, **options)


def drawing(life, owner, mistake):
    """Patch `draw` of plans (TablePlan, RacePlan) or prepared steps (Step); `life.wrong` gets the steps that are wrong.

    `mistake` is called with the honest method and its arguments. A draw is wrong if the honest one, given the numbers
    that were used, asks for other bounds or gives another set.
    """
    honest = owner.draw

    def draw(self, *context):
        *place, randbelow = context
        used = []

        def noting(bound):
            used.append((bound, randbelow(bound)))
            return used[-1][1]

        query, numbers = mistake(honest, self, *place, noting), iter(used)

        def again(bound):
            known, number = next(numbers, (0, 0))
            if known != bound:
                raise LookupError
            return number

        try:
            right = honest(self, *place, again) == query and next(numbers, None) is None
        except LookupError:
            right = False
        if not right:
            life.wrong.append(life.t)
        return query

    return patch.object(owner, "draw", draw)


def hasty():
    """Journals of thousands of steps, of which none has to survive a loss of power."""
    connect = onoff.client.journal.connect

    def faster(path):
        database = connect(path)
        database.execute("PRAGMA synchronous=OFF")
        return database

    return patch.object(onoff.client.journal, "connect", faster)


def write_lines(file, lines):
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
