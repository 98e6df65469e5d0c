"""Programs that we did not write read feeds through a real `onoff proxy` from two plain web servers."""

from __future__ import annotations

import http.client
import json
import random
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

import httpx
import numpy as np
import pytest
import typer

from clikit import call
from onoff import Chain
from onoff.apps.cli.app import app
from onoff.client.status import snapshot
from ports import free_port
from proxykit import PlainOrigin, ProxyProcess

NAMES = tuple(f"feed{i}" for i in range(10))
SEED = 17
ROOT = Path(__file__).parents[2]


def feed(name, issue=1):
    item = f"<item><title>{name} {issue}</title><guid>{name}-{issue}</guid><description>x</description></item>"
    return f'<?xml version="1.0"?><rss version="2.0"><channel><title>{name}</title>{item}</channel></rss>'


def habits():
    """Strong habits: one of three sources follows most of the time, and none is impossible."""
    rng = np.random.default_rng(SEED)
    matrix = rng.dirichlet(np.full(10, 0.3), 10) + 0.01
    return Chain(matrix / matrix.sum(axis=1, keepdims=True), NAMES)


@pytest.fixture
def origins(tmp_path):
    """Two web servers, five feeds each."""
    for i, name in enumerate(NAMES):
        place = tmp_path / f"site{i % 2}"
        place.mkdir(exist_ok=True)
        (place / f"{name}.xml").write_text(feed(name))
    with PlainOrigin(tmp_path / "site0") as one, PlainOrigin(tmp_path / "site1") as two:
        yield one, two


def urls_at(origins):
    return {name: f"{origins[i % 2].url}/{name}.xml" for i, name in enumerate(NAMES)}


def needed(program):
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"{program} is not installed")
    return path


class Programs:
    """Each reads a feed at the proxy, as its user would call it, and says what it got."""

    def __init__(self, proxy, directory):
        self.proxy, self.directory = proxy, directory

    def read(self, program, name):
        return getattr(self, program)(f"{self.proxy.url}/{name}", name)

    def curl(self, url, name):  # noqa: ARG002
        return subprocess.run([needed("curl"), "-sS", "--fail", url], check=True, capture_output=True, text=True).stdout

    def wget(self, url, name):  # noqa: ARG002
        return subprocess.run([needed("wget"), "-qO-", url], check=True, capture_output=True, text=True).stdout

    def newsboat(self, url, name):
        """Reload one feed; its newest article is looked up in newsboat's own cache."""
        listed, kept, settings = (self.directory / f"newsboat.{end}" for end in ("urls", "db", "config"))
        listed.write_text(url + "\n")
        settings.write_text("cleanup-on-quit no\n")
        command = [needed("newsboat"), "-u", listed, "-c", kept, "-C", settings, "-x", "reload"]
        home = {"HOME": str(self.directory), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
        subprocess.run(command, check=True, capture_output=True, env=home, timeout=180)
        database = sqlite3.connect(kept)
        try:
            titles = database.execute("SELECT title FROM rss_item WHERE feedurl = ?", (url,)).fetchall()
        finally:
            database.close()
        return feed(name) if (f"{name} 1",) in titles else f"newsboat has {titles}"


def test_the_origins_learn_nothing_from_what_curl_wget_and_newsboat_read(origins, tmp_path):
    chain, rng = habits(), random.Random(SEED)
    wanted = [NAMES[i] for i in chain.simulate(18, np.random.default_rng(SEED))]
    seen = [{"catalogue": NAMES}]
    with ProxyProcess(tmp_path, urls_at(origins), chain, "--cache", "0", "--record", str(tmp_path / "laws")) as proxy:
        programs = Programs(proxy, tmp_path)
        for step, name in enumerate(wanted):
            status = "on" if step < 3 or rng.random() < 0.3 else "off"
            httpx.put(f"{proxy.url}/onoff/privacy", content=status)
            for origin in origins:
                origin.log.clear()
            program = ("curl", "wget", "newsboat")[step % 3]
            assert programs.read(program, name) == feed(name), (program, name)
            paths = [path for origin in origins for path in origin.log]
            asked = sorted(NAMES.index(path[1:-4]) for path in paths)
            seen.append({"time": step, "step": step, "sources": asked, "client": "127.0.0.1"})
        page = httpx.get(proxy.url).text
        assert "18, " in page
        assert "DO NOT FOLLOW" not in page
    assert any(len(line["sources"]) < 10 for line in seen[1:])
    stream = json.loads((tmp_path / "laws").read_text().splitlines()[0])["stream"]
    log = tmp_path / "seen.jsonl"

    def audited(lines):
        known = [
            {**line, "stream": stream, "held": [0] * len(line["sources"])} if "step" in line else line for line in lines
        ]  # without a cache, nothing is held
        log.write_text("".join(json.dumps(line) + "\n" for line in known))
        words = ("--chain", tmp_path / "chain.json", "--journal", proxy.journal, "--laws", tmp_path / "laws")
        return call("audit", "log", log, *words)

    found = audited(seen)
    assert found.returncode == 0, found.stdout + found.stderr
    # A program that asks openly while OFF would be seen.
    openly = [
        line if len(line.get("sources", ())) in (0, 10) else {**line, "sources": [NAMES.index(wanted[line["step"]])]}
        for line in seen
    ]
    assert openly != seen
    assert audited(openly).returncode == 1


def test_a_hundred_connections_at_once_are_all_answered_in_order_of_arrival(origins, tmp_path):
    rng = random.Random(SEED)
    pair = dict(list(urls_at(origins).items())[:2])
    names = [rng.choice(list(pair)) for _ in range(100)]

    def taken():
        """How many requests have come to the queue so far, as the page says."""
        page.request("GET", "/")
        text = page.getresponse().read().decode()
        [made], [waiting] = re.findall(r"<dd>(\d+), \d+ of them ON", text), re.findall(r"<dd>(\d+) requests", text)
        return int(made) + int(waiting) + ("a step is not finished" in text)

    with ProxyProcess(tmp_path, pair, Chain([[0.5] * 2] * 2, pair)) as proxy, ExitStack() as stack:
        page = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=180)
        stack.callback(page.close)
        connections = []
        for i, name in enumerate(names):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", proxy.port), timeout=180))
            connection.sendall(f"GET /{name} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
            connections.append(connection)
            while taken() < i:  # its own draw may be under way: then it neither waits nor is pending
                time.sleep(0.005)
        answers = [b"".join(iter(lambda: connection.recv(2**16), b"")) for connection in connections]  # noqa: B023
    assert [answer.partition(b"\r\n\r\n")[2].decode() for answer in answers] == [feed(name) for name in names]
    order = [int(answer.partition(b"onoff-step: ")[2].split(b"\r\n")[0]) for answer in answers]
    assert order == list(range(100))


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.long), signal.SIGTERM])
def test_an_end_finishes_the_step_or_keeps_it_pending(number, origins, tmp_path):
    with ProxyProcess(tmp_path, urls_at(origins), habits(), "--delay", "1") as proxy:  # so long it is pending
        asked = subprocess.Popen([needed("curl"), "-s", f"{proxy.url}/feed3"], stdout=subprocess.PIPE, text=True)
        while snapshot(proxy.journal).state.pending is None:
            assert asked.poll() is None, "the step was over before it was seen"
            time.sleep(0.02)
        assert proxy.stop(number) == 0
        assert asked.communicate(timeout=60)[0] == feed("feed3")
    assert snapshot(proxy.journal).state.pending is None
    assert "Traceback" not in proxy.stderr_file.read_text()


