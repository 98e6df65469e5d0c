from __future__ import annotations

import subprocess
import sys

from pageprocess import processes_of, until_gone

PARENT = """
import sys, time
from pathlib import Path
from onoff.server.local import LocalServer
server = LocalServer(Path(sys.argv[1]), {"a": b"one", "b": b"two"}, 16)
server.start()
print(server.pid, flush=True)
time.sleep(60)
"""


def test_the_server_ends_with_a_parent_that_was_killed(tmp_path):
    """The demonstration and the page start their servers so; `kill -9` gives them no moment to stop them."""
    with subprocess.Popen([sys.executable, "-c", PARENT, tmp_path], stdout=subprocess.PIPE, text=True) as parent:
        try:
            server = int(parent.stdout.readline())
            family = processes_of(server)
            assert len(family) >= 2  # with its worker
        finally:
            parent.kill()
    until_gone(family)
    assert "the parent process is gone" in (tmp_path / "server.log").read_text()
