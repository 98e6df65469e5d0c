"""`onoff measure` over repeated visits, and a client of the promise past that counts bytes."""

from __future__ import annotations

import json
import os
import re

import numpy as np
import pytest

from clientkit import BODIES, NAMES
from clikit import call
from onoff import Chain
from recordingserver import OnoffOrigin, Origin, RecordingServer

HABITS = Chain(np.random.default_rng(3).dirichlet(np.full(5, 0.5), 5) * 0.9 + 0.02, NAMES)
LENGTHS = dict(zip(NAMES, (900.0, 30.0, 2000.0, 5.0, 400.0), strict=True))


@pytest.fixture
def web(tmp_path):
    origin = Origin(dict(BODIES))
    with RecordingServer(origin) as server:
        (tmp_path / "urls.json").write_text(json.dumps(origin.urls(server)))
        yield origin, server


def measured(directory, *options):
    done = call("measure", directory / "urls.json", "-o", directory / "lengths.json", *options)
    file = directory / "lengths.json"
    return done, json.loads(file.read_text()) if file.exists() else None


def test_visits_and_changes_are_counted_from_one_command_to_the_next(web, tmp_path):
    origin, server = web
    for visit in range(3):
        origin.bodies["weather"] = b"rain" * (visit + 1)
        done, found = measured(tmp_path)
        assert done.returncode == 0, done.stderr
        assert "1 visit\n" in done.stdout if visit == 0 else f"{visit + 1} visits" in done.stdout
    assert set(found) == {"format", "version", "sources"}
    weather, news = found["sources"]["weather"], found["sources"]["news"]
    assert (weather["length"], weather["visits"], weather["changes"]) == (12, 3, 2)
    assert (news["length"], news["visits"], news["changes"]) == (len(BODIES["news"]), 3, 0)
    assert len({request.raw.replace(request.path.encode(), b"") for request in server.requests}) == 1  # all alike
    size = (tmp_path / "lengths.json").stat().st_size
    measured(tmp_path)
    assert (tmp_path / "lengths.json").stat().st_size == size  # one entry for each source, however many visits


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"news": 1}', "has not written it"),
        ("[]", "has not written it"),
        ('{"format": "onoff-measured", "version": 2}', "has not written it"),
        ('{"format": "onoff-measured", "version": 1, "sources": {"x": {}}}', "other sources"),
        ("{", "JSON"),
    ],
)
def test_a_file_of_others_is_not_overwritten(web, tmp_path, content, words):
    _, server = web
    (tmp_path / "lengths.json").write_text(content)
    done = call("measure", tmp_path / "urls.json", "-o", tmp_path / "lengths.json")
    assert done.returncode != 0
    assert words in done.stderr
    assert (tmp_path / "lengths.json").read_text() == content
    assert server.requests == []


def test_what_is_in_a_pipe_is_not_read_before_it_is_written(web, tmp_path):
    """A device such as /dev/full can be read for ever."""
    _, server = web
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        done = call("measure", tmp_path / "urls.json", "-o", tmp_path / "pipe")
        assert done.returncode == 0, done.stderr
        assert json.loads(os.read(reader, 65536))["format"] == "onoff-measured"
    finally:
        os.close(reader)
    assert server.requests


@pytest.mark.parametrize(
    "wrong", [{"visits": 0}, {"changes": 1}, {"digest": "x"}, {"length": 0}, {"more": 1}, {"visits": 10**30}]
)
def test_a_damaged_file_is_refused(web, tmp_path, wrong):
    _, server = web
    _, found = measured(tmp_path)
    server.reset()
    found["sources"]["news"] |= wrong
    (tmp_path / "lengths.json").write_text(json.dumps(found))
    done = call("measure", tmp_path / "urls.json", "-o", tmp_path / "lengths.json")
    assert done.returncode != 0
    assert "damaged" in done.stderr
    assert server.requests == []
    assert json.loads((tmp_path / "lengths.json").read_text()) == found


def test_a_client_of_the_promise_past_counts_bytes_and_its_audit_makes_the_laws_again(tmp_path):
    """The journal remembers lengths and chances, the record states them, and the audit has the same weights."""
    HABITS.save(tmp_path / "chain.json")
    sources = {
        name: {"length": int(length), "visits": 10, "changes": number * 2, "digest": "0" * 64}
        for number, (name, length) in enumerate(LENGTHS.items())
    }
    data = {"format": "onoff-measured", "version": 1, "sources": sources}
    (tmp_path / "lengths.json").write_text(json.dumps(data))
    (tmp_path / "requests").write_text("on news\non sports\n" + "off science\noff weather\noff news\n" * 3)
    where = ["--journal", tmp_path / "j", "--delay", "0"]
    given = ["--chain", tmp_path / "chain.json", "--lengths", tmp_path / "lengths.json", "--record", tmp_path / "laws"]
    origin = OnoffOrigin(BODIES)
    with RecordingServer(origin) as server:
        call("play", tmp_path / "requests", "--server", server.url, *given, *where, check=True)
        told = call("status", "--journal", tmp_path / "j", check=True).stdout
        server.wait_closed()
        bodies = [json.loads(request.body) for request in server.requests if request.method == "POST"]
    assert re.search(r"cost of the next request.*ON 3335, OFF [0-9.]+\n", told), told
    laws = [json.loads(line) for line in (tmp_path / "laws").read_text().splitlines()]
    assert {json.dumps(law["weights"]) for law in laws} == {
        json.dumps({"lengths": list(LENGTHS.values()), "chances": [(2 * k + 1) / 10 for k in range(5)]})
    }
    log = [{"catalogue": list(NAMES)}] + [
        {"step": body["step"], "sources": body["sources"], "stream": body["stream"]} for body in bodies
    ]
    (tmp_path / "log").write_text("".join(json.dumps(line) + "\n" for line in log))
    command = ["audit", "transcript", tmp_path / "log", "--chain", tmp_path / "chain.json", "--journal", tmp_path / "j"]
    done = call(*command, "--record", tmp_path / "laws")
    assert "other lengths" not in done.stdout + done.stderr
    assert "another law" not in done.stdout + done.stderr
    recorded, made = (
        json.loads(call(*command, *more, "--json").stdout) for more in (("--record", tmp_path / "laws"), ())
    )
    assert made["draws"] == recorded["draws"]  # the same laws, with the same weights, from public things alone
    assert made["log"]["private"] == recorded["log"]["private"]
    lied = [{**law, "weights": {**law["weights"], "chances": None}} for law in laws]
    (tmp_path / "lie").write_text("".join(json.dumps(line) + "\n" for line in lied))
    done = call(*command, "--record", tmp_path / "lie")
    assert done.returncode == 1
    assert "other lengths than the journal remembers" in done.stdout + done.stderr
