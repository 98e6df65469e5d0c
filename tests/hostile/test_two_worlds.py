"""Two worlds: the same sets, other wanted sources, and a server that poisons the answers of one source, the victim.

In one world the victim is wanted where it is in the set, in the other it never is. Every byte on the wire, in its order
and on its connection, and all that the journal writes must be the same, but for the request itself.
"""

from __future__ import annotations

import contextlib
import json

import pytest

from clientkit import BODIES, NAMES, OFF, ON, faulty, planted, public_rows, scene
from hostilekit import keep_the_wanted_only
from onoff.client.journal import Journal
from onoff.errors import OnoffError
from poison import OWN, WEB
from recordingserver import VersionedOrigin
from sampling import one_in

VICTIM = "science"
SETS = [(1, 2, 4), (2, 3)]
WORLDS = {  # the victim is wanted at steps 1, 2 and 3, and nowhere
    "wanted": [("news", ON), (VICTIM, OFF), (VICTIM, OFF), (VICTIM, ON), ("news", ON)],
    "not wanted": [("news", ON), ("culture", OFF), ("weather", OFF), ("sports", ON), ("news", ON)],
}


@pytest.fixture
def own(tmp_path):
    with scene("own", tmp_path) as found:
        yield found


@pytest.fixture
def web(tmp_path):
    with scene("any", tmp_path) as found:
        found.origin = VersionedOrigin(BODIES)
        yield found


def seen(world, which, poisoned):
    """What a server sees of one world, and what the journal has written there. Steps that fail end the stream."""
    journal = f"{which}-{poisoned.__name__}"
    world.server.respond = faulty(world.origin, poisoned)
    world.server.reset()
    with contextlib.suppress(OnoffError):
        world.play(WORLDS[which], SETS, journal=journal, attempts=2)
    return world.server.recording(), public_rows(world.directory / journal)


def alike(world, poisoned):
    return seen(world, "wanted", poisoned) == seen(world, "not wanted", poisoned)


@pytest.mark.parametrize("poison", one_in(6, WEB))
def test_a_poisoned_web_answer_shows_nothing_of_what_was_wanted(web, poison):
    def poisoned(request, _):
        return WEB[poison](BODIES[VICTIM]) if request.path == f"/{VICTIM}" else None

    assert alike(web, poisoned)


@pytest.mark.parametrize("poison", one_in(4, OWN))
def test_a_poisoned_answer_of_our_server_shows_nothing_of_what_was_wanted(own, poison):
    def poisoned(request, _):
        if request.method != "POST":
            return None
        return OWN[poison](own.origin.frames(request), json.loads(request.body)["sources"].index(NAMES.index(VICTIM)))

    assert alike(own, poisoned)


def test_a_client_that_stores_the_wanted_answer_alone_is_seen(web):
    """Planted: the next query names other versions."""

    def not_poisoned(request, _):  # noqa: ARG001
        return None

    assert alike(web, not_poisoned)
    web.directory /= "mutant"
    web.directory.mkdir()
    with planted((Journal, "finish", keep_the_wanted_only)):
        assert not alike(web, not_poisoned)
