"""Named mistakes of a client, and the bet on each: the most powerful one against just that mistake.

A client that makes the mistake in a share e of its steps draws from (1 - e) p + e a. Here p are the chances by the plan
and a those of the mistake, both known before the set is looked at. The capital is multiplied by 1 - e + e a(q) / p(q).
By the plan its expectation stays 1, or falls if a gives chances to sets that cannot come. The rate e is not known, so
the capital is spread evenly over `RATES`. No other bet grows faster against a client with that rate.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from onoff.audit.transcript.gambling import Drawn
from onoff.types import Floats, Mask, Query

RATES = (0.003, 0.01, 0.03, 0.1, 0.3, 0.95)
UNLIKELY = 0.1  # times 1/n: a request below this is unlikely in its context
REPLAYED = 200  # steps in which known generators are tried
Chances = Callable[[Drawn], Floats | None]


@dataclass
class Suspicion:
    """The bet on one mistake. `chances` gives a, or None where the mistake changes nothing."""

    hint: str
    chances: Chances
    learn: Callable[[Drawn], None] = lambda drawn: None
    _logs: Floats = field(default_factory=lambda: np.zeros(len(RATES)))

    def bet(self, drawn: Drawn) -> None:
        """Bet on the draw, then look at it."""
        a = self.chances(drawn)
        if a is not None:
            ratio = a[drawn.index] / drawn.p[drawn.index]
            self._logs += np.log1p(np.array(RATES) * (ratio - 1))
        self.learn(drawn)

    @property
    def log_capital(self) -> float:
        top = float(self._logs.max())
        return top + float(np.log(np.exp(self._logs - top).mean()))


def mistakes(journals: Sequence[Mapping[int, Drawn]] = ()) -> list[Suspicion]:
    """All that have a name. `journals` are the draws of other journals, by their steps."""
    found = [
        Suspicion("steps asked openly", lambda drawn: drawn.surely((drawn.step.request,))),
        Suspicion("full sets in place of drawn ones", full),
        Suspicion("full sets for unlikely requests", lambda drawn: full(drawn) if unlikely(drawn) else None),
        Suspicion("sets drawn without the request", without_request),
        Suspicion("sets drawn for the likeliest next request", _without_next),
        Suspicion("sets drawn for a last request that was made OFF", lambda d: _elsewhere(d, d.previous, d.step.next)),
        Suspicion("sets drawn for one lag more", lambda d: _elsewhere(d, d.last, d.step.next, d.lag + 1)),
        Suspicion("the smaller of two draws", smaller_of_two),
        Suspicion("sets of one source drawn again", lambda drawn: drawn_again(drawn, drawn.sizes == 1)),
        Suspicion("sets with the request before drawn again", without_previous),
        Shunned("sets that came the step before drawn again"),
        Memory(
            "a draw remembered for its context", lambda d: (d.step.plan, d.step.request, d.last, d.step.next, d.lag)
        ),
        Memory("a draw remembered for its request", lambda d: d.step.request),
        Number("the random number of the request's last draw", lambda d: d.step.request),
        Number("the random number of the draw before", lambda d: None),
    ]
    return found + repeated(journals)


def repeated(journals: Sequence[Mapping[int, Drawn]]) -> list[Suspicion]:
    """The random numbers of other journals, drawn again."""
    found = []
    for other in journals:
        found += [
            Suspicion("the random numbers of the other journal", partial(_as_in, other)),
            Suspicion("the random numbers of the other journal by request", partial(_as_in, other, same=True)),
            Suspicion("the random bits of the other journal", partial(_as_in, other, bits=True)),
            Suspicion("the random bits of the other journal by request", partial(_as_in, other, bits=True, same=True)),
        ]
    return found


def generators() -> list[Suspicion]:
    """Generators that a client might seed with what it asks for, each with its seed."""
    found: list[Suspicion] = [_Replay(f"random.Random({name})", partial(_seeded, seed)) for name, seed in SEEDS.items()]
    found.append(_Replay("numpy.random.default_rng([request, step])", _numpy))
    return found


def _seeded(seed: Callable[[Drawn], int | str], drawn: Drawn) -> Callable[[int], int]:
    return random.Random(seed(drawn)).randrange


SEEDS: dict[str, Callable[[Drawn], int | str]] = {
    "step": lambda d: d.step.step,
    "request": lambda d: d.step.request,
    "request + step": lambda d: d.step.request + d.step.step,
    "n * step + request": lambda d: d.n * d.step.step + d.step.request,
    "1000 * request + step": lambda d: 1000 * d.step.request + d.step.step,
    "1000 * step + request": lambda d: 1000 * d.step.step + d.step.request,
    "2 ** 32 * request + step": lambda d: 2**32 * d.step.request + d.step.step,
    "2 ** 32 * step + request": lambda d: 2**32 * d.step.step + d.step.request,
    "hash((request, step))": lambda d: hash((d.step.request, d.step.step)),
    "hash((step, request))": lambda d: hash((d.step.step, d.step.request)),
    "str((request, step))": lambda d: str((d.step.request, d.step.step)),
    "str((step, request))": lambda d: str((d.step.step, d.step.request)),
    "'{request} {step}'": lambda d: f"{d.step.request} {d.step.step}",
    "'{step} {request}'": lambda d: f"{d.step.step} {d.step.request}",
    "'{request},{step}'": lambda d: f"{d.step.request},{d.step.step}",
    "'{request}:{step}'": lambda d: f"{d.step.request}:{d.step.step}",
    "'{request}-{step}'": lambda d: f"{d.step.request}-{d.step.step}",
    "'{request}{step}'": lambda d: f"{d.step.request}{d.step.step}",
}


def _numpy(drawn: Drawn) -> Callable[[int], int]:
    generator = np.random.default_rng([drawn.step.request, drawn.step.step])

    def below(bound: int) -> int:
        if bound < 2**63:
            return int(generator.integers(bound))
        return int.from_bytes(generator.bytes((bound.bit_length() + 7) // 8), "little") % bound

    return below


class _Replay(Suspicion):
    """The set that this generator would have drawn; given up when it would have been noticed."""

    def __init__(self, hint: str, generator: Callable[[Drawn], Callable[[int], int]]) -> None:
        super().__init__(f"a generator that is known, {hint}", self._drawn)
        self._generator, self._tried = generator, 0

    def _drawn(self, drawn: Drawn) -> Floats | None:
        if self._tried == REPLAYED:
            return None
        self._tried += 1
        below = self._generator(drawn)
        if drawn.replay is not None:
            return drawn.surely(drawn.replay(below))
        ends = np.cumsum(drawn.weights)
        return drawn.surely(drawn.sets[int(np.searchsorted(ends, below(int(ends[-1])), side="right"))])


class Memory(Suspicion):
    """The set that came the last time in the same situation."""

    def __init__(self, hint: str, key: Callable[[Drawn], Hashable]) -> None:
        self._kept: dict[Hashable, Query] = {}
        super().__init__(
            hint,
            lambda drawn: drawn.surely(self._kept.get(key(drawn))),
            lambda drawn: self._kept.update({key(drawn): drawn.sets[drawn.index]}),
        )


class Shunned(Suspicion):
    """The set that came the step before is drawn again, once."""

    def __init__(self, hint: str) -> None:
        self._last: Query | None = None
        super().__init__(hint, self._redrawn, self._keep)

    def _redrawn(self, drawn: Drawn) -> Floats | None:
        place = None if self._last is None else drawn.places.get(self._last)
        return None if place is None else drawn_again(drawn, np.arange(len(drawn.weights)) == place)

    def _keep(self, drawn: Drawn) -> None:
        self._last = drawn.sets[drawn.index]


class Number(Suspicion):
    """The random number of the last draw in the same situation, as far as its set tells it; of tables only."""

    def __init__(self, hint: str, key: Callable[[Drawn], Hashable]) -> None:
        self._kept: dict[Hashable, tuple[float, float]] = {}
        super().__init__(
            hint,
            lambda drawn: (
                drawn.within(*self._kept[key(drawn)]) if drawn.table is not None and key(drawn) in self._kept else None
            ),
            lambda drawn: self._kept.update({key(drawn): drawn.interval()} if drawn.table is not None else {}),
        )


def full(drawn: Drawn) -> Floats | None:
    """The full set, whatever is wanted."""
    return drawn.surely(tuple(range(drawn.n)))


def unlikely(drawn: Drawn) -> bool:
    """Whether the request is unlikely in its context, by the plan's table."""
    if drawn.table is None:
        return False
    return bool(drawn.weights.sum() < UNLIKELY / drawn.n * drawn.table.sum())


