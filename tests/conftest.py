"""Settings of all tests: repeatable Hypothesis runs, and no silent skips where everything should be installed."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
from collections import Counter
from functools import cache
from pathlib import Path

# Tests run beside each other. A second thread for products of matrices would wait for the processor, wide awake; with
# it they take three times the processor's time. Before anything imports NumPy; processes inherit it.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Journals and stores sync their files at every step. In memory that costs nothing, and a kill does not ask for a disk.
if Path("/dev/shm").is_dir() and shutil.disk_usage("/dev/shm").free > 2**32:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", "/dev/shm")

import httpx
import pytest
from hypothesis import HealthCheck, settings

from clientkit import TRANSPORTS, scene
from sampling import IN_CI, LONG, examples
from stresskit import SHARE, Campaign, say

# A job in the background, or after nohup, is handed "ignore", and would hand it down to the processes that tests end.
signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)  # the tests go on, and processes begin with the default

settings.register_profile(
    "onoff",
    max_examples=examples(100),
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("onoff")


# The certificates, which no test needs, take 30 ms to load: once is enough.
httpx._transports.default.create_ssl_context = cache(httpx.create_ssl_context)

# httpcore looks for this module at every request, which takes long where it is not and pytest looks, too.
sys.modules.setdefault("sniffio", None)

# A file is run by one worker, which starts its server, browser, cluster or JVM once (`--dist loadfile`). The files that
# take longest come first, so that no worker has to wait for the other at the end.
SLOWEST = (
    "test_fit_spark", "test_page", "test_server_faults", "test_docs", "test_server_load", "test_client_crashes",
    "test_planning", "test_fit", "test_replay_past", "test_base", "test_streams", "test_client",
    "test_replay_both", "test_streams_past", "test_page_session", "test_proxy_programs",
    "test_client_hostile", "test_planner", "test_words", "test_costs", "test_audit_plan", "test_replay_log",
    "test_cli", "test_plan_command", "test_page_app", "test_past_streams", "test_fit_person",
    "test_server_streams", "test_public", "test_past", "test_race",
)  # fmt: skip


def pytest_collection_modifyitems(config, items):
    """Sort the files, and leave long tests out, unless they are called by name."""
    if not LONG and not any("::" in word for word in config.args):
        left = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if not item.get_closest_marker("long")]
    items.sort(key=lambda item: SLOWEST.index(item.path.stem) if item.path.stem in SLOWEST else len(SLOWEST))


def pytest_collection_finish():
    """What was imported and collected stays to the end: the garbage collector need not look at it again and again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    """In CI a skip is a failure: what the tests need is installed there."""
    report = yield
    if IN_CI and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped in CI, where nothing may be skipped: {report.longrepr}"
    return report


@pytest.fixture(scope="session", autouse=True)
def _a_cache_of_their_own(tmp_path_factory):
    """Witnesses of journals and verified plans are kept in the user's cache: not in the one of who runs the tests."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


def pytest_configure(config):
    config.addinivalue_line("markers", "timing: statistics of time, which `make test` runs alone, after all others")
    config.addinivalue_line("markers", "long: more of what a shorter test shows; CI and ONOFF_LONG=1 run it")
    config.addinivalue_line("markers", "stress: a campaign of many random runs; ONOFF_STRESS is the share of it")


# Servers that keep every byte, as clients and proxies meet them.


@pytest.fixture(params=TRANSPORTS)
def world(request, tmp_path):
    """Both kinds of server, one after the other. A file may have a `world` of its own."""
    with scene(request.param, tmp_path) as found:
        yield found


@pytest.fixture
def own(tmp_path):
    """An onoff server: its steps stay pending while it does not answer."""
    with scene("own", tmp_path) as found:
        yield found


@pytest.fixture
def web(tmp_path):
    """A web server that knows nothing of us."""
    with scene("any", tmp_path) as found:
        yield found


@pytest.fixture
def driver(tmp_path):
    """The process that runs clients, with a cache of its own."""
    from crashkit import Driver

    with Driver(tmp_path, XDG_CACHE_HOME=str(tmp_path / "cache")) as process:
        yield process


@pytest.fixture
def campaign(request, record_property, capfd):
    """The counts of a campaign, named after its file; they are told at the end, also if it fails."""

    def aloud(words):
        with capfd.disabled():
            say(words)

    found = Campaign(request.path.stem.removeprefix("test_stress_"), aloud)
    yield found
    record_property("stress", [found.name, dict(found.counts), found.seconds])


def pytest_terminal_summary(terminalreporter):
    """The table of the campaigns."""
    reports = [each for some in terminalreporter.stats.values() for each in some if isinstance(each, pytest.TestReport)]
    failed = {report.nodeid for report in reports if report.failed}
    table = {}
    for report in reports:
        for key, value in report.user_properties:
            if key == "stress" and report.when == "teardown":
                table.setdefault(value[0], []).append((report.nodeid in failed, *value[1:]))
    if table:
        terminalreporter.section(f"stress: {SHARE:g} of the whole campaigns")
    for name, parts in sorted(table.items()):
        counts = Counter()
        for _, part, _ in parts:
            counts.update(part)
        wrong = sum(broken for broken, _, _ in parts)
        verdict = f"{wrong} of {len(parts)} parts FAILED" if wrong else "all held"
        terminalreporter.line(f"{name}: {counts.pop('runs', 0)} runs, {sum(s for *_, s in parts):.0f} s, {verdict}")
        for what, number in sorted(counts.items()):
            terminalreporter.line(f"    {number:>8}  {what}")
