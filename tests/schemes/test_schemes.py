"""One plug for a scheme: an entry in `SCHEMES`, and everything else follows."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from onoff import Plan, plan
from onoff.apps.cli.app import app
from onoff.apps.costs import costs
from onoff.schemes import SCHEMES, Scheme, tables
from oracles import check_encoder, random_chain

CHAIN = random_chain("dense", 5, 3)


@pytest.fixture
def pairs(tmp_path, monkeypatch):
    """The scheme of CONTRIBUTING.md, plugged in as it says."""
    text = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (entry,) = re.findall(r'`"pairs": (Scheme\(.*?\))`', text)
    (tmp_path / "pairs.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    found = eval(entry, {"Scheme": Scheme})
    monkeypatch.setitem(SCHEMES, "pairs", Scheme(found.module.rpartition(".")[2], found.about))
    yield
    sys.modules.pop("pairs", None)


@pytest.fixture
def chain_file(tmp_path):
    CHAIN.save(tmp_path / "chain.json")
    return str(tmp_path / "chain.json")


@pytest.mark.usefixtures("pairs")
def test_a_new_scheme_is_planned_checked_saved_read_compared_and_refused_where_it_is_unknown(tmp_path, monkeypatch):
    made = plan(CHAIN, 1, "pairs")
    assert made.scheme == "pairs"
    assert plan(CHAIN, 1, "optimal").cost <= made.cost <= CHAIN.n
    assert 2 in map(len, made.sets)
    for last in range(CHAIN.n):
        for following in range(CHAIN.n):
            check_encoder(made, last, following)
    made.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == made
    pairs, optimal = costs({"five": CHAIN}, [1], ["both"], ["pairs", "optimal"])
    assert (pairs.scheme, optimal.messages <= pairs.messages) == ("pairs", True)
    monkeypatch.delitem(SCHEMES, "pairs")
    with pytest.raises(Exception, match="'pairs' is not a scheme with a table: everything, paper, comb, optimal are"):
        Plan.load(tmp_path / "plan.json")


@pytest.mark.usefixtures("pairs")
def test_the_command_line_plans_and_audits_a_new_scheme(chain_file, tmp_path):
    run = CliRunner().invoke
    done = run(app, ["plan", chain_file, "--lags", "1", "--scheme", "pairs", "--out", str(tmp_path), "--jobs", "1"])
    assert done.exit_code == 0, done.output
    (file,) = tmp_path.glob("*/lag-1.plan.json")
    assert json.loads(file.read_text())["scheme"] == "pairs"
    done = run(app, ["audit", "plan", chain_file, str(file)])
    assert done.exit_code == 0, done.output
    done = run(app, ["audit", "streams", chain_file, "--statuses", "100", "--scheme", "pairs"])
    assert done.exit_code == 0, done.output


def test_every_scheme_has_its_maker_and_says_what_it_is():
    for name, scheme in SCHEMES.items():
        if scheme.kind == "table":
            assert plan(CHAIN, 1, name).scheme == name
        assert scheme.about
    assert tables() == ("everything", "paper", "comb", "optimal")
    assert np.isclose(plan(CHAIN, 1, "race").lower_bound, plan(CHAIN, 1, "comb").lower_bound)
