"""What is printed of the words of others, malformed addresses and tokens, and places that cannot be written to."""

from __future__ import annotations

import os
import pty
import re
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clikit import ONOFF, call
from onoff import Chain
from onoff.client.connect import Settings
from onoff.client.status import snapshot
from onoff.client.transports.onoff import OnoffTransport
from onoff.errors import REFUSED, UNREACHABLE, CatalogueError
from onoff.text import plain, plain_text, refusal
from recordingserver import OnoffOrigin, RecordingServer, reply

NAMES = ("news", "sports", "science", "weather")
BODIES = {name: f"the latest about {name}".encode() for name in NAMES}
EVIL = "\x1b]0;owned\x07\x1b[2J\x00\u202ereversed\r\n second line"


@pytest.fixture
def chain_file(tmp_path):
    Chain.symmetric(4, 0.4, NAMES).save(tmp_path / "chain.json")
    return tmp_path / "chain.json"


def get(chain_file, server, *more, source="news"):
    where = ["--journal", chain_file.with_name("j"), "--plans", chain_file.with_name("plans"), "--delay", "0"]
    return call("get", source, "--chain", chain_file, "--server", server, *where, "--no-background", *more)


@given(st.text(max_size=20) | st.binary(max_size=20))
def test_foreign_words_are_one_printable_line(words):
    assert plain(words).isprintable()
    assert len(plain(words * 400)) <= 304


@given(st.binary())
def test_a_message_for_a_terminal_is_printable_but_for_its_lines_and_tabs(body):
    assert all(part.isprintable() for part in re.split("[\\n\\t]", plain_text(body)))


def test_foreign_words_stay_readable():
    assert plain("wetter süd:  +5 °C\n now") == "wetter süd: +5 °C now"
    assert plain(EVIL) == "?]0;owned??[2J??reversed second line"
    assert refusal(b'{"type": "t", "title": "Conflict", "detail": "Another catalogue."}') == "Another catalogue."
    assert refusal(b'{"title": "Con\\u001bflict", "detail": 7}') == "Con?flict"
    assert refusal(b'{"nothing": "known"}') == '{"nothing": "known"}'
    assert refusal(b"{" * 50_000).startswith("{{{")
    assert refusal(b"<html>no</html>") == "<html>no</html>"


@pytest.mark.parametrize(("status", "where"), [(403, "/v1/catalogue"), (503, "/v1/query")])
def test_what_a_server_says_is_printed_plainly_and_the_step_is_said_to_be_pending(
    chain_file, status, where, monkeypatch
):
    monkeypatch.setitem(Settings.__init__.__kwdefaults__, "backoff", 0.01)
    origin = OnoffOrigin(BODIES)

    def respond(request):
        return reply(EVIL.encode(), status) if request.path == where else origin(request)

    with RecordingServer(respond) as server:
        done = get(chain_file, server.url)
        server.wait_closed()
    assert done.returncode == (UNREACHABLE if status == 503 else REFUSED)
    last = done.stderr.splitlines()[-1]
    assert last.isprintable(), last
    pending = where == "/v1/query"
    assert ("The request for 'news' stays pending" in last) == pending
    resume = f"`onoff resume --journal {chain_file.with_name('j')}` finishes it"
    assert (resume in last) == pending
    if pending:
        assert snapshot(chain_file.with_name("j")).state.pending is not None
        assert "?]0;owned??[2J??reversed second line" in last
        assert str(status) in last


def test_a_message_reaches_a_terminal_plainly_and_a_file_as_it_came(chain_file, tmp_path):
    body = b"\x1b]0;owned\x07 line\n\ttab \xff"
    with RecordingServer(OnoffOrigin({**BODIES, "news": body})) as server:
        common = ["--chain", chain_file, "--server", server.url, "--plans", tmp_path / "plans", "--no-background"]
        command = list(map(str, [ONOFF, "get", "news", "--journal", tmp_path / "k", *common]))
        assert subprocess.run(command, capture_output=True, check=True).stdout == body
        main, side = pty.openpty()
        subprocess.run(command, stdout=side, stderr=subprocess.DEVNULL, check=True)
        os.close(side)
        assert os.read(main, 1000).decode().replace("\r\n", "\n") == "?]0;owned? line\n\ttab \ufffd\n"
        os.close(main)


@pytest.mark.parametrize(
    "server",
    ["http://127.0.0.1:99999", "http://[::1", "ftp://h", "http://a b", "127.0.0.1:8700", "http://h\x00", "http://h/?q=1",
     os.fsdecode(b"http://h\xff")],
)  # fmt: skip
def test_a_malformed_address_is_an_error_that_says_what_is_needed(chain_file, server):
    done = get(chain_file, server)
    assert done.returncode == 2
    assert "http://HOST:PORT is needed" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not chain_file.with_name("j").exists()


@pytest.mark.parametrize("token", ["s3cret\nx", "s3cret ü", "s3cret\x00", os.fsdecode(b"s3cret\xff"), "s3cret \x1b[2J"])
def test_an_illegal_token_is_an_error_that_does_not_repeat_it(chain_file, token, monkeypatch):
    if "\x00" not in token:
        monkeypatch.setenv("ONOFF_TOKEN", token)
        done = get(chain_file, "http://127.0.0.1:9")
        assert done.returncode == 2
        assert "ONOFF_TOKEN" in done.stderr
        assert "s3cret" not in done.stderr
    with pytest.raises(CatalogueError) as caught:
        OnoffTransport("http://127.0.0.1:9", token)
    assert "s3cret" not in str(caught.value)
    with pytest.raises(CatalogueError, match="the reader's token is empty"):
        OnoffTransport("http://127.0.0.1:9", "")
