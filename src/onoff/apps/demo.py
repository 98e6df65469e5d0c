"""The demonstration: a reader of eight news channels, a real server, a real client, and a kill in the middle.

Everything runs on this machine: `onoff serve` on a free loopback port, `onoff play` over HTTP, both as processes.
"""

from __future__ import annotations

import signal
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from onoff.audit.transcript.attack import Audit, audit_stream, noted
from onoff.audit.transcript.reading import Line, read_journal, read_log
from onoff.client.snapshot import snapshot
from onoff.errors import OnoffError
from onoff.model.bounds import outer_bound
from onoff.model.chain import Chain
from onoff.plans.making import plan
from onoff.plans.store import PlanStore
from onoff.schemes.paper import paper
from onoff.server.local import ONOFF, LocalServer
from onoff.wire import Catalogue

CHANNELS = ("world", "politics", "business", "technology", "science", "health", "sports", "culture")
HABITS = (  # how often each channel (row) was followed by each other (column) in the reader's past
    (9, 8, 5, 3, 2, 3, 4, 2),
    (7, 9, 6, 2, 2, 3, 3, 2),
    (4, 6, 8, 6, 2, 2, 3, 2),
    (3, 2, 5, 9, 6, 2, 3, 2),
    (3, 2, 2, 6, 7, 5, 2, 3),
    (3, 3, 2, 2, 5, 7, 4, 3),
    (4, 3, 3, 3, 2, 4, 9, 3),
    (3, 2, 2, 2, 3, 3, 4, 7),
)
SWITCHING = 0.12  # how often privacy is switched, independently of what is read
LENGTH = 256  # bytes of the longest message
DELAY = 0.02  # seconds from call to send: on one machine with eight sources, draws take a millisecond


@dataclass(frozen=True)
class Demonstration:
    """What happened: sizes in bytes of the same requests by each scheme, and what the server's transcript betrays."""

    steps: int
    private: int
    downloaded: int
    everything: int
    paper: float
    expected: float
    outer: float
    delivered: int
    killed_at: int
    retries: int
    queries_per_step: int
    audit: Audit


def reader() -> Chain:
    """The chain of the eight channels."""
    return Chain.from_counts(HABITS, CHANNELS)


def statuses(steps: int, rng: np.random.Generator) -> list[bool]:
    """ON and OFF periods that do not depend on the requests."""
    return [bool(status) for status in np.cumsum(rng.random(steps) < SWITCHING) % 2 == 0]


def requests(steps: int, seed: int) -> list[tuple[str, bool]]:
    """The simulated reader's requests with their statuses. The seed makes them repeatable; queries stay secret."""
    rng = np.random.default_rng(seed)
    chain = reader()
    path = chain.simulate(steps, rng)
    return [(chain.names[x], private) for x, private in zip(path, statuses(steps, rng), strict=True)]


def demonstrate(steps: int, seed: int, progress: Callable[[int], None] = lambda step: None) -> Demonstration:
    """Serve, publish, plan, play, kill the client in the middle, play on, and compare. Nothing is left behind."""
    items = requests(steps, seed)
    with tempfile.TemporaryDirectory(prefix="onoff-demo-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        store = PlanStore(reader(), directory / "plans")
        for lag in (1, 2, 3, 5, 8):
            store.save(plan(reader(), lag))
        reader().save(directory / "chain.json")
        (directory / "requests").write_text("".join(f"{'on' if on else 'off'} {source}\n" for source, on in items))
        with LocalServer(directory, {name: news(name) for name in CHANNELS}, LENGTH) as server:
            killed_at = _play(directory, server.url, stop_at=steps // 2, progress=progress)
            _play(directory, server.url, stop_at=None, progress=progress)
        return _compared(directory, items, killed_at)


def news(channel: str) -> bytes:
    return f"the latest of {channel}".encode()


def _play(directory: Path, url: str, stop_at: int | None, progress: Callable[[int], None]) -> int:
    """`onoff play`, killed with SIGKILL once it has made `stop_at` steps; the step it was at."""
    command = [*ONOFF, "play", str(directory / "requests"), "--server", url, "--promise", "both"]
    command += ["--delay", str(DELAY)]
    for option, name in (("--chain", "chain.json"), ("--journal", "journal"), ("--plans", "plans"), ("--out", "got")):
        command += [option, str(directory / name)]
    step = 0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            while process.poll() is None:
                step = _step(directory / "journal")
                progress(step)
                if stop_at is not None and step >= stop_at:
                    process.send_signal(signal.SIGKILL)
                    process.wait()
                    return step
                try:
                    process.wait(timeout=0.05)
                except subprocess.TimeoutExpired:
                    continue
        finally:
            process.kill()
        assert process.stderr is not None
        if process.returncode:
            raise OnoffError(f"the client failed: {process.stderr.read().strip()}")
    return step


def _step(journal: Path) -> int:
    try:
        return snapshot(journal).state.step
    except OnoffError:
        return 0  # not there yet


def _compared(directory: Path, items: list[tuple[str, bool]], killed_at: int) -> Demonstration:
    """What the run delivered and downloaded, beside download-all, the paper's scheme and the bound, with the audit."""
    chain, totals = reader(), snapshot(directory / "journal").totals
    queries: dict[int, set[tuple[int, ...]]] = {}
    lines = read_log(directory / "transcript", chain)
    for line in lines:
        queries.setdefault(line.step, set()).add(line.sources)
    delivered = sum(
        (directory / "got" / f"{step:06d}").read_bytes() == news(source)
        for step, (source, _) in enumerate(items)
        if (directory / "got" / f"{step:06d}").exists()
    )
    frame = Catalogue(CHANNELS, LENGTH).frame_length
    cost_in_paper = {lag: float(paper(chain.posterior(lag)).cost) for lag in totals.lags}
    return Demonstration(
        steps=totals.steps,
        private=totals.private,
        downloaded=totals.bytes,
        everything=totals.steps * chain.n * frame,
        paper=frame * sum(count * cost_in_paper[lag] for lag, count in totals.lags.items()),
        expected=frame * totals.cost,
        outer=frame * sum(count * outer_bound(chain.posterior(lag)) for lag, count in totals.lags.items()),
        delivered=delivered,
        killed_at=killed_at,
        retries=len(lines) - len(queries),
        queries_per_step=max(map(len, queries.values())),
        audit=_audited(directory, lines),
    )


def _audited(directory: Path, lines: Sequence[Line]) -> Audit:
    """What a server that knows the plans can make of its transcript."""
    chain, store = reader(), PlanStore(reader(), directory / "plans")
    steps = read_journal(directory / "journal", chain)
    expected = noted(chain, steps, [store.load(lag) for lag in store.lags()])
    return audit_stream(chain, lines, expected, [step.request for step in steps])
