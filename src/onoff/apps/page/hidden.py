"""The server's view of a stream of the everyday mode: what it believes about everything that is hidden from it.

The reasoning is the audit's (`onoff.audit.everyday.beliefs`), over the laws that the client recorded and the queries in
the server's own transcript. The naive client is reasoned about in the same way: its law is written down like ours.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from onoff.apps.page.steps import Made
from onoff.audit.everyday.beliefs import Beliefs, attack, divergence
from onoff.audit.everyday.record import Law, Seen, Table, recorded
from onoff.errors import PlanError
from onoff.model.chain import Chain
from onoff.model.powers import times
from onoff.types import Floats

SHOWN = 3  # hidden requests
STEPS = 40  # of the chart over time
NONE = "none"
Rows = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class View:
    """Beliefs before a query, at it, and after everything since: one row each. `bits` is how far the last has moved."""

    rows: Rows
    bits: float


@dataclass(frozen=True)
class Hidden:
    """What is believed about one hidden request. `choices` are what it may have been, and `wanted` what it was.

    Of a request made ON that is the source. Of one made OFF it is which sensitive source was asked for, or none.
    """

    step: int
    private: bool
    source: int
    choices: tuple[str, ...]
    wanted: int
    ours: View
    naive: View


@dataclass(frozen=True)
class Sensitive:
    """Whether the request of each step was sensitive: the belief before it, and after everything since."""

    steps: tuple[int, ...]
    read: tuple[bool, ...]
    ours: Rows
    naive: Rows


@dataclass(frozen=True)
class Watched:
    """All that is shown; `sensitive` is None if no source is sensitive.

    `some` are three beliefs that a sensitive source was read so far: that of a server that saw nothing, of one that saw
    our client, and of one that saw the naive client.
    """

    steps: int
    hidden: tuple[Hidden, ...]
    sensitive: Sensitive | None
    some: tuple[float, float, float]


Starts = tuple[Floats, Floats]  # what is believed about the first request: for ours, and for the naive client


class Watcher:
    """A server that knows the chain, every law and every ON/OFF status, and forgets nothing.

    `record` is the client's record of laws, for the stream of this name.
    """

    def __init__(self, chain: Chain, sensitive: tuple[int, ...], record: Path, stream: str) -> None:
        self._chain, self._sensitive, self._record, self._stream = chain, sensitive, record, stream
        self._laws: dict[int, Law] = {}
        self._read = 0  # bytes of the record
        self._naive_law = naive_law(chain.n, sensitive)
        self._lock = threading.Lock()
        self.start: Starts = (chain.stationary(), chain.stationary())

    def starts_after(self, start: Starts) -> None:
        """Begin with what a stream before has told."""
        self.start = start

    def following(self, made: Sequence[Made]) -> Starts:
        """What is believed about the request after these steps."""
        ours, naive = self._attacked(made)
        return times(ours.at[-1], self._chain.P), times(naive.at[-1], self._chain.P)

    def watch(self, made: Sequence[Made]) -> Watched:
        """What is believed after these steps, the first of which are those of the last call."""
        ours, naive = self._attacked(made)
        hidden = [t for t, step in enumerate(made) if step.private or step.wanted in self._sensitive]
        sensitive = None
        if self._sensitive:
            since = max(0, len(made) - STEPS)
            closed = list(self._sensitive)
            pairs = [
                tuple(tuple(rows[since:, closed].sum(axis=1).tolist()) for rows in (beliefs.before, beliefs.after))
                for beliefs in (ours, naive)
            ]
            read = tuple(step.wanted in self._sensitive for step in made[since:])
            sensitive = Sensitive(tuple(step.step for step in made[since:]), read, *pairs)
        return Watched(
            len(made),
            tuple(self._hidden(made[t], t, ours, naive) for t in reversed(hidden[-SHOWN:])),
            sensitive,
            (float(ours.some_prior[-1]), float(ours.some_at[-1]), float(naive.some_at[-1])),
        )

    def _hidden(self, step: Made, t: int, ours: Beliefs, naive: Beliefs) -> Hidden:
        names = self._chain.names
        choices, wanted = names, step.wanted
        if not step.private:
            choices, wanted = (*(names[s] for s in self._sensitive), NONE), self._sensitive.index(step.wanted)
        return Hidden(step.step, step.private, step.wanted, choices, wanted, _view(ours, t), _view(naive, t))

    def _attacked(self, made: Sequence[Made]) -> tuple[Beliefs, Beliefs]:
        """The beliefs about our client and about the naive one. Raises `PlanError` if a law is missing."""
        with self._lock:
            self._learn()
            laws = dict(self._laws)
        chain, sensitive, n = self._chain, self._sensitive, self._chain.n
        seen = [Seen(step.private, step.saw, None if step.private else laws.get(step.step)) for step in made]
        ours = attack(chain, sensitive, seen, self.start[0])
        if ours.silent:
            raise PlanError(f"the law of step {ours.silent[0]} is not on record: there is no exact belief about it")
        openly = [
            Seen(step.private, step.naive(n, sensitive), None if step.private else self._naive_law) for step in made
        ]
        return ours, attack(chain, sensitive, openly, self.start[1])

    def _learn(self) -> None:
        """Read the laws that were recorded since the last look; a step may be recorded twice, and the last counts."""
        if not self._record.exists():
            return
        with self._record.open("rb") as file:
            file.seek(self._read)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._read += len(line)
                law = recorded(json.loads(line))
                if law.stream == self._stream:
                    self._laws[law.step] = law.law


def naive_law(n: int, sensitive: Sequence[int]) -> Law:
    """The law of a client that asks openly, and for everything if the request is sensitive."""
    others = [x for x in range(n) if x not in sensitive]
    sets = (*((x,) for x in others), tuple(range(n)))
    table = Table(np.array(others, dtype=np.intp), np.arange(len(others)), np.ones(len(others), dtype=np.int64))
    masses = (*[0] * len(others), 1)
    return Law(sets, masses, 1, 0.0, 1.0, {0: table}, (0,), (0,) * n, 0.0)


def _view(beliefs: Beliefs, t: int) -> View:
    before, at, after = (beliefs.hidden(rows, t) for rows in (beliefs.before, beliefs.at, beliefs.after))
    return View(tuple(tuple(row.tolist()) for row in (before, at, after)), divergence(after, before))
