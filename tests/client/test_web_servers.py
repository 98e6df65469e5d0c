"""Plain web servers as they are installed, half of the sources at each: what their logs show of a client that holds."""

from __future__ import annotations

import asyncio
import os
from contextlib import ExitStack

import pytest

from clientkit import CHAIN, NAMES, OFF, ON, Told, client_with
from onoff import HttpTransport
from webservers import needs_nginx, nginx, plain_server

SET = (0, 1, 3, 4)
CHANGED = "weather"
AT = {name: number % 2 for number, name in enumerate(NAMES)}  # news, science and culture at the first
LONG_AGO = 1_700_000_000


def write(files, name, text, moment):
    (files / name).write_text(text)
    os.utime(files / name, (moment, moment))


def stream(servers, files, journal, wanted):
    """A client that wants these sources: what it got, and what each server was asked meanwhile."""
    for name in NAMES:
        write(files, name, f"the latest about {name}", LONG_AGO)
    urls = {name: f"{servers[AT[name]][0]}/{name}" for name in NAMES}
    before = [len(log(0)) for _, log in servers]

    async def run():
        transport = HttpTransport(urls)
        options = {"delay": 0.001, "first_ever": True}
        async with client_with(CHAIN, transport, journal, Told(CHAIN, [SET, SET, SET]), **options) as client:
            got = [await client.get(wanted[0], private=ON)]
            got.append(await client.get(wanted[1], wanted[2], OFF))
            write(files, CHANGED, "something new about the weather", LONG_AGO + 1000)
            got.append(await client.get(wanted[2], wanted[3], OFF))
            got.append(await client.get(wanted[3], NAMES[0], OFF))
            return [(message.body.decode(), message.unchanged) for message in got]

    got = asyncio.run(run())
    return got, [
        log(skipped + len(asked(place)))[skipped:]
        for place, (skipped, (_, log)) in enumerate(zip(before, servers, strict=True))
    ]


def asked(place):
    """What a server is asked for, with its answers: everything for the first time, then thrice the set."""
    found = [f"GET /{name} 200" for name in NAMES if AT[name] == place]
    for step in range(3):
        for name in (NAMES[i] for i in SET if AT[NAMES[i]] == place):
            found.append(f"GET /{name} {200 if step == 1 and name == CHANGED else 304}")
    return found


KINDS = [["plain", "plain"], pytest.param(["nginx", "plain"], marks=needs_nginx)]


@pytest.mark.parametrize("kinds", KINDS, ids="-".join)
def test_logs_show_304_for_what_is_unchanged_and_the_same_requests_whichever_source_was_wanted(tmp_path, kinds):
    files = tmp_path / "files"
    files.mkdir()
    with ExitStack() as stack:
        servers = []
        for number, kind in enumerate(kinds):
            (tmp_path / str(number)).mkdir()
            start = {"plain": plain_server, "nginx": nginx}[kind]
            servers.append(stack.enter_context(start(tmp_path / str(number), files)))
        streams = [
            stream(servers, files, tmp_path / f"journal-{number}", wanted)
            for number, wanted in enumerate(
                [("news", "sports", "weather", "culture"), ("culture", "news", "sports", "news")]
            )
        ]
    messages = [got for got, _ in streams]
    old = {name: f"the latest about {name}" for name in NAMES}
    assert messages == [
        [
            (old["news"], False),
            (old["sports"], True),
            ("something new about the weather", False),
            (old["culture"], True),
        ],
        [(old["culture"], False), (old["news"], True), (old["sports"], True), (old["news"], True)],
    ]
    logs = streams[0][1]
    assert streams[1][1] == logs
    for place, log in enumerate(logs):
        assert [" ".join(line.split()[:3]) for line in log] == asked(place)
