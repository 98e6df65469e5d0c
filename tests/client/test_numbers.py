"""The journal keeps what every query was drawn from: random numbers, and the digest of the law. Both can be checked."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sqlite3
import struct
from contextlib import closing
from dataclasses import replace

import pytest

from clientkit import CHAIN, NAMES, OFF, ON, client_with, scene
from onoff import Chain, plan
from onoff.client.journal import Journal
from onoff.client.laws import PlanDigests, law_digest, numbers_text
from onoff.client.protocol import Begun, Pending
from onoff.past import PastState
from oracles import random_chain


def digest(sets, masses, encoders):
    """The documented layout, written anew: `encoders` are {context: dense matrix of units}."""
    numbers = [len(sets), *map(len, sets), *(x for query in sets for x in query), *masses]
    for context, units in sorted(encoders.items()):
        entries = [(x, i, int(units[x, i])) for x in range(len(units)) for i in range(len(sets)) if units[x, i]]
        numbers += [context, len(entries), *(entry[part] for part in range(3) for entry in entries)]
    return hashlib.sha256(struct.pack(f"<{len(numbers)}q", *numbers)).hexdigest()


def test_the_digest_of_a_step_is_that_of_its_law_alone():
    for sensitive in ((), (0, 2)):
        step = PastState.start(random_chain("dense", 5, 3), sensitive).prepare()
        assert law_digest(step.law) == digest(step.sets, step.masses, {})


def test_the_digest_of_a_table_is_that_of_the_one_context():
    made = plan(random_chain("dense", 5, 3), 2, "comb")
    for last, following, lag in ((0, 1, 2), (4, 3, 5)):
        units = made.encoder(last, following, lag).toarray()
        assert PlanDigests().of(made, last, following, lag) == digest(
            made.sets, made.masses, {last * 5 + following: units}
        )


ITEMS = [("news", ON), ("sports", ON), ("weather", OFF), ("news", OFF), ("science", ON), ("news", OFF), ("news", ON)]


def rows_after(world, planner, **options):
    """The rows of the journal of a stream, as dictionaries."""

    async def run():
        transport, path = world.transport(), world.directory / "journal"
        async with client_with(CHAIN, transport, path, planner, delay=0.001, **options) as client:
            async for _ in client.play(ITEMS):
                pass

    asyncio.run(run())
    with closing(sqlite3.connect(world.directory / "journal")) as database:
        database.row_factory = sqlite3.Row
        return [dict(row) for row in database.execute("SELECT * FROM steps ORDER BY step")]


def test_what_arrived_whole_is_noted_in_the_order_of_the_answer_with_the_limit_of_the_cache(tmp_path):
    with scene("own", tmp_path) as world:
        rows = rows_after(world, None, promise="past", cache=1000)
        order = [NAMES.index(name) for name in world.origin.catalogue.names]
    first = json.loads(rows[0]["received"])
    assert [source for source, _, _ in first] == order
    assert all(size == len(f"the latest about {NAMES[source]}") and version for source, version, size in first)
    assert [json.loads(row["received"]) for row in rows[1:]] == [[]] * (len(rows) - 1)  # nothing has changed
    assert {row["cache"] for row in rows} == {1000}
    assert {row["attempts"] for row in rows} == {1}


# How long a row is.

WIDE = Chain.symmetric(150, 0.5)


def written(path, wanted, numbers):
    """Bytes of content in every table after a query was drawn."""
    journal = Journal(path, WIDE.fingerprint, "catalogue", promise="past")
    pending = Pending(wanted, None, False, False, 1, tuple(range(150)), "past", 0.0)
    journal.begin(Begun(replace(journal.state, pending=pending), pending, tuple(numbers)), 150.0, "0" * 64)
    sizes = journal._database.execute("SELECT name, SUM(payload) FROM dbstat GROUP BY name ORDER BY name").fetchall()
    journal.close()
    return sizes


DRAWS = [[(1, 0)], [(7, 3)], [(2**52, 2**51 + 1)], [(2**63 - 1, 2**63 - 2)]]
RACES = [[(3 << 158, 5), (1 << 420160, 1)], [((3 << 158) + (1 << 165), 3 << 157), (1 << 420160, (1 << 420160) - 1)]]


@pytest.mark.parametrize("draws", [DRAWS, RACES], ids=["tables", "races"])
def test_a_row_is_equally_long_whatever_was_wanted_and_drawn(tmp_path, monkeypatch, draws):
    found = [
        written(tmp_path / f"{wanted}-{i}", wanted, numbers)
        for wanted in (0, 7, 149)
        for i, numbers in enumerate(draws)
    ]
    assert found == [found[0]] * len(found)
    plain = "onoff.client.journal.numbers_text"
    monkeypatch.setattr(plain, lambda numbers: str([(hex(bound), hex(number)) for bound, number in numbers]))
    assert written(tmp_path / "mutant-0", 0, draws[0]) != written(tmp_path / "mutant-1", 0, draws[-1])


def test_a_bound_that_happens_to_be_a_power_of_two_is_written_as_long_as_any_other():
    lengths = {len(numbers_text([pair])) for pair in ((1 << 160, 5), (1 << 160, (1 << 160) - 1), ((1 << 159) + 1, 7))}
    assert len(lengths) == 1
    assert len({len(numbers_text([(1 << 256, number)])) for number in (0, (1 << 256) - 1)} | lengths) == 1
