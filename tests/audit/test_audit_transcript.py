from __future__ import annotations

import json
import random
import shutil
import sqlite3
from contextlib import closing

import numpy as np
import pytest

from clikit import call
from onoff import Chain, plan
from onoff.audit.models import Everything, Naive
from onoff.audit.transcript.attack import audit_stream, noted, pick
from onoff.audit.transcript.belief import Asked
from onoff.audit.transcript.evidence import read_statuses, read_truth
from onoff.audit.transcript.reading import Line, Step, read_journal, read_log, streams
from onoff.client.journal import Journal
from onoff.client.protocol import State, begin, finish
from onoff.errors import OnoffError
from onoff.plans.race import race_plan
from onoff.plans.store import PlanStore

CHAIN = Chain([[0.2, 0.3, 0.5], [0.6, 0.2, 0.2], [0.1, 0.1, 0.8]], ("a", "b", "c"))


ORDER = {"catalogue": CHAIN.names}


def write(path, *lines):
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def test_a_log_is_read_in_the_order_of_its_catalogue(tmp_path):
    file = write(
        tmp_path / "log",
        ORDER,
        {"time": 1.5, "step": 0, "sources": [0, 2], "client": "x"},
        {"catalogue": ["c", "a", "b"]},
        {"time": 2, "step": 1, "sources": [0, 1], "client": None, "damaged": True, "unread": True},
    )
    assert read_log(file, CHAIN) == (Line(0, (0, 2), "x", 1.5), Line(1, (2, 0), None, 2.0, True, True))


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('{"step": 1, "sour', "line 2 is damaged"),
        ('{"step": 1, "sour{"step": 1, "sources": [0]}', "line 2 is damaged"),
        ('{"step": 1, "sources": [0]}{"step": 2, "sources": [0]}', "line 2 is damaged"),
        ("\0" * 40, "line 2 is damaged"),
        ("[" * 100_000, "line 2 is damaged"),
        ('{"step": 1, "sources": [0], "time": 1' + "0" * 400 + "}", "line 2: the time"),
        ([1, 2], "line 2 is not a query"),
        ({"step": 1}, "line 2 is not a query"),
        ({"step": -1, "sources": [0]}, "line 2: the step"),
        ({"step": True, "sources": [0]}, "line 2: the step"),
        ({"step": 1, "sources": [3]}, "line 2: .* not a set of sources"),
        ({"step": 1, "sources": [1, 1]}, "line 2: .* not a set of sources"),
        ({"step": 1, "sources": []}, "line 2: .* not a set of sources"),
        ({"step": 1, "sources": [0], "client": 5}, "line 2: the client"),
        ({"step": 1, "sources": [0], "time": "now"}, "line 2: the time"),
        ({"step": 1, "sources": [0], "unread": 1}, "line 2: `damaged`"),
        ({"step": 1, "sources": [0], "stream": "x"}, "line 2: the stream"),
        ({"catalogue": ["a", "b"]}, "line 2: the sources of this catalogue"),
        ({"catalogue": "abc"}, "line 2: the catalogue is not a list"),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, complaint):
    with pytest.raises(OnoffError, match=complaint):
        read_log(write(tmp_path / "log", ORDER, line, {"step": 0, "sources": [0]}), CHAIN)


def test_a_log_without_the_line_that_says_what_its_numbers_mean_is_refused(tmp_path):
    query = {"step": 0, "sources": [0]}
    for lines in ([query], [query, ORDER], ['{"catalo', query]):
        with pytest.raises(OnoffError, match="Line 1 should be"):
            read_log(write(tmp_path / "log", *lines), CHAIN)
    with pytest.raises(OnoffError, match="name the transcript of an onoff server"):
        read_log(write(tmp_path / "log", "Serving HTTP on 127.0.0.1", '127.0.0.1 "GET /a HTTP/1.1" 200'), CHAIN)


