"""Logs of a client of the everyday mode without a network, as the audit reads them; mutants override one method."""

from __future__ import annotations

import json
import random
import sqlite3
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from onoff.audit.everyday.record import law_of
from onoff.audit.everyday.weights import weights_of
from onoff.audit.transcript.everyday import Laws, audit_everyday_transcript
from onoff.audit.transcript.evidence import Evidence
from onoff.audit.transcript.reading import Line, Log, Notes, Step
from onoff.client.journal import Journal
from onoff.everyday import Everyday
from oracles import random_chain

STREAM = "5f" * 16
CHAIN = random_chain("dense", 6, 3)
SENSITIVE = (1, 4)


class Reader:
    """What the client does at one step; the honest one."""

    def state(self, state, t):  # noqa: ARG002
        """The public state before an OFF step."""
        return state

    def prepared(self, state, request, t):  # noqa: ARG002
        """Law and encoders."""
        return state.prepare()

    def line(self, state, step):
        """What it records."""
        moves = {"place": list(state.place), "joined": list(state.joined), "charge": state.charge.hex()}
        return {"format": "onoff-law", "version": 1, "stream": STREAM, **moves, "law": step.as_dict()}

    def draw(self, step, request, context, below, t):  # noqa: ARG002
        return step.draw(request, context, below)

    def after(self, state, step, query):
        """The public state after an OFF step."""
        return state.advance(step, query)

    def context(self, state, request, context, private):
        return state.context(request, context, private)

    def status(self, asked, request, t):  # noqa: ARG002
        """Whether the step is asked ON, and made ON."""
        return asked, asked or t == 0


@dataclass(frozen=True)
class EverydayLog:
    """All that there is to audit."""

    chain: object
    sensitive: tuple
    steps: tuple
    lines: tuple
    record: tuple

    def evidence(self, weights=None, since=0, before=()):
        """`weights` are what the journal remembers, since a step; `before` are its digests of earlier ones."""
        notes = Notes(STREAM, weights, since, "past", self.sensitive, before)
        requests = tuple(step.request for step in self.steps)
        return Evidence(self.chain, Log(self.lines, ()), self.steps, notes, requests, True)

    def laws(self):
        by_step = {
            line["step"]: law_of(
                line["law"],
                line["place"],
                line["joined"],
                float.fromhex(line["charge"]),
                weights_of(line.get("weights")),
            )
            for line in self.record
        }
        return Laws(by_step)

    def audit(self, engine=Everyday.start, weights=None, since=0, before=(), **options):
        return audit_everyday_transcript(self.evidence(weights, since, before), self.laws(), engine=engine, **options)


def everyday_log(count, seed, reader=None, chain=CHAIN, sensitive=SENSITIVE, private=0.05, below=None):
    """A stream of `count` steps with random statuses, of a client that does as `reader` says."""
    reader = reader or Reader()
    rng = np.random.default_rng(seed)
    path, statuses = chain.simulate(count, rng).tolist(), (rng.random(count) < private).tolist()
    below = below or random.Random(f"of the stream {seed}").randrange
    everything = tuple(range(chain.n))
    steps, record, state, context = [], [], None, None
    for t, request in enumerate(path):
        asked, made_private = reader.status(statuses[t], request, t)
        if made_private:
            query, cost = everything, float(chain.n)
            state = Everyday.start(chain, sensitive)
            context = reader.context(state, request, None, True)
        else:
            state = reader.state(state, t)
            step = reader.prepared(state, request, t)
            record.append(json.loads(json.dumps({**reader.line(state, step), "step": t})))
            query, cost = reader.draw(step, request, context, below, t), step.cost
            following = reader.after(state, step, query if query in step.sets else step.sets[-1])
            context = reader.context(following, request, context, False)
            state = following
        lag = 0 if made_private else steps[-1].lag + 1
        steps.append(Step(t, made_private, asked, lag, "everyday", query, request, None, cost))
    lines = tuple(Line(step.step, step.query, "here", damaged=False, stream=STREAM) for step in steps)
    return EverydayLog(chain, tuple(sensitive), tuple(steps), lines, tuple(record))


def write_everyday_files(directory, log):
    """Chain, journal, record and the server's log of a stream: what the command is given."""
    log.chain.save(directory / "chain.json")
    journal = Journal(directory / "journal", log.chain.fingerprint, "catalogue")
    stream = journal.stream
    journal.close()
    rows = [
        (s.step, s.private, s.asked_private, s.lag, s.plan, json.dumps(s.query), s.request, s.next, s.cost)
        for s in log.steps
    ]
    columns = "step, private, asked_private, lag, plan, query, request, next, cost"
    with closing(sqlite3.connect(directory / "journal")) as database, database:
        database.executemany(f"INSERT INTO steps ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
        meta = [("promise", "past"), ("sensitive", json.dumps(log.sensitive))]
        database.executemany("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", meta)
    common = {"client": "here", "stream": stream}
    lines = [
        {"step": line.step, "sources": line.sources, "held": [0] * len(line.sources), **common} for line in log.lines
    ]
    write_lines(directory / "log", [{"catalogue": log.chain.names}, *lines])
    write_lines(directory / "record", [{**line, "stream": stream} for line in log.record])
    return (
        *("audit", "transcript", directory / "log", "--chain", directory / "chain.json"),
        *("--journal", directory / "journal", "--record", directory / "record"),
    )


def write_lines(file, lines):
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
