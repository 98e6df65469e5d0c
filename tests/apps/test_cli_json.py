"""`--json`: every command that prints a result has it. It prints one object, with the fields of a frozen result."""

from __future__ import annotations

import json
import random
from dataclasses import fields, is_dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from generated import RESULTS, result_type

from clikit import COMMANDS, call
from onoff import Chain
from onoff.apps.cli.output import plain_data
from recordingserver import RecordingServer, reply
from serverprocess import ServerProcess

NAMES = ("news", "sports", "science", "weather")
# What to type in the directory of `world` for every result in the reference. {url} and {web} are servers.
RUNS = {
    "get": "get news --next sports --journal get.journal {given}",
    "resume": "resume --last --journal both.journal",
    "status": "status --journal both.journal",
    "play": "play requests.txt --promise past --record laws.jsonl --journal past.journal {given}",
    "setup": "setup feeds.txt --force --directory made",
    "fit": "fit log.csv --one-user -o fitted.json",
    "costs": "costs chain.json --lags 1-2 --streams 2",
    "costs --day": "costs chain.json --day --streams 2",
    "plan": "plan chain.json --lags 1-2 --out plans",
    "demo": "demo --steps 10",
    "audit streams": "audit streams chain.json --statuses 10 --scheme naive --scheme optimal --promise both",
    "audit people": "audit people people.txt --min-length 3 --users 4",
}
# Commands that print no result.
WITHOUT = {"proxy", "serve", "token", "page", "reproduce"}
# Commands whose results are looked at by the tests of their own.
ELSEWHERE = {"check", "audit plan", "audit log"}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A directory with a chain, a log, and what `RUNS` needs; and how to run one of them."""
    directory = tmp_path_factory.mktemp("json")
    Chain.symmetric(4, 0.4, NAMES).save(directory / "chain.json")
    Chain.symmetric(4, 0.45, NAMES).save(directory / "other.json")
    rng = random.Random(1)
    (directory / "requests.txt").write_text("on news\non news\noff sports\noff science\n")
    (directory / "log.csv").write_text("time,page\n" + "".join(f"{t},{rng.choice(NAMES)}\n" for t in range(400)))
    (directory / "people.txt").write_text("".join(" ".join(rng.choices(NAMES, k=6)) + "\n" for _ in range(16)))
    with ServerProcess(directory, names=NAMES) as server, RecordingServer(lambda _: reply(b"a page")) as web:
        server.publish({name: f"latest of {name}".encode() for name in NAMES})
        (directory / "urls.json").write_text(json.dumps({name: f"{web.url}/{name}" for name in NAMES}))
        (directory / "feeds.txt").write_text("".join(f"{web.url}/{name} {name}\n" for name in NAMES))
        given = f"--chain chain.json --server {server.url} --delay 0 --no-background --plans plans"

        def run(words, *more):
            return call(*words.format(given=given).split(), *more, cwd=directory)

        call("plan", "chain.json", "--lags", "1-2", "--out", "plans", cwd=directory, check=True)
        for word in ("news --next sports", "sports --next news", "news --next news --off"):
            made = run(f"get {word} --promise both --journal both.journal {{given}}")
            assert made.returncode == 0, made.stderr
        played = run(RUNS["play"], "--quiet")
        assert played.returncode == 0, played.stderr
        assert played.stderr == ""
        yield run


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_prints_its_result_as_json_or_is_known_to_have_none(name):
    has_it = any("--json" in parameter.opts for parameter in COMMANDS[name].params)
    assert has_it != (name in WITHOUT), f"{name}: add --json, or its name to WITHOUT"
    assert has_it == (name in {*RESULTS, *ELSEWHERE}), f"{name}: add its result to docs/generated.py"


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long if name == "demo" else ()) for name in RESULTS]
)
def test_json_is_one_object_with_the_fields_of_a_frozen_result(name, world):
    result = result_type(name)
    assert not is_dataclass(result) or result.__dataclass_params__.frozen
    done = world(RUNS[name], "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)  # one document: words before or after it would be an error
    for one in found if isinstance(found, list) else [found]:  # a list where there are several schemes
        assert isinstance(one, dict)
        assert not is_dataclass(result) or list(one) == [field.name for field in fields(result)]


def test_a_result_is_printed_with_all_its_parts_and_null_for_what_is_not_finite():
    found = plain_data({"share": Fraction(1, 4), "far": float("inf"), 3: np.arange(2), "file": Path("a/b")})
    assert found == {"share": 0.25, "far": None, "3": [0, 1], "file": "a/b"}
