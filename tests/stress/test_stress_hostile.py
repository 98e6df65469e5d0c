"""150 hostile answers: whatever a server says, callers and wires look alike for every wanted source."""

from __future__ import annotations

import asyncio
import json

import pytest

from clientkit import NAMES, TRANSPORTS, faulty, scene
from hostilekit import ANY_FAULTS, OWN_FAULTS, REFUSALS, SET, VICTIM, check_resumed, settle, watch
from onoff.errors import OnoffError, SourceError, Unavailable
from onoff.wire import Frame
from recordingserver import Reply, reply
from stresskit import mutated

pytestmark = pytest.mark.stress


def broken_reply(rng, body):
    """An answer with something wrong in its head or its body; it ends with its connection, so that none waits long.

    The end is announced: whether a client meets a sudden one before or after its next request is a matter of luck.
    """
    start, end = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n" % len(body), b"Connection: close\r\n\r\n"
    head = start + end
    match rng.randrange(6):
        case 0:
            return Reply([mutated(start, rng) + end, body], close=True), "a mutated head"
        case 1:
            changed = mutated(body, rng)
            return Reply([b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(changed), changed]), "a mutated body"
        case 2:
            return reply(mutated(body, rng), rng.choice((204, 206, 300, 304, 400, 418, 500, 503, 599))), "a status"
        case 3:
            extra = [f"X-{i}: {rng.randbytes(30).hex()}" for i in range(rng.choice((1, 50, 3000)))]
            long = "\r\n".join(["HTTP/1.1 200 OK", f"Content-Length: {len(body)}", "Connection: close", *extra, "", ""])
            return Reply([long.encode(), body], close=True), "many headers"
        case 4:
            cut = rng.randint(0, len(head + body))
            return Reply([(head + body)[:cut]], close=True), "a cut"
        case _:
            early = b"HTTP/1.1 103 Early Hints\r\n\r\n" * rng.choice((1, 200))
            return Reply([early, head, body], close=True), "early answers"


def odd_frames(rng, frames, origin, request):
    """Frames whose checksums are right and whose fields are not what an honest server would send."""
    sources = json.loads(request.body)["sources"]
    made = list(frames)
    for place, source in enumerate(sources):
        if rng.random() < 0.6:
            number = rng.choice((0, 1, 2**31, 2**53, 2**62, 2**63, 2**64 - 1))
            body = b"" if number == 0 else rng.randbytes(rng.randint(0, origin.catalogue.length))
            made[place] = Frame(source, number, body).encode(origin.catalogue.length)
    return reply(b"".join(made))


def own_fault(rng, world):
    """What an onoff server does to every query, the same for all; and what it is called."""
    if rng.random() < 0.3:
        name = rng.choice(sorted({**OWN_FAULTS, **REFUSALS}))
        made = {**OWN_FAULTS, **REFUSALS}[name]
        return (lambda request: made(world.origin.frames(request))), f"own: {name}"
    state = rng.getstate()

    def answer(request):
        rng.setstate(state)
        frames = world.origin.frames(request)
        if rng.random() < 0.3:
            return odd_frames(rng, frames, world.origin, request)
        return broken_reply(rng, b"".join(frames))[0]

    rng.setstate(state)
    name = "frames with odd fields" if rng.random() < 0.3 else broken_reply(rng, b"x" * 100)[1]
    return answer, f"own: {name}"


def any_fault(rng):
    """What a web server does at one URL."""
    if rng.random() < 0.3:
        name = rng.choice(sorted(ANY_FAULTS))
        return ANY_FAULTS[name], f"any: {name}"
    state = rng.getstate()

    def answer(body):
        rng.setstate(state)
        return broken_reply(rng, body)[0]

    return answer, f"any: {broken_reply(rng, b'x' * 100)[1]}"


@pytest.mark.parametrize("kind", TRANSPORTS)
def test_hostile_answers_look_alike_whatever_was_wanted(kind, tmp_path, campaign):
    with scene(kind, tmp_path) as world:
        for number, rng in enumerate(campaign.runs(65, kind)):
            journals = f"j{number}"
            world.server.respond = world.origin
            settle(world, journals)
            if kind == "own":
                fault, name = own_fault(rng, world)
                world.server.respond = faulty(
                    world.origin, lambda request, _, fault=fault: None if request.number == 0 else fault(request)
                )
            else:
                fault, name = any_fault(rng)
                world.server.respond = faulty(
                    world.origin,
                    lambda request, answer, fault=fault: (
                        fault(answer.parts[1]) if request.path == f"/{NAMES[VICTIM]}" else None
                    ),
                )
            outcomes, recordings = watch(world, journals)
            campaign.count(name)
            assert recordings == [recordings[0]] * len(SET), name
            check_outcomes(kind, outcomes, name)
            campaign.count(f"ended in {'a message' if outcomes[0] == ('message',) else outcomes[0][0].__name__}")
            asked = [raw for connection in recordings[0] for raw in connection if b"/v1/catalogue" not in raw]
            if kind == "own" and outcomes[0] != ("message",):
                assert len(set(asked)) == 1, "a query was drawn again"
                check_resumed(world, journals, asked[:1])


def check_outcomes(kind, outcomes, name):
    """The same for all, but for a status of the one source of a web server that is its message."""
    assert all(each == ("message",) or issubclass(each[0], OnoffError) for each in outcomes), name
    if kind == "any" and outcomes[SET.index(VICTIM)][0] is SourceError:
        assert {each for i, each in enumerate(outcomes) if SET[i] != VICTIM} == {("message",)}, name
    else:
        assert outcomes == [outcomes[0]] * len(SET), name


def test_hostile_catalogues_get_an_error_and_never_a_query(tmp_path, campaign):
    with scene("own", tmp_path) as world:
        document = world.origin.catalogue.document
        for number, rng in enumerate(campaign.runs(20, "catalogue")):
            changed = mutated(document, rng)
            answer = reply(changed) if rng.random() < 0.7 else broken_reply(rng, document)[0]
            world.server.respond = lambda request, answer=answer: (
                Reply(list(answer.parts), answer.close) if request.path == "/v1/catalogue" else world.origin(request)
            )
            world.server.reset()
            failed = refused(world, f"c{number}")
            asked = world.queries()
            campaign.count("hostile catalogues " + ("refused" if failed else "taken, and the same as before"))
            assert failed or changed == document or answer.parts[-1] == document
            assert not failed or asked == []


def refused(world, journal):
    """Whether the client would not ask this server."""

    async def run():
        async with world.client(journal=journal) as client:
            await client.get("news")

    try:
        asyncio.run(run())
    except OnoffError:
        return True
    return False


def test_the_campaign_itself_would_see_a_difference():
    """A planted client that gives up early if the wanted frame is odd: the outcomes then differ."""
    with pytest.raises(AssertionError):
        check_outcomes("own", [("message",), (Unavailable, "x"), ("message",)], "planted")
    with pytest.raises(AssertionError):
        check_outcomes("any", [(SourceError, 404, b""), ("message",), ("message",)], "planted")
