"""Clients in processes of their own that are killed (crashing_client.py), and servers whose logs are then read."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

from onoff import Chain, plan
from onoff.client.transports.web import HttpTransport
from onoff.plans.store import PlanStore
from recordingserver import Origin, RecordingServer
from serverprocess import ServerProcess

NAMES = ("news", "sports", "science", "weather")
BODIES = {name: f"the latest about {name}".encode() for name in NAMES}
CHAIN = Chain([[0.4 if x == y else 0.2 for y in range(4)] for x in range(4)], NAMES)
LONGER = [(0, 1), (3, 3), (3, 2), (2, 0), (0, 3), (3, 1)]
TREE = Chain(
    [*CHAIN.P, *([0.1 + 0.6 * (y == place % 4) for y in range(4)] for place in range(len(LONGER)))],
    NAMES, states=[(0,), (1,), (2,), (3,), *LONGER],
)  # fmt: skip
ON, OFF = True, False


def planned(directory: Path) -> Path:
    """A directory with plans for the first lags."""
    store = PlanStore(CHAIN, directory)
    for lag in (1, 2, 3):
        store.save(plan(CHAIN, lag))
    return directory


class Driver:
    """The process that runs clients. What it and they say of errors is in the file `errors`."""

    def __init__(self, directory: Path, script: str = "crashing_client.py", **environment: str) -> None:
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", **environment}
        command = [sys.executable, str(Path(__file__).with_name(script))]
        self.errors = directory / "errors.txt"
        with self.errors.open("w") as stderr:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True, env=environment
            )

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.stdin.close()
        self.process.wait(timeout=120)
        self.process.stdout.close()

    def tell(self, order):
        """What the process answers."""
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, f"the driver has ended: {self.errors.read_text()[-5000:]}"
        return json.loads(answer)

    def run(self, order, deadly=0, codes=(0,)):
        """One client process, killed before its action number `deadly`; whether it was, and its actions."""
        result = self.tell({**order, "deadly": deadly})
        assert result["killed"] or result["code"] in codes, self.errors.read_text()[-5000:]
        return result


class OwnServer:
    """`onoff serve`; its transcript is read line by line."""

    def __init__(self, tmp_path):
        plans = tmp_path / "plans"
        PlanStore(CHAIN, plans).save(plan(CHAIN, 1))
        self.process = ServerProcess(tmp_path, names=NAMES)
        self.process.publish(BODIES)
        self.order = {"server": self.process.url, "plans": str(plans)}
        self.fingerprint = self.process.catalogue.fingerprint

    def forget(self):
        self.seen = len(self.process.transcript())

    def sources_asked(self):
        return [source for line in self.process.transcript()[self.seen :] for source in line["sources"]]

    def check(self, queries):
        """Every step was asked, in order, with one distinct set."""
        asked = [(line["step"], tuple(line["sources"])) for line in self.process.transcript()[self.seen :]]
        assert list(dict.fromkeys(asked)) == list(enumerate(queries))
        assert asked == sorted(asked)

    def close(self):
        self.process.stop()


class AnyServer:
    """A web server; its log has no step numbers, only paths."""

    def __init__(self, tmp_path):  # noqa: ARG002
        self.origin = Origin(BODIES)
        self.process = RecordingServer(self.origin)
        self.process.__enter__()
        self.order = {"urls": self.origin.urls(self.process)}
        self.fingerprint = HttpTransport(self.order["urls"]).fingerprint

    def forget(self):
        self.process.reset()

    def sources_asked(self):
        return [NAMES.index(raw.split(b" ")[1].decode()[1:]) for one in self.process.recording() for raw in one]

    def check(self, queries):
        check_requests(self.process.recording(), queries)

    def close(self):
        self.process.__exit__()


def check_requests(connections, queries):
    """Every process began with a whole step, the one that the last request before it belongs to or the next.

    `connections` has what a web server got over each, and `queries` the sets of all steps.
    """
    everything = [source for query in queries for source in query]
    starts = list(itertools.accumulate(map(len, queries), initial=0))
    reached = {0}
    for connection in filter(None, connections):
        asked = [NAMES.index(raw.split(b" ")[1].decode()[1:]) for raw in connection]
        begins = {max(start for start in starts if start < end or end == 0) for end in reached}
        begins |= reached.intersection(starts)
        reached = {begin + len(asked) for begin in begins if everything[begin : begin + len(asked)] == asked}
        assert reached, f"{asked} is not what {queries} must look like"
    assert len(everything) in reached
