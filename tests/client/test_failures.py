"""Who got a failure and asks again gets it again for a while, from the journal: no step is made.

A person or a program that got no message asks again. The chain does not say so, and two sets that both hold the source
tell more than one. What a repetition tells is enumerated here, with the weights that the client draws with.
"""

from __future__ import annotations

import asyncio
import math
import time
from itertools import pairwise

import pytest

from clientkit import BODIES, NAMES, OFF, ON, faulty
from onoff import Chain, connect
from onoff.client import journal as journals
from onoff.client.transports import origins
from onoff.errors import OnoffError, SourceError
from onoff.past import PastState
from pastkit import drawn, exactly, prepared
from recordingserver import reply

VICTIM = "science"


# What a repetition tells.

CHAINS = [
    Chain([[0.6, 0.2, 0.2], [0.2, 0.6, 0.2], [0.2, 0.2, 0.6]]),
    Chain([[0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.4, 0.2, 0.4]]),
    Chain([[0.55 if x == y else 0.15 for y in range(4)] for x in range(4)]),
]


def asked_again(state, query, source):
    """Planted: a repetition is a request like any other, and its query is drawn."""
    return chances(state.after(query), source, source)


def not_asked(*_):
    """A failure is answered from the journal: the server sees nothing."""
    return {None: 1}


def chances(state, source, reader):
    return {query: chance for query, (chance, _) in drawn(prepared(state.candidates), source, reader).items()}


def told(chain, failed, repeat):
    """The bits that a query, and what follows a failure of it, tell of the request before it, which was made ON.

    `failed` are the members of a query that fail, which is public.
    """
    start, joint = PastState.start(chain), {}
    for hidden in range(chain.n):
        for source, p in enumerate(exactly(tuple(chain.P[hidden].tolist()))):
            for query, share in chances(start, source, hidden).items():
                again = repeat(start, query, source) if source in failed(query) else not_asked()
                for other, chance in again.items():
                    key = hidden, (query, other)
                    joint[key] = joint.get(key, 0) + p * share * chance / chain.n
    views = {}
    for (_, view), p in joint.items():
        views[view] = views.get(view, 0) + p
    return math.fsum(float(p) * math.log1p(p * chain.n / views[view] - 1) for (_, view), p in joint.items()) / math.log(
        2
    )


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("failed", [frozenset, lambda _: {0}])
def test_a_failure_that_is_answered_from_the_journal_tells_nothing_and_a_fresh_draw_does(chain, failed):
    """The second case is a server that fails one source: that there is a repetition tells something, too."""
    assert abs(told(chain, failed, not_asked)) < 1e-12
    assert 0.19 < told(chain, failed, asked_again) < 0.41


# What the client does.


def failing(web, *names, status=503):
    """A server that fails some of its sources."""
    web.server.respond = faulty(
        web.origin, lambda request, _: reply(b"no", status) if request.path[1:] in names else None
    )


def use(web, ask, journal="j", **options):
    """What a program makes of a client of the promise `past`, which asks for everything."""
    settings = {"delay": 0.001, "backoff": 0.01, "first_ever": True, "promise": "all", **options}

    async def run():
        async with connect(urls=web.origin.urls(web.server), journal=web.directory / journal, **settings) as client:
            return await ask(client)

    return asyncio.run(run())


async def error_of(client, name):
    with pytest.raises(SourceError) as caught:
        await client.get(name)
    return caught.value


async def asked(client):
    return [NAMES[step.request] for step in client.journal.steps()]


STATUSES = (304, 407, 408, 421, 425, 429, 500, 502, 503, 504, 999)


@pytest.mark.parametrize("status", STATUSES)
def test_a_failure_is_given_again_without_a_step_until_its_time_is_over(web, status, monkeypatch):
    failing(web, VICTIM, status=status)

    async def ask(client):
        first, again = await error_of(client, VICTIM), await error_of(client, VICTIM)
        assert first.status == again.status == status
        assert first.until == again.until == client.journal.ended + 300
        assert "gets this answer" in str(first)
        assert "no other was made now" in str(again)
        assert again.body == b""
        return await asked(client)

    assert use(web, ask) == [VICTIM]
    web.server.respond = web.origin
    assert use(web, lambda client: error_of(client, VICTIM)).status == status  # another process
    moment = time.time()
    for later, expected in ((299, SourceError), (-5, SourceError), (-400, None), (301, None)):
        monkeypatch.setattr(journals.time, "time", lambda later=later: moment + later)
        if expected is None:  # the clock was set back, or the time is over
            assert use(web, lambda client: client.get(VICTIM)).body == BODIES[VICTIM]
        else:
            use(web, lambda client: error_of(client, VICTIM))


