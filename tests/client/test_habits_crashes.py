"""`kill -9` at every action while habits are learned, a chain is first used, fitted again and found wrong.

After each kill the next process goes on where the journal stands. Then the referee makes every step again: one query a
step, nothing drawn twice, every chain due, in the transcript that the server kept. A chain takes one transition for
each source here, or two, so that streams of some tens of steps go through all of it.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from crashkit import NAMES, OFF, ON, OwnServer
from onoff.audit import habits as referee
from onoff.audit.files import read_journal
from onoff.audit.log import Exhibits, audit_log
from onoff.client.habits import unknown_habits
from onoff.client.laws import maker
from onoff.past import Candidates
from onoff.past.step import prepare

STRIDE = 5 if os.environ.get("CI") == "true" else 60
UNKNOWN = unknown_habits(NAMES)
LEARNED = [(NAMES[t * t % 3], None, OFF) for t in range(30)]
USED = [("weather", None, OFF), ("news", None, ON)]
IN_ORDER = [(NAMES[t % 4], None, OFF) for t in range(30)]  # blows the fuse


@pytest.fixture
def server(tmp_path):
    found = OwnServer(tmp_path)
    yield found
    found.close()


@pytest.mark.long
@pytest.mark.parametrize(("few", "later", "blows"), [(1, LEARNED, False), (2, IN_ORDER, True)])
def test_killed_while_habits_change_nothing_is_drawn_twice(few, later, blows, server, driver, tmp_path, monkeypatch):
    monkeypatch.setattr(referee, "EACH", few)
    chains, stages = set(), set()
    for deadly in itertools.count(1, STRIDE):
        place = tmp_path / f"killed-{deadly}"
        place.mkdir()
        server.forget()
        files = {name: str(place / name) for name in ("journal", "received", "log")}
        order = {"server": server.order["server"], "promise": "past", "chain": None, "few": few, **files}
        order["items"] = [*LEARNED[: 4 * few + 1], *USED, *later]
        result = driver.run(order, deadly)
        if result["killed"]:
            driver.run(order)
        noted = read_journal(Path(order["journal"]), UNKNOWN)
        assert [NAMES[step.request] for step in noted.steps] == [source for source, _, _ in order["items"]]
        server.check([step.query for step in noted.steps])
        verdict = audited(server, Path(order["journal"]), place)
        assert (verdict.findings, verdict.unchecked) == ((), ()), f"killed before action {deadly}: {verdict}"
        served, _ = referee.serve(UNKNOWN, noted)
        chains.add(len(noted.chains))
        stages.add(served[-1].due)
        if not result["killed"]:
            break
    assert max(chains) > 1  # fitted again
    assert stages == {blows}


def audited(server, journal, place):
    """The verdict of the referee on this stream, with the laws made again."""
    lines = Path(server.process.transcript_file).read_text().splitlines(keepends=True)
    (place / "seen").write_text("".join(lines))
    exhibits = Exhibits({}, None, lambda *public: prepare(Candidates(*public)), maker())
    return audit_log(UNKNOWN, place / "seen", exhibits, journal, attacked=False).verdict
