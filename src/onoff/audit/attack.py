"""The Bayesian server on one log: its beliefs about every request before, at and after its step, and their worth.

It knows the chain, the statuses, the queries and the rules of the client (plans, or laws of the promise `past`), and
no journal. The true requests, where they are known, give scores, and a naive client with them to compare.

A step hides its request if it was ON, else which sensitive source was asked for, or none. Let d be the sum of
the stated roundings of all steps: the joint law of all that is hidden and all queries is within d of an exactly private
one (total variation). Let V be the mean, over the hidden steps of the log, of the total variation between two beliefs.
Promise `both`: before any query and after all of them; over logs V has a mean of 2 d at most. Promise `past`: before
the step's own query and after all queries; 4 d at most, 2 d for each belief. There are two more means of 4 d at most:
U, over all steps, of the total variation between the belief about the request after its own query and after all; and,
with sensitive sources, W, over all steps, of how far the step's query moves the belief that a sensitive source was
asked for up to then. By Markov's inequality each exceeds its mean by a factor 3 / r with a probability of r / 3 at
most. The error of floats is bounded, and added.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from onoff.audit.bayes import NOTHING, Beliefs, View, hidden_part, infer
from onoff.audit.clients import ClientStep, Naive, law_step
from onoff.errors import OnoffError
from onoff.model.measures import accuracy, divergence
from onoff.types import Bar, Floats, Mask, Query, quiet

if TYPE_CHECKING:
    from onoff.audit.law import LawLine
    from onoff.model.chain import Chain

FALSE_ALARMS = 0.01  # how often the attack may call an honest log leaky


@dataclass(frozen=True, eq=False)
class SeenStep:
    """A step as the server knows it: if it was ON, its set (None if the log lacks it) and the client's rule there.

    The rule is a step of the client, or what its set says by a recorded law (`recorded_view`). A step without a rule
    says nothing, nor do those after it that rest on it (`_usable_rules`).
    """

    private: bool
    query: Query | None
    rule: ClientStep | View | None


@dataclass(frozen=True)
class Gain:
    """The server's knowledge of some requests, in bits per request.

    `bits` is the mean divergence of the belief after all queries from the one that the promise compares it with, and
    `most` the largest. With the truth: how often the likeliest source is right under either belief.
    """

    requests: int
    bits: float = 0.0
    most: float = 0.0
    guessed_before: float | None = None
    guessed: float | None = None


@dataclass(frozen=True)
class Attack:
    """A server's beliefs about one log, and the signs of a leak.

    `private` is about requests made ON, `sensitive` about which sensitive source was asked for at the others (None if
    there is none), `open` about all of the others' requests, which their own queries may tell. `moved` is the largest
    of V, U and W of the module, and `allowed` the most that it may be. Of the OFF steps in the log `missed` ones have
    no known rule.
    """

    promise: str
    beliefs: Beliefs
    private: Gain
    sensitive: Gain | None
    open: Gain
    moved: float
    allowed: float
    off: int
    missed: int

    @property
    def succeeded(self) -> bool:
        """True if the server knows more than it may. Of honest logs at most `FALSE_ALARMS` succeed."""
        return self.moved > self.allowed

    @property
    def conclusive(self) -> bool:
        """True if the allowance leaves room for a failure: no belief can change by more than 1."""
        return self.allowed < 1


def attack(
    chain: Chain,
    promise: str,
    seen: Sequence[SeenStep],
    sensitive: Sequence[int] = (),
    rounding: float = 0.0,
    truth: Sequence[int] | None = None,
    *,
    bar: Bar = quiet,
) -> Attack:
    """Attack a log and judge the result; `rounding` is the sum of the stated roundings of its steps.

    `truth` has the requests of all steps, if known.
    """
    rules, private = _usable_rules(promise, seen, chain.depth), np.array([step.private for step in seen])
    with bar(2 * len(seen)) as advance:
        beliefs = infer(chain, len(seen), lambda t: _view(seen[t], rules[t]), sensitive, advance)
    known = None if truth is None else np.array(truth, dtype=np.intp)
    if known is not None and len(known) != len(seen):
        raise OnoffError(f"the truth has {len(known)} requests, the stream {len(seen)}")
    there = np.array([step.query is not None for step in seen])
    off, closed = there & ~private, beliefs.sensitive
    unknown = [rule is None or (isinstance(rule, ClientStep) and rule.silent) for rule in rules]
    reference = beliefs.prior if promise == "both" else beliefs.before
    hidden = np.flatnonzero(there & (private | bool(closed)))
    change = reference - beliefs.after
    moves = [np.abs(hidden_part(change[t], private[t], closed)).sum() / 2 for t in hidden.tolist()]
    means = [np.mean(moves) if moves else 0.0]
    if promise == "past":
        means.append(np.abs(beliefs.at - beliefs.after).sum(axis=1).mean() / 2)
        means.append(np.abs(beliefs.some_at - beliefs.some_before).mean())  # 0 if there are no sensitive sources
    # Every factor of M and N is off by less than (|Z| + 8) 2^-53 of itself, and so are the sums of products of them.
    floats = 8 * len(seen) * (len(chain.states) + 8) * 2.0**-53
    return Attack(
        promise=promise,
        beliefs=beliefs,
        private=_gain(beliefs, reference, there & private, known),
        sensitive=_gain(beliefs, reference, off, known, closed) if closed else None,
        open=_gain(beliefs, reference, off, known),
        moved=float(max(means)),
        allowed=(2 if promise == "both" else 4) * rounding / (FALSE_ALARMS / 3) + floats,
        off=int(off.sum()),
        missed=int((off & unknown).sum()),
    )


def recorded_view(chain: Chain, line: LawLine, query: Query, sensitive: Sequence[int]) -> View:
    """The view of a query by a recorded law of the promise `past`."""
    return law_step(chain, line, sensitive).view(query)


def naive_steps(n: int, private: Sequence[bool], truth: Sequence[int]) -> list[SeenStep]:
    """The steps of a naive client, which asks openly for the same requests whenever OFF."""
    client, full = Naive(n), tuple(range(n))
    on, off = client.on(), client.off(client.on(), full)
    steps = zip(private, truth, strict=True)
    return [SeenStep(True, full, on) if asked else SeenStep(False, (int(x),), off) for asked, x in steps]


def _usable_rules(promise: str, seen: Sequence[SeenStep], depth: int) -> list[ClientStep | View | None]:
    """The rules that can be used, which are none after an OFF step without one until `depth` ON steps follow.

    Contexts of `both` are not known then. Laws of `past` tell the last queries: they would speak for one that is not in
    the log, or of which nobody knows what it says.
    """
    if not seen or not seen[0].private:
        raise OnoffError("a log is attacked from its first step on, which must be ON: give all its steps")
    rules, lost = [], 0
    for step in seen:
        unknown = step.rule is None or (promise == "past" and step.query is None)
        lost = max(0, lost - 1) if step.private else depth * (unknown or lost > 0)
        rules.append(None if lost else step.rule)
    return rules


def _view(step: SeenStep, rule: ClientStep | View | None) -> View:
    if rule is None:
        return NOTHING
    view = rule if isinstance(rule, View) else rule.view(step.query or ())
    return view if step.query is not None else replace(view, chances=NOTHING.chances)


def _gain(
    beliefs: Beliefs,
    reference: Floats,
    which: Mask,
    truth: NDArray[np.intp] | None,
    hidden: Sequence[int] | None = None,
) -> Gain:
    """What was learned of the requests of these steps, or of which `hidden` source they were, beyond `reference`."""

    def of(rows: Floats) -> Floats:
        return rows if hidden is None else np.array([hidden_part(row, False, hidden) for row in rows])

    if not which.any():
        return Gain(0)
    earlier, after = of(reference[which]), of(beliefs.after[which])
    bits = [divergence(*pair) for pair in zip(after, earlier, strict=True)]
    if truth is None:
        return Gain(len(bits), float(np.mean(bits)), max(bits))
    values = of(np.eye(reference.shape[1])[truth[which]]).argmax(axis=1)
    guessed = (accuracy(rows, values) for rows in (earlier, after))
    return Gain(len(bits), float(np.mean(bits)), max(bits), *guessed)
