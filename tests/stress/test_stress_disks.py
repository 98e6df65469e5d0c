"""300 full disks: errors that name the disk and never advise to throw state away; with room again, all goes on."""

from __future__ import annotations

import json
import random
import resource

import httpx
import pytest

from crashkit import BODIES, CHAIN, NAMES, check_requests, planned
from onoff.client.journal import Journal
from onoff.client.transports.web import HttpTransport
from recordingserver import OnoffOrigin, Origin, RecordingServer
from serverprocess import ServerProcess
from smalldisk import PAGE, can_mount, small_disk
from stresskit import ADVICE, portion, said

pytestmark = pytest.mark.stress
LONG = {name: body + b"." * 3000 for name, body in BODIES.items()}
LENGTH = 4096
ENDS = BEFORE, BETWEEN, PENDING, ROOM = (
    "refused before the first query", "refused between two queries", "stays pending", "room for all"
)  # fmt: skip


@pytest.fixture
def plans(tmp_path):
    return planned(tmp_path / "plans")


@pytest.mark.parametrize("part", [1, pytest.param(2, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", [pytest.param("own", marks=pytest.mark.long), "any"])
def test_a_client_with_a_full_disk_says_so_and_goes_on_later(kind, part, driver, plans, tmp_path, campaign):
    CHAIN.save(tmp_path / "chain.json")
    origin = OnoffOrigin(LONG, LENGTH) if kind == "own" else Origin(LONG)
    with RecordingServer(origin) as server:
        (tmp_path / "urls.json").write_text(json.dumps(origin.urls(server) if kind == "any" else {}))
        reach = ["--server", server.url] if kind == "own" else ["--urls", str(tmp_path / "urls.json")]
        reach += ["--chain", str(tmp_path / "chain.json"), "--delay", "0.001"]

        def requested(disk, where, rng):
            """The order for eight requests, and what they are for."""
            sources = [rng.choice(NAMES) for _ in range(8)]
            lines = [f"{'on' if rng.random() < 0.4 else 'off'} {source}\n" for source in sources]
            (tmp_path / "requests").write_text("".join(lines))
            words = ["play", str(tmp_path / "requests"), "--journal", str(disk.place / "journal")]
            words += ["--plans", str(where), "--out", str(disk.place / "out"), *reach]
            words += ["--promise", rng.choice(("past", "both"))]
            return {"log": str(tmp_path / "log"), "command": words}, sources

        # An open journal has its log beside it: with so many pages at most, over a third of the runs have room for all.
        most = (6 if kind == "own" else 9) * pages_of_all(driver, requested, tmp_path / "with-room")
        for number, rng in enumerate(campaign.runs(65, f"{kind} {part}")):
            pages = rng.randint(3, most)
            with small_disk(tmp_path / f"disk-{number}", pages) as disk:
                # Plans are at hand, or must be kept on the full disk, too; so must the messages.
                where = plans if rng.random() < 0.7 else disk.place / "plans"
                order, sources = requested(disk, where, rng)
                full = {} if disk.mounted else {"largest": pages * PAGE}
                server.reset()
                ended = two_tries({**order, **full}, driver, campaign, disk, server)
                disk.grow()
                driver.run(order)  # with room again
                server.wait_closed()
                check_client(kind, server, disk, origin, sources)
                campaign.count(f"clients: {ended}")
    # A campaign that meets one kind of end only shows little. In few runs chance decides.
    if portion(65) >= 50 and can_mount(tmp_path):
        assert all(campaign.counts[f"clients: {kind}"] for kind in ENDS), campaign.counts


def pages_of_all(driver, requested, place):
    """How many pages of a disk are in use once all requests of a file were made, with plans."""
    with small_disk(place, 2**12) as disk:
        driver.run(requested(disk, disk.place / "plans", random.Random(1))[0])
        return sum(-(-file.stat().st_size // PAGE) for file in disk.place.rglob("*") if file.is_file())


def two_tries(order, driver, campaign, disk, server):
    """Twice on the full disk: what was said, which must be about the disk."""
    campaign.count("disks: " + ("real ones" if disk.mounted else "a limit on the size of files"))
    for _ in range(2):
        before = driver.errors.stat().st_size
        result = driver.run(order, codes=(0, 2, 6))
        told = said(driver.errors, before)
        assert "Traceback" not in told, told
        if result["code"] == 0:
            return ROOM
        [error] = [line for line in told.splitlines() if line.startswith("onoff: error: ")]
        assert not [word for word in ADVICE if word in error], error
    if "stays pending" in error:
        return PENDING
    return BETWEEN if any(request.path != "/v1/catalogue" for request in server.requests) else BEFORE


def check_client(kind, server, disk, origin, sources):
    """Every step was asked with one set, in order; every message is there."""
    fingerprint = origin.catalogue.fingerprint if kind == "own" else HttpTransport(origin.urls(server)).fingerprint
    journal = Journal(disk.place / "journal", CHAIN.fingerprint, fingerprint)
    drawn = [tuple(step.query) for step in journal.steps()]
    journal.close()
    if kind == "own":
        bodies = [json.loads(request.body) for request in server.requests if request.path == "/v1/query"]
        asked = [(body["step"], tuple(body["sources"])) for body in bodies]
        assert list(dict.fromkeys(asked)) == list(enumerate(drawn))
        assert asked == sorted(asked)
    else:
        check_requests(server.recording(), drawn)
    got = {int(file.name): file.read_bytes() for file in (disk.place / "out").iterdir() if file.name.isdecimal()}
    assert got == {i: LONG[source] for i, source in enumerate(sources)}


def test_a_server_with_a_full_disk_records_what_it_answers(tmp_path, campaign):
    """The transcript has whole lines, and one for every answer; with room again the server answers again."""
    for number, rng in enumerate(campaign.runs(40, "server")):
        place = tmp_path / str(number)
        place.mkdir()
        with small_disk(tmp_path / f"server-{number}", rng.randint(1, 12)) as disk:
            answered = fill(place, disk, rng)
        campaign.count("servers: filled their disk")
        campaign.count("servers: queries answered and recorded", answered)


def fill(place, disk, rng):
    """Ask a server whose transcript is on this disk until that is full, make room, and ask again; how many answers."""
    with ServerProcess(place, names=NAMES) as server:
        server.publish(BODIES)
        server.stop()
        server.transcript_file = disk.place / "transcript.jsonl"
        server.options[server.options.index("--transcript") + 1] = str(server.transcript_file)
        server.start()
        limit(server, disk, rng.randint(1, 12) * PAGE)
        answered = ask_until_full(server, rng)
        assert server.transcript_file.read_bytes().endswith(b"\n"), "half a line stays"
        assert len(server.transcript()) == answered
        disk.grow()
        limit(server, disk, resource.RLIM_INFINITY)
        server.ask([0, 2], step=1)
        assert len(server.transcript()) == answered + 1
        return answered


def limit(server, disk, size):
    """Where no file system can be mounted: no file of the server may grow beyond that."""
    for pid in () if disk.mounted else (server.process.pid, *server.workers()):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def ask_until_full(server, rng):
    """How many were answered before some were refused; the server stays up."""
    answered = refused = 0
    while refused < 5:
        sources = sorted(rng.sample(range(len(NAMES)), rng.randint(1, len(NAMES))))
        response = server.query(sources, step=rng.randrange(10**9))
        answered += response.status_code == 200
        refused += response.status_code != 200
        assert response.status_code in (200, 503), response.text
        assert answered < 10_000, "the disk does not fill"
    assert httpx.get(f"{server.url}/health").status_code in (200, 503)
    return answered
