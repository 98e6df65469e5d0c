"""The audit of a transcript: 10,000 queries of 17 sources, against a textbook forward-backward.

    .venv/bin/python benchmarks/bench_audit.py [--msnbc FILE] [--steps 10000]

`--msnbc` takes the MSNBC page-view sequences (UCI) as a zip or text file.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench_plan import msnbc
from common import dirichlet, peak_gigabytes, show, timed
from onoff import Chain, TablePlan, plan, report
from onoff.audit.belief import Asked, attack
from onoff.audit.models import Everything, Planned
from onoff.audit.setting import start_law
from onoff.audit.stream import audit_stream
from onoff.audit.transcripts import Line

SWITCHING = 0.12
LAGS = (1, 2, 3, 5, 8, 13, 21)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--msnbc", type=Path)
    parser.add_argument("--steps", type=int, default=10_000)
    options = parser.parse_args()
    chains = {"Dirichlet(1)": dirichlet(17, 1)}
    if options.msnbc:
        chains["MSNBC"] = msnbc(options.msnbc)
    streams = {name: (chain, *stream(chain, options.steps)) for name, chain in chains.items()}
    rows = [whole(name, *made) for name, made in streams.items()]
    for name, (chain, asked, _) in streams.items():  # after the others: peak memory only grows
        rows += against_the_textbook(name, chain, asked[: options.steps // 10])
    headings = ["chain", "what", "queries", "largest lag", "seconds", "peak GB so far", "to reach"]
    show("Attacking a transcript of 17 sources", headings, rows)


def whole(name: str, chain: Chain, asked: list[Asked], truth: list[int]) -> list[object]:
    """The audit as the command does it: every encoder, the attack, a naive client beside it, and the verdict."""
    lines = [Line(t, step.query or ()) for t, step in enumerate(asked)]
    audit, seconds = timed(lambda: audit_stream(chain, lines, asked, truth, bar=report.progress("attacking")))
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
