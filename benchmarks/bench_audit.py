"""The audit of a transcript: 10,000 queries of 17 sources, against a textbook forward-backward; and its power.

    .venv/bin/python benchmarks/bench_audit.py [--msnbc FILE] [--steps 10000] [--power | --full]

`--msnbc` takes the MSNBC page-view sequences (UCI) as a zip or text file. `--power` prints only how many logs with a
planted mistake are found, beside the learning gamblers alone, which were the whole test before mistakes had names;
`--full` does so with the numbers of logs that are in docs/explanation/audit-transcripts.md.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench_plan import msnbc
from common import dirichlet, peak_gigabytes, show, timed
from onoff import Chain, plan
from onoff.apps.progress import progress
from onoff.audit.models import Everything, Model, Planned
from onoff.audit.setting import start_law
from onoff.audit.transcript.attack import audit_stream
from onoff.audit.transcript.belief import Asked, attack
from onoff.audit.transcript.draws import FALSE_ALARM, draws
from onoff.audit.transcript.draws import _drawn as drawn_by
from onoff.audit.transcript.gambling import Drawn, gamblers
from onoff.audit.transcript.reading import Line, Step
from onoff.plans.table import TablePlan

SWITCHING = 0.12
LAGS = (1, 2, 3, 5, 8, 13, 21)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--msnbc", type=Path)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--power", action="store_true", help="only the table of power")
    parser.add_argument("--full", action="store_true", help="only the table of power, with all its logs")
    options = parser.parse_args()
    power(options.full)
    if options.power or options.full:
        return
    chains = {"Dirichlet(1)": dirichlet(17, 1)}
    if options.msnbc:
        chains["MSNBC"] = msnbc(options.msnbc)
    streams = {name: (chain, *stream(chain, options.steps)) for name, chain in chains.items()}
    rows = [whole(name, *made) for name, made in streams.items()]
    for name, (chain, asked, _) in streams.items():  # after the others: peak memory only grows
        rows += against_the_textbook(name, chain, asked[: options.steps // 10])
    headings = ["chain", "what", "queries", "largest lag", "seconds", "peak GB so far", "to reach"]
    show("Attacking a transcript of 17 sources", headings, rows)


Draw = Callable[[TablePlan, int, int, int, int], tuple[int, ...]]


def openly(rate: float) -> Draw:
    return lambda plan, x, last, k, lag: (x,) if random.random() < rate else plan.draw(x, last, k, lag)


def everything(rate: float) -> Draw:
    return lambda plan, x, last, k, lag: tuple(range(plan.n)) if random.random() < rate else plan.draw(x, last, k, lag)


def without_request(rate: float) -> Draw:
    """A set is drawn for a request of its own making until it has the true one."""

    def draw(plan: TablePlan, x: int, last: int, k: int, lag: int) -> tuple[int, ...]:
        if random.random() >= rate:
            return plan.draw(x, last, k, lag)
        law = {query: mass for query, mass in zip(plan.sets, plan.masses, strict=True) if x in query}
        [query] = random.choices(list(law), list(law.values()))
        return query

    return draw


def redrawn(rate: float) -> Draw:
    """A set of one source is drawn again, once."""

    def draw(plan: TablePlan, x: int, last: int, k: int, lag: int) -> tuple[int, ...]:
        query = plan.draw(x, last, k, lag)
        return plan.draw(x, last, k, lag) if len(query) == 1 and random.random() < rate else query

    return draw


def remembered(rate: float) -> Draw:
    """Draws are kept for their context and sent again."""
    kept: dict[object, tuple[int, ...]] = {}

    def draw(plan: TablePlan, x: int, last: int, k: int, lag: int) -> tuple[int, ...]:
        fresh = plan.draw(x, last, k, lag)
        return kept.setdefault((plan.name, x, last, k, lag), fresh) if random.random() < rate else fresh

    return draw


PLANTED: list[tuple[str, Callable[[float], Draw], float, tuple[tuple[int, int], ...]]] = [
    ("none", openly, 0.0, ((600, 60),)),
    ("asked openly", openly, 0.01, ((600, 12), (3000, 12), (10_000, 4))),
    ("asked openly", openly, 0.003, ((10_000, 2),)),
    ("full set instead", everything, 0.01, ((600, 12),)),
    ("drawn without the request", without_request, 0.1, ((600, 12), (3000, 4))),
    ("one source redrawn", redrawn, 1.0, ((600, 12), (3000, 4))),
    ("draw remembered", remembered, 0.1, ((600, 12), (3000, 4))),
]


def power(full: bool) -> None:
    """How many logs with a planted mistake are found: by all bets, and by those that learn."""
    chain = dirichlet(8, 1)
    plans = [made for made in (plan(chain, lag) for lag in (1, 2, 3, 5)) if isinstance(made, TablePlan)]
    models = {made.name: Planned(made) for made in plans}
    rows: list[list[object]] = []
    with progress("planting")(len(PLANTED)) as advance:
        for name, mistake, rate, sizes in PLANTED:
            for length, logs in sizes if full else ((600, 2),):
                random.seed(f"{name} {rate} {length}")
                found = learned = 0
                for seed in range(logs):
                    steps = journal(chain, plans, length, seed, mistake(rate))
                    found += draws(steps, models).rejected
                    learned += by_learning(steps, models)
                rows.append([name, f"{rate:g}", length, logs, f"{found} of {logs}", f"{learned} of {logs}"])
            advance()
    headings = ["mistake", "share of OFF steps", "steps", "logs", "found", "by learning alone"]
    show("Power of the test of draws, 8 sources, false alarms at most 1e-4", headings, rows)


def by_learning(steps: Sequence[Step], models: Mapping[str, Model]) -> bool:
    """The rival: gamblers that know no mistake by its name."""
    table, most = gamblers(), 0.0
    for drawn in drawn_by(steps, models, {}, random.randrange, None):
        if not isinstance(drawn, Drawn) or drawn.weights[drawn.index] == 0:
            return True
        for gambler in table:
            gambler.bet(drawn)
        most = max(most, np.logaddexp.reduce([gambler.log_capital for gambler in table]) - np.log(len(table)))
    return bool(most >= -np.log(FALSE_ALARM))


def journal(chain: Chain, plans: Sequence[TablePlan], steps: int, seed: int, draw: Draw) -> list[Step]:
    """The steps of a client that draws like this; every fourth one or so is ON."""
    rng = np.random.default_rng(seed)
    path = [int(x) for x in chain.simulate(steps + 1, rng)]
    private = rng.random(steps) < 0.25
    found, last, lag = [], path[0], 0
    for t in range(steps):
        on = bool(private[t]) or t == 0
        lag = 0 if on else lag + 1
        made = None if on else min((one for one in plans if one.lag <= lag), key=lambda one: one.cost)
        query = tuple(range(chain.n)) if made is None else draw(made, path[t], last, path[t + 1], lag)
        name = "everything" if made is None else made.name
        found.append(Step(t, on, on, lag, name, query, path[t], path[t + 1]))
        if on:
            last = path[t]
    return found


def whole(name: str, chain: Chain, asked: list[Asked], truth: list[int]) -> list[object]:
    """The audit as the command does it: every encoder, the attack, a naive client beside it, and the verdict."""
    lines = [Line(t, step.query or ()) for t, step in enumerate(asked)]
    audit, seconds = timed(lambda: audit_stream(chain, lines, asked, truth, bar=progress("attacking")))
    assert audit.clean
    deepest = max(step.lag for step in asked)
    return [name, "audit, naive beside it", len(asked), deepest, seconds, peak_gigabytes(), "60 s, under 1 GB"]


def against_the_textbook(name: str, chain: Chain, asked: list[Asked]) -> list[list[object]]:
    """The attack alone, with encoders at hand, and the same by the textbook."""
    deepest = max(step.lag for step in asked)
    ours, seconds = timed(lambda: attack(chain, asked).posterior)
    rows: list[list[object]] = [[name, "attack alone", len(asked), deepest, seconds, peak_gigabytes(), ""]]
    theirs, slow = timed(lambda: textbook(chain, asked))
    assert np.allclose(ours, theirs, rtol=1e-9, atol=1e-12)
    rows.append([name, "textbook, same encoders", len(asked), deepest, slow, peak_gigabytes(), "the same beliefs"])
    return rows


def stream(chain: Chain, steps: int) -> tuple[list[Asked], list[int]]:
    """What a client of ours sends, with its requests; privacy is switched at random."""
    plans = [made for made in (plan(chain, lag) for lag in LAGS) if isinstance(made, TablePlan)]
    rng = np.random.default_rng(1)
    path = [int(x) for x in chain.simulate(steps + 1, rng)]
    private = np.cumsum(rng.random(steps) < SWITCHING) % 2 == 0
    private[0] = True
    everything, models = Everything(chain.n), [Planned(made) for made in plans]
    asked, last, lag = [], path[0], 0
    for t in range(steps):
        lag = 0 if private[t] else lag + 1
        if lag == 0:
            last = path[t]
            asked.append(Asked(0, tuple(range(chain.n)), everything))
        else:
            model = min((m for m in models if m.plan.lag <= lag), key=lambda m: m.plan.cost)
            asked.append(Asked(lag, model.plan.draw(path[t], last, path[t + 1], lag), model))
    return asked, path[:steps]


def textbook(chain: Chain, asked: list[Asked]) -> NDArray[np.float64]:
    """Forward-backward over the n^2 states (last, current), with one n^2 x n^2 matrix for each step, all kept."""
    n = chain.n
    alphas, moves = [np.diag(start_law(chain)).reshape(-1)], []
    for step in asked:
        assert step.query is not None
        assert step.model is not None
        likelihood = np.broadcast_to(step.model.likelihood(step.query, step.lag), (n, n, n)) * chain.P
        move = np.zeros((n, n, n, n))  # from (last, current) to (last, next)
        for last in range(n):
            if step.lag == 0:
                move[:, last, last, :] = likelihood[0, last]
            else:
                move[last, :, last, :] = likelihood[last]
        moves.append(move.reshape(n * n, n * n))
        alpha = alphas[-1] @ moves[-1]
        alphas.append(alpha / alpha.sum())
    beta, posterior = np.ones(n * n), np.empty((len(asked), n))
    for t in range(len(asked) - 1, -1, -1):
        beta = moves[t] @ beta
        beta /= beta.max()
        joint = (alphas[t] * beta).reshape(n, n).sum(axis=0)
        posterior[t] = joint / joint.sum()
    return posterior


if __name__ == "__main__":
    main()
