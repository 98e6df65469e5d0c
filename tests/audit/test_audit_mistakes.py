"""Planted mistakes that once survived the audit: each must be found by the command that is said to find it.

Streams are made by the real session with the real plans, but for the mistake; journal, log and plans go through the
command. All seeds are fixed. The rate of false alarms is 1e-4 for draws, 1e-3 for choices and 1e-6 for races, and
`benchmarks/bench_audit.py` measures the power.
"""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from onoff.audit.models import Planned

import onoff.plans.file
from auditstreams import CHAIN, lines_of, models, plans, race, steps_of, write_files
from clikit import call
from onoff import Plan, plan
from onoff.audit.plan import audit_plan, races
from onoff.audit.plan import verify as planproof
from onoff.audit.transcript.attack import audit_stream, noted
from onoff.audit.transcript.choices import Orders, choices
from onoff.audit.transcript.draws import draws
from onoff.audit.transcript.gambling import Drawn, racers
from onoff.audit.transcript.mistakes import RATES, generators, mistakes
from onoff.audit.transcript.reading import Line, Step, read_transcript, streams
from onoff.errors import PlanError
from onoff.plans.race import RacePlan, _integers
from onoff.plans.table import TablePlan

FULL = tuple(range(CHAIN.n))


def unlikely_pair_as_full_set(plan, request, last, next, lag, below, step):  # noqa: ARG001
    return FULL if CHAIN.P[request, next] < 0.1 else plan.draw(request, last, next, lag, below)


def seeded(plan, request, last, next, lag, below, step):  # noqa: ARG001
    return plan.draw(request, last, next, lag, random.Random(f"{request} {step}").randrange)


def seeded_in_secret(plan, request, last, next, lag, below, step):  # noqa: ARG001
    return plan.draw(request, last, next, lag, random.Random(f"salt {request} {step}").randrange)


def singleton_redrawn(plan, request, last, next, lag, below, step):  # noqa: ARG001
    query = plan.draw(request, last, next, lag, below)
    return plan.draw(request, last, next, lag, below) if len(query) == 1 else query


def remembering():
    """A client that keeps its draws for ever."""
    kept = {}

    def draw(plan, request, last, next, lag, below, step):  # noqa: ARG001
        context = plan.name, request, last, next, lag
        return kept.setdefault(context, plan.draw(request, last, next, lag, below))

    return draw


def sometimes_openly(plan, request, last, next, lag, below, step):
    return (request,) if random.Random(f"openly {step}").random() < 0.02 else plan.draw(request, last, next, lag, below)


def plan_by_request(lag, request):
    return plans()[1] if request == 0 else plans()[min(lag, 2)]


def same_is_unknown(asked, request, following):
    return asked, None if following == request and not asked else following


def on_for_one_source(asked, request, following):
    return asked or request == 2, following


HONEST = steps_of(400, 11)
# Made when they are needed, not by every process that collects tests.
PLANTED = {
    "unlikely pair": (
        lambda: steps_of(200, 1, draw=unlikely_pair_as_full_set),
        "draws",
        "full sets in place of drawn ones",
    ),
    "seeded": (lambda: steps_of(100, 2, draw=seeded), "draws", "random.Random('{request} {step}')"),
    "singleton redrawn": (lambda: steps_of(1500, 3, draw=singleton_redrawn), "draws", "sets of one source drawn again"),
    "remembered": (lambda: steps_of(300, 4, draw=remembering()), "draws", "a draw remembered for its context"),
    "openly": (lambda: steps_of(2500, 5, draw=sometimes_openly), "draws", "steps asked openly"),
    "plan by request": (lambda: steps_of(300, 6, choose=plan_by_request), "choices", "the plan by the request"),
    "same is unknown": (
        lambda: steps_of(300, 7, change=same_is_unknown),
        "choices",
        "whether the next request is the same",
    ),
    "on for one source": (lambda: steps_of(300, 8, change=on_for_one_source), "choices", "going ON by the request"),
}


def audited(tmp_path, steps, *words, **options):
    done = call(*write_files(tmp_path, steps, **options), "--json", *words)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, json.loads(done.stdout)


