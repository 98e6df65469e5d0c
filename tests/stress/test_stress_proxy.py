"""1,000 kills of the proxy while programs reload through it: one query per step at two origins, every answer right.

The first step after each kill is ON, since requests that waited are lost.

Eight programs ask for sources at random, and switch privacy now and then. The proxy is killed at any time and started
again. Then the logs of both origins, merged, are read beside the journal.
"""

from __future__ import annotations

import http.client
import os
import signal
import socket
import threading
import time
from pathlib import Path

import pytest

from crashkit import Driver
from onoff import Chain
from onoff.client.status import snapshot
from onoff.logs.journals import read_journal
from ports import free_port
from proxykit import set_up
from recordingserver import RecordingServer, reply
from stresskit import portion, steps_of
from waiting import within

pytestmark = pytest.mark.stress
NAMES = tuple("abcdef")
BODIES = {name: f"the latest about {name}".encode() * 20 for name in NAMES}
CHAIN = Chain([[0.5 if y == (x + 1) % 6 else 0.1 for y in range(6)] for x in range(6)], NAMES)
PROGRAMS = 8
EACH = 50  # kills of one journal


class Forge:
    """Proxies with one journal, one after the other."""

    def __init__(self, directory, urls):
        made = set_up(directory / "proxy", urls, CHAIN, free_port())
        self.journal, self.port, self.errors = made.journal, made.port, directory / "errors.txt"
        self.words = ["proxy", "--directory", str(made.directory), "--delay", "0.002"]
        self.driver = Driver(directory, "proxyforge.py", XDG_CACHE_HOME=str(directory / "cache"))

    def start(self):
        self.pid = self.driver.tell(self.words)

    def wait_until_it_answers(self):
        with socket.socket() as probe:
            within(120, lambda: not probe.connect_ex(("127.0.0.1", self.port)), 0.01)

    def end(self, number):
        os.kill(self.pid, number)
        within(120, lambda: not Path(f"/proc/{self.pid}").exists(), 0.001)


class Program(threading.Thread):
    """Asks, checks what it gets, and asks again, until it is told to stop."""

    def __init__(self, forge, rng, stop):
        super().__init__()
        self.port, self.rng, self.stop = forge.port, rng, stop
        self.right, self.lost, self.wrong = [], 0, []

    def run(self):
        while not self.stop.is_set():
            name = self.rng.choice(NAMES)
            try:
                if self.rng.random() < 0.05:
                    self.ask("PUT", "/onoff/privacy", self.rng.choice(("on", "off", "off")))
                status, step, body = self.ask("GET", f"/{name}")
            except (OSError, http.client.HTTPException):
                self.lost += 1
                time.sleep(0.02)
                continue
            if status == 200 and body == BODIES[name]:
                self.right.append((int(step), name))
            elif status == 424:
                self.lost += 1
            else:
                self.wrong.append((name, status, body[:200]))

    def ask(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body)
            answer = connection.getresponse()
            return answer.status, answer.getheader("onoff-step"), answer.read()
        finally:
            connection.close()


def logged(server):
    """(time, source, whether its connection was new) of every whole request, in order."""
    server.wait_closed()
    whole = [[raw for raw in one if raw.endswith(b"\r\n\r\n")] for one in server.connections]
    new = [i == 0 for one in whole for i in range(len(one))]
    assert len(new) == len(server.requests)
    return [(each.begun, NAMES.index(each.path[1:]), first) for each, first in zip(server.requests, new, strict=True)]


def check_one_query_per_step(requests, queries):
    """Each step was asked with its own set, whole or broken off by a kill, and no later step before it was whole.

    After a kill a process begins with a new connection, and with the step that was pending or the next one.
    """
    states = {(0, 0)}
    for _, source, is_new in sorted(requests):
        found = set()
        for step, place in states:
            begins = {(step, place)} if place < len(queries[step]) else set()
            if place == len(queries[step]) and step + 1 < len(queries):
                begins.add((step + 1, 0))
            if is_new:
                begins.add((step, 0))
            found |= {(at, k + 1) for at, k in begins if queries[at][k] == source}
        assert found, f"{NAMES[source]} after {sorted(states)} of {[queries[step] for step, _ in states]}"
        states = found
    assert (len(queries) - 1, len(queries[-1])) in states


