from __future__ import annotations

import ast
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import onoff
from onoff.model import powers as products
from onoff.model.bounds import down, up
from onoff.testing import chains
from oracles import ExactPosterior

PRODUCTS = ("matmul", "matrix_power", "dot", "vdot", "inner", "einsum", "tensordot")


class Flagged(np.ndarray):
    """A matrix whose products set the flag "invalid value" although no number is NaN, as OpenBLAS sometimes does."""

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        plain = [np.asarray(each) for each in inputs]
        if "out" in options:
            options["out"] = tuple(np.asarray(each) for each in options["out"])
        result = getattr(ufunc, method)(*plain, **options)
        if ufunc is np.matmul:
            np.subtract(np.inf, np.inf)
        return result.view(Flagged) if isinstance(result, np.ndarray) else result


@given(chains(max_sources=5), st.integers(0, 6))
def test_a_power_is_within_its_proved_relative_error(chain, k):
    exact = ExactPosterior(chain, k)._power
    bound = Fraction(max(k - 1, 0) * products.gamma(products.summands(chain.n)))
    for computed, true in zip(products.power(chain.P, k).ravel(), exact.ravel(), strict=True):
        if true == 0 or true > Fraction(1, 2**900):
            assert abs(Fraction(float(computed)) - true) <= bound * true


@given(chains(max_sources=6), st.integers(0, 9))
def test_the_support_is_that_of_the_exact_power(chain, k):
    exact = ExactPosterior(chain, k)._power
    assert (products.boolean_power(chain.P > 0, k) == (exact > 0)).all()


@given(st.fractions())
def test_rounding_goes_in_the_safe_direction(value):
    assert Fraction(down(value)) <= value <= Fraction(up(value))
    assert up(value) - down(value) <= 2**-52 * max(abs(float(value)), 1e-300)


def test_products_ignore_a_flag_that_the_numbers_do_not_bear_out():
    rng = np.random.default_rng(1)
    a, b = rng.random((5, 7)) < 0.5, rng.random((7, 6)) < 0.5
    with np.errstate(all="raise"):
        with pytest.raises(FloatingPointError):  # the planted flag is seen where it is trusted
            a.view(Flagged) @ b.view(Flagged)
        assert (products.counts(a.view(Flagged), b) == a.astype(int) @ b.astype(int)).all()
        assert products.times(a.astype(float).view(Flagged), b.astype(float)) == pytest.approx(a.astype(float) @ b)
        assert (products.boolean_power(a[:, :5].view(Flagged), 3) == products.boolean_power(a[:, :5], 3)).all()


def multiplications(source):
    """The lines with a product of matrices by NumPy: `@`, or one of its functions (or methods) for it."""
    for node in ast.walk(ast.parse(source)):
        operator = isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.MatMult)
        named = isinstance(node, ast.Attribute) and node.attr in PRODUCTS
        if operator or (named and (node.attr == "dot" or ast.unparse(node.value) in ("np", "numpy"))):
            yield node.lineno


def test_no_module_multiplies_matrices_where_flags_are_trusted():
    """All products are made in `powers`, which ignores the flags of floats and refuses floats among whole numbers."""
    root = Path(onoff.__file__).parent
    found = {str(file.relative_to(root)): list(multiplications(file.read_text())) for file in root.rglob("*.py")}
    assert found.pop("model/powers.py")
    assert {file: lines for file, lines in found.items() if lines} == {}


@pytest.mark.parametrize("planted", ["a @ b", "a @= b", "np.dot(a, b)", "a.dot(b)", "numpy.einsum('ij,jk', a, b)"])
def test_a_planted_product_is_seen(planted):
    assert list(multiplications(f"x = 1\n{planted}")) == [2]


def test_products_of_whole_numbers_are_exact_and_take_no_floats():
    large = np.array([[2**53, 1]])
    assert products.whole_times(large, np.array([[True], [True]])).tolist() == [[2**53 + 1]]
    thirds = np.array([[Fraction(1, 3)] * 3], dtype=object)
    assert products.whole_times(thirds, np.ones((3, 1), dtype=int)).tolist() == [[1]]
    for a, b in ((large, np.ones((2, 1))), (np.ones((1, 2)), large.T), (large, np.ones((2, 1), dtype=np.float32))):
        with pytest.raises(TypeError, match="use `times`"):
            products.whole_times(a, b)