def test_the_honest_stream_passes(tmp_path):
    code, found = audited(tmp_path, HONEST)
    assert code == 0, (found["findings"], found["breaches"], found["draws"], found["choices"])
    assert found["draws"]["tested"] > 200
    assert found["choices"]["p_value"] > 0.001


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.long if i % 6 else ()) for i, name in enumerate(PLANTED)],
)
def test_a_planted_mistake_is_found_in_the_transcript(tmp_path, name):
    steps, test, hint = PLANTED[name]
    code, found = audited(tmp_path, steps())
    assert code == 1
    assert found[test]["rejected"]
    assert hint in found[test]["hint"]
    rules = {breach["rule"] for breach in found["breaches"]}
    assert rules == ({"dearer"} if name == "plan by request" else set())


def test_a_generator_with_a_secret_seed_is_found_by_two_journals(tmp_path):
    """The same requests twice, by the same client; an honest one draws other numbers."""
    for draw, code in ((seeded_in_secret, 1), (None, 0)):
        directory = tmp_path / str(code)
        directory.mkdir()
        again = [random.Random(name).randrange for name in ("first", "second")]
        first, second = (steps_of(120, 9, below, draw=draw) for below in again)
        write_files(directory, second, "other")
        assert audited(directory, first)[0] == 0  # one journal alone does not tell
        found = call(*write_files(directory, first, "again"), "--other", directory / "other", "--json")
        assert found.returncode == code, found.stdout
        assert ("the other journal" in json.loads(found.stdout)["draws"]["hint"]) is (code == 1)


# Plans that cannot be certified, and contexts without an encoder.


def coarse(denominator):
    """The contents of a plan file whose law was rounded to so few units, signed anew."""
    import hashlib
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as directory:
        plans()[1].save(Path(directory) / "plan")
        data = json.loads((Path(directory) / "plan").read_text())
    shares = [mass / data["denominator"] for mass in data["masses"]]
    data["masses"] = [math.floor(share * denominator) for share in shares]
    data["masses"][-1] += denominator - sum(data["masses"])
    kept = [i for i, mass in enumerate(data["masses"]) if mass]
    data["sets"], data["masses"] = [data["sets"][i] for i in kept], [data["masses"][i] for i in kept]
    data["denominator"] = denominator
    data["certificate"] = {"kind": "outer", "cuts": [], "weights": [], "bound": 1.0}
    del data["checksum"]
    canonical = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return json.dumps({**data, "checksum": hashlib.sha256(canonical.encode()).hexdigest()}).encode()


def test_a_plan_of_few_units_is_not_certified_whether_it_can_be_loaded_or_not(tmp_path):
    file = tmp_path / "coarse.json"
    plans()[1].save(tmp_path / "whole.json")  # with its chain, for both
    file.write_bytes(coarse(1200))

    def refuse(_):
        raise PlanError("too coarse")

    for load in (Plan.load, refuse):
        assert "coarse" in {finding.rule for finding in audit_plan(CHAIN, file, load, draws=100).findings}
    file.write_bytes(coarse(2**34))
    units = [finding for finding in audit_plan(CHAIN, file, refuse, draws=100).findings if finding.rule == "coarse"]
    assert units == []  # 16 / 2^34 is below 2^-30


def test_a_transcript_of_an_uncertified_plan_fails_though_the_attack_finds_nothing(tmp_path):
    """A full set in units of 1/999 tells nothing; what its plan states would allow any leak."""
    made = replace(plan(CHAIN, 1, "everything"), masses=(999,), denominator=999)
    steps = steps_of(100, 1, choose=lambda lag, request: made)
    code, found = audited(tmp_path, steps, kept=[made])
    assert code == 1
    assert any("not certified: coarse" in text or "cannot be used" in text for text in found["findings"])
    assert not found["clean"]


def test_an_allowance_of_one_or_more_is_a_failure(tmp_path, monkeypatch):
    monkeypatch.setattr(TablePlan, "rounding_at", lambda self, lag: 1e-4)
    monkeypatch.setattr(onoff.plans.file, "MAX_ROUNDING", 1.0)  # or such plans would not even be read
    done = call(*write_files(tmp_path, HONEST))
    assert done.returncode == 1
    assert "SAYS NOTHING: an allowance of 1 or more" in done.stdout
    assert "tells nothing about private requests" not in done.stdout.split("naive client:")[0]


