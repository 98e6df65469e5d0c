"""What the proxy counts, in Prometheus's text format. Nothing is counted by source."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from onoff.apps.proxy.line import Line

CONTENT_TYPE = CONTENT_TYPE_LATEST


class Counts:
    """The counters of one proxy."""

    def __init__(self, line: Line) -> None:
        self._registry = CollectorRegistry()
        self.answers = Counter(
            "onoff_proxy_answers", "Answers to local requests, by status.", ["status"], registry=self._registry
        )
        waiting = Gauge("onoff_proxy_waiting", "Requests that wait in line.", registry=self._registry)
        waiting.set_function(lambda: line.waiting)
        steps = Gauge("onoff_proxy_steps", "Finished steps of the journal.", registry=self._registry)
        steps.set_function(lambda: line.client.journal.state.step)
        pending = Gauge("onoff_proxy_pending", "1 while a step is not finished.", registry=self._registry)
        pending.set_function(lambda: line.client.journal.state.pending is not None)
        private = Gauge("onoff_proxy_private", "1 while privacy is ON.", registry=self._registry)
        private.set_function(lambda: line.private)

    def text(self) -> bytes:
        return generate_latest(self._registry)