def test_a_failure_is_known_until_its_time_is_over_although_requests_are_erased(web, monkeypatch):
    failing(web, VICTIM)

    async def ask(client):
        await error_of(client, VICTIM)
        for _ in range(3):
            await client.get("news")

    use(web, ask, keep=1)
    use(web, lambda client: error_of(client, VICTIM))
    moment = time.time()
    monkeypatch.setattr(journals.time, "time", lambda: moment + 301)
    requests = use(web, asked_or_erased)
    assert requests == [None, None, None, NAMES.index("news")]


async def asked_or_erased(client):
    return [step.request for step in client.journal.steps()]


@pytest.mark.parametrize("status", [204, 301, 401, 403, 404, 410])
def test_what_is_no_failure_is_asked_for_again(web, status):
    web.server.respond = faulty(
        web.origin, lambda r, _: reply(b"" if status == 204 else b"no", status) if r.path[1:] == VICTIM else None
    )

    async def ask(client):
        assert [(await error_of(client, VICTIM)).until for _ in range(2)] == [None, None]
        return await asked(client)

    assert use(web, ask) == [VICTIM, VICTIM]


def test_only_who_was_told_of_a_failure_repeats_it_and_a_message_that_comes_meanwhile_changes_nothing(web):
    """Who asks for a member that failed beside another one follows habits: without a step, its absence would tell."""
    failing(web, VICTIM, "weather")

    async def ask(client):
        await client.get("news")
        await error_of(client, VICTIM)
        await error_of(client, "weather")
        web.server.respond = web.origin
        await client.get("news")
        await error_of(client, VICTIM)
        return await asked(client)

    assert use(web, ask) == ["news", VICTIM, "weather", "news"]


def test_what_was_decided_on_before_is_a_step_whatever_has_failed(web):
    failing(web, VICTIM)

    async def ask(client):
        played = [message.error and message.error.status async for message in client.play([(VICTIM, ON)] * 3)]
        assert played == [503] * 3
        return await asked(client)

    assert use(web, ask) == [VICTIM] * 3

    async def announced(client):
        await error_of(client, VICTIM)
        await client.get("news", VICTIM, OFF)
        await error_of(client, VICTIM)
        return await asked(client)

    assert web.use(announced, [(0, 2)]) == [VICTIM, "news", VICTIM]


# Servers that ask to be left alone.


@pytest.mark.parametrize("header", ["Retry-After: 60", "Retry-After: 999999", "DATE", "Retry-After: soon", "none: x"])
@pytest.mark.parametrize("status", [429, 503, 500])
def test_retry_after_holds_for_the_whole_origin_alike_and_not_for_ever(web, header, status, monkeypatch):
    date = time.strftime("Retry-After: %a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 60))
    said = date if header == "DATE" else header
    holds = status != 500 and ("9" in header or "60" in header or header == "DATE")
    web.server.respond = faulty(web.origin, lambda r, _: reply(b"", status, [said]) if r.path == "/sports" else None)

    async def ask(client):
        await client.get("news")
        assert [r.path[1:] for r in web.server.requests] == list(NAMES[: 2 if holds else 5])
        for name in NAMES[2:]:
            if holds:
                assert (await error_of(client, name)).status == status
            else:
                await client.get(name)

    use(web, ask)
    if holds:
        web.server.respond = web.origin
        before, moment = len(web.server.requests), time.time()
        assert use(web, lambda client: error_of(client, "news")).status == status  # another process
        assert len(web.server.requests) == before
        monkeypatch.setattr(origins.time, "time", lambda: moment + 301)
        assert use(web, lambda client: client.get("sports")).body == BODIES["sports"]


# What is said of the client.


def test_the_user_agent_can_be_set_is_remembered_and_must_be_safe(web):
    use(web, lambda client: client.get("news"), user_agent="mine/1.0 (+https://example.org/)")
    use(web, lambda client: client.get("news"))
    assert all(dict(r.headers)["User-Agent"] == "mine/1.0 (+https://example.org/)" for r in web.server.requests)
    use(web, lambda client: client.get("news"), journal="other")
    assert dict(web.server.requests[-1].headers)["User-Agent"] == "onoff"
    for wrong in ("", " ", "a\r\nX: y", "a\n", "ü", "x" * 201, 5, "a\x00"):
        with pytest.raises(OnoffError, match="the User-Agent is"):
            connect(urls=web.origin.urls(web.server), journal=web.directory / "third", user_agent=wrong)


def test_between_two_requests_to_one_origin_is_a_pause_that_is_the_same_for_all(web, monkeypatch):
    monkeypatch.setattr("onoff.client.transports.web.PAUSE", 0.05)
    use(web, lambda client: client.get("news"))
    assert len(web.server.recording()) == 1
    gaps = [after.begun - before.ended for before, after in pairwise(web.server.requests)]
    assert len(gaps) == 4
    assert min(gaps) >= 0.049
