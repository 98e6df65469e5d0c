"""Freshness, replayed: what was left out of each query follows from earlier answers and times, not from requests."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import time
from contextlib import suppress
from unittest.mock import patch

import numpy as np
import pytest

from clientkit import NAMES, cut_off
from clikit import call as command
from forgery import forged
from onoff import Chain, connect
from onoff.audit.log import Exhibits, audit_log
from onoff.client.journal import Journal
from onoff.client.laws import maker
from onoff.client.promises import Past
from onoff.errors import NothingPending
from onoff.model.chain import UnknownChain
from recordingserver import reply
from replaykit import PAST, life, write_lines
from sampling import LONG

HONEST = 20 if LONG else 2  # streams of each mode
PACE = (0, 1, 5, 20, 61, 150, 301)
ANY_PACE = (*PACE, 3600, -1, -30, -5000, 5000)
MODES = [
    {"fresh": 60.0}, {"fresh": 300.0, "cache": 60}, {"fresh": 60.0, "pace": ANY_PACE, "cache": 60}, {"cache": 10**6},
    {"fresh": 60.0, "pace": ANY_PACE, "versions": False}, {"fresh": 300.0, "versions": False, "cache": 90},
    {"fresh": 60.0, "cache": 0}, {"fresh": 0.0, "pace": ANY_PACE},
    {"fresh": 60.0, "pace": (0, 10, -10), "took": (0, 2, 15, -15), "versions": False},
]  # fmt: skip


def stream(directory, seed=1, **options):
    """A client that asks for everything; how long the server says that a source is fresh changes all the time."""
    given = {"promise": "all", "learns": True, "sensitive": (), "pace": PACE, "seed": seed, **options}
    made = life(directory, **given)
    made.lifetime = lambda x: (40.0 * x if made.rng.random() < 0.7 else 0.0) if made.rng.random() < 0.9 else None
    return made


@pytest.mark.parametrize("mode", range(len(MODES)))
def test_honest_streams_with_fresh_copies_kills_and_wrong_clocks_raise_no_alarm(tmp_path, mode):
    for seed in range(HONEST):
        made = stream(tmp_path, seed, name=f"journal{seed}", kills=0.15, restarts=0.2, **MODES[mode]).live(80)
        found, steps = made.audit(record=None), made.steps()
        assert (found.word, found.findings, found.unchecked) == ("PASSED", (), ()), (seed, str(found))
        assert MODES[mode].get("cache") == 0 or any(0 < len(step.spared) < made.chain.n for step in steps)
        assert len({line["step"] for line in made.lines}) == sum(bool(step.query) for step in steps)


@pytest.mark.parametrize("seed", range(6))
def test_failing_sources_are_never_fresh_and_raise_no_alarm(tmp_path, seed):
    made = stream(tmp_path, seed, fresh=60.0)
    made.fails = lambda t, x: x == t % 3
    assert made.live(60).audit(record=None).word == "PASSED"
    assert any(step.failed for step in made.steps())


def test_silent_steps_are_steps_and_the_command_passes_them(tmp_path):
    made = stream(tmp_path, fresh=300.0, pace=(1, 50)).live(60)
    silent = [step for step in made.steps() if not step.query]
    assert len(silent) > 10
    done = command("audit", "log", made.log_file, "--journal", made.journal_file)
    assert (done.returncode, "AUDIT PASSED" in done.stdout, done.stderr) == (0, True, "")


def test_habits_that_ended_in_everything_are_replayed_with_what_was_fresh_from_then_on(tmp_path):
    made = stream(tmp_path, promise="past", fresh=60.0, kills=0.1)
    made.asked = lambda t, request, wanted: t == 20
    found = made.live(60).audit(record=None)
    assert (found.word, found.off) == ("PASSED", 0), str(found)
    first = next(step.step for step in made.steps() if step.spared)
    assert first > 20


# Planted mistakes: each is found at the first step that it makes otherwise.


def wanted_alone(made, now, request):  # noqa: ARG001
    """Of what is fresh only the wanted one is left out."""
    return tuple(x for x in now.spared if x == request)


def wanted_anyway(made, now, request):  # noqa: ARG001
    """What is wanted is asked for, fresh or not."""
    return tuple(x for x in now.spared if x != request)


def stale_too(made, now, request):  # noqa: ARG001
    """What has just ceased to be fresh is left out, too."""
    return made.journal.fresh(now.at - 30)


def nothing(made, now, request):  # noqa: ARG001
    """All is asked for."""
    return ()


def by_a_wrong_clock(made, now, request):  # noqa: ARG001
    """As nothing is left out, so copies that are not yet there are."""
    return tuple(sorted({*now.spared, *(x for x, copy in made.journal._copies.items() if now.at < copy.arrived)}))


def first_one_always(made, now, request):  # noqa: ARG001
    """A server has frozen a source."""
    return tuple(sorted({0, *now.spared}))


def sparing(made, mistake):
    """A client that leaves out what `mistake` says; `made.wrong` gets the steps in which that is something else."""
    honest = Past.begin

    def begin(self, now, source, *rest, **options):
        spared = mistake(made, now, made.chain.index(source))
        pending = honest(self, now._replace(spared=spared), source, *rest, **options)
        made.wrong += [made.t] if pending.spared != now.spared else []
        return pending

    return patch.object(Past, "begin", begin)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    "mistake", [wanted_alone, wanted_anyway, stale_too, nothing, by_a_wrong_clock, first_one_always]
)
def test_another_set_than_what_was_not_fresh_is_found_at_the_first_one(tmp_path, mistake, seed):
    made = stream(tmp_path, seed, fresh=60.0, pace=ANY_PACE, kills=0.1)
    found = made.live(60, [sparing(made, mistake)]).audit(record=None)
    assert (found.first.step, found.first.rule) == (made.wrong[0], "fresh"), str(found)


def test_a_copy_that_was_put_out_of_the_cache_and_is_left_out_is_found(tmp_path):
    """A client that counts what it has forgotten as fresh."""
    made, honest = stream(tmp_path, fresh=300.0, cache=60, kills=0.0, restarts=0.0), Journal.finish

    def finish(self, state, query, answer):
        honest(self, state, query, answer)
        noted = next(self.steps(self.state.step - 1))
        ends = dict(zip(noted.query, json.loads(noted.until), strict=True))
        for source, copy in self._copies.items():
            if copy.until == 0.0 < ends.get(source, 0.0):
                object.__setattr__(copy, "until", ends[source])

    found = made.live(30, [patch.object(Journal, "finish", finish)]).audit(record=None)
    assert found.first.rule == "fresh"


def test_where_queries_are_drawn_nothing_may_be_left_out(tmp_path):
    """Also if nothing but what is fresh is: such a set would tell what was drawn."""
    made = life(tmp_path, "past", sensitive=(), fresh=60.0, pace=PACE, kills=0.0)

    def less(made, now, request):  # noqa: ARG001
        return made.journal.fresh(now.at)

    found = made.live(40, [sparing(made, less)]).audit()
    assert (found.first.step, found.first.rule) == (made.wrong[0], "fresh")


@pytest.mark.parametrize(("column", "value"), [("until", "[]"), ("spared", "[]"), ("query", "[]"), ("until", "[1, 2]")])
def test_a_row_that_does_not_say_what_was_fresh_is_damaged(tmp_path, column, value):
    made = stream(tmp_path, fresh=60.0, pace=(0, 61)).live(20)
    step = next(step for step in made.steps() if (not step.query if column == "spared" else step.query))
    with forged(made.journal_file) as database:
        database.execute(f"UPDATE steps SET {column} = ? WHERE step = ?", (value, step.step))
    done = command("audit", "log", made.log_file, "--journal", made.journal_file)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stdout
    assert f"step {step.step} is damaged" in done.stderr


def test_a_set_in_the_log_that_has_something_fresh_in_it_is_not_the_journals(tmp_path):
    made = stream(tmp_path, fresh=60.0, kills=0.0, losses=0.0).live(40)
    at, line = next((at, line) for at, line in enumerate(made.lines) if len(line["sources"]) < made.chain.n)
    everything = {"sources": list(range(made.chain.n)), "held": [0] * made.chain.n}

    def change(lines):
        return [*lines[:at], {**line, **everything}, *lines[at + 1 :]]

    found = made.change_log(change).audit(record=None)
    sent = itertools.accumulate((bool(step.query) for step in made.steps()), initial=0)
    step = next(step for step, number in zip(made.steps(), sent, strict=False) if step.query and number == line["step"])
    assert (found.first.step, found.first.rule) == (step.step, "log")


def test_the_attack_knows_the_set_of_each_step_although_silent_ones_have_no_number_on_the_wire(tmp_path):
    """A fuse has blown: from then on everything is asked for."""
    chain = Chain(PAST.P, PAST.names, weight=[9.0] * PAST.n)
    made = life(tmp_path, "past", chain=chain, sensitive=(), fresh=300.0, pace=(0, 20, 100), losses=0.0, kills=0.0)
    with patch.object(Chain, "simulate", lambda self, count, rng: np.arange(count) % self.n):
        made.live(100)
    found, steps = made.audit_log(attacked=True), made.steps()
    assert found.word == "PASSED"
    assert sum(not step.query for step in steps) > 5
    assert found.attack.private.requests == sum(step.lag == 0 for step in steps)


def test_a_whole_client_beside_the_log_of_its_server_passes(own, monkeypatch):
    """With windows, steps that were decided on, a cut-off query, restarts and a clock that is wrong at times."""
    rng, clock = random.Random(1), [1.8e9]
    monkeypatch.setattr(time, "time", lambda: clock[0])
    honest = own.server.respond

    def respond(request):
        if request.method == "GET":
            return honest(request)
        age = f"Cache-Control: max-age={rng.choice([0, 30, 100])}"
        return reply(b"".join(own.origin.frames(request)), headers=[age])

    async def run(cut):
        async with connect(**own.address(), journal=journal, promise="all", fresh="20s", delay=0.0) as client:
            with suppress(NothingPending):
                await client.resume()
            for _ in range(6):
                clock[0] += rng.choice(ANY_PACE)
                await client.get(rng.choice(NAMES))
                async for _ in client.play([(rng.choice(NAMES), True)] * rng.randint(0, 2)):
                    clock[0] += rng.choice([0, 10])
            if cut and client.private_until is None:
                await cut_off(own, client, rng.choice(NAMES))

    journal, log = own.directory / "journal", own.directory / "log"
    for cut in (True, False, True, True, False):
        own.server.respond = respond
        asyncio.run(run(cut))
    own.server.wait_closed()
    queries = [json.loads(one.body) for one in own.server.requests if one.method == "POST"]
    told = ("stream", "step", "sources", "held")
    lines = [{"time": t, "client": "here", **{name: one[name] for name in told}} for t, one in enumerate(queries)]
    write_lines(log, [{"catalogue": list(NAMES)}, *lines])
    found = audit_log(UnknownChain(NAMES), log, Exhibits({}, None, None, maker()), journal)
    assert (found.word, found.verdict.unchecked) == ("PASSED", ()), str(found.verdict)
    assert found.verdict.steps > len({one["step"] for one in queries}) + 5  # the others were silent
    assert len(queries) > len({one["step"] for one in queries})  # some came twice