def test_files_that_are_missing_or_empty_are_errors(tmp_path):
    for read in (read_log, read_truth, read_journal):
        with pytest.raises(OnoffError, match=r"cannot be read|there is no journal"):
            read(tmp_path / "none", CHAIN)
    for read in (read_log, read_truth):
        with pytest.raises(OnoffError, match="there are no"):
            read(write(tmp_path / "empty"), CHAIN)


def test_a_stream_begins_where_the_steps_of_a_client_go_back_to_0():
    steps = [("x", 0), ("x", 0), ("y", 0), ("x", 1), ("y", 1), ("x", 0), ("y", 2)]
    lines = [Line(step, (0,), client, float(i)) for i, (client, step) in enumerate(steps)]
    found = [[line.time for line in stream] for stream in streams(lines)]
    assert found == [[0, 1, 3], [2, 4, 6], [5]]
    assert [[line.time for line in stream] for stream in streams(lines, "y")] == [[2, 4, 6]]


def test_streams_of_one_address_that_take_turns_are_told_apart():
    """Two journals behind one address, in turns; all begin with full sets, so that only later queries differ."""
    full, a, b = (0, 1, 2), (0, 1), (0, 2)
    seen = [
        (0, full),
        (1, full),
        (0, full),
        (1, full),
        (2, a),
        (2, a),
        (2, b),
        (3, a),
        (3, b),
        (4, b),
        (4, a),
        (0, full),
    ]
    lines = [Line(step, sources, "x") for step, sources in seen]
    found = [[line.sources for line in one] for one in streams(lines, "x", noted=(full, full, a, a, a))]
    assert sorted(found) == sorted([[full, full, a, a, a, a], [full, full, b, b, b], [full]])
    one_after_the_other = [Line(step, full) for step in (0, 1, 2, 0, 1, 3, 4)]
    assert [[line.step for line in one] for one in streams(one_after_the_other)] == [[0, 1, 2, 3, 4], [0, 1]]
    lonely = tuple(Line(step, (x,)) for step, x in ((0, 0), (1, 1), (1, 2), (4, 1)))  # a redraw, and a step left out
    assert streams(lonely) == (lonely,)


def test_the_journal_is_read_while_its_client_has_it(tmp_path):
    journal = Journal(tmp_path / "journal", CHAIN.fingerprint, "catalogue")
    try:
        state = State()
        for request, following in ((1, 0), (0, 2), (2, None)):
            state, pending = begin(state, CHAIN, request, following, private=True, plan=None)
            journal.begin(state, pending, 3.0)
            state = finish(state)
        steps = read_journal(tmp_path / "journal", CHAIN)
    finally:
        journal.close()
    assert steps[0] == Step(0, True, True, 0, "everything", (0, 1, 2), 1, 0, 3.0)
    assert [(step.request, step.next) for step in steps] == [(1, 0), (0, 2), (2, None)]
    with pytest.raises(OnoffError, match="another chain"):
        read_journal(tmp_path / "journal", Chain.symmetric(3, 0.5))
    with pytest.raises(OnoffError, match="cannot be read as a journal"):
        read_journal(write(tmp_path / "other", "text"), CHAIN)


def test_the_truth_is_names_with_or_without_a_status(tmp_path):
    assert read_truth(write(tmp_path / "truth", "# mine", "b", "", "on c", "off a"), CHAIN) == (1, 2, 0)
    assert read_truth(write(tmp_path / "truth", "on c"), Chain.symmetric(2, 0.5, ("on c", "c"))) == (0,)
    with pytest.raises(OnoffError, match="line 2: no source is called 'd'"):
        read_truth(write(tmp_path / "truth", "a", "on d"), CHAIN)


def test_statuses_are_noughts_and_ones_in_a_string_or_a_file(tmp_path):
    assert read_statuses("101") == (True, False, True)
    assert read_statuses(str(write(tmp_path / "statuses", "10", "1"))) == (True, False, True)
    with pytest.raises(OnoffError, match="statuses are written"):
        read_statuses(str(write(tmp_path / "statuses", "1 0")))


