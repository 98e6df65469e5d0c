"""The shape of the command line: help, tone, completion, exit codes, and what `get` and `play` write where."""

from __future__ import annotations

import errno
import io
import json
import re
import shlex
import sys
from pathlib import Path
from unittest.mock import patch

import pytest

from clikit import COMMANDS, call
from onoff import Chain, errors
from onoff.apps.cli.options import AUDIT, PLAN, READ, SERVE, STUDY
from onoff.client.client import Client
from onoff.client.connect import Settings
from onoff.client.status import snapshot
from recordingserver import OnoffOrigin, RecordingServer, reply

ROOT = Path(__file__).parents[2]
NAMES = ("news", "sports", "science", "weather")
BODIES = {name: f"latest of {name}".encode() for name in NAMES}
SAID = ("--delay", "0", "--no-background")


@pytest.fixture(scope="module")
def origin():
    """A server of ours in this process."""
    with RecordingServer(OnoffOrigin(BODIES)) as server:
        yield server


@pytest.fixture
def given(tmp_path, origin):
    """What a client of `origin` needs, with a journal of its own."""
    Chain.symmetric(4, 0.4, NAMES).save(tmp_path / "chain.json")
    where = ("--journal", tmp_path / "j", "--plans", tmp_path / "plans", *SAID)
    return ("--chain", tmp_path / "chain.json", "--server", origin.url, *where)


# Help


def test_help_lists_every_command_in_its_panel():
    shown = call("--help").stdout
    assert call().stdout == shown
    assert re.match(r"\d+\.\d+", call("--version").stdout)
    assert max(map(len, shown.splitlines())) <= 80
    places = [shown.index(f"─ {panel} ─") for panel in (READ, PLAN, SERVE, STUDY, AUDIT)]
    assert places == sorted(places)
    assert "─ Commands ─" not in shown, "a command without a panel: give it a rich_help_panel"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself_with_an_example_and_can_be_told_to_be_quiet_or_verbose(name):
    short = call(*name.split(), "-h").stdout
    for option in (r"--help +-h", r"--quiet +-q", r"--verbose +-v"):
        assert re.search(option, short)
    assert f"Example: onoff {name}" in " ".join(short.split())


# Tone


def test_a_quiet_get_says_nothing_and_a_verbose_one_says_what_was_asked_for_and_what_it_cost(given):
    more = call("get", "news", "-v", *given, check=True)
    assert "step 0 (ON): asked for 4 sources: news, sports, science, weather" in more.stderr
    assert re.search(r"expected cost 4\.000 \(everything\); \d+ bytes received", more.stderr)
    for words in (("-q", "get", "news", "--off", *given), ("get", "news", "--off", "-q", *given)):
        quiet = call(*words, check=True)
        assert (quiet.stdout, quiet.stderr) == ("latest of news", "")


# What get and play write


def test_get_writes_a_file_whole_and_only_after_the_connection_is_closed(given, tmp_path, monkeypatch):
    out, seen = tmp_path / "message", []
    out.write_text("before")
    honest = Client.__aexit__

    async def leave(self, *words):
        seen.append(out.read_text())
        await honest(self, *words)

    monkeypatch.setattr(Client, "__aexit__", leave)
    done = call("get", "news", "-o", out, *given, check=True)
    assert (done.stdout, out.read_text(), seen) == ("", "latest of news", ["before"])
    found = json.loads(call("get", "sports", "-o", out, "--json", *given, check=True).stdout)
    assert (found["body"], found["file"], found["length"]) == (None, str(out), len(BODIES["sports"]))
    assert out.read_bytes() == BODIES["sports"]
    again = call("resume", "--last", "--out", out, *given[:8], "--journal", tmp_path / "j")
    assert again.returncode == 0, again.stderr


def test_resume_with_nothing_pending_sends_nothing(given, tmp_path, origin):
    """What the server sees must not depend on whether a reader wants to look at its message again."""
    early = call("resume", "--journal", tmp_path / "j")
    assert (early.returncode, "there is no journal" in early.stderr) == (errors.NOTHING_PENDING, True)
    call("get", "news", *given, check=True)
    origin.reset()
    refused = call("resume", "--journal", tmp_path / "j")
    assert (refused.returncode, refused.stdout) == (errors.NOTHING_PENDING, "")
    advice = f"`onoff resume --last --journal {tmp_path / 'j'}` writes the last message again, for 'news' in step 0"
    assert advice in refused.stderr
    again = call("resume", "--last", "--journal", tmp_path / "j", check=True)
    assert again.stdout == "latest of news"
    assert "nothing was pending; this is the last message again, and no server was asked" in again.stderr
    assert not any(origin.recording())


JOURNALS = {
    "both": ("--chain", "chain.json", "--promise", "both"),
    "past": ("--chain", "chain.json"),
    "learning": (),
    "all": ("--promise", "all"),
}
STEPS = [(name, words) for name in JOURNALS for words in (("--on",), ("--off",), ())]
STEPS += [("both", ("--off", "--next", "sports"))]


