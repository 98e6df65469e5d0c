"""What the server believes about hidden requests: of our client, and of a naive one that makes the same requests.

The reasoning is the audit's (`onoff.audit.bayes`). The queries are those in the server's own transcript, the rules of
our client are its plans (`BothObserver`) or the laws that it recorded (`PastObserver`). `Steps` reads each step of a
stream from the client's journal and from the transcript.
"""

from __future__ import annotations

import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from onoff.audit.attack import recorded_view
from onoff.audit.bayes import Beliefs, View, hidden_part, infer
from onoff.audit.clients import Announced, Naive
from onoff.audit.exhibits import law_line
from onoff.audit.law import LawLine
from onoff.client.journal import Journal
from onoff.errors import PlanError
from onoff.logs.follow import follows
from onoff.model.chain import Chain
from onoff.model.measures import divergence
from onoff.model.requests import request_law
from onoff.plans.plan import Plan
from onoff.types import Floats


@dataclass(frozen=True)
class PageStep:
    """One finished step: what was wanted, and what the server saw.

    `step` counts the steps of all streams of a tab. `law` is the digest of the law that the set was drawn from, if it
    was one, and `sensitive` are the sensitive sources of the stream.
    """

    step: int
    private: bool
    made_private: bool
    lag: int
    plan: str
    wanted: int
    saw: tuple[int, ...]
    bytes: int
    law: str | None = None
    sensitive: tuple[int, ...] = ()

    def naive(self, n: int) -> tuple[int, ...]:
        """Compute a naive client's set: all while ON and for sensitive sources, else the wanted one alone."""
        return tuple(range(n)) if self.private or self.wanted in self.sensitive else (self.wanted,)


class Steps:
    """Steps of a journal, of which the first has the number `first`.

    Each line of the transcript is read once, and no step is read again.
    """

    def __init__(
        self, journal: Journal, transcript: Path, chain: Chain, sensitive: tuple[int, ...] = (), first: int = 0
    ) -> None:
        self._journal, self._transcript, self._chain, self._offset = journal, transcript, chain, 0
        self._sensitive, self._first = sensitive, first
        self._order: list[int] = []  # of the server's sources, as indices of the chain
        self._seen: dict[int, tuple[int, ...]] = {}
        self._steps: list[PageStep] = []

    def read(self) -> list[PageStep]:
        """Read all steps that there are by now."""
        lines, self._offset = read_on(self._transcript, self._offset)
        for line in lines:
            if "catalogue" in line:
                self._order = [self._chain.index(name) for name in line["catalogue"]]
            elif line["stream"] == self._journal.stream:
                self._seen[line["step"]] = tuple(sorted(self._order[source] for source in line["sources"]))
        for row in self._journal.steps(since=len(self._steps)):
            assert row.request is not None, "the page erases nothing"
            assert row.bytes is not None, "nothing is pending between two requests"
            asked = row.private, row.made_private, row.lag, row.plan, row.request
            seen = self._seen[row.step], row.bytes, row.law
            self._steps.append(PageStep(self._first + row.step, *asked, *seen, self._sensitive))
        return list(self._steps)


def read_on(file: Path, offset: int) -> tuple[list[dict[str, Any]], int]:
    """Read the whole lines of JSON beyond this many bytes of a file; return them, and the new offset."""
    if not file.exists():
        return [], offset
    with file.open("rb") as stream:
        stream.seek(offset)
        text = stream.read()
    whole = text[: text.rfind(b"\n") + 1]
    return [json.loads(line) for line in whole.splitlines()], offset + len(whole)


SHOWN = 3  # hidden requests
STEPS = 40  # of the chart over time
NONE = "none"
Rows = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Moments:
    """Beliefs by habits alone, before a query, at it, and after everything since: one row each.

    `bits` is how far the last belief has moved from the one that the promise wants.
    """

    rows: Rows
    bits: float


@dataclass(frozen=True)
class Hidden:
    """Beliefs about one hidden request. `choices` are what it may have been, and `wanted` what it was.

    For a request made ON that is the source; for one made OFF, which sensitive source was asked for, or none.
    """

    step: int
    private: bool
    source: int
    choices: tuple[str, ...]
    wanted: int
    ours: Moments
    naive: Moments


@dataclass(frozen=True)
class Sensitive:
    """Beliefs that the request of each step was sensitive: before it, and after all since."""

    steps: tuple[int, ...]
    read: tuple[bool, ...]
    ours: Rows
    naive: Rows


@dataclass(frozen=True)
class Knowledge:
    """Beliefs of the server after so many `steps`; `sensitive` is None if no source is sensitive.

    `warning` says that requests do not follow the chain, if so: beliefs and promises rest on the chain.
    """

    steps: int
    hidden: tuple[Hidden, ...]
    sensitive: Sensitive | None
    warning: str


