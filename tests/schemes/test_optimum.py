"""The parts of the search for the optimum."""

from __future__ import annotations

import numpy as np
import pytest

from onoff.schemes.interior_point import central_point
from onoff.schemes.optimum import novel


def test_the_central_point_solves_a_covering_program():
    cost, hits, need = np.array([1.0, 1.0, 1.5]), np.array([[1.0, 0, 1], [0, 1, 1]]), np.array([0.8, 0.6])
    centre = central_point(cost, hits, need, 1e-9)
    # Masses a, b, c of {1}, {2}, {1, 2}: c = 0.4 is forced by 0.8 + 0.6 - 1.
    assert np.allclose(centre.masses, [0.4, 0.2, 0.4], atol=1e-6)
    assert need @ centre.multipliers + centre.total_multiplier == pytest.approx(cost @ centre.masses, abs=1e-6)


def test_novel_rows_are_distinct_and_new():
    old = np.array([[1, 0]], dtype=bool)
    new = np.array([[1, 0], [0, 1], [0, 1], [1, 1]], dtype=bool)
    assert novel(new, old).tolist() == [[False, True], [True, True]]