def test_an_audit_without_findings_is_not_clean_if_anything_would_be_allowed(monkeypatch):
    steps = HONEST[:100]
    audits = []
    for stated in (1e-14, 1e-4):
        monkeypatch.setattr(TablePlan, "rounding_at", lambda self, lag, stated=stated: stated)
        expected = noted(CHAIN, steps, plans().values())
        audits.append(audit_stream(CHAIN, lines_of(steps), expected, [step.request for step in steps]))
    assert [(audit.findings, audit.clean) for audit in audits] == [((), True), ((), False)]
    assert audits[1].log.verdict.allowed >= 1


def refusing_plan():
    """The law of a larger lag: some contexts have no encoder."""
    made = plans()[2]
    return replace(made, lag=1, certificate=replace(made.certificate, bound=1.0))


def test_a_plan_error_turned_into_the_full_set_is_proof(tmp_path):
    """In a context without an encoder the plan cannot have drawn anything."""
    made, refused = refusing_plan(), []

    def draw(plan, request, last, next, lag, below, step):
        try:
            return plan.draw(request, last, next, lag, below)
        except PlanError:
            refused.append(step)
            return FULL

    steps = steps_of(60, 1, choose=lambda lag, request: made, draw=draw)
    assert 0 < len(refused) < 40
    found = draws(steps, {made.name: Planned(made)})
    assert (found.impossible, found.rejected) == (tuple(refused), True)
    code, told = audited(tmp_path, steps, kept=[made])
    assert code == 1
    assert any("not certified" in text or "cannot be used" in text for text in told["findings"])


# `draw` itself, with injected bits.


@pytest.mark.parametrize("mistake", [unlikely_pair_as_full_set, seeded, singleton_redrawn], ids=lambda f: f.__name__)
def test_audit_plan_and_joint_call_draw_itself(tmp_path, monkeypatch, mistake):
    honest = TablePlan.draw

    def wrong(self, request, last, next, lag=None, randbelow=random.randrange):
        given = SimpleNamespace(name=self.name, draw=lambda *context: honest(self, *context))
        return mistake(given, request, last, next, lag, randbelow, 0)

    write_files(tmp_path, HONEST[:3])
    audit_plan = "audit", "plan", tmp_path / "chain.json", tmp_path / "plans"
    audit_joint = "audit", "joint", tmp_path / "chain.json", "--statuses", "100", "--scheme", "optimal"
    assert call(*audit_plan).returncode == 0
    assert call(*audit_joint).returncode == 0
    monkeypatch.setattr(TablePlan, "draw", wrong)
    done = call(*audit_plan)
    assert (done.returncode, "draw: for the request" in done.stdout) == (1, True)
    done = call(*audit_joint)
    assert (done.returncode, "NOT DRAWN AS STATED" in done.stdout) == (1, True)


# Races.


def without_request(self, request, last, lag, randbelow):
    """Where the reader may have been, whatever is asked for."""
    weights = _integers(self._walks.row(last, lag - self.lag) * (self._walk[:, request] > 0))
    ends = np.cumsum(np.array(weights, dtype=object))
    return int(np.searchsorted(ends, randbelow(int(ends[-1])), side="right"))


@pytest.mark.long
def test_a_race_whose_past_is_drawn_without_the_request_is_found_by_plan_and_joint(tmp_path, monkeypatch):
    """A race is drawn at the next lag by default, by 20,000 draws; here by fewer, in small."""
    assert planproof.DRAWS == 20_000
    CHAIN.save(tmp_path / "chain.json")
    race().save(tmp_path / "race.plan.json")
    audit_plan = "audit", "plan", tmp_path / "chain.json", tmp_path / "race.plan.json", "--draws", "8000"
    audit_joint = "audit", "joint", tmp_path / "chain.json", "--statuses", "100", "--scheme", "race"
    small = "--draws", "100", "--tried", "8000"
    assert call(*audit_plan).returncode == 0
    assert call(*audit_joint, *small).returncode == 0
    monkeypatch.setattr(RacePlan, "_earlier", without_request)
    done = call(*audit_plan)
    assert (done.returncode, "race law:" in done.stdout) == (1, True)
    done = call(*audit_joint, *small)
    assert (done.returncode, "NOT DRAWN AS STATED" in done.stdout) == (1, True)


