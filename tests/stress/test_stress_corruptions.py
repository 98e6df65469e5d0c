"""1,000 random corruptions of journals, notes and plans: refused in words or of no consequence, never a redraw."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3

import pytest

from crashkit import BODIES, CHAIN, NAMES, planned
from recordingserver import OnoffOrigin, Origin, RecordingServer
from stresskit import mutated, said, steps_of

pytestmark = pytest.mark.stress
PAGE = 4096
PLAN_FILES = ("lag-1.plan.json", "lag-2.plan.json", "chain.json", "lengths.json", "lock", "log")
ODD_NOTES = ("", "{", "null", "[]", "7", "{}", '{"first": "x"}', '{"digest": 1, "first": -1, "count": 1e99}')


@pytest.fixture
def template(tmp_path):
    """Plans that are at hand."""
    return planned(tmp_path / "template")


def damaged(content, rng):
    """The content of a file after an accident."""
    pages = max(1, len(content) // PAGE)
    place = rng.randrange(pages) * PAGE
    match rng.randrange(7):
        case 0:
            return content[: rng.randint(0, len(content))]
        case 1:
            return content[:place] + bytes(PAGE) + content[place + PAGE :]
        case 2:
            other = rng.randrange(pages) * PAGE
            return content[:place] + content[other : other + PAGE] + content[place + PAGE :]
        case 3:
            return rng.randbytes(rng.choice((0, 10, len(content))))
        case _:
            return mutated(content, rng)


def corrupt(place, rng):
    """Damage one thing of a client; what it was."""
    what = rng.choice(("journal", "journal", "journal", "wal", "lock", "notes", "notes", "plans", "plans", "directory"))
    [store] = (place / "plans").iterdir()
    if what == "notes":
        return change_note(place / "journal", rng)
    if what == "directory":
        shutil.rmtree(store)
        if rng.random() < 0.7:
            store.write_text("in the way")
        return "the directory of plans"
    files = {
        "journal": [place / "journal"],
        "wal": [place / "journal-wal", place / "journal-shm"],
        "lock": [place / "journal.lock"],
        "plans": [store / name for name in PLAN_FILES],
    }[what]
    file = rng.choice([each for each in files if each.exists()] or [place / "journal"])
    file.write_bytes(damaged(file.read_bytes(), rng))
    return file.name.replace("journal", "the journal", 1)


def change_note(journal, rng):
    """Put something odd where a command had noted its settings or how far it was."""
    with contextlib.closing(sqlite3.connect(journal)) as database:
        keys = [key for (key,) in database.execute("SELECT key FROM meta WHERE key LIKE 'note %'")]
        if not keys:
            return "nothing: no note yet"
        key = rng.choice(keys)
        [[value]] = database.execute("SELECT value FROM meta WHERE key = ?", (key,))
        odd = rng.choice((*ODD_NOTES, mutated(value.encode(), rng).decode("utf-8", "replace")))
        with database:
            database.execute("UPDATE meta SET value = ? WHERE key = ?", (odd, key))
    return "a note"


def check_own(server):
    """Every step of every stream was asked with one set, in order."""
    sets = {}
    for request in server.requests:
        if request.path == "/v1/query":
            body = json.loads(request.body)
            sets.setdefault((body.get("stream"), body["step"]), set()).add(tuple(body["sources"]))
    assert all(len(found) == 1 for found in sets.values()), f"a step was drawn again: {sets}"


def check_any(asked, pending):
    """What a web server sees afterwards begins with what was pending, or nothing is asked at all."""
    if asked and pending is not None:
        assert asked[: len(pending)] == list(pending), f"{pending} was pending, but {asked} was asked for"


def asked_of(server):
    return [NAMES.index(request.path[1:]) for request in server.requests]


@pytest.mark.parametrize("part", [1, pytest.param(2, marks=pytest.mark.long)])
@pytest.mark.parametrize(("kind", "whole"), [("own", 350), pytest.param("any", 150, marks=pytest.mark.long)])
def test_a_corrupted_client_is_refused_or_goes_on(kind, whole, part, driver, template, tmp_path, campaign):
    CHAIN.save(tmp_path / "chain.json")
    origin = OnoffOrigin(BODIES) if kind == "own" else Origin(BODIES)
    with RecordingServer(origin) as server:
        if kind == "any":
            (tmp_path / "urls.json").write_text(json.dumps(origin.urls(server)))
        reach = ["--server", server.url] if kind == "own" else ["--urls", str(tmp_path / "urls.json")]
        reach += ["--chain", str(tmp_path / "chain.json")]
        warm_up(tmp_path / "warm", template, reach, driver)
        for number, rng in enumerate(campaign.runs(whole, f"{kind} {part}")):
            place = tmp_path / str(number)
            shutil.copytree(template, place / "plans")
            one_corruption(place, reach, kind, server, driver, rng, campaign)
            shutil.rmtree(place)


def words_of(place):
    """What all commands of a client are told, and the command that plays its file."""
    common = ["--journal", str(place / "journal"), "--plans", str(place / "plans")]
    promise = ["--promise", "past" if place.name[-1] in "13579" else "both"]
    return common, ["play", str(place / "requests"), *common, *promise, "--out", str(place / "out"), "--delay", "0.001"]


def warm_up(place, template, reach, driver):
    """Have what is done at first use done once, in the process that all others are forked from."""
    shutil.copytree(template, place / "plans")
    (place / "requests").write_text("on news\noff sports\noff news\non news\n")
    common, play = words_of(place)
    for command in ([*play, *reach], ["status", *common], ["resume", "--last", *common]):
        driver.run({"log": str(place / "log"), "command": command, "warm": True})


def one_corruption(place, reach, kind, server, driver, rng, campaign):
    """A client is killed somewhere in a file of requests, something is damaged, and it is called again."""
    sources = [rng.choice(NAMES) for _ in range(6)]
    items = "".join(f"{'on' if rng.random() < 0.4 else 'off'} {source}\n" for source in sources)
    (place / "requests").write_text(items)
    (common, play), order = words_of(place), {"log": str(place / "log")}
    server.reset()
    while not (place / "journal").exists():
        driver.run({**order, "command": [*play, *reach]}, rng.randint(25, 75))
    server.wait_closed()
    pending = next((query for query, _, answered in steps_of(place / "journal") if not answered), None)
    if kind == "any":
        server.reset()
    what = corrupt(place, rng)
    ended = []
    for command in (play, ["status", *common], ["resume", "--last", *common], [*play, *reach]):
        before = driver.errors.stat().st_size
        result = driver.run({**order, "command": command}, codes=(0, 2, 6, 7))
        told = said(driver.errors, before)
        assert "Traceback" not in told, f"{what}: {told}"
        assert result["code"] == 0 or "onoff: error: " in told, what
        ended.append(result["code"])
    server.wait_closed()
    check_own(server) if kind == "own" else check_any(asked_of(server), pending)
    campaign.count(f"of {what}: {'went on' if ended[-1] == 0 else 'refused'}")


def test_a_second_draw_would_be_seen():
    """The checks find a planted redraw."""
    from types import SimpleNamespace

    twice = [
        SimpleNamespace(path="/v1/query", body=json.dumps({"step": 3, "sources": sources}).encode())
        for sources in ([0, 1], [0, 2])
    ]
    with pytest.raises(AssertionError, match="drawn again"):
        check_own(SimpleNamespace(requests=twice))
    with pytest.raises(AssertionError, match="was pending"):
        check_any([0, 2], (0, 1))
