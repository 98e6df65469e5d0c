"""What the server believes about the requests of a stream: of our client, and of a naive one that makes the same.

The reasoning is the audit's (`onoff.audit.bayes`). The queries are those in the server's own transcript, the rules of
our client are its plans (`BothObserver`) or the laws that it recorded (`PastObserver`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from onoff.apps.page.steps import Made, read_on
from onoff.audit.attack import recorded_view
from onoff.audit.bayes import Beliefs, Requests, View, divergence, infer
from onoff.audit.clients import Announced, Naive
from onoff.audit.files import LawLine, law_line
from onoff.errors import PlanError
from onoff.model.chain import Chain
from onoff.model.powers import times
from onoff.plans.plan import Plan
from onoff.types import Floats, PlanName

SHOWN = 3  # hidden requests
WINDOW = 100  # steps after which a stream of the promise `both` is summed up
STEPS = 40  # of the chart over time
NONE = "none"
Rows = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Belief:
    """A belief over the sources about one private request; `bits` is how far it has moved from the prior."""

    step: int
    wanted: int
    prior: tuple[float, ...]
    ours: tuple[float, ...]
    naive: tuple[float, ...]
    ours_bits: float
    naive_bits: float


@dataclass(frozen=True)
class Moments:
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
    ours: Moments
    naive: Moments


@dataclass(frozen=True)
class Sensitive:
    """Whether the request of each step was sensitive: the belief before it, and after everything since."""

    steps: tuple[int, ...]
    read: tuple[bool, ...]
    ours: Rows
    naive: Rows


@dataclass(frozen=True)
class Watched:
    """All that is shown of the promise `past`; `sensitive` is None if no source is sensitive.

    `some` are three beliefs that a sensitive source was read so far: that of a server that saw nothing, of one that saw
    our client, and of one that saw the naive client.
    """

    steps: int
    hidden: tuple[Hidden, ...]
    sensitive: Sensitive | None
    some: tuple[float, float, float]


def _infer(chain: Chain, start: Floats, made: Sequence[Made], views: Sequence[View], sensitive: Any = ()) -> Beliefs:
    private = [step.private for step in made]
    return infer(Requests(start / start.sum(), chain.P), private, views.__getitem__, sensitive)


def _naive_views(chain: Chain, made: Sequence[Made], sensitive: Sequence[int] = ()) -> list[View]:
    client = Naive(chain.n, sensitive)
    on = client.on()
    off = client.off(on, ())
    return [(on if step.private else off).view(step.naive(chain.n, sensitive)) for step in made]


class BothObserver:
    """A server that knows the chain, the plans and every ON/OFF status, and forgets nothing.

    `load` gives the plan of a lag. What was seen before an ON step matters only through the belief about that step. So
    a long stream is summed up there now and then, which is exact and keeps every step equally fast.
    """

    def __init__(self, chain: Chain, load: Callable[[int], Plan], window: int = WINDOW) -> None:
        self._chain, self._load, self._window = chain, load, window
        self._clients: dict[str, Announced] = {}
        self._views: dict[int, View] = {}  # of a step
        self._prior = chain.stationary()  # of every step; a first request that it calls impossible is refused
        self._start, self._ours, self._naive = 0, self._prior, self._prior  # where it is summed up, and how

    def unknown(self, made: Sequence[Made]) -> list[Made]:
        """The steps that are to be learned before there are beliefs."""
        return [step for step in made[self._start :] if step.step not in self._views]

    def learn(self, step: Made) -> None:
        """Work out how likely each request makes what was seen: slow at a lag that is new."""
        self._views[step.step] = self._view(step)

    def beliefs(self, made: Sequence[Made]) -> tuple[Belief, ...]:
        """About the last private requests, the latest first, after these steps (those of the last call, and more)."""
        for step in self.unknown(made):
            self.learn(step)
        rest = made[self._start :]
        ours = _infer(self._chain, self._ours, rest, [self._views[step.step] for step in rest])
        naive = _infer(self._chain, self._naive, rest, _naive_views(self._chain, rest))
        shown = [t for t, step in enumerate(rest) if step.private][-SHOWN:]
        result = tuple(
            Belief(
                step=rest[t].step,
                wanted=rest[t].wanted,
                prior=tuple(self._prior.tolist()),
                ours=tuple(ours.after[t].tolist()),
                naive=tuple(naive.after[t].tolist()),
                ours_bits=_bits(ours.after[t], self._prior),
                naive_bits=_bits(naive.after[t], self._prior),
            )
            for t in reversed(shown)
        )
        if len(rest) > self._window and shown:
            self._start += shown[0]
            self._ours, self._naive = ours.before[shown[0]], naive.before[shown[0]]
            self._views = {step.step: self._views[step.step] for step in rest[shown[0] :]}
        return result

    def _view(self, step: Made) -> View:
        if step.private:
            return Naive(self._chain.n).on().view(step.saw)  # everybody asks for everything while ON
        if step.plan not in self._clients:
            name = PlanName.parse(step.plan)
            plan = self._load(step.lag if name is None else name.lag)
            if plan.kind != "table":
                raise PlanError(f"step {step.step} was drawn without a table: there is no exact belief about it")
            if plan.name != step.plan:
                raise PlanError(f"the plan of step {step.step} has been replaced: there is no exact belief about it")
            self._clients[step.plan] = Announced(self._chain.n, [plan])
        client = self._clients[step.plan]
        return client.step(step.lag, client.plans[0]).view(step.saw)


def _bits(belief: Floats, prior: Floats) -> float:
    known, floor = belief > 0, np.nextafter(0, 1)  # a prior that is too small for a float is not 0
    moved = np.log2(belief[known]) - np.log2(np.maximum(prior[known], floor))
    return max(0.0, float((belief[known] * moved).sum()))


Starts = tuple[Floats, Floats]  # what is believed about the first request: for ours, and for the naive client


class PastObserver:
    """A server that knows the chain, every law and every ON/OFF status, and forgets nothing.

    `record` is the client's record of laws, for the stream of this name.
    """

    def __init__(self, chain: Chain, sensitive: tuple[int, ...], record: Path, stream: str) -> None:
        self._chain, self._sensitive, self._record, self._stream = chain, sensitive, record, stream
        self._laws: dict[int, LawLine] = {}
        self._read = 0  # bytes of the record
        self._lock = threading.Lock()
        self.start: Starts = (chain.stationary(), chain.stationary())

    def starts_after(self, start: Starts) -> None:
        """Begin with what a stream before has told."""
        self.start = start

    def following(self, made: Sequence[Made]) -> Starts:
        """What is believed about the request after these steps."""
        ours, naive = self._attack(made)
        return times(ours.at[-1], self._chain.P), times(naive.at[-1], self._chain.P)

    def watch(self, made: Sequence[Made]) -> Watched:
        """What is believed after these steps, the first of which are those of the last call."""
        ours, naive = self._attack(made)
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
        return Hidden(step.step, step.private, step.wanted, choices, wanted, _moments(ours, t), _moments(naive, t))

    def _attack(self, made: Sequence[Made]) -> tuple[Beliefs, Beliefs]:
        """The beliefs about our client and about the naive one. Raises `PlanError` if a law is missing."""
        chain, sensitive = self._chain, self._sensitive
        views: list[View] = []
        view: View | None = None
        for step, line in zip(made, self._lines(made), strict=True):
            view = None if line is None else recorded_view(line, step.saw, view, sensitive)
            views.append(Naive(chain.n).on().view(step.saw) if view is None else view)
        ours = _infer(chain, self.start[0], made, views, sensitive)
        return ours, _infer(chain, self.start[1], made, _naive_views(chain, made, sensitive), sensitive)

    def _lines(self, made: Sequence[Made]) -> list[LawLine | None]:
        """The law of every OFF step; a step may be recorded twice, and the last counts."""
        with self._lock:
            lines, self._read = read_on(self._record, self._read)
            for data in lines:
                if data["stream"] == self._stream:
                    line = law_line(data["step"], data["law"], data["place"], data["joined"], self._chain.n)
                    self._laws[line.step] = line
            missing = [step.step for step in made if not step.private and step.step not in self._laws]
            if missing:
                raise PlanError(f"the law of step {missing[0]} is not on record: there is no exact belief about it")
            return [None if step.private else self._laws[step.step] for step in made]


def _moments(beliefs: Beliefs, t: int) -> Moments:
    before, at, after = (beliefs.hidden(rows, t) for rows in (beliefs.before, beliefs.at, beliefs.after))
    return Moments(tuple(tuple(row.tolist()) for row in (before, at, after)), divergence(after, before))