@pytest.mark.long
def test_steps_of_races_are_tested_by_fresh_draws(tmp_path):
    """Of a client that has no other plan: honest, remembering, and asking openly at one step in five."""

    def openly(plan, request, last, next, lag, below, step):
        return (request,) if step % 5 == 0 else plan.draw(request, last, next, lag, below)

    def raced(lag, request):  # noqa: ARG001
        return race()

    known, below = {race().name: race()}, random.Random(1).randrange
    honest = steps_of(60, 1, choose=raced)
    found = draws(honest, {}, races=known, randbelow=below)
    assert (found.rejected, found.raced, found.untested) == (False, found.tested, 0)
    for draw, hint in ((openly, "openly"), (remembering(), "remembered")):
        found = draws(steps_of(150, 2, choose=raced, draw=draw), {}, races=known, randbelow=below)
        assert found.rejected
        assert hint in found.hint
    code, told = audited(tmp_path, honest, "--draws", "500")
    assert (code, told["draws"]["raced"], told["draws"]["untested"]) == (0, found_off(honest), 0)
    assert told["outcome"]["untested"] == [f"what {found_off(honest)} OFF steps tell, which cannot be attacked"]


def found_off(steps):
    return sum(step.lag > 0 for step in steps)


def test_lags_are_compared_as_wholes():
    """All contexts of a lag are a little off, none of them much: seen together only."""
    rng = np.random.default_rng(2)
    places = tuple(races.Place(1 + (x >= 10), x % 10, 0) for x in range(20))
    chances = np.where(np.arange(20) < 10, 0.5, 0.57)[:, None, None]
    uneven = races.same_law(races.Sample(places, rng.random((20, 500, 6)) < chances, None))
    assert uneven is not None
    assert uneven.whole
    assert races.same_law(races.Sample(places, rng.random((20, 500, 6)) < 0.5, None)) is None


# The bets are fair, and the orders are uniform.


OTHER = Drawn(HONEST[9], 0, 1, np.array([1, 2]), np.array([1, 1]), 1, 0, ((0,), (0, 1)), CHAIN.n, np.ones((4, 2)))


@pytest.mark.parametrize(
    "table", [mistakes, generators, lambda: mistakes([{9: OTHER}])[-4:]], ids=["named", "seeds", "other"]
)
def test_no_bet_on_a_named_mistake_expects_to_gain(table):
    """The exact expectation of the second draw in a context, after the likeliest set has come: no more than before."""
    model = next(iter(models().values()))
    encoder = model.encoder(1, 2, 1)
    sizes = np.array([len(query) for query in encoder.sets])
    for request in range(CHAIN.n):
        row = encoder.weights[request]
        step = replace(HONEST[9], request=request, next=2)

        def drawn(index, row=row, step=step):
            def other(last, following, lag):
                return model.encoder(last, following, lag).weights[step.request]

            context = encoder.sets, CHAIN.n, encoder.weights, other, 0, 3
            return Drawn(step, 1, 1, sizes, row, int(index), 0, *context)

        for number in range(len(table())):
            before, after = table()[number], 0.0
            before.bet(drawn(row.argmax()))
            for i in np.flatnonzero(row):
                bet = table()[number]
                bet.bet(drawn(row.argmax()))
                bet.bet(drawn(i))
                after += row[i] / row.sum() * math.exp(bet.log_capital)
            assert after <= math.exp(before.log_capital) * (1 + 1e-9)
    assert max(RATES) < 1


def test_a_bag_is_fair_whatever_the_law_is():
    """Each member of the bag is equally likely to be the one that came: the mean capital over them is 1."""
    bag = [(0,), (0, 1), (0, 1), (2, 0), (0, 1, 2, 3)]
    sets = sorted(set(bag))
    weights, sizes = np.array([bag.count(query) for query in sets]), np.array([len(query) for query in sets])
    step = Step(5, False, False, 1, "race, lag 1", (), 0, 1)
    for number in range(len(racers())):
        expected = 0.0
        for query in bag:
            bet = racers()[number]
            for index in (0, sets.index(query)):
                bet.bet(Drawn(step, 1, 1, sizes, weights, index, 0, sets, 4))
            start = racers()[number]
            start.bet(Drawn(step, 1, 1, sizes, weights, 0, 0, sets, 4))
            expected += math.exp(bet.log_capital - start.log_capital) / len(bag)
        assert expected == pytest.approx(1)


