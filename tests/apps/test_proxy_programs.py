"""Programs that we did not write read feeds through a real `onoff proxy` from two plain web servers."""

from __future__ import annotations

import json
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import time
from pathlib import Path

import httpx
import numpy as np
import pytest
import typer

from clikit import call
from onoff import Chain
from onoff.apps.cli.app import app
from onoff.client.status import snapshot
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
        assert "18 requests, " in page
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


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.long), signal.SIGTERM])
def test_an_end_finishes_the_step_or_keeps_it_pending(number, origins, tmp_path):
    with ProxyProcess(tmp_path, urls_at(origins), habits(), "--delay", "0.3") as proxy:  # so long it is pending
        asked = subprocess.Popen([needed("curl"), "-s", f"{proxy.url}/feed3"], stdout=subprocess.PIPE, text=True)
        while snapshot(proxy.journal).state.pending is None:
            assert asked.poll() is None, "the step was over before it was seen"
            time.sleep(0.02)
        assert proxy.stop(number) == 0
        assert asked.communicate(timeout=60)[0] == feed("feed3")
    assert snapshot(proxy.journal).state.pending is None
    assert "Traceback" not in proxy.stderr_file.read_text()


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
