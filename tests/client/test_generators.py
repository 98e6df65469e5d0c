"""Random numbers come from the operating system: of whole streams, through the front door, every one is traced to it.

Each number that the journal notes of a draw must follow, in its order, from bytes that the operating system's generator
gave during the step, and no bytes may be left over: a draw that is made again would leave some.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import time

import numpy as np
import pytest

from clientkit import CHAIN, NAMES, OFF, ON
from onoff import connect, plan
from onoff.audit.files import _long
from onoff.past import StepLaw
from onoff.plans.race import RacePlan, race_plan
from onoff.plans.store import PlanStore
from onoff.plans.table import TablePlan

STEPS = 25


class OutsideError(AssertionError):
    """A number that is not the operating system's, or one that was drawn and not used."""


def traced(numbers, blocks):
    """Take the blocks that the numbers of one step follow from; raise an error if these are not all."""
    given = iter(blocks)
    for bound, number in numbers:
        bits = bound.bit_length()
        found = bound
        while found >= bound:
            block = next(given, None)
            if block is None:
                raise OutsideError(f"{number:#x} of {bound:#x} did not come from the operating system")
            found = int.from_bytes(block) >> 8 * len(block) - bits
        if found != number:
            raise OutsideError(f"the operating system gave {found:#x} and not {number:#x}")
    if next(given, None) is not None:
        raise OutsideError("more was drawn than is noted")


def stream(own, monkeypatch, promise, **options):
    """Make the requests of a stream and trace the numbers of each step; count them. A "race" is a plan of `both`."""
    blocks: list[bytes] = []

    def watched(size):
        blocks.append(os.urandom(size))
        return blocks[-1]

    monkeypatch.setattr(random, "_urandom", watched)  # what `secrets` asks
    made, promise = race_plan(CHAIN, 1, 20) if promise == "race" else plan(CHAIN, 1), promise.replace("race", "both")
    settings = {"server": own.server.url, "journal": own.directory / "journal", "promise": promise, "delay": 0.0}

    PlanStore(CHAIN, own.directory / "plans").save(made)
    settings["plans"] = own.directory / "plans" if promise == "both" else None

    async def run():
        count = 0
        async with connect(CHAIN, **settings, background=False, first_ever=True, **options) as client:
            for step in range(STEPS):
                blocks.clear()
                source, following = NAMES[step // 3 % 5], NAMES[(step + 1) // 3 % 5] if promise == "both" else None
                await client.get(source, following, private=ON if step % 6 == 0 else OFF)
                [row] = client.journal.steps(since=step)
                numbers = [[*map(_long, pair)] for pair in json.loads(row.numbers)]
                assert (numbers == []) == row.private
                traced(numbers, blocks)
                count += len(numbers)
        return count

    return asyncio.run(run())


@pytest.mark.parametrize(("promise", "numbers"), [("past", 20), ("both", 20), ("race", 20 + 16)])
def test_every_number_of_a_stream_comes_from_the_operating_system(own, monkeypatch, promise, numbers):
    """One for each OFF step. A race also draws where the reader may have been, unless the step before was ON."""
    assert stream(own, monkeypatch, promise) == numbers


def by_stream():
    generator = random.Random("0123")
    return generator.randrange


def by_second():
    return lambda bound: random.Random(int(time.time())).randrange(bound)


def by_pcg64():
    generator = np.random.Generator(np.random.PCG64())
    return lambda bound: int.from_bytes(generator.bytes(bound.bit_length() // 8 + 1)) % bound


@pytest.mark.parametrize("planted", [by_stream, by_second, by_pcg64])
@pytest.mark.parametrize("promise", ["past", "both", "race"])
def test_other_generators_are_found(own, monkeypatch, promise, planted):
    with pytest.raises(OutsideError):
        stream(own, monkeypatch, promise, randbelow=planted())


@pytest.mark.parametrize(("promise", "kind"), [("past", StepLaw), ("both", TablePlan), ("race", RacePlan)])
def test_a_set_that_is_drawn_again_if_it_equals_the_last_is_found(own, monkeypatch, promise, kind):
    honest, last = kind.draw, [None]

    def draw(self, *arguments):
        *_, randbelow = arguments
        found = honest(self, *arguments)
        if found == last[0]:
            found = honest(self, *arguments[:-1], randbelow._randbelow)  # the numbers of the first draw stay noted
        last[0] = found
        return found

    monkeypatch.setattr(kind, "draw", draw)
    with pytest.raises(OutsideError):
        stream(own, monkeypatch, promise)