def test_orders_with_the_same_transitions_are_drawn_alike():
    from collections import Counter
    from itertools import pairwise, product

    path = [0, 1, 0, 0, 1, 1, 0, 2, 0]
    alike = [p for p in product(range(3), repeat=9) if p[0] == 0 and Counter(pairwise(p)) == Counter(pairwise(path))]
    rng, orders = random.Random(1), Orders(path)
    counts = Counter(tuple(orders.draw(rng)) for _ in range(2400))
    assert set(counts) == set(alike)
    chi = sum((count - 2400 / len(alike)) ** 2 for count in counts.values()) / (2400 / len(alike))
    assert chi < 58  # of 23 degrees of freedom: beyond that with a chance of 1 in 10,000


@pytest.mark.parametrize("ago", [1, 2])
def test_going_on_because_of_an_earlier_request_is_found(ago):
    asked = []

    def on_after_one_source(private, request, following):
        asked.append(request)
        return private or (len(asked) > ago and asked[-1 - ago] == 1), following

    found = choices(steps_of(150, 8, change=on_after_one_source), 3)
    assert found.rejected
    assert found.hint == ("going ON by the request before" if ago == 1 else "going ON by the request two before")


def test_choices_that_do_not_follow_the_requests_raise_alarms_as_rarely_as_stated():
    """At a rate of 10 %: of 60 honest streams more than 16 alarm with a chance below 1e-4."""
    alarms = sum(choices(steps_of(60, seed), seed, false_alarm=0.1).rejected for seed in range(60))
    assert alarms <= 16


# Streams with names, and damaged lines.


def named(step, *sources, stream="a" * 32, client="here"):
    return Line(step, sources, client, stream=stream)


def test_streams_with_names_are_told_apart_by_them_alone():
    lines = [named(0, 0), named(0, 0, stream="b" * 32), named(1, 1, client="there"), named(1, 0, stream="b" * 32)]
    assert [[(line.step, line.client) for line in one] for one in streams(lines)] == [
        [(0, "here"), (1, "there")],
        [(0, "here"), (1, "here")],
    ]


def test_a_step_of_a_named_stream_that_was_asked_twice_is_a_finding_whose_ever_it_is(tmp_path):
    words = write_files(tmp_path, HONEST[:60])
    log = tmp_path / "journal.log"
    lines = log.read_text()
    other = {"stream": "b" * 32, "client": "there"}
    twice = [{"step": 0, "sources": [0, 1, 2, 3]}, {"step": 1, "sources": [0, 1, 2, 3]}, {"step": 1, "sources": [0, 1]}]
    log.write_text(lines + "".join(json.dumps({**one, **other}) + "\n" for one in twice[:2]))
    assert call(*words).returncode == 0
    log.write_text(lines + "".join(json.dumps({**one, **other}) + "\n" for one in twice))
    done = call(*words)
    assert done.returncode == 1
    assert f"{'b' * 32}: step 1 was asked twice with different bytes (lines 63 and 64)" in done.stdout


def test_a_journal_whose_stream_is_not_in_the_log_is_a_finding(tmp_path):
    words = write_files(tmp_path, HONEST[:60])
    log = tmp_path / "journal.log"
    identity = json.loads(log.read_text().splitlines()[1])["stream"]
    log.write_text(log.read_text().replace(identity, "c" * 32))
    done = call(*words)
    assert done.returncode == 1
    assert f"the journal's stream {identity} is not in the log" in done.stdout


def test_a_damaged_line_is_named_and_the_others_are_looked_at(tmp_path):
    words = write_files(tmp_path, HONEST[:60])
    log = tmp_path / "journal.log"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([*lines[:20], lines[20][:30], *lines[21:]]))  # half a line, and the next glued to it
    read = read_transcript(log, CHAIN)
    assert len(read.lines) == 58
    [damage] = read.damaged
    assert damage.startswith("line 21 is damaged")
    done = call(*words)
    assert done.returncode == 1
    assert "finding: line 21 is damaged" in done.stdout
    log.write_bytes(b"".join([*lines[:20], b"\xff\xfe\n", *lines[20:]]))
    assert [text.split(",")[0] for text in read_transcript(log, CHAIN).damaged] == ["line 21 is damaged"]