@pytest.fixture(scope="module")
def stream(tmp_path_factory):
    """A chain, plans, a journal of 120 steps, and the server's log of them in the server's own order."""
    directory = tmp_path_factory.mktemp("stream")
    CHAIN.save(directory / "chain.json")
    store = PlanStore(CHAIN, directory / "plans")
    for lag in (1, 3):
        store.save(plan(CHAIN, lag))
    rng, draw = np.random.default_rng(4), random.Random(4).randrange
    path, statuses = CHAIN.simulate(120, rng), rng.random(120) < 0.4
    journal, lines = Journal(directory / "journal", CHAIN.fingerprint, "catalogue"), [{"catalogue": ["c", "a", "b"]}]
    for t, private in enumerate(statuses):
        state, lag = journal.state, journal.state.lag + 1
        following = int(path[t + 1]) if t < 119 else None
        made = store.load(3 if lag >= 3 else 1)
        state, pending = begin(state, CHAIN, int(path[t]), following, bool(private), made, draw)
        journal.begin(state, pending, made.cost if pending.lag else 3.0)
        journal.state = finish(state)
        sources = sorted((x + 1) % 3 for x in pending.query)
        lines += [{"time": t, "step": t, "sources": sources, "client": "here"}] * (2 if t == 7 else 1)
    journal.close()
    write(directory / "log", *lines)
    return directory


def options(stream):
    return "--chain", stream / "chain.json", "--journal", stream / "journal", "--plans", stream / "plans"


def test_our_log_tells_nothing_that_is_private_and_a_naive_one_does(stream, tmp_path):
    done = call("audit", "transcript", stream / "log", *options(stream), "--json", "--plot", tmp_path / "beliefs.png")
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["clean"]
    assert found["findings"] == []
    ours, naive = found["log"], found["naive"]
    assert (ours["attacked"], ours["unattacked"]) == (120, 0)
    assert ours["private"]["max_bits"] < 1e-12
    assert ours["p_value"] == 1
    assert ours["private"]["guessed"] == ours["private"]["guessed_before"]
    assert naive["succeeded"]
    assert naive["p_value"] <= 0.01
    assert naive["private"]["mean_bits"] > 0.05
    assert naive["open"]["guessed"] == 1
    assert 0.1 < ours["open"]["mean_bits"] < naive["open"]["mean_bits"]
    assert (tmp_path / "beliefs.png").stat().st_size > 10_000
    assert found["breaches"] == []
    assert not found["draws"]["rejected"]
    assert found["draws"]["tested"] > 50
    assert found["draws"]["untested"] == 0


def test_a_client_that_breaks_its_rules_or_draws_otherwise_is_called_so(stream, tmp_path):
    lines = (stream / "log").read_text().splitlines()
    full = json.dumps({"step": 20, "sources": [0, 1, 2], "client": "here"})
    late = write(tmp_path / "late", *lines, full)
    done = call("audit", "transcript", late, *options(stream))
    assert done.returncode == 1
    assert "rule broken (steps): step 20 comes after step 119" in done.stdout
    assert "sets: drawn as the plans say" in done.stdout
    assert len([text for text in done.stdout.splitlines() if "step 20" in text]) == 2  # the order, and the other set
    shutil.copy(stream / "journal", tmp_path / "journal")
    with closing(sqlite3.connect(tmp_path / "journal")) as database, database:
        database.execute("UPDATE steps SET query = json_array(request) WHERE lag > 0")
    openly = [
        {"step": step.step, "sources": list(step.query), "client": "here"}
        for step in read_journal(tmp_path / "journal", CHAIN)
    ]
    files = ("--chain", stream / "chain.json", "--journal", tmp_path / "journal", "--plans", stream / "plans")
    done = call("audit", "transcript", write(tmp_path / "open", ORDER, *openly), *files)
    assert done.returncode == 1
    assert "the rules of the client: none was seen broken" in done.stdout
    assert "sets: NOT drawn as the plans say" in done.stdout
    verdict, _, untested = done.stdout.splitlines()[-1].partition("; NOT TESTED: ")
    assert verdict == "AUDIT FAILED: the sets are not drawn as the plans say"
    assert untested == "the versions that queries name, which the log lacks"


