"""`onoff estimate`: what a day costs is what simulated days cost, by every way of asking."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

from clikit import call
from onoff import Chain, OnoffError, plan
from onoff.apps import estimating
from onoff.apps.estimating import RIGHT_FOR, Habits, estimate
from onoff.everyday import Everyday
from onoff.plans.lengths import Weighing
from oracles import random_chain

CHAIN = random_chain("dense", 3, 1)
LENGTHS, CHANGES = (100.0, 20.0, 3.0), (0.1, 0.5, 0.9)
AT_ONCE = Habits(requests=10, private=0.5, run=1.0)  # ON and OFF in turn: every OFF request is the first after ON


def ways(found):
    return {way.name: way for way in found.ways}


def test_where_on_and_off_alternate_the_costs_are_those_of_the_first_step():
    found = ways(estimate(CHAIN, AT_ONCE, lengths=LENGTHS, streams=2))
    step, law = Everyday.start(CHAIN).prepare(LENGTHS), CHAIN.stationary()
    held = sum(mass * len(query) for query, mass in zip(step.sets, step.masses, strict=True))
    assert found["past"].messages == pytest.approx(5 * (3 + held / step.denominator))
    assert found["past"].bytes == pytest.approx(5 * (sum(LENGTHS) + step.cost))
    assert found["both"].bytes == pytest.approx(5 * (sum(LENGTHS) + plan(CHAIN, 1, lengths=LENGTHS).cost), rel=1e-6)
    assert (found["openly"].messages, found["openly"].bytes) == (10, pytest.approx(10 * law @ LENGTHS))
    assert (found["on"].messages, found["on"].bytes) == (30, 10 * sum(LENGTHS))
    assert (found["mirror"].messages, found["mirror"].bytes) == (72, pytest.approx(24 * sum(LENGTHS)))
    assert {way.changed for way in found.values()} == {None}
    assert found["past"].messages_margin < 1e-9


def test_what_changed_is_what_a_cache_does_not_have():
    found = ways(estimate(CHAIN, AT_ONCE, lengths=LENGTHS, changes=CHANGES, streams=2))
    fresh = np.array(LENGTHS) * CHANGES
    assert found["on"].changed == pytest.approx(10 * fresh.sum())
    turn = 10 / 24  # requests between two visits of the mirror
    assert found["mirror"].changed == pytest.approx(24 * np.array(LENGTHS) @ (1 - (1 - np.array(CHANGES)) ** turn))
    assert found["past"].changed < found["past"].bytes
    nothing = ways(estimate(CHAIN, AT_ONCE, lengths=LENGTHS, changes=(0.0,) * 3, streams=2))
    assert {way.changed for way in nothing.values()} == {0.0}
    everything = ways(estimate(CHAIN, AT_ONCE, lengths=LENGTHS, changes=(1.0,) * 3, streams=2))
    for way in everything.values():
        assert way.changed == pytest.approx(way.bytes)


def test_how_often_a_source_has_changed_when_it_is_asked_for_again_is_a_matter_of_its_return():
    """Requests that are independent and all alike return after a geometric time: E s^T = (s / n) / (1 - s + s / n)."""
    n, stay = 4, 0.7
    found = ways(estimate(Chain.symmetric(n, 1 / n), AT_ONCE, lengths=(1.0,) * n, changes=(1 - stay,) * n, streams=2))
    assert found["openly"].changed == pytest.approx(10 * (1 - (stay / n) / (1 - stay + stay / n)))


def simulated_days(habits, plans, steps, rng):
    """Costs of every step of a long life with announced requests and a cache, followed request by request."""
    q = habits.switched_on
    request, following = rng.choices(range(3), k=2)
    private, last, lag = True, request, 0
    gaps, rows = np.ones(3), []
    for _ in range(steps):
        query = (0, 1, 2)
        if private:
            last, lag = request, 0
        else:
            lag += 1
            used = max((one for one in plans if one.lag <= lag), key=lambda one: one.lag)
            query = used.draw(request, last, following, lag, rng.randrange)
        held = np.isin(range(3), query)
        fresh = np.array(LENGTHS) * (1 - (1 - np.array(CHANGES)) ** gaps)
        rows.append((held.sum(), held @ LENGTHS, held @ fresh))
        gaps = np.where(held, 1, gaps + 1)
        request, following = following, rng.choices(range(3), CHAIN.P[following])[0]
        private = rng.random() >= 1 / habits.run if private else rng.random() < q
    return np.array(rows)


def test_a_day_of_announced_requests_costs_what_a_long_life_costs_on_average():
    """4.5 standard errors over 20 parts of 6,000 requests, for three means: fails once in 10,000 runs of other seeds.

    Planted: a third more in any of the means would be seen, and so are runs of another length.
    """
    habits = Habits(requests=1, private=0.2, run=2.0)
    found = ways(estimate(CHAIN, habits, lengths=LENGTHS, changes=CHANGES, streams=16))["both"]
    weights = Weighing(LENGTHS, CHANGES).fixed
    plans = [plan(CHAIN, lag, lengths=weights) for lag in estimating.LAGS if lag <= 21]
    rows = simulated_days(habits, plans, 6_000, random.Random(4))
    parts = rows.reshape(20, 300, 3).mean(axis=1)
    means, errors = parts.mean(axis=0), parts.std(axis=0, ddof=1) / np.sqrt(20)
    for value, around, mean, error in zip(
        (found.messages, found.bytes, found.changed),
        (found.messages_margin, found.bytes_margin, found.changed_margin),
        means, errors, strict=True,
    ):  # fmt: skip
        allowed = 4.5 * error + 2.3 * around
        assert abs(value - mean) <= allowed
        assert value / 3 > allowed
    other = Habits(requests=1, private=0.2, run=6.0)
    away = simulated_days(other, plans, 2_000, random.Random(4))[:, 0].mean()
    assert abs(found.messages - away) > 4.5 * errors[0] + 2.3 * found.messages_margin


def test_sensitive_sources_cost_what_the_long_run_costs():
    from onoff.apps.everydayrates import everyday_rates
    from onoff.types import quiet

    found = ways(estimate(CHAIN, AT_ONCE, sensitive=["0"], streams=3))
    mean, around = everyday_rates(CHAIN, [1], ["0"], streams=3, announced=False, bar=quiet).long_run
    assert (found["sensitive"].messages, found["sensitive"].messages_margin) == pytest.approx((10 * mean, 10 * around))
    assert found["sensitive"].bytes is None


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"private": 0.0}, "is not possible"),
        ({"private": 0.9, "run": 2.0}, "is not possible"),
        ({"requests": 0}, "at least one request"),
    ],
)
def test_habits_that_cannot_be_are_refused(words, told):
    with pytest.raises(OnoffError, match=told):
        Habits(**words)


def test_the_command_shows_one_screen_and_says_where_a_simpler_way_is_as_cheap(tmp_path):
    Chain.symmetric(4, 0.4, ("a", "b", "c", "d")).save(tmp_path / "chain.json")
    words = ["estimate", "chain.json", "--streams", "2", "--sensitive", "a", "--lengths", "30000", "--changes", "0.02"]
    shown = call(*words, cwd=tmp_path, check=True).stdout
    assert sum(1 + (len(line) - 1) // 80 for line in shown.splitlines()) <= 25
    for name, words_for in RIGHT_FOR.items():
        assert words_for in shown, name
    assert "12,000,000" in shown  # ON all the time: 100 requests of 4 x 30,000 bytes
    verdict = next(line for line in shown.splitlines() if line.startswith("mirroring hides more and costs no more"))
    assert "up to 1 hour old" in verdict  # it is not as fresh as what it is compared with
    often = call(*words, "--mirror", "100", cwd=tmp_path, check=True).stdout
    for screen, name in (
        (shown, "mirroring: 24 a day, up to 1 hour old"),
        (often, "mirroring: 100 a day, up to 14 minutes old"),
    ):
        cells = [line.split("│")[1].strip() for line in screen.splitlines() if line.startswith("│")]
        assert " ".join(cells).endswith(name)  # the last row, on however many lines
    found = json.loads(call(*words, "--json", cwd=tmp_path, check=True).stdout)
    assert [way["name"] for way in found["ways"]] == ["openly", "past", "sensitive", "both", "on", "mirror"]
    sources = {name: {"length": 30_000, "visits": 50, "changes": 0} for name in "abcd"}
    (tmp_path / "measured.json").write_text(json.dumps({"format": "onoff-measured", "version": 1, "sources": sources}))
    measured = [word if word != "30000" else "measured.json" for word in words[:-2]]
    assert json.loads(call(*measured, "--json", cwd=tmp_path, check=True).stdout) == found  # 1 of 50 is 0.02
    (tmp_path / "lengths.json").write_text(json.dumps(dict.fromkeys("abcd", 7)))
    for more, told in (
        (["--lengths", "-1"], "the length is -1"),
        (["--lengths", "none.json"], "none.json: cannot be read"),
        (["--changes", "1.5"], "the chance to change is 1.5"),
        (["--lengths", "lengths.json", "--private", "0"], "is not possible"),
    ):
        done = call("estimate", "chain.json", *more, cwd=tmp_path)
        assert (done.returncode, told in done.stderr, done.stderr.count("\n")) == (2, True, 1), done.stderr


def test_a_chain_is_fitted_to_a_log(tmp_path):
    rng = random.Random(1)
    (tmp_path / "log.csv").write_text("time,page\n" + "".join(f"{t},{rng.choice('abc')}\n" for t in range(300)))
    done = call("estimate", "log.csv", "--log", "--streams", "2", "--json", cwd=tmp_path, check=True)
    assert json.loads(done.stdout)["sources"] == 3
    assert "one user" in done.stderr
