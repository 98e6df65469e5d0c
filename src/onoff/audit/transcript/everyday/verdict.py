"""What a log of the everyday mode tells about private requests: before them, at them and after them.

Hidden of a step is its request if it was ON; else, with sensitive sources, which of them was asked for, or none. Let
V_t be the total variation between what the server believes of it before the query of step t and after all queries, and
V the mean. Let W be the mean over steps of how far the query of a step moves the belief that a sensitive source was
asked for up to then. If the joint law of all that is hidden and all queries is within d, the sum of the stated
roundings, of an exactly private one, then the means of V and of W over logs are at most 4 d: 2 d each for what is
believed before and after. So V or W above 4 d / (r / 2) happens with probability at most r (Markov's inequality,
twice). What floats add is bounded and allowed for.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

import numpy as np

from onoff.audit.everyday.beliefs import Beliefs
from onoff.types import Floats


@dataclass(frozen=True)
class Told:
    """Bits about what is hidden of some steps: by the queries before each (`before`), and from it on (`after`).

    Each is the divergence of a belief from the one before it, and `own` is what the step's own query adds. `score` is
    the mean of log2 after / before at the truth. Nobody promises that `before` is 0; of the others that is the promise.
    """

    steps: int
    before: float
    own: float
    after: float
    most_after: float
    score: float | None = None


@dataclass(frozen=True)
class Happened:
    """The belief that a sensitive source was asked for at all: by habits alone, and at the end of the log.

    Open requests may move it. `moved` is how far the query of a step did so for the steps up to that one, at most,
    which is promised to be 0.
    """

    prior: float
    believed: float
    moved: float


@dataclass(frozen=True)
class Verdict:
    """`private` is about steps made ON, `open` about sensitive requests at the others; None where nothing is hidden.

    `variation` is V and `happening` W, of which `allowed` is the most.
    """

    private: Told
    open: Told | None
    happened: Happened | None
    variation: float
    happening: float
    allowed: float
    false_alarms: float
    silent: tuple[int, ...]

    @property
    def succeeded(self) -> bool:
        """Whether the server learned more than it may. False alarms: at most `false_alarms`."""
        return max(self.variation, self.happening) > self.allowed

    @property
    def conclusive(self) -> bool:
        """Whether the allowance leaves room for a failure: no belief can change by more than 1."""
        return self.allowed < 1


def judge(
    beliefs: Beliefs,
    rounding: float,
    truth: Sequence[int] | None = None,
    false_alarms: float = 0.01,
    there: Container[int] | None = None,
) -> Verdict:
    """Judge the beliefs of a server about a stream; `rounding` is the sum of what was stated for its steps.

    Only steps that are `there` count, those of the log; all of them if it is None.
    """
    seen = np.array([there is None or t in there for t in range(len(beliefs.private))])
    private = np.flatnonzero(beliefs.private & seen)
    others = np.flatnonzero(~np.array(beliefs.private) & seen) if beliefs.sensitive else np.zeros(0, dtype=np.intp)
    hidden = [*private.tolist(), *others.tolist()]
    variations = [_variation(beliefs.hidden(beliefs.before, t), beliefs.hidden(beliefs.after, t)) for t in hidden]
    moves = np.abs(beliefs.some_at - beliefs.some_before) if beliefs.sensitive else np.zeros(1)
    steps, n = beliefs.prior.shape
    floats = 8 * steps * (n + 8) * 2.0**-53
    happened = None
    if beliefs.sensitive:
        happened = Happened(float(beliefs.some_prior[-1]), float(beliefs.some_at[-1]), float(moves.max()))
    return Verdict(
        private=_told(beliefs, private.tolist(), truth),
        open=_told(beliefs, others.tolist(), truth) if len(others) else None,
        happened=happened,
        variation=float(np.mean(variations)) if variations else 0.0,
        happening=float(moves.mean()),
        allowed=4 * rounding / (false_alarms / 2) + floats,
        false_alarms=false_alarms,
        silent=beliefs.silent,
    )


def _told(beliefs: Beliefs, steps: Sequence[int], truth: Sequence[int] | None) -> Told:
    if not steps:
        return Told(0, 0.0, 0.0, 0.0, 0.0)
    table = np.array([beliefs.told(t) for t in steps])
    before, own, after = (float(column.mean()) for column in table.T)
    score = None if truth is None else float(np.mean([_score(beliefs, t, truth[t]) for t in steps]))
    return Told(len(steps), before, own, after, float(table[:, 2].max()), score)


def _score(beliefs: Beliefs, t: int, request: int) -> float:
    """Bits of truth that the queries of step t and after it told about what is hidden of it."""
    place = request
    if not beliefs.private[t]:
        place = beliefs.sensitive.index(request) if request in beliefs.sensitive else len(beliefs.sensitive)
    before, after = (float(beliefs.hidden(rows, t)[place]) for rows in (beliefs.before, beliefs.after))
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.log2(np.float64(after) / before))


def _variation(one: Floats, other: Floats) -> float:
    return float(np.abs(one - other).sum() / 2)
