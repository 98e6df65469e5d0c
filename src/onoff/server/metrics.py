"""What the server counts, in Prometheus's text format. Nothing is counted by source."""

from __future__ import annotations

import os

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.multiprocess import MultiProcessCollector

# Set before the worker processes start: they add up their counts in files there.
SHARED_DIRECTORY = "PROMETHEUS_MULTIPROC_DIR"
CONTENT_TYPE = CONTENT_TYPE_LATEST
_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)


class Metrics:
    """The counters of one application. Those of worker processes that share a directory are added up."""

    def __init__(self) -> None:
        mine = self._registry = CollectorRegistry()
        self.frames = Counter("onoff_frames", "Frames sent in answers.", registry=mine)
        self.seconds = Histogram(
            "onoff_query_seconds",
            "Queries: from read to answered.",
            buckets=_BUCKETS,
            registry=mine,
        )
        self.rounds = Counter("onoff_rounds", "Rounds published over HTTP.", registry=mine)
        self.messages = Counter("onoff_messages", "Messages published over HTTP.", registry=mine)
        self.problems = Counter("onoff_problems", "Requests refused, by type of problem.", ["type"], registry=mine)
        self.round = Gauge("onoff_round", "The latest round seen.", multiprocess_mode="max", registry=mine)

    def text(self) -> bytes:
        if SHARED_DIRECTORY not in os.environ:
            return generate_latest(self._registry)
        everyone = CollectorRegistry()
        MultiProcessCollector(everyone)  # type: ignore[no-untyped-call]
        return generate_latest(everyone)
