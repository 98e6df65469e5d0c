from __future__ import annotations

import csv
from pathlib import Path

import pytest

from onoff import Chain, bounds
from onoff.apps import plots

PRINTED = Path(__file__).parents[1] / "data"


def points(file):
    with file.open(newline="") as stream:
        return [(row["curve"], float(row["x"]), float(row["rate"])) for row in csv.DictReader(stream)]


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    directory = tmp_path_factory.mktemp("figures") / "made"
    return directory, plots.reproduce(directory)


@pytest.mark.parametrize(("name", "count"), [("figure-2b.csv", 122), ("figure-2c.csv", 24)])
def test_every_point_printed_in_the_paper_is_reproduced(drawn, name, count):
    printed, ours = points(PRINTED / name), points(drawn[0] / name)
    assert len(printed) == count
    for curve, x, rate in printed:
        [found] = [y for c, at, y in ours if c == curve and abs(at - x) < 1e-9]
        assert abs(found - rate) < 1e-9


def test_pictures_are_written_in_both_formats_and_are_repeatable(drawn, tmp_path):
    directory, files = drawn
    assert [f.name for f in files] == [
        *("figure-2b.png", "figure-2b.svg", "figure-2b.csv"),
        *("figure-2c.png", "figure-2c.svg", "figure-2c.csv"),
    ]
    for file in files:
        if file.suffix == ".png":
            assert file.read_bytes().startswith(b"\x89PNG")
    plots.reproduce(tmp_path)
    for file in directory.glob("*.svg"):
        assert file.read_bytes() == (tmp_path / file.name).read_bytes()


def test_the_numbers_have_costs_too(drawn):
    with (drawn[0] / "figure-2c.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 36
    assert all(abs(float(row["cost"]) * float(row["rate"]) - 1) < 1e-15 for row in rows)
    first = bounds(Chain.symmetric(3, 0.25).posterior(1))
    assert (float(rows[0]["cost"]), rows[0]["curve"]) == (pytest.approx(first.inner, rel=1e-15), "inner, alpha=0.25")


def test_the_legends_tell_the_curves_apart():
    def legend(curves):
        [axes] = plots.draw_curves(curves, "x").axes
        return [text.get_text() for text in axes.get_legend().get_texts()]

    assert legend(plots.figure_2b()) == ["$R^I$, the paper's scheme", "$R^O$, upper bound", "optimum"]
    assert legend(plots.figure_2c()) == [
        *(r"$R^I$, $\alpha=0.25$", r"$R^O$, $\alpha=0.25$", r"optimum, $\alpha=0.25$"),
        *(r"$R^I$, $\alpha=0.6$", r"$R^O$, $\alpha=0.6$", r"optimum, $\alpha=0.6$"),
    ]


def test_the_optimum_lies_between_the_bounds_and_has_its_known_values():
    by_key = {curve.key: curve for curve in [*plots.figure_2b(), *plots.figure_2c()]}
    for key in ("", ", alpha=0.25", ", alpha=0.6"):
        outer = dict(zip(by_key["outer" + key].x, by_key["outer" + key].y, strict=True))
        inner = dict(zip(by_key["inner" + key].x, by_key["inner" + key].y, strict=True))
        for x, rate in zip(by_key["optimum" + key].x, by_key["optimum" + key].y, strict=True):
            assert inner[x] - 1e-9 <= rate
            assert rate <= min(y for at, y in outer.items() if abs(at - x) < 1e-9) + 1e-9
    assert by_key["optimum, alpha=0.25"].y[:3] == pytest.approx((0.6875, 0.7916667, 0.7978972), abs=1e-7)
