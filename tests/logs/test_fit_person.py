"""Fitting for one person, with the files that people have: no users, access logs, dates of all kinds, no log at all."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

import logkit
from clikit import call
from onoff import Chain, OnoffError, fit

WALK = "abcabcabacbcabcabcab"
AGENT = '"http://example.org/" "Mozilla/5.0 (X11; \\"quoted\\")"'


def access_line(second, target, address="192.0.2.1", login="-", rest="", method="GET", status=200):
    clock = f"10/Oct/2025:13:{second // 60:02}:{second % 60:02} -0700"
    return f'{address} - {login} [{clock}] "{method} {target} HTTP/1.1" {status} 2326{rest}\n'


def test_without_a_column_of_users_there_is_one_user_and_that_is_said(tmp_path):
    (tmp_path / "log.csv").write_text("time,page\n" + "".join(f"{t},{name}\n" for t, name in enumerate(WALK)))
    report = fit(tmp_path / "log.csv").report
    assert (report.users, report.transitions) == (1, len(WALK) - 1)
    assert any("no column says who asked: all rows are taken to be one user's" in note for note in report.notes)


def test_one_user_is_asked_for_or_a_column_of_users_is_given_but_not_both(tmp_path):
    rows = [(f"u{t % 2}", str(t), name) for t, name in enumerate(WALK)]
    file = logkit.write(rows, tmp_path / "log.csv")
    assert fit(file).report.users == 2
    assert fit(file, one_user=True).report.users == 1
    with pytest.raises(OnoffError, match="--one-user or --user, not both"):
        fit(file, one_user=True, user="user")


@pytest.mark.parametrize("rest", ["", f" {AGENT}"])
def test_access_logs_of_web_servers_are_read_as_they_are(tmp_path, rest):
    lines = [access_line(t, f"/{name}?x={t % 2}", rest=rest) for t, name in enumerate(WALK)]
    lines += [access_line(100, "/a", login="ann", rest=rest), access_line(102, "/c", login="ann", rest=rest)]
    lines.insert(3, access_line(2, "/favicon.ico", rest=rest, status=404))
    lines.insert(5, access_line(4, "/b", rest=rest, method="POST"))
    lines.insert(7, '192.0.2.9 - - [10/Oct/2025:13:00:06 -0700] "\\x16\\x03\\x01" 400 226' + rest + "\n")
    (tmp_path / "access.log").write_text("".join(lines))
    found = fit(tmp_path / "access.log", gap=1)
    assert found.chain.names == ("/a", "/b", "/c")
    assert (found.report.users, found.report.transitions) == (2, len(WALK) - 1)  # ann's two are too far apart
    assert found.report.notes[0].startswith("lines left out: 3.")
    (tmp_path / "access.log.gz").write_bytes(gzip.compress((tmp_path / "access.log").read_bytes()))
    assert (fit(tmp_path / "access.log.gz", gap=1).counts == found.counts).all()
    whole = fit(tmp_path / "access.log", source="target", user="address", top=5)
    assert whole.report.users == 1
    assert "/a?x=0" in whole.chain.names


def test_programs_behind_one_address_are_different_users_and_times_have_zones(tmp_path):
    lines = [access_line(t, f"/{name}", rest=f' "-" "{"AB"[t % 2]}"') for t, name in enumerate(WALK)]
    (tmp_path / "access.log").write_text("".join(lines))
    assert fit(tmp_path / "access.log").report.users == 2
    two = access_line(0, "/a") + access_line(1, "/b").replace("-0700", "-0800") + access_line(2, "/a")
    (tmp_path / "zones.log").write_text(two)
    found = fit(tmp_path / "zones.log")
    assert found.counts.tolist() == [[1, 1], [0, 0]]  # an hour lies between -0700 and -0800: /b came last


def test_a_line_of_another_format_in_an_access_log_is_named(tmp_path):
    (tmp_path / "access.log").write_text("".join(access_line(t, f"/{p}") for t, p in enumerate(WALK)) + "and so on\n")
    with pytest.raises(OnoffError, match="line 21 is not that of a web access log: 'and so on'"):
        fit(tmp_path / "access.log")
    (tmp_path / "access.log").write_text("".join(access_line(t, f"/{p}") for t, p in enumerate(WALK)))
    with pytest.raises(OnoffError, match=r"no column 'page' for --source: there are user, time, source, address"):
        fit(tmp_path / "access.log", kind="access", source="page")
    (tmp_path / "access.log").write_text(access_line(0, "/a") + access_line(1, "/b").replace("Oct", "Foo"))
    with pytest.raises(OnoffError, match="line 2 is not that of a web access log"):
        fit(tmp_path / "access.log")


def test_a_column_in_which_nothing_comes_twice_is_not_the_source(tmp_path):
    rows = [("u", str(t), f"article {t}") for t in range(30)]
    with pytest.raises(OnoffError, match="no source was asked for twice"):
        fit(logkit.write(rows, tmp_path / "log.csv"))


@pytest.mark.parametrize(
    ("form", "written"),
    [
        ("05/{:02}/2024 10:00", "%m/%d/%Y %H:%M"),
        ("{:02}.05.24", "%d.%m.%y"),
        ("May {}, 2024 2:05 PM", "%b %d, %Y %I:%M %p"),
    ],
)
def test_dates_as_people_write_them_need_a_format_and_are_read_with_it(tmp_path, form, written):
    days = [10, 9, 11, 12, 14, 13]
    rows = [f'u,"{form.format(day)}",{"ab"[day % 2]}' for day in days]
    (tmp_path / "log.csv").write_text("\n".join(["user,time,source", *rows]) + "\n")
    with pytest.raises(OnoffError, match=r"most times in 'time' cannot be read as ISO 8601.*; give --time-format"):
        fit(tmp_path / "log.csv")
    found = fit(tmp_path / "log.csv", time_format=written)
    assert found.counts.tolist() == [[0, 2], [3, 0]]  # b a b a b a, in the order of the days
    assert found.report.missing_time == 0
    with pytest.raises(OnoffError, match="cannot be read as %Y!"):
        fit(tmp_path / "log.csv", time_format="%Y!")


def test_the_chain_is_written_to_habits_json_and_overwrites_nothing_unless_forced(tmp_path):
    (tmp_path / "log.txt").write_text("a b a b a\n" * 20)
    (tmp_path / "habits.json").write_text("mine")
    done = call("fit", "log.txt", cwd=tmp_path)
    assert (done.returncode, "exists already: give another name, or --force" in done.stderr) == (2, True)
    assert (tmp_path / "habits.json").read_text() == "mine"
    call("fit", "log.txt", "--force", cwd=tmp_path, check=True)
    assert Chain.load(tmp_path / "habits.json").names == ("a", "b")


def test_a_damaged_chain_is_not_taken_for_a_log(tmp_path):
    chain = tmp_path / "chain.json"
    Chain(np.full((40, 40), 1 / 40)).save(chain)
    chain.write_bytes(chain.read_bytes()[:-9])
    done = call("fit", "chain.json", cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "chain.json: not JSON" in done.stderr
