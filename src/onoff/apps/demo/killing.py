"""A client that is killed with SIGKILL in the middle of its requests and started again: `onoff play`, a process."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from onoff.apps.demo.comparing import of_stream
from onoff.apps.demo.habits import DELAY, news, reader
from onoff.audit.files import Log, read_journal
from onoff.client.journalfile import snapshot
from onoff.errors import OnoffError
from onoff.server.local import ONOFF

POLL = 0.02  # seconds between two looks at the journal


@dataclass(frozen=True)
class Killed:
    """What became of it.

    `at` is the step it was at, and `pending` whether a query was noted and not answered. `repeated` queries were sent
    again, `sets` is how many different sets the server saw at one step at most, and `delivered` how many of the wanted
    messages arrived.
    """

    steps: int
    at: int
    pending: bool
    repeated: int
    sets: int
    delivered: int


def play_and_kill(directory: Path, url: str, items: Sequence[tuple[str, bool]]) -> tuple[int, bool]:
    """Play the requests, kill the client half way, and play on; where it was, and whether a query was pending."""
    (directory / "requests").write_text("".join(f"{'on' if on else 'off'} {source}\n" for source, on in items))
    _play(directory, url, stop_at=len(items) // 2)
    state = snapshot(directory / "killed").state
    _play(directory, url, stop_at=None)
    return state.step, state.pending is not None


def killed(
    directory: Path, items: Sequence[tuple[str, bool]], issues: Mapping[str, int], log: Log, at: tuple[int, bool]
) -> Killed:
    """What the server's log and the messages that arrived say of it."""
    lines = of_stream(log, read_journal(directory / "killed", reader()).stream)
    sets: dict[int, set[tuple[int, ...]]] = {}
    for line in lines:
        sets.setdefault(line.step, set()).add(line.sources)
    files = [directory / "got" / f"{step:06d}" for step in range(len(items))]
    arrived = [file.exists() and file.read_bytes() for file in files]
    delivered = sum(body == news(name, issues[name]) for body, (name, _) in zip(arrived, items, strict=True))
    return Killed(len(sets), *at, len(lines) - len(sets), max(map(len, sets.values())), delivered)


def _play(directory: Path, url: str, stop_at: int | None) -> None:
    """`onoff play`, killed once it has made `stop_at` steps."""
    command = [*ONOFF, "play", str(directory / "requests"), "--server", url, "--delay", str(DELAY)]
    for option, name in (("--chain", "chain.json"), ("--journal", "killed"), ("--out", "got")):
        command += [option, str(directory / name)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            while process.poll() is None:
                if stop_at is not None and _made(directory / "killed") >= stop_at:
                    process.send_signal(signal.SIGKILL)
                    process.wait()
                    return
                try:
                    process.wait(timeout=POLL)
                except subprocess.TimeoutExpired:
                    continue
        finally:
            process.kill()
        assert process.stderr is not None
        if process.returncode:
            raise OnoffError(f"the client failed: {process.stderr.read().strip()}")


def _made(journal: Path) -> int:
    try:
        return snapshot(journal).state.step
    except OnoffError:
        return 0  # not there yet
