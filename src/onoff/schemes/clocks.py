"""Exponential clocks from random bits, without logarithms and with a proved error.

The binary digits of an Exp(1) variable are independent; the digit of 2^k is 1 with probability 1 / (1 + exp(2^k)).
So a clock is drawn digit by digit: the leading ones with their bias, the others, which are nearly fair, as fair.
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import numpy as np
from numpy.typing import NDArray

from onoff.types import RandBelow

FINE = 122  # binary digits right of the point
BIASED = 58  # of these, how many are drawn with their exact bias
WHOLE = 6  # binary digits left of the point: a clock of 64 or more has probability exp(-64)
WORDS = WHOLE + BIASED + 1  # 64-bit words of randomness in a clock: one for each biased digit, one for the fair ones


def _thresholds() -> NDArray[np.uint64]:
    """The probabilities of the biased digits times 2^64, rounded, from the largest digit on."""
    with localcontext() as context:
        context.prec = 60
        digits = [Decimal(2) ** 64 / (1 + (Decimal(2) ** k).exp()) for k in range(WHOLE - 1, -BIASED - 1, -1)]
        return np.array([int(digit.to_integral_value()) for digit in digits], dtype=np.uint64)


THRESHOLDS = _thresholds()


def exponentials(count: int, randbelow: RandBelow) -> list[int]:
    """`count` independent Exp(1) variables, rounded down, as integers in units of 2^-FINE."""
    size = count * WORDS * 8
    raw = np.frombuffer(randbelow(1 << (8 * size)).to_bytes(size, "little"), dtype="<u8").reshape(count, WORDS)
    biased = np.packbits(raw[:, :-1] < THRESHOLDS, axis=1)
    fair = raw[:, -1:].copy().view(np.uint8)
    digits = np.concatenate([biased, fair], axis=1).tobytes()
    return [int.from_bytes(digits[start : start + 16], "big") for start in range(0, 16 * count, 16)]


def total_variation(count: int) -> float:
    """A bound on the total variation between `exponentials(count)` and the true law.

    Each of the 64 thresholds is off by at most 2^-65. A fair digit of 2^-k in place of a biased one is off by at most
    2^-k / 4, and all of them together by 2^-60. A clock of 64 or more is never drawn.
    """
    return count * (2.0**-59 + 2.0**-60 + math.exp(-64)) * (1 + 2.0**-40)
