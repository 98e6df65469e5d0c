from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from onoff import products
from onoff.rounding import down, sum_up, up
from onoff.testing import chains


@given(chains(max_sources=5), st.integers(0, 6))
def test_a_power_is_within_its_proved_relative_error(chain, k):
    exact = chain.exact_posterior(k)._power
    bound = Fraction(max(k - 1, 0) * products.gamma(products.summands(chain.n)))
    for computed, true in zip(products.power(chain.P, k).ravel(), exact.ravel(), strict=True):
        if true == 0 or true > Fraction(1, 2**900):
            assert abs(Fraction(float(computed)) - true) <= bound * true


@given(chains(max_sources=6), st.integers(1, 6))
def test_a_wide_power_never_underflows(chain, k):
    exact = chain.exact_posterior(k)._power
    wide = products.wide_power(chain.P, k)
    for mantissa, exponent, true in zip(wide.mantissa.ravel(), wide.exponent.ravel(), exact.ravel(), strict=True):
        value = Fraction(float(mantissa)) * Fraction(2) ** int(exponent) if mantissa else Fraction(0)
        assert abs(value - true) <= true * Fraction(1, 2**40)


@given(chains(max_sources=6), st.integers(0, 9))
def test_the_support_is_that_of_the_exact_power(chain, k):
    exact = chain.exact_posterior(k)._power
    assert (products.boolean_power(chain.P > 0, k) == (exact > 0)).all()


def test_sums_in_blocks_meet_few_roundings():
    assert [products.summands(n) for n in (1, 2, 100, 1000)] == [2, 3, 20, 64]
    rng = np.random.default_rng(1)
    a, b = rng.random((90, 90)), rng.random((90, 90))
    assert np.allclose(products.product(a, b), a @ b, rtol=1e-13)


@given(st.fractions())
def test_rounding_goes_in_the_safe_direction(value):
    assert Fraction(down(value)) <= value <= Fraction(up(value))
    assert up(value) - down(value) <= 2**-52 * max(abs(float(value)), 1e-300)


def test_sum_up_is_never_below_the_sum():
    terms = [0.1] * 10
    assert Fraction(sum_up(*terms)) >= sum(map(Fraction, terms))
