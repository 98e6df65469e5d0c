"""`kill -9` of the client at every action on disk or network, then a restart that goes on: nothing is asked twice.

The client runs in processes of its own (crashing_client.py). After each kill the next process goes through the same
requests from where the journal stands; then the server's log is read as an adversary would read it.
"""

from __future__ import annotations

import itertools
import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from crashkit import BODIES, CHAIN, NAMES, OFF, ON, TREE, AnyServer, OwnServer
from onoff.client.journal import Journal
from onoff.client.laws import law_digest
from onoff.schemes.law import Law

# (source, announced next, status): a stream with two ON periods that ends while OFF.
ITEMS = [
    ("news", "news", OFF),  # made ON: nothing has counted as ON yet
    ("sports", "weather", ON),
    ("weather", "weather", OFF),
    ("weather", "science", OFF),
    ("science", "news", ON),
    ("news", "weather", OFF),
    ("weather", "sports", OFF),
]
STATUSES, LAGS = [ON, ON, OFF, OFF, ON, OFF, OFF], [0, 0, 1, 2, 0, 1, 2]
# On a desk every 21st action, or they take a minute. A step has ten: by and by each of them is hit.
STRIDE = 1 if os.environ.get("CI") == "true" else 21
COMMIT = ["commit", "pwrite", "pwrite"]  # to the journal, then its seal and its witness
IN_A_STEP = [*COMMIT, "send", "receive", *COMMIT, "deliver"]


# Each kind of server with each promise, and once with sensitive sources and a record for auditors.
BOTH, PAST = {}, {"promise": "past"}
MARKED = {"promise": "past", "sensitive": ["weather"], "record": True}
LONG = pytest.mark.long
WORLDS = [
    pytest.param((OwnServer, BOTH, CHAIN), marks=LONG),
    pytest.param((AnyServer, BOTH, CHAIN), marks=LONG),
    pytest.param((OwnServer, MARKED, CHAIN), marks=LONG),
    (OwnServer, MARKED, TREE),
    pytest.param((AnyServer, PAST, CHAIN), marks=LONG),
]


@pytest.fixture
def chain_file(tmp_path, server):
    server.chain.save(tmp_path / "chain.json")
    return str(tmp_path / "chain.json")


@pytest.fixture(params=WORLDS, ids=["own-both", "any-both", "own-past-sensitive", "own-past-tree", "any-past"])
def server(request, tmp_path):
    kind, promise, chain = request.param
    found = kind(tmp_path)
    found.chain = chain
    found.order.update(promise)
    yield found
    found.close()


def check_end(server, order):
    """Nothing was skipped, everything arrived, and the state is what the rules make of the stream."""
    chain = server.chain
    journal = Journal(order["journal"], chain.fingerprint, server.fingerprint)
    steps, state, public = list(journal.steps()), journal.state, journal.public_state(chain)
    latest = journal.read_body(journal.latest()[1].source)
    journal.close()
    assert [step.step for step in steps] == list(range(len(ITEMS)))
    assert [CHAIN.names[step.request] for step in steps] == [source for source, _, _ in ITEMS]
    assert [bool(step.private) for step in steps] == STATUSES
    assert [step.lag for step in steps] == LAGS
    assert all(len(step.query) == len(NAMES) for step in steps if step.private)
    check_numbers(order, steps)
    assert (state.step, state.lag, state.pending, state.owed) == (len(ITEMS), 2, None, 0)
    assert CHAIN.names[state.last] == "science"
    if order.get("promise") == "past":
        check_past(order, steps, state, public)
    else:
        assert CHAIN.names[state.announced] == "sports"
    assert latest == BODIES["weather"]
    arrived = [json.loads(line) for line in Path(order["received"]).read_text().splitlines()]
    first = {line["step"]: (line["source"], line["body"].encode()) for line in reversed(arrived)}
    assert first == {i: (source, BODIES[source]) for i, (source, _, _) in enumerate(ITEMS)}
    assert [line["step"] for line in arrived] == sorted(line["step"] for line in arrived)
    server.check([tuple(step.query) for step in steps])


def check_numbers(order, steps):
    """With every drawn query there are the random numbers of its draw, and the digest of its law if it has a table."""
    with closing(sqlite3.connect(f"file:{order['journal']}?mode=ro", uri=True)) as database:
        rows = database.execute("SELECT numbers, law FROM steps ORDER BY step").fetchall()
    has_law = "plans" in order or order.get("promise") == "past"
    for step, (text, law) in zip(steps, rows, strict=True):
        assert [number < bound for bound, number in json.loads(text)] == ([] if step.private else [True])
        assert (law is not None) == (has_law and not step.private)


def drawn_sets(order):
    """The sets of all steps of a journal."""
    with closing(sqlite3.connect(f"file:{order['journal']}?mode=ro", uri=True)) as database:
        return [json.loads(query) for (query,) in database.execute("SELECT query FROM steps ORDER BY step")]


def check_past(order, steps, state, public):
    """The reader's state is kept; of every OFF step the law was recorded, whole, before it was begun."""
    assert state.reader == public.habits.chain.state_of([step.request for step in steps])
    assert state.reader in public.state.candidates.states
    assert state.announced is None
    assert [step.next for step in steps] == [None] * len(steps)
    if "record" not in order:
        return
    laws = [json.loads(line)["law"] for line in Path(order["record"]).read_text().splitlines()]
    sets = {law_digest(Law.of_sets([*map(tuple, law["sets"])], law["masses"], len(NAMES))): law["sets"] for law in laws}
    assert sets.keys() == {step.law for step in steps if not step.private}
    assert all(step.private or list(step.query) in sets[step.law] for step in steps)
    assert state.rounding > 0


