"""What all plans share: one base, one name, one file format whose fields are all listed."""

import json
import pickle
import random
import re
from fractions import Fraction

import pytest

from onoff import Chain, Plan, plan
from onoff.plans import file as planfile
from onoff.plans.race import race_plan
from onoff.types import PlanName

CHAIN = Chain.symmetric(4, 0.4)
MADE = {"table": plan(CHAIN, 2), "race": race_plan(CHAIN, 2, draws=20, randbelow=random.Random(1).randrange)}


@pytest.mark.parametrize("kind", MADE)
def test_a_plan_of_each_kind_is_a_plan_with_all_that_plans_share(tmp_path, kind):
    made = MADE[kind]
    assert isinstance(made, Plan)
    assert (made.kind, made.n) == (kind, 4)
    assert Fraction(made.lower_bound) * (1 + Fraction(made.gap)) >= Fraction(made.cost)
    assert made.at_most >= made.cost
    assert made.rounding == made.rounding_at(2)
    made.save(tmp_path / "plan")
    for again in (Plan.load(tmp_path / "plan"), pickle.loads(pickle.dumps(made))):
        assert again == made
        assert (again.identity, again.name) == (made.identity, made.name)
    with pytest.raises(Exception, match="is not private at the smaller lag 1"):
        made.served_lag(1)


@pytest.mark.parametrize("kind", MADE)
def test_the_docstring_of_the_format_lists_every_field_and_no_other(tmp_path, kind):
    MADE[kind].save(tmp_path / "plan")
    parts = re.split(r"\n\n(?:and a plan with a table|while a race)", planfile.__doc__)
    listed = [set(re.findall(r"^    ([a-z_]+)  ", part, re.M)) for part in parts]
    every, table, race = listed
    assert set(json.loads((tmp_path / "plan").read_text())) == every | (table if kind == "table" else race)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("race, lag 3", PlanName("race", 3)),
        ("optimal, lag 12, 0123456789ab", PlanName("optimal", 12, "0123456789ab")),
        ("a scheme of somebody, lag 1, 00", PlanName("a scheme of somebody", 1, "00")),
    ],
)
def test_names_in_old_journals_are_read_as_they_were_written(text, name):
    assert PlanName.parse(text) == name
    assert str(name) == text


@pytest.mark.parametrize(
    "text",
    ["everything", "", "race", "race, lag ", "race, lag 03", "race, lag x", "race, lag -1", "race, lag ٣", ", lag 3",
     "race, lag 3, ", "race, 3", "race, lag 3, ab, cd", "race, lag 1234567890"],
)  # fmt: skip
def test_what_is_no_name_of_a_plan_is_not_read_as_one(text):
    assert PlanName.parse(text) is None
