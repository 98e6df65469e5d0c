"""Models of clients: their two views agree, and the audit imports nothing that makes what it judges."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import onoff
from onoff import OnoffError, plan
from onoff.audit.models import Decoys, Everything, Naive, Planned, TooLarge
from onoff.errors import ContextError
from onoff.testing import chains
from sampling import examples

PLAYERS = {"schemes", "plans", "client", "everyday"}


def likelihoods_agree(model, n, lag):
    """`likelihood` is `encoder`, normalised, for every non-empty set; impossible contexts aside."""
    for size in range(1, n + 1):
        for query in combinations(range(n), size):
            cube = np.broadcast_to(model.likelihood(query, lag), (n, n, n))
            for last in range(n):
                for following in range(n):
                    try:
                        encoder = model.encoder(last, following, lag)
                    except ContextError:
                        assert not cube[last, :, following].any()
                        continue
                    total = encoder.weights.sum(axis=1)
                    column = (
                        encoder.weights[:, encoder.sets.index(query)] if query in encoder.sets else np.zeros(n, int)
                    )
                    expected = np.where(total > 0, column / np.maximum(total, 1), 0.0)
                    assert cube[last, :, following] == pytest.approx(expected, abs=1e-15)


@settings(max_examples=examples(25))
@given(chains(min_sources=2, max_sources=3), st.integers(1, 3), st.integers(0, 2))
def test_the_two_views_of_a_plan_agree(chain, lag, more):
    likelihoods_agree(Planned(plan(chain, lag)), chain.n, lag + more)


@pytest.mark.parametrize("lag", [0, 1, 3])
def test_the_two_views_of_the_others_agree(lag):
    for model in (Everything(4), Naive(4), Decoys(4, 1), Decoys(4, 2), Decoys(4, 3)):
        likelihoods_agree(model, 4, lag)


def test_while_on_all_but_decoys_ask_for_everything():
    full = (0, 1, 2)
    chain = onoff.Chain.symmetric(3, 0.5)
    for model in (Everything(3), Naive(3), Planned(plan(chain, 1))):
        assert model.encoder(0, 1, 0).sets == (full,)
        assert model.likelihood(full, 0).max() == 1
        assert model.likelihood((0, 1), 0).max() == 0
    assert Decoys(3, 1).likelihood(full, 0).max() == 0


def test_decoys_need_others_to_hide_among():
    for count in (0, 4, -1):
        with pytest.raises(OnoffError, match="decoys among 4 sources"):
            Decoys(4, count)


def test_decoys_are_drawn_as_their_encoder_says_and_however_many_sets_there_are():
    model, rng = Decoys(5, 2), np.random.default_rng(2)
    drawn = Counter(model.draw(3, rng) for _ in range(6000))
    assert set(drawn) == {query for query in model.encoder(0, 0, 1).sets if 3 in query}
    assert max(abs(count - 1000) for count in drawn.values()) < 130  # 4.5 standard deviations
    many = Decoys(40, 20)
    query = many.draw(7, rng)
    assert len(query) == 21
    assert 7 in query
    assert many.likelihood(query, 1).max() > 0
    with pytest.raises(TooLarge, match="too many sets"):
        many.encoder(0, 0, 1)


def test_the_referee_does_not_import_the_player():
    audit = Path(onoff.__file__).parent / "audit"
    for file in audit.rglob("*.py"):
        for node in imports_at_run_time(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            if isinstance(node, ast.ImportFrom) and node.module == "onoff":
                names = [f"onoff.{alias.name}" for alias in node.names]
            for name in names:
                assert not (name.startswith("onoff.") and name.split(".")[1] in PLAYERS), f"{file.name}: {name}"
    files = [file.relative_to(audit).with_suffix("").parts for file in audit.rglob("[!_]*.py")]
    modules = ", ".join(".".join(("onoff", "audit", *parts)) for parts in files)
    code = f"import sys, {modules}; print([m for m in sys.modules if m.startswith('onoff.')])"
    loaded = ast.literal_eval(
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout.decode()
    )
    assert not {name.split(".")[1] for name in loaded} & PLAYERS


def imports_at_run_time(tree):
    """All imports but those for type checkers only."""
    skipped = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    return [n for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom) and id(n) not in skipped]
