"""The server's log against the journal: sets, versions, sendings, other streams; random numbers; honest streams."""

from __future__ import annotations

import itertools
import math
import random
from itertools import pairwise
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest

from forgery import forged
from onoff import Chain, OnoffError
from onoff.audit.files import read_journal, read_log
from onoff.audit.law import Law
from onoff.audit.numbers import Bets, redraws
from onoff.client import promises
from onoff.client.journal import Journal
from oracles import random_chain
from pastkit import habits
from replaykit import CHAIN, CheapestPlan, life, race, write_lines
from sampling import LONG

HONEST = 60 if LONG else 6  # streams of each promise, and of habits with memory
MODES = {
    "both": [{}, {"first_ever": True}, {"planner": CheapestPlan(race())}, {"cache": 0}, {"private": 0.6}],
    "past": [{}, {"sensitive": ()}, {"private": 0.0}, {"cache": 60}, {"chain": random_chain("sparse", 5, 2)}],
    "memory": [{}, {"sensitive": (), "first_ever": True}, {"chain": habits(3, 3, 2, full=True, zeros=False)},
               {"chain": habits(5, 3, 4), "private": 0.05}, {"chain": habits(3, 2, 5, full=True), "sensitive": (0, 2)}],
}  # fmt: skip


@pytest.mark.parametrize("promise", MODES)
def test_honest_streams_with_kills_lost_answers_restarts_and_changed_messages_raise_no_alarm(tmp_path, promise):
    for seed, options in zip(range(HONEST), itertools.cycle(MODES[promise]), strict=False):
        made = life(tmp_path, promise, name=f"journal{seed}", seed=seed, **options).live(60)
        found = made.audit()
        assert (found.word, found.drawn) == ("PASSED", found.off), (seed, str(found))
        assert len(made.lines) > 60
        assert options.get("cache") == 0 or any(any(line["held"]) for line in made.lines)


@pytest.fixture(params=["both", "past", "memory"])
def made(request, tmp_path):
    return life(tmp_path, request.param, kills=0.0, losses=0.0, seed=4).live(40)


def partly(made):
    """An OFF step whose set is neither one source nor all, with a version named and one not."""
    n = made.chain.n
    return next(t for t, line in enumerate(made.lines) if 1 < len(line["sources"]) < n and any(line["held"]))


def changed(made, at, **change):
    return made.change_log(lambda lines: [*lines[:at], {**lines[at], **change}, *lines[at + 1 :]]).audit()


def test_a_set_or_an_order_that_is_not_the_journals_is_found(made):
    at = partly(made)
    line = made.lines[at]
    full = tuple(range(made.chain.n))
    assert place(changed(made, at, sources=list(full), held=[0] * len(full))) == (at, "log")
    turned = {"sources": line["sources"][::-1], "held": line["held"][::-1]}
    found = changed(made, at, **turned)
    assert place(found) == (at, "log")
    assert "another order" in found.first.message


def place(found):
    return found.first.step, found.first.rule


LIES = {
    "all but the wanted": lambda source, version, wanted: 0 if source == wanted else version,
    "one that was never received": lambda source, version, wanted: version or 1,
}


@pytest.mark.parametrize("lie", LIES)
def test_versions_that_are_not_those_held_are_found_at_the_first_one(made, lie):
    requests = [step.request for step in made.steps()]

    def lied(lines):
        return [
            {**line, "held": [LIES[lie](s, v, requests[t]) for s, v in zip(line["sources"], line["held"], strict=True)]}
            for t, line in enumerate(lines)
        ]

    found = made.change_log(lied).audit()
    first = next(t for t, (a, b) in enumerate(zip(made.lines, lied(made.lines), strict=True)) if a != b)
    assert place(found) == (first, "versions")


def test_a_version_that_was_evicted_must_not_be_named(tmp_path):
    """What does not fit the cache is forgotten, the largest first, whatever is read."""
    made = life(tmp_path, cache=60, kills=0.0, losses=0.0).live(30)
    newest = {}
    for at, (line, step) in enumerate(zip(made.lines, made.steps(), strict=True)):
        named = [newest.get(source, 0) for source in line["sources"]]
        if named != line["held"]:
            assert place(changed(made, at, held=named)) == (at, "versions")
            return
        newest.update({source: int(version.split()[0]) for source, version, _ in step.received})
    raise AssertionError("nothing was evicted")


