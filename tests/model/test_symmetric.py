"""Symmetric chains are recognised."""

from __future__ import annotations

from onoff import Chain
from onoff.model.symmetric import is_symmetric
from oracles import random_chain


def test_symmetric_chains_are_recognised_up_to_relabelling():
    chain = Chain.symmetric(5, 0.1)
    assert is_symmetric(chain)
    assert is_symmetric(Chain(chain.P[[2, 0, 1, 4, 3]]))
    assert is_symmetric(Chain.symmetric(4, 0.25))
    assert not is_symmetric(Chain.symmetric(5, 1.0))
    assert not is_symmetric(random_chain("dense", 5, 1))
    swapped = chain.P.copy()
    swapped[0, [0, 1]] = swapped[0, [1, 0]]
    assert not is_symmetric(Chain(swapped))
