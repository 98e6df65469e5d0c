"""Whether an attack on a transcript has succeeded: bits gained, guesses, and two tests with a stated false-alarm rate.

Let a stream be private up to the total variation d (the sum of the roundings of its plans), let V_t be the total
variation between the server's prior and posterior of the private request of step t, and V their mean.

Without the truth: the mean of V over logs is at most 2 d, so V > 2 d / r happens with probability at most r (Markov's
inequality). What floats add to V is bounded and allowed for.

With the truth x: the score is the sum of log2 posterior(x_t) / prior(x_t) over the private requests with
V_t > 2 d / r; the others are within rounding and count 0. If log and private requests are independent, requests of a
stranger, drawn from the chain, score just as well against the same log. So among k strangers' scores and the true one
every rank is equally likely, and p = (1 + number of strangers with at least this score) / (1 + k) is at most r with
probability at most r: exactly, for streams of any length. (To shuffle the log itself would not be exact: what is asked
while ON depends on how long it was OFF.)

Each test has half of the false-alarm rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onoff.audit.transcript.belief import Asked, Beliefs
from onoff.errors import OnoffError
from onoff.model.chain import Chain

STRANGERS = 999


@dataclass(frozen=True)
class Gain:
    """What the server gained on some requests: bits are KL(posterior || prior) of each request.

    With the truth: how often the likeliest source was the right one, before and after seeing the log, and the mean of
    log2 posterior / prior at the truth (bits that the server really gained, negative if it was misled).
    """

    requests: int
    mean_bits: float
    max_bits: float
    guessed_before: float | None = None
    guessed: float | None = None
    score: float | None = None


@dataclass(frozen=True)
class Verdict:
    """`variation` is the mean total variation between prior and posterior of the private requests.

    It may be `allowed` at most. `p_value` is that of the true requests among strangers'; None without the truth.
    Of the steps in the log `unattacked` ones have no known likelihood; `impossible` ones cannot come from their model.
    """

    private: Gain
    open: Gain
    variation: float
    allowed: float
    p_value: float | None
    false_alarms: float
    attacked: int
    unattacked: int
    impossible: tuple[int, ...]

    @property
    def succeeded(self) -> bool:
        """Whether the server knows more about private requests than it may. False alarms: at most `false_alarms`."""
        surprising = self.p_value is not None and self.p_value <= self.false_alarms / 2
        return self.variation > self.allowed or surprising

    @property
    def conclusive(self) -> bool:
        """Whether the allowance leaves room for a failure: no belief can change by more than 1."""
        return self.allowed < 1


def judge(
    chain: Chain,
    asked: Sequence[Asked],
    beliefs: Beliefs,
    truth: Sequence[int] | None = None,
    rounding: float = 0.0,
    false_alarms: float = 0.01,
    strangers: int = STRANGERS,
    rng: np.random.Generator | None = None,
) -> Verdict:
    """Judge the beliefs about a stream; `rounding` is the sum of what the plans state for its steps."""
    there = np.array([step.query is not None for step in asked])
    private = np.array([step.lag == 0 for step in asked]) & there
    known = None if truth is None else _checked(chain, beliefs, truth)
    variations = np.abs(beliefs.posterior - beliefs.prior).sum(axis=1) / 2
    # Every factor of M and N is off by less than (n + 4) 2^-53 of itself, and so are the sums of products of them.
    floats = 4 * len(asked) * (chain.n + 4) * 2.0**-53
    allowed = 2 * rounding / (false_alarms / 2) + floats
    informative = private & (variations > allowed)
    p_value = None
    if known is not None:
        rng = np.random.default_rng() if rng is None else rng
        p_value = _p_value(chain, beliefs, known, informative, strangers, rng)
    attacked = sum(step.query is not None and step.model is not None for step in asked)
    return Verdict(
        private=_gain(beliefs, private, known),
        open=_gain(beliefs, ~private & there, known),
        variation=float(variations[private].mean()) if private.any() else 0.0,
        allowed=allowed,
        p_value=p_value,
        false_alarms=false_alarms,
        attacked=attacked,
        unattacked=int(there.sum()) - attacked,
        impossible=beliefs.impossible,
    )


def _checked(chain: Chain, beliefs: Beliefs, truth: Sequence[int]) -> NDArray[np.intp]:
    if len(truth) != len(beliefs.prior):
        raise OnoffError(f"the truth has {len(truth)} requests, the stream {len(beliefs.prior)}")
    known = np.array(truth, dtype=np.intp)
    impossible = np.flatnonzero(beliefs.prior[np.arange(len(known)), known] == 0)
    if len(impossible):
        t = int(impossible[0])
        raise OnoffError(f"the chain calls it impossible that {chain.names[known[t]]!r} was asked for at step {t}")
    return known


def _gain(beliefs: Beliefs, which: NDArray[np.bool_], truth: NDArray[np.intp] | None) -> Gain:
    prior, posterior = beliefs.prior[which], beliefs.posterior[which]
    if not len(prior):
        return Gain(0, 0.0, 0.0)
    ratio = np.divide(posterior, prior, out=np.ones_like(prior), where=posterior > 0)  # 0 log 0 = 0
    bits = np.maximum((posterior * np.log2(ratio)).sum(axis=1), 0.0)  # below 0 is rounding
    plain = len(prior), float(bits.mean()), float(bits.max())
    if truth is None:
        return Gain(*plain)
    at, x = np.arange(len(prior)), truth[which]
    with np.errstate(divide="ignore"):
        score = float(np.log2(posterior[at, x] / prior[at, x]).mean())
    before, after = (float((belief.argmax(axis=1) == x).mean()) for belief in (prior, posterior))
    return Gain(*plain, before, after, score)


def _p_value(
    chain: Chain,
    beliefs: Beliefs,
    truth: NDArray[np.intp],
    informative: NDArray[np.bool_],
    strangers: int,
    rng: np.random.Generator,
) -> float:
    """The rank of the true requests among those of strangers, by their scores against this log."""
    own, scores = 0.0, np.zeros(strangers)
    cumulated = np.cumsum(np.vstack([beliefs.prior[0], chain.P]), axis=1)
    cumulated /= cumulated[:, -1:]
    before = np.zeros(strangers, dtype=np.intp)  # the row of the first prior; source x has the row x + 1
    for t, wanted in enumerate(informative):
        x = (cumulated[before] <= rng.random(strangers)[:, None]).sum(axis=1)
        before = x + 1
        if wanted:
            with np.errstate(divide="ignore", invalid="ignore"):
                gains = np.log2(beliefs.posterior[t] / beliefs.prior[t])
            own += float(gains[truth[t]])
            scores += gains[x]
    return float((1 + (scores >= own).sum()) / (1 + strangers))
