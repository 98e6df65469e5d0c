"""Programs that we did not write read feeds through a real `onoff proxy` from two plain web servers."""

from __future__ import annotations

import json
import random
import shutil
import signal
import sqlite3
import subprocess
import time
from contextlib import closing

import httpx
import numpy as np
import pytest

from clikit import ONOFF, call
from onoff import Chain
from onoff.client.status import snapshot
from ports import free_port
from proxykit import PlainOrigin, ProxyProcess

NAMES = tuple(f"feed{i}" for i in range(10))
SEED = 17


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
    chain.save(tmp_path / "chain.json")
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


def test_newsboat_imports_the_written_list_and_reads_all_feeds_through_the_proxy(origins, tmp_path):
    program, port, made = needed("newsboat"), free_port(), tmp_path / "made"
    listed = tmp_path / "list.txt"
    listed.write_text("".join(f"{url} The {name}\n" for name, url in urls_at(origins).items()))
    call("setup", listed, "--directory", made, "--port", port, check=True)
    home = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
    (tmp_path / "config").write_text("cleanup-on-quit no\n")
    (tmp_path / "urls").write_text("")
    command = [program, "-u", tmp_path / "urls", "-c", tmp_path / "news.db", "-C", tmp_path / "config"]
    subprocess.run([*command, "-i", made / "feeds.opml"], check=True, capture_output=True, env=home, timeout=180)
    addresses = {line.split()[0] for line in (tmp_path / "urls").read_text().splitlines() if line.strip()}
    assert addresses == {f"http://127.0.0.1:{port}/the-{name}" for name in NAMES}
    running = [ONOFF, "proxy", "--directory", made, "--delay", "0.01"]
    with subprocess.Popen(running, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline()
        subprocess.run([*command, "-x", "reload"], check=True, capture_output=True, env=home, timeout=180)
        process.terminate()
    with closing(sqlite3.connect(tmp_path / "news.db")) as database:
        titles = {title for (title,) in database.execute("SELECT title FROM rss_item")}
    assert titles == {f"{name} 1" for name in NAMES}