def test_a_step_that_is_missing_or_too_many_or_out_of_order_is_found(made):
    at = partly(made)
    assert place(made.change_log(lambda lines: [*lines[:at], *lines[at + 1 :]]).audit()) == (at, "log")
    assert place(made.change_log(lambda lines: [*lines, {**lines[-1], "step": 40}]).audit()) == (40, "log")
    again = made.change_log(lambda lines: [*lines[:30], *lines[25:]]).audit()
    assert place(again) == (25, "log")
    assert made.change_log(lambda lines: lines).audit().word == "PASSED"


def test_steps_before_and_after_a_log_that_was_cut_are_not_checked_and_the_others_are(made):
    found = made.change_log(lambda lines: lines[10:30]).audit()
    assert (found.word, [step for step, _ in found.unchecked]) == ("NO VERDICT", [*range(10), *range(30, 40)])
    assert "the log begins after it or ends before it" in str(found)
    assert place(made.change_log(lambda lines: [*lines[10:20], *lines[21:]]).audit()) == (20, "log")


def test_a_step_that_is_still_pending_may_be_missing_in_the_log(tmp_path, made):
    live = life(tmp_path, name="pending", kills=0.0, losses=0.0, restarts=0.0)
    live.answer = lambda: None if live.t == 9 else type(live).answer(live)
    live.live(10)
    assert len(live.steps()) == 10
    assert live.audit().word == "PASSED"
    assert live.change_log(lambda lines: lines[:-1]).audit().word == "PASSED"
    assert made.change_log(lambda lines: lines[:-1]).audit().unchecked[0][0] == 39


def test_sendings_that_the_journal_does_not_count_are_found_and_counted_ones_are_not(tmp_path, made):
    at = partly(made)
    assert place(made.change_log(lambda lines: [*lines[: at + 1], *lines[at:]]).audit()) == (at, "log")
    lossy = life(tmp_path, name="lossy", losses=0.4).live(40)
    assert lossy.audit().word == "PASSED"
    assert "were sent again" in str(lossy.audit())
    fewer = lossy.change_log(lambda lines: [b for a, b in pairwise([{}, *lines]) if a.get("step") != b["step"]])
    assert fewer.audit().word == "PASSED"  # some never arrived


# Other streams in the log.


def test_queries_beside_the_stream_are_wrong_if_nobody_honest_can_have_sent_them(tmp_path):
    made = life(tmp_path, kills=0.0, losses=0.0).live(40)
    other = life(tmp_path, name="other", seed=8, kills=0.0, losses=0.0, chain=random_chain("sparse", 4, 2)).live(20)
    own, new = made.lines, other.lines
    requests = [step.request for step in made.steps()]
    openly = [{**line, "stream": "ab" * 16, "sources": [x], "held": [0]} for line, x in zip(own, requests, strict=True)]
    full = [{**line, "stream": "ab" * 16} for line in own[:2]]

    def said(lines, **options):
        found = made.change_log(lambda _: lines).audit(**options)
        return found.word, "" if found.first is None else found.first.message

    assert said([*own, *new])[0] == "PASSED"
    assert said([*new, *own])[0] == "PASSED"  # and two full sets begin this one
    turns = [line for pair in itertools.zip_longest(own, new) for line in pair if line]
    assert said(turns)[0] == "NO VERDICT"  # two honest readers, or one with two journals
    assert "give its journal (--other)" in str(made.audit())
    assert said(turns, others=[other.journal_file])[0] == "PASSED"  # of another chain
    assert "does not begin at step 0 with a full set" in said([*own, *openly])[1]
    assert said([*own, full[0], {**openly[1], "step": 1}])[0] == "NO VERDICT"  # a new reader's first journal, or a leak
    assert "leaves steps out" in said([*own, *full, openly[3]])[1]
    assert said([*own, *({**line, "client": "there"} for line in openly)])[0] == "PASSED"  # another reader


# Random numbers.


def modulo_bias(seed):
    """Enough bits and then the remainder: small numbers come twice as often as large ones."""
    source = random.Random(seed)
    return lambda bound: source.getrandbits(bound.bit_length()) % bound


