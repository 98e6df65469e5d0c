"""A client that kills itself (`kill -9`) right before a given action on disk or network: a driver for tests.

It reads orders from stdin, one JSON object in a line, and carries out each in a process of its own, forked from this
one, which has imported everything already. An order with "patience" is killed after so many seconds, whatever it does.
One that says "warm" it carries out itself, so that what is done at first use is not done again in every process.
What it says: {"killed": bool, "code": exit code, "actions": [...]}.

Actions are whatever the world outside the process can see: creating, writing, renaming a file of the journal, every
commit of SQLite, connecting, sending, receiving, and handing a message to the application. Dying right before one
action is dying right after the one before it: killing before each, and not at all, covers before and after of all.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import secrets
import signal
import sqlite3
import sys
import time
import traceback
from pathlib import Path
from types import SimpleNamespace

import anyio._backends._asyncio  # noqa: F401 (imported late otherwise, in every process)

import onoff.client.disk
import onoff.client.journal
import onoff.client.laws
import onoff.client.play
import onoff.client.rollback
import onoff.files
import onoff.past.habits
from onoff.apps.cli.app import main as command_line
from onoff.client.connect import connect
from onoff.client.message import Message
from onoff.client.transports.http import Connection, Connections
from onoff.client.transports.onoff import OnoffTransport
from onoff.client.transports.web import HttpTransport
from onoff.errors import JournalError, NothingPending, OnoffError
from onoff.model.chain import Chain
from onoff.plans.planner import Planner


class Actions:
    """Counts the actions of this process, writes them down and dies before the one that is deadly."""

    def __init__(self) -> None:
        self.log, self.deadly, self.count = -1, 0, 0

    def __call__(self, what: str) -> None:
        self.count += 1
        if self.count == self.deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        os.write(self.log, (what + "\n").encode())


about_to = Actions()
background = SimpleNamespace(allowed=False)


class WatchedConnection(sqlite3.Connection):
    """Every statement that changes the disk is an action; what is inside a transaction reaches it at COMMIT."""

    def execute(self, sql, *arguments):
        if sql == "COMMIT" or sql.startswith("PRAGMA journal_mode"):
            about_to(sql.lower())
        return super().execute(sql, *arguments)

    def executescript(self, sql):
        about_to("commit schema")
        return super().executescript(sql)

    def close(self):
        about_to("close database")
        super().close()


class WatchedOs:
    """The module os, with the calls that change the disk as actions."""

    def __getattr__(self, name):
        found = getattr(os, name)
        if name not in ("open", "rename", "replace", "pwrite", "write", "unlink", "fsync", "ftruncate"):
            return found

        def watched(*arguments):
            about_to(name)
            return found(*arguments)

        return watched


def watched_files(function):
    """A function of `onoff.files` whose calls of the system are actions."""

    def watched(*arguments, **options):
        onoff.files.os = WatchedOs()
        try:
            return function(*arguments, **options)
        finally:
            onoff.files.os = os

    return watched


def watch() -> None:
    """Put the watchers in place."""
    onoff.client.journal.os = onoff.client.rollback.os = WatchedOs()
    onoff.client.journal.sync_directory = watched_files(onoff.files.sync_directory)
    onoff.client.laws.append_line = watched_files(onoff.files.append_line)
    onoff.client.disk.sqlite3 = SimpleNamespace(**{**vars(sqlite3), "connect": watched_database})
    ask, received, open_tcp = Connection.ask, Connection.data_received, Connections._connect
    sent = [False]

    async def watched_ask(self, *arguments):
        about_to("send")
        sent[0] = True
        return await ask(self, *arguments)

    def watched_received(self, data):
        if sent[0]:  # the first bytes of an answer; in how many parts it comes is chance
            about_to("receive")
            sent[0] = False
        received(self, data)

    async def watched_connect(self, *arguments):
        about_to("connect")
        return await open_tcp(self, *arguments)

    Connection.ask, Connection.data_received, Connections._connect = watched_ask, watched_received, watched_connect
    compute = Planner._compute
    # No process in the background unless the order says so: what is in the directory serves.
    Planner._compute = lambda self, lag: compute(self, lag) if background.allowed else None


def watched_database(path, **options):
    about_to("open database")
    return sqlite3.connect(path, factory=WatchedConnection, **options)


class Pairs:
    """A plan for tests: the request and one other source by chance, so that a second draw would be seen."""

    scheme, name, lag, cost, kind = "pairs", "pairs, lag 1", 1, 2.0, "race"

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self.store = SimpleNamespace(chain=chain)  # it is its own planner, too

    def best(self, lag: int) -> Pairs:  # noqa: ARG002
        return self

    def rounding_at(self, lag: int) -> float:  # noqa: ARG002
        return 0.0

    def draw(self, request, last, next, lag, randbelow=secrets.randbelow):  # noqa: ARG002
        other = (request + 1 + randbelow(self.chain.n - 1)) % self.chain.n
        return tuple(sorted((request, other)))


async def play(order) -> None:
    """Go through the items from where the journal stands; what was begun comes first."""
    chain = None if order["chain"] is None else Chain.load(order["chain"])
    onoff.past.habits.FEW = order.get("few", 10)  # transitions of a source that make a chain
    transport = OnoffTransport(order["server"]) if "server" in order else HttpTransport(order["urls"])
    planner = Pairs(chain) if chain is not None and "plans" not in order else None
    kept = {key: order[key] for key in ("promise", "sensitive", "record") if key in order}
    if kept.get("promise") == "past":
        planner = None
    elif "plans" in order:
        planner = Planner(chain, order["plans"])
    received = os.open(order["received"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def deliver(message: Message) -> None:
        about_to("deliver")
        if message.step == order.get("poison"):
            os.kill(os.getpid(), signal.SIGKILL)
        line = {"step": message.step, "source": message.source, "body": message.body.decode()}
        os.write(received, (json.dumps(line) + "\n").encode())

    promise = None if planner is None or Path(order["journal"]).exists() else "both"
    options = {"delay": 0.001, "attempts": 3, "backoff": 0.01, "promise": promise, **kept}
    async with connect(chain, transport=transport, journal=order["journal"], plans=planner, **options) as client:
        with contextlib.suppress(NothingPending):  # before the first step
            deliver(await client.resume(last=True))
        for source, following, private in order["items"][client.journal.state.step :]:
            deliver(await client.get(source, following, private))


def write_early(first: int, file: Path, content: bytes) -> None:
    """Write the message of a step before the first for which there is no time left."""
    if int(file.name) >= first:
        raise RuntimeError("the process ends first")  # in a thread, where nobody hears it
    file.write_bytes(content)


def obey(order) -> int:
    """One run, in this process; its exit code."""
    about_to.log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    about_to.deadly, about_to.count = order["deadly"], 0
    background.allowed = order.get("background", False)
    if "stuck" in order:
        onoff.client.play.write_atomically = lambda *given, **_: write_early(order["stuck"], *given)
    try:
        if "command" in order:
            sys.argv[1:] = order["command"]
            command_line()
        else:
            asyncio.run(play(order))
    except SystemExit as error:
        return error.code or 0
    except OnoffError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        if not isinstance(error, JournalError):
            return 2
        return 4 if "the journal is damaged" in str(error) or "move it away" in str(error) else 3
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def obey_apart(order) -> int | None:
    """One run in a process of its own; its exit code, or None if it was killed."""
    child = os.fork()
    if child == 0:
        if "largest" in order:  # no file may grow beyond that: to a process, a full disk
            resource.setrlimit(resource.RLIMIT_FSIZE, (order["largest"], order["largest"]))
        os._exit(obey(order))
    if "patience" in order:  # seconds until it is killed, whatever it is doing then
        end = time.monotonic() + order["patience"]
        while os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            if time.monotonic() > end:
                os.kill(child, signal.SIGKILL)
                break
            time.sleep(0.001)
    _, status = os.waitpid(child, 0)
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    return None if killed else os.waitstatus_to_exitcode(status)


def main() -> None:
    watch()
    answers = os.fdopen(os.dup(1), "w")
    with open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), 1)  # what commands print
    for line in sys.stdin:
        order = json.loads(line)
        code = obey(order) if order.get("warm") else obey_apart(order)
        log = Path(order["log"])
        actions = log.read_text().splitlines() if log.exists() else []
        print(json.dumps({"killed": code is None, "code": code, "actions": actions}), file=answers, flush=True)


if __name__ == "__main__":
    main()
