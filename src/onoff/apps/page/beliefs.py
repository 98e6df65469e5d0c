"""The server's view of the announced mode: what all queries so far say about the last private requests.

For us, and for a naive client that makes the same requests. The reasoning is the audit's
(`onoff.audit.transcript.belief`), and the queries are those in the server's own transcript.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onoff.apps.page.steps import Made
from onoff.audit.models import Encoder, Model, Naive, Planned
from onoff.audit.transcript.belief import Asked, attack
from onoff.errors import PlanError
from onoff.model.chain import Chain
from onoff.plans.plan import Plan
from onoff.plans.table import TablePlan
from onoff.types import PlanName, Query

SHOWN = 3  # private requests
WINDOW = 100  # steps after which a stream is summed up


@dataclass(frozen=True)
class Belief:
    """A belief over the sources about one private request.

    `bits` is how far it has moved from the prior (KL divergence).
    """

    step: int
    wanted: int
    prior: tuple[float, ...]
    ours: tuple[float, ...]
    naive: tuple[float, ...]
    ours_bits: float
    naive_bits: float


@dataclass(frozen=True)
class Seen:
    """The model of one step with its likelihood, kept because `Planned` keeps the whole tables of a few lags only."""

    model: Model
    known: NDArray[np.float64]

    @property
    def name(self) -> str:
        return self.model.name

    def encoder(self, last: int, next: int, lag: int) -> Encoder:
        return self.model.encoder(last, next, lag)

    def likelihood(self, query: Query, lag: int) -> NDArray[np.float64]:  # noqa: ARG002
        return self.known


class Onlooker:
    """A server that knows the chain, the plans and every ON/OFF status, and forgets nothing.

    `load` gives the plan of a lag. What was seen before an ON step matters only through the belief about that step. So
    a long stream is summed up there now and then, which is exact and keeps every step equally fast.
    """

    def __init__(self, chain: Chain, load: Callable[[int], Plan], window: int = WINDOW) -> None:
        self._chain, self._load, self._window = chain, load, window
        self._models: dict[str, Model] = {}
        self._asked: dict[int, Asked] = {}  # what is known of a step
        self._prior = chain.stationary()  # of every step; a first request that it calls impossible is refused
        self._start, self._ours, self._naive = 0, self._prior, self._prior  # where it is summed up, and how

    def unknown(self, made: Sequence[Made]) -> list[Made]:
        """The steps that are to be learned before there are beliefs."""
        return [step for step in made[self._start :] if step.step not in self._asked]

    def learn(self, step: Made) -> None:
        """Work out how likely each request makes what was seen: slow at a lag that is new."""
        model = self._model(step)
        self._asked[step.step] = Asked(step.lag, step.saw or None, Seen(model, model.likelihood(step.saw, step.lag)))

    def beliefs(self, made: Sequence[Made]) -> tuple[Belief, ...]:
        """About the last private requests, the latest first, after these steps (those of the last call, and more)."""
        for step in self.unknown(made):
            self.learn(step)
        n, rest = self._chain.n, made[self._start :]
        ours = attack(self._chain, [self._asked[step.step] for step in rest], self._ours)
        naive = attack(self._chain, [Asked(step.lag, step.naive(n), Naive(n)) for step in rest], self._naive)
        shown = [t for t, step in enumerate(rest) if step.private][-SHOWN:]
        result = tuple(
            Belief(
                step=rest[t].step,
                wanted=rest[t].wanted,
                prior=tuple(self._prior.tolist()),
                ours=tuple(ours.posterior[t].tolist()),
                naive=tuple(naive.posterior[t].tolist()),
                ours_bits=_bits(ours.posterior[t], self._prior),
                naive_bits=_bits(naive.posterior[t], self._prior),
            )
            for t in reversed(shown)
        )
        if len(rest) > self._window and shown:
            self._start += shown[0]
            self._ours, self._naive = ours.predicted[shown[0]], naive.predicted[shown[0]]
            self._asked = {step.step: self._asked[step.step] for step in rest[shown[0] :]}
        return result

    def _model(self, step: Made) -> Model:
        if step.private:
            return Naive(self._chain.n)  # everybody asks for everything while ON
        if step.plan not in self._models:
            name = PlanName.parse(step.plan)
            plan = self._load(step.lag if name is None else name.lag)
            if not isinstance(plan, TablePlan):
                raise PlanError(f"step {step.step} was drawn without a table: there is no exact belief about it")
            if plan.name != step.plan:
                raise PlanError(f"the plan of step {step.step} has been replaced: there is no exact belief about it")
            self._models[step.plan] = Planned(plan)
        return self._models[step.plan]


def _bits(posterior: NDArray[np.float64], prior: NDArray[np.float64]) -> float:
    known, floor = posterior > 0, np.nextafter(0, 1)  # a prior that is too small for a float is not 0
    moved = np.log2(posterior[known]) - np.log2(np.maximum(prior[known], floor))
    return max(0.0, float((posterior[known] * moved).sum()))