def tired(seed):
    """A generator that gives the same number again and again before it moves on."""
    calls = itertools.count()
    return lambda bound: int(random.Random(seed + next(calls) // 10).random() * bound)


def test_a_number_that_comes_again_is_found_at_once(tmp_path):
    made = life(tmp_path, randbelow=tired(7)).live(60)
    bounds = [(step.step, step.numbers[0][0]) for step in made.steps() if step.numbers]
    at = next(
        step for (step, bound), (_, before) in zip(bounds[1:], bounds, strict=False) if min(bound, before) >= 2**46
    )
    assert place(made.audit()) == (at, "numbers")


@pytest.mark.parametrize("promise", ["both", "past"])
def test_numbers_of_another_journal_must_not_come_again(tmp_path, promise):
    """A generator that is seeded in secret from the step: one journal alone does not tell."""
    lives = []
    for name in ("first", "second"):
        one = life(tmp_path, promise, name=name, seed=9, restarts=0.0)
        one.randbelow = lambda bound, one=one: random.Random(f"secret {one.t}").randrange(bound)
        lives.append(one.live(40))
    first, second = lives
    assert second.audit().word == "PASSED"
    found = second.audit(others=[first.journal_file])
    at = next(step.step for step in second.steps() if step.numbers and step.numbers[0][0] >= 2**40)
    assert place(found) == (at, "numbers")
    assert "of the other journal 1" in found.first.message


def test_modulo_bias_in_a_journal_is_found_by_the_bet_and_the_step_is_named(tmp_path):
    """No draw is wrong by itself: the numbers up to this step are too small together."""
    quiet = {"private": 0.05, "restarts": 0.0, "losses": 0.0, "kills": 0.0}
    made = life(tmp_path, randbelow=modulo_bias(7), **quiet).live(1500)
    [found] = made.audit().findings
    shares = [number / bound for step in made.steps()[: found.step + 1] for bound, number in step.numbers]
    error = math.sqrt(1 / 12 / len(shares))
    assert found.rule == "numbers"
    assert "look chosen" in found.message
    assert np.mean(shares) < 0.5 - 3 * error


def test_no_gambler_expects_to_gain():
    """The expected factor over all numbers, and over all sets, is 1, whatever the gambler states: so Ville holds."""
    for bound in (1, 2, 5, 8):
        one = SimpleNamespace(step=0, query=())
        factors = []
        for number in range(bound):
            bets = Bets()
            list(bets.check(SimpleNamespace(**vars(one), numbers=((bound, number),)), None, None))
            factors.append(np.exp(bets.capitals))
        assert np.allclose(np.mean(factors, axis=0), 1, atol=1e-12)
    law, row = Law(((0,), (1,), (0, 1), (0, 1, 2)), (1, 1, 1, 1)), np.array([3, 0, 5, 2])
    factors = [redraws(row, law, query, (0, 1), 2) for query in law.sets]
    assert np.allclose(np.average(factors, axis=0, weights=row), 1, atol=1e-12)


def redraw(made, better):
    """A client that draws twice before it writes its journal, and keeps the one it likes better."""
    name = f"begin_{made.promise}"
    honest, sets = getattr(promises, name), [()]

    def begin(*given, **more):
        first, second = honest(*given, **more), honest(*given, **more)
        kept = second if first.numbers and better(second.pending.query, first.pending.query, sets[-1]) else first
        sets.append(kept.pending.query)
        return kept

    return patch.object(promises, name, begin)


@pytest.mark.parametrize("promise", ["both", "past"])
@pytest.mark.parametrize("way", [1, -1])
def test_a_client_that_draws_twice_in_secret_and_keeps_the_smaller_or_larger_set_is_found(tmp_path, promise, way):
    """Every draw that is noted is right: the bet on redraws finds it (12 of 12 streams: by step 225)."""
    made = life(tmp_path, promise, seed=2, restarts=0.0)
    made.live(500, [redraw(made, lambda second, first, _: way * len(second) < way * len(first))])
    [found] = made.audit().findings
    assert (found.rule, found.step < 300) == ("numbers", True)


def test_numbers_of_millions_of_digits_are_findings_and_no_crash(made):
    at = next(step.step for step in made.steps() if step.lag)
    for words in ('[["2^8000000", "0x1"]]', '[["0x1%s", "0x1"]]' % ("0" * 10**6), '[["2^99999999", "0x0"]]'):
        with forged(made.journal_file) as database:
            database.execute("UPDATE steps SET numbers = ? WHERE step = ?", (words, at))
        found = made.audit()
        assert place(found) == (at, "draw")
        assert len(found.first.message) < 300


# What was erased, and what cannot be read.


def erase(made, column, steps):
    with forged(made.journal_file) as database:
        database.execute(f"UPDATE steps SET {column} = NULL WHERE step < ?", (steps,))


@pytest.mark.parametrize("column", ["request", "numbers"])
def test_steps_whose_requests_or_numbers_were_erased_are_not_checked_and_the_others_are(made, column):
    erase(made, column, 20)
    found = made.audit()
    assert found.findings == ()
    erased = [step.step for step in made.steps() if step.lag or (column == "request" and not step.asked_private)]
    unchecked = list(dict.fromkeys(step for step, _ in found.unchecked))
    assert [step for step in erased if step < 20] == [step for step in unchecked if step < 20]
    later = [step for step in unchecked if step >= 20]
    until = next(step.step for step in made.steps() if step.step >= 20 and not step.lag)
    assert all(step < until for step in later), later
    assert found.word == "NO VERDICT"


def test_a_draw_beside_a_pending_step_is_found(made):
    """A client that does not like its set leaves the step pending and draws another one."""
    at = partly(made)
    with forged(made.journal_file) as database:
        database.execute("UPDATE steps SET cache = NULL, received = NULL WHERE step = ?", (at,))
    assert place(made.change_log(lambda lines: [*lines[:at], *lines[at + 1 :]]).audit()) == (at + 1, "pending")


def test_journals_that_cannot_be_read_are_one_sentence(made, tmp_path):
    for change, complaint in (
        ("UPDATE meta SET value = '4' WHERE key = 'version'", "is a journal of an older version"),
        ("UPDATE steps SET query = '[9]' WHERE step = 3", "step 3 is damaged: 9 is not a whole number"),
        ("UPDATE steps SET received = '[[0, 1, 2]]' WHERE step = 5", "step 5 is damaged: a version is no text"),
        ("UPDATE steps SET cache = NULL WHERE step = 2", "step 2 is damaged: what was received is not noted"),
        ("DELETE FROM steps WHERE step = 7", "or some are missing"),
        ("DELETE FROM steps", "there are no steps in"),
        ("UPDATE meta SET value = 'none' WHERE key = 'promise'", "the promise of this journal"),
    ):
        copy = tmp_path / f"copy{len(complaint)}"
        copy.write_bytes(made.journal_file.read_bytes())
        with forged(copy) as database:
            database.execute(change)
        before = copy.read_bytes()
        with pytest.raises(OnoffError, match=complaint) as caught:
            read_journal(copy, made.chain)
        assert str(caught.value).count("\n") == 0
        assert copy.read_bytes() == before
    (tmp_path / "text").write_text("text")
    for file, complaint in ((tmp_path / "text", "cannot be read as a journal"), (tmp_path / "none", "unable to open")):
        with pytest.raises(OnoffError, match=complaint):
            read_journal(file, made.chain)
    with pytest.raises(OnoffError, match="is the journal that is audited"):
        made.audit(others=[made.journal_file])


QUERY = {"stream": "ab" * 16, "step": 0, "sources": [0], "held": [0]}


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ([1, 2], "list indices"),
        ({**QUERY, "step": -1}, "-1 is not a whole number"),
        ({**QUERY, "sources": [4]}, "4 is not a whole number below 4"),
        ({**QUERY, "sources": [1, 1]}, "a source twice"),
        ({**QUERY, "held": [0, 0]}, "other versions than sources"),
        ({**QUERY, "stream": "x"}, "its stream is 'x'"),
        ({"catalogue": ["a", "b"]}, "the sources of this catalogue"),
    ],
)
def test_a_line_that_is_no_query_is_named(tmp_path, line, complaint):
    write_lines(tmp_path / "log", [{"catalogue": CHAIN.names}, line, QUERY])
    with pytest.raises(OnoffError, match=f"line 2.*{complaint}"):
        read_log(tmp_path / "log", CHAIN)


