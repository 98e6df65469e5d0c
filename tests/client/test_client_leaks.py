"""What a server could make differ after the last byte: room on the disk, statuses, sizes. Nothing may, and mutants do.

Each comparison is made for the client as it is, which must look the same whatever was wanted, and for one with a
planted mistake, which must not.
"""

from __future__ import annotations

import contextlib
import json

import pytest

from clientkit import NAMES, OFF, ON, answer_of, faulty, planted, scene, sizes_on_disk
from hostilekit import SET, VICTIM, keep_the_wanted_only
from onoff import Chain, wire
from onoff.client import journal as journal_module
from onoff.client.client import Client
from onoff.client.clock import SendClock
from onoff.client.journal import Journal
from onoff.client.protocol import begin_both, begin_past, finish
from onoff.client.transports.web import HttpTransport
from onoff.errors import JournalError, Unavailable
from onoff.wire import Frame
from recordingserver import reply


@pytest.fixture
def world(tmp_path):
    with scene("any", tmp_path, dict.fromkeys(NAMES, b"short")) as found:
        yield found


def looks(world, wanted, journal, ask):
    """What caller and server see of a request after a first one, ON."""
    assert world.outcome(lambda client: client.get("news"), journal=journal) == ("message",)
    world.server.reset()
    outcome = world.outcome(lambda client: ask(client, NAMES[wanted]), [SET], journal)
    said = tuple(word.replace(journal, "JOURNAL") if isinstance(word, str) else word for word in outcome)
    return said, world.server.recording()


# A disk with room for small bodies only.

ROOM = 100  # pages of 4096 bytes
LARGE = b"x" * (ROOM * 5000)


def connect_to_a_small_disk(path, honest=journal_module.connect):
    database = honest(path)
    database.execute(f"PRAGMA max_page_count = {ROOM}")
    return database


@pytest.fixture
def small_disk(world, monkeypatch):
    monkeypatch.setattr(journal_module, "connect", connect_to_a_small_disk)
    large = faulty(world.origin, lambda request, _: reply(LARGE) if request.path == f"/{NAMES[VICTIM]}" else None)

    def ask(client, wanted):
        world.server.respond = large
        return client.get(wanted, "news", OFF)

    def all_alike(name):
        """Whether it looks the same whichever is wanted, after a first request for everything, which still fits."""
        found = []
        for wanted in SET:
            world.server.respond = world.origin
            found.append(looks(world, wanted, f"{name}-{wanted}", ask))
        return found == [found[0]] * len(SET), found[0][0]

    return all_alike


def test_a_body_that_does_not_fit_the_disk_fails_alike_whatever_was_wanted(small_disk):
    alike, outcome = small_disk("honest")
    assert alike
    assert outcome[0] is JournalError
    assert "disk is full" in outcome[1]
    with planted((Journal, "finish", keep_the_wanted_only)):
        alike, _ = small_disk("mutant")
    assert not alike


# Fields of a frame.


def marked(world, wanted, journal):
    """What is seen of a request for everything if the victim's round is more than a database keeps."""

    def mark(request, _):
        if request.method != "POST":
            return None
        frames = world.origin.frames(request)
        frames[VICTIM] = Frame(VICTIM, 2**63, b"marked").encode(world.origin.catalogue.length)
        return reply(b"".join(frames))

    world.server.respond = faulty(world.origin, mark)
    world.server.reset()
    try:
        outcome = world.outcome(lambda client: client.get(NAMES[wanted]), journal=journal)
    except OverflowError as error:
        outcome = (type(error),)
    return outcome, world.server.recording()


def test_a_round_that_no_database_keeps_looks_the_same_whatever_was_wanted(tmp_path, monkeypatch):
    with scene("own", tmp_path) as world:
        found = [marked(world, wanted, f"honest-{wanted}") for wanted in range(len(NAMES))]
        assert found == [found[0]] * len(NAMES)
        assert found[0][0][0] is Unavailable
        # Planted: any round is let in, and the wanted message alone is stored. The victim is named by its silence.
        monkeypatch.setattr(wire, "MAX_ROUND", 2**64)
        with planted((Journal, "finish", keep_the_wanted_only)):
            outcomes = [marked(world, wanted, f"mutant-{wanted}")[0] for wanted in range(len(NAMES))]
        assert [outcome == ("message",) for outcome in outcomes] == [x != VICTIM for x in range(len(NAMES))]