class Observer(ABC):
    """A server that knows the chain, the client's rules and every ON/OFF status, and forgets nothing."""

    base = 1  # the row of `Moments` at which the promise wants beliefs to stay

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self._habits = request_law(chain)

    @abstractmethod
    def views(self, steps: Sequence[PageStep]) -> list[View]:
        """Interpret each query. Raises `PlanError` if its law is unknown."""

    def observe(self, steps: Sequence[PageStep]) -> Knowledge:
        """Compute what is believed after these steps."""
        ours, naive = self._infer(steps, self.views(steps)), self._infer(steps, [*map(self._naive_view, steps)])
        hidden = [t for t, step in enumerate(steps) if step.private or step.wanted in step.sensitive]
        following = follows(self.chain, [step.wanted for step in steps])
        return Knowledge(
            len(steps),
            tuple(self._describe_request(steps[t], t, ours, naive) for t in reversed(hidden[-SHOWN:])),
            self._describe_reads(steps, ours, naive),
            following.words() if following.refuted else "",
        )

    def _infer(self, steps: Sequence[PageStep], views: Sequence[View]) -> Beliefs:
        return infer(self.chain, len(steps), views.__getitem__, start=self._habits)

    def _describe_request(self, step: PageStep, t: int, ours: Beliefs, naive: Beliefs) -> Hidden:
        names, wanted = self.chain.names, step.wanted
        choices = names
        if not step.private:
            choices, wanted = (*(names[s] for s in step.sensitive), NONE), step.sensitive.index(step.wanted)
        both = self._moments(step, t, ours), self._moments(step, t, naive)
        return Hidden(step.step, step.private, step.wanted, choices, wanted, *both)

    def _moments(self, step: PageStep, t: int, beliefs: Beliefs) -> Moments:
        laws = self._habits, beliefs.before[t], beliefs.at[t], beliefs.after[t]
        rows = [hidden_part(law, step.private, step.sensitive) for law in laws]
        return Moments(tuple(tuple(row.tolist()) for row in rows), divergence(rows[-1], rows[self.base]))

    def _describe_reads(self, steps: Sequence[PageStep], ours: Beliefs, naive: Beliefs) -> Sensitive | None:
        closed = list(steps[-1].sensitive)
        if not closed:
            return None
        shown = [t for t, step in enumerate(steps) if list(step.sensitive) == closed][-STEPS:]

        def total(rows: Floats) -> tuple[float, ...]:
            return tuple(rows[shown][:, closed].sum(axis=1).tolist())

        read = tuple(steps[t].wanted in closed for t in shown)
        pairs = [(total(beliefs.before), total(beliefs.after)) for beliefs in (ours, naive)]
        return Sensitive(tuple(steps[t].step for t in shown), read, *pairs)

    def _naive_view(self, step: PageStep) -> View:
        """Interpret a naive client's query for the same request."""
        client = Naive(self.chain.n, step.sensitive)
        on = client.on()
        return (on if step.private else client.off(on, ())).view(step.naive(self.chain.n))


class BothObserver(Observer):
    """Knows the plans of the promise `both`. No query may move beliefs away from what habits alone say."""

    base = 0

    def __init__(self, chain: Chain, plans: Sequence[Plan]) -> None:
        super().__init__(chain)
        self._clients = {plan.name: Announced(chain.n, [plan]) for plan in plans}
        self._view = cache(self._compute_view)  # slow at a lag that is new

    def views(self, steps: Sequence[PageStep]) -> list[View]:
        return [self._view(step) for step in steps]

    def _compute_view(self, step: PageStep) -> View:
        if step.private:
            return Naive(self.chain.n).on().view(step.saw)  # everybody asks for everything while ON
        client = self._clients.get(step.plan)
        if client is None:
            raise PlanError(f"step {step.step} was drawn by another plan: there is no exact belief about it")
        return client.step(step.lag, client.plans[0]).view(step.saw)


class PastObserver(Observer):
    """Reads the laws of the promise `past` from the client's records, one for each stream."""

    def __init__(self, chain: Chain) -> None:
        super().__init__(chain)
        self._laws: dict[str, LawLine] = {}
        self._lock = threading.Lock()

    def follow(self, record: Path) -> None:
        """Go on with the record of a new stream."""
        with self._lock:
            self._record, self._offset = record, 0

    def views(self, steps: Sequence[PageStep]) -> list[View]:
        self._read()
        return [self._view(step) for step in steps]

    def _view(self, step: PageStep) -> View:
        if step.private:
            return Naive(self.chain.n).on().view(step.saw)
        if step.law not in self._laws:
            raise PlanError(f"the law of step {step.step} is not on record: there is no exact belief about it")
        return recorded_view(self.chain, self._laws[step.law], step.saw, step.sensitive)

    def _read(self) -> None:
        """Read new laws."""
        with self._lock:
            lines, self._offset = read_on(self._record, self._offset)
            for line in lines:
                new = law_line(line["law"], self.chain.n)
                known = self._laws.get(new.digest, new)  # other states with like rows have the same law
                self._laws[new.digest] = replace(new, encoders={**known.encoders, **new.encoders})