def test_damaged_lines_and_a_log_without_its_catalogue_are_refused(tmp_path, made):
    text = made.log_file.read_text().splitlines()
    for damage in (text[5][:30], "\0" * 40, text[5] + text[6], "[" * 100_000):
        made.log_file.write_text("\n".join([*text[:5], damage, *text[5:]]))
        with pytest.raises(OnoffError, match=r"line 6 is not one of a server's log: it is damaged\. Remove it"):
            made.audit()
    made.log_file.write_text("\n".join(text[1:]))
    with pytest.raises(OnoffError, match="line 1 should be"):
        made.audit()
    made.change_log(lambda lines: [{**line, "stream": "cd" * 16} for line in lines])
    with pytest.raises(OnoffError, match="is not in this log"):
        made.audit()
    (tmp_path / "log").write_text("")
    with pytest.raises(OnoffError, match="no queries in it"):
        read_log(tmp_path / "log", CHAIN)


def test_the_servers_own_order_of_sources_is_read_from_its_catalogue(made):
    n = made.chain.n
    order = [*range(1, n), 0]
    at = {source: i for i, source in enumerate(order)}

    def numbered(line):
        pairs = sorted((at[source], held) for source, held in zip(line["sources"], line["held"], strict=True))
        return {**line, "sources": [source for source, _ in pairs], "held": [held for _, held in pairs]}

    write_lines(made.log_file, [{"catalogue": [made.chain.names[x] for x in order]}, *map(numbered, made.lines)])
    assert made.audit().word == "PASSED"