def beside(stream, tmp_path, lines, *words):
    """The audit of a log that has these lines instead."""
    done = call("audit", "transcript", write(tmp_path / "other", ORDER, *lines), *options(stream), "--json", *words)
    return done.returncode, json.loads(done.stdout)


def line(step, *sources, client="here"):
    return {"step": step, "sources": list(sources), "client": client}


def test_queries_beside_the_stream_are_findings_unless_another_journal_can_have_sent_them(stream, tmp_path):
    """All in the order of the chain: steps redrawn, drawn again, asked on the side, after the end or from elsewhere."""
    steps = read_journal(stream / "journal", CHAIN)
    own = [line(step.step, *step.query) for step in steps]
    openly = [line(step.step, *([step.request] if step.query != (step.request,) else [0, 1, 2])) for step in steps]
    before = [line(t, 0, 1, 2) for t in range(30)]
    assert beside(stream, tmp_path, [*before[:25], *own])[0] == 0
    off = next(step.step for step in steps[4:] if len(step.query) < 3)
    redrawn = [*before[:off], *own[: off + 1], line(off, 0, 1, 2), *own[off + 1 :]]
    restored = [*before[:25], *own[:30], *openly[25:30], *own[30:]]
    shadow = [*before[:2], *own[:2], *(one for pair in zip(own[2:], openly[2:], strict=True) for one in pair)]
    turns = [*own[:10], *before[:2], *(one for pair in zip(own[10:], openly[2:112], strict=True) for one in pair)]
    after = [*own, *before[:2], *openly[2:60]]
    hasty = [*own, before[0], line(1, 0, 1)]
    moved = [*own[:70], *({**one, "client": "there", "sources": [0]} for one in own[70:])]
    for log, count, why in (
        (redrawn, 1, "they go on with a stream that began before this one"),
        (restored, 5, "they go on with a stream that began before this one"),
        (shadow, 118, "they go on with a stream that began before this one"),
        (turns, 112, "they take turns with this stream"),
        (after, 60, "these plans do not draw such sets"),
        (hasty, 2, "a new journal begins at step 0 with full sets"),
        (moved, 50, "a new journal begins at step 0 with full sets"),
    ):
        code, found = beside(stream, tmp_path, log)
        assert code == 1, why
        [*missing, finding] = found["findings"]
        assert missing == [] or (log is moved and "49 of the 120 steps of the journal" in missing[0])
        assert finding.startswith(f"{count} queries from ")
        assert why in finding
        assert not found["clean"]
    assert (found["other_lines"], found["not_in_stream"]) == (50, 49)  # the last step may be pending
    assert (
        "50 queries of other streams are in the log"
        in call("audit", "transcript", tmp_path / "other", *options(stream)).stdout
    )
    assert beside(stream, tmp_path, moved, "--client", "here", "--part")[0] == 0


def test_other_journals_and_other_readers_are_counted_and_in_order(stream, tmp_path):
    """An honest stream of a new journal in the middle or at the end; a longer one of another reader."""
    steps = read_journal(stream / "journal", CHAIN)
    own = [line(step.step, *step.query) for step in steps]
    laws = [PlanStore(CHAIN, stream / "plans").load(lag) for lag in (1, 3)]
    rng = np.random.default_rng(3)
    both = [(law.sets, np.array(law.masses) / law.denominator) for law in laws]
    drawn = [sets[rng.choice(len(sets), p=chances)] for sets, chances in both * 20]
    new = [line(t, *((0, 1, 2) if t < 2 or t % 5 == 0 else query)) for t, query in enumerate(drawn)]
    elsewhere = [line(t, *([0] if t else [0, 1, 2]), client="there") for t in range(200)]
    for log, count in (([*own, *new], 40), ([*own[:60], *new, *own[60:]], 40), ([*elsewhere, *own[:-1]], 200)):
        code, found = beside(stream, tmp_path, log)
        assert (code, found["findings"], found["other_lines"]) == (0, [], count)


