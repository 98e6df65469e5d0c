"""Exponential clocks of n sources, drawn from random bits: without logarithms and with a proved error.

With clocks E_y ~ Exp(1) the source with the least E_y / r(y) is x with probability r(x), whatever the row r. Given this
winner x, the clocks are E_x = r(x) T and E_y = r(y) T + Exp(1) for the others, with T ~ Exp(1): averaged over x ~ r
they are independent Exp(1) again, for every row.

The binary digits of an Exp(1) variable are independent; the digit of 2^k is 1 with probability 1 / (1 + exp(2^k)). So a
clock is drawn digit by digit: the leading ones with their bias, the others, which are nearly fair, as fair.
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import numpy as np
from numpy.typing import NDArray

from onoff.model.bounds import sum_up
from onoff.types import Floats, RandBelow

FINE = 122  # binary digits right of the point
BIASED = 58  # of these, how many are drawn with their exact bias
WHOLE = 6  # binary digits left of the point: a clock of 64 or more has probability exp(-64)
WORDS = WHOLE + BIASED + 1  # 64-bit words of randomness in a clock: one for each biased digit, one for the fair ones
GRID = 60  # binary digits right of the point that a race looks at
WEIGHT_BITS = 160  # to which rows are taken as integers


def fresh_clocks(n: int, randbelow: RandBelow) -> Floats:
    """Draw the clocks of n sources, on the grid."""
    return _on_grid(_exponentials(n, randbelow))


def given_request(weights: Floats, request: int, randbelow: RandBelow) -> Floats:
    """Draw the clocks given that the request wins for the row in proportion to the weights.

    If the whole row underflows, nothing is known to win.
    """
    *clocks, common = _exponentials(len(weights) + 1, randbelow)
    shares = to_integers(weights)
    total = sum(shares)
    if total:
        clocks[request] = 0
        clocks = [own + share * common // total for own, share in zip(clocks, shares, strict=True)]
    return _on_grid(clocks)


def rounding(n: int) -> float:
    """Bound the total variation between the law of a race's winners, and that of the same race with true clocks.

    It is a sum of four parts. The clocks have nearly their law: each of the 64 thresholds is off by at most 2^-65, a
    fair digit of 2^-k in place of a biased one by at most 2^-k / 4 (all of them by 2^-60), and a clock of 64 or more is
    never drawn. Rounding down may carry a clock across a point of the grid. The request may miss the winners because
    its lead vanished on the grid: if that moves its clock by d, another source y leads with a chance of at most
    r(y) d / r(x), and the sum over x ~ r and y is n d. Integers cut off the row.
    """
    drawn = (n + 1) * (2.0**-59 + 2.0**-60 + math.exp(-(1 << WHOLE))) * (1 + 2.0**-40)
    crossing = 3 * n * (2.0 ** (GRID - FINE) + 2.0**-FINE)
    return sum_up(drawn, crossing, n * 2.0**-GRID, n * 2.0 ** (1 - WEIGHT_BITS))


def to_integers(weights: Floats) -> list[int]:
    """Scale non-negative floats to integers, the largest of WEIGHT_BITS bits; all 0 if all are 0."""
    top = float(weights.max())
    if top == 0:
        return [0] * len(weights)
    shift = WEIGHT_BITS - math.frexp(top)[1]
    # In two steps: 2^shift itself may not be a float.
    return [int(w) for w in np.ldexp(np.ldexp(weights, shift // 2), shift - shift // 2)]


def _thresholds() -> NDArray[np.uint64]:
    """Round 2^64 times the probabilities of the biased digits, from the largest digit on."""
    with localcontext() as context:
        context.prec = 60
        digits = [Decimal(2) ** 64 / (1 + (Decimal(2) ** k).exp()) for k in range(WHOLE - 1, -BIASED - 1, -1)]
        return np.array([int(digit.to_integral_value()) for digit in digits], dtype=np.uint64)


THRESHOLDS = _thresholds()


def _exponentials(count: int, randbelow: RandBelow) -> list[int]:
    """Draw `count` independent Exp(1), rounded down, as integers in units of 2^-FINE."""
    size = count * WORDS * 8
    raw = np.frombuffer(randbelow(1 << (8 * size)).to_bytes(size, "little"), dtype="<u8").reshape(count, WORDS)
    biased = np.packbits(raw[:, :-1] < THRESHOLDS, axis=1)
    fair = raw[:, -1:].copy().view(np.uint8)
    digits = np.concatenate([biased, fair], axis=1).tobytes()
    return [int.from_bytes(digits[start : start + 16], "big") for start in range(0, 16 * count, 16)]


def _on_grid(clocks: list[int]) -> Floats:
    """Round clocks up to the grid, strictly: never zero."""
    return np.array([float((clock >> (FINE - GRID)) + 1) for clock in clocks])