@pytest.mark.parametrize("off", [True, False])
def test_an_off_request_that_the_chain_calls_impossible_is_found(made, off):
    """A full set needs no chain, so requests made ON may be any."""
    steps = made.steps()
    at = next(step.step for step in steps[3:] if (step.lag > 0) == off)
    P = made.chain.P.copy()
    state = made.chain.state_of([step.request for step in steps[:at]])
    P[state, steps[at].request] = 0.0
    P[state, (steps[at].request + 1) % made.chain.n] += 1.0
    made.chain = Chain(P / P.sum(axis=1, keepdims=True), made.chain.names, states=made.chain.states)
    with forged(made.journal_file) as database:
        database.execute("UPDATE meta SET value = ? WHERE key = 'chain'", (made.chain.fingerprint,))
    assert ((at, "chain") in [(found.step, found.rule) for found in made.audit().findings]) == off


# Failures


@pytest.mark.parametrize("promise", ["past", "both", "memory"])
def test_for_five_minutes_after_a_failure_all_is_asked_for_and_a_client_that_does_not_is_found(tmp_path, promise):
    """A step takes 100 seconds. Where it is not known on which side of the five minutes it was drawn, either passes."""

    def lived(name, *patches):
        made = life(tmp_path, promise, name=name, private=0.0, first_ever=True)
        made.fails = lambda t, x: t in (5, 12, 13)
        made.live(20, [patch("time.time", lambda: 1e9 + 100 * made.t), *patches])
        return made

    made = lived("honest")
    near = [step.step for step in made.steps() if step.step > 3 and not step.lag]
    assert near == [6, 7, 13, 14, 15]
    assert made.audit().word == "PASSED"
    with forged(made.journal_file) as database:  # a step is made longer: it may have been drawn when all was well
        database.execute("UPDATE steps SET ended = ended + 150 WHERE step = ?", (near[-1],))
    assert made.audit().word == "PASSED"
    found = lived("planted", patch.object(Journal, "failing", False)).audit()
    assert (found.first.step, found.first.rule) == (near[0], "status")


# The referee can be read in an hour.


def test_the_trusted_modules_import_little():
    """`files`, `law`, `rows`, `rules`, `replay`, `past`; `races` if one was run, `habits` for habits that change."""
    import ast
    from pathlib import Path

    import onoff.audit

    folder = Path(onoff.audit.__file__).parent
    trusted = ("files", "law", "rows", "rules", "replay", "past", "races", "habits")
    texts = [(folder / f"{name}.py").read_text() for name in trusted]
    others = {"onoff.errors", "onoff.types", "onoff.files", "onoff.model.chain"}
    for text in texts:
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("onoff"):
                assert node.module in {*(f"onoff.audit.{name}" for name in trusted), *others}