@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize(("kind", "words"), STEPS)
@pytest.mark.parametrize("wanted", ["news", "gone"])
def test_resume_last_repeats_what_get_said_after_every_kind_of_step(kind, words, before, wanted, tmp_path):
    """A step that is asked OFF is made ON at first, and with the promise both and no next one always."""
    made = JOURNALS[kind]
    Chain.symmetric(3, 0.4, ("news", "sports", "gone")).save(tmp_path / "chain.json")
    with RecordingServer(lambda request: reply(request.path.encode(), 404 if "gone" in request.path else 200)) as web:
        urls = {name: f"{web.url}/{name}" for name in ("news", "sports", "gone")}
        (tmp_path / "urls.json").write_text(json.dumps(urls))
        for source in ["sports"] * before:
            call("get", source, "--on", *made, "--urls", "urls.json", "--journal", "j", *SAID, cwd=tmp_path, check=True)
        done = call("get", wanted, *words, *made, "--urls", "urls.json", "--journal", "j", *SAID, cwd=tmp_path)
        web.reset()
        again = call("resume", "--last", "--journal", "j", cwd=tmp_path)
        assert not any(web.recording())
    said = [line for line in done.stderr.splitlines() if "a new journal" not in line and "all sources" not in line]
    assert (again.returncode, again.stdout) == (done.returncode, done.stdout)
    assert again.returncode == (errors.NO_MESSAGE if wanted == "gone" else 0)
    assert again.stderr.splitlines()[1:] == said  # after the note that nothing was pending


def test_a_message_that_cannot_be_written_is_had_without_another_request(given, origin, tmp_path, monkeypatch):
    def fill_disk(file, _, sync):  # noqa: ARG001
        raise OSError(errno.ENOSPC, "full", str(file))

    with monkeypatch.context() as disk:
        disk.setattr("onoff.apps.cli.read.write_atomically", fill_disk)
        done = call("get", "news", "-o", tmp_path / "message", *given)
    assert done.returncode == errors.USAGE
    assert "message: no space left on device: make room and try again" in done.stderr
    again = re.search("`onoff (resume --last .*)`", done.stderr)[1]
    origin.reset()
    assert call(*shlex.split(again), check=True).stdout == BODIES["news"].decode()
    assert not any(origin.recording())


def test_play_reads_standard_input_and_goes_on_with_the_same_words(given, tmp_path):
    def play(text):
        with patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(text))):
            return call("play", "-", *given)

    assert "2 requests" in play(b"on news\noff sports\n").stdout
    assert "stdin was played to its end: nothing was asked for now" in play(b"on news\noff sports\n").stderr
    assert play(b"off science\noff news\n").returncode == 0
    assert "stdin: byte 0 is not UTF-8" in play(b"\xff").stderr
    assert snapshot(tmp_path / "j").state.step == 4


# Exit codes


def test_each_kind_of_error_has_its_exit_code(given, tmp_path, monkeypatch):
    monkeypatch.setitem(Settings.__init__.__kwdefaults__, "backoff", 0.001)
    honest = OnoffOrigin(BODIES)

    def get(server, journal, source="news"):
        words = [server if str(word).startswith("http") else word for word in given]
        done = call("get", source, *words[:4], "--journal", tmp_path / journal, *words[6:])
        assert done.stderr.splitlines()[-1].startswith("onoff: error: ")
        return done.returncode

    assert get("http://127.0.0.1:1", "a") == errors.UNREACHABLE
    with RecordingServer(lambda one: reply(b"no", 403) if one.path == "/v1/query" else honest(one)) as server:
        assert get(server.url, "b") == errors.REFUSED
        assert get(server.url, "b", "sports") == errors.RULES  # what was refused is pending
    told = call("status", "--journal", tmp_path / "b", check=True).stdout
    assert f"`onoff resume --journal {tmp_path / 'b'}` sends the same set again" in told
    (tmp_path / "d").write_text("not a journal")
    assert get("http://127.0.0.1:1", "d") == errors.JOURNAL
    rows = "".join(f"u,{time},{NAMES[time % 2]}\n" for time in range(60))  # the chain stays more often
    (tmp_path / "log.csv").write_text(f"user,time,source\n{rows}")
    assert call("check", tmp_path / "log.csv", "--chain", tmp_path / "chain.json").returncode == errors.FOUND
    with RecordingServer(lambda request: reply(b"no", 404)) as web:
        (tmp_path / "urls.json").write_text(json.dumps({name: f"{web.url}/{name}" for name in NAMES}))
        done = call("get", "news", "--urls", tmp_path / "urls.json", *given[:2], "--journal", tmp_path / "c", *SAID)
    assert done.returncode == errors.NO_MESSAGE
    assert "the request counts as made, with its query" in done.stderr


def test_the_exit_codes_are_documented_as_they_are():
    """In the reference, in `onoff --help` and in the classes of errors, which may not disagree."""
    names = ("FOUND", "USAGE", "UNREACHABLE", "REFUSED", "NO_MESSAGE", "JOURNAL", "RULES", "NOTHING_PENDING", "STOPPED")
    known = {getattr(errors, name) for name in names}
    assert len(known) == len(names)
    page = (ROOT / "docs" / "reference" / "errors.md").read_text()
    assert {int(number) for number in re.findall(r"^\| (\d+) \|", page, flags=re.M)} == known | {0}
    shown = " ".join(call("--help").stdout.split())
    assert {int(number) for number in re.findall(r"(\d+) ", shown.split("Exit codes:")[1])} == known | {0}
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, errors.OnoffError):
            assert kind.exit_code in known, name
            mentioned = re.search(rf"^\| (\d+) \|[^\n]*`{name}`", page, flags=re.M)
            inherited = next(base for base in kind.__mro__ if "exit_code" in vars(base))
            assert mentioned is None or int(mentioned[1]) == kind.exit_code
            assert mentioned is not None or inherited is not kind or kind is errors.OnoffError, f"{name} is not listed"