def without_request(drawn: Drawn) -> Floats | None:
    """Sets come as in the law of the plan, of those that have the request."""
    if drawn.table is None:
        return None
    law = drawn.table.sum(axis=0) * drawn.member[: drawn.table.shape[1], drawn.step.request]
    return np.pad(law / law.sum(), (0, len(drawn.weights) - len(law)))


def _without_next(drawn: Drawn) -> Floats | None:
    following = drawn.likeliest
    return None if following == drawn.step.next else _elsewhere(drawn, drawn.last, following)


def _elsewhere(drawn: Drawn, last: int, following: int | None, lag: int | None = None) -> Floats | None:
    """The chances in another context of the same plan."""
    lag = drawn.lag if lag is None else lag
    if drawn.table is None or following is None or (last, following, lag) == (drawn.last, drawn.step.next, drawn.lag):
        return None
    weights = drawn.other(last, following, lag)
    if weights is None or not weights.any():
        return None
    return np.pad(weights / weights.sum(), (0, len(drawn.weights) - len(weights)))


def smaller_of_two(drawn: Drawn) -> Floats:
    """Two draws, of which the smaller set is sent."""
    by_size = np.bincount(drawn.sizes, drawn.p)
    larger = by_size.sum() - np.cumsum(by_size)
    chances: Floats = drawn.p * (by_size + 2 * larger)[drawn.sizes]
    return chances


def larger_of_two(drawn: Drawn) -> Floats:
    """Two draws, of which the larger set is sent."""
    by_size = np.bincount(drawn.sizes, drawn.p)
    smaller = np.cumsum(by_size) - by_size
    chances: Floats = drawn.p * (by_size + 2 * smaller)[drawn.sizes]
    return chances


def drawn_again(drawn: Drawn, unwanted: Mask) -> Floats:
    """A set that is unwanted is drawn again, once."""
    again = float(drawn.p[unwanted].sum())
    chances: Floats = np.where(unwanted, drawn.p * again, drawn.p * (1 + again))
    return chances


def without_previous(drawn: Drawn) -> Floats | None:
    """A set that holds the request before is drawn again, once, unless that is wanted again."""
    if drawn.previous < 0 or drawn.previous == drawn.step.request:
        return None
    return drawn_again(drawn, drawn.member[:, drawn.previous])


def _as_in(other: Mapping[int, Drawn], drawn: Drawn, bits: bool = False, same: bool = False) -> Floats | None:
    """The number that the other journal drew at the same step, for the `same` request, as far as its set tells it."""
    found = other.get(drawn.step.step)
    if found is None or drawn.table is None or (same and found.step.request != drawn.step.request):
        return None
    return drawn.within(*found.interval(bits), bits)
