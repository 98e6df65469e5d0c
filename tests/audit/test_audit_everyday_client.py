"""The real client of the everyday mode, audited from what it and its server wrote: the honest one and mutants of it.

It lives through damaged answers, a server that is down for a while, restarts, and the loss of its first journal.
"""

from __future__ import annotations

import asyncio
import random

import numpy as np
import pytest

from clientkit import client_with
from onoff import Chain, OnoffTransport
from onoff.audit.transcript import read_evidence
from onoff.audit.transcript.everyday import audit_everyday_transcript, read_laws
from onoff.errors import PendingRequest, Unavailable
from onoff.everyday import Everyday, Step
from recordingserver import LoggingOrigin, RecordingServer, reply

NAMES = ("news", "sports", "science", "weather", "culture")
CHAIN = Chain(np.random.default_rng(3).dirichlet(np.full(5, 0.8), 5) * 0.95 + 0.01, NAMES)
SENSITIVE = ("sports",)
ATTEMPTS, RESTART = 4, 15


class Faults:
    """Damages one answer in ten, and answers nothing but 503 at some steps, until the client gives up."""

    def __init__(self):
        self._random, self._down = random.Random(1), {}

    def __call__(self, step, frames):
        if step % 20 == 7 and self._down.setdefault(step, ATTEMPTS):
            self._down[step] -= 1
            return reply(b'{"title": "busy"}', 503)
        if self._random.random() < 0.1:
            broken = bytearray(frames[0])
            broken[30] ^= 1
            return reply(b"".join([bytes(broken), *frames[1:]]))
        return None


def lived(directory, steps, seed=1):
    """What there is to audit after so many steps of a journal, and 20 of one that was lost before."""
    origin = LoggingOrigin({name: f"about {name}".encode() for name in NAMES}, 200, Faults())
    rng = np.random.default_rng(seed)
    path, private = CHAIN.simulate(steps, rng).tolist(), (rng.random(steps) < 0.1).tolist()
    below = random.Random(seed).randrange

    async def part(name, first, end):
        options = {"delay": 0.0, "attempts": ATTEMPTS, "backoff": 0.0, "randbelow": below, "promise": "past"}
        options |= {"sensitive": SENSITIVE, "record": directory / "record", "first_ever": name == "lost"}
        async with client_with(CHAIN, OnoffTransport(server.url), directory / name, **options) as client:
            for t in range(first, end):
                try:
                    await client.get(NAMES[path[t]], private=private[t])
                except Unavailable:
                    with pytest.raises(PendingRequest):
                        await client.get(NAMES[(path[t] + 1) % 5], private=private[t])
                    await client.resume()

    with RecordingServer(origin) as server:
        asyncio.run(part("lost", 0, 20))
        for first in range(0, steps, RESTART):
            asyncio.run(part("journal", first, min(steps, first + RESTART)))
        server.wait_closed()
    origin.write_log(directory / "log")
    evidence = read_evidence(CHAIN, directory / "log", journal=directory / "journal")
    laws = read_laws(directory / "record", evidence.notes.stream)
    return audit_everyday_transcript(evidence, laws, engine=Everyday.start)


def test_the_honest_client_passes(tmp_path):
    found = lived(tmp_path, 60)
    assert found.passed, (found.findings, found.rules, found.verdict)
    assert found.sensitive == (1,)
    assert (found.repeats.lines > 5, found.repeats.uncounted) == (True, 0)
    assert found.remade == found.off == found.rules.drawn.tested > 40
    assert found.verdict.open.after < 1e-25
    assert found.verdict.open.before > 1e-4


# Mutants: each is the real client but for what is patched here.


def full_set_if_sensitive(patch):
    draw = Step.draw

    def wrong(self, request, context, randbelow):
        return self.sets[-1] if request in self.state.sensitive else draw(self, request, context, randbelow)

    patch.setattr(Step, "draw", wrong)


def rows_that_do_not_move(patch):
    """Contexts join and are renumbered, but the law of the next step is that of the first step after ON."""
    advance = Everyday.advance

    def stuck(self, step, query):
        moved = advance(self, step, query)
        P = self.chain.P
        rows = P[np.arange(len(moved.rows)) % len(P)]
        return type(self)(
            moved.chain, moved.sensitive, rows.copy(), rows > 0, moved.spreads, moved.place, moved.joined, moved.charge
        )

    patch.setattr(Everyday, "advance", stuck)


@pytest.mark.parametrize(
    ("mutant", "rules"),
    [
        pytest.param(full_set_if_sensitive, set(), marks=pytest.mark.long),
        (rows_that_do_not_move, {"rows"}),
    ],
)
def test_the_mutant_is_caught(tmp_path, monkeypatch, mutant, rules):
    with monkeypatch.context() as patch:
        mutant(patch)
        found = lived(tmp_path, 60)
    assert rules <= {breach.rule for breach in found.rules.breaches}
    assert found.rules.breaches or found.rules.drawn.rejected
    assert not found.passed
