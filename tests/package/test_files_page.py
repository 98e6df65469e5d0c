"""The page of file formats: what it names is in fresh files of each kind, and what is in them it names."""

from __future__ import annotations

import dataclasses
import json
import re
import sqlite3
import struct
import time
from pathlib import Path

import pytest

from clikit import call
from onoff import Chain, HttpTransport, Planner, plan
from onoff.apps.costs import read_lengths
from onoff.client.memory import Memory
from onoff.client.play import parse_items
from onoff.client.status import snapshot
from onoff.server.tokens import append_hash, new_token, read_hashes
from onoff.server.transcript import Transcript
from onoff.wire import QueryMessage
from recordingserver import OnoffOrigin, RecordingServer, reply

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "files.md").read_text()
SECTIONS = {part.split("\n", 1)[0]: part for part in PAGE.split("\n## ")[1:]}
NAMES = ("news", "sports", "weather")


def named(section: str) -> set[str]:
    """The fields that the tables of a section name; one row may name several."""
    rows = re.findall(r"^\| (`[^|]*`) \|", SECTIONS[section], flags=re.M)
    return {field for row in rows for field in re.findall("`([^`]*)`", row)}


def block(section: str) -> str:
    """The example of a section."""
    [found] = re.findall(r"^```\w+\n(.*?)^```$", SECTIONS[section], flags=re.M | re.S)
    return found


def fields(data: dict[str, object], *within: str) -> set[str]:
    """The keys of an object; those of the objects `within` it instead of them, as `outer.inner`."""
    found = set(data) - set(within)
    for key in within:
        found |= {f"{key}.{inner}" for inner in data[key]}
    return found


@pytest.fixture(scope="module")
def chain():
    return Chain([[0.5, 0.25, 0.25], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]], NAMES)


def test_the_fields_of_a_chain(tmp_path, chain):
    call("fit", ROOT / "examples" / "clicks.csv", "-o", tmp_path / "fitted.json", check=True)
    fitted = json.loads((tmp_path / "fitted.json").read_text())
    tree = Chain([*chain.P, chain.P[0]], NAMES, states=[(0,), (1,), (2,), (0, 1)])
    tree.save(tmp_path / "tree.json")
    assert set(fitted) | set(json.loads((tmp_path / "tree.json").read_text())) == named("Chain")
    chain.save(tmp_path / "plain.json")
    assert set(json.loads((tmp_path / "plain.json").read_text())) == set(fitted) - {"weight"}
    (tmp_path / "example.csv").write_text(block("Chain"))
    assert Chain.load(tmp_path / "example.csv") == chain


def test_the_fields_of_a_plan(tmp_path, chain):
    written = set()
    for scheme in ("optimal", "race"):
        plan(chain, 1, scheme).save(tmp_path / scheme)
        data = json.loads((tmp_path / scheme).read_text())
        written |= fields(data, "certificate") if scheme == "optimal" else set(data)
    assert written == named("Plan")


def test_the_fields_of_a_journal_and_of_recorded_laws(tmp_path, chain):
    """A step is left pending by a server that refuses its query."""
    chain.save(tmp_path / "chain.json")
    (tmp_path / "requests").write_text("on news\non sports\noff sports\n")
    origin, taken = OnoffOrigin(dict.fromkeys(NAMES, b"x")), iter([True] * 3)

    def respond(request):
        refused = request.path == "/v1/query" and not next(taken, False)
        return reply(b"", 403) if refused else origin(request)

    where = ["--journal", tmp_path / "j", "--record", tmp_path / "laws", "--delay", "0"]
    with RecordingServer(respond) as server:
        given = ["--chain", tmp_path / "chain.json", "--server", server.url]
        call("play", tmp_path / "requests", *given, *where, check=True)
        assert "stays pending" in call("get", "news", "--off", *where).stderr
        server.wait_closed()
    state = snapshot(tmp_path / "j").state.as_dict()
    found = {f"state.{key}" for key in state} | {f"state.pending.{key}" for key in state["pending"]}
    database = sqlite3.connect(tmp_path / "j")
    found |= {f"meta.{key}" for (key,) in database.execute("SELECT key FROM meta")}
    for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
        found |= {f"{table}.{column}" for column in columns} if table != "meta" else set()
    [(public,)] = database.execute("SELECT value FROM meta WHERE key = 'public'").fetchall()
    database.close()
    found |= {f"meta.note {each.name}" for each in dataclasses.fields(Memory)}
    found |= {f"public.{key}" for key in json.loads(public)}
    assert found == named("Journal")
    laws = [json.loads(line) for line in (tmp_path / "laws").read_text().splitlines()]
    assert [fields(law, "law") for law in laws] == [named("Laws")] * 2


def test_the_fields_of_a_transcript(tmp_path):
    transcript = Transcript(tmp_path / "seen.jsonl")
    transcript.begin(NAMES)
    transcript.record(QueryMessage("0" * 32, "0" * 64, 0, (0, 2)), "127.0.0.1")
    lines = [json.loads(line) for line in (tmp_path / "seen.jsonl").read_text().splitlines()]
    assert set().union(*lines) == named("Transcript")


def test_the_columns_of_costs(tmp_path, chain):
    chain.save(tmp_path / "chain.json")
    call("costs", tmp_path / "chain.json", "--lags", "1", "--jobs", "1", "--csv", tmp_path / "t.csv", check=True)
    assert set((tmp_path / "t.csv").read_text().splitlines()[0].split(",")) == named("Costs")


def test_the_examples_are_read(tmp_path):
    for section in ("Lengths", "URLs", "Tokens"):
        (tmp_path / section).write_text(block(section))
    found = read_lengths(tmp_path / "Lengths", Chain.symmetric(3, 0.5, NAMES))
    assert found == {"news": 1200.0, "sports": 800.5, "weather": 90.0}
    assert HttpTransport.load(tmp_path / "URLs").names == NAMES
    wanted = [("news", True), ("weather", True), ("sports", False), ("sports", False)]
    assert parse_items(block("Requests"), tmp_path, NAMES) == wanted
    assert len(read_hashes((tmp_path / "Tokens").read_text(), "here")) == 1
    append_hash(tmp_path / "Tokens", new_token())
    assert len(read_hashes((tmp_path / "Tokens").read_text(), "here")) == 2


def test_the_files_of_a_directory_of_plans(tmp_path, chain):
    with Planner(chain, tmp_path, background=True) as planner:
        planner.best(1)
        while planner.is_working:
            time.sleep(0.05)
        names = [file.name.replace(chain.fingerprint, "FINGERPRINT") for file in planner.store.directory.iterdir()]
        files = {re.sub(r"\d+", "LAG", name) for name in names}
        content = (planner.store.directory / f"{chain.fingerprint}.chain").read_bytes()
    told = SECTIONS["Plan"].split("| field |")[0]
    assert files == set(re.findall(r"`([a-z]+\.json|lag-LAG\.plan\.json|FINGERPRINT\.chain|lock|log)`", told))
    assert content == block("Plan").strip().encode() + b"\0" + b"".join(struct.pack("<3d", *row) for row in chain.P)