def test_a_stream_that_takes_turns_is_in_order_if_its_journal_is_given(stream, tmp_path):
    steps = read_journal(stream / "journal", CHAIN)
    own = [line(step.step, *step.query) for step in steps]
    *_, journal, _, _ = changed_journal(stream, tmp_path, "query = '[0, 1, 2]' WHERE step >= 0")
    turns = [line(t, 0, 1, 2) for t in range(3)] + own[:50] + [line(t, 0, 1, 2) for t in range(3, 9)] + own[50:]
    code, found = beside(stream, tmp_path, turns)
    assert (code, len(found["findings"])) == (1, 1)
    code, found = beside(stream, tmp_path, turns, "--other", journal)
    assert (code, found["findings"], found["other_lines"]) == (0, [], 9)
    redrawn = [*turns, line(9, 1, 2)]
    assert beside(stream, tmp_path, redrawn, "--other", journal)[0] == 1


def changed_journal(stream, tmp_path, change):
    """A copy of the journal with all its steps changed, and the options that name it."""
    shutil.copy(stream / "journal", tmp_path / "journal")
    with closing(sqlite3.connect(tmp_path / "journal")) as database, database:
        database.execute(f"UPDATE steps SET {change}")
    return "--chain", stream / "chain.json", "--journal", tmp_path / "journal", "--plans", stream / "plans"


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ("request = 99 WHERE step = 3", "row 4: the journal is damaged: request"),
        ("request = -1 WHERE step = 3", "row 4: the journal is damaged: request"),
        ("next = 99 WHERE step = 3", "row 4: the journal is damaged: next"),
        ("query = '[0,7]' WHERE step = 3", "row 4: the journal is damaged: query"),
        ("query = '[1,0]' WHERE step = 3", "row 4: the journal is damaged: query"),
        ("query = '[]' WHERE step = 3", "row 4: the journal is damaged: query"),
        ("query = '[0.0]' WHERE step = 3", "row 4: the journal is damaged: query"),
        ("""query = '{"a":1}' WHERE step = 3""", "row 4: the journal is damaged: query"),
        ("query = '[' WHERE step = 3", "row 4: the journal is damaged: query"),
        ("lag = -1, private = 2 WHERE step = 3", "row 4: the journal is damaged: private, lag"),
        ("step = 500 WHERE step = 3", "steps are missing"),
    ],
)
def test_a_damaged_journal_is_an_error_in_one_line(stream, tmp_path, change, what):
    done = call("audit", "transcript", stream / "log", *changed_journal(stream, tmp_path, change))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert what in done.stderr


def test_a_journal_whose_damaged_words_are_no_text_is_an_error_for_the_audit_and_for_fit(stream, tmp_path):
    files = changed_journal(stream, tmp_path, "lag = lag")
    journal = tmp_path / "journal"
    journal.write_bytes(journal.read_bytes().replace(b"CREATE TABLE steps", b"CREATE T\xffBLE steps"))
    for done in (
        call("audit", "transcript", stream / "log", *files),
        call("fit", journal, "-o", tmp_path / "chain.json"),
    ):
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert "cannot be read as a journal" in done.stderr