def test_a_query_that_was_drawn_twice_would_be_seen():
    queries = [(0, 1, 2), (1, 2), (0, 2)]
    asked = [(0, True), (1, False), (0, True), (1, False), (2, False), (1, False), (2, False), (0, False), (2, False)]
    check_one_query_per_step([(i, *each) for i, each in enumerate(asked)], queries)
    for wrong in (
        [*asked[:5], (0, True), (2, False), *asked[7:]],  # another set for the second step
        [*asked[:6], *asked[7:]],  # a step that was not finished before the next
        [*asked[:2], (0, False), *asked[3:]],  # again, though nothing was killed
        asked[:-1],
    ):
        with pytest.raises(AssertionError):
            check_one_query_per_step([(i, *each) for i, each in enumerate(wrong)], queries)


@pytest.mark.parametrize("part", [1, pytest.param(2, marks=pytest.mark.long)])
def test_one_query_per_step_and_right_answers_whenever_the_proxy_is_killed(part, tmp_path, campaign):
    kills = portion(500)
    with RecordingServer(answer) as one, RecordingServer(answer) as two:
        urls = {name: f"{(one, two)[i % 2].url}/{name}" for i, name in enumerate(NAMES)}
        for number in range(-(-kills // EACH)):
            with campaign.seed(f"proxy {part} {number}") as rng:
                storm(one, two, urls, min(EACH, kills - EACH * number), rng, tmp_path / str(number), campaign)
            campaign.count("runs")
            campaign.progress(f"part {part}, journal {number}")


def answer(request):
    """What web servers do: a body, or 304 to who holds it."""
    held = b"if-none-match" in request.raw.lower()
    return reply(b"", 304) if held else reply(BODIES[request.path[1:]], headers=['ETag: "1"'])


def storm(one, two, urls, kills, rng, directory, campaign):
    directory.mkdir()
    one.reset()
    two.reset()
    forge, stop, after_kills = Forge(directory, urls), threading.Event(), set()
    programs = [Program(forge, type(rng)(rng.random()), stop) for _ in range(PROGRAMS)]
    try:
        forge.start()
        for program in programs:
            program.start()
        for _ in range(kills):
            if rng.random() < 0.8:  # the others are killed while they start
                forge.wait_until_it_answers()
            time.sleep(rng.random() * rng.choice((0.1, 0.3, 1.0)))
            pending = forge.journal.exists() and snapshot(forge.journal).state.pending is not None
            forge.end(signal.SIGKILL)
            if forge.journal.exists():
                state = snapshot(forge.journal).state
                after_kills.add(state.step + (state.pending is not None))
            campaign.count("kills")
            campaign.count("kills while a step was pending, as far as a look before shows", pending)
            forge.start()
        before = snapshot(forge.journal).state.step if forge.journal.exists() else 0
        within(120, lambda: forge.journal.exists() and snapshot(forge.journal).state.step >= before + 3)  # it goes on
    finally:
        stop.set()
        for program in programs:
            if program.is_alive():
                program.join()
        forge.end(signal.SIGTERM)
        forge.driver.__exit__()
    assert "Traceback" not in forge.errors.read_text(), forge.errors.read_text()[-5000:]
    assert not [wrong for program in programs for wrong in program.wrong]
    steps = read_journal(forge.journal)
    for step, name in (right for program in programs for right in program.right):
        assert NAMES[steps.requests[step]] == name
        campaign.count("right answers")
    campaign.count("answers that a kill cut off, or requests that found no proxy", sum(each.lost for each in programs))
    campaign.count("steps", len(steps.requests))
    made = steps_of(forge.journal)
    check_one_query_per_step([*logged(one), *logged(two)], [query for query, *_ in made])
    first = [made[step][1] for step in after_kills if step < len(made)]
    assert all(first)
    campaign.count("first steps after kills, all of them ON", len(first))
    campaign.count("OFF steps", sum(not private for _, private, _ in made))