def new_order(server, chain_file, directory):
    directory.mkdir()
    files = {name: str(directory / name) for name in ("journal", "received", "log")}
    files |= {"record": str(directory / "record")} if "record" in server.order else {}
    server.forget()
    items = ITEMS
    if server.order.get("promise") == "past":
        items = [(source, None, private) for source, _, private in ITEMS]
    return {**server.order, **files, "chain": chain_file, "items": items}


def without_record(actions):
    """What is left of the actions without those of the record: each line is synced, and the directory of the first."""
    left, first = [], actions.index("commit")
    for action in actions:
        left.append(action)
        for own in (["open", "pwrite", "fsync"], ["open", "fsync"]):
            if len(left) > first and left[-len(own) :] == own:
                del left[-len(own) :]
    return left


def test_killed_before_and_after_every_action(server, driver, chain_file, tmp_path):
    driver.run({**new_order(server, chain_file, tmp_path / "warm"), "warm": True})
    for deadly in itertools.count(1, STRIDE):
        order = new_order(server, chain_file, tmp_path / f"killed-{deadly}")
        result = driver.run(order, deadly)
        if not result["killed"]:
            break
        assert len(result["actions"]) == deadly - 1
        driver.run(order)
        check_end(server, order)
    check_end(server, order)
    actions = result["actions"]
    # A run may note fewer laws than the one that was killed last: its draws are its own.
    assert 0 < deadly - len(actions) <= STRIDE + len(ITEMS) * ("record" in order)
    assert actions.count("rename") == 1
    assert actions.count("commit schema") == 1
    assert "open" in actions[: actions.index("commit schema")]
    if isinstance(server, OwnServer):
        if "record" in order:
            laws = len(Path(order["record"]).read_text().splitlines())
            assert actions.count("fsync") == 3 + laws  # of the lock, and of the directory for journal and record
            actions = without_record(actions)
        assert actions[:3] == ["connect", "send", "receive"]  # the catalogue
        first = actions.index("commit")
        assert actions[first:-1] == IN_A_STEP * len(ITEMS)
    else:
        assert actions.count("commit") == 2 * len(ITEMS)
        assert actions.count("pwrite") == 2 * 2 * len(ITEMS) + 3  # at its making, and seal and witness at its opening
        asked = sum(len(query) for query in drawn_sets(order))
        assert actions.count("send") == actions.count("receive") == asked


def test_a_message_that_crashes_its_reader_is_not_asked_for_again(server, driver, chain_file, tmp_path):
    """Every message kills its reader twice; it comes from the disk until it has been read."""
    order = new_order(server, chain_file, tmp_path / "reader")
    for step in range(len(ITEMS)):
        for again in range(2):
            result = driver.run({**order, "poison": step})
            assert result["killed"]
            assert not again or "commit" not in result["actions"]
    driver.run(order)
    check_end(server, order)
    journal = Journal(order["journal"], server.chain.fingerprint, server.fingerprint)
    queries = [step.query for step in journal.steps()]
    journal.close()
    assert server.sources_asked() == [source for query in queries for source in query]


@pytest.mark.parametrize(
    "server",
    [pytest.param((OwnServer, BOTH, CHAIN), marks=LONG), (OwnServer, PAST, CHAIN)],
    indirect=True,
    ids=["both", "past"],
)
def test_onoff_play_killed_before_and_after_every_action(server, driver, chain_file, tmp_path):
    """The command goes on where it was killed, and --out has every message at the end."""
    items = [("news", ON), ("sports", ON), ("weather", OFF), ("news", ON)]
    requests = tmp_path / "requests.txt"
    requests.write_text("".join(f"{'on' if status else 'off'} {source}\n" for source, status in items))
    for deadly in itertools.count(1, STRIDE):
        place = tmp_path / f"play-{deadly}"
        place.mkdir()
        server.forget()
        command = ["play", str(requests), "--journal", str(place / "journal"), "--out", str(place / "out")]
        command += ["--plans", server.order["plans"], "--delay", "0.001"]
        command += ["--promise", server.order.get("promise", "both")]
        remembered = {"log": str(place / "log"), "command": command}
        order = {**remembered, "command": [*command, "--chain", chain_file, "--server", server.order["server"]]}
        if deadly == 1:
            elsewhere = ["--journal", str(tmp_path / "warm"), "--out", str(tmp_path / "warm-out")]
            driver.run({**order, "warm": True, "command": [*order["command"], *elsewhere]})
            server.forget()
        # The thread that writes files is slower than all that follows: from the second message on it writes none.
        result = driver.run({**order, "stuck": 1}, deadly)
        # What was noted may be too little to go on; then it says so (code 2) and needs to be told again.
        again = driver.run(remembered, codes=(0, 2))
        if again["code"] == 2:
            driver.run(order)
        journal = Journal(place / "journal", server.chain.fingerprint, server.fingerprint)
        steps = list(journal.steps())
        journal.close()
        assert [CHAIN.names[step.request] for step in steps] == [source for source, _ in items]
        server.check([tuple(step.query) for step in steps])
        written = [file for file in (place / "out").iterdir() if not file.name.startswith(".")]  # a kill leaves halves
        found = {int(file.name): file.read_bytes() for file in written}
        assert found == {i: BODIES[source] for i, (source, _) in enumerate(items)}, f"killed before action {deadly}"
        if not result["killed"]:
            break
