from __future__ import annotations

import csv
from pathlib import Path

import pytest

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