def test_a_journal_without_steps_or_with_damaged_notes_is_an_error(stream, tmp_path):
    files = changed_journal(stream, tmp_path, "lag = lag")
    for change, what in (
        ("INSERT INTO meta VALUES ('note lengths', 'xx')", "the lengths noted in this journal cannot be read: 'xx'"),
        ("UPDATE meta SET value = '5' WHERE key = 'note lengths'", "the lengths noted in this journal cannot be read"),
        ("UPDATE meta SET value = '[1, 2]' WHERE key = 'note lengths'", "2 lengths were given for 3 sources"),
        ("DELETE FROM steps", "there are no steps in this journal"),
    ):
        with closing(sqlite3.connect(tmp_path / "journal")) as database, database:
            database.execute(change)
        done = call("audit", "transcript", stream / "log", *files)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert what in done.stderr


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ("lag = lag + 1 WHERE lag > 0", "lag"),
        ("plan = 'optimal, lag 3' WHERE lag = 1", "plan"),
        ("query = '[0, 1]' WHERE step = 1", "full set"),
    ],
)
def test_a_broken_rule_does_not_stop_the_attack(stream, tmp_path, change, rule):
    """Lags and plans that are wrong in the journal are breaches with a name, not errors of the audit."""
    done = call("audit", "transcript", stream / "log", *changed_journal(stream, tmp_path, change))
    assert done.returncode == 1, done.stderr
    assert f"rule broken ({rule})" in done.stdout


def test_part_of_the_sources_asked_for_while_on_is_a_finding(stream, tmp_path):
    files = changed_journal(stream, tmp_path, "query = '[0, 1]' WHERE step = 1")
    steps = read_journal(tmp_path / "journal", CHAIN)
    lines = [{"step": step.step, "sources": list(step.query)} for step in steps]
    found = json.loads(call("audit", "transcript", write(tmp_path / "log", ORDER, *lines), *files, "--json").stdout)
    assert found["findings"][0] == "step 1: no client of this kind sends {a, b} there"


def test_requests_that_the_queries_rule_out_are_a_finding(stream, tmp_path):
    """The truth of another stream: sets without the request. JSON knows no infinity."""
    steps = read_journal(stream / "journal", CHAIN)
    off = next(step for step in steps if len(step.query) < 3)
    other = next(x for x in range(3) if x not in off.query)
    names = [CHAIN.names[other if step is off else step.request] for step in steps]
    truth = ("--truth", write(tmp_path / "truth", *names))
    done = call("audit", "transcript", stream / "log", *options(stream), *truth, "--json")
    assert done.returncode == 1
    found = json.loads(done.stdout, parse_constant=pytest.fail)
    assert found["findings"][0] == f"step {off.step}: with these queries {names[off.step]!r} cannot have been asked for"
    assert found["log"]["open"]["score"] is None


def test_what_could_not_be_attacked_is_not_called_private(stream, tmp_path):
    files = changed_journal(stream, tmp_path, "plan = replace(plan, 'optimal', 'race') WHERE lag > 0")
    done = call("audit", "transcript", stream / "log", *files)
    assert "this log: no OFF step could be attacked: this says nothing" in done.stdout
    assert "0 sets tested against plans" in done.stdout
    assert "naive client: BETRAYS private requests" in done.stdout


def test_where_nothing_can_be_told_the_exit_code_is_1(stream, tmp_path):
    """Without a journal, of a client with races alone: their sets are neither attacked nor tested."""
    steps = read_journal(stream / "journal", CHAIN)
    log = write(tmp_path / "log", ORDER, *(line(step.step, *(step.query if step.private else [0])) for step in steps))
    PlanStore(CHAIN, tmp_path / "plans").save(race_plan(CHAIN, 1))
    statuses = "".join("1" if step.private else "0" for step in steps)
    options = ("--chain", stream / "chain.json", "--statuses", statuses, "--plans", tmp_path / "plans")
    for more in ((), ("--json",)):
        done = call("audit", "transcript", log, *options, "--draws", "100", *more)
        assert done.returncode == 1, done.stdout
    assert "no OFF step could be attacked: this says nothing" in call("audit", "transcript", log, *options).stdout