# Statuses.


def stop_at_an_error(self, items):
    async def messages():
        upcoming = list(items)
        for (source, private), following in zip(upcoming, [*upcoming[1:], (None, None)], strict=True):
            yield await self.get(source, following[0], private)

    return messages()


def played(world, wanted, journal):
    """The requests that a server gets of a stream that wants one source throughout, all ON."""
    world.server.reset()
    with contextlib.suppress(Exception):
        world.play([(wanted, ON)] * 4, journal=journal)
    return world.server.recording()


def test_a_missing_page_does_not_stop_a_stream(world):
    missing = NAMES[VICTIM]
    world.server.respond = faulty(
        world.origin, lambda request, _: reply(b"gone", 404) if request.path == f"/{missing}" else None
    )
    messages = world.play([("news", ON), (missing, OFF), ("news", OFF), (missing, ON), ("sports", ON)], [SET, (0, 1)])
    assert [message.source for message in messages] == ["news", missing, "news", missing, "sports"]
    assert [message.error and message.error.status for message in messages] == [None, 404, None, 404, None]
    assert [message.body for message in messages] == [b"short", b"gone", b"short", b"gone", b"short"]
    assert played(world, missing, "a") == played(world, "news", "b")
    assert sum(map(len, world.server.connections)) == 4 * len(NAMES)
    with planted((Client, "play", stop_at_an_error)):
        assert played(world, missing, "c") != played(world, "news", "d")


# The end.


def test_between_the_end_of_a_step_and_that_of_the_connection_nothing_is_done_but_waiting(world, monkeypatch):
    """To close the journal takes long, and how long varies: small differences would be carried across points."""
    done = []

    def watch(kind, name):
        honest = getattr(kind, name)

        def noted(*arguments):
            done.append(f"{kind.__name__}.{name}")
            return honest(*arguments)

        monkeypatch.setattr(kind, name, noted)

    for kind, name in ((Journal, "finish"), (Journal, "close"), (HttpTransport, "close"), (SendClock, "next_point")):
        watch(kind, name)
    assert world.outcome(lambda client: client.get("news")) == ("message",)
    assert done[done.index("Journal.finish") :] == [
        "Journal.finish",
        "SendClock.next_point",
        "HttpTransport.close",
        "Journal.close",
    ]


# What is written.

WIDE = {promise: (Chain.symmetric(n, 0.5), steps) for promise, n, steps in (("past", 150, 4), ("both", 300, 12))}


def written(path, promise, wanted):
    """What is on disk after each transaction of a stream that wants one source throughout."""
    chain, steps = WIDE[promise]
    journal, sizes = Journal(path, chain.fingerprint, "catalogue", first_ever=True, promise=promise), []
    for _ in range(steps):
        if promise == "past":
            begun = begin_past(journal.state, journal.public_state(chain), wanted, ON, None)
        else:
            begun = begin_both(journal.state, chain, wanted, wanted, True, None)
        journal.begin(begun, 300.0)
        sizes.append(sizes_on_disk(path, journal))
        answer = answer_of([b"%03d" % x * (1 + x % 7) for x in range(chain.n)])
        journal.finish(finish(journal.state), range(chain.n), answer)
        sizes.append(sizes_on_disk(path, journal))
    journal.close()
    return sizes


@pytest.mark.parametrize("promise", ["past", "both"])
def test_as_much_is_written_whatever_was_wanted_and_in_every_context(tmp_path, promise):
    """The requests need 0 to 2 bytes as numbers of SQLite and 1 to 3 digits as text."""
    found = [written(tmp_path / f"{wanted}", promise, wanted) for wanted in (0, 7, 130, WIDE[promise][0].n - 1)]
    assert found == [found[0]] * 4
    mistakes = [("onoff.client.journal._state_text", lambda state: json.dumps(state.as_dict()))]
    mistakes += [("onoff.client.disk._pad", lambda *_: "")] if promise == "both" else []
    for number, mistake in enumerate(mistakes):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(*mistake)
            one, other = (written(tmp_path / f"mutant-{number}-{wanted}", promise, wanted) for wanted in (0, 130))
        assert one != other