def test_who_starts_a_second_proxy_is_told_how_to_switch_the_first(origins, tmp_path):
    with ProxyProcess(tmp_path, urls_at(origins), habits()) as proxy:
        again = call(*proxy.command[1:], "--off")
        elsewhere = call(*proxy.command[1:], "--port", "0", "--off")
    assert "name another --port" in again.stderr
    assert "`curl -X PUT -d off http://HOST:PORT/onoff/privacy`" in again.stderr
    assert "another client is using this journal" in elsewhere.stderr
    assert "`curl -X PUT -d off http://HOST:PORT/onoff/privacy`" in elsewhere.stderr


def test_on_and_off_together_are_refused(origins, tmp_path):
    chain, urls = tmp_path / "chain.json", tmp_path / "urls.json"
    habits().save(chain)
    urls.write_text(json.dumps(urls_at(origins)))
    for command in (("proxy",), ("get", NAMES[0])):
        both = call(*command, "--urls", urls, "--chain", chain, "--journal", tmp_path / "j", "--on", "--off")
        assert both.returncode == 2
        assert "give --on or --off, not both" in both.stderr
        assert not (tmp_path / "j").exists()


def test_a_start_says_that_a_step_is_pending_and_status_finds_the_journal_of_the_proxy(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "onoff").mkdir()
    nobody = f"http://127.0.0.1:{free_port()}"
    with ProxyProcess(tmp_path, {name: f"{nobody}/{name}" for name in NAMES}, habits()) as proxy:
        assert httpx.get(f"{proxy.url}/feed1", timeout=180).headers["onoff-true-status"] == "504"
        assert "is pending since" not in proxy.stderr_file.read_text()
        proxy.stop()
        proxy.start()
        said = proxy.stderr_file.read_text()
        proxy.kill()
        proxy.start()
    assert said.count("a request is pending since the last time") == 1
    again = proxy.stderr_file.read_text()[len(said) :]
    assert "the proxy was killed, or a program got no message. Requests to come that are made ON for that: 1" in again
    assert "Of the proxy" not in call("status").stderr
    (tmp_path / "onoff" / "proxy").touch()
    assert f"`onoff status --journal {tmp_path}/onoff/proxy`" in call("status").stderr


def test_the_options_of_the_service_exist():
    file = ROOT / "examples" / "onoff-proxy.service"
    [words] = re.findall(r"^ExecStart=%h/\S+/onoff (.*)$", file.read_text(), flags=re.M)
    known = {option for each in typer.main.get_command(app).commands["proxy"].params for option in each.opts}
    assert {word for word in words.split() if word.startswith("--")} <= known


def test_an_announced_journal_is_refused_in_a_sentence(origins, tmp_path):
    habits().save(tmp_path / "chain.json")
    (tmp_path / "urls.json").write_text(json.dumps(urls_at(origins)))
    given = ("--chain", tmp_path / "chain.json", "--urls", tmp_path / "urls.json", "--journal", tmp_path / "j")
    call("get", "feed1", "--promise", "both", "--no-background", *given, check=True)
    refused = call("proxy", *given)
    assert refused.returncode == 2
    assert "was made for the promise 'both'" in refused.stderr
    assert "name another journal" in refused.stderr