def test_open_queries_under_the_name_of_an_unknown_plan_do_not_pass(stream, tmp_path):
    changes = "query = json_array(request), plan = 'optimal, lag 1, 0123456789abcdef' WHERE lag = 1"
    files = changed_journal(stream, tmp_path, changes)
    steps = read_journal(tmp_path / "journal", CHAIN)
    log = write(tmp_path / "log", ORDER, *(line(step.step, *step.query) for step in steps))
    done = call("audit", "transcript", log, *files)
    assert done.returncode == 1
    openly = sum(step.lag == 1 for step in steps)
    assert f"120 steps in the log: {120 - openly} attacked, {openly} not" in done.stdout
    assert "tell nothing" not in done.stdout
    assert "tells nothing" not in done.stdout
    assert f"; {openly} OFF steps were not attacked" in done.stdout
    assert f"rule broken (at hand): {openly} OFF steps" in done.stdout


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("race, lag 1, 0123456789abcdef", "at hand"),
        ("race, lag 0", "at hand"),
        ("race, lag 01", "plan"),  # no plan is called so
        ("race, fast, lag 1", "plan"),
    ],
)
def test_open_queries_under_the_name_of_a_race_that_is_none_do_not_pass(stream, tmp_path, name, rule):
    files = changed_journal(stream, tmp_path, f"query = json_array(request), plan = '{name}' WHERE lag > 0")
    steps = read_journal(tmp_path / "journal", CHAIN)
    log = write(tmp_path / "log", ORDER, *(line(step.step, *step.query) for step in steps))
    done = call("audit", "transcript", log, *files)
    assert done.returncode == 1
    assert f"rule broken ({rule})" in done.stdout


@pytest.mark.long
def test_open_queries_under_the_name_of_a_race_do_not_pass(stream, tmp_path):
    files = changed_journal(stream, tmp_path, "query = json_array(request), plan = 'race, lag 1' WHERE lag > 0")
    steps = read_journal(tmp_path / "journal", CHAIN)
    log = write(tmp_path / "log", ORDER, *(line(step.step, *step.query) for step in steps))
    done = call("audit", "transcript", log, *files)
    assert done.returncode == 1
    assert "NOT drawn as the plans say" in done.stdout


def test_the_log_of_a_naive_client_is_called_leaky_with_or_without_the_truth(stream, tmp_path):
    steps = read_journal(stream / "journal", CHAIN)
    log = write(
        tmp_path / "log",
        ORDER,
        *({"step": t, "sources": list(step.query) if step.private else [step.request]} for t, step in enumerate(steps)),
    )
    statuses = "".join("1" if step.private else "0" for step in steps)
    truth = write(tmp_path / "truth", *(CHAIN.names[step.request] for step in steps))
    common = ("audit", "transcript", log, "--chain", stream / "chain.json", "--statuses", statuses)
    done = call(*common, "--scheme", "naive")
    assert done.returncode == 1
    assert "this log: BETRAYS private requests" in done.stdout
    assert "naive client:" not in done.stdout
    assert "the rules and choices of a client that is not onoff's" in done.stdout.rpartition("NOT TESTED: ")[2]
    with common[2].open("a") as log:
        log.write('{"time": 1.0, "stream": "aa')
    number = len(common[2].read_text().splitlines())
    assert f"line {number} is damaged, and what it recorded is not known" in call(*common, "--scheme", "naive").stdout
    known = json.loads(call(*common, "--scheme", "naive", "--truth", truth, "--json").stdout)
    assert known["log"] == {**known["naive"], "p_value": known["log"]["p_value"]}
    decoys = call(*common, "--scheme", "decoys")  # of which there were 2, it seems from the first query: all sources
    assert decoys.returncode == 1
    assert "no client of this kind sends {" in decoys.stdout


