"""Hostile servers, and what callers and wires show of a request for the same set, whichever source is wanted."""

from __future__ import annotations

from dataclasses import replace

from clientkit import BODIES, NAMES, OFF
from onoff.client.journal import Journal
from poison import OWN, WEB

SET = (1, 2, 4)
VICTIM = 2  # the source for which the server misbehaves


# What a hostile onoff server does with the frames of an answer, and what a web server does at one URL.
BROKEN = (
    "a giant round", "corrupted", "padding", "reversed", "first again", "one less", "one more", "cut short", "empty",
    "endless", "no HTTP", "nothing", "503", "429", "a page",
)  # fmt: skip
OWN_FAULTS = {name: lambda frames, name=name: OWN[name](frames, 1) for name in BROKEN}
REFUSALS = {name: lambda frames, name=name: OWN[name](frames, 1) for name in ("404", "409", "301")}
ANY_FAULTS = {
    name: WEB[name]
    for name in ("a short length", "no HTTP", "nothing", "a chunk of words", "a negative length", "above the limit")
}


def watch(world, journals, ask=None):
    """What the caller and the server see of a request for the same set, whichever of its sources is wanted."""
    outcomes, recordings = [], []
    for wanted in SET:
        world.server.reset()

        async def get(client, wanted=NAMES[wanted]):
            return await (client.get(wanted, "news", OFF) if ask is None else ask(client))

        journal = f"{journals}-{wanted}"
        outcomes.append(world.outcome(get, [SET], journal))
        recordings.append(world.server.recording())
    return outcomes, recordings


def watch_alike(world, journals):
    """What `watch` saw, which must be the same for every wanted source: one outcome, and the requests in order."""
    outcomes, recordings = watch(world, journals)
    assert outcomes == [outcomes[0]] * len(SET)
    assert recordings == [recordings[0]] * len(SET)
    return outcomes[0], [raw for connection in recordings[0] for raw in connection]


def settle(world, journals):
    """Journals that have had their first request, ON, so that the next may be OFF."""
    for wanted in SET:
        assert world.outcome(lambda client: client.get("news"), journal=f"{journals}-{wanted}") == ("message",)


def check_resumed(world, journals, query):
    """An honest server again: the pending query goes out once more, the same bytes, and the message is there."""
    world.server.respond = world.origin
    for wanted in SET:
        world.server.reset()
        bodies = []

        async def finish(client, bodies=bodies):
            bodies.append((await client.resume()).body)

        assert world.outcome(finish, journal=f"{journals}-{wanted}") == ("message",)
        assert bodies == [BODIES[NAMES[wanted]]]
        assert world.queries() == [query]


def keep_the_wanted_only(self, state, query, answer, honest=Journal.finish):
    """A mistake to plant as `Journal.finish`: of the members that nobody wanted nothing is kept."""
    wanted, nothing = self.state.pending.request, {"body": b"", "round": None, "version": None}
    members = zip(query, answer.contents, strict=True)
    kept = tuple(content if source == wanted else replace(content, **nothing) for source, content in members)
    honest(self, state, query, replace(answer, contents=kept))
