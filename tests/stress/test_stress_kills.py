"""1,000 kills of clients and servers, at every action and at any time, with plans that arrive from the background.

A stream of random requests goes on, process after process, until it is through; then the server's log is read.
"""

from __future__ import annotations

import json
import threading
import time
from itertools import count
from pathlib import Path

import pytest

from crashkit import BODIES, CHAIN, NAMES, AnyServer, OwnServer
from onoff.client.journal import Journal
from stresskit import portion, said

pytestmark = pytest.mark.stress
LENGTH = 25  # requests in a stream


@pytest.fixture
def chain_file(tmp_path):
    CHAIN.save(tmp_path / "chain.json")
    return str(tmp_path / "chain.json")


def new_items(rng):
    sources = [rng.choice(NAMES) for _ in range(LENGTH)]
    return [(a, b, rng.random() < 0.4) for a, b in zip(sources, [*sources[1:], None], strict=True)]


def check_stream(server, order):
    """Every step was asked with one set, in order; what was wanted arrived."""
    journal = Journal(order["journal"], CHAIN.fingerprint, server.fingerprint)
    steps = list(journal.steps())
    journal.close()
    assert [(step.step, CHAIN.names[step.request]) for step in steps] == [
        (i, source) for i, (source, _, _) in enumerate(order["items"])
    ]
    server.check([tuple(step.query) for step in steps])
    arrived = [json.loads(line) for line in Path(order["received"]).read_text().splitlines()]
    assert {line["step"]: line["body"].encode() for line in arrived} == {
        i: BODIES[source] for i, (source, _, _) in enumerate(order["items"])
    }
    return {step.plan for step in steps}


def one_life(server, driver, order, rng, campaign, server_dies):
    """A process that is killed, or whose server is; how many kills that were, and whether it came to its end."""
    before = driver.errors.stat().st_size
    if server_dies:
        delay = rng.uniform(0, 0.25)
        thread = threading.Timer(delay, lambda: (server.process.kill(), server.process.start()))
        thread.start()
        result = driver.run(order, codes=(0, 2))
        thread.join()
        campaign.count("kills of the server " + ("while a client used it" if result["code"] else "between two clients"))
        dead = 1
    else:
        timed = rng.random() < 0.4
        more = {"patience": rng.uniform(0, 0.4)} if timed else {}
        result = driver.run({**order, **more}, 0 if timed else rng.randint(1, 45))
        dead = int(result["killed"])
        if dead:
            last = result["actions"][-1] if result["actions"] else "its start"
            campaign.count(f"kills of the client {'at any time, ' if timed else ''}after {last}")
    assert "Traceback" not in said(driver.errors, before), said(driver.errors, before)
    campaign.count("kills", dead)
    return dead, not result["killed"] and result["code"] == 0


def wait_for_a_plan(directory):
    """Until the background has made one, if it was started at all: killed clients leave it running."""
    deadline = time.monotonic() + 120
    while list(directory.glob("*/log")) and not list(directory.glob("*/lag-1.plan.json")):
        if time.monotonic() > deadline:
            return
        time.sleep(0.02)


def warm_up(server, driver, chain_file, tmp_path):
    """Have what is done at first use done once, in the process that all others are forked from."""
    files = {name: str(tmp_path / f"warm-{name}") for name in ("journal", "received", "log")}
    driver.run({**server.order, **files, "chain": chain_file, "items": [("news", "sports", True)], "warm": True})


@pytest.mark.parametrize("part", [1, pytest.param(2, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("kind", "kills", "of_servers"), [(OwnServer, 300, 100), pytest.param(AnyServer, 200, 0, marks=pytest.mark.long)]
)
def test_one_query_per_step_whoever_is_killed(kind, kills, of_servers, part, driver, chain_file, tmp_path, campaign):
    server = kind(tmp_path)
    label = f"{kind.__name__} {part}"
    left = {False: portion(kills - of_servers), True: portion(of_servers) if of_servers else 0}
    try:
        warm_up(server, driver, chain_file, tmp_path)
        for number in count():
            if sum(left.values()) == 0:
                break
            with campaign.seed(f"kills {label} {number}") as rng:  # a stream may come to its end without any kill
                place = tmp_path / str(number)
                place.mkdir()
                files = {name: str(place / name) for name in ("journal", "received", "log", "plans")}
                server.forget()
                order = {**server.order, **files, "chain": chain_file, "items": new_items(rng)}
                finished, lives = False, 0
                while not finished and sum(left.values()) > 0:
                    server_dies = rng.random() < left[True] / sum(left.values())
                    # Not every process may start one in the background: each takes a second to find the store busy.
                    life = {**order, "background": lives == 0 or rng.random() < 0.2}
                    dead, finished = one_life(server, driver, life, rng, campaign, server_dies)
                    left[server_dies] = max(0, left[server_dies] - dead)
                    lives += 1
                    if lives == 5:
                        wait_for_a_plan(place / "plans")
                driver.run(order)
                used = check_stream(server, order)
                campaign.count("streams")
                arrived = any(name.startswith("optimal") for name in used)
                campaign.count("streams that went on with a plan of the background", arrived)
                campaign.count("runs", 1)
                campaign.progress(f"{label}: {left[False]} of clients and {left[True]} of servers are left")
    finally:
        server.close()