def test_the_log_alone_with_statuses_and_plans_is_attacked_too(stream):
    steps = read_journal(stream / "journal", CHAIN)
    statuses = "".join("1" if step.private else "0" for step in steps)
    words = ("--chain", stream / "chain.json", "--plans", stream / "plans", "--statuses", statuses, "--json")
    found = json.loads(call("audit", "transcript", stream / "log", *words).stdout)
    assert found["log"]["p_value"] is None
    assert found["log"]["private"]["max_bits"] < 1e-12
    late = call("audit", "transcript", stream / "log", *words[:-2], f"0{statuses[1:]}")
    assert late.returncode == 2
    assert "privacy was never ON before it" in late.stderr
    short = call("audit", "transcript", stream / "log", *words[:-2], statuses[:-3])
    assert (short.returncode, short.stdout) == (2, "")
    assert "give one for each step" in short.stderr
    nowhere = call("audit", "transcript", stream / "log", *words[:2], "--plans", stream / "no", *words[4:])
    assert nowhere.returncode == 2
    assert "there is no such directory of plans" in nowhere.stderr
    assert not (stream / "no").exists()


def expected_of(stream):
    store = PlanStore(CHAIN, stream / "plans")
    return noted(CHAIN, read_journal(stream / "journal", CHAIN), [store.load(1), store.load(3)])


def test_steps_whose_plan_is_unknown_are_counted_not_attacked(stream):
    store = PlanStore(CHAIN, stream / "plans")
    expected = noted(CHAIN, read_journal(stream / "journal", CHAIN), [store.load(1)])
    missing = sum(step.lag >= 3 for step in expected)
    verdict = audit_stream(CHAIN, read_log(stream / "log", CHAIN), expected).log.verdict
    assert verdict.unattacked == missing > 0
    assert not verdict.succeeded


def test_a_log_that_differs_from_the_journal_is_a_finding(stream):
    lines, expected = read_log(stream / "log", CHAIN), expected_of(stream)
    full = (0, 1, 2)
    [off] = [line for line in lines if len(line.sources) < 3][:1]
    redrawn = audit_stream(CHAIN, [*lines[:50], Line(off.step, full), *lines[50:]], expected)
    assert [finding for finding in redrawn.findings if "asked twice" in finding]
    other = [Line(line.step, full) if line is off else line for line in lines]
    assert "the client noted" in audit_stream(CHAIN, other, expected).findings[0]
    beyond = audit_stream(CHAIN, [*lines, Line(120, full)], expected)
    assert beyond.findings == ("step 120 is in the log, but not known to the client",)
    assert not beyond.clean
    # What was noted but never sent is no part of the log, and neither is what the log has lost.
    assert audit_stream(CHAIN, lines[:100], expected).clean
    late = audit_stream(CHAIN, lines[60:], expected).log.verdict
    assert (late.attacked, late.unattacked) == (120 - lines[60].step, 0)
    assert late.private.requests + late.open.requests == late.attacked


def test_the_stream_that_fits_is_picked():
    full, model = (0, 1, 2), Everything(3)
    first = [Line(0, full, "a"), Line(1, (0, 1), "a"), Line(2, full, "a")]
    second = [Line(0, full, "a"), Line(1, (1,), "a"), Line(2, full, "a")]
    noted_down = [Asked(0, full, model), Asked(1, (0, 1), Naive(3)), Asked(0, full, model)]
    assert pick([first, second], noted_down) is first
    unknown = [Asked(step.lag, None, step.model) for step in noted_down]
    assert pick([first, second, first[:2]], unknown) is second
    with pytest.raises(OnoffError, match="no such client"):
        pick([], noted_down)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ((), "give --journal, or --statuses"),
        (("--statuses", "10", "--plot", "beliefs.png"), "--plot shows beliefs about the true requests"),
        (("--statuses", "10", "--plot", "beliefs.txt"), "a picture ends in"),
        (("--statuses", "12"), "cannot be read"),
        (("--statuses", "10", "--client", "there"), "no such client"),
        (("--statuses", "10"), "there are no plans for this chain"),
    ],
)
def test_what_is_missing_is_said_in_one_line(stream, tmp_path, words, complaint):
    words = (*words, "--plans", tmp_path)
    done = call("audit", "transcript", stream / "log", "--chain", stream / "chain.json", *words)
    assert list(tmp_path.iterdir()) == []  # an audit makes nothing
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert complaint in done.stderr
